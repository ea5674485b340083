"""Draws along lines against exact draws, where single cells hardly move."""

import numpy as np
import pytest
import torch
from oracles import (
    GATE,
    first_and_second,
    log_integral,
    orthant_rule,
    z_mean,
    z_two_sample,
)
from plain_gibbs import gibbs, missing_cells

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State, run_chain
from skvnce._core.random import seeded
from skvnce.graphs.samplers import antithetic, block_gibbs, lines_of, missing_of
from skvnce.graphs.truncated_gaussian import TruncatedGaussian

N = 4000


def blocks(n_blocks=1, noise=0.1):
    """Make the covariance of blocks: z + small noise three times, z + noise once."""
    block = np.ones((4, 4)) + np.diag([noise**2] * 3 + [1.0])
    return np.kron(np.eye(n_blocks), block)


def orthant_of(covariance, mean):
    precision = torch.tensor(np.linalg.inv(covariance))
    return TruncatedGaussian(precision, precision @ torch.tensor(mean))


def exact(covariance, mean, row, n, rng):
    """Draw the NaN cells of a row by rejection."""
    hidden = np.isnan(row)
    gain = covariance[np.ix_(hidden, ~hidden)]
    gain = gain @ np.linalg.inv(covariance[np.ix_(~hidden, ~hidden)])
    loc = mean[hidden] + gain @ (row - mean)[~hidden]
    std = covariance[np.ix_(hidden, hidden)]
    std = std - gain @ covariance[np.ix_(~hidden, hidden)]
    accepted = np.empty((0, len(loc)))
    while len(accepted) < n:
        drawn = rng.multivariate_normal(loc, std, size=8 * n)
        accepted = np.concatenate([accepted, drawn[(drawn >= 0).all(1)]])
    return accepted[:n]


def drawn_from(model, row, n_steps, single=False, start=4.0):
    """Run chains on many copies of a row; its missing cells, (N, hidden)."""
    data = Incomplete.from_array(np.tile(row, (N, 1)))
    if single:
        sampler = gibbs(model, missing_cells(data.observed))
    else:
        sampler = block_gibbs(model, missing_of(data.observed))
    state = sampler.init(data, torch.full(data.x.shape, start).double())
    x = run_chain(sampler, state, data, n_steps).x.detach().numpy()
    assert (x[:, ~np.isnan(row)] == row[~np.isnan(row)]).all()
    return x[:, np.isnan(row)]


def worst_z(drawn, exact):
    return np.abs(z_two_sample(first_and_second(drawn), first_and_second(exact))).max()


CASES = {
    "far": (blocks(), np.full(4, 5.0), np.r_[[np.nan] * 3, 6.0]),
    "near zero": (blocks(), np.full(4, 1.0), np.r_[[np.nan] * 3, 0.2]),
    "less noise": (blocks(noise=0.02), np.full(4, 1.0), np.r_[[np.nan] * 3, 0.2]),
    "all missing": (blocks(), np.full(4, 1.0), np.full(4, np.nan)),
    "two blocks": (
        blocks(2),
        np.full(8, 1.0),
        np.r_[[np.nan] * 3, 0.2, np.nan, np.nan, 1.3, 2.0],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_few_sweeps_forget_the_start(case, seed, rng):
    covariance, mean, row = CASES[case]
    expected = exact(covariance, mean, row, N, rng)
    with seeded(seed):
        drawn = drawn_from(orthant_of(covariance, mean), row, 12)
        single = drawn_from(orthant_of(covariance, mean), row, 12, single=True)
    assert worst_z(drawn, expected) < GATE
    # negative control: single cells have not, and a wrong mean is seen
    assert worst_z(single, expected) > 2 * GATE
    assert worst_z(drawn + 0.4 * expected.std(0), expected) > GATE


@pytest.mark.parametrize("case", CASES)
def test_the_target_is_invariant(case, seed):
    """Exact draws stay exact, whatever the move; and a wrong model is seen."""
    covariance, mean, row = CASES[case]
    rng, hidden = np.random.default_rng(seed), np.isnan(row)
    start, other = exact(covariance, mean, row, 2 * N, rng).reshape(2, N, -1)
    data = Incomplete.from_array(np.tile(row, (N, 1)))
    x = data.x.clone()
    x[:, hidden] = torch.tensor(start)
    moved = {}
    with seeded(seed):
        for shift in (0.0, 0.8):
            model = orthant_of(covariance, mean + shift)
            sampler = block_gibbs(model, missing_of(data.observed))
            moved[shift] = sampler.step(State(x), data)[0].x[:, hidden].numpy()
    assert (moved[0.0] != start).all() and (moved[0.0] >= 0).all()
    assert worst_z(moved[0.0], other) < GATE and worst_z(moved[0.8], other) > 2 * GATE


@pytest.mark.parametrize("positive_definite", [True, False])
def test_copositive_precisions(positive_definite, seed):
    """K = [[1, 1.5, -0.9], ...] has an eigenvalue below 0; by quadrature."""
    link = 0.1 if positive_definite else 1.5
    precision = np.array([[1.0, link, -0.9], [link, 1.0, -0.1], [-0.9, -0.1, 1.0]])
    assert (np.linalg.eigvalsh(precision)[0] > 0) == positive_definite
    model = TruncatedGaussian(torch.tensor(precision), torch.zeros(3).double())
    points, weights = orthant_rule(3, 14.0, 60)
    log_density = model.log_density(points).detach()
    p = (log_density - log_integral(log_density, weights)).exp() * weights
    expected = (p @ torch.tensor(first_and_second(points))).numpy()
    observed = torch.zeros(1, 3).bool()
    assert lines_of(model.precision, missing_of(observed).patterns) is not None
    with seeded(seed):
        drawn = drawn_from(model, np.full(3, np.nan), 60)
    assert np.abs(z_mean(first_and_second(drawn), expected)).max() < GATE
    assert np.abs(z_mean(first_and_second(1.1 * drawn), expected)).max() > GATE


# The plain mechanics


def swept(precision, rows, seed):
    """Make three sweeps of single cells: by plain Gibbs sampling, and by blocks."""
    data = Incomplete.from_array(rows)
    missing = missing_of(data.observed)
    assert lines_of(precision, missing.patterns) is None
    model = TruncatedGaussian(precision, torch.ones(len(precision)).double())
    ends = []
    single = gibbs(model, missing_cells(data.observed))
    for sampler in (single, block_gibbs(model, missing)):
        start = State(data.with_values(torch.ones(rows.shape).double()))
        with seeded(seed):
            ends.append(run_chain(sampler, start, data, 3).x)
    return ends


@pytest.mark.parametrize("d", [15, 16, 17, 40])
def test_sweeps_are_those_of_single_cells(d, seed, rng):
    links = rng.normal(scale=0.2 / np.sqrt(d), size=(d, d))
    precision = torch.tensor(links + links.T + 1.5 * np.eye(d))
    rows = np.where(rng.uniform(size=(30, d)) < 0.5, np.nan, rng.gamma(2, size=(30, d)))
    rows[3], rows[:, 5] = 1.0, 1.0  # a complete row and a complete column
    plain, by_blocks = swept(precision, rows, seed)
    torch.testing.assert_close(by_blocks, plain, rtol=1e-12, atol=1e-12)
    # negative control: a link of two columns of one block, and one of other blocks
    for i, j in ((0, 1), (0, d - 1)):
        changed = precision.clone()
        changed[i, j] = changed[j, i] = 0.0
        other, _ = swept(changed, rows, seed)
        assert (other - plain).abs().max() > 1e-6


def test_only_rows_whose_missing_cells_are_correlated_have_lines():
    precision = torch.tensor(np.linalg.inv(blocks(2)))
    rows = np.ones((5, 8))
    rows[1, [0, 1]] = rows[2, [0, 4]] = rows[3, 2] = rows[4, 4:7] = np.nan
    data = Incomplete.from_array(rows)
    lines = lines_of(precision, missing_of(data.observed).patterns)
    # two of a block, while the third column of it is observed, are nearly known
    assert lines.rows.tolist() == [4]
    rows[1, 2] = np.nan
    data = Incomplete.from_array(rows)
    lines = lines_of(precision, missing_of(data.observed).patterns)
    assert lines.rows.tolist() == [1, 4]


@pytest.mark.parametrize("d", [3, 62, 63, 130])
def test_patterns_are_distinguished(d, rng):
    distinct = rng.uniform(size=(6, d)) < 0.7
    distinct[:, :2] = True
    distinct[1], distinct[2] = distinct[0], distinct[0]
    distinct[2, -1] = ~distinct[2, -1]
    missing = torch.tensor(distinct[rng.integers(6, size=50)])
    patterns = missing_of(~missing).patterns
    assert torch.equal(patterns.missing[patterns.which], missing[patterns.rows])
    assert len(patterns.missing) == len(np.unique(missing.numpy(), axis=0))
    assert patterns.rows.tolist() == list(range(50))


def test_antithetic_chains_stay_exact(seed):
    covariance, mean, row = CASES["near zero"]
    data = Incomplete.from_array(np.tile(row, (N, 1)))
    observed = data.observed.expand(2, N, 4)
    model = orthant_of(covariance, mean)
    sampler = block_gibbs(model, missing_of(observed), antithetic())
    with seeded(seed):
        start = sampler.init(data, torch.ones(2, N, 4).double())
        first, second = run_chain(sampler, start, data, 12).x[..., :3].numpy()
    expected = exact(covariance, mean, row, N, np.random.default_rng(seed))
    assert worst_z(first, expected) < GATE and worst_z(second, expected) < GATE
    products = (first - first.mean(0)) * (second - second.mean(0))
    assert (z_mean(products, 0) < -2 * GATE).all()
    # so that the average has less than half the variance of one
    assert (((first + second) / 2).var(0) < 0.4 * first.var(0)).all()
