"""VariationalAutoencoder: the linear model inside, units, families, refusals."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
from errors import refused
from oracles import GATE
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skvnce import GaussianImputer, LAIRImputer, VariationalAutoencoder
from skvnce.autoencoder.losses import ALGORITHMS
from skvnce.exceptions import DivergenceError
from skvnce.missingness import hide, mcar
from skvnce.options import Adam

SMALL = {"hidden_layer_sizes": (8,), "max_iter": 1, "random_state": 0}
ON_ALL_CELLS = Adam(validation_fraction=0)
FIXED = {**SMALL, "solver": ON_ALL_CELLS}


def linear_table(seed, n=300):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, 1))
    full = [50.0, -3.0, 0.0, 1e3] + [10.0, 0.1, 1.0, 1e2] * (
        0.8 * factor + 0.6 * rng.normal(size=(n, 4))
    )
    return hide(full, mcar(full, 0.3, random_state=seed))


def curved_table(seed, n=600):
    """Return points near a parabola and a third column of their height."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-2, 2, n)
    full = np.column_stack([t, t**2, -(t**2)]) + 0.15 * rng.normal(size=(n, 3))
    return full, mcar(full, 0.3, random_state=seed)


@pytest.fixture
def X(seed):
    return linear_table(seed)


@pytest.mark.parametrize("marginals", ["normal", "auto"])
def test_without_training_it_is_the_normal_distribution(X, marginals):
    """With all factors, scores are those of GaussianImputer to the floor of noise."""
    vae = VariationalAutoencoder(
        max_iter=0, marginals=marginals, likelihood="normal", n_importance_samples=8
    ).fit(X)
    assert vae.shrinkage_ in (10, 1, 0.1, 0.01)
    normal = GaussianImputer(shrinkage=vae.shrinkage_, marginals=marginals).fit(X)
    apart = abs(vae.score_samples(X) - normal.score_samples(X))
    # The floor raises a variance by at most 0.002, a score by half of that times a
    # squared residual over its variance: 0.05 for each of 4 columns at 4.5 deviations.
    assert apart.max() < 0.2
    assert apart.mean() < 0.01


@pytest.mark.slow
def test_curves_are_learnt_and_lines_left_alone(seed):
    full, hidden = curved_table(seed)
    train, test = np.split(hide(full, hidden), 2)
    bent = VariationalAutoencoder(random_state=seed, max_iter=15).fit(train)
    straight = clone(bent).set_params(max_iter=0).fit(train)
    assert bent.best_iter_ > 0
    gain = bent.score_samples(test) - straight.score_samples(test)
    assert gain.mean() > GATE * gain.std() / np.sqrt(len(gain))


@pytest.mark.quick(2)
@pytest.mark.parametrize("objective", list(ALGORITHMS))
def test_every_objective_trains(X, objective):
    vae = VariationalAutoencoder(algorithm=objective, n_training_draws=2, **FIXED).fit(
        X
    )
    assert len(vae.loss_curve_) == 2
    assert np.isfinite(vae.score_samples(X)).all()
    other = VariationalAutoencoder(max_iter=0, random_state=0).fit(X)
    name = "network.last.weight"
    assert not np.allclose(vae.model_state_[name], 0)
    assert np.allclose(other.model_state_[name], 0)


def trained(algorithm, seed, width, rate, **options):
    """Make an estimator of one latent that trains on all cells by small batches."""
    return VariationalAutoencoder(
        algorithm=algorithm,
        n_components=1,
        n_training_draws=2,
        marginals="normal",
        hidden_layer_sizes=(width,),
        solver=Adam(learning_rate_init=rate, batch_size=64, validation_fraction=0),
        random_state=seed,
        **options,
    )


COMPLETING = ["demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae", "vbgi-vae-m"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", COMPLETING)
def test_every_algorithm_gains_on_new_rows(algorithm, seed):
    """In log p of complete rows over the linear start."""
    full, hidden = curved_table(seed, n=300)
    vae = trained(algorithm, seed, 16, 2e-2, max_iter=2, n_importance_samples=64)
    vae.fit(hide(full, hidden))
    start = clone(vae).set_params(max_iter=0).fit(hide(full, hidden))
    new, _ = curved_table(seed + 1000, n=900)
    gain = vae.score_samples(new) - start.score_samples(new)
    assert gain.mean() > GATE * gain.std() / np.sqrt(len(gain))


@pytest.mark.quick(2)
@pytest.mark.parametrize("algorithm", ["miwae", "miss-siwae", "demiss-vae"])
def test_the_encoder_can_be_trained_on_other_rows(algorithm, X, seed):
    """A wrong one recovers, so that the bound rises; the model stays as it was."""
    vae = trained(algorithm, seed, 8, 3e-2, max_iter=1, n_importance_samples=1).fit(X)
    state, model = vae.posterior_state_, deepcopy(vae.model_state_)
    wrong = {**state, "network.last.bias": state["network.last.bias"] + 1.0}
    vae._publish(vae._with_report({"posterior_state_": wrong}))
    new = linear_table(seed + 1000, n=1200)
    before, n_rows = vae.score_samples(new), len(new)
    assert vae.fit_posterior(np.vstack([new, np.full((1, 4), np.nan)])) is vae
    gain = (vae.score_samples(new) - before).clip(-5, 5)
    assert gain.mean() > GATE * gain.std() / np.sqrt(n_rows)
    for name, value in vae.model_state_.items():
        np.testing.assert_array_equal(value, model[name])


def test_no_rows_train_no_encoder(X):
    vae = VariationalAutoencoder(**FIXED).fit(X)
    before = vae.score_samples(X)
    with pytest.raises(ValueError, match="X has no row with an observed value"):
        vae.fit_posterior(np.full((3, 4), np.nan))
    vae.set_params(solver=Adam(learning_rate_init=1e30, validation_fraction=0))
    refused(DivergenceError, "learning_rate_init", vae.fit_posterior, X)
    np.testing.assert_array_equal(vae.score_samples(X), before)


def test_the_encoder_belongs_to_the_algorithm_of_the_fit():
    X = np.random.default_rng(0).normal(size=(30, 3))
    vae = VariationalAutoencoder(max_iter=1, on_misfit="ignore").fit(X)
    vae.set_params(algorithm="miss-svae")
    refused(ValueError, "is not that of fit, 'miwae'", vae.fit_posterior, X)


def unit_table(seed, n=500):
    """Return columns of [0, 1] that are continuous Bernoulli given one latent."""
    rng = np.random.default_rng(seed)
    eta = np.array([0.5, -1.0, 0.0]) + rng.normal(size=(n, 1)) * [4.0, -4.0, 3.0]
    full = np.log1p(rng.random((n, 3)) * np.expm1(eta)) / eta
    return full, mcar(full, 0.2, random_state=seed)


def test_continuous_bernoulli_columns(seed):
    """Densities on [0, 1]: better than normals for such data, and draws stay there."""
    full, hidden = unit_table(seed)
    settings = {**FIXED, "n_components": 1, "solver": Adam(learning_rate_init=1e-2)}
    vae = VariationalAutoencoder(likelihood="continuous-bernoulli", **settings)
    normal = VariationalAutoencoder(likelihood="normal", marginals="normal", **settings)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        vae.fit(hide(full, hidden))
        normal.fit(hide(full, hidden))
    new, _ = unit_table(seed + 1000)
    gain = vae.score_samples(new) - normal.score_samples(new)
    assert gain.mean() > GATE * gain.std() / np.sqrt(len(gain))
    drawn = vae.sample_rows(500, random_state=seed)
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert vae.families_ == ["continuous-bernoulli"] * 3
    assert not vae.nonlinear_columns_.any()
    outside = new[:2].copy()
    outside[0, 0], at_end = 7.0, new[:2].copy()
    at_end[0, 0] = 1.0
    imputed = LAIRImputer(FrozenEstimator(vae), random_state=0).fit(new)
    for table in (vae.inverse_transform(vae.transform(outside)), at_end):
        assert table.min() >= 0 and table.max() <= 1
    assert np.isfinite(vae.score_samples(outside)).all()
    filled = imputed.transform(hide(full, hidden))
    assert filled.min() >= 0 and filled.max() <= 1


def test_a_continuous_bernoulli_density_integrates_to_one():
    """One table: at one in 20 the loadings are so large that the weights vary much."""
    full, hidden = unit_table(0, n=200)
    full = full * [1.0, 1.0, 30.0]  # one column in other units
    vae = VariationalAutoencoder(
        1,
        likelihood=["continuous-bernoulli"] * 2 + ["normal"],
        max_iter=0,
        n_importance_samples=2048,
    ).fit(hide(full, hidden))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    rows = np.full((12, 3), np.nan)
    rows[:, 0] = (nodes + 1) / 2
    density = np.exp(vae.score_samples(rows))
    assert density @ weights / 2 == pytest.approx(1.0, abs=0.01)


@pytest.mark.quick(1)
@pytest.mark.parametrize("likelihood", ["student", ["rounded", "normal"] * 2])
def test_vbgi_vae_takes_other_families(X, likelihood):
    X = X.copy()
    X[:, [0, 2]] = np.round(X[:, [0, 2]])
    vae = VariationalAutoencoder(algorithm="vbgi-vae", likelihood=likelihood, **FIXED)
    assert np.isfinite(vae.fit(X).score_samples(X)).all()


def test_units_do_not_matter_to_what_is_learnt(X):
    """The latents may be turned, the table that they stand for not."""
    unit, shift = np.array([1e-3, 10.0, 1e5, 1.0]), np.array([5.0, 0.0, -7.0, 1.0])
    one = VariationalAutoencoder(max_iter=0).fit(X)
    other = VariationalAutoencoder(max_iter=0).fit(X * unit + shift)
    X = X[:60]
    apart = one.inverse_transform(one.transform(X)) * unit + shift
    back = other.inverse_transform(other.transform(X * unit + shift))
    # draws are keyed by the cells, units included
    assert (abs(back - apart) < 0.1 * np.nanstd(X * unit, 0)).all()
    jacobian = np.where(np.isnan(X), 0.0, np.log(unit)).sum(1)
    found = other.score_samples(X * unit + shift)
    np.testing.assert_allclose(found, one.score_samples(X) - jacobian, atol=0.01)


def test_samples_and_inverse_transform_are_in_the_units_of_X(X):
    X = np.column_stack([X, np.full(len(X), 7.0)])
    with pytest.warns(UserWarning, match="column 4.*`inverse_transform` gives the con"):
        vae = VariationalAutoencoder(**FIXED).fit(X)
    rows = vae.sample_rows(4000, random_state=0)
    error = np.nanstd(X, 0) / np.sqrt(len(X)) + 1e-12
    assert (abs(rows.mean(0) - np.nanmean(X, 0)) < 2 * GATE * error).all()
    assert (rows[:, 4] == 7).all()
    back = vae.inverse_transform(np.zeros((1, vae.n_components_)))
    assert (abs(back - np.nanmean(X, 0)) < np.nanstd(X, 0) + 1e-9).all()
    with pytest.raises(ValueError, match="n_components_"):
        vae.inverse_transform(np.zeros((1, vae.n_components_ + 1)))


def test_repeated_values_are_the_only_ones_drawn(rng):
    z = rng.normal(size=400)
    counts = np.round(2 * z + rng.normal(size=400)).clip(0)
    X = np.column_stack([z, counts, np.where(z + rng.normal(size=400) > 0, 3.0, 8.0)])
    X[rng.random(X.shape) < 0.2] = np.nan
    vae = VariationalAutoencoder(**FIXED).fit(X)
    assert vae.families_ == ["normal", "rounded", "rounded"]
    rows = vae.sample_rows(500, random_state=0)
    for j in (1, 2):
        assert set(rows[:, j]) <= set(X[:, j][~np.isnan(X[:, j])])
    mixed = VariationalAutoencoder(
        likelihood=["student", "normal", "bernoulli"], **FIXED
    )
    rows = mixed.fit(X).sample_rows(500, random_state=0)
    assert set(rows[:, 2]) == {3.0, 8.0}
    share = (rows[:, 2] == 8).mean() - np.mean(X[:, 2][~np.isnan(X[:, 2])] == 8)
    assert abs(share) < 0.15
    assert len(set(rows[:, 1])) == 500


def test_too_few_rounds_are_reported(seed):
    full, hidden = curved_table(seed)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        VariationalAutoencoder(max_iter=1, random_state=0).fit(hide(full, hidden))


def test_integers_may_be_numpys(X):
    solver = Adam(batch_size=np.int64(2), validation_fraction=0)
    sizes = {"hidden_layer_sizes": np.array([8, 4]), "solver": solver}
    names = ("n_components", "n_training_draws", "max_iter")
    numbers = {name: np.int64(2) for name in (*names, "n_importance_samples")}
    vae = VariationalAutoencoder(**sizes, **numbers).fit(X)
    assert np.isfinite(vae.score_samples(X)).all()
    assert vae.transform(X).shape == (len(X), 2)


def test_an_unknown_value_of_a_rounded_column_is_the_nearest(rng):
    X = np.column_stack([rng.normal(size=80), np.arange(80) % 3])
    vae = VariationalAutoencoder(**FIXED).fit(X)
    known, unknown = np.array([[np.nan, 2.0]]), np.array([[np.nan, 77.0]])
    expected = vae.score_samples(unknown)
    assert vae.score_samples(known) == pytest.approx(expected, abs=0.2)
    np.testing.assert_allclose(vae.transform(known), vae.transform(unknown), atol=0.3)
