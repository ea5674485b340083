"""An imputer of tables whose columns satisfy equations."""

from collections.abc import Mapping
from itertools import chain
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from skvnce._core.random import seed_from
from skvnce._imputer import validation
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._tables.cells import is_frame, names_of
from skvnce._tables.schema import Encoded
from skvnce._tables.values import NO_LIMITS
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.columns.wrapper import PASSED_ON, ByModel
from skvnce.relations.closure import closed
from skvnce.relations.columns import Bounds, describe
from skvnce.relations.expressions import Expression, sum_of
from skvnce.relations.formulas import Checked
from skvnce.relations.obeying import EXACT, Filled, is_near, obeyed, which_hold

# ----------------------------------------
# Equations of the user between the columns of a table; see `skvnce.relations`.


class Facts(NamedTuple):
    """Units and signs of the columns, by the training rows."""

    bounds: Bounds  # with units of whole columns, and ends that allow all numbers
    ranges: np.ndarray  # (2, n_features), 0 at the ends of columns without both signs


class Equations(NamedTuple):
    """All equations of a table, and the facts about their columns."""

    rules: list[Checked]  # the first column of each is a function of the others
    labels: list[str]  # of these columns
    bounds: Bounds  # see `Facts`
    ranges: np.ndarray

    @property
    def used(self):
        """List the columns of all equations."""
        return sorted({j for equation in self.rules for j in equation.rule.columns})

    def deduced(self, table, rtol):
        """Fill the cells that follow from others of their row; (n, n_features).

        `rtol` is the largest relative error of an equation between observed cells.
        Raises ValueError if the cells of a row contradict an equation.
        """
        table = table.astype(np.float64)
        filled = closed(Bounds.none(table.shape[1]), table, self.rules)
        for label, equation in zip(self.labels, self.rules, strict=True):
            self._check_solved(label, equation.rule, table, filled, rtol)
        inside = self.snapped(filled.clip(*self.ranges), slice(None))
        filled = np.where(np.isnan(table), inside, table)
        for label, equation in zip(self.labels, self.rules, strict=True):
            part = filled[:, equation.rule.columns]
            rows = np.flatnonzero(~np.isnan(part).any(1))
            wrong = rows[~is_near(equation.rule, part[rows], max(rtol, EXACT))]
            if len(wrong):
                row, part = wrong[0], part[wrong[:1]]
                value = equation.rule.solve(part, 0)[0]
                raise ValueError(
                    f"Row {row} of X contradicts the equation of {label}: it has "
                    f"{part[0, 0]:g}, but its other columns give {value:g}. Correct "
                    "the row, mark a cell as missing, or raise rtol if values are "
                    "rounded."
                )
        return filled

    def enforced(self, tables, missing, fixed=()):
        """Move cells that were missing until the equations hold; tables are modified.

        Columns in `fixed` are moved only in rows where the others do not suffice.
        Raises ValueError if the equations of a row cannot be satisfied.
        """
        rows = np.flatnonzero(missing[:, self.used].any(1))
        values = tables[:, rows].reshape(-1, tables.shape[2]).astype(np.float64)
        free = np.tile(missing[rows], (len(tables), 1))
        ranges = self.ranges[:, None].repeat(len(values), 1)
        cells = Filled(values, free, ranges, values)
        values, hold = obeyed(self.bounds, self.rules, cells, fixed)
        unsatisfied = np.flatnonzero(~hold)
        if len(unsatisfied):
            name = rows[unsatisfied[0] % len(rows)]
            self._reject(values[unsatisfied[:1]], free[unsatisfied[:1]], name)
        tables[:, rows] = values.reshape(len(tables), len(rows), tables.shape[2])
        return tables

    def _reject(self, row, free, name):
        """Raise an error for a row (1, n_features) whose equations do not hold."""
        holds = which_hold(self.bounds, self.rules, row, free)[0]
        for label, equation, good in zip(self.labels, self.rules, holds, strict=True):
            rule = equation.rule
            if not rule.is_sum and not good:
                is_nan = np.isnan(rule.solve(row[:, rule.columns], 0)[0])
                say = _is_nan if is_nan else _has_no_solution
                raise ValueError(say(label, name))
        raise ValueError(
            f"The equations of row {name} of X cannot be satisfied together by its "
            "missing cells, without a change of sign. Correct the row, or mark more of "
            "its cells as missing."
        )

    def _check_solved(self, label, rule, table, filled, rtol):
        """Raise an error for rows whose cells an equation does not give."""
        columns = list(rule.columns)
        new, part = np.isnan(table[:, columns]), filled[:, columns]
        unsolved = np.isnan(part)
        unsolved &= unsolved.sum(1, keepdims=True) == 1
        # the model fills cells of which any value satisfies the equation
        usual = np.where(np.isnan(part), self.bounds.middle[columns], part)
        unsolved &= ~is_near(rule, usual, EXACT)[:, None]
        if unsolved[:, 0].any():
            raise ValueError(_is_nan(label, unsolved[:, 0].argmax()))
        slack = rtol * np.nan_to_num(abs(part)).max(1, keepdims=True)
        low, high = self.ranges[:, columns]
        outside = (part < low - slack) | (part > high + slack) | np.isinf(part)
        wrong = (unsolved | (new & outside)).any(1)
        if wrong.any():
            raise ValueError(_has_no_solution(label, wrong.argmax()))

    def snapped(self, cells, places):
        """Round cells (..., n_places) of whole columns that errors of floats move."""
        rounded = np.round(cells)
        # rounding of float32 exceeds EXACT
        error = max(EXACT, 8 * np.finfo(cells.dtype).eps)
        near = abs(cells - rounded) <= error * np.maximum(abs(rounded), 1.0)
        return np.where((self.bounds.unit[places] == 1) & near, rounded, cells)


def _is_nan(label, name):
    """Say that a derived column is NaN."""
    return (
        f"{label} is NaN in row {name} of X, by the function of derived. It must be a "
        "number for all values of its columns."
    )


def _has_no_solution(label, name):
    """Say that no value of a cell satisfies an equation."""
    return (
        f"The equation of {label} has no solution in row {name} of X, or one with a "
        "sign that no observed cell has. Correct the row, or mark more of its cells "
        "as missing."
    )


# ----------------------------------------
# An imputer of tables whose columns satisfy equations.


class ConstrainedImputer(CallbackSupportMixin, ByModel):
    """Impute columns that are sums or functions of others, without contradictions.

    A body mass index follows from weight and height, and a total from its parts.  An
    imputer that does not know this fills rows that contradict themselves.  This one
    computes the cells that follow from the others of their row, before `model` is
    fitted.  `model` fills or draws the other missing cells, and they are then moved
    until all equations hold.  Observed cells never change.

    Parameters
    ----------
    model : imputer of this package or None, default=None
        What fills the cells that do not follow from others.  It learns from all
        columns, the derived ones too, so that an observed total informs its missing
        parts.  It decides how columns are read, and what marks missing cells.  None is
        ``GaussianImputer()``.
    derived : dict or None, default=None
        Columns that are functions of others: ``{"bmi": (function, ["weight",
        "height"])}``.  The function is called with an array of floats (n_rows,) for
        each of the listed columns, and returns such an array.  Keys are column names,
        or indices if X has no names.
    sums : dict or None, default=None
        Columns that are sums of others: ``{"total": ["food", "rent", "other"]}``.
    rtol : float, default=1e-6
        Largest relative error of an equation between observed cells; raise it if they
        are rounded.  Equations of filled cells hold up to rounding errors of floats.
    missing_values, keep_empty_features, add_indicator, categorical_features, \
            handle_unknown : default=None
        Parameters of `model`; None leaves those of `model`.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of `fit`; replaces the `random_state` of `model`.
    verbose : int, default=0
        If 1, print a line for each step of `transform` and `sample` that takes longer
        than a second.  If 2, print all steps.  Lines on the fit are those of `model`.

    Attributes
    ----------
    model_ : imputer
        The fitted imputer.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that `model_` uses: those with at least two
        different values that are observed or follow from others.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest value that `model_` imputes in each column.  Cells that are
        moved may leave it.
    categories_ : dict of str to ndarray
        The levels of each column of categories.  Only if there are categories.
    indicator_ : MissingIndicator or None
        The indicator of `model_`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    See Also
    --------
    TableImputer : Finds equations in the table by itself.

    Notes
    -----
    The columns of equations must be numbers.  A missing cell that is the only one of
    its equation is solved for.  In a row with more of them, `model_` fills all, and
    then the equations are satisfied in turn: a missing total or derived cell is
    computed; missing parts of an observed total move to the nearest values with this
    sum, in units of their standard deviations, or in proportion where one would change
    its sign; and of the missing cells that an observed derived cell depends on, the
    last one listed is solved for, by bisection near its filled value.  Where that
    fails, because equations have columns in common, all missing cells of the row move
    together, by the shortest steps to a solution, in the same units.  Columns without a
    negative observed cell keep their sign, and sums of columns of integers are sums of
    integers.  Whole numbers stay whole where cells of other columns, or a missing
    total, satisfy the equation; else floats become fractions, and integer data types,
    which hold none, are rounded, so that the equation holds only approximately.  It is
    how imputers keep the relations that they find.  Moved cells are not draws from the
    model given the equation; they are close to it if the model has learned the equation
    from complete rows.  Bounds of `model` do not restrict moved cells.  `sample` warns
    that draws are for filling if those of `model` are.

    Rows of observed cells that contradict an equation are errors of `fit`, `transform`
    and `sample`.  Quantiles of `interval` and `quantile` are those of each cell alone.
    A `shift` acts before the equations, which may move cells back: `sample` warns of
    columns whose cells then move by less than three quarters of the shift.

    `n_jobs` and `on_misfit` are parameters of `model`, as far as it has them.  If there
    is a torch module, it is that of `model_`.

    References
    ----------
    van Buuren (2018), Flexible imputation of missing data, section 6.4, derived
    variables.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import ConstrainedImputer
    >>> rng = np.random.default_rng(0)
    >>> parts = rng.gamma(4.0, size=(100, 3))
    >>> X = np.column_stack([parts, parts.sum(1)])
    >>> X[rng.random(X.shape) < 0.3] = np.nan
    >>> imputer = ConstrainedImputer(sums={3: [0, 1, 2]}, random_state=0).fit(X)
    >>> [table] = imputer.sample(X, random_state=0)
    >>> bool(np.allclose(table[:, 3], table[:, :3].sum(1)))
    True
    """

    _parameter_constraints = {
        "model": [None, Imputer],
        "derived": [dict, None],
        "sums": [dict, None],
        "rtol": [validation.Number(Real, 0, None, closed="left")],
        **PASSED_ON,
        "random_state": validation.RANDOM_STATE,
        "verbose": ["verbose"],
    }
    _is_for_filling = property(lambda self: self.model_._is_for_filling)

    def __init__(
        self,
        model: Any = None,
        *,
        derived: Mapping[Any, Any] | None = None,
        sums: Mapping[Any, Any] | None = None,
        rtol: float = 1e-6,
        missing_values: Any = None,
        keep_empty_features: bool | None = None,
        add_indicator: bool | None = None,
        categorical_features: ByColumn | None = None,
        handle_unknown: Literal["error", "missing"] | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.derived = derived
        self.sums = sums
        self.rtol = rtol
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: TableLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Compute the cells that follow from others, and fit `model`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies of the rows, for `fit` of the other imputer.

        Returns
        -------
        self : ConstrainedImputer

        Raises
        ------
        ValueError
            If a row contradicts an equation, if an equation names unknown columns, or
            as `fit` of the other imputer does.
        TypeError
            If a parameter has a wrong type, if a column of an equation has no numbers,
            or if the other imputer takes no weights.
        """
        return self._publish(self._new()._fit(X, sample_weight))

    @reports_fit
    def _fit(self, X, sample_weight):
        """Fit a copy without `model_`, whose parameters say how columns are read."""
        self._check_parameters()
        validation.needs_memory(type(self), X, reset=True)
        rng = np.random.default_rng(seed_from(self.random_state))
        self._check_names(X)
        cells, schema = validation.read_table(self, X, weights=sample_weight)
        _, finish = report_rounds(self, None, X=cells)
        facts = self._facts_of(schema, cells)
        equations = self._equations_of(schema, facts)
        solved = equations.deduced(cells, self.rtol).astype(cells.dtype)
        self._check_cells(schema, solved)
        model = self._fit_model(rng, Encoded(solved, schema), sample_weight)
        values = model._schema.values._replace(integers=facts.bounds.unit == 1)
        finish()
        schema = model._schema._replace(values=values)
        return Fitted(schema, facts, self._report_of(model))

    def _predicted(self, X, limits=NO_LIMITS):
        solved = self._solved(X)
        predicted = self.model_._predicted(solved)
        missing = np.isnan(solved)  # the model clips other cells, too
        filled = np.where(missing, predicted.filled, solved)
        filled = self._equations().enforced(filled[None], missing)[0]
        return predicted._replace(filled=filled)

    def _without_equations(self):
        return self._without_training(derived=None, sums=None)

    def _models_of_draws(self, n_draws, rows=None):
        return self.model_._models_of_draws(n_draws, rows)

    def _drawn_tables(self, X, n_draws, random_state, limits=NO_LIMITS):
        solved = self._solved(X)
        drawn = self.model_._drawn_tables(solved, n_draws, random_state)
        return self._enforced(drawn, solved)

    def _drawn_shifted(self, X, n_draws, seed, shift, rows=slice(None)):
        solved = self._solved(X)
        before = super()._drawn_shifted(solved, n_draws, seed, shift, rows)
        fixed = self._schema.node_columns[shift.columns].tolist()
        solved = solved[rows]
        after, missing = self._enforced(before, solved, fixed), np.isnan(solved)
        places = self._schema.returned.tolist()
        for node, place in enumerate(self.feature_indices_.tolist()):
            if node in shift.moves and place in self._places_of_equations():
                change = (after - before)[..., places.index(place)]
                # what equations move back counts against the shift
                shift.moved[node][0] += change[:, missing[:, place]].sum()
        return after

    def _whole(self, tables, checked, X):
        """Round whole numbers, and move cells of other columns by what equations lose.

        Whole columns are moved where no other cells satisfy an equation.
        """
        solved = self._solved(checked)
        rounded = self._rounded(tables, solved, X)
        if rounded is tables or not self._keys():
            return rounded
        equations, columns = self._equations(), self._schema.returned
        whole = np.flatnonzero(equations.bounds.unit).tolist()
        several = rounded.reshape(-1, *rounded.shape[-2:])
        enforced = self._enforced(several, solved, whole).reshape(tables.shape)
        return equations.snapped(enforced, columns)

    def _limit_of_shift(self, place):
        if place not in self._places_of_equations():
            return super()._limit_of_shift(place)
        return (
            "the equations move them back where no other column of them is missing, "
            "or fits. Shift fewer columns of an equation, or by less."
        )

    def _places_of_equations(self):
        return {self._schema.index_of(key, "derived or sums") for key in self._keys()}

    def _enforced(self, tables, solved, fixed=()):
        """Satisfy equations; cells of `fixed` move where others do not suffice."""
        columns = self._schema.returned
        wide = np.zeros((*tables.shape[:2], self.n_features_in_), tables.dtype)
        wide[..., columns] = tables
        return self._equations().enforced(wide, np.isnan(solved), fixed)[..., columns]

    def _solved(self, X):
        return self._equations().deduced(X, self.rtol).astype(X.dtype)

    def _checked(self, X):
        checked = super()._checked(X)
        self._equations().deduced(checked, self.rtol)  # raises an error for its rows
        return checked

    def _settings(self):
        """Return the imputer that reads columns; those of equations are numbers."""
        # a clone, because the user's model must not change
        settings = clone(super()._settings())
        requested = getattr(settings, "categorical_features", None)
        if isinstance(requested, dict | str) and self._keys():
            kinds = {} if isinstance(requested, str) else requested
            numeric = dict.fromkeys(self._keys(), "numeric")
            # what the user says comes last, and counts
            settings.set_params(categorical_features={**numeric, **kinds})
        return settings

    def _listed(self):
        """List equations: a column, a function or None for a sum, and their sources."""
        sums = [(key, None, sources) for key, sources in (self.sums or {}).items()]
        return sums + [(key, *pair) for key, pair in (self.derived or {}).items()]

    def _keys(self):
        """List the columns of all equations."""
        columns = [[key, *sources] for key, _, sources in self._listed()]
        return list(dict.fromkeys(chain(*columns)))

    def _check_parameters(self):
        super()._check_parameters()
        for key, value in (self.derived or {}).items():
            is_pair = _is_list(value) and len(value) == 2
            if not is_pair or not callable(value[0]) or not _is_list(value[1]):
                raise TypeError(
                    f"derived[{key!r}] must be a pair of a function and a list of "
                    f"columns, got {value!r}."
                )
            _check_sources(f"derived[{key!r}]", key, value[1])
        for key, value in (self.sums or {}).items():
            if not _is_list(value):
                raise TypeError(
                    f"sums[{key!r}] must be a list of columns, got {value!r}."
                )
            _check_sources(f"sums[{key!r}]", key, value)

    def _check_names(self, X):
        """Raise an error for columns of equations that X does not have."""
        if is_frame(X):
            names_of_X = names_of(X)
        elif len(getattr(X, "shape", ())) == 2:
            names_of_X = range(X.shape[1])
        else:  # `fit` checks X
            return
        for key in self._keys():
            if key not in names_of_X:
                names = ", ".join(map(repr, names_of_X))
                raise ValueError(
                    f"derived or sums has the column {key!r}, no column of X: {names}."
                )

    def _facts_of(self, schema, cells):
        """Describe the columns: units, deviations and medians, and their signs."""
        for key in self._keys() if schema.columns else ():
            place = schema.index_of(key, "derived or sums")
            if not schema.columns[place].is_plain:
                raise TypeError(
                    f"Equations need numbers, and {schema.label(place)} has "
                    "categories or dates. Leave it out of derived and sums."
                )
        is_number = np.ones(schema.n_columns, dtype=bool)
        with np.errstate(all="ignore"):
            read = describe(cells.astype(np.float64), is_number, []).bounds
        is_usual = np.isfinite(read.deviation)  # large squares overflow
        bounds = Bounds.none(len(is_number))._replace(
            unit=(read.unit == 1).astype(float),
            deviation=np.where(is_usual, read.deviation, read.high - read.low),
            middle=np.nan_to_num(read.middle),
        )
        ends = (
            np.where(read.low >= 0, 0.0, -np.inf),
            np.where(read.high <= 0, 0.0, np.inf),
        )
        return Facts(bounds, np.stack(ends))

    def _check_cells(self, schema, solved):
        for key in self._keys():
            place = schema.index_of(key, "derived or sums")
            if np.isnan(solved[:, place]).all():
                raise ValueError(
                    f"{schema.label(place)} is in an equation, but none of its "
                    "cells is observed or follows from others. Leave it out of X."
                )

    def _equations(self):
        """Make the equations of the last fit."""
        return self._equations_of(self._schema, self._fitted.model)

    def _equations_of(self, schema, facts):
        """Make the equations, with indices of columns."""
        rules, listed = [], self._listed()
        for key, function, sources in listed:
            names = key, *sources
            target, *others = (schema.index_of(k, "derived or sums") for k in names)
            if function is None:
                rules.append(sum_of(target, others))
                continue
            columns = target, *others[::-1]
            rule = Expression(columns, function, f"derived[{key!r}]", *facts)
            rules.append(Checked(rule, 0, 0, columns))
        return Equations(rules, [repr(key) for key, *_ in listed], *facts)


def _is_list(value):
    return isinstance(value, tuple | list) and len(value) > 0


def _check_sources(name, key, sources):
    """Raise an error for a column that depends on itself, or is listed twice."""
    if key in sources or len(set(sources)) < len(sources):
        raise ValueError(
            f"{name} must list different columns without {key!r}, got {sources!r}."
        )
