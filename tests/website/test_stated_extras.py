"""The first pages and the how-to pages run with just what they say is installed."""

import re
import tomllib
from itertools import chain

import pytest

pytest.importorskip("sybil", reason="sybil is in the extra `test`")
from run_page import n_examples, output_of  # noqa: E402
from stated_environment import (  # noqa: E402
    ROOT,
    Requirement,
    build,
    closure,
    run_python,
    stated,
    stated_pages,
)

INSTALL = re.compile(r'^ *python -m pip install .*-e "\.\[(\w+)\]"$', re.M)
SCRIPT = ROOT / "tests" / "website" / "run_page.py"
READER = "sybil"  # reads the pages; it requires nothing itself


def first_extra(page):
    """Return the extra of the first install line of a page, or of its index."""
    found = INSTALL.findall(page.read_text())
    return (found or INSTALL.findall((page.parent / "index.rst").read_text()))[0]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Run all pages, those of an extra in its environment; return what they print."""
    folders = {page: tmp_path_factory.mktemp(page.stem) for page in stated_pages()}
    for extra in sorted({*map(first_extra, folders)}):
        names = closure([*stated(extra), Requirement(READER)])
        python = build(tmp_path_factory.mktemp(extra), names)
        own = [item for item in folders.items() if first_extra(item[0]) == extra]
        done = run_python(python, SCRIPT, *map(str, chain(*own)), folder=python.parent)
        assert done.returncode == 0, done.stderr[-3000:]
    return {page: output_of(folder).read_text() for page, folder in folders.items()}


@pytest.mark.site
@pytest.mark.parametrize("page", stated_pages(), ids=lambda p: p.name)
def test_page_runs_after_its_install_line(page, outputs):
    *_, last = outputs[page].splitlines()
    assert last == f"{n_examples(page)} examples", outputs[page][-3000:]


def test_pages_of_all_extras_are_found():
    assert {first_extra(page) for page in stated_pages()} >= {"demo", "dask", "safe"}
    assert len(stated_pages()) > 20


def test_each_extra_is_described():
    text = (ROOT / "doc" / "start" / "install.rst").read_text()
    described = re.findall(r"^   \* - ``(\w+)``\n     - (.*(?:\n {7}.*)*)", text, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [name for name, _ in described] == list(extras)
    for name, packages in described:
        for requirement in map(Requirement, extras[name]):
            words = requirement.extras or {requirement.name}
            assert all(word in packages for word in words), (name, words)
