"""A report of a table with missing values, as one page."""

from numbers import Integral
from pathlib import Path
from typing import NamedTuple

from skvnce.evaluation._hidden_cells import (
    HiddenCells,
    products_in,
    score_hidden_cells,
)
from skvnce.evaluation._missing_html import fragment, page
from skvnce.evaluation._recommendation import Recommendation, recommend
from skvnce.evaluation._table_findings import (
    Patterns,
    Reasons,
    describe_columns,
    patterns_of,
    reasons_of,
    skips_of,
    warnings_of,
)
from skvnce.evaluation._user_table import read_user_table
from skvnce.missingness import _generator

_DRAWS = 19  # least number of draws whose range is an interval of 90 %


class MissingReport(NamedTuple):
    """What `missing_report` has found in a table.

    A notebook shows it as a page.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    share_missing : float
        Share of the cells that are missing.
    recommendation : Recommendation
        ``imputer`` (the name of its class), ``code``, ``reasons`` and ``group``, the
        index of the column that names the groups of rows, or None.
    warnings : list of str
        What is probably not as it seems, as `fit` warns of it, and columns of zeros and
        ones that are the levels of one category.
    columns : list of ColumnFound
        Of each column ``name``, ``kind``, ``n_missing``, ``share_missing`` and others.
    patterns : Patterns
        ``columns`` with missing cells, ``missing``, the different rows, and ``counts``
        of rows.
    reasons : Reasons
        Of its list ``found`` each item has ``name`` of a column with missing cells,
        ``by``, the column whose values tell where, ``strength``, ``p_value`` and
        ``text``.
    hidden : HiddenCells
        Its list ``columns`` has ``name``, ``n_cells``, ``gain``, ``accuracy``,
        ``usual`` and ``coverage``.
    skips : list of SkipFound
        ``names`` of columns that are never observed where the column ``by`` is
        ``level``.
    identifiers : list of Identifier
        ``name`` of columns of identifiers or free text, ``n_levels``, ``n_observed``.
    """

    shape: tuple
    share_missing: float
    recommendation: Recommendation
    warnings: list
    columns: list
    patterns: Patterns
    reasons: Reasons
    hidden: HiddenCells
    skips: list
    identifiers: list

    def to_html(self):
        """Return the page: HTML with its own style, and without scripts.

        Returns
        -------
        str
        """
        return page(self)

    def save(self, path):
        """Write the page to a file, in UTF-8.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        pathlib.Path
        """
        path = Path(path)
        # a lone surrogate, which names may have, is no text in UTF-8
        path.write_bytes(self.to_html().encode("utf-8", "replace"))
        return path

    def _repr_html_(self):
        return fragment(self)

    def __repr__(self):
        """Describe the report in a line."""
        n, d = self.shape
        return (
            f"<MissingReport of {n:,} rows and {d:,} columns: "
            f"{self.share_missing:.1%} of the cells are missing, "
            f"{self.recommendation.imputer} is recommended, "
            f"{len(self.warnings)} warnings>"
        )


def missing_report(X, *, n_draws=20, n_rows=2000, random_state=None):
    """Look at a table with missing values before it is imputed.

    The report recommends an imputer, with its code, and lists of what `fit` would warn;
    it describes the columns, patterns of missing cells, which columns tell where others
    are missing, how well hidden cells are predicted, skip patterns and columns of names
    of rows. The page has no scripts and needs no network.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table: a data frame of pandas, polars or pyarrow, or an
        array.
    n_draws : int, default=20
        Draws of each hidden cell, for its interval; 19 or more.
    n_rows : int, default=2000
        Number of rows, drawn at random, in which cells are hidden, at most.
    random_state : int, RandomState, Generator or None, default=None
        Source of samples of rows, of the hidden cells and of the draws.

    Returns
    -------
    MissingReport
        Its ``save(path)`` writes the page, and ``to_html()`` returns it.

    Raises
    ------
    TypeError
        If ``X`` is no table, or a table in parts.
    ValueError
        If ``X`` has no rows, no columns, or not two dimensions, or a number is out of
        its range.

    See Also
    --------
    imputation_report : Compares several imputers on hidden cells.
    skvnce.inspection.MissingnessDisplay : Plots patterns of missing cells.

    Notes
    -----
    The page shows names of columns and values of cells: treat it like the table.

    A tenth of the observed cells is hidden at random, and `skvnce.GaussianImputer` is
    fitted once to the others. Cells that are really missing may be harder to predict.
    Columns that tell where others are missing are tested at a level of 0.01, divided by
    the number of pairs (Bonferroni), in at most 20,000 rows. No table shows whether
    cells are missing because of their own values.

    Examples
    --------
    >>> from skvnce.datasets import load_nhanes
    >>> from skvnce.evaluation import missing_report
    >>> df = load_nhanes(as_frame=True).data
    >>> report = missing_report(df, n_rows=500, random_state=0)
    >>> report.recommendation.imputer
    'TableImputer'
    >>> report.columns[3].name, report.columns[3].n_missing
    ('Weight', 43)
    >>> page = report.to_html()  # or report.save("report.html")
    """
    _check(n_draws, "n_draws", _DRAWS)
    _check(n_rows, "n_rows", 1)
    rng = _generator(random_state)
    read = read_user_table(X)
    recommendation = recommend(read)
    skips, identifiers = skips_of(read)
    hidden = score_hidden_cells(read, recommendation.group, n_rows, n_draws, rng)
    if recommendation.imputer == "TableImputer":
        reasons = recommendation.reasons + products_in(read, n_rows, rng)
        recommendation = recommendation._replace(reasons=reasons)
    return MissingReport(
        shape=read.table.cells.shape,
        share_missing=float(read.missing.mean()),
        recommendation=recommendation,
        warnings=warnings_of(read),
        columns=describe_columns(read),
        patterns=patterns_of(read),
        reasons=reasons_of(read, rng),
        hidden=hidden,
        skips=skips,
        identifiers=identifiers,
    )


def _check(value, name, least):
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{name} must be an integer of at least {least}, got {value!r}"
        )
