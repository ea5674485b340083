"""Types: public signatures, and what mypy and pyright say about all how-to pages.

And the floors of versions, with which CI tests the contract of the imputers.
"""

import doctest
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import skvnce

ROOT = Path(__file__).parents[1]
MODULES = ["skvnce"] + [
    f"skvnce.{name}"
    for name in skvnce.__all__
    if inspect.ismodule(getattr(skvnce, name))
]
# pyright reads scikit-learn's code, which has no types, and expects a text there
OF_SKLEARN = '"remainder" of type "str" in function "make_column_transformer"'


def names(module):
    """List the public classes and functions of a module."""
    found = importlib.import_module(module)
    of_file = [n for n, one in vars(found).items() if is_of(module, one)]
    for name in getattr(found, "__all__", of_file):
        if name[0] != "_" and not inspect.ismodule(getattr(found, name)):
            yield name


def is_of(module, member):
    """Return whether a module defines a member."""
    return getattr(member, "__module__", None) == module


def functions():
    """List the public functions, and the public methods that the package defines."""
    for module in MODULES:
        for name in names(module):
            found = getattr(importlib.import_module(module), name)
            if not inspect.isclass(found):
                yield f"{module}.{name}", found
                continue
            for word, member in inspect.getmembers(found):
                method = inspect.unwrap(member) if callable(member) else None
                ours = str(getattr(method, "__module__", "")).startswith("skvnce.")
                if ours and inspect.isroutine(method):
                    if word[0] != "_" or word == "__init__":
                        yield f"{module}.{name}.{word}", method


@pytest.mark.parametrize(
    "function", [pytest.param(one, id=name) for name, one in functions()]
)
def test_public_signature_is_annotated(function):
    signature = inspect.signature(function)
    bare = [
        one.name
        for one in signature.parameters.values()
        if one.annotation is one.empty and one.name not in ("self", "cls")
    ]
    assert bare == []
    assert signature.return_annotation is not signature.empty


def all_constructors():
    """Write a program that passes each argument of each constructor by its name."""
    yield "from typing import Any\n\nvalue: Any = None"
    for module in MODULES:
        for name in names(module):
            yield f"from {module} import {name}"
            found = getattr(importlib.import_module(module), name)
            if inspect.isclass(found) and hasattr(found, "get_params"):
                passed = [f"{one}=value" for one in inspect.signature(found).parameters]
                yield f"{name}({', '.join(passed)})"


@pytest.fixture
def programs(tmp_path):
    """Write the pages as programs, one with all constructors, and a wrong one."""
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for page in sorted((ROOT / "doc" / "how_to").glob("*.rst")):
        found = doctest.DocTestParser().get_examples(page.read_text())
        (folder / f"{page.stem}.py").write_text("".join(one.source for one in found))
    assert len([*folder.iterdir()]) > 20
    (folder / "constructors.py").write_text("\n".join(all_constructors()))
    (folder / "wrong.py").write_text(
        "from skvnce import GaussianImputer\n\n"
        'GaussianImputer(marginals="norm")\n'
        "GaussianImputer(unknown=1)\n"
        "GaussianImputer().fit()\n"
    )
    return folder


def errors(command, folder):
    """Return what a type checker says of the programs, and of the wrong one."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder.parent,
        # the checkers take a package of this path as an installed one
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if " error: " in line]
    assert lines, done.stdout + done.stderr
    wrong = [line for line in lines if "wrong.py" in line]
    return [line for line in lines if line not in wrong], len(wrong)


@pytest.mark.site
def test_mypy_accepts_the_pages_in_strict_mode(programs):
    pytest.importorskip("mypy")
    cache = ROOT / ".mypy_cache"
    command = ["mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", cache]
    assert errors([*command, "pages"], programs) == ([], 3)


@pytest.mark.site
@pytest.mark.skipif(shutil.which("node") is None, reason="pyright runs in node")
def test_pyright_accepts_the_pages(programs):
    pytest.importorskip("pyright")
    settings = {"include": ["pages"], "extraPaths": [str(ROOT)]}
    (programs.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    found, n_wrong = errors(["pyright", "--pythonpath", sys.executable], programs)
    assert [line for line in found if OF_SKLEARN not in line] == []
    assert n_wrong == 3


def test_lowest_versions_of_ci_are_the_floors():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    stated = project["dependencies"] + extras["frame"] + extras["plot"]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pinned = dict(one.split("==") for one in lines if one[0] != "#")
    for floor in map(Requirement, stated):
        if floor.name != "torch":  # see the first lines of the file
            [specifier] = floor.specifier
            assert pinned[floor.name].startswith(specifier.version), floor
