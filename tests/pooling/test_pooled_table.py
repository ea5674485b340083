"""Pooled models side by side, against numbers of `Pooled.summary`."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from sklearn.linear_model import LinearRegression

from skvnce.pooling import fit_each, pool, pool_models, pooled_table

NAMES = ["age", "a & b_c"]
DRAWS = [[1.0, 9], [1.2, 7], [1.1, 8]]
BOTH = pool(DRAWS, [[1e-4, 2]] * 3, names=NAMES, dof_complete=50)


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x", "y"])
    return [frame.assign(x=frame["x"] + 0.1 * rng.normal(size=30)) for _ in range(4)]


def test_cells_are_rounded_to_the_digits_of_standard_errors():
    row = BOTH.summary().iloc[1]
    cells = BOTH.to_table(digits=3).cells.loc["a & b_c"]
    assert list(cells.index) == ["coef", "95 % interval", "p", "FMI"] and row["se"] > 1
    assert cells["coef"] == f"{row['coef']:.2f}"
    assert cells["95 % interval"] == f"{row['low']:.2f} to {row['high']:.2f}"
    assert cells["p"] == f"{row['p']:.3f}"
    assert cells["FMI"] == f"{row['missing_information']:.2f}"
    assert BOTH.to_table(digits=1).cells.loc["age", "coef"] == "1.1"


def test_models_are_side_by_side(tables):
    both = pool_models(fit_each(lambda t: smf.ols("y ~ x", t).fit(), tables))
    mean = pool([0.1, 0.2], [0.01, 0.01], names=["Intercept"])
    table = pooled_table({"both": both, "mean": mean}, columns=["coef", "interval"])
    assert table.cells.shape == (4, 4)
    assert table.cells.loc["x", "mean"].tolist() == ["", ""]
    assert table.cells.loc["rows (n)"].tolist() == ["30", "", "", ""]
    assert table.cells.loc["tables (m)"].tolist() == ["4", "", "2", ""]
    assert table.note == "Pooled from 2 or 4 completed tables (m)."
    assert str(table).endswith(table.note)


def test_models_of_scikit_learn_have_rows(tables):
    X, y = [table[["x"]] for table in tables], tables[0]["y"]
    pooled = pool_models(fit_each(LinearRegression(), X, y), X, y)
    assert pooled.n_samples == 30 and pool([1, 2], [1, 1]).n_samples is None


def test_ratios_of_any_size():
    extreme = pool([[2.0, 900, -900, 20]] * 2, [[0.04, 1, 1, 1e-6]] * 2)
    cells = extreme.to_table(exponentiate=True, level=0.9).cells
    assert list(cells)[:2] == ["exp(coef)", "90 % interval"]
    frame = extreme.summary(0.9, exponentiate=True)
    assert cells.loc[0, "exp(coef)"] == f"{frame.loc[0, 'exp(coef)']:.1f}"
    assert cells["exp(coef)"][[1, 3]].tolist() == ["inf", "4.85e+08"]
    assert float(cells.loc[2, "exp(coef)"]) == 0
    assert "inf" in extreme.to_table(exponentiate=True).to_latex()


def test_latex_and_html_are_escaped():
    table = pooled_table({"<1 & 2>": BOTH})
    latex = table.to_latex()
    assert r"a \& b\_c & 8.0" in latex and r"95 \% interval" in latex
    assert table.note in latex
    sure = pool([5.0, 5.1, 5.2], [0.01] * 3, names=["x"])
    assert "& $<$.001 &" in sure.to_table().to_latex()
    html = table.to_html()
    assert html == html.replace("<1", "") and "a &amp; b_c" in html
    assert f"<caption>{table.note}</caption>" in html


def test_markdown_has_a_line_for_each_row():
    pytest.importorskip("tabulate", reason="tabulate is in the extra `test`")
    lines = pooled_table({"model": BOTH}, columns=["coef"]).to_markdown().splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:3]] == ["", "model: coef"]
    assert [cell.strip() for cell in lines[2].split("|")[1:3]] == ["age", "1.10"]
    assert lines[-1] == "Pooled from 3 completed tables (m)."
    names = pooled_table({"a|b": pool([1, 2], [1, 1], names=["C(x)[T.u|v]"])})
    lines = names.to_markdown().splitlines()
    assert "C(x)[T.u\\|v]" in lines[2]
    assert [line.replace("\\|", "").count("|") for line in lines[:4]] == [6] * 4
    assert "| 0 " in pool([1, 2], [1, 1]).to_table().to_markdown()


def test_tiny_estimates_are_no_zeros():
    cells = pool([2e-12, 3e-12], [1e-24] * 2, names=["x"]).to_table().cells
    assert cells.loc["x", "coef"] == "2.5e-12"
    cells = pool([2e-5, 3e-5], [1e-10] * 2, names=["x"]).to_table().cells
    assert cells.loc["x", "coef"] == "0.000025"


@pytest.mark.parametrize(
    "models, options, error, message",
    [
        ([1.0], {}, TypeError, "models must be a result of pool or pool_models"),
        ({}, {}, TypeError, "got an empty dict"),
        ({"a": 1.0}, {}, TypeError, "got float"),
        (BOTH, {"columns": "p"}, ValueError, "columns must be some of"),
        (BOTH, {"columns": 5}, ValueError, "columns must be some of"),
        (BOTH, {"columns": [["p"]]}, ValueError, "columns must be some of"),
        (BOTH, {"columns": []}, ValueError, "columns must be some of"),
        (BOTH, {"columns": ["t"]}, ValueError, "columns must be some of"),
        (BOTH, {"level": 2}, ValueError, "level must be between 0 and 1"),
        (BOTH, {"digits": 0}, ValueError, "digits must be finite"),
    ],
)
def test_errors(models, options, error, message):
    with pytest.raises(error, match=message):
        pooled_table(models, **options)
