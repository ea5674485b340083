import sys

import _mixed_rivals as child
import mixed_methods as methods
import mixed_report as report
import mixed_rivals as rivals
import mixed_scores as scores
import mixed_tables as tables
import numpy as np
import pandas as pd
import pytest
from mixed_scores import Answer
from statistical import within_standard_errors

KINDS, LEVELS = ["numeric", "nominal", "ordinal"], [None, list("abc"), list("xy")]


def table(seed, n=200):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return np.column_stack([z, np.digitize(z, [-0.5, 0.5]), z > 0.2]).astype(float)


def case(seed=0):
    x, rng = table(seed), np.random.default_rng(seed)
    masked = np.where(tables.hidden_cells(x, "MCAR", rng), np.nan, x)
    return tables.Case(
        KINDS, LEVELS, list("pqr"), (x[:140], x[140:]), (masked[:140], masked[140:])
    )


@pytest.mark.parametrize("mechanism", tables.MECHANISMS)
def test_three_of_ten_cells_are_hidden(mechanism, seed):
    x = np.repeat(table(seed, 3000), 2, 1)
    hidden = tables.hidden_cells(x, mechanism, np.random.default_rng(seed))
    shares = hidden.mean(0)
    open_columns = shares > 0
    assert open_columns.sum() == (6 if mechanism == "MCAR" else 4)
    error = np.sqrt(0.3 * 0.7 / 3000)
    assert within_standard_errors(shares[open_columns], 0.3, error)


def read_as_boys(monkeypatch, frame, **asked):
    monkeypatch.setitem(tables.TABLES, "boys", tables.Kinds(("age",), **asked))
    monkeypatch.setattr(tables, "load", lambda name: frame)
    return tables.encoded("boys")


def test_tables_are_read_as_codes_of_their_levels(monkeypatch):
    frame = pd.DataFrame(
        {
            "Education": ["College Grad", None, "8th Grade", "High School"],
            "reg": ["west", "city", "west", None],
            "age": [1, 2, 3, 4],
        }
    )
    asked = {"ordinal": ("Education",), "nominal": ("reg",)}
    x, kinds, levels, names = read_as_boys(monkeypatch, frame, **asked)
    assert kinds == ["numeric", "ordinal", "nominal"]
    assert names == ["age", "Education", "reg"]
    assert levels == [None, tables.ORDERS["Education"], ["city", "west"]]
    nan = np.nan
    expected = [[1, 4, 1], [2, nan, 0], [3, 0, 1], [4, 2, nan]]
    assert np.array_equal(x, expected, equal_nan=True)
    with pytest.raises(KeyError, match="bmi"):
        read_as_boys(monkeypatch, frame, ordinal=("bmi",))


def test_split_hides_observed_cells_and_keeps_the_rows(monkeypatch, seed):
    frame = pd.DataFrame(table(seed), columns=["age", "q", "p"])
    frame.loc[::3, "q"] = None
    monkeypatch.setitem(
        tables.TABLES, "boys", tables.Kinds(("age",), ("p",), nominal=("q",))
    )
    monkeypatch.setattr(tables, "load", lambda name: frame)
    one, again = (tables.split("boys", "MCAR", seed) for _ in range(2))
    assert [len(x) for x in one.full] == [140, 60]
    for full, masked, other in zip(one.full, one.masked, again.masked, strict=True):
        assert np.array_equal(masked, other, equal_nan=True)
        shown = ~np.isnan(masked)
        assert (full[shown] == masked[shown]).all() and shown.any(1).all()
    assert one.hidden.any(0).all() and not one.hidden[np.isnan(one.full[1])].any()


def test_methods_do_not_see_hidden_cells():
    """A method that is given other true values in the hidden cells answers equally."""
    one = case()
    full = tuple(
        np.where(np.isnan(m), 1 - (x > 0), x)
        for m, x in zip(one.masked, one.full, strict=True)
    )
    other = one._replace(full=full)
    for method in (methods.marginal, methods.iterative):
        first, second = method(one, 0), method(other, 0)
        assert np.array_equal(first.points, second.points)
        assert np.array_equal(first.draws, second.draws)
    leaky = np.nan_to_num(one.full[1]), np.nan_to_num(other.full[1])
    assert not np.array_equal(*leaky)


def test_scores_of_the_truth_and_of_its_opposite():
    one = case()
    truth = one.full[1]
    sure = {j: np.eye(len(LEVELS[j]))[truth[:, j].astype(int)] for j in (1, 2)}
    right = scores.score(one, Answer(truth, sure, np.repeat(truth[None], 20, 0)))
    assert right["pfc"] == right["rmse"] == 0 and abs(right["crps"]) < 1e-12
    assert right["brier"] == right["rps"] == right["ece"] == 0
    assert right["coverage"] == pytest.approx(0.9) and right["auc"] <= 0.5
    wrong = truth.copy()
    wrong[:, 1], wrong[:, 2] = (truth[:, 1] + 1) % 3, 1 - truth[:, 2]
    wrong[:, 0] += 3
    mistaken = {j: np.roll(p, 1, 1) for j, p in sure.items()}
    found = scores.score(one, Answer(wrong, mistaken, np.repeat(wrong[None], 20, 0)))
    assert found["pfc"] == 1 and found["brier"] > 1.8 and found["coverage"] == 0
    assert found["ece"] > 0.9 and found["auc"] > 0.6


def test_our_method_answers_in_codes():
    one = case()
    answer = methods.gaussian(one, 0)
    hidden = one.hidden
    assert np.isin(answer.draws[:, hidden[:, 1], 1], [0, 1, 2]).all()
    assert np.allclose(answer.probabilities[1].sum(1), 1)
    found, base = (scores.score(one, a) for a in (answer, methods.marginal(one, 0)))
    assert found["log_loss"] < base["log_loss"] and found["crps"] < base["crps"]


FAKE = """\
import sys
from pathlib import Path
import numpy as np

folder, n_draws = Path(sys.argv[1]), int(sys.argv[2])
rows, width, first = map(int, (folder / "shape.txt").read_text().split())
table = np.fromfile(folder / "table.bin").reshape(width, rows).T
drawn = np.repeat(np.where(np.isnan(table), 1.0, table)[None, first:], n_draws, 0)
drawn[:, 0, -1] = np.nan
drawn.transpose(0, 2, 1).tofile(folder / "draws.bin")
(folder / "notes.txt").write_text("fake 1.0\\n2.5\\nthis is a remark\\n")
"""


def command(tmp_path, text):
    """Make the command of a rival whose script is this text."""
    script = tmp_path / "rival.py"
    script.write_text(text)
    return lambda folder, n_draws, seed: [
        *(sys.executable, str(script), str(folder), str(n_draws), str(seed))
    ]


def small_case():
    """A case of the kinds of KINDS: one level of q is only in the rows to test."""
    train = np.array([[1.5, 0, 0, 7], [2.5, 2, 1, 7], [np.nan, 2, 0, 7]])
    test = np.array([[np.nan, np.nan, np.nan, 7], [9.0, 1, 1, np.nan]])
    kinds, levels = [*KINDS, "numeric"], [*LEVELS, None]
    full = train, np.nan_to_num(test, nan=1.0)
    return tables.Case(kinds, levels, list("pqrs"), full, (train, test))


def test_rivals_get_the_levels_that_training_rows_hold(tmp_path):
    one = small_case()
    given = rivals.coded(one)
    assert given.columns == [0, 1, 2]  # the constant column stays at home
    rivals.write(one, given, tmp_path)
    train, test, kinds, levels = child.read(tmp_path)
    assert kinds == KINDS and levels == [2, 2, 2]
    nan = np.nan
    expected = [[1.5, 0, 0], [2.5, 1, 1], [nan, 1, 0]]
    assert np.array_equal(train, expected, equal_nan=True)
    expected = [[nan, nan, nan], [9, nan, 1]]  # level 1 of q was not learned
    assert np.array_equal(test, expected, equal_nan=True)
    frames = child.frames((train, test), kinds, levels)
    assert isinstance(frames[0]["c2"].dtype, pd.CategoricalDtype)
    assert [frames[0][c].dtype.ordered for c in ("c1", "c2")] == [False, True]
    back = child.codes_of(frames[0], kinds)
    assert np.array_equal(back, train, equal_nan=True)


def test_draws_of_a_rival_come_back_in_codes_of_the_case(tmp_path):
    one = small_case()
    answer = rivals.run(one, 0, command=command(tmp_path, FAKE), n_draws=3)
    assert answer.draws.shape == (3, 2, 4) and answer.probabilities is None
    observed = ~np.isnan(one.masked[1])
    assert (answer.draws[:, observed] == one.masked[1][observed]).all()
    assert (answer.draws[:, 0, :2] == [1.0, 2]).all()  # code 1 of q is its level 2
    assert (answer.draws[:, 1, 3] == 7).all()
    assert np.isin(answer.draws[:, 0, 2], [0, 1]).all()  # left missing: drawn
    assert np.array_equal(answer.points[:, :2], [[1, 2], [9, 1]])
    assert answer.seconds == 2.5
    remarks = ["this is a remark", "cells left missing: 1"]
    assert answer.notes == {"version": "fake 1.0", "remarks": remarks}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no such table')", "fails: ValueError: no such table"),
        ("while True: pass", "takes more than 1 s of CPU"),
    ],
)
def test_rivals_without_an_answer_are_recorded(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr(rivals, "LIMIT", 1)
    with pytest.raises(rivals.Missing, match=reason):
        rivals.run(small_case(), 0, command=command(tmp_path, text))


def record(method, table, **found):
    key = {"table": table, "mechanism": "MCAR", "seed": 0, "method": method}
    return key | found


BASES = [
    record(base, table, log_loss=1.0, crps=1.0, pfc=1.0, seconds=2.0)
    for base in (methods.BASE, methods.CLOCK)
    for table in ("adult", "titanic")
]


def test_goals_are_judged_by_the_results():
    own = [
        record("GaussianImputer", table, log_loss=loss, crps=0.9, pfc=0.5, seconds=8.0)
        for table, loss in [("adult", 0.5), ("titanic", 0.9)]
    ]
    found = report.evaluated([*BASES, *own], "GaussianImputer", report.PLAIN_GOALS)
    verdicts = {name: (round(value, 3), met) for name, _, value, met in found}
    assert verdicts == {
        "log_loss": (0.671, True),  # the geometric mean
        "crps": (0.9, False),
        "pfc": (0.5, True),
        "seconds": (4.0, True),
    }
    assert "GaussianImputer | log-loss | at most 0.84 | 0.671 | met" in report.goals(
        [*BASES, *own]
    )


def test_times_are_over_those_of_the_same_run():
    own = [
        record("GaussianImputer", "adult", seconds=8.0, clock=4.0),
        record("GaussianImputer", "titanic", seconds=8.0),
    ]
    found = report.values([*BASES, *own], "GaussianImputer", "seconds")
    assert {cell[0]: ratio for cell, ratio in found.items()} == {
        "adult": 2.0,
        "titanic": 4.0,  # timed in another run
    }


@pytest.mark.parametrize(("loss", "flag"), [(0.51, False), (0.52, True)])
def test_rivals_ahead_by_more_than_two_percent_are_flagged(loss, flag):
    records = [
        *BASES,
        record("GaussianImputer", "adult", log_loss=loss),
        record("mice cart", "adult", log_loss=0.505),
        record("mice rf", "adult", missing="takes more than 300 s of CPU"),
        record("mice default", "titanic", log_loss=0.1),  # ours has no result there
    ]
    ((one, best, rival, count, mine, ratio),) = report.versus(records, "log_loss")
    assert (one, best, rival, count) == ("adult", "GaussianImputer", "mice cart", 1)
    assert mine == pytest.approx(loss) and ratio == pytest.approx(loss / 0.505)
    assert ("behind by more than 2 %" in report.duel(records, "log_loss")) == flag
    assert "takes more than 300 s" in report.missing(records)
    behind = "adult (mice cart)" if flag else "none"
    assert "ahead of all rivals with results on 0 of 1 tables" in report.found(records)
    assert report.found(records).endswith(f"by more than 2 % on {behind}.")


def test_the_best_of_ours_is_found_on_common_cells():
    """LAIRImputer is better where both have results, GaussianImputer on its own."""
    records = [
        *BASES,
        record("draws of the marginal", "adult", log_loss=1.0) | {"seed": 1},
        record("GaussianImputer", "adult", log_loss=0.6),
        record("GaussianImputer", "adult", log_loss=0.1) | {"seed": 1},
        record("LAIRImputer", "adult", log_loss=0.5),
        record("mice rf", "adult", log_loss=0.4),
    ]
    ((_, best, _, _, mine, _),) = report.versus(records, "log_loss")
    assert best == "LAIRImputer" and mine == pytest.approx(0.5)
