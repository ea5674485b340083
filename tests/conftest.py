import gc
import os
from collections import Counter, defaultdict
from functools import partial
from zlib import crc32

# One thread a process, before torch is imported: small problems only wait for a second
# one, a hundred times as long where other processes hold the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib
import numpy as np
import pytest
from hypothesis import settings
from sklearn.base import clone

matplotlib.use("Agg")
# the seeds of runs differ, so that many runs try many examples
settings.register_profile("few", max_examples=30, deadline=None)
settings.load_profile("few")


@pytest.fixture
def seed():
    """The seed of a statistical test; sweep it with SKVNCE_TEST_SEED=0,1,2,..."""
    return int(os.environ.get("SKVNCE_TEST_SEED", "0"))


@pytest.fixture
def rng(seed):
    """The random numbers of a statistical test."""
    return np.random.default_rng(seed)


@pytest.fixture
def rng_0():
    """The random numbers of a test of one table, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def torch_seeded(seed):
    """Seed the global random stream of torch, by which a test draws its tables."""
    import torch

    torch.manual_seed(seed)


@pytest.fixture(scope="module")
def short_training():
    """Start less exactly and train for few steps: a module that tests no quality."""
    from skvnce.autoencoder.factor_analysis import fit_covariance

    few = partial(fit_covariance, n_rounds=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skvnce._core.training.rounds.STEPS", 2)
        patch.setattr("skvnce.vgi.fit._WARM_UP_STEPS", 2)
        patch.setattr("skvnce.autoencoder.column_scores.fit_covariance", few)
        patch.setattr("skvnce.gaussian.calibration._SHARES", (0.3,))
        yield


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


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "quick(n, share): the default run has n cases, one in `share`, or as many as "
        "have each value of each parameter; the others are slow",
    )


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
        help="run a share of the cases of each test marked slow: 2/4",
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
    """Keep one in `count` of the cases of each test that is marked slow."""
    cases = Counter()

    def kept(item):
        if not item.get_closest_marker("slow"):
            return True
        test = name_of(item)
        cases[test] += 1
        # tests of one case are not all of the same share
        return (cases[test] + crc32(test.encode())) % count == place % count

    return kept


def name_of(item):
    """Name the test of a case."""
    return item.nodeid.partition("[")[0]


def values_of(item):
    """Return the names of the parameters of a case, and what tells values apart."""
    return {(name, label_of(one)) for name, one in item.callspec.params.items()}


def label_of(value):
    """Return what tells a value apart; scikit-learn binds checks to estimators."""
    function = getattr(value, "func", None)
    if getattr(function, "__name__", "").startswith("check_"):
        value = function
    return value if isinstance(value, str | int) else id(value)


def in_turn(cases, share):
    """Choose one in `share` of the cases of each value of two parameters."""
    ranks = defaultdict(dict)
    for place, case in enumerate(cases):
        rank = (ranks[one[0]].setdefault(one, len(ranks[one[0]])) for one in case)
        if sum(rank) % share == 0:
            yield place


def covering(cases, chosen=()):
    """Choose few more cases, sets of values, so that each value is in one of them."""
    missing = set().union(*cases).difference(*(cases[place] for place in chosen))
    used = Counter()

    def gain(place):
        return len(cases[place] & missing), -sum(used[one] for one in cases[place])

    while missing:
        best = max(range(len(cases)), key=gain)
        yield best
        missing -= cases[best]
        used.update(cases[best])


def shorten_matrices(items, seeds):
    """Leave few cases of long tests in the default run, and the same at each seed."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("quick") and not item.get_closest_marker("slow"):
            seed = item.callspec.params.get("seed") if seeds else None
            tests[name_of(item), seed].append(item)
    for cases in tests.values():
        mark, values = cases[0].get_closest_marker("quick"), [*map(values_of, cases)]
        quick = [*in_turn(values, **mark.kwargs)] if mark.kwargs else []
        quick += covering(values, quick)
        for place, item in enumerate(cases):
            if place not in quick[slice(*mark.args or [None])]:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Let one process run all that starts others: clusters would meet at a port."""
    shorten_matrices(items, config.getoption("--seeds"))
    if config.getoption("--seeded-only"):
        keep(config, items, lambda item: "seed" in item.fixturenames)
    if config.getoption("--sampled"):
        keep(config, items, in_share(*config.getoption("--sampled")))
    for item in items:
        starts = "dask" in item.nodeid or "loky" in item.nodeid
        if starts and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("processes"))


def pytest_collection_finish():
    """Let no collection of garbage look again at what lives as long as the process."""
    gc.collect()
    gc.freeze()
