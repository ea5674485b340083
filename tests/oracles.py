"""Exact answers that several tests compare with: quadrature and rejection sampling."""

from itertools import combinations

import numpy as np
import torch
from scipy import stats
from scipy.special import roots_legendre
from torch.distributions import MultivariateNormal

from skvnce.graphs.score_matching import saturating_weight

# standard errors; chance exceeds it in one of 100 000 tests of 150 comparisons each
GATE = 5.4


def all_patterns(d):
    """Make every pattern of observed cells, (2**d, d)."""
    return (torch.arange(2**d)[:, None] >> torch.arange(d)) % 2 == 1


def z_mean(sample, expected, axis=0):
    """Return the distance of the mean of independent draws, in standard errors.

    Few draws have heavier tails: Student's t is mapped to the normal of the same tail.
    """
    sample = np.asarray(sample)
    n = sample.shape[axis]
    error = sample.std(axis, ddof=1) / np.sqrt(n)
    t = (sample.mean(axis) - np.asarray(expected)) / error
    return np.sign(t) * stats.norm.isf(stats.t.sf(np.abs(t), n - 1))


def z_two_sample(first, second, axis=0):
    """Return the distance between the means of two samples, in standard errors."""
    first, second = np.asarray(first), np.asarray(second)
    variance = sum(s.var(axis, ddof=1) / s.shape[axis] for s in (first, second))
    return (first.mean(axis) - second.mean(axis)) / np.sqrt(variance)


def normal_means(mean, covariance, X):
    """Fill the missing cells of X (n, d) by their means given the others of the row."""
    filled = np.where(np.isnan(X), mean, X)
    for row, missing in zip(filled, np.isnan(X), strict=True):
        given = covariance[np.ix_(~missing, ~missing)]
        pull = np.linalg.solve(given, (row - mean)[~missing])
        row[missing] += covariance[np.ix_(missing, ~missing)] @ pull
    return filled


def conditioned(normal, x, observed):
    """Condition a row on its observed cells, by the textbook formula, in torch.

    Returns the row filled by conditional means, the conditional covariance, zero at
    observed cells, and the log-density of the observed cells.
    """
    mean, S = normal
    o, m = observed, ~observed
    filled, covariance = x.clone(), torch.zeros_like(S)
    gain = torch.linalg.solve(S[o][:, o], S[o][:, m]).T
    filled[m] = mean[m] + gain @ (x[o] - mean[o])
    covariance[m.outer(m)] = (S[m][:, m] - gain @ S[o][:, m]).flatten()
    if not o.any():
        return filled, covariance, torch.zeros(()).double()
    own = MultivariateNormal(mean[o], S[o][:, o], validate_args=False)
    return filled, covariance, own.log_prob(x[o])


def first_and_second(sample):
    """Append all products of two columns: their means are the second moments."""
    sample = np.asarray(sample)
    i, j = np.triu_indices(sample.shape[-1])
    return np.concatenate([sample, sample[..., i] * sample[..., j]], -1)


def worst_z(x, rows, moments):
    """Compare copies of rows, one block each, with moments of their missing cells."""
    blocks = np.split(np.asarray(x).reshape(-1, rows.shape[1]), len(rows))
    return max(
        abs(z_mean(first_and_second(block[:, np.isnan(row)]), moments(row))).max()
        for block, row in zip(blocks, rows, strict=True)
    )


def missing_moments(mean, covariance, row):
    """Compute first and second moments of the missing cells of a row of a normal."""
    precision = np.linalg.inv(covariance)
    mean, rest = gaussian_conditional(precision, precision @ mean, row)
    second = rest + np.outer(mean, mean)
    return np.concatenate([mean, second[np.triu_indices(len(mean))]])


def shaken(module, size=0.5):
    """Move all parameters of a module off where they start."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn_like(parameter)
    return module


def orthant_rule(d, length, n_points=60):
    """Make points (n, d) and weights (n,) of Gauss-Legendre on [0, length]^d."""
    nodes, weights = roots_legendre(n_points)
    nodes, weights = (nodes + 1) * length / 2, weights * length / 2
    points = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), -1).reshape(-1, d)
    products = np.stack(np.meshgrid(*[weights] * d, indexing="ij"), -1)
    return torch.tensor(points), torch.tensor(products.reshape(-1, d).prod(-1))


def line_rule(length, n_points):
    """Make points (n, 1) and weights (n,) of Gauss-Legendre on [-length, length]."""
    points, weights = orthant_rule(1, 2 * length, n_points)
    return points - length, weights


def log_integral(log_value, weights, axis=0):
    """Integrate exp(log_value) by a quadrature rule, in logarithms."""
    return torch.logsumexp(log_value + weights.log(), axis)


def ring(d, rng):
    """Draw the precision matrix of the thesis: a ring of weak positive links."""
    precision = np.eye(d)
    for i in range(d):
        j = (i + 1) % d
        precision[i, j] = precision[j, i] = rng.uniform(0.3, 0.5)
    return precision


def gaussian_conditional(precision, linear, row):
    """Return mean and covariance of the NaN cells of a row before the truncation."""
    hidden = np.isnan(row)
    covariance = np.linalg.inv(precision[np.ix_(hidden, hidden)])
    field = linear[hidden] - precision[np.ix_(hidden, ~hidden)] @ row[~hidden]
    return covariance @ field, covariance


def rejection(precision, linear, row, n_draws, rng):
    """Draw the NaN cells of a row from the truncated Gaussian, one by one exactly."""
    mean, covariance = gaussian_conditional(precision, linear, row)
    kept = np.empty((0, len(mean)))
    while len(kept) < n_draws:
        drawn = rng.multivariate_normal(mean, covariance, size=4 * n_draws)
        kept = np.concatenate([kept, drawn[(drawn >= 0).all(1)]])
    return kept[:n_draws]


def is_copositive(matrix):
    """Decide whether x'Ax > 0 for all x >= 0 but 0 (Kaplan 2000), for few columns.

    It is, unless a principal submatrix has a positive eigenvector of an eigenvalue
    that is not positive.
    """
    d = len(matrix)
    for size in range(1, d + 1):
        for subset in map(list, combinations(range(d), size)):
            values, vectors = np.linalg.eigh(matrix[np.ix_(subset, subset)])
            inside = (vectors > 0).all(0) | (vectors < 0).all(0)
            if (values[inside] <= 0).any():
                return False
    return True


def symmetric_basis(d, width):
    """Span the matrices (K, b) with symmetric K (d, d); (parameters, d, width)."""
    spanned = []
    for i in range(d):
        for j in range(i, width):
            matrix = torch.zeros(d, width).double()
            matrix[i, j] = 1
            if j < d:
                matrix[j, i] = 1
            spanned.append(matrix)
    return torch.stack(spanned)


def score_matching_loss(model, x, weight=saturating_weight):
    """Compute the generalised score-matching loss of any model by autograd.

    The mean over rows of the sum over j of ``h'(x_j) d_j + h(x_j) (d_jj + d_j**2 / 2)``
    with ``d_j`` and ``d_jj`` the first two derivatives of log phi along x_j.

    Yu, Drton and Shojaie (2019), eq. (6).
    """
    x = x.detach().requires_grad_()
    (score,) = torch.autograd.grad(model.log_density(x).sum(), x, create_graph=True)
    curvature = torch.stack(
        [
            torch.autograd.grad(score[:, j].sum(), x, create_graph=True)[0][:, j]
            for j in range(x.shape[1])
        ],
        -1,
    )
    h, slope = weight(x.detach())
    return (slope * score + h * (curvature + score.square() / 2)).sum(-1).mean()
