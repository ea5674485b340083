import numpy as np
import pandas as pd
import pytest

from skvnce.datasets import load_nhanes


def test_table_is_the_survey_with_its_holes():
    bunch = load_nhanes()
    assert bunch.data.shape == (4835, 19) == (4835, len(bunch.feature_names))
    missing = np.isnan(bunch.data).mean(0)
    assert np.nanmin(bunch.data) >= 0
    assert missing.mean() == pytest.approx(0.1046, abs=0.01)
    assert missing.max() == pytest.approx(0.5729, abs=1e-4)  # testosterone
    assert "public domain" in bunch.DESCR


def test_frame_has_the_same_cells():
    frame = load_nhanes(as_frame=True).data
    assert isinstance(frame, pd.DataFrame)
    np.testing.assert_array_equal(frame.to_numpy(), load_nhanes().data)
    assert list(frame.columns) == load_nhanes().feature_names


def test_bmi_is_weight_over_squared_height():
    """A fact about the columns that a shifted parse would break."""
    frame = load_nhanes(as_frame=True).data.dropna(subset=["BMI", "Weight", "Height"])
    bmi = frame["Weight"] / (frame["Height"] / 100) ** 2
    np.testing.assert_allclose(frame["BMI"], bmi, rtol=0.01)
