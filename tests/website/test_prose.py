"""Pages are in short sentences, and the first pages and the how-to pages are short.

Figures of benchmarks are on the pages of benchmarks.
"""

from pathlib import Path

import prose
import pytest

DOC = Path(__file__).parents[2] / "doc"
PAGES = [DOC / "index.rst", *sorted(DOC.glob("start/*.rst"))]
PAGES += sorted(DOC.glob("how_to/*.rst"))
EXPLAIN = [
    *sorted(DOC.glob("user_guide/*.rst")),
    *sorted(DOC.glob("coming_from/*.rst")),
]
EXPLAIN += [DOC / "comparison.rst"]
DEVELOPER = sorted(DOC.glob("developer/*.rst"))


def name_of(page):
    return str(page.relative_to(DOC))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_is_easy_to_read(page):
    assert not prose.faults(page.read_text())


@pytest.mark.parametrize("page", EXPLAIN + DEVELOPER, ids=name_of)
def test_sentences_are_short(page):
    assert not prose.sentence_faults(page.read_text())


@pytest.mark.parametrize("page", EXPLAIN, ids=name_of)
def test_figures_have_a_source(page):
    assert not prose.figure_faults(page.read_text())


@pytest.mark.parametrize("page", PAGES + EXPLAIN, ids=name_of)
def test_words_are_those_of_readers(page):
    assert not prose.private_words(page.read_text())


def test_pages_have_prose():
    names = {name_of(p) for p in PAGES}
    assert {"index.rst", "start/install.rst", "start/decide.rst"} <= names
    assert "start/first_ten_minutes.rst" in names
    names = {name_of(p) for p in EXPLAIN + DEVELOPER}
    assert {"comparison.rst", "user_guide/imputation.rst"} <= names
    assert {"coming_from/mice.rst", "developer/add_an_imputer.rst"} <= names
    for page in PAGES + EXPLAIN + DEVELOPER:
        assert prose.sentences(page.read_text())


SHORT = "A sentence has few words. " * 8
WRONG = {
    "words; at most": "A sentence has few words. " * 81,
    "numerals in: ": "One table has 12 rows, the next 4,835 and the last .5 of them.",
    "in the median sentence": " ".join(["A"] * 17) + ".\n\n" + " ".join(["A"] * 17),
    "of 9 sentences": SHORT + " ".join(["A"] * 29) + ".",
}


@pytest.mark.parametrize("fault", WRONG)
def test_each_fault_is_found(fault):
    [found] = prose.faults(WRONG[fault])
    assert fault in found


@pytest.mark.parametrize("fault", list(WRONG)[2:])
def test_each_fault_of_sentences_is_found_on_long_pages(fault):
    page = WRONG["words; at most"] + "\n\n" + WRONG["numerals in: "]
    assert not prose.sentence_faults(page)
    [found] = prose.sentence_faults(WRONG[fault])
    assert fault in found


LIMITS = [
    "A sentence has few words. " * 80,
    "One table has 12 rows, and the next 4,835.",
    " ".join(["A"] * 16) + ".",
    SHORT + "This is one more. " + " ".join(["A"] * 29) + ".",
]


@pytest.mark.parametrize("text", LIMITS, ids=["page", "numerals", "median", "long"])
def test_limits_are_allowed(text):
    assert not prose.faults(text)


FIGURES = "Figures 1 2 3 4."
HIDDEN = {
    "code": f".. code-block:: python\n   :caption: {FIGURES}\n\n   {FIGURES}\n\n   a\n",
    "prompts": f">>> 1 + 2 + 3\n{FIGURES}\n",
    "literal block": f"Text::\n\n   {FIGURES}\n\n   {FIGURES}\n",
    "comment": f".. {FIGURES}\n   {FIGURES}\n",
    "target": ".. _a: https://example.org/1/2/3/4\n",
    "picture": f".. image:: a.png\n   :alt: {FIGURES}\n",
    "list of cells": f".. list-table::\n\n   * - {FIGURES}\n     - 1\n",
    "simple table": f"===  ===\na    b\n===  ===\n{FIGURES}\n\nc\n===  ===\n",
    "grid table": f"+---+---+\n| 1 | 2 |\n+---+---+\n| 3 | {FIGURES} |\n+---+---+\n",
    "heading": f"{FIGURES}\n{'=' * 16}\n",
    "heading with a line above": f"{'=' * 16}\n{FIGURES}\n{'=' * 16}\n",
    "link": "See `a <https://example.org/1/2/3/4>`__ and `b <1 2 3 4>`_.\n",
    "role": "See :doc:`a </1/2/3/4>` and :func:`~b.c1.d 2 3 4`.\n",
    "inline code": "Call ``f(1, 2, 3, 4)``.\n",
    "options of a card": f".. card:: {FIGURES}\n   :columns: 1 2 3 4\n\n   a\n",
    "list of pages": f".. toctree::\n   :caption: {FIGURES}\n\n   {FIGURES}\n",
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_is_no_prose_is_left_out(kind):
    assert not prose.faults(HIDDEN[kind])
    found = prose.paragraphs(f"Before.\n\n{HIDDEN[kind]}\nAfter.\n")
    assert (found[0], found[-1]) == ("Before.", "After.")
    assert "Figures" not in " ".join(found)


SHOWN = {
    "item": f"- {FIGURES}\n- b\n",
    "numbered item": f"1. a\n2. {FIGURES}\n",
    "note": f".. note::\n   {FIGURES}\n",
    "card": (
        ".. grid:: 2\n   :gutter: 3\n\n   .. grid-item-card:: A\n      :link: b\n\n"
        f"      {FIGURES}\n"
    ),
    "definition": f"a term\n   {FIGURES}\n",
    "field of a summary": f".. admonition:: A\n   :class: short\n\n   :B: {FIGURES}\n",
    "text of a link": "See `figures 1 2 3 4 <https://example.org>`__.\n",
    "text after a table": f"===  ===\na    b\n===  ===\n\n{FIGURES}\n",
    "text before code": f"{FIGURES}\n\n.. code-block:: python\n\n   a\n",
}


@pytest.mark.parametrize("kind", SHOWN)
def test_prose_is_read_wherever_it_is(kind):
    [found] = prose.faults(SHOWN[kind])
    assert "4 numerals in: " in found


def test_numbers_of_items_are_no_numerals_of_their_text():
    items = "1. One a.\n2. Two b.\n3. Three c\n   and more.\n"
    assert prose.paragraphs(items) == ["One a.", "Two b.", "Three c and more."]


def test_sentences_end_where_a_reader_ends_them():
    text = "It is 1.5 (e.g. here). ``fit`` fits; others wait: all of it!\n\n- Names\n"
    expected = ["It is 1.5 (e.g here).", "Code fits; others wait: all of it!"]
    assert prose.sentences(text) == expected


SOURCES = {
    "page": "Errors are 1, 2, 3, 4 and 5 (:doc:`/benchmarks/mice`).",
    "paper": "The settings of Ferro (2014) are 1, 2, 3, 4 and 5.",
    "equations": "By (1), (5), eqs. 2 and algorithm 4, errors are 1, 2, 3 and 4.",
    "few": "Errors are 1, 2, 3 and 4.",
}


@pytest.mark.parametrize("kind", SOURCES)
def test_figures_with_a_source_are_allowed(kind):
    assert not prose.figure_faults(SOURCES[kind])


@pytest.mark.parametrize("other", ["", " See :doc:`/user_guide/vae`.", " (eq. 1)"])
def test_figures_without_a_source_are_found(other):
    elsewhere = "\n\nThe next paragraph has a page: :doc:`/benchmarks/mice`.\n"
    [found] = prose.figure_faults(f"Errors are 1, 2, 3, 4 and 5.{other}{elsewhere}")
    assert "5 numerals without a source in: " in found


def test_private_words_are_found():
    text = "The imputer is Told it, judges blind, and its fate is 0.9 (old) since then."
    expected = ["told", "judges", "blind", "fate", "(old)", "since then"]
    assert [word.lower() for word in prose.private_words(text)] == expected


def test_words_of_readers_are_allowed():
    assert not prose.private_words("Old judgment, ``told``, :ref:`x <fate>`, blinds.")
