"""The study of sensitivity curves where values are missing not at random."""

import numpy as np
import pytest
import sensitivity as study
from pooling_models import simulate


@pytest.fixture
def rng(seed):
    return np.random.default_rng([seed, 8])


def test_only_missing_values_are_lowered(rng):
    full, part = simulate(rng, "MAR")
    found = study.lowered(full, part, -1.0)
    gone = part["x"].isna()
    assert found["x"][~gone].equals(full["x"][~gone])
    np.testing.assert_allclose((full["x"] - found["x"])[gone], part["x"].std())


def test_the_truth_of_the_mean_is_the_share_of_lowered_cells():
    # about 30 % of the cells are lower by one standard deviation, which is about .9
    assert -0.36 < study.truth(100_000)[0] < -0.2


def test_a_complete_table_is_not_moved(rng):
    full, _ = simulate(rng, "MAR")
    found, _ = study.ours(full, 0)
    wanted = study.three_answers(full)[0]
    np.testing.assert_allclose(found[:, 0], [wanted] * len(study.SHIFTS))


def test_the_crossing_of_a_line():
    assert study.crossing(2 + 3 * np.array(study.SHIFTS), -1.0) == pytest.approx(-1)


def test_mice_is_moved_by_the_same_shift(rng):
    if not study.installed():
        pytest.skip("Rscript with the package mice is not installed")
    parts = [simulate(rng, "MAR")[1] for _ in range(2)]
    found, _ = study.mice(parts)
    for part, answers in zip(parts, found, strict=True):
        moved = answers[2, 0, 0] - answers[0, 0, 0]  # by one standard deviation
        wanted = -part["x"].std() * part["x"].isna().mean()
        assert abs(moved - wanted) < 0.35 * abs(wanted)
