"""The functions that how-to pages define, against R and closed forms."""

import doctest
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from cases import quick_gaussian
from scipy.special import expit, polygamma
from scipy.stats import norm

from skvnce.pooling import fit_each, pool, pool_models

ROOT = Path(__file__).parents[2]
R = json.loads((ROOT / "tests" / "reference" / "recipes.json").read_text())
COMPLETED = pd.read_csv(ROOT / "tests" / "reference" / "mice_models.csv")
TABLES = [table.drop(columns=".imp") for _, table in COMPLETED.groupby(".imp")]


def functions(page):
    """Run the imports and the functions of a page; return their names."""
    text = (ROOT / "doc" / "how_to" / f"{page}.rst").read_text()
    sources = [e.source for e in doctest.DocTestParser().get_examples(text)]
    names = {}
    exec("".join(s for s in sources if s.startswith(("import", "from", "def"))), names)
    return names


def logit(table):
    return smf.logit("sick ~ x1 + x2", table).fit(disp=False, tol=1e-12)


def slopes(model):
    """Compute average slopes of a logit and their covariances by the delta method."""
    X, beta = model.model.exog, model.params.to_numpy()
    p = expit(X @ beta)
    density, change = p * (1 - p), p * (1 - p) * (1 - 2 * p)
    jacobian = density.mean() * np.eye(3) + np.outer(beta, change @ X / len(X))
    covariance = jacobian @ model.cov_params().to_numpy() @ jacobian.T
    return density.mean() * beta[1:], covariance[1:, 1:]


def test_average_slopes_are_those_of_the_delta_method():
    models = fit_each(logit, TABLES)
    effects = [model.get_margeff() for model in models]
    result = pool([e.margeff for e in effects], [e.margeff_cov for e in effects])
    expected = pool(*zip(*map(slopes, models), strict=True))
    np.testing.assert_allclose(result.estimate, expected.estimate, rtol=1e-8)
    np.testing.assert_allclose(result.total, expected.total, rtol=1e-6)


def test_average_slopes_are_those_that_marginaleffects_pools_in_r():
    effects = [model.get_margeff() for model in fit_each(logit, TABLES)]
    result = pool([e.margeff for e in effects], [e.margeff_cov for e in effects])
    # its standard errors are by numeric derivatives
    np.testing.assert_allclose(result.estimate, R["slopes"], rtol=1e-6)
    np.testing.assert_allclose(result.standard_error, R["slopes_error"], rtol=1e-4)
    np.testing.assert_allclose(result.dof, R["slopes_dof"], rtol=1e-3)


def test_average_slopes_of_marginaleffects():
    polars = pytest.importorskip("polars")
    if int(polars.__version__.split(".")[0]) > 1:
        pytest.skip("marginaleffects 0.6 needs polars below 2")
    marginaleffects = pytest.importorskip("marginaleffects")
    tables = [table.drop(columns="group") for table in TABLES]  # a reserved name
    linear = fit_each(lambda table: smf.ols("y ~ x1 + x2", table).fit(), tables)
    for models in (linear, fit_each(logit, tables)):
        effects = [marginaleffects.avg_slopes(model).data for model in models]
        estimates = (
            [e["estimate"] for e in effects],
            [e["std_error"] ** 2 for e in effects],
        )
        result = pool(*estimates, names=effects[0]["term"])
        if models is linear:  # without products slopes are the coefficients
            part = pool_models(models, dof_complete=None).summary().iloc[1:]
            estimate, error = part["coef"], part["se"]
        else:
            expected = pool(*zip(*map(slopes, models), strict=True))
            estimate, error = expected.estimate, expected.standard_error
        assert result.names == ("x1", "x2")
        np.testing.assert_allclose(result.estimate, estimate, rtol=1e-4)
        np.testing.assert_allclose(result.standard_error, error, rtol=1e-3)


def balanced(seed, k=5, g=12):
    """Simulate a balanced table of k rows in each of g groups."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(g), k)
    y = rng.normal(size=g)[group] + rng.normal(size=g * k)
    return pd.DataFrame({"group": group, "y": y})


def test_variance_components_are_those_of_the_analysis_of_variance():
    fisher = functions("variance_components")["fisher"]
    for seed in range(3):
        table, k, g = balanced(seed), 5, 12
        model = smf.mixedlm("y ~ 1", table, groups=table["group"]).fit()
        means = table.groupby("group")["y"].mean()
        within = table.groupby("group")["y"].var().mean()
        between = k * means.var()
        assert between > within
        estimate = model.cov_re.iloc[0, 0]
        np.testing.assert_allclose(estimate, (between - within) / k, rtol=1e-4)
        np.testing.assert_allclose(model.scale, within, rtol=1e-4)
        z, variance = fisher(estimate / (estimate + model.scale), k, g)
        np.testing.assert_allclose(z, np.log(between / within) / 2, rtol=1e-4)
        # of half the logarithm of an F-distributed number
        exact = (polygamma(1, (g - 1) / 2) + polygamma(1, g * (k - 1) / 2)) / 4
        np.testing.assert_allclose(variance, exact, rtol=0.05)


def test_pooled_mixed_models_are_those_of_mitml():
    def mixed(table):
        group = np.arange(len(table)) // 4
        table = table.assign(score=table["y"] + group % 5)
        return smf.mixedlm("score ~ x1", table, groups=group).fit()

    models = fit_each(mixed, TABLES)
    variances = np.array([[one.cov_re.iloc[0, 0], one.scale] for one in models])
    shares = variances[:, 0] / variances.sum(1)
    values = [*variances.mean(0), shares.mean()]
    np.testing.assert_allclose(values, R["components"], rtol=1e-4)
    fixed = pool_models(models, dof_complete=None)
    np.testing.assert_allclose(fixed.estimate, R["fixed"], rtol=1e-4)
    # those of lme4 are for given variances, and those of statsmodels for estimated ones
    np.testing.assert_allclose(fixed.standard_error, R["fixed_error"], rtol=3e-3)
    np.testing.assert_allclose(fixed.dof, R["fixed_dof"], rtol=2e-2)


def test_areas_and_concordances_are_those_of_r():
    names = functions("performance")
    concordance, earlier = names["concordance"], names["earlier"]

    def area(table):
        sick = table["sick"].to_numpy() == 1
        return concordance(sick[:, None] & ~sick, table["x1"].to_numpy())

    def survival(table):
        time, event = table["visits"] + 1, table["visits"] < 4
        comparable = earlier(time.to_numpy(), event.to_numpy())
        return concordance(comparable, table["x1"].to_numpy())

    for function, name in ((area, "auc"), (survival, "concordance")):
        share, variance = np.transpose(fit_each(function, TABLES))
        np.testing.assert_allclose(share, R[name], rtol=1e-12)
        np.testing.assert_allclose(variance, R[f"{name}_variance"], rtol=1e-10)


def test_pooled_r_squared_is_that_of_mice():
    squares = [smf.ols("y ~ x1 + x2", table).fit().rsquared for table in TABLES]
    variances = [1 / (len(TABLES[0]) - 3)] * len(TABLES)
    pooled = pool(np.arctanh(np.sqrt(squares)), variances)
    # mice takes the normal distribution for Student's t
    ends = pooled.estimate + np.array([0, -1.96, 1.96]) * pooled.standard_error
    value = np.tanh(ends) ** 2
    np.testing.assert_allclose(value, R["r2"][:3], rtol=1e-8)


def study(rng, sees_all):
    """Simulate a treatment whose effect is 1, by seen or by all covariates."""
    values = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 800)
    X = pd.DataFrame(values, columns=["age", "marker"])
    X["marker"] = X["marker"].mask(rng.random(800) < 0.4)
    values_seen = values if sees_all else X.fillna(0).to_numpy()
    treated = (rng.random(800) < expit(values_seen.sum(axis=1))).astype(int)
    return X, treated, treated + 2 * values.sum(axis=1) + rng.normal(size=800)


@pytest.mark.slow
def test_causal_effects_are_the_true_one_under_their_assumptions():
    aipw = functions("causal_effect")["aipw"]
    fill = quick_gaussian().set_output(transform="pandas")
    rng = np.random.default_rng(1)
    estimates = {"seen": [], "all": [], "pooled": []}
    for _ in range(5):
        X, treated, y = study(rng, sees_all=False)
        estimates["seen"].append(aipw(X, treated, y, fill))
        X, treated, y = study(rng, sees_all=True)
        estimates["all"].append(aipw(X, treated, y, fill))
        df = X.assign(treated=treated, y=y)
        draws = fill.fit(df).sample(df, n_draws=5, random_state=0)
        tables = (draw[["age", "marker"]] for draw in draws)
        each = [aipw(table, treated, y, "passthrough") for table in tables]
        pooled = pool(*zip(*each, strict=True))
        estimates["pooled"].append((pooled.estimate, pooled.total))
    z = {}
    for name, pairs in estimates.items():
        effects, variances = np.transpose(pairs)
        z[name] = (effects - 1).sum() / np.sqrt(variances.sum())
    assert abs(z["seen"]) < 4 and abs(z["pooled"]) < 4
    assert z["all"] > 4  # a common cause is not known to the models


def test_stacked_samples_are_the_posterior_of_the_observed_cells(rng_0):
    observed, n, n_draws = rng_0.normal(3, 2, size=30), 50, 20_000
    # the variance is known, and the prior of the mean flat
    mean = rng_0.normal(observed.mean(), 2 / np.sqrt(30), n_draws)
    filled = rng_0.normal(mean[:, None], 2, size=(n_draws, n - 30))
    completed = (observed.sum() + filled.sum(axis=1)) / n
    stacked = rng_0.normal(completed, 2 / np.sqrt(n))
    error = 2 / np.sqrt(30)
    assert abs(stacked.mean() - observed.mean()) < 4 * error / np.sqrt(n_draws)
    for level in (0.025, 0.5, 0.975):
        below = (stacked < norm.ppf(level, observed.mean(), error)).mean()
        assert abs(below - level) < 4 * np.sqrt(level * (1 - level) / n_draws)


def test_posterior_samples_of_a_regression():
    posterior = functions("bayesian_model")["posterior"]
    table = TABLES[0].rename(columns={"x1": "x"})
    posterior.__globals__["rng"] = np.random.default_rng(0)
    samples = posterior(table, 20_000)
    model = smf.ols("y ~ x", table).fit()
    covariance = model.cov_params() * model.df_resid / (model.df_resid - 2)
    error = np.sqrt(np.diag(covariance) / len(samples))
    assert (np.abs(samples.mean(0) - model.params) < 4 * error).all()
    np.testing.assert_allclose(np.cov(samples.T), covariance, rtol=0.1, atol=2e-3)


def test_fishers_z_of_complete_tables():
    independence = functions("independence_tests")["independence"]
    table = TABLES[0]
    rest = [smf.ols(f"{name} ~ x2 + visits", table).fit().resid for name in ("y", "x1")]
    z = np.arctanh(np.corrcoef(rest)[0, 1])
    pooled = independence([table] * 3, "y", "x1", ["x2", "visits"])
    np.testing.assert_allclose(pooled.estimate, z, rtol=1e-10)
    expected = 2 * norm.sf(abs(z) * np.sqrt(len(table) - 2 - 3))
    np.testing.assert_allclose(pooled.p_value(), expected, rtol=1e-10)
