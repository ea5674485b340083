import numpy as np
import pytest
from scipy import stats
from statistical import (
    FAILURE,
    p_counts,
    p_mean,
    p_means,
    p_share,
    seed_limits,
    standard_errors,
    within_standard_errors,
)

RATE = 0.05  # a rate that a simulation can measure
REPEATS = 500


def share(rng, fault):
    counts = rng.binomial(50, 0.4 if fault else 0.2, 4)
    return p_share(counts, 50, 0.2) < RATE


def counts(rng, fault):
    p = np.array([0.2, 0.3, 0.5])
    drawn = rng.multinomial(200, p[::-1] if fault else p)
    return p_counts(drawn, p) < RATE


def draws(rng, fault):
    return 1 + 2 * fault + 2 * rng.standard_normal((12, 3))


def mean(rng, fault):
    return p_mean(draws(rng, fault), 1.0) < RATE


def means(rng, fault):
    return p_means(draws(rng, fault), 1 + rng.standard_normal((30, 3))) < RATE


def errors(rng, fault):
    found = draws(rng, fault)
    error = found.std(0, ddof=1) / np.sqrt(12)
    options = {"freedom": 11, "failure": RATE}
    return not within_standard_errors(found.mean(0), 1.0, error, **options)


def seeds(rng, fault):
    many = rng.normal(1, 2, 20)
    low, high = seed_limits(many.mean(), many.std(ddof=1), 20, failure=RATE)
    return not low < 1 + 10 * fault + 2 * rng.standard_normal() < high


@pytest.mark.quick(2)
@pytest.mark.parametrize("alarm", [share, counts, mean, means, errors, seeds])
def test_a_right_implementation_fails_at_the_stated_rate(alarm, seed):
    rng = np.random.default_rng(seed)
    alarms = sum(alarm(rng, False) for _ in range(REPEATS))
    # chi-square's and Welch's quantiles are approximate, a binomial's rate is lower
    assert p_share(alarms, REPEATS, 1.1 * RATE, alternative="greater") > FAILURE
    assert p_share(alarms, REPEATS, 0.3 * RATE, alternative="less") > FAILURE
    detected = sum(alarm(rng, True) for _ in range(REPEATS // 5))
    assert p_share(detected, REPEATS // 5, 0.5, alternative="less") > FAILURE


def test_one_comparison_has_the_quantile_of_the_textbook():
    assert standard_errors(failure=0.05) == pytest.approx(1.959964, abs=1e-6)
    assert standard_errors(freedom=9, failure=0.05) == pytest.approx(2.262157, abs=1e-6)
    assert standard_errors(10, failure=0.5) == standard_errors(failure=0.05)


def test_far_tails_are_exact():
    """At the rate that the tests use: a simulation would take millions of repeats."""
    z = standard_errors(7)
    assert 7 * 2 * stats.norm.sf(z) == pytest.approx(FAILURE)
    assert within_standard_errors(np.full(7, z - 1e-6), 0, 1)
    assert not within_standard_errors([0] * 6 + [z + 1e-6], 0, 1)
    assert p_share(0, 20, 0.5) == pytest.approx(2 * 0.5**20)
    assert p_share([0, 10], 20, 0.5, "less") == pytest.approx(2 * 0.5**20)


def test_a_direction_looks_for_one_fault_only():
    found = np.random.default_rng(0).normal(3, 1, 50)
    assert p_mean(found, 0, alternative="less") > 0.5
    assert p_mean(found, 0, alternative="greater") < FAILURE
    assert p_means(found, -found, alternative="less") > 0.5
    assert p_share(19, 20, 0.1, "less") > 0.5


def test_p_values_are_those_of_scipy():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.2, 1, 20), rng.normal(0, 3, 30)
    for alternative in ("two-sided", "less", "greater"):
        exact = stats.ttest_1samp(first, 0, alternative=alternative).pvalue
        assert p_mean(first, 0, alternative=alternative) == pytest.approx(exact)
        options = {"equal_var": False, "alternative": alternative}
        exact = stats.ttest_ind(first, second, **options).pvalue
        assert p_means(first, second, alternative=alternative) == pytest.approx(exact)


@pytest.mark.parametrize(
    "wrong, remedy",
    [
        (lambda: p_counts([5, 1], [0.9, 0.1]), "merge it"),
        (lambda: seed_limits(0, 1, 3), "at least 10"),
        (lambda: p_mean(np.zeros((5, 2)), 0.0), "without variance"),
    ],
)
def test_what_has_no_rate_raises(wrong, remedy):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=remedy):
        wrong()
