"""Statistical models of tables with missing values, with a scikit-learn interface.

The names below are public.  Each is imported at its first use, so that ``import
skvnce`` is fast and does not load torch.
"""

from importlib import import_module

from skvnce._version import __version__

_HOMES = {
    "ColumnImputer": "skvnce.columns.estimator",
    "ConstrainedImputer": "skvnce.columns.constrained",
    "CopulaGraphLearner": "skvnce.graphs.copula_estimator",
    "CopulaGraphLearnerCV": "skvnce.graphs.cross_validation",
    "GaussianImputer": "skvnce.gaussian.estimator",
    "IncompleteFactorAnalysis": "skvnce.autoencoder.factor_analysis_estimator",
    "LAIRImputer": "skvnce.autoencoder.lair",
    "MixtureImputer": "skvnce.mixture.estimator",
    "MultipleImputationClassifier": "skvnce.predictors.estimator",
    "MultipleImputationRegressor": "skvnce.predictors.estimator",
    "NoisyOr": "skvnce.noisy_or.estimator",
    "TableImputer": "skvnce.table_imputer.estimator",
    "TruncatedGaussianGraphLearner": "skvnce.graphs.estimator",
    "TruncatedGaussianGraphLearnerCV": "skvnce.graphs.cross_validation",
    "VGIImputer": "skvnce.vgi.estimator",
    "VNCEEstimator": "skvnce.contrast.estimator",
    "VariationalAutoencoder": "skvnce.autoencoder.estimator",
    "datasets": "skvnce.datasets",
    "evaluation": "skvnce.evaluation",
    "find_relations": "skvnce.relations.search",
    "inspection": "skvnce.inspection",
    "longitudinal": "skvnce.longitudinal",
    "metrics": "skvnce.metrics",
    "missingness": "skvnce.missingness",
    "options": "skvnce.options",
    "pooling": "skvnce.pooling",
    "testing": "skvnce.testing",
}

__all__ = [
    "ColumnImputer",
    "ConstrainedImputer",
    "CopulaGraphLearner",
    "CopulaGraphLearnerCV",
    "GaussianImputer",
    "IncompleteFactorAnalysis",
    "LAIRImputer",
    "MixtureImputer",
    "MultipleImputationClassifier",
    "MultipleImputationRegressor",
    "NoisyOr",
    "TableImputer",
    "TruncatedGaussianGraphLearner",
    "TruncatedGaussianGraphLearnerCV",
    "VGIImputer",
    "VNCEEstimator",
    "VariationalAutoencoder",
    "__version__",
    "datasets",
    "evaluation",
    "find_relations",
    "inspection",
    "longitudinal",
    "metrics",
    "missingness",
    "options",
    "pooling",
    "testing",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'skvnce' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__ == f"skvnce.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
