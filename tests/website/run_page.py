"""Run the doctests and Python blocks of a page: ``python run_page.py README.md``.

It imports sybil alone, so that it runs where pytest is not installed.
"""

import sys
from pathlib import Path

from sybil import Sybil
from sybil.parsers import myst, rest

PARSERS = {
    ".rst": [rest.PythonCodeBlockParser(), rest.DocTestParser()],
    ".md": [myst.PythonCodeBlockParser()],
}


def examples(path):
    """Return the examples of a page, in order and in one namespace."""
    return list(Sybil(PARSERS[path.suffix]).parse(path).examples())


if __name__ == "__main__":
    found = examples(Path(sys.argv[1]))
    for example in found:
        example.evaluate()
    print(f"{len(found)} examples")
