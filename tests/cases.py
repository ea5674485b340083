"""THE list: what is added here is tested for everything."""

from energies import Bell, Factor
from sklearn.base import clone

from skvnce import (
    GaussianImputer,
    IncompleteFactorAnalysis,
    TruncatedGaussianGraphLearner,
    VNCEEstimator,
)

# Every public estimator, in the configurations that take different paths.
ESTIMATORS = [
    TruncatedGaussianGraphLearner(alpha=0.01),
    TruncatedGaussianGraphLearner(alpha=0.0, fit_linear=False),
    TruncatedGaussianGraphLearner(alpha=0.01, method="vnce", max_iter=12, tol=0.2),
    GaussianImputer(n_parameter_draws=2),
    GaussianImputer(
        margins="normal", max_value=1e300, add_indicator=True, n_parameter_draws=1
    ),
    IncompleteFactorAnalysis(n_components=2),
    IncompleteFactorAnalysis(),
    VNCEEstimator(),
    VNCEEstimator(Bell, max_iter=30, tol=1e-2),
    VNCEEstimator(Factor, max_iter=6, tol=10.0),
]

# Those that the longer NaN contract suite is run over: one a method.
CONTRACT = [ESTIMATORS[0], *ESTIMATORS[2:4], *ESTIMATORS[6:8]]
CONTRACT.append(clone(ESTIMATORS[4]).set_params(add_indicator=False))
