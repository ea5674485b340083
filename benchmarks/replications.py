"""Examples of textbooks on missing data, by R and by skvnce.

    python benchmarks/replications.py [--results FILE] [--output FILE]
        [--repetitions 20] [--parts employee ratio ...] [--only-report]

Van Buuren, Flexible Imputation of Missing Data (2nd edition, 2018); Little and Rubin,
Statistical Analysis with Missing Data; Enders, Applied Missing Data Analysis (2010).
Tables are those of R's packages mice and MASS; `_replications.R` writes them and does
what the books do. Answers that the file of results has are not computed again, so that
the parts can be run one after the other.
"""

import subprocess
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from _report import Results, Texts, made_by, publish, table
from _runner import options_of

from skvnce import ConstrainedImputer, GaussianImputer, MixtureImputer
from skvnce.longitudinal import to_wide
from skvnce.pooling import fit_each, pool, pool_models, wald_test

TEXTS = Texts("replications", globals())

DRAWS = 100
OF_BOYS = 30  # draws of boys: nine columns, two of them of ordered stages
UNBOUNDED = {"min_value": -np.inf, "max_value": np.inf}
#: A normal distribution of numbers by maximum likelihood, as nearly as possible.
PLAIN = {"marginals": "normal", "shrinkage": 1e-6, "tol": 1e-8, "max_iter": 20_000}
RESULTS = "benchmarks/results/replications.jsonl"
RATIO = "hc ~ age + hgt + wgt + whr"
#: Table of section 6.4.1 of van Buuren (2018): bias, coverage, width, RMSE.
RATIO_BOOK = {
    "book: impute, then transform": (-0.28, 0.09, 0.322, 0.289),
    "book: just another variable": (-0.90, 0.00, 0.182, 0.897),
    "book: passive imputation": (-0.28, 0.06, 0.328, 0.293),
    "book: smcfcs": (-0.03, 0.90, 0.334, 0.094),
    "book: complete rows": (0.01, 0.90, 0.307, 0.094),
}


def draws_of(df, n_draws=DRAWS, shift=None, **options):
    """Fit a GaussianImputer and draw tables."""
    options = {"random_state": 0, "n_parameter_draws": n_draws} | options
    imputer = GaussianImputer(**options).set_output(transform="pandas").fit(df)
    return imputer.sample(df, n_draws, random_state=0, shift=shift)


def answers(way, tables, formula, terms):
    """Pool a regression; terms are named as in `terms`, a dict."""
    results = fit_each(lambda one: smf.ols(formula, one).fit(), tables)
    found = pool_models(results).summary()
    return [
        {"way": way, "term": name} | found.loc[term, ["coef", "se", "df"]].to_dict()
        for term, name in terms.items()
    ]


def untied(df, columns):
    """Add noise of a thousandth, so that no value of a column is repeated.

    Columns of few repeated whole numbers would have levels.
    """
    noise = np.random.default_rng(0).normal(0, 1e-3, (len(df), len(columns)))
    return df.assign(**(df[columns] + noise))


def employee(folder):
    """Job performance of 20 applicants, of whom ten were hired (Enders)."""
    df = pd.read_csv(folder / "employee.csv")
    ways = {
        "default": (df, {}),
        "normal, ties broken": (untied(df, list(df)), PLAIN | UNBOUNDED),
    }
    found = []
    for way, (rows, options) in ways.items():
        tables = draws_of(rows, **options)
        lowered = draws_of(rows, shift={"jobperf": -0.5}, **options)
        mean, slopes = "jobperf ~ 1", "jobperf ~ IQ + wbeing"
        found += answers(way, tables, mean, {"Intercept": "mean of jobperf"})
        name = {"Intercept": "mean of jobperf, lowered"}
        found += answers(way, lowered, mean, name)
        found += answers(way, tables, slopes, {"IQ": "IQ", "wbeing": "wbeing"})
    return found


def nhanes(folder):
    """Cholesterol, age and body mass index of 25 people (van Buuren, chapter 5)."""
    df = pd.read_csv(folder / "nhanes2.csv")
    formula = "chl ~ age + bmi"
    ages = {"age[T.40-59]": "age40-59", "age[T.60-99]": "age60-99", "bmi": "bmi"}
    found = answers("default", draws_of(df), formula, ages)
    numbers = pd.read_csv(folder / "nhanes.csv")
    plain = PLAIN | UNBOUNDED
    plain["categorical_features"] = dict.fromkeys(numbers.columns, "numeric")
    tables = draws_of(untied(numbers, ["bmi", "chl"]), **plain)
    names = {"age": "age 1, 2, 3", "bmi": "bmi (age 1, 2, 3)"}
    return found + answers("normal, ties broken", tables, formula, names)


def airquality(folder):
    """Ozone in New York (van Buuren, chapter 1)."""
    df = pd.read_csv(folder / "airquality.csv").rename(columns={"Solar.R": "Solar"})
    formula = "Ozone ~ Wind + Temp + Solar"
    terms = {"Wind": "Wind", "Temp": "Temp", "Solar": "Solar.R"}
    return answers("default", draws_of(df), formula, terms)


def cement(folder):
    """Return the maximum of the likelihood of five columns (Little and Rubin)."""
    df = pd.read_csv(folder / "cement.csv")
    found = []
    for way, options in {"default": {}, "shrinkage of 1e-6": PLAIN}.items():
        imputer = GaussianImputer(random_state=0, **options).fit(df)
        for kind, values in (
            ("mean", imputer.mean_),
            ("variance", np.diag(imputer.covariance_)),
        ):
            found += [
                {"way": way, "term": f"{kind} of {name}", "coef": float(value)}
                for name, value in zip(df, values, strict=True)
            ]
    return found


def growth(folder):
    """Distances of 27 children at four ages (Little and Rubin)."""
    wide = pd.read_csv(folder / "growth.csv")
    rows = wide.melt(["id", "sex"], var_name="age", value_name="d")
    rows["age"] = rows["age"].str[1:].astype(float) - 11
    table = to_wide(rows, groups="id", time="age")
    by_child = [table.to_long(one) for one in draws_of(table.table)]
    numeric = {"age": "numeric"}
    effects = draws_of(rows, groups={"id": ["age"]}, categorical_features=numeric)
    terms = {"sex[T.M]": "sexM", "age": "age", "sex[T.M]:age": "sexM:age"}
    return [
        {"way": way, "term": name} | found.loc[term, ["coef", "se", "df"]].to_dict()
        for way, tables in (("wide table", by_child), ("groups=", effects))
        for found in [pool_models(fit_each(random_intercept, tables)).summary()]
        for term, name in terms.items()
    ]


def random_intercept(rows):
    """Fit the regression of the distances, with an intercept for each child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance at its bound
        return smf.mixedlm("d ~ sex * age", rows, groups=rows["id"]).fit()


def disaster(folder):
    """Symptoms of 52 children after treatment, three times (van Buuren, chapter 11)."""
    tables = draws_of(pd.read_csv(folder / "disaster.csv"))
    tables = [one.assign(treated=(one["trt"] == "C").astype(float)) for one in tables]
    found = []
    for time in (1, 2, 3):
        name = {"treated": f"CBT - EMDR, T {time}"}
        found += answers("default", tables, f"yp{time} ~ treated", name)
    return found


def puberty(folder):
    """Return the table of boys of eight years and more, with ordered stages."""
    df = pd.read_csv(folder / "puberty.csv")
    for name in ("gen", "phb"):
        df[name] = pd.Categorical(df[name], sorted(df[name].dropna().unique()), True)
    return df


def tested(way, pooled, start, name):
    """Test all coefficients whose names begin with a letter sequence."""
    terms = [term for term in pooled.names if term.startswith(start)]
    test = wald_test(pooled, terms)
    return {"way": way, "term": name, "coef": test.p_value, "se": test.statistic}


HYPOTHESES = {
    "height": ("tv ~ age + gen + reg + phb + hgt", "hgt", "height, given the others"),
    "hair": ("tv ~ age + gen + reg + phb", "phb", "pubic hair, given the others"),
}


def boys(folder):
    """Tests of predictors of testicular volume (van Buuren, section 5.4)."""
    tables = draws_of(puberty(folder), n_draws=OF_BOYS)
    found = []
    for formula, start, name in HYPOTHESES.values():
        results = fit_each(lambda one, f=formula: smf.ols(f, one).fit(), tables)
        found.append(tested("default", pool_models(results), start, name))
    return found


def boys_by_r(folder):
    """Test what R has drawn and fitted, by the same rule (D1)."""
    found = []
    for part, (_, start, name) in HYPOTHESES.items():
        rows = pd.read_csv(folder / f"{part}_answers.csv")
        terms = rows["term"].unique().tolist()
        shape = rows["draw"].nunique(), len(terms)
        estimates = rows["estimate"].to_numpy().reshape(shape)
        covariances = rows[terms].to_numpy().reshape(*shape, len(terms))
        pooled = pool(estimates, covariances, float(rows["dof"].iloc[0]), terms)
        found.append(tested("mice", pooled, start, name))
    return found


OURS = {
    "employee": employee,
    "nhanes": nhanes,
    "airquality": airquality,
    "boys": boys,
    "cement": cement,
    "growth": growth,
    "disaster": disaster,
}


def run_r(folder, part):
    """Run a part of the script of R in a folder."""
    script = Path(__file__).with_name("_replications.R")
    draws = str(OF_BOYS if part == "boys" else DRAWS)
    subprocess.run(["Rscript", script, folder, part, draws], check=True)


def by_r(folder, part):
    """Return the answers of R."""
    run_r(folder, part)
    if part == "boys":
        return boys_by_r(folder)
    rows = pd.read_csv(folder / f"{part}_answers.csv").rename(
        columns={"estimate": "coef"}
    )
    return rows.to_dict("records")


def with_ratio(df):
    """Add weight by height, in kg/m."""
    return df.assign(whr=100 * df["wgt"] / df["hgt"])


_RULE = {"whr": (lambda wgt, hgt: 100 * wgt / hgt, ["wgt", "hgt"])}
#: Whether the ratio is in the table, and the imputer.
RATIO_WAYS = {
    "impute, then transform": (False, GaussianImputer),
    "just another variable": (True, GaussianImputer),
    "ConstrainedImputer": (
        True,
        lambda **options: ConstrainedImputer(
            GaussianImputer(), derived=_RULE, **options
        ),
    ),
    "MixtureImputer, then transform": (False, MixtureImputer),
    "ConstrainedImputer(MixtureImputer())": (
        True,
        lambda **options: ConstrainedImputer(
            MixtureImputer(), derived=_RULE, **options
        ),
    ),
}


class Masked(NamedTuple):
    """A table of boys and what of it is known."""

    full: pd.DataFrame
    part: pd.DataFrame


def hidden(full, seed):
    """Hide a quarter of the heights and a quarter of the weights, at random."""
    rng, part = np.random.default_rng(seed), full.copy()
    for name in ("wgt", "hgt"):
        part[name] = part[name].mask(rng.random(len(part)) < 0.25)
    return Masked(full, part)


def ratio(way, masked, seed, n_draws=5):
    """Return bias of the coefficient, whether covered, and length of the interval."""
    inside, make = RATIO_WAYS[way]
    rows = with_ratio(masked.part) if inside else masked.part
    imputer = make(random_state=seed).set_output(transform="pandas").fit(rows)
    tables = imputer.sample(rows, n_draws, random_state=seed)
    tables = tables if inside else [with_ratio(one) for one in tables]
    truth = smf.ols(RATIO, with_ratio(masked.full)).fit().params["whr"]
    found = pool_models(fit_each(lambda one: smf.ols(RATIO, one).fit(), tables))
    found = found.summary().loc["whr"]
    return {
        "bias": float(found["coef"] - truth),
        "covered": bool(found["low"] < truth < found["high"]),
        "width": float(found["high"] - found["low"]),
    }


def compute(options, results):
    """Add the answers that are missing."""
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        run_r(folder, "tables")
        if not results.has(part="versions"):
            text = (folder / "versions.txt").read_text().split("\n")
            results.add({"part": "versions", "text": ", ".join(filter(None, text))})
        for part, function in OURS.items():
            if part in options.parts:
                for tool, run in (
                    ("R", partial(by_r, part=part)),
                    ("skvnce", function),
                ):
                    if not results.has(part=part, tool=tool):
                        for one in run(folder):
                            results.add({"part": part, "tool": tool} | clean(one))
        if "ratio" in options.parts:
            full = pd.read_csv(folder / "boys_complete.csv")
            for way in RATIO_WAYS:
                for seed in range(options.repetitions):
                    key = {"part": "ratio", "way": way, "seed": seed}
                    if not results.has(**key):
                        results.add(key | ratio(way, hidden(full, seed), seed))


def clean(record):
    """Leave out what is NaN."""
    return {name: value for name, value in record.items() if value == value}


TITLES = {
    "employee": "Enders: job performance of 20 applicants",
    "nhanes": "Van Buuren, chapter 5: cholesterol of 25 people",
    "airquality": "Van Buuren, chapter 1: ozone in New York",
    "boys": "Van Buuren, section 5.4: which predictors of testicular volume?",
    "cement": "Little and Rubin: five columns, three of them incomplete",
    "growth": "Little and Rubin: growth of 27 children",
    "disaster": "Van Buuren, section 11.2: children after a disaster",
    "ratio": "Van Buuren, section 6.4: a ratio of two incomplete columns",
}
NOTES = {
    "employee": TEXTS("Job performance is known"),
    "nhanes": TEXTS("Coefficients of chl ~ age"),
    "airquality": "Coefficients of `Ozone ~ Wind + Temp + Solar.R`.",
    "boys": TEXTS("p-values (and F) of D1"),
    "cement": TEXTS("Hald's 13 rows: x1 and"),
    "growth": TEXTS("Coefficients of d ~ sex"),
    "disaster": "Differences of the parents' PTSD-RI score; eight of the 65 columns.",
    "ratio": TEXTS("Head circumference of 681"),
}


def cell(record):
    """Write an estimate and its standard error."""
    if record is None:
        return ""
    digits = 3
    text = f"{record['coef']:.{digits}f}"
    return text + (f" ({record['se']:.{digits}f})" if "se" in record else "")


def part_table(results, part):
    """Write the table of a part: terms by ways."""
    records = results.of(part=part)
    ways = list(dict.fromkeys((one["tool"], one["way"]) for one in records))
    terms = list(dict.fromkeys(one["term"] for one in records))
    rows = [
        [
            term,
            *(cell(results.find(part=part, tool=t, way=w, term=term)) for t, w in ways),
        ]
        for term in terms
    ]
    return table(["", *(f"{tool}: {way}" for tool, way in ways)], rows)


def ratio_table(results):
    """Write the table of the ratio."""
    rows = []
    for way in RATIO_WAYS:
        found = pd.DataFrame(results.of(part="ratio", way=way))
        if len(found):
            rmse = np.sqrt((found["bias"] ** 2).mean())
            numbers = (
                found["bias"].mean(),
                found["covered"].mean(),
                found["width"].mean(),
            )
            rows.append([f"skvnce: {way}", *numbers, rmse, len(found)])
    rows += [[way, *numbers, 200] for way, numbers in RATIO_BOOK.items()]
    formats = ("", "+.2f", ".2f", ".2f", ".2f", "")
    rows = [[format(v, f) for v, f in zip(row, formats, strict=True)] for row in rows]
    return table(["", "bias", "coverage", "width", "RMSE", "repetitions"], rows)


def report(results, output):
    """Write the page."""
    versions = results.find(part="versions")["text"]
    parts = [
        "# Examples of textbooks",
        made_by(
            "replications.py",
            f"{versions}. {DRAWS} draws each, unless another number is stated. Cells: "
            "estimate (standard error).",
        ),
    ]
    for part, title in TITLES.items():
        if results.has(part=part):
            body = ratio_table if part == "ratio" else None
            text = body(results) if body else part_table(results, part)
            parts += [f"## {title}", NOTES[part], text]
    publish(parts, output)


def main():
    """Compute what is missing, and report."""
    options = options_of(
        __doc__,
        results=str(RESULTS),
        repetitions=20,
        parts=[*TITLES],
        only_report=False,
    )
    results = Results(options.results)
    if not options.only_report:
        compute(options, results)
    report(results, options.output)


if __name__ == "__main__":
    main()
