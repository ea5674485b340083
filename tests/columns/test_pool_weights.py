"""Weights of averages of models: the fair energy score, and what minimises it."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from statistical import FAILURE, p_mean, p_share

from skvnce._core.random import seeded
from skvnce.columns.fit import Distances, distances, weights_of
from skvnce.columns.model import Chains, Pool, Turns, predict, redraw

NUMBERS = np.zeros(1, dtype=bool)
OF_KIND, EQUAL = 50, 5  # cells; see the module


def brute_force(draws, nodes, hidden, scale, is_categorical):
    """Loop over cells and over all pairs of different draws."""
    found = []
    for i, j in zip(*hidden.nonzero(), strict=True):

        def apart(x, y, j=j):
            return float(x != y) if is_categorical[j] else abs(x - y) / scale[j]

        cells = [one[:, i, j] for one in draws]
        truth = [np.mean([apart(x, nodes[i, j]) for x in one]) for one in cells]
        off = ~np.eye(len(cells[0]), dtype=bool)
        each = [[[[apart(x, y) for y in b] for x in a] for b in cells] for a in cells]
        pairs = [[np.array(table)[off].mean() for table in row] for row in each]
        found.append((j, truth, pairs))
    column, truth, pairs = zip(*found, strict=True)
    return np.array(column), np.array(truth).T, np.moveaxis(np.array(pairs), 0, -1)


def table(n_draws, seed=0):
    """Make draws of two models, of a number and of a category, and hidden cells."""
    rng = np.random.default_rng(seed)
    nodes = np.column_stack([rng.normal(size=6), rng.integers(3, size=6)])
    shape = n_draws, 6
    pairs = [(rng.normal(k, 2, shape), rng.integers(3 - k, size=shape)) for k in (0, 1)]
    draws = [np.stack(pair, -1) for pair in pairs]
    hidden = np.array([[1, 1], [0, 1], [1, 0], [0, 0], [1, 1], [0, 0]], dtype=bool)
    return draws, nodes, hidden, np.array([2.0, 9.0]), np.array([False, True])


def test_distances_are_those_of_all_pairs():
    """With nine draws, the eight pairings are all."""
    given = table(9)
    for found, expected in zip(distances(*given), brute_force(*given), strict=True):
        np.testing.assert_allclose(found, expected)
    same = distances(*table(9, 1))  # negative control
    assert not np.allclose(same.to_truth, brute_force(*given)[1])


@pytest.mark.parametrize("n_draws", [2, 3, 30])
def test_no_draw_is_paired_with_itself(n_draws):
    """All draws differ, so that any such pair would bring the mean below one."""
    draws, nodes, hidden, scale, _ = table(n_draws)
    different = np.arange(n_draws)[:, None, None]
    draws = [np.broadcast_to(different, one.shape) for one in draws]
    found = distances(draws, nodes, hidden, scale, np.ones(2, dtype=bool))
    np.testing.assert_array_equal(found.apart, 1)


def energy(found, weights):
    """Compute eq. (1) of the module in each cell."""
    between = np.einsum("k,l,kln->n", weights, weights, found.apart)
    return weights @ found.to_truth - between / 2


@pytest.mark.parametrize("weights", [[0.7, 0.3], [1.0, 0.0]])
def test_the_score_is_that_of_draws_of_the_mixture(weights, seed):
    """The oracle draws the mixture of N(0, 1) and N(2, 1 / 4) at the truth 0.5.

    Two draws are compared with each other in each of many cells, so that the score of
    each is fair.
    """
    rng, n, weights = np.random.default_rng(seed), 20_000, np.array(weights)
    centre, spread = np.array([0.0, 2.0]), np.array([1.0, 0.5])
    own = [rng.normal(m, s, (2, n, 1)) for m, s in zip(centre, spread, strict=True)]
    truth, hidden = np.full((n, 1), 0.5), np.ones((n, 1), dtype=bool)
    known = distances(own, truth, hidden, np.ones(1), NUMBERS)
    kind = rng.choice(2, (2, n), p=weights)
    first, second = rng.normal(centre[kind], spread[kind])
    expected = abs(first - 0.5) - abs(first - second) / 2
    assert p_mean(energy(known, weights) - expected, 0) > FAILURE
    assert p_mean(energy(known, weights[::-1]) - expected, 0) < FAILURE


# weights


def constant(first, second, n=50, apart=0.0, column=0):
    """Make n cells whose draws by two models have these distances from the truth."""
    cells = np.full(n, column)
    pairs = np.full((2, 2, n), apart) * (1 - np.eye(2))[..., None]
    return Distances(cells, np.array([[first] * n, [second] * n]), pairs)


def together(*parts):
    pairs = zip(*parts, strict=True)
    return Distances(*(np.concatenate(ones, axis=-1) for ones in pairs))


def closed_form(first, second, apart, n):
    """Minimise eq. (1) for weights (1 - w, w), with a ridge of `EQUAL` cells.

    Per cell (1 - w) a + w b - w (1 - w) d, and r ((w - 1/2)^2 + (1/2 - w)^2) / 2 with
    r = 2 EQUAL min(a, b) / (n + OF_KIND).
    """
    ridge = 2 * EQUAL * min(first, second) / (n + OF_KIND)
    best = (first - second + apart + ridge) / (2 * apart + 2 * ridge)
    return np.clip(best, 0, 1)


@pytest.mark.parametrize("n", [5, 50, 5000])
@pytest.mark.parametrize(("first", "second"), [(1.0, 1.1), (1.0, 1.0), (0.8, 0.3)])
def test_weights_of_two_models_have_a_closed_form(first, second, n):
    found = weights_of(constant(first, second, n, apart=0.6), NUMBERS)
    expected = closed_form(first, second, 0.6, n)
    np.testing.assert_allclose(found[:, 0], [1 - expected, expected], atol=1e-5)


def test_cells_without_error_leave_a_number():
    np.testing.assert_allclose(weights_of(constant(0.0, 0.0), NUMBERS), 0.5)
    assert weights_of(constant(0.0, 0.1, 500), NUMBERS)[:, 0].tolist() == [1, 0]


def test_columns_without_cells_have_the_weights_of_their_kind():
    is_level = np.array([False, False, True, True])
    found = weights_of(constant(0.2, 1.0, 1000), is_level)
    np.testing.assert_allclose(found[:, :2], [[1, 1], [0, 0]])
    np.testing.assert_allclose(found[:, 2:], 0.5)  # of no cells


def test_columns_choose_their_own_weights():
    """The second column has few cells, and follows its kind."""
    own = [constant(0.2, 1.0, 2000), constant(1.0, 0.2, 2000, column=1)]
    found = weights_of(together(*own), np.zeros(2, dtype=bool))
    np.testing.assert_allclose(found, [[1, 0], [0, 1]], atol=1e-9)
    own[1] = constant(1.0, 0.2, 3, column=1)
    found = weights_of(together(*own), np.zeros(2, dtype=bool))
    assert found[0, 1] > 0.5
    found = weights_of(together(*own), np.array([False, True]))  # another kind
    assert found[0, 1] == 0


def test_weights_of_several_models_are_shares(rng):
    truth, n = rng.normal(size=(200, 3)), 9
    draws = [truth + rng.normal(size=(n, 200, 3)) * k for k in (1.0, 1.1, 2.0, 5.0)]
    hidden = rng.random((200, 3)) < 0.5
    numbers = np.zeros(3, dtype=bool)
    found = weights_of(distances(draws, truth, hidden, np.ones(3), numbers), numbers)
    assert found.shape == (4, 3) and (found >= 0).all()
    np.testing.assert_allclose(found.sum(0), 1)
    assert (found[3] < found[0]).all()


def test_weights_are_the_minimum_of_the_score(seed):
    """With very many cells: no other weights of a grid have a smaller score."""
    rng, n = np.random.default_rng(seed), 20_000
    truth = rng.normal(size=(n, 1))
    own = [rng.normal(mean, sd, (3, n, 1)) for mean, sd in ((0, 1), (0.3, 0.8), (3, 1))]
    own[2] += truth
    found = distances(own, truth, np.ones((n, 1), dtype=bool), np.ones(1), NUMBERS)
    weights = weights_of(found, NUMBERS)[:, 0]
    share = np.linspace(0, 1, 41)
    grid = [(a, b, 1 - a - b) for a in share for b in share if a + b <= 1]
    scores = [energy(found, np.array(one)).mean() for one in grid]
    own = energy(found, weights).mean()
    # equal weights count for 30 of 20,100 cells
    assert own < min(scores) + 1e-3 < max(scores)


def test_one_model_has_all_weight():
    one = Distances(np.zeros(5, dtype=int), np.ones((1, 5)), np.zeros((1, 1, 5)))
    assert weights_of(one, NUMBERS).tolist() == [[1.0]]


# pools


class Fixed:
    """A model that fills and draws its number, and counts the draws."""

    def __init__(self, number):
        self.number, self.n_drawn = number, []

    def fill(self, nodes, limits=None):
        return np.where(np.isnan(nodes), self.number, nodes), {}

    def draw(self, nodes, n_draws, limits=None):
        self.n_drawn.append(n_draws)
        return np.repeat(self.fill(nodes)[0][None], n_draws, axis=0)


EMPTY = np.full((2, 3), np.nan)


def test_a_pool_fills_by_means_and_draws_by_shares(seed):
    weights = np.array([[0.3, 0.3, 1.0], [0.7, 0.7, 0.0]])
    pool = Pool([Fixed(0.0), Fixed(1.0)], weights)
    np.testing.assert_allclose(pool.fill(EMPTY)[0], [[0.7, 0.7, 0.0]] * 2)
    with seeded(seed):
        drawn = pool.draw(EMPTY, 1000)
    counts = drawn[:, 0].sum(0)
    # stratified: each share is right up to a draw at either end of its models
    assert abs(counts - [700, 700, 0]).max() <= 2
    assert (drawn[:, 0] == drawn[:, 1]).all()  # one model for all rows of a draw


def test_columns_of_equal_weights_come_from_the_same_model(seed):
    weights = np.array([[0.5, 0.5, 0.1], [0.5, 0.5, 0.9]])
    with seeded(seed):
        drawn = Pool([Fixed(0.0), Fixed(1.0)], weights).draw(EMPTY, 500)[:, 0]
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert (drawn[:, 0] != drawn[:, 2]).any()  # negative control


def test_single_draws_of_a_pool_have_its_shares(seed):
    pool = Pool([Fixed(0.0), Fixed(1.0)], np.array([[0.3], [0.7]]))
    with seeded(seed):
        ones = sum(pool.draw(EMPTY[:1, :1], 1).sum() for _ in range(2000))
    assert p_share(ones, 2000, 0.7) > FAILURE > p_share(ones, 2000, 0.6)


def test_models_without_weight_are_not_drawn():
    idle = Fixed(0.0)
    pool = Pool([idle, Fixed(1.0)], np.array([[0.0] * 3, [1.0] * 3]))
    assert (pool.draw(EMPTY, 20) == 1).all() and idle.n_drawn == []


def test_models_of_draws_take_turns(seed):
    drawers = [Fixed(0.0), Fixed(1.0), Fixed(2.0)]
    turns = Turns(Fixed(9.0), drawers)
    assert (turns.fill(EMPTY)[0] == 9).all()
    with seeded(seed):
        drawn = turns.draw(EMPTY, 7)[:, 0, 0]
        first = [int(turns.draw(EMPTY, 1)[0, 0, 0]) for _ in range(300)]
    assert sorted(np.bincount(drawn.astype(int))) == [2, 2, 3]
    assert stats.chisquare(np.bincount(first, minlength=3)).pvalue > FAILURE


# Gibbs chains


class Half(NamedTuple):
    """Draws half of another column, plus its random number; see `ColumnModel`."""

    column: int
    other: int
    width: int = 1

    def draw(self, rows, uniform, *, with_means=False):
        means = rows[:, self.other] / 2
        return means + uniform, means[:, None] if with_means else None


def test_predictions_are_averages_over_sweeps_and_chains():
    """The oracle makes the sweeps of two columns that depend on each other."""
    start, missing = np.array([[4.0, 2.0, 8.0]]), np.array([[True, True, False]])
    numbers = np.random.default_rng(0).random((3, 2, 1, 3))
    models = [Half(0, 2), Half(1, 0)]
    chains = Chains(n_chains=2, n_burn_in=1, n_sweeps=2)
    found = predict(models, start, missing, chains, lambda number, _: numbers[number])
    first = 4.0 + numbers[:, :, 0, 0]  # of all sweeps
    assert found[0] == pytest.approx(4.0)
    assert found[1] == pytest.approx(first[1:].mean() / 2)
    assert set(found) == {0, 1} and start.tolist() == [[4.0, 2.0, 8.0]]


def test_columns_without_missing_cells_are_not_predicted():
    start, missing = np.ones((2, 3)), np.zeros((2, 3), dtype=bool)
    missing[1, 0] = True
    models = [Half(0, 2), Half(1, 0)]
    zeros = lambda number, shape: np.zeros(shape)  # noqa: E731
    found = predict(models, start, missing, Chains(1, 0, 1), zeros)
    assert list(found) == [0] and found[0].tolist() == [[0.5]]


def test_cells_are_drawn_given_the_draws_of_others():
    drawn, missing = np.zeros((1, 500, 3)), np.ones((500, 3), dtype=bool)
    drawn[..., 2] = np.arange(500)
    models = [Half(0, 2), Half(1, 0)]
    with seeded(0):
        chosen = redraw(models, drawn, missing, np.array([1.0, 1.0, 0.0]), 2)
    noise = drawn[0, :, 0] - np.arange(500) / 2, drawn[0, :, 1] - drawn[0, :, 0] / 2
    assert all(0 <= one.min() and one.max() < 1 for one in noise)
    assert chosen[..., :2].all() and not chosen[..., 2].any()
    np.testing.assert_array_equal(drawn[0, :, 2], np.arange(500))
