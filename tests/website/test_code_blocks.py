"""Every Python block and doctest of the pages runs, in order, one namespace a page.

``test_stated_extras.py`` runs the first pages and the how-to pages.

Blocks of other languages (shell, R) are not run.  ``test_links.py`` checks in the
built pages that no block is in a language that neither this module nor it knows.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import sklearn

sybil = pytest.importorskip("sybil", reason="sybil is in the extra `test`")
from run_page import PARSERS, PROMPT, examples, n_blocks, n_examples  # noqa: E402
from stated_environment import stated_pages  # noqa: E402
from sybil.evaluators.doctest import DocTestEvaluator  # noqa: E402

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
GENERATED = ("_build", "generated", "auto_examples", "sg_execution_times.rst")


def pages():
    """Return the written pages with prompts or Python blocks."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    found += sorted(p for p in (ROOT / "doc").rglob("*") if p.suffix in PARSERS)
    written = [p for p in found if not set(GENERATED) & set(p.parts)]
    elsewhere = stated_pages()  # run in environments of their own
    return [p for p in written if n_examples(p) and p not in elsewhere]


def run(path):
    """Run the examples of a page; return how many doctests and blocks there were."""
    doctests = 0
    found = examples(path)
    for example in found:
        doctests += isinstance(example.region.evaluator, DocTestEvaluator)
        try:
            example.evaluate()
        except sybil.example.SybilFailure as error:
            pytest.fail(str(error), pytrace=False)
        except Exception as error:
            where = f"{path}, line {example.line}"
            pytest.fail(f"{where}: {type(error).__name__}: {error}", pytrace=False)
    return doctests, len(found) - doctests


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter an empty folder."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


@pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_page_runs(path, folder, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # of modules that a page shows
    with sklearn.config_context():
        doctests, code = run(path)
    assert doctests == len(PROMPT.findall(path.read_text()))
    assert code == n_blocks(path)
