import os

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.fixture
def seed():
    """The seed of a statistical test; sweep it with SKVNCE_TEST_SEED=0,1,2,..."""
    return int(os.environ.get("SKVNCE_TEST_SEED", "0"))
