"""Masks, scores and page of the benchmark of two published protocols."""

import json
import sys

import numpy as np
import pandas as pd
import protocol_methods as methods
import protocol_report as report
import protocol_rivals as rivals
import protocol_scores as scores
import protocol_tables as tables
import protocols
import pytest
from mixed_rivals import Missing
from protocol_scores import Answer
from statistical import within_standard_errors


def numbers(seed, n=6000, d=10):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + rng.normal(size=(n, 1))


def test_protocol_a_hides_a_fifth_of_the_cells_but_not_the_target(monkeypatch, seed):
    x = numbers(seed, 5000, 2)
    monkeypatch.setattr(tables, "table_a", lambda name: (x, x[:, 0], False))
    case = tables.case_a("some", "MCAR", seed)
    (full,), (masked,), (hidden,) = case.full, case.masked, case.hidden
    assert not hidden[:, -1].any() and not hidden[:, :-1].all(1).any()
    n, kept = 4000, 1 - 0.2**2  # rows without observed x are left out
    assert within_standard_errors(len(full) / n, kept, np.sqrt(kept * 0.04 / n))
    share = (0.2 - 0.2**2) / kept
    error = np.sqrt(share * (1 - share) / len(full))
    for column in hidden[:, :-1].T:
        assert within_standard_errors(column.mean(), share, error)
    assert np.array_equal(full[~hidden], masked[~hidden])
    assert (full[:, 0] == full[:, 2]).all()


def test_classes_are_split_evenly_and_are_a_column():
    case = tables.case_a("iris", "MCAR", 0)
    assert case.nominal == (4,)
    assert np.bincount(case.full[0][:, 4].astype(int)).tolist() == [40, 40, 40]
    again = tables.case_a("iris", "MCAR", 0)
    assert np.array_equal(case.masked[0], again.masked[0], equal_nan=True)


def test_mar_leaves_three_of_ten_columns_complete(seed):
    x = numbers(seed)
    hidden = tables.mar_columns(x, np.random.default_rng(seed))
    shares = hidden.mean(0)
    assert (shares == 0).sum() == 3
    assert shares[shares > 0] == pytest.approx(0.3 / 0.7, abs=0.03)
    inputs = x[:, shares == 0]
    first = hidden[:, shares > 0][:, 0]
    slopes = np.linalg.lstsq(inputs - inputs.mean(0), first - first.mean())[0]
    chance = (inputs - inputs.mean(0)) @ slopes
    assert chance[first].mean() - chance[~first].mean() > 0.1
    other = np.where(shares == 0, x, 0)  # the mask depends on the complete columns only
    same = tables.mar_columns(other, np.random.default_rng(seed))
    assert np.array_equal(hidden, same)


@pytest.mark.parametrize("mechanism", tables.MECHANISMS_B)
def test_protocol_b_scales_by_the_observed_cells_to_learn_from(
    monkeypatch, mechanism, seed
):
    x = 5 + 3 * numbers(seed, 1000)
    monkeypatch.setattr(tables, "table_b", lambda name: (x, np.arange(1, 10)))
    case = tables.case_b("some", mechanism, seed)
    assert [part.shape for part in case.full] == [(700, 9), (300, 9)]
    assert np.nanmean(case.masked[0], 0) == pytest.approx(0, abs=1e-12)
    assert np.nanstd(case.masked[0], 0) == pytest.approx(1)
    rows = np.vstack(case.full)
    back = np.sort((rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std())
    expected = np.sort((x[:, 1] - x[:, 1].mean()) / x[:, 1].std())
    assert back == pytest.approx(expected)


def test_california_has_the_columns_of_scikit_learn(monkeypatch):
    names = (
        *("longitude", "latitude", "housing_median_age", "total_rooms"),
        *("total_bedrooms", "population", "households", "median_income"),
        "median_house_value",
    )
    raw = pd.DataFrame([[-122.0, 38, 41, 880, 129, 322, 126, 8, 452600]], columns=names)
    monkeypatch.setattr(tables, "load", lambda name: raw)
    x, y, classes = tables.housing()
    rooms, bedrooms, occupancy = 880 / 126, 129 / 126, 322 / 126
    assert x[0] == pytest.approx([8, 41, rooms, bedrooms, 322, occupancy, 38, -122])
    assert y[0] == 452600 and not classes


def test_errors_of_hand_made_tables():
    """Ranges are 2 and 10; the last column has three levels."""
    full = np.array([[0.0, 0.0, 0.0], [2.0, 10.0, 1.0], [1.0, 5.0, 2.0]])
    hidden = np.array([[True, False, True], [True, True, False], [False] * 3])
    one, two = full.copy(), full.copy()
    one[0] = 1.0, 0.0, 2.0  # half of the range, and a wrong level
    one[1] = 2.0, 5.0, 1.0
    two[0] = 0.5, 0.0, 0.0
    two[1] = 0.0, 0.0, 1.0
    both = np.stack([one, two])
    errors = scores.row_errors(both, full, (2,))
    assert errors == pytest.approx(np.array([[1.5, 0.5, 0], [0.25, 2, 0]]))
    assert scores.min_mae(both, full, hidden, (2,)) == pytest.approx(0.75 / 4)
    assert scores.avg_mae(both, full, hidden, (2,)) == pytest.approx(4.25 / 2 / 4)
    assert scores.avg_mae(both[:1], full, hidden, (2,)) == pytest.approx(2 / 4)
    assert scores.wasserstein([[0.0], [3.0]], [[3.0], [1.0]]) == pytest.approx(0.5)


def test_two_levels_count_as_a_number():
    full = np.array([[0.0], [1.0]])
    assert scores.row_errors(1 - full[None], full, (0,)) == pytest.approx(1)


def case_of_numbers():
    full = np.arange(12.0).reshape(6, 2)
    masked = full.copy()
    masked[2, 0] = masked[4, 1] = np.nan
    return tables.Case(("A", "some", "MCAR", 0), (full,), (masked,), ())


def test_truth_has_no_error_and_draws_are_proper_scores():
    case = case_of_numbers()
    (full,) = case.full
    right = scores.score_a(case, Answer([full], [np.stack([full] * 20)], 0.0))
    zero = ("min_mae", "avg_mae", "avg_mae_draws", "mae_median", "rmse", "crps")
    assert [right[name] for name in (*zero, "energy", "w_train")] == [0] * 8
    assert right["coverage"] == pytest.approx(0.9)
    point = scores.score_a(case, Answer([full + 1], None, 0.0))
    assert point["min_mae"] == point["avg_mae"] > 0 and "crps" not in point
    draws = np.stack([full + k for k in (-1, 0, 1, 2, 3)])
    drawn = scores.score_a(case, Answer(None, [draws], 0.0))
    assert drawn["min_mae"] == 0 and drawn["rmse"] == pytest.approx(0.1)
    assert "coverage" not in drawn


def test_parts_are_scored_apart():
    full, masked = np.ones((3, 2)), np.full((3, 2), np.nan)
    case = tables.Case(("B", "x", "MCAR", 0), (full,) * 2, (masked,) * 2, ())
    found = scores.score_b(case, Answer([full + 1, full + 3], None, 0.0))
    assert [found[f"{s}_{p}"] for p in ("in", "out") for s in ("mae", "rmse")] == [
        *(1, 1, 3, 3)
    ]
    drawn = [np.stack([full, full + 2])] * 2
    assert scores.score_b(case, Answer(None, drawn, 0.0))["mae_in"] == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["KNN(1)", "IterativeImputer", "GaussianImputer"])
def test_methods_fill_and_do_not_see_hidden_cells(method):
    case = tables.case_a("iris", "MCAR", 0)
    (full,), (hidden,) = case.full, case.hidden
    answer = methods.METHODS[method](case, 0, 5)
    assert answer.points[0].shape == full.shape
    assert answer.points[0][~hidden] == pytest.approx(full[~hidden])
    methods.Ours.last = None, None
    other = case._replace(full=(np.where(hidden, 0, full),))
    again = methods.METHODS[method](other, 0, 5)
    assert np.array_equal(answer.points[0], again.points[0])


def test_a_method_that_this_version_lacks_says_so():
    with pytest.raises(Missing, match="no NoImputer"):
        methods.later("NoImputer", 0)


def test_a_rival_answers_by_files(monkeypatch, tmp_path):
    """A stand-in writes what `_protocol_rivals.py` writes."""
    script = tmp_path / "rival.py"
    script.write_text(
        "import sys, numpy as np\n"
        "given = np.load(sys.argv[1])\n"
        "draws = np.nan_to_num(np.stack([given['learn']] * int(sys.argv[4])))\n"
        "np.savez(sys.argv[2], draws0=draws, notes=np.array(['rival 1', '2.5']))\n"
    )
    monkeypatch.setattr(rivals, "_SCRIPT", str(script))
    case = case_of_numbers()
    answer = rivals.Rival("some")(case, 0, 5)
    assert answer.draws[0].shape == (5, 6, 2) and answer.draws[0][0, 2, 0] == 0
    assert answer.seconds == 2.5 and answer.notes == {"version": "rival 1"}


RECORDS = [
    {"method": "miceforest", "min_mae": 0.04, "avg_mae": 0.08, "crps": 0.05},
    {"method": "GaussianImputer", "min_mae": 0.02, "avg_mae": 0.0915, "crps": 0.055},
]


def test_goals_compare_with_reported_figures_and_rivals_beside():
    place = {"protocol": "A", "table": "concrete", "mechanism": "MCAR", "seed": 0}
    records = [place | r for r in RECORDS]
    for score, expected in (("avg_mae", 1.5), ("min_mae", 20 / 23), ("crps", 1.1)):
        found = report.ratios(records, "GaussianImputer", score)
        assert found == {"concrete": pytest.approx(expected)}
        assert report.verdict(found, score) == (score == "min_mae")


def test_page_is_made_from_results(monkeypatch, tmp_path):
    results, output = tmp_path / "some.jsonl", tmp_path / "page.md"
    place = {"protocol": "A", "table": "concrete", "mechanism": "MCAR", "seed": 0}
    other = {"protocol": "B", "table": "letter", "mechanism": "MAR", "seed": 0}
    scored = {f"{s}_{p}": 0.4 for s in ("mae", "rmse") for p in ("in", "out")}
    lines = [
        *(place | r | {"seconds": 1.0} for r in RECORDS),
        place | {"method": "HyperImpute", "missing": "takes more than 9 s"},
        other | {"method": "MixtureImputer", "seconds": 9.0} | scored,
    ]
    lines = [json.dumps(line | {"commit": "abc"}) for line in lines]
    results.write_text("\n".join(lines) + "\n")
    arguments = ["--results", str(results), "--only-report", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["protocols.py", *arguments])
    protocols.main()
    page = output.read_text()
    assert "| miceforest | 0.034 | 0.073 | 1 | 0.0400 | 0.0800 | 0.0500 |" in page
    assert "| missForest | 0.046 | 0.061 | 0 |" in page
    assert (
        "| GaussianImputer | AvgMAE | 1 | 1.500 | 1.500 (concrete) | missed |" in page
    )
    assert "| MixtureImputer | letter | MAE, in-sample | 1 | 0.4000 | 0.3222 |" in page
    assert "| DiffPuter | 0.3222 | 0.4812 |" in page and "takes more than 9 s" in page


def test_what_is_there_is_not_computed_again(monkeypatch, tmp_path):
    arguments = ["--quick", "--results", str(tmp_path / "some.jsonl")]
    monkeypatch.setattr(sys, "argv", ["protocols.py", *arguments])
    protocols.main()
    monkeypatch.setattr(protocols, "measured", None)
    protocols.main()
    lines = (tmp_path / "some.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == [
        *("KNN(1)", "GaussianImputer")
    ]
