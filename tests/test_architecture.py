"""Who may import whom, and what `import skvnce` costs."""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from inspect import isclass, ismodule
from pathlib import Path

import pytest
import structure

import skvnce
from skvnce import options

ROOT = Path(skvnce.__file__).parent
EVERYWHERE = {"_core.progress", "_core.warnings", "_types", "_version", "exceptions"}
GROUND = {"_core", "_tables", "relations", "_imputer"}
# The rooms from the ground floor upwards, and the rooms below that each one may import.
ROOMS = {
    "_core": set(),
    "_tables": {"_core"},
    "relations": {"_core", "_tables"},
    "_imputer": {"_core", "_tables", "relations"},
    "gaussian": {*GROUND, "metrics"},
    "mixture": {*GROUND, "gaussian"},
    "contrast": {*GROUND, "gaussian"},
    "graphs": {*GROUND, "gaussian", "contrast"},
    "autoencoder": {*GROUND, "gaussian"},
    "vgi": {*GROUND, "gaussian", "mixture", "autoencoder"},
    "columns": {*GROUND, "gaussian"},
    "noisy_or": GROUND,
    "predictors": {*GROUND, "gaussian"},
    "table_imputer": GROUND,
    "missingness": {"_tables"},
    "metrics": {"_core", "_tables", "missingness"},
    "inspection": {"_core", "_tables"},
    "datasets": set(),
}
# The files of a room that know tables, estimators or what a fit returns.  All other
# files are mathematics: arrays and tensors, of `_core` and of the rooms below alone.
INTERFACE = {
    "gaussian": {
        "estimator",
        "fit",
        "mixed_fit",
        "groups_fit",
        "model",
        "groups_model",
        "online",
    },
    "mixture": {"estimator", "fit", "model"},
    "contrast": {"estimator"},
    "graphs": {"estimator", "copula_estimator", "learner", "cross_validation", "model"},
    "autoencoder": {
        "estimator",
        "factor_analysis_estimator",
        "lair",
        "options",
        "column_scores",
        "model",
    },
    "vgi": {"estimator", "options", "fit", "model"},
    "columns": {"estimator", "constrained", "wrapper", "fit", "model"},
    "noisy_or": {"estimator"},
    "predictors": {"estimator", "out_of_fold"},
    "table_imputer": {"estimator", "fit", "model"},
}
FRAMES = {"sklearn", "narwhals", "pandas", "polars", "pyarrow"}
NEVER = {
    "_core": FRAMES | {"dask"},
    "_tables": {"torch", "sklearn"},
    "inspection": {"torch", "sklearn"},
}
EXCEPTIONS = {
    "_core/random.py": {"sklearn"},  # `check_random_state`
    "_tables/model_columns.py": {"sklearn"},  # weights are checked as scikit-learn does
    "datasets/_tables.py": {"importlib"},  # resources
    "datasets/_noisy_or.py": {"importlib"},
}


def imported(source):
    """List the modules that a source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import skvnce` reaches all of it
                yield "skvnce.(all)" if alias.name == "skvnce" else alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_mathematics(module):
    """Return whether a module, such as graphs.em, knows no table and no estimator."""
    room, _, file = module.partition(".")
    return room in INTERFACE and file.split(".")[0] not in INTERFACE[room] | {""}


def violations(place, source):
    """List the imports that a file, such as graphs/em.py, may not have."""
    room, _, file = place.removesuffix(".py").partition("/")
    never = {*NEVER.get(room, ()), "importlib"}
    if is_mathematics(f"{room}.{file}"):
        never |= FRAMES
    for name in imported(source):
        top, _, inside = name.partition(".")
        if top in never - EXCEPTIONS.get(place, set()):
            yield name
        if top == "skvnce" and inside and not may_import(room, file, inside):
            yield name


def may_import(room, file, inside):
    """Return whether a file of a room may import a module or a name of ours."""
    if any(f"{inside}.".startswith(f"{one}.") for one in EVERYWHERE):
        return True
    other = inside.partition(".")[0]
    if other != room and other not in ROOMS[room]:
        return False
    if not is_mathematics(f"{room}.{file}"):
        return True
    # `from skvnce.graphs import em` names the package first
    return other == "_core" or inside in INTERFACE or is_mathematics(inside)


FILES = [
    path.relative_to(ROOT).as_posix()
    for room in ROOMS
    for path in sorted([*ROOT.glob(f"{room}.py"), *ROOT.glob(f"{room}/**/*.py")])
]


@pytest.mark.parametrize("place", FILES)
def test_imports_run_downwards(place):
    assert list(violations(place, (ROOT / place).read_text())) == []


def test_rooms_have_an_order():
    below = set()
    for room, others in ROOMS.items():
        assert others <= {*below, "metrics"}
        below.add(room)
    assert set(ROOMS) >= set(INTERFACE)
    for room, files in INTERFACE.items():
        assert all((ROOT / room / f"{file}.py").exists() for file in files)


def test_every_folder_has_its_rule():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == {*ROOMS, "pooling", "testing", "evaluation"} - {"missingness"}


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


def test_functions_write_no_attribute_of_an_object():
    """A fit is a function that returns values, which the class itself sets."""
    interface = [
        ROOT / place
        for place in FILES
        if place.partition("/")[0] in {"_imputer", *INTERFACE} and place not in BELOW
    ]
    assert [p.name for p in interface if structure.writes(p.read_text())] == []


TESTING = {"skvnce.testing._contract", "skvnce.testing._requirements"}
BELOW = [
    place
    for place in FILES
    if place.startswith("_core/")
    or is_mathematics(place.removesuffix(".py").replace("/", "."))
]


@pytest.mark.quick(19)
@pytest.mark.parametrize("place", BELOW)
def test_errors_of_mathematics_name_no_parameter_of_an_estimator(place):
    source = (ROOT / place).read_text()
    assert list(parameters_named(source, words_of_estimators())) == []


def test_checks_of_estimators_import_none_of_them():
    for path in (ROOT / "testing").glob("*.py"):
        ours = {m for m in re.findall(r"from (skvnce[\w.]*) import", path.read_text())}
        assert ours <= {"skvnce._core.warnings", "skvnce.testing", *TESTING}


def test_every_file_is_short():
    """Lines of code: documentation does not count."""
    most = structure.N_CODE_LINES
    files = ((path, path.read_text()) for path in ROOT.rglob("*.py"))
    long = ((path, text) for path, text in files if text.count("\n") > most)
    assert [path for path, text in long if structure.code_lines(text) > most] == []


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


def unresolved(source):
    """List the names that a source takes from modules of skvnce, and that they lack."""
    nodes, modules = list(ast.walk(ast.parse(source))), {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("skvnce."):
            for alias in node.names:
                value = taken(importlib.import_module(node.module), alias.name)
                modules[alias.asname or alias.name] = value if ismodule(value) else None
                if value is None:
                    yield f"{node.module}.{alias.name}"
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and taken(module, node.attr) is None:
                yield f"{module.__name__}.{node.attr}"


def taken(home, name):
    """Return what a module has of a name, or its submodule of that name, or None."""
    full = f"{home.__name__}.{name}"
    if hasattr(home, name) or not hasattr(home, "__path__"):
        return getattr(home, name, None)
    return importlib.import_module(full) if importlib.util.find_spec(full) else None


BENCHMARKS = sorted(Path(__file__).parents[1].joinpath("benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES + BENCHMARKS, ids=lambda path: path.stem)
def test_what_examples_and_benchmarks_take_from_skvnce_is_there(path):
    assert list(unresolved(path.read_text())) == []


def test_names_that_are_gone_are_listed():
    source = (
        "from skvnce import TableImputer, gone\nfrom skvnce.vgi import training\n"
        "training.train, training.missing"
    )
    assert [*unresolved(source)] == ["skvnce.gone", "skvnce.vgi.training.missing"]


# What one process prints: the packages that an import loads, and its CPU time, of the
# door and then of an estimator; then what lacks where numba cannot be imported.
CODE = """
import sklearn, sys, time

def loaded(load):
    before, seconds = set(sys.modules), time.process_time()
    load()
    seconds = time.process_time() - seconds
    print(sorted({name.split(".")[0] for name in set(sys.modules) - before}), seconds)

loaded(lambda: __import__("skvnce"))
import skvnce
loaded(lambda: skvnce.VNCEEstimator)
sys.modules["numba"] = None
X = [[1.0, 2.0], [3.0, float("nan")], [2.0, 5.0]]
skvnce.GaussianImputer(on_misfit="ignore").fit(X).transform(X)
try:
    skvnce.MixtureImputer(on_misfit="ignore").fit(X).transform(X)
except ImportError as error:
    print(error.name)
"""


@pytest.fixture(scope="module")
def printed():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_door_is_light(printed):
    """Nothing but skvnce is imported, in 0.6 ms of CPU time (Xeon, 2026)."""
    door, estimator = (line.rsplit(" ", 1) for line in printed[:2])
    assert door[0] == "['skvnce']" and float(door[1]) < 0.1
    assert "'torch'" in estimator[0] and float(estimator[1]) > 0.1  # negative control


def test_numba_is_imported_when_a_mixture_is_fitted(printed):
    """Where its import fails, other estimators are fitted, and no mixture is."""
    assert printed[2:] == ["numba"]


def test_public_names():
    assert sorted(skvnce.__all__) == skvnce.__all__ == dir(skvnce)
    assert all(getattr(skvnce, name) is not None for name in skvnce.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Imputer'"):
        _ = skvnce.Imputer


def test_options_are_public_names_of_their_module_only():
    assert sorted(options.__all__) == options.__all__ == dir(options)
    assert len(options.__all__) == 10
    # the pages of source link all classes of a file to pages of one namespace
    classes = {
        value for name in skvnce.__all__ if isclass(value := getattr(skvnce, name))
    }
    files = {getattr(options, name).__module__ for name in options.__all__}
    assert not files & {cls.__module__ for cls in classes}
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


@pytest.mark.parametrize("name", ["_core/progress.py", "_core/warnings.py"])
def test_what_all_rooms_import_needs_the_standard_library_only(name):
    found = imported((ROOT / name).read_text())
    assert {module.partition(".")[0] for module in found} <= sys.stdlib_module_names


@pytest.mark.site
def test_the_picture_shows_the_imports(monkeypatch):
    folder = ROOT.parent / "doc" / "developer"
    monkeypatch.syspath_prepend(folder)
    import layers

    assert (folder / "layers.svg").read_text() == layers.drawing(), (
        "draw it again: python doc/developer/layers.py"
    )
