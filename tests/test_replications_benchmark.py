"""The benchmark of textbook examples, but for R."""

import numpy as np
import pandas as pd
import pytest
import replications as study


def boys(rng, n=300):
    age = rng.uniform(2, 18, n)
    hgt = 80 + 5 * age + rng.normal(0, 5, n)
    wgt = 16 * (hgt / 100) ** 2 + rng.normal(0, 2, n)
    hc = 45 + 0.5 * age + 0.05 * wgt + rng.normal(0, 1, n)
    return pd.DataFrame({"age": age, "hgt": hgt, "wgt": wgt, "hc": hc})


def test_a_quarter_of_heights_and_weights_is_hidden(seed):
    full = boys(np.random.default_rng([seed, 3]), 2000)
    masked = study.hidden(full, seed)
    shares = masked.part.isna().mean()
    np.testing.assert_allclose(shares[["wgt", "hgt"]], 0.25, atol=0.05)
    assert shares[["age", "hc"]].max() == 0
    assert masked.full.equals(full)


@pytest.mark.parametrize("way", ["impute, then transform", "ConstrainedImputer"])
def test_the_ratio_of_a_complete_table_has_no_bias(seed, way):
    full = boys(np.random.default_rng([seed, 4]))
    with pytest.warns(UserWarning, match="equal estimates"):  # nothing is missing
        found = study.ratio(way, study.Masked(full, full), seed)
    assert abs(found["bias"]) < 1e-6
    assert found["covered"]


def test_noise_unties_and_keeps_missing_cells():
    df = pd.DataFrame({"x": [1.0, 1.0, np.nan], "y": [2, 2, 2]})
    found = study.untied(df, ["x"])
    assert found["x"].nunique() == 2
    assert found["x"].isna().tolist() == [False, False, True]
    assert found["y"].equals(df["y"])
    np.testing.assert_allclose(found["x"], df["x"], atol=0.01)


def test_cells_of_the_tables():
    assert study.cell(None) == ""
    assert study.cell({"coef": 1.23456}) == "1.235"
    assert study.cell({"coef": 1.0, "se": 0.5}) == "1.000 (0.500)"


def test_the_page_has_a_line_for_each_way():
    results = study.Results()
    for tool, way in (("R", "mice"), ("skvnce", "default")):
        record = {"part": "nhanes", "tool": tool, "way": way, "term": "bmi"}
        results.add(record | {"coef": 1.0, "se": 2.0})
    text = study.part_table(results, "nhanes")
    assert "R: mice" in text
    assert "| bmi | 1.000 (2.000) | 1.000 (2.000) |" in text
