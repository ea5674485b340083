"""What `fit` reports about a table: marks, codes, skipped questions, repeated rows."""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skvnce._columns import Column, encode
from skvnce._fit_table import Table
from skvnce._identifiers import modelled_columns
from skvnce._marks import codes_of_missing, marks_of_missing
from skvnce._row_checks import never_observed, repeated_rows
from skvnce._table_checks import findings, many_levels

N = 300


def table_of(X):
    """Read a frame or an array as `fit` does."""
    columns = modelled_columns(X) if isinstance(X, pd.DataFrame) else None
    cells = np.asarray(X, dtype=float) if columns is None else encode(X, columns)
    names = getattr(X, "columns", range(X.shape[1]))
    return Table.of(cells, columns, [repr(name) for name in names])


def frame(rng, **columns):
    return pd.DataFrame({"x": rng.normal(size=N), **columns})


def mixed(rng, levels):
    return rng.choice(levels, N)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    "mark", ["nan", "NaN", "NA", "N/A", "?", "", " ", "-", "null", "<NA>", "None", "."]
)
def test_marks_of_missing_values_are_levels_to_warn_of(rng, mark):
    X = frame(rng, city=[*mixed(rng, ["Rome", "Oslo"])[:-7], *[mark] * 7])
    [message] = marks_of_missing(table_of(X))
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
        ["0", "1"],
    ],
)
def test_answers_are_no_marks(rng, levels):
    assert not marks_of_missing(table_of(frame(rng, a=mixed(rng, levels))))


@pytest.mark.parametrize("n_values", [20, 10**6])
@pytest.mark.parametrize("mark", ["?", "refused"])
def test_numbers_as_text_but_for_a_mark(rng, n_values, mark):
    numbers = rng.integers(0, n_values, N).astype(str)
    X = frame(rng, dose=np.where(np.arange(N) < 9, mark, numbers))
    [message] = marks_of_missing(table_of(X))
    assert f"'dose' has {mark!r}" in message
    assert "pandas.to_numeric" in message or "pd.to_numeric" in message
    is_passed = n_values > N  # the column is not in the model
    assert ("The model takes them as values" in message) != is_passed
    assert not marks_of_missing(table_of(frame(rng, dose=numbers)))


@pytest.mark.parametrize("code", [-999, -99, 999, 9999, -1e30, -32768, -9999])
@pytest.mark.parametrize("as_frame", [True, False])
def test_codes_far_outside_are_numbers_to_warn_of(rng, code, as_frame):
    X = rng.normal(size=(N, 2))
    X[:9, 1] = code
    X = pd.DataFrame(X, columns=["a", "b"]) if as_frame else X.astype(np.float32)
    [message] = codes_of_missing(table_of(X))
    assert f"{'b' if as_frame else 1!r} has {code:g} in 9 cells" in message
    assert "np.nan" in message


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_do_not_overflow(rng, dtype):
    X = rng.normal(size=(N, 3)).astype(dtype)
    X[0], X[1] = np.finfo(dtype).max, np.finfo(dtype).min
    X[rng.random(X.shape) < 0.1] = np.nan
    assert not findings(table_of(X))


def test_codes_of_grades(rng):
    X = frame(rng, grade=rng.integers(1, 5, N))
    assert not codes_of_missing(table_of(X))
    X.loc[:9, "grade"] = -9
    [message] = codes_of_missing(table_of(X))
    assert "'grade' has -9 in 10 cells, the others are 1 to 4" in message


@pytest.mark.parametrize(
    "cells",
    [
        np.r_[np.full(9, 99.0), np.arange(N - 9) % 99],  # within the others
        np.r_[-999.0, -999.0, np.linspace(0, 1, N - 2)],  # too few
        np.r_[np.full(9, -998.0), np.linspace(0, 1, N - 9)],  # no code
        np.r_[np.full(9, 99.0), np.linspace(0, 40, N - 9)],  # not far
        np.r_[np.full(9, 99.0), np.zeros(N - 9)],  # two levels
        np.full(N, -999.0),
        np.full(N, np.nan),
    ],
)
def test_other_numbers_are_no_codes(cells):
    assert not codes_of_missing(table_of(cells[:, None]))


def test_a_skipped_question_is_found(rng):
    smoker = mixed(rng, ["no", "yes"])
    X = frame(rng, smoker=smoker, cigarettes=rng.normal(size=N)).mask(
        rng.random((N, 3)) < 0.1
    )
    assert not never_observed(table_of(X))
    X.loc[smoker == "no", "cigarettes"] = np.nan
    [message] = never_observed(table_of(X))
    n = (X["smoker"] == "no").sum()
    assert f"'cigarettes' where 'smoker' is 'no' ({n} rows)" in message
    assert "where=" in message


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_rarely_observed_columns_skip_nothing(seed, share):
    # a report has probability .001, so that 7 in 100 tables have one of 1e-14
    found = 0
    for one in range(100):
        rng = np.random.default_rng([seed, one])
        X = frame(rng, g=mixed(rng, list("abcdefgh")), k=rng.integers(0, 9, N))
        X.loc[rng.random(N) < share, "x"] = np.nan
        found += len(never_observed(table_of(X)))
    assert found < 7


def test_levels_of_few_rows_skip_nothing(rng):
    level = np.where(np.arange(N) < 19, "rare", "often")
    X = frame(rng, level=level)
    X.loc[level == "rare", "x"] = np.nan
    assert not never_observed(table_of(X))


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
    [message] = repeated_rows(table_of(make(subjects(rng))))
    assert "'y' by 'subject'" in message
    assert "'z'" not in message
    assert "random effects" in message
    shuffled = make(subjects(rng)).sample(frac=1, random_state=0)
    assert repeated_rows(table_of(shuffled))


@pytest.mark.parametrize("make", [as_names, lambda X: X])
def test_levels_that_explain_nothing_are_no_subjects(seed, make):
    # a report has probability .001 at most, as above; heavy tails do not matter
    found = 0
    for one in range(100):
        rng = np.random.default_rng([seed, one])
        X = make(subjects(rng, spread=0.0))
        X[["y", "z"]] = np.exp(2 * X[["y", "z"]])
        found += len(repeated_rows(table_of(X)))
    assert found < 7


def test_a_smooth_function_of_a_number_is_no_group(rng):
    age = rng.integers(20, 80, 400)
    y = 2 * np.sin(age / 10) + 0.3 * rng.normal(size=400)
    y[rng.random(400) < 0.3] = np.nan
    X = pd.DataFrame({"age": age, "y": y})
    assert not repeated_rows(table_of(X))
    assert repeated_rows(table_of(X.assign(age="a" + X["age"].astype(str))))


def test_many_rows_of_a_level_are_no_repeated_rows(rng):
    X = as_names(subjects(rng, n_subjects=20, n_visits=40))
    assert not repeated_rows(table_of(X))
    complete = as_names(subjects(rng)).dropna()
    assert not repeated_rows(table_of(complete))  # nothing to impute


def test_columns_that_are_passed_through_are_named():
    X = pd.DataFrame({"x": np.arange(50.0), "id": [f"p{k}" for k in range(50)]})
    table = table_of(X)
    [message] = many_levels(table.columns, table.n_observed, table.names)
    assert "'id' (50 in 50 cells)" in message
    assert "stay missing" in message
    asked = [table.columns[0], Column("passthrough", dtype="level")]
    assert not many_levels(asked, table.n_observed, table.names)


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
        names = table.columns, table.n_observed, table.names
        messages = many_levels(*names) + findings(table)
        expected = REPORTED.get(path.name.partition(".")[0], [])
        assert len(messages) == len(expected), path.name
        for message, part in zip(messages, expected, strict=True):
            assert part in message
