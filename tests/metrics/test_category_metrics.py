"""Scores of categories on hidden cells, against their definitions."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from errors import refused
from statistical import FAILURE, p_mean

from skvnce.metrics import (
    brier_score,
    category_log_loss,
    coverage,
    crps,
    energy_distance,
    expected_calibration_error,
    false_classification_rate,
    imputation_mae,
    imputation_rmse,
    ranked_probability_score,
    two_sample_auc,
)

GRADES = ["low", "middle", "high"]
PROPER = [category_log_loss, brier_score, ranked_probability_score]
OF_PROBABILITIES = [*PROPER, expected_calibration_error]


@pytest.fixture
def rng(seed):
    """Return the generator of a test."""
    return np.random.default_rng([seed, 24])


def mixed(grade, port, age=None, container=pd.DataFrame):
    """Return a table of an ordinal, a nominal and a numeric column."""
    age = np.zeros(len(port)) if age is None else age
    if container is pl.DataFrame:
        grade = pl.Series(list(grade), dtype=pl.Enum(GRADES))
        return pl.DataFrame({"grade": grade, "port": list(port), "age": list(age)})
    grade = pd.Categorical(grade, categories=GRADES, ordered=True)
    return pd.DataFrame({"grade": grade, "port": list(port), "age": age})


TRUE = mixed(["low", "high"], ["S", "C"], [1.0, 2.0])
ALL = np.ones((2, 3), dtype=bool)
P = {
    "grade": pd.DataFrame([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], columns=GRADES),
    "port": pd.DataFrame([[0.2, 0.8], [0.4, 0.6]], columns=["C", "S"]),
}
CATEGORIES = {"grade": GRADES, "port": ["C", "S"]}
GRADE, PORT = {"grade": P["grade"]}, {"columns": ["port"]}
LEVELS_OF_PORT = {"categories": {"port": ["C", "Q"]}}


def only(place, shape=(2, 3)):
    """Return a mask of one column."""
    hidden = np.zeros(shape, dtype=bool)
    hidden[:, place] = True
    return hidden


# By hand


def test_false_classification_rate_by_hand():
    imputed = mixed(["low", "low"], ["S", "C"])
    assert false_classification_rate(TRUE, imputed, ALL) == 0.25
    assert false_classification_rate(TRUE, imputed, ALL, columns=["port"]) == 0
    assert false_classification_rate(TRUE, imputed, ALL, columns="grade") == 0.5
    assert false_classification_rate(TRUE, imputed, only(0)) == 0.5
    assert false_classification_rate(TRUE, imputed, ALL, columns=["age"]) == 1


def test_log_loss_by_hand():
    expected = -np.mean(np.log([0.5, 0.5, 0.8, 0.4]))
    assert category_log_loss(TRUE, P, ALL) == pytest.approx(expected)
    expected = -np.mean(np.log([0.8, 0.4]))
    assert category_log_loss(TRUE, P, ALL, columns=["port"]) == pytest.approx(expected)


def test_the_floor_of_the_log_loss_by_hand():
    p = {0: [[1.0, 0.0]]}
    levels = {"categories": {0: ["no", "yes"]}}
    true, hidden = [["yes"]], [[True]]
    assert category_log_loss(true, p, hidden, **levels) == pytest.approx(np.log(101))
    result = category_log_loss(true, p, hidden, floor=0.25, **levels)
    assert result == pytest.approx(np.log(5))
    assert category_log_loss(true, p, hidden, floor=0, **levels) == np.inf


def test_brier_score_by_hand():
    grade = 0.5**2 + 2 * 0.25**2
    assert brier_score(TRUE, P, only(0)) == pytest.approx(grade)
    port = (2 * 0.2**2 + 2 * 0.6**2) / 2
    assert brier_score(TRUE, P, only(1)) == pytest.approx(port)
    assert brier_score(TRUE, P, ALL) == pytest.approx((grade + port) / 2)
    spread = (0.5 * 0.5 + 2 * 0.25 * 0.75) / 4
    fair = brier_score(TRUE, P, only(0), n_draws=5)
    assert fair == pytest.approx(grade - spread)


def test_ranked_probability_score_by_hand():
    # Cumulative: (.5, .75) where (1, 1) is true, (.25, .5) where (0, 0) is.
    expected = (0.5**2 + 0.25**2 + 0.25**2 + 0.5**2) / 2
    assert ranked_probability_score(TRUE, P, ALL) == pytest.approx(expected)
    spread = (0.5 * 0.5 + 0.25 * 0.75) / 9
    fair = ranked_probability_score(TRUE, P, ALL, n_draws=10)
    assert fair == pytest.approx(expected - spread)


def test_expected_calibration_error_by_hand():
    true, hidden = [["a"], ["a"], ["b"], ["b"]], np.ones((4, 1), dtype=bool)
    levels = {"categories": {0: ["a", "b"]}}
    p = {0: [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.3, 0.7]]}
    result = expected_calibration_error(true, p, hidden, **levels)
    assert result == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.3)
    result = expected_calibration_error(true, p, hidden, n_bins=1, **levels)
    assert result == pytest.approx(abs(0.75 - 0.85))
    ties = {0: [[0.5, 0.5]] * 4}
    assert expected_calibration_error(true, ties, hidden, **levels) == 0


def test_a_probability_at_the_end_of_a_bin_stays_in_it():
    assert 0.55 * 100 > 55  # in floats
    p = {0: [[0.55, 0.45], [0.545, 0.455]]}  # both in the bin from .54 to .55
    true, hidden = [["a"], ["b"]], [[True], [True]]
    options = {"categories": {0: ["a", "b"]}, "n_bins": 100}
    result = expected_calibration_error(true, p, hidden, **options)
    assert result == pytest.approx(abs(1 - 0.55 - 0.545) / 2)


def test_draws_count_as_frequencies():
    draws = [
        mixed(["low", "high"], ["S", "S"]),
        mixed(["low", "low"], ["S", "S"]),
        mixed(["middle", "high"], ["S", "C"]),
        mixed(["high", "middle"], ["C", "C"]),
    ]
    p = {"grade": P["grade"].to_numpy(), "port": [[0.25, 0.75], [0.5, 0.5]]}
    for score in OF_PROBABILITIES:
        fair = {"n_draws": 4} if score in PROPER[1:] else {}
        expected = score(TRUE, p, ALL, categories=CATEGORIES, **fair)
        assert score(TRUE, draws, ALL) == pytest.approx(expected)


def test_ranked_probability_score_is_the_crps_of_codes(rng):
    codes = rng.integers(0, 3, (6, 40))
    true, *draws = (mixed(np.take(GRADES, one), ["S"] * 40) for one in codes)
    result = ranked_probability_score(true, draws, only(0, (40, 3)))
    expected = crps(codes[0][:, None], codes[1:, :, None], np.ones((40, 1), dtype=bool))
    assert result == pytest.approx(expected)


# Properties


def cells_of_one_row(p, n_rows, rng):
    """Return levels that are drawn from p, as a table of one ordinal column."""
    codes = rng.choice(3, n_rows, p=p)
    grade = pd.Categorical.from_codes(codes, GRADES, ordered=True)
    return pd.DataFrame({"grade": grade})


LEVELS = {"categories": {"grade": GRADES}}


@pytest.mark.parametrize("n_draws", [2, 5])
def test_fair_scores_do_not_depend_on_the_number_of_draws(n_draws, rng):
    q, p = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.25, 0.25])
    table = cells_of_one_row(q, 4000, rng)
    draws = [cells_of_one_row(p, 4000, rng) for _ in range(n_draws)]
    mean = ((p - np.eye(3)) ** 2).sum(1) @ q
    assert p_mean(of_rows(brier_score, table, draws), mean) > FAILURE
    uncorrected = of_rows(brier_score_of_frequencies, table, draws)
    assert p_mean(uncorrected, mean) < FAILURE
    steps = np.array([[1, 1], [0, 1], [0, 0]])
    mean = ((np.cumsum(p)[:2] - steps) ** 2).sum(1) @ q
    assert p_mean(of_rows(ranked_probability_score, table, draws), mean) > FAILURE


def brier_score_of_frequencies(table, draws, hidden):
    """Return the Brier score of frequencies, as if they were probabilities."""
    p = np.mean([np.eye(3)[draw["grade"].cat.codes] for draw in draws], axis=0)
    return brier_score(table, {"grade": p}, hidden, **LEVELS)


def of_rows(score, table, draws, n_blocks=20):
    """Return the scores of blocks of rows."""
    blocks = np.array_split(np.arange(len(table)), n_blocks)
    parts = ((table.iloc[rows], [draw.iloc[rows] for draw in draws]) for rows in blocks)
    return np.array([score(*part, np.ones((len(part[0]), 1), bool)) for part in parts])


# Containers


@pytest.mark.parametrize("score", OF_PROBABILITIES)
def test_containers_of_probabilities_agree(score):
    expected = score(TRUE, P, ALL)
    arrays = {name: one.to_numpy() for name, one in P.items()}
    levels = dict(enumerate(CATEGORIES.values()))
    indexed = dict(enumerate(arrays.values()))
    polars = {name: pl.from_pandas(one) for name, one in P.items()}
    true = mixed(["low", "high"], ["S", "C"], container=pl.DataFrame)
    assert score(TRUE, arrays, ALL, categories=CATEGORIES) == expected
    cells = TRUE.astype(object).to_numpy()
    ordinal = [0] if score is ranked_probability_score else None
    result = score(cells, indexed, ALL, columns=ordinal, categories=levels)
    assert result == expected and score(true, polars, ALL) == expected
    assert score(true, polars, pd.DataFrame(ALL)) == expected


def test_names_of_levels_may_be_text_of_numbers_and_booleans():
    true = pd.DataFrame({"smokes": [True, False], "count": [1, 2]})
    p = {
        "smokes": pl.DataFrame({"False": [0.0, 1.0], "True": [1.0, 0.0]}),
        "count": pl.DataFrame({"1": [1.0, 0.0], "2": [0.0, 1.0]}),
    }
    assert brier_score(true, p, np.ones((2, 2), dtype=bool)) == 0


def test_arrays_of_objects_as_transform_returns_them():
    imputed = TRUE.astype(object).to_numpy()
    imputed[1, 1] = "S"
    assert false_classification_rate(TRUE, imputed, ALL) == 0.25
    result = brier_score(TRUE, [imputed] * 3, ALL)
    assert result == pytest.approx(0.5)
    assert brier_score(TRUE, np.array([imputed] * 3), ALL) == result
    cells = TRUE.astype(object).to_numpy()
    assert false_classification_rate(cells, imputed, ALL) == 0.25


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_scores_of_numbers_leave_out_categories(container):
    true = mixed(["low", "high"], ["S", "C"], [1.0, 2.0], container)
    imputed = mixed(["high", "low"], ["C", "S"], [1.0, 5.0], container)
    age = [[1.0], [2.0]], [[1.0], [5.0]], [[True], [True]]
    assert imputation_rmse(true, imputed, ALL) == imputation_rmse(*age)
    assert imputation_mae(true, imputed, ALL, scale=[1, 1, 3]) == 0.5
    assert imputation_mae(true, imputed, ALL, scale=[3]) == 0.5
    assert crps(true, [imputed, true], ALL) == crps(age[0], [age[1], age[0]], age[2])
    arrays = [mixed_as_objects(one) for one in (imputed, true)]
    assert crps(true, arrays, ALL) == crps(age[0], [age[1], age[0]], age[2])
    assert coverage(true, [true, imputed, true], ALL, level=0.5) == 1


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_integers_of_few_values_are_scored_as_numbers(container):
    port, n = ["S", "C"] * 4, [1, 2] * 4
    true = container({"port": port, "n": n})
    imputed = container({"port": port, "n": [one + 3 for one in n]})
    hidden = np.ones((8, 2), dtype=bool)
    assert imputation_mae(true, imputed, hidden, scale=[1]) == 3
    assert false_classification_rate(true, imputed, hidden) == 0  # of port alone


def mixed_as_objects(table):
    """Return a table as an array of objects."""
    rows = table.rows() if isinstance(table, pl.DataFrame) else table.to_numpy()
    return np.array([list(row) for row in rows], dtype=object)


def test_categories_alone_have_no_rmse():
    true = TRUE[["grade", "port"]]
    with pytest.raises(ValueError, match="no columns of numbers; use false_class"):
        imputation_rmse(true, true, ALL[:, :2])
    with pytest.raises(ValueError, match="at least one cell of numbers, got none"):
        imputation_rmse(TRUE, TRUE, only(0))
    with pytest.raises(ValueError, match=r"X_imputed must hold .*\(2, 3\), got"):
        imputation_rmse(TRUE, true, ALL)


# Two samples


def test_two_sample_auc_tells_wrong_completions_from_right_ones(rng):
    n = 300
    codes, same = rng.integers(0, 3, (2, n))
    age = codes + 0.1 * rng.standard_normal((3, n))
    true = mixed(np.take(GRADES, codes), np.take(["S", "C", "Q"], codes), age[0])
    right = mixed(np.take(GRADES, codes), np.take(["S", "C", "Q"], codes), age[1])
    wrong = mixed(np.take(GRADES, codes), np.take(["S", "C", "Q"], same), age[0])
    hidden = only(1, (n, 3)) | only(2, (n, 3))
    # Under the null the standard error of the AUC is at most about 1 / sqrt(6 n),
    # .024, and folds add little; a wrong port is seen in two rows of three.
    result = two_sample_auc(true, right, hidden, n_splits=2, random_state=0)
    assert abs(result - 0.5) < 0.13
    result = two_sample_auc(true, [wrong], hidden, n_splits=2, random_state=0)
    assert result > 0.7


def test_two_sample_auc_keeps_pairs_together(rng):
    # With equal tables, a fold of pairs has equal scores in both classes.  Otherwise a
    # classifier learns the class of a row, takes its completion for the same, and has
    # an AUC below .4 here.
    X = rng.standard_normal((60, 1))
    hidden = np.ones((60, 1), dtype=bool)
    assert two_sample_auc(X, X, hidden, n_splits=3, random_state=1) == 0.5


def test_two_sample_auc_leaves_out_missing_true_cells(rng):
    frame = pd.DataFrame({"number": rng.normal(size=60)})
    frame["level"] = pd.Categorical(rng.choice(["a", "b"], 60))
    true = frame.mask(rng.random(frame.shape) < 0.4)
    hidden = np.ones(frame.shape, bool)
    filled = true.fillna({"number": 0.0, "level": "a"})
    assert two_sample_auc(true, filled, hidden, n_splits=3, random_state=1) == 0.5


def test_two_sample_auc_reads_only_rows_with_hidden_cells(rng):
    X = rng.standard_normal((80, 2))
    imputed = X + rng.standard_normal((80, 2))
    hidden = np.zeros((80, 2), dtype=bool)
    hidden[:40, 0] = True
    expected = two_sample_auc(X, imputed, hidden, n_splits=2, random_state=3)
    X[40:], imputed[40:] = 0.0, np.nan
    result = two_sample_auc(X, imputed, hidden, n_splits=2, random_state=3)
    assert result == expected


# Errors name the column and the remedy


@pytest.mark.parametrize(
    "imputed, hidden, columns, error, message",
    [
        (TRUE.iloc[:1], ALL, None, ValueError, r"X_imputed must .* got \(1, 3\)"),
        (TRUE, ~ALL, None, ValueError, "hidden must mark .*'grade'.*, got none; hide"),
        (TRUE, ALL[:1], None, ValueError, "hidden must have the shape"),
        (TRUE, ALL.astype(int), None, TypeError, "hidden must be boolean"),
        (
            TRUE,
            ALL,
            ["town"],
            ValueError,
            "columns has the key 'town', no column.*'port'",
        ),
        (TRUE, ALL, [3], ValueError, "columns has the key 3, no column"),
        (TRUE, ALL, [], ValueError, "no columns to score .* name or index"),
        (
            mixed(["low", None], ["S", "C"]),
            ALL,
            None,
            ValueError,
            "X_imputed has a missing value .* column 'grade', row 1; impute it",
        ),
        (
            np.array([[0, 1, 0.0], [1, 0, 0.0]]),
            ALL,
            None,
            TypeError,
            "column 'grade' has levels such as 'low' .*0.0.*row 0; pass levels, not",
        ),
    ],
)
def test_errors_of_false_classification_rate(imputed, hidden, columns, error, message):
    with pytest.raises(error, match=message):
        false_classification_rate(TRUE, imputed, hidden, columns=columns)


def test_a_true_level_may_not_be_missing():
    true = mixed(["low", None], ["S", "C"])
    with pytest.raises(ValueError, match="X_true has a missing value .*'grade', row 1"):
        false_classification_rate(true, TRUE, ALL)
    assert false_classification_rate(true, TRUE, only(1)) == 0


def test_arrays_need_the_names_of_their_columns():
    true = [["a", 1], ["b", 2]]
    with pytest.raises(ValueError, match="name or index some in columns"):
        false_classification_rate(true, true, [[True, True]] * 2)
    assert false_classification_rate(true, true, [[True] * 2] * 2, columns=[0]) == 0


HALVES = [[0.5, 0.5]] * 2


@pytest.mark.parametrize("score", OF_PROBABILITIES)
@pytest.mark.parametrize(
    "probabilities, message",
    [
        ({"port": HALVES}, "column 'port' are unknown, .*categories=imputer.categor"),
        ({"town": P["port"]}, "probabilities has the key 'town', no column"),
        ({"port": P["port"][["S"]]}, "'port' must not be .* sum 1, got .* in row 0"),
        ({"port": P["port"] - 0.5}, "'port' must not be negative .* in row 0"),
        ({"port": P["port"] * np.nan}, "'port' must not be negative .* in row 0"),
        ({"port": P["port"].iloc[:1]}, r"'port' must have shape .* got \(1, 2\)"),
        (
            {"port": P["port"].set_axis(["C", "Q"], axis=1)},
            "level 'S' in column 'port'",
        ),
        ({}, "no columns to score"),
        ([], "draws must be a sequence of completed tables"),
        (TRUE, "draws must be a sequence of completed tables"),
        ([TRUE.iloc[:1]], r"draw 0 must have the shape of X_true, \(2, 3\), got"),
    ],
)
def test_errors_of_probabilities(score, probabilities, message):
    has_port = isinstance(probabilities, dict) and "port" in probabilities
    columns = ["port"] if has_port else None
    refused(ValueError, message, score, TRUE, probabilities, ALL, columns=columns)


@pytest.mark.parametrize(
    "score, probabilities, options, message",
    [
        (category_log_loss, P, {"floor": 1}, "floor must lie in .* got 1"),
        (expected_calibration_error, P, {"n_bins": 0}, "n_bins must be a positive int"),
        (brier_score, P, {"n_draws": 1}, "n_draws must be .* 2, got 1; pass None"),
        (brier_score, [TRUE], {}, "at least 2 tables for this score, got 1"),
        (brier_score, GRADE, PORT, "no column 'port'; leave it out of columns"),
        (ranked_probability_score, [TRUE] * 2, PORT, "order .* 'port' is unknown; pa"),
        (brier_score, [TRUE] * 2, LEVELS_OF_PORT, "'S' in column 'port', row 0, .*add"),
        (two_sample_auc, TRUE, {"n_splits": 1}, "n_splits must be an integer of at l"),
        (two_sample_auc, TRUE, {}, "in at least 10 rows, two per fold, got 2"),
    ],
)
def test_errors_of_parameters(score, probabilities, options, message):
    refused(ValueError, message, score, TRUE, probabilities, ALL, **options)


# Labels of columns and rows: those of data frames in another order


def labelled():
    """Return a true table, one with other cells, hidden cells, and probabilities."""
    rng = np.random.default_rng(0)
    true = pd.DataFrame(rng.normal(size=(30, 2)), columns=["b", "a"])
    true.insert(1, "g", rng.choice(["x", "y"], 30))
    true.index = rng.permutation(30)
    imputed = true.assign(a=true["a"] + 1, g="x")
    hidden = pd.DataFrame(True, true.index, true.columns)
    shares = pd.DataFrame({"x": rng.random(30)}, index=true.index)
    return true, imputed, hidden, shares.assign(y=1 - shares["x"])


SCORES_OF_TABLES = [
    imputation_rmse,
    false_classification_rate,
    lambda true, imputed, hidden: two_sample_auc(true, imputed, hidden, random_state=0),
    lambda true, imputed, hidden: crps(true, [imputed] * 2, hidden),
    lambda true, imputed, hidden: brier_score(true, [imputed] * 2, hidden),
]


@pytest.mark.parametrize("score", SCORES_OF_TABLES)
def test_tables_in_another_order_are_refused(score):
    true, imputed, hidden, _ = labelled()
    others = [
        ("columns", imputed[sorted(imputed)], hidden),
        ("rows", imputed.sort_index(), hidden),
        ("rows", imputed.sort_index().reset_index(drop=True)[::-1], hidden),
        ("columns", imputed, hidden[sorted(hidden)]),
        ("rows", imputed, hidden.sort_index()),
    ]
    for what, table, mask in others:
        message = f"has the {what} of X_true in another order"
        refused(ValueError, message, score, true, table, mask)


@pytest.mark.parametrize("score", SCORES_OF_TABLES)
def test_other_labels_are_no_order(score):
    true, imputed, hidden, _ = labelled()
    expected = score(true, imputed, hidden)
    assert score(true, imputed.reset_index(drop=True), hidden) == expected
    renamed = imputed.add_prefix("imputer__")
    assert score(true, renamed, hidden.to_numpy()) == expected


def test_probabilities_and_scales_in_another_order_are_refused():
    true, imputed, hidden, shares = labelled()
    category_log_loss(true, {"g": shares}, hidden)
    wrong = {"g": shares.sort_index()}
    message = r"probabilities\['g'\] has the rows of X_true in another order"
    refused(ValueError, message, category_log_loss, true, wrong, hidden)
    numbers = (
        true.drop(columns="g"),
        imputed.drop(columns="g"),
        hidden.drop(columns="g"),
    )
    scale = numbers[0].std()
    imputation_rmse(*numbers, scale=scale)
    message = r"scale has the columns of X_true in another order, \['a', 'b'\]"
    refused(ValueError, message, imputation_rmse, *numbers, scale=scale.sort_index())
    tables = true, imputed, hidden
    refused(ValueError, message, imputation_rmse, *tables, scale=scale.sort_index())
    message = r"scale has the columns of X_true in another order, \['a', 'b', 'g'\]"
    scale = pd.Series(1.0, index=sorted(true))
    refused(ValueError, message, imputation_rmse, *tables, scale=scale)
    message = r"Y has the columns of X in another order, \['a', 'b'\]"
    refused(ValueError, message, energy_distance, numbers[0], numbers[1][["a", "b"]])
