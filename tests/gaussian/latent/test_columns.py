import numpy as np
import pytest
import torch
from scipy import stats

from skvnce._core.incomplete import Incomplete
from skvnce.gaussian.latent.columns import Latents, Marginal


def marginal(cells, n_levels=None):
    cells = torch.as_tensor(cells, dtype=torch.float64)
    weights = torch.ones_like(cells)
    if n_levels is None:
        return Marginal.of(cells, weights)
    return Marginal.of_levels(cells, weights, n_levels)


def test_a_repeated_value_is_an_interval_of_its_share():
    found = marginal([0.0] * 6 + [1.0] * 3 + [2.0], 3)
    assert found.values.tolist() == [0, 1, 2]
    shares = found.probabilities(torch.zeros(1), 1.0)[0]
    assert shares.tolist() == pytest.approx([0.6, 0.3, 0.1])
    assert found.high[:-1].tolist() == found.low[1:].tolist()


def test_weights_count_as_rows():
    cells = torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0, 4.0])
    weights = torch.tensor([3.0, 1, 1, 1, 2, 1])
    once = Marginal.of_levels(cells, weights, 5)
    again = marginal(cells.repeat_interleave(weights.long()).double(), 5)
    for one, other in zip(once, again, strict=True):
        assert torch.allclose(one.double(), other)


def test_a_level_without_a_cell_is_an_interval_too():
    found = marginal([0.0, 0.0, 2.0], 4)
    assert (found.low < found.high).all() and len(found.values) == 4
    edges = stats.norm.ppf(np.array([2.0, 2.5, 3.5]) / 4)  # a half for 1 and for 3
    np.testing.assert_allclose(found.high[:-1], edges)
    np.testing.assert_array_equal(found.low[1:], found.high[:-1])


def test_scores_between_values_of_repeated_cells_are_left_out():
    often, seldom = marginal([0, 0, 0, 1, 2]), marginal([0, 0, 1, 2, 3])
    assert (often.low[1:] == often.high[:-1]).all()
    assert (seldom.low[1:] > seldom.high[:-1]).all()
    scores = torch.linspace(-3, 3, 61).double()
    assert set(often.cells(scores).tolist()) == {0, 1, 2}
    assert len(set(seldom.cells(scores).tolist())) > 10


def test_cells_between_distinct_values_are_interpolated():
    x = torch.tensor(stats.norm.ppf((np.arange(200) + 0.5) / 200))
    found = marginal(x)
    low, high = found.scores(x)
    assert torch.equal(low, high) and torch.allclose(low, x, atol=1e-12)
    between = (x[1:] + x[:-1]) / 2
    scores, _ = found.scores(between)
    assert torch.allclose(found.cells(scores), between)
    assert (found.log_slopes(between).abs() < 0.2).all()


def test_a_cell_between_repeated_values_counts_as_the_nearer_one():
    """No scores are left between them; a cell in the middle counts as the smaller."""
    found = marginal([0.0] * 5 + [1.0] * 5 + [3.0] * 5)
    new = torch.tensor([0.2, 0.5, 0.7, 1.9, 2.0, 2.1, 9.0]).double()
    nearest = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 3.0, 3.0]).double()
    for one, other in zip(found.scores(new), found.scores(nearest), strict=True):
        assert torch.equal(one, other)
    low, high = found.scores(new)
    assert (low < high).all()


def test_zeros_of_a_zero_inflated_column_are_an_interval(rng_0):
    x = np.where(np.arange(300) < 100, 0.0, np.exp(rng_0.normal(size=300)))
    found = marginal(x)
    low, high = found.scores(torch.zeros(1).double())
    assert low == -torch.inf and float(high) == pytest.approx(stats.norm.ppf(1 / 3))
    assert (found.cells(torch.linspace(-5, float(high), 20).double()) == 0).all()
    assert (found.low[1:] == found.high[1:]).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_densities_beside_a_value_that_occurs_often_are_finite(sign):
    """The density of a point is that of its score times the slope: 2/3 lognormal."""
    x = np.exp(np.random.default_rng(0).normal(size=2000))
    found = marginal(np.concatenate([sign * x, np.zeros(1000)]))
    points = torch.from_numpy(sign * x)
    score = found.scores(points)[0].numpy()
    density = stats.norm.logpdf(score) + found.log_slopes(points).numpy()
    assert np.isfinite(density).all()
    error = density - np.log(2 / 3) - stats.lognorm.logpdf(x, 1)
    assert abs(np.mean(error)) < 0.1 and np.mean(np.abs(error)) < 0.25


@pytest.mark.parametrize("n_values", [9, 500])
def test_cells_come_back_from_their_scores(n_values, rng):
    x = torch.tensor(rng.integers(0, n_values, 60) ** 2 / 3)
    found = marginal(x)
    low, high = found.scores(x)
    inside = torch.where(low.isinf(), high - 1e-9, low)
    assert torch.equal(found.cells(inside), x)
    assert (found.scores(torch.tensor([-99.0]))[0] <= found.low[0]).all()


def test_latent_variables_of_rows():
    x = np.array([[0.0, 2.0, 1.0], [1.0, np.nan, 0.0], [1.0, 0.0, np.nan]])
    data = Incomplete.from_array(x)
    kinds = ["ordinal", "nominal", "ordinal"]
    latents = Latents.of(data, torch.ones(3).double(), kinds, [2, 3, 2])
    assert latents.size == 5 and latents.first == [0, 1, 4]
    bounds = latents.bounds(data)
    assert bounds.levels.tolist() == [[2, -1, 0]]
    threshold = stats.norm.ppf(1 / 3)
    assert bounds.low[0].tolist() == pytest.approx([-np.inf, threshold, threshold])
    assert bounds.high[4].tolist() == [np.inf, 0, np.inf]
    assert bounds.low[1:4].isinf().all()


def opened(cells):
    cells = torch.as_tensor(cells, dtype=torch.float64)
    data = Incomplete(cells[:, None], torch.ones(len(cells), 1, dtype=torch.bool))
    latents = Latents.of(data, torch.ones_like(cells), ["numeric"], [0])
    return latents.marginals[0], latents.opened(data, ["numeric"]).marginals[0]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("map_", [lambda z: 5 + 2 * z, np.exp])
def test_cells_beyond_all_values_go_on_as_the_function_does(map_, sign):
    """Of a line as a line, and of an exponential function as such."""
    z = stats.norm.ppf((np.arange(999) + 0.5) / 999)
    closed, found = opened(map_(z))
    score = sign * torch.tensor([3.5, 4.5]).double()
    # between points of half a score a chord of the exponential is 1/32 above it
    np.testing.assert_allclose(found.cells(score), map_(score.numpy()), rtol=0.035)
    last = closed.values[-1 if sign > 0 else 0]
    assert (closed.cells(score) == last).all()  # the control
    # and back
    low, high = found.scores(found.cells(score))
    np.testing.assert_allclose(torch.stack([low, high]), score.expand(2, -1))
    inner = closed.values[10:-10]
    torch.testing.assert_close(found.scores(inner), closed.scores(inner))


def test_whole_numbers_go_on_as_intervals():
    z = stats.norm.ppf((np.arange(999) + 0.5) / 999)
    _, found = opened(np.round(6 * z))
    score = torch.linspace(-5, 5, 41).double()
    cells = found.cells(score).numpy()
    assert abs(cells - 6 * score.numpy()).max() <= 1.0
    outside = abs(score.numpy()) > 3.5
    assert abs(np.round(cells) - 6 * score.numpy())[outside].max() <= 1.0


def test_codes_and_values_of_many_cells_are_ends(rng):
    codes = rng.integers(0, 10, 300).astype(float)
    zeros = np.maximum(rng.normal(size=300), 0.0)
    far = torch.tensor([-5.0, 5.0]).double()
    assert opened(codes)[1].cells(far).tolist() == [0.0, 9.0]
    low, high = opened(zeros)[1].cells(far)
    assert low == 0 and high > zeros.max()


@pytest.mark.parametrize("values", [[0.5, 1.0], [0.5, 1.0, 4.0]])
def test_few_positive_values_show_no_skew(values):
    """Their intervals have fewer than two centres, through which no line goes."""
    number = torch.arange(1, len(values) + 1)
    few = Marginal.of_intervals(torch.tensor(values).double(), number.double())
    assert not few._is_skewed(number)
    skewed = torch.linspace(-4, 4, 9).double().exp()  # negative control
    number = torch.ones(9)
    assert Marginal.of_intervals(skewed, number.double())._is_skewed(number.long())


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.parametrize("family", [stats.norm(), stats.lognorm(1), stats.expon()])
def test_densities_next_to_tails_are_those_of_the_cells(family, n, seed):
    rng, number = np.random.default_rng(seed), torch.ones(n, dtype=torch.long)
    cells = torch.tensor(family.rvs(n, random_state=rng))
    sign = float((cells > 0).all())
    found = marginal(cells).opened(number, (0, 1), sign)
    # points of equal probability between: the mean of ratios of densities is one
    points = torch.tensor(family.ppf((np.arange(4000) + 0.5) / 4000))
    score, _ = found.scores(points)
    density = stats.norm.logpdf(score) + found.log_slopes(points).numpy()
    ratio = density - family.logpdf(points)
    assert np.exp(ratio).mean() == pytest.approx(1, abs=0.06)
    assert ratio.mean() > -0.12  # Kullback-Leibler divergence
