"""Variational noise-contrastive estimation: its objectives, and how they are maximised.

Three sections, with the equation numbers of Rhodes and Gutmann (2019):

- NCE, eqs. (4) and (5): classify data and noise by the log-ratio of their densities;
- VNCE, eqs. (13) to (17): a lower bound for rows with unobserved variables;
- variational EM, steps (E) and (M), and joint ascent, which maximise either.

Rhodes and Gutmann (2019), Variational noise-contrastive estimation; Rhodes (2018),
Variational noise-contrastive estimation (thesis); Gutmann and Hyvarinen (2012),
Noise-contrastive estimation of unnormalized statistical models.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from math import log
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import softplus

from skvnce._core.models import Draws, Posterior, standard_error
from skvnce._core.progress import OnRound, tell_round
from skvnce._core.random import Uniforms, global_stream, stream
from skvnce._core.training.adam import train
from skvnce._core.training.lbfgs import minimise_parameters
from skvnce._core.training.proximal import Certified

# ----------------------------------------
# Noise-contrastive estimation: classify data and noise by the log-ratio of densities.
#
# With h the probability that a row u is data, nu the number of noise rows for each
# data row, and G the log-ratio of the model and the noise,
#
#     J_NCE = E_x log h(x) + nu E_y log(1 - h(y))                                    (4)
#     h(u) = phi(u) / (phi(u) + nu p_y(u)) = 1 / (1 + nu exp(-G(u)))                 (5)


def log_is_data(log_ratio: Tensor, noise_ratio: float) -> Tensor:
    """Compute log h(u), eq. (5), of each row; any shape."""
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


def nce(data: Tensor, noise: Tensor, noise_ratio: float) -> Tensor:
    """Compute minus the NCE objective, eq. (4).

    `data` (n,): log phi(x) - log p_y(x) at the data; of the observed part if values are
    missing.  `noise` (n_noise,): the same at the noise.  `noise_ratio`: nu, the number
    of noise rows for each data row in the objective; the second term is nu times a
    mean, for any n_noise.
    """
    data_term = log_is_data(data, noise_ratio).mean()
    noise_term = noise_ratio * log_is_noise(noise, noise_ratio).mean()
    return -data_term - noise_term


# ----------------------------------------
# Variational noise-contrastive estimation: a lower bound of the NCE objective.
#
# With G(u, z) = log phi(u, z) - log q(z | u) - log p_y(u), where z denotes all
# unobserved variables of a row (latent variables, missing cells or both),
#
#     J_VNCE = E_x E_q log h(x, z) + nu E_y log(1 - h(y))                           (13)
#     h(x, z) = 1 / (1 + nu exp(-G(x, z))),  h(y) = 1 / (1 + nu / E_q exp(G(y, z)))
#
# Draws of q are outside the logarithm in the first term (Jensen's bound).  They are
# inside it in the second term, where they estimate phi(y) by importance sampling.  The
# second term depends on q only through that estimate, so q is trained by the first term
# only.  With few draws the estimate of the second term is on average too high: the
# bound on J_NCE holds for exact means.
#
#     J_NCE - J_VNCE = E_x D(x)                                                     (15)
#     D = E_q log(kappa + (1 - kappa) q / p)                                        (16)
#       = KL(q || p) - KL(q || kappa p + (1 - kappa) q)                             (17)
#
# with p the posterior of the model and kappa = phi(x) / (phi(x) + nu p_y(x)).
#
# If draws of q are inside the logarithm in the first term, too, h(x) is computed from
# the average of exp(G(x, z_k)) over K draws, as h(y) is.  As log h is concave in it,
#
#     E_q log h(x, z)  <=  E log h(x; z_1..z_K)  <=  log h(x)                       (IW)
#
# and the gap vanishes with K also if q differs from the posterior, for example in its
# number of modes (`importance_weighted`).
#
# Eqs. (15) to (17) are Lemma 1; eqs. (13) and (15) to (17) are (4.11) and (4.20) to
# (4.22) of Rhodes (2018).  Burda, Grosse and Salakhutdinov (2016), Importance weighted
# autoencoders, for (IW).


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
    """Compute log E_q exp(G) of each row, eq. (55): log phi(u) - log p_y(u).

    `log_ratio` (n_draws, n): G(u, z) at draws z of q(. | u).  `log_weight` (n_draws,
    n): by default all draws of a row have the same weight.
    """
    log_weight = _weights(log_ratio, log_weight)
    inside = replace_unweighted(log_ratio, log_weight) + log_weight
    return torch.logsumexp(inside, 0)


def marginal_error(log_ratio: Tensor, log_weight: Tensor, n_draws: int) -> Tensor:
    """Estimate the standard error of `log_marginal` from independent draws; (n,).

    `log_ratio`, `log_weight` (n_states * n_draws, n): the states that are enumerated
    are those of one draw.  `n_draws`: number of random draws; with one, nothing is
    random and the error is 0.
    """
    if n_draws == 1:
        return torch.zeros_like(log_ratio[0])
    inside = replace_unweighted(log_ratio, log_weight) + log_weight
    return standard_error(torch.logsumexp(inside.unflatten(0, (-1, n_draws)), 0))


def data_term(
    log_ratio: Tensor,  # (n_draws, n): as in `log_marginal`
    noise_ratio: float,  # nu
    log_weight: Tensor | None = None,  # (n_draws, n)
    log_score: Tensor | None = None,  # as in `mean_over_draws`
) -> Tensor:  # (n,)
    """Compute E_q log h(x, z), the first term of eq. (13), of each row."""
    log_weight = _weights(log_ratio, log_weight)
    values = log_is_data(replace_unweighted(log_ratio, log_weight), noise_ratio)
    return mean_over_draws(values, log_weight, log_score)


def data_loss(
    log_density: Callable[..., Tensor],  # log phi(x, z), of the values of the draws
    draws: Draws,  # of q(. | x), for rows of data
    log_noise: Tensor,  # (n,)
    noise_ratio: float,  # nu
) -> Tensor:
    """Compute minus the mean of the first term of eq. (13), which trains q."""
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
        sizes = -1, len(log_score)
        of_draw = (weight * values).unflatten(0, sizes).sum(0)
        share = weight.unflatten(0, sizes).sum(0)
        others = (mean - of_draw) / (1 - share) if len(log_score) > 1 else 0.0
    return mean + ((of_draw - share * others) * (log_score - log_score.detach())).sum(0)


def divergence(
    log_q_over_p: Tensor,  # (n_draws, n): log q(z | x) - log p(z | x) at draws z of q
    log_ratio: Tensor,  # (n,): log phi(x) - log p_y(x)
    noise_ratio: float,  # nu
    log_weight: Tensor | None = None,  # (n_draws, n): as in `log_marginal`
) -> Tensor:  # (n,)
    """Compute the f-divergence of Lemma 1, eq. (16), of each row.

    It is zero if q is the posterior of the model, and increases with nu to KL(q || p).
    """
    log_weight = _weights(log_q_over_p, log_weight)
    log_kappa = log_is_data(log_ratio, noise_ratio)
    log_rest = log_is_noise(log_ratio, noise_ratio)
    inside = log_rest + replace_unweighted(log_q_over_p, log_weight)
    return (log_weight.exp() * torch.logaddexp(log_kappa, inside)).sum(0)


def _weights(values: Tensor, log_weight: Tensor | None) -> Tensor:
    """Return the weights, by default the same for all draws."""
    if log_weight is None:
        return torch.full_like(values, -log(len(values)))
    return log_weight


def replace_unweighted(values: Tensor, log_weight: Tensor) -> Tensor:
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
) -> Tensor:
    """Compute minus the VNCE objective, eq. (13), from log-ratios."""
    first = data_term(data, noise_ratio, data_weight).mean()
    marginal = log_marginal(noise, noise_weight)
    second = noise_ratio * log_is_noise(marginal, noise_ratio).mean()
    return -first - second


Criterion = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def by_noise(
    data: Tensor, marginal: Tensor, log_weight: Tensor, log_score: Tensor | None
) -> Tensor:  # (n,): its mean is eq. (13)
    """Compute the VNCE objective, eq. (13), of each row of data and its nu of noise.

    `data`, `log_weight` (n_draws, n).  `log_score`: as in `data_term`.  `marginal` (nu,
    n): log E_q exp(G) at the noise.
    """
    nu = len(marginal)
    first = data_term(data, nu, log_weight, log_score)
    return first + log_is_noise(marginal, nu).sum(0)


def importance_weighted(criterion: Criterion) -> Criterion:
    """Average the draws of each row of data inside the logarithm, (IW).

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


def values_at(
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
    return values_at(log_density, (drawn, elsewhere), contrast, criterion)


# ----------------------------------------
# Variational EM, and joint ascent: how the objectives are maximised.
#
# With J of eq. (13) or (IW), alpha the parameters of q and theta those of the model,
# variational EM (Rhodes and Gutmann 2019, Corollary 1) alternates
#
#     E-step: alpha <- argmax_alpha of the first term of J; `fit_posterior`          (E)
#     M-step: theta <- argmax_theta J at draws of the new q; `fit_model`             (M)
#
# With an exact posterior there is no E-step, and J_NCE never decreases; if the
# unobserved variables can be integrated out, the M-step alone is NCE.
#
# Both steps use L-BFGS, which needs deterministic functions: draws are functions of
# fixed uniform numbers (common random numbers).  The two steps are not joined into one,
# because the gradient omits the dependence of the noise terms on the posterior; with
# few draws it is then not the gradient of the value, and line searches fail.
# Stochastic gradients need no line search: `joint_ascent` optimises both at once.
#
# Rows are processed in parts, so that memory is proportional to the draws of one part.


class Problem(NamedTuple):
    """The model, the posterior and the data of a fit."""

    # log phi, of the values of the posterior's draws
    log_density: Callable[..., Tensor]
    posterior: Posterior
    contrast: Contrast  # data and noise
    criterion: Criterion = by_noise  # or `importance_weighted`
    seed: int = 0  # seed of the common random numbers
    size: int = 2**20  # number of rows of data that are processed at a time
    # trains the posterior, instead of `criterion`
    posterior_criterion: Criterion | None = None
    # maps uniform numbers to those that are used: `shifted_lattice` makes the draws of
    # a row evenly distributed
    arrange: Callable[[Uniforms], Uniforms] = lambda uniforms: uniforms

    def parts(self) -> Iterator[tuple[Contrast, tuple[Uniforms, Uniforms]]]:
        """Yield the parts of the rows, each with its random numbers."""
        for place, part in enumerate(self.contrast.split(self.size)):
            # far apart, so that parts share no numbers with fits of the next seeds
            first = 2 * (self.seed + 1000003 * place)
            pair = stream(first), stream(first + 1)
            yield part, tuple(self.arrange(uniforms) for uniforms in pair)


class Trace(NamedTuple):
    """The record of the iterations."""

    loss: list[float]  # minus the objective after each round
    converged: bool  # whether the last rounds changed it by less than the tolerance


def draw_both(
    posterior: Posterior, contrast: Contrast, uniforms: tuple[Uniforms, Uniforms]
) -> tuple[Draws, Draws]:
    """Draw the unobserved variables of rows of data and of noise."""
    pairs = zip(contrast, uniforms, strict=True)
    first, second = (posterior(rows.x, rows.observed, u) for rows, u in pairs)
    return first, second


def log_mean(log_ratio: Tensor) -> Tensor:
    """Average over all rows of noise, in logarithms: the log of the integral of phi."""
    return log_ratio.flatten().logsumexp(0) - log(log_ratio.numel())


def fit_posterior(
    problem: Problem,
    parameters: Iterable[Tensor],
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> None:
    """Maximise the objective in the parameters of q, noise fixed: step (E)."""
    n = len(problem.contrast.data.observed)
    criterion = problem.posterior_criterion or problem.criterion
    with torch.no_grad():
        fixed = [
            noise_marginal(
                problem.log_density,
                problem.posterior(part.noise.x, part.noise.observed, second),
                part.noise,
            )
            for part, (_, second) in problem.parts()
        ]

    def losses() -> Iterator[Tensor]:
        for (part, (first, _)), marginal in zip(problem.parts(), fixed, strict=True):
            draws = problem.posterior(part.data.x, part.data.observed, first)
            ratio = log_ratio(problem.log_density, draws, part.data.log_noise)
            values = criterion(ratio, marginal, draws.log_weight, None)
            yield -values.sum() / n

    minimise_parameters(losses, parameters, tol=tol, max_iter=max_iter)


def fit_model(
    problem: Problem,
    parameters: Iterable[Tensor],
    *,
    penalty: Callable[[], Tensor] | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    on_step: Callable[[float], bool] = lambda loss: False,
) -> Certified:
    """Maximise the objective in the parameters of the model: step (M).

    Unobserved variables are drawn from the posterior at the start.  The objective of
    the result is minus that of VNCE, plus the penalty.
    """
    n = len(problem.contrast.data.observed)
    # a copy, because an exact posterior would follow the model while it is fitted
    posterior = copy.deepcopy(problem.posterior)

    def draw_parts() -> Iterator[tuple[Contrast, tuple[Draws, Draws]]]:
        for part, uniforms in problem.parts():
            with torch.no_grad():
                draws = draw_both(posterior, part, uniforms)
            yield part, draws  # outside, because a generator keeps its contexts

    # draws of all rows are in memory only if they are those of one part
    stored = list(draw_parts()) if problem.size >= n else None

    def losses() -> Iterator[Tensor]:
        for part, draws in stored or draw_parts():
            values = values_at(problem.log_density, draws, part, problem.criterion)
            yield -values.sum() / n
        if penalty:
            yield penalty()

    return minimise_parameters(
        losses, parameters, tol=tol, max_iter=max_iter, on_step=on_step
    )


def variational_em(
    problem: Problem,
    parameters: Iterable[Tensor],  # those of the model
    posterior_parameters: Iterable[Tensor] = (),
    *,
    penalty: Callable[[], Tensor] | None = None,
    n_steps: int = 100,
    n_posterior_steps: int | None = None,  # that of the E-step, if another
    n_posterior_rounds: int | None = None,
    tol: float = 1e-8,  # change of the loss at which to stop
    patience: int = 1,
    max_iter: int = 100,  # maximum number of rounds
    on_round: OnRound = tell_round,
) -> Trace:
    """Alternate steps (E) and (M), in place.

    `posterior_parameters`: if empty, the posterior is exact and there is no E-step.
    `penalty`: a function of the model's parameters that is added to the loss.
    `n_steps`: maximum number of iterations of L-BFGS in each of the two steps.
    `n_posterior_rounds`: number of rounds with an E-step, if not all. `patience`:
    number of successive rounds with smaller changes after which to stop: symmetric
    starts are left slowly. `on_round`: called with the round, the loss and its change;
    stops by returning True.
    """
    leaves, of_posterior = list(parameters), list(posterior_parameters)
    of_e_step = {"max_iter": n_posterior_steps or n_steps}
    n_e_steps = max_iter if n_posterior_rounds is None else n_posterior_rounds
    losses: list[float] = []
    n_quiet = 0
    for n_round in range(1, max_iter + 1):
        if of_posterior and n_round <= n_e_steps:
            fit_posterior(problem, of_posterior, **of_e_step)
        fit = fit_model(problem, leaves, penalty=penalty, max_iter=n_steps)
        losses.append(fit.objective)
        change = abs(losses[-1] - losses[-2]) if len(losses) > 1 else torch.inf
        n_quiet = n_quiet + 1 if change < tol else 0
        if on_round(n_round, losses[-1], change) or n_quiet == patience:
            return Trace(losses, n_quiet == patience)
    return Trace(losses, False)


def joint_ascent(
    problem: Problem,
    parameters: Iterable[tuple[str, Tensor]],
    *,
    penalty: Callable[[], Tensor] | None = None,
    batch_size: int,
    learning_rate: float,
    max_iter: int,
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False,
) -> list[float]:
    """Maximise the objective in model and posterior together, by Adam on mini-batches.

    Every batch uses new draws, from torch's stream.  Returns the losses.
    """
    device = problem.contrast.data.observed.device

    def loss(rows: Tensor) -> Tensor:
        values = variational_values(
            problem.log_density,
            problem.posterior,
            problem.contrast.take(rows.to(device)),
            (problem.arrange(global_stream),) * 2,
            problem.criterion,
        )
        return -values.mean() + (penalty() if penalty else 0.0)

    return train(
        loss,
        parameters,
        len(problem.contrast.data.observed),
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_iter=max_iter,
        on_epoch=on_epoch,
    )


class Evaluation(NamedTuple):
    """The objective at given parameters."""

    # (n,), of each row, with its noise, in the order of `Contrast.split`
    values: Tensor
    # log phi(u) - log p_y(u), estimated by importance sampling
    data: Tensor  # (n,)
    noise: Tensor  # (nu, n)

    def on(self, device: torch.device) -> Self:
        """Return it on a device."""
        return type(self)(*(part.to(device) for part in self))

    def accuracy(self) -> Tensor:
        """Compute the accuracy of classifying data and noise."""
        return accuracy(self.data, self.noise, 1.0)


@torch.no_grad()
def evaluate(problem: Problem) -> Evaluation:
    """Compute the objective of each row, and log-ratios."""
    parts = []
    for part, uniforms in problem.parts():
        first, second = draw_both(problem.posterior, part, uniforms)
        ratio = log_ratio(problem.log_density, first, part.data.log_noise)
        marginal = noise_marginal(problem.log_density, second, part.noise)
        score = first.log_weight, first.log_score
        values = problem.criterion(ratio, marginal, *score)
        parts.append((values, log_marginal(ratio, first.log_weight), marginal))
    return Evaluation(*(torch.cat(part, -1) for part in zip(*parts, strict=True)))
