"""Fitted autoencoders: they fill, draw and score rows, in the units of X."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.cells import BoundedCells
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import (
    at_quantiles,
    global_stream,
    midpoint_levels,
    row_keyed,
    row_lattice,
    shifted_lattice,
)
from skvnce._imputer.fitted import Densities, Filled, average_density
from skvnce._tables.values import NO_LIMITS, Limits, ValidValues
from skvnce.autoencoder import samplers, vae
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.networks import VariationalAutoencoderModel
from skvnce.autoencoder.samplers import Drawn, Rule
from skvnce.autoencoder.vae import Autoencoder, WithCells, chunks
from skvnce.gaussian import em
from skvnce.gaussian.marginals import CellScores

# ----------------------------------------
# A fitted member as if its fit had not used the held-out cells.
#
# Training holds out cells to choose the number of rounds, and its gradients do not
# depend on them.  The initial normal distribution does.  So this module refits the
# normal distribution without them and shifts the trained modules by the change of
# their initial values.


_ROUNDS = 8  # EM iterations after which the held-out cells have no influence


class WithoutCells(NamedTuple):
    """A fitted model that has not used some cells."""

    model: Any  # `EncoderModel`, or another that a `Member` draws from
    # (n, n_nodes): cells of the training rows; NaN marks missing cells
    nodes: np.ndarray
    # bool (n, n_nodes): the observed cells that the model has not used
    hidden: np.ndarray


def normal_without(data, hidden, weights, strength, normal):  # Normal
    """Refit a normal distribution without some cells.

    `hidden` (bool (n, n_nodes)), `weights` (n,).  `data` (Incomplete): scores of all
    observed cells.  `strength`: strength of the prior.  `normal` (Normal): the fit to
    all cells, from which EM starts.
    """
    observed = data.observed & ~hidden
    has_cells = observed.any(1)
    part = Incomplete(data.x.where(observed, 0.0), observed).take(
        has_cells.nonzero().squeeze(1)
    )
    stopping = {"max_iter": _ROUNDS, "tol": 0.0}
    return em.fit_normal(part, weights[has_cells], strength, normal, **stopping).normal


def turned_like(linear, other):
    """Rotate the latents of a linear model to match its loadings to another model's.

    `linear`, `other` (FactorModel).  Returns FactorModel: the same distribution of rows
    as `linear`.
    """
    # the orthogonal Procrustes problem: factors are known up to a rotation
    first, _, last = torch.linalg.svd(linear.loadings.T @ other.loadings)
    return FactorModel(linear.mean, linear.loadings @ first @ last, *linear[2:])


def moved(module, before, after):
    """Add the difference of the parameters of two modules to those of a third one.

    `module`, `before`, `after` (torch.nn.Module): of the same architecture.  Returns
    torch.nn.Module: a copy in double precision, without gradients.
    """
    # differences of float32 would be mostly rounding
    copied = deepcopy(module).double()
    first, last = (part.double().state_dict() for part in (before, after))
    state = {
        name: value + (last[name] - first[name]) if value.is_floating_point() else value
        for name, value in copied.state_dict().items()
    }
    copied.load_state_dict(state)
    return copied.eval().requires_grad_(False)


# ----------------------------------------
# A model with latents whose columns are known to lie within bounds.


def bounded_model(
    model: VariationalAutoencoderModel,
    # int (n_bounded,): indices of columns with bounds, none of them binary or rounded
    places: Tensor,
    low: Tensor,  # (n_bounded,)
    high: Tensor,  # (n_bounded,)
) -> WithCells:
    """Return an autoencoder's model of rows whose missing cells lie within bounds.

    The prior is unchanged.  That the missing cells of a row lie within bounds is
    treated as an observation, which contributes to `observed_log_prob`.  So each
    sampler of latents draws from ``p(z | x_obs, x_mis within bounds)``.
    """
    return WithCells(model, lambda cells: BoundedCells(cells, places, low, high))


# ----------------------------------------
# Fitted autoencoders: they fill, draw and score rows, in the units of X.


_APPROXIMATE = 32  # number of draws of an approximate mean, a power of two
_LEVELS = 32  # number of quantiles that represent a cell


class EncoderModel(NamedTuple):
    """An autoencoder of the scores of columns."""

    auto: Autoencoder
    scores: CellScores
    # bool (n_model_columns,): the columns whose cells can be drawn within bounds
    is_bounded: np.ndarray
    n_scored: int  # number of draws of the latents by which rows are scored

    def draws(
        self,
        rule: samplers.Rule,
        n_steps: int,  # number of iterations, or of moves of each chain
        nodes: np.ndarray,  # (n, n_model_columns)
        n_draws: int,
        numbers: Callable,  # maps rows and a purpose to uniform numbers
        # (2, n_model_columns): in the units of X.  Cells are drawn conditionally on
        # these bounds; infinite entries mean no bound
        bounds: np.ndarray,
    ) -> Filled:
        """Draw cells of nodes, and compute probabilities of categories.

        Returns `drawn` (n_draws, n, n_model_columns), in the units of X;
        `probabilities` (n, n_categories), for each column of categories; averages
        over latents.
        """
        target, drawn, probabilities = self._within(bounds), [], []
        with torch.no_grad():
            for rows in samplers.chunks(self.auto, len(nodes), n_draws, rule):
                data, _ = self.scores.scores(Incomplete.from_array(nodes[rows]))
                data, streams = data.on(self.auto.device), numbers(nodes[rows])
                drawn_rows = rule.draws(target, data, int(n_draws), n_steps, streams)
                drawn.append(self.scores.cells(drawn_rows.tables.cpu()).numpy())
                probabilities.append(drawn_rows.probabilities.cpu())
        return np.concatenate(drawn, 1), _by_column(self.auto, probabilities)

    def mean(self, nodes: np.ndarray, bounds: np.ndarray) -> Filled:
        """Estimate means of cells of nodes, approximately but quickly.

        Returns `mean` (n, n_model_columns), functions of each row alone;
        `probabilities` (n, n_categories), for each column of categories.
        """
        target, scores, device = self._within(bounds), self.scores, self.auto.device
        order = torch.from_numpy(np.random.default_rng(0).permutation(_APPROXIMATE))
        order = order.to(device)
        means, levels = [np.empty((0, nodes.shape[1]))], []
        for rows in chunks(self.auto, len(nodes), _APPROXIMATE):
            data, _ = scores.scores(Incomplete.from_array(nodes[rows]))

            def streams(purpose: int, part: np.ndarray = nodes[rows]) -> Callable:
                # each purpose has the same points, but in new order
                points = row_lattice(part, purpose)
                return (lambda *a: points(*a)[order]) if purpose else points

            def to_cells(drawn: Tensor) -> Tensor:
                return scores.cells(drawn.cpu()).to(device)

            estimate = samplers.approximate_mean(
                target, data.on(device), to_cells, streams, _APPROXIMATE
            )
            means.append(estimate[0].cpu().numpy())
            levels.append(estimate[1].cpu())
        return np.concatenate(means), _by_column(target, levels)

    def rows(self, n_rows: int, n_components: int) -> np.ndarray:
        """Draw rows of nodes by torch's global stream; (n_rows, n_model_columns)."""
        # on the CPU, so that a seed gives the same latents on any device
        z = torch.randn(n_rows, n_components, dtype=torch.float64)
        cells = self.auto.model.likelihood(z.to(self.auto.device))
        scores = at_quantiles(cells, global_stream(0, cells.loc)).cpu()
        return self.scores.cells(scores).numpy()

    def mean_given(self, Z: np.ndarray) -> np.ndarray:
        """Compute means of cells, and most probable categories, given latents.

        `Z` (n, n_components).  Returns (n, n_model_columns): in the units of X; codes
        of categories.
        """
        cells = self.auto.model.likelihood(
            torch.tensor(Z).double().to(self.auto.device)
        )
        levels = midpoint_levels(_LEVELS, cells.loc)
        drawn = (cells.icdf(level.expand(cells.loc.shape)) for level in levels)
        mean = sum(self.scores.cells(part.cpu()) for part in drawn) / _LEVELS
        for node, block in cells.families.level_blocks().items():
            mean[:, node] = cells.level_probabilities[:, block].argmax(1).to(mean)
        return mean.numpy()

    def mapped(
        self, nodes: np.ndarray, function: Callable
    ) -> tuple[np.ndarray, np.ndarray]:
        """Apply a function of the autoencoder and of scores of rows, chunk by chunk.

        `nodes` (n, n_model_columns).  `function`: maps autoencoder, scores, random
        numbers and a number of draws to a tensor (n, k).  Returns `values` (n, k);
        `log_slopes` (n,), sums of the log-slopes of the scores over each row.
        """
        values, slopes, auto, n_draws = [], [], self.auto, self.n_scored
        with torch.no_grad():
            for rows in chunks(auto, len(nodes), n_draws):
                part = Incomplete.from_array(nodes[rows])
                data, log_slopes = self.scores.scores(part)
                numbers = row_lattice(nodes[rows], 0)
                value = function(auto, data.on(auto.device), numbers, n_draws)
                values.append(value.cpu())
                slopes.append(log_slopes)
        return torch.cat(values).numpy(), torch.cat(slopes).numpy()

    def log_density(self, nodes: np.ndarray) -> Densities:
        """Estimate log-densities of rows and their standard errors; each (n,)."""
        scores, log_slopes = self.mapped(nodes, vae.scored)
        empty = np.isnan(nodes).all(1)
        pair = scores[:, 0] + log_slopes, scores[:, 1]
        # nothing has probability 1, also where the estimate has an error
        return tuple(np.where(empty, 0.0, values) for values in pair)

    def _within(self, bounds: np.ndarray) -> Autoencoder:
        """Truncate the columns of the model to the user's bounds."""
        auto = self.auto
        places = np.flatnonzero(np.isfinite(bounds).any(0) & self.is_bounded)
        if not len(places):
            return auto
        places = torch.from_numpy(places)
        low, high = self._ends(bounds)[:, places]
        ends = (part.to(auto.device) for part in (places, low, high))
        return auto._replace(model=bounded_model(auto.model, *ends))

    def _ends(self, bounds: np.ndarray) -> Tensor:
        """Map bounds of cells to bounds of scores, (2, n_model_columns)."""
        scores = self.scores
        ends = (torch.tensor(bounds) - scores.location) / scores.scale
        if scores.marginals is not None:
            ends, _ = scores.marginals.forward(ends)
        return ends


def stratified(rule: samplers.Rule) -> samplers.Rule:
    """Return a rule of stratified draws, if there is one.

    Its draws represent the distribution of each cell, but are dependent.
    """
    if rule.stratified is None:
        return rule

    def draws(*rows_and_sizes: object) -> Drawn:
        *rest, streams = rows_and_sizes
        return rule.stratified(*rest, lambda purpose: shifted_lattice(streams(purpose)))

    return rule._replace(draws=draws, n_start=2)


def _by_column(auto: Autoencoder, probabilities: list) -> dict:
    """Join chunks of probabilities of categories, as a dict of columns."""
    families = getattr(auto.model, "families", None)
    if families is None or not families.levels:
        return {}
    table = torch.cat(probabilities).numpy()
    return {node: table[:, block] for node, block in families.level_blocks().items()}


# ----------------------------------------
# Several fitted models that draw cells in turn, and predict by all their draws.


class Member(Protocol):
    """A model whose random numbers are chosen by the caller; see `CellModel`."""

    def draws(self, nodes: np.ndarray, n_draws: int, numbers: Callable) -> Filled:
        """Draw cells that will be summarised, and may be dependent.

        `nodes` (n, n_model_columns).  `numbers`: maps rows and a purpose to uniform
        numbers.  Returns `drawn` (n_draws, n, n_model_columns), and `probabilities`
        (n, n_categories) by column of categories.
        """
        ...

    def mean(self, nodes: np.ndarray) -> Filled:
        """Approximate means (n, n_model_columns), and probabilities, at low cost."""
        ...

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        ...

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = True) -> Densities:
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

    def draws(self, nodes: np.ndarray, n_draws: int, numbers: Callable) -> Filled:
        """Draw cells that will be summarised; see `Member`."""
        return self._by(stratified(self.rule), nodes, n_draws, numbers)

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        return self._by(self.rule, nodes, n_draws, of_stream)[0]

    def mean(self, nodes: np.ndarray) -> Filled:
        """Approximate means; see `Member`."""
        return self.model.mean(nodes, self.bounds)

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = True) -> Densities:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        return self.model.log_density(nodes)

    def _by(
        self, rule: Rule, nodes: np.ndarray, n_draws: int, numbers: Callable
    ) -> Filled:
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

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells by means of draws; see `CellModel`."""
        drawn, probabilities = self._draw_by_all(nodes)
        cells = self.values.rounded(drawn, self.columns).mean(0)
        for node, levels in probabilities.items():
            cells[:, node] = levels.argmax(1)
        return cells, probabilities

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Draw cells that represent their distributions; see `_imputer.fill`."""
        return self._draw_by_all(nodes)

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = True) -> Densities:
        """Estimate the log of the average density, and its errors; each (n,)."""
        return average_density([member.log_density(nodes) for member in self.members])

    def _draw_by_all(self, nodes: np.ndarray) -> Filled:
        """Draw cells by all members, and average probabilities of categories."""
        shares = np.array_split(np.arange(self.n_draws), len(self.members))
        drawn, total = [], {}
        for number, (member, share) in enumerate(
            zip(self.members, shares, strict=True)
        ):
            if not len(share):
                continue
            numbers = partial(of_rows, number)
            tables, by_column = member.draws(nodes, len(share), numbers)
            drawn.append(tables)
            for node, levels in by_column.items():
                weighted = levels * len(share) / self.n_draws
                total[node] = total.get(node, 0) + weighted
        return np.concatenate(drawn), total


def of_rows(number: int, rows: np.ndarray) -> Callable:
    """Make uniform numbers as functions of the row, for one member."""
    # apart by more than the number of purposes, so that members share no numbers
    return lambda purpose: row_keyed(rows, 16 * number + purpose)


def of_stream(rows: np.ndarray) -> Callable:
    """Take uniform numbers from torch's global stream."""
    return lambda purpose: global_stream


def bounds_of_nodes(schema):
    """Return the user's bounds, (2, n_nodes); infinite without a bound."""
    values = schema.values
    free = np.array([[-np.inf], [np.inf]])
    return np.where(values.by_user, values.ranges, free)[:, schema.model_columns]
