"""Autoencoders of the benchmarks of bounds: several fits side by side."""

import math

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import softplus

from skvnce._core.distributions.families import NormalMixture
from skvnce._core.models import draw_latents, log_joint
from skvnce._core.random import PortableNormal, global_stream
from skvnce._core.training.adam import FlatAdam, Schedule, descend
from skvnce.autoencoder.losses import BOUNDS, COMPLETED_BOUNDS, visit_loss

REACH, POINTS = 4.5, 50  # of the grid of latents
CANDIDATES = 8  # draws of the grid for each imputation


def marginal(x, observed):
    """Draw observed values of each column for all rows."""
    columns = zip(x.T, observed.T, strict=True)
    drawn = [v[seen][torch.randint(int(seen.sum()), (len(x),))] for v, seen in columns]
    return torch.stack(drawn, -1)


def importance_resampled(model, posterior, completed, observed):
    """Propose latents from all imputations, resample by weight, and decode.

    One iteration of latent-adaptive importance resampling without prior proposals
    (Simkus and Gutmann 2023, Conditional sampling of VAEs, algorithm 2, R = 0).
    """
    q = posterior(completed, torch.ones_like(completed).bool())
    z = draw_latents(q, global_stream, 1, completed)[0]  # (K, *rows, latents)
    log_q = q.log_prob(z.unsqueeze(1)).logsumexp(1)
    log_p = log_joint(model, completed, observed, z)
    return _decoded(model, z, log_p - log_q, completed, observed)


class Store:
    """Persistent imputations of all rows, which are moved before they are used.

    Parameters
    ----------
    x : Tensor of shape (fits, n, D)
        Values of hidden cells are not used.
    observed : Tensor of bool, of shape (fits, n, D)
    budget : int
        Number of imputations of each row.
    move : callable
    """

    def __init__(self, x, observed, budget, move=importance_resampled):
        self.move, self.observed = move, observed
        tables = [
            torch.stack(
                [
                    values.where(seen, marginal(values, seen))
                    for values, seen in zip(x, observed, strict=True)
                ]
            )
            for _ in range(budget)
        ]
        self.completed = torch.stack(tables)

    def update(self, model, posterior, rows):
        """Move the imputations of rows, and return them."""
        with torch.no_grad():
            moved = self.move(
                model, posterior, self.completed[:, :, rows], self.observed[:, rows]
            )
        self.completed[:, :, rows] = moved
        return moved


def by_grid(model, posterior, completed, observed):
    """Draw from p(x_mis | x_obs) of the model, whose two latents are on a grid.

    Candidates are uniform in cells of the grid, which are drawn in proportion to their
    probability at the midpoint, and are then resampled by p(x_obs, z).
    """
    k, n_fits = len(completed), len(observed)
    line = torch.linspace(-REACH, REACH, POINTS)
    grid = torch.cartesian_prod(line, line)
    cells = model.likelihood(grid.expand(n_fits, -1, -1))
    log_p = log_seen(cells, completed[0], observed) + model.prior().log_prob(grid)
    mass = log_p.softmax(-1)  # (fits, rows, points)
    shape = (*observed.shape[:2], CANDIDATES * k)
    at = mass.flatten(0, 1).multinomial(shape[-1], replacement=True).view(shape)
    z = grid[at] + (torch.rand(*shape, 2) - 0.5) * (line[1] - line[0])
    log_q = log_p.log_softmax(-1).gather(-1, at).movedim(-1, 0)
    z = z.movedim(-2, 0)
    log_p = log_joint(model, completed[0], observed, z)
    return _decoded(model, z, log_p - log_q, completed, observed)


def log_seen(cells, x, observed):
    """Compute log p(x_obs | z) of all rows at all points; (fits, rows, points)."""
    precision, seen = cells.scale.square().reciprocal(), observed.to(x)
    x = x * seen
    constant = (precision / (2 * math.pi)).log() - cells.loc.square() * precision
    linear = (cells.loc * precision).mT
    return x @ linear + (seen @ constant.mT - x.square() @ precision.mT) / 2


def _decoded(model, z, log_weight, completed, observed):
    """Resample latents by weight, and draw the missing cells given them."""
    share = log_weight.movedim(0, -1).softmax(-1)
    index = share.flatten(0, -2).multinomial(len(completed), replacement=True)
    index = index.view(*share.shape[:-1], -1).movedim(-1, 0)
    kept = z.gather(0, index.unsqueeze(-1).expand(*index.shape, z.shape[-1]))
    return completed.where(observed, model.likelihood(kept).sample())


def oracle(truth, independent=False, equal=False):
    """Make draws of p*(x_mis | x_obs), or of a distribution further from it.

    Parameters
    ----------
    truth : tuple of ndarray
        Weights (C,), means (C, D) and roots of covariances (C, D, D) of the mixture.
    independent : bool
        Whether the draws are from the product of the marginals of the mixture.
    equal : bool
        Whether the components given x_obs have equal weights (Oracle 2 at its end).
    """
    weights, means, roots = (torch.tensor(part).float() for part in truth)
    covariances = roots @ roots.mT

    def move(model, posterior, completed, observed):
        given = weights, means, covariances, completed
        draw = _product if independent else _conditional
        return completed.where(observed, draw(*given, observed, equal))

    return move


def _conditional(weights, means, covariances, completed, observed, equal):
    """Draw rows of the mixture given their observed cells; as `completed`."""
    seen = observed.to(completed).unsqueeze(-2)  # (fits, rows, 1, D)
    apart = (completed[0].unsqueeze(-2) - means) * seen  # (fits, rows, C, D)
    both = seen.unsqueeze(-1) * seen.unsqueeze(-2)
    eye = torch.eye(means.shape[1])
    inner = covariances * both + eye * (1 - seen.unsqueeze(-2))
    factor = torch.linalg.cholesky(inner)
    white = torch.linalg.solve_triangular(factor, apart.unsqueeze(-1), upper=False)
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    logits = weights.log() - white.square().sum((-2, -1)) / 2 - log_det
    share = torch.ones_like(logits) if equal else logits.softmax(-1)
    k = len(completed)
    which = share.flatten(0, -2).multinomial(k, replacement=True)
    which = which.view(*share.shape[:-1], k).movedim(-1, 0)  # (K, fits, rows)
    # Matheron's rule: a joint draw, moved by the slope times what x_obs differs from it
    noise = torch.randn(*which.shape, means.shape[1], 1)
    joint = (torch.linalg.cholesky(covariances)[which] @ noise).squeeze(-1)
    at = which[..., None, None, None].expand(*which.shape, 1, *factor.shape[-2:])
    chosen = factor.expand(k, *factor.shape).gather(-3, at).squeeze(-3)
    residual = (completed[0] - means[which] - joint) * observed
    solved = torch.cholesky_solve(residual.unsqueeze(-1), chosen).squeeze(-1)
    moved = (covariances[which] @ (solved * observed).unsqueeze(-1)).squeeze(-1)
    return means[which] + joint + moved


def _product(weights, means, covariances, completed, observed, equal):
    """Draw each cell from its marginal distribution, as `completed`."""
    which = weights.multinomial(completed.numel(), replacement=True)
    which = which.view(completed.shape).unsqueeze(-1)
    columns = torch.arange(means.shape[1]).view(-1, 1).expand_as(which)
    scale = covariances.diagonal(dim1=-2, dim2=-1).sqrt()
    loc, scale = (v[which, columns].squeeze(-1) for v in (means, scale))
    return loc + scale * torch.randn_like(loc)


def imputers(truth):
    """List the imputations of figures 5 and 6, by name."""
    return {
        "LAIR": importance_resampled,
        "p(x_mis given x_obs) of the model": by_grid,
        "of the truth": oracle(truth),
        "independent marginals": oracle(truth, independent=True),
        "of the truth, components equal": oracle(truth, equal=True),
    }


D, LATENTS = 5, 2
BLOCKS, WIDTH = 2, 64


class SideBySide(nn.Module):
    """A linear layer of each of several fits."""

    def __init__(self, n_fits, n_in, n_out):
        super().__init__()
        reach = n_in**-0.5  # as torch starts its own
        self.weight = nn.Parameter(torch.empty(n_fits, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_fits, 1, n_out))
        for value in self.parameters():
            nn.init.uniform_(value, -reach, reach)

    def forward(self, value):
        """Compute the outputs; (fits, rows, n_in) -> (fits, rows, n_out)."""
        return torch.baddbmm(self.bias, value, self.weight)


class Residual(nn.Module):
    """A network of residual blocks of each fit; (*sample, fits, rows, features)."""

    def __init__(self, n_fits, n_in, n_out, width=WIDTH):
        super().__init__()
        self.first = SideBySide(n_fits, n_in, width)
        self.last = SideBySide(n_fits, width, n_out)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(),
                SideBySide(n_fits, width, width),
                nn.ReLU(),
                SideBySide(n_fits, width, width),
            )
            for _ in range(BLOCKS)
        )

    def forward(self, value):
        """Compute the outputs."""
        apart = value.movedim(-3, 0)
        value = self.first(apart.flatten(1, -2))
        for block in self.blocks:
            value = value + block(value)
        return self.last(value.relu()).unflatten(1, apart.shape[1:-1]).movedim(0, -3)


class Completed(nn.Module):
    """Read a completed row by a network, made of the number of tables that it reads."""

    n_tables = 1

    def __init__(self, make):
        super().__init__()
        self.inner = make(self.n_tables)

    def forward(self, x, observed):
        """Compute the outputs."""
        return self.inner(x)


class Masked(Completed):
    """Read the row, zero where missing, and its mask."""

    n_tables = 2

    def forward(self, x, observed):
        """Compute the outputs."""
        seen = x.where(observed, 0.0)
        mask = observed.to(seen).expand(seen.shape)
        return self.inner(torch.cat([seen, mask], -1))


class Autoencoder(nn.Module):
    """Normal columns given normal latents, of each fit."""

    def __init__(self, n_fits, width=WIDTH, d=D, n_latents=LATENTS):
        super().__init__()
        self.n_latents = n_latents
        self.network = Residual(n_fits, n_latents, 2 * d, width)

    def prior(self):
        """Return p(z)."""
        return Independent(Normal(torch.zeros(self.n_latents), 1.0), 1)

    def likelihood(self, z):
        """Return p(x_j | z) of all j."""
        loc, free = self.network(z).chunk(2, -1)
        return Normal(loc, softplus(free) + 1e-5, validate_args=False)


# ----------------------------------------
# Encoders that give one distribution of all latents of a row.
#
# They are the posteriors of variational autoencoders: normal latents, independent
# given the row, and mixtures of them.  With missing cells the posterior of a row
# often has several modes, one for each way to complete it, which a single normal
# cannot represent.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eq. (3); Kingma and Welling
# (2014).


# distance of initial components, in standard deviations of the prior
_LATENTS_APART = 0.1
_STEEPEST_SCALE = 12.0  # bound of log-scales
_LEAST_SCALE = 1e-5  # a component without width has no density


class IndependentNormalEncoder(nn.Module):
    """Normal latents, independent given the row.

    `network`: (x, observed) to 2 outputs a latent: means, then unconstrained
    deviations.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor) -> Independent:
        """Return q(z | x); event shape (latents,), batch shape (*batch,)."""
        loc, free = self.network(x, observed).chunk(2, -1)
        return Independent(Normal(loc, _scale(free), validate_args=False), 1)


class MixtureEncoder(nn.Module):
    """Latents of a mixture of normals, eq. (3) of the paper.

    The initial components differ slightly.  Equal components would remain equal,
    because they share the gradient of a draw by their densities.

    `network`: (x, observed) to ``n_components * (2 * n_latents + 1)`` outputs: means
    and unconstrained deviations of each component in turn, then the logits of all.
    """

    def __init__(self, network: nn.Module, n_components: int, n_latents: int) -> None:
        super().__init__()
        self.network = network
        start = _LATENTS_APART * torch.randn(n_components, n_latents)
        self.register_buffer("start", start - start.mean(0))

    def forward(self, x: Tensor, observed: Tensor) -> NormalMixture:
        """Return q(z | x); event shape (latents,), batch shape (*batch,)."""
        n_components = len(self.start)
        outputs = self.network(x, observed)
        inside = outputs[..., :-n_components].unflatten(-1, (n_components, -1))
        loc, free = inside.chunk(2, -1)  # (*batch, components, latents)
        logits = outputs[..., -n_components:]
        return NormalMixture(
            logits, loc + self.start, _scale(free), validate_args=False
        )


def _scale(free: Tensor) -> Tensor:
    return softplus(free) + _LEAST_SCALE


class NormalLatentCells(nn.Module):
    """q(x_j | z, x_obs) of all columns, normal.

    `network`: (observed cells, zero where missing; latents) in one, (*batch, features +
    latents), to means and log-scales, (*batch, 2 * features).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, observed: Tensor, z: Tensor) -> Normal:
        """Return q of all columns, of batch shape (*batch, features).

        `observed` (bool that broadcasts to (*batch, features)), `z` (*batch, latents).
        `x` (*batch, features): values under the mask are arbitrary.
        """
        seen = torch.cat([x.where(observed, x.new_zeros(())), z], -1)
        loc, log_scale = self.network(seen).chunk(2, -1)
        scale = log_scale.clamp(-_STEEPEST_SCALE, _STEEPEST_SCALE).exp()
        return PortableNormal(loc, scale, validate_args=False)


COMPLETING = "demiss-vae", "cvi-vae", "mvb-vae"  # on imputations of their own


def counts(method, budget):
    """Say how many components the posterior has, and how many draws are made.

    Of a row, or of a component.
    """
    stratified = method in ("miss-svae", "miss-siwae")
    mixture = stratified or method in ("miss-vae", "miss-iwae")
    return budget * mixture, 1 if stratified or method in COMPLETING else budget


def encoder_of(method, n_fits, budget, width=WIDTH, d=D, n_latents=LATENTS):
    """Make the encoder of a method."""
    n_components, _ = counts(method, budget)
    kind = Completed if method in COMPLETING else Masked
    n_out = n_components * (2 * n_latents + 1) or 2 * n_latents
    network = kind(lambda n_tables: Residual(n_fits, n_tables * d, n_out, width))
    if not n_components:
        return IndependentNormalEncoder(network)
    return MixtureEncoder(network, n_components, n_latents)


def loss_of(method, model, posterior, x, observed, budget, move=importance_resampled):
    """Make the loss of given rows; imputations rest in the first epoch."""
    bound = {**BOUNDS, **COMPLETED_BOUNDS}[method]
    _, n_draws = counts(method, budget)
    store = Store(x, observed, budget, move) if method in COMPLETING else None
    seen_rows = 0

    def loss(rows):
        nonlocal seen_rows
        inputs = x[:, rows]
        if store is not None:
            first, seen_rows = seen_rows < x.shape[1], seen_rows + len(rows)
            moved = None if first else store.update(model, posterior, rows)
            inputs = store.completed[:, :, rows] if first else moved
        value = bound(
            model, posterior, inputs, observed[:, rows], global_stream, n_draws
        )
        return -len(x) * value.mean()  # each fit has the gradient of its own

    return loss


def half_cosine(n_epochs):
    """Let the learning rate fall to zero along half a cosine."""
    return lambda n: (1 + math.cos(math.pi * n / n_epochs)) / 2


def minimise(
    loss, modules, batches, n_epochs, rate, factor=None, on_epoch=None, **options
):
    """Minimise a loss of rows by Adam; the factor of the rate is one of the epoch."""
    named = [pair for module in modules for pair in module.named_parameters()]
    optimiser = FlatAdam([leaf for _, leaf in named], lr=rate, **options)
    return descend(
        loss,
        named,
        batches,  # returns the batches of an epoch
        optimiser=optimiser,
        schedule=factor and Schedule(optimiser, factor),
        max_iter=n_epochs,
        on_epoch=on_epoch or (lambda epoch, loss: False),  # stops by returning True
    )


def train(
    scheme,
    chains,
    batches,
    *,
    n_epochs,  # number of all epochs, and of those in which the chains do not move
    n_warm_up=20,
    learning_rate=1e-3,
    on_epoch=lambda epoch, loss: False,
):
    """Train a scheme by Adam, in place; the chains move after the warm-up."""
    losses, epoch = [visit_loss(scheme, chains, n) for n in (0, 1)], 0  # by sweeps

    def loss(rows):
        return losses[epoch >= n_warm_up](rows)

    def count(number, value):
        nonlocal epoch
        epoch = number
        return on_epoch(number, value)

    effort = n_epochs, learning_rate
    return minimise(loss, [scheme.parts], batches, *effort, on_epoch=count)
