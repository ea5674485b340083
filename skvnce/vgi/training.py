"""Variational Gibbs inference: fit any density to rows with missing values.

This is algorithm 1.  Each row has several completions, chains that continue from one
visit of the row to the next.  A visit updates the missing cells by draws from
univariate conditionals q, and then one gradient step increases the objective in model
and q.  Before that, q can be warmed up as regressions of observed cells (algorithm 2),
and the model on the initial completions of rows (algorithm 4).

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, algorithms 1 to 6.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    Density,
    GibbsConditionals,
    Sampler,
    accept,
    candidates,
    run_chain,
)
from skvnce._core.random import Uniforms, at_quantiles, global_stream
from skvnce._core.training.adam import FlatAdam, Schedule, descend, named_leaves

# ----------------------------------------
# Gibbs sampling with variational conditionals, and with a correction towards a model.
#
# Each step draws one missing cell of every row from q(x_j | x).  Columns are visited in
# random order, and each missing one once before the next pass.
#
# Simkus, Rhodes and Gutmann (2023), algorithm 5, and algorithm 6 for the hypercube;
# their appendix H suggests Metropolis-Hastings instead.


class Scan(NamedTuple):
    """State of the chains, and the order in which they visit columns."""

    x: Tensor  # (*chains, n, features)
    # int (*chains, n, features): columns of each row, first the missing ones, in random
    # order
    order: Tensor
    n_missing: Tensor  # int (n,)
    step: int = 0
    log_prob: Tensor | None = None  # (*chains, n): log p(x), if the sampler has a model


class Visit(NamedTuple):
    """Diagnostics of a step."""

    # int (*chains, n): the (last) column drawn; undefined for complete rows
    columns: Tensor
    # bool (*chains, n): whether a draw was outside the hypercube and was rejected
    outside: Tensor
    # (*chains, n): acceptance probability of the draws, if there is a model
    acceptance: Tensor | None = None


class Hypercube(NamedTuple):
    """Smallest and largest values of columns in chains."""

    low: Tensor  # (features,)
    high: Tensor  # (features,)

    def on(self, device: torch.device) -> Self:
        """Return it on a device."""
        return type(self)(self.low.to(device), self.high.to(device))

    def outside(self, value: Tensor, columns: Tensor) -> Tensor:
        """Return which values (*batch,) of columns (*batch,) are not inside."""
        # negated, so that NaN is outside
        return ~((value >= self.low[columns]) & (value <= self.high[columns]))


def unbounded(n_features: int) -> Hypercube:
    """Make a hypercube that holds all finite values."""
    end = torch.full((n_features,), torch.finfo(torch.float32).max)
    return Hypercube(-end, end)


def observed_hypercube(data: Incomplete) -> Hypercube:
    """Find the smallest and largest observed values."""
    low, high = (data.x.where(data.observed, end) for end in (torch.inf, -torch.inf))
    return Hypercube(low.amin(0), high.amax(0))


def scan_order(observed: Tensor, keys: Tensor) -> Tensor:
    """Sort columns at random, the missing ones of each row first.

    `observed` (bool (n, features)).  `keys` (*chains, n, features): uniform numbers.
    """
    # 2 is above all uniform numbers
    return keys.where(~observed, 2.0).argsort(-1)


def columns_at(state: Scan, place: Tensor | int) -> Tensor:
    """Return which column of each row is drawn at a position; (*chains, n)."""
    # a modulus of 0, of complete rows, is an error
    place = place % state.n_missing.clamp(min=1)
    place = place.expand(state.order.shape[:-1]).unsqueeze(-1)
    return state.order.gather(-1, place).squeeze(-1)


def _start(data: Incomplete, x: Tensor, uniforms: Uniforms) -> Scan:
    x = data.with_values(x)
    order = scan_order(data.observed, uniforms(0, x))
    return Scan(x, order, (~data.observed).sum(-1))


def _numbers(uniforms: Uniforms, state: Scan, count: int) -> tuple[Tensor, ...]:
    """Select uniform numbers of each row that did not determine the order."""
    number = state.step + state.x.shape[-1]
    template = state.x.new_empty(()).expand(*state.x.shape[:-1], count)
    return uniforms(number, template).unbind(-1)


def variational_gibbs(
    conditionals: GibbsConditionals,
    # a cell whose draw is outside keeps its value (algorithm 6); see `unbounded`
    hypercube: Hypercube,
    *,
    uniforms: Uniforms = global_stream,
) -> Sampler[Scan, Visit]:
    """Build the sampler of algorithm 5, which accepts all draws inside a hypercube."""

    def init(data: Incomplete, x: Tensor) -> Scan:
        return _start(data, x, uniforms)

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        columns = columns_at(state, state.step)
        (uniform,) = _numbers(uniforms, state, 1)
        drawn = at_quantiles(conditionals.at(state.x, columns), uniform)
        outside = hypercube.outside(drawn, columns) & (state.n_missing > 0)
        accepted = ~outside & (state.n_missing > 0)
        x = _replace_cells(state.x, columns, drawn, accepted)
        return state._replace(x=x, step=state.step + 1), Visit(columns, outside)

    return Sampler(init, step)


def metropolised_gibbs(
    # if its log p is the logarithm of an unbiased estimate of p, drawn at each call,
    # the sampler is pseudo-marginal and remains exact (Andrieu and Roberts 2009)
    model: Density,
    conditionals: GibbsConditionals,
    hypercube: Hypercube,
    *,
    # n, the number of cells in a step.  The model is evaluated once a step
    n_together: int = 1,
    uniforms: Uniforms = global_stream,
) -> Sampler[Scan, Visit]:
    """Build a sampler of p(x_mis | x_obs) of a model, for any conditionals.

    A step draws some cells one after the other, x = v_0, v_1, ..., v_n = x', of columns
    c_1, ..., c_n or, with probability 1/2, of these in reverse.  A Metropolis-Hastings
    step accepts or rejects all of them together, with the density of the reverse path,

        p(x') prod_k q_c_k(v_(k-1) | v_k) / (p(x) prod_k q_c_k(v_k | v_(k-1)))     (1)

    which is 1 if q is the model's own conditional.  The target is zero outside the
    hypercube.
    """

    @torch.no_grad()
    def init(data: Incomplete, x: Tensor) -> Scan:
        state = _start(data, x, uniforms)
        return state._replace(log_prob=model.log_prob(state.x))

    @torch.no_grad()
    def step(state: Scan, data: Incomplete) -> tuple[Scan, Visit]:
        incomplete = state.n_missing > 0
        coin, for_accept, *for_cells = _numbers(uniforms, state, n_together + 2)
        x, there, back, outside = state.x, 0.0, 0.0, torch.zeros_like(coin).bool()
        for k, uniform in enumerate(for_cells):
            place = torch.where(coin < 0.5, k, n_together - 1 - k)
            columns = columns_at(state, state.step * n_together + place)
            q = conditionals.at(x, columns)
            drawn, old = at_quantiles(q, uniform), _cell(x, columns)
            x = _replace_cells(x, columns, drawn, incomplete)
            there = there + q.log_prob(drawn)
            back = back + conditionals.back(q, x, columns).log_prob(old)
            outside = outside | (hypercube.outside(drawn, columns) & incomplete)
        log_prob = model.log_prob(x).masked_fill(outside, -torch.inf)
        log_weight = torch.stack([state.log_prob - back, log_prob - there])
        accepted, acceptance = accept(log_weight, for_accept)
        accepted = accepted & incomplete
        return (
            state._replace(
                x=x.where(accepted.unsqueeze(-1), state.x),
                # kept and not estimated again, which would not be exact
                log_prob=log_prob.where(accepted, state.log_prob),
                step=state.step + 1,
            ),
            Visit(columns, outside, acceptance),
        )

    return Sampler(init, step)


def _cell(x: Tensor, columns: Tensor) -> Tensor:
    """Get one column of each row; (*batch,)."""
    return x.gather(-1, columns.unsqueeze(-1)).squeeze(-1)


def _replace_cells(
    x: Tensor, columns: Tensor, value: Tensor, accepted: Tensor
) -> Tensor:
    """Write a value into one column of the rows in which it was accepted."""
    value = value.to(x).where(accepted, _cell(x, columns))
    return x.scatter(-1, columns.unsqueeze(-1), value.unsqueeze(-1))


# ----------------------------------------
# The variational Gibbs objective of models with log p(x).
#
#     J = E_j E_q(x_j | x~) [log p(x_j, x~_-j) + H(q_j)]                    (9) to (11)
#
# Here x~ is a completed row, the state of a chain, which does not depend on parameters.
# One missing cell j is drawn from q and replaced.  J is a bound of log p(x_obs), except
# for the entropy of the chain itself.  Extended conditionals also depend on x~_j, eq.
# (18).
#
# A level has no derivative.  If x_j is one of K levels, the mean over q_j in J is a sum
# of log p at the row with each of them,
#
#     J = E_j [sum_k q_j(k | x~) log p(x_j = k, x~_-j) + H(q_j)]                     (2)
#
# with all terms, or an unbiased estimate of the less probable ones; see
# `skvnce._core.distributions.cells`.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, eqs. (9)-(12) and (18), algorithm 3.


# the model is evaluated at one more row for each level
MOST_LEVELS = 8  # number of levels in eq. (2)


class Redrawn(NamedTuple):
    """Rows with a replaced cell, by one value or by several."""

    tables: Tensor  # (n_tables, features)
    # bool (*cells, n_candidates): which candidates the tables contain, in order
    used: Tensor
    weights: Tensor  # (*cells, n_candidates)
    entropy: Tensor  # (*cells,): of the distributions of the cells

    def bound(self, log_prob: Tensor) -> Tensor:
        """Compute the terms of J from log p of the tables; (n_tables,) -> (*cells,).

        The weights of a cell sum to one, and their gradients to zero on average.  So
        any constant may be subtracted from log p and added again.  Here it is the mean
        over all candidates but the last, which may be a random one: that would be
        dependent on the gradients.
        """
        wide = log_prob.new_zeros(self.used.shape)
        wide = wide.masked_scatter(self.used, log_prob)
        fixed, detached = self.weights.detach()[..., :-1], wide.detach()[..., :-1]
        total = fixed.sum(-1, keepdim=True)
        middle = (fixed * detached).sum(-1, keepdim=True) / total.where(total > 0, 1.0)
        # weights of unused candidates must have no gradient: their log p is unknown
        terms = self.weights * (wide - middle)
        return terms.where(self.used, 0.0).sum(-1) + middle[..., 0] + self.entropy


def vgi(
    model: Density, conditionals: GibbsConditionals, x: Tensor, columns: Tensor
) -> Tensor:  # (*batch,)
    """Estimate J of rows by replacing one of their cells at a time, eq. (11).

    `x` (*batch, features): completed rows; extended conditionals depend on the value of
    the replaced cell.  `columns` (int (n_selected, *batch)): missing columns of each
    row, each replaced separately.
    """
    redrawn = redraw(conditionals, x, columns)
    return redrawn.bound(model.log_prob(redrawn.tables)).mean(0)


def redraw(conditionals: GibbsConditionals, x: Tensor, columns: Tensor) -> Redrawn:
    """Replace one cell of rows at a time, as `vgi` does.

    The result has a cell for each of `columns`.
    """
    values, weights, entropy = candidates(conditionals.at(x, columns), MOST_LEVELS)
    shape = *values.shape, x.shape[-1]
    rows = x.expand(*columns.shape, -1).unsqueeze(-2).expand(shape)
    places = columns[..., None, None].expand(*values.shape, 1)
    # the model is not evaluated where the weight is zero, for example at missing levels
    used = weights.detach() > 0
    moved = rows.scatter(-1, places, values.unsqueeze(-1))
    return Redrawn(moved[used], used, weights, entropy)


def regression(
    conditionals: GibbsConditionals, x: Tensor, columns: Tensor, weights: Tensor
) -> Tensor:
    """Score observed cells given the other cells of their rows, eq. (12).

    `x` (*batch, features), `weights` (that broadcasts to (*batch,)).  `conditionals`:
    their j-th input is hidden from q_j.  `columns` (int (*batch,)): an observed column
    of each row.  Returns (*batch,): ``weight * log q_j(x_j | x_-j)``; 0 where the
    weight is, even outside of bounds.
    """
    inside = conditionals.masked(x, columns).log_prob(_cell(x, columns))
    return (weights * inside).where(weights > 0, 0.0)


# ----------------------------------------
# Algorithm 1: the training of a model and its conditionals, and their warm-ups.


class Pair(NamedTuple):
    """A model and its variational conditionals."""

    model: nn.Module  # with ``log_prob(x)``
    conditionals: nn.Module  # as `skvnce._core.models.GibbsConditionals`

    def on(self, device: torch.device) -> Self:
        """Move to a device, in place."""
        return type(self)(self.model.to(device), self.conditionals.to(device))

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """List the parameters of both."""
        return named_leaves(self._asdict())


class TrainingSettings(NamedTuple):
    """Settings of the training."""

    n_updates: int = 5  # G, the number of cells that a visit draws in each chain
    n_selected: int = 1  # M, the number of cells in the objective
    batch_size: int = 128
    learning_rate: float = 1e-3  # of Adam for the model, and of AMSGrad for q
    q_learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of the model, unless it has `parameter_groups`
    # whether the encoder of an autoencoder also learns rows with missing values, which
    # has no effect on J
    trains_encoder: bool = True
    # share of the steps so far that averages span, see `Averaged`
    averaged: float | None = None


class Chains:
    """Completed tables of all rows, which a visit of some rows updates.

    `x` (n_chains, n, features): the completed tables, at first those of the caller, of
    which only the missing cells are used.  `hypercube`: range of draws; unbounded by
    default.  `n_drawn`, `n_outside` (features,): number of cells drawn, and of those
    that were outside and kept their value.
    """

    def __init__(
        self, data: Incomplete, x: Tensor, hypercube: Hypercube | None = None
    ) -> None:
        d = data.x.shape[1]
        self.data, self.x = data, data.with_values(x)
        self.hypercube = hypercube or unbounded(d).on(data.x.device)
        self.n_drawn, self.n_outside = torch.zeros(2, d, device=data.x.device)

    def on(self, device: torch.device) -> Self:
        """Return the chains on a device."""
        cube = self.hypercube.on(device)
        chains = type(self)(self.data.on(device), self.x.to(device), cube)
        chains.n_drawn.copy_(self.n_drawn)
        chains.n_outside.copy_(self.n_outside)
        return chains

    def restate(self, data: Incomplete) -> None:
        """Continue with other observed cells: other values, or more cells."""
        self.data, self.x = data, data.with_values(self.x)

    def take(self, rows: Tensor) -> Tensor:
        """Return the tables of some rows; (n_chains, n_rows, features)."""
        return self.x[:, rows]

    def move(self, conditionals: nn.Module, rows: Tensor, n_updates: int) -> Tensor:
        """Make Gibbs updates of some rows; store and return the new states."""
        part = self.data.take(rows)
        sampler = variational_gibbs(conditionals, self.hypercube)

        def count(state: Scan, visit: Visit) -> None:
            drawn = (state.n_missing > 0).expand(visit.columns.shape)
            for total, which in (
                (self.n_drawn, drawn),
                (self.n_outside, visit.outside),
            ):
                total += torch.bincount(visit.columns[which], minlength=len(total))

        start = sampler.init(part, self.take(rows))
        x = run_chain(sampler, start, part, n_updates, count).x
        self.x[:, rows] = x
        return x


def from_marginals(data: Incomplete, n_chains: int) -> Tensor:
    """Complete rows by observed cells of the same columns, drawn independently (f0).

    Returns (n_chains, n, features).
    """
    columns = [
        column[observed][torch.randint(int(observed.sum()), (n_chains, len(data.x)))]
        for column, observed in zip(data.x.T, data.observed.T, strict=True)
    ]
    return data.with_values(torch.stack(columns, -1))


def epochs(
    n: int, batch_size: int, device: torch.device | None = None
) -> Callable[[], Iterable[Tensor]]:
    """Make batches of rows that visit each once an epoch, in random order.

    The order is the same whatever the device of the indices.
    """
    return lambda: torch.randperm(n).to(device).split(batch_size)


def warm_up_conditionals(
    conditionals: nn.Module,
    chains: Chains,
    *,
    n_epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
) -> list[float]:
    """Fit q as regressions of observed cells on completed rows, algorithm 2.

    One observed cell of each row is scored in a visit, weighted such that all columns
    have the same weight, eq. (12).  Returns mean losses, sums over columns.
    """
    observed = chains.data.observed
    n_observed = observed.sum(1, keepdim=True)
    shares = n_observed / observed.sum(0).clamp(min=1) * len(observed)  # (n, features)

    def loss(rows: Tensor) -> Tensor:
        x, mask = chains.take(rows), observed[rows]
        columns = scan_order(~mask, global_stream(0, x))[..., 0]
        weights = shares[rows].expand(x.shape).gather(-1, columns.unsqueeze(-1))
        # rows without an observed cell have no cell to score
        weights = weights.squeeze(-1) * mask.any(1)
        return -regression(conditionals, x, columns, weights.to(x)).mean()

    named = list(conditionals.named_parameters())
    return descend(
        loss,
        named,
        epochs(len(observed), batch_size, observed.device),
        optimiser=FlatAdam([leaf for _, leaf in named], lr=learning_rate, amsgrad=True),
        max_iter=n_epochs,
    )


def warm_up_model(
    model: nn.Module,
    chains: Chains,
    *,
    n_epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
) -> list[float]:
    """Fit the model to completed rows, algorithm 4 without q."""
    named = list(model.named_parameters())
    return descend(
        lambda rows: -model.log_prob(chains.take(rows)).mean(),
        named,
        epochs(len(chains.data.x), batch_size, chains.x.device),
        optimiser=FlatAdam([leaf for _, leaf in named], lr=learning_rate),
        max_iter=n_epochs,
    )


def visit_loss(
    pair: Pair, chains: Chains, settings: TrainingSettings
) -> Callable[[Tensor], Tensor]:
    """Make the loss of a visit: update the chains of rows, then minus J of eq. (11).

    Complete rows contribute log p(x), once.
    """

    def loss(rows: Tensor) -> Tensor:
        complete = chains.data.observed[rows].all(1)
        whole, incomplete = chains.data.x[rows[complete]], rows[~complete]
        if not len(incomplete):
            return -pair.model.log_prob(whole).mean()
        x = chains.move(pair.conditionals, incomplete, settings.n_updates)
        columns = select(chains.data.observed[incomplete], x, settings.n_selected)
        redrawn = redraw(pair.conditionals, x, columns)
        tables = torch.cat([redrawn.tables, whole])  # one call is much cheaper
        log_prob = pair.model.log_prob(tables)
        of_redrawn, of_whole = log_prob.split([len(redrawn.tables), len(whole)])
        bound = redrawn.bound(of_redrawn).mean((0, 1))
        return -torch.cat([bound, of_whole]).mean()

    return loss


def select(observed: Tensor, x: Tensor, n_selected: int) -> Tensor:
    """Choose missing cells of each row, without repetition if there are enough.

    Returns int (n_selected, *chains, n).
    """
    order = scan_order(observed, global_stream(0, x))
    n_missing = (~observed).sum(1)
    number = torch.arange(n_selected, device=x.device)
    # cells are repeated only in rows that miss fewer than are selected
    place = number[:, None] % n_missing  # (n_selected, n)
    place = place.view(n_selected, *[1] * (x.dim() - 2), -1, 1)
    order = order.expand(n_selected, *order.shape)
    return order.gather(-1, place.expand(*order.shape[:-1], 1)).squeeze(-1)


def train(
    pair: Pair,
    chains: Chains,
    settings: TrainingSettings,
    *,
    n_epochs: int,
    # returns the batches of an epoch; by default all rows once
    batches: Callable[[], Iterable[Tensor]] | None = None,
    # maps the number of completed epochs to a factor of the learning rates
    schedule: Callable[[int], float] = lambda epoch: 1.0,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    # called after each step of the optimiser
    on_step: Callable[[], None] = lambda: None,
    # a loss of rows, without effect on J, that is added
    aside: Callable[[Tensor], Tensor] | None = None,
    max_norm: float = torch.inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses, minus J, of the epochs
    """Run the main stage of algorithm 1, in place."""
    optimiser = FlatAdam(
        [
            *_model_groups(pair.model, settings),
            {
                "params": list(pair.conditionals.parameters()),
                "lr": settings.q_learning_rate,
                "weight_decay": 0.0,
                "amsgrad": True,
            },
        ]
    )
    visit = visit_loss(pair, chains, settings)
    return descend(
        visit if aside is None else lambda rows: visit(rows) + aside(rows),
        pair.named_parameters(),
        batches or epochs(len(chains.x[0]), settings.batch_size, chains.x.device),
        optimiser=optimiser,
        schedule=Schedule(optimiser, schedule),
        max_iter=n_epochs,
        on_epoch=on_epoch,
        on_step=on_step,
        max_norm=max_norm,
    )


def _model_groups(model: nn.Module, settings: TrainingSettings) -> list[dict]:
    """Group the parameters of a model, as it says itself if it does."""
    rate, weight_decay = settings.learning_rate, settings.weight_decay
    if hasattr(model, "parameter_groups"):
        return model.parameter_groups(rate)
    leaves = list(model.parameters())
    return [{"params": leaves, "lr": rate, "weight_decay": weight_decay}]
