"""THE list: what is added here is tested for everything."""

from skvnce import GaussianImputer, TruncatedGaussianGraphLearner

# Every public estimator, in the configurations that take different paths.
ESTIMATORS = [
    TruncatedGaussianGraphLearner(alpha=0.01),
    TruncatedGaussianGraphLearner(alpha=0.0, fit_linear=False),
    TruncatedGaussianGraphLearner(alpha=0.01, method="vnce", max_iter=12, tol=0.2),
    GaussianImputer(n_parameter_draws=2),
]

# Those that the longer NaN contract suite is run over: one a method.
CONTRACT = [ESTIMATORS[0], ESTIMATORS[2], ESTIMATORS[3]]
