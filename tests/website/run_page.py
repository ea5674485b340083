"""Run the doctests and Python blocks of pages, each in an empty folder and process:
``python run_page.py README.md empty_folder doc/index.rst other_folder``.

It requires sybil alone, so that it runs where pytest is not installed.
"""

import os
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


def run(path):
    """Run the examples of a page."""
    found = examples(path)
    warnings.simplefilter("error")  # as in the tests: no page warns
    warnings.filterwarnings("ignore", "Draws of .* are for filling")  # which pages say
    for example in found:
        example.evaluate()
    print(f"{len(found)} examples")


def run_apart(path, folder):
    """Run a page in a child of this process, whose output is beside the folder."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.chdir(folder)
    output = os.open(output_of(folder), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    run(path)
    sys.exit()  # as the process of one page ends: also what pages started


def output_of(folder):
    """Return where the output of the page of a folder is."""
    return Path(folder).with_suffix(".txt")


def import_names():
    """Import what most pages use, once for all pages."""
    import skvnce

    for name in skvnce.__all__:
        getattr(skvnce, name)


if __name__ == "__main__":
    import_names()
    for path, folder in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        run_apart(Path(path), Path(folder).resolve())
