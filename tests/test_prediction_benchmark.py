"""The comparison of ways to predict with missing values."""

import numpy as np
import prediction as study
import prediction_report as report
import pytest
from _results import Results

from skvnce import GaussianImputer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_classes_are_scored_as_by_their_formulas():
    classes, target = np.array([2, 5, 7]), np.array([2, 7, 7, 5])
    probabilities = np.array(
        [[0.5, 0.2, 0.3], [0, 0, 1], [0.2, 0.2, 0.6], [0.1, 0.9, 0]]
    )
    found = study.scores_of_classes(probabilities, target, classes)
    assert found["error"] == pytest.approx(-np.log([0.5, 1, 0.6, 0.9]).mean())
    assert found["brier"] == pytest.approx(np.mean([0.38, 0, 0.24, 0.02]))
    assert found["ece"] == pytest.approx(np.mean([0.5, 0, 0.4, 0.1]))


def test_numbers_are_scored_in_standard_deviations():
    target = np.array([1.0, 3.0])
    ends = np.array([0.0, 0.0]), np.array([2.0, 2.0])
    found = study.scores_of_numbers(np.array([1.0, 1.0]), target, ends)
    assert found == pytest.approx({"error": np.sqrt(2), "coverage": 0.5, "length": 2.0})


def test_intervals_of_one_table_have_the_quantiles_of_residuals(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 2))
    y = X.sum(1) + rng.normal(size=2000)
    model = study.model_of(study.LINEAR, False, 0).fit(X[:1000], y[:1000])
    lower, upper = study.interval(model, X[:1000], y[:1000], X[1000:], seed)
    inside = (lower <= y[1000:]) & (y[1000:] <= upper)
    assert abs(inside.mean() - 0.9) < 4.5 * np.sqrt(0.09 * 2 / 1000)
    assert upper - lower == pytest.approx((upper - lower)[0])


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", report.WAYS)
def test_ways_predict_a_small_table(way, monkeypatch):
    data = study.split("diabetes", "MCAR 50", 0)
    imputer = GaussianImputer(random_state=0).fit(data.masked[0])
    train, new = study.tables_of(way, data, imputer)
    missing = way not in (report.COMPLETE, report.FILLED)
    assert np.isnan(train).any() == np.isnan(new).any() == missing
    model = study.TREES if way == report.RAW else study.LINEAR
    found = study.measured(way, model, data, imputer, 0)
    assert 0.6 < found["error"] < 1 and found["coverage"] > 0.7


def test_the_page_counts_gains_and_losses(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    errors = {report.DRAWS: (1.0, 4.0), report.FILLED: (2.0, 2.0)}
    for way, pair in errors.items():
        for seed, error in enumerate(pair):
            key = {"table": "a", "mechanism": "m", "seed": seed, "classes": False}
            scores = {"error": error, "coverage": 0.9, "length": 3.0, "seconds": 1.0}
            results.add(key | scores | {"model": "linear", "way": way})
    text = "\n".join(report.page(Results(results.path), "notes"))
    assert "| linear | RMSE | one filled table | 1.000 | 1 of 2 |" in text
    assert "| linear | several draws | 0.900 | 0.900 to 0.900 | 3.00 |" in text
    assert "| a | m | linear | one filled table | 2.000 | 0.900 | 3.000 | 1.0 |" in text
