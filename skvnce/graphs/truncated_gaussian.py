"""The unnormalised Gaussian on the non-negative orthant.

``log phi(x; K, b, c) = -c - x' K x / 2 + b' x`` for x >= 0 (Rhodes and Gutmann 2019,
eq. 28, with the linear term of Rhodes 2018, eq. 5.16; there ``c`` has the other sign).
K need not be positive definite: on the orthant it suffices that K is copositive.
"""

import torch
from torch import Tensor, nn

from skvnce._core.distributions.truncated_normal import TruncatedNormal, log_normaliser


class TruncatedGaussian(nn.Module):
    """Unnormalised Gaussian truncated to non-negative values; c is `log_scale`."""

    def __init__(
        self, precision: Tensor, linear: Tensor, log_scale: Tensor | None = None
    ) -> None:
        super().__init__()
        self.precision = nn.Parameter(precision)
        self.linear = nn.Parameter(linear)
        c = precision.new_zeros(()) if log_scale is None else log_scale
        self.log_scale = nn.Parameter(c)

    def log_density(self, x: Tensor) -> Tensor:
        """Compute log phi(x), -inf outside the support; (*batch, d) -> (*batch,)."""
        inside = -self.log_scale + log_phi(x, self.precision, self.linear)
        return inside.masked_fill((x < 0).any(-1), -torch.inf)

    def conditional(self, x: Tensor, feature: int) -> TruncatedNormal:
        """Return p(x_j | x_-j): truncated normal with precision K_jj."""
        row = self.precision[feature]
        field = self.linear[feature] - x @ row + x[..., feature] * row[feature]
        scale = row[feature].rsqrt()
        return TruncatedNormal(field * scale.square(), scale, validate_args=False)

    def conditionals(self, x: Tensor) -> TruncatedNormal:
        """Return p(x_j | x_-j) of all j, of batch shape (*batch, features)."""
        return conditionals(x, self.precision, self.linear)

    def log_marginal(self, x: Tensor, latent: Tensor) -> Tensor:
        """Compute log phi with one feature a row integrated out; see `log_marginal`."""
        unscaled = log_marginal(x, latent, self.precision, self.linear)
        return unscaled - self.log_scale


def log_phi(x: Tensor, precision: Tensor, linear: Tensor) -> Tensor:
    """Compute log phi (with c = 0) of x >= 0; (*batch, d) -> (*batch,)."""
    return ((linear - x @ precision / 2) * x).sum(-1)


def conditionals(x: Tensor, precision: Tensor, linear: Tensor) -> TruncatedNormal:
    """Return p(x_j | x_-j) of all j, of batch shape (*batch, features)."""
    diagonal = precision.diagonal()
    pull = (linear - x @ precision) / diagonal
    return TruncatedNormal(x + pull, diagonal.rsqrt(), validate_args=False)


def log_marginal(
    x: Tensor, latent: Tensor, precision: Tensor, linear: Tensor
) -> Tensor:  # (n,)
    """Compute log phi (with c = 0) with one feature a row integrated out.

    With the exact q(x_j | x_-j) the ratio phi(x) / q equals this number for any
    value of x_j, so that VNCE needs no samples of it (Rhodes 2018, section 5.3).
    `latent` (int64 (n,)): the feature that is integrated out, whose value is
    ignored; -1 for none.
    """
    is_latent = latent[:, None] == torch.arange(x.shape[-1], device=x.device)
    x = x.masked_fill(is_latent, 0.0)
    product = x @ precision
    complete = ((linear - product / 2) * x).sum(-1)
    rows = (latent >= 0).nonzero().squeeze(-1)
    j = latent[rows]
    scale = precision.diagonal()[j].rsqrt()
    field = linear[j] - product[rows, j]
    integral = log_normaliser(field * scale) + scale.log()
    return complete.index_add(0, rows, integral)


def safe_on_orthant(precision: Tensor, margin: float = 1e-5) -> Tensor:
    """Shrink negative off-diagonals until exp(-x'Kx/2) is integrable on x >= 0.

    A positive definite matrix plus a non-negative one is copositive. So K is
    unchanged if it is positive definite after subtraction of a share of its
    positive off-diagonals. Otherwise the negative entries shrink step by step, in
    proportion to the components of its two variables in the eigenvector of the
    smallest eigenvalue, so that the rest of the graph is preserved. The diagonal is
    unchanged, too: larger entries would diverge inside EM, because imputations
    shrink when the diagonal grows, and the diagonal grows when imputations shrink.
    `margin`: smallest eigenvalue of the positive definite part with unit diagonal.
    """
    scale = precision.diagonal().rsqrt()
    unit = precision * torch.outer(scale, scale)
    if torch.linalg.eigvalsh(unit)[0] >= margin:
        return precision
    off = unit - unit.diagonal().diag()
    shares = torch.linspace(1, 0, 11, dtype=off.dtype)[:, None, None]
    parts = off.clamp(max=0) + shares * off.clamp(min=0)
    part = parts[torch.linalg.eigvalsh(parts)[:, 0].argmax()]
    # `part` lacks the unit diagonal, which adds 1 to each eigenvalue
    if torch.linalg.eigvalsh(part)[0] >= margin - 1:
        return precision
    part = _shrink(part, margin - 1)
    return torch.where(off < 0, part / torch.outer(scale, scale), precision)


def _shrink(part: Tensor, least: float) -> Tensor:
    """Shrink entries until no eigenvalue is below `least`, as little as possible."""
    while True:  # every step shrinks entries in which the eigenvector is not zero
        weight = torch.linalg.eigh(part).eigenvectors[:, 0].square()
        rate = weight / weight.max()
        following = _cut(part, 0.25 * rate)
        if torch.linalg.eigvalsh(following)[0] >= least:
            break
        part = following
    low, high = 0.0, 0.25
    for _ in range(20):
        middle = (low + high) / 2
        enough = torch.linalg.eigvalsh(_cut(part, middle * rate))[0] >= least
        low, high = (low, middle) if enough else (middle, high)
    return _cut(part, high * rate)


def _cut(part: Tensor, share: Tensor) -> Tensor:
    """Subtract a share, by variable, from both sides of a symmetric matrix."""
    return part * torch.outer(1 - share, 1 - share)
