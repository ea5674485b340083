"""Scores, limits and report of the benchmark of impossible imputations."""

import json
import time

import numpy as np
import pytest
import safety
import safety_scores
import safety_tables
from safety_report import report
from safety_scores import score_draws, score_fills, truth_outside
from safety_tables import Problem, hide_cells


@pytest.fixture
def data():
    """Three columns: of any number, of whole numbers, of 0 and 1."""
    full = np.array(
        [[0.0, 1, 0], [2, 3, 1], [4.5, 5, 0], [6, 7, 1], [8, np.nan, 1], [1, 9, 0]]
    )
    hidden = np.zeros(full.shape, dtype=bool)
    hidden[0, 0] = hidden[4, 0] = hidden[1, 1] = hidden[2, 2] = True
    masked = np.where(hidden, np.nan, full)
    return Problem(full, masked, hidden, ["a", "b", "c"], np.array([2.0, 1, 0.5]))


def filled(data, *cells):
    """Fill the five missing cells in the order of rows."""
    table = data.masked.copy()
    table[np.isnan(table)] = cells
    return table


# missing, in the order of rows: (0, 0) truth 0, (1, 1) truth 3, (2, 2) truth 0,
# (4, 0) truth 8, (4, 1) never known; observed: a in 1..6, b in 1..9, c in 0..1
def test_fills(data):
    found = score_fills(data, filled(data, 3.0, 5.0, 1.5, 4.0, 9.5))
    # errors in standard deviations: 1.5, 2, 3, -2
    assert found["rmse"] == pytest.approx(np.sqrt((2.25 + 4 + 9 + 4) / 4))
    # means of the observed cells: 3.375, 5.5, 0.6
    rival = np.array([3.375 / 2, 2.5, 1.2, -4.625 / 2])
    assert found["rmse of means"] == pytest.approx(np.sqrt(np.mean(rival**2)))
    assert found["ratio"] == pytest.approx(found["rmse"] / found["rmse of means"])
    excess = np.array([2.25, 4, 9, 4]) - rival**2
    error = excess.std(ddof=1) / 2
    assert found["excess"] == pytest.approx(excess.mean() / error)
    assert found["farthest"] == pytest.approx(3)
    assert found["farthest cell"] == ["c", 0.0, 1.5]
    assert found["fills outside"] == pytest.approx(2 / 5)  # 1.5 in c, 9.5 in b
    assert not any("declared" in name for name in found)


def test_means_are_their_own_rival(data):
    found = score_fills(data, filled(data, 3.375, 5.5, 0.6, 3.375, 5.5))
    assert found["ratio"] == pytest.approx(1)
    assert found["excess"] == pytest.approx(0, abs=1e-12)
    assert found["fills outside"] == 0


def test_declared_ranges(data):
    declared = np.array([[1.0, 1, 0], [6, 9.5, 1]])
    found = score_fills(data, filled(data, 3.0, 5.0, 1.5, 4.0, 9.5), declared)
    assert found["fills outside declared"] == pytest.approx(1 / 5)
    draws = np.stack([filled(data, 1, 5, 0, 6, 9.5), filled(data, 0.5, 5, 1, 6, 9)])
    found = score_draws(data, draws, declared)
    assert found["draws outside declared"] == pytest.approx(1 / 10)
    assert found["draws outside"] == pytest.approx(2 / 10)


def test_impossible_draws(data):
    draws = np.stack([filled(data, 1, 5.5, 1, 6, 4), filled(data, 1, 2, 0.5, 6, 4)])
    found = score_draws(data, draws)
    assert found["impossible whole"] == pytest.approx(1 / 4)  # 5.5 of 5.5, 4, 2, 4
    assert found["impossible binary"] == pytest.approx(1 / 2)
    assert found["impossible"] == pytest.approx(2 / 6)
    assert found["farthest draw"] == pytest.approx(2.5)  # 5.5 for 3; 1 for 0 is 2
    assert found["draws outside"] == 0
    assert safety_scores.share(0, 0) is None


def test_rounding_and_missing_fills(data):
    just = filled(data, 6 * (1 + 1e-15), 5, 0, 4, 5)
    assert score_fills(data, just)["fills outside"] == 0
    draws = np.stack([filled(data, np.nan, 5, 0, 4, 5)])
    assert score_draws(data, draws)["draws outside"] == pytest.approx(1 / 5)
    assert truth_outside(data) == pytest.approx(2 / 4)  # 0 and 8 of column a
    with pytest.raises(ValueError, match=r"shape \(6, 3\), got \(6, 2\)"):
        score_fills(data, just[:, :2])


def test_hidden_cells(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4))
    X[:200, 1] = np.nan
    X[1:, 3] = np.nan
    X[0, 3] = 1.0
    n_known = (~np.isnan(X[:, :3])).sum()
    data = hide_cells(X, list("abcd"), 0.5, seed)
    assert data.columns[:3] == ["a", "b", "c"]
    assert not (data.hidden & np.isnan(data.full)).any()
    np.testing.assert_array_equal(
        np.isnan(data.masked), np.isnan(data.full) | data.hidden
    )
    # 1000 cells: five standard errors are 0.08, passed by chance once in 1.7 million
    assert data.hidden[:, :3].sum() / n_known == pytest.approx(0.5, abs=0.08)
    np.testing.assert_allclose(data.scale, np.nanstd(data.full, axis=0))


class Sleeper:
    """Spends CPU time at a step, or fails there."""

    def __init__(self, step=None, fails=False):
        self.step, self.fails = step, fails

    def do(self, step):
        if step == self.step and self.fails:
            raise ValueError("Column a is\ntoo odd.")
        while step == self.step:
            time.process_time()

    def fit(self, X):
        self.do("fit")
        return self

    def transform(self, X):
        self.do("transform")
        return np.where(np.isnan(X), 2.0, X)

    def sample(self, X, n_draws, random_state):
        self.do("sample")
        return np.stack([self.transform(X)] * n_draws)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("step", "fails"),
    [
        ("fit", True),
        ("transform", True),
        ("sample", True),
        ("sample", False),
        (None, 0),
    ],
)
def test_a_fit_that_fails_or_takes_too_long_is_a_result(data, step, fails, monkeypatch):
    monkeypatch.setitem(safety.ESTIMATORS, "mean", lambda seed: Sleeper(step, fails))
    found = safety.measure(data, "mean", 0, limit=1)
    if step is None:
        assert found["status"] == "done"
        assert found["draws outside"] == 1 / 5  # 2 in the column of 0 and 1
        return
    assert found["in"] == step
    assert ("ratio" in found) == (step == "sample")
    assert ("fit" in found) == (step != "fit")
    if fails:
        assert found["status"] == "refused"
        assert found["error"] == "ValueError: Column a is too odd."
    else:
        assert found["status"] == "over the limit"


@pytest.fixture
def small(monkeypatch):
    """Two tables, one of them with a negative value."""
    rng = np.random.default_rng(0)
    X = rng.gamma(4, size=(60, 1)) + rng.gamma(1, size=(60, 3))
    known = {"gamma": (X, list("abc")), "shifted": (X[:50] - 5, list("abc"))}
    for module in (safety, safety_tables):
        monkeypatch.setattr(module, "tables", lambda: known)
    monkeypatch.setattr(safety, "left_out", lambda: ["words"])
    return ["--estimators", "mean", "GaussianImputer", "TruncatedGaussianGraphLearner"]


def test_results_are_kept_and_reported(small, tmp_path, monkeypatch, capsys):
    file = tmp_path / "results.jsonl"
    arguments = ["--results", str(file), "--shares", "0.1", *small]
    lines = safety.main(arguments)
    said = capsys.readouterr().out
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines
    results = {(r["table"], r["estimator"]): r for r in lines if "estimator" in r}
    assert len(results) == 6
    assert results["gamma", "mean"]["ratio"] == pytest.approx(1)
    refused = results["shifted", "TruncatedGaussianGraphLearner"]
    assert refused["status"] == "not for negative values"
    ratio = results["gamma", "GaussianImputer"]["ratio"]
    assert f"| gamma 10% | 60x3 | 1.000 | {ratio:.3f} |" in said
    assert "Fewer than two numeric columns have: words." in said
    assert "Not reached" not in said
    monkeypatch.setattr(safety, "measure", None)  # a call would raise
    safety.main(arguments)
    assert "Not reached" not in capsys.readouterr().out
    safety.main([*arguments, "--shares", "0.1", "0.5", "--minutes", "-1"])
    assert "**Not reached**: 6 fits, of gamma, shifted." in capsys.readouterr().out


def line_of(estimator, ratio, **others):
    """Make a result."""
    line = {"table": "american_gut", "share": 0.1, "estimator": estimator, "seed": 0}
    line |= {"rows": 9, "columns": 2, "limit": 1, "status": "done", "ratio": ratio}
    line |= {"farthest": 1.0, "farthest cell": ["a", 0.0, 1.0], "excess": 3.0}
    return line | others


def test_goals():
    lines = [
        line_of("GaussianImputer", 1.04, **{"draws outside": 0.5}),
        line_of("VGIImputer", 1.06, **{"draws outside declared": 0.01}),
        line_of("LAIRImputer", 0.9, **{"draws outside declared": 0.0}),
    ]
    said = "\n".join(report(lines))
    at_most = "RMSE at most 1.05 of that of means anywhere"
    assert f"| GaussianImputer: {at_most} | 1 of 1 fits; most 1.040, amer" in said
    assert f"| VGIImputer: {at_most} | 0 of 1 fits; most 1.060, american_gut" in said
    goals = [
        line.split(" | ") for line in said.splitlines() if line.endswith("sed** |")
    ]
    assert [goal[0].split(": ")[0] for goal in goals] == [
        "| VGIImputer",
        "| GaussianImputer",  # declares no range
        "| VGIImputer",
        "| GaussianImputer",  # 0.90 on this table
    ]
    assert "hidden, at most 0.9 | 1.040 | **missed** |" in said
