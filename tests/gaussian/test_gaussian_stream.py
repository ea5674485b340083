"""`GaussianImputer.partial_fit`: online EM."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from cases import quick_gaussian
from errors import refused

from skvnce import GaussianImputer
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Rows
from skvnce.gaussian import em, online
from skvnce.options import Chunks


def stream(n, seed, skewed=True):
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(0).normal(size=(2, 5))
    X = rng.normal(size=(n, 2)) @ loadings + rng.normal(size=(n, 5))
    if skewed:
        X[:, 0] = np.exp(X[:, 0] / 2)
    X[rng.random(X.shape) < 0.3] = np.nan
    return X


def learned(chunks, start=GaussianImputer.partial_fit, **options):
    first, *others = chunks
    options = {"n_parameter_draws": 2, "random_state": 0, **options}
    imputer = start(GaussianImputer(**options), first)
    for chunk in others:
        imputer.partial_fit(chunk)
    return imputer


# after `fit`, choices are final, and no fit is repeated
online_after_fit = partial(learned, start=GaussianImputer.fit)


def test_ten_chunks_are_nearly_a_full_fit(seed):
    """Within 2 % of what the full fit gains over independent columns."""
    check_ten_chunks("normal", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [8, 0, 9])
def test_ten_chunks_are_a_full_fit_after_a_small_first(seed):
    """The first 1000 rows of seeds 8 and 9 choose normal marginals."""
    check_ten_chunks("auto", seed)


def check_ten_chunks(marginals, seed):
    X, new = stream(10_000, seed), stream(4000, seed + 100)
    options = {"marginals": marginals, "shrinkage": 0.1}
    chunks = np.array_split(X, 10)
    found, full = learned(chunks, **options), learned([X], **options)
    alone = GaussianImputer(marginals=marginals, shrinkage=1e9).fit(X)
    best, least = full.score(new), alone.score(new)
    assert abs(found.score(new) - best) < 0.02 * (best - least)
    few = learned([X[:100]], **options)
    if marginals == "auto" and seed:
        few = online_after_fit(chunks, **options)
    assert best - few.score(new) > 0.02 * (best - least)  # negative control
    assert (found.nonlinear_columns_ == full.nonlinear_columns_).all()
    assert found.n_iter_ == len(found.loss_curve_)
    assert found.n_iter_ == learned([X[:8000]], **options).n_iter_ + 2


def test_the_fit_is_repeated_when_the_rows_have_doubled(monkeypatch):
    X = stream(240, 2)
    X[40] = np.nan  # an empty row counts, as it does in the chunks
    weights = 0.5 + np.random.default_rng(0).random(240)
    frame = pd.DataFrame(X, columns=list("abcde"))

    def in_chunks(*ends):
        imputer = quick_gaussian()
        for part in map(slice, (0, *ends[:-1]), ends):
            imputer.partial_fit(frame[part], sample_weight=weights[part])
        return imputer

    def equal(imputer, n):
        whole = quick_gaussian().fit(frame[:n], sample_weight=weights[:n])
        assert imputer.feature_names_in_.tolist() == list("abcde")
        return np.array_equal(imputer.transform(frame), whole.transform(frame))

    assert equal(in_chunks(60, 120), 120) and equal(in_chunks(60, 90, 120, 240), 240)
    assert not equal(in_chunks(60, 119), 119)
    monkeypatch.setattr("skvnce.gaussian.online.MOST_KEPT", 200)
    assert not equal(in_chunks(60, 120, 240), 240)
    assert in_chunks(60, 120, 240)._fitted.model.stream is None


def test_eq_1_and_2():
    """One chunk by hand."""
    X = stream(60, 0, skewed=False) / 2
    data, ones = Incomplete.from_array(X), torch.ones(60).double()
    start = Normal(torch.zeros(5).double(), torch.eye(5).double())
    rows, more = (Rows(data.take(s), ones[s]) for s in (slice(40), slice(40, 60)))
    fit = em.fit_table(rows.condensed(), 0.5, start, max_iter=50, tol=1e-4)
    state = online.start(fit, None, rows.total)
    found, log_likelihood = online.update(state, more, 0.5)
    size = (20 / 60) ** 0.7
    sums = state.moments, None
    expected = em.log_prob(fit.normal, more.data).sum()
    assert float(log_likelihood) == pytest.approx(float(expected))
    normal = fit.normal
    for _ in range(2):
        first, second = torch.zeros(5).double(), torch.zeros(5, 5).double()
        for x, o in zip(X[40:], ~np.isnan(X[40:]), strict=True):
            m = np.flatnonzero(~o)
            S, mu = normal.covariance.numpy(), normal.mean.numpy()
            slope = S[np.ix_(m, o)] @ np.linalg.inv(S[np.ix_(o, o)])
            z, spread = np.where(o, x, 0.0), np.zeros((5, 5))
            z[m] = mu[m] + slope @ (x[o] - mu[o])
            spread[np.ix_(m, m)] = S[np.ix_(m, m)] - slope @ S[np.ix_(o, m)]
            first += torch.from_numpy(z)
            second += torch.from_numpy(np.outer(z, z) + spread)
        one = (1 - size) * sums[0].first + size * first / 20
        two = (1 - size) * sums[0].second + size * second / 20
        scatter = 60 * (two - torch.outer(one, one)) + 0.5 * torch.eye(5)
        normal = Normal(one, scatter / 60.5)
    torch.testing.assert_close(found.normal.mean, normal.mean)
    torch.testing.assert_close(found.normal.covariance, normal.covariance)
    assert float(found.total) == 60


def test_moments_of_a_fit_are_those_that_it_maximised():
    X = stream(80, 1)
    imputer = GaussianImputer(tol=1e-10, max_iter=2000, random_state=0).fit(X)
    state = imputer._fitted.model.online
    first, second = (part.numpy() for part in state.moments)
    total = float(state.total)
    mean, covariance = imputer._cell_model().parameters()
    np.testing.assert_allclose(first, mean, atol=1e-7)
    k = imputer.shrinkage_ * 5
    scatter = total * (second - np.outer(first, first)) + k * np.eye(5)
    np.testing.assert_allclose(scatter / (total + k), covariance, atol=1e-7)


def test_a_shift_is_followed():
    X = stream(600, 0, skewed=False)
    still, moved = learned([X, X]), learned([X, *[X + 1.0] * 12])
    assert abs(still.mean_ - np.nanmean(X, 0)).max() < 0.5
    gap = moved.mean_ - still.mean_
    assert ((gap > 0.7) & (gap < 1.0)).all()


def test_weights_count_rows():
    X, rng = stream(300, 0), np.random.default_rng(0)
    count = rng.integers(0, 3, 200)
    one, other = (online_after_fit([X[:100]]) for _ in range(2))
    one.partial_fit(X[100:], sample_weight=count.astype(float))
    other.partial_fit(np.repeat(X[100:], count, 0))
    np.testing.assert_allclose(one.mean_, other.mean_, rtol=1e-10)
    np.testing.assert_allclose(one.covariance_, other.covariance_, rtol=1e-10)
    plain = online_after_fit([X[:100], X[100:]])
    assert abs(plain.mean_ - one.mean_).max() > 1e-4  # negative control


def test_ranges_and_values_grow():
    X = stream(400, 0, skewed=False)
    X[:, 1], X[:, 2] = np.round(3 * X[:, 1]), np.round(3 * X[:, 2])
    first = learned([X])
    new = X.copy()
    new[0, 0], new[1, 1], new[2, 2] = np.nanmax(X[:, 0]) + 2, 40.0, 0.5
    both = online_after_fit([X, new])
    low, high = both.feature_ranges_[:, :3]
    assert (low == -np.inf).all() and (high == np.inf).all()
    before, after = first._schema.values, both._schema.values
    draws = both.sample(X, 5, random_state=0, as_array=True)[:, np.isnan(X[:, 1]), 1]
    np.testing.assert_array_equal(draws, np.round(draws))
    assert 40.0 in after.values[1] and not before.codes[1]
    assert before.integers[2] and not after.integers[2]
    assert (before.grid[2], after.grid[2]) == (1.0, 0.5)
    bounded = GaussianImputer(max_value={0: 10.0}, random_state=0).fit(X)
    new[0, 0] = 11.0
    before = pickle.dumps(bounded)
    with pytest.raises(ValueError, match="X has 11.0 in column 0, row 0, above"):
        bounded.partial_fit(new)
    assert pickle.dumps(bounded) == before


def test_it_goes_on_after_storing_and_after_chunks():
    X = stream(600, 0)
    one = learned([X[:200]])
    other = pickle.loads(pickle.dumps(one))
    for imputer in (one, other):
        imputer.partial_fit(X[200:])
    np.testing.assert_array_equal(one.transform(X), other.transform(X))
    draws = one.sample_parameters()[0]
    assert draws.shape == (2, 5) and np.ptp(draws, 0).min() > 0
    chunked = learned([Chunks([X[:90], X[90:200]]), X[200:]])
    plain = online_after_fit([X[:200], X[200:]])
    np.testing.assert_allclose(chunked.transform(X), plain.transform(X), rtol=1e-8)


@pytest.mark.slow
def test_draws_of_the_parameters_know_all_rows():
    X = stream(4000, 0, skewed=False)
    options = {"marginals": "normal", "n_parameter_draws": 60}
    full, few = (learned([one], **options) for one in (X, X[:400]))
    found = learned(np.array_split(X, 10), **options)
    spread = [one.sample_parameters()[0].std(0) for one in (found, full, few)]
    ratio, wrong = spread[0] / spread[1], spread[2] / spread[1]
    assert ((ratio > 0.6) & (ratio < 1.6)).all()  # of one seed
    assert (wrong > 1.9).all()  # negative control: 3.2 expected


def test_rows_without_cells_change_nothing():
    X = stream(100, 0)
    imputer = learned([X])
    before = imputer.mean_.copy()
    with pytest.raises(ValueError, match="No row of X has an observed cell"):
        imputer.partial_fit(np.full((3, 5), np.nan))
    np.testing.assert_array_equal(imputer.mean_, before)


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["float64", "Int64"])
def test_whole_numbers_of_frames_are_numbers_as_in_parts(dtype):
    """Counts of at most 10 values in the first batch may have more in the next."""
    frame = pd.DataFrame(stream(400, 0), columns=list("abcde"))
    frame["grade"] = np.random.default_rng(1).integers(5, size=400)
    frame.loc[200:, "grade"] *= 4
    frame["grade"] = frame["grade"].mask(frame["a"] > 1.2).astype(dtype)
    batches = [frame[:200], frame[200:]]
    imputer = learned(batches).set_output(transform="pandas")
    parts = GaussianImputer(n_parameter_draws=2, random_state=0).fit(Chunks(batches))
    assert not hasattr(imputer, "categories_") and not hasattr(parts, "categories_")
    assert imputer.feature_ranges_[1, 5] == 16
    filled = imputer.transform(frame)
    assert filled.dtypes.equals(frame.dtypes)
    assert (filled["grade"] == filled["grade"].round()).all()
    frame["grade"] = frame["grade"].astype(float)
    arrays = learned([frame[:200].to_numpy(), frame[200:].to_numpy()])
    np.testing.assert_array_equal(imputer.covariance_, arrays.covariance_)
    named = GaussianImputer(categorical_features={"grade": "ordinal"}, max_iter=20)
    placed = GaussianImputer(categorical_features=np.array([5]))
    for one, batch in ((named, batches[0]), (placed, batches[0].to_numpy())):
        refused(ValueError, "cannot learn from categories", one.partial_fit, batch)
    with pytest.raises(ValueError, match=r"has the key .*5.*, no column of X: 'a'"):
        placed.partial_fit(batches[0])
    twice = batches[0].rename(columns={"b": "a"})
    refused(ValueError, "2 columns named 'a'", GaussianImputer().partial_fit, twice)


def test_what_it_refuses():
    X = stream(100, 0)
    imputer = learned([X])
    refused(TypeError, "table in parts", imputer.partial_fit, Chunks([X]))
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["f"] = pd.Series(["no", "yes"] * 50, dtype="category")
    mixed = GaussianImputer(max_iter=20).fit(frame)
    for one in (mixed, new := GaussianImputer(max_iter=20)):
        refused(ValueError, "cannot learn from categories", one.partial_fit, frame)
    assert not hasattr(new, "n_features_in_")
    with pytest.warns(UserWarning, match="No column is left"):
        constant = GaussianImputer().fit(np.ones((5, 2)))
    refused(ValueError, "cannot go on", constant.partial_fit, np.ones((5, 2)))
