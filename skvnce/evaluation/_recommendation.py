"""Which imputer for a table: the rules of the page "Which imputer for which table"."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from skvnce.evaluation._user_table import percent
from skvnce.tables.checks import made_up
from skvnce.tables.column_kinds import PASSED
from skvnce.tables.row_checks import repeated
from skvnce.tables.table import listed

_LARGE = 100_000  # rows
_WIDE = 50  # columns
_FEW = 0.01  # share of missing cells of which little depends


class Recommendation(NamedTuple):
    """An imputer for a table."""

    imputer: str  # the name of its class
    code: str  # lines that fill the table ``df``, or the array ``X``
    reasons: list  # list of str: sentences
    group: int | None  # the column that names the groups of rows


def recommend(read):
    """Choose an imputer for a `UserTable`."""
    table = read.table
    modelled = [j for j, one in enumerate(table.columns) if one.kind != PASSED]
    n, d = len(table.cells), len(modelled)
    alike = Counter(one.group for one in repeated(table))
    group = max(alike, key=alike.get) if alike else None
    name, reasons = "TableImputer", []
    if group is not None:
        name = "GaussianImputer"
        reasons.append(
            f"Rows of the same {table.names[group]} are alike, as repeated "
            "measurements are: groups= gives each group an effect of its own."
        )
    elif d > n:
        reasons.append(
            "There are more columns than rows. GaussianImputer takes less time."
        )
    elif n >= _LARGE or d >= _WIDE:
        many = f"{n:,} rows" if n >= _LARGE else f"{d:,} columns"
        reasons.append(
            f"It fills the table, and its draws suit pooled analyses. With {many}, "
            "GaussianImputer takes less time."
        )
    else:
        reasons.append(
            f"With {n:,} rows, it learns nonlinear relations and products as far as "
            "held-out cells confirm them. Its draws suit pooled analyses."
        )
    left_out = [j for j in made_up(table) if j != group]
    if len(left_out) == d:  # a model needs a column
        left_out = []
    if left_out:
        names = listed([table.names[j] for j in left_out])
        reasons.append(
            f"The code leaves out what seems to name rows: {names}. Its missing cells "
            "stay missing."
        )
    code = _code(read, name, group, left_out)
    return Recommendation(name, code, reasons + _notes(table, modelled), group)


def _notes(table, modelled):
    missing = np.isnan(table.cells[:, modelled])
    if not missing.any():
        found = "No cell is missing that an imputer would fill: it is of use for new "
        return [found + "rows only."]
    if missing.mean() < _FEW:
        return [
            f"{percent(missing.mean())} of the cells are missing: the choice of the "
            "imputer matters little."
        ]
    return []


def _code(read, name, group, left_out):
    """Write the lines that fill the table; columns are left out of the model."""
    options, lines = [], [f"from skvnce import {name}"]
    asked = read.asked | {read.keys[j]: PASSED for j in left_out}
    if group is not None:
        key = read.keys[group]
        asked.pop(key, None)
        options.append(f"groups={_quoted(key)}")
        if np.isnan(read.table.passed.get(group, read.table.cells[:, group])).any():
            lines.append(_without_rows(read.library, key))
    if asked:
        pairs = [f"{_quoted(one)}: {_quoted(kind)}" for one, kind in asked.items()]
        options.append(f"categorical_features={{{', '.join(pairs)}}}")
    options.append("random_state=0")
    output, table = "", "X" if read.library == "array" else "df"
    if read.library in ("pandas", "polars"):
        output = f'.set_output(transform="{read.library}")'
    fitted = f"{name}({', '.join(options)}){output}"
    return "\n".join([*lines, f"filled = {fitted}.fit_transform({table})"])


def _without_rows(library, key):
    """Write the line that drops rows without the name of their group."""
    key = _quoted(key)
    if library == "pandas":
        return f"df = df.dropna(subset=[{key}])"
    if library == "polars":
        return f"df = df.drop_nulls({key})"
    if library == "pyarrow":
        return f"df = df.filter(df[{key}].is_valid())"
    return f"X = X[X[:, {key}] == X[:, {key}]]"


def _quoted(key):
    """Write a name or an index as Python does, in double quotes if it can be."""
    if isinstance(key, str) and key.isprintable() and not set(key) & set('"\\'):
        return f'"{key}"'
    return repr(key)
