"""Who may import whom, and what `import skvnce` costs."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
import structure

import skvnce
from skvnce import options

ROOT = Path(skvnce.__file__).parent
PROTOCOLS = {"models.base", "variational.base"}
EVERYWHERE = {"_progress", "_version", "_warnings"}  # of the standard library only
LAYERS = {
    "distributions": set(),
    "models": {"distributions"},
    "variational": {"distributions", *PROTOCOLS},
    "objectives": PROTOCOLS,
    "samplers": {"_incomplete", *PROTOCOLS},
    "training": set(),
    "algorithms": {
        "distributions",
        "models",
        "variational",
        "objectives",
        "samplers",
        "training",
        "_compiled",
        "_grids",
        "_incomplete",
        "_units",
    },
    "tables": {"exceptions", "_grids"},
    "sources": {"tables", "_arguments", "_keyed", "_threads"},
    "fitted": {
        "models",
        "variational",
        "samplers",
        "algorithms",
        "distributions",
        "tables",
        "exceptions",
        "_grids",
        "_incomplete",
        "_keyed",
        "_units",
    },
    "inspection": {"tables"},
}
# The room of a method: its estimator, its fit and its model.
ROOMS = {
    "table_imputer": {
        "estimators",
        "fits",
        "fitted",
        "sources",
        "tables",
        "_compiled",
        "_keyed",
        "_random",
        "_weights",
    },
}
# Its files of mathematics, which know no estimator, no table and no data frame.
MATHEMATICS = {
    "table_imputer": {
        "columns",
        "copies",
        "draws",
        "expansion",
        "kernels",
        "normal",
        "products",
    },
}
NEVER = {
    "distributions": {"sklearn", "numpy"},
    "models": {"sklearn", "numpy"},
    "variational": {"sklearn", "numpy"},
    "objectives": {"sklearn", "scipy", "numpy"},
    "samplers": {"sklearn", "scipy", "numpy"},
    "training": {"sklearn"},
    "algorithms": {"sklearn", "scipy"},
    "tables": {"torch", "sklearn"},
    "sources": {"sklearn"},
    "fitted": set(),  # rows of frames are selected by scikit-learn
    "inspection": {"torch", "sklearn"},
}
FRAMES = {"sklearn", "narwhals", "pandas", "polars", "pyarrow"}


def imported(source):
    """List the modules that a source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import skvnce` reaches all of it
                yield "skvnce.(all)" if alias.name == "skvnce" else alias.name
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "skvnce.(relative)"  # one spelling, so that the rules see them all
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(layer, source):
    """List the imports that a layer may not have."""
    allowed = {layer, *LAYERS[layer], *EVERYWHERE}
    for name in imported(source):
        top, _, inside = name.partition(".")
        if top in NEVER[layer] or top == "importlib":
            yield name
        if top == "skvnce" and inside:
            known = any(inside == a or inside.startswith(f"{a}.") for a in allowed)
            # `from skvnce.models import base` names the package first
            if not known and not any(a.startswith(f"{inside}.") for a in allowed):
                yield name


FILES = [
    (layer, path) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))
]


@pytest.mark.parametrize(("layer", "path"), FILES, ids=lambda value: str(value)[-40:])
def test_imports_run_downwards(layer, path):
    assert list(violations(layer, path.read_text())) == []


def outside(source, allowed):
    """List the modules of ours that a source imports and that are not allowed."""
    for name in imported(source):
        top, _, inside = name.partition(".")
        if top == "skvnce" and inside not in allowed:
            if not any(inside.startswith(f"{one}.") for one in allowed):
                yield name


def room_violations(room, name, source):
    """List the imports that a file in the room of a method may not have."""
    if name not in MATHEMATICS[room]:
        packages = {room, *ROOMS[room], *EVERYWHERE}
        return [*outside(source, packages)]
    mine = {f"{room}.{one}" for one in MATHEMATICS[room]}
    tops = {one.partition(".")[0] for one in imported(source)}
    return [*outside(source, mine | {*SHARED, *EVERYWHERE}), *(tops & FRAMES)]


ROOM_FILES = [(room, path) for room in ROOMS for path in ROOT.glob(f"{room}/*.py")]


@pytest.mark.parametrize(("room", "path"), ROOM_FILES, ids=lambda v: str(v)[-40:])
def test_imports_of_rooms_run_downwards(room, path):
    assert room_violations(room, path.stem, path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("normal", "import pandas"),
        ("columns", "from sklearn.base import clone"),
        ("kernels", "from skvnce.tables.schema import Schema"),
        ("draws", "from skvnce.table_imputer.model import TableModel"),
        ("model", "from skvnce.evaluation import imputation_report"),
        ("fit", "from .model import TableModel"),
    ],
)
def test_a_violation_in_a_room_is_found(name, source):
    assert room_violations("table_imputer", name, source)


@pytest.mark.parametrize("layer", ["fits", "prediction"])
def test_what_is_below_rooms_imports_none(layer):
    for path in (ROOT / layer).rglob("*.py"):
        inside = {name.partition(".")[2] for name in imported(path.read_text())}
        assert {one.partition(".")[0] for one in inside} & set(ROOMS) == set()


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("models", "import numpy as np"),
        ("objectives", "from skvnce.models.truncated_gaussian import log_marginal"),
        ("samplers", "from skvnce.training import lbfgs"),
        ("training", "from skvnce.models.base import observed_log_prob"),
        ("algorithms", "def f():\n    from sklearn.utils import check_random_state"),
        ("inspection", "import torch"),
        ("samplers", "from ..training import lbfgs"),
        ("training", "import skvnce"),
        ("algorithms", "from importlib import import_module"),
        ("distributions", "from skvnce._random import seeded"),
    ],
)
def test_a_violation_is_found(layer, source):
    assert list(violations(layer, source))


def parameters_named(source, words):
    """List the words that occur in errors, warnings and other sentences of a source.

    A sentence is a string that begins with a capital letter or ends with a full stop,
    such as the message of an error that is a constant.  Docstrings are none.
    """
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    caught = set()
    for node in ast.walk(tree):
        is_warning = isinstance(node, ast.Call) and "warn" in ast.unparse(node.func)
        if isinstance(node, ast.Raise) or is_warning:
            caught |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_sentence = re.search(r"^[A-Z].* |\.$", node.value)
            if id(node) in caught or (is_sentence and id(node) not in alone):
                yield from words & set(re.findall(r"\w+", node.value))


def words_of_estimators():
    """List the parameters of all estimators that are no words of common English."""
    public = [getattr(skvnce, name) for name in skvnce.__all__]
    found = {
        name
        for cls in public
        if isinstance(cls, type)
        for name in inspect.signature(cls).parameters
    }
    found = {name for name in found if "_" in name} | {"shrinkage", "ridge", "alpha"}
    return found - {"n_components"}  # also an attribute of modules


def classes():
    """List the classes that are defined in the package."""
    for module in pkgutil.walk_packages(skvnce.__path__, "skvnce."):
        for cls in vars(importlib.import_module(module.name)).values():
            if isinstance(cls, type) and cls.__module__ == module.name:
                yield cls


def test_classes_have_few_ancestors_of_ours():
    found = {cls.__name__: len(structure.ancestors(cls)) for cls in classes()}
    assert len(found) > 20
    assert max(found.values()) <= structure.N_ANCESTORS


MODULES = [ROOT / name for name in ("estimators", "fits", "prediction", *ROOMS)]


def test_functions_write_no_attribute_of_an_object():
    """A fit is a function that returns values, which the class itself sets."""
    paths = [path for folder in MODULES for path in folder.glob("*.py")]
    assert [path.name for path in paths if structure.writes(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "def fit(estimator):\n    estimator.mean_ = 0",
        "def fit(x):\n    def inner():\n        x.a, x.b[0].c = 1, 2",
        "def fit(one):\n    del one.mean_",
        "def fit(one):\n    vars(one).update(mean_=0)",
        "def fit(one):\n    one.__dict__.pop('mean_')",
        "def fit(one):\n    setattr(one, 'mean_', 0)",
    ],
)
def test_state_outside_of_classes_is_found(source):
    assert structure.writes(source) > 0
    assert structure.writes(f"class Imputer:\n{indent(source, '    ')}") == 0
    assert (
        structure.writes("def fit(table):\n    mean = table.mean\n    return mean") == 0
    )


TESTING = {"skvnce.testing._contract", "skvnce.testing._requirements"}
SHARED = {
    "_arguments": set(),
    "_compiled": set(),
    "_grids": set(),
    "_incomplete": set(),
    "_threads": set(),
    "_keyed": {"variational"},
    "_units": {"_incomplete", "distributions"},
}
BELOW = [
    path for layer, path in FILES if layer not in {"inspection", "sources", "tables"}
]
BELOW += [path for room, path in ROOM_FILES if path.stem in MATHEMATICS[room]]
BELOW += [ROOT / f"{name}.py" for name in sorted({*SHARED, *EVERYWHERE})]


@pytest.mark.quick(19)
@pytest.mark.parametrize("path", BELOW, ids=lambda value: str(value)[-40:])
def test_errors_of_lower_layers_name_no_parameter(path):
    assert list(parameters_named(path.read_text(), words_of_estimators())) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    raise ValueError(f'{n} rounds: raise max_iter={n}.')",
        "warn_user('Columns repeat others. Raise shrinkage.', RuntimeWarning)",
        "_MESSAGE = 'Raise max_iter.'",
    ],
)
def test_a_parameter_in_an_error_is_found(source):
    assert list(parameters_named(source, words_of_estimators()))


def test_checks_of_estimators_import_none_of_them():
    for path in (ROOT / "testing").glob("*.py"):
        ours = {m for m in re.findall(r"from (skvnce[\w.]*) import", path.read_text())}
        assert ours <= {"skvnce._warnings", "skvnce.testing", *TESTING}


def test_every_file_is_short():
    """Lines of code: documentation does not count."""
    lengths = {
        path.relative_to(ROOT).as_posix(): structure.code_lines(path.read_text())
        for path in ROOT.rglob("*.py")
    }
    most = structure.N_CODE_LINES
    assert {path: n for path, n in lengths.items() if n > most} == {}


def test_lines_of_code_are_counted():
    source = '"""Two\nlines."""\n\n# reason\nx = (\n    1,\n)  # three\n"""A\nB"""\n'
    assert structure.code_lines(source) == 3
    assert structure.code_lines(f"def f():\n    {source.splitlines()[4]}1)\n") == 2


def test_every_folder_has_its_rule():
    places = [path.relative_to(ROOT) for path in ROOT.rglob("*.py")]
    folders = {place.parts[0] for place in places if len(place.parts) > 1}
    others = {"estimators", "datasets", "metrics", "pooling", "testing", "evaluation"}
    others |= {"fits", "prediction"}
    assert folders <= {*LAYERS, *ROOMS, *others}
    assert len(FILES) == sum(place.parts[0] in LAYERS for place in places)


EXAMPLES = sorted(Path(__file__).parents[1].joinpath("examples").rglob("*.py"))


def private(source):
    """List the imports of an example that a user's own script could not have."""
    benchmarks = Path(__file__).parents[1].joinpath("benchmarks")
    own = {path.stem for path in benchmarks.glob("*.py")}
    for name in imported(source):
        if name in own or any(part.startswith("_") for part in name.split(".")):
            yield name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr):
            yield node.attr
    if "sys.path" in source:
        yield "sys.path"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_import_nothing_private(path):
    assert list(private(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from skvnce._incomplete import Incomplete",
        "from skvnce.samplers.base import _keep",
        "from _data import load",
        "import imputation_tables",
        "import skvnce\nskvnce.estimators._vnce.em",
        "import sys\nsys.path.insert(0, '..')",
    ],
)
def test_a_private_import_is_found(source):
    assert list(private(source))


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_door_is_light():
    """Nothing but skvnce is imported, in 0.6 ms of CPU time (Xeon, 2026)."""
    code = (
        "import sklearn, sys, time; before = set(sys.modules); "
        "t = time.process_time(); "
        "{}; t = time.process_time() - t; "
        "print(sorted({{m.split('.')[0] for m in set(sys.modules) - before}}), t)"
    )
    light = [run(code.format("import skvnce")).rsplit(" ", 1) for _ in "ab"]
    assert all(loaded == "['skvnce']" for loaded, _ in light)
    assert min(float(seconds) for _, seconds in light) < 0.1
    loaded, seconds = run(code.format("import skvnce; skvnce.VNCEEstimator")).rsplit(
        " ", 1
    )
    assert "'torch'" in loaded and float(seconds) > 0.1  # negative control


def test_numba_is_imported_in_one_place():
    found = {
        path.name
        for path in ROOT.rglob("*.py")
        if "numba" in {one.partition(".")[0] for one in imported(path.read_text())}
    }
    assert found == {"_compiled.py"}


def test_numba_is_imported_when_a_mixture_is_fitted():
    code = (
        "import sys, skvnce; X = [[1.0, 2.0], [3.0, float('nan')], [2.0, 5.0]]\n"
        "for name in 'GaussianImputer', 'MixtureImputer':\n"
        "    one = getattr(skvnce, name)(on_misfit='ignore', random_state=0)\n"
        "    one.fit(X).transform(X)\n"
        "    print('numba' in sys.modules)"
    )
    assert run(code) == "False\nTrue"


def test_public_names():
    assert sorted(skvnce.__all__) == skvnce.__all__ == dir(skvnce)
    assert all(getattr(skvnce, name) is not None for name in skvnce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Imputer'"):
        _ = skvnce.Imputer


def test_options_are_public_names_of_their_module_only():
    assert sorted(options.__all__) == options.__all__ == dir(options)
    assert len(options.__all__) == 10
    for name in options.__all__:
        assert getattr(options, name).__name__ == name
        assert not hasattr(getattr(options, name), "fit")
        assert not hasattr(skvnce, name)
    with pytest.raises(AttributeError, match="skvnce.options.* no attribute 'SGD'"):
        _ = options.SGD


def test_every_public_name_is_in_the_docs():
    pages = Path(ROOT.parent, "doc", "api.rst").read_text().split()
    for name in set(skvnce.__all__) - {"__version__"}:
        value = getattr(skvnce, name)
        if isinstance(value, type):
            assert (ROOT.parent / "doc" / "class_pages" / f"{name}.rst").exists()
        members = getattr(value, "__all__", None) or (
            [name]
            if isinstance(value, type)
            else [
                key
                for key, item in vars(value).items()
                if not key.startswith("_")
                and callable(item)
                and getattr(item, "__module__", "") == value.__name__
            ]
        )
        for member in members:
            entry = member if isinstance(value, type) else f"{name}.{member}"
            assert entry in pages


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_what_all_layers_import_needs_the_standard_library_only(name):
    found = imported((ROOT / f"{name}.py").read_text())
    assert {module.partition(".")[0] for module in found} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_some_layers_import_is_below_them(name):
    """The modules at the top of the package that layers may import."""
    assert set(SHARED) == {
        one for rule in LAYERS.values() for one in rule if one[0] == "_"
    }
    for module in imported((ROOT / f"{name}.py").read_text()):
        top, _, inside = module.partition(".")
        assert top not in {"sklearn", "importlib"}
        if top == "skvnce":
            assert inside.partition(".")[0] in SHARED[name]


@pytest.mark.site
def test_the_picture_shows_the_imports(monkeypatch):
    folder = ROOT.parent / "doc" / "developer"
    monkeypatch.syspath_prepend(folder)
    import layers

    assert (folder / "layers.svg").read_text() == layers.drawing(), (
        "draw it again: python doc/developer/layers.py"
    )
