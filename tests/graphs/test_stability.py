"""Which graph of a path is stable, by frequencies of which the answer is known."""

import numpy as np
import pytest

from skvnce.graphs import cross_validation


def test_instability_is_twice_the_variance_of_an_edge():
    result = cross_validation.instability(
        np.array([[0.5, 0.0], [0.1, 1.0], [0.0, 1.0]])
    )
    np.testing.assert_allclose(result, [0.25, 0.09, 0.0])
    assert (cross_validation.instability(np.zeros((3, 0))) == 0).all()


def test_noise_is_the_largest_share_so_far():
    edges = np.array([[0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]])
    assert cross_validation.noise_share(edges).tolist() == [0.0, 0.5, 0.5]
    assert (cross_validation.noise_share(np.zeros((3, 0))) == 0).all()


@pytest.mark.parametrize(
    ("unstable", "noise", "best"),
    [
        ([0.0, 0.05, 0.2, 0.3], [0.0, 0.0, 0.1, 0.5], 1),
        ([0.0, 0.05, 0.08, 0.09], [0.0, 0.0, 0.1, 0.5], 3),  # never varied
        ([0.0, 0.3, 0.08, 0.02], [0.0, 0.0, 0.01, 0.4], 2),  # a dense graph
        ([0.0, 0.3, 0.2, 0.02], [0.0, 0.2, 0.6, 0.9], 0),  # nearly all pairs are edges
        ([0.2, 0.3, 0.3, 0.3], [0.0, 0.0, 0.0, 0.0], 0),
    ],
)
def test_the_densest_stable_graph(unstable, noise, best):
    assert cross_validation.densest_stable(np.array(unstable), np.array(noise)) == best


def test_frequent_edges_are_counted_where_noise_has_none():
    frequencies = np.array([[0.0, 0.2, 0.0], [0.95, 0.5, 0.2], [0.7, 1.0, 1.0]])
    assert cross_validation.count_frequent(frequencies, np.array([0.0, 0.0, 0.2])) == 1
    assert cross_validation.count_frequent(frequencies, np.array([0.0, 0.0, 0.0])) == 3


def test_permuted_columns_keep_their_values(rng):
    rows = rng.normal(size=(200, 3)) + rng.normal(size=(200, 1)) * 3
    rows[rng.uniform(size=rows.shape) < 0.5] = np.nan
    before, result = rows.copy(), cross_validation.permuted(rows, rng)
    np.testing.assert_array_equal(rows, before)
    assert not np.isnan(result).all(1).any()
    for old, new in zip(rows.T, result.T, strict=True):
        old, new = (np.sort(one[~np.isnan(one)]) for one in (old, new))
        np.testing.assert_array_equal(old, new)
