"""A short form of the comparison of imputers, and what its report is made from."""

import json
from operator import itemgetter

import imputation
import imputation_tables
import numpy as np
import pytest
from _mice import IMPUTATIONS, Mice, installed, run_r
from _miwae import MIWAE
from _rivals import METHODS, ChainedDraws
from sklearn.datasets import load_diabetes

pytestmark = pytest.mark.xdist_group("imputation")  # which share a run

SHORT = ["--tables", "diabetes", "--mechanisms", "MCAR 50", "--seeds", "1"]
BOTH = ["--methods", "mean", "GaussianImputer"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The files and the results of a short run, each method in its own process."""
    folder = tmp_path_factory.mktemp("imputation")
    files = {
        name: folder / name for name in ("results.jsonl", "report.md", "picture.png")
    }
    options = zip(("--results", "--output", "--picture"), files.values(), strict=True)
    arguments = [*SHORT, *BOTH, *(str(a) for pair in options for a in pair)]
    return files, arguments, imputation.main(arguments)


@pytest.mark.slow
@pytest.mark.sampled
def test_results_have_every_score(first):
    files, _, results = first
    lines = files["results.jsonl"].read_text().splitlines()
    key = itemgetter("method")
    assert sorted(map(json.loads, lines), key=key) == sorted(results, key=key)
    points = {"rmse", "mae", "linear", "trees", "fit", "transform", "peak"}
    draws = {"crps", "coverage", "energy", "sample"}
    mean, ours = sorted(results, key=key, reverse=True)
    assert points <= set(mean) and not draws & set(mean)
    assert points | draws <= set(ours)
    assert ours["rmse"] < 0.95 * mean["rmse"]
    assert ours["crps"] < ours["mae"]
    assert 0.8 < ours["coverage"] < 0.99


@pytest.mark.slow
@pytest.mark.sampled
def test_report_is_made_from_the_results(first):
    files, _, results = first
    report = files["report.md"].read_text()
    for result in results:
        assert f"| {result['method']} | {result['rmse']:.3f} |" in report
    assert files["picture.png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.sampled
def test_a_run_that_goes_on_computes_nothing_again(first, monkeypatch, capsys):
    files, arguments, results = first
    monkeypatch.setattr(imputation, "measure", None)  # a call would raise
    written = files["results.jsonl"].read_bytes()
    again = imputation.main([*arguments, "--n-jobs", "0"])
    assert files["results.jsonl"].read_bytes() == written
    assert len(again) == len(results)
    assert "# Imputers compared" in capsys.readouterr().out
    options = imputation.options_of([*arguments, "--seeds", "2"])
    cells = list(imputation.missing_cells(again, options))
    assert [cell[2] for cell in cells] == [[("MCAR 50", 1)]] * 2


def test_reference_methods_are_in_the_report(tmp_path):
    results = tmp_path / "results.jsonl"
    made = []
    for method, rmse in (("BR", 1.0), ("BR draws", 1.25), ("GaussianImputer", 0.8)):
        scores = {"rmse": rmse, "mae": rmse, "trees": 0.5, "fit": 1, "transform": 1}
        draws = {"crps": rmse, "coverage": 0.9, "energy": rmse, "peak": 1.0}
        for name, factor in (("diabetes", 1.0), ("concrete", 4.0)):
            key = (name, "MCAR 50", method, 0)
            scale = factor if method == "GaussianImputer" else 1.0
            row = scores | draws | {"rmse": rmse * scale}
            made.append(dict(zip(imputation.KEY, key, strict=True)) | row)
    results.write_text("".join(json.dumps(row) + "\n" for row in made))
    files = ["--results", str(results), "--output", str(tmp_path / "report.md")]
    methods = ["--methods", "BR", "BR draws", "GaussianImputer"]
    tables = ["--tables", "diabetes", "concrete"]
    imputation.main([*SHORT, *tables, *methods, *files])
    report = (tmp_path / "report.md").read_text()
    assert "| GaussianImputer | 1.600 |" in report  # sqrt(0.8 * 3.2)
    assert "| 1.600 (2 tables; most 3.20, concrete) | **missed** |" in report
    assert "at most 0.98 of BR draws | 0.640 (2 tables" in report


def written(path, crps):
    """Write results of equal scores but CRPS, {(table, method): crps}.

    Several numbers are of the seeds 0, 1, ...
    """
    scores = dict.fromkeys(("rmse", "mae", "trees", "fit", "transform", "peak"), 1.0)
    scores |= {"coverage": 0.9, "energy": 1.0, "sample": 1.0}
    with path.open("w") as file:
        for (name, method), found in crps.items():
            for seed, score in enumerate(np.atleast_1d(found)):
                key = name, "MCAR 50", method, seed
                key = dict(zip(imputation.KEY, key, strict=True))
                file.write(json.dumps(key | scores | {"crps": score}) + "\n")
    return ["--results", str(path), "--only-report", *SHORT[2:4]]


def test_goals_set_against_mice(tmp_path, capsys):
    crps = {}
    for place, name in enumerate(imputation_tables.TABLES):
        crps[name, "mice pmm"] = 0.5
        crps[name, "mice cart"] = 0.4 if place else 0.6
        crps[name, "GaussianImputer"] = 0.5 if place else 0.51
        crps[name, "LAIRImputer"] = 0.4 if place < 5 else 0.45
    imputation.main(written(tmp_path / "results.jsonl", crps))
    said = capsys.readouterr().out
    goal = "CRPS, MCAR 50: no worse than mice pmm on at least 7 of 7 tables"
    assert f"| {goal} | 6 of 7; ratio to the best: 1.020 diabetes, 1.000" in said
    goal = goal.replace("pmm", "pmm and mice cart").replace("7 of", "5 of")
    line = next(line for line in said.splitlines() if goal in line)
    assert "| 5 of 7; ratio to the best: 0.800 diabetes, 1.000" in line
    assert "1.125 miniboone, 1.125 digits | met |" in line
    assert "need R with the package mice: mice norm, mice rf." in said


def test_the_best_of_ours_is_set_against_the_best_of_mice(tmp_path, capsys):
    crps = {
        ("diabetes", "GaussianImputer"): 0.45,
        ("diabetes", "ForestImputer"): 0.4,
        ("diabetes", "mice pmm"): 0.6,
        ("diabetes", "mice cart"): 0.5,
        ("concrete", "LAIRImputer"): 0.5,
        ("concrete", "mice rf"): 0.4,
        ("digits", "ForestImputer"): 0.4,  # nothing to compare with
    }
    imputation.main(written(tmp_path / "results.jsonl", crps))
    said = capsys.readouterr().out
    row = "| MCAR 50 | diabetes | ForestImputer, 0.400 | mice cart, 0.500 | pmm, cart |"
    assert f"{row} 0.800 | met |" in said
    row = "| MCAR 50 | concrete | LAIRImputer, 0.500 | mice rf, 0.400 | rf |"
    assert f"{row} 1.250 | **missed** |" in said
    assert "| MCAR 50 | digits |" not in said


def test_the_best_are_compared_on_equal_seeds(tmp_path, capsys):
    crps = {
        ("diabetes", "GaussianImputer"): [0.5, 0.1, 0.1],
        ("diabetes", "ForestImputer"): [0.4, 0.8, 0.9],
        ("diabetes", "mice pmm"): 0.6,
    }
    imputation.main(written(tmp_path / "results.jsonl", crps))
    row = "| MCAR 50 | diabetes | ForestImputer, 0.400 | mice pmm, 0.600 | pmm |"
    assert f"{row} 0.667 | met |" in capsys.readouterr().out


def test_goals_are_open_where_tables_lack(tmp_path, capsys):
    crps = {(name, "BR draws"): 1.0 for name in ("diabetes", "concrete")}
    crps["diabetes", "ForestImputer, LAIR"] = 0.5
    path = tmp_path / "results.jsonl"
    goal = "| CRPS, MCAR 50: at most 0.82 of BR draws | 0.500"
    imputation.main(written(path, crps))
    said = capsys.readouterr().out
    assert f"{goal} (1 tables; most 0.50, diabetes) | tables lack |" in said
    crps["concrete", "ForestImputer, LAIR"] = 0.5
    imputation.main(written(path, crps))
    assert f"{goal} (2 tables; most 0.50, diabetes) | met |" in capsys.readouterr().out


@pytest.mark.parametrize("mechanism", imputation_tables.MECHANISMS)
def test_masks(mechanism):
    data = imputation_tables.split("diabetes", mechanism, 0)
    fraction = int(mechanism.split()[1]) / 100
    for full, masked, hidden in zip(data.full, data.masked, data.hidden, strict=True):
        np.testing.assert_array_equal(np.isnan(masked), hidden)
        np.testing.assert_array_equal(full[~hidden], masked[~hidden])
    whole = ~np.vstack(data.hidden).any(0)
    assert whole.sum() == (3 if mechanism == "MAR 50" else 0)
    share = np.vstack(data.hidden)[:, ~whole].mean()
    error = np.sqrt(fraction * (1 - fraction) / np.vstack(data.hidden).size)
    assert share == pytest.approx(fraction, abs=5 * error)
    np.testing.assert_allclose(data.full[0].std(0), 1)


@pytest.fixture
def incomplete():
    X, _ = load_diabetes(return_X_y=True)
    X = X[:150, :5] / X[:150, :5].std(0)
    hidden = np.random.default_rng(0).uniform(size=X.shape) < 0.3
    return np.where(hidden, np.nan, X)


@pytest.mark.parametrize(
    "imputer", [MIWAE(steps=20), ChainedDraws(0), METHODS["KNN"](0)], ids=type
)
def test_rivals_fill_and_draw(imputer, incomplete):
    fitted = imputer.fit(incomplete[:100])
    unseen = incomplete[100:]
    filled = fitted.transform(unseen)
    observed = ~np.isnan(unseen)
    tables = [filled]
    if hasattr(fitted, "sample"):
        draws = fitted.sample(unseen, n_draws=3, random_state=0)
        np.testing.assert_array_equal(draws, fitted.sample(unseen, 3, random_state=0))
        assert not (draws[0] == draws[1])[~observed].any()
        tables += list(draws)
    for one in tables:
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one[observed], unseen[observed])


@pytest.fixture
def needs_r():
    if not installed():
        pytest.skip("Rscript with the package mice is not installed")


@pytest.mark.usefixtures("needs_r")
def test_mice_learns_from_the_training_rows_only():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1)) + 0.1 * rng.normal(size=(80, 3))
    X[:60] = np.where(rng.uniform(size=(60, 3)) < 0.2, np.nan, X[:60])
    X[60:, 0] += 1000  # learned from, it would be the first donor of these rows
    X[60:70, 0] = np.nan
    mice = Mice("pmm", 0, n_draws=4, maxit=2).fit(X[:60])
    filled = mice.transform(X[60:])
    draws = mice.sample(X[60:], 4, random_state=0)
    assert draws.shape == (4, 20, 3)
    assert np.isin(draws[:, :10, 0], X[:60, 0]).all()  # donors are observed values
    np.testing.assert_array_equal(draws[:, :, 1:], np.tile(X[60:, 1:], (4, 1, 1)))
    np.testing.assert_allclose(filled[:10, 0], draws[:, :10, 0].mean(0), rtol=1e-12)
    observed = ~np.isnan(X[60:])
    np.testing.assert_array_equal(filled[observed], X[60:][observed])
    train = mice.transform(X[:60])
    assert np.isfinite(train).all()
    assert mice.remarks["cells filled by means"] == 0
    assert Mice.draws_at_most == IMPUTATIONS


@pytest.mark.usefixtures("needs_r")
def test_errors_of_r_are_raised():
    with pytest.raises(RuntimeError, match="no such thing"):
        run_r("-e", "stop('no such thing')")
