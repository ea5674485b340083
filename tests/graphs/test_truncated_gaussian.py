"""The model against quadrature and its own algebra."""

import numpy as np
import pytest
import torch
from oracles import is_copositive, log_integral, orthant_rule

from skvnce._core.distributions.truncated_normal import TruncatedNormal
from skvnce._core.models import observed_log_prob
from skvnce.graphs.truncated_gaussian import TruncatedGaussian, safe_on_orthant

D = 4
HIDING = [np.nan, 1e6, -1.0]


@pytest.fixture
def model():
    """Links of both signs, far from unit scale, with a scale parameter."""
    precision = np.eye(D) * [1.0, 4.0, 0.5, 2.0]
    links = [(0, 1, -0.9), (1, 2, 0.7), (2, 3, -0.4), (0, 3, 0.6)]
    for i, j, link in links:
        precision[i, j] = precision[j, i] = link
    linear = torch.tensor([0.5, -3.0, 1.0, 2.0]).double()
    log_scale = torch.tensor(0.3).double()
    return TruncatedGaussian(torch.tensor(precision), linear, log_scale)


@pytest.fixture
def x(seed):
    return torch.tensor(np.random.default_rng(seed).gamma(1.5, size=(6, D)))


def along(x, feature, points):
    """Repeat rows with one feature moved over a grid; (points, n, features)."""
    moved = x.repeat(len(points), 1, 1)
    moved[:, :, feature] = points[:, None]
    return moved


# Densities


def test_log_density_by_hand():
    K, b = torch.tensor([[2.0, -1.0], [-1.0, 3.0]]), torch.tensor([0.5, 1.0])
    model = TruncatedGaussian(K, b, torch.tensor(0.25))
    # x'Kx = 2 - 2*2 + 3*4 = 10, b'x = 2.5
    x = torch.tensor([[1.0, 2.0], [1.0, -1e-30]])
    assert model.log_density(x).tolist() == [-0.25 - 5.0 + 2.5, -torch.inf]


@pytest.mark.parametrize("feature", range(D))
def test_conditional_and_marginal_are_those_of_quadrature(model, x, feature):
    points, weights = orthant_rule(1, 40.0, 300)
    log_density = model.log_density(along(x, feature, points[:, 0]))
    oracle = log_integral(log_density, weights[:, None])
    log_prob = model.conditional(x, feature).log_prob(points)
    torch.testing.assert_close(log_prob, log_density - oracle, rtol=1e-9, atol=1e-9)
    marginal = model.log_marginal(x, torch.full((len(x),), feature))
    torch.testing.assert_close(marginal, oracle, rtol=1e-9, atol=1e-9)


def test_conditionals_agree_with_each_other(model, x):
    together = model.conditionals(x)
    for j in range(D):
        alone = model.conditional(x, j)
        torch.testing.assert_close(together.loc[:, j], alone.loc)
        torch.testing.assert_close(together.scale[:, j], alone.scale)


def test_log_marginal_mixes_rows(model, x):
    latent = torch.tensor([-1, 0, 1, 2, 3, -1])
    mixed = model.log_marginal(x, latent)
    for row, j in enumerate(latent):
        alone = model.log_marginal(x[row : row + 1], j[None])
        torch.testing.assert_close(mixed[row : row + 1], alone)
    none = model.log_marginal(x, torch.full_like(latent, -1))
    torch.testing.assert_close(none, model.log_density(x), rtol=1e-13, atol=1e-13)


# The masked sum


@pytest.mark.parametrize("value", HIDING)
def test_observed_log_prob_ignores_what_is_under_the_mask(x, value):
    dist = TruncatedNormal(torch.zeros(D).double(), torch.ones(D).double())
    observed = torch.tensor([1, 0, 1, 1]).bool().expand(x.shape).clone()
    observed[0] = False
    hidden = x.where(observed, torch.tensor(value).double())
    got = observed_log_prob(dist, hidden, observed)
    assert torch.equal(got, observed_log_prob(dist, x, observed)) and float(got[0]) == 0
    torch.testing.assert_close(got[1:], dist.log_prob(x)[1:, [0, 2, 3]].sum(-1))


# Safety


def random_symmetric(rng, d=6):
    matrix = rng.normal(size=(d, d))
    matrix = (matrix + matrix.T) * (rng.uniform(size=(d, d)) < 0.7)
    matrix = np.triu(matrix, 1)
    return torch.tensor(matrix + matrix.T + np.diag(rng.lognormal(size=d)))


def test_positive_definite_matrices_stay(rng):
    for _ in range(20):
        factor = rng.normal(size=(4, 5))
        precision = torch.tensor(factor @ factor.T + 0.1 * np.eye(4))
        assert torch.equal(safe_on_orthant(precision), precision)


@pytest.mark.parametrize("link", [-0.998, -0.9999])
def test_nearly_singular_matrices_stay(link):
    precision = torch.tensor([[1.0, link], [link, 1.0]], dtype=torch.float64)
    assert torch.equal(safe_on_orthant(precision), precision)


def test_no_more_is_cut_than_has_to_be(rng):
    n_cut = 0
    for _ in range(30):
        matrix = random_symmetric(rng)
        diagonal = matrix.diagonal().diag()
        precision = diagonal + (matrix - diagonal).clamp(max=0)
        safe = safe_on_orthant(precision, margin=1e-3)
        if torch.equal(safe, precision):
            continue
        n_cut += 1
        slightly_less = torch.where(safe < 0, safe * 1.01, safe)
        assert not torch.equal(safe_on_orthant(slightly_less, 1e-3), slightly_less)
    assert n_cut > 10


def test_copositive_matrices_stay():
    precision = torch.tensor([[1.0, -0.5, 9.0], [-0.5, 1.0, 0.0], [9.0, 0.0, 1.0]])
    assert torch.linalg.eigvalsh(precision)[0] < 0
    assert torch.equal(safe_on_orthant(precision), precision)


def test_unsafe_matrices_become_copositive(rng):
    n_unsafe = 0
    for _ in range(30):
        precision = random_symmetric(rng)
        safe = safe_on_orthant(precision, margin=1e-3)
        n_unsafe += not is_copositive(precision.numpy())
        assert is_copositive(safe.numpy())
        unchanged = (precision >= 0) | torch.eye(len(precision)).bool()
        assert torch.equal(safe[unchanged], precision[unchanged])
        assert (safe[~unchanged] < 0).all()
        assert (safe[~unchanged] >= precision[~unchanged] * (1 + 1e-12)).all()
    assert n_unsafe > 10


def test_only_the_unsafe_part_shrinks():
    # x = (1, 1, 0, 0) has x'Kx < 0: exp(-x'Kx/2) grows without bound
    blocks = [[1.0, -1.1], [-1.1, 1.0]], [[4.0, -1.5], [-1.5, 1.0]]
    precision = torch.block_diag(*map(torch.tensor, blocks))
    safe = safe_on_orthant(precision, margin=1e-3)
    assert float(safe[0, 1]) == pytest.approx(-0.999, abs=1e-5)  # no further than that
    torch.testing.assert_close(safe[2:, 2:], precision[2:, 2:])
