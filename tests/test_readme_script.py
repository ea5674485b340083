"""The README is short, and its script goes from a table to a pooled answer."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def script():
    """Return the only block of Python."""
    [found] = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    return found


def test_shell_blocks_are_the_main_job_and_the_tests():
    job, tests = re.findall(r"^```shell\n(.*?)^```", README.read_text(), re.S | re.M)
    assert "skvnce.demo" in job and "pytest" not in job
    assert "pytest" in tests


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_gives_a_pooled_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(script(), names)
    printed = capsys.readouterr().out
    for word in ("coef", "missing_information", "PhysActiveDays", "Gender[T.male]"):
        assert word in printed
    results = names["fit_each"](names["regression"], names["draws"])
    assert names["pool_models"](results).n_draws == 20
    assert names["df"].isna().sum().sum() > 0 == names["filled"].isna().sum().sum()
    assert all(draw.isna().sum().sum() == 0 for draw in names["draws"])
