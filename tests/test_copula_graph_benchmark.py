import copula_graph_limits as limits
import copula_graph_methods as methods
import copula_graph_report as report
import copula_graph_scores as scores
import copula_graph_tables as tables
import numpy as np
import pytest
from _results import Results
from sklearn.covariance import graphical_lasso


def test_f1_is_that_of_the_pairs():
    truth = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        truth[i, j] = truth[j, i] = True
    edges = np.zeros_like(truth)
    for i, j in ((0, 1), (0, 2)):
        edges[i, j] = edges[j, i] = True
    assert scores.f1(edges, truth) == pytest.approx(2 * 1 / (2 + 3))
    assert scores.f1(truth, truth) == 1
    assert scores.f1(np.zeros_like(truth), truth) == 0


def test_pairs_are_ranked_by_entry_and_then_by_strength():
    first, second = np.zeros((2, 3, 3))
    first[0, 1] = 0.1
    second[0, 1], second[0, 2], second[1, 2] = 0.2, 0.9, 0.8
    order = scores.ranked(np.array([first, second]))
    assert order[0, 1] > order[0, 2] > order[1, 2] > order[1, 0] == 0


@pytest.mark.parametrize("name", ["copula20", "copula100"])
def test_columns_are_of_all_kinds_and_edges_are_those_of_the_precision(name):
    table = tables.drawn(name, "none", 0.0, 0)
    d = int(name.removeprefix("copula"))
    assert table.X.shape == (tables.ROWS, d)
    assert table.truth.sum() // 2 == tables.NEIGHBOURS * d // 2
    for j, n_levels in enumerate(table.n_levels):
        if n_levels > 1:
            assert set(table.X[:, j]) == set(range(n_levels))
    assert (table.X[:, 1] == 0).mean() > 0.2  # zero-inflated
    assert table.kinds[:5] == ["numeric", "numeric", "ordinal", "nominal", "nominal"]


def test_the_latent_precision_has_the_edges():
    truth, covariance = tables.random_graph(20, np.random.default_rng(0))
    precision = np.linalg.inv(covariance)
    np.fill_diagonal(precision, 0)
    np.testing.assert_array_equal(np.abs(precision) > 1e-8, truth)


@pytest.mark.parametrize(("mechanism", "share"), tables.HOLES)
def test_cells_are_missing_as_asked(mechanism, share):
    X = tables.drawn("copula20", mechanism, share, 1).X
    missing = np.isnan(X).mean(0)
    if mechanism == "MAR":
        assert (missing[:7] == 0).all()
        missing = missing[7:]
    error = np.sqrt(share * (1 - share) / missing.size / tables.ROWS)
    assert abs(missing.mean() - share) <= 5 * error


def test_numbers_are_filled_by_means_and_codes_by_modes():
    X = np.array([[1.0, 0.0], [3.0, 2.0], [np.nan, 2.0], [5.0, np.nan]])
    table = tables.Table("", X, ["numeric", "nominal"], [1, 3], np.zeros((2, 2), bool))
    found = methods.filled_codes(table)
    np.testing.assert_array_equal(found[2:], [[3, 2], [5, 2]])


def test_the_path_of_rivals_is_that_of_the_graphical_lasso():
    rng = np.random.default_rng(0)
    correlation = np.corrcoef(rng.normal(size=(6, 60)) + rng.normal(size=60))
    found = methods.lasso(correlation, 60)
    alphas = np.abs(correlation - np.eye(6)).max() * np.geomspace(1, 0.01, 20)
    for k in (4, 9):
        precision = graphical_lasso(correlation, alphas[k], enet_tol=1e-9)[1]
        scale = np.sqrt(np.diag(precision))
        expected = np.abs(precision) / np.outer(scale, scale) - np.eye(6)
        np.testing.assert_allclose(found.path[k], expected, atol=5e-3)


def record(method, seed, auc, f1, share=0.3):
    key = {"part": "simulated", "table": "copula20", "mechanism": "MCAR"}
    key |= {"share": share, "seed": seed, "method": method, "seconds": 1.0}
    return key | {"auc": auc, "best_f1": 0.8, "f1": f1}


def test_a_rival_counts_with_its_best_rule_on_common_sets():
    results = Results()
    rival = "filled, graphical lasso"
    for seed, auc in ((0, 0.9), (1, 0.1)):
        results.add(record(report.OURS, seed, auc, {"ebic 0": 0.7}))
    results.add(record(rival, 0, 0.8, {"CV": 0.5, "ebic 0": 0.75}))
    assert report.behind(results, "auc") == (1, [])  # set 1 has no rival
    asked, lost = report.behind(results, "chosen")
    assert asked == 1
    assert "0.750 against 0.700, 1 sets" in lost[0]
    assert report.well_chosen(results) == (1, ["copula20, 30% MCAR: 0.700 of 0.800"])
    assert "**missed** in 1 of 1" in report.found(results)


def test_partial_correlations_are_those_of_regressions():
    Z = np.random.default_rng(0).normal(size=(50, 3))
    Z[:, 1] += Z[:, 0]
    given = np.column_stack([np.ones(50), Z[:, 2]])
    rest = Z[:, :2] - given @ np.linalg.lstsq(given, Z[:, :2], rcond=None)[0]
    expected = abs(np.corrcoef(rest.T)[0, 1])
    found = limits.partial_correlations(Z)
    assert found[0, 1] == pytest.approx(expected)
    assert (found.diagonal() == 0).all()


def test_price_of_pairs_is_that_of_the_rows_that_have_both():
    X = np.zeros((10, 2))
    X[:3, 0] = np.nan
    table = tables.Table("numeric", X, ["numeric"] * 2, [1, 1], np.eye(2) > 1)
    found = limits.prices(table, len(X))
    assert found["log n of pairs"] == pytest.approx(np.log(7))
    assert found["log n"] == pytest.approx(np.log(10))
