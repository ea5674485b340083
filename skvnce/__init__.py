"""Statistical models of tables with missing values, with a scikit-learn interface.

The names below are public.  Each is imported at its first use, so that ``import
skvnce`` is fast and does not load torch.
"""

from importlib import import_module

from skvnce._version import __version__

_HOMES = {
    "ColumnImputer": "skvnce.estimators._columns",
    "ConstrainedImputer": "skvnce.estimators._constrained",
    "CopulaGraphLearner": "skvnce.estimators._copula_graph",
    "CopulaGraphLearnerCV": "skvnce.estimators._graph_cv",
    "GaussianImputer": "skvnce.estimators._gaussian",
    "IncompleteFactorAnalysis": "skvnce.estimators._factor_analysis",
    "LAIRImputer": "skvnce.estimators._lair",
    "MixtureImputer": "skvnce.estimators._mixture",
    "MultipleImputationClassifier": "skvnce.estimators._predictors",
    "MultipleImputationRegressor": "skvnce.estimators._predictors",
    "NoisyOr": "skvnce.estimators._noisy_or",
    "TableImputer": "skvnce.table_imputer.estimator",
    "TruncatedGaussianGraphLearner": "skvnce.estimators._graph",
    "TruncatedGaussianGraphLearnerCV": "skvnce.estimators._graph_cv",
    "VGIImputer": "skvnce.estimators._vgi",
    "VNCEEstimator": "skvnce.estimators._vnce",
    "VariationalAutoencoder": "skvnce.estimators._vae",
    "datasets": "skvnce.datasets",
    "evaluation": "skvnce.evaluation",
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
