"""Draws under a shift: missing values differ from those of similar rows.

Little (1993), Pattern-mixture models for multivariate incomplete data.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from cases import EACH_IMPUTER, quick_gaussian

from skvnce import ColumnImputer, GaussianImputer
from skvnce._imputer import imputer as _imputer
from skvnce._imputer.shift import Shift, Shifted

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

COVARIANCE = np.array([[1.0, 0.6, 0.5], [0.6, 1.0, 0.7], [0.5, 0.7, 1.0]])


def normal_rows(n, seed):
    """Draw rows; columns 1 and 2 miss 30 % of their cells, and column 0 none."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(np.zeros(3), COVARIANCE, n)
    X[:, 1:][rng.random((n, 2)) < 0.3] = np.nan
    return X


def mixed_rows(n, seed):
    """Make a frame with numbers, counts and two kinds of categories."""
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal(np.zeros(3), COVARIANCE, n)
    frame = pd.DataFrame(
        {
            "income": z[:, 0],
            "smoker": pd.Categorical(np.where(z[:, 1] > -0.5, "yes", "no")),
            "weight": z[:, 2],
            "visits": rng.poisson(np.exp(0.3 * z[:, 0])),
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    frame["visits"] = frame["visits"].astype("Int64")
    return frame


@pytest.mark.quick(1)
@EACH_IMPUTER
@pytest.mark.parametrize("kind", ["numbers", "counts"])
def test_a_shift_that_a_range_cuts_off_is_announced(imputer, kind):
    X = cells = normal_rows(150, 1)
    if kind == "counts":
        cells = np.rint(X)
        X = pd.DataFrame(np.rint(X), columns=list("abc")).astype("Int64")
    # by default ranges of numbers are infinite
    ends = {"min_value": "observed", "max_value": "observed"}
    if isinstance(imputer, ColumnImputer):
        ends = {"model": GaussianImputer(**ends)}
    imputer.set_params(**ends).fit(X)
    column = 1 if kind == "numbers" else "b"
    hidden = np.isnan(cells[:, 1])

    def mean(shift):
        tables = imputer.sample(X, 10, 0, as_array=True, shift=shift)
        return tables[:, hidden, 1].astype(float).mean()

    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", "Draws of .* are for filling")
        before = mean({column: 0.0})
        mean({column: 0.1, 0 if kind == "numbers" else "a": -50.0})  # none are missing
    with pytest.warns(UserWarning, match="not by 9.00, as values") as caught:
        after = mean({column: 9.0})
    (message,) = [str(one.message) for one in caught if " by " in str(one.message)]
    said = float(message.split(" by ")[1].split()[0])
    spread = np.nanstd(cells[:, 1])
    assert abs((after - before) / spread - said) < 0.1


@EACH_IMPUTER
def test_missing_cells_move_by_standard_deviations_and_no_others(imputer):
    X = normal_rows(120, 0)
    imputer.fit(X)
    draws = [imputer.sample(X, 3, 0, as_array=True, shift={1: d}) for d in (0, -0.01)]
    moved, hidden = draws[1] - draws[0], np.isnan(X)
    spread = np.nanstd(X[:, 1])
    low, high = imputer.feature_ranges_[:, 1]
    free = (draws[0][..., 1] > low + 0.1) & (draws[0][..., 1] < high - 0.1)
    free &= hidden[:, 1]
    assert free.sum() > 50
    np.testing.assert_allclose(moved[..., 1][free], -0.01 * spread, rtol=1e-4)
    assert not moved[:, ~hidden[:, 1]].any()  # rows that observe the column


def test_other_missing_cells_follow_by_their_regression():
    # E(x2 | x0, x1) rises by (.7 - .5 * .6) / (1 - .6**2) = .625 for each unit of x1
    X = normal_rows(3000, 1)
    imputer = GaussianImputer(marginals="normal", random_state=0).fit(X)
    zero, shifted = (
        imputer.sample(X, 40, 0, as_array=True, shift={1: delta}) for delta in (0, 1.0)
    )
    both = np.isnan(X[:, 1]) & np.isnan(X[:, 2])
    found = (shifted - zero)[:, both, 2].mean() / np.nanstd(X[:, 1])
    # The standard error of the slope is sqrt((1 - R^2) / (1470 * .64)), about .023,
    # as some 1470 rows observe both; that of the draws is below .01.
    assert abs(found - 0.625) < 0.1
    plain = imputer.sample(X, 40, 0, as_array=True)
    assert abs((plain - zero)[:, both, 2].mean()) < 0.06  # a shift of 0 is none


@pytest.mark.slow
def test_log_odds_of_levels():
    frame = mixed_rows(600, 2)
    imputer = GaussianImputer(random_state=0).fit(frame)
    hidden = frame["smoker"].isna()
    p = imputer.category_probabilities(frame)["smoker"]["yes"].to_numpy()[hidden]
    for odds in (0.7, -2.0):
        shift = {"smoker": {"yes": odds}}
        draws = imputer.sample(frame, 40, 0, shift=shift)
        shares = [(table[hidden.to_numpy(), 1] == "yes").mean() for table in draws]
        expected = (p / (p + (1 - p) * np.exp(-odds))).mean()
        # 40 tables of some 180 cells and 20 parameters; the error without a shift is
        # (.7: .09, -2: .4)
        assert abs(np.mean(shares) - expected) < 0.03


def test_log_odds_of_another_level_are_their_negative():
    frame = mixed_rows(300, 3)
    imputer = quick_gaussian().fit(frame)
    one, other = (
        imputer.sample(frame, 2, 0, as_array=True, shift={"smoker": odds})
        for odds in ({"yes": 0.7}, {"no": -0.7})
    )
    assert (one == other).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("unit", [1, 5])
def test_counts_move_by_their_mean_and_stay_counts(unit):
    frame = mixed_rows(600, 4)
    frame["visits"] *= unit  # spreads are in units of the counts, not of their codes
    imputer = quick_gaussian().set_output(transform="pandas").fit(frame)
    hidden = frame["visits"].isna()
    zero, shifted = (
        imputer.sample(frame, 40, 0, shift={"visits": delta}) for delta in (0, 0.3)
    )
    means = [
        np.mean([table["visits"][hidden].mean() for table in tables])
        for tables in (zero, shifted)
    ]
    spread = frame["visits"].astype(float).std(ddof=0)
    assert shifted[0]["visits"].dtype == "Int64"
    assert set(shifted[0]["visits"]) <= set(frame["visits"].dropna())
    # 40 * 180 cells are rounded at random, with a variance of at most 1/4; the largest
    # count cannot rise further
    assert abs(means[1] - means[0] - 0.3 * spread) < 0.04 * unit


def test_integers_are_not_rounded_back():
    rng = np.random.default_rng(5)
    x = rng.normal(size=400)
    X = np.column_stack([x, np.round(1000 * x + 300 * rng.normal(size=400))])
    X[:200, 1] = np.nan
    imputer = quick_gaussian().fit(X)
    zero, shifted = (
        imputer.sample(X, 20, 0, as_array=True, shift={1: delta}) for delta in (0, 3e-4)
    )
    moved = (shifted - zero)[:, :200, 1]
    assert (shifted[..., 1] == shifted[..., 1].round()).all()
    assert set(np.unique(moved)) == {0.0, 1.0}
    # a variance of at most 1/4 for each of 4000 cells
    assert abs(moved.mean() - 3e-4 * np.nanstd(X[:, 1])) < 0.04


@pytest.fixture(scope="module")
def fitted():
    frame = mixed_rows(80, 8)
    return frame, quick_gaussian().fit(frame)


@pytest.mark.parametrize(
    ("shift", "error", "message"),
    [
        ({"wage": 1}, ValueError, "shift has the key 'wage', no column of X: 'income'"),
        ({0: 1}, ValueError, "shift has the key 0, no column"),
        ({"income": {"a": 1}}, TypeError, r"shift\['income'\] must be a number"),
        ({"smoker": 1.0}, TypeError, r"shift\['smoker'\] must be a dict of levels"),
        ({"smoker": {"no way": 1.0}}, ValueError, "level 'no way', which fit has not"),
        ({"smoker": {"yes": "1"}}, TypeError, r"shift\['smoker'\]\['yes'\] must be a"),
        ({"smoker": {"yes": 7}}, ValueError, "differ by 7, more than 6"),
        ({"income": np.nan}, ValueError, r"shift\['income'\] must be finite"),
        ({"income": True}, TypeError, r"shift\['income'\] must be a number"),
        (["income"], TypeError, "shift must be a dict"),
        (pd.Series([1.0], ["income"]), TypeError, "shift must be a dict"),
    ],
)
def test_wrong_shifts(fitted, shift, error, message):
    frame, imputer = fitted
    with pytest.raises(error, match=message):
        imputer.sample(frame, shift=shift)


def test_constant_columns_cannot_be_shifted():
    X = normal_rows(60, 9)
    X[:, 0] = 1
    imputer = quick_gaussian().fit(X)
    with pytest.raises(ValueError, match="has the column 0, which is constant"):
        imputer.sample(X, shift={0: 1})


def test_cells_that_follow_have_numbers_of_their_own():
    frame = mixed_rows(600, 2)
    imputer = quick_gaussian().set_output(transform="pandas").fit(frame)
    shifts = {"smoker": {"yes": 0.0}}, {"smoker": {"yes": 2.0}}
    one, other = (imputer.sample(frame, 1, 0, shift=shift)[0] for shift in shifts)
    both = frame["smoker"].isna() & frame["income"].isna()
    alike = both & (one["smoker"] == other["smoker"])
    assert alike.sum() > 10 and (one["smoker"] != other["smoker"]).sum() > 10
    assert (one["income"] == other["income"])[alike].mean() > 0.9
    again = imputer.sample(frame, 1, 1, shift=shifts[1])[0]
    assert (one["income"] == again["income"])[alike].mean() < 0.1


@pytest.mark.quick(1)
@EACH_IMPUTER
@pytest.mark.parametrize("shift", [{1: -0.3}, {0: 1.0}])
def test_no_shift_has_the_random_numbers_of_a_shift(imputer, shift):
    """Draws of several sets of parameters, or of several members, too."""
    X = normal_rows(100, 10)
    imputer.fit(X)
    none, shifted = (
        imputer.sample(X, 8, 0, as_array=True, shift=one) for one in ({}, shift)
    )
    hidden = np.isnan(X)
    alone = hidden[:, 2] & ~hidden[:, 1]
    assert alone.sum() > 10
    np.testing.assert_array_equal(none[:, alone], shifted[:, alone])
    other = imputer.sample(X, 8, 1, as_array=True, shift={})
    assert (none[:, alone, 2] != other[:, alone, 2]).mean() > 0.9


class Coins:
    """Draws two levels with equal probabilities."""

    def draw(self, nodes, n_draws, limits=None):
        return torch.randint(2, (n_draws, *nodes.shape)).double().numpy()


def with_log_odds(odds, n_columns):
    """Shift the first columns of coins by log-odds of the second level."""
    changed = {j: np.array([0.0, odds]) for j in range(n_columns)}
    return Shifted(Coins(), Shift(np.arange(2) < n_columns, {}, changed, {}))


def test_log_odds_of_several_columns_add_up():
    torch.manual_seed(0)
    drawn = with_log_odds(-np.log(3), 2).draw(np.full((4000, 2), np.nan), 1)[0]
    # a quarter of each column; five standard errors are .034
    np.testing.assert_allclose(drawn.mean(0), 0.25, atol=0.034)
    assert abs(np.cov(drawn.T)[0, 1]) < 0.015


def test_the_next_random_numbers_are_the_same_after_all_log_odds():
    """So all chunks of rows have the same random numbers."""
    nodes = np.full((40, 2), np.nan)
    nodes[:, 1] = 0.0
    after = []
    for odds in (0.0, -3.0):
        torch.manual_seed(0)
        with_log_odds(odds, 1).draw(nodes, 2)
        after.append(torch.rand(1).item())
    assert after[0] == after[1]


def test_each_shifted_table_has_one_draw_of_the_parameters(monkeypatch):
    used = []

    def recorded(model, shift):
        used.append(model.model)
        return Shifted(model, shift)

    frame = mixed_rows(80, 7)
    imputer = quick_gaussian().fit(frame)
    monkeypatch.setattr(_imputer, "Shifted", recorded)
    imputer.sample(frame, 3, 0, shift={"income": 0.1})
    assert len(used) >= 3 and all(len(one.normals) == 1 for one in used)
