"""What a fit reports about a table: marks, codes, repeated rows, names."""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas._libs.parsers import STR_NA_VALUES
from scipy import stats
from statistical import FAILURE, p_share

from skvnce._tables import findings as module
from skvnce._tables.schema import PASSED, Column, Table, encode, read_columns
from skvnce.evaluation import missing_report
from skvnce.exceptions import TableWarning

# What `fit` reports about a table: marks, codes, skipped questions, repeated rows


N = 300


def table_of(X, passed=()):
    """Read a frame or an array as `fit` does."""
    asked = dict.fromkeys(passed, "passthrough") or "from_dtype"
    columns = module.modelled_columns(X, asked) if isinstance(X, pd.DataFrame) else None
    cells = np.asarray(X, dtype=float) if columns is None else encode(X, columns)
    names = getattr(X, "columns", range(X.shape[1]))
    table = Table.of(cells, columns, [repr(name) for name in names])
    return table._replace(passed=module.codes_of_passed(X, columns or ()))


def frame(rng, **columns):
    return pd.DataFrame({"x": rng.normal(size=N), **columns})


def mixed(rng, levels):
    return rng.choice(levels, N)


MARKS = ["nan", "NaN", "NA", "N/A", "?", "", " ", "-", "null", "<NA>", "None", "."]


@pytest.mark.parametrize("mark", sorted({*MARKS, *STR_NA_VALUES, "missing", "(null)"}))
def test_marks_of_missing_values_are_levels_to_warn_of(rng, mark):
    X = frame(rng, city=[*mixed(rng, ["Rome", "Oslo"])[:-7], *[mark] * 7])
    [message] = module.marks_of_missing(table_of(X))
    assert f"'city' has {mark!r} in 7 cells" in message
    assert "df.replace" in message


@pytest.mark.parametrize(
    "levels",
    [
        ["unknown", "yes"],
        ["none", "some"],
        ["missing link", "no"],
        ["+", "-"],  # signs
        ["NA", "DE", "FR"],  # codes of countries
        ["Na", "K", "Ca"],  # sodium
        ["1", "2", "3+"],
        ["1,5", "2,5"],
        ["0", "1"],
    ],
)
def test_answers_are_no_marks(rng, levels):
    assert not module.marks_of_missing(table_of(frame(rng, a=mixed(rng, levels))))


@pytest.mark.parametrize("n_values", [20, 10**6])
@pytest.mark.parametrize("mark", ["?", "refused"])
def test_numbers_as_text_but_for_a_mark(rng, n_values, mark):
    numbers = rng.integers(0, n_values, N).astype(str)
    X = frame(rng, dose=np.where(np.arange(N) < 9, mark, numbers))
    [message] = module.marks_of_missing(table_of(X))
    assert f"'dose' has {mark!r}" in message
    assert "pandas.to_numeric" in message or "pd.to_numeric" in message
    is_passed = n_values > N  # the column is not in the model
    assert ("The model takes them as values" in message) != is_passed
    assert not module.marks_of_missing(table_of(frame(rng, dose=numbers)))


def test_a_number_and_a_letter_is_a_code_among_numbers_as_text(rng):
    numbers = rng.integers(100, 120, N).astype(str)
    X = frame(rng, family=np.where(np.arange(N) < 9, "136A", numbers))
    assert not module.marks_of_missing(table_of(X))
    [message] = module.marks_of_missing(table_of(X.replace("136A", "<136")))
    assert "'family' has '<136'" in message


CODES = [-999, -99, 999, 9999, -1e30, -32768, -9999, -200, -99.9, 99.9, 999.9]


@pytest.mark.parametrize("code", [*CODES, 9.96921e36])
@pytest.mark.parametrize("as_frame", [True, False])
def test_codes_far_outside_are_numbers_to_warn_of(rng, code, as_frame):
    X = rng.normal(size=(N, 2))
    X[:9, 1] = code
    X = pd.DataFrame(X, columns=["a", "b"]) if as_frame else X.astype(np.float32)
    [message] = module.codes_of_missing(table_of(X))
    assert f"{'b' if as_frame else 1!r} has {code:g} in 9 cells" in message
    assert "np.nan" in message


RUNS = [[97, 98, 99], [997, 998, 999], [-999, -998], [-9, -8, -7], [99, 98]]


@pytest.mark.parametrize("codes", RUNS)
@pytest.mark.parametrize("dtype", [int, float, str])
def test_runs_of_codes_are_codes_together(rng, codes, dtype):
    own = rng.integers(0, 1 if min(codes) == -9 else 30, N) + rng.integers(0, 2, N)
    X = frame(rng, c=np.where(rng.random(N) < 0.2, mixed(rng, codes), own))
    X["c"] = X["c"].astype(dtype)
    [message] = module.codes_of_missing(table_of(X))
    listed = ", ".join(f"{code:g}" for code in sorted(codes))
    is_code = X["c"].astype(float).isin(codes)
    least = X["c"].astype(float)[~is_code].min()
    expected = (
        f"'c' has {listed} in {is_code.sum()} cells, the others are {least:g} to "
    )
    assert expected in message


@pytest.mark.parametrize("code", [-200, -9])
def test_codes_are_the_only_negative_numbers(rng, code):
    x = rng.uniform(0, 1000, N)
    x[:9] = code
    assert module.codes_of_missing(table_of(x[:, None]))
    x[9] = code / 2
    assert not module.codes_of_missing(table_of(x[:, None]))


@pytest.mark.parametrize("texts", [["1,5", "2", "12,25"], range(30), ["1.5", "2e3"]])
def test_numbers_as_text_are_reported(rng, texts):
    X = frame(rng, dose=mixed(rng, [str(one) for one in texts]))
    [message] = module.numbers_as_text(table_of(X))
    assert "'dose' ('" in message
    assert "pandas.to_numeric" in message and 'decimal=","' in message
    assert module.findings(table_of(X)) == [message]


@pytest.mark.parametrize(
    "levels",
    [
        range(10),  # classes
        ["01067", "10115", *range(20000, 20020)],  # codes of areas
        ["1.5", "2.5 mg"],
        ["1,5", "a"],
    ],
)
def test_other_levels_are_no_numbers_as_text(rng, levels):
    X = frame(rng, a=mixed(rng, [str(one) for one in levels]))
    assert not module.numbers_as_text(table_of(X))
    ordered = pd.Categorical(mixed(rng, ["1.5", "2.5"]), ordered=True)
    assert not module.numbers_as_text(table_of(frame(rng, a=ordered)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_do_not_overflow(rng, dtype):
    X = rng.normal(size=(N, 3)).astype(dtype)
    X[0], X[1] = np.finfo(dtype).max, np.finfo(dtype).min
    X[rng.random(X.shape) < 0.1] = np.nan
    assert not module.findings(table_of(X))


def test_codes_of_grades(rng):
    X = frame(rng, grade=rng.integers(1, 5, N))
    assert not module.codes_of_missing(table_of(X))
    X.loc[:9, "grade"] = -9
    [message] = module.codes_of_missing(table_of(X))
    assert "'grade' has -9 in 10 cells, the others are 1 to 4" in message


@pytest.mark.parametrize(
    "cells",
    [
        np.r_[np.full(9, 99.0), np.arange(N - 9) % 99],  # within the others
        np.r_[-999.0, -999.0, np.linspace(0, 1, N - 2)],  # too few
        np.r_[np.full(9, -998.0), np.linspace(0, 1, N - 9)],  # no code
        np.r_[np.full(9, 99.0), np.linspace(0, 40, N - 9)],  # not far
        np.r_[np.full(9, 99.0), np.zeros(N - 9)],  # two levels
        np.r_[np.arange(97.0, 100).repeat(N // 4), 0, 0, 1],  # more than others
        np.r_[np.arange(94.0, 100), np.linspace(0, 9, N - 6)],  # a long run
        np.full(N, -999.0),
        np.full(N, np.nan),
    ],
)
def test_other_numbers_are_no_codes(cells):
    assert not module.codes_of_missing(table_of(cells[:, None]))


def test_a_skipped_question_is_found(rng):
    smoker = mixed(rng, ["no", "yes"])
    X = frame(rng, smoker=smoker, cigarettes=rng.normal(size=N)).mask(
        rng.random((N, 3)) < 0.1
    )
    assert not module.never_observed(table_of(X))
    X.loc[smoker == "no", "cigarettes"] = np.nan
    [message] = module.never_observed(table_of(X))
    n = (X["smoker"] == "no").sum()
    assert f"'cigarettes' where 'smoker' is 'no' ({n} rows)" in message
    assert "where=" in message


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_rarely_observed_columns_skip_nothing(seed, share):
    # a report has probability .001, so that 7 in 100 tables have one of 1e-14
    found = 0
    for one in range(100):
        rng = np.random.default_rng([seed, one])
        X = frame(rng, g=mixed(rng, list("abcdefgh")), k=rng.integers(0, 9, N))
        X.loc[rng.random(N) < share, "x"] = np.nan
        found += len(module.never_observed(table_of(X)))
    assert found < 7


def test_levels_of_few_rows_skip_nothing(rng):
    level = np.where(np.arange(N) < 19, "rare", "often")
    X = frame(rng, level=level)
    X.loc[level == "rare", "x"] = np.nan
    assert not module.never_observed(table_of(X))


@pytest.mark.parametrize("n_others", [0, 50])
def test_chance_is_that_of_all_tests_of_a_table(n_others):
    rows = np.arange(N)
    X = pd.DataFrame({"level": np.where(rows < 20, "few", "many")})
    X["x"] = np.where((rows >= 20) & (rows < 120), 1.5, np.nan)
    chance = stats.hypergeom(N, 100, 20).pmf(0)
    assert 0.001 / 102 < chance < 0.001 / 2
    for other in range(n_others):
        X[f"x{other}"] = np.where(rows == 150 + other, np.nan, rows / N)
    assert bool(module.never_observed(table_of(X))) == (n_others == 0)


@pytest.mark.parametrize("row", [28, 33])  # the second one is among them
def test_a_skip_that_is_found_in_some_rows_holds_in_all(rng, row, monkeypatch):
    monkeypatch.setattr(module, "_WORK", 0)  # 1000 rows: each third one
    smoker = np.arange(3000) // 2 % 2
    X = pd.DataFrame({"x": rng.normal(size=3000), "smoker": smoker})
    X["cigarettes"] = np.where(smoker == 1, X["x"], np.nan)
    assert "(1500 rows)" in module.never_observed(table_of(X))[0]
    X.loc[row, "cigarettes"] = 1.0
    assert not module.never_observed(table_of(X))


def subjects(rng, n_subjects=60, n_visits=6, spread=2.0):
    """Make visits of subjects; y has an intra-class correlation, and missing cells."""
    own = spread * rng.normal(size=n_subjects)
    subject = np.repeat(np.arange(n_subjects), n_visits)
    y = own[subject] + rng.normal(size=len(subject))
    z = rng.normal(size=len(subject))
    X = pd.DataFrame({"subject": subject, "y": y, "z": z})
    X[["y", "z"]] = X[["y", "z"]].mask(rng.random((len(X), 2)) < 0.3)
    return X


def as_names(X):
    return X.assign(subject="s" + X["subject"].astype(str))


@pytest.mark.parametrize("make", [as_names, lambda X: X, lambda X: X + [100, 0, 0]])
def test_repeated_rows_of_subjects_are_found(rng, make):
    [message] = module.repeated_rows(table_of(make(subjects(rng))))
    assert "'y' by 'subject'" in message
    assert "'z'" not in message
    assert "random effects" in message
    shuffled = make(subjects(rng)).sample(frac=1, random_state=0)
    assert module.repeated_rows(table_of(shuffled))


@pytest.mark.parametrize("make", [as_names, lambda X: X])
def test_levels_that_explain_nothing_are_no_subjects(seed, make):
    # a report has probability .001 at most, as above; heavy tails do not matter
    found = 0
    for one in range(100):
        X = make(subjects(np.random.default_rng([seed, one]), spread=0.0))
        X[["y", "z"]] = np.exp(2 * X[["y", "z"]])
        found += len(module.repeated_rows(table_of(X)))
    assert found < 7


def test_a_smooth_function_of_a_number_is_no_group(rng):
    """It is reported in 2 % of tables: differences of neighbours are no pure noise."""
    wrong = 0
    for _ in range(20):
        age = rng.integers(20, 80, 400)
        y = 2 * np.sin(age / 10) + 0.3 * rng.normal(size=400)
        y[rng.random(400) < 0.3] = np.nan
        X = pd.DataFrame({"age": age, "y": y})
        found = [
            module.repeated_rows(table_of(X, passed=some)) for some in ([], ["age"])
        ]
        assert bool(found[0]) == bool(found[1])
        wrong += bool(found[0])
        assert module.repeated_rows(table_of(X.assign(age="a" + X["age"].astype(str))))
    assert p_share(wrong, 20, 0.02, "greater") > FAILURE


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_rare_values_of_independent_rows_are_not_alike(seed, share):
    """One rare value alone in its group would have no variance within groups."""
    rng, found = np.random.default_rng(seed), 0
    for _ in range(60):
        names = pd.Series(rng.choice(80, N)).map("L{}".format)
        rare = pd.Series(rng.random(N) < share).map({True: "ill", False: "well"})
        X = pd.DataFrame({"name": names, "rare": rare.mask(rng.random(N) < 0.6)})
        found += bool(module.repeated_rows(table_of(X)))
    assert p_share(found, 60, 1e-3, "greater") > FAILURE


def test_rare_values_of_subjects_are_alike(rng):
    X = as_names(subjects(rng, 100, 6))
    ill = np.repeat(rng.random(100) < 0.15, 6)
    X["y"] = np.where(ill, 1.0, 0.0)
    X.loc[rng.random(len(X)) < 0.2, "y"] = np.nan
    assert module.repeated_rows(table_of(X))


def test_weak_resemblance_does_not_matter(rng):
    """The standard error of a correlation of .1 is .018."""
    table = table_of(as_names(subjects(rng, 300, 10, spread=1 / 3)))
    groups = module.Groups(0, table.cells[:, 0], is_number=False)
    assert groups.alike(table.cells[:, 1]).p < FAILURE
    assert not module.repeated_rows(table)


@pytest.mark.parametrize("is_number", [True, False])
def test_a_number_that_is_much_more_frequent_is_no_subject(rng, is_number):
    X = subjects(rng)
    more = X.iloc[np.zeros(60, dtype=int)].assign(y=rng.normal(size=60))
    X = pd.concat([X, more], ignore_index=True)
    found = module.repeated_rows(table_of(X if is_number else as_names(X)))
    assert bool(found) == (not is_number)


def test_names_are_compared_by_an_analysis_of_variance_of_ranks(rng):
    codes = np.repeat(np.arange(30.0), 1 + np.arange(30) % 4)
    y = np.exp(3 * (codes % 7 + rng.normal(size=len(codes))))
    ranks = stats.rankdata(y)
    parts = [ranks[codes == code] for code in range(30)]
    sizes, n = np.array([len(part) for part in parts]), len(codes)
    squares = [((part - ranks.mean()) ** 2).sum() for part in parts]
    within = sum(part.var() * len(part) for part in parts) / (n - 30)
    between = (sum(squares) - within * (n - 30)) / 29
    size = (n - (sizes**2).sum() / n) / 29  # of Fleiss, Statistical methods, 1.4
    expected = (between - within) / (between + (size - 1) * within)
    alike = module.Groups(0, codes, is_number=False).alike(y)
    assert alike.correlation == pytest.approx(expected)
    assert alike.p == pytest.approx(stats.f_oneway(*parts).pvalue, rel=1e-6)


@pytest.mark.parametrize("sizes", [[6], [2, 10]])
def test_numbers_that_tell_nothing_have_the_level_of_the_test(seed, sizes):
    """Three times the degrees of freedom would reject 9 in 100 of level .01."""
    codes = np.repeat(np.arange(80.0), np.resize(sizes, 80))
    groups, n_rejected = module.Groups(0, codes, is_number=True), 0
    for one in range(300):
        y = np.random.default_rng([seed, one]).normal(size=len(codes))
        n_rejected += groups.alike(y).p < 0.01
    assert p_share(n_rejected, 300, 0.01, "greater") > FAILURE


@pytest.mark.parametrize("n_others", [0, 99])
def test_resemblance_by_chance_is_that_of_all_tests(n_others, rng_0):
    subject = np.repeat(np.arange(40), 3)
    y = 0.9 * rng_0.normal(size=40)[subject] + rng_0.normal(size=120)
    y[0] = np.nan
    p = module.Groups(0, subject, is_number=False).alike(y).p
    assert 0.001 / 100 < p < 0.001
    X = pd.DataFrame({"subject": subject, "y": y}).pipe(as_names)
    for other in range(n_others):
        X[f"x{other}"] = np.where(subject == other % 40, np.nan, np.arange(120) % 3)
    assert bool(module.repeated_rows(table_of(X))) == (n_others == 0)


@pytest.mark.parametrize("make", [as_names, lambda X: X])
def test_some_groups_of_many_rows_are_compared_as_a_whole(rng, make, monkeypatch):
    monkeypatch.setattr(module, "_ROWS", (100, 200))
    X = subjects(rng).sample(frac=1, random_state=0)
    [group] = module._groups(table_of(make(X)))
    counts = np.unique(group.codes[~np.isnan(group.codes)], return_counts=True)[1]
    assert counts.tolist() == [6] * 33


def test_few_columns_are_groups(rng):
    X = as_names(subjects(rng))
    X = X.assign(**{f"name {k}": X["subject"] for k in range(6)})
    [message] = module.repeated_rows(table_of(X))
    assert message.count("'y' by") == 5
    assert "more" not in message


def test_answers_of_subjects_are_alike(rng):
    X = as_names(subjects(rng))
    answer = np.where(X["y"].notna(), np.where(X["y"] > 0, "yes", "no"), None)
    [message] = module.repeated_rows(table_of(X.assign(y=answer)))
    assert "'y' by 'subject'" in message
    answer = np.where(answer == "no", X.index % 3, answer)
    assert not module.repeated_rows(table_of(X.assign(y=answer.astype(str))))


AGE = np.arange(400) % 40 + 20
HOUR = np.arange(600) % 24
BIKES = np.array(  # hired in an hour of working days, with two peaks
    [52, 33, 23, 12, 6, 20, 76, 212, 360, 220, 174, 208, 253, 254, 241, 251, 312]
    + [461, 425, 312, 226, 172, 131, 88]
)
GROUP, YEAR = np.repeat(np.arange(40), 5), 1960 + np.arange(300) % 60
LABELS = np.array([f"label {k}" for k in range(40)])


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "columns",
    [
        {"age": AGE, "x": 0.0},
        {"age": AGE, "group": AGE // 10},
        {"year": YEAR, "decade": YEAR // 10 * 10, "weekday": YEAR % 7},
        {"hour": HOUR, "bikes": BIKES[HOUR]},
        {"code": GROUP, "label": LABELS[GROUP]},
    ],
)
@pytest.mark.parametrize("as_frame", [True, False])
def test_measurements_and_functions_of_numbers_are_no_subjects(seed, columns, as_frame):
    # a report has probability .001 at most: three in 20 tables, 1e-6
    found = 0
    for one in range(20):
        rng = np.random.default_rng([seed, one])
        noise = rng.normal(size=len(next(iter(columns.values()))))
        X = pd.DataFrame(columns).assign(y=rng.permutation(noise))
        for name in {"x", "bikes"} & set(X):
            X[name] += 20 * noise
        X = X.mask(rng.random(X.shape) < 0.2)
        X = X if as_frame else X.select_dtypes("number").to_numpy()
        found += len(module.repeated_rows(table_of(X)))
    assert found < 3


def pairs_of_rows(rng, share):
    """Make 100 subjects of two rows, of whom a share of the names is missing."""
    X = as_names(subjects(rng, n_subjects=100, n_visits=2))
    return X.assign(subject=X["subject"].mask(rng.random(len(X)) < share))


@pytest.mark.parametrize("share", [0.0, 0.05])
@pytest.mark.parametrize("passed", [[], ["subject"]])
def test_pairs_of_rows_are_found_if_names_are_missing(rng, share, passed):
    table = table_of(pairs_of_rows(rng, share), passed)
    assert table.columns[0].kind == ("passthrough" if passed else "nominal")
    assert not module.many_levels(table, table.n_observed)
    [message] = module.repeated_rows(table)
    assert "'y' by 'subject'" in message


@pytest.mark.parametrize("number", [lambda k: k, lambda k: k * 2.0**55 + 10])
def test_numbers_that_are_passed_through_are_subjects(rng, number):
    X = subjects(rng)
    X["subject"] = number(X["subject"]).astype("int64")
    [message] = module.repeated_rows(table_of(X, ["subject"]))
    assert "'y' by 'subject'" in message


def test_free_text_that_is_passed_through_is_no_subject(rng):
    X = as_names(subjects(rng)).assign(other="one two three four five")
    assert module.repeated_rows(table_of(X))
    X["subject"] = X["subject"] + " " + X["other"]
    table = table_of(X)
    assert table.columns[0].kind == "passthrough"
    assert not module.repeated_rows(table)


def test_many_rows_of_a_level_are_no_repeated_rows(rng):
    X = as_names(subjects(rng, n_subjects=20, n_visits=40))
    assert not module.repeated_rows(table_of(X))
    complete = as_names(subjects(rng)).dropna()
    assert not module.repeated_rows(table_of(complete))  # nothing to impute


def test_columns_that_are_passed_through_are_named():
    X = pd.DataFrame({"x": np.arange(50.0), "id": [f"p{k}" for k in range(50)]})
    table = table_of(X)
    [message] = module.many_levels(table, table.n_observed)
    assert "'id' (50 in 50 cells)" in message
    assert "stay missing" in message
    asked = [table.columns[0], Column("passthrough", dtype="level")]
    assert not module.many_levels(table._replace(columns=asked), table.n_observed)


def test_columns_are_counted_in_all_rows():
    names = [f"p{k}" for k in range(50)]
    table = table_of(pd.DataFrame({"x": np.arange(50.0), "id": names}))
    with pytest.warns(TableWarning, match=r"'id' \(50 in 900 cells\)"):
        module.warn_of_table(table, [1000, 900])
    with pytest.warns(TableWarning, match=r"'id' \(50 in 50 cells\)"):
        module.warn_of_table(table)


def patients(n_patients, n_visits, share=0.1):
    """Make rows of patients, a share of whose names is missing."""
    rng = np.random.default_rng(0)
    names = np.repeat([f"P{k}" for k in range(n_patients)], n_visits)
    X = pd.DataFrame({"x": rng.normal(size=len(names)), "pid": names})
    return X.assign(pid=X["pid"].mask(rng.random(len(X)) < share))


def named(X):
    table = table_of(X)
    return module.names_of_groups(table, table.n_observed)


@pytest.mark.parametrize(("n_patients", "n_visits"), [(200, 3), (51, 3), (60, 9)])
def test_names_of_groups_that_would_be_imputed(n_patients, n_visits):
    X = patients(n_patients, n_visits)
    for table in (X, X.astype({"pid": "category"})):
        [message] = named(table)
        assert (
            f"'pid' ({X['pid'].nunique()} in {X['pid'].notna().sum()} cells)" in message
        )
        assert '"passthrough"' in message and "groups=" in message
    missing = missing_report(X, n_rows=50, random_state=0).warnings
    assert any("pid" in one and "made up" in one for one in missing)


def test_other_levels_name_no_groups(rng_0):
    cities = [f"c{k}" for k in np.minimum(rng_0.zipf(1.5, 1000), 400)]
    frequent = pd.DataFrame({"city": cities}).mask(rng_0.random((1000, 1)) < 0.1)
    for X in (
        patients(200, 3, share=0.0),  # none is imputed
        patients(50, 3),  # few levels
        patients(60, 13),  # many cells for each
        patients(300, 1),  # passed through
        frequent.assign(x=0.0),  # some have many cells
    ):
        assert named(X) == []
    assert frequent["city"].nunique() > 50


def test_names_of_groups_are_counted_in_all_rows():
    table = table_of(patients(60, 3))
    assert module.names_of_groups(table, np.array([900, 590]))
    assert not module.names_of_groups(table, np.array([900, 610]))


REPORTED = {  # tables of research, and what is right to report of them
    "air_quality_uci": ["'time'"],  # moments that are text
    "lung_proteomics": ["'protein'"],
    "mammalsleep": ["'species'"],
    "neurips_titles": ["'title'"],
    "nhanes_adults": ["'Testosterone' where 'SurveyYr' is '2009_10'"],
    "parkinsons": ["'name'"],
    "reuters_titles": ["'title'"],
    "sachs_edges": ["'literature20'"],
    "tcga_brca_rnaseq": ["'sample'"],
    "titanic": ["'Cabin'"],
    "uci_power": ["'time'"],
    "zeisel_scrna": ["'cell'"],
}


@pytest.mark.slow
def test_tables_of_research_have_no_false_reports():
    folder = Path(os.environ.get("SKVNCE_DATA", "none"))
    paths = sorted(folder.glob("*/*.csv*"))
    if not paths:
        pytest.skip("SKVNCE_DATA names no folder of tables")
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            table = table_of(pd.read_csv(file))
        messages = module.many_levels(table, table.n_observed) + module.findings(table)
        messages += module.names_of_groups(table, table.n_observed)
        expected = REPORTED.get(path.name.partition(".")[0], [])
        assert len(messages) == len(expected), path.name
        for message, part in zip(messages, expected, strict=True):
            assert part in message


# Which columns of text are identifiers or free text, and are passed through


N_NAMES = 200


def text(n_levels, n=N_NAMES, words=1):
    """Make cells of as many levels, each of some words."""
    return [" ".join([f"level{k % n_levels}"] * words) for k in range(n)]


def kind_of(cells, **options):
    columns = module.modelled_columns(pd.DataFrame({"a": cells}), **options)
    return columns[0].kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (text(N_NAMES), PASSED),
        ([*text(101, 101), *text(20, 99)], PASSED),
        ([*text(100, 100), *text(20, 100)], "nominal"),  # two cells for each level
        (text(30), "nominal"),
        (text(30, words=5), PASSED),
        (text(30, words=4), "nominal"),
        (text(20, words=9), "nominal"),  # answers of a form
        ([*text(29, 29), "a b c d e f g h i"] * 6, "nominal"),  # one is long
        (text(module.FEWEST, module.FEWEST), PASSED),
        (
            text(module.FEWEST - 1, module.FEWEST - 1),
            "nominal",
        ),  # too few cells to know
        (text(8, 10), "nominal"),
        (text(module.FEWEST - 5, module.FEWEST - 5, words=12), PASSED),  # few comments
        (text(3, module.FEWEST - 5, words=12), "nominal"),
        (text(100)[: N_NAMES - 13], "nominal"),  # two rows of subjects, and lost names
        (text(100, words=5)[: N_NAMES - 13], PASSED),
        (
            [*text(N_NAMES // 2, N_NAMES // 2), *["level0"] * 80],
            PASSED,
        ),  # one frequent level
        (pd.Categorical(text(N_NAMES)), PASSED),
        (pd.Categorical(text(N_NAMES), ordered=True), "ordinal"),
    ],
)
def test_names_and_sentences_are_passed_through(cells, kind):
    assert kind_of(cells) == kind


def test_only_observed_cells_count():
    cells = pd.Series(text(40), dtype=object)
    assert kind_of(cells) == "nominal"
    assert kind_of(cells.where(np.arange(N_NAMES) < 60)) == PASSED


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_what_is_asked_for_is_modelled(kind):
    assert kind_of(text(N_NAMES), categorical_features={"a": kind}) == kind
    assert kind_of(text(5), categorical_features={"a": PASSED}) == PASSED
    columns = module.modelled_columns(pd.DataFrame({"a": text(N_NAMES)}), ["a"])
    assert columns[0].kind == "nominal"


def test_numbers_are_never_names():
    X = pd.DataFrame(
        {"i": np.arange(N_NAMES), "x": np.linspace(0, 1, N_NAMES), "s": "a"}
    )
    assert module.modelled_columns(X) == read_columns(X)
    assert module.modelled_columns(X.drop(columns="s")) is None
    assert not any(
        module.is_identifier(column, [N_NAMES]) for column in module.modelled_columns(X)
    )


def test_any_data_type_is_passed_through_if_asked():
    X = pd.DataFrame(
        {
            "x": np.linspace(0, 1, N_NAMES),
            "i": np.arange(N_NAMES),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.arange(N_NAMES), "D"),
        }
    )
    asked = dict.fromkeys(["i", "day"], PASSED)
    expected = ["numeric", PASSED, PASSED]
    assert [one.kind for one in module.modelled_columns(X, asked)] == expected
