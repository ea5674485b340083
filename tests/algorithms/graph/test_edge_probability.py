"""The mixture of strengths against draws of which the truth is known."""

import numpy as np
import pytest
import torch
from scipy import stats
from statistical import FAILURE, p_share

from skvnce.algorithms.graph.edge_probability import (
    Mixture,
    edge_probabilities,
    fit_mixture,
    log_joint,
)

TRUTH = Mixture(
    torch.tensor([0.8, 0.15, 0.05], dtype=torch.float64),
    torch.tensor([0.02, 0.3, -0.4], dtype=torch.float64),
    torch.tensor([0.05, 0.07, 0.08], dtype=torch.float64),
)


def draws(n, rng):
    """Draw from the truth; values and the component of each."""
    part = rng.choice(3, n, p=TRUTH.share.numpy())
    return torch.tensor(rng.normal(TRUTH.mean[part], TRUTH.deviation[part])), part


def as_matrix(w, d):
    matrix = torch.zeros(d, d).double()
    i, j = torch.triu_indices(d, d, 1)
    matrix[i, j] = w
    matrix[j, i] = w
    return matrix


@pytest.mark.parametrize("d", [5, 20])
def test_one_lump_has_no_links(d, seed):
    n_tables, alarms = 20, 0
    for i in range(n_tables):
        w = np.random.default_rng([seed, i]).normal(0.1, 0.05, size=d * (d - 1) // 2)
        alarms += bool(edge_probabilities(as_matrix(torch.tensor(w), d)).any())
        if i < 5:
            w[:2] += 1.2  # and two that stand out
            found = edge_probabilities(as_matrix(torch.tensor(w), d))
            assert (found[0, [1, 2]] > 0.9).all()
    assert p_share(alarms, n_tables, 0.01, "greater") > FAILURE


def test_the_joint_is_share_times_density(seed):
    w, _ = draws(50, np.random.default_rng(seed))
    expected = [
        np.log(p) + stats.norm(m, s).logpdf(w)
        for p, m, s in zip(*map(torch.Tensor.numpy, TRUTH), strict=True)
    ]
    found = log_joint(w, TRUTH)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0])


def test_the_truth_is_found(seed):
    w, _ = draws(20_000, np.random.default_rng(seed))
    for found, true in zip(fit_mixture(w), TRUTH, strict=True):
        torch.testing.assert_close(found, true, rtol=0, atol=0.02)


def test_probabilities_are_calibrated(seed):
    d = 200
    w, part = draws(d * (d - 1) // 2, np.random.default_rng(seed))
    i, j = torch.triu_indices(d, d, 1)
    found, real = edge_probabilities(as_matrix(w, d))[i, j].numpy(), part > 0
    for low in np.arange(0, 1, 0.2):
        some = (found >= low) & (found < low + 0.2)
        error = np.sqrt(np.sum(found[some] * (1 - found[some]))) + 1e-9
        assert abs(real[some].sum() - found[some].sum()) < 5 * error
    # a control: probabilities pulled to a half are not calibrated
    wrong = 0.5 + 0.5 * (found - 0.5)
    error = np.sqrt(np.sum(wrong * (1 - wrong)))
    assert abs(real.sum() - wrong.sum()) > 5 * error


def test_far_values_are_links_and_the_bulk_is_none(seed):
    rng = np.random.default_rng(seed)
    w = torch.tensor(rng.normal(0, 0.02, 190))
    w[:10], w[10:15] = 0.4, -0.4
    found = edge_probabilities(as_matrix(w, 20))
    i, j = torch.triu_indices(20, 20, 1)
    assert (found[i, j][:15] > 0.99).all()
    assert found[i, j][15:].mean() < 0.1
    assert (found.diagonal() == 0).all()
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_few_or_equal_values_give_no_opinion(d, value):
    assert (edge_probabilities(as_matrix(torch.tensor(value).double(), d)) == 0).all()
