"""Components with factors: EM is monotone, and finds known covariances."""

import numpy as np
import pytest
from mixture_objective import identity, penalised

from skvnce.mixture import em
from skvnce.mixture.density import Arranged, Mixture, conditional_means, prepare
from skvnce.mixture.em import Factors, count_factors, first_noise, improve

LEAST = 1e-6


def known(rng, n_components=2, d=12, q=2):
    loadings = rng.normal(size=(n_components, d, q))
    return Factors(loadings, rng.uniform(0.2, 1.0, size=(n_components, d)))


def rows_of(factors, means, n, rng, missing=0.3):
    """Draw n rows of each component, and hide cells."""
    parts = zip(means, factors.covariances, strict=True)
    x = np.concatenate([rng.multivariate_normal(m, c, n) for m, c in parts])
    return np.where(rng.random(x.shape) < missing, np.nan, x)


def misfit(covariances, given):
    """Compute eq. (2) of each component."""
    trace = np.linalg.solve(given, covariances).trace(axis1=1, axis2=2)
    return np.linalg.slogdet(given)[1] + trace


def principal(covariances, noise, n_factors, least):
    """Return factors that maximise nothing: principal components and the rest."""
    values, vectors = np.linalg.eigh(covariances)
    size = np.sqrt(values[:, None, -n_factors:])
    loadings = vectors[:, :, -n_factors:] * size
    rest = covariances.diagonal(axis1=1, axis2=2) - (loadings**2).sum(2)
    return Factors(loadings, np.maximum(rest, least))


def penalised_likelihoods(step, rng):
    """Run EM with a fixed prior, and compute its objective in each round."""
    d, truth = 12, known(rng, n_components=3, q=5)
    x = rows_of(truth, 2 * rng.normal(size=(3, d)), 40, rng)
    data, weights = Arranged.of(x), rng.gamma(1.0, size=len(x))
    prior = em.Prior(6.0, np.eye(d) + 0.2, np.full(d, 0.1))
    current, noise, values = known(rng, n_components=3), None, []
    mixture = Mixture(np.full(3, 1 / 3), rng.normal(size=(3, d)), current.covariances)
    noise = current.noise
    for _ in range(40):
        sums, total = em.expect(prepare(mixture), data, weights, prior.centre)
        values.append(penalised(mixture, prior, total))
        mixture = em.maximise(sums, prior)
        current = step(mixture.covariances, noise, 2, LEAST)
        mixture = mixture._replace(covariances=current.covariances)
        noise = current.noise
    return np.array(values)


def test_em_with_factors_never_decreases_the_likelihood(seed):
    values = penalised_likelihoods(improve, np.random.default_rng(seed))
    steps = np.diff(values)
    assert (steps > -1e-9 * abs(values[-1])).all()
    # from far away, and it comes to rest
    assert steps[0] > 10 * steps[-1]


def test_em_with_principal_components_may_decrease_it():
    """Negative control."""
    steps = np.diff(penalised_likelihoods(principal, np.random.default_rng(0)))
    assert steps.min() < -1e-3


def test_a_step_never_increases_the_misfit_and_ends_at_a_minimum():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(3, 12, 20))
    covariances, found = roots @ roots.transpose(0, 2, 1) / 20, known(rng, 3)
    values = []
    for _ in range(2000):
        found = improve(covariances, found.noise, 2, LEAST)
        values.append(misfit(covariances, found.covariances))
    assert (np.diff(values, axis=0) < 1e-12).all()
    for _ in range(20):
        near = Factors(*(x * (1 + 0.01 * rng.normal(size=x.shape)) for x in found))
        assert (misfit(covariances, near.covariances) > values[-1]).all()


def test_as_many_factors_as_columns_restrict_nothing():
    roots = np.random.default_rng(2).normal(size=(3, 8, 20))
    covariances, small = roots @ roots.transpose(0, 2, 1) / 20, np.full((3, 8), 1e-3)
    found = improve(covariances, small, 8, LEAST).covariances
    np.testing.assert_allclose(found, covariances)
    fewer = improve(covariances, small, 7, LEAST).covariances
    assert abs(fewer - covariances).max() > 1e-4


def test_em_with_as_many_factors_as_columns_is_that_without():
    rng = np.random.default_rng(3)
    truth = known(rng, d=6)
    x = rows_of(truth, 3 * rng.normal(size=(2, 6)), 60, rng)
    data, prior = Arranged.of(x), em.Prior(3.0, np.eye(6), np.zeros(6))
    shares = np.eye(2)[np.repeat([0, 1], 60)][data.order]
    given = data, np.ones(120), np.zeros((2, 6)), shares, prior
    fits = (em.fit_mixture(*given, 200, q).mixture for q in (0, 6, 1))
    full, same, fewer = (one.covariances for one in fits)
    np.testing.assert_allclose(same, full, atol=1e-3)
    assert abs(fewer - full).max() > 0.1


def test_a_known_structure_is_recovered_from_its_covariance():
    truth = known(np.random.default_rng(4))
    noise = np.array([first_noise(one, 2, LEAST) for one in truth.covariances])
    for _ in range(500):
        found = improve(truth.covariances, noise, 2, LEAST)
        noise = found.noise
    np.testing.assert_allclose(noise, truth.noise, rtol=1e-4)
    np.testing.assert_allclose(found.covariances, truth.covariances, atol=1e-4)
    assert abs(first_noise(truth.covariances[0], 1, LEAST) - noise[0]).max() > 0.1


def test_conditional_means_are_those_of_the_factors():
    """E[x_m | x_o] = mean_m + L_m E[z | x_o], in algebra of q x q matrices."""
    rng = np.random.default_rng(6)
    factors, means = known(rng, 1), rng.normal(size=(1, 12))
    x = rows_of(factors, means, 10, rng, missing=0.5)
    mixture = Mixture(np.ones(1), means, factors.covariances)
    found, _ = conditional_means(mixture, Arranged.of(x), identity(12))
    loadings, noise = factors.loadings[0], factors.noise[0]
    for row, filled in zip(x, found, strict=True):
        seen = ~np.isnan(row)
        scaled = loadings[seen] / noise[seen, None]
        inner = np.eye(2) + scaled.T @ loadings[seen]
        latent = np.linalg.solve(inner, scaled.T @ (row - means[0])[seen])
        expected = means[0] + loadings @ latent
        np.testing.assert_allclose(filled[~seen], expected[~seen], atol=1e-8)


@pytest.mark.parametrize("q", [1, 3])
def test_the_number_of_factors_is_that_of_the_rows(q):
    rng = np.random.default_rng(7)
    truth = known(rng, 1, d=30, q=q)
    x = rows_of(truth, np.zeros((1, 30)), 400, rng, missing=0)
    assert count_factors(np.cov(x.T), 400, LEAST) == q


def test_copies_and_constants_give_finite_covariances():
    x = np.random.default_rng(8).normal(size=(40, 6))
    x[:, 1] = x[:, 0]
    x[:, 2] = np.repeat([0.0, 1.0], 20)  # constant in a cluster
    within = np.cov(x.T) + LEAST * np.eye(6)
    data, prior = Arranged.of(x), em.Prior(3.0, within, x.mean(0))
    shares = np.eye(2)[np.repeat([0, 1], 20)][data.order]
    given = data, np.ones(40), np.zeros((2, 6)), shares, prior, 12
    found = em.fit_mixture(*given, 2).mixture.covariances
    assert np.isfinite(found).all() and (np.linalg.eigvalsh(found) > 1e-8).all()
