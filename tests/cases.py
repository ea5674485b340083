"""THE list: what is added here is tested for everything."""

import pytest
from energies import Bell, Blob, Factor
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skvnce
from skvnce.options import LBFGS, Adam, IncompleteDensity

QUICK = {"max_iter": 1, "hidden_layer_sizes": (8,), "n_importance_samples": 32}

DRAWN = {"n_estimators": 1, "n_steps": 2, "n_draws": 16}
DENSITY = {"n_training_draws": 1, "n_importance_samples": 16}
ON_ALL_CELLS = Adam(validation_fraction=0)

# a threshold of 0 would leave the NaN contract's tables, which lie around 2, all ones
CAUSES = {"binarize": 2.0, "max_iter": 5, "hidden_layer_sizes": (8,)}

# Every public estimator without a target, in configurations that take different paths.
ESTIMATORS = [
    skvnce.TruncatedGaussianGraphLearner(alpha=0.01),
    skvnce.TruncatedGaussianGraphLearner(alpha=0.0, fit_linear=False),
    skvnce.TruncatedGaussianGraphLearner(
        alpha=0.01, algorithm="vnce", max_iter=3, tol=0.2
    ),
    skvnce.TruncatedGaussianGraphLearner(
        alpha=0.01, algorithm="maximum-likelihood", max_iter=5, tol=0.2
    ),
    skvnce.TruncatedGaussianGraphLearnerCV(alphas=4),
    skvnce.GaussianImputer(n_parameter_draws=2),
    skvnce.GaussianImputer(
        marginals="normal",
        max_value=1e300,
        categorical_features=None,  # so that partial_fit takes whole numbers of frames
        add_indicator=True,
        n_parameter_draws=1,
    ),
    skvnce.IncompleteFactorAnalysis(n_components=2),
    skvnce.IncompleteFactorAnalysis(),
    skvnce.VNCEEstimator(),
    skvnce.VNCEEstimator(Bell, max_iter=3, solver=LBFGS(tol=1e-2)),
    skvnce.VNCEEstimator(Factor, max_iter=2),
    skvnce.VariationalAutoencoder(**QUICK),
    skvnce.VariationalAutoencoder(
        algorithm="miss-siwae", n_training_draws=1, solver=ON_ALL_CELLS, **QUICK
    ),
    skvnce.LAIRImputer(
        skvnce.VariationalAutoencoder(solver=ON_ALL_CELLS, **QUICK),
        n_estimators=1,
        n_steps=3,
        n_draws=32,
    ),
    skvnce.LAIRImputer(
        skvnce.VariationalAutoencoder(likelihood="student", **{**QUICK, "max_iter": 0}),
        sampler="mwg",
        strategy="median",
        n_estimators=2,
        n_steps=2,
        n_draws=32,
        add_indicator=True,
    ),
    skvnce.VGIImputer(IncompleteDensity("vae", max_iter=0, **DENSITY), **DRAWN),
    skvnce.VGIImputer(
        IncompleteDensity("flow", solver=Adam(8), max_iter=0, **DENSITY),
        categorical_features=None,  # whole numbers of a frame are numbers
        **DRAWN,
    ),
    skvnce.VGIImputer(
        IncompleteDensity(
            Blob, solver=Adam(8, validation_fraction=0), max_iter=1, **DENSITY
        ),
        strategy="mode",
        add_indicator=True,
        categorical_features=None,
        **DRAWN,
    ),
    skvnce.NoisyOr(max_iter=3),  # in each run; the next one with the slow tests
    skvnce.NoisyOr(),
    skvnce.NoisyOr(2, **CAUSES),
    skvnce.NoisyOr(2, algorithm="svi", init="random", max_iter=5),
    skvnce.ConstrainedImputer(),
    skvnce.ColumnImputer(),
    skvnce.ColumnImputer(regressor=LinearRegression(), classifier=LogisticRegression()),
    skvnce.CopulaGraphLearner(),
    skvnce.CopulaGraphLearnerCV(alphas=4),
    skvnce.MixtureImputer(),
    skvnce.MixtureImputer(
        3,
        n_estimators=1,
        marginals="raw",
        max_value=1e300,
        categorical_features=None,
        add_indicator=True,
    ),
    skvnce.TableImputer(),
    skvnce.TableImputer(
        interactions=None,
        n_estimators=3,
        n_parameter_draws=2,
        max_value=1e300,
        categorical_features=None,
        add_indicator=True,
    ),
]

# The first of each class.
FIRST = {type(one).__name__: one for one in reversed(ESTIMATORS)}

# Those with a target.  The NaN contract does not apply to them: its checks fit X alone
# and look at cells that `transform` and `sample` fill, and predictors have neither.
# What it asks of tables (rows and columns without cells, zeros, data types, threads,
# input that is not modified) `predictors/test_predictors.py` tests of predictions.
FEW = {"n_estimators": 2, "n_draws": 4}
PREDICTORS = [
    skvnce.MultipleImputationClassifier(
        skvnce.GaussianImputer(n_parameter_draws=2), LogisticRegression(), **FEW
    ),
    skvnce.MultipleImputationRegressor(
        skvnce.GaussianImputer(n_parameter_draws=2), Ridge(), cv=2, **FEW
    ),
    skvnce.MultipleImputationClassifier(),
    skvnce.MultipleImputationRegressor(),
]

# Those that the longer NaN contract suite is run over, at least one a class.
CONTRACT = [ESTIMATORS[0], *ESTIMATORS[4:6], *ESTIMATORS[8:10]]
CONTRACT += [ESTIMATORS[12], ESTIMATORS[14], ESTIMATORS[16], ESTIMATORS[-11]]
CONTRACT += [ESTIMATORS[-9], *ESTIMATORS[-7:-3], ESTIMATORS[-2]]

# Those that it is run over with the slow tests.
CONTRACT_SLOWLY = [*ESTIMATORS[2:4], ESTIMATORS[17]]
CONTRACT_SLOWLY.append(clone(ESTIMATORS[6]).set_params(add_indicator=False))
CONTRACT_SLOWLY.append(clone(ESTIMATORS[-3]).set_params(add_indicator=False))
CONTRACT_SLOWLY.append(clone(ESTIMATORS[-1]).set_params(add_indicator=False))

# Of these, those that a cluster of dask runs, too: loky sends all to other processes.
CLUSTERED = [0]

FEW = {"on_misfit": "ignore", "random_state": 0}
NORMAL = skvnce.GaussianImputer(n_parameter_draws=2, max_iter=20, **FEW)

# One of each imputer that draws cells, as small as possible.
SMALL_IMPUTERS = [
    skvnce.GaussianImputer(max_iter=30, n_parameter_draws=2, random_state=0),
    skvnce.ColumnImputer(
        NORMAL,
        regressor=Ridge(),
        classifier=LogisticRegression(),
        random_state=0,
        n_draws=2,
    ),
    skvnce.MixtureImputer(3, n_estimators=2, max_iter=4, random_state=0),
    skvnce.TableImputer(n_estimators=4, n_parameter_draws=2, random_state=0),
    skvnce.LAIRImputer(
        skvnce.VariationalAutoencoder(max_iter=1, hidden_layer_sizes=(8,)),
        n_estimators=2,
        n_draws=4,
        n_steps=5,
        random_state=0,
    ),
    pytest.param(
        skvnce.VGIImputer(
            IncompleteDensity("vae", max_iter=2), n_draws=4, random_state=0
        ),
        marks=pytest.mark.slow,
    ),
]

# A copy of each, by the fixture of conftest.py.
EACH_IMPUTER = pytest.mark.parametrize(
    "imputer", SMALL_IMPUTERS, indirect=True, ids=lambda one: type(one).__name__
)

# One of each class that fills, draws or scores rows, as small as possible.
MEMBERS = {"n_estimators": 1, "n_steps": 1, "n_draws": 4, **FEW}
VAE = skvnce.VariationalAutoencoder(
    1, max_iter=1, hidden_layer_sizes=(4,), n_importance_samples=8, **FEW
)
DENSITY_OF_ONE = IncompleteDensity("vae", max_iter=1, n_importance_samples=4)
GRAPH = skvnce.TruncatedGaussianGraphLearner(max_iter=20, **FEW)
COPULA = skvnce.CopulaGraphLearner(max_iter=20, **FEW)
LEVELS = {"classifier": LogisticRegression(C=0.1), "n_draws": 2, "random_state": 0}
SMALL = {
    type(one).__name__: one
    for one in [
        NORMAL,
        skvnce.TableImputer(n_estimators=2, n_parameter_draws=2, random_state=0),
        skvnce.MixtureImputer(2, n_estimators=2, max_iter=4, **FEW),
        skvnce.ColumnImputer(NORMAL, regressor=Ridge(), **LEVELS),
        skvnce.ConstrainedImputer(NORMAL, random_state=0),
        skvnce.LAIRImputer(VAE, **MEMBERS),
        skvnce.VGIImputer(DENSITY_OF_ONE, **MEMBERS),
        GRAPH,
        skvnce.TruncatedGaussianGraphLearnerCV(GRAPH, alphas=3, random_state=0),
        COPULA,
        skvnce.CopulaGraphLearnerCV(COPULA, alphas=3, random_state=0),
        skvnce.VNCEEstimator(max_iter=2, **FEW),
        skvnce.IncompleteFactorAnalysis(1, on_misfit="ignore"),
        VAE,
        skvnce.NoisyOr(2, max_iter=1, hidden_layer_sizes=(4,), random_state=0),
    ]
}


# Imputers that read categories, as small as possible; options say how tables are read.
QUIET = {"on_misfit": "ignore", "random_state": 0}


def quick_gaussian(**options):
    return skvnce.GaussianImputer(n_parameter_draws=2, max_iter=20, **QUIET, **options)


def quick_columns(**options):
    levels = make_pipeline(StandardScaler(), LogisticRegression())
    numbers = make_pipeline(StandardScaler(), Ridge())
    given = {"regressor": numbers, "classifier": levels, "random_state": 0}
    return skvnce.ColumnImputer(quick_gaussian(**options), **given)


def quick_lair(**options):
    few = {"n_draws": 6, "n_steps": 2, "n_estimators": 1}
    return skvnce.LAIRImputer(
        skvnce.VariationalAutoencoder(1, max_iter=0), **few, **QUIET, **options
    )


def quick_vgi(**options):
    few = {"n_draws": 6, "n_steps": 2, "n_estimators": 1}
    return skvnce.VGIImputer(IncompleteDensity(max_iter=0), **few, **QUIET, **options)
