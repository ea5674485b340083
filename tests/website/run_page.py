"""Run the doctests and Python blocks of a page: ``python run_page.py README.md``.

It imports sybil alone, so that it runs where pytest is not installed.
"""

import re
import sys
import warnings
from pathlib import Path

from sybil import Sybil
from sybil.parsers import myst, rest

PARSERS = {
    ".rst": [rest.PythonCodeBlockParser(), rest.DocTestParser()],
    ".md": [myst.PythonCodeBlockParser()],
}

PROMPT = re.compile(r"^ *>>>", re.M)
BLOCK = re.compile(r"^ *(?:```|\.\. code-block:: )python$", re.M)


def n_blocks(path):
    """Count the Python blocks without prompts of a page, without sybil."""
    text = path.read_text()
    return len(BLOCK.findall(text)) - text.count("```python\n>>>")


def n_examples(path):
    """Count the doctests and Python blocks of a page, without sybil."""
    return len(PROMPT.findall(path.read_text())) + n_blocks(path)


def examples(path):
    """Return the examples of a page, in order and in one namespace."""
    return list(Sybil(PARSERS[path.suffix]).parse(path).examples())


if __name__ == "__main__":
    found = examples(Path(sys.argv[1]))
    warnings.simplefilter("error")  # as in the tests: no page warns
    warnings.filterwarnings("ignore", "Draws of .* are for filling")  # which pages say
    for example in found:
        example.evaluate()
    print(f"{len(found)} examples")
