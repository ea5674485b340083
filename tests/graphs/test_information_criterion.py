"""The refit of the extended BIC against a dense solve."""

import numpy as np
import pytest
import torch

from skvnce.graphs.em import Penalty, Theta, add_penalties
from skvnce.graphs.maximum_likelihood import (
    Evidence,
    Information,
    extended_bic,
    least_on,
    moments_of_draws,
)

D = 5
LINKS = [(0, 1), (1, 4), (2, 3)]


def with_links(links):
    precision = torch.eye(D).double()
    for i, j in links:
        precision[i, j] = precision[j, i] = 0.3
    return Theta(precision, torch.zeros(D).double(), torch.zeros(()))


def make_problem(seed, width):
    rng = np.random.default_rng(seed)
    z = torch.tensor(rng.normal(size=(60, D)) @ rng.normal(size=(D, D)))
    target = torch.tensor(rng.normal(size=(D, width)))
    target[:, :D] = (target[:, :D] + target[:, :D].T) / 2
    penalty = Penalty(torch.zeros(D, D).double(), 0.0, ridge_linear=0.4)
    quadratic = Information.of(moments_of_draws(z)).quadratic(target)
    return add_penalties(quadratic, penalty, torch.ones(D).double())


def dense_least(quadratic, links):
    """Minimise over K on the links and its diagonal, and b, by a dense solve."""
    shape, spanned = quadratic.target.shape, []
    entries = [(i, i) for i in range(D)] + links
    entries += [(i, D) for i in range(D)] if shape[1] > D else []
    for i, j in entries:
        matrix = torch.zeros(shape).double()
        matrix[i, j] = 1
        if j < D:
            matrix[j, i] = 1
        spanned.append(matrix)
    spanned = torch.stack(spanned)
    moved = torch.stack([quadratic.product(matrix) for matrix in spanned])
    curvature = torch.einsum("pij,qij->pq", spanned, moved)
    slope = torch.einsum("pij,ij->p", spanned, quadratic.target)
    return -float(slope @ torch.linalg.solve(curvature, slope)) / 2


@pytest.mark.parametrize("width", [D, D + 1])
@pytest.mark.parametrize("links", [[], LINKS])
def test_the_least_value_over_the_links(links, width, seed):
    quadratic = make_problem(seed, width)
    result = least_on(quadratic, with_links(links))
    assert result == pytest.approx(dense_least(quadratic, links), rel=1e-6)


def test_the_price_of_a_link(seed):
    at_fit = Evidence(make_problem(seed, D + 1), 2.0, n_rows=200, n_pairs=100.0)
    for links in ([], LINKS):
        least = dense_least(at_fit.quadratic, links)
        for gamma in (0.0, 0.5):
            price = np.log(100) + 4 * gamma * np.log(D)
            expected = 200 * (2 * least + 2) + len(links) * price
            result = extended_bic(at_fit, with_links(links), gamma)
            assert result == pytest.approx(expected, rel=1e-6)


def test_graphs_too_dense_for_the_rows_are_not_refitted(seed):
    at_fit = Evidence(make_problem(seed, D + 1), 0.0, n_rows=200, n_pairs=11.0)
    assert extended_bic(at_fit, with_links(LINKS), 0.0) == np.inf
    assert np.isfinite(extended_bic(at_fit, with_links([(0, 1)]), 0.0))
