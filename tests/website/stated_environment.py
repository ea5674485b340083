"""Virtual environments with just the packages that an extra of pyproject.toml states.

Nothing is downloaded: the packages are links to those of this environment.
"""

import os
import subprocess
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from run_page import n_examples

ROOT = Path(__file__).parents[2]
FIRST_PAGES = "README.md", "doc/index.rst", "doc/start/first_ten_minutes.rst"
HOW_TO = ROOT / "doc" / "how_to"


def stated_pages():
    """Return the pages with examples that say, or whose index says, what to install."""
    how_to = sorted(p for p in HOW_TO.glob("*.rst") if n_examples(p))
    return [*(ROOT / page for page in FIRST_PAGES), *how_to]


def stated(extra):
    """Return the requirements of the package with one of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == project["name"]:  # such as "skvnce[frame,plot]"
            found += [r for own in sorted(requirement.extras) for r in stated(own)]
        else:
            found.append(requirement)
    return found


def needed(requirement):
    """Return what the distribution of a requirement requires on this machine."""
    lines = distribution(requirement.name).requires or []
    extras = ["", *requirement.extras]
    return [
        r
        for r in map(Requirement, lines)
        if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)
    ]


def closure(requirements):
    """Return the names of all distributions that pip would install."""
    names, seen, waiting = set(), set(), list(requirements)
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key not in seen:
            seen.add(key)
            names.add(key[0])
            waiting += needed(requirement)
    return names


def build(folder, names):
    """Make a virtual environment of links; return the path of its Python.

    The package itself is there as an editable install is: by a line in a .pth file.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    [packages] = folder.glob("lib/python3*/site-packages")
    for name in names:
        link_files(distribution(name), packages)
    (packages / "editable.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


def link_files(installed, packages):
    """Link the files of an installed distribution, its scripts excepted."""
    for file in installed.files:
        link = packages / file
        if ".." not in file.parts and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(installed.locate_file(file)).resolve())


def run_python(python, *arguments, folder):
    """Run a Python as a user's shell does, without the variables of these tests."""
    kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
    kept |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [python, "-P", *arguments]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
