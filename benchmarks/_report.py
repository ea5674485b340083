"""Markdown of the reports: tables, the line that says how it was made, the output."""

import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from _picture_list import PICTURES
from _pictures import illustrated

_PACKAGES = ("scikit-learn", "torch", "numpy")


def made_by(script, notes):
    """Say which command and which versions made a report."""
    command = shlex.join(["python", f"benchmarks/{script}", *sys.argv[1:]])
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    python = f"Python {platform.python_version()}"
    return f"Made by `{command}` with {versions}, {python}. {notes}"


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


def publish(parts, output):
    """Print a report; write it to a file if one is named, with the picture it has."""
    text = "\n\n".join(parts) + "\n"
    print(text)
    if output:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        text = illustrated(text, output, PICTURES)
        Path(output).write_text(text, encoding="utf-8")
