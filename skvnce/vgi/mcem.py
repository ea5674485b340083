"""Monte Carlo expectation maximisation: fit a flow to rows that it imputes itself.

The model is fitted to completed rows.  At intervals the missing cells are drawn from
the current model, by chains that start at rows of the model.  Before the first draw
they have their initial values.

Wei and Tanner (1990); Cannella, Soltani and Tarokh (2021); Simkus, Rhodes and Gutmann
(2023), section 6.4.
"""

from collections.abc import Callable, Iterable
from itertools import count
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor, nn

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Flow, Info, Sampler, accept, counted, run_chain
from skvnce._core.random import Uniforms, global_stream, inside
from skvnce._core.training.adam import FlatAdam, Schedule, descend
from skvnce.vgi.training import Hypercube, TrainingSettings, epochs

# ----------------------------------------
# Projected latent Markov chain Monte Carlo: Metropolis-Hastings in the base of a
# flow.
#
# A flow has x = T(u).  The chain moves whole rows y = T(u) by proposals of u, and
# only their missing cells are used as imputations.  The target of u is
#
#   p(x_obs, y_mis) N(y_obs; x_obs, sigma^2) |det dT/du|,               (1)
#
# whose last factor results from the change of variables, so that y_mis has the
# density p(y_mis | x_obs) for any sigma.  Proposals mix draws of all of u and small
# steps,
#
#   k(u' | u) = s N(u'; 0, w^2 I) + (1 - s) N(u'; u, r^2 I),            (2)
#
# and the Metropolis-Hastings ratio contains the density of the mixture.
#
# Cannella, Soltani and Tarokh (2021), Projected latent Markov chain Monte Carlo:
# conditional sampling of normalizing flows, with the additional factor of the
# determinant; Simkus, Rhodes and Gutmann (2023), section 6.4.


class Proposal(NamedTuple):
    """Proposals of eq. (2), and sigma of eq. (1); defaults are those of the authors."""

    share: float = 0.5  # s, the share of draws of all of u
    wide: float = 1.0  # w and r, standard deviations of the draws and of the steps
    small: float = 0.01
    sigma: float = 1e-3  # standard deviation of the observed cells of y around x

    def draw(self, u: Tensor, uniform: Tensor) -> Tensor:
        """Draw u' by uniform numbers (*batch, features + 1)."""
        noise = torch.special.ndtri(inside(uniform[..., 1:]))
        anew = uniform[..., :1] < self.share
        return torch.where(anew, self.wide * noise, u + self.small * noise)

    def log_prob(self, to: Tensor, origin: Tensor) -> Tensor:
        """Compute log k(to | origin), eq. (2); (*batch, features) -> (*batch,)."""
        share = to.new_tensor([self.share, 1 - self.share]).log()
        parts = _log_normal(to, self.wide), _log_normal(to - origin, self.small)
        return (torch.stack(parts, -1) + share).logsumexp(-1)


class Projected(NamedTuple):
    """State of the chains."""

    x: Tensor  # (*chains, n, features): completed tables
    # (*chains, n, features): in the base; observed cells of T(u) can differ from those
    # of x
    u: Tensor
    log_target: Tensor  # (*chains, n): of eq. (1)
    step: int = 0


def projected_latent(
    model: Flow,
    *,
    n_chains: int = 1,  # number of chains, which start from rows of the model
    proposal: Proposal = Proposal(),  # noqa: B008 (a constant)
    uniforms: Uniforms = global_stream,
) -> Sampler[Projected, Info]:
    """Build a sampler of p(x_mis | x_obs) of a flow."""

    def state_at(data: Incomplete, u: Tensor, y: Tensor) -> Projected:
        x = data.with_values(y)
        log_target = log_projected(model, x, y, proposal.sigma)
        return Projected(x, u, counted(log_target))

    @torch.no_grad()
    def init(data: Incomplete) -> Projected:
        template = data.x.expand(n_chains, *data.x.shape)
        x = model.from_base(torch.special.ndtri(inside(uniforms(0, template))))
        return state_at(data, model.to_base(x)[0], x)

    @torch.no_grad()
    def step(state: Projected, data: Incomplete) -> tuple[Projected, Info]:
        *shape, d = state.u.shape
        # for the noise of d cells, the kind of proposal and the acceptance
        template = state.u.new_empty(()).expand(*shape, d + 2)
        # `init` uses the numbers of step 0
        numbers = uniforms(state.step + 1, template)
        u = proposal.draw(state.u, numbers[..., :-1])
        moved = state_at(data, u, model.from_base(u))
        log_k = torch.stack(
            [proposal.log_prob(state.u, u), proposal.log_prob(u, state.u)]
        )
        log_target = torch.stack([state.log_target, moved.log_target])
        accepted, acceptance = accept(log_target - log_k, numbers[..., -1])
        x, u = (
            new.where(accepted.unsqueeze(-1), old)
            for new, old in zip(moved[:2], state[:2], strict=True)
        )
        log_target = moved.log_target.where(accepted, state.log_target)
        return Projected(x, u, log_target, state.step + 1), Info(acceptance)

    return Sampler(init, step)


def log_projected(
    model: Flow, x: Tensor, y: Tensor, sigma: float
) -> Tensor:  # (*chains, n)
    """Compute the log-density of u, eq. (1), up to a constant of the row.

    `x` (*chains, n, features): ``data.with_values(y)``.  `y` (*chains, n, features):
    T(u).
    """
    apart = ((y - x) / sigma).square().sum(-1) / 2
    _, log_det = model.to_base(y)  # log|det du/dy|
    return model.log_prob(x) - apart - log_det


def _log_normal(value: Tensor, scale: float) -> Tensor:
    """Compute log N(value; 0, scale^2 I)."""
    inside = (value / scale).square() + log(2 * pi) + 2 * log(scale)
    return -inside.sum(-1) / 2


# ----------------------------------------
# Monte Carlo expectation maximisation: fit a flow to rows that it imputes itself.


_ROWS = 2048  # number of rows, over all chains, that are updated at a time


def at_intervals(lengths: dict[int, int], every: int) -> Callable[[int], int]:
    """Make a schedule of increasing lengths of chains.

    `lengths`: first epoch: length of the chains from it on; ``{40: 500, 350: 2000}``.
    `every`: number of epochs between draws, from the first of these epochs on.  Returns
    maps the number of an epoch, from 1 on, to the steps of chains before it.
    """
    first = min(lengths)

    def n_steps(epoch: int) -> int:
        if epoch < first or (epoch - first) % every:
            return 0
        return lengths[max(start for start in lengths if start <= epoch)]

    return n_steps


def reimpute(
    sampler: Sampler,  # with as many chains as there are tables
    data: Incomplete,
    x: Tensor,  # (n_chains, n, features)
    n_steps: int,
    hypercube: Hypercube | None = None,  # range to which the draws are clamped
) -> None:
    """Draw the missing cells by chains that start independently, in place."""
    incomplete = (~data.observed).any(1).nonzero().squeeze(1)
    for rows in incomplete.split(max(1, _ROWS // len(x))):
        part = data.take(rows)
        drawn = run_chain(sampler, sampler.init(part), part, n_steps).x
        if hypercube is not None:
            drawn = drawn.clamp(hypercube.low, hypercube.high)
        x[:, rows] = part.with_values(drawn)


def completed_loss(
    model: nn.Module, data: Incomplete, x: Tensor
) -> Callable[[Tensor], Tensor]:
    """Make the loss of rows: -log p(x), mean over tables; complete rows count once."""
    complete = data.observed.all(1)

    def loss(rows: Tensor) -> Tensor:
        whole, incomplete = rows[complete[rows]], rows[~complete[rows]]
        tables = torch.cat([x[:, incomplete].flatten(0, 1), data.x[whole]])
        of_drawn, of_whole = model.log_prob(tables).split(
            [len(x) * len(incomplete), len(whole)]
        )
        return -(of_drawn.sum() / len(x) + of_whole.sum()) / len(rows)

    return loss


def train(
    model: nn.Module,  # as `skvnce._core.models.Flow`, unless a sampler is given
    data: Incomplete,
    # (n_chains, n, features): completed tables, whose missing cells are updated in
    # place
    x: Tensor,
    settings: TrainingSettings,  # only the settings of the model are used
    *,
    n_epochs: int,
    # maps the number of an epoch, from 1 on, to the length of chains that draw the
    # missing cells before it, or to 0; see `at_intervals`
    n_steps: Callable[[int], int],
    # with as many chains as there are tables; by default `projected_latent`
    sampler: Sampler | None = None,
    # range to which draws are clamped after their chains
    hypercube: Hypercube | None = None,
    # returns the batches of an epoch; by default all rows once
    batches: Callable[[], Iterable[Tensor]] | None = None,
    # maps the number of completed epochs to a factor of the learning rate
    schedule: Callable[[int], float] = lambda epoch: 1.0,
    # called with the epoch and its mean loss; stops by returning True
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
    max_norm: float = torch.inf,  # gradients are clipped to this norm
) -> list[float]:  # mean losses of the epochs
    """Fit a flow to rows with missing values, in place."""
    sampler = sampler or projected_latent(model, n_chains=len(x))
    batches = batches or epochs(len(data.x), settings.batch_size, data.x.device)
    # `descend` asks for batches once an epoch
    numbers = count(1)

    def batches_of_epoch() -> Iterable[Tensor]:
        if steps := n_steps(next(numbers)):
            reimpute(sampler, data, x, steps, hypercube)
        return batches()

    named = list(model.named_parameters())
    optimiser = FlatAdam(
        [leaf for _, leaf in named],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    return descend(
        completed_loss(model, data, x),
        named,
        batches_of_epoch,
        optimiser=optimiser,
        schedule=Schedule(optimiser, schedule),
        max_iter=n_epochs,
        on_epoch=on_epoch,
        max_norm=max_norm,
    )
