"""Variational noise-contrastive estimation: a lower bound of the NCE objective.

With G(u, z) = log phi(u, z) - log q(z | u) - log p_y(u), where z denotes all unobserved
variables of a row (latent variables, missing cells or both),

    J_VNCE = E_x E_q log h(x, z) + nu E_y log(1 - h(y))                            (1)
    h(x, z) = 1 / (1 + nu exp(-G(x, z)))                                           (2)
    h(y) = 1 / (1 + nu / E_q exp(G(y, z)))                                         (3)

Draws of q are outside the logarithm in the first term (Jensen's bound).  They are
inside it in the second term, where they estimate phi(y) by importance sampling.  The
second term depends on q only through that estimate, so q is trained by the first term
only.  With few draws the estimate of the second term is on average too high: the bound
on J_NCE holds for exact means.

    J_NCE - J_VNCE = E_x D(x)                                                      (4)
    D = E_q log(kappa + (1 - kappa) q / p)                                         (5)
      = KL(q || p) - KL(q || kappa p + (1 - kappa) q)                              (6)

with p the posterior of the model and kappa = phi(x) / (phi(x) + nu p_y(x)).

If draws of q are inside the logarithm in the first term, too, h(x) is computed from the
average of exp(G(x, z_k)) over K draws, as h(y) in eq. (3).  As log h is concave in it,

    E_q log h(x, z)  <=  E log h(x; z_1..z_K)  <=  log h(x)                        (7)

and the gap vanishes with K also if q differs from the posterior, for example in its
number of modes (`averaged`).

Rhodes and Gutmann (2019), eqs. (13), (15)-(17); Rhodes (2018), eqs. (4.11) and
(4.20)-(4.22); Burda, Grosse and Salakhutdinov (2016), Importance weighted
autoencoders, for eq. (7).
"""

from collections.abc import Callable
from math import log
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from skvnce._core.elbo import standard_error
from skvnce._core.models import Objective
from skvnce._core.posteriors import Draws, Posterior, Uniforms

# ----------------------------------------
# Noise-contrastive estimation: classify data and noise by the log-ratio of densities.
#
# With h the probability that a row u is data, nu the number of noise rows for each
# data row, and G the log-ratio of the model and the noise,
#
#     J_NCE = E_x log h(x) + nu E_y log(1 - h(y))                                    (1)
#     h(u) = phi(u) / (phi(u) + nu p_y(u)) = 1 / (1 + nu exp(-G(u)))                 (2)
#
# Gutmann and Hyvarinen (2012); Rhodes and Gutmann (2019), eqs. (4)-(5).


def log_is_data(log_ratio: Tensor, noise_ratio: float) -> Tensor:
    """Compute log h(u), eq. (2), of each row; any shape."""
    # the sigmoid itself would underflow, and its logarithm would be infinite
    return -softplus(log(noise_ratio) - log_ratio)


def log_is_noise(log_ratio: Tensor, noise_ratio: float) -> Tensor:
    """Compute log(1 - h(u)) of each row; any shape."""
    return -softplus(log_ratio - log(noise_ratio))


def accuracy(data: Tensor, noise: Tensor, noise_ratio: float) -> Tensor:
    """Compute the accuracy of h on data and noise, with weight nu for noise rows."""
    log_nu = log(noise_ratio)
    right = (data > log_nu).double().mean(), (noise <= log_nu).double().mean()
    return (right[0] + noise_ratio * right[1]) / (1 + noise_ratio)


def nce(data: Tensor, noise: Tensor, noise_ratio: float) -> Objective:
    """Compute minus the NCE objective, eq. (1).

    `data` (n,): log phi(x) - log p_y(x) at the data; of the observed part if values are
    missing.  `noise` (n_noise,): the same at the noise.  `noise_ratio`: nu, the number
    of noise rows for each data row in the objective; the second term is nu times a
    mean, for any n_noise.
    """
    data_term = log_is_data(data, noise_ratio).mean()
    noise_term = noise_ratio * log_is_noise(noise, noise_ratio).mean()
    with torch.no_grad():
        metrics = {"accuracy": accuracy(data, noise, noise_ratio)}
    return Objective(-data_term - noise_term, metrics)


# ----------------------------------------
# Variational noise-contrastive estimation: a lower bound of the NCE objective.


class Rows(NamedTuple):
    """Rows of data or of noise."""

    x: Tensor  # (*batch, n, features): values under the mask are arbitrary
    observed: Tensor  # bool (n, features)
    log_noise: Tensor  # (*batch, n): log p_y of the observed cells

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows."""
        return type(self)(
            self.x[..., rows, :], self.observed[rows], self.log_noise[..., rows]
        )


class Contrast(NamedTuple):
    """Rows of data, and nu rows of noise for each, with the mask of that row."""

    data: Rows  # x (n, features)
    noise: Rows  # x (nu, n, features)

    def on(self, device: torch.device) -> Self:
        """Return the rows on a device."""
        return type(self)(*(Rows(*(part.to(device) for part in rows)) for rows in self))

    def take(self, rows: Tensor | slice) -> Self:
        """Return the given rows of data with their noise."""
        return type(self)(self.data.take(rows), self.noise.take(rows))

    def split(self, size: int) -> "list[Contrast]":
        """Split into parts of at most the given number of rows of data.

        Complete rows are first: a part of them needs no draws of missing cells.
        """
        complete = self.data.observed.all(1)
        kinds = [kind.nonzero().squeeze(1) for kind in (complete, ~complete)]
        return [
            self.take(rows) for kind in kinds for rows in kind.split(size) if len(rows)
        ]


def log_marginal(log_ratio: Tensor, log_weight: Tensor | None = None) -> Tensor:  # (n,)
    """Compute log E_q exp(G), which estimates log phi(u) - log p_y(u), of each row.

    `log_ratio` (n_draws, n): G(u, z) at draws z of q(. | u).  `log_weight` (n_draws,
    n): by default all draws of a row have the same weight.
    """
    log_weight = _weights(log_ratio, log_weight)
    inside = counted(log_ratio, log_weight) + log_weight
    return torch.logsumexp(inside, 0)


def marginal_error(log_ratio: Tensor, log_weight: Tensor, n_draws: int) -> Tensor:
    """Estimate the standard error of `log_marginal` from independent draws; (n,).

    `log_ratio`, `log_weight` (n_states * n_draws, n): the states that are enumerated
    are those of one draw.  `n_draws`: number of random draws; with one, nothing is
    random and the error is 0.
    """
    if n_draws == 1:
        return torch.zeros_like(log_ratio[0])
    inside = counted(log_ratio, log_weight) + log_weight
    return standard_error(torch.logsumexp(inside.unflatten(0, (-1, n_draws)), 0))


def data_term(
    log_ratio: Tensor,  # (n_draws, n): as in `log_marginal`
    noise_ratio: float,  # nu
    log_weight: Tensor | None = None,  # (n_draws, n)
    log_score: Tensor | None = None,  # as in `mean_over_draws`
) -> Tensor:  # (n,)
    """Compute E_q log h(x, z), the first term of eq. (1), of each row."""
    log_weight = _weights(log_ratio, log_weight)
    values = log_is_data(counted(log_ratio, log_weight), noise_ratio)
    return mean_over_draws(values, log_weight, log_score)


def data_loss(
    log_density: Callable[..., Tensor],  # log phi(x, z), of the values of the draws
    draws: Draws,  # of q(. | x), for rows of data
    log_noise: Tensor,  # (n,)
    noise_ratio: float,  # nu
) -> Tensor:
    """Compute minus the mean of the first term of eq. (1), which trains q."""
    ratio = log_ratio(log_density, draws, log_noise)
    return -data_term(ratio, noise_ratio, draws.log_weight).mean()


def mean_over_draws(
    values: Tensor, log_weight: Tensor, log_score: Tensor | None = None
) -> Tensor:
    """Average over the draws, with the gradient of the mean over q.

    A draw of a discrete q has no derivative.  The score function replaces it,
    ``(value - baseline) grad log q``, with the mean of the other draws as a control
    variate, which leaves the gradient unbiased (Mnih and Rezende 2016).  Enumerated
    states of one draw do not count as other draws.

    `values`, `log_weight` (n_states * n_draws, *rows).  `log_score` (n_draws, *rows):
    log q of the discrete parts of the draws, before states were enumerated.
    """
    weight = log_weight.exp()
    mean = (weight * values).sum(0)
    if log_score is None:
        return mean
    with torch.no_grad():
        by_draw = -1, len(log_score)
        own = (weight * values).unflatten(0, by_draw).sum(0)
        share = weight.unflatten(0, by_draw).sum(0)
        others = (mean - own) / (1 - share) if len(log_score) > 1 else 0.0
    return mean + ((own - share * others) * (log_score - log_score.detach())).sum(0)


def divergence(
    log_q_over_p: Tensor,  # (n_draws, n): log q(z | x) - log p(z | x) at draws z of q
    log_ratio: Tensor,  # (n,): log phi(x) - log p_y(x)
    noise_ratio: float,  # nu
    log_weight: Tensor | None = None,  # (n_draws, n): as in `log_marginal`
) -> Tensor:  # (n,)
    """Compute the f-divergence of Lemma 1, eq. (5), of each row.

    It is zero if q is the posterior of the model, and increases with nu to KL(q || p).
    """
    log_weight = _weights(log_q_over_p, log_weight)
    log_kappa = log_is_data(log_ratio, noise_ratio)
    log_rest = log_is_noise(log_ratio, noise_ratio)
    inside = log_rest + counted(log_q_over_p, log_weight)
    return (log_weight.exp() * torch.logaddexp(log_kappa, inside)).sum(0)


def _weights(values: Tensor, log_weight: Tensor | None) -> Tensor:
    """Return the weights, by default the same for all draws."""
    if log_weight is None:
        return torch.full_like(values, -log(len(values)))
    return log_weight


def counted(values: Tensor, log_weight: Tensor) -> Tensor:
    """Replace the values of draws of weight zero, which may be infinite or NaN."""
    return values.where(log_weight > -torch.inf, 0.0)


def vnce(
    # (n_draws, n): G(x, z) at draws z from q(. | x).  If nothing is unobserved (or q is
    # exact) the draws are equal and the objective is that of NCE
    data: Tensor,
    # (n_draws, n_noise): the same at the noise.  The posterior q is trained by the
    # first term only: pass draws and log q without gradient here, or use
    # `variational_values`
    noise: Tensor,
    noise_ratio: float,  # nu, as in `nce`
    *,
    # logarithms of weights that sum to 1 over the draws; by default all are equal
    data_weight: Tensor | None = None,
    noise_weight: Tensor | None = None,
) -> Objective:
    """Compute minus the VNCE objective, eq. (1), from log-ratios."""
    first = data_term(data, noise_ratio, data_weight).mean()
    marginal = log_marginal(noise, noise_weight)
    second = noise_ratio * log_is_noise(marginal, noise_ratio).mean()
    with torch.no_grad():
        right = accuracy(log_marginal(data, data_weight), marginal, noise_ratio)
    return Objective(-first - second, {"data_term": -first.detach(), "accuracy": right})


Criterion = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def by_noise(
    data: Tensor, marginal: Tensor, log_weight: Tensor, log_score: Tensor | None
) -> Tensor:  # (n,): its mean is eq. (1)
    """Compute the VNCE objective of each row of data, with its nu rows of noise.

    `data`, `log_weight` (n_draws, n).  `log_score`: as in `data_term`.  `marginal` (nu,
    n): log E_q exp(G) at the noise.
    """
    nu = len(marginal)
    first = data_term(data, nu, log_weight, log_score)
    return first + log_is_noise(marginal, nu).sum(0)


def averaged(criterion: Criterion) -> Criterion:
    """Average the draws of each row of data inside the logarithm, eq. (7).

    The result has no score-function gradient, so that a posterior of discrete draws
    cannot be trained by it.

    `criterion`: `by_noise`, or another one that is concave in exp(G) of the data.
    """

    def values(
        data: Tensor, marginal: Tensor, log_weight: Tensor, log_score: Tensor | None
    ) -> Tensor:
        inside = log_marginal(data, log_weight)[None]
        return criterion(inside, marginal, torch.zeros_like(inside), None)

    return values


def log_ratio(
    log_density: Callable[..., Tensor], draws: Draws, log_noise: Tensor
) -> Tensor:
    """Compute G(u, z) of each draw; (n_draws, *rows).

    `log_density`: log phi(u, z), of the values of the draws.  `log_noise` (*rows,): log
    p_y of the observed cells.
    """
    return log_density(*draws.values) - draws.log_prob - log_noise


def noise_marginal(
    log_density: Callable[..., Tensor], draws: Draws, noise: Rows
) -> Tensor:
    """Compute log E_q exp(G) at the noise; (nu, n)."""
    return log_marginal(
        log_ratio(log_density, draws, noise.log_noise), draws.log_weight
    )


def drawn_values(
    log_density: Callable[..., Tensor],
    draws: tuple[Draws, Draws],
    contrast: Contrast,
    criterion: Criterion = by_noise,
) -> Tensor:
    """Compute the objective of each row at given draws of data and noise; (n,)."""
    first, second = draws
    return criterion(
        log_ratio(log_density, first, contrast.data.log_noise),
        noise_marginal(log_density, second, contrast.noise),
        first.log_weight,
        first.log_score,
    )


def variational_values(
    # log phi(u, z), of the values of the posterior's draws
    log_density: Callable[..., Tensor],
    posterior: Posterior,
    contrast: Contrast,
    uniforms: tuple[Uniforms, Uniforms],  # two Uniforms: for the data and for the noise
    criterion: Criterion = by_noise,
) -> Tensor:
    """Compute the objective of each row for a model and a posterior; (n,).

    The posterior has no gradient from the noise.
    """
    data, noise = contrast
    drawn = posterior(data.x, data.observed, uniforms[0])
    with torch.no_grad():
        elsewhere = posterior(noise.x, noise.observed, uniforms[1])
    return drawn_values(log_density, (drawn, elsewhere), contrast, criterion)


# ----------------------------------------
# Conditional noise-contrastive estimation: noise around the data, without a density.
#
# A row y of noise is made from the row x of data by a kernel with p(y | x) = p(x |
# y), and the model classifies which of the two is the data,
#
#     J = 2 E log 1 / (1 + phi(y) / phi(x))                                          (1)
#
# The normaliser cancels, and so does the density of the noise.  With unobserved
# variables z of a row, phi(x) is replaced by phi(x, z) / q(z | x) at draws of q, and
# phi(y) by its estimate from draws at y, as in VNCE.  As log(1 / (1 + a / phi)) is
# concave in phi, the first replacement gives a lower bound.
#
# Ceylan and Gutmann (2018), eqs. (8)-(10).


def by_neighbours(
    data: Tensor, marginal: Tensor, log_weight: Tensor, log_score: Tensor | None = None
) -> Tensor:  # (n,)
    """Compute eq. (1) of each row of data.

    `data`, `log_weight` (n_draws, n).  `log_score`: as in `data_term`.  `marginal` (nu,
    n): log phi at the nu neighbours of each row.
    """
    values = logsigmoid(counted(data, log_weight)[:, None] - marginal)
    if log_score is not None:
        log_score = log_score[:, None]
    return 2 * mean_over_draws(values, log_weight[:, None], log_score).mean(0)
