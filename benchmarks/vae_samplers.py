"""How far the samplers of missing cells stay from the exact conditional distribution.

The two-dimensional case of thirteen clusters (`tests/toy.py`), where the
conditional density is a closed form: three problems on which Gibbs-like samplers fail
(Simkus and Gutmann 2023, figure 1), and the ablations of their remedies (figure 9).
Then the error of means by pooled LAIR against the number of proposals.

    python benchmarks/vae_samplers.py [--seeds 3] [--results FILE]
        [--output doc/benchmarks/vae_samplers.md]
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
from _conditional_samplers import Pooling, with_target_of_mwg
from _report import grid
from _runner import main_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from autoencoder import test_pitfalls  # noqa: E402, F401  named by the page
from autoencoder.test_pitfalls import PARTS, PROBLEMS, distance, start  # noqa: E402
from toy import divergence  # noqa: E402

from skvnce._core.models import run_chain  # noqa: E402
from skvnce._core.random import seeded  # noqa: E402
from skvnce.autoencoder.samplers import ac_mwg, lair, mwg, pseudo_gibbs

LONG = {"n_steps": 900, "burn_in": 700}
ADAPTIVE = ac_mwg(*PARTS, eps=0.01, history_size=20)
SAMPLERS = {
    "pseudo-Gibbs": (pseudo_gibbs(*PARTS), {}),
    "MWG": (mwg(*PARTS), {}),
    "AC-MWG, eps 0.01": (ADAPTIVE, LONG),
    "LAIR, 20 + 1": (lair(*PARTS), {"n_chains": 20, "n": 20}),
    "AC-MWG, eps 0": (ac_mwg(*PARTS, eps=0.0, history_size=20), LONG),
    "AC-MWG, target of MWG": (with_target_of_mwg(ADAPTIVE), LONG),
    "LAIR, 20 + 0": (lair(*PARTS, n_replenish=0), {"n_chains": 20, "n": 20}),
    "LAIR, 10 + 10": (
        lair(*PARTS, n_particles=10, n_replenish=10),
        {"n_chains": 10, "n": 20},
    ),
}
WITHOUT_PARTICLES = "LAIR, 0 + 20"


def pooled_distance(problem, seed, *, n=20, n_steps=500, n_draws=1000):
    """Do the same for draws of the pool: no particles are left if K is 0."""
    sampler = lair(*PARTS, n_particles=0, n_replenish=20)
    data, state = start(sampler, problem, n, 0)
    pool = Pooling(n_draws)
    with seeded(seed):
        run_chain(sampler, state, data, n_steps, pool.visit)
        x = pool.draws(PARTS[0], data)
    row = PROBLEMS[problem][0]
    return divergence(x[..., np.isnan(row)].numpy(), row)


def measured(key, options):
    """Run a sampler on all problems: divergences of the pool, or of the draws."""
    run = pooled_distance
    if key["sampler"] in SAMPLERS:
        sampler, settings = SAMPLERS[key["sampler"]]
        run = partial(distance, sampler, **settings)
    with np.errstate(all="ignore"):
        found = {p: [float(run(p, s)) for s in range(options.seeds)] for p in PROBLEMS}
    return {"found": found}


def distances(results):
    """Tabulate the largest and the smallest divergence over the seeds."""

    def cell(sampler, problem):
        found = results.find(sampler=sampler)["found"][problem]
        return f"{min(found):.4f} to {max(found):.4f}"

    return grid("sampler", CASES["sampler"], PROBLEMS.keys(), cell)


CASES = {"sampler": [*SAMPLERS, WITHOUT_PARTICLES]}
main = main_of(globals(), seeds=3)
