"""Pages of classes: the groups of parameters, and the sections that are folded."""

import inspect
import sys

import pytest
from site_pages import ROOT, built_site

import skvnce

pytestmark = pytest.mark.site
pytest.importorskip("docutils", reason="docutils is in the extra `doc`")
from docutils.core import publish_doctree, publish_from_doctree  # noqa: E402
from docutils.writers.html5_polyglot import Writer  # noqa: E402

sys.path.insert(0, str(ROOT / "doc" / "_ext"))
import fold_sections  # noqa: E402

CLASSES = [name for name in skvnce.__all__ if inspect.isclass(getattr(skvnce, name))]

#: What numpydoc makes of a docstring.
TEXT = """
Impute.

:Parameters:

    **shrinkage** : float
        A weight.

    **min_value, max_value** : float
        Bounds.

    **groups** : str
        A column.

{more}
.. rubric:: Notes

Some note.

Another one.

.. rubric:: References

Somebody (2000).

:Attributes:

    **mean_** : ndarray
        A mean.

    **location_, scale_** : ndarray
        Others.

.. rubric:: Methods
"""
MORE = "max_iter", "tol", "n_jobs", "random_state", "verbose", "on_misfit"


@pytest.fixture(scope="module")
def html():
    """Give a function of the number of further parameters."""

    def page(n_more=None):
        more = "".join(f"    **{name}**\n        It.\n\n" for name in MORE[:n_more])
        tree = publish_doctree(TEXT.format(more=more))
        fold_sections.arrange(tree)
        return publish_from_doctree(tree, writer=Writer()).decode()

    return page


def order(text, *parts):
    """Tell whether the parts occur in this order."""
    for part in parts:
        _, found, text = text.partition(part)
        if not found:
            return False
    return True


def test_parameters_are_grouped(html):
    assert order(
        html(),
        *("Parameters (model)", "shrinkage", "Parameters (columns and missing values)"),
        *("min_value, max_value", "on_misfit", "Parameters (computing)", "max_iter"),
        *("Parameters (some tables only)", "<summary><code>groups</code></summary>"),
        *("<strong>groups</strong>", "</details>"),
    )
    assert "Parameters<" not in html()


def test_few_parameters_are_not_grouped(html):
    assert "Parameters (" in html(5)  # nine names
    assert "Parameters<" in html(4) and "Parameters (" not in html(4)


def test_notes_and_attributes_are_folded(html):
    assert order(
        html(),
        *('<details class="fold"><summary>Notes</summary>', "Some note", "Another one"),
        *("</details>", "References", "Somebody (2000)", "Attributes<"),
        "<summary><code>mean_</code>, <code>location_</code>, <code>scale_</code>",
        *("<strong>mean_</strong>", "A mean.", "Others.", "</details>", "Methods"),
    )
    assert html().count("<details") == html().count("</details>") == 3


def test_of_many_attributes_the_first_are_named():
    few, many = [f"a{k}_" for k in range(6)], [f"a{k}_" for k in range(9)]
    assert fold_sections.codes(few, 6).count("<code>") == 6
    assert fold_sections.codes(few, 6).endswith("<code>a5_</code>")
    assert fold_sections.codes(many, 6).endswith("<code>a5_</code> and 3 more")
    assert fold_sections.codes(many).count("<code>") == 9


def test_each_parameter_has_one_group():
    grouped = [name for group in fold_sections.GROUPS.values() for name in group]
    wanted = {
        name
        for cls in CLASSES
        for name in inspect.signature(getattr(skvnce, cls)).parameters
    }
    assert sorted(grouped) == sorted(wanted)


@pytest.mark.parametrize("name", CLASSES)
def test_built_page(name):
    path = built_site() / "generated" / f"skvnce.{name}.html"
    page = path.read_text()
    described = f'<dt class="sig sig-object py" id="skvnce.{name}">'
    assert order(page, "In short", "What it is", "When not", described)
    assert page.count('<details class="fold">') >= 1
    assert page.count("<details") == page.count("</details>")
    if len(inspect.signature(getattr(skvnce, name)).parameters) >= fold_sections.MANY:
        assert order(page, described, "Parameters (", "Attributes")
