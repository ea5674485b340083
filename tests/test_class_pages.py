"""Each page of a class begins with a short file: what it is, and when to use it.

The site's tests run its code, as that of all pages (``website/test_code_blocks.py``).
"""

import ast
import inspect
import re
from pathlib import Path
from statistics import median

import pytest

import skvnce

FOLDER = Path(__file__).parents[1] / "doc" / "class_pages"
CLASSES = [name for name in skvnce.__all__ if inspect.isclass(getattr(skvnce, name))]
FIELDS = ["What it is", "When to use it", "When not", "More"]
FIELD = re.compile(r"^ {3}:([A-Z][\w ]+): (.*(?:\n {6}.*)*)", re.M)
ROLE = re.compile(r":\w+:`(?:[^`<]*/|~?skvnce\.)?([^`<]+?)(?: <[^`]*>)?`")


def faults(name, text):
    """Return what is wrong with the file of a class."""
    prose, *blocks = text.split("\n.. code-block:: python\n\n")
    fields = dict(FIELD.findall(prose))
    if list(fields) != FIELDS or len(blocks) != 1:
        return [f"not the fields {FIELDS} and one block"]
    found = []
    lines = inspect.cleandoc(blocks[0]).splitlines()
    if len(text.splitlines()) > 25 or not 1 <= len(lines) <= 5:
        found.append("too many lines")
    if max(len(line) for line in lines) > 88:
        found.append("wide code")
    used = {node.id for node in ast.walk(ast.parse("\n".join(lines))) if is_name(node)}
    if name not in used:
        found.append("the example is of another class")
    said = {key: ROLE.sub(r"\1", value) for key, value in fields.items()}
    if sum(len(value.split()) for value in said.values()) > 120:
        found.append("too many words")
    sentences = [one for key in FIELDS[:3] for one in said[key].split(". ")]
    if median(len(one.split()) for one in sentences) > 16:
        found.append("long sentences")
    return found


def is_name(node):
    """Tell whether a name is read."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def test_each_class_has_a_file():
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(
        f"{name}.rst" for name in CLASSES
    )


@pytest.mark.parametrize("name", CLASSES)
def test_file_is_short(name):
    assert faults(name, (FOLDER / f"{name}.rst").read_text()) == []


WRONG = {
    "not the fields": ("   :When not:", "   :Never:"),
    "too many lines": ("   from", "   1\n   from"),
    "wide code": ("   frame", "   " + "wide" * 20 + " = frame"),
    "another class": ("= GaussianImputer", "= MixtureImputer"),
    "too many words": ("columns", "columns " + "and. " * 120),
    "long sentences": (" rows", " rows" + " so" * 12),
}


@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_found(fault):
    text = (FOLDER / "GaussianImputer.rst").read_text()
    [found] = faults("GaussianImputer", text.replace(*WRONG[fault]))
    assert fault in found
