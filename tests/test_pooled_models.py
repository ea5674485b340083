"""Pooled models and tests of several coefficients, and recorded numbers of mice."""

import copy
import json
import re
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from errors import refused
from scipy.optimize import minimize
from scipy.stats import binomtest, chi2, gamma
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.tools.sm_exceptions import ModelWarning

from skvnce.pooling import (
    chi2_test,
    fit_each,
    likelihood_ratio_test,
    pool,
    pool_models,
    wald_test,
)

REFERENCE = Path(__file__).parent / "reference"
CASES = json.loads((REFERENCE / "mice_models.json").read_text())["cases"]
COMPLETED = pd.read_csv(REFERENCE / "mice_models.csv")
TABLES = [table.drop(columns=".imp") for _, table in COMPLETED.groupby(".imp")]
FITS = {
    "ols": lambda table, formula: smf.ols(formula, table).fit(),
    "logit": lambda table, formula: smf.logit(formula, table).fit(
        disp=False, tol=1e-12
    ),
    "poisson": lambda table, formula: smf.glm(
        formula, table, family=sm.families.Poisson()
    ).fit(tol=1e-14),
}


def fits(case, which):
    return fit_each(FITS[case["kind"]], TABLES[: case["m"]], formula=case[which])


def name(term):
    """Translate a term of R to one of formulas in Python."""
    if term == "(Intercept)":
        return "Intercept"
    return re.sub("group([bc])", r"group[T.\1]", term)


def only_full(case):
    """Name the coefficients that only the full model has."""
    full, reduced = (fits(case, which)[0].params.index for which in ("full", "reduced"))
    return [term for term in full if term not in set(reduced)]


def by_label(cases):
    return pytest.mark.parametrize(
        "case", cases, ids=lambda case: f"{case['kind']}-{case['reduced']}-{case['m']}"
    )


@by_label(CASES)
def test_pooled_models_of_mice(case):
    pooled = pool_models(fits(case, "full"))
    assert pooled.dof_complete == case["dfcom"] and pooled.n_draws == case["m"]
    frame = pooled.summary(level=0.9).loc[[name(term) for term in case["term"]]]
    ours = {"estimate": "coef", "std_error": "se", "fmi": "missing_information"}
    for column in ("estimate", "std_error", "df", "p", "low", "high", "fmi"):
        values = frame[ours.get(column, column)]
        np.testing.assert_allclose(values, case[column], 1e-8, 1e-8, err_msg=column)
    order = [pooled.names.index(name(term)) for term in case["term"]]
    matrices = {"ubar": pooled.within, "b": pooled.between, "t": pooled.total}
    for key, matrix in matrices.items():
        np.testing.assert_allclose(np.diag(matrix)[order], case[key], rtol=1e-8)
    np.testing.assert_allclose(pooled.relative_increase[order], case["riv"], rtol=1e-8)


def agrees(test, recorded):
    """Compare all numbers of a test with recorded ones."""
    keys = ("statistic", "df1", "df2", "p", "riv")
    expected = [recorded[key] for key in keys]
    np.testing.assert_allclose(np.array(test), expected, rtol=1e-8)


def expansion_exists(case):
    """Say whether the degrees of freedom of Reiter, which mice takes, exist."""
    k = case["D1"]["df1"]
    return k > 1 and k * (case["m"] - 1) > 4


@by_label([case for case in CASES if expansion_exists(case)])
def test_d1_of_mice(case):
    pooled = pool_models(fits(case, "full"))
    agrees(wald_test(pooled, only_full(case)), case["D1"])


@by_label([case for case in CASES if case["D1"]["df1"] > 1])
def test_d1_in_large_samples(case):
    pooled = pool_models(fits(case, "full"), dof_complete=None)
    agrees(wald_test(pooled, only_full(case)), case["D1"] | case["D1_classic"])


@by_label([case for case in CASES if case["D1"]["df1"] == 1])
def test_d1_of_one_coefficient_is_its_t_test(case):
    """mice takes Reiter's degrees of freedom, 4 or none with so few draws."""
    pooled, (term,) = pool_models(fits(case, "full")), only_full(case)
    test, row = wald_test(pooled, [term]), pooled.summary().loc[term]
    assert test.statistic == pytest.approx(case["D1"]["statistic"], rel=1e-8)
    assert test.relative_increase == pytest.approx(case["D1"]["riv"], rel=1e-8)
    assert test.statistic == pytest.approx(row["t"] ** 2)
    assert test.dof_denominator == pytest.approx(row["df"])
    assert test.p_value == pytest.approx(row["p"])


@by_label(
    [case for case in CASES if case["D1"]["df1"] > 1 and not expansion_exists(case)]
)
def test_too_few_draws_for_small_samples(case):
    pooled = pool_models(fits(case, "full"))
    with pytest.warns(UserWarning, match="Reiter's degrees .* Draw more tables"):
        test = wald_test(pooled, only_full(case))
    assert test.dof_denominator == 4
    assert case["D1"]["df2"] in (4, "none")  # of mice


def test_much_missing_for_small_samples():
    """The expansion tends to 4 where its terms grow, and has no value beyond."""
    draws = np.random.default_rng(0).normal(size=(10, 2))
    dof = []
    for dof_complete in (5000, 500, 120, 60, 45, 42):
        pooled = pool(draws, [0.2 * np.eye(2)] * 10, dof_complete)
        dof.append(wald_test(pooled, [0, 1]).dof_denominator)
    assert dof == sorted(dof, reverse=True) and 4 < dof[-1] < dof[0]
    few = pool(draws, [0.2 * np.eye(2)] * 10, 10)
    with pytest.warns(UserWarning, match="dof_complete=10"):
        assert wald_test(few, [0, 1]).dof_denominator == 4


@by_label(CASES)
def test_d2_of_mice(case):
    agrees(chi2_test(case["chi2"], int(case["D2"]["df1"])), case["D2"])


@by_label([case for case in CASES if case["D3"]["riv"] > 0])
def test_d3_of_mice(case):
    test = likelihood_ratio_test(fits(case, "full"), fits(case, "reduced"))
    agrees(test, case["D3"])


@by_label([case for case in CASES if case["D3"]["riv"] <= 0])
def test_d3_with_a_negative_increase(case):
    """mice keeps a negative increase of the variance; ours is zero."""
    test = likelihood_ratio_test(fits(case, "full"), fits(case, "reduced"))
    assert test.relative_increase == 0 and np.isinf(test.dof_denominator)
    ratio = case["D3"]["statistic"] * (1 + case["D3"]["riv"]) * test.dof_numerator
    assert test.statistic == pytest.approx(ratio / test.dof_numerator, rel=1e-8)
    assert test.p_value == pytest.approx(chi2.sf(ratio, test.dof_numerator))


def test_cox_regressions_of_mice():
    """The degrees of freedom are those of the events, not of the rows."""
    recorded = json.loads((REFERENCE / "mice_cox.json").read_text())
    n = len(TABLES[0])
    time, event = np.arange(1, n + 1) / 10, np.resize([1, 1, 0, 1, 0], n)
    results = [
        smf.phreg("time ~ x1 + x2", table.assign(time=time), status=event).fit()
        for table in TABLES
    ]
    pooled = pool_models(results)
    assert pooled.dof_complete == recorded["dfcom"] == event.sum() - 2
    np.testing.assert_allclose(pooled.estimate, recorded["estimate"], rtol=1e-6)
    np.testing.assert_allclose(np.diag(pooled.total), recorded["t"], rtol=1e-6)
    np.testing.assert_allclose(pooled.dof, recorded["df"], rtol=1e-6)


def generalised(formula, family, tables=TABLES):
    """Fit a generalised linear model to each table; y is made positive."""
    tables = [table.assign(y=np.exp(table["y"] / 2)) for table in tables]
    return fit_each(
        lambda table: smf.glm(formula, table, family=family).fit(tol=1e-14), tables
    )


def test_d3_of_normal_models_is_that_of_linear_models():
    normal = sm.families.Gaussian()
    tables = [table.assign(y=np.exp(table["y"] / 2)) for table in TABLES]
    formulas = "y ~ x1 + x2 + group", "y ~ x1"
    test = likelihood_ratio_test(*(generalised(f, normal) for f in formulas))
    expected = likelihood_ratio_test(
        *(fit_each(FITS["ols"], tables, formula=formula) for formula in formulas)
    )
    np.testing.assert_allclose(test, expected, rtol=1e-8)


def test_d3_of_gamma_models_maximises_over_the_scale():
    """The statistic of one table is that of maximum likelihood, by scipy."""
    log_gamma = sm.families.Gamma(sm.families.links.Log())
    formulas, maxima = ("y ~ x1 + x2", "y ~ 1"), []
    results = [generalised(formula, log_gamma, TABLES[:1] * 3) for formula in formulas]
    for [result, *_] in results:
        y, X = result.model.endog, result.model.exog

        def minus(theta, y=y, X=X):
            shape, mean = np.exp(theta[0]), np.exp(X @ theta[1:])
            return -gamma.logpdf(y, shape, scale=mean / shape).sum()

        start = [0.0, *result.params]
        maxima.append(-minimize(minus, start, method="BFGS", tol=1e-8).fun)
    test = likelihood_ratio_test(*results)
    assert test.statistic == pytest.approx((maxima[0] - maxima[1]), rel=1e-6)  # 2 / k
    assert test.relative_increase == pytest.approx(0, abs=1e-9)


def test_constraints_are_invariant():
    pooled = pool_models(fits(CASES[0], "full"))
    names = ["group[T.b]", "group[T.c]"]
    places = [pooled.names.index(name) for name in names]
    L = np.eye(5)[places]
    expected = wald_test(pooled, names)
    for terms in (L, [[1, 2], [1, 1]] @ L, places):
        np.testing.assert_allclose(wald_test(pooled, terms), expected)
    values = pooled.estimate[:2]
    shifted = wald_test(pooled, [0, 1], values)
    assert shifted.statistic == pytest.approx(0) and shifted.p_value == 1
    assert wald_test(pooled, "x1") == wald_test(pooled, [pooled.names.index("x1")])


def test_units_of_columns_do_not_change_tests(rng_0):
    table = pd.DataFrame(rng_0.random((200, 2)), columns=["people", "rate"])
    table["y"] = table.sum(axis=1) + rng_0.normal(size=200)
    noise = rng_0.normal(scale=0.1, size=(5, 200))
    draws = [table.assign(rate=table["rate"] + part) for part in noise]
    units = {"people": 1e10, "rate": 1e-4}
    others = [draw.assign(**{k: draw[k] * units[k] for k in units}) for draw in draws]
    tests = []
    for tables in (draws, others):
        full, reduced = (
            fit_each(FITS["ols"], tables, formula=formula)
            for formula in ("y ~ people + rate", "y ~ rate")
        )
        tests.append(likelihood_ratio_test(full, reduced))
        tests.append(wald_test(pool_models(full), ["people", "rate"]))
    np.testing.assert_allclose(tests[0], tests[2], rtol=1e-5)
    np.testing.assert_allclose(tests[1], tests[3], rtol=1e-5)


def test_equal_draws_give_the_test_of_one_table():
    results, models = (
        fit_each(FITS["ols"], TABLES[:1] * 3, formula=formula)
        for formula in ("y ~ x1 + x2", "y ~ 1")
    )
    result, reduced, terms = results[0], models[0], ["x1", "x2"]
    with pytest.warns(UserWarning, match="equal estimates"):
        whole = pool_models(results, dof_complete=None)
    wald = result.wald_test(np.eye(3)[1:], scalar=True, use_f=False)
    ours = wald_test(whole, terms)
    assert np.isinf(ours.dof_denominator) and ours.relative_increase == 0
    assert ours.p_value == pytest.approx(float(wald.pvalue))
    lr = likelihood_ratio_test(results, models)
    assert lr.p_value == pytest.approx(result.compare_lr_test(reduced)[1])
    alone = chi2_test([4.0, 4.0], 2)
    assert alone.statistic == 2 and alone.p_value == pytest.approx(chi2.sf(4, 2))


@pytest.mark.filterwarnings("error")
def test_equal_results_are_announced():
    results = fit_each(FITS["ols"], TABLES[:3], formula="y ~ x1")
    pool_models(results)  # the control
    again = [*results[:2], FITS["ols"](TABLES[0], "y ~ x1")]
    for copies in (again, [*results[:2], copy.copy(results[0])]):
        with pytest.warns(UserWarning, match=r"results\[0\] and results\[2\].*equal"):
            pooled = pool_models(copies)
    assert (np.diag(pooled.between) > 0).all()
    tables = [table[["x1"]] for table in TABLES[:2]]
    models = [LinearRegression().fit(tables[0], TABLES[0]["y"]) for _ in tables]
    with pytest.warns(UserWarning, match=r"results\[0\] and results\[1\].*equal"):
        pool_models(models, tables[:1] * 2, TABLES[0]["y"])


def test_a_result_counts_once_and_covariances_are_of_one_type():
    results = fit_each(FITS["ols"], TABLES[:3], formula="y ~ x1")
    same = "results[0] and results[2] are the same object"
    refused(ValueError, re.escape(same), pool_models, [*results[:2], results[0]])
    with pytest.raises(ValueError, match="full.* are the same object"):
        likelihood_ratio_test(results[:1] * 3, results)
    robust = [result.get_robustcov_results("HC1") for result in results]
    mixed = "same cov_type, but results 0 and 2 have nonrobust and HC1"
    refused(ValueError, mixed, pool_models, [*results[:2], robust[2]])
    errors = [result.bse for result in robust]
    pooled = pool_models(robust)
    expected = np.square(errors).mean(0)
    np.testing.assert_allclose(np.diag(pooled.within), expected, rtol=1e-10)


def test_mixed_models_give_their_fixed_effects(rng):
    group = np.repeat(np.arange(20), 6)
    x = rng.normal(size=120)
    y = 1 + x + rng.normal(size=20)[group] + rng.normal(size=120)
    table = pd.DataFrame({"x": x, "y": y, "group": group})
    draws = [table.assign(x=x + 0.3 * rng.normal(size=120)) for _ in range(4)]
    results = fit_each(lambda t: smf.mixedlm("y ~ x", t, groups="group").fit(), draws)
    pooled = pool_models(results)
    effects = [(result.fe_params, result.bse_fe**2) for result in results]
    expected = pool(*zip(*effects, strict=True), 118)
    assert pooled.names == ("Intercept", "x")
    np.testing.assert_allclose(pooled.interval(), expected.interval())
    with pytest.raises(TypeError, match="use wald_test or chi2_test"):
        likelihood_ratio_test(results, results)


def test_several_levels_of_an_outcome():
    tables = [t.assign(visits=t["visits"].clip(upper=2)) for t in TABLES]
    results = fit_each(lambda t: smf.mnlogit("visits ~ x1", t).fit(disp=False), tables)
    pooled = pool_models(results)
    assert pooled.names == ("1:Intercept", "1:x1", "2:Intercept", "2:x1")
    slopes = [result.params.iloc[1, 1] for result in results]
    errors = [result.bse.iloc[1, 1] for result in results]
    assert pooled.estimate[3] == pytest.approx(np.mean(slopes))
    assert pooled.within[3, 3] == pytest.approx(np.mean(np.square(errors)))


NUMBERS = [table[["x1", "x2"]] for table in TABLES]
VISITS = TABLES[0]["visits"].to_numpy().astype(float)


@pytest.mark.parametrize("intercept", [True, False])
def test_linear_regression_of_sklearn(intercept):
    model = LinearRegression(fit_intercept=intercept)
    ours = pool_models(fit_each(model, NUMBERS, VISITS), NUMBERS, VISITS)
    formula = "visits ~ x1 + x2" + ("" if intercept else " - 1")
    theirs = pool_models(fit_each(FITS["ols"], TABLES, formula=formula))
    pd.testing.assert_frame_equal(ours.summary(), theirs.summary())
    np.testing.assert_allclose(ours.total, theirs.total)


def test_logistic_regression_of_sklearn():
    y = np.where(VISITS > 1, "many", "few")
    model = LogisticRegression(C=np.inf, tol=1e-10)
    arrays = [numbers.to_numpy() for numbers in NUMBERS]
    ours = pool_models(fit_each(model, arrays, y), arrays, y)
    assert ours.names == ("Intercept", "x0", "x1")
    tables = [t.assign(sick=(t["visits"] > 1).astype(int)) for t in TABLES]
    theirs = pool_models(fit_each(FITS["logit"], tables, formula="sick ~ x1 + x2"))
    np.testing.assert_allclose(ours.summary(), theirs.summary(), rtol=1e-5)


WEIGHTS = np.arange(1.0, 41.0)
PIPELINE = make_pipeline(StandardScaler(), LinearRegression())


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        (LinearRegression(), (), ValueError, r"pool_models\(models, draws, y\)"),
        (LinearRegression(), (NUMBERS[:2], VISITS), ValueError, "one table for each"),
        (LinearRegression(), (NUMBERS, VISITS[::-1]), ValueError, "does not maximise"),
        (LinearRegression(), (NUMBERS[::-1], VISITS), ValueError, "does not maximise"),
        (LinearRegression(), (NUMBERS, VISITS[1:]), ValueError, "got shapes"),
        (
            LinearRegression(positive=True),
            (NUMBERS, VISITS),
            TypeError,
            "Variances are",
        ),
        (Ridge(), (NUMBERS, VISITS), TypeError, "fit_each"),
        (PIPELINE, (NUMBERS, VISITS), TypeError, "statsmodels by fit_each"),
        (LogisticRegression(), (NUMBERS, VISITS > 1), TypeError, "Set C=np.inf"),
    ],
)
def test_models_of_sklearn_without_variances(model, arguments, error, message):
    y = VISITS > 1 if isinstance(model, LogisticRegression) else VISITS
    refused(error, message, pool_models, fit_each(model, NUMBERS, y), *arguments)


def test_functions_of_data_frames_that_get_arrays_are_reported():
    with pytest.raises(Exception) as caught:  # noqa: PT011 that of patsy
        fit_each(FITS["ols"], np.ones((2, 9, 2)), formula="y ~ x1")
    assert "set_output" in " ".join(caught.value.__notes__)


def test_further_errors_of_sklearn():
    gone = np.where(np.arange(len(VISITS)) < 2, np.nan, VISITS)
    models = fit_each(LinearRegression(), NUMBERS, VISITS)
    refused(ValueError, "y has missing values", pool_models, models, NUMBERS, gone)
    weighted = fit_each(LinearRegression(), NUMBERS, VISITS, sample_weight=WEIGHTS)
    refused(ValueError, "without weights", pool_models, weighted, NUMBERS, VISITS)
    with pytest.raises(ValueError, match="is not fitted"):
        pool_models([LinearRegression(), LinearRegression()], NUMBERS[:2], VISITS)
    several = LogisticRegression(C=np.inf)
    y = np.minimum(VISITS, 2)
    with pytest.raises(TypeError, match="several outcomes or classes"):
        pool_models(fit_each(several, NUMBERS, y), NUMBERS, y)
    twice = [pd.concat([t, t], axis=1) for t in NUMBERS]
    twice = [table.to_numpy() for table in twice]
    with pytest.raises(ValueError, match="columns of table 0 are collinear"):
        pool_models(fit_each(LinearRegression(), twice, VISITS), twice, VISITS)


def test_errors_of_pooled_models():
    rare = [TABLES[0], TABLES[1].assign(group=TABLES[1]["group"].replace("c", "b"))]
    results = fit_each(FITS["ols"], rare, formula="y ~ group")
    with pytest.raises(ValueError, match=r"differ in \['group\[T.c\]'\].*rare levels"):
        pool_models(results)
    with pytest.raises(TypeError, match="RegularizedResults.* has no params and cov"):
        pool_models(
            fit_each(lambda t: smf.ols("y ~ x1", t).fit_regularized(alpha=1.0), TABLES)
        )
    with pytest.raises(ValueError, match="dof_complete must be a number, 'auto'"):
        pool_models(fits(CASES[0], "full"), dof_complete="many")
    refused(ValueError, "two draws or more", pool_models, fits(CASES[0], "full")[:1])
    refused(ValueError, "two draws or more", pool_models, [])
    first = fits(CASES[0], "full")[0]
    refused(TypeError, "must be a list of fitted models", pool_models, first)
    other = smf.ols("x1 ~ x2", TABLES[0]).fit(), smf.ols("y ~ x2", TABLES[1]).fit()
    with pytest.raises(ValueError, match="same outcome, but .* 0 and 1 have x1 and y"):
        pool_models(other)
    other = other[1], smf.glm("y ~ x2", TABLES[1]).fit()
    refused(ValueError, "same kind of model.* OLS and GLM", pool_models, other)


def test_degrees_of_freedom_are_those_of_the_smallest_table():
    tables = [TABLES[0], TABLES[1][:-7], TABLES[2]]
    pooled = pool_models(fit_each(FITS["ols"], tables, formula="y ~ x1"))
    assert pooled.dof_complete == len(TABLES[1]) - 7 - 2


GROUPS = np.arange(len(TABLES[0])) % 6
PAIRS = np.stack([GROUPS, np.arange(len(GROUPS)) % 4], 1)  # clusters of two kinds
BINOMIAL = sm.families.Binomial()
ROBUST = {
    "ols": (6, lambda t, **by: smf.ols("y ~ x1", t).fit(**by)),
    "logit": (6, lambda t, **by: smf.logit("sick ~ x1", t).fit(disp=False, **by)),
    "glm": (6, lambda t, **by: smf.glm("sick ~ x1", t, family=BINOMIAL).fit(**by)),
}


def by_cluster(groups, **others):
    return {"cov_type": "cluster", "cov_kwds": {"groups": groups, **others}}


@pytest.mark.parametrize("use_t", [None, True])
@pytest.mark.parametrize("kind", ROBUST)
def test_clusters_are_the_degrees_of_freedom(kind, use_t):
    """As statsmodels takes them for intervals, if it is asked for Student's t."""
    number, analyse = ROBUST[kind]
    rows = len(GROUPS) - 2
    cases = [
        (by_cluster(GROUPS), number - 1),
        (by_cluster(PAIRS), 3),
        (by_cluster(GROUPS, df_correction=False), rows),
        ({"cov_type": "HC1"}, rows),
    ]
    for by, expected in cases:
        results = fit_each(lambda t, by=by: analyse(t, use_t=use_t, **by), TABLES[:3])
        pooled = pool_models(results)
        assert pooled.dof_complete == expected
    assert pool_models(results, dof_complete=None).dof_complete is None


def test_clusters_of_equations_and_of_survival_times():
    def equations(table, groups=GROUPS):
        return smf.gee("y ~ x1", groups, table).fit()

    def survival(table, groups=GROUPS):
        status = np.ones(len(table))
        times = table.assign(time=np.exp(table["y"] / 10))
        return smf.phreg("time ~ x1", times, status=status).fit(groups=groups)

    alone = np.arange(len(GROUPS))
    for analyse, controls in (
        (equations, {len(GROUPS) - 2: alone}),
        (survival, {len(GROUPS) - 1: None}),
    ):
        assert pool_models(fit_each(analyse, TABLES[:3])).dof_complete == 5
        for expected, groups in controls.items():
            results = fit_each(lambda t, g=groups, a=analyse: a(t, g), TABLES[:3])
            assert pool_models(results).dof_complete == expected


def test_models_that_have_not_converged_are_named():
    def logit(table, **options):
        return smf.logit("sick ~ x1", table).fit(disp=False, **options)

    def glm(table, **options):
        return smf.glm("sick ~ x1", table, family=BINOMIAL).fit(**options)

    def counts(table, **options):
        return smf.poisson("visits ~ x1", table).fit(disp=False, **options)

    for analyse in (logit, glm, counts):
        good = fit_each(analyse, TABLES[:3])
        pool_models(good)  # the control: warnings are errors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            stopped = analyse(TABLES[1], maxiter=1)
        results = [good[0], stopped, good[2]]
        with pytest.warns(ConvergenceWarning, match="^results 1 of 3 have not conv"):
            pool_models(results)
    reduced = fit_each(lambda t: smf.poisson("visits ~ 1", t).fit(disp=False), TABLES)
    with pytest.warns(ConvergenceWarning, match="^full 1 of 3 have not converged"):
        likelihood_ratio_test(results, reduced[:3])


def test_tables_with_missing_values_are_announced():
    """A formula leaves out such rows silently, which would be a complete-case study."""
    tables = [table.copy() for table in TABLES[:3]]
    tables[1].iloc[4:7, tables[1].columns.get_loc("x1")] = np.nan
    results = fit_each(FITS["ols"], tables, formula="y ~ x1")
    with pytest.warns(UserWarning, match="Result 1 .* 3 rows were left out"):
        pool_models(results)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool_models(fit_each(FITS["ols"], tables, formula="y ~ x2"))


PAIR = pool([[1.0, 2.0], [1.1, 2.2]], [[1.0, 1.0], [1.0, 1.0]])


def test_one_term_is_its_t_test():
    assert wald_test(PAIR, [1]).p_value == pytest.approx(PAIR.p_value()[1])
    pooled = pool([1.0, 1.5], [0.1, 0.1], names=["mean"])
    assert wald_test(pooled, "mean").p_value == pytest.approx(pooled.p_value())
    refused(ValueError, "pass covariance matrices to pool", wald_test, PAIR, [0, 1])


@pytest.mark.parametrize(
    ("words", "terms", "values"),
    [
        *(
            ("terms has .*, no name or position of the 5", terms, [])
            for terms in ("z", ["x1", 7], [None], [True])
        ),
        ("terms must be a finite matrix", [["x1", "x2"]], []),
        ("must name at least one", [], []),
        ("one column for each of the 5", np.eye(4), []),
        *(
            ("one for each of the 2 terms, got", ["x1", "x2"], [value])
            for value in ([1, 2, 3], np.nan, "one")
        ),
        ("terms must be independent", ["x1", "x1"], []),
    ],
)
def test_errors_of_wald_tests(words, terms, values):
    with pytest.raises(ValueError, match=words):
        wald_test(pool_models(fits(CASES[0], "full")), terms, *values)


def test_errors_of_other_tests():
    for statistics in ([1.0], [1.0, -1.0], [1.0, np.nan], 3.0):
        refused(ValueError, "statistics must be a list", chi2_test, statistics, 1)
    refused(ValueError, "dof must be .* at least 1", chi2_test, [1.0, 2.0], 0)
    for dof in (1.5, True):
        refused(TypeError, "dof must be an integer", chi2_test, [1.0, 2.0], dof)
    full, reduced = fits(CASES[0], "full"), fits(CASES[0], "reduced")
    with pytest.raises(ValueError, match="pass the larger model first"):
        likelihood_ratio_test(reduced, full)
    with pytest.raises(ValueError, match="one result for each"):
        likelihood_ratio_test(full, reduced[:-1])
    with pytest.raises(ValueError, match="outcomes of results 0 differ"):
        likelihood_ratio_test(full, reduced[::-1])
    full = fit_each(FITS["ols"], TABLES, formula="y ~ x1 + group")
    same = fit_each(FITS["ols"], TABLES, formula="y ~ I(2 * x1 - 1)")
    assert likelihood_ratio_test(full, same).dof_numerator == 2
    other = fit_each(FITS["ols"], TABLES, formula="y ~ x2")
    with pytest.raises(ValueError, match="nested in full.* term 'x2' does not follow"):
        likelihood_ratio_test(full, other)
    models = fit_each(LinearRegression(), NUMBERS, VISITS)
    refused(TypeError, "got LinearRegression", likelihood_ratio_test, models, models)
    with pytest.raises(TypeError, match="full must be a list of fitted models"):
        likelihood_ratio_test(full[0], other[0])


@pytest.mark.parametrize(
    ("function", "outcome", "name"),
    [
        (smf.poisson, "visits", "offset"),
        (smf.poisson, "visits", "exposure"),
        (partial(smf.glm, family=sm.families.Poisson()), "visits", "offset"),
        (partial(smf.glm, family=sm.families.Poisson()), "visits", "var_weights"),
        (smf.wls, "y", "weights"),
    ],
)
def test_models_of_other_offsets_or_weights_are_not_nested(function, outcome, name):
    def fitted(term, **options):
        model = partial(function, f"{outcome} ~ {term}", **options)
        return [model(table).fit() for table in tables]

    rng = np.random.default_rng(0)
    z, part = rng.normal(size=60), rng.uniform(1, 3, size=60)
    table = pd.DataFrame({"x": z, "y": z, "visits": rng.poisson(part)})
    tables = [table + rng.integers(2, size=(60, 1)) for _ in range(3)]
    full, reduced = fitted("x", **{name: part}), fitted("1", **{name: part})
    assert likelihood_ratio_test(full, reduced).dof_numerator == 1
    message = f"with equal {name}, but those of results 0 differ"
    refused(ValueError, message, likelihood_ratio_test, full, fitted("1"))


@pytest.mark.filterwarnings("ignore:The InversePower link")
def test_likelihoods_of_different_models_are_not_compared():
    def fitted(function, formula, **options):
        return fit_each(lambda table: function(formula, table).fit(**options), TABLES)

    full = fitted(smf.logit, "sick ~ x1 + x2", disp=False)
    reduced = fitted(smf.probit, "sick ~ x1", disp=False)
    with pytest.raises(ValueError, match="same kind, but results 0 are Logit.* Probit"):
        likelihood_ratio_test(full, reduced)
    links = sm.families.links.Log(), sm.families.links.InversePower()
    full, reduced = (
        generalised(formula, sm.families.Gamma(link))
        for formula, link in zip(("y ~ x1", "y ~ 1"), links, strict=True)
    )
    with pytest.raises(ValueError, match=r"GLM \(Gamma, Log\) and GLM \(Gamma, Inv"):
        likelihood_ratio_test(full, reduced)


@pytest.mark.parametrize(
    "fit",
    [
        lambda formula, table: smf.gee(formula, "group", table).fit(),
        lambda formula, table: smf.rlm(formula, table).fit(),
        lambda formula, table: smf.quantreg(formula, table).fit(),
        lambda formula, table: smf.glm(
            formula.replace("y", "visits"), table, family=sm.families.Poisson()
        ).fit(scale="X2"),
    ],
    ids=["gee", "rlm", "quantreg", "quasi-poisson"],
)
@pytest.mark.filterwarnings("ignore")  # of statsmodels
def test_models_without_a_likelihood(fit):
    full, reduced = (
        [fit(formula, table) for table in TABLES] for formula in ("y ~ x1", "y ~ 1")
    )
    with pytest.raises(TypeError, match="with a log-likelihood of one vector"):
        likelihood_ratio_test(full, reduced)
    assert np.isfinite(wald_test(pool_models(full), "x1").p_value)  # negative control


def test_penalised_models_and_models_without_covariances():
    penalised = [
        smf.logit("sick ~ x1", table).fit_regularized(alpha=0.01, disp=False)
        for table in TABLES
    ]
    assert (penalised[0].params != 0).all()
    refused(TypeError, "L1Binary.* has a penalty", pool_models, penalised)

    class Failed:
        params = np.ones(2)

        def cov_params(self):
            raise ValueError("need covariance of parameters")

    with pytest.raises(ValueError, match="Result 0 has no covariances: need cov"):
        pool_models([Failed(), Failed()])


def test_names_and_summaries():
    Q, U = [[1.0, 2.0], [1.2, 2.1]], [[0.1, 0.2], [0.1, 0.3]]
    pooled = pool(Q, U, 30, names=["a", "b"])
    frame = pooled.summary()
    assert list(frame.index) == ["a", "b"] and frame.notna().all(axis=None)
    np.testing.assert_allclose(frame[["low", "high"]].T, pooled.interval())
    at_ends = pooled.p_value(pooled.interval(0.9)[0])
    np.testing.assert_allclose(at_ends, 0.1)
    assert pool([1.0, 2.0], [1.0, 1.0]).summary().shape == (1, 8)
    for names in (["a"], "ab", ["a", "b", "c"]):
        refused(ValueError, "names must be a list of one name", pool, Q, U, names=names)


def test_functions_of_each_table():
    frames = [table[["x1", "visits"]] for table in TABLES]
    mixed = [frames[0], pl.from_pandas(frames[1]), frames[2].to_numpy()]
    assert fit_each(np.shape, mixed) == [(40, 2)] * 3
    tables = fit_each(lambda table: table, mixed)
    assert all(table is other for table, other in zip(tables, mixed, strict=True))
    counted = fit_each(lambda t, y, add: len(t) + y + add, frames[:2], 1, add=2)
    assert counted == [43] * 2
    refused(TypeError, "pass a function", fit_each, LinearRegression, frames)
    refused(TypeError, "pass a function", fit_each, "ols", frames)
    refused(ValueError, "returned None", fit_each, lambda table: None, frames)
    refused(ValueError, "one draw has 0 dimensions", fit_each, np.shape, frames[0])


def completed(rng, n, n_draws):
    """Draw completed tables of a normal regression, of which two slopes are zero.

    Outcomes are missing completely at random, and drawn from their posterior.
    """
    A = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])
    y = A @ [1.0, 0.5, 0, 0] + rng.normal(size=n)
    observed = rng.uniform(size=n) < 0.6
    root = np.linalg.inv(np.linalg.cholesky(A[observed].T @ A[observed]))
    beta = root.T @ root @ A[observed].T @ y[observed]
    residual = y[observed] - A[observed] @ beta
    for _ in range(n_draws):
        sigma = np.sqrt(residual @ residual / rng.chisquare(observed.sum() - 4))
        drawn = A @ (beta + sigma * root.T @ rng.normal(size=4))
        yield A, np.where(observed, y, drawn + sigma * rng.normal(size=n))


def p_values(rng):
    """Test the two slopes by D1, D3, D2, and by the mean of the Wald statistics."""
    tables = list(completed(rng, 60, 6))
    full = [sm.OLS(y, A).fit() for A, y in tables]
    reduced = [sm.OLS(y, A[:, :2]).fit() for A, y in tables]
    pooled = pool_models(full)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # much is missing in some tables
        wald = wald_test(pooled, [2, 3]).p_value
    ratios = [2 * (a.llf - b.llf) for a, b in zip(full, reduced, strict=True)]
    others = likelihood_ratio_test(full, reduced).p_value, chi2_test(ratios, 2).p_value
    return wald, *others, chi2.sf(np.mean(ratios), 2)


@pytest.mark.slow
def test_tests_have_their_size(seed):
    """Under the hypothesis; a test that takes the draws for data rejects it often."""
    rng = np.random.default_rng([seed, 5])
    rejected = np.sum([np.array(p_values(rng)) < 0.05 for _ in range(300)], axis=0)
    for count in rejected[:2]:
        assert binomtest(int(count), 300, 0.05).pvalue > 1e-4
    assert binomtest(int(rejected[2]), 300, 0.07).pvalue > 1e-4
    assert binomtest(int(rejected[3]), 300, 0.1, alternative="greater").pvalue < 1e-4


LOGITS = [[0.5, -1.0], [0.7, -1.4], [0.6, -1.2]]


def test_ratios_are_exponentials_of_coefficients_and_ends():
    pooled = pool(LOGITS, [[0.04, 0.09]] * 3, names=["dose", "age"])
    plain, ratios = pooled.summary(0.9), pooled.summary(0.9, exponentiate=True)
    assert list(ratios) == ["exp(coef)", *list(plain)[1:]]
    ours = ratios[["exp(coef)", "low", "high"]].to_numpy()
    expected = np.exp(plain[["coef", "low", "high"]].to_numpy())
    np.testing.assert_allclose(ours, expected, rtol=1e-14)
    by_delta_method = np.exp(plain["coef"]) * plain["se"]
    np.testing.assert_allclose(ratios["se"], by_delta_method, rtol=1e-14)
    same = ["t", "df", "p", "missing_information"]
    pd.testing.assert_frame_equal(ratios[same], plain[same])
    big = pool([1e4, 1.1e4], [1.0, 1.0]).summary(exponentiate=True)
    assert np.isinf(big["exp(coef)"]).all()
    with pytest.raises(TypeError, match="exponentiate must be a bool"):
        pooled.summary(exponentiate="yes")


def test_a_printed_result_is_a_table_of_coefficients():
    pooled = pool(LOGITS, [np.diag([0.04, 0.09])] * 3, names=["dose", "age"])
    head, columns, dose, age = str(pooled).splitlines()
    assert repr(pooled) == str(pooled) and head == "Pooled: 2 estimates of 3 draws"
    assert columns.split() == ["coef", "se", "t", "df", "p", "low", "high"]
    row = pooled.summary().loc["dose"]
    for text, name in zip(dose.split()[1:], columns.split(), strict=True):
        assert float(text) == pytest.approx(row[name], rel=5e-4, abs=5e-4)
    assert len({len(columns), len(dose), len(age)}) == 1
    assert float(age.split()[1]) == -1.2
    alone = str(pool([1.0, 1.2], [0.04, 0.05])).splitlines()
    assert alone[0] == "Pooled: 1 estimate of 2 draws" and alone[2].startswith("0 ")


def test_a_printed_result_of_many_coefficients_is_cut():
    many = np.random.default_rng(0).normal(size=(3, 100))
    lines = str(pool(many, np.ones((3, 100)))).splitlines()
    assert len(lines) == 63 and lines[-1] == "... and 40 more: see summary()"
    certain = str(pool([[9.0], [9.0]], [[0.01], [0.01]])).splitlines()[2]
    assert "<.001" in certain and " inf " in certain
