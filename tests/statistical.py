"""How often a right implementation may fail a statistical test, and functions for it.

.ci/run takes the seed of the tests from the commit.  Were there 1000 statistical tests,
each failing a right implementation with probability FAILURE, one run in 100 would fail.

Each function `p_...` returns a p-value: the probability that a right implementation
gets at least as far from the truth.  It is adjusted for the number of comparisons
(Bonferroni), so a test asserts once, and its negative control asserts the contrary::

    assert p_mean(draws, mean) > FAILURE
    assert p_mean(draws, wrong_mean) < FAILURE
"""

import numpy as np
from scipy import stats

FAILURE = 1e-5


def standard_errors(n_comparisons=1, *, freedom=np.inf, failure=FAILURE):
    """Return the standard errors that the worst of n_comparisons exceeds by chance.

    A right implementation exceeds them, in either direction, with probability
    failure at most.  freedom: degrees of freedom of the estimated standard error.
    """
    return stats.t.isf(failure / 2 / n_comparisons, freedom)


def within_standard_errors(
    estimate,
    truth,
    standard_error,
    *,
    freedom=np.inf,
    n_comparisons=None,
    failure=FAILURE,
):
    """Say whether all estimates lie within the standard errors that chance explains.

    n_comparisons: all that the test makes; default: the number of estimates.
    """
    z = np.abs(_numpy(estimate) - _numpy(truth)) / _numpy(standard_error)
    n_comparisons = n_comparisons or z.size
    return bool(
        z.max() <= standard_errors(n_comparisons, freedom=freedom, failure=failure)
    )


def p_mean(draws, mean, axis=0, alternative="two-sided"):
    """Return the p-value of the mean of independent draws (Student's t).

    alternative: the fault that is looked for, "less" where it is a mean too small.
    """
    draws = _numpy(draws)
    n = draws.shape[axis]
    error = draws.std(axis, ddof=1) / np.sqrt(n)
    t = (draws.mean(axis) - _numpy(mean)) / error
    return _least(_tail(stats.t(n - 1), t, alternative))


def p_means(first, second, axis=0, alternative="two-sided"):
    """Return the p-value of two samples with one mean (Welch's t)."""
    samples = _numpy(first), _numpy(second)
    degrees = [s.shape[axis] - 1 for s in samples]
    squares = [s.var(axis, ddof=1) / s.shape[axis] for s in samples]
    total = squares[0] + squares[1]
    freedom = total**2 / sum(s**2 / f for s, f in zip(squares, degrees, strict=True))
    t = (samples[0].mean(axis) - samples[1].mean(axis)) / np.sqrt(total)
    return _least(_tail(stats.t(freedom), t, alternative))


def p_share(count, n_trials, probability, alternative="two-sided"):
    """Return the p-value of counts of independent trials (exact binomial tails)."""
    trials = stats.binom(n_trials, probability)
    tails = {"less": trials.cdf(count), "greater": trials.sf(_numpy(count) - 1)}
    tails["two-sided"] = 2 * np.minimum(tails["less"], tails["greater"])
    return _least(tails[alternative])


def p_counts(counts, probabilities):
    """Return the p-value of the counts of independent draws of one category each.

    Pearson's chi-square: ValueError where a category expects fewer than 10 draws.
    """
    expected = np.sum(counts) * _numpy(probabilities)
    if expected.min() < 10:
        raise ValueError(f"a category expects {expected.min():.2g} draws: merge it")
    return float(stats.chisquare(_numpy(counts), expected).pvalue)


def seed_limits(mean, standard_deviation, n_seeds, *, failure=FAILURE):
    """Return (low, high), which a normal statistic leaves by chance at a new seed.

    For a statistic without a standard error of its own: run the test at n_seeds seeds
    and put its mean and standard deviation over the seeds here.  The limits are of
    Student's prediction interval; a new seed leaves them with probability failure.
    """
    if n_seeds < 10:
        raise ValueError(f"n_seeds={n_seeds} is too few: run at least 10 seeds")
    width = stats.t.isf(failure / 2, n_seeds - 1) * np.sqrt(1 + 1 / n_seeds)
    return mean - width * standard_deviation, mean + width * standard_deviation


def _numpy(values):
    values = values.detach() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=float)


def _tail(distribution, t, alternative):
    """Return the p-values of statistics of a symmetric distribution."""
    far = {"less": -t, "greater": t, "two-sided": np.abs(t)}[alternative]
    return distribution.sf(far) * (2 if alternative == "two-sided" else 1)


def _least(p_values):
    """Return the smallest p-value, adjusted for the number of all."""
    p_values = np.asarray(p_values)
    if not np.isfinite(p_values).all():
        raise ValueError("A p-value is NaN: draws without variance, or not finite.")
    return float(min(1.0, p_values.min() * p_values.size))
