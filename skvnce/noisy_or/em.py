"""Learning noisy-OR: five methods to infer the causes, with one interface.

============ ================================ ==========================================
method       posterior of the causes          what learning maximises
============ ================================ ==========================================
`acp`        conjugate to lines above the     ELBO, by relaxed draws
             likelihood, slopes by a network
`avi`        free, by a network               ELBO, by relaxed draws
`svi`        free, kept for each row          ELBO of chords below the likelihood
`lb_cdi`     conjugate to the best chords     likelihood of these chords
`ub_cdi`     conjugate to the best lines      likelihood of these lines
============ ================================ ==========================================

Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
learning noisy-OR, table 1; Jaakkola and Jordan (1999), Variational probabilistic
inference and the QMR-DT network; Jang, Gu and Poole (2017), Categorical
reparameterization with Gumbel-softmax.
"""

from collections.abc import Callable
from math import exp
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.training.adam import named_leaves, train
from skvnce.noisy_or.model import (
    CauseNetwork,
    Cells,
    Evidence,
    LineNetwork,
    NoisyOrModel,
    RowNetwork,
    chord_shift,
    conjugate_shift,
    elbo,
    gather,
    lower_bound,
    lower_elbo,
    tighter_chord,
    tighter_line,
    upper_bound,
)

# those of the paper
_HOTTEST, _COLDEST = 0.5, 0.2  # temperatures of the relaxed draws
# the lowest temperature is reached after 900 steps
_COOLING = 1e-3  # rate at which the temperature decreases in a step
_CDI_STEPS = 30  # number of fixed-point iterations
_START_LEAK = 0.1  # share of the ones that the initial leak explains
# weights are -log(1 - p), and unconstrained parameters infinite at weights of zero
_START_WITHIN = (1e-4, 0.9)  # range of initial probabilities
_WARM_UP = 0.2  # share of the passes
_FREE_STEP = 0.3  # share of the way to the optimal free parameters of a row, per visit


class Rows(NamedTuple):
    """A sparse table: lists of the cells of each row that are on or missing."""

    start: Tensor  # int (n + 1,): index of the first cell of each row in the other two
    columns: Tensor  # int (n_listed,)
    on: Tensor  # bool (n_listed,): False if the cell is missing

    def on_device(self, device: torch.device) -> Self:
        """Return the table on a device."""
        return type(self)(*(part.to(device) for part in self))

    def cells(self, rows: Tensor, dtype: torch.dtype = torch.float32) -> Cells:
        """List the cells of rows, padded to the longest row."""
        rows = rows.to(self.start.device)
        first, count = self.start[rows], self.start[rows + 1] - self.start[rows]
        place = torch.arange(max(1, int(count.max())), device=rows.device)
        inside = place < count[:, None]
        # any valid place for the padding
        place = (first[:, None] + place).where(inside, 0)
        # an empty tensor has no valid place
        if not len(self.columns):
            return Cells(place, inside.to(dtype), inside.to(dtype))
        on = self.on[place]
        return Cells(
            self.columns[place], (on & inside).to(dtype), (~on & inside).to(dtype)
        )


class Inference(NamedTuple):
    """A method to infer the causes."""

    # the parameters to learn besides the model; none for some methods
    network: nn.Module
    # (evidence, cells) to the logits of q, (n, causes), for new rows
    posterior: Callable[[Evidence, Cells], Tensor]
    # (evidence, cells, rows) to the bound to maximise, (n,); `rows` are indices
    bound: Callable[[Evidence, Cells, Tensor], Tensor]


class Relaxation:
    """Relaxed draws of Bernoulli causes, which have gradients (binary Concrete).

    `n_steps`: number of steps so far: the temperature decreases from 0.5 to 0.2.
    """

    def __init__(self, n_draws: int) -> None:
        self.n_draws, self.n_steps = n_draws, 0

    def __call__(self, logit: Tensor) -> Tensor:
        """Draw at the temperature of this step; (n_draws, n, causes)."""
        temperature = max(_COLDEST, _HOTTEST * exp(-_COOLING * self.n_steps))
        self.n_steps += 1
        noise = torch.rand(self.n_draws, *logit.shape, dtype=logit.dtype).to(logit)
        tiny = torch.finfo(logit.dtype).eps
        # uniform numbers may be 0, whose logit is infinite
        return ((logit + noise.logit(eps=tiny)) / temperature).sigmoid()


class Sizes(NamedTuple):
    """Sizes of the networks: table, causes, hidden units, listed cells of a row."""

    n_features: int
    n_causes: int
    hidden: tuple[int, ...]
    n_listed: float

    def rows(self) -> RowNetwork:
        """Build the layer that reads rows."""
        return RowNetwork(self.n_features, self.hidden, self.n_listed)


def acp(sizes: Sizes, relaxed: Relaxation) -> Inference:
    """Amortise the conjugate posterior: eq. (11) with psi of eq. (14), trained by (16).

    The gradient also passes through the posterior to the model.
    """
    network = LineNetwork(sizes.rows(), sizes.hidden[-1], sizes.n_features)

    def posterior(evidence: Evidence, cells: Cells) -> Tensor:
        return evidence.prior_logit + conjugate_shift(evidence, network(*cells))

    return _amortise(network, posterior, relaxed)


def avi(sizes: Sizes, relaxed: Relaxation) -> Inference:
    """Amortise a posterior that does not depend on the model, section 2.5."""
    network = CauseNetwork(sizes.rows(), sizes.hidden[-1], sizes.n_causes)
    return _amortise(network, lambda evidence, cells: network(*cells), relaxed)


def _amortise(
    network: nn.Module,
    posterior: Callable[[Evidence, Cells], Tensor],
    relaxed: Relaxation,
) -> Inference:
    def bound(evidence: Evidence, cells: Cells, rows: Tensor) -> Tensor:
        logit = posterior(evidence, cells)
        return elbo(evidence, logit, relaxed(logit))

    return Inference(network, posterior, bound)


def svi(sizes: Sizes, relaxed: Relaxation) -> Inference:
    """Keep a free posterior and chords for each row, section 2.4.

    A visit moves them a part of the way to the optimal ones, which for the posterior is
    a step along its natural gradient.  New rows use the optimal ones.
    """
    stored: dict[int, tuple[Tensor, Tensor]] = {}

    def bound(evidence: Evidence, cells: Cells, rows: Tensor) -> Tensor:
        fixed = _detach(evidence)
        logit, r = _start_of_chords(fixed)
        for place, row in enumerate(rows.tolist()):
            if row in stored:
                row_logit, row_r = stored[row]
                logit[place], r[place, : len(row_r)] = row_logit, row_r
        best = tighter_chord(fixed, logit, r)
        r = torch.lerp(r, best, _FREE_STEP)
        best = fixed.prior_logit + chord_shift(fixed, r)
        logit = torch.lerp(logit, best, _FREE_STEP)
        listed = (cells.on + cells.missing).sum(-1).long().tolist()
        for place, row in enumerate(rows.tolist()):
            # without padding, whose width differs between batches
            stored[row] = logit[place], r[place, : listed[place]]
        return lower_elbo(evidence, logit, r)

    return Inference(nn.Module(), _chord_posterior, bound)


def lb_cdi(sizes: Sizes, relaxed: Relaxation) -> Inference:
    """Use the chords of the tightest lower bound; no network."""

    def bound(evidence: Evidence, cells: Cells, rows: Tensor) -> Tensor:
        # the best chords are a stationary point: their gradient would add nothing
        return lower_bound(evidence, best_chords(_detach(evidence)))

    return Inference(nn.Module(), _chord_posterior, bound)


def ub_cdi(sizes: Sizes, relaxed: Relaxation) -> Inference:
    """Use the lines of the tightest upper bound, eq. (12); no network."""

    def posterior(evidence: Evidence, cells: Cells) -> Tensor:
        return evidence.prior_logit + conjugate_shift(evidence, best_lines(evidence))

    def bound(evidence: Evidence, cells: Cells, rows: Tensor) -> Tensor:
        # the best lines are a stationary point: their gradient would add nothing
        return upper_bound(evidence, best_lines(_detach(evidence)))

    return Inference(nn.Module(), posterior, bound)


INFERENCES = {"acp": acp, "avi": avi, "svi": svi, "lb-cdi": lb_cdi, "ub-cdi": ub_cdi}


def best_chords(evidence: Evidence, n_steps: int = _CDI_STEPS) -> Tensor:
    """Find the chords of the tightest lower bound; (n, n_listed, causes)."""
    logit, r = _start_of_chords(evidence)
    for _ in range(n_steps):
        r = tighter_chord(evidence, logit, r)
        logit = evidence.prior_logit + chord_shift(evidence, r)
    return r


def best_lines(evidence: Evidence, n_steps: int = _CDI_STEPS) -> Tensor:
    """Find the lines of the tightest upper bound; (n, n_listed)."""
    psi = torch.ones_like(evidence.leak)
    for _ in range(n_steps):
        psi = tighter_line(evidence, psi)
    return psi


def _start_of_chords(evidence: Evidence) -> tuple[Tensor, Tensor]:
    r = torch.full_like(evidence.weight, 1 / evidence.weight.shape[-1])
    return evidence.prior_logit + chord_shift(evidence, r), r


def _chord_posterior(evidence: Evidence, cells: Cells) -> Tensor:
    return evidence.prior_logit + chord_shift(evidence, best_chords(evidence))


def _detach(evidence: Evidence) -> Evidence:
    return Evidence(*(part.detach() for part in evidence))


def hard_elbo(evidence: Evidence, logit: Tensor, uniform: Tensor) -> Tensor:
    """Average the ELBO over exact draws; uniform numbers (n_draws, n, causes)."""
    return elbo(evidence, logit, (uniform < logit.sigmoid()).to(logit))


def start(table: Rows, components: Tensor) -> NoisyOrModel:
    """Make the initial model.

    Leaks explain a tenth of the ones of each column; if they explained more, too little
    would be left for the causes.

    `components` (causes, features): probabilities with which causes turn columns on.
    """
    n_causes, n_features = components.shape
    on = torch.bincount(table.columns[table.on], minlength=n_features)
    missing = torch.bincount(table.columns[~table.on], minlength=n_features)
    # `start` has one entry more than rows, so that this is half a cell on and half off
    rate = (on + 0.5) / (len(table.start) - missing)
    leak = -_START_LEAK * torch.log1p(-rate)
    weight = -torch.log1p(-components.clamp(*_START_WITHIN))
    # one cause in a row on average
    prior = torch.full((n_causes,), min(0.5, 1 / n_causes))
    return NoisyOrModel(weight.T, leak, prior).float()


class Learner(NamedTuple):
    """A model and its inference method."""

    model: NoisyOrModel
    inference: Inference

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """List the parameters of both."""
        return named_leaves({"model": self.model}) + self.network_parameters()

    def network_parameters(self) -> list[tuple[str, Tensor]]:
        """List the parameters of the inference method; empty without a network."""
        return named_leaves({"network": self.inference.network})


def loss(
    learner: Learner, table: Rows, penalty: float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Make the loss of training, in nats a row; a function of row indices.

    `penalty` is the penalty of a unit of weight.  It corresponds to an exponential
    prior whose rate is `penalty` times the number of rows.
    """

    def mean_loss(rows: Tensor) -> Tensor:
        cells, causes = table.cells(rows), learner.model.causes()
        evidence = gather(causes, cells)
        fit = learner.inference.bound(evidence, cells, rows).mean()
        return penalty * causes.weight.sum() - fit

    return mean_loss


@torch.no_grad()
def least_likelihood(model: NoisyOrModel, table: Rows, rows: Tensor) -> float:
    """Average the tightest lower bound of rows, whatever method infers the causes."""
    evidence = gather(model.causes(), table.cells(rows))
    return float(lower_bound(evidence, best_chords(evidence)).mean())


def learn(
    learner: Learner,
    table: Rows,
    *,
    penalty: float,
    batch_size: int,
    learning_rate: float,
    max_iter: int,
    on_epoch: Callable[[int, float], bool],
) -> list[float]:
    """Pass over the rows, in place; see `train`.

    In the first fifth of the passes a network only learns the posterior of the initial
    model.  Otherwise an untrained network would distort the model.
    """
    n, network = len(table.start) - 1, learner.network_parameters()
    first = int(_WARM_UP * max_iter) if network else 0
    losses: list[float] = []
    stopped = False

    def show(epoch: int, mean: float) -> bool:
        nonlocal stopped
        stopped = on_epoch(len(losses) + epoch, mean)
        return stopped

    together = learner.named_parameters()
    for moved, passes in ((network, first), (together, max_iter - first)):
        if passes and not stopped:
            losses += train(
                loss(learner, table, penalty),
                moved,
                n,
                batch_size=batch_size,
                learning_rate=learning_rate,
                max_iter=passes,
                on_epoch=show,
            )
    return losses
