"""Examples of textbooks on missing data, by R and by skvnce.

    python benchmarks/replications.py [--results FILE] [--output FILE]
        [--repetitions 20] [--parts employee ratio ...] [--only-report]

Van Buuren, Flexible Imputation of Missing Data (2nd edition, 2018); Little and Rubin,
Statistical Analysis with Missing Data; Enders, Applied Missing Data Analysis (2010).
Tables are those of R's packages mice and MASS; `_replications.R` writes them and does
what the books do. Answers that the file of results has are not computed again, so that
the parts can be run one after the other.
"""

import atexit
import subprocess
import warnings
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from _report import Texts, by, grid, mean, specs, table
from _runner import main_of

from skvnce import ConstrainedImputer, GaussianImputer, MixtureImputer
from skvnce.longitudinal import to_wide
from skvnce.pooling import fit_each, pool, pool_models, wald_test

TEXTS, SPECS = Texts("replications", globals()), specs("replications")

DRAWS = 100
OF_BOYS = 30  # draws of boys: nine columns, two of them of ordered stages
UNBOUNDED = {"min_value": -np.inf, "max_value": np.inf}
#: A normal distribution of numbers by maximum likelihood, as nearly as possible.
PLAIN = {"marginals": "normal", "shrinkage": 1e-6, "tol": 1e-8, "max_iter": 20_000}
RESULTS = "benchmarks/results/replications.jsonl"
RATIO = "hc ~ age + hgt + wgt + whr"


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


_PARTS = employee, nhanes, airquality, boys, cement, growth, disaster
OURS = {part.__name__: part for part in _PARTS}


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


def constrained(imputer, **options):
    """Make an imputer that keeps the ratio."""
    rule = {"whr": (lambda wgt, hgt: 100 * wgt / hgt, ["wgt", "hgt"])}
    return ConstrainedImputer(imputer, derived=rule, **options)


#: Whether the ratio is in the table, and the imputer.
RATIO_WAYS = {
    "impute, then transform": (False, GaussianImputer),
    "just another variable": (True, GaussianImputer),
    "ConstrainedImputer": (True, partial(constrained, GaussianImputer())),
    "MixtureImputer, then transform": (False, MixtureImputer),
    "ConstrainedImputer(MixtureImputer())": (
        True,
        partial(constrained, MixtureImputer()),
    ),
}


def hidden(full, seed):
    """Hide a quarter of the heights and a quarter of the weights: both tables."""
    rng, part = np.random.default_rng(seed), full.copy()
    for name in ("wgt", "hgt"):
        part[name] = part[name].mask(rng.random(len(part)) < 0.25)
    return full, part


def ratio(way, masked, seed, n_draws=5):
    """Return bias of the coefficient, whether covered, and length of the interval."""
    (full, part), (inside, make) = masked, RATIO_WAYS[way]
    rows = with_ratio(part) if inside else part
    imputer = make(random_state=seed).set_output(transform="pandas").fit(rows)
    tables = imputer.sample(rows, n_draws, random_state=seed)
    tables = tables if inside else [with_ratio(one) for one in tables]
    truth = smf.ols(RATIO, with_ratio(full)).fit().params["whr"]
    found = pool_models(fit_each(lambda one: smf.ols(RATIO, one).fit(), tables))
    found = found.summary().loc["whr"]
    return {
        "bias": float(found["coef"] - truth),
        "covered": bool(found["low"] < truth < found["high"]),
        "width": float(found["high"] - found["low"]),
    }


@cache
def folder():
    """Return a folder with the tables that R writes; it is kept until the end."""
    directory = TemporaryDirectory()
    atexit.register(directory.cleanup)
    run_r(Path(directory.name), "tables")
    return Path(directory.name)


def cells(options):
    """List the parts by both tools, and the repetitions of the ratio."""
    yield {"part": "versions"}
    for part, tool in product(OURS, ("R", "skvnce")):
        if part in options.parts:
            yield {"part": part, "tool": tool}
    if "ratio" in options.parts:
        for way, seed in product(RATIO_WAYS, range(options.repetitions)):
            yield {"part": "ratio", "way": way, "seed": seed}


def measured(key, options):
    """Return the answers of a part, or of a repetition."""
    part = key["part"]
    if part == "versions":
        lines = (folder() / "versions.txt").read_text().split("\n")
        return {"text": ", ".join(filter(None, lines))}
    if part == "ratio":
        full = pd.read_csv(folder() / "boys_complete.csv")
        return ratio(key["way"], hidden(full, key["seed"]), key["seed"])
    by_tool = by_r(folder(), part) if key["tool"] == "R" else OURS[part](folder())
    return [{k: v for k, v in one.items() if v == v} for one in by_tool]  # not NaN


def part_table(results, part):
    """Write the table of a part: terms by ways, estimates with standard errors."""

    def cell(term, way):
        record = results.find(part=part, tool=way[0], way=way[1], term=term)
        if record is None:
            return ""
        error = f" ({record['se']:.3f})" if "se" in record else ""
        return f"{record['coef']:.3f}{error}"

    records = results.of(part=part)
    ways = {f"{tool}: {way}": (tool, way) for tool, way in by(records, "tool", "way")}
    terms = list(dict.fromkeys(record["term"] for record in records))
    return grid("", terms, ways, cell)


def ratio_table(results):
    """Write the table of the ratio."""
    rows = []
    for way in RATIO_WAYS:
        if found := results.of(part="ratio", way=way):
            rmse = (
                mean([{"square": one["bias"] ** 2} for one in found], "square") ** 0.5
            )
            numbers = (mean(found, score) for score in ("bias", "covered", "width"))
            rows.append([f"skvnce: {way}", *numbers, rmse, len(found)])
    rows += [[way, *numbers, 200] for way, numbers in SPECS["ratio"].items()]
    formats = ("", "+.2f", ".2f", ".2f", ".2f", "")
    rows = [[format(v, f) for v, f in zip(row, formats, strict=True)] for row in rows]
    return table(["", "bias", "coverage", "width", "RMSE", "repetitions"], rows)


def software(results):
    """Name the versions of R and its packages."""
    return results.find(part="versions")["text"]


def parts(results):
    """Write all parts that were computed."""
    found = []
    for part, title in SPECS["titles"].items():
        if results.has(part=part):
            write = ratio_table if part == "ratio" else partial(part_table, part=part)
            found += [f"## {title}", TEXTS(part), write(results)]
    return found


PARTS = [*SPECS["titles"]]
main = main_of(globals(), repetitions=20, parts=PARTS, results=RESULTS)
