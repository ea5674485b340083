"""Build and check a release, and print the commands that publish it.

tools/release --dry-run [--dist FOLDER]   what CI runs: one environment, some seconds
tools/release [--dist FOLDER]             each extra in a fresh environment, minutes

Both build an sdist and a wheel (or take those of FOLDER), check their pages by twine,
compare the version with that of the changelog, and import what each extra is for from
an installed wheel.  Nothing is published: the last lines are the commands that do.
Needs the extra `release`.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path

import changelog

ROOT = Path(__file__).resolve().parents[1]
ENABLED = {  # modules that each extra is for, "" for none
    "": [
        "skvnce",
        *("skvnce.datasets", "skvnce.metrics", "skvnce.options", "skvnce.pooling"),
        *("skvnce.missingness", "skvnce.testing", "skvnce.autoencoder.estimator"),
    ],
    "frame": ["pandas", "skvnce.evaluation", "skvnce.longitudinal"],
    "plot": ["matplotlib.pyplot", "networkx", "skvnce.inspection"],
    "progress": ["rich", "skvnce"],
    "dask": ["dask.array", "distributed", "skvnce._imputer.parts.chunks"],
    "safe": ["skops.io"],
    "demo": ["statsmodels.api", "pandas", "matplotlib.pyplot", "skvnce.demo"],
    "lint": ["ruff"],
    "test": ["pytest", "xdist", "hypothesis", "polars", "pyarrow", "skops", "sybil"],
    "doc": ["sphinx", "numpydoc", "sphinx_gallery", "myst_parser", "sphinx_design"],
    "browser": ["selenium"],
    "release": ["build", "twine"],
}


def extras(root=ROOT):
    """List the extras of pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"])


def problems(root=ROOT, is_dry=True):
    """List what is in the way of a release of the version."""
    own, text = changelog.version(root), (root / "CHANGELOG.md").read_text()
    latest, when = changelog.newest(text)
    found = []
    if latest != own:
        found.append(f"the version is {own}, and that of CHANGELOG.md {latest}")
    if not is_dry:
        if when == changelog.UNRELEASED:
            found.append(
                "CHANGELOG.md has no date: python tools/changelog.py --merge --date DAY"
            )
        if changelog.fragments(root):
            found.append("changelog.d is not merged: python tools/changelog.py --merge")
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True
        )
        if status.returncode or status.stdout:
            found.append("git status is not clean: commit first")
    return found


def files_of(folder, version):
    """Return the sdist and the wheel of a version in a folder."""
    names = [f"skvnce-{version}.tar.gz", f"skvnce-{version}-py3-none-any.whl"]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} has no {' and no '.join(missing)}")
    return [folder / name for name in names]


def run(*command, cwd=ROOT):
    """Run a command, and end if it fails; `command` may hold paths."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment)
    if done.returncode:
        raise SystemExit(f"failed: {shlex.join(map(str, command))}")


def imports(python, modules, folder):
    """Import modules in an environment, skvnce from there and not from a checkout."""
    code = (
        "import importlib, sys\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "found = sys.modules.get('skvnce')\n"
        "assert found is None or found.__file__.startswith(sys.prefix), found\n"
    )
    run(python, "-I", "-c", code, cwd=folder)  # -I: without PYTHONPATH and this folder


def make(folder, *, with_pip):
    """Make a virtual environment; return its Python."""
    venv.create(folder, with_pip=with_pip)
    return folder / "bin" / "python"


def check_cheaply(wheel, folder):
    """Install the wheel alone, beside the packages of this environment."""
    python = make(folder / "alone", with_pip=False)
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "-q"),
        *("--no-deps", "--no-index", "--disable-pip-version-check", wheel),
    )
    [site] = (folder / "alone" / "lib").glob("python3*/site-packages")
    # .pth files of these folders, such as that of an editable install, are not read
    paths = dict.fromkeys([get_path("purelib"), get_path("platlib")])
    (site / "dependencies.pth").write_text("\n".join(paths))
    modules, absent = [], []
    for extra in ["", *extras()]:
        outside = [one for one in ENABLED[extra] if not one.startswith("skvnce")]
        if all(find_spec(one.partition(".")[0]) for one in outside):
            modules += ENABLED[extra]
        else:
            absent.append(extra)
    imports(python, list(dict.fromkeys(modules)), folder)
    if absent:
        print(f"not installed here, not imported: {', '.join(absent)}")


def check_each(wheel, folder):
    """Install the wheel with each extra into a fresh environment."""
    for extra in ["", *extras()]:
        print(f"== wheel[{extra}]", flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            python = make(Path(place) / "env", with_pip=True)
            what = f"{wheel}[{extra}]" if extra else wheel
            pinned = ("-c", ROOT / "constraints.txt")
            run(python, "-m", "pip", "install", "-q", *pinned, what)
            imports(python, ENABLED[extra], folder)


def last_lines(version, files):
    """List the commands that publish; nobody runs them here."""
    return [
        f"git tag -a v{version} -m 'skvnce {version}'",
        f"git push origin v{version}",
        f"python -m twine upload {shlex.join(map(str, files))}",
    ]


def main(arguments=None):
    """Check a release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--dist", type=Path, help="a folder with sdist and wheel")
    given, begin = parser.parse_args(arguments), time.monotonic()
    found = problems(is_dry=given.dry_run)
    if found:
        raise SystemExit("\n".join(found))
    version = changelog.version()
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?", version):
        raise SystemExit(f"{version} is no version that can be published")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        dist = given.dist or (folder if given.dry_run else ROOT) / "dist"
        if given.dist is None:
            run(sys.executable, "-m", "build", "--outdir", dist, ROOT)
        files = files_of(dist.resolve(), version)
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        (check_cheaply if given.dry_run else check_each)(files[1], folder)
        print(f"skvnce {version} can be released ({time.monotonic() - begin:.0f} s):")
        if given.dry_run and given.dist is None:  # these are gone in a moment
            files = [Path("dist", path.name) for path in files]
        print("\n".join(f"    {line}" for line in last_lines(version, files)))


if __name__ == "__main__":
    main()
