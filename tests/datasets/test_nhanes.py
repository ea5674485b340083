import numpy as np
import pandas as pd
import pytest

from skvnce.datasets import load_nhanes


def test_categories_follow_the_measurements():
    bunch = load_nhanes(as_frame=True, categories=True)
    assert bunch.data.shape == (4835, 25) and list(bunch.data) == bunch.feature_names
    measurements = load_nhanes(as_frame=True).data
    assert bunch.data[list(measurements)].equals(measurements)
    others = bunch.data.drop(columns=list(measurements))
    assert (others.dtypes == "category").all()
    assert others["Education"].cat.ordered and not others["Race1"].cat.ordered
    assert others.isna().sum().to_dict() == {
        "SurveyYr": 0,
        "Gender": 0,
        "Race1": 0,
        "Diabetes": 1,
        "SmokeNow": 2779,
        "Education": 190,
    }
    with pytest.raises(ValueError, match="as_frame"):
        load_nhanes(categories=True)


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
