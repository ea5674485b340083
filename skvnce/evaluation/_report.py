"""Scores of several imputers on hidden cells of one table."""

from numbers import Integral, Real
from time import perf_counter

import numpy as np

from skvnce import metrics
from skvnce._tables.mixed import columns_by_dtype
from skvnce.evaluation._imputers import (
    check_imputer,
    drawn,
    fitted,
    unfilled_by,
    with_slopes,
)
from skvnce.missingness import _fractions, _generator, _numbers, hide, mar, mcar
from skvnce.relations.search import find_relations, joined_columns

# ----------------------------------------
# Cells to hide in a table that has missing cells already.


def own_patterns(X, fraction, *, random_state=None):
    """Choose cells by the patterns of the table's own rows.

    Some rows each get the missing cells of another row, drawn from those with missing
    cells: what is missing together in the table is then hidden together. The share of
    such rows is chosen such that the expected share of hidden cells is ``fraction``.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table with missing cells.
    fraction : float
        Expected fraction of the observed cells to hide, in [0, 1). Less is hidden if
        otherwise a column would lose more than half of its observed cells.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    hidden : ndarray of bool of shape (n_samples, n_features)
        True at the cells to hide, which are observed.

    Raises
    ------
    ValueError
        If no cell of ``X`` is missing, or all cells of each incomplete row are.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce.evaluation import own_patterns
    >>> X = np.ones((100, 3))
    >>> X[:10, :2] = np.nan
    >>> hidden = own_patterns(X, 0.2, random_state=0)
    >>> np.unique(hidden, axis=0)
    array([[False, False, False],
           [ True,  True, False]])
    """
    missing = np.isnan(_numbers(X)[0])
    _fractions(fraction, missing.shape[1])
    donors = missing[missing.any(1) & ~missing.all(1)]
    if not len(donors):
        raise ValueError(
            "X must have rows with missing and observed cells, whose patterns are "
            "hidden, got none; use mcar or mar"
        )
    rng = _generator(random_state)
    hidden = donors[rng.integers(len(donors), size=len(missing))] & ~missing
    rates = donors.mean(0)  # of a column, were all rows chosen
    expected = (rates * (~missing).sum(0)).sum() / (~missing).sum()
    # no column is to lose more than half of its cells
    share = min(fraction / expected, 0.5 / rates.max(), 1) if expected else 0.0
    return hidden & (rng.random(len(missing)) < share)[:, None]


def by_complete_columns(X, fraction, *, random_state=None):
    """Choose cells by `mar`, given at most a third of the columns, complete ones."""
    missing = np.isnan(_numbers(X)[0])
    complete = np.flatnonzero(~missing.any(0))
    if not len(complete):
        raise ValueError(
            "mechanism 'mar' needs a column of X without missing cells, which decides "
            "what is hidden, got none; use 'mcar' or 'patterns'"
        )
    drivers = complete[: -(-missing.shape[1] // 3)]
    if len(drivers) == missing.shape[1]:
        raise ValueError("mechanism 'mar' needs two columns or more; use 'mcar'")
    return mar(X, fraction, drivers=drivers, random_state=random_state)


def whole_rows(X, fraction, *, random_state=None):
    """Choose all observed cells of some rows, such as visits of patients."""
    missing = np.isnan(_numbers(X)[0])
    _fractions(fraction, missing.shape[1])
    chosen = _generator(random_state).random(len(missing)) < fraction
    return ~missing & chosen[:, None]


MECHANISMS = {
    "mcar": mcar,
    "mar": by_complete_columns,
    "patterns": own_patterns,
    "rows": whole_rows,
}


# ----------------------------------------
# Scores of several imputers on hidden cells of one table.


def imputation_report(
    imputers,
    X,
    *,
    mechanism="mcar",
    fraction=0.2,
    n_repeats=3,
    n_draws=20,
    level=0.9,
    random_state=None,
):
    """Compare imputers on hidden cells of a table.

    In each repetition, observed cells are hidden, all imputers are fitted to the same
    remaining cells, and their answers to the hidden cells are scored. Cells that are
    missing in ``X`` stay missing; they and dates are not scored. Neither are columns
    that one of the imputers passes through: identifiers, free text, its ``groups``,
    and those for which its ``categorical_features`` says ``"passthrough"``, nor columns
    with random slopes.

    Parameters
    ----------
    imputers : dict of str to estimator, or list of estimators
        With ``fit`` and ``transform``; those with ``sample`` are scored as
        distributions, too. A list is named by the classes. They are not modified.
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table, with or without missing cells.
    mechanism : {"mcar", "mar", "patterns", "rows"}, callable, or list of these, \
            default="mcar"
        Which cells are hidden: completely at random (`skvnce.missingness.mcar`); at
        random given columns without missing cells (`skvnce.missingness.mar`); or by the
        patterns of the table's own rows (`own_patterns`); or all cells of some rows,
        but for columns that are passed through. Columns that follow from each other
        (`find_relations`) are hidden together by the first two. A function is called as
        ``mechanism(X, fraction, random_state=seed)``.
    fraction : float, default=0.2
        Expected fraction of the observed cells to hide.
    n_repeats : int, default=3
        Repetitions for each mechanism.
    n_draws : int, default=20
        Draws of those that draw; at least ``2 / (1 - level) - 1``.
    level : float, default=0.9
        Of the intervals whose coverage is reported.
    random_state : int, RandomState, Generator or None, default=None
        Source of the hidden cells and of the draws. Imputers keep their own.

    Returns
    -------
    pandas.DataFrame
        A row for each mechanism, repetition and imputer. Columns: ``mechanism``,
        ``repeat``, ``imputer``; of numbers, in standard deviations of their columns,
        ``rmse`` of ``transform``, ``crps`` and ``coverage`` of the draws; of
        categories ``pfc``, the share of false levels, and ``brier``, of
        ``category_probabilities`` or else of the draws; and ``seconds`` of fitting,
        filling and drawing. Scores that an imputer or a table does not have are NaN.

    Raises
    ------
    TypeError
        If an imputer is no estimator with ``fit`` and ``transform``.
    ValueError
        If a parameter is out of its range, or ``X`` has no column that the mechanism
        needs.

    See Also
    --------
    energy_i_score : Needs no hidden cells.
    skvnce.inspection.ReportDisplay : Plot of the report.

    Notes
    -----
    Ranks by ``rmse`` favour conditional means, and ranks by ``crps``, ``brier`` and
    ``coverage`` the right distribution. What is hidden here is not what is missing:
    if cells are missing for other reasons than those of ``mechanism``, the scores need
    not hold for them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.impute import SimpleImputer
    >>> from skvnce import GaussianImputer
    >>> from skvnce.evaluation import imputation_report
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=300)
    >>> imputers = [GaussianImputer(random_state=0), SimpleImputer()]
    >>> report = imputation_report(imputers, X, n_repeats=2, random_state=0)
    >>> report.groupby("imputer")["rmse"].mean().round(1).to_dict()
    {'GaussianImputer': 0.5, 'SimpleImputer': 1.0}
    """
    import pandas as pd

    imputers = _named(imputers)
    mechanisms = _mechanisms(mechanism)
    _check_counts(n_repeats, n_draws, level)
    rng = _generator(random_state)
    rows, kept = [], unfilled_by(imputers.values(), X)
    kept |= with_slopes(imputers.values(), X)
    for label, choose in mechanisms.items():
        for repeat in range(n_repeats):
            seed = int(rng.integers(2**31))
            hidden = np.array(choose(X, fraction, random_state=seed))
            if label in ("mcar", "mar"):
                hidden = _joined(X, hidden, seed)
            hidden = hidden & ~kept
            # fewer cells can look like identifiers
            hidden &= ~unfilled_by(imputers.values(), hide(X, hidden))
            scorer = _Scorer(X, hidden, n_draws, level, seed)
            for name, imputer in imputers.items():
                where = {"mechanism": label, "repeat": repeat, "imputer": name}
                try:
                    rows.append(where | scorer.score(imputer))
                except Exception as error:
                    error.add_note(f"Raised by the imputer {name!r}.")
                    raise
    return pd.DataFrame(rows)


def _joined(X, hidden, seed):
    """Hide columns that follow from each other together, as real gaps are."""
    rng, observed = np.random.default_rng(seed), ~np.isnan(_numbers(X)[0])
    number = joined_columns(find_relations(X), hidden.shape[1])
    for first in np.unique(number):
        # those that decide what is missing at random stay complete
        columns = np.flatnonzero((number == first) & hidden.any(0))
        if len(columns):  # by the cells of one of them, so that the share stays
            hidden[:, columns] = hidden[:, [rng.choice(columns)]]
    return hidden & observed


class _Scorer:
    """Scores of imputers on one choice of hidden cells."""

    def __init__(self, X, hidden, n_draws, level, seed):
        self.X, self.hidden, self.table = X, hidden, hide(X, hidden)
        self.n_draws, self.level, self.seed = n_draws, level, seed
        columns = columns_by_dtype(X)
        x = _numbers(X)[0]
        if columns is None:
            plain, levels = np.ones(x.shape[1], bool), np.zeros(x.shape[1], bool)
        else:
            plain = np.array([column.is_plain for column in columns])
            levels = np.array([column.levels is not None for column in columns])
        if not hidden.any():
            raise ValueError("No cell was hidden: raise fraction, or pass more rows.")
        self.has_numbers = bool(hidden[:, plain].any())
        self.has_levels = bool(hidden[:, levels].any())
        # nanstd warns of columns without a cell
        sd = np.nanstd(np.where(np.isnan(x).all(0), 0.0, x), axis=0)
        self.scale = np.where(plain & (sd > 0), sd, 1.0)

    def score(self, imputer):
        """Fit one imputer and score it."""
        start = perf_counter()
        imputer = fitted(imputer, self.table)
        filled = imputer.transform(self.table)
        draws = drawn(imputer, self.table, self.n_draws, self.seed)
        given = draws
        if self.has_levels and hasattr(imputer, "category_probabilities"):
            given = imputer.category_probabilities(self.table)
        seconds = perf_counter() - start
        found = dict.fromkeys(("rmse", "crps", "coverage", "pfc", "brier"), np.nan)
        if self.has_numbers:
            found |= self._of_numbers(filled, draws)
        if self.has_levels:
            found |= self._of_levels(filled, given)
        return found | {"seconds": seconds}

    def _of_numbers(self, filled, draws):
        args = self.X, self.hidden
        found = {"rmse": _call(metrics.imputation_rmse, args, filled, scale=self.scale)}
        if draws is not None:
            found["crps"] = _call(metrics.crps, args, draws, scale=self.scale)
            options = {"level": self.level, "ties": "shared"}
            found["coverage"] = _call(metrics.coverage, args, draws, **options)
        return found

    def _of_levels(self, filled, given):
        args = self.X, self.hidden
        found = {"pfc": _call(metrics.false_classification_rate, args, filled)}
        if given is not None:
            found["brier"] = _call(metrics.brier_score, args, given)
        return found


def _call(metric, args, answer, **options):
    X, hidden = args
    return metric(X, answer, hidden, **options)


def _named(imputers):
    """Return a dict of names to imputers."""
    if not isinstance(imputers, dict):
        listed = list(imputers) if isinstance(imputers, list | tuple) else [imputers]
        names = [type(one).__name__ for one in listed]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(
                f"imputers has several of the class {min(repeated)}: pass a dict of "
                "names to imputers"
            )
        imputers = dict(zip(names, listed, strict=True))
    if not imputers:
        raise ValueError("imputers must hold at least one imputer, got none")
    for name, imputer in imputers.items():
        check_imputer(imputer, f"imputers[{name!r}]")
    return imputers


def _mechanisms(mechanism):
    """Return a dict of names to functions that choose cells."""
    listed = list(mechanism) if isinstance(mechanism, list | tuple) else [mechanism]
    chosen = {}
    for one in listed:
        if callable(one):
            chosen[getattr(one, "__name__", "callable")] = one
        elif one in MECHANISMS:
            chosen[one] = MECHANISMS[one]
        else:
            raise ValueError(
                f"mechanism must be one of {[*MECHANISMS]}, a function or a list of "
                f"these, got {one!r}"
            )
    if len(chosen) != len(listed) or not chosen:
        raise ValueError(f"mechanism must be different mechanisms, got {mechanism!r}")
    return chosen


def _check_counts(n_repeats, n_draws, level):
    for value, name in ((n_repeats, "n_repeats"), (n_draws, "n_draws")):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
    # rounded, because 2 / (1 - 0.9) is slightly above 20
    least = int(np.ceil(round(2 / (1 - level), 9))) - 1
    if n_draws < least:
        raise ValueError(
            f"n_draws must be at least {least} for intervals of level {level}, got "
            f"{n_draws}"
        )
