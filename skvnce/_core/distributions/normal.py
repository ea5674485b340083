"""The normal distribution of rows with missing values, all patterns at once.

With S the covariance, P its inverse, o and m the observed and missing columns of a row
and r its observed cells minus their mean,

    x_m | x_o ~ N(mean_m + S_mo S_oo^-1 r, S_mm - S_mo S_oo^-1 S_om)               (1)
              = N(mean_m - P_mm^-1 P_mo r, P_mm^-1)                                (2)
    log p(x_o) = -(log|S_oo| + r' S_oo^-1 r + |o| log 2 pi) / 2                    (3)
               = (log|P| - log|P_mm| - r' P_oo r + r' P_om P_mm^-1 P_mo r
                  - |o| log 2 pi) / 2                                              (4)

Each row needs one block, S_oo or P_mm: the smaller of the two.  Blocks are gathered
into a batch as wide as the largest; smaller ones are filled up with columns of an
identity matrix that is appended to S or P.
"""

from collections.abc import Callable
from math import log, pi
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from skvnce._core.random import normal_numbers
from skvnce._core.warnings import warn_user

_CELLS_AT_ONCE = 2**16  # maximum size of a batch of blocks: 0.5 MiB fits into the cache
# the smallest that suffices is used, because jitter increases all variances
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)


class Normal(NamedTuple):
    """Parameters: mean (features,) and covariance (features, features)."""

    mean: Tensor
    covariance: Tensor


class FactoredNormal(NamedTuple):
    """A normal distribution with quantities that all rows share; see `prepare`."""

    mean: Tensor  # (features,)
    covariance: Tensor  # (features, features)
    precision: Tensor  # (features, features)
    root: Tensor  # (features, features): lower Cholesky factor of the covariance
    log_det: Tensor  # (): of the covariance


def prepare(normal: Normal) -> FactoredNormal:
    """Factorise and invert the covariance."""
    root = cholesky(normal.covariance)
    log_det = 2 * root.diagonal().log().sum()
    return FactoredNormal(*normal, torch.cholesky_inverse(root), root, log_det)


class Batch(NamedTuple):
    """Rows with blocks of similar size."""

    rows: Tensor  # int64 (n,): their indices in the table
    x: Tensor  # (*batch, n, features): zero where missing
    observed: Tensor  # (n, features): 1 where observed, else 0
    # int64 (n, width): the columns of each row's block, then columns of the identity:
    # features, ...
    block: Tensor
    kind: type  # what the block consists of

    def condition(self, normal: FactoredNormal) -> "ByMissing | ByObserved":
        """Compute the distributions of the missing cells, and of the observed ones."""
        return self.kind.of(normal, self)

    def residual(self, normal: FactoredNormal) -> Tensor:
        """Compute observed cells minus their mean, 0 where missing."""
        return torch.addcmul(self.x, self.observed, normal.mean, value=-1)

    def gather(self, matrix: Tensor) -> Tensor:
        """Gather each row's block of a matrix; (n, width, width)."""
        d = len(matrix)
        # columns of the identity are not in the matrix: `eye` replaces what is read
        inside, block = self.block < d, self.block.clamp(max=d - 1)
        blocks = matrix.reshape(-1).take(d * block[:, :, None] + block[:, None, :])
        if inside.all():
            return blocks
        eye = torch.eye(block.shape[1]).to(matrix)
        return blocks.where(inside[:, :, None] & inside[:, None, :], eye)

    def gather_cells(self, x: Tensor) -> Tensor:
        """Gather cells (*batch, n, features) of the blocks, 0 beyond."""
        wide = torch.nn.functional.pad(x, (0, self.block.shape[1]))
        return wide.gather(-1, self.block.expand(*x.shape[:-1], -1))

    def scatter(self, values: Tensor) -> Tensor:
        """Scatter values (*batch, n, width) to their columns, 0 elsewhere."""
        d, width = self.x.shape[-1], self.block.shape[1]
        wide = values.new_zeros(*values.shape[:-1], d + width)
        return wide.scatter_(-1, self.block.expand(values.shape), values)[..., :d]


class ByMissing(NamedTuple):
    """Rows of a batch by eqs. (2) and (4)."""

    batch: Batch
    # (*batch, n, features): observed cells minus their mean, 0 where missing
    residual: Tensor
    log_prob: Tensor  # (*batch, n): eq. (4)
    whitened: Tensor  # (*batch, n, width): ``L^-1 P_mo r``
    factor: Tensor  # (n, width, width): L, the lower Cholesky factor of P_mm

    @classmethod
    def of(
        cls,
        normal: FactoredNormal,
        batch: Batch,
        factorise: Callable[[Tensor], Tensor] | None = None,
    ) -> Self:
        """Condition the rows of a batch; `factorise` defaults to `cholesky`."""
        residual = batch.residual(normal)
        field = residual @ normal.precision
        factor = (factorise or cholesky)(batch.gather(normal.precision))
        whitened = _forward(factor, batch.gather_cells(field))
        square = (field * residual).sum(-1) - whitened.square().sum(-1)
        log_det = normal.log_det + _log_det(factor)
        log_prob = -(log_det + square + log(2 * pi) * batch.observed.sum(1)) / 2
        return cls(batch, residual, log_prob, whitened, factor)

    def completed(self) -> Tensor:
        """Fill missing cells by their means, all minus the mean; (n, features)."""
        return self.residual - self.batch.scatter(_backward(self.factor, self.whitened))

    def draw(self, n_draws: int) -> Tensor:
        """Draw missing cells, all minus the mean; (n_draws, n, features).

        ``-L^-T (whitened + noise)`` has the mean of eq. (2) and covariance P_mm^-1.
        """
        return self.at(normal_numbers((n_draws, *self.whitened.shape), self.residual))

    def at(self, noise: Tensor) -> Tensor:
        """Draw by standard normal noise of a shape that `whitened` broadcasts to."""
        drawn = _backward(self.factor, self.whitened + noise)
        return self.residual - self.batch.scatter(drawn)

    def variance(self) -> Tensor:
        """Compute the variance of each missing cell, 0 of others; (n, features)."""
        eye = torch.eye(self.factor.shape[-1]).to(self.factor)
        root = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        return self.batch.scatter(root.square().sum(-2))


class ByObserved(NamedTuple):
    """Rows of a batch by eqs. (1) and (3)."""

    batch: Batch
    normal: FactoredNormal
    residual: Tensor  # (n, features): observed cells minus their mean, 0 where missing
    log_prob: Tensor  # (n,): eq. (3)
    whitened: Tensor  # (n, width): ``L^-1 r``
    factor: Tensor  # (n, width, width): L, the lower Cholesky factor of S_oo

    @classmethod
    def of(cls, normal: FactoredNormal, batch: Batch) -> Self:
        """Condition the rows of a batch."""
        residual = batch.residual(normal)
        factor = cholesky(batch.gather(normal.covariance))
        whitened = _forward(factor, batch.gather_cells(residual))
        constant = log(2 * pi) * batch.observed.sum(1)
        log_prob = -(_log_det(factor) + whitened.square().sum(1) + constant) / 2
        return cls(batch, normal, residual, log_prob, whitened, factor)

    def completed(self) -> Tensor:
        """Fill missing cells by their means, all minus the mean; (n, features)."""
        return self._predict(self.whitened)

    def draw(self, n_draws: int) -> Tensor:
        """Draw missing cells, all minus the mean; (n_draws, n, features).

        A draw y of whole rows, corrected by the difference of r and y_o, has the mean
        and covariance of eq. (1) (Matheron's rule).
        """
        noise = normal_numbers((n_draws, *self.residual.shape), self.residual)
        y = noise @ self.normal.root.T
        surprise = self.batch.gather_cells(self.residual - y * self.batch.observed)
        return y + self._predict(_forward(self.factor, surprise))

    def _predict(self, whitened: Tensor) -> Tensor:
        weights = self.batch.scatter(_backward(self.factor, whitened))
        return weights @ self.normal.covariance


class Covariances(NamedTuple):
    """Sums over rows for the sum of the covariances of their missing cells."""

    # (features + 1, features + 1): of P_mm^-1 at its columns, over the rows of
    # `ByMissing`.  The last row and column receive those of the identity
    by_missing: Tensor
    # (features + 1, features + 1): of S_oo^-1 over those of `ByObserved`
    by_observed: Tensor
    weight: Tensor  # (): of the latter

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """Make zeros for a table (n, features)."""
        size = x.shape[-1] + 1
        sums = (x.new_zeros(size, size) for _ in range(2))
        return cls(*sums, x.new_zeros(()))

    def added(self, conditional: ByMissing | ByObserved, weight: Tensor) -> Self:
        """Add the rows of a batch, in place; weight (n,)."""
        block = conditional.batch.block.clamp(max=len(self.by_missing) - 1)
        pairs = len(self.by_missing) * block[:, :, None] + block[:, None, :]
        terms = torch.cholesky_inverse(conditional.factor).mul_(weight[:, None, None])
        by_observed = isinstance(conditional, ByObserved)
        self.add(terms, pairs, weight.sum(), by_observed=by_observed)
        return self

    def add(
        self, terms: Tensor, pairs: Tensor, weight: Tensor, *, by_observed: bool
    ) -> None:
        """Add weighted inverses of blocks at positions in the sum, in place."""
        total = self.by_observed if by_observed else self.by_missing
        total.view(-1).scatter_add_(0, pairs.flatten(), terms.flatten())
        if by_observed:
            self.weight.add_(weight)

    def total(self, normal: FactoredNormal) -> Tensor:
        """Sum all covariances; (features, features).

        By eq. (1) two products with S suffice for all rows.
        """
        conditional = self.by_missing[:-1, :-1]
        if not self.weight:
            return conditional
        S = normal.covariance
        return conditional + self.weight * S - S @ self.by_observed[:-1, :-1] @ S


def _forward(factor: Tensor, right: Tensor) -> Tensor:
    """Solve L x = right, (*batch, n, width), with a factor (width, width) a row."""
    return _solve(factor, right, upper=False)


def _backward(factor: Tensor, right: Tensor) -> Tensor:
    """Solve L' x = right likewise."""
    return _solve(factor.mT, right, upper=True)


def _solve(factor: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    n_columns = right.shape[:-2].numel()
    # draws of a row become columns, which one factor solves together
    columns = right.reshape(n_columns, *right.shape[-2:]).movedim(0, -1)
    solved = torch.linalg.solve_triangular(factor, columns, upper=upper)
    return solved.movedim(-1, 0).reshape(right.shape)


def _log_det(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def cholesky(matrix: Tensor) -> Tensor:
    """Factorise positive definite matrices (*batch, n, n); add jitter if it fails.

    A warning names the share of the mean of the diagonal that was added.
    """
    factor, jitter = jittered_cholesky(matrix)
    if jitter:
        warn_user(
            f"A covariance matrix is singular to working precision: {jitter:g} of its "
            "diagonal was added. Some columns are collinear, or have a few cells that "
            "are very far from the rest. Drop such columns, or set such cells to NaN.",
            RuntimeWarning,
        )
    return factor


def jittered_cholesky(matrix: Tensor) -> tuple[Tensor, float]:
    """Factorise as `cholesky` without a warning, or raise; return the share, too."""
    # no exception if it fails, because jitter may help
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not info.any():
        return factor, 0.0
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    for jitter in _JITTERS:
        extra = (jitter * diagonal.mean(-1, keepdim=True)).expand_as(diagonal)
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(extra))
        if not info.any():
            return factor, jitter
    raise torch.linalg.LinAlgError("matrix is not positive definite")


def arrange(x: Tensor, observed: Tensor, *, kinds: int = 2) -> list[Batch]:
    """Split rows into batches of blocks of similar size, bounded in memory.

    `kinds`: 1 for `ByMissing` alone, 2 for the one with the smaller block.
    """
    # factorisations take the cube of the width
    by_missing = (~observed).sum(1) * 2 <= observed.shape[1]
    if kinds == 1:
        by_missing = torch.ones_like(by_missing)
    parts = (ByMissing, by_missing, ~observed), (ByObserved, ~by_missing, observed)
    return [
        batch
        for kind, rows, inside in parts
        for batch in _batches(kind, rows.nonzero().squeeze(1), x, observed, inside)
    ]


def log_prob_observed(
    normal: FactoredNormal,  # covariance and root are not used
    x: Tensor,  # (*batch, n, features): values under the mask are not used
    observed: Tensor,  # bool (n, features)
    factorise: Callable[[Tensor], Tensor] | None = None,  # None is `cholesky`
) -> Tensor:  # (*batch, n)
    """Compute log p(x_o) of rows by eq. (4), all patterns in batches."""
    batches = arrange(x, observed, kinds=1)
    parts = [ByMissing.of(normal, batch, factorise).log_prob for batch in batches]
    order = torch.cat([batch.rows for batch in batches]).argsort()
    return torch.cat(parts, -1)[..., order]


def _batches(
    kind: type, rows: Tensor, x: Tensor, observed: Tensor, block_of: Tensor
) -> list[Batch]:
    count = block_of[rows].sum(1)
    # widest blocks first, so that the first of a batch determines its width
    order = count.argsort(descending=True, stable=True)
    rows, count = rows[order], count[order]
    batches, first, d = [], 0, x.shape[-1]
    while first < len(rows):
        width = int(count[first])
        last = first + max(1, _CELLS_AT_ONCE // max(d, width**2))
        part, place = rows[first:last], torch.arange(width, device=x.device)
        columns = (~block_of[part]).to(torch.uint8).sort(dim=1, stable=True).indices
        block = columns[:, :width].where(place < count[first:last, None], d + place)
        mask = observed[part]
        inside = x[..., part, :].where(mask, 0.0)
        batches.append(Batch(part, inside, mask.to(x), block, kind))
        first = last
    return batches


# ----------------------------------------
# A normal distribution with free mean and precision, parametrised by a given one.
#
# With ``R R'`` the covariance of the initial normal and m its mean,
#
#     mean = m + R shift,   precision = R^-T A A' R^-1,   A lower triangular        (1)
#
# where the diagonal of A is ``exp(log_diagonal)``: any positive definite precision
# has exactly one such form.  The parameters are zero at the initial normal, and
# otherwise of the size of one standard error times the root of n, for all units and
# correlations.  So optimisers see a well-conditioned problem, and a penalty on their
# squares shrinks towards the initial normal.


class FreeNormal(nn.Module):
    """A normal distribution in the parameters of eq. (1), zero at `initial`."""

    def __init__(self, initial: Normal) -> None:
        super().__init__()
        d = len(initial.mean)
        root = cholesky(initial.covariance)
        eye = torch.eye(d).to(root)
        self.register_buffer("initial_mean", initial.mean.clone())
        self.register_buffer("root", root)
        inverse = torch.linalg.solve_triangular(root, eye, upper=False)
        self.register_buffer("inverse_root", inverse)
        self.shift = nn.Parameter(torch.zeros(d).to(root))
        self.log_diagonal = nn.Parameter(torch.zeros(d).to(root))
        self.below = nn.Parameter(torch.zeros(d * (d - 1) // 2).to(root))

    def factor(self) -> Tensor:
        """Compute A; (features, features)."""
        d = len(self.shift)
        places = torch.tril_indices(d, d, -1, device=self.below.device)
        zeros = self.below.new_zeros(d, d)
        below = zeros.index_put(tuple(places), self.below)
        return below + self.log_diagonal.exp().diag()

    def mean(self) -> Tensor:
        """Compute the mean; (features,)."""
        return self.initial_mean + self.root @ self.shift

    def precision(self) -> Tensor:
        """Compute the precision; (features, features)."""
        half = self.inverse_root.T @ self.factor()
        return half @ half.T

    def log_det(self) -> Tensor:
        """Compute the log-determinant of the covariance."""
        return 2 * (self.root.diagonal().log().sum() - self.log_diagonal.sum())

    def square(self, x: Tensor) -> Tensor:
        """Compute ``(x - mean)' precision (x - mean)``; (*batch, features)."""
        whitened = (x - self.initial_mean) @ self.inverse_root.T - self.shift
        return (whitened @ self.factor()).square().sum(-1)

    def factored(self) -> FactoredNormal:
        """Return the parts for conditioning on missing blocks, differentiable."""
        precision = self.precision()
        nothing = precision.new_empty(0)
        return FactoredNormal(self.mean(), nothing, precision, nothing, self.log_det())

    @torch.no_grad()
    def normal(self) -> Normal:
        """Return mean and covariance."""
        d = len(self.shift)
        eye = torch.eye(d).to(self.root)
        inverse = torch.linalg.solve_triangular(self.factor(), eye, upper=False)
        half = self.root @ inverse.T
        return Normal(self.mean(), half @ half.T)
