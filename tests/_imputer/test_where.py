"""Missing cells that stay missing: `where` of `transform` and `sample`."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.formula.api as smf
from cases import EACH_IMPUTER, quick_gaussian
from numpy.testing import assert_array_equal
from oracles import GATE
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from statistical import FAILURE, p_share
from tables import fills

from skvnce import ConstrainedImputer, GaussianImputer
from skvnce._imputer.rules import mask_of
from skvnce.pooling import fit_each, pool_models, sensitivity_curve

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def numbers(seed=0):
    """Draw rows with missing cells, and a mask of cells that are to be filled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 1)) + rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.4] = np.nan
    return X, rng.random(X.shape) < 0.5


def survey():
    """Make a frame in which non-smokers are not asked for cigarettes."""
    rng = np.random.default_rng(1)
    n = 80
    frame = pd.DataFrame(
        {
            "smoker": pd.Categorical(rng.choice(["no", "yes"], n)),
            "cigarettes": pd.array(rng.poisson(12, n), dtype="Int64"),
            "age": rng.normal(50, 10, n),
            "brand": pd.array(rng.choice(["a", "b"], n), dtype="string"),
        },
        index=[f"row {i}" for i in range(n)],
    )
    skipped = frame["smoker"].eq("no")
    frame.loc[skipped, ["cigarettes", "brand"]] = pd.NA
    lost = rng.random(n) < 0.3
    frame.loc[lost, ["age", "cigarettes"]] = pd.NA
    return frame, skipped


def fitted_to(frame):
    return quick_gaussian().set_output(transform="pandas").fit(frame)


@pytest.fixture(scope="module")
def of_survey():
    frame, skipped = survey()
    return frame, skipped, fitted_to(frame)


@pytest.fixture(scope="module")
def of_smokers():
    frame = unknown_smokers()
    return frame, fitted_to(frame)


@EACH_IMPUTER
def test_the_other_cells_do_not_depend_on_where(imputer):
    X, where = numbers()
    fitted = clone(imputer).fit(X)
    stay = np.isnan(X) & ~where
    assert stay.sum() > 20
    expected = np.where(stay, np.nan, fitted.transform(X))
    assert_array_equal(fitted.transform(X, where=where), expected)
    assert_array_equal(clone(imputer).fit_transform(X, where=where), expected)
    drawn = fitted.sample(X, 3, 0, as_array=True)
    found = fitted.sample(X, 3, 0, as_array=True, where=where)
    assert_array_equal(found, np.where(stay, np.nan, drawn))
    for shifted in fitted.sample(X, 2, 0, where=where, shift={1: 0.5}):
        assert_array_equal(np.isnan(shifted), stay)


def test_masks_are_arrays_frames_or_dicts(of_survey):
    frame, skipped, fitted = of_survey
    mask = pd.DataFrame(True, frame.index, frame.columns)
    mask.loc[skipped, ["cigarettes", "brand"]] = False
    expected = fitted.transform(frame, where=mask)
    for other in (
        mask.to_numpy(),
        mask.to_numpy().tolist(),
        mask[["brand", "cigarettes"]],
        mask.astype("boolean"),
        pl.from_pandas(mask),
        {"brand": ~skipped, "cigarettes": (~skipped).tolist()},
    ):
        assert_frame_equal(fitted.transform(frame, where=other), expected)
    everything = fitted.transform(frame, where=np.ones(frame.shape, dtype=bool))
    assert_frame_equal(everything, fitted.transform(frame))
    nothing = fitted.transform(frame, where=np.zeros(frame.shape, dtype=bool))
    assert_frame_equal(nothing, frame)


def test_indicators_and_empty_columns_are_kept():
    X, where = numbers()
    X = np.column_stack([X, np.full(len(X), np.nan)]).astype(np.float32)
    where = np.column_stack([where, np.arange(len(X)) % 2 == 0])
    imputer = GaussianImputer(keep_empty_features=True, add_indicator=True)
    found = imputer.fit_transform(X, where=where)
    assert found.dtype == np.float32 and found.shape == (60, 8)
    assert_array_equal(np.isnan(found[:, :4]), np.isnan(X) & ~where)
    assert_array_equal(found[:, 4:], np.isnan(X))


def test_a_column_of_another_data_type_is_filled_where_asked(of_survey):
    frame, _, fitted = of_survey
    empty = frame.assign(brand=np.nan)
    rows = np.arange(len(frame)) < 5
    found = fitted.transform(empty, where={"brand": rows})["brand"]
    assert_array_equal(found.notna(), rows)
    assert set(found[rows]) <= {"a", "b"}
    filled = fitted.transform(empty, where={"brand": rows & False})["brand"]
    assert filled.dtype == empty["brand"].dtype and filled.isna().all()


def smoked(table):
    return table["smoker"] == "yes"


RULE = {"cigarettes": smoked, "brand": smoked}


def unknown_smokers(seed=2):
    """Make the survey with a fifth of the smokers unknown."""
    frame, _ = survey()
    lost = np.random.default_rng(seed).random(len(frame)) < 0.2
    frame.loc[lost, "smoker"] = np.nan
    return frame


def require_agreement(table, frame):
    """Gates and gated cells agree, and observed cells are kept."""
    is_smoker = table["smoker"] == "yes"
    assert table["smoker"].notna().all() and table["age"].notna().all()
    assert_array_equal(table["cigarettes"].notna(), is_smoker)
    assert_array_equal(table["brand"].notna(), is_smoker)
    for name in frame:
        observed = frame[name].notna()
        assert (table[name][observed] == frame[name][observed]).all()
    assert (table.dtypes == frame.dtypes).all()


@pytest.mark.quick(1)
@EACH_IMPUTER
def test_rules_of_missing_gates_are_applied_to_each_draw(imputer):
    """Without rules, rows contradict; with `brand` observed the smoker is known."""
    frame = unknown_smokers()
    lost = frame["smoker"].isna()
    assert (lost & frame["brand"].notna()).sum() > 3
    fitted = clone(imputer).set_output(transform="pandas").fit(frame)
    tables = fitted.sample(frame, 5, 0, where=RULE)
    for table in [*tables, fitted.transform(frame, where=RULE)]:
        require_agreement(table, frame)
    arrays = fitted.sample(frame, 5, 0, where=RULE, as_array=True)
    for array, table in zip(arrays, tables, strict=True):
        assert_array_equal(pd.isna(array), table.isna())
    drawn = {tuple(table.loc[lost, "smoker"]) for table in tables}
    assert len(drawn) > 1
    for table in fitted.sample(frame, 2, 0, where=RULE, shift={"age": 0.5}):
        require_agreement(table, frame)
    plain = fitted.sample(frame, 5, 0)  # the control
    skipped = [table["smoker"].eq("no") & frame["brand"].notna() for table in plain]
    assert np.any(skipped)


@pytest.mark.quick(1)
@EACH_IMPUTER
def test_rules_see_the_whole_numbers_that_are_returned(imputer):
    """A prediction of 12.3 children is 12, so that the rule of more than 12 denies."""
    rng, n = np.random.default_rng(0), 200
    x = rng.normal(size=n)
    kids = np.round(np.clip(12 + 4 * x + 2 * rng.normal(size=n), 0, None))
    expenses = np.where(kids > 12, 50 + 5 * x + rng.normal(size=n), np.nan)
    frame = pd.DataFrame({"x": x, "kids": kids, "expenses": expenses})
    frame["kids"] = frame["kids"].mask(rng.random(n) < 0.4)
    expenses_lost = frame["expenses"].isna()
    tables = []

    def has_many(table):
        tables.append(table["kids"].dropna())
        return table["kids"] > 12

    fitted = clone(imputer).set_output(transform="pandas").fit(frame)
    rule = {"expenses": has_many}
    for table in fills(fitted, frame, 2, where=rule):
        filled = table["expenses"].notna()[expenses_lost]
        assert_array_equal(filled, table["kids"][expenses_lost] > 12)
    assert all((kids == kids.round()).all() for kids in tables)


def test_observed_gates_give_what_masks_give(of_survey):
    frame, skipped, fitted = of_survey
    masks = {"cigarettes": ~skipped, "brand": ~skipped}
    for where in (
        RULE,
        lambda table: {name: smoked(table) for name in ("brand", "cigarettes")},
        lambda table: smoked(table).to_frame("brand").assign(cigarettes=smoked(table)),
        {"cigarettes": ~skipped, "brand": smoked},
    ):
        expected = fitted.transform(frame, where=masks)
        assert_frame_equal(fitted.transform(frame, where=where), expected)
        expected = fitted.sample(frame, 2, 0, where=masks)
        pairs = zip(fitted.sample(frame, 2, 0, where=where), expected, strict=True)
        for one, other in pairs:
            assert_frame_equal(one, other)


def nested(n=150, seed=3):
    """Make a frame of three questions, of which each is asked after a yes."""
    rng = np.random.default_rng(seed)
    first, second = rng.random((2, n)) < 0.6
    second &= first
    frame = pd.DataFrame(
        {
            "ever": np.where(first, "yes", "no"),
            "now": pd.array(np.where(second, "yes", "no"), dtype="string"),
            "count": pd.array(rng.poisson(9, n), dtype="Int64"),
            "age": rng.normal(50, 9, n),
        }
    )
    frame["ever"] = frame["ever"].astype("string")
    frame.loc[~first, "now"] = pd.NA
    frame.loc[~second, "count"] = pd.NA
    for name, share in (("ever", 0.2), ("now", 0.2), ("count", 0.2), ("age", 0.2)):
        frame.loc[rng.random(n) < share, name] = pd.NA
    return frame


NESTED = {
    "now": lambda table: table["ever"] == "yes",
    "count": lambda table: table["now"] == "yes",
}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_gate_of_a_gate_empties_both(seed):
    frame = nested(seed=seed)
    fitted = quick_gaussian().fit(frame).set_output(transform="pandas")
    reverse = dict(reversed(NESTED.items()))
    tables = fitted.sample(frame, 4, 0, where=NESTED)
    pairs = zip(tables, fitted.sample(frame, 4, 0, where=reverse), strict=True)
    for one, other in pairs:
        assert_frame_equal(one, other)
    both = frame["ever"].isna() & frame["now"].isna() & frame["count"].notna()
    assert both.any()
    for table in [*tables, fitted.transform(frame, where=NESTED)]:
        ever = (table["ever"] == "yes").fillna(False).astype(bool)
        now = (table["now"] == "yes").fillna(False).astype(bool)
        assert_array_equal(table["now"].notna(), ever)
        assert_array_equal(table["count"].notna(), now)
        assert ever[both].all() and now[both].all()


def test_rows_are_drawn_given_that_the_rule_holds(rng):
    """Ranks of a truth above its threshold among draws of it are uniform."""
    gate, n = rng.normal(size=3000), 3000
    extra = np.where(gate > 0.5, rng.normal(size=n), np.nan)
    X = np.column_stack([gate, gate + rng.normal(size=n), extra])
    lost = rng.random(n) < 0.3
    X[lost, 0] = np.nan
    fitted = GaussianImputer(random_state=0, marginals="normal").fit(X)
    rule, known = {2: lambda table: table[:, 0] > 0.5}, lost & ~np.isnan(extra)

    def share_below(**options):
        draws = fitted.sample(X[known], 20, 0, as_array=True, **options)
        return (draws[:, :, 0] < gate[known]).mean()

    error = np.sqrt(1 / 12 / known.sum())  # of the mean of uniform numbers
    assert abs(share_below(where=rule) - 0.5) < GATE * error
    assert share_below() > 0.5 + GATE * error  # the control, about 13 errors
    # draws of rows far below would hardly agree with the rule
    few = X[known & (X[:, 1] > 0) & (X[:, 1] < 0.5)][:5]  # gates of .25 and less
    with pytest.warns(UserWarning, match="where denies observed cells of 5 rows"):
        fitted.transform(few, where=rule)  # numbers have no other level
    assert (fitted.transform(few)[:, 0] < 0.5).any()


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["polars", "objects", "numbers"])
def test_rules_read_the_container_of_the_table(kind):
    frame = unknown_smokers()
    if kind == "polars":
        table = pl.from_pandas(frame)
        rule = {"cigarettes": lambda part: part["smoker"] == "yes"}
    elif kind == "objects":
        table, rule = frame.astype(object), {1: lambda part: part[:, 0] == "yes"}
        table = table.where(table.notna(), None).to_numpy()
    else:
        table = pd.DataFrame({"a": frame["smoker"].cat.codes, "b": frame["cigarettes"]})
        table = table.replace(-1, np.nan).astype(float).to_numpy()
        rule = {1: lambda part: part[:, 0] > 0.5}
    options = {"categorical_features": [0, 3] if kind == "objects" else "from_dtype"}
    fitted = quick_gaussian(**options).fit(table)
    if kind == "polars":
        fitted.set_output(transform="polars")
    tables = fills(fitted, table, 3, where=rule)
    # the mean of a number has no other level, if it contradicts an observed cell
    for found in tables[1:] if kind == "numbers" else tables:
        cells = found.to_pandas() if kind == "polars" else pd.DataFrame(found)
        level = cells.iloc[:, 0]
        is_smoker = level > 0.5 if kind == "numbers" else level == "yes"
        assert_array_equal(cells.iloc[:, 1].notna(), is_smoker)
    stacked = fitted.sample(table, 3, 0, where=rule, as_array=True)
    assert stacked.shape == (3, *found.shape)
    for one, other in zip(stacked, fitted.sample(table, 3, 0, where=rule), strict=True):
        same = other.to_pandas() if kind == "polars" else other
        assert_array_equal(pd.isna(one), pd.isna(same))


def test_predictions_are_functions_of_their_row(of_smokers):
    frame, fitted = of_smokers
    whole = fitted.transform(frame, where=RULE)
    backward = fitted.transform(frame[::-1], where=RULE)
    assert_frame_equal(backward[::-1], whole)
    assert_frame_equal(fitted.transform(frame, where=RULE), whole)


def test_rules_beside_limits_equations_and_groups(of_smokers):
    frame, fitted = of_smokers
    above = {"lower": {"age": 55.0}}
    lost = frame["age"].isna()
    for table in fills(fitted, frame, 2, where=RULE, **above):
        require_agreement(table, frame)
        assert (table.loc[lost, "age"] >= 55).all()
    group = frame[frame["smoker"].ne("no")]
    for table in fitted.sample(frame, 2, 0, where=RULE, reference=group):
        require_agreement(table, frame)
    twice = frame.assign(double=2 * frame["age"])
    solved = ConstrainedImputer(
        clone(fitted), derived={"double": (lambda age: 2 * age, ["age"])}
    )
    solved.set_output(transform="pandas").fit(twice)
    for table in solved.sample(twice, 2, 0, where=RULE):
        require_agreement(table.drop(columns="double"), frame)
        assert_array_equal(table["double"], 2 * table["age"])


def test_draws_with_empty_cells_are_analysed_and_pooled(of_smokers):
    frame, fitted = of_smokers
    draws = fitted.sample(frame, 5, 0, where=RULE)

    def analyse(table):
        rows = table[table["smoker"] == "yes"].astype({"cigarettes": float})
        return smf.ols("cigarettes ~ age", rows).fit()

    counts = fit_each(lambda table: table["cigarettes"].notna().sum(), draws)
    pooled = pool_models(fit_each(analyse, draws))
    assert pooled.dof_complete == min(counts) - 2
    shifts = [{}, {"smoker": {"yes": 1.5}}]
    curve = sensitivity_curve(fitted, frame, analyse, shifts, 5, 0, where=RULE)
    no_shift = fitted.sample(frame, 5, 0, where=RULE, shift={"smoker": {}})
    expected = pool_models(fit_each(analyse, no_shift)).estimate
    assert_array_equal(curve.pooled[0].estimate, expected)
    assert curve.pooled[1].dof_complete > curve.pooled[0].dof_complete


@pytest.mark.filterwarnings("error")
def test_rules_that_observed_cells_contradict_are_named():
    frame, _ = survey()
    fitted = quick_gaussian().set_output(transform="pandas").fit(frame)
    wrong = frame.copy()
    wrong.loc["row 3", ["smoker", "cigarettes", "age"]] = ["no", 7, np.nan]
    message = "observed cells of 1 rows, whatever.*'cigarettes', row 3"
    for call in (fitted.transform, fitted.sample):
        with pytest.warns(UserWarning, match=message):
            call(wrong, where={"cigarettes": smoked})
    assert not np.any(
        [
            t.isna()
            for t in fitted.sample(
                frame[["smoker"]].join(frame.drop(columns="smoker")),
                where={"age": lambda table: table["age"] > -1},
            )
        ]
    )


def rare(n=600, seed=3):
    """Make a frame of a rare gate, with amounts of which two gates are unknown."""
    rng = np.random.default_rng(seed)
    gate = np.repeat(["yes", "maybe", "no"], [3, 3, n - 6])
    amount = np.where(gate == "no", np.nan, rng.normal(5, 1, n))
    frame = pd.DataFrame({"x": rng.normal(size=n), "gate": gate, "amount": amount})
    frame.loc[[1, 4, *range(100, 200)], "gate"] = None
    return frame


def not_no(table):
    return table["gate"] != "no"


def rules(fitted, where, X):
    """Make the rules, and the arguments of `of_draws` that belong to them."""
    checked = fitted._checked(X)
    where_rules = mask_of(fitted._schema, where, X, checked)
    return where_rules, np.isnan(checked)


@pytest.mark.filterwarnings("error:where denies")
def test_rare_levels_agree_with_observed_cells():
    frame = rare()
    fitted = quick_gaussian().fit(frame).set_output(transform="pandas")
    table = fitted.transform(frame, where={"amount": not_no})
    assert not_no(table)[[1, 4]].all()
    assert_array_equal(table["amount"].notna(), not_no(table))
    plain = not_no(fitted.transform(frame))  # the control
    assert not plain[[1, 4]].any()


def test_tries_of_a_row_are_no_copies_of_other_rows():
    """The random numbers of a draw depend on the place of its row."""
    n, n_draws = 40, 50
    X = np.random.default_rng(0).normal(size=(n, 2))
    X[2:, 0] = np.nan
    fitted = GaussianImputer(random_state=0, marginals="normal").fit(X)
    X[:, 0] = np.nan
    rule, missing = rules(fitted, lambda table: {1: table[:, 0] > 0}, X)
    values = np.random.default_rng(1).normal(size=(n_draws, 300 * n))

    def draw(rows):
        return np.stack([values[:, : len(rows)], np.ones((n_draws, len(rows)))], 2)

    first = draw(np.arange(n))
    found, _ = rule.of_draws(first.copy(), missing, draw)
    assert (found[..., 0] > 0).all()
    again = first[:, 0, 0] < 0
    place = (first[:, :, 0] > 0).argmax(1)
    copies = found[:, 0, 0] == first[np.arange(n_draws), place, 0]
    # a try of row 0 has the numbers of a given row with probability 1 / n
    assert again.sum() > 15
    p = p_share(copies[again].sum(), again.sum(), 1 / n, alternative="greater")
    assert p > FAILURE


WRONG_WHERE = [
    (np.ones((3, 4), dtype=bool), ValueError, r"shape of X, \(80, 4\).*\(3, 4\)"),
    ({"brand": [True]}, ValueError, r"where\['brand'\].*80 rows"),
    ({"colour": [True] * 80}, ValueError, "where has the key 'colour', no column"),
    ({"brand": np.ones(80)}, TypeError, "True and False only.*'brand'"),
    ({"brand": ~survey()[1][::-1]}, ValueError, "another index than X"),
    ({"colour": smoked}, ValueError, "where has the key 'colour', no column"),
    ({"brand": lambda table: table["color"]}, KeyError, "color"),
    ({"brand": lambda table: [True]}, ValueError, r"where\['brand'\] must have"),
    ({"brand": lambda table: None}, TypeError, r"where\['brand'\] returned None"),
    (lambda table: None, TypeError, "function of where returned None"),
    (lambda table: {"brand": None}, TypeError, "where for 'brand' returned None"),
    (lambda table: table["age"], ValueError, "shape of X"),
    (lambda table: {"brand": table["age"]}, TypeError, "True and False only"),
]


def test_wrong_masks_and_rules_are_refused(of_smokers):
    frame, fitted = of_smokers
    for call in (fitted.transform, fitted.sample):
        for where, error, words in WRONG_WHERE:
            with pytest.raises(error, match=words) as caught:
                call(frame, where=where)
            if error is KeyError:
                assert "function of where['brand']" in caught.value.__notes__[0]
        call(frame, where={"brand": lambda table: True})
