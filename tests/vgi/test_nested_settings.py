"""Settings of VGI as parameters of the imputer, and of parts that defaults stand for.

The objective of rows that miss one cell is the log-density of the others, where q is
exact.
"""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skvnce import (
    ColumnImputer,
    ConstrainedImputer,
    CopulaGraphLearnerCV,
    GaussianImputer,
    LAIRImputer,
    MultipleImputationClassifier,
    MultipleImputationRegressor,
    NoisyOr,
    VariationalAutoencoder,
    VGIImputer,
    VNCEEstimator,
)
from skvnce.options import LAIR, MCEM, VGI, IncompleteDensity

FEW = {"n_estimators": 1, "n_steps": 2, "n_draws": 8, "random_state": 0}


@pytest.mark.parametrize(
    "estimator, settings, wanted",
    [
        (VGIImputer(), {"model__max_iter": 5}, "model=IncompleteDensity(max_iter=5)"),
        (
            VGIImputer("flow"),
            {"model__algorithm__n_updates": 3, "model__solver__batch_size": 9},
            "algorithm=VGI(n_updates=3), model='flow', solver=Adam(batch_size=9)",
        ),
        (
            VGIImputer(),
            {"model": "coupling-flow", "model__algorithm": "mcem"},
            "algorithm='mcem', model='coupling-flow'",
        ),
        (IncompleteDensity(), {"solver__batch_size": 9}, "solver=Adam(batch_size=9)"),
        (LAIRImputer(), {"model__max_iter": 5}, "VariationalAutoencoder(max_iter=5)"),
        (LAIRImputer(), {"sampler__n_particles": 0}, "sampler=LAIR(n_particles=0)"),
        (
            VariationalAutoencoder(),
            {"solver__batch_size": 9},
            "solver=Adam(batch_size=9)",
        ),
        (NoisyOr(), {"solver__batch_size": 9}, "solver=Adam(batch_size=9)"),
        (VNCEEstimator(), {"solver__tol": 0.5}, "solver=LBFGS(tol=0.5)"),
        (
            VNCEEstimator(solver="adam"),
            {"solver__batch_size": 9},
            "solver=Adam(batch_size=9)",
        ),
        (
            ColumnImputer(),
            {"model__marginals": "normal"},
            "model=GaussianImputer(marginals='normal')",
        ),
        (
            ConstrainedImputer(),
            {"model__marginals": "normal"},
            "model=GaussianImputer(marginals='normal')",
        ),
        (
            MultipleImputationClassifier(),
            {"imputer__marginals": "normal", "estimator__max_iter": 5},
            "estimator=HistGradientBoostingClassifier(max_iter=5), "
            "imputer=GaussianImputer(marginals='normal')",
        ),
        (
            MultipleImputationRegressor(),
            {"estimator__max_iter": 5},
            "HistGradientBoostingRegressor(early_stopping=False, max_iter=5, "
            "min_samples_leaf=1)",
        ),
        (
            CopulaGraphLearnerCV(),
            {"model__tol": 0.5},
            "model=CopulaGraphLearner(tol=0.5)",
        ),
    ],
)
def test_settings_of_a_default_make_the_part(estimator, settings, wanted):
    before = repr(estimator)
    text = "".join(repr(clone(estimator).set_params(**settings)).split())
    assert "".join(wanted.split()) in text
    assert repr(estimator) == before


def test_settings_that_are_none_are_refused():
    with pytest.raises(ValueError, match="sampler='pseudo-gibbs' has no settings"):
        LAIRImputer(sampler="pseudo-gibbs").set_params(sampler__n_particles=3)
    with pytest.raises(ValueError, match="Invalid parameter 'rounds'"):
        VGIImputer().set_params(model__rounds=3)
    with pytest.raises(ValueError, match=r"model=\[GaussianImputer\(\)\] has no set"):
        ColumnImputer([GaussianImputer()]).set_params(model__marginals="normal")


def test_settings_of_the_imputer_replace_those_of_the_density():
    density = IncompleteDensity("flow", algorithm=VGI("spline", n_selected=2))
    own = VGIImputer(clone(density), conditionals="mixture", n_chains=4)
    base = own.set_params(model__max_iter=7)._base()
    assert repr(base.algorithm) == repr(VGI("mixture", n_selected=2))
    assert (base.n_training_draws, base.max_iter, base.model) == (4, 7, "flow")
    assert repr(density.algorithm) == repr(VGI("spline", n_selected=2))
    assert repr(VGIImputer(density)._base()) == repr(density)  # control


def test_settings_of_vgi_are_none_of_monte_carlo_em():
    density = IncompleteDensity("coupling-flow", algorithm=MCEM())
    with pytest.raises(ValueError, match="conditionals='spline' are those of VGI"):
        VGIImputer(density, conditionals="spline").fit(np.eye(4))


def test_a_grid_searches_settings_of_the_default(X, short_training):
    grid = {"model__n_importance_samples": [4, 8], "conditionals": ["mixture"]}
    imputer = VGIImputer(IncompleteDensity(max_iter=0), **FEW, on_misfit="ignore")
    search = GridSearchCV(imputer, grid, cv=2, error_score="raise").fit(X[:60])
    assert search.best_estimator_.model.n_importance_samples in (4, 8)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) * [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=(300, 3))
    X[rng.random(X.shape) < 0.3] = np.nan
    return X


@pytest.fixture(scope="module")
def normal(X):
    density = IncompleteDensity("factor-analysis", max_iter=0)
    return VGIImputer(density, **FEW).fit(X)


def missing_one(seed=1, n=200):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) * [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=(n, 3))
    X[np.arange(n), rng.integers(0, 3, n)] = np.nan
    return X


def disturbed(imputer, size, seed=0):
    """Return a copy with other conditionals."""
    rng, [member] = np.random.default_rng(seed), imputer.estimators_
    state = member.conditionals_state_.items()
    state = {k: v + size * rng.normal(size=v.shape).astype(v.dtype) for k, v in state}
    report = member._with_report({"conditionals_state_": state})
    other, fitted = clone(imputer), imputer._fitted
    members = {"estimators_": [clone(member)._publish(report)]}
    return other._publish(fitted._replace(report=fitted.report | members))


def test_the_objective_of_one_missing_cell_is_the_likelihood(normal):
    X = missing_one()
    exact = normal.score(X)
    # the standard error of the estimate is below .01
    assert abs(normal.objective(X) - exact) < 0.02
    assert disturbed(normal, 0.05).objective(X) < exact - 0.05  # control


def test_the_objective_of_complete_rows_is_the_likelihood(normal):
    X = np.random.default_rng(2).normal(size=(50, 3))
    assert abs(normal.objective(X) - normal.score(X)) < 1e-6


def test_missing_rows_have_no_objective(normal):
    X, empty = missing_one(), np.full((2, 3), np.nan)
    assert np.isnan(normal.objective(empty))
    assert normal.objective(np.vstack([X, empty])) == normal.objective(X)  # control


def test_conditionals_are_tuned_to_rows_with_the_density_fixed(normal):
    X = missing_one()
    wrong = disturbed(normal, 0.05)
    before, [member] = wrong.objective(X), wrong.estimators_
    density = {k: v.copy() for k, v in member.model_state_.items()}
    tuned = wrong.fit_posterior(X)
    assert tuned is wrong
    [after] = tuned.estimators_
    assert tuned.objective(X) > before + 0.05
    assert tuned.objective(X) < normal.score(X) + 0.02
    assert all(np.array_equal(after.model_state_[k], v) for k, v in density.items())
    with pytest.raises(ValueError, match="no row with an observed value"):
        normal.fit_posterior(np.full((2, 3), np.nan))


def test_constant_tables_have_no_objective():
    X = np.ones((5, 2))
    with pytest.warns(UserWarning):
        imputer = VGIImputer().fit(X)
    assert imputer.objective(X) == 0 and not imputer.fit_posterior(X).estimators_


def test_lair_without_particles_is_importance_resampling(X):
    """Its means are those of LAIR, up to the noise of 200 draws."""
    vae = VariationalAutoencoder(max_iter=0)
    adaptive = LAIRImputer(vae, **FEW | {"n_draws": 128, "n_steps": 20}).fit(X)
    plain = clone(adaptive).set_params(sampler=LAIR(0, 200), n_steps=2).fit(X)
    assert abs(plain.transform(X) - adaptive.transform(X)).max() < 0.6
    assert not np.isnan(plain.sample(X, n_draws=1, random_state=0)).any()
    with pytest.raises(ValueError, match="proposes nothing"):
        clone(plain).set_params(sampler=LAIR(0, 0)).fit(X)
    # a density knows nothing of the sampler
    assert plain.score(X) == adaptive.score(X)
