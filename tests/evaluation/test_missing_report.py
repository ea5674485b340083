"""The report of a table with missing values: what it finds, and its page."""

import re
import warnings
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cases import quick_gaussian

import skvnce
from skvnce.evaluation import missing_report
from skvnce.exceptions import TableWarning

pytestmark = pytest.mark.usefixtures("short_training")
N = 600
SHORT = partial(skvnce.GaussianImputer, max_iter=20, n_parameter_draws=2)
EVIL = "<script>alert(1)</script>"


def quick_report(table):
    """Report on few rows, whose hidden cells a short chain predicts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skvnce, "GaussianImputer", SHORT)
        return missing_report(table, n_rows=200, random_state=0)


def clean_table():
    """Numbers and levels with cells missing at random: nothing to warn of."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)) + rng.normal(size=(N, 1))
    x[:, 1:][rng.random((N, 2)) < 0.2] = np.nan
    table = pd.DataFrame(x, columns=["a", "b", "c"])
    table["group"] = rng.choice(["x", "y", "z"], N)
    return table


def unclean_table():
    """A finding of each kind."""
    rng = np.random.default_rng(1)
    table = clean_table()
    table.loc[table["a"] > 0.5, "b"] = np.nan  # b depends on a
    table["smoker"] = rng.choice(["no", "yes"], N)
    table["cigarettes"] = rng.normal(12, 3, N)
    table.loc[table["smoker"] == "no", "cigarettes"] = np.nan
    table["income"] = rng.normal(50, 5, N).round(2)
    table.loc[:5, "income"] = -999
    table["size"] = [f"{x:.3f}" for x in rng.normal(size=N).round(1)]
    table["answer"] = rng.choice(["good", "bad", "?"], N)
    table["name"] = [f"person {k}" for k in range(N)]
    table["tail"] = rng.normal(size=N)
    table.loc[0, "tail"] = 1e6
    table["fixed"] = 1.5
    table["void"] = np.nan
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), unit="D")
    table["mixed"] = pd.Series([1, "two"] * (N // 2), dtype=object)
    return table


@pytest.fixture(scope="module")
def clean():
    return quick_report(clean_table())


@pytest.fixture(scope="module")
def unclean():
    return quick_report(unclean_table())


WARNINGS = [
    "cannot read: Column 'mixed' has",
    "Entirely missing: void",
    "Constant where observed: fixed",
    "A few cells of income, tail are so far",
    "Identifiers or free text",
    "usually mark missing values: answer has '?'",
    "Numbers that usually mark missing values: income has -999",
    "Numbers that are text: size",
    "Never observed at a level of another column: cigarettes",
]


@pytest.mark.parametrize("part", WARNINGS)
def test_warnings_are_listed(part, clean, unclean):
    assert sum(part in one for one in unclean.warnings) == 1
    assert not any(part.split(":")[0] in one for one in clean.warnings)


def test_a_clean_table_has_no_findings(clean):
    assert clean.warnings == clean.skips == clean.identifiers == clean.reasons.found
    assert clean.warnings == []
    page = clean.to_html()
    for words in ("None: no check found", "None found.", "None of 2 columns"):
        assert words in page


def indicators(rng, n_levels, n=120):
    """Levels as columns of zeros and ones, each row with one, and a number."""
    cells = np.eye(n_levels, dtype=int)[rng.permutation(n) % n_levels]
    frame = pd.DataFrame(cells, columns=[f"is_{k}" for k in range(n_levels)])
    return frame.assign(x=rng.normal(size=n))


def texts(X, kind):
    """List the relations of a kind."""
    found = quick_report(X).relations.found
    return [one.text for one in found if one.kind == kind]


@pytest.mark.quick
@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "float"])
@pytest.mark.parametrize("together", [True, False])
def test_levels_in_several_columns_are_named(dtype, together, rng):
    frame = indicators(rng, 4)
    yes, other = rng.integers(0, 2, (2, 120))
    frame = frame.assign(yes=yes, no=1 - yes, other=other)
    binary = [name for name in frame if name != "x"]
    order = ["is_0", "yes", "is_1", "x", "other", "is_2", "no", "is_3"]
    frame = frame.astype(dict.fromkeys(binary, dtype))[order]
    holes = rng.random((120, 1 if together else 4)) < 0.2
    frame[binary[:4]] = frame[binary[:4]].mask(np.broadcast_to(holes, (120, 4)))
    frame["x"] = frame["x"].mask(rng.random(120) < 0.2)
    sets = {frozenset(one[:-4].split(" + ")) for one in texts(frame, "one-of")}
    assert sets == {frozenset(["yes", "no"]), frozenset(f"is_{k}" for k in range(4))}


def test_other_columns_of_zeros_and_ones_are_no_levels(rng):
    frame = indicators(rng, 4).mask(rng.random((120, 5)) < 0.1)
    without = [
        frame.drop(columns="is_3"),  # rows without a level
        frame.assign(is_0=rng.integers(0, 2, 120)),
        frame[:14],  # too few rows
        frame[["x"]].assign(a=rng.integers(0, 2, 120), b=rng.integers(0, 2, 120)),
    ]
    for table in without:
        assert texts(table, "one-of") == []


def salaries():
    """Columns that follow from two others, in rows of which a tenth is missing."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"pay": rng.gamma(9, 1000, N).round()})
    table["log_pay"] = np.log(table["pay"])
    table["weeks"] = rng.integers(10, 50, N).astype(float)
    table["total"] = table["pay"] * table["weeks"]
    table["noise"] = rng.normal(size=N)
    holes = rng.random((N, 5)) < 0.1
    holes[[7, 99, 412]] = False
    return table, holes


def test_relations_are_those_of_find_relations():
    table, holes = salaries()
    masked = table.mask(holes)
    found = quick_report(masked)
    relations = found.relations
    assert relations.found == skvnce.find_relations(masked)
    found_texts = [str(one) for one in relations.found]
    assert found_texts == ["log_pay = log(pay)", "total = pay * weeks"]
    assert relations.redundant == {"log_pay": "pay"} and relations.products == ["total"]
    assert relations.typos == [] and relations.n_typos == 0 and not relations.why_not
    assert "2 relations of columns" in repr(found)
    # pay and its logarithm follow from each other or from both others
    pay, log_pay, weeks, total, _ = holes.T
    alone = pay & log_pay & ~weeks & ~total
    expected = (pay ^ log_pay).sum() + 2 * alone.sum()
    expected += (~(pay & log_pay) & (weeks ^ total)).sum()
    assert relations.n_follow == expected
    page = found.to_html()
    for words in (
        "<div>log_pay = log(pay)</div>",
        f"follow from others: {expected}<",
        "Columns that another one determines: <bdi>log_pay by pay</bdi>.",
        "Products and powers: <bdi>total</bdi>.",
    ):
        assert words in page


def test_cells_that_violate_formulas_are_named():
    table, holes = salaries()
    table.loc[412, "log_pay"] = 9.9
    table.loc[99, "pay"] = 5555.0  # which contradicts two formulas
    right = np.log(table["pay"][412]), round(np.exp(table["log_pay"][99]))
    expected = {412: ("log_pay", 9.9, right[0]), 99: ("pay", 5555.0, right[1])}
    report = quick_report(table.mask(holes))
    typos = report.relations.typos
    assert {one.row for one in typos} == {*expected}
    assert len(typos) == report.relations.n_typos == 2
    for one in typos:
        column, value, right = expected[one.row]
        assert (one.column, one.value) == (column, value)
        assert one.expected == pytest.approx(right, rel=1e-9)
    said = [str(one) for one in typos if one.row == 412]
    assert said == [f"row 412: log_pay is 9.9, log(pay) is {expected[412][2]:.4g}"]
    assert said[0] in report.to_html()


@pytest.mark.parametrize("column", ["pay", "log_pay"])
def test_a_gross_typo_is_named(column):
    table, holes = salaries()
    table, right = table[["pay", "log_pay"]].astype(float), table.loc[412, column]
    table.loc[412, column] *= 1e6
    [typo] = quick_report(table).relations.typos
    assert (typo.row, typo.column) == (412, column)
    assert typo.expected == pytest.approx(right, rel=1e-6)


def test_typos_are_told_by_the_digits_that_differ():
    table, holes = salaries()
    right = table.loc[7, "total"]
    table.loc[7, "total"] += 1
    [typo] = quick_report(table.mask(holes)).relations.typos
    assert str(typo) == f"row 7: total is {right + 1:.0f}, pay * weeks is {right:.0f}"


def test_few_typos_are_listed(rng_0):
    x = rng_0.normal(size=(4000, 3))
    x[:, 2] = x[:, 0] + x[:, 1]
    x[:15, 2] += 0.5
    x[20:60, 0] = np.nan
    found = quick_report(x)
    assert found.relations.n_typos == 15
    assert [one.row for one in found.relations.typos] == [*range(10)]
    assert "and 5 more" in found.to_html()


def test_shuffled_columns_have_no_relations():
    table, holes = salaries()
    rng = np.random.default_rng(1)
    table = table.apply(rng.permutation).assign(**indicators(rng, 4, N).iloc[:, :1])
    found = quick_report(table.mask(np.c_[holes, holes[:, :1]]))
    assert found.relations == type(found.relations)([], 0, {}, [], [], 0)
    assert "no column follows exactly" in found.to_html()


def test_wide_tables_are_not_searched(monkeypatch):
    monkeypatch.setattr("skvnce.evaluation._missing_report._WIDEST", 4)
    table, holes = salaries()
    report = quick_report(table.mask(holes))
    assert report.relations.found == []
    assert "more than 4 columns" in report.relations.why_not
    assert "more than 4 columns" in report.to_html()


def test_warnings_are_those_of_fit(unclean):
    table = unclean_table().drop(columns=["mixed"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SHORT(on_misfit="ignore", random_state=0).fit(table)
    warned = [str(one.message) for one in caught if one.category is TableWarning]
    strip = [re.sub(r"column '(\w+)'", r"\1", message) for message in warned]
    assert len(strip) == 5 and set(strip) <= set(unclean.warnings)


@pytest.mark.filterwarnings("error::skvnce.exceptions.TableWarning")
@pytest.mark.parametrize("about", ["rows", "products"])
def test_alike_rows_and_products_are_in_the_report_alone(about, rng_0):
    subject = np.repeat(np.arange(60), 4)
    a, b = 9 + rng_0.normal(size=(2, 240))
    y = rng_0.normal(size=60)[subject] + 0.3 * rng_0.normal(size=240)
    table = pd.DataFrame({"a": a, "b": b, "p": a * b, "y": y})
    if about == "rows":
        table = table[["a", "y"]].assign(subject=[f"s{k}" for k in subject])
    table.loc[::7, ["p"] if "p" in table else ["y"]] = np.nan
    skvnce.TableImputer(n_estimators=0, random_state=0).fit(table)
    report = quick_report(table)
    alike = sum(one.startswith("Rows of the same level") for one in report.warnings)
    assert alike == (about == "rows")
    assert report.relations.products == (["p"] if about == "products" else [])
    quick_gaussian().fit(table)


def test_columns_are_described(unclean):
    found = {one.name: one for one in unclean.columns}
    assert found["a"].kind == "number" and found["day"].kind == "date"
    assert "nominal" in found["group"].kind and found["group"].n_levels == 3
    assert "passed through" in found["name"].kind
    assert "cannot be read" in found["mixed"].kind
    assert found["void"].share_missing == 1 and found["void"].heights == []
    table = unclean_table()
    assert found["b"].n_missing == table["b"].isna().sum()
    assert sum(found["b"].heights) == table["b"].notna().sum()
    assert found["day"].labels[0] == "2024-01-01"
    assert found["name"].examples == ["person 0", "person 1", "person 2"]
    bars = zip(found["group"].labels, found["group"].heights, strict=True)
    assert dict(bars) == table["group"].value_counts().to_dict()


def test_patterns_are_counted(unclean, clean):
    missing = clean_table().isna()
    counts = missing.groupby(list("bc")).size().sort_values(ascending=False)
    np.testing.assert_array_equal(clean.patterns.counts, counts)
    np.testing.assert_array_equal(clean.patterns.missing, [*counts.index])
    assert clean.patterns.columns == ["b", "c"] and unclean.patterns.counts.sum() == N
    assert clean.share_missing == pytest.approx(missing.to_numpy().mean())


def test_what_predicts_missing_cells_is_found(unclean):
    pairs = {(one.name, one.by): one for one in unclean.reasons.found}
    of_numbers, of_levels = pairs["b", "a"], pairs["cigarettes", "smoker"]
    assert "median of a" in of_numbers.text and "smoker = no" in of_levels.text
    assert of_levels.strength > 0.95 and 0.5 < of_numbers.strength < 1
    assert all(one.p_value <= 0.01 for one in pairs.values())
    assert ("c", "a") not in pairs


def test_strengths_are_those_of_other_packages():
    from scipy.stats import chi2_contingency, mannwhitneyu

    table = unclean_table()[["a", "b", "group"]]
    table.loc[(table["group"] == "x") & (table.index % 2 == 0), "b"] = np.nan
    found = quick_report(table).reasons
    pairs = {one.by: one for one in found.found}
    assert found.n_pairs == 2
    gone = table["b"].isna()
    parts = table["a"][gone], table["a"][~gone]
    test = mannwhitneyu(*parts, method="asymptotic", use_continuity=False)
    area = test.statistic / gone.sum() / (~gone).sum()
    assert pairs["a"].strength == pytest.approx(2 * area - 1)
    assert pairs["a"].p_value == pytest.approx(2 * test.pvalue, rel=1e-6)
    test = chi2_contingency(pd.crosstab(table["group"], gone))
    assert pairs["group"].strength == pytest.approx(np.sqrt(test.statistic / N))
    assert pairs["group"].p_value == pytest.approx(2 * test.pvalue, rel=1e-6)


def test_noise_is_no_reason():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 12))
    x[rng.random(x.shape) < 0.2] = np.nan
    assert quick_report(x).reasons.found == []


def test_hidden_cells_are_predicted_if_they_can_be(rng_0):
    x = rng_0.normal(size=1000)
    level = np.where(x > 0.5, "high", np.where(x < -0.5, "low", "mid"))
    table = pd.DataFrame({"x": x, "near": x + 0.2 * rng_0.normal(size=1000)})
    table["noise"], table["level"] = rng_0.normal(size=1000), level
    table[rng_0.random(table.shape) < 0.1] = None
    table["complete"] = 1.0 * np.arange(1000)
    hidden = missing_report(table, random_state=0).hidden
    found = {one.name: one for one in hidden.columns}
    assert [*found] == ["x", "near", "noise", "level"] and hidden.n_rows == 1000
    assert found["near"].gain > 0.8 and found["noise"].gain < 0.1
    assert found["level"].accuracy > found["level"].usual + 0.2
    assert np.isnan(found["level"].coverage)
    # 100 cells, of which 90 % are in their interval: three standard errors
    assert all(found[name].coverage > 0.81 for name in ("x", "near", "noise"))


def test_squares_and_products_are_listed(rng):
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", "dose", "noise"])
    said = "It finds squares and products, and draws them: "
    for square in (0.0, 1.0):
        frame["cost"] = frame.age + square * frame.age**2 + rng.normal(size=400)
        X = frame.mask(rng.random(frame.shape) < 0.1)
        reasons = missing_report(X, random_state=0).recommendation.reasons
        listed = [one for one in reasons if one.startswith(said)]
        named = "age times age for cost" in "".join(listed)
        assert named == (square == 1.0)


def test_names_of_rows_and_skipped_questions_are_listed(unclean):
    assert [one.name for one in unclean.identifiers] == ["name"]
    assert unclean.identifiers[0].n_levels == N
    [skip] = unclean.skips
    assert (skip.names, skip.by, skip.level) == (["cigarettes"], "smoker", "no")


def test_text_that_is_numbers_says_how_to_convert_it(rng_0):
    table = clean_table().assign(bmi=[f"{v:.4f}" for v in rng_0.normal(25, 4, N)])
    table["code"] = [f"{k:05d}" for k in range(N)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = quick_report(table)
    [said] = re.findall(r"Text that is numbers: .*?</p>", found.to_html())
    assert "<bdi>bmi</bdi>" in said and "code</bdi>" not in said
    assert "pandas.to_numeric" in said


def repeated(n, missing_names=False):
    """Visits of n // 5 persons."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(n // 5), 5)
    x = rng.normal(size=(n, 2)) + 2 * rng.normal(size=(n // 5, 2))[who]
    table = pd.DataFrame(x, columns=["u", "v"]).mask(rng.random(x.shape) < 0.2)
    table["person"] = [f"p{k}" for k in who]
    if missing_names:
        table.loc[3, "person"] = None
    return table


def several(n, d):
    x = np.random.default_rng(0).normal(size=(n, d))
    x[::7, 0] = np.nan
    return x


@pytest.mark.parametrize(
    ("table", "imputer", "reason"),
    [
        (several(400, 4), "TableImputer", "400 rows"),
        (several(1500, 4), "TableImputer", "1,500 rows"),
        (several(1500, 50), "TableImputer", "50 columns"),
        (several(100_000, 2), "TableImputer", "100,000 rows"),
        (several(50, 60), "TableImputer", "more columns than rows"),
        (repeated(1500), "GaussianImputer", "same person are alike"),
        (np.ones((400, 2)) * np.arange(400)[:, None], "TableImputer", "new rows"),
    ],
    ids=["few", "more", "wide", "large", "widest", "repeated", "complete"],
)
def test_the_recommendation_follows_the_guide(table, imputer, reason):
    found = quick_report(table).recommendation
    assert found.imputer == imputer and reason in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("df", clean_table()),
        ("df", pl.from_pandas(clean_table())),
        ("df", pa.Table.from_pandas(clean_table())),
        ("X", clean_table()[["a", "b", "c"]].to_numpy()),
        ("X", clean_table().to_numpy(dtype=object)),
        ("df", unclean_table()[["a", "b", "mixed"]]),
        ("df", repeated(150)),
        ("df", repeated(150, missing_names=True)),
        ("df", pl.from_pandas(repeated(150, missing_names=True))),
    ],
    ids=lambda one: type(one).__module__.split(".")[0],
)
@pytest.mark.quick(4)
@pytest.mark.filterwarnings("ignore::skvnce.exceptions.TableWarning")
def test_the_code_fills_the_table(name, table):
    report = quick_report(table)
    names = {name: table}
    exec(report.recommendation.code, names)
    filled, n_lines = names["filled"], report.recommendation.code.count("\n") + 1
    assert len(filled) == len(names[name])
    assert n_lines == (3 if "drop" in report.recommendation.code else 2)
    if isinstance(table, pd.DataFrame | pl.DataFrame):
        assert isinstance(filled, type(table))
    assert not pd.DataFrame(filled).isna().to_numpy().any()


def with_names(n=300):
    """Make rows of n // 3 patients, with numbers of rows; all with missing cells."""
    rng = np.random.default_rng(0)
    table = clean_table()[["a", "b"]].iloc[:n]
    table["patient"] = [f"p{k // 3}" for k in range(n)]
    table["row"] = 1000.0 + rng.permutation(n)
    return table.mask(rng.random(table.shape) < 0.1)


@pytest.mark.parametrize(
    "convert", [pd.DataFrame, pl.from_pandas, pd.DataFrame.to_numpy]
)
def test_the_code_leaves_out_what_names_rows(convert):
    table = convert(with_names())
    report = quick_report(table)
    assert sum("made up" in one for one in report.warnings) == 2
    assert "what seems to name rows" in " ".join(report.recommendation.reasons)
    names = {"X" if isinstance(table, np.ndarray) else "df": table}
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        exec(report.recommendation.code, names)
    filled = pd.DataFrame(np.asarray(names["filled"]))
    assert (filled.isna().sum() == [0, 0, *with_names().isna().sum()[2:]]).all()


def test_all_containers_give_one_report():
    pandas = clean_table()
    pair = pandas, pl.from_pandas(pandas)
    pages = [quick_report(one).to_html() for one in pair]
    assert pages[0] == pages[1].replace("polars", "pandas")
    x = quick_report(pandas[["a", "b", "c"]].to_numpy().tolist())
    assert [one.name for one in x.columns] == ["x0", "x1", "x2"] and x.hidden.columns


class Tags(HTMLParser):
    """All tags, and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_what_comes_from_the_table_is_escaped(rng_0):
    quote = "\"'><img src=x onerror=alert(1)>"
    table = clean_table().rename(columns={"a": EVIL, "b": quote})
    table[quote + "&"] = rng_0.choice([EVIL, quote, "?"], N)
    table.loc[table[quote + "&"] == EVIL, "c"] = np.nan
    table.loc[table[EVIL] > 0, quote] = np.nan
    table["id" + EVIL] = [f"{EVIL} {k}" for k in range(N)]
    table["mixed" + EVIL] = pd.Series([1, EVIL] * (N // 2), dtype=object)
    report = quick_report(table)
    assert report.skips and report.identifiers and len(report.reasons.found) >= 2
    assert len(report.warnings) >= 3
    for page in (report.to_html(), report._repr_html_()):
        found = Tags(page)
        assert not found.tags & {"script", "img", "link", "iframe", "object"}
        assert not found.open
        assert not any(key.startswith("on") for key, _ in found.attributes)
        assert page.count("&lt;script&gt;") >= 8
    names = {value for key, value in found.attributes if key in ("href", "src")}
    assert all(one.startswith("#skvnce-") for one in names)


def test_odd_names_are_written(tmp_path):
    names = pd.Index(["\ud800", "\x00\u202e", "", "\n"], dtype=object)
    table = pd.DataFrame([[1.0, 2.0, np.nan, 4.0]] * 2, columns=names)
    path = missing_report(table).save(tmp_path / "page.html")
    assert "\x00" not in path.read_text("utf-8")


def test_the_report_says_what_was_sampled(unclean):
    page = unclean.to_html()
    assert "200 of 600 rows" in page and "600 of 600 rows" in page
    assert repr(unclean).startswith("<MissingReport of 600 rows and 15 columns")
    assert unclean._repr_html_() in page


@pytest.mark.parametrize(
    "table",
    [
        [[1.0]],
        [[np.nan]],
        pd.DataFrame({"a": [np.nan] * 3}),
        pd.DataFrame({"a": ["x"] * 40, "b": [None] * 40}),
        pd.DataFrame({"a": [f"name {k}" for k in range(50)]}),
        pd.DataFrame({"a": [True, None] * 30}),
        pd.DataFrame({"a": [1, np.inf] * 30, "b": np.arange(60.0)}),
        pd.DataFrame({"a": [[1], [2]] * 30}),
        pd.DataFrame({"a": [1e308, -1e308] * 30, "b": [np.nan, 1.0] * 30}),
        np.arange(60).reshape(30, 2) > 4,
    ],
    ids=range(10),
)
@pytest.mark.filterwarnings("error")
def test_poor_tables_have_a_report(table):
    report = missing_report(table, random_state=0)
    assert not Tags(report.to_html()).open


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (None, TypeError, "X is None"),
        ("table.csv", TypeError, "read_csv"),
        ([1.0, 2.0], ValueError, "table of rows and columns, got 1 dim.*reshape"),
        (pd.Series([1.0]), ValueError, "table of rows and columns, got 1 dim"),
        (np.zeros((2, 2, 2)), ValueError, "got 3 dimensions"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows of equal length"),
        (np.zeros((0, 3)), ValueError, r"at least one row .* got shape \(0, 3\)"),
        (pd.DataFrame(), ValueError, "at least one row and one column"),
        (pd.DataFrame({"a": []}), ValueError, "at least one row and one column"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "2 columns named"),
        (pl.LazyFrame({"a": [1]}), TypeError, "collect"),
    ],
    ids=str,
)
def test_what_is_no_table_is_an_error(table, error, message):
    with pytest.raises(error, match=message):
        missing_report(table)


@pytest.mark.parametrize("value", [0, True, 25.0, "many"])
def test_numbers_are_checked(value):
    with pytest.raises((TypeError, ValueError), match="n_rows must be (an int|finite)"):
        missing_report(clean_table(), n_rows=value)
