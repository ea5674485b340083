"""Tables whose columns satisfy equations: sums and derived columns."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import SMALL_IMPUTERS
from errors import refused
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from skvnce import ConstrainedImputer, GaussianImputer
from skvnce.columns.constrained import Equations
from skvnce.relations.columns import Bounds
from skvnce.relations.expressions import sum_of

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
NAMED = {"ids": lambda one: type(one).__name__}
SHORT = GaussianImputer(n_parameter_draws=0, max_iter=30)  # beside categories
FEW = GaussianImputer(n_parameter_draws=2)
MODELS = pytest.mark.parametrize("model", SMALL_IMPUTERS, **NAMED)


def body_mass(weight, height):
    """Compute the body mass index."""
    return weight / height**2


DERIVED = {"bmi": (body_mass, ["weight", "height"])}
SUMS = {"total": ["food", "rent", "other"], "people": ["adults", "kids"]}
EQUATIONS = {"derived": DERIVED, "sums": SUMS}


def households(seed=0, n=120, share=0.35):
    """Draw a complete frame and one with missing cells."""
    rng = np.random.default_rng([seed, 5])
    height = rng.normal(1.7, 0.1, n)
    weight = 25 * height**2 + rng.normal(size=n)
    frame = pd.DataFrame({"height": height, "weight": weight})
    frame["bmi"] = frame["weight"] / frame["height"] ** 2
    for name, mean in (("food", 3.0), ("rent", 8.0), ("other", 1.0)):
        frame[name] = rng.gamma(mean, size=n)
    frame["total"] = frame[["food", "rent", "other"]].sum(axis=1)
    frame["adults"], frame["kids"] = rng.integers(1, 4, n), rng.integers(0, 5, n)
    frame["people"] = frame["adults"] + frame["kids"]
    frame["region"] = pd.Categorical(rng.choice(["north", "south"], n))
    frame.index = [f"row {i}" for i in range(n)]
    part = frame.mask(rng.random(frame.shape) < share)
    counts = ["adults", "kids", "people"]
    return frame, part.astype(dict.fromkeys(counts, "Int64"))


def require_consistent(table, part):
    """Check the equations, the observed cells, data types and signs."""
    assert_allclose(table["bmi"], table["weight"] / table["height"] ** 2, rtol=1e-8)
    total = table[SUMS["total"]].sum(axis=1)
    assert_allclose(table["total"], total, rtol=1e-8)
    assert (table["people"] == table["adults"] + table["kids"]).all()
    assert (table.drop(columns="region") >= 0).all(axis=None)
    assert table.dtypes.equals(part.dtypes) and (table.index == part.index).all()
    known = part.notna().to_numpy()
    assert_array_equal(table.to_numpy()[known], part.to_numpy()[known])
    assert table.notna().all(axis=None)


@pytest.mark.quick(1)
@MODELS
def test_all_tables_satisfy_the_equations(model):
    _, part = households(n=60, share=0.3)
    imputer = ConstrainedImputer(clone(model), **EQUATIONS, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    shifted = imputer.sample(part, 1, 0, shift={"food": 0.5})
    tables = [imputer.transform(part), *imputer.sample(part, 3, 0), *shifted]
    for table in tables:
        require_consistent(table, part)
    assert_allclose(imputer.category_probabilities(part)["region"].sum(axis=1), 1)
    assert not tables[1].equals(tables[2])
    alone = clone(model)
    if "relations" in alone.get_params():  # it finds the equations by itself
        alone.set_params(relations=None)
    alone = alone.set_output(transform="pandas").fit(part).transform(part)
    assert abs(alone["bmi"] - alone["weight"] / alone["height"] ** 2).max() > 1e-3


def test_cells_that_follow_from_others_are_exact(seed):
    """They equal the truth, in all draws."""
    full, part = households(seed)
    imputer = ConstrainedImputer(SHORT, **EQUATIONS, random_state=0)
    draws = imputer.set_output(transform="pandas").fit(part).sample(part, 2, 0)
    for columns in (["bmi", "weight", "height"], ["total", *SUMS["total"]]):
        alone = part[columns].isna().sum(axis=1) == 1
        assert alone.sum() > 20
        for draw in draws:
            assert_allclose(draw.loc[alone, columns], full.loc[alone, columns])
    free = part[SUMS["total"]].isna().sum(axis=1) > 1
    assert not np.allclose(draws[0][free]["food"], draws[1][free]["food"])


def test_arrays_and_polars_frames_satisfy_equations():
    _, part = households()
    X = part[["food", "rent", "other", "total"]].to_numpy()
    imputer = ConstrainedImputer(FEW, sums={3: [0, 1, 2]}, random_state=0)
    for dtype, rtol in ((np.float64, 1e-9), (np.float32, 1e-5)):
        filled = imputer.fit_transform(X.astype(dtype))
        assert filled.dtype == dtype
        assert_allclose(filled[:, 3], filled[:, :3].sum(1), rtol=rtol)
    frame = pl.from_pandas(part)
    imputer = ConstrainedImputer(SHORT, **EQUATIONS, random_state=0)
    filled = imputer.set_output(transform="polars").fit_transform(frame)
    counts = filled.to_pandas().set_index(part.index).astype(part.dtypes)
    require_consistent(counts, part)
    assert filled.schema == frame.schema


def test_draws_of_parts_have_the_right_distribution(seed):
    """Parts x, y ~ N(0, 1) of a known total t: x given t is N(t / 2, 1 / 2)."""
    parts = np.random.default_rng([seed, 6]).normal(size=(2000, 2))
    X = np.column_stack([parts, parts.sum(1)])
    X[:1000, :2] = np.nan
    model = GaussianImputer(0.01, marginals="normal", on_misfit="ignore")
    imputer = ConstrainedImputer(model, sums={2: [0, 1]}, random_state=0)
    [drawn] = imputer.fit(X).sample(X, 1, seed)
    z = (drawn[:1000, 0] - X[:1000, 2] / 2) / np.sqrt(0.5)
    assert abs(z.mean()) < 0.2 and abs(z.std() - 1) < 0.15
    assert abs(np.corrcoef(z, X[:1000, 2])[0, 1]) < 0.2
    assert_allclose(drawn[:, :2].sum(1), drawn[:, 2], atol=1e-9)


def test_sums_with_common_parts_hold_together():
    rng = np.random.default_rng(1)
    x = rng.gamma(2.0, size=(150, 4))
    X = np.column_stack([x, x[:, :3].sum(1), x[:, 1:].sum(1)])
    X[rng.random(X.shape) < 0.4] = np.nan
    imputer = ConstrainedImputer(FEW, sums={4: [0, 1, 2], 5: [1, 2, 3]}, random_state=0)
    for table in [imputer.fit_transform(X), *imputer.sample(X, 3, 0)]:
        assert_allclose(table[:, 4], table[:, :3].sum(1), rtol=1e-7, atol=1e-9)
        assert_allclose(table[:, 5], table[:, 1:4].sum(1), rtol=1e-7, atol=1e-9)
        assert (table >= 0).all()


def test_without_equations_the_model_decides():
    _, part = households()
    X = part[["food", "rent", "other"]].to_numpy()
    expected = GaussianImputer().fit(X)
    imputer = ConstrainedImputer(random_state=0).fit(X)
    assert_array_equal(imputer.transform(X), expected.transform(X))
    seed = imputer.model_.random_state
    draws = GaussianImputer(random_state=seed).fit(X).sample(X, 2, 3)
    assert_array_equal(np.stack(imputer.sample(X, 2, 3)), np.stack(draws))


def test_contradictions_name_their_row():
    full, part = households()
    wrong = part.copy()
    columns = ["food", "rent", "other", "total"]
    wrong.loc["row 3", columns] = [1.0, 2.0, 3.0, 7.0]
    imputer = ConstrainedImputer(SHORT, **EQUATIONS, random_state=0)
    message = r"Row 3 of X contradicts the equation of 'total'.*7.*give 6"
    refused(ValueError, message, imputer.fit, wrong)
    assert not hasattr(imputer, "model_")
    imputer.set_output(transform="pandas").fit(part)
    for call in (imputer.transform, imputer.sample, imputer.interval):
        refused(ValueError, message, call, wrong)
    wrong.loc["row 3", columns] = [5.0, np.nan, 3.0, 7.0]
    with pytest.raises(ValueError, match=r"'total' has no solution in row 3.*sign"):
        imputer.transform(wrong)
    wrong.loc["row 3", columns] = [9.0, np.nan, np.nan, 7.0]
    with pytest.raises(ValueError, match="equations of row 3 .*satisfied together"):
        imputer.transform(wrong)
    rounded = full.assign(bmi=full["bmi"].round(1)).mask(part.isna())
    refused(ValueError, "raise rtol if values are rounded", clone(imputer).fit, rounded)
    loose = clone(imputer).set_params(rtol=0.01).fit(rounded)
    filled = loose.transform(rounded)
    missing = rounded[["bmi", "weight", "height"]].isna().any(axis=1)
    exact = filled["weight"] / filled["height"] ** 2
    assert_allclose(filled["bmi"][missing], exact[missing])


def test_equations_hold_for_rows_far_from_the_training_rows():
    _, part = households()
    imputer = ConstrainedImputer(SHORT, **EQUATIONS, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    far = part[:1].copy()
    far.loc[:, far.columns != "region"] = np.nan
    far["total"], far["people"], far["bmi"] = 300.0, 90, 99.0
    for table in (imputer.transform(far), *imputer.sample(far, 3, 0)):
        require_consistent(table, far)
    far["bmi"] = -1.0
    for call in (imputer.transform, imputer.sample):
        refused(ValueError, "'bmi' has no solution in row 0", call, far)


def test_wrong_equations_are_refused():
    _, part = households()
    for given, error, message in [
        ({"sums": {"total": "food"}}, TypeError, r"sums\['total'\] must be a list"),
        ({"sums": {"total": ["total"]}}, ValueError, "without 'total'"),
        ({"sums": {"total": ["food", "food"]}}, ValueError, "different columns"),
        ({"sums": {"sum": ["food"]}}, ValueError, "the column 'sum', no column of X"),
        (
            {"sums": {"total": ["region"]}},
            ValueError,
            "text where numbers are expected",
        ),
        ({"derived": {"bmi": body_mass}}, TypeError, "pair of a function"),
        (
            {"derived": {"bmi": (lambda x: 1.0, ["food"])}},
            ValueError,
            r"derived\['bmi'\] must return an array of shape",
        ),
        (
            {"derived": {"bmi": (lambda x: x + 0j, ["food"])}},
            TypeError,
            r"derived\['bmi'\] must return an array of real numbers, got complex",
        ),
        (
            {"derived": {"bmi": (lambda x: np.log(-1 - x), ["food"])}},
            ValueError,
            "'bmi' is NaN in row .* of X, by the function",
        ),
        ({"rtol": -1}, ValueError, "'rtol' parameter"),
        ({"model": StandardScaler()}, ValueError, "'model' parameter"),
    ]:
        refused(error, message, ConstrainedImputer(**given).fit, part)
    with pytest.raises(TypeError, match="positional argument") as caught:
        ConstrainedImputer(derived={"bmi": (lambda: 1.0, ["food"])}).fit(part)
    assert caught.value.__notes__ == ["Raised by the function of derived['bmi']."]
    with pytest.raises(ValueError, match="the column 7, no column of X: 0, 1, 2"):
        ConstrainedImputer(sums={7: [0]}).fit(part[SUMS["total"]].to_numpy())
    empty = part.assign(total=np.nan, food=np.nan)
    with pytest.raises(ValueError, match="'total' is in an equation, but none"):
        ConstrainedImputer(sums={"total": ["food", "rent"]}).fit(empty)


def of_total(low, deviation):
    """Let the third column be the sum of two, above a lower end."""
    bounds = Bounds.none(3)._replace(deviation=np.asarray(deviation))
    ranges = np.array([[low], [np.inf]]).repeat(3, 1)
    return Equations([sum_of(2, [0, 1])], ["'total'"], bounds, ranges)


def test_parts_move_by_variances_unless_the_total_is_free():
    """The solution of eq. (1) by hand: a gap of 5 is shared as 1 to 9."""
    equations = of_total(-np.inf, [1.0, 3.0, 2.0])
    filled = np.array([[[2.0, 3.0, 10.0], [2.0, 3.0, 11.0]]])
    missing = np.array([[True, True, False], [True, True, True]])
    found = equations.enforced(filled, missing)
    assert_allclose(found[0, 0], [2.5, 7.5, 10.0])
    assert_allclose(found[0, 1], [2.0, 3.0, 5.0], atol=1e-4)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_the_last_missing_column_of_a_function_is_solved_for(order):
    """Of two missing columns the first one keeps the cells of the other imputer."""
    _, part = households(7)
    X = part[["weight", "height", "bmi"]].to_numpy(float)
    both = np.isnan(X[:, 0]) & np.isnan(X[:, 1]) & ~np.isnan(X[:, 2])
    assert both.sum() > 5

    def f(*columns):
        return body_mass(*(columns[order.index(j)] for j in (0, 1)))

    imputer = ConstrainedImputer(FEW, derived={2: (f, order)}, random_state=0).fit(X)
    filled, plain = imputer.transform(X[both]), imputer.model_.transform(X[both])
    kept, moved = order
    assert_allclose(filled[:, kept], plain[:, kept], rtol=1e-12)
    assert (filled[:, moved] != plain[:, moved]).all()
    assert_allclose(body_mass(*filled[:, :2].T), X[both, 2], rtol=1e-8)


def test_a_shift_that_equations_undo_is_announced(rng):
    parts = pd.DataFrame(rng.gamma(4.0, size=(300, 3)), columns=list("abc"))
    frame = parts.assign(total=parts.sum(axis=1), free=rng.normal(size=300))
    for name in ("a", "b", "c", "free"):  # the total is observed
        frame.loc[rng.random(300) < 0.4, name] = np.nan
    sums = {"total": ["a", "b", "c"]}
    imputer = ConstrainedImputer(FEW, sums=sums, random_state=0).fit(frame)
    every = {"a": 0.5, "b": 0.5, "c": 0.5}
    with pytest.warns(UserWarning, match="equations move them back") as caught:
        imputer.sample(frame, 3, 0, shift=every)
    named = {re.search("column '(.*)' by", str(one.message))[1] for one in caught}
    assert named == set(every)
    with warnings.catch_warnings(action="error"):  # the control
        imputer.sample(frame, 3, 0, shift={"free": 0.5})


@pytest.mark.parametrize("shifted", ["a", "total"])
def test_equations_are_solved_for_columns_that_are_not_shifted(shifted, rng):
    """Each missing cell moves by the shift; negative numbers leave room for it."""
    parts = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    frame = parts.assign(total=parts.sum(axis=1))
    for name in ("a", "b", "total"):
        frame.loc[rng.random(300) < 0.4, name] = np.nan
    imputer = ConstrainedImputer(
        GaussianImputer(min_value=-np.inf, max_value=np.inf, n_parameter_draws=2),
        sums={"total": ["a", "b", "c"]},
        random_state=0,
    ).set_output(transform="pandas")
    imputer.fit(frame)
    tables = [imputer.sample(frame, 1, 0, shift={shifted: by})[0] for by in (0, 0.5)]
    together = frame.isna().sum(axis=1) > 1  # one missing cell alone follows
    drawn = frame[shifted].isna() & together
    assert drawn.sum() > 20
    moved = (tables[1] - tables[0]).loc[drawn, shifted]
    known = tables[0].loc[~drawn, shifted]
    assert_allclose(moved, 0.5 * known.std(ddof=0), rtol=1e-6)
    for table in tables:
        assert_allclose(table[list("abc")].sum(axis=1), table["total"], rtol=1e-8)


def test_derived_columns_are_solved_for_unshifted_columns():
    _, part = households(7)
    part = part[["weight", "height", "bmi"]]
    both = part["weight"].isna() & part["bmi"].isna()
    assert both.sum() > 5
    imputer = ConstrainedImputer(
        GaussianImputer(min_value=-np.inf, max_value=np.inf, n_parameter_draws=2),
        derived={"bmi": (body_mass, ["weight", "height"])},
        random_state=0,
    ).set_output(transform="pandas")
    imputer.fit(part)
    with warnings.catch_warnings(action="error"):
        tables = [imputer.sample(part, 1, 0, shift={"bmi": by})[0] for by in (0, 0.5)]
    for table in tables:
        assert_allclose(body_mass(table["weight"], table["height"]), table["bmi"])
    moved = (tables[1] - tables[0]).loc[both]
    assert_allclose(moved["bmi"], moved["bmi"].iloc[0], rtol=1e-6)
    assert (moved["bmi"] > 0).all() and (moved["weight"] != 0).all()


def test_rows_without_room_for_a_shift_satisfy_the_equations():
    """Parts of 10 cannot be 8 and 8: where a shift does not fit, both parts move."""
    equations = of_total(0.0, np.ones(3))
    filled = np.array([[[8.0, 3.0, 10.0], [12.0, 3.0, 10.0]]])
    missing = np.array([[True, True, False]] * 2)
    found = equations.enforced(filled, missing, [0])
    assert_allclose(found[0], [[8.0, 2.0, 10.0], [9.5, 0.5, 10.0]])


def whole_numbers(seed=0, n=150):
    """Draw whole numbers beside functions and sums of them that are not whole."""
    rng = np.random.default_rng([seed, 6])
    height = np.round(170 + 10 * rng.normal(size=n))
    weight = np.round(70 + 0.5 * (height - 170) + 8 * rng.normal(size=n))
    frame = pd.DataFrame({"height": height, "weight": weight})
    frame["bmi"] = weight / (height / 100) ** 2
    for name, mean in (("adults", 30), ("kids", 20), ("food", 40), ("other", 15)):
        frame[name] = rng.poisson(mean, n) + 0.0
    frame["rent"] = rng.gamma(8.0, size=n)
    frame["people"] = frame["adults"] + frame["kids"]
    frame["total"] = frame[["food", "rent", "other"]].sum(axis=1)
    return frame.mask(rng.random(frame.shape) < 0.25)


WHOLE = ["height", "weight", "adults", "kids", "people", "food", "other"]
WHOLE_BMI = {"bmi": (lambda w, h: w / (h / 100) ** 2, ["weight", "height"])}
WHOLE_EQUATIONS = {"derived": WHOLE_BMI, "sums": SUMS}


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["float64", "Int64"])
@pytest.mark.parametrize("seed", range(3))
def test_whole_numbers_satisfy_equations_with_other_numbers(seed, dtype):
    """Where a known index depends on two missing whole numbers, one is a fraction."""
    part = whole_numbers(seed)
    unsolvable = part["bmi"].notna() & part[["height", "weight"]].isna().all(axis=1)
    assert 0 < unsolvable.sum() < 30
    given = part.astype(dict.fromkeys(WHOLE, dtype))
    imputer = ConstrainedImputer(FEW, **WHOLE_EQUATIONS, random_state=0)
    imputer.set_output(transform="pandas").fit(given)
    for table in [imputer.transform(given), *imputer.sample(given, 2, 0)]:
        assert table.dtypes.equals(given.dtypes)
        table = table.astype(float)
        assert_array_equal(table["people"], table["adults"] + table["kids"])
        total = table[["food", "rent", "other"]].sum(axis=1)
        assert_allclose(table["total"], total, rtol=1e-12)
        index = table["weight"] / (table["height"] / 100) ** 2
        solved = ~unsolvable if dtype == "Int64" else unsolvable | True
        assert_allclose(table["bmi"][solved], index[solved], rtol=1e-12)
        whole = table[WHOLE] == table[WHOLE].round()
        assert whole.drop(columns=["height", "weight"]).all(axis=None)
        assert whole[~unsolvable].all(axis=None)
        assert (table["rent"] != table["rent"].round()).all()
        known = part.notna()
        assert_array_equal(table.to_numpy()[known], part.to_numpy()[known])


def test_rules_see_tables_that_satisfy_equations():
    part = whole_numbers()
    imputer = ConstrainedImputer(FEW, **WHOLE_EQUATIONS, random_state=0)
    imputer.set_output(transform="pandas").fit(part)

    def is_consistent(table):
        index = table["weight"] / (table["height"] / 100) ** 2
        return (index - table["bmi"]).abs() < 1e-9

    given = {"where": {"kids": is_consistent}}
    drawn = imputer.sample(part, 2, 0, **given)
    for table in [imputer.transform(part, **given), *drawn]:
        assert table.notna().all(axis=None)


def test_ends_of_intervals_of_whole_columns_are_whole(rng_0):
    frame = pd.DataFrame({"n": np.round(rng_0.normal(50, 10, 120))})
    frame["part"] = rng_0.normal(20, 3, 120)
    frame["total"] = frame["n"] + frame["part"]
    frame = frame.mask(rng_0.random(frame.shape) < 0.3)
    imputer = ConstrainedImputer(FEW, sums={"total": ["n", "part"]}, random_state=0)
    imputer.set_output(transform="pandas").fit(frame)
    for end in imputer.interval(frame, 0.8, 19, 0):
        assert (end["n"] % 1 == 0).all()


def ratios(seed, mean=2.0):
    """Draw a table of a ratio in which some ratios are 0."""
    rng = np.random.default_rng([seed, 7])
    over, under = rng.poisson(mean, 200) * 0.7, 1.0 + rng.poisson(5, 200)
    return pd.DataFrame({"a": over, "b": under, "q": over / under})


RATIO = {"q": (np.divide, ["a", "b"])}


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
def test_a_cell_at_the_end_of_its_range_is_solved_for(sign, seed):
    """A ratio of 0 needs a 0, the end of the range of columns without a sign change."""
    full = ratios(seed)
    if sign != "positive":
        full[["a", "q"]] *= -1 if sign == "negative" else (-1) ** full[["b"]].to_numpy()
    rows = np.flatnonzero(full["a"] == 0)[:3]
    part = full.copy()
    part.loc[rows, "a"] = np.nan
    imputer = ConstrainedImputer(FEW, derived=RATIO, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    assert len(rows) == 3 and (imputer.transform(part)["a"][rows] == 0).all()
    part.loc[rows, "q"] = -1.0 if sign == "positive" else 1.0  # the control
    if sign != "both":
        refused(ValueError, "'q' has no solution in row", imputer.transform, part)


def test_cells_that_make_no_difference_are_left_to_the_model(seed):
    """0 / b is 0 for all b; 2 / b = 0.5 is solved for, the control."""
    full = ratios(seed)
    empty = (full["a"] == 0).to_numpy()
    rows = np.r_[np.flatnonzero(empty)[:5], np.flatnonzero(~empty)[:5]]
    part = full.copy()
    part.loc[rows, "b"] = np.nan
    imputer = ConstrainedImputer(FEW, derived=RATIO, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    draws = [draw["b"][rows].to_numpy() for draw in imputer.sample(part, 2, 0)]
    model = imputer.model_.set_output(transform="pandas")
    solved = part.assign(b=part["b"].where(empty | part["b"].notna(), full["b"]))
    plain = [draw["b"][rows].to_numpy() for draw in model.sample(solved, 2, 0)]
    assert_allclose(draws, plain)
    assert (draws[0][:5] != draws[1][:5]).any()  # whole numbers may agree
    assert_allclose(draws[0][5:], full["b"][rows[5:]])


def test_an_infinite_value_satisfies_no_equation(seed):
    """2 / 0 is not 0.5; 2 / 4 is, the control."""
    part = ratios(seed)
    imputer = ConstrainedImputer(FEW, derived=RATIO, random_state=0).fit(part)
    imputer.transform(part[:1].assign(a=2.0, b=4.0, q=0.5))
    with pytest.raises(ValueError, match="contradicts the equation of 'q'.*give inf"):
        imputer.transform(part[:1].assign(a=2.0, b=0.0, q=0.5))


@pytest.mark.parametrize("order", [["food", "total"], ["total", "food"]])
def test_the_order_of_columns_does_not_decide_what_is_solved(order, seed):
    """A share and the rest determine a total; the share is below 1, the control."""
    rng = np.random.default_rng([seed, 8])
    full = pd.DataFrame(rng.gamma(4.0, size=(150, 2)), columns=["food", "rest"])
    full["total"] = full["food"] + full["rest"]
    full["share"] = full["food"] / full["total"]
    part = full.copy()
    part.loc[:20, ["food", "total"]] = np.nan

    def share(*columns):
        return columns[order.index("food")] / columns[order.index("total")]

    given = {"sums": {"total": ["food", "rest"]}, "derived": {"share": (share, order)}}
    imputer = ConstrainedImputer(**given, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    for table in [imputer.transform(part), *imputer.sample(part, 2, 0)]:
        assert_allclose(table, full, rtol=1e-6)
    part.loc[0, "share"] = 1.5
    refused(ValueError, "row 0 of X", imputer.transform, part)


@pytest.mark.parametrize("share", [0.25, 0.45])
def test_chains_of_equations_hold_together(share, seed):
    rng = np.random.default_rng([seed, 9])
    full = pd.DataFrame(rng.gamma(4.0, size=(150, 3)), columns=list("abc"))
    full["sub"] = full["a"] + full["b"]
    full["total"] = full["sub"] + full["c"]
    full["ratio"] = full["a"] / full["total"]
    part = full.mask(rng.random(full.shape) < share)
    sums = {"sub": ["a", "b"], "total": ["sub", "c"]}
    derived = {"ratio": (np.divide, ["a", "total"])}
    imputer = ConstrainedImputer(FEW, sums=sums, derived=derived, random_state=0)
    imputer.set_output(transform="pandas").fit(part)
    with warnings.catch_warnings(action="error"):
        tables = [imputer.transform(part), *imputer.sample(part, 2, 0)]
    for table in tables:
        assert_allclose(table["sub"], table["a"] + table["b"], rtol=1e-7)
        assert_allclose(table["total"], table["sub"] + table["c"], rtol=1e-7)
        assert_allclose(table["ratio"], table["a"] / table["total"], rtol=1e-7)
        assert (table >= 0).all(axis=None)
        known = part.notna()
        assert_array_equal(table.to_numpy()[known], part.to_numpy()[known])
    assert not tables[1].equals(tables[2])


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_gross_totals_hold_beside_whole_factors(rng):
    """Rounding of the pieces alone would leave their price no solution."""
    full = pd.DataFrame({"pieces": rng.poisson(4, 200) + 1.0})
    full["price"] = rng.gamma(5.0, size=200).round(2)
    full["net"] = full["pieces"] * full["price"]
    full["tax"] = 0.2 * full["net"]
    full["gross"] = full["net"] + full["tax"]
    part = full.mask(rng.random(full.shape) < 0.4)
    part.iloc[:5, :4] = np.nan
    imputer = ConstrainedImputer(
        sums={"gross": ["net", "tax"]},
        derived={
            "net": (np.multiply, ["pieces", "price"]),
            "tax": (lambda net: 0.2 * net, ["net"]),
        },
        random_state=0,
    )
    imputer.set_output(transform="pandas").fit(part)
    for table in imputer.transform(part), *imputer.sample(part, 2, random_state=0):
        assert_allclose(table["net"], table["pieces"] * table["price"], rtol=1e-7)
        assert_allclose(table["gross"], 1.2 * table["net"], rtol=1e-7)
        pieces = table["pieces"].iloc[:5]
        assert_array_equal(pieces, pieces.round())


def test_jumps_of_functions_are_no_solutions(rng_0):
    """The guarded ratio changes its sign at no people, where it is 0."""

    def guarded(cost, people):
        return np.where(people > 0, cost / np.where(people > 0, people, 1), 0.0)

    full = pd.DataFrame({"cost": rng_0.gamma(3.0, size=300)})
    full["people"] = rng_0.poisson(1.2, 300).astype(float)
    full["each"] = guarded(full["cost"], full["people"])
    part = full.mask(rng_0.random(full.shape) < 0.3)
    imputer = ConstrainedImputer(FEW, derived={"each": (guarded, ["cost", "people"])})
    table = imputer.set_output(transform="pandas").fit(part).transform(part)
    assert_allclose(table["each"], guarded(table["cost"], table["people"]))
    follows = part[["cost", "each"]].notna().all(axis=1) & (full["each"] > 0)
    assert_allclose(table["people"][follows], full["people"][follows])
