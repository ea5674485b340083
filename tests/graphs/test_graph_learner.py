"""The learner's door: input, errors, attributes, and its place in scikit-learn."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from oracles import GATE, log_integral, orthant_rule, rejection, z_mean
from sklearn.exceptions import ConvergenceWarning

from skvnce import TruncatedGaussianGraphLearner
from skvnce.graphs import em

# few rounds on small tables, where a warning of a misfit is right at some seeds
pytestmark = pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning")

NAMES = ["height", "weight", "age", "dose"]
METHODS = ["score-matching", "vnce"]
DOORS = ["transform", "sample", "score_samples", "score"]


def learner(**params):
    """Make a learner that is quick, and settled after any round."""
    defaults = {"alpha": 0.02, "max_iter": 12, "tol": 1.0, "n_steps": 4}
    if params.get("algorithm") == "vnce":
        defaults["noise_ratio"] = 3
    return TruncatedGaussianGraphLearner(**{**defaults, "random_state": 0, **params})


@pytest.fixture
def X(rng):
    """The first two columns rise together, the last falls with the first."""
    X = rng.gamma(3.0, size=(120, 4))
    X[:, 1] += 1.5 * X[:, 0]
    X[:, 3] += 20 / (1 + X[:, 0])
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    return X[~np.isnan(X).all(1)]


@pytest.fixture
def frame(X):
    return pd.DataFrame(X, columns=NAMES)


# Input that is refused


@pytest.mark.parametrize("door", DOORS)
def test_negative_cells_are_named_at_every_door(door, frame):
    row = int(np.flatnonzero(frame["weight"].notna())[3])
    fitted = learner().fit(frame)
    frame.iloc[row, 1] = -2.0
    with pytest.raises(ValueError, match=f"'weight', row {row}"):
        getattr(fitted, door)(frame)


# Failures and side effects


def test_what_is_returned_is_not_the_input(X):
    complete = np.nan_to_num(X, nan=1.0)
    fitted = learner().fit(X)
    filled = fitted.transform(complete)
    filled[:] = 0
    assert (complete > 0).any() and (fitted.transform(complete) == complete).all()


# Empty rows and columns


def test_entirely_missing_rows(X):
    fitted = learner().fit(np.vstack([X, np.full((3, 4), np.nan)]))
    alone = learner().fit(X)
    np.testing.assert_array_equal(fitted.precision_, alone.precision_)
    empty = np.full((2, 4), np.nan)
    filled = fitted.transform(empty)
    assert np.isfinite(filled).all() and (filled > 0).all()
    assert (fitted.score_samples(empty) == 0).all()
    assert fitted.sample(empty, random_state=0)[0].min() > 0


@pytest.mark.slow
def test_errors_of_scores_are_as_large_as_stated(rng):
    """Against the mean of many other estimates; complete rows need no draws."""
    X = rng.gamma(4.0, size=(300, 4))
    X[:, 1] += X[:, 0]
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    fitted = learner(n_steps=6).fit(X)
    scores, reported = fitted.score_samples(X, return_std=True)
    np.testing.assert_array_equal(scores, fitted.score_samples(X))
    rows = reported > 1e-12
    assert 100 < rows.sum() < 300
    model = fitted._cell_model()
    others = np.array([model._log_predictive(X[rows], 100 + i) for i in range(40)])
    variance = others.var(0, ddof=1)
    errors = np.square(scores[rows] - others.mean(0)) * 40 / 41  # unbiased

    def away_from_one(ratios):
        return (ratios.mean() * 37 / 39 - 1) / (ratios.std() / rows.sum() ** 0.5)

    for result in (errors, np.square(reported[rows])):
        assert abs(away_from_one(result / variance)) < 5
        assert away_from_one(result / 4 / variance) < -5
    complete = rng.gamma(4.0, size=(5, 4))
    assert fitted.score_samples(complete, return_std=True)[1].max() < 1e-12


# Attributes


def test_attributes_belong_together(frame):
    fitted = learner(alpha=0.0).fit(frame)
    K, root = fitted.precision_, np.sqrt(np.diag(fitted.precision_))
    np.testing.assert_array_equal(K, K.T)
    strengths = np.abs(K) / np.outer(root, root)
    np.testing.assert_allclose(fitted.edge_strengths_ + np.eye(4), strengths)
    np.testing.assert_allclose(fitted.location_, frame.mean())
    assert np.linalg.eigvalsh(K)[0] > 0
    np.testing.assert_allclose(K @ fitted.untruncated_mean_, fitted.linear_)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 7  # 2, and 5 that are averaged
    assert fitted.change_ < 1 and fitted.optimality_gap_ < 1e-7
    assert fitted.ridge_ > 0


def test_location_needs_a_definite_matrix(rng):
    """Three columns of which at most one is large: positive links, K not definite."""
    X = rng.gamma(1.0, size=(300, 3)) * 0.05
    X[np.arange(300), np.arange(300) % 3] += rng.gamma(4.0, size=300)
    fitted = learner(alpha=0.0, ridge=0.0).fit(X)
    assert np.linalg.eigvalsh(fitted.precision_)[0] < 0
    assert not hasattr(fitted, "untruncated_mean_")
    refitted = fitted.set_params(alpha=10.0).fit(X)
    assert hasattr(refitted, "untruncated_mean_")
    assert not hasattr(refitted.set_params(alpha=0.0).fit(X), "untruncated_mean_")


def test_complete_data_need_one_round(X):
    X = np.nan_to_num(X, nan=1.0)
    fitted = learner(tol=0.0).fit(X)
    assert fitted.n_iter_ == 1 and fitted.change_ == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("hidden", [0.0, 0.2])
def test_log_scale_is_the_log_normaliser(hidden, seed):
    """Of the fitted model, in the units of X, by quadrature."""
    precision, linear = np.array([[1.0, -0.7], [-0.7, 1.0]]), np.array([0.5, 0.5])
    rng, excess, unscaled = np.random.default_rng(seed), [], []
    points, weights = orthant_rule(2, 80.0, 120)
    params = {"algorithm": "vnce", "alpha": 0.0, "ridge": 0.0, "noise_ratio": 5}
    for i in range(8):
        X = rejection(precision, linear, np.full(2, np.nan), 1000, rng) * [1, 5]
        X[rng.uniform(size=X.shape) < hidden] = np.nan
        fitted = learner(random_state=100 * seed + i, **params).fit(X)
        model = fitted.to_torch()
        log_z = log_integral(model.log_density(points), weights) + model.log_scale
        excess.append(fitted.log_scale_ - float(log_z.detach()))
        unscaled.append(excess[-1] - np.log(np.nanstd(X, 0)).sum())
    assert abs(z_mean(excess, 0)) < GATE and abs(z_mean(unscaled, 0)) > GATE


# The graph


@pytest.mark.parametrize("named", [True, False])
def test_edges_carry_names_and_signs(named, X, frame):
    fitted = learner(alpha=0.1).fit(frame if named else X)
    nodes = NAMES if named else ["x0", "x1", "x2", "x3"]
    table, K = fitted.edges(), fitted.precision_
    names = ["source", "target", "association", "precision", "probability"]
    assert list(table) == names
    assert 2 <= len(table) < 6  # the penalty left some pairs without a link
    strengths = table["association"].abs().to_numpy()
    assert (np.diff(strengths) <= 0).all() and len(table) == (np.triu(K, 1) != 0).sum()
    for row in table.itertuples():
        i, j = nodes.index(row.source), nodes.index(row.target)
        assert row.precision == K[i, j]
        assert row.probability == fitted.edge_probabilities_[i, j]
        expected = -K[i, j] / np.sqrt(K[i, i] * K[j, j])
        assert row.association == pytest.approx(expected)
    signs = table.set_index(["source", "target"])["association"]
    assert signs[nodes[0], nodes[1]] > 0  # rise together
    assert signs[nodes[0], nodes[3]] < 0


def test_networkx_graph(frame):
    fitted = learner(alpha=0.05).fit(frame)
    graph, table = fitted.to_networkx(), fitted.edges()
    assert isinstance(graph, nx.Graph) and list(graph.nodes) == NAMES
    assert graph.number_of_edges() == len(table)
    for row in table.itertuples():
        edge = graph.edges[row.source, row.target]
        assert list(edge) == ["weight", "precision", "probability"]
        assert list(edge.values()) == [row.association, row.precision, row.probability]
    empty = learner(alpha=1e3).fit(frame)
    assert len(empty.edges()) == empty.to_networkx().number_of_edges() == 0
    assert list(empty.to_networkx().nodes) == NAMES


@pytest.mark.quick(2)
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("fit_linear", [True, False])
def test_columns_have_no_units(complete, fit_linear, X):
    X = np.nan_to_num(X, nan=1.0) if complete else X
    scale = np.array([1e3, 1.0, 1e-4, 7.0])
    first = learner(fit_linear=fit_linear).fit(X)
    second = learner(fit_linear=fit_linear).fit(X * scale)
    np.testing.assert_allclose(second.edge_strengths_, first.edge_strengths_, atol=1e-6)
    value = second.precision_ * np.outer(scale, scale)
    np.testing.assert_allclose(value, first.precision_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second.linear_ * scale, first.linear_, atol=1e-5)
    assert second.ridge_ == pytest.approx(first.ridge_)


def test_the_model_is_in_the_units_of_the_table(X):
    complete = np.nan_to_num(X, nan=1.0)
    fitted = learner(n_steps=2).fit(complete)
    hidden = complete.copy()
    hidden[:, 2] = np.nan
    model = fitted.to_torch()
    expected = model.conditional(torch.tensor(complete), 2).mean.detach().numpy()
    np.testing.assert_allclose(fitted.transform(hidden)[:, 2], expected, rtol=1e-10)


# Convergence, callbacks and output


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", METHODS)
def test_too_few_rounds_warn_and_say_what_to_raise(method, X):
    with pytest.warns(ConvergenceWarning, match="max_iter=3.*Raise max_iter or tol"):
        fitted = learner(algorithm=method, max_iter=3, tol=1e-12).fit(X)
    assert fitted.n_iter_ == 3 and fitted.change_ > 1e-12
    with warnings.catch_warnings(action="error"):
        learner(algorithm=method, max_iter=30, tol=0.5).fit(X)


class StopAfter:
    """A callback of scikit-learn that asks to stop after some rounds."""

    def __init__(self, n_rounds):
        self.n_rounds = n_rounds

    def setup(self, estimator, context):
        pass

    teardown = on_fit_task_begin = lambda self, *args, **kwargs: None

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.n_rounds -= context.task_name == "round"
        return context.task_name == "round" and not self.n_rounds


def test_a_stop_by_callback_is_not_blamed_on_max_iter(X):
    pytest.importorskip("sklearn.callback")
    with warnings.catch_warnings(record=True, action="always") as caught:
        fitted = learner(max_iter=20, tol=1e-9).set_callbacks(StopAfter(3)).fit(X)
    assert fitted.n_iter_ == 3
    assert not [w for w in caught if "max_iter=20 rounds" in str(w.message)]


# In scikit-learn


@pytest.mark.parametrize("method", METHODS)
def test_without_any_penalty(method, X):
    fitted = learner(algorithm=method, alpha=0, ridge=0).fit(X)
    assert fitted.ridge_ == 0 and (fitted.precision_ != 0).all()
    assert np.isfinite(fitted.transform(X)).all()


def test_nearly_equal_columns_keep_their_link(rng):
    a = rng.gamma(9.0, size=2000)
    near = a + 0.05 * a.std() * rng.standard_normal(2000)
    X = np.c_[a, near, rng.gamma(9.0, size=2000)]
    fitted = learner(alpha=0.0, ridge=1e-4).fit(X)
    assert fitted.edge_strengths_[0, 1] > 0.99 and fitted.largest_cut_ < 0.05


def test_cut_links_are_reported(rng):
    common = rng.exponential(size=(300, 1))  # spread as large as the mean
    X = 0.2 * rng.exponential(size=(300, 4)) + common
    fitted = learner(alpha=0.0, ridge=0.0, ridge_linear=0.0).fit(X)
    assert 0 < fitted.largest_cut_ < 1
    table = rng.gamma(9.0, size=(300, 4))
    assert learner().fit(table).largest_cut_ == 0


def test_an_m_step_short_of_its_minimum_warns(rng):
    g = rng.gamma(4.0, size=(150, 2))
    g[:, 1] += g[:, 0]
    X = np.c_[g, g[:, 0] + 1e-3 * rng.random(150)]
    with pytest.warns(ConvergenceWarning, match="did not reach its minimum"):
        learner(ridge=0.0, max_iter=1, on_misfit="ignore").fit(X)


def far_start(seed):
    """Make a learner of two correlated columns whose chains start far away."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(400, 1))
    X = 8 + z + 0.6 * rng.normal(size=(400, 2))
    fitted = learner(n_steps=30, alpha=0.0).fit(X)
    fitted.location_ = np.array([500.0, 500.0])
    fitted.feature_ranges_[:] = [-np.inf, np.inf]
    return fitted, X


def test_draws_forget_where_chains_start(seed):
    fitted, X = far_start(seed)
    drawn = fitted.sample(np.full((2000, 2), np.nan), random_state=seed)[0]
    # the model's mean is that of the rows, up to the ridge; 2 sweeps are 100 away
    assert np.abs(drawn.mean(0) - X.mean(0)).max() < 1
    # each chain is burnt in: no table near its start is averaged
    filled = fitted.transform(np.full((50, 2), np.nan))
    assert np.abs(filled.mean(0) - X.mean(0)).max() < 1


def test_rounds_stop_at_a_share_of_the_standard_error():
    observed = torch.ones(400, 3, dtype=torch.bool)
    assert em.tolerance(observed) == pytest.approx(0.1 / 20)
    observed[:300, 0] = False
    pairs = (5 * 100 + 4 * 400) / 9  # of nine pairs, five have the column
    assert em.tolerance(observed) == pytest.approx(0.1 / pairs**0.5)
    assert em.tolerance(torch.ones(100_000, 3, dtype=torch.bool)) == 0.002
