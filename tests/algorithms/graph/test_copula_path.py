"""The penalty of a path of graphs of columns of any kind."""

import numpy as np
import torch

from skvnce import CopulaGraphLearnerCV
from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.graph import copula


def mixed(seed, n=300):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x[:, 2] = x[:, 2] > 0
    x[:, 3] = rng.integers(4, size=n)
    x[:, 1] = np.where(rng.uniform(size=n) < 0.5, np.nan, x[:, 1])
    return x, ["numeric", "numeric", "nominal", "nominal"], [1, 1, 2, 4]


def test_weights_of_a_path_depend_on_the_levels_and_on_the_average_information(seed):
    x, kinds, n_levels = mixed(seed)
    with seeded(seed):
        problem = copula.pose(Incomplete.from_array(x), kinds, n_levels)
    unit = problem.path_penalty(0.3).unit
    free = torch.tensor([1.0, 1.0, 1.0, 3.0]).double()
    expected = torch.outer(free, free).sqrt() * (problem.information / free).mean()
    torch.testing.assert_close(unit, expected.fill_diagonal_(0.0))
    torch.testing.assert_close(problem.path_penalty(0.3).weight, 0.3 * unit)


def test_the_chosen_graph_minimises_the_loss_with_the_weights_of_the_path(seed):
    """The gradient at zero blocks is at most their weight, and equal to it at edges."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 5))
    x[:, 1] += x[:, 0]
    x[:, 4] += x[:, 0]
    found = CopulaGraphLearnerCV(random_state=0).fit(x)  # complete numbers: v is 1
    z = copula.moments([ranked(x).T]).covariance.numpy()
    scale = np.sqrt(np.diag(z))
    gradient = z / np.outer(scale, scale) - np.linalg.inv(
        found.precision_ * np.outer(scale, scale)
    )
    weight = found.alpha_ * found.information_.mean()
    off = ~np.eye(5, dtype=bool)
    edges = (found.precision_ != 0) & off
    assert edges.any()
    np.testing.assert_allclose(np.abs(gradient[edges]), weight, atol=2e-3)
    assert (np.abs(gradient[off & ~edges]) <= weight + 2e-3).all()


def ranked(x):
    """Map columns without ties to normal scores."""
    places = x.argsort(0).argsort(0)
    return torch.special.ndtri(torch.from_numpy((places + 0.5) / len(x))).numpy()
