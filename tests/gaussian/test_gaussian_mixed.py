"""GaussianImputer on tables with categories: probabilities, draws, rows, storage."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from statistical import FAILURE, p_counts, p_means

from skvnce import GaussianImputer
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce._imputer.fitted import repeated
from skvnce.exceptions import MisfitWarning
from skvnce.gaussian import mixed_fit
from skvnce.gaussian import model as normal
from skvnce.gaussian.latent.columns import Latents, Marginal
from skvnce.gaussian.model import LatentNormal
from skvnce.options import Chunks

N = 300


def frame(seed, n=N, share=0.25):
    """Make a number, a nominal, an ordinal and a boolean column that depend on it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    noisy = z[:, None] + 0.5 * rng.normal(size=(n, 3))
    found = pd.DataFrame(
        {
            "size": np.exp(z),
            "colour": pd.Categorical.from_codes(
                np.digitize(noisy[:, 0], [-0.7, 0.7]), ["green", "red", "amber"]
            ),
            "grade": pd.Categorical.from_codes(
                np.digitize(noisy[:, 1], [-1, 0, 1]), list("dcba"), ordered=True
            ),
            "flag": pd.array(noisy[:, 2] > 0.3, dtype="boolean"),
        }
    )
    hidden = rng.random(found.shape) < share
    return found.mask(hidden), found, hidden


def imputer(**options):
    options = {"max_iter": 100, "on_misfit": "ignore", "random_state": 0} | options
    return GaussianImputer(**options).set_output(transform="pandas")


@pytest.fixture(scope="module")
def fitted():
    X, truth, hidden = frame(1)
    return imputer().fit(X), X, truth, hidden


def loss(probabilities, truth, rows):
    """Compute minus the log-probabilities of the true levels of some rows."""
    codes = probabilities.columns.get_indexer(truth[rows])
    return -np.log(probabilities.to_numpy()[rows][np.arange(rows.sum()), codes])


def test_probabilities_are_better_than_shares(seed):
    X, truth, hidden = frame(seed)
    found = imputer().fit(X).category_probabilities(X)
    for column in ("colour", "grade", "flag"):
        probabilities = found[column]
        assert probabilities.index.equals(X.index)
        rows = hidden[:, truth.columns.get_loc(column)]
        shares = X[column].value_counts(normalize=True)
        marginal = pd.DataFrame(shares[list(probabilities)].to_dict(), index=range(N))
        own, other = (loss(p, truth[column], rows) for p in (probabilities, marginal))
        assert p_means(own, other, alternative="less") < 0.02, column
        seen = ~rows
        assert (loss(probabilities, truth[column], seen) == 0).all(), column


def test_draws_follow_the_probabilities():
    X, _, _ = frame(2)
    model = imputer(n_parameter_draws=0).fit(X)
    row = pd.concat([X[X["colour"].isna() & X["size"].notna()].iloc[:1]] * 600)
    p = model.category_probabilities(row.iloc[:1])["colour"].iloc[0]
    drawn = model.sample(row, random_state=0)[0]["colour"].value_counts()
    counts = drawn.reindex(p.index).to_numpy()
    assert p_counts(counts, (p + 0.01).to_numpy() / (1 + 0.01 * len(p))) > FAILURE
    assert p_counts(counts, p.to_numpy()[::-1] + 1e-12) < FAILURE


def test_the_number_follows_the_categories(fitted):
    model, X, truth, _ = fitted
    rows = truth.iloc[:2].copy()
    rows["size"] = np.nan
    rows["colour"] = pd.Categorical(["green", "amber"], X["colour"].cat.categories)
    rows["grade"] = pd.Categorical(["d", "a"], X["grade"].cat.categories, ordered=True)
    rows["flag"] = pd.array([False, True], dtype="boolean")
    low, high = model.transform(rows)["size"]
    assert 2 * low < high


@pytest.mark.parametrize("family", [stats.norm(), stats.lognorm(1), stats.expon()])
def test_fills_of_numbers_are_means(family):
    x = family.ppf((np.arange(N) + 0.5) / N)
    X = pd.DataFrame({"x": x, "flag": np.tile(["no", "yes"], N // 2)})
    empty = pd.DataFrame({"x": [np.nan], "flag": [None]})
    filled = imputer().fit(X).transform(empty)["x"][0]
    assert filled == pytest.approx(family.mean(), abs=0.05 * family.std())


def test_scores(fitted):
    model, X, truth, _ = fitted
    assert np.isfinite(model.score_samples(X)).all()
    nothing = X.iloc[:1].mask(np.ones((1, 4), dtype=bool))
    assert model.score_samples(nothing) == 0
    mixed_up = truth.copy()
    mixed_up["size"] = truth["size"].to_numpy()[::-1]
    assert model.score(truth) > model.score(mixed_up) + 0.2


def box(rho, low, high):
    """Compute the probability of boxes of two standard normals by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    ends = np.clip([low[0], high[0]], -9, 9)
    z = ends.mean(0) + (ends[1] - ends[0]) / 2 * nodes[:, None]
    spread = (1 - rho**2) ** 0.5
    inner = [stats.norm.cdf((one[1] - rho * z) / spread) for one in (low, high)]
    density = weights[:, None] * stats.norm.pdf(z) * (inner[1] - inner[0])
    return density.sum(0) * (ends[1] - ends[0]) / 2


def test_errors_of_scores_are_as_large_as_stated(rng):
    """Of a number and two ordinal columns, by exact probabilities of their levels.

    Eight repetitions give an unbiased variance; squared errors are compared with it.
    """
    covariance = np.array([[1.0, 0.6, 0.5], [0.6, 1.0, 0.7], [0.5, 0.7, 1.0]])
    cuts, line = ([-1.0, 0.3, 1.2], [-0.5, 0.8]), np.linspace(-6, 6, 2001)
    edges = [np.array([-np.inf, *one, np.inf]) for one in cuts]
    marginals = [
        Marginal(*(torch.from_numpy(line) for _ in range(3))),
        *(
            Marginal(
                torch.arange(len(one) - 1.0).double(),
                *map(torch.tensor, (one[:-1], one[1:])),
            )
            for one in edges
        ),
    ]
    latents = Latents(marginals, [0, 1, 2], [1, 1, 1])
    normal = Normal(torch.zeros(3).double(), torch.from_numpy(covariance))
    model = LatentNormal(latents, ["numeric", "ordinal", "ordinal"], [normal])
    z = rng.multivariate_normal(np.zeros(3), covariance, size=600)
    codes = [np.digitize(z[:, 1 + j], one) for j, one in enumerate(cuts)]
    rows = np.column_stack([z[:, 0], *codes])

    slope = covariance[1:, 0]
    rest = covariance[1:, 1:] - np.outer(slope, slope)
    scale = np.sqrt(np.diag(rest))
    means = np.outer(slope, z[:, 0])
    ends = [[edges[j][codes[j] + k] - means[j] for j in (0, 1)] for k in (0, 1)]
    low, high = np.array(ends) / scale[:, None]
    inside = box(rest[0, 1] / scale.prod(), low, high)
    exact = stats.norm.logpdf(z[:, 0]) + np.log(inside)
    values, stated = model.log_density(rows, with_errors=True)
    errors = values - exact

    def excess(factor):
        """Standardise the mean of squared errors minus squared stated errors."""
        found = (np.square(errors) - np.square(factor * stated)) / np.mean(stated**2)
        return found.mean() / (found.std() / len(found) ** 0.5)

    assert abs(errors).max() < 0.1 and abs(errors).mean() > 1e-4
    assert abs(excess(1.0)) < 5 and excess(0.5) > 5 and excess(2.0) < -5
    rows[:, 1] = np.nan  # one bounded variable: nothing is drawn
    assert (model.log_density(rows, with_errors=True)[1] == 0).all()
    rows[:, 2] = np.nan
    expected = stats.norm.logpdf(z[:, 0])
    np.testing.assert_allclose(model.log_density(rows)[0], expected, atol=1e-10)


def test_standard_errors_of_scores(fitted):
    model, X, _, _ = fitted
    scores, errors = model.score_samples(X, return_std=True)
    np.testing.assert_array_equal(scores, model.score_samples(X))
    assert (errors[X.notna().sum(axis=1) > 2] > 0).all() and errors.max() < 1
    again = model.score_samples(X.iloc[[7, 3, 40]], return_std=True)[1]
    np.testing.assert_allclose(again, errors[[7, 3, 40]], rtol=1e-6)
    numbers = np.random.default_rng(0).normal(size=(30, 2))
    exact = GaussianImputer(n_parameter_draws=0).fit(numbers)
    assert (exact.score_samples(numbers, return_std=True)[1] == 0).all()
    with pytest.raises(ValueError, match="return_std is not available for a table in"):
        exact.score_samples(Chunks([numbers]), return_std=True)


def test_a_constant_category_is_certain_among_numbers():
    X, _, _ = frame(6)
    X = X[["size"]].assign(other=np.where(X["size"].isna(), 1.0, X["size"]), kind="a")
    X.loc[3, "kind"] = None
    with pytest.warns(UserWarning, match="Constant where observed"):
        model = imputer().fit(X)
    assert (model.category_probabilities(X)["kind"]["a"] == 1).all()
    numbers = imputer().fit(X[["size", "other"]])
    assert numbers.category_probabilities(X[["size", "other"]]) == {}
    assert numbers._fitted.model.draws is None  # no parameters were drawn for nothing


def test_levels_without_weight_have_a_probability():
    X, _, _ = frame(4)
    weights = (X["grade"] != "a").to_numpy().astype(float)
    p = imputer().fit(X, sample_weight=weights).category_probabilities(X)["grade"]
    assert list(p) == list("dcba") and np.allclose(p.sum(axis=1), 1)


def test_held_out_cells_are_judged(rng_0):
    X, _, _ = frame(5)
    found = imputer(on_misfit="warn").fit(X)
    assert found.held_out_gain_ > 0.25 and not found.marginal_columns_.any()
    categories = X[["colour", "grade", "flag"]]
    assert imputer(on_misfit="warn").fit(categories).held_out_gain_ > 0.1
    shuffled = X.apply(lambda column: rng_0.permutation(column.astype(object)))
    shuffled = shuffled.astype(X.dtypes)
    assert imputer(on_misfit="warn").fit(shuffled).held_out_gain_ < 0.1


def test_badly_predicted_categories_have_their_shares(monkeypatch):
    X, _, _ = frame(8, n=600)
    found = LatentNormal.fill

    def wrong(rows, nodes, limits):
        filled, probabilities = found(rows, nodes, limits)
        p = probabilities[1][:, [1, 2, 0]] ** 3 + 1e-9
        return filled, {**probabilities, 1: p / p.sum(1, keepdims=True)}

    with monkeypatch.context() as patch, pytest.warns(MisfitWarning) as warned:
        patch.setattr(LatentNormal, "fill", wrong)
        model = imputer(on_misfit="warn", max_iter=80).fit(X)
    assert "'colour'" in str(warned[0].message) and "shares" in str(warned[0].message)
    assert model.marginal_columns_.tolist() == [False, True, False, False]
    missing, shares = X["colour"].isna(), X["colour"].value_counts(normalize=True)
    p = model.category_probabilities(X)["colour"]
    assert np.allclose(p[missing], shares[list(p)])
    assert (p[~missing].max(axis=1) == 1).all()
    assert (model.transform(X)["colour"][missing] == shares.idxmax()).all()
    drawn = pd.concat(one["colour"][missing] for one in model.sample(X, 20, 0))
    counts = drawn.astype(str).value_counts()[list(p)].to_numpy()
    assert p_counts(counts, shares[list(p)].to_numpy()) > FAILURE


def test_chosen_rows_keep_the_weighted_shares(monkeypatch, seed):
    """The share of a group of rows has a standard error below .5 / root of 200."""
    monkeypatch.setattr(mixed_fit, "ROWS", 200)
    weights = torch.ones(2000).double()
    weights[:1000], weights[0] = 3.0, 500.0  # this row is certain to be chosen
    rows = Incomplete.from_array(np.arange(2000.0)[:, None])
    with seeded(seed):
        chosen, kept = mixed_fit.some_rows(weights)
    some = rows.take(chosen)
    assert len(kept) == len(some.x.unique()) == 200 and some.x[0] == 0
    first = some.x[:, 0] < 1000
    share = float(weights[:1000].sum() / weights.sum())
    assert float(kept.sum() / weights.sum()) == pytest.approx(0.1, abs=0.02)
    assert float(kept[first].sum() / kept.sum()) == pytest.approx(share, abs=0.18)
    assert float(first.double()[1:].mean()) == pytest.approx(0.75, abs=0.18)
    equal = torch.ones(2000).double()
    with seeded(seed):
        assert (mixed_fit.some_rows(equal)[1] == 1).all()


def test_a_fit_to_chosen_rows_predicts_the_others(monkeypatch):
    monkeypatch.setattr(mixed_fit, "ROWS", 150)
    X, truth, hidden = frame(7, n=600)
    model = imputer().fit(X)
    filled, rows = model.transform(X), hidden[:, 1]
    mode = X["colour"].mode()[0]
    right = (filled["colour"] == truth["colour"])[rows].mean()
    assert right > (truth["colour"] == mode)[rows].mean() + 0.15
    assert set(model.categories_["grade"]) == set("abcd")


def test_parameters_are_drawn_if_draws_are_asked_for():
    X, _, _ = frame(1, n=60)
    numbers = [0, 1, 20]
    found = [imputer(n_parameter_draws=n, max_iter=30).fit(X) for n in numbers]
    assert [len(one._fitted.model.draws) > 0 for one in found] == [False, True, True]


def test_numbers_beside_categories_have_no_normal_marginals():
    X, _, _ = frame(1, n=60)
    with pytest.warns(UserWarning, match="marginals"):
        found = imputer(marginals="normal", max_iter=4).fit(X)
    assert found.nonlinear_columns_.tolist() == [True, False, False, False]


def test_draws_use_all_parameters_equally_often(fitted, monkeypatch):
    model, X, _, _ = fitted
    pair = model.mean_, model.covariance_
    latent = model._cell_model().with_normals([pair] * 3)
    used, draw = [], normal.fill.draw

    def recorded(latents, models, *args, **options):
        used.append([id(one) for one in models])
        return draw(latents, models, *args, **options)

    monkeypatch.setattr(normal.fill, "draw", recorded)
    latent.draw(model._checked(X)[:5], 12)
    counts = np.unique(used[0], return_counts=True)[1]
    assert counts.tolist() == [4, 4, 4]


def test_errors_are_infinite_where_an_estimate_is():
    def estimate(number):
        return np.array([number, -np.inf if number == 3 else 0.0])

    values, errors = repeated(estimate, with_errors=True)
    assert values.tolist() == [0.0, 0.0]
    assert errors.tolist() == [np.arange(8.0).std(ddof=1), np.inf]


def bands(seed):
    """Make a number, and a nominal column of four bands of it, with missing cells."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=300)
    level = np.digitize(x + rng.normal(scale=0.5, size=300), [-0.8, 0, 0.8])
    hidden = rng.random(300) < 0.25
    names = pd.Categorical([f"L{i}" for i in level])
    return pd.DataFrame({"x": x, "c": names}).mask(hidden[:, None] * [False, True])


def agreement_of_seeds(n_tables):
    """Return the mean share of equal fills of two seeds."""
    found = []
    for table in map(bands, range(n_tables)):
        known = {"on_misfit": "ignore", "n_parameter_draws": 0}
        fits = (GaussianImputer(random_state=one, **known) for one in (0, 1))
        fits = (one.set_output(transform="pandas") for one in fits)
        fills = [one.fit_transform(table)["c"] for one in fits]
        found.append((fills[0] == fills[1])[table["c"].isna()].mean())
    return np.mean(found)


def test_seeds_change_two_percent_of_fills(monkeypatch):
    assert agreement_of_seeds(3) >= 0.98
    monkeypatch.setattr(mixed_fit, "_AVERAGING", 0.0)  # negative control: no copies
    assert agreement_of_seeds(2) < 0.97
