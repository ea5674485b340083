"""Scores of imputations: against the truth, and against draws of the exact conditional.

Imputations are completed tables of shape (m, n, features).  Scores are torch tensors or
floats; those with a value for each row let two samplers be compared row by row.
"""

from math import log, sqrt

import torch
from torch.nn.functional import avg_pool2d

DIGITS = 4


def rounded(values):
    """Round numbers to DIGITS significant digits."""
    return [float(f"{float(v):.{DIGITS}g}") for v in values]


N_SHIFTS = 10  # pairs of draws of the reference
N_SCALES = 12  # of the regularisation, each half of the one before
N_LAST = 20  # iterations at the final one
BLUR = 0.1  # of the median distance of two rows
WINDOW = 7  # of SSIM, in pixels
C_1, C_2 = 0.01**2, 0.03**2


# Tables


def squared_errors(x, truth):
    """Sum the squared errors of each row, averaged over imputations; (n,)."""
    return (x - truth).square().sum(-1).mean(0)


def rmse(errors, hidden):
    """Compute the root mean squared error of the hidden cells."""
    return sqrt(float(errors.sum() / hidden.sum()))


def mean_norm(difference):
    """Average the norms of differences of rows; (*several, n, features) -> (n,)."""
    return difference.norm(dim=-1).flatten(0, -2).mean(0)


def row_energy(x, exact):
    """Compute the energy distance of imputations to exact draws, row by row.

    The unbiased estimate (Szekely and Rizzo 2013): it has mean 0 where both are
    independent draws of one distribution, and may be negative.

    Parameters
    ----------
    x : Tensor of shape (m, n, features)
    exact : Tensor of shape (2 l, n, features)
        The two halves are compared with each other for the last term.

    Returns
    -------
    Tensor of shape (n,)
    """
    across = torch.stack([mean_norm(exact - one) for one in x]).mean(0)
    pairs = [mean_norm(x[i] - x[i + 1 :]) * (len(x) - 1 - i) for i in range(len(x) - 1)]
    within = torch.stack(pairs).sum(0) / (len(x) * (len(x) - 1) / 2)
    a, b = exact.chunk(2)
    rolled = [mean_norm(a - b.roll(shift, 0)) for shift in range(N_SHIFTS)]
    return 2 * across - within - torch.stack(rolled).mean(0)


def smooth_minimum(cost, potential, eps):
    """Minimise cost - potential over the last dimension, softly."""
    n = cost.shape[-1]
    return -eps * ((potential - cost) / eps - log(n)).logsumexp(-1)


def transport(x, y, eps):
    """Compute the entropic cost of optimal transport between two samples of points.

    The cost of a pair is half the squared distance.  Potentials are updated in the
    logarithmic domain, at a regularisation that falls to `eps`.
    """
    cost = torch.cdist(x, y).square() / 2
    f, g = torch.zeros(len(x)).to(x), torch.zeros(len(y)).to(x)
    scales = [eps * 2.0**k for k in range(N_SCALES, 0, -1)] + [eps] * N_LAST
    for scale in scales:
        from_g, from_f = (
            smooth_minimum(cost, g, scale),
            smooth_minimum(cost.T, f, scale),
        )
        f, g = (f + from_g) / 2, (g + from_f) / 2
    f, g = smooth_minimum(cost, g, eps), smooth_minimum(cost.T, f, eps)
    return float(f.mean() + g.mean())


def sinkhorn(x, y):
    """Compute the Sinkhorn divergence of two samples of points (Feydy et al. 2019)."""
    x, y = x.double(), y.double()
    eps = (BLUR * float(torch.pdist(y).median())) ** 2
    across = transport(x, y, eps)
    return across - (transport(x, x, eps) + transport(y, y, eps)) / 2


def laplacian(x, y):
    """Compute the squared discrepancy (MMD) of two samples by the Laplacian kernel.

    Its unit is the median distance of two rows of `y`.
    """
    x, y = x.double(), y.double()
    unit = torch.pdist(y).median()
    pairs = (x, x), (y, y), (x, y)
    xx, yy, xy = (torch.exp(-torch.cdist(*pair) / unit).mean() for pair in pairs)
    return float(xx + yy - 2 * xy)


# Binary images


def agreement(x, truth, hidden):
    """Count hidden cells that are 1 in both, and those of each together; (m, n)."""
    both = (x * truth * hidden).sum(-1)
    return both, ((x + truth) * hidden).sum(-1)


def f1(x, truth, hidden):
    """Compute the F1 score of hidden cells that are 1, averaged over imputations."""
    both, together = (counts.sum(1) for counts in agreement(x, truth, hidden))
    return float((2 * both / together).mean())


def row_f1(x, truth, hidden):
    """Compute the F1 score of each row, 1 if there is no 1 in either; (n,)."""
    both, together = agreement(x, truth, hidden)
    return (2 * both / together).where(together > 0, 1.0).mean(0)


def ssim(x, truth, side):
    """Compute the structural similarity (Wang et al. 2004) of images; (*batch, n).

    Local moments are of windows of WINDOW x WINDOW pixels, with equal weights and the
    unbiased variance; the range of the values is 1.
    """

    def local(values):
        images = values.reshape(-1, 1, side, side)
        return avg_pool2d(images, WINDOW, 1).flatten(1).view(*values.shape[:-1], -1)

    a, b = local(x), local(truth)
    unbiased = WINDOW**2 / (WINDOW**2 - 1)
    var_a = unbiased * (local(x * x) - a * a)
    var_b = unbiased * (local(truth * truth) - b * b)
    cov = unbiased * (local(x * truth) - a * b)
    upper = (2 * a * b + C_1) * (2 * cov + C_2)
    return (upper / ((a * a + b * b + C_1) * (var_a + var_b + C_2))).mean(-1)
