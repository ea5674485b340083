"""The first pages and the how-to pages run with just what they say is installed."""

import re
import tomllib

import pytest

pytest.importorskip("sybil", reason="sybil is in the extra `test`")
from run_page import n_examples  # noqa: E402
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
READER = "sybil"  # reads the pages; it requires nothing itself


def first_extra(page):
    """Return the extra of the first install line of a page, or of its index."""
    found = INSTALL.findall(page.read_text())
    return (found or INSTALL.findall((page.parent / "index.rst").read_text()))[0]


@pytest.fixture(scope="module")
def pythons(tmp_path_factory):
    """Return a function of an extra, which gives the Python of its environment."""
    made = {}

    def python(extra):
        if extra not in made:
            names = closure([*stated(extra), Requirement(READER)])
            made[extra] = build(tmp_path_factory.mktemp(extra), names)
        return made[extra]

    return python


def run_page(python, page, folder):
    """Run a page in an empty folder, in the environment of a Python."""
    script = str(ROOT / "tests" / "website" / "run_page.py")
    return run_python(python, script, str(page), folder=folder)


@pytest.mark.site
@pytest.mark.parametrize("page", stated_pages(), ids=lambda p: p.name)
def test_page_runs_after_its_install_line(page, pythons, tmp_path):
    done = run_page(pythons(first_extra(page)), page, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-2]) == n_examples(page)


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
