"""GaussianImputer(groups=...): rows that belong to groups, in tables of all kinds."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import skops.io
from errors import refused
from pandas.testing import assert_frame_equal
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from skvnce import (
    ColumnImputer,
    ConstrainedImputer,
    GaussianImputer,
    MultipleImputationClassifier,
)
from skvnce._imputer import fill
from skvnce.exceptions import TableWarning
from skvnce.gaussian import groups_fit
from skvnce.gaussian.groups_fit import sample_groups
from skvnce.metrics._chains import slow_chain
from skvnce.options import Chunks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
N_GROUPS, SIZE = 30, 5
ROUNDS = 40


def frame(seed=0, n_groups=N_GROUPS, size=SIZE):
    """Make two columns of rows, one of groups, and a time that is never missing."""
    rng = np.random.default_rng(seed)
    g, n = np.repeat(np.arange(n_groups), size), n_groups * size
    u = rng.normal(size=(n_groups, 2))
    y = 1.2 * u[g, 0] + 0.8 * rng.normal(size=n)
    x = 0.5 * y + u[g, 1] + 0.7 * rng.normal(size=n)
    found = pd.DataFrame(
        {
            "g": [f"p{i}" for i in g],
            "t": np.tile(np.arange(size), n_groups) + 0.1 * rng.normal(size=n),
            "y": y,
            "x": x,
            "w": (u[:, 0] + 0.5 * rng.normal(size=n_groups))[g],
        }
    )
    for name in ("y", "x", "w"):
        found.loc[rng.random(n) < 0.2, name] = np.nan
    found.loc[np.isin(g, [2, 7, 11]), "w"] = np.nan
    return found


def levels_of(found):
    """Add categories of rows and of groups."""
    w, y = found["w"], found["y"].fillna(0)
    kinds = np.where(w > 0.3, "u", np.where(w < -0.3, "v", "z"))
    return found.assign(
        k=pd.Categorical(np.where(y > 0, "a", "b")).astype(object),
        kind=pd.Series(kinds).mask(w.isna()).astype("category"),
    ).assign(k=lambda d: d["k"].mask(found.index % 6 == 0).astype("category"))


def imputer(groups="g", **options):
    options = {"max_iter": ROUNDS, "on_misfit": "ignore", "random_state": 0} | options
    return GaussianImputer(groups=groups, **options).set_output(transform="pandas")


X = frame()
HIDDEN = X.isna()
MIXED = levels_of(X)


@pytest.fixture(scope="module")
def fitted():
    return imputer().fit(X)


@pytest.fixture(scope="module")
def mixed():
    return imputer().fit(MIXED)


@pytest.fixture(scope="module")
def sloped():
    return imputer({"g": ["t"]}).fit(X)


def are_constant(table, *columns):
    return bool((table.groupby("g")[list(columns)].nunique() <= 1).all(axis=None))


def test_columns_of_groups_are_equal_in_all_rows(fitted, mixed):
    assert fitted.group_columns_.tolist() == [4]
    assert mixed.group_columns_.tolist() == [4, 6]
    for model, table, columns in ((fitted, X, ["w"]), (mixed, MIXED, ["w", "kind"])):
        drawn = model.sample(table, 4, 0)
        shifted = model.sample(table, 3, 0, shift={"y": 1.0})
        several = [model.transform(table), *drawn, *shifted]
        several += model.interval(table, n_draws=39, random_state=0)
        for one in several:
            assert are_constant(one, *columns)
        for one in several[:-2]:
            assert one.notna().all(axis=None)
            assert_frame_equal(one.where(table.notna()), table, check_dtype=False)
        new = table["g"].isin(["p2", "p7", "p11"])
        assert drawn[0]["w"][new].ne(drawn[1]["w"][new]).all()


def test_a_column_of_groups_may_be_observed_in_any_row():
    """Not only in the first, by which the rows of a group are chosen."""
    table = MIXED.copy()
    table.loc[~table.duplicated("g"), ["w", "kind"]] = np.nan
    found = imputer().fit(table).transform(table)
    assert are_constant(found, "w", "kind") and found.notna().all(axis=None)


def test_what_a_group_says_is_kept_beyond_the_range_of_the_fit(fitted):
    table = X.iloc[:10].copy()
    table["w"] = np.nan
    table.loc[[3, 6], "w"] = 50.0, -50.0
    given = {"reference": X, "shift": {"y": 0.5}}
    several = [fitted.transform(table), *fitted.sample(table, 2, 0)]
    several += [fitted.sample(table, 1, 0, **{k: v})[0] for k, v in given.items()]
    for one in several:
        assert one["w"].tolist() == [50.0] * 5 + [-50.0] * 5


@pytest.mark.parametrize("number", ["each row", "all rows"])
def test_groups_without_others_are_no_groups(number):
    names = [f"p{i}" for i in range(len(X))] if number == "each row" else "all"
    table = X.assign(g=names)
    with pytest.warns(TableWarning, match="groups has no effect: .* in column 'g'"):
        found = imputer().fit(table)
    plain, rows = imputer(None).fit(X.drop(columns="g")), X.drop(columns="g")
    pairs = [(found.transform(table), plain.transform(rows))]
    tables = (table, 2, 0), (rows, 2, 0)
    pairs += zip(found.sample(*tables[0]), plain.sample(*tables[1]), strict=True)
    for one, other in pairs:
        assert one["g"].tolist() == table["g"].tolist()
        assert_frame_equal(one.drop(columns="g"), other)
    assert not hasattr(found, "score_samples")


@pytest.mark.parametrize("strategy", ["mean", "median"])
def test_predictions_do_not_depend_on_the_order_of_rows(strategy):
    table = X.drop(columns="t")
    table.loc[table["g"].isin(["p0", "p1"]), ["y", "x"]] = np.nan  # equal rows
    model = imputer(strategy=strategy).fit(table)
    found = model.transform(table)
    order = np.random.default_rng(0).permutation(len(table))
    assert_frame_equal(model.transform(table.iloc[order]).loc[table.index], found)
    assert found.groupby("g")["y"].nunique()["p0"] == 1
    new = table.replace({"g": {"p1": "new"}})
    numbers = [one.drop(columns="g") for one in (model.transform(new), found)]
    assert_frame_equal(*numbers)


def test_the_rows_of_a_group_matter_and_no_others(fitted, sloped):
    rows = np.flatnonzero(HIDDEN["y"])
    place = next(i for i in rows if not HIDDEN["y"][(i // SIZE) * SIZE : i].any())
    own = X["g"] == X["g"][place]
    table = X.copy()
    table.loc[own & X["y"].notna(), "y"] += 1.5
    for model in (fitted, sloped):
        before, after = model.transform(X), model.transform(table)
        assert after["y"][place] - before["y"][place] > 0.3
        numbers = [one[~own].drop(columns="g") for one in (before, after)]
        np.testing.assert_allclose(*numbers, atol=1e-9)
        some = model.transform(X[own])
        np.testing.assert_allclose(some["y"], before["y"][own])
        alone = model.transform(X.loc[[place]])["y"][place]
        assert abs(alone - before["y"][place]) > 0.1


def test_new_groups(fitted):
    new = frame(9).replace({"g": {f"p{i}": f"q{i}" for i in range(N_GROUPS)}})
    found = fitted.transform(new)
    assert found["g"].equals(new["g"])
    both = pd.concat([X, new], ignore_index=True)
    together = fitted.transform(both).iloc[len(X) :]
    np.testing.assert_allclose(together["y"], found["y"])
    np.testing.assert_allclose(together["w"], found["w"])


def kinds_of_groups():
    numbers = X["g"].str[1:].astype(int)
    yield X.assign(g=7 * numbers - 3)
    yield X.assign(g=X["g"].astype("category"))
    yield X.assign(g=numbers.astype(float) / 4)
    yield pl.from_pandas(X)
    yield pl.from_pandas(X).with_columns(pl.col("g").cast(pl.Categorical))


@pytest.mark.quick(2)
@pytest.mark.parametrize("place", range(5))
def test_frames_with_groups_of_any_type(place, fitted):
    table = list(kinds_of_groups())[place]
    output = "polars" if isinstance(table, pl.DataFrame) else "pandas"
    model = imputer().set_output(transform=output).fit(table)
    expected = [fitted.transform(X), *fitted.sample(X, 2, 0)]
    for one, other in zip(
        [model.transform(table), *model.sample(table, 2, 0)], expected, strict=True
    ):
        assert type(one) is type(table) and one["g"].dtype == table["g"].dtype
        assert one["g"].to_list() == table["g"].to_list()
        for name in ("y", "x", "w", "t"):
            np.testing.assert_array_equal(one[name].to_numpy(), other[name])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays_name_groups_by_index(dtype, fitted):
    table = X.assign(g=X["g"].str[1:].astype(int)).to_numpy(dtype)
    before = table.copy()
    model = imputer(0).set_output(transform="default").fit(table)
    found = model.transform(table)
    assert found.dtype == dtype
    np.testing.assert_array_equal(table, before)
    np.testing.assert_array_equal(found[:, 0], table[:, 0])
    tight = {"rtol": 1e-9} if dtype == np.float64 else {"atol": 1e-2}
    expected = fitted.transform(X).drop(columns="g")
    np.testing.assert_allclose(found[:, 1:], expected, **tight)
    [drawn] = model.sample(table, 1, 0)
    np.testing.assert_array_equal(drawn[:, 0], table[:, 0])
    negative = imputer(-5).set_output(transform="default").fit(table)
    np.testing.assert_array_equal(negative.transform(table), found)


def alike(n_groups=40, size=6, seed=0):
    """Make groups with large effects, of which a row misses y; and the effects."""
    rng = np.random.default_rng(seed)
    g, u = np.repeat(np.arange(n_groups), size), 2 * rng.normal(size=n_groups)
    y = u[g] + 0.3 * rng.normal(size=len(g))
    y[::size] = np.nan
    return pd.DataFrame({"g": g, "y": y, "x": rng.normal(size=len(g))}), u


def test_quantiles_condition_on_complete_rows(monkeypatch):
    table, u = alike()
    model = imputer().fit(table)
    lost = table["y"].isna()
    low, high = model.interval(table, n_draws=39, random_state=0)
    middle = model.quantile(table, n_draws=39, random_state=0)
    for one in (low, middle, high):
        assert np.corrcoef(one["y"][lost], u)[0, 1] > 0.95
    assert (low["y"][lost] < middle["y"][lost]).all()
    assert (middle["y"][lost] < high["y"][lost]).all()
    assert (high["y"] - low["y"])[lost].mean() < 2  # of a standard deviation of 0.33
    monkeypatch.setattr(fill, "_CHUNK", 3 * 39 * 60)
    parts = model.quantile(table, n_draws=39, random_state=0)
    assert abs(parts["y"] - middle["y"])[lost].max() < 0.5
    # and the rows of a group stay together
    narrow = imputer().fit(X).quantile(X, n_draws=39, random_state=0)
    assert are_constant(narrow, "w")


def test_groups_are_whole_in_chunks_of_rows(fitted, monkeypatch):
    found, drawn = fitted.transform(X), fitted.sample(X, 2, 0)[0]
    monkeypatch.setattr(fill, "_CHUNK", 40)
    assert_frame_equal(fitted.transform(X), found)
    for one in fitted.sample(X, 2, 0):
        assert are_constant(one, "w")
        assert not one.equals(drawn)  # as the chunks have other random numbers


def test_probabilities_of_categories_follow_the_group(mixed):
    found = mixed.category_probabilities(MIXED)
    assert set(found) == {"k", "kind"}
    for name, p in found.items():
        np.testing.assert_allclose(p.sum(axis=1), 1)
        best = p.columns[p.to_numpy().argmax(1)]
        filled = mixed.transform(MIXED)[name]
        assert (filled.to_numpy() == best).all()
    lost = MIXED["k"].isna() & MIXED["y"].isna()
    table = MIXED.copy()
    table.loc[table["k"].notna(), "k"] = "a"
    table["y"] = table["y"].where(table["y"].isna(), 2.0)
    changed = mixed.category_probabilities(table)["k"]["a"]
    assert (changed[lost] > found["k"]["a"][lost]).all()


def test_a_shift_moves_missing_cells(fitted):
    def cells(shift):
        tables = fitted.sample(X, 20, 0, as_array=True, shift={"y": shift})
        return tables[:, :, 1:].astype(float)

    moved, spread = cells(0.5) - cells(0.0), np.nanstd(X["y"])
    lost = HIDDEN["y"].to_numpy()
    assert moved[:, lost, 1].mean() / spread == pytest.approx(0.5, abs=0.05)
    assert (moved[:, ~lost] == 0).all()  # of rows that are not shifted
    assert (moved[:, :, 3] == 0).all()
    both = lost & HIDDEN["x"].to_numpy()
    assert moved[:, both, 2].mean() > 0.1 * spread  # other cells follow
    # without a shift they are like the draws of sample
    table, u = alike()
    model = imputer().fit(table)
    drawn = model.sample(table, 1, 0, shift={"y": 0.0})[0]["y"][table["y"].isna()]
    assert np.corrcoef(drawn, u)[0, 1] > 0.95


def test_a_shift_of_categories(mixed):
    lost = MIXED["k"].isna().to_numpy()

    def share(odds):
        tables = mixed.sample(MIXED, 8, 0, shift={"k": {"a": odds}})
        return np.mean([(one["k"] == "a")[lost].mean() for one in tables])

    assert share(2.0) - share(-2.0) > 0.2


def test_where(fitted):
    mask = np.random.default_rng(0).random(len(X)) < 0.5
    stay = HIDDEN["y"] & ~mask
    found, whole = fitted.transform(X, where={"y": mask}), fitted.transform(X)
    assert_frame_equal(found, whole.assign(y=whole["y"].mask(stay)))

    def rule(table):
        return {"x": table["y"] > 0}

    # cells of a row that contradicts the rule are drawn again, often enough for most
    drawn = ~HIDDEN["x"] & HIDDEN["y"]
    assert all((one["y"][drawn] > 0).mean() < 0.75 for one in fitted.sample(X, 3, 0))
    tables = fitted.sample(X, 3, 0, where=rule)
    assert all((one["y"][drawn] > 0).mean() > 0.8 for one in tables)
    for one in [*tables, fitted.transform(X, where=rule)]:
        np.testing.assert_array_equal(one["x"].isna(), HIDDEN["x"] & ~(one["y"] > 0))
        assert one["y"][~HIDDEN["y"]].equals(X["y"][~HIDDEN["y"]])


def test_rows_that_are_drawn_again_keep_the_value_of_their_group(fitted):
    def rule(table):
        return {"x": table["w"] > 0}

    for one in fitted.sample(X, 3, 0, where=rule):
        assert are_constant(one, "w")
        np.testing.assert_array_equal(one["x"].isna(), HIDDEN["x"] & ~(one["w"] > 0))
    with pytest.raises(ValueError, match="cannot be combined with functions of where"):
        fitted.sample(X, 1, 0, where=rule, lower={"y": 0.0})


def test_rules_do_not_change_single_rows_of_groups(mixed):
    """Predictions of such rows get another level of other columns."""

    def rule(table):
        return {"y": table["w"] > 0, "x": table["kind"] == "u"}

    found = mixed.transform(MIXED, where=rule)
    assert are_constant(found, "w", "kind")
    assert found[["w", "kind"]].notna().all(axis=None)
    for one in mixed.sample(MIXED, 2, 0, where=rule):
        assert are_constant(one, "w", "kind")


def test_limits_of_columns_of_groups_are_errors(fitted):
    message = "lower and upper have limits of column 'w', constant within groups"
    for call in (imputer().fit, fitted.transform, fitted.sample, fitted.interval):
        refused(ValueError, message, call, X, lower={"w": 9.0})


def test_limits_of_cells(fitted):
    given = {"lower": {"y": 0.5}, "upper": {"x": 0.0}}
    model, lost = imputer().fit(X, **given), HIDDEN
    several = [model.transform(X, **given), *model.sample(X, 3, 0, **given)]
    several += model.interval(X, n_draws=39, random_state=0, **given)
    for one in several:
        assert (one["y"][lost["y"]] >= 0.5).all() and (one["x"][lost["x"]] <= 0).all()
        assert are_constant(one, "w")
    free = fitted.transform(X)
    assert (free["y"][lost["y"]] < 0.5).any()
    # parameters account for the limits
    assert model.mean_[1] > fitted.mean_[1]


def test_bounds_of_columns():
    model = imputer(min_value={"y": -0.1}, max_value={"w": 0.2})
    table = X.assign(y=X["y"].clip(-0.1), w=X["w"].clip(None, 0.2))
    model.fit(table)
    for one in [model.transform(table), *model.sample(table, 3, 0)]:
        assert one["y"].min() >= -0.1 and one["w"].max() <= 0.2
        assert are_constant(one, "w")


def test_medians_are_between_the_quantiles():
    table, _ = alike()
    table["y"] = np.exp(table["y"])
    lost = table["y"].isna()
    fits = (imputer(strategy=one).fit(table) for one in ("mean", "median", "mode"))
    mean, median, mode = (one.transform(table)["y"][lost] for one in fits)
    # modes are found on a grid of draws, and err more
    assert (mode < median).mean() > 0.65 and (median < mean).mean() > 0.8


def test_rows_of_weight_zero_do_not_count(fitted):
    more = pd.concat([X, frame(5).assign(g="other")], ignore_index=True)
    weights = np.repeat([1.0, 0.0], [len(X), len(more) - len(X)])
    model = imputer().fit(more, sample_weight=weights)
    np.testing.assert_allclose(model.mean_, fitted.mean_)
    np.testing.assert_allclose(model.covariance_, fitted.covariance_)
    heavy = np.where(X["y"] > 0, 3.0, 1.0)
    assert imputer().fit(X, sample_weight=heavy).mean_[1] > fitted.mean_[1] + 0.1


def test_stored_models_are_equal(sloped):
    trusted = ["skvnce.gaussian.estimator.GaussianImputer"]
    by_skops = skops.io.loads(skops.io.dumps(sloped), trusted=trusted)
    for other in (by_skops, pickle.loads(pickle.dumps(sloped))):
        assert_frame_equal(other.transform(X), sloped.transform(X))
        assert_frame_equal(other.sample(X, 2, 0)[1], sloped.sample(X, 2, 0)[1])


NAMED = {"g": {"constant": ["w"]}}


def once(name):
    """Keep a cell of each group of a column."""
    return X.assign(**{name: X[name].where(~X[X[name].notna()].duplicated("g"))})


def test_columns_of_groups_may_be_named(fitted):
    table = once("w")
    assert imputer().fit(table).group_columns_.tolist() == []
    model = imputer(NAMED).fit(table)
    assert model.group_columns_.tolist() == [4]
    for one in (model.transform(table), *model.sample(table, 2, 0)):
        assert are_constant(one, "w") and one["w"].notna().all()
    expected = fitted.sample(X, 2, 0)[1]
    assert_frame_equal(imputer(NAMED).fit(X).sample(X, 2, 0)[1], expected)
    both = imputer({"g": {"slopes": ["t"], "constant": ["w"]}}).fit(table)
    assert both.group_columns_.tolist() == [4]
    assert both.slope_covariance_.shape == (2, 2)
    kind = imputer({"g": {"constant": ["kind"]}}).fit(MIXED.assign(kind="u"))
    assert kind.constants_ == {6: "u"}  # as in a fold in which it is constant


@pytest.mark.parametrize("name", ["y", "k"])
def test_named_columns_that_vary_are_errors(name):
    message = f"calls column '{name}' constant within groups, .* the group 'p0'. Corr"
    for table in (MIXED, pl.from_pandas(MIXED)):
        refused(ValueError, message, imputer({"g": {"constant": [name]}}).fit, table)


def test_documented_attributes(sloped, mixed):
    of_nodes = "nonlinear_columns_", "calibrated_columns_", "marginal_columns_"
    of_nodes += "location_", "scale_", "feature_indices_"
    for model, d, n_nodes, n_slopes in ((sloped, 3, 4, 2), (mixed, 8, 6, 0)):
        shapes = {
            **dict.fromkeys(["mean_", "intraclass_correlations_"], (d,)),
            **dict.fromkeys(["covariance_", "group_covariance_"], (d, d)),
            **dict.fromkeys(of_nodes, (n_nodes,)),
            **{"slope_covariance_": (n_slopes,) * 2, "r_hat_": (2, d)},
            **{
                "trace_": (ROUNDS, 2, d),
                "loss_curve_": (ROUNDS,),
                "latent_names_": (d,),
            },
        }
        assert {name: np.shape(getattr(model, name)) for name in shapes} == shapes
        assert 0 < model.n_burn_in_ < model.n_iter_ == ROUNDS
        assert np.isnan(model.shrinkage_)
        means, covariances = model.sample_parameters()
        assert means.shape == (20, d) and covariances.shape == (20, d, d)
        np.testing.assert_allclose(means.mean(0), model.mean_, atol=0.5)
    assert list(sloped.latent_names_) == ["y", "x", "w"]
    names = ["t", "y", "x", "w", "k", "kind=u", "kind=v", "kind=z"]
    assert sorted(mixed.latent_names_) == sorted(names)
    shares = dict(zip(mixed.latent_names_, mixed.intraclass_correlations_, strict=True))
    assert shares["w"] == shares["kind=u"] == 1
    assert shares["t"] < 0.2 < 0.4 < shares["y"] < 0.95
    # a column of groups has no residuals
    between = np.diag(mixed.group_covariance_) / np.diag(mixed.covariance_)
    assert between[list(mixed.latent_names_).index("w")] == pytest.approx(1)
    assert not hasattr(mixed, "sample_rows")


def test_the_error_of_held_out_cells_is_that_of_groups():
    table, _ = alike()
    gain = imputer(on_misfit="warn").fit(table).held_out_gain_
    plain = imputer(None, on_misfit="warn").fit(table[["y", "x"]]).held_out_gain_
    assert gain > 0.3 > 0.15 > plain


def correlation_within(table):
    """Estimate the intra-class correlation of y by the analysis of variance."""
    groups = table.groupby("g")["y"]
    size = groups.size().iloc[0]
    within, between = groups.var().mean(), groups.mean().var() * size
    return (between - within) / (between + (size - 1) * within)


def test_imputed_rows_are_as_alike_as_observed_ones(rng):
    g = np.repeat(np.arange(300), 5)
    y = 0.6**0.5 * rng.normal(size=300)[g] + 0.4**0.5 * rng.normal(size=len(g))
    table = pd.DataFrame({"g": g, "y": y, "x": rng.normal(size=len(g))})
    complete = correlation_within(table)
    table["y"] = table["y"].mask(rng.random(len(g)) < 0.45)
    assert 0.5 < complete < 0.7

    def imputed(groups, columns):
        model = imputer(groups, max_iter=120).fit(table[columns])
        draws = model.sample(table[columns], 10, 0)
        return np.mean([correlation_within(one.assign(g=g)) for one in draws])

    assert imputed("g", ["g", "y", "x"]) > 0.5 and imputed(None, ["y", "x"]) < 0.4


def test_random_slopes_predict_better(rng):
    g, t = np.repeat(np.arange(40), 7), np.tile(np.linspace(-1.5, 1.5, 7), 40)
    u = rng.normal(size=(40, 2))
    y = u[g, 0] + 1.5 * u[g, 1] * t + 0.3 * rng.normal(size=len(g))
    table = pd.DataFrame({"g": g, "t": t, "y": y, "x": rng.normal(size=len(g))})
    lost = rng.random(len(g)) < 0.25
    table["y"] = table["y"].mask(lost)

    def error(groups):
        model = imputer(groups, max_iter=120).fit(table)
        return model, np.sqrt(np.mean((model.transform(table)["y"] - y)[lost] ** 2))

    (model, own), (_, other) = error({"g": ["t"]}), error("g")
    assert own < 0.6 < 1.0 < other
    spread = np.diag(model.slope_covariance_) ** 0.5 / t.std()
    assert spread[0] == pytest.approx(1.5, abs=0.75) and spread[1] < 0.5


def test_a_reference_group_has_its_own_model():
    fitted = imputer(max_iter=80).fit(X)  # 40 rounds move the draws by less
    high = X[X["g"].isin([f"p{i}" for i in range(15)])].copy()
    high["y"] += 3
    [plain] = fitted.sample(X, 1, 0)
    [found] = fitted.sample(X, 1, 0, reference=high)
    assert are_constant(found, "w")
    lost = HIDDEN["y"]
    assert found["y"][lost].mean() > plain["y"][lost].mean() + 0.3
    with pytest.warns(TableWarning, match="groups has no effect"):
        fitted.sample(X, 1, 0, reference=X[X["g"] == "p0"])


def test_equations_hold_in_tables_of_groups():
    table = X.assign(z=X["x"] + X["y"])
    model = ConstrainedImputer(imputer(), sums={"z": ["x", "y"]}, random_state=0)
    model.set_output(transform="pandas").fit(table)
    draws = model.sample(table, 2, 0), model.sample(table, 2, 0, shift={"x": 0.5})
    for one in [model.transform(table), *draws[0], *draws[1]]:
        np.testing.assert_allclose(one["z"], one["x"] + one["y"], atol=1e-9)
        assert are_constant(one, "w")


def test_a_classifier_of_imputed_tables_uses_the_group():
    table, u = alike()
    y = (np.repeat(u, 6) > 0).astype(int)
    given = {"n_estimators": 3, "n_draws": 6, "random_state": 0, "calibration_cv": 2}
    model = MultipleImputationClassifier(imputer(), LogisticRegression(), **given)
    model.fit(table, y)
    lost = table["y"].isna()
    together = model.predict_proba(table)[lost, 1]
    alone = model.predict_proba(table[lost])[:, 1]

    def error(p):
        return np.mean((p - (u > 0)) ** 2)

    assert error(together) < 0.1 < error(alone)


def changed(name, values):
    return X.assign(**{name: values})


LACKING = X["g"].mask(X.index == 3)


@pytest.mark.parametrize(
    ("groups", "table", "message"),
    [
        ("q", X, "groups has the key 'q', no column of X"),
        (9, X.drop(columns="g").to_numpy(), "groups has the key 9, no column of X"),
        ("g", changed("g", LACKING), "'g', which groups names, is missing in row 3"),
        ({"g": ["t"], "t": []}, X, "groups must have one column"),
        ({}, X, "groups must have one column"),
        ({"g": "t"}, X, "must be a list of columns whose slopes differ"),
        ({"g": {"slope": ["t"]}}, X, "the keys 'slopes' and 'constant'"),
        ({"g": {"constant": "w"}}, X, "the keys 'slopes' and 'constant'"),
        ({"g": {"constant": ["q"]}}, X, "groups has the key 'q', no column of X"),
        ({"g": {"constant": ["g"]}}, X, "calls column 'g' constant, which the model d"),
        ({"g": {"slopes": ["t"], "constant": ["t"]}}, X, "both slopes of column 't'"),
        ({"g": ["g"]}, X, "slopes of column 'g', which the model does not use"),
        ({"g": ["q"]}, X, "groups has the key 'q', no column of X"),
        ({"g": ["y"]}, X, "slopes of column 'y', which is missing in row"),
        ({"g": ["t", "t"]}, X, "slopes of column 't' twice"),
        ({"g": ["k"]}, MIXED, "slopes of column 'k', which has categories"),
        ({"g": ["t"]}, changed("t", 1.0), "slopes of column 't', which the model does"),
        ("g", X[["g", "w"]], "groups needs a column that varies within groups"),
        ({"g": ["t"]}, X[["g", "t"]], "groups needs a column that varies within"),
        (["g"], X, "groups"),
    ],
)
def test_errors_of_fit(groups, table, message):
    refused(ValueError, message, imputer(groups).fit, table)


@pytest.mark.parametrize("method", ["transform", "sample", "interval"])
def test_errors_of_new_tables(method, fitted, sloped):
    with pytest.raises(ValueError, match="which groups names, is missing in row 3"):
        getattr(fitted, method)(changed("g", LACKING))
    with pytest.raises(ValueError, match="'w' was constant within groups at fit"):
        getattr(fitted, method)(changed("w", np.arange(len(X)) / 100))
    with pytest.raises(ValueError, match="slopes of column 't', which is missing"):
        getattr(sloped, method)(changed("t", X["t"].mask(X.index == 4)))


def test_tables_in_parts_are_errors(fitted):
    dask = pytest.importorskip("dask.dataframe")
    lazy = dask.from_pandas(X, npartitions=2)
    for call in (imputer().fit, fitted.transform, fitted.sample):
        for table in (Chunks([X, X]), lazy):
            refused(ValueError, "groups is not available for a table i", call, table)


def test_shifts_of_columns_of_groups_are_errors(fitted, mixed):
    of_levels = mixed, MIXED, {"kind": {"u": 1.0}}
    for model, table, shift in ((fitted, X, {"w": 1.0}), of_levels):
        with pytest.raises(ValueError, match="constant within groups: all rows of a"):
            model.sample(table, 1, 0, shift=shift)
    with pytest.raises(ValueError, match="'g', which is passed through"):
        fitted.sample(X, 1, 0, shift={"g": {"p0": 1.0}})


def test_columns_with_slopes_have_no_shift_and_no_where(sloped):
    message = "has column 't', whose slopes differ between groups: none of its cells"
    refused(ValueError, f"shift {message}", sloped.sample, X, 1, 0, shift={"t": 1.0})
    mask = np.zeros(len(X), dtype=bool)
    for call in (sloped.transform, sloped.sample, sloped.interval):
        refused(ValueError, f"where {message}", call, X, where={"t": mask})
    everything = pd.DataFrame(True, X.index, X.columns)
    assert sloped.transform(X, where=everything).notna().all(axis=None)


def test_wrappers_check_shifts_and_rules_of_groups(fitted):
    model = ConstrainedImputer(imputer(), random_state=0).fit(X)
    with pytest.raises(ValueError, match="'w', constant within groups"):
        model.sample(X, 1, 0, shift={"w": 1.0})
    found = model.transform(X, where=lambda table: {"y": table["w"] > 0})
    assert found.shape == X.shape
    table = pd.DataFrame(found, columns=X.columns)
    assert are_constant(table, "w")


def test_what_groups_are_not_for_is_an_error(fitted):
    stream = "partial_fit is not available with group"
    columns = "cannot have groups, of which the models of"
    for call, words in [
        (imputer().partial_fit, stream),
        (fitted.partial_fit, stream),
        (ColumnImputer(imputer()).fit, columns),
        (ColumnImputer([GaussianImputer(), imputer()]).fit, columns),
    ]:
        refused(ValueError, words, call, X)


def test_columns_of_groups_get_values_that_no_other_group_has(rng_0):
    code = np.repeat(np.arange(30), 8)
    w = rng_0.normal(size=30)[code]
    table = pd.DataFrame({"g": code, "w": w, "y": w + rng_0.normal(size=240)})
    table["w"] = table["w"].where(code > 5)
    model = imputer().fit(table)
    [drawn] = model.sample(table, random_state=0)
    new = drawn["w"][code <= 5]
    assert not np.isin(new, table["w"]).any() and new.nunique() == 6
    low, high = model.feature_ranges_[:, 1]
    assert low < table["w"].min() and high > table["w"].max()


def test_zeros_of_counts_are_as_frequent_as_observed(rng_0):
    code = np.repeat(np.arange(60), 10)
    effect = rng_0.normal(size=60)[code]
    z = np.where(
        rng_0.random(600) < 0.5, 0.0, 1 + rng_0.exponential(size=600) + effect**2
    )
    table = pd.DataFrame({"g": code, "z": z.round(2), "x": effect})
    table["x"] += rng_0.normal(size=600)
    lost = rng_0.random(600) < 0.3
    table["z"] = table["z"].mask(lost)
    draws = imputer().fit(table).sample(table, 10, random_state=0)
    share = np.mean([(one["z"][lost] == 0).mean() for one in draws])
    # three standard errors of a share of 420 observed cells
    assert abs(share - (z == 0).mean()) < 0.08


@pytest.mark.parametrize("kind", ["rows", "groups"])
def test_collinear_columns_are_fitted(kind, rng_0):
    code = np.repeat(np.arange(40), 5)
    y = rng_0.normal(size=40)[code] + rng_0.normal(size=200)
    x = y if kind == "rows" else rng_0.normal(size=40)[code]
    table = pd.DataFrame({"g": code, "y": y, "a": x, "b": 2.54 * x})
    table["b"] = table["b"].where(code > 3)
    filled = imputer().fit(table).transform(table)
    error = (filled["b"] - 2.54 * x)[code <= 3]
    assert np.sqrt((error**2).mean()) < 0.2 * np.std(2.54 * x)


def test_few_groups_are_reported(rng_0):
    table = pd.DataFrame(rng_0.normal(size=(60, 6))).add_prefix("x")
    table.insert(0, "g", np.repeat(np.arange(5), 12))
    with pytest.warns(TableWarning, match="names 5 groups, and each has 6 effects"):
        imputer().fit(table)
    table["g"] = np.repeat(np.arange(12), 5)
    imputer().fit(table)  # warnings are errors


def test_whole_groups_are_chosen():
    numbers = np.repeat(np.arange(6000.0), 3)
    rows = sample_groups(numbers)
    assert 9000 < len(rows) <= 10_002
    assert (np.unique(numbers[rows], return_counts=True)[1] == 3).all()


def test_advice_on_slow_chains_counts_two_sweeps_a_round():
    r_hat, names = np.array([[1.2], [1.0]]), ["x"]
    for of_sweep in (2, 0.5):
        text = slow_chain(r_hat, names, 400, 160, of_sweep)
        sweeps = int(re.search(r"([\d,]+) sweeps would", text)[1].replace(",", ""))
        rounds = int(re.search(r"max_iter=(\d+)", text)[1])
        assert rounds == np.ceil(of_sweep * sweeps)


def test_a_fit_whose_chain_drifts_warns():
    rng = np.random.default_rng(2)
    code = np.repeat(np.arange(200), 2)
    score = rng.normal(size=200)[code] + rng.normal(size=400)
    x0 = pd.Series(rng.normal(size=400)).mask(rng.random(400) < 0.6)
    x1 = pd.Series(score > 0).astype(int).astype("category")
    table = pd.DataFrame({"x0": x0, "x1": x1, "g": code})
    with pytest.warns(ConvergenceWarning, match=r"R-hat is .* fit with max_iter=\d+"):
        short = imputer(max_iter=1, n_parameter_draws=4).fit(table)
    assert np.nanmax(short.r_hat_) > 1.5
    with warnings.catch_warnings(action="error", category=ConvergenceWarning):
        long = imputer(max_iter=200).fit(X)
    assert np.nanmax(long.r_hat_) < 1.5


@pytest.mark.parametrize("of_groups", [False, True])
def test_skewed_columns_are_not_filled_by_their_bound(of_groups):
    """A normal distribution of them would put a third of its mass below 0."""
    rng = np.random.default_rng(1)
    code, n = np.repeat(np.arange(40), 10), 400
    u = rng.normal(size=40)[code]
    x = np.exp(1.5 * (u if of_groups else 0.6 * u + 0.8 * rng.normal(size=n)))
    table = pd.DataFrame({"g": code, "x": x, "y": u + rng.normal(size=n)})
    table["z"] = table["y"] + rng.normal(size=n)
    lost = code % 4 == 0 if of_groups else rng.random(n) < 0.3
    table["x"] = table["x"].mask(lost)
    model = imputer().fit(table)
    n_draws = 60 if of_groups else 10  # of ten groups
    draws = np.array([one["x"][lost] for one in model.sample(table, n_draws, 0)])
    assert draws.min() >= 0 and (draws == 0).mean() < 0.1
    assert 0.5 < np.median(draws) / np.median(x[lost]) < 2
    normal = imputer(marginals="normal").fit(table).sample(table, 10, 0)
    assert np.mean([(one["x"][lost] == 0).mean() for one in normal]) > 0.25


def test_draws_of_unpredicted_columns_follow_the_model(rng_0):
    code = np.repeat(np.arange(40), 6)
    x = np.exp(2.5 * (rng_0.normal(size=40)[code] + 0.5 * rng_0.normal(size=240)))
    table = pd.DataFrame({"g": code, "x": x, "y": rng_0.normal(size=240)})
    table["x"] = table["x"].mask(rng_0.random(240) < 0.3)
    with warnings.catch_warnings(action="ignore"):
        model = imputer(on_misfit="warn").fit(table)
    assert not model.marginal_columns_.any() and model._schema.marginals == {}


def test_tails_near_zero_hold_where_small_cells_are_missing(monkeypatch, rng_0):
    """Tails by the observed cells alone are the control: draws are too large."""
    x = rng_0.normal(size=600)
    share = stats.norm.cdf(0.7 * x + np.sqrt(0.51) * rng_0.normal(size=600))
    y = stats.gamma(0.5).ppf(share)
    hidden = x < np.quantile(x, 0.3)
    table = pd.DataFrame({"x": x, "y": y}).mask(hidden[:, None] * [False, True])
    table["g"] = np.arange(600) // 10

    def spread():
        drawn = imputer().fit(table).sample(table, 2, 0)
        logs = np.log([one["y"].to_numpy(float)[hidden] for one in drawn])
        return logs.std() / np.log(y[hidden]).std()

    assert 0.75 < spread() < 2.0

    def without(found, known, *others):
        return signed(found, {}, *others)

    signed = groups_fit._with_signs
    monkeypatch.setattr(groups_fit, "_with_signs", without)
    assert spread() < 0.65
