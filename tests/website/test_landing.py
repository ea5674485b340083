"""The two tables of the first page are what its code gives."""

import re
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "doc" / "index.rst"
CODE = re.compile(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", re.M)
TABLE = re.compile(r"^ *\.\. list-table:: (\w+)\n((?: +(?!\.\. )\S.*\n|\n)+)", re.M)


ROWS = [283, 803, 998, 1128, 2400]  # those that the page shows


def shown(text):
    """Return the cells of the tables of a page by their titles."""
    found = {}
    for title, body in TABLE.findall(text):
        rows = re.split(r"^ *\* - ", body, flags=re.M)[1:]
        found[title] = [re.split(r"\n *- ", row.strip()) for row in rows]
    return found


def written(table, gaps):
    """Return the cells as the page writes them: bold where one was missing."""
    rows = [list(table.columns)]
    columns = zip(*(_cells(table[name]) for name in table), strict=True)
    for texts, missing in zip(columns, gaps, strict=True):
        rows.append(
            [f"**{t}**" if gap else t for t, gap in zip(texts, missing, strict=True)]
        )
    return rows


def _cells(column):
    """Write the cells of a column; its numbers have the same digits."""
    if column.dtype == "category":
        return ["?" if value != value else value for value in column]
    digits = 0 if (column.dropna() % 1 == 0).all() else 1
    return ["?" if value != value else f"{value:.{digits}f}" for value in column]


@pytest.fixture(scope="module")
def names():
    [block] = CODE.findall(PAGE.read_text())
    found = {}
    exec(textwrap.dedent(block), found)
    return found


@pytest.mark.site
@pytest.mark.parametrize("title", ["Before", "After"])
def test_table_is_what_the_code_gives(title, names):
    gaps = names["before"].loc[ROWS].isna().to_numpy()
    assert gaps.any(1).all()  # each row has a missing cell
    expected = written(names[title.lower()].loc[ROWS], gaps)
    assert shown(PAGE.read_text())[title] == expected
