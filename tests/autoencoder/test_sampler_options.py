"""Options for `sampler` of LAIRImputer: each field reaches the sampler."""

import numpy as np
import pytest

from skvnce import LAIRImputer, VariationalAutoencoder
from skvnce.autoencoder import samplers
from skvnce.options import ACMWG, LAIR, MWG

N_STEPS = 2


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1)) + rng.normal(size=(30, 3))
    X[:6, 0] = np.nan
    return X


@pytest.fixture(scope="module")
def fitted(table):
    linear = VariationalAutoencoder(max_iter=0, likelihood="normal")
    options = {"n_estimators": 1, "n_steps": N_STEPS, "on_misfit": "ignore"}
    return LAIRImputer(linear, random_state=0, **options).fit(table)


@pytest.fixture
def asked(fitted, table, monkeypatch):
    """Draw by a part; return the options of a sampler and the lengths of chains."""

    def draw(name, part):
        options, lengths = [], []
        make, run = getattr(samplers, name), samplers.run_chain

        def making(*args, **given):
            options.append(given)
            return make(*args, **given)

        def running(sampler, state, data, n_steps, *visit):
            lengths.append(n_steps)
            return run(sampler, state, data, n_steps, *visit)

        with monkeypatch.context() as patch:
            patch.setattr(samplers, name, making)
            patch.setattr(samplers, "run_chain", running)
            fitted.set_params(sampler=part).sample(table[:6], random_state=0)
        return options, lengths

    return draw


@pytest.mark.parametrize(
    ("part", "n_particles", "n_replenish", "by_prior"),
    [
        (LAIR(), 4, 20, False),
        (LAIR(n_particles=3), 3, 20, False),
        (LAIR(n_replenish=7), 4, 7, False),
        (LAIR(replenish="prior"), 4, 20, True),
    ],
    ids=str,
)
def test_fields_of_lair_reach_the_sampler(
    asked, part, n_particles, n_replenish, by_prior
):
    (options,), _ = asked("lair", part)
    assert options["n_particles"] == n_particles
    assert options["n_replenish"] == n_replenish
    assert (options["replenish"] is None) == by_prior


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_epsilon_of_acmwg_reaches_the_sampler(asked, epsilon):
    part = ACMWG() if epsilon == 0.05 else ACMWG(epsilon=epsilon)
    (options,), _ = asked("ac_mwg", part)
    assert options["eps"] == epsilon


@pytest.mark.parametrize("part", [ACMWG, MWG])
def test_chains_start_after_so_many_iterations_of_lair(asked, part):
    for n_warm_up, wanted in ((0, []), (5, [5])):
        made, lengths = asked("lair", part(n_warm_up=n_warm_up))
        assert len(made) == len(wanted)
        assert lengths == [*wanted, N_STEPS]
