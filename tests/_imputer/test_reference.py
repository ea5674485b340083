"""Draws from the distribution of a reference group.

Carpenter, Roger and Kenward (2013), Analysis of longitudinal trials with protocol
deviation: "copy reference".
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from cases import EACH_IMPUTER, quick_gaussian
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skvnce import LAIRImputer, VariationalAutoencoder
from skvnce.pooling import sensitivity_curve

pytestmark = [
    pytest.mark.usefixtures("short_training"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def trial(n, seed, effect=2.0):
    """Make a frame of two arms and two visits; the second one is missing for 40 %."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(["control", "treated"], n)
    first = rng.normal(size=n)
    second = 0.8 * first + effect * (arm == "treated") + rng.normal(size=n)
    frame = pd.DataFrame({"arm": arm, "first": first, "second": second})
    frame.loc[rng.random(n) < 0.4, "second"] = np.nan
    return frame, frame[frame["arm"] == "control"]


def test_draws_of_numbers_equal_a_fit_to_the_group():
    frame, control = trial(300, 1)
    frame, control = (
        one.assign(arm=1.0 * (one["arm"] == "treated")) for one in (frame, control)
    )
    imputer = quick_gaussian().set_params(random_state=5).fit(frame)
    drawn = imputer.sample(frame, 3, 7, as_array=True, reference=control)
    visits = ["first", "second"]
    alone = quick_gaussian().set_params(random_state=7).fit(control[visits])
    expected = alone.sample(frame[visits], 3, 7, as_array=True)
    np.testing.assert_array_equal(drawn[..., 1:], expected)
    assert not np.array_equal(imputer.sample(frame, 3, 7, as_array=True), drawn)


@pytest.mark.quick(1)
@EACH_IMPUTER
def test_treated_rows_lose_the_effect(imputer):
    frame, control = trial(400, 2, effect=4.0)
    imputer = clone(imputer).set_output(transform="pandas").fit(frame)
    treated = (frame["second"].isna() & (frame["arm"] == "treated")).to_numpy()
    means = [
        np.mean([t["second"][treated].mean() for t in imputer.sample(frame, 4, 0, **k)])
        for k in ({}, {"reference": control})
    ]
    assert means[0] - means[1] > 2  # the effect is 4
    [table] = imputer.sample(frame, 1, 0, reference=control)
    assert table["arm"].equals(frame["arm"])
    observed = frame["second"].notna()
    assert table["second"][observed].equals(frame["second"][observed])


def test_a_shift_is_added():
    frame, control = trial(300, 3)
    imputer = quick_gaussian().fit(frame)
    plain, moved = (
        imputer.sample(frame, 2, 0, reference=control, shift={"second": delta})
        for delta in (0, -0.05)
    )
    hidden = frame["second"].isna().to_numpy()
    change = [
        b[hidden, 2].astype(float) - a[hidden, 2].astype(float)
        for a, b in zip(plain, moved, strict=True)
    ]
    spread = np.nanstd(control["second"])
    np.testing.assert_allclose(np.median(change), -0.05 * spread, rtol=1e-6)


def test_a_curve_under_the_reference():
    frame, control = trial(300, 4)
    imputer = quick_gaussian().set_output(transform="pandas").fit(frame)

    def effect(table):
        groups = [one["second"] for _, one in table.groupby("arm")]
        variance = sum(one.var() / len(one) for one in groups)
        return groups[1].mean() - groups[0].mean(), variance

    shifts = [{}, {"second": -1.0}]
    plain, copied = (
        sensitivity_curve(imputer, frame, effect, shifts, 5, 0, reference=rows)
        for rows in (None, control)
    )
    found = [curve.summary()["coef"].iloc[0] for curve in (plain, copied)]
    # 40 % of the treated rows lose the effect of 2
    assert abs(found[0] - 2) < 0.6
    assert abs(found[1] - 1.2) < 0.6
    assert found[0] - found[1] > 0.4


@pytest.mark.quick(1)
@EACH_IMPUTER
def test_what_the_user_passed_in_does_not_change(imputer):
    frame, control = trial(120, 5)
    imputer = clone(imputer).fit(frame)
    before = frame.copy(), control.copy(), imputer.sample(frame, 1, 0, as_array=True)
    with warnings.catch_warnings(action="error"):  # the arm is constant in the group
        warnings.filterwarnings("ignore", message=".*did not converge|.*fewer rows")
        imputer.sample(frame, 1, 0, reference=control)
    assert frame.equals(before[0])
    assert control.equals(before[1])
    assert (imputer.sample(frame, 1, 0, as_array=True) == before[2]).all()


def test_errors():
    frame, control = trial(120, 6)
    imputer = quick_gaussian().fit(frame)
    with pytest.raises(ValueError, match="no observed cell in column 'second'"):
        imputer.sample(frame, reference=control.assign(second=np.nan))
    with pytest.raises(ValueError, match="single value in each column"):
        imputer.sample(frame, reference=control.dropna()[:1])
    with pytest.raises(ValueError, match="feature names"):
        imputer.sample(frame, reference=control[["first", "second"]])
    with pytest.raises(ValueError, match="level 'other'"):
        imputer.sample(frame, reference=control.assign(arm="other"))
    numbers = frame[["first", "second"]]
    model = VariationalAutoencoder(max_iter=2, random_state=0).fit(numbers)
    frozen = LAIRImputer(FrozenEstimator(model), n_draws=2, random_state=0).fit(numbers)
    with pytest.raises(ValueError, match="does not train"):
        frozen.sample(numbers, reference=numbers[:50])
