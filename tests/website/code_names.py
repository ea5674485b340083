"""Names of skvnce in the inline code of pages, looked up in the package.

A code like ``GaussianImputer(max_value=100).sample`` is parsed as Python; each name in
it that looks like one of skvnce is looked up: classes, methods, attributes, keywords.
"""

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
import warnings
from functools import cache

import sklearn
from site_pages import ROOT
from sklearn.utils import all_estimators
from sklearn.utils.discovery import all_displays, all_functions

import skvnce

CLASS = re.compile(r"(?=\w*[a-z])[A-Z][a-z0-9]*[A-Z]\w*|[A-Z]{2,}[a-z]\w*")
FITTED = re.compile(r"[A-Za-z]\w*[A-Za-z0-9]_")
# Not x_obs and other mathematics, but n_draws.
SNAKE = re.compile(r"(?:n|[a-z][a-z0-9]+)(_[a-z0-9]+)+")
FILE = re.compile(r"[\w./*-]+/[\w.*-]+\.(?:py|rst|md|toml|jsonl)")

#: Names that pages use and that are not skvnce's or scikit-learn's.
OF_OTHERS = {
    "causal-learn": "CIT_Base register_ci_test",
    "pandas": "DataFrame to_datetime to_numeric read_csv",
    "distributed": "LocalCluster",
    "miceforest": """
        ImputationKernel complete_data impute_new_data mean_match_candidates
        num_datasets tune_parameters variable_parameters variable_schema
    """,
    "dask": "as_unknown",
    "marginaleffects": "avg_comparisons avg_predictions avg_slopes",
    "pgmpy": "ci_test",
    "HyperImpute": "class_threshold n_imputations select_model_by_column",
    "gcimpute": "copula_corr fit_change_point_test sample_imputation",
    "statsmodels": """
        cov_re get_margeff BayesGaussMI MICEData model_args_fn next_sample
        perturbation_method plot_bivariate plot_imputed_hist plot_missing_pattern
        set_imputer update_all
    """,
    "numpy": "default_rng tril_indices",
    "torch": "set_default_device set_default_dtype",
    "polars": "LazyFrame",
    "IEEE 754": "NaN",
    "missforest": "MissForest",
    "Qolmat": """
        ImputerEM ImputerInterpolation ImputerKNN ImputerLOCF ImputerMICE
        ImputerRegressor ImputerResiduals ImputerRpcaNoisy ImputerShuffle
        ImputerSimple ImputerSoftImpute GeometricHoleGenerator LittleTest
        MultiMarkovHoleGenerator PKLMTest UniformHoleGenerator dict_config_opti
        ratio_masked
    """,
    "a class of the user": "MyDensity",
    "scikit-learn, where it has callbacks": "ProgressBar",
    "unittest": "SkipTest",
    "a key of cv_results_": "split0_test_score",
}
ELSEWHERE = {name for names in OF_OTHERS.values() for name in names.split()}


def public_modules():
    """Return the modules of skvnce without a leading underscore."""
    found = pkgutil.walk_packages(skvnce.__path__, "skvnce.")
    names = [m.name for m in found if "._" not in m.name]
    return [skvnce, *(importlib.import_module(name) for name in names)]


@cache
def objects():
    """Return what is defined in skvnce, scikit-learn and Python, by name."""
    found = dict(vars(builtins))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for names in (all_estimators(), all_displays(), all_functions()):
            found |= dict(names)
    for module in ("sklearn.exceptions", "sklearn.utils", "sklearn.frozen"):
        members = vars(importlib.import_module(module)).items()
        found |= {name: value for name, value in members if name[0] != "_"}
    for module in public_modules():
        classes = {k: v for k, v in vars(module).items() if inspect.isclass(v)}
        found |= {name: value for name, value in classes.items() if name[0] != "_"}
    for module in public_modules():
        if module.__name__.count(".") < 2:
            found |= {name: getattr(module, name) for name in _shown(module)}
    return found


def _shown(module):
    """Return ``__all__``, or the names that the module itself defines."""
    own = [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]
    return getattr(module, "__all__", own)


@cache
def identifiers():
    """Return the names that the sources of skvnce and of its benchmarks define."""
    found = set()
    for folder in ("skvnce", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {path.stem, path.parent.name} | _defined(path)
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= {name for name in _defined(path) if name.startswith("test_")}
    for estimator in objects().values():
        if inspect.isclass(estimator) or inspect.isfunction(estimator):
            found |= set(_parameters(estimator) or ())
            found |= {name for name in dir(estimator) if name[0] != "_"}
    return found


def _defined(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Constant(value=str(name)) if name.isidentifier():
                found.add(name)  # columns of results, options
    return found


def _parameters(function):
    """Return the names of parameters, or None where any is taken."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters]


def _attributes(cls):
    """Return the attributes of a class and those that its docstring lists."""
    listed = {
        name
        for base in inspect.getmro(cls)
        for name in re.findall(r"^ *([\w, ]+) :", base.__doc__ or "", re.M)
    }
    names = {part.strip() for line in listed for part in line.split(",")}
    return set(dir(cls)) | names | identifiers_of(cls)


@cache
def identifiers_of(cls):
    """Return what the methods of a class and of its bases assign to ``self``."""
    found = set()
    for base in inspect.getmro(cls):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        found |= set(re.findall(r"self\.(\w+)", source))
    return found


@cache
def removed():
    """Return the commands of scripts that are in an earlier commit, which is named."""
    named = re.compile(r"`([^`]+)` of commit [0-9a-f]{8}")
    pages = (ROOT / "doc").rglob("*.md")
    return {code for page in pages for code in named.findall(page.read_text())}


@cache
def unknown(code):
    """Return the names in a piece of inline code that do not exist."""
    if code in removed():
        return []
    if ".py" in code or FILE.search(code):
        return [f"{path}: no such file" for path in _files(code)]
    tree = _parse(code)
    if tree is None:
        return []
    return [fault for node in ast.walk(tree) for fault in _faults(node)]


@cache
def removed_files():
    """Return the files of commands of pages that name the last commit with these."""
    made = re.compile(r"`(python benchmarks/[^`]*)` of commit \w+, which")
    pages = (ROOT / "doc" / "benchmarks").glob("*.md")
    commands = [one for page in pages for one in made.findall(page.read_text())]
    return {path for one in commands for path in FILE.findall(one)}


def _files(code):
    for path in FILE.findall(code):
        elsewhere = path.startswith(("http", "../")) or path in removed_files()
        if elsewhere or "<" in code:
            continue
        places = (ROOT, ROOT / "skvnce", ROOT / "doc", ROOT / "tests")
        if not any(list(place.glob(path.lstrip("/"))) for place in places):
            yield path


def _parse(code):
    """Parse code, or the arguments of a call, or return None."""
    code = re.sub(r"=(?=\s*(?:[,)]|$))", "=None", code)
    for text in (code, f"_({code})"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except SyntaxError:
            continue
    return None


def _faults(node):
    match node:
        case ast.Name(id=name):
            yield from _unknown_name(name)
        case ast.keyword(arg=str(name)):
            yield from _unknown_name(name)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value)
        if inspect.ismodule(owner):
            if _value(node) is None:
                yield f"{owner.__name__}.{node.attr}: no such name"
        elif inspect.isclass(owner) and node.attr not in _attributes(owner):
            yield f"{owner.__name__}.{node.attr}: no such attribute"
        elif owner is None:
            yield from _unknown_name(node.attr)
    if isinstance(node, ast.Call):
        called = _value(node.func)
        allowed = _parameters(called) if callable(called) else None
        for keyword in node.keywords:
            name = (keyword.arg or "").split("__")[0]
            if name and allowed is not None and name not in allowed:
                yield f"{called.__name__}({name}=): no such parameter"


def _unknown_name(name):
    if name in objects() or name in identifiers() or name in ELSEWHERE:
        return
    if CLASS.fullmatch(name):
        yield f"{name}: no such class"
    elif FITTED.fullmatch(name) or SNAKE.fullmatch(name):
        yield f"{name}: no such attribute, parameter or function"


def _value(node):
    """Return the module, class or function that an expression names, or None."""
    match node:
        case ast.Name(id="skvnce"):
            return skvnce
        case ast.Name(id="sklearn"):
            return sklearn
        case ast.Name(id=name) if name in objects() and not hasattr(builtins, name):
            return objects()[name]
        case ast.Call(func=func):
            made = _value(func)
            return made if inspect.isclass(made) else None
        case ast.Attribute(value=owner, attr=name):
            owner = _value(owner)
            if inspect.ismodule(owner):
                return _member(owner, name)
            return getattr(owner, name, None)
    return None


def _member(module, name):
    try:
        return getattr(module, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ImportError:
            return None
