"""Pictures of the pages of benchmarks: they show the numbers of the pages."""

from pathlib import Path

import pytest
from _picture_list import PICTURES
from _pictures import (
    Panel,
    Picture,
    Row,
    Series,
    draw,
    fingerprint,
    illustrated,
    number,
    read,
    tables,
)

ROOT = Path(__file__).parents[1]
PAGE = """# Title

Made by a command.

| method | score | n |
| --- | --- | --- |
| mean | 1.00 | 3 |
| ours | 0.50 (2) | 3 |
| few | 0.10 | 1 |
| none | - | 3 |

## Part

### Piece

| method | score |
| --- | --- |
| ours | **-1,234.5** [0, 1] |

## Next

| method | score |
| --- | --- |
| other | 7 |
"""
PANEL = Panel(
    "scores",
    "method",
    (Series("top", "", "score", 0, (("n", "3"),)), Series("below", "Part", "score")),
)
PICTURE = Picture("Scores", (PANEL,), "ours")


def page(name):
    return (ROOT / "doc" / "benchmarks" / f"{name}.md").read_text(encoding="utf-8")


def drawn(name):
    return (ROOT / "doc" / "images" / f"benchmark_{name}.svg").read_text()


def is_current(picture, text, file):
    return fingerprint(picture, text) in file


def test_rows_are_the_numbers_of_the_tables():
    assert read(PANEL, PAGE) == [
        Row("mean", [1.0, None], [False, False]),
        Row("ours", [0.5, -1234.5], [True, False]),
    ]


def test_tables_end_with_their_section():
    assert [len(one) for one in tables(PAGE, "Part")] == [1]
    assert len(tables(PAGE, "")) == 3
    with pytest.raises(ValueError, match="no heading 'Absent'"):
        tables(PAGE, "Absent")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("93.5%", 93.5), ("1.23 (adult 50%)", 1.23), ("-", None), ("17,499", 17499.0)],
)
def test_number_of_a_cell(cell, expected):
    assert number(cell) == expected


@pytest.mark.parametrize("name", list(PICTURES))
def test_picture_of_a_page_is_current(name):
    text = page(name)
    lines = text.splitlines()
    assert lines[2] == f"![{PICTURES[name].text}](../images/benchmark_{name}.svg)"
    for panel in PICTURES[name].panels:
        rows = read(panel, text)
        assert len(rows) >= 2
        assert all(any(row.values[i] is not None for row in rows)
                   for i in range(len(panel.series)))  # fmt: skip
    assert is_current(PICTURES[name], text, drawn(name))


def test_pictures_of_other_numbers_are_found(tmp_path):
    draw(PICTURE, PAGE, tmp_path / "a.svg")
    file = (tmp_path / "a.svg").read_text()
    assert is_current(PICTURE, PAGE, file)
    assert not is_current(PICTURE, PAGE.replace("1.00", "1.01"), file)


def test_pages_get_their_picture_once(tmp_path):
    (tmp_path / "images").mkdir()
    path = tmp_path / "benchmarks" / "some.md"
    once = illustrated(PAGE, path, {"some": PICTURE})
    assert once.splitlines()[2] == "![Scores](../images/benchmark_some.svg)"
    assert once.replace(once[once.index("![") : once.index("Made by")], "") == PAGE
    assert illustrated(once, path, {"some": PICTURE}) == once
    assert illustrated(PAGE, path, {}) == PAGE
    assert (tmp_path / "images" / "benchmark_some.svg").stat().st_size < 60_000
