"""Posteriors of missing cells, as steps: draws, mask, uniform numbers -> draws.

`NormalCells` is the conditional of one joint normal: for all patterns of missing cells,
its mean and precision are the only parameters (Rhodes and Gutmann 2019, section 5, with
logarithms of the columns that are positive: the joint lognormal).  With w the columns,
or their logarithms, and P the precision,

    w_m | w_o ~ N(mean_m - P_mm^-1 P_mo (w_o - mean_o), P_mm^-1)                   (1)
    log q(x_m | x_o) = log N(w_m) - sum over positive m of w_j                     (2)
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import log, pi, prod

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution
from torch.distributions import Normal as IndependentNormal

from skvnce._core.distributions.normal import (
    ByMissing,
    FreeNormal,
    Normal,
    arrange,
    jittered_cholesky,
    log_prob_observed,
)
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import (
    Draws,
    EnumerableModel,
    log_joint_of_states,
    repeated,
    with_latents,
    with_missing,
    with_states,
)
from skvnce._core.random import Uniforms, at_quantiles, inside

# ----------------------------------------
# Amortised posteriors: a network maps a row and its mask to q(z | x).
#
# Kingma and Welling (2014), section 2.3; Rhodes and Gutmann (2019), section 4.


class Perceptron(nn.Module):
    """A network of (standardised row, mask), in which missing cells are zero.

    `mean`, `scale` (features,): of the columns.  `hidden`: sizes of the hidden layers.
    """

    def __init__(
        self, mean: Tensor, scale: Tensor, hidden: Sequence[int], n_outputs: int
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        sizes = [2 * len(mean), *hidden]
        layers = [
            part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.Tanh())
        ]
        last = nn.Linear(sizes[-1], n_outputs)
        nn.init.zeros_(last.weight)  # initially the same q for every row
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute outputs; (*batch, n, features), (n, features) -> (*batch, n, k)."""
        # after the division, so that cells under the mask may be NaN
        standardised = ((x - self.mean) / self.scale).where(observed, 0.0)
        mask = observed.to(standardised).expand_as(standardised)
        return self.layers(torch.cat([standardised, mask], -1))


class NormalEncoder(nn.Module):
    """Normal latents, independent given the row.

    `network`: with twice as many outputs as latents: means, logarithms of deviations.
    """

    def __init__(self, network: Perceptron) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> IndependentNormal:
        """Return q(z | x); batch shape (*batch, n, latents)."""
        mean, log_std = self.network(x, observed).chunk(2, -1)
        return IndependentNormal(mean, log_std.exp(), validate_args=False)


class BernoulliEncoder(nn.Module):
    """Latents of zeros and ones, independent given the row.

    `network`: with as many outputs as latents: their logits.
    """

    def __init__(self, network: Perceptron) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> Bernoulli:
        """Return q(z | x); batch shape (*batch, n, latents)."""
        return Bernoulli(logits=self.network(x, observed), validate_args=False)


class Latents(nn.Module):
    """Draw the latents by an encoder, as a step.

    `encoder`: (x, observed), both (n, features), to a distribution of batch (n,
    latents).
    """

    def __init__(self, encoder: nn.Module, n_latents: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.n_latents = n_latents

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw given completed rows."""
        q, uniform = self.posterior(draws, observed, uniforms)
        return with_latents(draws, q, uniform)

    def posterior(
        self, draws: Draws, observed: Tensor, uniforms: Uniforms
    ) -> tuple[Distribution, Tensor]:
        """Return q, of complete rows once, and uniform numbers for its draws."""
        (x,) = draws.values
        rows = x[0] if observed.all() else x
        mask = observed.expand(rows.shape).flatten(0, -2)
        template = x.new_empty(()).expand(*x.shape[:-1], self.n_latents)
        return self.encoder(rows.flatten(0, -2), mask), uniforms(2, template)


class DefensiveLatents(nn.Module):
    """Draw the latents from a mixture of q of the row and of q of other rows.

    Half of the draws come from the row's, the rest from the other rows' in turn, with
    the density of the mixture.  A q with one mode misses the others; those of other
    rows cover them, so that importance weights stay bounded (`DefensiveCells`).

    `rows`: the other rows, of the training data.
    """

    def __init__(self, learnt: Latents, rows: Incomplete) -> None:
        super().__init__()
        self.learnt = learnt
        self.rows = rows

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw given completed rows; few draws are of the row's q alone."""
        allocation = _allocate(len(draws.log_prob), len(self.rows.x))
        if len(allocation) == 1:
            return self.learnt(draws, observed, uniforms)
        q, uniform = self.learnt.posterior(draws, observed, uniforms)
        flat = -1, *q.batch_shape
        of_row = at_quantiles(q, uniform.reshape(flat)).view(uniform.shape)
        others = [
            self.learnt.encoder(*self.rows.take(slice(i, i + 1)))
            for i in range(len(allocation) - 1)
        ]
        parts = zip(others, allocation[1:], strict=True)
        of_others = [at_quantiles(other, uniform[at]) for other, at in parts]
        order = torch.cat(allocation).argsort()
        z = torch.cat([of_row[allocation[0]], *of_others])[order]
        density = q.log_prob(z.reshape(flat)).view(z.shape).sum(-1)
        density = density + log(len(allocation[0]) / len(z))
        for other, at in zip(others, allocation[1:], strict=True):
            log_prob = other.log_prob(z).sum(-1) + log(len(at) / len(z))
            density = torch.logaddexp(density, log_prob)
        values = *draws.values, z
        return draws._replace(values=values, log_prob=draws.log_prob + density)


def _allocate(n_draws: int, n_others: int) -> list[Tensor]:
    """Allocate draws to the components: the row's q, and that of each other row.

    Quarters of the draws alternate, and so do the other rows in a quarter: each part is
    evenly distributed if draws are points of a lattice, and has as many missing cells
    of either half of `DefensiveCells`.
    """
    is_other = torch.arange(n_draws) * 4 // n_draws % 2 == 1
    of_row, of_others = (part.nonzero().squeeze(1) for part in (~is_other, is_other))
    n_others = min(n_others, max(1, len(of_others) // 2)) if len(of_others) else 0
    return [of_row, *(of_others[i::n_others] for i in range(n_others))]


# ----------------------------------------
# Posteriors of missing cells, as steps: draws, mask, uniform numbers -> draws.


_TINY = 1e-12  # replaces zeros in logarithms


class NormalCells(nn.Module):
    """Draw the missing cells from the conditionals of a joint normal, eq. (1)."""

    def __init__(
        self,
        initial: Normal,  # of the columns, or their logarithms; the initial parameters
        # bool (features,): columns whose logarithms are normal
        positive: Tensor,
        # bool (features,): columns that an earlier step draws: q is conditional on
        # their cells
        drawn: Tensor | None = None,
        # (features,): of the positive columns: smaller observed values are replaced by
        # this in logarithms, as there may be zeros
        floor: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.free = FreeNormal(initial)
        self.register_buffer("positive", positive)
        self.register_buffer(
            "drawn", torch.zeros_like(positive) if drawn is None else drawn
        )
        tiny = torch.full(positive.shape, _TINY).double()
        self.register_buffer("floor", tiny if floor is None else floor)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; the mask has shape (n, features)."""
        observed = observed | self.drawn
        if observed.all():
            return draws
        (x,) = draws.values
        # cells under the mask may be NaN, and 1 has a logarithm
        w = normal_scale(x.where(observed, 1.0), self.positive, self.floor)
        eps = torch.special.ndtri(inside(uniforms(0, x)))
        drawn, log_q = self._conditional(w, observed, eps)
        # 0 in other columns, whose exp could overflow and make gradients NaN
        logs = drawn.where(self.positive, 0.0)
        log_q = log_q - logs.where(~observed, 0.0).sum(-1)  # eq. (2)
        cells = torch.where(self.positive, logs.exp(), drawn)
        return draws._replace(
            values=(x.where(observed, cells),), log_prob=draws.log_prob + log_q
        )

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Compute log q of the missing cells of completed rows; (*batch, n)."""
        observed = observed | self.drawn
        w = normal_scale(x, self.positive, self.floor)
        normal, d = self.free.factored(), x.shape[-1]
        joint = -(self.free.square(w) + normal.log_det + d * log(2 * pi)) / 2
        logs = w.where(self.positive & ~observed, 0.0).sum(-1)
        return joint - log_prob_observed(normal, w, observed, _factor) - logs

    def _conditional(
        self, w: Tensor, observed: Tensor, eps: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Complete rows by eq. (1), and compute log q; all patterns in batches."""
        normal, batches = self.free.factored(), arrange(w, observed, kinds=1)
        completed, log_q = [], []
        for batch in batches:
            conditional = ByMissing.of(normal, batch, _factor)
            noise = batch.gather_cells(eps[..., batch.rows, :])
            completed.append(conditional.at(noise) + normal.mean)
            is_cell = batch.block < w.shape[-1]
            density = ((noise.square() + log(2 * pi)) * is_cell).sum(-1) / 2
            log_det = conditional.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            log_q.append(log_det - density)
        order = torch.cat([batch.rows for batch in batches]).argsort()
        return torch.cat(completed, -2)[..., order, :], torch.cat(log_q, -1)[..., order]


def _factor(precision: Tensor) -> Tensor:
    """Factorise, with jitter if a training step gives a singular matrix."""
    return jittered_cholesky(precision)[0]


def normal_scale(x: Tensor, positive: Tensor, floor: Tensor | float = _TINY) -> Tensor:
    """Take logarithms of the positive columns, after clipping them to the floor."""
    return torch.where(positive, x.clamp(min=floor).log(), x)


class DefensiveCells(nn.Module):
    """Draw the missing cells from a mixture of a learnt normal and of its initial one.

    Half of the draws come from each, with the density of the mixture.  A learnt q may
    concentrate on one of several modes; the initial one covers all of them, so that
    importance weights stay bounded (Hesterberg 1995, defensive importance sampling).

    `learnt`: before training, still equal to its initial normal; `fixed`: what takes
    the place of the initial normal.
    """

    def __init__(self, learnt: NormalCells, fixed: nn.Module | None = None) -> None:
        super().__init__()
        self.learnt = learnt
        self.fixed = fixed or copy.deepcopy(learnt).requires_grad_(False)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; a single draw is of the learnt normal alone."""
        n_draws = len(draws.log_prob)
        if (observed | self.learnt.drawn).all() or n_draws == 1:
            return self.learnt(draws, observed, uniforms)
        first, second = slice((n_draws + 1) // 2), slice((n_draws + 1) // 2, None)
        rest = draws, observed, uniforms
        first = _draw_half(self.learnt, self.fixed, first, *rest)
        second = _draw_half(self.fixed, self.learnt, second, *rest)
        return Draws(
            (torch.cat([first.values[0], second.values[0]]),),
            torch.cat([first.log_prob, second.log_prob]),
            torch.cat([first.log_weight, second.log_weight]),
            draws.log_score,
        )


def _draw_half(
    source: NormalCells,
    other: NormalCells,
    part: slice,
    draws: Draws,
    observed: Tensor,
    uniforms: Uniforms,
) -> Draws:
    """Make the draws of one half from `source`, with the density of the mixture."""
    (x,) = draws.values
    before, weight = draws.log_prob[part], draws.log_weight[part]
    drawn = source(Draws((x[part],), before, weight), observed, uniforms)
    densities = drawn.log_prob - before, other.log_prob(drawn.values[0], observed)
    # both parts have half of the weight, even if their numbers of draws differ by one
    share = log(len(x) / (2 * len(before)))
    return drawn._replace(
        log_prob=before + torch.logaddexp(*densities) - log(2),
        log_weight=weight + share,
    )


class BinaryCells(nn.Module):
    """Draw the missing cells of columns of zeros and ones, by a network.

    `network`: (rows, mask) to logits (*rows, features).  `binary` (bool (features,)):
    the columns that it draws; others stay missing.
    """

    def __init__(self, network: Perceptron, binary: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("binary", binary)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw; the mask has shape (n, features)."""
        if (observed | ~self.binary).all():
            return draws
        (x,) = draws.values
        q = Bernoulli(logits=self.network(x, observed), validate_args=False)
        return with_missing(draws, observed | ~self.binary, q, uniforms(1, x))


# ----------------------------------------
# Posteriors that draw the unobserved variables of a row in several steps.
#
# A step maps (draws, mask, uniform numbers) to draws with one more part, as
# `skvnce._core.models` describes.


Step = Callable[[Draws, Tensor, Uniforms], Draws]


class SequentialPosterior(nn.Module):
    """A posterior that draws the unobserved variables of a row step by step."""

    def __init__(self, steps: Iterable[Step], n_draws: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.n_draws = n_draws

    def forward(self, x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Draw, as described in `Posterior`."""
        draws = repeated(x, _n_draws(self.steps, self.n_draws, observed))
        for step in self.steps:
            draws = step(draws, observed, uniforms)
        return draws

    @property
    def n_states(self) -> int:
        """The number of states that are enumerated for each draw."""
        exact = (step for step in self.steps if isinstance(step, ExactStates))
        return prod(step.n_states for step in exact)


class ExactStates(nn.Module):
    """The exact posterior of latents with finitely many states, as a step.

    It uses the model at the time when rows are drawn.
    """

    def __init__(self, model: EnumerableModel) -> None:
        super().__init__()
        self._model = (model,)  # its parameters are not those of the posterior
        self.n_states = len(model.states)

    def forward(self, draws: Draws, observed: Tensor, uniforms: Uniforms) -> Draws:
        """Enumerate the states."""
        (model,) = self._model
        with torch.no_grad():
            # constant, as the exact posterior has no parameters of its own
            log_q = log_joint_of_states(model, draws.values[0]).log_softmax(0)
        return with_states(draws, model.states, log_q)


def sequential(
    steps: Iterable[nn.Module], n_draws: int, observed: Tensor
) -> SequentialPosterior:
    """Make a posterior of steps, with a single draw if nothing is random.

    `observed` (bool (n, features)): the mask of the rows to draw.
    """
    return SequentialPosterior(steps, _n_draws(steps, n_draws, observed))


def is_drawn(step: nn.Module) -> bool:
    """Return whether a step draws latents, at random."""
    return isinstance(step, Latents | DefensiveLatents)


def defend(steps: Iterable[nn.Module], rows: Incomplete) -> nn.ModuleList:
    """Draw latents also from the posteriors of other rows."""
    return nn.ModuleList(
        DefensiveLatents(step, rows) if isinstance(step, Latents) else step
        for step in steps
    )


def _n_draws(steps: Iterable[nn.Module], n_draws: int, observed: Tensor) -> int:
    """Return the number of draws that rows need: one if nothing is random."""
    random = not observed.all() or any(map(is_drawn, steps))
    return n_draws if random else 1


def draw_nothing(x: Tensor, observed: Tensor, uniforms: Uniforms) -> Draws:
    """Draw nothing: the model has log phi of the observed cells in closed form.

    The values are the arguments of its `log_marginal`.  The exact posterior would give
    the same objective: log phi(x, z) - log q(z | x) is then log phi(x) at all z.
    """
    draws = repeated(x)
    return draws._replace(values=(*draws.values, observed))
