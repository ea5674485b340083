"""What shape VNCE gives a posterior that cannot be exact (thesis, figure 4.2).

``x = z_1 z_2 (1, 1) + noise``, with a diagonal normal q(z | x) of its own for each
landmark x.  Means over q are by Gauss-Hermite quadrature, log p(x) by a grid.
"""

import numpy as np
import pytest
import torch
from oracles import line_rule
from scipy import integrate, special, stats
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from skvnce._core.training.lbfgs import minimise
from skvnce.contrast.objective import divergence

VARIANCE = 0.3  # of x given z, as in the authors' code
ZERO, EYE = torch.zeros(2).double(), torch.eye(2).double()
MATCHED = MultivariateNormal(ZERO, VARIANCE * EYE + 1)  # mean and covariance of x
DIFFUSE = MultivariateNormal(ZERO, 30 * EYE)
LANDMARKS = {"green": 0.0, "red": 4.0, "blue": -2.5}  # both coordinates of x
RATIOS = [1, 10, 100, 1e3, 1e4]


def plane(points, weights):
    """Make the product of a rule for the line with itself."""
    i, j = torch.cartesian_prod(*[torch.arange(len(points))] * 2).T
    return torch.stack([points[i], points[j]], -1), weights[i] * weights[j]


def hermite_rule(n_points):
    points, weights = map(torch.tensor, np.polynomial.hermite_e.hermegauss(n_points))
    return plane(points, weights / weights.sum())


def grid():
    points, weights = line_rule(9.0, 300)
    return plane(points.squeeze(-1), weights)


GRID, GRID_WEIGHTS = grid()
NODES, NODE_WEIGHTS = hermite_rule(40)


def log_joint(x, z):
    product = z.prod(-1, keepdim=True)
    log_prior = Normal(0.0, 1.0).log_prob(z).sum(-1)
    return log_prior + Normal(product, VARIANCE**0.5).log_prob(x).sum(-1)


def log_evidence(x):
    return torch.logsumexp(log_joint(x, GRID) + GRID_WEIGHTS.log(), 0)


def normal(v):
    return Independent(Normal(v[:2], v[2:].exp()), 1)


def log_q_over_p(v, x):
    """Compute log q(z | x) - log p(z | x) at the nodes; (n_nodes, 1)."""
    q = normal(v)
    z = q.mean + q.stddev * NODES
    return (q.log_prob(z) - log_joint(x, z) + log_evidence(x))[:, None]


def fit(divergence, x):
    start = [1.5, 1.0, -0.5, -0.7] if x[0] >= 0 else [1.5, -1.0, -0.5, -0.7]
    free = torch.zeros(4).double(), torch.full((4,), -torch.inf).double()
    minimum = minimise(divergence, torch.tensor(start).double(), *free, tol=1e-9)
    return normal(minimum.point)


def fit_elbo(x):
    return fit(lambda v: (NODE_WEIGHTS[:, None] * log_q_over_p(v, x)).sum(), x)


def fit_vnce(x, noise, nu):
    log_ratio = (log_evidence(x) - noise.log_prob(x))[None]
    weight = NODE_WEIGHTS.log()[:, None]
    return fit(lambda v: divergence(log_q_over_p(v, x), log_ratio, nu, weight)[0], x)


@pytest.fixture(params=LANDMARKS.values(), ids=LANDMARKS)
def x(request):
    return torch.full((2,), request.param).double()


def distances(x, noise, ratios):
    """Return KL(q of VNCE || q of the ELBO) of each nu."""
    target = fit_elbo(x)
    values = [kl_divergence(fit_vnce(x, noise, nu), target) for nu in ratios]
    return [float(kl) for kl in values]


def test_the_evidence_is_integrated_right(x):
    # one integral over s = z_1 z_2, whose density is K_0(|s|) / pi
    def value(s):
        density = stats.norm.pdf(float(x[0]), s, VARIANCE**0.5) ** 2
        return density * special.k0(abs(s)) / np.pi

    halves = [integrate.quad(value, *ends, limit=200)[0] for ends in ((-9, 0), (0, 9))]
    assert float(log_evidence(x)) == pytest.approx(np.log(sum(halves)), abs=1e-7)


@pytest.mark.quick(1)
@pytest.mark.parametrize("noise", [MATCHED, DIFFUSE], ids=["matched", "diffuse"])
def test_q_tends_to_that_of_the_elbo_as_nu_grows(x, noise):
    result = distances(x, noise, RATIOS)
    assert result[0] > 1e-3  # with little noise it is another one
    assert all(more > less for more, less in zip(result, result[1:], strict=False))
    assert result[-1] < 1e-7
    assert result[-1] < 1e-4 * result[0]


@pytest.mark.quick(2)
def test_the_rows_of_figure_2(x):
    few, many = distances(x, DIFFUSE, [1, 100])
    assert many < few / 10  # last row against the one before
    if x[0] == 0:  # the matched noise is dense at the centre, not in the tails
        assert distances(x, MATCHED, [1])[0] < few / 10


@pytest.mark.quick(1)
def test_q_seeks_a_mode_more_than_that_of_the_elbo(x):
    std = fit_elbo(x).stddev
    assert (fit_vnce(x, DIFFUSE, 1).stddev < 0.99 * std).all()
    torch.testing.assert_close(fit_vnce(x, DIFFUSE, 1e4).stddev, std, rtol=1e-3, atol=0)
