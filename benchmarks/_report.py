"""Markdown of the reports: tables, the line that says how it was made, the output."""

import json
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from collections import ChainMap
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import FunctionType

import numpy as np
from pictures import PICTURES, illustrated


class Results:
    """Records in a file of JSON lines, or in memory where no file is named."""

    def __init__(self, path=None):
        self.path = Path(path) if path else None
        self.records = read(self.path) if path and self.path.exists() else []

    def of(self, **key):
        """Return the records with these entries."""
        return [
            record
            for record in self.records
            if all(record.get(name) == value for name, value in key.items())
        ]

    def find(self, **key):
        """Return the first record with these entries, or None."""
        return next(iter(self.of(**key)), None)

    def has(self, **key):
        """Say whether there is a record with these entries."""
        return bool(self.of(**key))

    def add(self, record):
        """Keep a record, with the commit of the code, and append it to the file."""
        self.records.append(record | {"commit": commit()})
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.records[-1]) + "\n")

    def commits(self):
        """Name the commits of all records."""
        return commits(self.records)


def read(path):
    """Read the records of a file of JSON lines."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def commits(records):
    """Name the commits of records."""
    return ", ".join(sorted({str(record["commit"]) for record in records}))


TEXTS = Path(__file__).parent / "texts"
_PACKAGES = ("scikit-learn", "torch", "numpy")


def specs(name):
    """Read the declarations of a study: ``texts/NAME.toml``."""
    return tomllib.loads((TEXTS / f"{name}.toml").read_text(encoding="utf-8"))


class Texts:
    """What a page says besides its tables: a file of texts below their names.

    Names in braces are those of the scripts, or of a call.  The text "page" is the page
    of a study: a function of the script that it names makes the parts that are put
    there, of the results and the options.
    """

    def __init__(self, page, *names):
        file = TEXTS / f"{page}.md"
        heading = re.compile(r"(?:^|\n\n)<!-- (.+) -->\n\n")
        _, *parts = heading.split(file.read_text(encoding="utf-8").rstrip("\n"))
        self.names, self.parts = names, dict(zip(parts[::2], parts[1::2], strict=True))
        self.script = page

    def __call__(self, name, *names, **more):
        """Write a text."""
        return self.parts[name].format_map(ChainMap(more, *names, *self.names))

    def page(self, results, options):
        """Write the page of a study; a quick run is without the text "found"."""
        names = ChainMap(*self.names)
        more = names["values"](results, options) if "values" in names else {}
        more |= {"options": options, "made": made_by(self.script)}
        said = "found" in self.parts and not getattr(options, "quick", False)
        text = self.parts["page"]
        more["found"] = self("found", more) if said else ""
        text = text.format_map(_Filled(ChainMap(more, names), results, options))
        return re.sub(r"\n{3,}", "\n\n", text.strip())


class _Filled(dict):
    """Names of a page, where functions of the script are called."""

    def __init__(self, names, results, options):
        self.names, self.given = names, (results, options)

    def __missing__(self, name):
        if name in _OF_STUDIES:
            return _OF_STUDIES[name](self.names, self.given[0])
        value = self.names[name]
        if not isinstance(value, FunctionType):
            return value
        made = value(*self.given[: len(signature(value).parameters)])
        return made if isinstance(made, str) else "\n\n".join(made)


def _notes(names, results):
    """Return the notes of a page: the third paragraph of the script."""
    return " ".join(names["__doc__"].split("\n\n")[2].split())


def _versions(names, results):
    """Name the packages that the records name."""
    found = {r["version"] for r in results.records if "version" in r}
    return ", ".join(sorted(found)) or "none"


def _unanswered(names, results):
    """Make the table of the cells without an answer, or say that there is none."""
    lines = {}
    for r in results.records:
        if "missing" in r:
            key = r["method"], r["table"], r["missing"]
            lines.setdefault(key, []).append(f"{r['mechanism']} {r['seed']}")
    rows = [[*key, ", ".join(places)] for key, places in sorted(lines.items())]
    header = ["method", "table", "reason", "mechanism and seed"]
    return table(header, rows) if rows else "None."


_OF_STUDIES = {
    "notes": _notes,
    "commits": lambda names, results: results.commits(),
    "versions": _versions,
    "unanswered": _unanswered,
}


def lines(groups, columns, *header):
    """Write a table with a line for each group of records: its key, and texts of it."""
    rows = [[*key, *(text(some) for text in columns.values())] for key, some in groups]
    return table([*header, *columns], rows)


def made_by(script):
    """Say which command and which versions made a report."""
    command = shlex.join(["python", f"benchmarks/{script}.py", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    python = f"Python {platform.python_version()}"
    return f"Made by `{command}` with {versions}, {python}."


def commit():
    """Return the commit of this checkout; None where git does not know."""
    ask = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def table(header, rows):
    """Write a markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def grid(header, rows, columns, cell, *, empty=False):
    """Write a table of the texts of a function of row and column.

    Rows and columns are keys, or dicts of keys by label; rows without a text, or of
    dashes alone, are left out, unless `empty`.
    """
    rows, columns = (
        keys if isinstance(keys, dict) else {key: key for key in keys}
        for keys in (rows, columns)
    )
    header = [header] if isinstance(header, str) else header
    lines = []
    for label, row in rows.items():
        cells = [cell(row, column) for column in columns.values()]
        if empty or any(text not in ("", "-") for text in cells):
            lines.append([*(label if isinstance(label, tuple) else (label,)), *cells])
    return table([*header, *columns], lines)


def by(records, *names):
    """Group records by fields, in the order in which their values come."""
    groups = {}
    for record in records:
        groups.setdefault(tuple(record.get(name) for name in names), []).append(record)
    return groups


def mean(records, score):
    """Average a score over the records that have it; None if there is none."""
    values = [record[score] for record in records if score in record]
    return float(np.mean(values)) if values else None


def geometric_mean(values):
    """Return the geometric mean."""
    return float(np.exp(np.log(np.array([*values])).mean()))


def met(good):
    """Say whether a goal is met."""
    return "met" if good else "**missed**"


def publish(text, output):
    """Print a report; write it to a file if one is named, with the picture it has."""
    text += "\n"
    print(text)
    if output:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        text = illustrated(text, output, PICTURES)
        Path(output).write_text(text, encoding="utf-8")
