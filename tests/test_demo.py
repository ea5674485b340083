"""The demonstration ``python -m skvnce.demo``."""

import re

import numpy as np
import pandas as pd
import pytest

from skvnce import demo
from skvnce.datasets import load_nhanes

pytestmark = pytest.mark.filterwarnings(  # of the survey and of the rivals
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvnce.exceptions.MisfitWarning",
    "ignore::skvnce.exceptions.TableWarning",
)


@pytest.fixture(scope="module")
def survey():
    return load_nhanes(as_frame=True, categories=True).data[::4]


def small():
    return pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0, 4.0],
            "colour": pd.Categorical(["red", "red", None, "blue"], ["blue", "red"]),
        }
    )


def test_codes_are_rounded_to_levels():
    cells = np.array([[1.0, 0.4], [2.5, 0.6], [3.0, -2.0], [4.0, 7.0]])
    found = demo.as_levels(cells, small())
    assert found["colour"].tolist() == ["blue", "red", "blue", "red"]
    assert found["size"].tolist() == [1.0, 2.5, 3.0, 4.0]
    assert (found.dtypes == small().dtypes).all()


def test_rivals_fill_means_and_the_most_frequent_level():
    fills = demo.rival_fills(small())
    filled, seconds = fills["mean, most frequent"]
    assert filled["size"].tolist() == [1.0, 8 / 3, 3.0, 4.0]
    assert filled["colour"].tolist() == ["red", "red", "red", "blue"]
    assert seconds > 0


def test_rivals_leave_observed_cells_as_they_are(survey):
    for filled, _ in demo.rival_fills(survey).values():
        assert not filled.isna().to_numpy().any()
        pd.testing.assert_frame_equal(filled.where(survey.notna()), survey)


def test_errors_are_in_deviations_and_shares():
    truth, filled = small(), small()
    filled["size"] = [2.0, 9.0, 5.0, 4.0]
    filled["colour"] = pd.Categorical(["blue", "red", "blue", "blue"], ["blue", "red"])
    hidden = np.array([[True, True], [False, True], [True, False], [False, False]])
    size, colour = demo.survey_errors(truth, filled, hidden)
    assert size == pytest.approx(np.sqrt(2.5) / truth["size"].std())
    assert colour == 0.5


@pytest.mark.slow
def test_the_survey_is_imputed_and_losses_are_named(survey, capsys):
    demo.impute_survey(survey)
    text = capsys.readouterr().out
    assert "1209 adults, 25 columns, 6 of them categories" in text
    assert "nan" not in text.lower()
    errors = {
        name: np.array(cells.split(), dtype=float)
        for name, cells in re.findall(r"^(\w+) +((?: +\d+\.\d+){3})$", text, re.M)
    }
    assert list(errors)[:-1] == list(survey.columns)  # the last ones are seconds
    numbers = np.mean([errors[name] for name in survey.columns[:19]], axis=0)
    [mean] = re.findall(r"mean of numbers((?: +\d+\.\d+){3})\n", text)
    np.testing.assert_allclose(np.array(mean.split(), float), numbers, atol=1e-3)
    worse = re.findall(r"is worse than [\w, ]+? in (.*)\.\n", text)
    for place, named in enumerate(worse):
        for name in survey.columns:
            cells = errors[name]
            if cells[2] != cells[place]:  # as printed
                assert (name in named.split(", ")) == (cells[2] > cells[place])
    assert len(worse) == 2


@pytest.mark.slow
def test_the_graph_is_drawn(survey, capsys, tmp_path):
    picture = tmp_path / "graph.png"
    demo.learn_graph(survey[::2], picture)
    text = capsys.readouterr().out
    [edges, pairs] = re.findall(r"has (\d+) of (\d+) edges", text)[0]
    assert pairs == "300" and 10 < int(edges) < 200
    rows = re.findall(r"^ *(\w+) +(\w+) +(-?\d\.\d+)$", text, re.M)
    assert len(rows) == demo.N_STRONGEST
    assert {"Weight", "BMI"} in [{source, target} for source, target, _ in rows]
    numbers = np.array([row for *_, row in rows], dtype=float)
    assert (abs(numbers) <= 1).all() and (np.diff(abs(numbers)) <= 0).all()
    assert "nan" not in text and picture.stat().st_size > 10_000
