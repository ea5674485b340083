"""Write AGENTS.md and llms.txt from the public names, the pages and this file.

python tools/agents.py            writes both
python tools/agents.py --check    says which of them are out of date, and fails
"""

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the checkout, and not another one that is installed

SUMMARY = (
    "Imputers, latent-variable models and sparse graphical models for tables with "
    "missing values, with the interface of scikit-learn."
)
START = [  # pages for all readers, and what is on them
    ("README.md", "what it is for, installation, the first script"),
    (
        "doc/start/first_ten_minutes.rst",
        "from a table to a pooled answer in some lines",
    ),
    ("doc/api.rst", "all public names"),
    ("doc/user_guide", "methods, mathematics, and when they fail"),
    ("doc/coming_from", "the same calls in mice, scikit-learn and others"),
    ("doc/glossary.rst", "words"),
    ("CHANGELOG.md", "what changed"),
]
COMMANDS = [
    ("install", 'python -m pip install -c constraints.txt -e ".[test]"'),
    ("tests", "python -m pytest -n auto --dist loadgroup"),
    ("one file", "python -m pytest tests/test_pooling.py"),
    ("longer tests", "python -m pytest -n auto --dist loadgroup -m slow"),
    ("lint", "ruff check . && ruff format --check ."),
    ("all that CI runs", "bash .ci/run"),
    ("these two files", "python tools/agents.py"),
]
RULES = [
    "Read doc/developer/architecture.rst first: imports run only downwards, and "
    "tests/test_architecture.py checks it.",
    "A file has at most 600 lines of code; documentation does not count.",
    "A new component is one file and one line in a list; the list includes it in the "
    "tests (tests/cases.py).",
    "Names of parameters, attributes and methods are on "
    "doc/developer/conventions.rst; tests/test_conventions.py compares them.",
    "Tests compare with an exact result, or with a limit in standard errors and a "
    "negative control (tests/statistical.py).",
    "Each public name has a docstring in numpydoc's form, with an example that runs.",
    "Errors name the parameter, what was got, and the remedy. Warnings are for users, "
    "by skvnce._core.warnings.warn_user.",
    "Nothing is silently wrong: what a model cannot do is an error or a warning.",
    "Plain words, short sentences, British spelling; no path of a machine and no host "
    "of packages in a committed file.",
    "Small commits with an imperative message; a user-visible change adds a file to "
    "changelog.d.",
]


def first_line(value):
    """Return the first sentence of a docstring, in one line."""
    paragraph = (inspect.getdoc(value) or "").split("\n\n")[0]
    return " ".join(paragraph.split())


def names_of(module):
    """List the public names of a module."""
    listed = getattr(module, "__all__", None)
    return sorted(listed) if listed else own_functions(module)


def own_functions(module):
    """List the functions and classes that a module defines."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", "") == module.__name__
    )


def public():
    """List (module, its first line, [(name, first line)]), `skvnce` first."""
    package = importlib.import_module("skvnce")
    values = {name: getattr(package, name) for name in package.__all__}
    own = [
        (name, first_line(value))
        for name, value in values.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    ]
    found = [("skvnce", first_line(package), sorted(own))]
    for name, module in sorted(values.items()):
        if inspect.ismodule(module):
            lines = [
                (one, first_line(getattr(module, one))) for one in names_of(module)
            ]
            found.append((f"skvnce.{name}", first_line(module), lines))
    return found


def title(path):
    """Return the title of a page: its first line above a line of signs."""
    lines = path.read_text().splitlines()
    for line, below in zip(lines, lines[1:], strict=False):
        if line.strip() and re.fullmatch(r"([=\-~^#*])\1{2,}", below.strip()):
            return line.strip()
        if line.startswith("# "):
            return line[2:].strip()
    return path.stem.replace("_", " ")


def how_to_pages(root=ROOT):
    """List (path, title) of the pages that show one task each."""
    folder = root / "doc" / "how_to"
    pages = [page for page in sorted(folder.glob("*.rst")) if page.stem != "index"]
    return [(page.relative_to(root).as_posix(), title(page)) for page in pages]


def agents(root=ROOT):
    """Write the text of AGENTS.md."""
    lines = [
        "# For programs that work on this repository",
        "",
        "Written by `python tools/agents.py`; change that file instead of this one.",
        "",
        SUMMARY,
        "",
        "## Commands",
        "",
        *(f"- {what}: `{command}`" for what, command in COMMANDS),
        "",
        "## House rules",
        "",
        *(f"{number}. {rule}" for number, rule in enumerate(RULES, 1)),
        "",
        "## Pages",
        "",
        *(f"- {path}: {about}" for path, about in START),
        "- CONTRIBUTING.md: how to test, and what a change needs",
        *(f"- {path}: {about}" for path, about in how_to_pages(root)),
        "",
        "## Public names",
    ]
    for module, about, names in public():
        lines += ["", f"### {module}", "", about, ""]
        lines += [f"- `{name}`: {line}" for name, line in names]
    return "\n".join(lines) + "\n"


def llms(root=ROOT):
    """Write the text of llms.txt, in the form of llmstxt: links and a line each."""
    lines = ["# skvnce", "", f"> {SUMMARY}", "", "## Pages", ""]
    lines += [f"- [{path}]({path}): {about}" for path, about in START]
    pages = how_to_pages(root)
    if pages:
        lines += ["", "## How to", ""]
        lines += [f"- [{about}]({path})" for path, about in pages]
    for module, about, names in public():
        lines += ["", f"## {module}", "", about, ""]
        lines += [f"- `{module}.{name}`: {line}" for name, line in names]
    return "\n".join(lines) + "\n"


FILES = {"AGENTS.md": agents, "llms.txt": llms}


def main(arguments=None):
    """Write both files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    old = []
    for name, text in FILES.items():
        path, wanted = ROOT / name, text()
        if not path.exists() or path.read_text() != wanted:
            old.append(name)
            if not check:
                path.write_text(wanted)
    if old:
        print(("out of date: " if check else "written: ") + ", ".join(old))
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
