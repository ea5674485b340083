"""The expanded table: a function of each row, and of no order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from statistical import FAILURE, p_share

from skvnce._core.numbers import grid_of
from skvnce.table_imputer.columns import shape_of
from skvnce.table_imputer.expansion import (
    ALONE,
    EMBEDDED,
    GRADE,
    LEVELS,
    NUMBER,
    content_order,
    expand,
    follow,
    power_of,
)
from skvnce.table_imputer.products import Candidate

KINDS = [NUMBER, NUMBER, GRADE, LEVELS, LEVELS, GRADE, EMBEDDED, ALONE]
N_LEVELS = np.array([0, 0, 0, 2, 4, 3, 25, 400])
VALUES = [None] * 5 + [np.array([0.0, 1.0, 2.0]), None, None]


def table_of(rng, n=400):
    """Make columns of each kind, of which the second has normal scores."""
    x = rng.normal(size=n)
    cells = [x, np.exp(x + rng.normal(size=n)), (2 * x).round().clip(-3, 3)]
    cells += [rng.integers(0, k, n).astype(float) for k in N_LEVELS[3:]]
    cells = np.column_stack(cells)
    cells[rng.random(cells.shape) < 0.2] = np.nan
    return cells


def expanded(cells, weights=None):
    weights = np.ones(len(cells)) if weights is None else weights
    found = expand(cells, weights, N_LEVELS, VALUES)
    products = [Candidate(0, 1, 2, 0.5, 100.0), Candidate(2, 3, 0, 1.0, 100.0)]
    return found.with_products(found.matrix(cells), weights, products)


def test_each_kind_of_column_has_its_part(rng):
    found = expanded(table_of(rng))
    assert [part.kind for part in found.parts] == KINDS
    assert [len(part.base) for part in found.parts] == [1, 1, 1, 1, 4, 1, 3, 0]
    assert found.parts[1].score
    assert found.owners.tolist() == [
        q for q, part in enumerate(found.parts) for _ in part.base
    ]


def test_levels_that_are_nearly_all_different_are_in_no_model(rng):
    """Indicators of single cells would leave the covariance without data."""
    cells = np.full((200, 3), np.nan)
    cells[:, 0] = rng.normal(size=200)
    cells[:10, 1], cells[:10, 2] = np.arange(10), np.arange(10) // 2
    parts = expand(cells, np.ones(200), np.array([0, 10, 5]), [None] * 3).parts
    assert [part.kind for part in parts] == [NUMBER, ALONE, LEVELS]


def test_columns_are_standardised(rng):
    cells, weights = table_of(rng), rng.uniform(0.5, 2, 400)
    X = expanded(cells, weights).matrix(cells)
    w = np.where(np.isnan(X), 0, weights[:, None])
    mean = (w * np.nan_to_num(X)).sum(0) / w.sum(0)
    variance = (w * np.nan_to_num(X - mean) ** 2).sum(0) / w.sum(0)
    assert_allclose(mean, 0, atol=1e-9)
    assert_allclose(variance, 1, atol=1e-9)


def test_a_row_of_the_matrix_is_a_function_of_the_row(rng):
    cells = table_of(rng)
    found = expanded(cells)
    X, order = found.matrix(cells), rng.permutation(len(cells))
    assert_array_equal(found.matrix(cells[order]), X[order])
    assert_array_equal(found.matrix(cells[7:8]), X[7:8])


def test_functions_of_a_column_are_missing_together(rng):
    cells = table_of(rng)
    found = expanded(cells)
    X = found.matrix(cells)
    assert X.shape[1] == found.width
    for part, column in zip(found.parts, cells.T, strict=True):
        alone = [j for j in part.block if j not in [one.at for one in found.products]]
        for j in alone:
            assert_array_equal(np.isnan(X[:, j]), np.isnan(column))
    for one in found.products:
        either = np.isnan(X[:, [one.first, one.second]]).any(1)
        assert_array_equal(np.isnan(X[:, one.at]), either)
        for factor in (one.first, one.second):
            assert one.at in found.parts[found.owners[factor]].block
        product = X[:, one.first] * X[:, one.second]
        exact = (product - np.nanmean(product)) / np.nanstd(product)
        assert_allclose(X[:, one.at], exact, atol=1e-9)


def test_weights_are_repeated_rows(rng):
    cells, weights = table_of(rng), rng.integers(1, 4, 400)
    new = table_of(rng)
    weighted = expanded(cells, weights.astype(float)).matrix(new)
    counted = expanded(np.repeat(cells, weights, axis=0)).matrix(new)
    plain = expanded(cells).matrix(new)
    scores = expanded(cells).parts[1].block[1]
    others = np.setdiff1d(np.arange(weighted.shape[1]), [scores])
    embedded = expanded(cells).parts[6].base
    assert_allclose(abs(weighted[:, embedded]), abs(counted[:, embedded]), atol=1e-6)
    others = np.setdiff1d(others, embedded)
    assert_allclose(weighted[:, others], counted[:, others], atol=1e-9)
    # scores are the same between the outermost knots
    inside = abs(new[:, 0]) < 2
    low, high = np.nanmin(cells[:, 1]), np.nanmax(cells[:, 1])
    inside &= (new[:, 1] > low) & (new[:, 1] < high)
    one, other = weighted[inside, scores], counted[inside, scores]
    assert_allclose(one, other, atol=1e-9)
    assert abs(plain[inside, scores] - one).max() > 1e-3  # control


def test_codes_are_the_places_of_values(rng):
    cells = table_of(rng)
    part = expanded(cells).parts[2]
    seen = cells[~np.isnan(cells[:, 2]), 2]
    assert_array_equal(part.values[part.codes(seen)], seen)
    assert_array_equal(part.codes(part.values), np.arange(part.n_levels))


def test_content_decides_the_order_of_columns(rng):
    cells = table_of(rng)
    expected = cells[:, content_order(cells)]
    for _ in range(5):
        order = rng.permutation(cells.shape[1])
        mixed = cells[:, order]
        found = mixed[:, content_order(mixed)]
        assert_array_equal(found, expected)
    # units do not matter
    scaled = cells * 1024 - 5
    assert_array_equal(content_order(scaled), content_order(cells))


def test_scores_rise_and_are_exact_at_the_knots(rng):
    cells = table_of(rng)
    knots, values = expanded(cells).parts[1].score
    assert_allclose(follow(knots, knots, values), values, atol=1e-12)
    ends = np.linspace(knots[0] - 5, knots[-1] + 5, 300)
    x = np.sort(np.append(ends, knots))
    y = follow(x, knots, values)
    assert (np.diff(y) >= -1e-12).all()
    beyond = x > knots[-1]
    slopes = np.diff(y[beyond]) / np.diff(x[beyond])
    assert beyond.sum() > 5 and (slopes > 0).all() and (slopes <= 1 + 1e-9).all()
    assert np.isnan(follow(np.array([np.nan]), knots, values)).all()


def with_power(cells, exponent=0.0):
    part, column = expanded(cells).parts[1], cells[~np.isnan(cells[:, 1]), 1]
    x = (column - part.centre[0]) / part.scale[0]
    return part, power_of(part, x, np.ones(len(x)), exponent)


@pytest.mark.parametrize("n", [30, 300])
def test_normal_numbers_have_no_scores(n, seed):
    """The level of the test is .05; of exponential numbers, the control, most have."""
    n_scores = []
    for draw in ("normal", "exponential"):
        X = getattr(np.random.default_rng(seed), draw)(size=(n, 200))
        parts = expand(X, np.ones(n), np.zeros(200, int), [None] * 200).parts
        n_scores.append(sum(part.score is not None for part in parts))
    assert p_share(n_scores[0], 200, 0.05, "greater") > FAILURE
    assert p_share(n_scores[1], 200, 0.8, "less") > FAILURE


def test_scores_of_lognormal_numbers_are_their_logarithms(rng):
    cells = table_of(rng)
    part, logarithms = with_power(cells)
    x = np.exp(np.linspace(-6, 6, 300))
    scores = logarithms.of((x - part.centre) / part.scale)
    positive = scores > scores[0]
    assert_allclose(np.diff(scores[positive], 2), 0, atol=1e-9)
    inside = positive & (scores < logarithms.end)
    assert inside.sum() > 100 and (~inside).sum() > 10
    numbers = logarithms.numbers(scores) * part.scale + part.centre
    assert_allclose(numbers[inside], x[inside], rtol=1e-9)
    # beyond the observed cells they go on as their last slope
    beyond = scores > logarithms.end
    rises = np.diff(numbers[beyond]) / np.diff(scores[beyond])
    assert_allclose(np.diff(rises), 0, atol=1e-6)
    # those of uniform numbers have an exponential tail
    cells[:, 1] = rng.random(len(cells))
    assert with_power(cells)[1] is None
    cells[:, 1] = rng.exponential(size=len(cells)) - 0.5  # nor has one of two signs any
    assert with_power(cells)[1] is None
    cells = table_of(rng)
    cells[0, 1] = 1e-300  # standardised it is zero, and has no logarithm
    assert with_power(cells)[1] is None


@pytest.mark.parametrize("exponent", [0.0, 0.25])
@pytest.mark.parametrize("unit", [1.0, 0.01, 2000.0])
def test_zero_has_a_place_below_the_other_powers(rng, unit, exponent):
    cells = table_of(rng)
    cells[:, 1] = unit * rng.poisson(6 * rng.gamma(1, size=len(cells)))
    part, power = with_power(cells, exponent)
    values = unit * np.arange(5.0)
    scores = power.of((values - part.centre) / part.scale)
    rises = np.diff(scores)
    assert (rises > 0).all()
    # that of half a count, or below it
    half = power.of((unit / 2 - part.centre) / part.scale)[0]
    assert rises[0] >= (scores[1] - half) * (1 - 1e-9)
    numbers = power.numbers(scores) * part.scale + part.centre
    assert_allclose(numbers, values, rtol=1e-9, atol=1e-9 * unit)
    # numbers nearer to it than to the smallest other one are zero
    near = scores[0] + rises[0] * np.array([-1.0, 0.4, 0.6])
    numbers = power.numbers(near) * part.scale + part.centre
    assert_allclose(numbers[:2], 0, atol=1e-9 * unit)
    assert numbers[2] > (0.5 * unit if exponent == 0 else 0)


STEPS = [1.0, 0.1, 0.2, 0.5, 0.01, 10.0, 1000.0, 20.0, 7.0, 1 / 3, 0.05, 25.0, 7e-9]


@pytest.mark.parametrize("offset", [0.0, 0.12, 0.7])
@pytest.mark.parametrize("step", STEPS)
def test_rounded_values_have_their_grid(rng, step, offset):
    cells = (rng.normal(50, 10, 500).round() + offset) * step
    found, origin = grid_of(cells)
    assert found == pytest.approx(step, rel=1e-9)
    steps = (cells - origin) / found
    assert_allclose(steps, steps.round(), atol=1e-6)


@pytest.mark.parametrize("centre", [0, 1000, 10**6, 10**9])
def test_more_than_300_repeated_values_have_their_grid(rng, centre):
    cells = 0.05 * (rng.integers(0, 400, 3000) + centre)
    assert len(np.unique(cells)) > 300
    found, origin = grid_of(cells)
    assert found == pytest.approx(0.05, rel=1e-6)
    assert_allclose(found * np.round((cells - origin) / found), cells - origin)


def test_a_few_cells_may_be_off_the_grid(rng):
    cells = rng.integers(0, 40, 1000).astype(float)
    cells[:5] = rng.uniform(0, 40, 5).round(2)
    cells[5:10] = 19.37  # as if filled by a mean
    assert grid_of(cells) == (pytest.approx(1), pytest.approx(0))
    cells[:100] = rng.uniform(0, 40, 100).round(2)
    assert grid_of(cells)[0] != pytest.approx(1)


def test_other_values_have_none_or_a_finer_grid(rng):
    x = rng.normal(50, 10, 500)
    assert grid_of(x)[0] == 0 and grid_of(np.repeat(x, 2))[0] == 0
    assert grid_of(np.repeat(0.0, 500))[0] == 0
    assert grid_of(np.append(np.zeros(990), x[:10]))[0] == 0  # a mass
    assert grid_of(np.unique(x.round())[:20])[0] == 0  # no repeats
    quarters = (4 * rng.normal(50, 10, 2000)).round() / 4
    step, _ = grid_of(quarters)
    assert step > 0
    assert_allclose(quarters / step, (quarters / step).round(), atol=1e-6)


def shape_of_cells(x):
    n_levels, values = np.array([0]), [None]
    return shape_of(expand(x[:, None], np.ones(len(x)), n_levels, values).parts[0]), x


def test_point_masses_are_at_an_end(rng):
    x = rng.normal(size=400)
    for sign in (1, -1):
        shape, cells = shape_of_cells(sign * x.clip(min=0))
        ((end, value),) = shape.masses
        assert end == sign
        assert value * cells.std() + cells.mean() == pytest.approx(0, abs=1e-9)
        assert np.isfinite(shape.lower) == (sign == 1) and shape.step == 0
    both, _ = shape_of_cells(x.clip(-1, 1))
    assert [end for end, _ in both.masses] == [1, -1]


def test_frequent_values_of_a_rounded_column_are_no_masses(rng):
    rounded, _ = shape_of_cells(rng.gamma(2, 3, 400).round())
    assert rounded.masses == [] and rounded.step > 0
    free, x = shape_of_cells(rng.normal(size=400))
    assert free.masses == [] and free.lower == -np.inf and free.step == 0
    positive, x = shape_of_cells(rng.gamma(2, 3, 400))
    assert positive.lower * x.std() + x.mean() == pytest.approx(0, abs=1e-9)
