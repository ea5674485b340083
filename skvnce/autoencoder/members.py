"""Base class of imputers that draw cells from one or several fitted members."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from skvnce._core.posteriors import global_stream
from skvnce._core.progress import steps
from skvnce._core.random import row_keyed, seed_from, seeded
from skvnce._core.runtime import one_thread
from skvnce._imputer.callbacks import CallbackSupportMixin, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted, average_density
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.options import Adam
from skvnce._imputer.validation import (
    BOUND,
    MISSING_VALUES,
    ON_MISFIT,
    RANDOM_STATE,
    STRATEGY,
    integer_from,
    read_table,
    warn_of_unused_by_levels,
)
from skvnce._tables.limits import CellLimits
from skvnce._tables.model_columns import (
    observed_columns,
    warn_of_constants,
    warn_of_empty,
    without_constants,
)
from skvnce._tables.values import ValidValues, constant_columns
from skvnce._tables.weights import random_weights, weighted_rows
from skvnce.autoencoder.model import EncoderModel, stratified
from skvnce.autoencoder.sampling import Rule
from skvnce.gaussian.latent.columns import NUMERIC

# ----------------------------------------
# Several fitted models that draw cells in turn, and predict by all their draws.


class Member(Protocol):
    """A model whose random numbers are chosen by the caller; see `CellModel`."""

    def draws(
        self, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that will be summarised, and may be dependent.

        `nodes` (n, n_model_columns).  `numbers`: maps rows and a purpose to uniform
        numbers.  Returns `drawn` (n_draws, n, n_model_columns), and `probabilities`
        (n, n_categories) by column of categories.
        """
        ...

    def mean(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Approximate means (n, n_model_columns), and probabilities, at low cost."""
        ...

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        ...

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        ...


class EncoderMember(NamedTuple):
    """An autoencoder whose cells are drawn by a rule."""

    model: EncoderModel
    rule: Rule
    n_steps: int  # number of iterations, or of moves of each chain
    # (2, n_model_columns): of cells, by which they are drawn conditionally; infinite
    # without a bound
    bounds: np.ndarray
    # number of draws of the latents from which log-densities are estimated
    n_scored: int

    def draws(
        self, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that will be summarised; see `Member`."""
        return self._by(stratified(self.rule), nodes, n_draws, numbers)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: CellLimits | None = None
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self._by(self.rule, nodes, n_draws, of_stream)[0]

    def mean(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Approximate means; see `Member`."""
        return self.model.mean(nodes, self.bounds)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        return self.model.log_density(nodes, self.n_scored)

    def _by(
        self, rule: Rule, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> tuple[np.ndarray, dict]:
        sizes = self.n_steps, nodes, n_draws
        return self.model.draws(rule, *sizes, numbers, self.bounds)


class Ensemble(NamedTuple):
    """Models that predict cells by all their draws."""

    members: Sequence[Member]
    n_draws: int  # number of draws of a prediction, by all members together
    values: ValidValues  # to which draws are rounded before their means are computed
    columns: np.ndarray  # int (n_model_columns,)

    def n_chains(self, n_draws: int | None) -> int:
        """Return how many copies of the rows are in memory at a time."""
        return self.n_draws if n_draws is None else 1

    def fill(
        self, nodes: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Fill missing cells by means of draws; see `CellModel`."""
        drawn, probabilities = self._drawn_by_all(nodes)
        cells = self.values.rounded(drawn, self.columns).mean(0)
        for node, levels in probabilities.items():
            cells[:, node] = levels.argmax(1)
        return cells, probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: CellLimits | None = None
    ) -> tuple[np.ndarray, dict]:
        """Draw cells that represent their distributions; see `_imputer.fill`."""
        return self._drawn_by_all(nodes)

    def log_density(
        self, nodes: np.ndarray, *, with_errors: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate the log of the average density, and its errors; each (n,)."""
        return average_density([one.log_density(nodes) for one in self.members])

    def _drawn_by_all(self, nodes: np.ndarray) -> tuple[np.ndarray, dict]:
        """Draw cells by all members, and average probabilities of categories."""
        shares = np.array_split(np.arange(self.n_draws), len(self.members))
        drawn, total = [], {}
        for number, (member, share) in enumerate(
            zip(self.members, shares, strict=True)
        ):
            if not len(share):
                continue
            numbers = partial(of_rows, number)
            tables, found = member.draws(nodes, len(share), numbers)
            drawn.append(tables)
            for node, levels in found.items():
                own = levels * len(share) / self.n_draws
                total[node] = total.get(node, 0) + own
        return np.concatenate(drawn), total


def of_rows(number: int, rows: np.ndarray) -> Callable:
    """Make uniform numbers as functions of the row, for one member."""
    # apart by more than the number of purposes, so that members share no numbers
    return lambda purpose: row_keyed(rows, 16 * number + purpose)


def of_stream(rows: np.ndarray) -> Callable:
    """Take uniform numbers from torch's global stream."""
    return lambda purpose: global_stream


# ----------------------------------------
# Base class of imputers that draw cells from one or several fitted members.


OF_MEMBERS = {  # constraints of the parameters that the imputers share
    "strategy": STRATEGY,
    "n_steps": [integer_from(1)],
    "n_draws": [integer_from(1)],
    "min_value": BOUND,
    "max_value": BOUND,
    "missing_values": MISSING_VALUES,
    "keep_empty_features": ["boolean"],
    "add_indicator": ["boolean"],
    "on_misfit": ON_MISFIT,
    "random_state": RANDOM_STATE,
    "verbose": ["verbose"],
}

_SEVERAL, _ENOUGH = 4, 40  # maximum number of members; rows per column where 1 suffices
_REMEDY = "GaussianImputer may fill them better; logarithms of skewed columns may help."


class DrawnByMembers(CallbackSupportMixin, Imputer):
    """Base class of imputers whose members are in `estimators_`.

    The imputers have the parameters `n_draws`, `strategy`, `min_value`, `max_value` and
    `on_misfit`.
    """

    _has_density = True
    _is_for_filling = True  # as the parameters of members count as known
    _network = "decoder"  # of a member, in messages

    @reports_fit
    def fit(self, X, y=None, sample_weight=None):
        """Train the models, unless they are trained already.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequencies: a row of weight k counts as k equal rows, up to the random
            numbers of the training, which draws rows in proportion to their weights.
            Divide the sampling weights of a survey by their mean.

        Returns
        -------
        self : object
            The fitted imputer.

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no cell is observed, if observed
            cells are outside the bounds, if X has categories and the model is one of
            numbers, if a frozen model was fitted on another number of columns, if
            `log_prob` of a density returns a wrong shape, or if a parameter is out of
            range.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type, or if a density has no `log_prob`.
        """
        self._check_parameters()
        X, schema = self._read_for_fit(X, sample_weight)
        X, weights = weighted_rows(X, sample_weight)
        _, finish = report_rounds(self, None, X=X)
        schema, members, unseen = self._members(schema, X, weights)
        fitted = self._checked_members(schema, members, X, unseen, weights)
        finish()
        return self._publish(fitted)

    def to_torch(self):
        """Return the fitted model of the first member.

        Returns
        -------
        torch.nn.Module
            A copy on the CPU, in double precision and without gradients, of scores of
            the columns in `feature_indices_`.  A decoder, as
            `VariationalAutoencoder.to_torch` returns it, has ``prior()`` and
            ``likelihood(z)``; that of a `TorchVAE` is its `model`.  A density has
            ``log_prob(x)``, that of an autoencoder a bound by 16 draws.  Its input are
            ``(X - location_) / scale_`` of ``estimators_[0]``, mapped nonlinearly where
            its `nonlinear_columns_` is True, and codes of levels; it is your own module
            if you passed one.
        """
        check_is_fitted(self)
        if not self.estimators_:
            raise ValueError(
                f"All columns were constant at fit: there is no {self._network}."
            )
        return self.estimators_[0].to_torch()

    def _read_for_fit(self, X, sample_weight):
        """Validate the table of a fit, and return its schema."""
        return read_table(self, X)

    def _members(self, schema, X, weights):
        """Train the members, and list a `WithoutCells` of the first if it is checked.

        Returns the schema with valid values, the members and that list.
        """
        schema = self._with_bounded_values(schema, X)
        self._report_columns(schema, X)
        unseen = []
        on_chosen = None if self.on_misfit == "ignore" else unseen.append
        given = schema, X, weights, on_chosen
        return schema, [] if is_constant(X) else self._train(*given), unseen

    def _train(self, schema, X, weights, on_chosen):
        """Train a first member, then the others for as many rounds; return a list.

        Weights (n_samples,) are those of the rows in EM and in training.
        """
        base, found = self._base(), []
        count = count_members(self.n_estimators, X, weights)
        members = seeds_and_weights(count, len(X), self.random_state, weights)
        with warnings.catch_warnings():  # the imputer has given this warning already
            warnings.filterwarnings("ignore", "Entirely missing|Constant where")
            for seed, own in steps("member", members, count, has_parts=True):
                first = found[0] if found else None
                given = schema, X, seed, own, on_chosen, first
                member = clone(base)._fit_member(*given)
                self._warn_of_divergence(schema, member)
                found.append(member)
                # the first member has chosen the number of rounds for all
                solver = Adam(**member._solver() | {"validation_fraction": 0})
                base.set_params(max_iter=member.best_iter_, solver=solver)
        return found

    def _base(self):
        """Make the unfitted member that is cloned."""
        raise NotImplementedError

    def _warn_of_divergence(self, schema, member):
        """Warn of columns whose chains have left the observed range."""

    def _cell_model(self):
        known = self._schema
        members = [self._member_model(one, known) for one in self.estimators_]
        return Ensemble(members, int(self.n_draws), known.values, known.model_columns)

    def _drawing_models(self, n_draws, *, is_joint=True):
        return [self._member_model(one, self._schema) for one in self.estimators_]

    def _marginal_columns(self):
        levels = self._schema.is_categorical
        return {
            j: one if levels[j] else one._replace(best=one.values.mean())
            for j, one in super()._marginal_columns().items()
        }

    def _member_model(self, member, schema):
        """Make the model of a member, a `skvnce.autoencoder.members.Member`."""
        raise NotImplementedError

    def _with_one_draw(self):
        members = [[one] for one in self.estimators_]
        return self._copies_with("estimators_", members) or [self]

    def _report_columns(self, schema, X):
        """Warn of empty columns, and of those with cells far from the others."""
        warn_of_empty(schema, X, self._handling(schema))
        columns, observed = schema.columns, observed_columns(schema, X)
        numbers = [j for j in observed if not columns or columns[j].kind == NUMERIC]
        self._report_tails(schema, X, numbers)

    def _with_members(self, schema, members, X):
        """Choose the columns of members; without members all are constant."""
        handling = self._handling(schema)
        if members:
            chosen = members[0].feature_indices_, members[0].constants_
            schema = schema._replace(model_columns=chosen[0], constants=chosen[1])
            warn_of_constants(schema, X, handling)
            return schema
        schema = schema._replace(model_columns=observed_columns(schema, X))
        return without_constants(schema, X, handling)

    def _checked_members(self, schema, members, X, unseen, weights=None):
        """Check predictions of cells that the fit of the first member has not used.

        `unseen` lists a `WithoutCells` of the first member, none if no cells were held
        out.  Weights (n_samples,) are positive; None means 1 for each.  Returns
        `Fitted`, of which the models are those of `estimators_`.
        """
        schema = self._with_members(schema, members, X)
        columns = schema.model_columns
        if unseen:
            member, nodes, hidden = unseen[0]
            if weights is not None and len(nodes) < len(X):  # without empty rows
                seen = ~np.isnan(X[:, columns].astype(np.float64))
                weights = weights[seen.any(1)]
        else:
            member, nodes = None, X[:, columns].astype(np.float64)
            hidden = np.zeros(nodes.shape, dtype=bool)

        def predict(kept, rows):
            # a sampler may draw from torch's stream
            with one_thread(), seeded(0):
                model = self._member_model(member, schema)
                cells, probabilities = model.mean(kept[rows])
            return schema.values.clipped(cells, columns), probabilities

        options = {"weights": weights, "hidden": hidden}
        checked, found = self._held_out(schema, nodes, predict, **options)
        self._report_misfit(checked, found, _REMEDY)
        # rows of a call of `fit` itself are not kept
        report = {"estimators_": members, "_stream": None, **found.report()}
        return Fitted(checked, None, report | self._report_of_missing(X))

    def _with_bounded_values(self, schema, X, frozen=None):
        """Determine the valid values of each column.

        If the only member was frozen, they are those of its training table, except for
        bounds that the user passes.
        """
        # members check the scale of each column, and raise an error
        with np.errstate(over="ignore", invalid="ignore"):
            schema = self._with_values(schema, X)
        warn_of_unused_by_levels(self, schema)
        if frozen is None:
            return schema
        found, known = schema.values, frozen._schema.values
        low, high = np.where(found.given, found.ranges, known.ranges)
        # the user's min_value may be above all that the frozen model has seen
        ends = {"low": low, "high": np.maximum(low, high), "given": found.given}
        return schema._replace(values=known._replace(**ends))

    def _checked(self, X):
        X = super()._checked(X)
        for member in self.estimators_:
            if not np.array_equal(member.feature_indices_, self.feature_indices_):
                raise ValueError(
                    "model was refitted to other columns after this imputer was "
                    "fitted. Fit the imputer again."
                )
        return X


def bounds_of_nodes(schema):
    """Return the user's bounds, (2, n_nodes); infinite without a bound."""
    found = schema.values
    free = np.array([[-np.inf], [np.inf]])
    return np.where(found.given, found.ranges, free)[:, schema.model_columns]


def reject_categories(schema, reason):
    """Raise an error that names the columns of categories, if there are any."""
    names = [
        schema.label(place)
        for place, column in enumerate(schema.columns or ())
        if column.kind != NUMERIC
    ]
    if names:
        have = "has" if len(names) == 1 else "have"
        raise ValueError(f"{', '.join(names)} {have} categories, and {reason}")


def count_members(asked, X, weights=None):
    """Return how many members a table of training rows is fitted by."""
    if isinstance(asked, str):
        n = len(X) if weights is None else weights.sum()
        return min(_SEVERAL, ceil(_ENOUGH * X.shape[1] / n))
    return int(asked)


def seeds_and_weights(count, n, random_state, weights=None):
    """Yield a seed and random weights of n rows for each member; one has `weights`."""
    rng = np.random.default_rng(seed_from(random_state))
    for _ in range(count):
        seed = int(rng.integers(2**31))
        yield seed, random_weights(rng, n, weights) if count > 1 else weights


def is_constant(X):
    """Return whether no column of a table has two different observed values."""
    observed = X[:, ~np.isnan(X).all(0)].astype(np.float64)
    return bool(constant_columns(observed).all())
