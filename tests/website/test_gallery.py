"""The CPU time of the examples in the gallery of the built site."""

import os

import pytest
from site_pages import ROOT

pytestmark = pytest.mark.site
EXAMPLES = sorted((ROOT / "examples").rglob("plot_*.py"))
# An example should take at most 20 s, of the machine that `gallery_times` describes.
CPU_SECONDS = float(os.environ.get("SKVNCE_GALLERY_SECONDS", 20))


def slow(folder, limit):
    """Return the examples that took more CPU seconds than the limit, and theirs."""
    recorded = {p.stem: float(p.read_text()) for p in folder.glob("*.txt")}
    return {name: seconds for name, seconds in recorded.items() if seconds > limit}


def test_examples_take_at_most_20_seconds():
    folder = ROOT / "doc" / "generated" / "cpu_seconds"
    if not folder.exists():
        pytest.skip("the gallery was built without running it")
    assert {p.stem for p in folder.glob("*.txt")} >= {path.stem for path in EXAMPLES}
    assert not slow(folder, CPU_SECONDS)
