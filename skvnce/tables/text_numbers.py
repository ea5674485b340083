"""Numbers that are text: "12", and "1,5" with a decimal comma."""

import re

from skvnce._grids import MOST_CODES
from skvnce.tables.column_kinds import Column
from skvnce.tables.table import Table, listed

_FORM = r"\s*[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?\s*"


def number_in(text: str) -> float | None:
    """Return the number that a text is, or None."""
    if re.fullmatch(_FORM, text, re.IGNORECASE | re.ASCII):
        return float(text.replace(",", "."))
    return None


def is_measurement(text: str) -> bool:
    """Return whether a text is a number, and no code, which begins with zeros."""
    return number_in(text) is not None and not re.match(r"\s*0\d", text)


def numbers_as_text(table: Table) -> list[str]:
    """Find nominal columns whose levels are numbers as text."""
    places = [place for place, one in enumerate(table.columns) if _is_text(one)]
    if not places:
        return []
    found = [f"{table.names[k]} ({table.columns[k].levels[0]!r}, ...)" for k in places]
    return [
        f"Numbers that are text: {listed(found)}. Each is a level of a nominal column, "
        "and the model knows nothing of their order. Make them numbers before fit, by "
        "pandas.to_numeric(df[column]), or, if they have a decimal comma, by "
        'pandas.read_csv(..., decimal=","). If they are codes, begin them with '
        "letters."
    ]


def _is_text(column: Column) -> bool:
    """Return whether all levels are numbers as text, and are no codes or classes.

    Of few whole numbers, users have often made text because they are classes, and
    codes such as those of areas begin with zeros.
    """
    levels = column.levels or ()
    if column.kind != "nominal" or not all(isinstance(one, str) for one in levels):
        return False
    if any(re.match(r"\s*0\d", one) for one in levels):
        return False
    numbers = [number_in(one) for one in levels]
    if None in numbers or len(numbers) < 2:
        return False
    return len(numbers) > MOST_CODES or any(one % 1 for one in numbers)
