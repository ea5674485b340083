"""A latent normal model of tables whose rows belong to groups.

Its rows have one more column than the model: the number of their group.  The rows of a
group have to be in one table.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.random import row_keyed
from skvnce._imputer.fitted import Filled, make_in_turn
from skvnce._imputer.held_out import occurrences
from skvnce._tables.values import NO_LIMITS, Limits, distinct_rows
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.fill import Chains, Pairs, Predictions
from skvnce.gaussian.latent.gibbs import Factors, Rows
from skvnce.gaussian.latent.groups import (
    Effects,
    GroupedRows,
    GroupFactors,
    Groups,
    Levels,
    design_of,
)
from skvnce.gaussian.model import (
    CopulaModel,
    LatentNormal,
    Pair,
    chains_of,
    columns_of_levels,
    filled_by,
    in_units,
    normal_of,
    tensors,
)

# effects of groups with few observed cells move slowly
_PREDICTING = Chains(n_burn_in=20, n_sweeps=60)
_BURN_IN, _APART, _LEAST_APART = 40, 10, 4  # sweeps before and between draws
_MANY = 200  # sweeps between all draws above which fewer are made between two
_GIVEN_EFFECTS = Chains(n_burn_in=10, n_sweeps=1)

Ends = tuple[Tensor, ...]  # a pair, or () without limits


class Fixed(NamedTuple):
    """Columns of the model of which cells are not drawn one by one."""

    of_groups: list  # int, that are constant within groups
    slopes: list  # int, whose slopes differ between groups


class Slopes(NamedTuple):
    """Columns whose slopes differ between groups."""

    columns: list  # int, of the model; they have no missing cells
    location: np.ndarray  # (n_slopes,), by which their cells are shifted and divided
    scale: np.ndarray  # (n_slopes,)

    def of(self, nodes: np.ndarray) -> np.ndarray:
        """Select and scale the cells of rows; (n, n_slopes)."""
        return (nodes[:, self.columns] - self.location) / self.scale


class GroupedNormal(NamedTuple):
    """A latent normal model with random effects of groups."""

    levels: Levels
    of_groups: list  # int, the columns that are constant within groups
    slopes: Slopes
    kinds: list  # of the columns
    effects: list  # the estimate of the parameters, or draws of them
    # of the latent variables in the order of columns; None means that they have none
    units: Units | None = None
    bounds: tuple | None = None  # (n_nodes,), between which missing cells are

    of_sweep = 1  # what a sweep counts in `max_iter`

    @property
    def fixed(self) -> Fixed:
        """The columns of which cells are not drawn one by one."""
        return Fixed(self.of_groups, self.slopes.columns)

    def parameters(self) -> tuple:
        """Return the first parameters; see `plain_effects`."""
        return plain_effects(self.effects[0])

    def with_normals(self, parameters: Sequence[tuple]) -> Self:
        """Replace the parameters, which draws use in turn; see `plain_effects`."""
        return self._replace(effects=list(map(_effects_of, parameters)))

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill by means of numbers, and by the most probable levels.

        `nodes` (n, n_nodes + 1): the last column has the numbers of groups.  Returns
        `filled` (n, n_nodes + 1); `probabilities` (n, n_levels).
        """
        cells, equal, pairs = self._pairs(nodes, limits)
        means, shares = fill.predict(pairs, columns_of_levels(self.kinds))
        # equal rows of a group differ by chance
        shares = [p if p is None else _average(p, equal) for p in shares]
        averages = Predictions(_average(means, equal), shares)
        filled, probabilities = filled_by(averages, cells)
        return np.column_stack([filled, nodes[:, -1]]), probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        _, equal, pairs = self._pairs(nodes, limits)
        quantiles = fill.quantiles(pairs, torch.tensor(levels))
        tables = np.array([_average(cells, equal).numpy() for cells in quantiles])
        has_levels = columns_of_levels(self.kinds)
        probabilities = self.fill(nodes, limits)[1] if has_levels else {}
        return _with_groups(tables, nodes), probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells of nodes, with each of the parameters in turn."""
        cells, groups, ends = self.read_rows(nodes, limits)
        data = Incomplete.from_array(cells)
        rows, models = self._rows(data, groups, ends), self._in_turn(n_draws)
        tables = fill.complete(self.levels.whole, data, _sweep(rows, models))
        return _with_groups(tables.numpy(), nodes)

    def determined(self, nodes: np.ndarray) -> np.ndarray:
        """Fill cells of columns of groups that other rows determine."""
        return np.column_stack([self.read_rows(nodes)[0], nodes[:, -1]])

    def given_rows(
        self, parameters: list[tuple], nodes: np.ndarray, n_draws: int
    ) -> list["GivenEffects"]:
        """Draw effects of groups, given which rows are independent."""
        cells, groups, ends = self.read_rows(nodes)
        constants = cells[groups.heads()][:, self.of_groups]
        rows = self._rows(Incomplete.from_array(cells), groups, ends)
        models = self.with_normals(parameters)._in_turn(n_draws)
        numbers = np.unique(nodes[:, -1])
        return [
            GivenEffects(
                self,
                factors,
                numbers,
                constants,
                *(x.copy() for x in rows.parts(z)[1:]),
            )
            for factors, z in zip(models, _sweep(rows, models), strict=True)
        ]

    def moments(self, parameters: tuple) -> Pair:
        """Return mean and covariance of the latent variables of a row.

        They are in the order of columns; slopes are multiplied by 0.
        """
        return self._in_order(*self.levels.moments(_effects_of(parameters)))

    def between(self, parameters: tuple) -> np.ndarray:
        """Return the covariance of intercepts and of columns of groups."""
        effects, size = _effects_of(parameters), self.levels.rows.size
        mean, covariance = self.levels.moments(effects)
        covariance[:size, :size] -= effects.within.covariance
        return self._in_order(mean, covariance)[1]

    def _in_order(self, mean: Tensor, covariance: Tensor) -> Pair:
        """Sort latent variables as their columns, and convert them to their units."""
        order = self.levels.order()
        pair = mean[order].numpy(), covariance[order][:, order].numpy()
        return in_units(self.units, pair)

    def slopes_covariance(self, parameters: tuple) -> np.ndarray:
        """Return the covariance of the slopes of a column of slopes after the other."""
        part = slice(self.levels.rows.size, self.levels.n_random)
        return _effects_of(parameters).between.covariance[part, part].numpy()

    @property
    def marginals(self) -> list:
        """The marginals of columns."""
        return self.levels.whole.marginals

    def read_rows(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> tuple:
        """Return cells, Groups, and limits; cells of groups fill all of their rows."""
        cells, slopes = nodes[:, :-1].copy(), self.slopes.of(nodes)
        groups = Groups.of(self.levels, nodes[:, -1], slopes)
        observed = cells[:, self.of_groups]
        constants = groups.extremes(observed.T, np.fmax).T[groups.codes]
        cells[:, self.of_groups] = np.where(np.isnan(observed), constants, observed)
        return cells, groups, self.ends(cells, limits)

    def ends(self, cells: np.ndarray, limits: Limits = NO_LIMITS) -> Ends:
        """Return the least and the largest values of cells, () without limits."""
        if self.bounds is None:
            return tensors(limits, np.s_[:, : cells.shape[1]])
        low, high = (np.broadcast_to(end, cells.shape) for end in self.bounds)
        return tensors(limits.within(low, high))

    def _pairs(self, nodes: np.ndarray, limits: Limits) -> tuple:
        """Return cells, numbers of equal rows of a group, and chains that predict them.

        Equal rows of a group have different random numbers.
        """
        cells, groups, ends = self.read_rows(nodes, limits)
        _, equal = distinct_rows(np.column_stack([cells, nodes[:, -1]]))
        models = [GroupFactors.of(effects, self.levels) for effects in self.effects]
        numbers = row_keyed(np.column_stack([cells, occurrences(equal)]), 0)
        rows = models, Incomplete.from_array(cells), _PREDICTING, numbers, ends
        paired = partial(GroupedRows.of, groups.twice())
        return cells, equal, Pairs(self.levels.whole, *rows, paired)

    def _rows(self, data: Incomplete, groups: Groups, ends: Ends) -> GroupedRows:
        return GroupedRows.of(groups, self.levels.whole.bounds(data, ends))

    def _in_turn(self, n_draws: int) -> list[GroupFactors]:
        """List parameters of draws, each of which is factorised once."""
        return make_in_turn(
            self.effects, n_draws, lambda draw: GroupFactors.of(draw, self.levels)
        )


class GivenEffects(NamedTuple):
    """A model of rows given the effects of their groups: rows are independent."""

    model: GroupedNormal
    factors: GroupFactors  # of the parameters
    numbers: np.ndarray  # (n_groups,), of the groups, increasing
    # (n_groups, n_columns_of_groups), cells of columns of groups; NaN where none is
    # observed
    constants: np.ndarray
    # (n_latents, n_groups), latent variables of groups, and effects
    latents: np.ndarray
    effects: np.ndarray

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells of nodes; (n_draws, n, n_nodes + 1)."""
        return np.array([self._draw_once(nodes) for _ in range(n_draws)])

    def determined(self, nodes: np.ndarray) -> np.ndarray:
        """Fill cells of columns of groups that other rows determine."""
        filled, columns = nodes.copy(), self.model.of_groups
        constants = self.constants[np.searchsorted(self.numbers, nodes[:, -1])]
        missing = np.isnan(constants)
        filled[:, columns] = np.where(missing, nodes[:, columns], constants)
        return filled

    def _draw_once(self, nodes: np.ndarray) -> np.ndarray:
        model, levels = self.model, self.model.levels
        places = np.searchsorted(self.numbers, nodes[:, -1])
        groups = Groups(
            levels, places, design_of(model.slopes.of(nodes)), np.ones(len(nodes))
        )
        means = groups.means(self.effects)
        data = Incomplete.from_array(nodes[:, :-1])
        bounds = levels.whole.bounds(data, model.ends(nodes[:, :-1]))
        rows = Rows.of(levels.rows, levels.divided(bounds)[0])
        z = rows.start(self.factors.normal.mean[: levels.rows.size])
        factors: list[Factors] = [self.factors.rows.moved(means)]
        for _ in fill.sweep_models(rows, z, factors, _GIVEN_EFFECTS):
            pass
        whole = torch.from_numpy(np.vstack([z, self.latents[:, places]]))
        cells = data.with_values(fill.cells_of(levels.whole, whole)).numpy()
        return np.column_stack([cells, nodes[:, -1]])


def plain_effects(effects: Effects) -> tuple:
    """Convert parameters to a mean, its covariance, and that of residuals."""
    parts = *effects.between, effects.within.covariance
    return tuple(part.numpy() for part in parts)


def _effects_of(parameters: tuple) -> Effects:
    *between, within = parameters
    zero = np.zeros(len(within))
    return Effects(normal_of((zero, within)), normal_of(tuple(between)))


def _sweep(rows: GroupedRows, models: list[GroupFactors]) -> Iterator[np.ndarray]:
    """Yield latent variables, which are moved in place, for each of the models."""
    chains = chains_of(len(models), _BURN_IN, _MANY, (_LEAST_APART, _APART))
    return fill.sweep_models(rows, rows.start(models[0].normal.mean), models, chains)


def _with_groups(tables: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Append the numbers of groups to cells (n_tables, n, n_nodes)."""
    numbers = np.broadcast_to(nodes[:, -1:], (*tables.shape[:2], 1))
    return np.concatenate([tables, numbers], axis=2)


def _average(values: Tensor, which: np.ndarray) -> Tensor:
    """Average values (n, n_columns) of the rows of the same number (n,)."""
    places, counts = torch.from_numpy(which), np.bincount(which)
    sums = values.new_zeros(len(counts), values.shape[1])
    sums.index_add_(0, places, values)
    return (sums / torch.from_numpy(counts)[:, None])[places]


# ----------------------------------------
# The model of `GaussianImputer`: a distribution, and draws of its parameters.


class GaussianModel(NamedTuple):
    """A fitted distribution, and the rows from which its parameters are drawn."""

    # None if no column varies
    model: CopulaModel | LatentNormal | GroupedNormal | None
    draws: list | None = None  # of the parameters; None if none has been requested
    training: tuple | None = None  # rows from which they are drawn, and settings
    online: tuple | None = None  # moments from which `partial_fit` goes on
    stream: tuple | None = None  # rows that `partial_fit` keeps

    def parameters(self) -> list:
        """List the parameters that draws use in turn."""
        return self.draws or [self.model and self.model.parameters()]

    @property
    def fixed(self) -> Fixed:
        """The columns of which cells are not drawn one by one."""
        return getattr(self.model, "fixed", Fixed([], []))

    def drawing(self, n_draws: int, rows: np.ndarray | None) -> list:
        """List the models that draws come from, given which `rows` are independent."""
        parameters = self.parameters()
        if rows is not None:
            return self.model.given_rows(parameters, rows, n_draws)
        # a chain over categories needs a burn-in, which all draws share
        if isinstance(self.model, CopulaModel):
            return [self.model.with_normals([draw]) for draw in parameters]
        return [self.model.with_normals(parameters)]

    def with_one_draw(self) -> list[Self]:
        """Make a model of each draw of the parameters."""
        model = self.without_training()
        return [model._replace(draws=[draw]) for draw in self.parameters()]

    def without_training(self) -> Self:
        """Leave out the rows of the fit."""
        return self._replace(draws=[], training=None, online=None, stream=None)
