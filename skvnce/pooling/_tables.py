"""Pooled models side by side, as they are printed in a paper."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from skvnce._core.numbers import check_count
from skvnce.pooling._rules import Pooled, in_short

_COLUMNS = ("coef", "interval", "p", "FMI")
_MOST_DECIMALS = 10  # from which on numbers have an exponent
_BELOW = ("rows (n)", "tables (m)")


class PooledTable(NamedTuple):
    r"""The result of `pooled_table`; notebooks show it, and ``print`` too.

    Attributes
    ----------
    cells : pandas.DataFrame
        Of rounded text: a row for each coefficient, and the numbers of rows and of
        completed tables. If models have names, those are a first level of columns.
    note : str
        What belongs below the table.

    Examples
    --------
    >>> from skvnce.pooling import pool, pooled_table
    >>> pooled = pool([[0.6], [0.8], [0.7]], [[0.04]] * 3, names=["dose"])
    >>> table = pooled_table({"crude": pooled}, columns=("coef", "interval"))
    >>> print(table.to_latex())  # doctest: +ELLIPSIS
    \begin{table}
    \caption{Pooled from 3 completed tables (m).}
    ...
    dose & 0.70 & 0.23 to 1.17 \\
    tables (m) & 3 &  \\
    ...
    """

    cells: Any
    note: str

    def to_markdown(self) -> str:
        """Return Markdown, by pandas and tabulate."""
        cells = self.cells.copy()
        if cells.columns.nlevels > 1:
            cells.columns = [": ".join(map(str, names)) for names in cells.columns]
        cells = cells.rename(lambda name: str(name).replace("|", "\\|"))
        cells.columns = cells.columns.str.replace("|", "\\|")
        align = ["left", *["right"] * cells.shape[1]]
        text = cells.to_markdown(disable_numparse=True, colalign=align)
        return f"{text}\n\n{self.note}"

    def to_latex(self) -> str:
        """Return LaTeX with the rules of booktabs, by pandas and Jinja2."""
        align = "l" + "r" * self.cells.shape[1]
        text = self._styled("latex").to_latex(hrules=True, column_format=align)
        return text.replace("& <", "& $<$")  # of p-values

    def to_html(self) -> str:
        """Return HTML, by pandas and Jinja2."""
        return self._styled("html").to_html()

    def _styled(self, escape):
        styled = self.cells.style.format(escape=escape).set_caption(self.note)
        for axis in (0, 1):
            styled = styled.format_index(escape=escape, axis=axis)
        return styled

    _repr_html_ = to_html

    def __repr__(self):
        """Format the cells and the note."""
        return f"{self.cells.to_string()}\n{self.note}"

    __str__ = __repr__


def pooled_table(
    models: Pooled | Mapping[str, Pooled],
    *,
    columns: Sequence[str] = _COLUMNS,
    level: float = 0.95,
    exponentiate: bool = False,
    digits: int = 2,
) -> PooledTable:
    """Set pooled models side by side for print; needs pandas.

    Parameters
    ----------
    models : Pooled, or dict of str to Pooled
        Models by the names that their columns get.
    columns : sequence of str, default=("coef", "interval", "p", "FMI")
        For each model, some of these. ``"FMI"`` is the fraction of missing information.
    level : float, default=0.95
        Of the intervals, in (0, 1).
    exponentiate : bool, default=False
        Whether to show ratios, as in `Pooled.summary`.
    digits : int, default=2
        Significant digits of standard errors. Coefficients and intervals get as many
        decimals as these have.

    Returns
    -------
    PooledTable
        With ``to_markdown``, ``to_latex`` and ``to_html``.

    Examples
    --------
    >>> from skvnce.pooling import pool, pooled_table
    >>> names, variances = ["age", "dose"], [[0.01, 2]] * 3
    >>> a = pool([[1.0, 9], [1.2, 7], [1.1, 8]], variances, names=names)
    >>> b = pool([1.0, 1.2, 1.1], [0.02, 0.03, 0.02], names=["age"])
    >>> models = {"both": a, "age": b}
    >>> pooled_table(models, columns=["coef"])  # doctest: +NORMALIZE_WHITESPACE
                both   age
                coef  coef
    age         1.10  1.10
    dose         8.0
    tables (m)     3     3
    Pooled from 3 completed tables (m).
    """
    import pandas as pd

    is_single = isinstance(models, Pooled)
    models = {"": models} if is_single else models
    values = models.values() if isinstance(models, Mapping) else [models]
    wrong = [type(value).__name__ for value in values if not isinstance(value, Pooled)]
    if wrong or not models:
        raise TypeError(
            "models must be a result of pool or pool_models, or a dict of them, got "
            f"{wrong[0] if wrong else 'an empty dict'}."
        )
    is_list = isinstance(columns, list | tuple) and len(columns) > 0
    if not is_list or not all(column in _COLUMNS for column in columns):
        raise ValueError(f"columns must be some of {_COLUMNS}, got {columns!r}.")
    check_count(digits, "digits")
    parts = {
        (name, title): cells
        for name, model in models.items()
        for title, cells in _texts(model, columns, level, exponentiate, digits)
    }
    terms = dict.fromkeys(term for part in parts.values() for term in part.index)
    cells = pd.DataFrame({place: part.reindex(terms) for place, part in parts.items()})
    below = pd.DataFrame("", list(_BELOW), cells.columns)
    for name, model in models.items():
        counts = (model.n_samples, model.n_draws)
        first = next(place for place in cells if place[0] == name)
        below[first] = ["" if count is None else str(count) for count in counts]
    below = below[(below != "").any(axis=1)]
    cells = pd.concat([cells, below]).fillna("")
    if is_single:
        cells.columns = cells.columns.get_level_values(1)
    return PooledTable(cells, _note(models.values(), columns))


def _texts(model, columns, level, exponentiate, digits):
    """Yield the title of each column, and a Series of its texts by term."""
    import pandas as pd

    summary = model.summary(level, exponentiate=exponentiate)
    coef = summary.columns[0]  # "coef" or "exp(coef)"
    # as many decimals as the standard error needs for its digits
    with np.errstate(divide="ignore"):  # a ratio may be 0 or infinite
        decimals = digits - 1 - np.floor(np.log10(summary["se"]))
    decimals = decimals.clip(0, _MOST_DECIMALS).astype(int)

    def rounded(name):
        return list(map(_rounded, summary[name], decimals))

    ends = zip(rounded("low"), rounded("high"), strict=True)
    texts = {
        "coef": (coef, rounded(coef)),
        "interval": (f"{100 * level:g} % interval", [f"{a} to {b}" for a, b in ends]),
        "p": ("p", [in_short("p", p) for p in summary["p"]]),
        "FMI": ("FMI", [f"{share:.2f}" for share in summary["missing_information"]]),
    }
    for column in columns:
        title, cells = texts[column]
        yield title, pd.Series(cells, summary.index)


def _rounded(value, decimals):
    is_plain = abs(value) < 1e6 and decimals < _MOST_DECIMALS
    return f"{value:.{decimals}f}" if is_plain else f"{value:.3g}"


def _note(models, columns):
    """Write a note on the number of tables and the meaning of the columns."""
    counts = sorted({model.n_draws for model in models})
    note = f"Pooled from {' or '.join(map(str, counts))} completed tables (m)."
    return note + " FMI: fraction of missing information." * ("FMI" in columns)
