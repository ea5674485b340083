"""The script of the README, from a CSV file to a pooled answer and a picture."""

import re
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.image import imread

from skvnce.datasets import load_nhanes

matplotlib.use("Agg")
README = Path(__file__).parents[1] / "README.md"


def script():
    """Return the block of code that reads a CSV file."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    [found] = [block for block in blocks if "read_csv" in block]
    return found


def test_it_has_fifteen_lines():
    assert len([line for line in script().splitlines() if line]) <= 15


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_gives_a_pooled_table_and_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = ["Age", "Gender", "Poverty", "BMI", "DirectChol", "PhysActiveDays"]
    df = load_nhanes(as_frame=True, categories=True).data[columns][::10]
    df.to_csv("survey.csv", index=False)
    names = {}
    exec(script(), names)
    printed = capsys.readouterr().out
    for word in ("coef", "missing_information", "PhysActiveDays", "Gender[T.male]"):
        assert word in printed
    picture = imread("sensitivity.png")
    assert picture[..., :3].std() > 0.05  # not blank
    table = names["curve"].summary("PhysActiveDays")
    assert isinstance(table, pd.DataFrame)
    by = [shift["PhysActiveDays"] for shift in table["shift"]]
    assert by == [0, -0.25, -0.5, -0.75, -1]
    assert (table["low"] < table["coef"]).all()
    pooled = names["pool_models"](
        names["fit_each"](names["regression"], names["draws"])
    )
    assert pooled.n_draws == 20
    assert df.isna().sum().sum() > 0 == names["draws"][0].isna().sum().sum()
