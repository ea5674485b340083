r"""Random effects of groups of rows in a latent normal model, by Gibbs sampling.

Row i of group g has the latent variables

.. math:: z_i = \sum_e w_{ie} m_{ge} + e_i, \quad e_i \sim N(0, \Omega),             (1)
.. math:: (m_g, v_g) \sim N(\beta, \Psi),                                            (2)

where ``w_i = (1, slopes)``, m_g are the intercepts and slopes of the group, and v_g the
latent variables of columns that are constant within groups.  A sweep draws z given m
(`gibbs.Rows` with other means), v given m, and m given both (Schafer and Yucel 2002,
Computational strategies for multivariate linear mixed-effects models with missing
values; Carpenter and Kenward 2013, Multiple imputation and its application, chapter 9):

.. math:: m_g | z, v \sim N(C r, C), \quad
          C^{-1} = P + (W_g'W_g) \otimes \Omega^{-1}, \quad
          r = P a_g + vec(\Omega^{-1} Z_g W_g),                                      (3)

with mean ``a_g`` and precision P of m given v by eq. (2).  Covariances have the prior
of `covariances`.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import OnRound, tell_round
from skvnce._core.random import inside, standard_gamma
from skvnce.gaussian import em
from skvnce.gaussian.latent import gibbs
from skvnce.gaussian.latent.columns import Bounds, Latents, Limits
from skvnce.gaussian.latent.gibbs import Factors, Fit, Rows, Shown, Sweep, rescaled
from skvnce.gaussian.latent.nominal import quantile

# ----------------------------------------
# Parameters of a latent normal model of groups, eqs. (1) and (2) of `groups`.
#
# Its columns are of rows or of groups: a column that is constant within groups has
# one latent variable for each group.


_START = 0.5, 0.1  # variances of residuals and intercepts, and of slopes, at the start


class Levels(NamedTuple):
    """The columns of a table of groups in terms of latent variables."""

    # all columns: first the latent variables of those that vary within groups, then of
    # those that do not.  Columns of slopes have none
    whole: Latents
    rows: Latents  # the two kinds of columns alone
    groups: Latents
    n_effects: int = 1  # number of columns of w in eq. (1)

    @classmethod
    def of(
        cls, latents: Latents, of_groups: list[int], slopes: list[int] | tuple = ()
    ) -> Self:
        """Divide columns; `of_groups` and `slopes` are indices of columns."""
        every = range(len(latents.n_levels))
        others = [j for j in every if j not in of_groups and j not in slopes]
        first, sizes = [0] * len(latents.n_levels), list(latents.n_levels)
        for j in slopes:
            sizes[j] = 0
        start = 0
        for j in [*others, *of_groups]:
            first[j], start = start, start + sizes[j]
        marginals = [
            None if j in slopes else marginal
            for j, marginal in enumerate(latents.marginals)
        ]
        whole = Latents(marginals, first, sizes)
        parts = (_selected(whole, columns) for columns in (others, of_groups))
        return cls(whole, *parts, 1 + len(slopes))

    @property
    def n_random(self) -> int:
        """Number of effects of a group: intercepts and slopes."""
        return self.rows.size * self.n_effects

    def moments(self, effects: "Effects") -> tuple[Tensor, Tensor]:
        """Compute mean and covariance of the latent variables of a row of a new group.

        Slopes are multiplied by 0.
        """
        size = self.rows.size
        of_groups = torch.arange(self.n_random, len(effects.between.mean))
        latents = torch.cat([torch.arange(size), of_groups])
        covariance = effects.between.covariance[latents][:, latents]
        covariance[:size, :size] += effects.within.covariance
        return effects.between.mean[latents], covariance

    def divided(self, bounds: Bounds) -> tuple[Bounds, Bounds]:
        """Divide the bounds of rows by the two kinds of columns."""
        size, starts = self.rows.size, [block.start for _, block in self.whole.nominal]
        inner = torch.tensor([start < size for start in starts], dtype=torch.bool)
        low, high, levels, missing = bounds
        return (
            Bounds(low[:size], high[:size], levels[inner], missing[:size]),
            Bounds(low[size:], high[size:], levels[~inner], missing[size:]),
        )

    def order(self) -> list[int]:
        """List latent variables in the order of their columns."""
        pairs = zip(self.whole.first, self.whole.n_levels, strict=True)
        return [first + k for first, size in pairs for k in range(size)]

    @property
    def lack_scales(self) -> bool:
        """Whether there are latent variables without a scale of their own."""
        are_binary = [
            len(marginal.values) == 2 for _, _, marginal in self.whole.ordered
        ]
        return bool(self.whole.nominal) or any(are_binary)

    def scales(self, effects: "Effects") -> tuple[Tensor, Tensor]:
        """Compute by what effects are shifted and divided; see `unit_scales`."""
        mean, covariance = self.moments(effects)
        shift, scale = torch.zeros_like(mean), torch.ones_like(mean)
        start = 0
        for latents in (self.rows, self.groups):
            part = slice(start, start + latents.size)
            normal = Normal(mean[part], covariance[part, part])
            shift[part], scale[part] = gibbs.unit_scales(latents, normal)
            start += latents.size
        return shift, scale

    def of_effects(self, values: Tensor, others: float | None = None) -> Tensor:
        """Repeat values of latent variables for the slopes, or fill in `others`."""
        size = self.rows.size
        of_slopes = (
            values[:size] if others is None else torch.full_like(values[:size], others)
        )
        slopes = [of_slopes] * (self.n_effects - 1)
        return torch.cat([values[:size], *slopes, values[size:]])


def _selected(latents: Latents, columns: list[int]) -> Latents:
    """Select columns, whose latent variables begin at 0."""
    parts = latents.marginals, latents.n_levels
    return Latents.in_turn(*([part[j] for j in columns] for part in parts))


class Effects(NamedTuple):
    """The parameters of eqs. (1) and (2)."""

    within: Normal  # of residuals; the mean is 0
    between: Normal  # of (m, v)

    @classmethod
    def start(cls, levels: Levels) -> Self:
        """Make independent latent variables."""
        size, n_slopes = levels.rows.size, levels.n_random - levels.rows.size
        first, small = _START
        variances = [first] * size + [small] * n_slopes + [1.0] * levels.groups.size
        zero = torch.zeros(len(variances), dtype=torch.float64)
        within = Normal(zero[:size], first * torch.eye(size, dtype=torch.float64))
        return cls(within, Normal(zero, torch.tensor(variances).double().diag()))

    def rescaled(self, levels: Levels, shift: Tensor, scale: Tensor) -> Self:
        """Shift and then divide latent variables; see `Levels.scales`."""
        shift, wide = levels.of_effects(shift, 0.0), levels.of_effects(scale)
        of_rows = scale[: levels.rows.size]
        return Effects(
            rescaled(self.within, torch.zeros_like(of_rows), of_rows),
            rescaled(self.between, shift, wide),
        )


class GroupFactors(NamedTuple):
    """Parameters, ready for sweeps."""

    effects: Effects
    rows: Factors  # of residuals
    groups: Factors  # of v given m, but for its mean
    slope: np.ndarray  # (n_group_latents, n_random), of v given m
    gain: np.ndarray  # (n_random, n_group_latents), of m given v
    precision: np.ndarray  # (n_random, n_random), of m given v
    residual: np.ndarray  # (n_row_latents, n_row_latents), precision of residuals

    @classmethod
    def of(cls, effects: Effects, levels: Levels) -> Self:
        """Condition the two kinds of effects on each other."""
        within, between = effects
        k, covariance = levels.n_random, between.covariance
        first, cross, last = covariance[:k, :k], covariance[:k, k:], covariance[k:, k:]
        slope = torch.linalg.solve(first, cross).T
        rest = Normal(between.mean[k:], _symmetric(last - slope @ cross))
        gain = torch.linalg.solve(last, cross.T).T
        precision = torch.linalg.inv(_symmetric(first - gain @ cross.T))
        factors = Factors.of(within, levels.rows), Factors.of(rest, levels.groups)
        parts = slope, gain, precision, torch.linalg.inv(within.covariance)
        return cls(effects, *factors, *(part.numpy() for part in parts))

    @property
    def normal(self) -> Normal:
        """The distribution of effects."""
        return self.effects.between


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


# ----------------------------------------
# The prior of covariances of residuals and of effects, and draws.
#
# That of Huang and Wand (2013, Simple marginally noninformative prior distributions
# for covariance matrices, eq. 2): half-t standard deviations with nu degrees of
# freedom and scale A, and uniform correlations if nu = 2.  Of d variables,
#
# .. math:: \Sigma | a \sim IW(\nu + d - 1, 2 \nu \, diag(a)), \quad
#       a_k \sim Gamma(1/2, 1/A^2).                        (1)


FREEDOM = 2.0  # of the half-t distributions; then correlations are uniform
SCALE = 1.0  # of the half-t distributions, for columns of about unit variance
# a covariance of collinear columns would be singular
RIDGE = 0.01  # rows of independent columns


def draw_covariance(scatter: Tensor, freedom: float, before: Tensor) -> Tensor:
    """Draw a covariance given a scatter matrix and the prior, eq. (1).

    `scatter` (d, d); `freedom`: degrees of freedom of the scatter; `before` (d, d): the
    last draw, given which the scales of the prior are drawn.
    """
    if not len(before):
        return before
    rate = FREEDOM * torch.linalg.inv(before).diagonal() + 1 / SCALE**2
    shape = torch.full_like(rate, (FREEDOM + len(rate)) / 2)
    precision = standard_gamma(shape) / rate
    scatter = scatter + 2 * FREEDOM * precision.diag()
    freedom = torch.tensor(freedom + FREEDOM + len(rate) - 1).to(scatter)
    root = em.draw_inverse_wishart_root(freedom, torch.linalg.cholesky(scatter))
    return root @ root.T


def log_density_of_scales(scales: np.ndarray, inverse: np.ndarray, d: int) -> float:
    r"""Compute the log-density of standard deviations given correlations, eq. (1).

    Without a, and up to a constant,

    .. math:: -\sum_k (\nu + d) / 2 \log(\nu R^{kk} + s_k^2 / A^2),

    with the rows of independent columns that scatter matrices have.

    `scales` (k,): some of the standard deviations; with a sign, which has no influence;
    `inverse` (k,): their diagonal elements of the inverse of the correlations R; `d`:
    number of variables.
    """
    squares = scales**2
    logs = np.log(FREEDOM * inverse + squares / SCALE**2)
    return float(-((FREEDOM + d) / 2 * logs + RIDGE / 2 * inverse / squares).sum())


# ----------------------------------------
# Random effects of groups of rows in a latent normal model, by Gibbs sampling.


_LEAST = 1e-12  # distance of uniform numbers from 0 and 1


class Groups(NamedTuple):
    """Which rows belong together."""

    levels: Levels
    codes: np.ndarray  # int (n,), 0, 1, ..., of which each occurs
    design: np.ndarray  # (n_effects, n), w of eq. (1)
    weights: np.ndarray  # (n,)

    @classmethod
    def of(
        cls,
        levels: Levels,
        codes: np.ndarray,
        slopes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Self:
        """Describe the groups of some rows; `slopes` has the shape (n, n_slopes)."""
        codes = np.unique(codes, return_inverse=True)[1]
        weights = np.ones(len(codes)) if weights is None else weights
        return cls(levels, codes, design_of(slopes), weights)

    def twice(self) -> Self:
        """Repeat all groups, as other groups."""
        codes = np.concatenate([self.codes, self.codes + self.number])
        weights = np.tile(self.weights, 2)
        return self._replace(
            codes=codes, design=np.tile(self.design, 2), weights=weights
        )

    @property
    def number(self) -> int:
        """The number of groups."""
        return int(self.codes.max()) + 1 if len(self.codes) else 0

    def means(self, m: np.ndarray) -> np.ndarray:
        """Compute the means of latent variables of rows, eq. (1); (n_latents, n)."""
        parts = m.reshape(self.levels.n_effects, -1, m.shape[1])
        means = parts[0][:, self.codes]
        for part, column in zip(parts[1:], self.design[1:], strict=True):
            means += part[:, self.codes] * column
        return means

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Add values (..., n) of the rows of each group; (..., number)."""
        sums = torch.zeros(*values.shape[:-1], self.number, dtype=torch.float64)
        sums.index_add_(-1, torch.from_numpy(self.codes), torch.from_numpy(values))
        return sums.numpy()

    def extremes(self, values: np.ndarray, most: np.ufunc) -> np.ndarray:
        """Find the largest or the smallest value (..., n) of each group."""
        order = self.codes.argsort(kind="stable")
        starts = np.searchsorted(self.codes[order], np.arange(self.number))
        return most.reduceat(values[..., order], starts, axis=-1)

    def heads(self) -> np.ndarray:
        """Find the first row of each group."""
        return np.unique(self.codes, return_index=True)[1]


def design_of(slopes: np.ndarray) -> np.ndarray:
    """Return w of eq. (1) of rows with slopes (n, n_slopes); (n_effects, n)."""
    return np.vstack([np.ones(len(slopes)), slopes.T])


class GroupedRows(NamedTuple):
    """Rows of groups whose latent variables are drawn, as `gibbs.Rows` are.

    The latent variables z (latents + n_random, n) are those of the columns, and then
    the effects m; those of groups are repeated in each row.
    """

    groups: Groups
    rows: Rows  # latent variables of rows, and those of groups, in columns of their own
    constant: Rows
    heads: np.ndarray  # int (n_groups,), the first row of each group
    grams: np.ndarray  # (n_different, n_effects, n_effects), the different ``W_g'W_g``
    which: np.ndarray  # int (n_groups,), that of each group

    @classmethod
    def of(cls, groups: Groups, bounds: Bounds) -> Self:
        """Divide the bounds of rows into those of rows and of groups."""
        levels, design = groups.levels, groups.design
        inner, outer = levels.divided(bounds)
        low = groups.extremes(outer.low.numpy(), np.maximum)
        high = groups.extremes(outer.high.numpy(), np.minimum)
        parts_of_groups = (
            np.stack([low, np.maximum(low, high)]),
            groups.extremes(outer.levels.numpy(), np.maximum),
            groups.extremes(outer.missing.numpy(), np.logical_and),
        )
        ends, *others = map(torch.from_numpy, parts_of_groups)
        outer = Bounds(*ends, *others)
        products = groups.sums(groups.weights * design[:, None] * design)
        products = np.moveaxis(products, 2, 0)
        grams, which = np.unique(products, axis=0, return_inverse=True)
        parts = Rows.of(levels.rows, inner), Rows.of(levels.groups, outer)
        return cls(groups, *parts, groups.heads(), grams, which.ravel())

    def start(self, mean: Tensor) -> np.ndarray:
        """Choose latent variables within their bounds, and effects at their mean."""
        size, n_random = self.groups.levels.rows.size, self.groups.levels.n_random
        z = self.rows.start(mean[:size])
        v = self.constant.start(mean[n_random:])[:, self.groups.codes]
        m = np.repeat(mean[:n_random, None].numpy(), z.shape[1], 1)
        return np.vstack([z, v, m])

    def parts(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return z of rows (.., n), v (.., n_groups) and m (.., n_groups)."""
        size, width = self.groups.levels.rows.size, self.groups.levels.whole.size
        return z[:size], z[size:width][:, self.heads], z[width:][:, self.heads]

    def sweep(
        self,
        z: np.ndarray,  # (latents + n_random, n)
        conditional: GroupFactors,
        uniform: np.ndarray,  # (latents + n_random, n)
        shown: Shown | None = None,
    ) -> None:
        """Draw z, v and m of eqs. (1) and (2) given the others, in place."""
        groups, size = self.groups, self.groups.levels.rows.size
        width = groups.levels.whole.size
        rows, v, m = self.parts(z)
        factors = conditional.rows.moved(groups.means(m))
        self.rows.sweep(rows, factors, uniform[:size], shown)
        # sums modulo 1 are uniform, and functions of all rows of the group
        uniform = np.clip(groups.sums(uniform[size:]) % 1, _LEAST, 1 - _LEAST)
        k, mean = groups.levels.n_random, conditional.normal.mean.numpy()
        centre = mean[k:, None] + conditional.slope @ (m - mean[:k, None])
        factors = conditional.groups.moved(centre)
        self.constant.sweep(v, factors, uniform[: width - size], self._shown(shown))
        noise = quantile(uniform[width - size :])
        m = self.effects(rows, v, conditional, noise)
        z[size:width], z[width:] = v[:, groups.codes], m[:, groups.codes]

    def effects(
        self,
        rows: np.ndarray,
        v: np.ndarray,
        conditional: GroupFactors,
        noise: np.ndarray,
    ) -> np.ndarray:
        """Draw m by eq. (3) from normal numbers (n_random, n_groups)."""
        k, mean = self.groups.levels.n_random, conditional.normal.mean.numpy()
        prior = mean[:k, None] + conditional.gain @ (v - mean[k:, None])
        weights = self.groups.weights * self.groups.design
        sums = [
            conditional.residual @ self.groups.sums(rows * weight) for weight in weights
        ]
        right = conditional.precision @ prior + np.concatenate(sums)
        # Kronecker products of the Gram matrices and the precision
        products = np.einsum("gij,kl->gikjl", self.grams, conditional.residual)
        precisions = conditional.precision + products.reshape(
            -1, *conditional.precision.shape
        )
        roots = np.linalg.inv(np.linalg.cholesky(precisions))[self.which]
        # C = R'R of the inverse root R
        half = np.einsum("gij,jg->gi", roots, right) + noise.T
        return np.einsum("gij,gi->jg", roots, half)

    def _shown(self, shown: Shown | None) -> Shown | None:
        """Return functions that show cells of groups in each of their rows."""
        if shown is None:
            return None
        levels, codes = self.groups.levels, self.groups.codes

        def spread(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            place = np.full(self.groups.number, -1)
            place[groups] = np.arange(len(groups))
            rows = np.flatnonzero(place[codes] >= 0)
            return rows, place[codes[rows]]

        def ordered(groups, latent, mean, scale, ends):  # noqa: ANN001, ANN202
            rows, places = spread(groups)
            ends = tuple(end[places] for end in ends)
            shown.ordered(rows, levels.rows.size + latent, mean[places], scale, ends)

        def nominal(groups, first, mean, most, scales):  # noqa: ANN001, ANN202
            rows, places = spread(groups)
            parts = mean[:, places], most[:, places], scales
            shown.nominal(rows, levels.rows.size + first, *parts)

        return Shown(ordered, nominal)


def posterior_draws(
    groups: Groups,
    data: Incomplete,
    *,
    n_draws: int,  # number of draws, at equal distances, after the burn-in
    n_sweeps: int,  # at least `n_draws`
    limits: Limits = (),  # (n, features), see `Latents.bounds`
    on_round: OnRound = tell_round,  # see `run`
) -> Fit[Effects]:
    """Draw the parameters of eqs. (1) and (2) from their posterior."""
    sweeps = _sweeps(groups, data, limits)
    return gibbs.run(sweeps, n_draws, n_sweeps, on_round)


def _sweeps(
    groups: Groups, data: Incomplete, limits: Limits
) -> Iterator[Sweep[Effects]]:
    """Draw latent variables, effects and parameters in turn."""
    levels = groups.levels
    rows = GroupedRows.of(groups, levels.whole.bounds(data, limits))
    effects = Effects.start(levels)
    z = rows.start(effects.between.mean)
    while True:
        uniform = inside(torch.rand(z.shape, dtype=torch.float64)).numpy()
        rows.sweep(z, GroupFactors.of(effects, levels), uniform)
        effects, loss = _draw_effects(rows, z, effects)
        if levels.lack_scales:
            scales = levels.scales(effects)
            _rescale(levels, z, *scales)
            effects = effects.rescaled(levels, *scales)
        yield Sweep(effects, loss, _trace(levels, effects))


def _draw_effects(
    rows: GroupedRows, z: np.ndarray, before: Effects
) -> tuple[Effects, float]:
    """Draw the parameters given z, in which effects move with their mean."""
    groups, weights = rows.groups, torch.from_numpy(rows.groups.weights)
    effects_of_groups, before = _draw_scales(rows, *rows.parts(z)[::2], before)
    inner, v, m = map(torch.from_numpy, (*rows.parts(z)[:2], effects_of_groups))
    residuals = inner - torch.from_numpy(groups.means(m.numpy()))
    m = m + _translation(groups, residuals * weights, before.within)[:, None]
    z[groups.levels.whole.size :] = m.numpy()[:, groups.codes]
    residuals = inner - torch.from_numpy(groups.means(m.numpy()))
    scatter = (residuals * weights) @ residuals.T
    scatter += RIDGE * torch.eye(len(scatter)).to(scatter)
    within = draw_covariance(scatter, float(weights.sum()), before.within.covariance)
    both = torch.cat([m, v])
    centre, count = both.mean(1), both.shape[1]
    apart = both - centre[:, None]
    between = apart @ apart.T + RIDGE * torch.eye(len(apart)).to(apart)
    between = draw_covariance(between, count - 1, before.between.covariance)
    root = torch.linalg.cholesky(between)
    mean = centre + root @ torch.randn(len(root)).to(root) / count**0.5
    normal = Normal(torch.zeros_like(within[0]), within)
    loss = gibbs.minus_log_density(within, scatter / weights.sum())
    return Effects(normal, Normal(mean, between)), loss


def _draw_scales(
    rows: GroupedRows, z: np.ndarray, m: np.ndarray, effects: Effects
) -> tuple[np.ndarray, Effects]:
    """Multiply effects and their standard deviations s by common factors.

    Given standardised effects, z is linear in s.  So the likelihood of s is normal: it
    proposes s, and `log_density_of_scales` accepts it.  Small variances move slowly
    without (Yu and Meng 2011, To center or not to center: an
    ancillarity-sufficiency interweaving strategy, section 2).
    """
    groups, k = rows.groups, len(m)
    mean, covariance = (part.numpy() for part in effects.between)
    scale = np.sqrt(covariance.diagonal()[:k])
    standard = (m - mean[:k, None]) / scale[:, None]
    residual = np.linalg.inv(effects.within.covariance.numpy())
    n_effects = groups.levels.n_effects
    remainder = z - groups.means(np.repeat(mean[:k, None], groups.number, 1))
    sums = [
        residual @ groups.sums(remainder * part)
        for part in groups.weights * groups.design
    ]
    right = (standard * np.concatenate(sums)).sum(1)
    # (effect, latent) by (effect, latent)
    parts = standard.reshape(n_effects, -1, groups.number)
    grams = rows.grams[rows.which]
    square = np.einsum("gef,eig,fjg->eifj", grams, parts, parts)
    square = (square * residual[:, None]).reshape(k, k)
    root = np.linalg.inv(np.linalg.cholesky(square))
    scales = root.T @ (root @ right + torch.randn(k, dtype=torch.float64).numpy())
    inverse = np.linalg.inv(covariance).diagonal()[:k] * scale**2
    prior = partial(log_density_of_scales, inverse=inverse, d=len(covariance))
    if prior(scales) - prior(scale) < float(torch.rand(()).log()):
        return m, effects
    factor = np.ones(len(covariance))
    factor[:k] = scales / scale
    moved = effects.between.covariance * torch.from_numpy(np.outer(factor, factor))
    between = effects.between._replace(covariance=moved)
    m = mean[:k, None] + scales[:, None] * standard
    return m, effects._replace(between=between)


def _translation(groups: Groups, residuals: Tensor, within: Normal) -> Tensor:
    """Draw by how much all effects move, given residuals (latents, n) with weights.

    A group of translations under which eq. (2) with a flat prior of the mean does not
    change (Liu and Sabatti 2000): the mean of many small groups moves slowly without.
    """
    design = torch.from_numpy(groups.design)
    gram = (design * torch.from_numpy(groups.weights)) @ design.T
    root = torch.linalg.cholesky(torch.linalg.inv(gram))
    mean = torch.linalg.solve(gram, design @ residuals.T)
    noise = torch.randn(*mean.shape).to(mean)
    within_root = torch.linalg.cholesky(within.covariance)
    return (mean + root @ noise @ within_root.T).reshape(-1)


def _rescale(levels: Levels, z: np.ndarray, shift: Tensor, scale: Tensor) -> None:
    """Shift and divide latent variables as `Effects.rescaled` does, in place."""
    random = levels.n_random
    shift = torch.cat([shift, levels.of_effects(shift, 0.0)[:random]])
    scale = torch.cat([scale, levels.of_effects(scale)[:random]])
    z -= shift[:, None].numpy()
    z /= scale[:, None].numpy()


def _trace(levels: Levels, effects: Effects) -> np.ndarray:
    """Compute means, and shares of variances between groups; (2, latents)."""
    mean, covariance = levels.moments(effects)
    residual = torch.zeros_like(mean)
    residual[: levels.rows.size] = effects.within.covariance.diagonal()
    return torch.stack([mean, 1 - residual / covariance.diagonal()]).numpy()
