"""Relations that are there are found, and those that are not, are not."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from skvnce import find_relations
from skvnce.relations.closure import closed
from skvnce.relations.columns import read_columns
from skvnce.relations.lookups import Lookup
from skvnce.relations.texts import say_the_same


def hidden(frame, rng, share=0.1):
    return frame.mask(rng.random(frame.shape) < share)


def base(rng, n):
    return pd.DataFrame(rng.gamma(3.0, size=(n, 5)) + 0.1, columns=list("abcde"))


@pytest.fixture
def frame(rng):
    return base(rng, 300)


FORMULAS = {
    "affine": lambda x: 1.8 * x.a + 32,
    "function": lambda x: np.log(x.a),
    "product": lambda x: x.a * x.b,
    "ratio": lambda x: 100 * x.a / x.b,
    "powers": lambda x: 703 * x.a / x.b**2,
    "linear": lambda x: x.a - x.b + 2 * x.c + x.d,
}


FUNCTIONS = [lambda x, k=k: x.a**k for k in (2, 3, -1)]  # found in either direction


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        *FORMULAS.items(),
        *(("function", one) for one in FUNCTIONS),
        ("linear", lambda x: (x.a + x.b).round(2)),
    ],
)
def test_formulas_are_found(kind, formula, frame, rng):
    frame["y"] = formula(frame)
    [found] = find_relations(hidden(frame, rng))
    kinds = {"product", "ratio"} if kind in ("product", "ratio") else {kind}
    assert found.kind in kinds and set(found.solves) == set(found.columns)
    assert "y" in found.columns
    assert kind != "function" or set(found.columns) == {"a", "y"}


def test_a_square_with_both_signs_solves_for_the_square_only(rng):
    frame = pd.DataFrame({"x": rng.normal(size=200), "z": rng.normal(size=200)})
    frame["y"] = frame.x**2
    [one] = find_relations(hidden(frame, rng))
    assert one.solves == ("y",) and str(one) == one.text == "y = x^2"


def test_rounded_rates_follow_from_counts(rng):
    n = rng.integers(50, 500, 500)
    hits = rng.binomial(n, 0.27)
    full = pd.DataFrame({"n": n, "hits": hits, "rate": (hits / n).round(3)})
    [one] = find_relations(hidden(full, rng))
    assert set(one.solves) == {"n", "hits", "rate"}
    full["rate"] += rng.integers(0, 2, 500) / 1000  # the control: wrong last digits
    assert not any("rate" in one.solves for one in find_relations(hidden(full, rng)))


def test_cents_of_large_amounts_are_found_and_computed_exactly(rng):
    euros = rng.lognormal(6, 1.5, 400).round(2)  # more than 1000 in a quarter
    table = pd.DataFrame({"euros": euros, "dollars": (euros * 1.0837).round(2)})
    assert (euros > 1000).sum() > 50
    [relation] = find_relations(hidden(table, rng))
    assert relation.text == "dollars = 1.0837 euros"
    gone = table.assign(dollars=table["dollars"].mask(rng.random(400) < 0.5))
    columns = read_columns(gone)
    filled = closed(columns.bounds, columns.cells, [relation.checked])
    computed = filled[~np.isnan(filled).any(1)]  # far beyond the observed cells none is
    assert len(computed) > 380
    np.testing.assert_array_equal(computed, table[~np.isnan(filled).any(1)])


def test_long_sums_are_found(rng):
    frame = pd.DataFrame(rng.normal(size=(600, 9))).add_prefix("x")
    frame["total"] = frame.sum(axis=1)
    [one] = find_relations(hidden(frame, rng, 0.05))
    assert one.kind == "linear" and len(one.columns) == 10
    assert set(one.solves) == set(frame)


def test_sets_are_found_with_few_complete_rows(rng):
    level = rng.integers(8, size=600)
    frame = pd.get_dummies(pd.Series(level)).add_prefix("d").astype(float)
    [one] = find_relations(hidden(frame, rng, 0.15))
    assert one.kind == "one-of" and set(one.columns) == set(frame)


def test_rare_levels_of_sets_are_found_where_all_rows_show_them(rng):
    levels = rng.permutation(np.repeat(range(5), [200, 150, 100, 47, 3]))
    full = np.eye(5)[levels]
    [one] = find_relations(full)
    assert one.kind == "one-of" and len(one.columns) == 5
    full[:, 4] = rng.permutation(full[:, 4])  # the controls
    assert find_relations(full) == []
    full = np.eye(5)[rng.permutation(np.repeat(range(5), [200, 150, 100, 49, 1]))]
    [one] = find_relations(full)  # a single row may be a coincidence
    assert len(one.columns) == 4 and one.violations == 1


def test_lookups_by_keys_of_which_most_are_hidden_are_found(rng):
    person = np.r_[np.arange(440), np.arange(260)]
    born = rng.integers(1940, 2000, 440)[person]
    X = np.column_stack([1000 + 7 * rng.permutation(440)[person], born]).astype(float)
    X[rng.random(X.shape) < 0.35] = np.nan
    [one] = find_relations(X)
    assert one.kind == "lookup" and one.solves == ("x1",)
    X[:, 1] = rng.permutation(X[:, 1])  # the control
    assert find_relations(X) == []


def test_lookups_are_found(rng):
    code = rng.integers(12, size=400)
    names = np.array(list("pqrstuvwxyzo"))
    frame = pd.DataFrame({"code": code.astype(float), "name": names[code]})
    found = find_relations(hidden(frame, rng))
    assert {one.kind for one in found} == {"lookup"}
    assert {one.solves[0] for one in found} == {"code", "name"}


def test_lookups_by_two_columns_are_found(rng):
    a, b = rng.integers(6, size=(2, 900))
    values = rng.permutation(36) ** 2
    frame = pd.DataFrame({"a": a, "b": b, "y": values[6 * a + b]})
    found = find_relations(hidden(frame, rng))
    assert ("y", "a", "b") in {one.columns for one in found if one.kind == "lookup"}


def test_steps_are_found_and_also_solve_for_new_numbers(rng):
    frame = pd.DataFrame({"age": rng.uniform(18, 90, size=300)})
    frame["group"] = pd.cut(frame.age, [0, 30, 50, 65, 100], labels=list("pqrs"))
    frame = frame.astype({"group": "str"})
    [one] = find_relations(hidden(frame, rng))
    assert one.kind == "steps" and one.solves == ("group",)
    codes = one.rule.solve(np.array([[np.nan, 20.0], [np.nan, 99.0]]), 0)
    assert codes.tolist() == [0, 3]


def test_rules_compute_the_hidden_cells(frame, rng):
    frame["y"] = frame.a * frame.b
    frame["z"] = np.log(frame.c)
    for one in find_relations(hidden(frame, rng)):
        cells = frame.to_numpy()[:, list(one.rule.columns)]
        for place in range(len(one.columns)):
            solved = one.rule.solve(cells, place)
            np.testing.assert_allclose(solved, cells[:, place], rtol=1e-9)


def test_few_violations_are_counted(rng):
    frame = base(rng, 1000)
    frame["y"] = np.log(frame.a)
    frame.loc[17, "y"] += 1
    [one] = find_relations(frame)
    assert one.violations == 1
    frame.loc[:20, "y"] += rng.normal(size=21)
    assert find_relations(frame) == []


SIDES = FORMULAS | {"square": lambda x: x.a**2}
SIDES["long"] = lambda x: x.a + x.b + x.c + x.d + x.e


@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("column", ["a", "y"])
@pytest.mark.parametrize("factor", [1e6, 10])
def test_a_typo_hides_no_relation(kind, column, factor, rng):
    frame = base(rng, 500)
    frame["y"] = SIDES[kind](frame)
    rest = hidden(frame, rng, 0.02)
    rest.loc[102] = frame.loc[102]
    rest.loc[102, column] *= factor
    [one] = find_relations(rest)
    assert one.violations == 1 and "y" in one.columns
    noisy = rest.assign(y=rest.y * (1 + 0.01 * rng.normal(size=500)))
    assert find_relations(noisy) == []  # the control


def test_coefficients_of_three_digits_are_exact(frame, rng):
    frame["y"] = 24.7 * frame.a * frame.b
    [one] = find_relations(hidden(frame, rng))
    assert one.rule.coefs == (1.0, -24.7)


@pytest.mark.parametrize("slope", [1.609, 1.61, 1.6])  # controls of each other
@pytest.mark.parametrize("digits", [2, 12])
def test_coefficients_have_the_digits_that_the_data_determine(slope, digits, rng):
    x = rng.gamma(4, 20, size=(1000, 2)).round(2)
    y = (slope * x[:, 0] + 0.25 * x[:, 1] + 7).round(digits)
    [one] = find_relations(np.column_stack([x, y]))
    weights = dict(zip(one.rule.columns, one.rule.weights, strict=True))
    found = np.array([-weights[0], -weights[1], one.rule.constant]) / weights[2]
    assert_allclose(found, [slope, 0.25, 7], rtol=1e-9)


def test_results_can_be_compared(rng):
    a, b = rng.integers(6, size=(2, 900))
    values, u = rng.permutation(36) ** 2, rng.uniform(size=900)
    frame = pd.DataFrame({"a": a, "b": b, "y": values[6 * a + b], "u": u})
    frame["group"] = np.array(list("pqr"))[np.digitize(u, [0.3, 0.5])]
    found = find_relations(frame)
    assert {one.kind for one in found} == {"lookup", "steps"}
    assert found == find_relations(frame) and len({*found}) == len(found)
    other = find_relations(frame.assign(y=frame.y + 1, u=2 * frame.u))
    assert [one.columns for one in found] == [one.columns for one in other]
    assert all(one != two for one, two in zip(found, other, strict=True))


@pytest.mark.parametrize("n_sources", [1, 2])
def test_lookups_find_the_keys_and_no_others(n_sources, rng):
    keys = np.unique(rng.integers(100, size=(3000, n_sources)) * 0.5, axis=0)
    keys = keys[np.lexsort(keys.T)]
    columns = (0, 1, 2)[: n_sources + 1]
    rule = Lookup(columns, tuple(map(tuple, keys)), tuple(3.0 * np.arange(len(keys))))
    rows = rng.permutation(len(keys))
    part = np.column_stack([rows, keys[rows]])
    np.testing.assert_array_equal(rule.solve(part, 0), 3.0 * rows)
    for odd in (0.25, -1.0, 1e9, np.nan):
        part[:, -1] = odd
        assert np.isnan(rule.solve(part, 0)).all()


def test_lookups_by_many_columns_find_the_keys():
    """Numbers of all combinations of 80 columns would not be integers of 64 bits."""
    keys = np.eye(80)
    rule = Lookup(tuple(range(81)), tuple(map(tuple, keys)), tuple(range(80)))
    part = np.column_stack([np.full(80, np.nan), keys])
    np.testing.assert_array_equal(rule.solve(part, 0), range(80))
    assert np.isnan(rule.solve(part * 0.0, 0)).all()
    part[:, 1:] = np.roll(keys, 1, 1) + keys  # two ones
    assert np.isnan(rule.solve(part, 0)).all()


@pytest.mark.parametrize("spread", [0.1, 0.01])
@pytest.mark.parametrize("function", [np.log, np.log1p])
def test_logarithms_of_float32_near_zero_are_found(spread, function, rng):
    x = spread * rng.normal(size=300) + (function is np.log)
    x = abs(x) if function is np.log1p else x
    X = np.column_stack([x, function(x), rng.normal(size=300)]).astype(np.float32)
    [one] = find_relations(X)
    assert one.kind == "function" and one.rule.tier == 0
    X[:, 1] += 2e-5 * spread * rng.normal(size=300)
    assert find_relations(X) == []  # the control


@pytest.mark.parametrize("code", [0.0, -99.0])
@pytest.mark.parametrize("has_ones", [True, False])
def test_logarithms_of_zero_may_be_stored(code, has_ones, rng):
    x = np.where(rng.random(400) < 0.2, 0, rng.gamma(3, size=400))
    x[:20] = has_ones
    y = np.log(np.where(x > 0, x, np.exp(code)))
    frame = hidden(pd.DataFrame({"x": x, "y": y}), rng)
    [one] = find_relations(frame)
    assert str(one) == "y = log(x)"
    cells = np.array([[np.nan, 0.0], [np.nan, 1.0], [np.nan, 2.0]])
    np.testing.assert_allclose(one.rule.solve(cells, 0), [code, 0, np.log(2)])
    # beside a 0 there is 0 or 1
    told = np.nan if has_ones and not code else 0.0
    found = one.rule.solve(np.array([[code, np.nan]]), 1)
    assert found == pytest.approx(told, nan_ok=True)
    frame["y"] = frame.y.where(frame.x != 0, rng.normal(size=400))  # the control
    [one] = find_relations(frame)
    assert np.isnan(one.rule.solve(cells, 0)[0])


@pytest.mark.parametrize("stored", [0.0, -1.0, np.nan])
def test_ratios_may_have_zero_denominators(stored, rng):
    shots = rng.poisson(40, 400) * (rng.random(400) > 0.1)
    hits = rng.binomial(shots, 0.4)
    rate = np.where(shots > 0, (hits / shots.clip(1)).round(3), stored)
    full = pd.DataFrame({"hits": hits, "shots": shots, "rate": rate})
    [one] = find_relations(hidden(full, rng))
    assert str(one) == "rate = hits / shots" and set(one.solves) == set(full)
    nan = np.nan
    cells = np.array([[nan, 3.0, 0.0], [nan, 0.0, 3.0], [nan, 3.0, 4.0]])
    assert_allclose(one.rule.solve(cells, 0), [stored, 0.0, 0.75])
    cells = np.array([[0.0, nan, 3.0], [0.5, nan, 4.0]])
    assert_allclose(one.rule.solve(cells, 1), [0.0, 2.0])
    assert np.isnan(one.rule.solve(np.array([[0.0, 0.0, nan]]), 2)).all()
    shot = one.rule.solve(np.array([[-1.0, 2.0, nan]]), 2)
    assert_allclose(shot, [0.0 if stored == -1 else -2.0])


def test_dummies_of_rare_levels_follow_from_the_category(rng):
    levels = rng.permutation(np.repeat(list("abcd"), [130, 75, 37, 13]))
    frame = pd.get_dummies(pd.Series(levels)).astype(float).assign(level=levels)
    found = find_relations(hidden(frame, rng, 0.15))
    by_level = {one.columns[0] for one in found if one.columns[1:] == ("level",)}
    assert by_level == set("abcd")
    frame["d"] = rng.permutation(frame["d"])  # the control
    found = find_relations(hidden(frame, rng, 0.15))
    by_level = {one.columns[0] for one in found if one.columns[1:] == ("level",)}
    assert "d" not in by_level


# ----------------------------------------
# Texts

SAME = [
    ("total = food + rent", "rent = total - food"),
    ("p = a * b", "a = p / b"),
    ("p = - 2 a * b", "b = - 0.5 p / a"),
    ("l = log(x)", "x = exp(l)"),
    ("log(bmi) = log(w) - 2 log(h) + 6.55536", "bmi = 703 * w / h^2"),
    ("y = 1/x", "x = 1/y"),
    ("y = 1.8 a + 32", "a = 0.555556 y - 17.7778"),
    ("f = -2 w + 3", "f = 3 - 2 * w"),
    ("y = x^2", "y = x * x"),
    ("north + south = 1", "south + north = 1"),
]
UNLIKE = [
    ("total = food + rent", "rent = total + food"),
    ("p = a * b", "a = p * b"),
    ("code -> name", "name -> code"),
    ("y = x^2", "y = x^3"),
    ("y = 2 x", "y = - 2 x"),
    ("y = x", "y = x + 1"),
    ("y = x", "y = x = z"),
    ("y = x", ""),
]


def test_texts_that_say_the_same_are_equal():
    for one, other in SAME:
        assert say_the_same(one, other) and say_the_same(other, one), one
        assert say_the_same(one, one)
    for one, other in UNLIKE:
        assert not say_the_same(one, other) and not say_the_same(other, one), one


# ----------------------------------------
# What must not be found


def test_a_coefficient_does_not_hang_on_one_row(frame, rng):
    frame["rare"] = 0.0
    frame.loc[5, "rare"] = 1.0
    frame["y"] = frame.a + frame.b + 3 * frame.rare
    found = find_relations(hidden(frame, rng, 0.02))
    assert all("rare" not in one.columns for one in found)


@pytest.mark.parametrize("n_columns", [2, 3, 4])
@pytest.mark.parametrize("error", [0.01, 0.03, 0.06])
def test_nearly_equal_rounded_columns_have_no_formula(n_columns, error, rng):
    for n in (100, 300):
        truth = 3 * rng.normal(size=(n, 1))
        X = (truth + error * rng.normal(size=(n, n_columns))).round(1)
        assert {one.kind for one in find_relations(X)} <= {"lookup"}


def test_few_rows_of_coarse_grids_show_no_copies(rng):
    """Similar columns of whole numbers are equal in 14 rows by chance."""
    truth = 1.5 * rng.normal(size=(3000, 1))
    similar = (truth + 0.08 * rng.normal(size=(3000, 2))).round()
    assert (similar[:, 0] != similar[:, 1]).mean() > 0.02
    equal = similar[similar[:, 0] == similar[:, 1]][:40]
    equal[np.arange(14, 40), np.arange(26) % 2] = np.nan
    assert find_relations(np.column_stack([equal, rng.normal(size=40)])) == []
    copies = np.column_stack([similar[:300, 0]] * 2)  # the controls
    assert [one.kind for one in find_relations(copies)] == ["affine"]
    fine = np.column_stack([truth[:20].round(2)] * 2)
    assert [one.kind for one in find_relations(fine)] == ["affine"]


@pytest.mark.parametrize(
    ("slope", "constant"), [(1.8, 32), (1.8, 273.15), (2.5, 0), (1, 32)]
)
def test_rounded_maps_are_found(slope, constant, rng):
    celsius = (15 + 9 * rng.normal(size=300)).round(1)
    y = (slope * celsius + constant).round(1)
    [one] = find_relations(np.column_stack([celsius, y]))
    assert one.kind == "affine" and set(one.solves) >= {"x1"}


def test_implications_are_no_relations(rng):
    hours = rng.integers(0, 4, size=500) * rng.uniform(5, 10, size=500)
    frame = pd.DataFrame({"hours": hours, "wage": rng.normal(size=500)})
    frame["wage"] = frame.wage.where(frame.hours > 0, 0.0)
    assert find_relations(frame) == []


def test_nearly_exact_relations_are_none(frame, rng):
    frame["y"] = frame.a + frame.b + rng.normal(scale=1e-3, size=300)
    frame["z"] = np.log(frame.c) + rng.normal(scale=1e-3, size=300)
    assert find_relations(frame) == []


def test_rare_combinations_do_not_name_rows(rng):
    frame = pd.DataFrame(rng.integers(60, size=(400, 2)), columns=["a", "b"])
    frame["y"] = rng.random(400) < 0.03
    assert find_relations(frame) == []


def test_numbers_of_rows_look_nothing_up(rng):
    frame = pd.DataFrame({"id": np.arange(300), "site": np.arange(300) // 60})
    frame["x"] = rng.normal(size=300)
    assert find_relations(frame) == []


def test_shuffled_columns_have_no_relation(frame, rng):
    frame["y"], frame["z"] = frame.a * frame.b, np.log(frame.c)
    frame["group"] = (frame.d > 2).astype(int)
    for name in frame:
        frame[name] = rng.permutation(frame[name].to_numpy())
    assert find_relations(frame) == []


@pytest.mark.parametrize("n", [1, 2, 5, 14, 20, 40])
def test_small_tables_have_no_relation(n, rng):
    X = rng.integers(3, size=(n, 6)).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    assert find_relations(X) == []


def test_large_offsets_do_not_make_columns_equal(rng):
    X = 1.7e9 + rng.uniform(0, 400, size=(300, 4))
    assert find_relations(X) == [] and find_relations(X.astype(np.float32)) == []


def test_constants_and_empty_columns_are_in_no_relation(frame, rng):
    frame["one"], frame["none"], frame["y"] = 1.0, np.nan, 2 * frame.a
    [one] = find_relations(hidden(frame, rng))
    assert set(one.columns) == {"a", "y"}


def test_dates_and_mixed_columns_are_read(rng):
    days = pd.to_timedelta(rng.integers(12, size=200) * 90, "D")
    day = pd.Timestamp("2020-01-01") + days
    frame = pd.DataFrame({"day": day, "x": rng.normal(size=200)})
    frame["mixed"] = [("a", 1, None)[k] for k in rng.integers(3, size=200)]
    frame["stay"] = pd.to_timedelta(rng.integers(90, size=200), "D")
    assert find_relations(frame) == []
    frame["year"] = frame.day.dt.year
    assert [one.text for one in find_relations(frame)] == ["day -> year"]


# ----------------------------------------
# Input


def test_containers_and_calls_agree(frame, rng):
    frame["y"] = frame.a * frame.b
    frame = hidden(frame, rng)
    [one] = find_relations(frame)
    again = [find_relations(frame), find_relations(pl.from_pandas(frame))]
    assert [repr(some) for some in again] == [f"[{one!r}]"] * 2
    [of_array] = find_relations(frame.to_numpy())
    assert of_array.support == one.support
    assert set(of_array.columns) <= {f"x{j}" for j in range(6)}


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        (None, TypeError, "None"),
        ("table.csv", TypeError, "read_csv"),
        (np.arange(9.0), ValueError, "rows and columns"),
        (np.empty((0, 3)), ValueError, "at least one row"),
        (np.array([[1.0, np.inf]] * 20), ValueError, "infinity in column 1, row 0"),
        (pd.DataFrame(np.eye(3), columns=["a", "a", "b"]), ValueError, "named 'a'"),
    ],
)
def test_bad_input_is_an_error(X, error, match):
    refused(error, match, find_relations, X)


CELL = st.sampled_from([0.0, 1.0, -1.0, 1e300, 1e-300, 0.1, 7.0, np.nan])


def test_sparse_tables_are_rejected_as_by_imputers():
    refused(TypeError, "toarray", find_relations, csr_array(np.eye(30)))
    assert find_relations(csr_array(np.eye(30)).toarray()) is not None  # the control


def body_mass(seed, factor, deviation=9, decimals=1):
    """Draw heights, weights and factor * weight / height^2, rounded."""
    rng = np.random.default_rng(seed)
    height = rng.normal(19 * deviation, deviation, 300).round(1)
    weight = (rng.normal(25, 4, 300).clip(15) * height**2 / factor).round(1)
    index = (factor * weight / height**2).round(decimals)
    return pd.DataFrame({"height": height, "weight": weight, "index": index}), rng


@pytest.mark.parametrize("decimals", [0, 1, 2])
@pytest.mark.parametrize(("factor", "deviation"), [(1e4, 9), (703, 3.5), (1e6, 90)])
def test_a_body_mass_index_needs_a_decimal(decimals, factor, deviation, seed):
    full, rng = body_mass(seed, factor, deviation, decimals)
    found = find_relations(hidden(full, rng))
    assert len(found) == (decimals > 0)
    for one in found:
        assert_allclose(abs(one.rule.constant), np.log(factor), rtol=1e-9)
        assert "index" in one.solves
    noise = full.assign(index=(full["index"] + 0.2 * rng.normal(size=300)).round(1))
    assert find_relations(noise) == []  # the control


def test_cells_of_a_rounded_index_are_computed_exactly(seed):
    full, rng = body_mass(seed, 1e4)
    X = hidden(full, rng)
    columns = read_columns(X)
    rules = [one.checked for one in find_relations(X)]
    cells = closed(columns.bounds, columns.cells, rules)[:, 2]
    new = ~np.isnan(cells) & X["index"].isna()
    assert new.sum() >= 5
    assert (
        abs(cells - full["index"])[new] > 1e-9
    ).sum() <= 1  # 24.25 has two roundings


def test_computed_cells_confirm_no_typo(frame, rng):
    full = frame[["a", "b", "c"]].assign(s=frame["a"] + frame["b"])
    full["log"] = np.log(full["s"])
    full["sum"] = full["log"] + full["c"]
    X = hidden(full, rng)
    columns, nan = read_columns(X), np.nan
    rules = [one.checked for one in find_relations(X)]
    typos = np.array(
        [
            [2.0, nan, 1.0, 1e6, nan, nan],  # b does not follow from s
            [2.0, nan, nan, 1e6, nan, 2.5],  # nor c from its logarithm
        ]
    )
    once = closed(columns.bounds, typos, rules)
    again = closed(columns.bounds, once, rules, are_observed=False)
    assert_allclose(again, once, rtol=1e-12)
    assert_allclose(once[0], [2.0, nan, 1.0, 1e6, np.log(1e6), np.log(1e6) + 1])
    assert_allclose(once[1], [2.0, nan, nan, 1e6, np.log(1e6), 2.5])
    confirmed = closed(columns.bounds, once, rules)  # the control
    assert_allclose(confirmed[:, 1], 1e6 - 2)


@pytest.mark.parametrize(("digits", "factor"), [(1, 1e-5), (2, 1e-5), (1, 0.0125)])
def test_factors_of_rounded_products_are_the_coarsest(digits, factor, rng):
    people = np.exp(rng.normal(12, 1, 300)).round()
    cases = rng.poisson(10 * rng.gamma(4, size=300) * factor * people) + 1.0
    rate = (cases / (factor * people)).round(digits)
    full = pd.DataFrame({"cases": cases, "people": people, "rate": rate})
    [one] = find_relations(hidden(full, rng))
    assert_allclose(-one.rule.coefs[1], [factor, 1 / factor][one.kind == "ratio"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(CELL, min_size=4, max_size=4), min_size=1, max_size=80))
def test_any_numbers_are_accepted(rows):
    for one in find_relations(np.array(rows)):
        assert one.support >= 10 and set(one.solves) <= set(one.columns)


def test_a_difference_is_no_ratio_in_narrow_ranges():
    """Of whole numbers, age = 1923 * year / born - 1922 up to rounding."""
    rng = np.random.default_rng(1)
    born, year = rng.integers(1930, 2000, 300), rng.integers(2005, 2020, 300)
    frame = pd.DataFrame({"born": born, "year": year, "age": year - born})
    for share in (0.1, 0.3):
        [one] = find_relations(hidden(frame, rng, share))
        assert one.kind == "linear"
    frame["age"] = (1000 * year / born).round(2)  # the control
    assert [one.kind for one in find_relations(frame)] == ["ratio"]


def test_a_bent_trend_is_no_function_in_narrow_ranges():
    """Of whole numbers that another column shows in a tenth of their range only."""
    t = np.arange(226.0)
    bent = t + 0.3 - 0.0035 * (t - 214) ** 2
    y = np.where(t < 203, np.nan, np.exp((bent + 874) / 200))
    assert not find_relations(np.column_stack([t, y]))
    y = np.exp((t + 874) / 200).round(2)  # the control
    assert [one.kind for one in find_relations(np.column_stack([t, y]))] == ["function"]


def test_the_most_precise_column_is_the_left_hand_side(rng):
    height = rng.normal(1.72, 0.09, 300).round(2)
    weight = (22 * height**2 * np.exp(rng.normal(0.1, 0.15, 300))).round(1)
    for digits, first in ((2, "bmi"), (0, None)):  # the control is too coarse
        frame = pd.DataFrame({"weight": weight, "height": height})
        frame["bmi"] = (weight / height**2).round(digits)
        relations = find_relations(hidden(frame, rng))
        assert [one.columns[0] for one in relations] == [first] * (digits > 0)


def test_a_total_is_found_beside_a_difference_of_it(rng):
    frame = pd.DataFrame(rng.gamma(1.5, 40, (300, 4)).round(2), columns=list("abcd"))
    frame["total"] = frame.sum(axis=1).round(2)
    frame["income"] = (1.2 * frame["total"] + rng.gamma(2, 30, 300)).round(2)
    frame["saved"] = (frame["income"] - frame["total"]).round(2)
    sets = [set(one.columns) for one in find_relations(hidden(frame, rng, 0.15))]
    # in any form, and each of them once
    assert len(sets) == 2 and {"income", "total", "saved"} in sets
    assert set(list("abcd")) <= sets[1] or set(list("abcd")) <= sets[0]
    frame["a"] += rng.normal(size=300)  # the control
    assert len(find_relations(frame)) == 1


def test_a_rounded_mean_is_found_beside_a_column_that_it_explains(rng):
    frame = pd.DataFrame(rng.integers(1, 6, (300, 3)), columns=list("abc"))
    frame["mean"] = frame.mean(axis=1).round(2)
    frame["x"] = frame["mean"] + rng.normal(size=300)
    [one] = find_relations(hidden(frame, rng, 0.2))
    assert set(one.columns) == set("abc") | {"mean"}
    frame["mean"] = rng.permutation(frame["mean"])  # the control
    assert not find_relations(frame)


def test_sets_determine_the_names_of_their_columns(rng):
    level = rng.choice(3, 300)
    frame = pd.DataFrame(np.eye(3)[level], columns=list("nsw"))
    frame["region"] = np.array(["north", "south", "west"])[level]
    relations = find_relations(frame)
    assert {*"nsw", "region"} in [set(one.columns) for one in relations]
    assert "region -> n" in map(str, relations)
    frame["region"] = frame["region"] + rng.choice(["", " b"], 300)  # the control
    texts = list(map(str, find_relations(frame)))
    assert "region -> n" in texts and not any("-> region" in text for text in texts)
