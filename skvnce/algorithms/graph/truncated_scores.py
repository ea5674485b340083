"""Scores of edges of a truncated Gaussian: standard normal where there is no edge.

Score matching without an L1 penalty is a regression for each column: in the notation of
`score_matching`, ``theta_j = Gamma_j^-1 g_j`` estimates row j of (K, b), and its error
is the average over rows r of

    q_rj = Gamma_j^-1 (g_rj - Gamma_rj theta_j) / (1 - l_rj)                         (1)

with leverages l_rj (MacKinnon and White 1985, Some heteroskedasticity-consistent
covariance matrix estimators with improved finite sample properties).  T_ij, the mean of
both estimates of K_ij, has at most the mean of both standard errors; near independence
it has this mean.  Losses and penalties of the fit do not enter, so that the scores are
the same for all algorithms.

Missing cells are drawn given the observed ones, from the fit with its K.  Draws repeat
K, so that one step of Fisher scoring is ``K_ij + (T_ij - K_ij) / s_ij``, as in
`copula_scores`, with the share s_ij of the rows that observe both columns.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.em import Fit, completed_by_gibbs, to_model
from skvnce.algorithms.graph.score_matching import extended
from skvnce.objectives.score_matching import saturating_weight

_BURN_IN = 10  # sweeps over the missing cells
_KEPT, _ROWS = 10, 50_000  # sweeps whose rows are used, in total about as many rows
_RIDGE = 1e-9  # share of the mean diagonal of Gamma_j; equal columns make it singular
_LEVERAGE = 0.9  # the largest, of rows that determine a parameter alone


def edge_scores(
    data: Incomplete, fit: Fit, centre: Tensor, ridge: float, *, fit_linear: bool
) -> Tensor:
    """Compute signed scores of all pairs; (features, features), zero on the diagonal.

    `data`: scaled columns. `centre`: (features,). `ridge`: of the entries of K off the
    diagonal, used where columns outnumber rows.
    """
    n, d = data.x.shape
    rows, precision = completed(data, fit, centre), fit.theta.precision
    ridge = ridge if n <= 2 * d else 0.0
    estimate, error = regressions(rows, centre, ridge, fit_linear=fit_linear)
    seen = data.observed.to(rows)
    share = (seen.T @ seen / n).clamp(min=1 / n)
    found = precision + (estimate - precision) / share
    # draws add to the variance of the moments, see `copula_scores`
    unit = (n * share / (1 + (1 / share - 1) * n / len(rows))).sqrt()
    # without variation both are zero
    tiny = torch.finfo(error.dtype).tiny
    return (-found * unit / error.clamp(min=tiny)).fill_diagonal_(0.0)


def completed(data: Incomplete, fit: Fit, centre: Tensor) -> Tensor:
    """Draw the missing cells some times; (n_draws n, features)."""
    e_step = completed_by_gibbs(data)
    state, model = e_step.init(), to_model(fit.theta, centre)
    if e_step.once:
        return e_step.step(state, model)[1]
    for _ in range(_BURN_IN):
        state, rows = e_step.step(state, model)
    tables = [rows]
    while len(tables) < min(_KEPT, _ROWS // len(rows)):
        state, rows = e_step.step(state, model)
        tables.append(rows)
    return torch.cat(tables)


def regressions(
    x: Tensor, centre: Tensor, ridge: float, *, fit_linear: bool
) -> tuple[Tensor, Tensor]:
    """Compute T and the root mean square of its errors, (features, features) each."""
    parts = _regressions(x, centre, ridge, fit_linear)
    each = (torch.stack(part) for part in zip(*parts, strict=True))
    return tuple((one + one.T) / 2 for one in each)


def _regressions(
    x: Tensor, centre: Tensor, ridge: float, fit_linear: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Estimate the rows of K one by one, with the size of the terms of eq. (1)."""
    (h, slope), u = saturating_weight(x), extended(x - centre, fit_linear)
    n, d = x.shape
    for j in range(d):
        weighted = u * h[:, j, None]
        gamma = weighted.T @ u / n
        strength = torch.full_like(gamma[0], _RIDGE * float(gamma.diagonal().mean()))
        strength[:d] += ridge
        strength[j] -= ridge
        inverse = torch.linalg.pinv(gamma + strength.diag(), hermitian=True)
        target = slope[:, j] @ u / n
        target[j] += h[:, j].mean()
        theta, along = inverse @ target, u @ inverse
        error = along * (slope[:, j] - weighted @ theta)[:, None]
        error += torch.outer(h[:, j], inverse[j])
        leverage = (along * weighted).sum(1) / n
        error /= 1 - leverage.clamp(max=_LEVERAGE)[:, None]
        yield theta[:d], error[:, :d].square().mean(0).sqrt()
