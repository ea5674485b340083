"""The public names of all estimators, compared with doc/developer/conventions.rst."""

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import PREDICTORS as OF_TARGETS
from cases import SMALL
from sklearn.base import clone
from sklearn.utils._param_validation import StrOptions

import skvnce

DOC = Path(__file__).parents[1] / "doc"
PAGE = DOC / "developer" / "conventions.rst"
CLASSES = {
    "G": skvnce.TruncatedGaussianGraphLearner,
    "GCV": skvnce.TruncatedGaussianGraphLearnerCV,
    "CG": skvnce.CopulaGraphLearner,
    "CGCV": skvnce.CopulaGraphLearnerCV,
    "GI": skvnce.GaussianImputer,
    "TI": skvnce.TableImputer,
    "COL": skvnce.ColumnImputer,
    "CI": skvnce.ConstrainedImputer,
    "FA": skvnce.IncompleteFactorAnalysis,
    "VAE": skvnce.VariationalAutoencoder,
    "LAIR": skvnce.LAIRImputer,
    "VGI": skvnce.VGIImputer,
    "MI": skvnce.MixtureImputer,
    "VN": skvnce.VNCEEstimator,
    "NO": skvnce.NoisyOr,
    "MIC": skvnce.MultipleImputationClassifier,
    "MIR": skvnce.MultipleImputationRegressor,
}
PREDICTORS = {"MIC", "MIR"}  # which need a target, and have no transform
OF_SKLEARN = {"get_feature_names_out", "get_metadata_routing", "set_callbacks"}
MOST = 18  # parameters of a class; groups and relations have no classes of their own


def table(name, page=PAGE):
    """Read the rows of a list-table of a page, without its header."""
    text = page.read_text().split(f":name: table-{name}\n")[1].split("\n\n")[0]
    cells = re.split(r"\n {3}(?:\* -|  -) ", text)[1:]
    cells = [" ".join(cell.split()).replace("``", "") for cell in cells]
    assert len(cells) > 3 and len(cells) % 3 == 0, f"{name}: cells are missing"
    return [cells[i : i + 3] for i in range(3, len(cells), 3)]


def wanted(kind):
    """Give the words of a kind, by class."""
    found = {name: set() for name in CLASSES}
    for word, _, who in table(f"{kind}s"):
        for name in CLASSES if who == "all" else who.split():
            assert word not in found[name], f"{word} is listed twice for {name}"
            found[name].add(word)
    return found


def methods(cls):
    """Write the signatures of the public methods that are not scikit-learn's."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        inner = inspect.unwrap(method)
        ours = inner.__module__.startswith("skvnce.")
        ours = ours and hasattr(cls(), name)  # `score` only where there are scores
        if ours and not name.startswith("_") and name not in OF_SKLEARN:
            listed = inspect.signature(inner).parameters.values()
            bare = [one.replace(annotation=one.empty) for one in listed][1:]
            yield f"{name}{inspect.Signature(bare)}"


def parameters(cls):
    """List the parameters of the constructor."""
    return list(inspect.signature(cls).parameters)


def attributes(cls):
    """List the attributes that docstrings of the class and its bases describe."""
    for base in cls.__mro__:
        doc = inspect.getdoc(base) if base.__module__.startswith("skvnce.") else None
        if doc and "\nAttributes\n" in doc:
            section = doc.split("\nAttributes\n")[1].split("\nNotes\n")[0]
            for line in section.split("\nExamples\n")[0].splitlines():
                if not line.startswith(" "):
                    yield from re.findall(r"\w+_\b", line.split(" : ")[0])


KINDS = {"method": methods, "parameter": parameters, "attribute": attributes}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLASSES)
def test_public_names_are_those_of_the_page(name, kind):
    assert set(KINDS[kind](CLASSES[name])) == wanted(kind)[name]


@pytest.mark.parametrize("name", CLASSES)
def test_no_class_has_too_many_parameters(name):
    found = wanted("parameter")[name]
    assert len(found) <= MOST
    stated = PAGE.read_text().split("The number of parameters: ")[1].split(".\n")[0]
    assert f"{name} {len(found)}" in stated.split(", ")


PUBLIC = [getattr(skvnce, name) for name in skvnce.__all__]
NAMES = sorted(set(skvnce.options.__all__) - {"Chunks"})  # which is a table
OPTIONS = [getattr(skvnce.options, name) for name in NAMES]


def test_all_estimators_are_on_the_page():
    assert set(CLASSES.values()) == {one for one in PUBLIC if inspect.isclass(one)}


@pytest.mark.parametrize("option", OPTIONS, ids=NAMES)
def test_options_have_the_fields_of_the_page(option):
    fields = {name: cell for name, cell, _ in table("options")}[option.__name__]
    assert parameters(option) == fields.split(", ")
    assert parameters(option) == list(option._parameter_constraints)
    assert not hasattr(option, "fit")


def test_options_are_parameters_of_estimators_of_the_page():
    """Read "``solver`` of VAE, VN and NO"; an option may be one of another option."""
    assert sorted(name for name, *_ in table("options")) == NAMES
    holders = {**dict(zip(NAMES, OPTIONS, strict=True)), **CLASSES}
    for option, _, cell in table("options"):
        slot, _, who = cell.partition(" of ")
        accepted = {
            (name, key)
            for name, holder in holders.items()
            for key, allowed in holder._parameter_constraints.items()
            if getattr(skvnce.options, option) in allowed
        }
        expected = {(user, slot) for user in who.replace(" and ", ", ").split(", ")}
        assert accepted == expected


ASKED_FOR = ["random_state", "verbose", "n_jobs", "on_misfit"]
ASKED_FOR += ["to_torch", "category_probabilities"]
SAYS = {"to_torch": "torch module", "category_probabilities": "probabilities of levels"}


@pytest.mark.parametrize("word", ASKED_FOR)
@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_what_others_have_or_say_why_not(name, word):
    cls = CLASSES[name]
    predicts = name in PREDICTORS and word in SAYS  # they impute nothing
    if word not in parameters(cls) and not hasattr(cls, word) and not predicts:
        described = " ".join(inspect.getdoc(cls).split())
        assert SAYS.get(word, f"`{word}`") in described


IMPUTERS = [name for name in CLASSES if CLASSES[name].__name__.endswith("Imputer")]
OF_ALL = ["missing_values", "keep_empty_features", "add_indicator"]
OF_ALL += ["categorical_features", "handle_unknown"]


def test_imputers_have_the_parameters_of_the_guide():
    """All have those in front of the table, which says who lacks each other one."""
    page = DOC / "user_guide" / "which_imputer.rst"
    rows = {word: who for word, who, _ in table("common", page)}
    assert all(f"``{word}``" in page.read_text() for word in OF_ALL)
    assert len(OF_ALL) + len(rows) == 12
    for word in [*OF_ALL, *rows]:
        lacking = {
            CLASSES[name].__name__
            for name in IMPUTERS
            if word not in parameters(CLASSES[name])
        }
        assert lacking == set(re.findall(r"\w+Imputer", rows.get(word, ""))), word


VALUES = {"algorithm", "selection", "marginals", "on_misfit"}


@pytest.mark.parametrize(
    ("word", "name"), [(word, name) for word in sorted(VALUES) for name in CLASSES]
)
def test_values_of_parameters_are_those_of_the_page(word, name):
    """Read the section after "NAME:", where there are sections for classes."""
    cls = CLASSES[name]
    if word not in parameters(cls):
        assert word not in wanted("parameter")[name]
        return
    meaning = {row[0]: row[1] for row in table("parameters")}[word]
    for section in re.split(r"\. (?=[A-Z]+: )", meaning):
        if section.startswith(f"{name}: "):
            meaning = section
    found = re.findall(r'"([^"]+)"( \(default\))?', meaning)
    [options] = [
        one for one in cls._parameter_constraints[word] if isinstance(one, StrOptions)
    ]
    assert {value for value, _ in found} == options.options
    stated = [value for value, is_default in found if is_default]
    default = inspect.signature(cls).parameters[word].default
    assert stated in ([default], [])
    assert stated or word not in {"algorithm", "selection"}


STABLE = {"selection": "stability", "n_subsamples": 2}
SHORT = [
    *SMALL.values(),
    *(
        clone(one).set_params(**STABLE)
        for one in SMALL.values()
        if "alphas" in vars(one)
    ),
    *OF_TARGETS[:2],
]
FITS = {type(one): one for one in SHORT}  # the last of each class


NOT_ALWAYS = {  # log_scale_ only of "vnce...", categories_ of tables that have some
    "G": {"log_scale_"},
    "GCV": {"log_scale_"},
    **dict.fromkeys(
        ["CG", "CGCV", "TI", "COL", "CI", "VAE", "LAIR", "VGI", "MI"], {"categories_"}
    ),
    "GI": {
        *("categories_", "trace_", "r_hat_", "n_burn_in_", "latent_names_"),
        *("group_covariance_", "slope_covariance_", "group_columns_"),
        "intraclass_correlations_",
    },
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = rng.gamma(4.0, size=(60, 1)) + rng.gamma(2.0, size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return pd.DataFrame(X, columns=list("abc"))


@pytest.fixture(scope="module", params=CLASSES)
def fitted(request, frame):
    """Give the short name and a fitted estimator of each class."""
    name = request.param
    target = np.arange(60) % 3 if name in PREDICTORS else None
    return name, clone(FITS[CLASSES[name]]).fit(frame, target)


pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning",
        "ignore::skvnce.exceptions.MisfitWarning",
        "ignore:No graph of the path is stable",
        "ignore:selection='stability' chose the empty graph",  # right, for 60 rows
    ),
]


def plain(value):
    """Tell whether a fitted attribute is of a kind that the page allows."""
    if isinstance(value, dict):
        return all(plain(one) for one in value.values())
    if isinstance(value, list | tuple):
        return all(plain(one) for one in value)
    return value is None or isinstance(value, (np.ndarray, np.generic, int, float, str))


@pytest.mark.quick(6)
def test_fitted_attributes_are_those_of_the_page(fitted):
    name, estimator = fitted
    public = {word for word in vars(estimator) if not word.startswith("_")}
    found = public - set(parameters(CLASSES[name]))
    expected = wanted("attribute")[name]
    assert expected - NOT_ALWAYS.get(name, set()) <= found <= expected
    for word in found - {"estimators_", "imputer_", "indicator_", "model_", "models_"}:
        assert plain(getattr(estimator, word)), word


@pytest.mark.quick(6)
def test_returned_kinds_are_those_of_the_page(fitted, frame):
    name, estimator = fitted
    row = {short: rest for short, *rest in table("estimators")}[name]
    assert row[0] == CLASSES[name].__name__
    if name in PREDICTORS:
        assert row[1].startswith("no method") and not hasattr(estimator, "transform")
        assert estimator.predict(frame).shape == (60,)
        return
    Z = estimator.transform(frame)
    width = 3 if row[1].endswith("filled columns") else estimator.n_components_
    assert Z.shape == (60, width) and np.isfinite(Z).all()
    if row[1].endswith("filled columns"):
        known = frame.notna().to_numpy()
        np.testing.assert_array_equal(Z[known], frame.to_numpy()[known])
        assert [type(one) for one in estimator.sample(frame, 2)] == [np.ndarray] * 2
    if not hasattr(estimator, "score_samples"):
        assert not hasattr(estimator, "score")
        return
    scores = estimator.score_samples(frame)
    assert scores.shape == (60,)
    assert estimator.score(frame) == pytest.approx(scores.mean())
    if "score_samples(X, return_std=False)" in wanted("method")[name]:
        again, errors = estimator.score_samples(frame, return_std=True)
        np.testing.assert_allclose(again, scores)
        assert errors.shape == (60,) and (errors >= 0).all()


def test_modules_are_copies_without_gradients(fitted, frame):
    name, estimator = fitted
    if "to_torch()" not in wanted("method")[name]:
        assert not hasattr(estimator, "to_torch")
        return
    before, module = estimator.transform(frame), estimator.to_torch()
    assert list(module.parameters())
    for parameter in module.parameters():
        assert parameter.dtype.itemsize == 8 and not parameter.requires_grad
        parameter.zero_()
    np.testing.assert_array_equal(estimator.transform(frame), before)


@pytest.mark.parametrize("name", CLASSES)
def test_no_public_name_is_a_property(name):
    """Methods and attributes are compared; a property would be neither."""
    found = inspect.getmembers(CLASSES[name], lambda one: isinstance(one, property))
    assert [word for word, _ in found if not word.startswith("_")] == []
