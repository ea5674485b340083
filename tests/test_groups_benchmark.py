"""The benchmarks of clustered tables, but for R and the package's parts."""

import groups_simulation as study
import numpy as np
import pandas as pd
import pytest
from _groups_methods import to_wide
from groups_tables import Clustered, has_setting, mask
from numpy.testing import assert_allclose, assert_array_equal


def clustered(rng, groups=50, rows=8, outcome="number"):
    return study.simulate(rng, groups, rows, 0.3, outcome)


@pytest.mark.parametrize("mechanism", study.MECHANISMS)
def test_missing_cells_are_as_many_as_stated(seed, mechanism):
    rng = np.random.default_rng([seed, 1])
    full = clustered(rng, 500)
    part = study.hide(rng, full, mechanism)
    shares = part.isna().mean()
    assert_allclose(shares[["x", "y"]], study.SHARE, atol=5 * (0.21 / 4000) ** 0.5)
    assert shares[["g", "w", "z"]].max() == 0
    gone = part["y"].isna()
    difference = full["z"][gone].mean() - full["z"][~gone].mean()
    assert (difference > 0.3) == (mechanism == "MAR")


def test_grades_are_divided_where_stated(seed):
    numbers, binary, ordinal = (
        clustered(np.random.default_rng([seed, 4]), outcome=outcome)["y"]
        for outcome in ("number", "binary", "ordinal")
    )
    assert_array_equal(binary.astype(int), numbers > 1)
    assert_array_equal(ordinal.astype(int), np.clip(np.ceil(numbers), 0, 3))
    assert ordinal.cat.ordered and not binary.cat.ordered


def test_wide_tables_have_a_row_a_group_and_lead_back():
    frame = pd.DataFrame({"g": [0, 0, 1], "t": [8.0, 10.0, 10.0], "y": [1.0, 2.0, 3.0]})
    frame["s"] = pd.Categorical([1, 1, 0], [0, 1])
    roles = {"g": "group", "t": "design", "y": "row", "s": "group level"}
    wide, places = to_wide(frame, roles, [0, 1, 1])
    cells = wide.astype(float).to_numpy()
    assert_array_equal(cells, [[1, 2, 1], [np.nan, 3, 0]])
    assert set(places) == {"y", "s"}
    for name, where in places.items():
        assert_array_equal(cells[where], frame[name].astype(float))


def test_masks_hide_visits_and_groups(seed):
    frame = clustered(np.random.default_rng([seed, 3]), 100)
    frame.loc[::3, "x"] = np.nan
    table = Clustered(frame, study.ROLES | {"z": "design"})
    rows, scored = mask(table, "rows", seed)
    assert_array_equal(rows[:, 1], rows[:, 2])
    assert not rows[:, [0, 3, 4]].any()
    assert_array_equal(scored, rows & frame.notna().to_numpy())
    cells, scored = mask(table, "cells", seed)
    assert not cells[:, [0, 4]].any()
    of_groups = cells[:, 3].reshape(100, 8)
    assert (of_groups == of_groups[:, :1]).all() and 0 < of_groups.mean() < 0.5
    assert scored[:, 3].sum() == of_groups[:, 0].sum()


def test_hidden_cells_of_one_column_are_hidden_rows():
    frame = pd.DataFrame({"g": [0, 1], "y": [1.0, 2.0]})
    table = Clustered(frame, {"g": "group", "y": "row"})
    assert has_setting(table, "rows") and not has_setting(table, "cells")
