"""Mixtures of normals and latent classes against enumeration and Gaussian algebra."""

from itertools import product

import numpy as np
import pytest
from mixture_objective import identity, penalised
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from skvnce.mixture import em
from skvnce.mixture.density import (
    Arranged,
    Mixture,
    conditional_means,
    draw,
    prepare,
    responsibilities,
)
from skvnce.mixture.margins import normal_scores, standardised


def example(rng, n_components=3, d=4, n_categories=(3, 2)):
    """Make a mixture with categories."""
    roots = rng.normal(size=(n_components, d, d + 2))
    return Mixture(
        rng.dirichlet(np.ones(n_components)),
        2 * rng.normal(size=(n_components, d)),
        roots @ roots.transpose(0, 2, 1) / d,
        tuple(rng.dirichlet(np.ones(n), n_components) for n in n_categories),
    )


def drawn(mixture, n, rng, missing=0.4):
    """Draw rows with missing numbers and categories."""
    component = rng.choice(len(mixture.weights), n, p=mixture.weights)
    pairs = [(mixture.means[k], mixture.covariances[k]) for k in component]
    numbers = np.array([rng.multivariate_normal(*pair) for pair in pairs])
    classes = [[one[k] for one in mixture.classes] for k in component]
    codes = np.array([[rng.choice(len(p), p=p) for p in row] for row in classes])
    codes = codes.reshape(n, len(mixture.classes))
    numbers[rng.random(numbers.shape) < missing] = np.nan
    codes[rng.random(codes.shape) < missing] = -1
    return numbers, codes


def log_terms(mixture, numbers, codes):
    """Compute log pi_k N(z_obs) theta_k[c_obs] of a row, one component at a time."""
    seen = ~np.isnan(numbers)
    found = np.log(mixture.weights)
    for k in range(len(found)):
        if seen.any():
            S = mixture.covariances[k][np.ix_(seen, seen)]
            normal = multivariate_normal(mixture.means[k][seen], S)
            found[k] += normal.logpdf(numbers[seen])
        for code, shares in zip(codes, mixture.classes, strict=True):
            found[k] += np.log(shares[k, code]) if code >= 0 else 0.0
    return found


def conditional(mixture, k, numbers):
    """Compute mean and covariance of the missing numbers given component k."""
    seen, mean, matrix = ~np.isnan(numbers), mixture.means[k], mixture.covariances[k]
    slope = matrix[np.ix_(~seen, seen)] @ np.linalg.inv(matrix[np.ix_(seen, seen)])
    left = matrix[np.ix_(~seen, ~seen)] - slope @ matrix[np.ix_(seen, ~seen)]
    return mean[~seen] + slope @ (numbers - mean)[seen], left


@pytest.fixture
def known():
    rng = np.random.default_rng(0)
    mixture = example(rng)
    return mixture, *drawn(mixture, 60, rng)


def test_density_and_shares_equal_those_of_enumeration(known):
    mixture, numbers, codes = known
    rows = zip(numbers, codes, strict=True)
    terms = np.array([log_terms(mixture, *row) for row in rows])
    data = Arranged.of(numbers, codes)
    shares, log_density = responsibilities(prepare(mixture), data)
    expected = logsumexp(terms, axis=1)
    np.testing.assert_allclose(log_density, expected[data.order], rtol=1e-10)
    expected = np.exp(terms - expected[:, None])[data.order]
    np.testing.assert_allclose(shares, expected, atol=2e-6)
    wrong = np.exp(terms - terms.max(1, keepdims=True))[data.order]
    assert abs(shares - wrong).max() > 0.1


def test_means_equal_those_of_gaussian_algebra(known):
    mixture, numbers, codes = known
    data = Arranged.of(numbers, codes)
    means, levels = conditional_means(mixture, data, identity(4))
    for i, (row, code) in enumerate(zip(numbers, codes, strict=True)):
        terms = log_terms(mixture, row, code)
        shares = np.exp(terms - logsumexp(terms))
        each = (conditional(mixture, k, row)[0] for k in range(len(shares)))
        expected = sum(p * mean for p, mean in zip(shares, each, strict=True))
        np.testing.assert_allclose(means[i, np.isnan(row)], expected, atol=2e-5)
        for found, one in zip(levels, mixture.classes, strict=True):
            np.testing.assert_allclose(found[i], shares @ one, atol=2e-6)


def test_probabilities_of_categories_equal_those_of_enumeration():
    mixture = example(np.random.default_rng(1), d=0, n_categories=(2, 3, 2))
    cells = product(range(2), range(3), range(2))
    joint = {c: np.exp(logsumexp(log_terms(mixture, np.zeros(0), c))) for c in cells}
    assert np.isclose(sum(joint.values()), 1)
    codes = np.array([[0, -1, -1], [-1, 2, 1]])
    data = Arranged.of(np.zeros((2, 0)), codes)
    _, levels = conditional_means(mixture, data, identity(0))
    for i, row in enumerate(codes):
        fits = [
            c for c in joint if all(r in (-1, v) for r, v in zip(row, c, strict=True))
        ]
        total = sum(joint[cell] for cell in fits)
        for j, found in enumerate(levels):
            for level in range(found.shape[1]):
                expected = sum(joint[c] for c in fits if c[j] == level) / total
                if row[j] < 0:
                    assert np.isclose(found[i, level], expected, atol=2e-6)


def test_means_of_piecewise_functions_equal_quadrature():
    x = np.exp(np.random.default_rng(2).normal(size=(200, 1)))
    points = normal_scores(x, np.ones(200)).within(np.array([0.2]), np.array([3.0]))
    mixture = Mixture(np.ones(1), np.array([[0.3]]), np.array([[[0.7]]]))
    data = Arranged.of(np.array([[np.nan]]))
    found, _ = conditional_means(mixture, data, points)

    def weighted(z):
        cell = points.to_cells(np.array([[z]]))[0, 0]
        return cell * norm.pdf(z, 0.3, np.sqrt(0.7))

    knots = points.pair(0)[0]
    expected, _ = quad(weighted, -8, 8, points=knots, limit=500)
    assert np.isclose(found[0, 0], expected, rtol=1e-6)


def test_draws_have_the_conditional_moments():
    rng = np.random.default_rng(3)
    mixture = example(rng, n_categories=(3,))
    numbers = np.array([[0.5, np.nan, np.nan, -1.0]])
    codes, n = np.array([[-1]]), 40_000
    data = Arranged.of(numbers, codes)
    given = rng.random((n, 1)), rng.normal(size=(n, 1, 4)), rng.random((1, n, 1))
    rows, levels = draw(mixture, data, *given)
    terms = log_terms(mixture, numbers[0], codes[0])
    shares = np.exp(terms - logsumexp(terms))
    moments = [conditional(mixture, k, numbers[0]) for k in range(3)]
    mean = sum(p * m for p, (m, _) in zip(shares, moments, strict=True))
    pairs = zip(shares, moments, strict=True)
    square = sum(p * (c + np.outer(m, m)) for p, (m, c) in pairs)
    covariance = square - np.outer(mean, mean)
    cells = rows[:, 0, 1:3]
    error = np.sqrt(covariance.diagonal() / n)
    assert (abs(cells.mean(0) - mean) < 5 * error).all()
    # the variance of a product of mixed normals is at most some 10 times its square
    assert (abs(np.cov(cells.T) - covariance) < 5 * 4 * covariance.max() / n**0.5).all()
    share = shares @ mixture.classes[0]
    found = np.bincount(levels[:, 0, 0], minlength=3) / n
    assert (abs(found - share) < 5 * np.sqrt(share * (1 - share) / n)).all()
    # jointly: the mean of a number where the category is 0
    own = shares * mixture.classes[0][:, 0]
    expected = sum(p * m for p, (m, _) in zip(own / own.sum(), moments, strict=True))
    some = cells[levels[:, 0, 0] == 0]
    assert (abs(some.mean(0) - expected) < 5 * error * (n / len(some)) ** 0.5).all()


def prior_of(mixture, strength=4.0):
    d = mixture.means.shape[1]
    classes = tuple(np.full(one.shape[1], 0.5) for one in mixture.classes)
    return em.Prior(strength, np.eye(d) + 0.2, np.full(d, 0.1), classes)


def test_em_never_decreases_the_penalised_likelihood(known):
    mixture, numbers, codes = known
    data, rng = Arranged.of(numbers, codes), np.random.default_rng(4)
    weights = rng.gamma(1.0, size=len(numbers))
    prior, current, values = prior_of(mixture), example(rng), []
    for _ in range(40):
        sums, total = em.expect(prepare(current), data, weights, prior.centre)
        values.append(penalised(current, prior, total))
        current = em.maximise(sums, prior)
    steps = np.diff(values)
    assert (steps > -1e-9 * abs(values[-1])).all() and steps[0] > 1 > steps[-1]


def test_the_m_step_is_a_maximum(known):
    mixture, numbers, codes = known
    data, weights = Arranged.of(numbers, codes), np.ones(len(numbers))
    prior = prior_of(mixture)
    current = mixture
    for _ in range(3000):
        sums, total = em.expect(prepare(current), data, weights, prior.centre)
        new = em.maximise(sums, prior)
        if abs(new.means - current.means).max() < 1e-12:
            break
        current = new
    best = penalised(current, prior, total)

    def value(other):
        _, log_density = responsibilities(prepare(other), data)
        return penalised(other, prior, weights @ log_density)

    rng = np.random.default_rng(5)
    for size in (1e-3, 1e-2):
        for _ in range(5):
            noise = size * rng.normal(size=current.covariances.shape)
            other = current._replace(
                means=current.means + size * rng.normal(size=current.means.shape),
                covariances=current.covariances + noise + noise.transpose(0, 2, 1),
            )
            assert value(other) < best


def test_latent_classes_have_closed_forms():
    codes = np.array([[0], [0], [1], [2], [-1]])
    data, weights = Arranged.of(np.zeros((5, 0)), codes), np.array([1.0, 2, 1, 1, 7])
    none = np.zeros((1, 0)), np.zeros((1, 0, 0))
    start = Mixture(np.ones(1), *none, (np.full((1, 3), 1 / 3),))
    prior = em.Prior(0.0, np.zeros((0, 0)), np.zeros(0), (np.array([0.2, 0.3, 0.5]),))
    sums, _ = em.expect(prepare(start), data, weights, prior.centre)
    found = em.maximise(sums, prior)
    np.testing.assert_allclose(found.classes[0], [np.array([3.2, 1.3, 1.5]) / 6])


def test_complete_rows_and_one_component_have_closed_forms():
    rng = np.random.default_rng(6)
    x, weights = rng.normal(size=(30, 3)), rng.gamma(1.0, size=30)
    prior = em.Prior(2.0, np.eye(3), np.ones(3))
    start = Mixture(np.ones(1), np.zeros((1, 3)), np.eye(3)[None])
    data = Arranged.of(x)
    sums, _ = em.expect(prepare(start), data, weights, prior.centre)
    found = em.maximise(sums, prior)
    total = weights.sum()
    mean = (weights @ x + 1) / (total + 1)
    scatter = (weights[:, None] * (x - mean)).T @ (x - mean)
    scatter += np.outer(mean - 1, mean - 1) + 2 * np.eye(3)
    np.testing.assert_allclose(found.means[0], mean)
    np.testing.assert_allclose(found.covariances[0], scatter / (total + 2))


@pytest.mark.parametrize("to_scores", [normal_scores, standardised])
def test_scores_are_standard_and_have_an_inverse(to_scores):
    rng = np.random.default_rng(8)
    x = np.column_stack([np.exp(rng.normal(size=500)), rng.poisson(2, 500)])
    x[rng.random(x.shape) < 0.3] = np.nan
    points = to_scores(x, np.ones(500))
    z = points.to_scores(x)
    assert (np.isnan(z) == np.isnan(x)).all() and (abs(np.nanmean(z, 0)) < 0.1).all()
    assert (abs(np.nanstd(z, 0) - 1) < 0.1).all()
    np.testing.assert_allclose(points.to_cells(z), x, rtol=1e-8, atol=1e-8)
    new = np.array([[1e3, -5.0]])
    assert np.isfinite(points.to_scores(new)).all()
    ended = points.within(np.nanmin(x, 0), np.nanmax(x, 0))
    far = ended.to_cells(np.array([[50.0, 50.0], [-50.0, -50.0]]))
    np.testing.assert_allclose(far, [np.nanmax(x, 0), np.nanmin(x, 0)])


def test_slopes_are_those_of_the_scores():
    x = np.exp(np.random.default_rng(9).normal(size=(300, 2)))
    points = normal_scores(x, np.ones(300))
    row, step = np.array([[1.0, 7.3]]), 1e-7
    ratio = (points.to_scores(row + step) - points.to_scores(row - step)) / (2 * step)
    assert np.isclose(points.log_slopes(row)[0], np.log(ratio).sum(), rtol=1e-5)
    row[0, 1] = np.nan
    assert np.isclose(points.log_slopes(row)[0], np.log(ratio[0, 0]), rtol=1e-5)


def test_scores_of_ranks_are_symmetric():
    """More than 9,000 rows have ranks whose scores are clipped, on both sides."""
    x = np.exp(2 * np.random.default_rng(10).normal(size=(20_000, 1)))
    weights = np.ones(len(x))
    z = normal_scores(x, weights).to_scores(x)
    other = normal_scores(-x, weights).to_scores(-x)
    assert abs(z + other).max() < 0.05 and z.max() < 3.8 and len(np.unique(z)) == len(x)


def test_scores_continue_with_the_average_slope():
    x = np.random.default_rng(11).normal(size=(100, 1))
    points = normal_scores(x, np.ones(100))
    scores, cells = points.pair(0)
    slope = (scores[-2] - scores[1]) / (cells[-2] - cells[1])
    far = np.array([[x.max() + 1], [x.max() + 5e3], [x.min() - 5e3], [1e9]])
    found = points.to_scores(far)[:, 0]
    expected = scores[-2] + slope * (far[:2, 0] - cells[-2])
    np.testing.assert_allclose(found[:2], expected)
    assert np.isclose(found[2], scores[1] + slope * (far[2, 0] - cells[1]))
    assert found[3] == 1e6  # squares remain far from the largest float


def test_the_covariance_within_components_is_that_of_groups():
    """Two far groups of narrow spread, and one component more than groups."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(400, 2)) / 20 + np.repeat([[-1.0, 1.0], [1.0, -1.0]], 200, 0)
    data, weights = Arranged.of(x), np.ones(400)
    prior = em.Prior(1.0, np.cov(x.T), x.mean(0))
    shares, means = em.cluster(x, weights, 3, rng)
    rows = weights[data.order], means, shares[data.order]
    fit = em.fit_mixture(data, *rows, prior, 12)
    assert (fit.prior.within.diagonal() < 0.02).all()
    assert (prior.within.diagonal() > 0.9).all()  # negative control
    assert fit.log_likelihoods[-1] > fit.log_likelihoods[0]


def test_skipped_components_do_not_count(known):
    """A first pass marks improbable components, and a second one leaves them out."""
    mixture, numbers, codes = known
    data, weights = Arranged.of(numbers, codes), np.ones(len(numbers))
    prepared, centre = prepare(mixture), np.zeros(numbers.shape[1])
    shares, _ = responsibilities(prepared, data)
    skipped = np.zeros(shares.shape, dtype=bool)
    em.expect(prepared, data, weights, centre, skipped)
    expected = shares < 1e-3 * shares.max(1, keepdims=True)
    np.testing.assert_array_equal(skipped, expected)
    skipped[:, 0] |= ~skipped[:, 1]  # rows keep another one
    sums, total = em.expect(prepared, data, weights, centre, skipped.copy())
    kept = np.where(skipped, 0, shares)
    kept /= kept.sum(1, keepdims=True)
    np.testing.assert_allclose(sums.totals, kept.sum(0), atol=1e-6)
    assert 0 <= sums.totals[0] < shares[:, 0].sum() - 1
    assert total < em.expect(prepared, data, weights, centre)[1]


def test_a_row_keeps_its_largest_component():
    """Of 200 equal ones, which are all below the least share."""
    x = np.array([[0.5], [np.nan]])
    equal = Mixture(np.full(200, 1 / 200), np.zeros((200, 1)), np.ones((200, 1, 1)), ())
    given = prepare(equal), Arranged.of(x), np.ones(2), np.zeros(1), None, 0.01
    sums, _ = em.expect(*given)
    np.testing.assert_allclose(sums.totals, np.full(200, 2 / 200))
    none, _ = em.expect(*given[:5], 0.0)
    np.testing.assert_allclose(sums.means, none.means)


def test_small_shares_do_not_count_and_others_sum_to_one(known):
    mixture, numbers, codes = known
    data, weights = Arranged.of(numbers, codes), np.ones(len(numbers))
    shares, _ = responsibilities(prepare(mixture), data)
    centre = np.zeros(numbers.shape[1])
    sums, _ = em.expect(prepare(mixture), data, weights, centre, None, 0.2)
    kept = np.where(shares < 0.2, 0, shares)
    kept /= kept.sum(1, keepdims=True)
    assert abs(kept - shares).max() > 0.05
    np.testing.assert_allclose(sums.totals, kept.sum(0))
