"""Copula graphs of tables in parts."""

import os
import tempfile

import numpy as np
import pandas as pd
import pytest
import torch
from _imputer.parts.test_large import parts

from skvnce import CopulaGraphLearner
from skvnce._core.random import inside, number_keyed
from skvnce.gaussian.latent.columns import NOMINAL, Marginal
from skvnce.gaussian.latent.gibbs import Factors
from skvnce.graphs import copula, copula_parts
from skvnce.graphs import copula as copula_m_step
from skvnce.graphs import copula_parts as copula_of_parts
from skvnce.graphs import copula_parts as counted
from skvnce.options import Chunks

FITTED = ("associations_", "precision_", "mean_", "edge_probabilities_", "loss_curve_")
FITTED += ("information_", "held_out_gain_", "feature_ranges_", "covariance_")
ENDS = [[0, 1500], [0, 1, 500, 500, 501, 1500]]
QUICK = {"random_state": 0, "max_iter": 16, "on_misfit": "ignore"}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n=1500):
    """Make skewed, rounded, binary and normal columns, and rows without a cell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(n, 6))
    X[:, 0], X[:, 1], X[:, 2] = np.exp(X[:, 0] / 3), np.round(X[:, 1]), X[:, 2] > 0
    X[rng.random(X.shape) < 0.2] = np.nan
    X[[0, 700]] = np.nan
    return X


def close(one, other, tol=1e-10):
    for name in FITTED:
        pair = (np.asarray(getattr(est, name), float) for est in (one, other))
        of = 1e-7 if name == "edge_probabilities_" else tol  # iterations of a mixture
        np.testing.assert_allclose(*pair, rtol=of, atol=of, err_msg=name)


@pytest.fixture
def precise(monkeypatch):
    """Solve M-steps precisely, so that differences of rounding stay as small."""
    for module in (copula, copula_m_step):
        monkeypatch.setattr(module, "TOL", (1e-13, 1e-13))


@pytest.fixture
def few_rows(monkeypatch):
    """Let a table be too large for memory."""
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 400)


def test_a_table_that_fits_in_memory_is_fitted_there():
    X = table()
    one = CopulaGraphLearner(**QUICK).fit(X)
    other = CopulaGraphLearner(**QUICK).fit(parts(X, ENDS[1]))
    for name in FITTED:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.quick(1)
@pytest.mark.parametrize("on_misfit", ["ignore", "warn"])
def test_division_into_parts_does_not_matter(few_rows, on_misfit):
    X, options = table(), {**QUICK, "on_misfit": on_misfit}
    one, other = (CopulaGraphLearner(**options).fit(parts(X, ends)) for ends in ENDS)
    close(one, other)
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=1e-8)
    assert np.isnan(one.held_out_gain_) == (on_misfit == "ignore")
    seed = CopulaGraphLearner(**{**options, "random_state": 1}).fit(parts(X, ENDS[0]))
    assert abs(one.covariance_ - seed.covariance_).max() > 1e-4  # negative control
    fewer = CopulaGraphLearner(**options).fit(parts(X[:1400], [0, 1400]))
    assert abs(one.covariance_ - fewer.covariance_).max() > 1e-4


def factors(n=1500, d=15):
    """Make columns of three strong factors, for which solvers take many steps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))
    X += 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.quick(1)
@pytest.mark.parametrize("is_rounded", [True, False])
def test_solvers_do_not_amplify_rounding_of_sums(few_rows, monkeypatch, is_rounded):
    """Without `rounded`, the negative control, divisions differ by far more."""
    if not is_rounded:
        for module in (copula, copula_m_step):
            monkeypatch.setattr(module, "round_to_grid", lambda matrix: matrix)
    one, other = (CopulaGraphLearner(**QUICK).fit(parts(factors(), e)) for e in ENDS)
    for name in ("covariance_", "associations_"):
        most = abs(getattr(one, name) - getattr(other, name)).max()
        assert most < 1e-10 if is_rounded else most > 1e-6


@pytest.fixture
def same_numbers(monkeypatch):
    """Let the fit in memory use the random numbers of the fit to parts."""
    rounds = [0]

    def drawn(rows, z, theta, latents, numbers):
        rounds[0] += 1
        factors, first = Factors.of(theta.normal(), latents), 0
        for part, one in zip(rows, z, strict=True):
            own = numbers[first : first + one.shape[1]]
            uniform = number_keyed(own, 0)(rounds[0], torch.from_numpy(one).T).T
            part.sweep(one, factors, inside(uniform).numpy())
            first += one.shape[1]

    def use(X):
        rounds[0] = 0
        kept = np.flatnonzero(~np.isnan(X).all(1))
        monkeypatch.setattr(copula, "drawn", lambda *args: drawn(*args, kept))

    known = torch.full((6,), 0.7, dtype=torch.float64)
    monkeypatch.setattr(copula, "information", lambda latents, rows: known)
    return use


def test_the_fit_is_that_in_memory_with_the_same_random_numbers(
    monkeypatch, same_numbers, precise
):
    """Cells are counted at each of their values, as these are fewer than the knots."""
    X = np.round(table(), 1)
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 1499)  # of 1500
    other = CopulaGraphLearner(**QUICK).fit(parts(X, ENDS[1]))
    same_numbers(X)
    one = CopulaGraphLearner(**QUICK).fit(X)
    close(one, other)
    same_numbers(X[::-1])
    turned = CopulaGraphLearner(**QUICK).fit(X[::-1])  # other numbers for each row
    assert abs(turned.covariance_ - one.covariance_).max() > 1e-4  # negative control


def test_known_latent_variables_take_one_round(few_rows):
    X = table()[:, [0, 3, 4, 5]]
    X = X[~np.isnan(X).any(1)]
    one = CopulaGraphLearner(**QUICK).fit(X)
    other = CopulaGraphLearner(**QUICK).fit(parts(X, [0, 100, len(X)]))
    assert one.n_iter_ == other.n_iter_ == 1
    np.testing.assert_allclose(one.covariance_, other.covariance_, atol=0.01)


def test_files_are_deleted(few_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X = table()
    CopulaGraphLearner(**QUICK).fit(parts(X, ENDS[0]))
    assert not os.listdir(tmp_path)
    seen = []

    def growing():
        seen.append(len(os.listdir(tmp_path)))
        return X[: 500 - (len(seen) == 4)]

    learner = CopulaGraphLearner(**QUICK)
    with pytest.raises(ValueError, match="Part 1 of X had 500 rows"):
        learner.fit(Chunks([X[500:], growing]))
    assert max(seen) == 1 and not os.listdir(tmp_path)
    assert not hasattr(learner, "n_features_in_")


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["frame", "array"])
def test_tables_of_dask_are_fitted_as_chunks(kind, few_rows, precise):
    X, ends = table(), [0, 375, 750, 1125, 1500]
    if kind == "frame":
        dd = pytest.importorskip("dask.dataframe")
        frame = pd.DataFrame(X, columns=list("abcdef"))
        lazy = dd.from_pandas(frame, npartitions=4)
    else:
        lazy = pytest.importorskip("dask.array").from_array(X, chunks=(375, 3))
    one = CopulaGraphLearner(**QUICK).fit(lazy)
    close(one, CopulaGraphLearner(**QUICK).fit(parts(X, ends)))
    assert list(one.nodes_) == list("abcdef" if kind == "frame" else one.nodes_)
    filled = one.transform(lazy)
    np.testing.assert_allclose(filled.compute(), one.transform(lazy.compute()))


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_cluster_that_loses_a_worker(tmp_path, few_rows):
    """The states of its partitions are computed again, with the same result."""
    distributed = pytest.importorskip("distributed")
    dd = pytest.importorskip("dask.dataframe")
    X = pd.DataFrame(table(), columns=list("abcdef"))
    for number in range(5):
        part = X[300 * number : 300 * (number + 1)]
        part.to_parquet(tmp_path / f"{number}.parquet")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        lazy = dd.read_parquet(tmp_path)
        plain = CopulaGraphLearner(**QUICK).fit(lazy)
        (tmp_path / "armed").touch()
        client.run(_arm, str(tmp_path / "armed"))
        found = CopulaGraphLearner(**QUICK).fit(lazy)
        assert not (tmp_path / "armed").exists()  # a worker was killed
    for name in FITTED:
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    ends = list(range(0, 1501, 300))
    close(plain, CopulaGraphLearner(**QUICK).fit(parts(X, ends)))


def _arm(path):
    """Let a worker die in the ninth round."""
    plain = copula_parts.Round.swept

    def dying(self, *args):
        if self.number == 9 and os.path.exists(path):
            os.remove(path)
            os._exit(1)
        return plain(self, *args)

    copula_parts.Round.swept = dying


def test_two_levels_without_order_have_a_marginal():
    codes = torch.tensor([0, 0, 0, 1, 1]).double()
    counts = counted.counts_at(codes.numpy(), np.arange(2.0))
    expected = Marginal.of_levels(codes, torch.ones(5).double(), 2)
    found = copula_of_parts._marginal(np.arange(2.0), counts, NOMINAL, 2)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert copula_of_parts._marginal(np.arange(3.0), counts, NOMINAL, 3) is None
