"""Probabilities of edges against a direct sum, and on scores of known edges."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from statistical import FAILURE, p_mean, p_share

from skvnce import CopulaGraphLearner
from skvnce.graphs import score_matching
from skvnce.graphs.score_matching import probabilities_of_scores


def symmetric(values, d):
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d, 1)] = values
    return torch.from_numpy(matrix + matrix.T)


def probabilities(w, d, unsigned=False):
    """Compute those of pairs (n,); `unsigned` is a bool or one for each pair."""
    w = np.asarray(w, dtype=float)
    is_unsigned = symmetric(np.broadcast_to(unsigned, w.shape).astype(float), d) > 0
    result = probabilities_of_scores(symmetric(w, d), is_unsigned)
    assert torch.equal(result, result.T) and (result.diagonal() == 0).all()
    return result[tuple(np.triu_indices(d, 1))].numpy()


def drawn(d, rng):
    """Draw scores and edges from the prior of signed scores."""
    n = d * (d - 1) // 2
    share = rng.beta(*score_matching._SPARSE)
    rho = rng.choice(score_matching._POSITIVE)
    k, mean = rng.choice(score_matching._SHAPES), rng.choice(score_matching._MEANS)
    there = rng.uniform() >= 0.5
    edge = there & (rng.uniform(size=n) < share)
    sign = np.where(rng.uniform(size=n) < rho, 1, -1)
    return rng.normal(sign * edge * rng.gamma(k, mean / k, size=n)), edge


def table_of_two_edges(seed):
    """Draw a complete normal table with two edges of the same sign."""
    X = np.random.default_rng(seed).normal(size=(300, 8))
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    X[:, 3] = 0.6 * X[:, 2] + 0.8 * X[:, 3]
    return X


@pytest.mark.parametrize("table", [2, 9, 26, 37, 46])
def test_small_tables_with_edges_of_one_sign_keep_a_null(table):
    """A free slab on the null called 24 to 28 of the 28 pairs of these edges."""
    learner = CopulaGraphLearner(0.1, on_misfit="ignore", random_state=0)
    edge_probabilities = learner.fit(table_of_two_edges(table)).edge_probabilities_
    assert edge_probabilities[0, 1] > 0.99 and edge_probabilities[2, 3] > 0.99
    assert np.sum(np.triu(edge_probabilities) > 0.5) <= 4


def test_edges_of_a_dense_graph_are_certain(rng_0):
    """Most pairs have one, so that none of them can say what a pair without has."""
    X = rng_0.normal(size=(800, 6)) + rng_0.normal(size=(800, 1))
    fitted = CopulaGraphLearner(on_misfit="ignore", random_state=0).fit(X)
    assert (fitted.edge_probabilities_[np.triu_indices(6, 1)] > 0.9).all()


@pytest.mark.parametrize("d", [8, 20])
def test_few_strong_edges_leave_the_others_alone(d, seed):
    """With two edges of one sign, in 300 tables: at most 1 in 50 has more than 4."""
    n, alarms = d * (d - 1) // 2, 0
    for table in range(20):
        w = np.random.default_rng([seed, d, table]).normal(size=n)
        w[:2] += 10
        result = probabilities(w, d)
        assert (result[:2] > 0.99).all()
        alarms += (result > 0.5).sum() > 4
    assert p_share(alarms, 20, 0.02, "greater") > FAILURE


def test_noise_has_no_edges(seed):
    alarms = 0
    for table in range(30):
        w = np.random.default_rng([seed, table]).normal(size=45)
        alarms += (probabilities(w, 10) > 0.5).any()
    assert p_share(alarms, 30, 0.03, "greater") > FAILURE


def excess(said, true, low):
    """Count edges beyond the probabilities between low and low + 0.2, by table."""
    in_bin = (said >= low) & (said < low + 0.2 + (low > 0.7))
    return np.where(in_bin, true - said, 0).sum(1)


def test_probabilities_of_the_prior_are_calibrated(seed):
    """Pairs of a table share parameters: only its tables are independent."""
    tables = [drawn(12, np.random.default_rng([seed, table])) for table in range(120)]
    said = np.array([probabilities(w, 12) for w, _ in tables])
    true = np.array([edge for _, edge in tables])
    bins = np.arange(0, 1, 0.2)
    differences = np.column_stack([excess(said, true, low) for low in bins])
    assert p_mean(differences, 0) > FAILURE
    wrong = 0.5 + 0.5 * (said - 0.5)  # a control: pulled to a half
    differences = np.column_stack([excess(wrong, true, low) for low in bins[1:4]])
    assert p_mean(differences, 0) < FAILURE


def direct(w, signed):
    """Sum over all parameters, with densities of the scores themselves."""
    sizes = score_matching._SIZES
    total, result = 0.0, np.zeros(len(w))
    shares = score_matching._SHARES  # equally spaced in their log-odds
    some = stats.beta.pdf(shares, *score_matching._SPARSE) * shares * (1 - shares)
    priors = 0.5 * np.r_[1, some / some.sum()]  # half of the tables have no edge
    rhos = score_matching._POSITIVE if signed else [1.0]
    for k, mean in product(score_matching._SHAPES, score_matching._MEANS):
        density = stats.gamma.pdf(sizes, k, scale=mean / k)
        density /= density.sum()
        up, down = (stats.norm.pdf(s * w[:, None] - sizes) @ density for s in (1, -1))
        for rho, (share, prior) in product(
            rhos, zip([0.0, *score_matching._SHARES], priors, strict=True)
        ):
            edge = share * (rho * up + (1 - rho) * down)
            mixed = (1 - share) * stats.norm.pdf(w) + edge
            weight = prior * mixed.prod()
            total, result = total + weight, result + weight * edge / mixed
    return result / total


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("largest", [2.2, 4.1])  # with the smaller one, maybe no edge
def test_probabilities_are_those_of_a_direct_sum(signed, largest):
    w = np.array([0.3, -1.2, 1.6, largest, 0.0, -0.7])
    expected = direct(w, signed)
    np.testing.assert_allclose(probabilities(w, 4, not signed), expected, atol=0.01)
    other = direct(w, not signed)
    assert np.abs(probabilities(w, 4, not signed) - other).max() > 0.03


def test_pairs_with_and_without_signs_share_the_share_of_edges():
    """Many edges among signed pairs make those of other pairs more probable."""
    unsigned = np.arange(28) < 3
    few, many = (np.r_[2.0, 0.1, 0.3, np.full(25, level)] for level in (0.0, 8.0))
    few, many = (probabilities(w, 8, unsigned) for w in (few, many))
    assert (many[:3] > few[:3] + 0.05).all()


def test_scores_without_a_sign_are_edges_if_they_are_large(seed):
    w = np.random.default_rng(seed).normal(size=190)
    w[:3], w[3:6] = [6.0, 9.0, 14.0], -9.0
    result, signed = probabilities(w, 20, unsigned=True), probabilities(w, 20)
    assert (result[:3] > 0.8).all() and (result[3:6] < 0.01).all()
    assert (signed[:6] > 0.9).all() and (np.diff(result[np.argsort(w)]) >= 0).all()


def test_scores_of_any_size_have_probabilities():
    w = np.array([1e9, -1e9, 40.0, 0.0, 0.1, -0.1])
    result = probabilities(w, 4)
    assert (result[:3] > 0.99).all() and (result[3:] < 0.9).all()
    assert probabilities_of_scores(torch.zeros(1, 1), torch.zeros(1, 1) > 0) == 0
