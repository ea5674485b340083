"""What LAIRImputer and VGIImputer do about columns that they do not predict."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from statistical import FAILURE, p_mean
from tables import misfits
from torch import nn

from skvnce import GaussianImputer, LAIRImputer, VariationalAutoencoder, VGIImputer
from skvnce._imputer.held_out import hold_out
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.model import moved, turned_like
from skvnce.options import Adam, IncompleteDensity

FACTORS = IncompleteDensity("factor-analysis", max_iter=0)
LINEAR = VariationalAutoencoder(max_iter=0, likelihood="normal", marginals="normal")


def normal_table(seed, n=60, d=6, loading=0.7):
    rng = np.random.default_rng(seed)
    noise = np.sqrt(1 - loading**2) * rng.normal(size=(n, d))
    X = 5 + loading * rng.normal(size=(n, 1)) + noise
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    return X


def gain_of(fills, X, hidden, kept):
    """By hand, from the definition of held_out_gain_."""
    scale, mean = np.nanstd(X, 0), np.nanmean(kept, 0)
    errors = [
        np.where(hidden, (guess - X) / scale, 0.0) ** 2 for guess in (fills, mean)
    ]
    return 1 - errors[0].sum() / errors[1].sum()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "imputer",
    [
        LAIRImputer(LINEAR, n_estimators=1, random_state=0),
        VGIImputer(FACTORS, n_estimators=1, random_state=0),
    ],
)
def test_the_gain_is_that_of_a_fit_without_the_cells(seed, imputer):
    """A linear model is nearly a normal distribution, which is fitted here anew."""
    apart, leaked = [], []
    for table in range(6):
        X = normal_table(100 * seed + table)
        hidden = hold_out(X, torch.ones(len(X)).double(), 0.1)[1].numpy()
        kept = np.where(hidden, np.nan, X)
        fitted = clone(imputer).set_params(on_misfit="warn").fit(X)
        shrinkage = fitted.estimators_[0].shrinkage_
        normal = GaussianImputer(
            shrinkage=shrinkage, marginals="normal", tol=1e-6, on_misfit="ignore"
        )
        blind, seen = (
            gain_of(clone(normal).fit(table).transform(kept), X, hidden, kept)
            for table in (kept, X)
        )
        apart.append(fitted.held_out_gain_ - blind)
        leaked.append(fitted.held_out_gain_ - seen)
    assert p_mean(apart, 0.0) > FAILURE
    # a quarter to a half at ten seeds
    assert np.abs(apart).mean() < 0.75 * np.abs(leaked).mean()


def test_latents_are_turned_like_others(torch_seeded):
    one = FactorModel(torch.zeros(6), torch.randn(6, 3), torch.ones(6))
    turn = torch.linalg.qr(torch.randn(3, 3)).Q
    result = turned_like(one._replace(loadings=one.loadings @ turn), one)
    torch.testing.assert_close(result.loadings, one.loadings)
    near = turned_like(one, one._replace(loadings=torch.randn(6, 3)))
    expected = one.loadings @ one.loadings.T
    torch.testing.assert_close(near.loadings @ near.loadings.T, expected)


def test_a_module_is_moved_as_its_start_is():
    trained, before, after = (nn.BatchNorm1d(3) for _ in range(3))
    with torch.no_grad():
        trained.weight.fill_(5.0)
        before.weight.fill_(2.0)
        after.weight.fill_(1.5)
    result = moved(trained, before, after)
    assert result.weight.tolist() == [4.5] * 3 and result.bias.tolist() == [0.0] * 3
    assert trained.weight.tolist() == [5.0] * 3
    assert not result.training and not result.weight.requires_grad


def against(X):
    """Two columns that are related the other way round than in X."""
    return X * [1, -1] + [0, 10]


def test_columns_that_a_frozen_estimator_gets_wrong(seed):
    X = normal_table(seed, n=400, d=2, loading=0.9)
    frozen = FrozenEstimator(clone(LINEAR).set_params(random_state=0).fit(against(X)))
    imputer = LAIRImputer(frozen, n_steps=2, n_draws=20, random_state=0)
    before = vars(imputer.fit(against(X))).copy()
    assert imputer.held_out_gain_ > 0  # control: rows that it knows
    with pytest.raises(ValueError, match="column 0, column 1 are predicted worse"):
        imputer.set_params(on_misfit="raise").fit(X)
    assert imputer.held_out_gain_ == before["held_out_gain_"]
    (message,) = misfits(imputer.set_params(on_misfit="warn"), X)
    assert "imputed from their marginal distributions. GaussianImputer" in message
    assert imputer.held_out_gain_ < 0 and imputer.marginal_columns_.all()
    assert_marginal(imputer, X)
    assert misfits(imputer.set_params(on_misfit="ignore"), X) == []
    assert np.isnan(imputer.held_out_gain_) and not imputer.marginal_columns_.any()


def assert_marginal(imputer, X):
    rows = X[:60]
    hidden = np.isnan(rows) & imputer.marginal_columns_
    for strategy, summary in (("mean", np.nanmean), ("median", np.nanmedian)):
        filled = imputer.set_params(strategy=strategy).transform(rows)
        expected = np.broadcast_to(summary(X, 0), rows.shape)
        np.testing.assert_allclose(filled[hidden], expected[hidden])
    first, second = imputer.sample(rows, n_draws=2, random_state=0)
    assert (first != second)[hidden].mean() > 0.8
    for drawn in (first, second):
        for j in np.flatnonzero(hidden.any(0)):
            assert np.isin(drawn[hidden[:, j], j], X[:, j]).all()


class Elsewhere(nn.Module):
    """Independent columns with means two standard deviations off, which stay there."""

    def __init__(self, n_features):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(n_features))

    def log_prob(self, x):
        scale = self.log_scale.clamp(-0.1, 0.1).exp()
        return -(((x - 2) / scale).square() / 2 + scale.log()).sum(-1)


def test_columns_that_a_density_gets_wrong(seed):
    X = normal_table(seed, n=400, d=4, loading=0.0)  # or chains stay near the normal
    options = {"n_steps": 2, "n_draws": 4, "random_state": 0}
    imputer = VGIImputer(IncompleteDensity(Elsewhere, max_iter=0), **options)
    (message,) = misfits(imputer, X)
    wrong = np.flatnonzero(imputer.marginal_columns_)
    assert len(wrong) >= 2  # of four; 3 or 4 at ten seeds, as few cells are held out
    named = ", ".join(f"column {j}" for j in wrong)
    assert f"of {named} are predicted worse than by their means" in message
    assert imputer.held_out_gain_ < 0
    assert_marginal(imputer, X)
    imputer.set_params(model=IncompleteDensity("flow", max_iter=0))  # control
    assert misfits(imputer, X) == []


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "imputer",
    [
        LAIRImputer(
            clone(LINEAR).set_params(solver=Adam(validation_fraction=0)), n_estimators=1
        ),
        VGIImputer(
            IncompleteDensity(
                "factor-analysis", max_iter=0, solver=Adam(validation_fraction=0)
            )
        ),
        VGIImputer(IncompleteDensity("coupling-flow", max_iter=0, algorithm="mcem")),
    ],
)
def test_without_held_out_cells_nothing_is_judged(imputer):
    imputer.fit(normal_table(0, n=30, d=3))
    assert np.isnan(imputer.held_out_gain_)
    assert imputer.marginal_columns_.tolist() == [False] * 3


def test_the_check_changes_nothing_else():
    X = normal_table(0, n=50, d=3)
    auto = VariationalAutoencoder(max_iter=2, n_training_draws=2)
    one, other = (
        LAIRImputer(auto, n_estimators=2, n_draws=5, on_misfit=way, random_state=0)
        for way in ("warn", "ignore")
    )
    filled = one.fit(X).transform(X)
    assert np.isfinite(one.held_out_gain_) and not one.marginal_columns_.any()
    np.testing.assert_array_equal(filled, other.fit(X).transform(X))


@pytest.mark.slow
def test_tables_of_noise_are_not_announced(seed):
    """Nothing to predict, and few rows: an alarm is chance, 1 % of tables or so."""
    alarms = 0
    for table in range(20):
        X = normal_table(100 * seed + table, n=20 + 5 * table, d=4, loading=0.0)
        imputer = LAIRImputer(LINEAR, n_estimators=1, random_state=0)
        alarms += len(misfits(imputer, X))
    assert alarms <= 3  # of 20 tables with 1 %, more come in 1 of 25,000
