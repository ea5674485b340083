"""The public names of all estimators, compared with doc/developer/conventions.rst."""

import inspect
import re
from pathlib import Path

import pytest

import skvnce
from skvnce.estimators._parts import Part

PAGE = Path(__file__).parents[1] / "doc" / "developer" / "conventions.rst"
CLASSES = {
    "G": skvnce.TruncatedGaussianGraphLearner,
    "GCV": skvnce.TruncatedGaussianGraphLearnerCV,
    "GI": skvnce.GaussianImputer,
    "FA": skvnce.IncompleteFactorAnalysis,
    "VAE": skvnce.VariationalAutoencoder,
    "LAIR": skvnce.LAIRImputer,
    "VGI": skvnce.VGIImputer,
    "VN": skvnce.VNCEEstimator,
    "NO": skvnce.NoisyOr,
}
OF_SKLEARN = {"get_feature_names_out", "set_callbacks"}  # its interface, in all
MOST = 14  # parameters of a class


def table(name):
    """Read the rows of a list-table of the page, without its header."""
    text = PAGE.read_text().split(f":name: table-{name}\n")[1].split("\n\n")[0]
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
        if ours and not name.startswith("_") and name not in OF_SKLEARN:
            signature = str(inspect.signature(inner)).replace("(self", "(")
            yield name + signature.replace("(, ", "(")


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
PARTS = [one for one in PUBLIC if inspect.isclass(one) and issubclass(one, Part)]


def test_all_estimators_are_on_the_page():
    estimators = {one for one in PUBLIC if inspect.isclass(one)} - set(PARTS)
    assert set(CLASSES.values()) == estimators


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_parts_have_the_fields_of_the_page(part):
    fields = {name: cell for name, cell, _ in table("parts")}[part.__name__]
    assert parameters(part) == fields.split(", ")
    assert parameters(part) == list(part._parameter_constraints)
    assert not hasattr(part, "fit")


def test_parts_are_parameters_of_estimators_of_the_page():
    """Read "``solver`` of VAE, VN and NO"; a part may be used by another part."""
    assert {name for name, *_ in table("parts")} == {one.__name__ for one in PARTS}
    for _, _, cell in table("parts"):
        slot, _, who = cell.partition(" of ")
        users = set(who.replace(" and ", ", ").split(", "))
        assert users <= {*CLASSES, *(row[0] for row in table("parts"))}
        for user in users & set(CLASSES):
            assert slot in wanted("parameter")[user]
