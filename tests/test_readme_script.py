"""The script of the README, from a table to a pooled answer and a picture."""

import re
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.image import imread

matplotlib.use("Agg")
README = Path(__file__).parents[1] / "README.md"


def script():
    """Return the block of code that draws a sensitivity curve."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    [found] = [block for block in blocks if "sensitivity_curve" in block]
    return found


def test_it_has_fifteen_lines():
    assert len([line for line in script().splitlines() if line]) <= 15


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_gives_a_pooled_table_and_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
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
    assert names["df"].isna().sum().sum() > 0 == names["draws"][0].isna().sum().sum()
