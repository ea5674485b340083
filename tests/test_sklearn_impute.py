"""scikit-learn's tests of its imputers, with ours in their place.

They are imported from scikit-learn, and not copied: a new version of it may add some.
"""

from itertools import product

import pytest
from sklearn.base import clone
from sklearn.impute.tests import test_common as theirs
from sklearn.linear_model import LinearRegression

import skvnce

# their tables have two to four rows
pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore"),
]

SHORT = {"max_iter": 1, "n_importance_samples": 4}
DRAWS = {"n_estimators": 1, "n_steps": 2, "n_draws": 4, "random_state": 0}
NORMAL = skvnce.GaussianImputer(n_parameter_draws=0, random_state=0)
IMPUTERS = [
    NORMAL,
    skvnce.LAIRImputer(skvnce.VariationalAutoencoder(1, **SHORT), **DRAWS),
    skvnce.VGIImputer(
        skvnce.options.IncompleteDensity("factor-analysis", **SHORT), **DRAWS
    ),
    skvnce.MixtureImputer(2, n_estimators=2, max_iter=2, random_state=0),
    skvnce.TableImputer(n_estimators=2, n_parameter_draws=1, random_state=0),
    skvnce.ColumnImputer(NORMAL, regressor=LinearRegression(), random_state=0),
    skvnce.ConstrainedImputer(NORMAL, random_state=0),
]
QUICK = [IMPUTERS[0], *IMPUTERS[-2:]]
LEARNERS = [  # their `transform` fills cells, but they have no `add_indicator`
    skvnce.TruncatedGaussianGraphLearner(max_iter=2, n_steps=2, random_state=0),
    skvnce.CopulaGraphLearner(max_iter=2, random_state=0),
    skvnce.VNCEEstimator(max_iter=2, random_state=0),
]
KEEP = "test_keep_empty_features"
WHOLE = "test_imputers_pandas_na_integer_array_support"


class WithoutIndicator:
    """Has no parameter `add_indicator`."""

    def set_params(self, **params):
        assert not params.pop("add_indicator", False)
        return super().set_params(**params)


class Whole:
    """Fills whole numbers: of data frames, ours are whole, and of arrays they aren't.

    scikit-learn fills both by the same fractions, which integers do not hold.
    """

    def fit_transform(self, X, y=None):
        return super().fit_transform(X, y).round()


def mixed(estimator, *mixins):
    """Copy an estimator, as one of a class with mixins."""
    cls = type(estimator)
    new = type(cls.__name__, (*mixins, cls), {}) if mixins else cls
    return new(**clone(estimator).get_params(deep=False))


CANNOT = {  # tests of scikit-learn, and why ours cannot pass them
    "test_imputers_add_indicator_sparse": "our imputers read no sparse tables"
}


def cases():
    """List each test of scikit-learn with its parameters and each of our imputers."""
    for name, test in vars(theirs).items():
        marks = [one.args for one in getattr(test, "pytestmark", ()) if one.args[1:]]
        choices = {word: values for word, values in marks if word != "imputer"}
        if not name.startswith("test") or name in CANNOT:
            continue
        for values in product(*choices.values()):
            options = dict(zip(choices, values, strict=True))
            has_indicator = options.get("add_indicator", name != KEEP)
            for estimator in IMPUTERS + LEARNERS * (not has_indicator):
                mixins = [Whole] if name == WHOLE else []
                if estimator in LEARNERS:
                    mixins.append(WithoutIndicator)
                label = "-".join([name, type(estimator).__name__, *map(str, values)])
                marks = [] if estimator in QUICK else pytest.mark.slow
                given = test, estimator, mixins, options
                yield pytest.param(*given, id=label, marks=marks)


@pytest.mark.parametrize(("test", "estimator", "mixins", "options"), [*cases()])
def test_ours_pass_the_tests_of_scikit_learn(test, estimator, mixins, options):
    test(imputer=mixed(estimator, *mixins), **options)


def test_there_are_tests_of_scikit_learn():
    assert len({one.values[0] for one in cases()}) >= 6
    assert all(hasattr(theirs, name) for name in CANNOT)
