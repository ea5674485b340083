from skvnce import datasets as datasets
from skvnce import evaluation as evaluation
from skvnce import inspection as inspection
from skvnce import longitudinal as longitudinal
from skvnce import metrics as metrics
from skvnce import missingness as missingness
from skvnce import options as options
from skvnce import pooling as pooling
from skvnce import testing as testing
from skvnce._version import __version__ as __version__
from skvnce.autoencoder.estimator import (
    VariationalAutoencoder as VariationalAutoencoder,
)
from skvnce.autoencoder.factor_analysis_estimator import (
    IncompleteFactorAnalysis as IncompleteFactorAnalysis,
)
from skvnce.autoencoder.lair import LAIRImputer as LAIRImputer
from skvnce.columns.constrained import ConstrainedImputer as ConstrainedImputer
from skvnce.columns.estimator import ColumnImputer as ColumnImputer
from skvnce.contrast.estimator import VNCEEstimator as VNCEEstimator
from skvnce.gaussian.estimator import GaussianImputer as GaussianImputer
from skvnce.graphs.copula_estimator import CopulaGraphLearner as CopulaGraphLearner
from skvnce.graphs.cross_validation import CopulaGraphLearnerCV as CopulaGraphLearnerCV
from skvnce.graphs.cross_validation import (
    TruncatedGaussianGraphLearnerCV as TruncatedGaussianGraphLearnerCV,
)
from skvnce.graphs.estimator import (
    TruncatedGaussianGraphLearner as TruncatedGaussianGraphLearner,
)
from skvnce.mixture.estimator import MixtureImputer as MixtureImputer
from skvnce.noisy_or.estimator import NoisyOr as NoisyOr
from skvnce.predictors.estimator import (
    MultipleImputationClassifier as MultipleImputationClassifier,
)
from skvnce.predictors.estimator import (
    MultipleImputationRegressor as MultipleImputationRegressor,
)
from skvnce.relations.search import find_relations as find_relations
from skvnce.table_imputer.estimator import TableImputer as TableImputer
from skvnce.vgi.estimator import VGIImputer as VGIImputer
