import os
from collections import Counter

# One thread a process, before torch is imported: small problems only wait for a second
# one, a hundred times as long where other processes hold the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib
import pytest
from sklearn.base import clone

matplotlib.use("Agg")


@pytest.fixture
def seed():
    """The seed of a statistical test; sweep it with SKVNCE_TEST_SEED=0,1,2,..."""
    return int(os.environ.get("SKVNCE_TEST_SEED", "0"))


@pytest.fixture
def imputer(request):
    """A copy of an imputer of a list, so that no test changes that of another."""
    return clone(request.param)


def share(text):
    """Read "2/4", the second of four shares."""
    place, count = map(int, text.split("/"))
    if not 1 <= place <= count:
        raise ValueError(text)
    return place, count


def pytest_addoption(parser):
    parser.addoption(
        "--seeded-only",
        action="store_true",
        help="run only the tests that depend on SKVNCE_TEST_SEED, to sweep the seeds",
    )
    parser.addoption(
        "--seeds",
        type=lambda text: [int(part) for part in text.split(",")],
        help="run tests that depend on the seed at each of these: 17,23,851852",
    )
    parser.addoption(
        "--sampled",
        type=share,
        help="run a share of the cases of each test marked sampled: 2/4",
    )


def pytest_generate_tests(metafunc):
    seeds = metafunc.config.getoption("--seeds")
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if seeds and "seed" in metafunc.fixturenames and "seed" not in own:
        metafunc.parametrize("seed", seeds, ids=[f"seed={each}" for each in seeds])


def keep(config, items, condition):
    """Deselect the other tests."""
    kept, others = [], []
    for item in items:
        (kept if condition(item) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def in_share(place, count):
    """Keep one in `count` of the cases of each test that is marked sampled."""
    cases = Counter()

    def kept(item):
        if not item.get_closest_marker("sampled"):
            return True
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        return cases[test] % count == place % count

    return kept


def pytest_collection_modifyitems(config, items):
    """Let one process run all that starts others: clusters would meet at a port."""
    if config.getoption("--seeded-only"):
        keep(config, items, lambda item: "seed" in item.fixturenames)
    if config.getoption("--sampled"):
        keep(config, items, in_share(*config.getoption("--sampled")))
    for item in items:
        starts = "dask" in item.nodeid or "loky" in item.nodeid
        if starts and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("processes"))
