"""Conditionals of a mixture of normals: moments by quadrature, and what they use."""

import torch
from torch.distributions import MultivariateNormal
from toy import of_all_columns

from skvnce.vgi.conditionals import MixtureOffset, NormalHead, StandardConditionals


def mixture_of(seed, n_components=3, d=3):
    """Make weights, means and covariances."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(
        n_components, d, 2 * d, generator=generator, dtype=torch.float64
    )
    weights = torch.rand(n_components, generator=generator, dtype=torch.float64) + 0.2
    covariances = draws @ draws.mT / (2 * d) + 0.1 * torch.eye(d)
    return weights / weights.sum(), 2 * draws[:, :, 0], covariances


def rows_of(seed, n=6, d=3):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def test_moments_are_those_of_quadrature(seed):
    weights, means, covariances = mixture_of(seed)
    x, offset = rows_of(seed), MixtureOffset(weights, means, covariances)
    grid = torch.linspace(-20, 20, 8001, dtype=torch.float64)
    for j in range(x.shape[1]):
        columns = torch.full((len(x),), j)
        mean, log_scale = offset(x, columns)
        places = x.expand(len(grid), *x.shape).clone()
        places[..., j] = grid[:, None]
        parts = MultivariateNormal(means, covariances).log_prob(places.unsqueeze(-2))
        density = (parts.exp() * weights).sum(-1)
        density = density / density.sum(0)
        expected = (density * grid[:, None]).sum(0)
        variance = (density * (grid[:, None] - expected).square()).sum(0)
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close((2 * log_scale).exp(), variance, rtol=1e-6, atol=0)


def test_the_cell_that_is_drawn_has_no_effect(seed):
    x, columns = rows_of(seed), torch.tensor([0, 1, 2, 0, 1, 2])
    offset = MixtureOffset(*mixture_of(seed))
    other = x.scatter(1, columns[:, None], 7.0)
    for one, two in zip(offset(x, columns), offset(other, columns), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_conditionals_start_there(seed):
    """Also those of all columns at a time."""
    x, body = rows_of(seed), torch.nn.Linear(3, 4)
    conditionals = StandardConditionals(3, NormalHead(), body, 4, (5,))
    conditionals.offset = MixtureOffset(*mixture_of(seed))
    conditionals.double()
    every = of_all_columns(conditionals, x)
    for j in range(3):
        columns = torch.full((len(x),), j)
        q, (mean, log_scale) = (
            conditionals.at(x, columns),
            conditionals.offset(x, columns),
        )
        for result in (q.mean, every.mean[:, j]):
            torch.testing.assert_close(result, mean)
        for result in (q.stddev, every.stddev[:, j]):
            torch.testing.assert_close(result, log_scale.exp())
