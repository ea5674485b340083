"""The path of penalties, and the rules that choose on it."""

import re
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from oracles import rejection, ring
from sklearn.model_selection import GridSearchCV

from skvnce import (
    CopulaGraphLearnerCV,
    TruncatedGaussianGraphLearner,
    TruncatedGaussianGraphLearnerCV,
)

pytestmark = pytest.mark.xdist_group("paths")  # share fits

D = 5
RULES = ["ebic", "cv", "cv-1se", "stability"]
QUICK = {"n_subsamples": 6, "cv": 3, "alphas": 6}


@pytest.fixture(scope="module")
def data():
    """Draw a table of the thesis' ring, a fifth of it missing; X and K."""
    rng = np.random.default_rng(0)
    K = ring(D, rng)
    X = rejection(K, K.sum(1), np.full(D, np.nan), 400, rng)
    return np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X), K


def fitted(X, **options):
    model = TruncatedGaussianGraphLearner(n_steps=4)
    parameters = {"model": model, **QUICK, "random_state": 0, **options}
    learner = TruncatedGaussianGraphLearnerCV(**parameters)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return learner.fit(X)


@pytest.fixture(scope="module")
def by_rule(data):
    """Fit by each rule once; of the rule."""
    return cache(lambda rule: fitted(data[0], selection=rule))


def links(K):
    return np.count_nonzero(np.triu(K, 1))


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_chooses_on_the_path(rule, by_rule):
    learner = by_rule(rule)
    alphas, results = learner.alphas_, pd.DataFrame(learner.cv_results_)
    assert learner.alpha_ in alphas and (np.diff(alphas) < 0).all()
    assert len(results) == len(alphas) == QUICK["alphas"]
    assert learner.path_.shape == (len(alphas), D, D)
    for associations, n_edges in zip(learner.path_, results["n_edges"], strict=True):
        np.testing.assert_array_equal(associations, associations.T)
        assert (np.diag(associations) == 0).all() and links(associations) == n_edges
    assert results["n_edges"][0] == 0  # the largest alpha leaves no link,
    assert results["n_edges"].iloc[1:].max() > 0  # and others do
    best, result = list(alphas).index(learner.alpha_), learner.edge_strengths_
    np.testing.assert_allclose(result, np.abs(learner.path_[best]), atol=1e-10)
    assert links(result) == results["n_edges"][best]
    assert hasattr(learner, "edge_frequencies_") == (rule == "stability")


def test_the_criterion_is_least_where_it_chose(data):
    learner = fitted(data[0], alphas=30)
    results = pd.DataFrame(learner.cv_results_)
    same = results[np.isclose(results["ebic"], results["ebic"].min(), rtol=1e-9)]
    assert learner.alpha_ == same["alpha"].min()
    assert 1 < len(same) < len(results)  # links are shrunk no more than they need be


@pytest.mark.parametrize(
    "search", [CopulaGraphLearnerCV, TruncatedGaussianGraphLearnerCV]
)
def test_errors_of_tables_name_the_class_that_was_called(search):
    with pytest.raises(ValueError, match=f"is required by {search.__name__}\\."):
        search().fit(np.zeros((0, 3)))


def test_splits_are_of_the_rows_of_the_table(data):
    X = data[0]
    empty = np.concatenate([np.full((3, D), np.nan), X])
    train, test = np.arange(300), np.arange(300, 400)
    options = {"selection": "cv", "alphas": [0.3, 0.01]}
    plain = fitted(X, cv=[(train, test)], **options)
    shifted = fitted(empty, cv=[(train + 3, test + 3)], **options)
    for key in plain.cv_results_:
        np.testing.assert_array_equal(plain.cv_results_[key], shifted.cv_results_[key])


@pytest.mark.parametrize(("rule", "n_splits"), [("cv-1se", 1), ("cv", 0)])
def test_too_few_splits_are_refused(rule, n_splits, data):
    splits = iter([(np.arange(300), np.arange(300, 400))] * n_splits)
    with pytest.raises(ValueError, match="cv gives .* splits, and selection="):
        fitted(data[0], selection=rule, cv=splits)


@pytest.mark.filterwarnings("ignore:.* has no effect. selection")
@pytest.mark.parametrize("rule", ["stability", "cv"])
def test_columns_may_be_constant_in_a_part_of_the_rows(rule, data):
    X = data[0][:120].copy()
    X[2:, 4] = np.nan
    X[:2, 4] = [1.0, 2.0]
    assert len(fitted(X, selection=rule, n_subsamples=4).nodes_) == D


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore:.* has no effect. selection")
@pytest.mark.parametrize("rule", ["cv", "cv-1se", "stability"])
def test_all_columns_may_be_constant_in_a_part_of_the_rows(rule, data):
    X = np.full((40, 3), 2.0)
    X[:6] = data[0][:6, :3]
    folds = [(np.arange(6, 40), np.arange(6)), (np.arange(40), np.arange(6))]
    learner = fitted(X, selection=rule, cv=folds, n_subsamples=8)
    assert learner.nodes_.tolist() == ["x0", "x1", "x2"]
    for name, result in learner.cv_results_.items():
        assert np.isfinite(result).all()
        if name == "split0_test_score":
            assert (result == 0).all()


@pytest.mark.slow
def test_where_nothing_is_stable_it_is_reported(rng):
    X = rng.gamma(4.0, size=(60, 12))
    options = {"alphas": [0.08, 0.07], "selection": "stability"}
    learner = TruncatedGaussianGraphLearnerCV(**options, random_state=0)
    with warnings.catch_warnings(record=True, action="always") as caught:
        learner.fit(X)
    assert learner.cv_results_["instability"][0] > 0.1
    assert any("No graph of the path is stable" in str(w.message) for w in caught)


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore:.* has no effect. selection")
@pytest.mark.parametrize("rule", ["cv", "stability"])
def test_the_order_of_the_columns_does_not_matter(rule, rng):
    """Columns five apart, which are hidden together in one way to divide them."""
    X = rng.gamma(4.0, size=(300, 7))
    X[:, 5] = 0.3 * X[:, 5] + X[:, 0]
    for order in (np.arange(7), [0, 5, 1, 2, 3, 4, 6]):
        # of a path of three "stability" knows the empty graph alone to be stable
        learner = fitted(X[:, order], selection=rule, alphas=6, n_subsamples=8)
        result = learner.edge_strengths_[np.ix_(np.argsort(order), np.argsort(order))]
        assert result[0, 5] > 0.3


def test_more_gamma_gives_fewer_links(data):
    fits = (fitted(data[0], alphas=8, gamma=one) for one in (0, 5, 500))
    values = [links(one.precision_) for one in fits]
    assert values[0] >= values[1] >= values[2] == 0 and values[0] > 0


def test_the_true_links_are_found(data):
    X, K = data
    learner = fitted(X, alphas=20)
    true, result = np.triu(K, 1) != 0, np.triu(learner.precision_, 1) != 0
    hits = (true & result).sum()
    assert 2 * hits / (true.sum() + result.sum()) > 0.8


def test_the_held_out_score_is_that_of_the_learner(data):
    """Scores of a fold: a learner of the same path, fitted by hand, agrees."""
    X = data[0]
    folds = [(np.arange(300), np.arange(300, 400))]
    learner = fitted(X, selection="cv", cv=folds, alphas=[0.3, 0.01])
    scores = learner.cv_results_["split0_test_score"]
    options = {"n_steps": 30, "random_state": 0}
    models = [TruncatedGaussianGraphLearner(a, **options) for a in learner.alphas_]
    by_hand = [one.fit(X[:300]).score(X[300:]) for one in models]
    np.testing.assert_allclose(scores, by_hand, atol=0.05)
    assert scores[1] > scores[0] + 0.05


def test_frequencies_are_shares_of_the_subsamples(by_rule):
    learner = by_rule("stability")
    assert learner.n_subsamples == 6
    frequencies = learner.edge_frequencies_
    np.testing.assert_array_equal(frequencies, frequencies.T)
    assert (np.diag(frequencies) == 0).all()
    np.testing.assert_allclose(frequencies * 6, np.round(frequencies * 6), atol=1e-9)
    unstable, noise = (learner.cv_results_[name] for name in ("instability", "noise"))
    best = list(learner.alphas_).index(learner.alpha_)
    pairs = frequencies[np.triu_indices(D, 1)]
    np.testing.assert_allclose(unstable[best], (2 * pairs * (1 - pairs)).mean())
    assert best == 0 or unstable[best] <= 0.1
    assert (unstable[:best] <= 0.1).all() or noise[best] <= 0.05
    beyond = slice(best + 1, None)
    assert ((unstable[beyond] > 0.1) | (noise[beyond] > 0.05)).all()
    assert (np.diff(noise) >= 0).all()


def test_it_is_the_learner_at_the_chosen_alpha(data):
    X = np.nan_to_num(data[0], nan=1.0)
    chosen = fitted(X)
    same = TruncatedGaussianGraphLearner(chosen.alpha_, random_state=0).fit(X)
    assert links(chosen.precision_) > 0
    np.testing.assert_allclose(chosen.precision_, same.precision_, atol=1e-4)


@pytest.mark.parametrize(
    ("alphas", "gamma", "end", "remedy"),
    [
        ([0.5, 0.05], 0, "smallest", r"pass smaller values as well, alphas=\["),
        ([0.05, 0.02], 100, "largest", "pass an integer as alphas, .* above 0.05"),
    ],
)
def test_the_edge_of_the_grid_is_reported(alphas, gamma, end, remedy, data):
    options = {"alphas": alphas, "gamma": gamma}
    learner = TruncatedGaussianGraphLearnerCV(**options, random_state=0)
    with pytest.warns(UserWarning, match=f"the {end} alpha of the path.*{remedy}"):
        learner.fit(data[0])


@pytest.mark.parametrize(
    "selection", ["ebic", pytest.param("cv", marks=pytest.mark.slow)]
)
def test_the_wider_path_of_the_warning_contains_the_choice(selection, data):
    options = {"alphas": [0.5, 0.3], "selection": selection}
    learner = TruncatedGaussianGraphLearnerCV(**options, random_state=0)
    with pytest.warns(UserWarning, match="the smallest alpha of the path") as caught:
        learner.fit(data[0])
    [message] = [str(w.message) for w in caught]
    assert ("set selection='ebic'" in message) == (selection == "cv")
    [inside] = re.findall(r"np\.geomspace\((.*?)\), 0\]", message)
    first, last, n_alphas = (float(number) for number in inside.split(", "))
    wider = [*np.geomspace(first, last, int(n_alphas)), 0]
    learner.set_params(alphas=wider).fit(data[0])  # warnings are errors
    assert 0 <= learner.alpha_ < 0.3


def test_a_single_column_has_an_empty_path(data):
    learner = fitted(data[0][:, :1])
    assert learner.path_.shape[1:] == (1, 1) and learner.precision_.shape == (1, 1)


@pytest.mark.parametrize(("alphas", "gamma"), [(4, 500), ([0.5, 0.0], 0)])
def test_where_nothing_lies_beyond_nothing_is_reported(alphas, gamma, data):
    options = {"alphas": alphas, "gamma": gamma}
    learner = TruncatedGaussianGraphLearnerCV(**options, random_state=0)
    with warnings.catch_warnings(action="error"):
        learner.fit(data[0])


def test_one_standard_error_is_that_of_the_mean_of_the_folds(monkeypatch):
    """Losses vary by 1 over 4 folds, and so their means by a half."""
    apart = np.sqrt(0.75) * np.array([1.0, 1.0, -1.0, -1.0])
    scores = np.stack([apart - 0.7, apart - 0.45, np.zeros(4)], axis=1)
    learner = TruncatedGaussianGraphLearnerCV()
    monkeypatch.setattr(learner, "_score_folds", lambda search, least: scores)
    assert learner._by_one_error(None) == 1


def test_halves_of_the_rows_have_no_row_twice(data, monkeypatch):
    halves, jobs = [], TruncatedGaussianGraphLearnerCV._jobs

    def remember(self, label, function, parts, *rest):
        halves.extend(rows for (rows,) in parts)
        return jobs(self, label, function, parts, *rest)

    monkeypatch.setattr(TruncatedGaussianGraphLearnerCV, "_jobs", remember)
    fitted(data[0], selection="stability", alphas=2, n_subsamples=4)
    assert len(halves) == 5  # the last are permuted columns, which follow the rows
    for rows in halves[:-1]:
        assert len(np.unique(rows)) == len(rows) == len(data[0]) // 2
        assert rows.max() < len(data[0]) <= halves[-1].min()


def test_the_model_is_cloned_and_searched(data):
    model = TruncatedGaussianGraphLearner(n_steps=2, max_iter=2, random_state=3)
    path = TruncatedGaussianGraphLearnerCV(model, alphas=3, random_state=0)
    search = GridSearchCV(path, {"model__ridge": [0.0, 1.0]}, cv=2)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        best_estimator = search.fit(data[0][:60]).best_estimator_
    assert (
        best_estimator.ridge_
        == search.best_params_["model__ridge"]
        == best_estimator.model.ridge
    )
    assert not hasattr(model, "precision_")
    assert not hasattr(best_estimator.model, "precision_")
    assert isinstance(best_estimator.alpha_, float)
    assert best_estimator.model.alpha == model.alpha
    assert not isinstance(best_estimator, TruncatedGaussianGraphLearner)


def test_the_fitted_attributes_are_those_of_the_last_fit(data):
    X = data[0][:100]
    named = pd.DataFrame(X).add_prefix("c")
    model = TruncatedGaussianGraphLearner(n_steps=2, max_iter=2)
    path = fitted(named, model=model, alphas=2)
    assert path.nodes_.tolist() == list(named)
    path.set_params(model__algorithm="vnce", model__noise_ratio=1)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        path.fit(X[:, :3])
        assert np.isfinite(path.log_scale_)
        path.set_params(model__algorithm="score-matching").fit(X[:, :3])
    assert not hasattr(path, "feature_names_in_") and not hasattr(path, "log_scale_")
    assert path.n_features_in_ == 3


def test_the_model_decides_on_empty_columns_and_the_container(data):
    X = pd.DataFrame(data[0][:60]).add_prefix("c").assign(none=np.nan)
    model = TruncatedGaussianGraphLearner(n_steps=2, max_iter=2)
    model.set_output(transform="pandas")
    path = fitted(X, model=model, alphas=2)
    assert path.transform(X).shape == (60, D)
    assert isinstance(path.transform(X), np.ndarray)  # the container is that of path
    path.set_params(model__keep_empty_features=True)
    assert path.transform(X).shape == (60, D + 1)
    assert path.get_feature_names_out().tolist() == list(X)
