"""Posterior draws of the parameters where those of `em` are too slow.

That is in tables with far more columns than rows, and in large tables.
"""

from collections.abc import Iterator
from functools import partial
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal, cholesky
from skvnce._core.incomplete import Incomplete, Rows
from skvnce._core.progress import step
from skvnce._core.random import normal_numbers, standard_gamma
from skvnce.gaussian import em

# ----------------------------------------
# Posterior draws of the parameters of a table with far more columns than rows.
#
# Data augmentation (`em.posterior_draws`) factorises matrices of all columns in each
# step.  Here mean and covariance are integrated out instead (a collapsed Gibbs sampler,
# Liu 1994): a step draws the missing cells of one row given the other n - 1 completed
# rows, and parameters are only drawn where they are needed.
#
# Let m be the mean of the other rows and C (n - 1, features) their deviations from it.
# Under the prior of `em.draw_parameters`, with f degrees of freedom given all rows, the
# row has a multivariate t distribution with f - d degrees of freedom, location m and
# scale :math:`\frac{n}{(n - 1)(f - d)} \Psi` with :math:`\Psi = C'C + k I` (Gelman et
# al. 2013, section 3.6).  Given its observed cells, with :math:`r = x_o - m_o`,
#
# .. math::
#
#     x_m = m_m + \Psi_{mo} \Psi_{oo}^{-1} r + g \sqrt{
#         \Bigl(\tfrac{n}{n - 1} + r' \Psi_{oo}^{-1} r\Bigr) / \chi^2_{f - d + |o|}},
#     \quad g \sim N(0, \Psi_{mm} - \Psi_{mo} \Psi_{oo}^{-1} \Psi_{om}).  \qquad (1)
#
# With :math:`A = C_o C_o' + k I`, a matrix of n - 1 rows, for any v
#
# .. math::
#
#     \Psi_{mo} \Psi_{oo}^{-1} v = C_m' A^{-1} C_o v, \qquad
#     r' \Psi_{oo}^{-1} r = (r'r - r' C_o' A^{-1} C_o r) / k,          \qquad (2)
#
# and g follows from a draw z of all columns as
# :math:`z_m - \Psi_{mo} \Psi_{oo}^{-1} z_o` (Matheron's rule).  So a row costs n^2
# times the number of its missing cells.
#
# Liu (1994), The collapsed Gibbs sampler in Bayesian computations with applications to
# a gene regulation problem; Gelman et al. (2013), Bayesian data analysis.


_WIDE = 4  # columns for a row from which these steps are cheaper than those of `em`
_LEAST_STRENGTH = 1e-6  # below, eq. (2) loses more than half of the digits


def is_wide(data: Incomplete, weights: Tensor, strength: float) -> bool:
    """Return whether these steps apply: many columns, and rows of weight 1."""
    n, d = data.x.shape
    enough = 1 < n and n * _WIDE <= d and strength >= _LEAST_STRENGTH
    return enough and bool((weights == 1).all())


def _sweeps(
    start: Normal, data: Incomplete, weights: Tensor, strength: float
) -> Iterator["_Rows"]:
    """Sweep rows that draws given `start` have completed."""
    rows = _Rows(em.draw(start, data)[0], data.observed, strength)
    while True:
        rows.sweep()
        yield rows


class _Rows:
    """Completed rows, whose missing cells are drawn row by row, in place.

    `x` (n, features); `observed`, bool (n, features); `strength`: k.
    """

    def __init__(self, x: Tensor, observed: Tensor, strength: float) -> None:
        self.strength, self.centre = strength, x.mean(0)
        # products of cells around their mean lose no digits
        self.x = x - self.centre
        self.missing = [(~row).nonzero()[:, 0] for row in observed]
        self.products = self.x @ self.x.T
        self.total = x.new_tensor(float(len(x)))

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the covariance given all rows: f."""
        d = self.x.shape[1]
        return float(em.degrees_of_freedom(self.total, self.strength, d))

    def draw_parameters(self) -> Normal:
        """Draw mean and covariance given the completed rows."""
        moments = em.Moments(self.x.sum(0), self.x.T @ self.x)
        return em.draw_parameters(self.centre, moments, self.total, self.strength)

    def sweep(self) -> None:
        """Draw the missing cells of each row once."""
        for row, missing in enumerate(self.missing):
            if len(missing):
                self.x[row, missing] = self.draw(row, missing)
                # only one row has changed
                products = self.x @ self.x[row]
                self.products[row], self.products[:, row] = products, products

    def draw(self, row: int, missing: Tensor) -> Tensor:
        """Draw the missing cells of a row given the other rows, by eq. (1).

        C is a product of a projection and all rows, which are not copied: the
        projection is applied to what they are multiplied by.
        """
        n, d = self.x.shape
        others = _Others(row, n)
        observed = self.x.new_ones(d).index_fill_(0, missing, 0.0)
        mean = (self.x.sum(0) - self.x[row]) / (n - 1)
        gap, columns = (self.x[row] - mean) * observed, self.x[:, missing]
        root = self._root(others, columns)
        projected = others.centred(self.x @ gap)
        solved = _solved(root, projected)
        # rounding may make the difference negative
        square = (gap @ gap - projected @ solved).clamp(min=0) / self.strength
        scale = ((n / (n - 1) + square) / self._chi_square(len(missing))).sqrt()
        noise = normal_numbers((n + d,), gap)
        z = others.centred(noise[:n]) @ self.x + self.strength**0.5 * noise[n:]
        filled = solved - scale * _solved(root, others.centred(self.x @ (z * observed)))
        return mean[missing] + scale * z[missing] + others.centred(filled) @ columns

    def _chi_square(self, n_missing: int) -> Tensor:
        """Draw the chi-square variable of eq. (1)."""
        half = self.x.new_tensor((self.freedom - n_missing) / 2)
        return 2 * standard_gamma(half)

    def _root(self, others: "_Others", missing_cells: Tensor) -> Tensor:
        """Factorise A of eq. (2) from the products of all cells."""
        # products over observed columns: all products less those of missing cells
        matrix = others.centred(
            others.centred(self.products - missing_cells @ missing_cells.T).T
        )
        matrix.diagonal().add_(self.strength)
        return cholesky(matrix)


# As many sweeps are made as data augmentation makes steps; where parameters are
# integrated out, dependence decreases faster (Liu 1994).
draws_of_wide = partial(
    em.posterior_draws, chain=_sweeps, parameters=_Rows.draw_parameters
)


class _Others(NamedTuple):
    """All rows but one, of n: the projection that drops it and centres the others."""

    row: int
    n: int

    def centred(self, values: Tensor) -> Tensor:
        """Subtract the mean of the others, and put 0 in place of the row; (n, ...)."""
        mean = (values.sum(0) - values[self.row]) / (self.n - 1)
        deviations = values - mean
        deviations[self.row] = 0.0
        return deviations


def _solved(root: Tensor, right: Tensor) -> Tensor:
    return torch.cholesky_solve(right[:, None], root)[:, 0]


# ----------------------------------------
# Posterior draws of the parameters of a large table, from a sample of its rows.
#
# Let c be the ratio of the weights of table and sample.  The posterior given the
# sample, with c times its weights, has the spread of that given the table, with a
# relative error of one over the root of the number of rows of the sample.  Let
# ``(m_s, L_s L_s')`` be its mode and ``(m_0, L_0 L_0')`` the estimate from all rows.
# A draw (m, S) is moved,
#
#     m -> m_0 + A (m - m_s),    S -> A S A',    A = L_0 L_s^-1.                     (3)
#
# So draws need no pass over the table.


_PRECISION = 0.01  # of the mode, in standard errors of a mean
_MOST_ROUNDS = 1000


def posterior_draws(
    estimate: Normal,  # from all rows of the table
    rows: Rows,  # of the table, or a sample of them
    total: float | None,  # the weight of the table; None if the rows are the table
    strength: float,  # k of the prior, see `em`
    *,
    n_draws: int,
) -> list[Normal]:
    """Draw parameters given a table."""
    if total is None:
        table = rows.data, rows.weights, strength
        draw = draws_of_wide if is_wide(*table) else em.posterior_draws
        return draw(estimate, *table, n_draws=n_draws)
    sample = rows.data, rows.weights * (total / rows.total), strength
    stopping = {"max_iter": _MOST_ROUNDS, "tol": _PRECISION / sqrt(total)}
    with step("fitting the sample of rows"):
        mode = em.fit_normal(*sample, estimate, **stopping).normal
    draws = em.posterior_draws(mode, *sample, n_draws=n_draws)
    return [_move(draw, mode, estimate) for draw in draws]


def _move(draw: Normal, mode: Normal, estimate: Normal) -> Normal:
    """Move a draw by eq. (3)."""
    roots = cholesky(estimate.covariance), cholesky(mode.covariance)
    turn = torch.linalg.solve_triangular(roots[1], roots[0], upper=False, left=False)
    mean = estimate.mean + turn @ (draw.mean - mode.mean)
    return Normal(mean, turn @ draw.covariance @ turn.T)
