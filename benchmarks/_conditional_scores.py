"""Scores of imputations: against the truth, and against draws of the exact conditional.

Imputations are completed tables of shape (m, n, features).  Scores are torch tensors or
floats; those with a value for each row let two samplers be compared row by row.
"""

from math import log, sqrt
from typing import NamedTuple

import numpy as np
import torch
from _report import table
from scipy import stats
from torch.nn.functional import avg_pool2d

LEVEL = 0.95  # of two-sided comparisons
DIGITS = 4


def rounded(values):
    """Round numbers to DIGITS significant digits."""
    return [float(f"{float(v):.{DIGITS}g}") for v in values]


def values(records, score, **key):
    """Return one number for each row, or for each seed: what comparisons pair.

    Scores of rows are averaged over the seeds; the rows of several records of one seed
    follow each other.
    """
    found = {}
    for record in records.of(**key):
        found.setdefault(record["seed"], []).append(np.atleast_1d(record[score]))
    numbers = np.stack([np.concatenate(found[seed]) for seed in sorted(found)])
    return numbers.mean(0) if numbers.shape[1] > 1 else numbers[:, 0]


def standing(first, second, *, higher=False):
    """Compare two samplers by paired values: "better", "equal" or "worse", and t.

    Equal means that 0 is inside the interval of Student's t of the mean difference.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Lower is better, unless `higher`.
    """
    difference = (second - first) if higher else (first - second)
    n = len(difference)
    error = difference.std(ddof=1) / sqrt(n) if n > 1 else np.inf
    mean = float(difference.mean())
    t = mean / error if error > 0 else mean and float(np.copysign(np.inf, mean))
    limit = stats.t.ppf((1 + LEVEL) / 2, max(n - 1, 1))
    return "equal" if abs(t) < limit else "better" if t < 0 else "worse", t


class Claim(NamedTuple):
    """What a figure shows: first samplers against second ones."""

    figure: str
    text: str
    score: str  # name of the values of a record
    pairs: tuple  # samplers, the first of which is compared with the second
    expected: tuple  # words of `standing` with which the claim holds for a pair
    higher: bool = False  # whether larger values are better


def evaluate(records, claim, **key):
    """Compare the pairs of a claim; the number that hold, and words of the others."""
    failed = []
    for first, second in claim.pairs:
        a, b = (
            values(records, claim.score, method=method, **key)
            for method in (first, second)
        )
        word, t = standing(a, b, higher=claim.higher)
        if word not in claim.expected:
            failed.append(f"{first} {word} than {second} (t = {t:+.1f})")
    return len(claim.pairs) - len(failed), failed


def verdict(held, n_pairs):
    """Name the verdict of counts of pairs that hold, one for each problem."""
    shares = [h / n for h, n in zip(held, n_pairs, strict=True)]
    if min(shares) == 1:
        return "REPRODUCED"
    return "PARTIAL" if max(shares) > 0 else "DIFFERENT"


def claim_table(records, claims, keys):
    """Tabulate the claims: for each key, the pairs that hold, and those that do not.

    Parameters
    ----------
    keys : dict
        Name of a problem to the key of its records.
    """
    rows = []
    for claim in claims:
        found = [evaluate(records, claim, **key) for key in keys.values()]
        n_pairs = len(claim.pairs)
        held = [h for h, _ in found]
        against = [
            f"{name}: {text.replace('equal than', 'equal to')}"
            for name, (_, failed) in zip(keys, found, strict=True)
            for text in failed
        ]
        rows.append(
            [
                claim.figure,
                claim.text,
                *(f"{h} of {n_pairs}" for h in held),
                verdict(held, [n_pairs] * len(held)),
                "; ".join(against) or "-",
            ]
        )
    return table(["figure", "claim", *keys, "verdict", "pairs that do not hold"], rows)


def spread(numbers, digits=3):
    """Write the mean and the standard deviation over seeds."""
    deviation = f" ({np.std(numbers, ddof=1):.{digits}f})" if len(numbers) > 1 else ""
    return f"{np.mean(numbers):.{digits}f}{deviation}"


def curve_table(records, methods, fractions, which, digits=3, **key):
    """Tabulate a score at fractions of the budget, averaged over seeds."""
    rows = []
    for method in methods:
        curves = [dict(_pairs(r, which)) for r in records.of(method=method, **key)]
        cells = []
        for fraction in fractions:
            numbers = [curve[fraction] for curve in curves if fraction in curve]
            cells.append(f"{np.mean(numbers):.{digits}f}" if numbers else "")
        rows.append([method, *cells])
    return table(["sampler", *(f"{f:.0%}" for f in fractions)], rows)


def _pairs(record, which):
    return [(row[0], row[1 + which]) for row in record["curve"]]


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
