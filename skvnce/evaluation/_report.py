"""Scores of several imputers on hidden cells of one table."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from skvnce import metrics
from skvnce._core.numbers import check_count, check_share, least_draws
from skvnce._core.warnings import without_pooling
from skvnce._tables.cells import is_frame, item, names_of
from skvnce._tables.findings import modelled_columns
from skvnce._tables.frames import column_label, reject_parts, to_floats
from skvnce._tables.mixed import check_order, columns_by_dtype, select_columns
from skvnce._tables.schema import (
    FROM_DTYPE,
    PASSED,
    asked_kinds,
    column_of_groups,
    place_of,
)
from skvnce._types import Seed
from skvnce.exceptions import TableWarning
from skvnce.metrics._forecasts import hidden_cells, positions
from skvnce.missingness import _fractions, _generator, _numbers, hide, mar, mcar
from skvnce.relations.formulas import joined_columns
from skvnce.relations.search import find_relations

# ----------------------------------------
# Imputers of this package and of scikit-learn, as the scores use them.


def fit_clone(imputer, table):
    """Fit a copy of an imputer, which returns data frames if it gets one."""
    imputer = clone(imputer)
    if is_frame(table) and hasattr(imputer, "set_output"):
        imputer.set_output(transform="pandas" if hasattr(table, "iloc") else "polars")
    return imputer.fit(table)


def draw_tables(imputer, table, n_draws, seed):
    """Draw completed tables, or return None if the imputer does not draw."""
    if not hasattr(imputer, "sample"):
        return None
    with without_pooling():
        return imputer.sample(table, n_draws=n_draws, random_state=seed)


def check_imputer(imputer, name):
    """Raise an error for an object that is not an imputer."""
    if isinstance(imputer, type) or not (
        hasattr(imputer, "fit") and hasattr(imputer, "transform")
    ):
        raise TypeError(
            f"{name} must be an estimator with fit and transform, with its parameters, "
            f"got {imputer!r}"
        )


def unfilled_by(imputers, X):
    """Return which columns stay missing: identifiers, free text, "passthrough"."""
    reject_parts(X)
    settings = {}
    for imputer in imputers:
        pairs = [
            (reader.categorical_features, getattr(reader, "groups", None))
            for reader in _readers(imputer).values()
        ]
        # by repr, because settings such as dicts have no hash
        settings |= {repr(pair): pair for pair in pairs or [(FROM_DTYPE, None)]}
    passed = np.zeros(np.shape(X)[1], dtype=bool)
    for features, groups in settings.values():
        if is_frame(X) or not isinstance(features, str) or groups is not None:
            passed[_passed(X, features, groups)] = True
    return passed


def with_slopes(imputers, X):
    """Return which columns have random slopes: none of their cells may be missing."""
    sloped, names = np.zeros(np.shape(X)[1], dtype=bool), names_of(X)
    for imputer in imputers:
        for reader in _readers(imputer).values():
            slopes = column_of_groups(getattr(reader, "groups", None)).slopes
            places = [place_of(name, names, len(sloped), "groups") for name in slopes]
            sloped[places] = 1
    return sloped


def of_columns(imputer, X, places, table):
    """Return a copy of an imputer for some columns, of the kinds that they had."""
    imputer, names = clone(imputer), names_of(X)
    labels = [names[j] for j in places] if names else list(range(len(places)))
    for prefix, reader in _readers(imputer).items():
        features = reader.categorical_features
        by_place = asked_kinds(X, np.shape(X)[1], features)
        kinds = {
            label: by_place[place]
            for label, place in zip(labels, places, strict=True)
            if place in by_place
        }
        if isinstance(features, str | dict):
            passed = _passed(table, kinds)
            kinds = dict.fromkeys([labels[k] for k in passed], "nominal") | kinds
        if kinds or not isinstance(features, str | None):
            kinds = kinds if isinstance(features, str | dict) else list(kinds)
            imputer.set_params(**{f"{prefix}categorical_features": kinds})
    return imputer


def _passed(X, features, groups=None):
    """List the columns of a table that are passed through."""
    columns = modelled_columns(X, features, groups) or ()
    return [j for j, column in enumerate(columns) if column.kind == PASSED]


def _readers(imputer):
    """Map prefixes of parameters to the models that get the kinds of columns."""
    parts = getattr(imputer, "get_params", dict)()
    readers = {"": imputer} | {f"{name}__": part for name, part in parts.items()}
    return {
        prefix: part
        for prefix, part in readers.items()
        if hasattr(part, "sample") and hasattr(part, "categorical_features")
    }


# ----------------------------------------
# Cells to hide in a table that has missing cells already.


def own_patterns(
    X: ArrayLike, fraction: float, *, random_state: Seed = None
) -> NDArray[np.bool_]:
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
    _fractions(fraction, X, missing.shape[1])
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
    names = names_of(X)  # by which `mar` knows the columns, if they have some
    drivers = [names[j] for j in drivers] if names else drivers
    return mar(X, fraction, drivers=drivers, random_state=random_state)


def whole_rows(X, fraction, *, random_state=None):
    """Choose all observed cells of some rows, such as visits of patients."""
    missing = np.isnan(_numbers(X)[0])
    _fractions(fraction, X, missing.shape[1])
    chosen = _generator(random_state).random(len(missing)) < fraction
    return ~missing & chosen[:, None]


MECHANISMS = {
    "mcar": mcar,
    "mar": by_complete_columns,
    "patterns": own_patterns,
    "rows": whole_rows,
}


def imputation_report(
    imputers: Mapping[str, Any],
    X: ArrayLike,
    *,
    mechanism: Callable[..., Any]
    | Sequence[Any]
    | Literal["mcar", "mar", "patterns", "rows"] = "mcar",
    fraction: float = 0.2,
    n_repeats: int = 3,
    n_draws: int = 20,
    level: float = 0.9,
    random_state: Seed = None,
) -> Any:
    """Compare imputers on hidden cells of a table.

    In each repetition, observed cells are hidden, all imputers are fitted to the same
    remaining cells, and their answers to the hidden cells are scored. Cells that are
    missing in ``X`` stay missing; they and dates are not scored. Neither are columns
    that one of the imputers passes through: identifiers, free text, its ``groups``,
    and those for which its ``categorical_features`` says ``"passthrough"``, nor columns
    with random slopes, nor those of which no observed cell would remain.

    Parameters
    ----------
    imputers : dict of str to estimator
        With ``fit`` and ``transform``; those with ``sample`` are scored as
        distributions, too. They are not modified. Copies of them keep empty columns
        and add no indicators.
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
    >>> imputers = {"normal": GaussianImputer(random_state=0), "mean": SimpleImputer()}
    >>> report = imputation_report(imputers, X, n_repeats=2, random_state=0)
    >>> report.groupby("imputer")["rmse"].mean().round(1).to_dict()
    {'mean': 1.0, 'normal': 0.5}
    """
    import pandas as pd

    _check_imputers(imputers)
    mechanisms = _mechanisms(mechanism)
    _check_counts(n_repeats, n_draws, level)
    rng = _generator(random_state)
    rows, visible = [], unfilled_by(imputers.values(), X)
    visible |= with_slopes(imputers.values(), X)
    related = _related_columns(X, mechanisms)
    for label, choose in mechanisms.items():
        for repeat in range(n_repeats):
            seed = int(rng.integers(2**31))
            hidden = np.array(choose(X, fraction, random_state=seed))
            if label in _JOINED:
                hidden = _joined(hidden, *related, seed)
            hidden = hidden & ~visible
            # fewer cells can look like identifiers
            hidden &= ~unfilled_by(imputers.values(), hide(X, hidden))
            hidden &= (related[1] & ~hidden).any(0)  # nothing is learned of the others
            scorer = _Scorer(X, hidden, n_draws, level, seed)
            for name, imputer in imputers.items():
                where = {"mechanism": label, "repeat": repeat, "imputer": name}
                try:
                    rows.append(where | scorer.score(imputer))
                except Exception as error:
                    error.add_note(f"Raised by the imputer {name!r}.")
                    raise
    return pd.DataFrame(rows)


_JOINED = {"mcar", "mar"}  # mechanisms that hide related columns together


def _related_columns(X, mechanisms):
    """Give columns that relations join a number in common, and find observed cells."""
    observed = ~np.isnan(_numbers(X)[0])
    number = np.arange(observed.shape[1])
    if not _JOINED.isdisjoint(mechanisms):
        number = joined_columns(find_relations(X), len(number))
    return number, observed


def _joined(hidden, number, observed, seed):
    """Hide columns that follow from each other together, as real gaps are."""
    rng = np.random.default_rng(seed)
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
        imputer = fit_clone(_of_all_columns(imputer), self.table)
        filled = imputer.transform(self.table)
        draws = draw_tables(imputer, self.table, self.n_draws, self.seed)
        probabilities, levels = draws, None
        if self.has_levels and hasattr(imputer, "category_probabilities"):
            probabilities = imputer.category_probabilities(self.table)
            levels = imputer.categories_
        seconds = perf_counter() - start
        scores = dict.fromkeys(("rmse", "crps", "coverage", "pfc", "brier"), np.nan)
        if self.has_numbers:
            scores |= self._of_numbers(filled, draws)
        if self.has_levels:
            scores |= self._of_levels(filled, probabilities, levels)
        return scores | {"seconds": seconds}

    def _of_numbers(self, filled, draws):
        X, hidden, scale = self.X, self.hidden, self.scale
        scores = {"rmse": metrics.imputation_rmse(X, filled, hidden, scale=scale)}
        if draws is not None:
            scores["crps"] = metrics.crps(X, draws, hidden, scale=scale)
            options = {"level": self.level, "ties": "shared"}
            scores["coverage"] = metrics.coverage(X, draws, hidden, **options)
        return scores

    def _of_levels(self, filled, probabilities, levels):
        X, hidden = self.X, self.hidden
        scores = {"pfc": metrics.false_classification_rate(X, filled, hidden)}
        if levels is not None:
            probabilities, levels = _with_hidden_levels(
                X, hidden, probabilities, levels
            )
        if probabilities is not None:
            scores["brier"] = metrics.brier_score(
                X, probabilities, hidden, categories=levels
            )
        return scores


def _of_all_columns(imputer):
    """Copy an imputer so that it returns the columns of the table, also empty ones."""
    names = getattr(imputer, "get_params", dict)()
    settings = {"keep_empty_features": True, "add_indicator": False}
    used = {name: value for name, value in settings.items() if name in names}
    return clone(imputer).set_params(**used) if used else imputer


def _with_hidden_levels(X, hidden, probabilities, levels):
    """Add the levels that hidden cells alone have, with probability 0."""
    tables, categories = {}, {}
    for key, shares in probabilities.items():
        [place] = positions(X, [key], "probabilities")
        listed = list(map(item, levels[key]))
        new = []
        if hidden[:, place].any():
            [cells] = hidden_cells(X, hidden, [place])
            new = [
                level for level in dict.fromkeys(cells.values) if level not in listed
            ]
        zeros = np.zeros((len(hidden), len(new)))
        tables[key] = np.column_stack([to_floats(shares, "probabilities"), zeros])
        categories[key] = listed + new
    return tables, categories


def _check_imputers(imputers):
    """Raise an error unless imputers are a dict of imputers."""
    if not isinstance(imputers, Mapping):
        raise TypeError(
            "imputers must be a dict of names to imputers, got "
            f"{type(imputers).__name__}. The table is the second argument."
        )
    if not imputers:
        raise ValueError("imputers must hold at least one imputer, got none.")
    for name, imputer in imputers.items():
        check_imputer(imputer, f"imputers[{name!r}]")


def _mechanisms(mechanism):
    """Return a dict of names to functions that choose cells."""
    listed = list(mechanism) if isinstance(mechanism, list | tuple) else [mechanism]
    chosen = {}
    for entry in listed:
        if callable(entry):
            chosen[getattr(entry, "__name__", str(entry))] = entry
        elif entry in list(MECHANISMS):  # a list, as not every entry has a hash
            chosen[entry] = MECHANISMS[entry]
    if len(chosen) < len(listed) or not chosen:  # a name is unknown, or there twice
        raise ValueError(
            f"mechanism must be some of {[*MECHANISMS]}, or functions, of different "
            f"names, got {mechanism!r}"
        )
    return chosen


def _check_counts(n_repeats, n_draws, level):
    check_count(n_repeats, "n_repeats")
    check_count(n_draws, "n_draws")
    check_share(level, "level")
    if n_draws < (least := least_draws((1 - level) / 2)):
        raise ValueError(
            f"n_draws must be at least {least} for intervals of level {level}, got "
            f"{n_draws}"
        )


# ----------------------------------------
# Scores of imputations of the cells that are missing, without their truth.
#
# An imputation is good if it makes the rows in which column j is missing like those in
# which it is observed, given the columns that are observed in both. With :math:`O_j`
# the columns that are observed wherever j is, :math:`L_j` the rows in which j is
# observed and :math:`\tilde x` the table that the imputer completes, the energy-I-score
# of Näf, Grzesiak and Scornet (2025) hides column j in the rows :math:`L_j`, lets the
# imputer learn from the columns j and :math:`O_j` of :math:`\tilde x`, and scores its
# draws :math:`x'_{ij}, x''_{ij}` of the observed cells,
#
# .. math:: S_j = \frac{1}{|L_j|} \sum_{i \in L_j} \left( E |x'_{ij} - x_{ij}|
#     - \tfrac12 E |x'_{ij} - x''_{ij}| \right). \qquad (1)
#
# The score of the imputer is the mean of :math:`S_j` with weights :math:`|L_j| \, (n -
# |L_j|) / n^2`.


class EnergyIScore(NamedTuple):
    """The result of `energy_i_score`.

    Attributes
    ----------
    score : float
        The weighted mean of the scores of columns; smaller is better.
    columns : dict of str to float
        Scores of columns with missing cells, by name or index.
    weights : dict of str to float
        Their weights.
    """

    score: float
    columns: dict[str, float]
    weights: dict[str, float]


def energy_i_score(
    imputer: Any, X: ArrayLike, *, n_draws: int = 20, random_state: Seed = None
) -> EnergyIScore:
    r"""Score an imputer by the cells that are really missing: energy-I-score.

    No cell is hidden from the imputation that is scored, and no truth is needed. The
    imputer is fitted once to ``X``, and once for each column with missing cells to a
    table of that column and :math:`O_j`, eq. (1) of this module.

    Parameters
    ----------
    imputer : estimator
        With ``fit`` and ``sample``, or with ``transform`` only, whose one table counts
        as the draws. It is not modified. Of its parameters only `categorical_features`
        may name columns.
    X : array-like or dataframe of shape (n_samples, n_features)
        A numeric or mixed table with missing cells, with two columns or more. Columns
        that the imputer passes through, as identifiers, free text and what
        ``categorical_features`` calls ``"passthrough"``, neither have a score nor
        predict others.
    n_draws : int, default=20
        Draws of each column, two or more.
    random_state : int, RandomState, Generator or None, default=None
        Source of the draws. The imputer keeps its own.

    Returns
    -------
    EnergyIScore
        In standard deviations of columns of numbers. For categories, differences of
        levels count as distances of indicators, so that (1) is the Brier score divided
        by the root of 2. The sign is opposite to that of Näf et al.: smaller is better.

    Raises
    ------
    TypeError
        If ``imputer`` is no estimator.
    ValueError
        If no cell of ``X`` is missing in a column that the imputer fills, a column of
        dates has missing cells, or ``n_draws`` is below 2.

    Notes
    -----
    The score compares imputers of one table with each other; its value says little. It
    is proper if the distribution of column j given :math:`O_j` is the same in rows
    where j is observed and where it is missing. With values missing not at random it
    prefers imputers that are as wrong as the observed cells suggest. If no column is
    observed wherever j is, the column that is observed most often there takes their
    place, and rows with j but without it are left out. Draws are scored without bias
    for any number of them (the fair score of Ferro, 2014).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.impute import SimpleImputer
    >>> from skvnce import GaussianImputer
    >>> from skvnce.evaluation import energy_i_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=300)
    >>> X[:100, 1] = np.nan
    >>> draws = energy_i_score(GaussianImputer(random_state=0), X, random_state=0)
    >>> means = energy_i_score(SimpleImputer(), X, random_state=0)
    >>> round(draws.score, 1), round(means.score, 1)
    (0.2, 0.8)
    """
    check_imputer(imputer, "imputer")
    check_count(n_draws, "n_draws")
    if n_draws == 1:
        raise ValueError("n_draws must be at least 2, got 1")
    x = _numbers(X)[0]
    observed, used = ~np.isnan(x), ~unfilled_by([imputer], X)
    scored = np.flatnonzero(used & observed.any(0) & ~observed.all(0))
    if not len(scored):
        raise ValueError(
            "X must have columns with missing and observed cells, got none; use "
            "imputation_report, which hides some"
        )
    _check_no_dates(X, scored)
    rng = _generator(random_state)
    seed = int(rng.integers(2**31))
    model = fit_clone(imputer, X)
    tables = draw_tables(model, X, 1, seed)
    completed = model.transform(X) if tables is None else tables[0]
    check_order(X, completed, "completed", "X")
    if np.shape(completed) != np.shape(X):
        raise ValueError(
            f"imputer must complete all columns of X, {np.shape(X)}, got a table of "
            f"shape {np.shape(completed)}; leave out empty columns and indicators"
        )
    columns, weights = {}, {}
    for j in scored:
        label = column_label(X, j).strip("'")
        places = [j, *_predictors(observed, j, used)]
        rows = ~observed[:, j] | observed[:, places].all(1)
        table = select_columns(completed, places)
        if is_frame(table):
            frame = nw.from_native(table, eager_only=True)
            table = frame.filter(rows.tolist()).to_native()
        else:
            table = table[rows]
        hidden = np.zeros(np.shape(table), dtype=bool)
        hidden[:, 0] = observed[rows, j]
        incomplete = hide(table, hidden)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)  # the first fit has warned
            model = fit_clone(of_columns(imputer, X, places, incomplete), incomplete)
        scale = np.std(x[observed[:, j], j])
        columns[label] = _score(model, table, hidden, scale or 1.0, n_draws, rng)
        weights[label] = float(observed[:, j].mean() * (~observed[:, j]).mean())
    score = np.average([*columns.values()], weights=[*weights.values()])
    return EnergyIScore(float(score), columns, weights)


def _predictors(observed, j, used):
    """Return the used columns observed wherever j is, or the most observed of them."""
    others = [k for k in np.flatnonzero(used) if k != j]
    counts = observed[observed[:, j]].sum(0)
    full = [k for k in others if counts[k] == counts[j]]
    return full or sorted(others, key=lambda k: -counts[k])[:1]


def _score(model, table, hidden, scale, n_draws, rng):
    """Score the first column of a table by eq. (1)."""
    incomplete = hide(table, hidden)
    columns = columns_by_dtype(table)
    draws = draw_tables(model, incomplete, n_draws, int(rng.integers(2**31)))
    if draws is None:
        # an imputer that does not draw has a distribution of one point
        draws = [model.transform(incomplete)] * n_draws
    if columns is None or columns[0].is_plain:
        scales = [scale, *np.ones(hidden.shape[1] - 1)]
        return metrics.crps(table, draws, hidden, scale=scales)
    # eq. (1) for indicators of levels, which are sqrt(2) apart
    return metrics.brier_score(table, draws, hidden) / float(np.sqrt(2))


def _check_no_dates(X, places):
    columns = columns_by_dtype(X)
    for j in places if columns else ():
        if not columns[j].is_plain and columns[j].levels is None:
            raise ValueError(
                f"Column {column_label(X, j)} has dates with missing cells, which have "
                "no score: turn them into numbers, or leave them out."
            )
