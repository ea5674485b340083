"""scikit-learn's checks and our NaN contract, over every public estimator."""

import os
import subprocess
import sys
import warnings
from functools import partial

import pytest
import sklearn.utils.estimator_checks as checks
from cases import CLUSTERED, CONTRACT, CONTRACT_SLOWLY, ESTIMATORS, FIRST, PREDICTORS
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import skvnce
from skvnce._core.training import rounds
from skvnce.autoencoder import column_scores as _scores
from skvnce.autoencoder.factor_analysis import fit_covariance
from skvnce.testing import nan_checks
from skvnce.vgi import fit

pytestmark = pytest.mark.filterwarnings(
    # small or shapeless tables of the checks, on which a short fit does not settle
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvnce.exceptions.MisfitWarning",
    # scikit-learn's own checks mix arrays and frames
    "ignore:X (has|does not have valid) feature names:UserWarning",
)

# In the module of the checks, but not run by check_estimator.
EXTRA = [
    checks.check_transformer_get_feature_names_out,
    checks.check_transformer_get_feature_names_out_pandas,
    checks.check_set_output_transform,
    checks.check_set_output_transform_pandas,
    checks.check_set_output_transform_polars,
    checks.check_dataframe_column_names_consistency,
    checks.check_get_feature_names_out_error,
    checks.check_inplace_ensure_writeable,
]
GLOBAL = [  # the same by an option for all estimators
    checks.check_global_output_transform_pandas,
    checks.check_global_set_output_transform_polars,
]
EXTRA += [pytest.param(check, marks=pytest.mark.slow) for check in GLOBAL]


# Predictors with few draws, and those with their default parameters.
SHORT, LONG = PREDICTORS[:2], PREDICTORS[2:]

# some checks have few rows, far from where a model of one's own starts
UNSETTLED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# they set n_components=1, and round the cells of estimators that take categories
UNUSED = pytest.mark.filterwarnings("ignore:.* has no effect")


@pytest.fixture(autouse=True)
def short_training(request, monkeypatch):
    """Shorten what no parameter shortens, but where other processes train, too."""
    if "parallel" not in request.node.name:
        monkeypatch.setattr(rounds, "STEPS", 10)
        monkeypatch.setattr(fit, "_WARM_UP_STEPS", 20)
        few = partial(fit_covariance, n_rounds=30)
        monkeypatch.setattr(_scores, "fit_covariance", few)


@pytest.mark.quick(29)
@UNSETTLED
@UNUSED
@parametrize_with_checks([*FIRST.values(), *SHORT])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@UNSETTLED
@UNUSED
@parametrize_with_checks(
    [one for one in [*ESTIMATORS, *LONG] if one not in FIRST.values()]
)
def test_scikit_learn_of_other_configurations(estimator, check):
    check(estimator)


# names and containers of columns: one a class, the last of each, with indicators
LAST = {type(estimator).__name__: estimator for estimator in ESTIMATORS}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("check", EXTRA, ids=lambda check: check.__name__)
@UNSETTLED
@UNUSED
def test_scikit_learn_extra(check, name):
    check(name, clone(LAST[name]))


@pytest.mark.parametrize(
    "name", [name for name in FIRST if hasattr(FIRST[name], "_parameter_constraints")]
)
def test_parameters_are_validated_as_by_scikit_learn(name):
    checks.check_param_validation(name, clone(FIRST[name]))


@pytest.mark.parametrize("predictor", SHORT, ids=lambda one: type(one).__name__)
def test_predictors_pass_further_checks(predictor):
    name = type(predictor).__name__
    checks.check_param_validation(name, clone(predictor))
    checks.check_dataframe_column_names_consistency(name, clone(predictor))


CHECKS = {
    (place, name): check
    for place, estimator in enumerate([*CONTRACT, *CONTRACT_SLOWLY])
    for name, check in nan_checks(estimator)
    if place in CLUSTERED or name != "parallel_dask"
}
CASES = [
    pytest.param(
        place,
        name,
        id=f"{place}-{name}",
        # clusters start slowly
        marks=[pytest.mark.slow] * (place >= len(CONTRACT) or name == "parallel_dask"),
    )
    for place, name in CHECKS
]


@pytest.mark.quick(20)
@pytest.mark.parametrize(("place", "name"), CASES)
def test_nan_contract(place, name):
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        CHECKS[place, name]()


def test_every_public_estimator_is_listed():
    public = {name for name in skvnce.__all__ if hasattr(getattr(skvnce, name), "fit")}
    assert public == {type(one).__name__ for one in [*ESTIMATORS, *PREDICTORS]}


@pytest.mark.slow
def test_array_api_input_is_checked_too():
    """Scikit-learn skips this check without a variable set before scipy's import."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    selection = ["-m", "", "-k", "test_scikit_learn and array_api", __file__]
    done = subprocess.run(
        command + selection,
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout
    assert f"{len(ESTIMATORS) + len(PREDICTORS)} passed" in done.stdout
