"""Plots of missing cells, of draws, and of sensitivity curves."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import quick_gaussian
from errors import refused

from skvnce.inspection import ImputationDisplay, MissingnessDisplay, SensitivityDisplay
from skvnce.pooling import SensitivityCurve, pool

ROWS = [[0, 0, 0], *[[0, 1, 1]] * 3, [0, 0, 1], [0, 0, 0]]
MISSING = np.array(ROWS, dtype=bool)


def frame(seed=0, n=60):
    rng = np.random.default_rng(seed)
    start = datetime.datetime(2020, 1, 1)
    result = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "kind": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "day": [start + datetime.timedelta(days=int(k)) for k in range(n)],
            "whole": rng.normal(size=n),
        }
    )
    hidden = rng.random((n, 3)) < 0.3
    result[["size", "kind", "day"]] = result[["size", "kind", "day"]].mask(hidden)
    return result


@pytest.fixture
def table():
    return frame()


def filled(table, seed=0):
    """Fill missing cells by observed ones of the same column."""
    rng = np.random.default_rng(seed)
    table = table.copy()
    for name in table:
        values = table[name].dropna().to_numpy()
        gaps = table[name].isna()
        table.loc[gaps, name] = rng.choice(values, gaps.sum())
    return table


def containers(table):
    cells = table[["size", "whole"]].to_numpy()
    return {"pandas": table, "polars": pl.from_pandas(table), "array": cells}


class TestMissingness:
    def test_patterns_are_counted(self):
        display = MissingnessDisplay(MISSING, ["a", "b", "c"])
        np.testing.assert_array_equal(display.counts, [3, 2, 1])
        expected = [[0, 1, 1], [0, 0, 0], [0, 0, 1]]
        np.testing.assert_array_equal(display.patterns, expected)

    def test_pairs_are_shares_of_the_rows_that_miss_the_first(self):
        pairs = MissingnessDisplay(MISSING, ["a", "b", "c"]).pairs
        np.testing.assert_array_equal(pairs[1:], [[0, 1, 1], [0, 0.75, 1]])
        assert np.isnan(pairs[0]).all()

    @pytest.mark.parametrize("kind", ["nullable", "objects", "masked"])
    def test_missing_numbers_are_those_of_any_table(self, kind):
        cells = np.arange(18).reshape(6, 3)
        X = pd.DataFrame(cells, columns=list("abc"), dtype="Int64").mask(MISSING)
        X = {
            "nullable": X,
            "objects": X.astype(object),
            "masked": np.ma.array(cells, mask=MISSING),
        }[kind]
        for table, missing in ((X, MISSING), (X[:3], MISSING[:3])):
            display = MissingnessDisplay.from_frame(table)
            np.testing.assert_array_equal(display.missing, missing)

    def test_the_picture_shows_patterns_and_counts(self):
        X = np.where(MISSING, np.nan, 1.0)
        ax = MissingnessDisplay.from_frame(X, max_patterns=2).ax_
        cells = ax.collections[0].get_array()
        np.testing.assert_array_equal(cells, [[0, 1, 1], [0, 0, 0]])
        assert [text.get_text() for text in ax.get_yticklabels()] == ["3", "2"]
        assert "1 more" in ax.get_ylabel()
        assert [text.get_text() for text in ax.get_xticklabels()] == ["x0", "x1", "x2"]

    def test_the_picture_of_pairs_leaves_out_complete_columns(self):
        X = np.where(MISSING, np.nan, 1.0)
        ax = MissingnessDisplay.from_frame(X, kind="pairs").ax_
        cells = ax.collections[0].get_array()
        np.testing.assert_array_equal(cells, [[1, 1], [0.75, 1]])
        labels = [text.get_text() for text in ax.get_yticklabels()]
        assert labels == ["x1 (50%)", "x2 (67%)"]

    @pytest.mark.parametrize("container", ["pandas", "polars", "array"])
    def test_containers(self, container, table):
        X = containers(table)[container]
        display = MissingnessDisplay.from_frame(X, kind="pairs")
        names = list(table) if container != "array" else ["size", "whole"]
        expected = table[names].isna().to_numpy()
        np.testing.assert_array_equal(display.missing, expected)

    def test_errors(self):
        for X, names, words in (
            (frame(), {"kind": "rows"}, "kind must be one of"),
            (np.ones((3, 2)), {"kind": "pairs"}, "no missing cell"),
            (np.ones(3), {}, "rows and columns"),
            (frame(), {"max_patterns": -1}, "at least 1"),
        ):
            refused(ValueError, words, MissingnessDisplay.from_frame, X, **names)


class TestImputation:
    @pytest.mark.quick(2)
    @pytest.mark.parametrize("kind", ["density", "strip"])
    @pytest.mark.parametrize("container", ["pandas", "polars"])
    def test_a_panel_for_each_column_with_missing_cells(self, container, kind, table):
        X = containers(table)[container]
        draws = [containers(filled(table, seed))[container] for seed in range(3)]
        display = ImputationDisplay.from_draws(X, iter(draws), kind=kind)
        assert display.columns == ["size", "kind", "day"]
        titles = [ax.get_title() for ax in display.axes_]
        assert titles == display.columns
        display.figure_.canvas.draw()

    def test_strips_show_observed_and_drawn_cells(self, table):
        draws = [filled(table, seed) for seed in range(2)]
        options = {"columns": ["size"], "kind": "strip"}
        [ax] = ImputationDisplay.from_draws(table, draws, **options).axes_
        gaps = table["size"].isna()
        expected = [table["size"][~gaps], *(one["size"][gaps] for one in draws)]
        for line, cells in zip(ax.lines, expected, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), cells)
        assert ax.lines[0].get_color() != ax.lines[1].get_color()

    def test_shares_of_levels(self, table):
        draws = [filled(table, seed) for seed in range(2)]
        [ax] = ImputationDisplay.from_draws(table, draws, columns=["kind"]).axes_
        of_observed = table["kind"].value_counts(normalize=True, sort=False)
        heights = [bar.get_height() for bar in ax.patches]
        np.testing.assert_allclose(heights, of_observed[["a", "b", "c"]])
        gaps = table["kind"].isna()
        for line, draw in zip(ax.lines, draws, strict=True):
            shares = draw["kind"][gaps].value_counts(normalize=True, sort=False)
            np.testing.assert_allclose(line.get_ydata(), shares[["a", "b", "c"]])

    def test_densities_are_those_of_a_kernel(self):
        table = frame(n=200)
        draws = [filled(table)]
        [ax] = ImputationDisplay.from_draws(table, draws, columns=["size"]).axes_
        for line in ax.lines:
            area = np.trapezoid(line.get_ydata(), line.get_xdata())
            assert 0.85 < area < 1.001  # the grid ends a tenth of the range beyond

    def test_a_scatter_tells_rows_with_drawn_cells(self, table):
        draws = [filled(table)]
        options = {"columns": ["size", "whole"], "kind": "scatter"}
        [ax] = ImputationDisplay.from_draws(table, draws, **options).axes_
        gaps = table["size"].isna()
        observed, drawn = ax.lines
        np.testing.assert_array_equal(observed.get_ydata(), table["whole"][~gaps])
        np.testing.assert_array_equal(drawn.get_xdata(), draws[0]["size"][gaps])

    @pytest.mark.parametrize("kind", ["density", "strip"])
    def test_constant_and_single_cells(self, kind):
        X = np.array([[1.0, 1.0, 2.0], [1.0, np.nan, 3.0], [np.nan, 1.0, np.nan]])
        X = np.vstack([X, [1.0, 1.0, 2.5]])
        draws = [np.nan_to_num(X, nan=1.0)] * 2
        display = ImputationDisplay.from_draws(X, draws, kind=kind)
        assert display.columns == ["x0", "x1", "x2"]

    def test_arrays_of_all_draws(self):
        X = frame()[["size", "whole"]].to_numpy()
        imputer = quick_gaussian().fit(X)
        draws = imputer.sample(X, 3, 0, as_array=True)
        assert ImputationDisplay.from_draws(X, draws).columns == ["x0"]

    def test_columns_that_stay_missing_are_left_out(self):
        table = frame().assign(id=[None, *(f"q{k}" for k in range(59))])
        draws = [filled(table, seed).assign(id=table["id"]) for seed in range(2)]
        display = ImputationDisplay.from_draws(table, draws)
        assert display.columns == ["size", "kind", "day"]
        display = ImputationDisplay.from_draws(table, draws, columns=["size"])
        assert display.columns == ["size"]
        with pytest.raises(ValueError, match=r"draws\[0\] has missing cells in 'id'"):
            ImputationDisplay.from_draws(table, draws, columns=["size", "id"])
        draws[1].loc[table["size"].isna(), "size"] = np.nan  # control: in one draw
        with pytest.raises(ValueError, match=r"draws\[1\] has missing cells in 'size'"):
            ImputationDisplay.from_draws(table, draws)

    def test_errors(self, table):
        draws = [filled(table)]
        narrow = draws[0].drop(columns="day")
        for X, tables, options, words in (
            (table, draws, {"kind": "violin"}, "kind must be one of"),
            (table, draws, {"kind": "scatter"}, "two columns"),
            (table, draws, {"columns": ["age"]}, "the key 'age', no column"),
            (table, draws, {"columns": "size"}, "columns must be a list"),
            (table, draws, {"columns": []}, "must name a column or more"),
            (table, [], {}, "one or more|a table or more"),
            (draws[0], draws, {}, "no missing cell"),
            (table, [draws[0][:5]], {}, r"draws\[0\] has the shape"),
            (table, [narrow], {}, r"draws\[0\] has the shape"),
            (table, [draws[0].to_numpy()[0]], {}, r"draws\[0\] has the shape"),
            (table, [table], {}, r"draws\[0\].*missing cells"),
            (table, [*draws, draws[0][::-1]], {}, r"draws\[1\] has other observed"),
        ):
            error = TypeError if "list" in words else ValueError
            refused(error, words, ImputationDisplay.from_draws, X, tables, **options)


def curve(shifts, estimates):
    pooled = [pool([one, one + 0.1], [1.0, 1.0]) for one in estimates]
    return SensitivityCurve(shifts, pooled)


class TestSensitivity:
    def test_numbers_are_places_on_the_axis(self):
        shifts = [{}, {"bmi": 2}, {"bmi": -1.0}]
        result = curve(shifts, [5.0, 0.0, 4.0])
        display = SensitivityDisplay.from_curve(result)
        np.testing.assert_array_equal(display.line_.get_xdata(), [-1, 0, 2])
        expected = [result.pooled[k].estimate for k in (2, 0, 1)]
        np.testing.assert_array_equal(display.line_.get_ydata(), expected)
        low, high = result.pooled[1].interval()
        ends = display.band_.get_paths()[0].vertices
        assert {low, high} <= set(ends[ends[:, 0] == 2][:, 1])
        assert display.tipping_point == {"bmi": 2}
        np.testing.assert_array_equal(display.tipping_.get_xdata(), [2, 2])
        assert "bmi" in display.ax_.get_xlabel()

    def test_log_odds_name_the_level(self):
        shifts = [{"smoker": {"yes": odds}} for odds in (-1, 0, 1)]
        display = SensitivityDisplay.from_curve(curve(shifts, [5.0, 5.0, 5.0]))
        np.testing.assert_array_equal(display.line_.get_xdata(), [-1, 0, 1])
        assert "yes" in display.ax_.get_xlabel() and display.tipping_ is None

    def test_shifts_of_several_columns_are_listed(self):
        shifts = [{}, {"a": 1, "b": {"x": 2}}]
        display = SensitivityDisplay.from_curve(curve(shifts, [5.0, 5.0]))
        labels = [text.get_text() for text in display.ax_.get_xticklabels()]
        assert labels == ["none", "a 1, b=x 2"]

    def test_names_and_errors(self):
        pooled = pool([[1, 5], [2, 6]], [[1, 1], [1, 1]], names=["a", "b"])
        curve = SensitivityCurve([{}], [pooled])
        display = SensitivityDisplay.from_curve(curve, "b", level=0.5, null=5.5)
        assert display.line_.get_ydata()[0] == 5.5
        assert "b (50%" in display.ax_.get_ylabel()
        with pytest.raises(ValueError, match="name has 'c', no name or position"):
            SensitivityDisplay.from_curve(curve, "c")
        refused(ValueError, "level", SensitivityDisplay.from_curve, curve, "a", level=2)
        refused(TypeError, "sensitivity_curve", SensitivityDisplay.from_curve, pooled)
