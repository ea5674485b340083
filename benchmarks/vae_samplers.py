"""How far the samplers of missing cells stay from the exact conditional distribution.

The two-dimensional case of thirteen clusters (`tests/samplers/toy.py`), where the
conditional density is a closed form: three problems on which Gibbs-like samplers fail
(Simkus and Gutmann 2023, figure 1), and the ablations of their remedies (figure 9).
Then the error of means by pooled LAIR against the number of proposals.

    python benchmarks/vae_samplers.py --output doc/benchmarks/vae_samplers.md
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from _report import made_by, publish, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from samplers import test_lair, test_pitfalls  # noqa: E402
from samplers.test_pitfalls import PARTS, PROBLEMS, distance  # noqa: E402

from skvnce.samplers.ac_mwg import ac_mwg  # noqa: E402
from skvnce.samplers.lair import lair  # noqa: E402
from skvnce.samplers.metropolis_within_gibbs import mwg  # noqa: E402
from skvnce.samplers.pseudo_gibbs import pseudo_gibbs  # noqa: E402

LONG = {"n_steps": 900, "burn_in": 700}
SAMPLERS = {
    "pseudo-Gibbs": (pseudo_gibbs(*PARTS), {}),
    "MWG": (mwg(*PARTS), {}),
    "AC-MWG, eps 0.01": (ac_mwg(*PARTS, eps=0.01, history_size=20), LONG),
    "LAIR, 20 + 1": (lair(*PARTS), {"n_chains": 20, "n": 20}),
    "AC-MWG, eps 0": (ac_mwg(*PARTS, eps=0.0, history_size=20), LONG),
    "LAIR, 20 + 0": (lair(*PARTS, n_replenish=0), {"n_chains": 20, "n": 20}),
}


def distances(seeds):
    """Tabulate the largest and the smallest divergence over the seeds."""
    rows = []
    for name, (sampler, settings) in SAMPLERS.items():
        cells = []
        for problem in PROBLEMS:
            found = [distance(sampler, problem, s, **settings) for s in range(seeds)]
            cells.append(f"{min(found):.4f} to {max(found):.4f}")
        rows.append([name, *cells])
        print(*rows[-1], flush=True)
    return table(["sampler", *PROBLEMS], rows)


def main():
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with np.errstate(all="ignore"):
        found = distances(options.seeds)
    parts = [
        "# Samplers of missing cells against the exact answer",
        made_by("vae_samplers.py", ""),
        "Jensen-Shannon divergence in nats between all that the chains visit and the "
        f"exact conditional density, least and largest of {options.seeds} seeds; "
        "ln 2 = 0.693 is the most there is. All chains start in one cluster. Without "
        "proposals from the prior (the last two lines) far modes are never found.",
        found,
        "The tests of `tests/samplers/test_pitfalls.py` hold these to bounds: failures "
        f"above {test_pitfalls.FAILS}, remedies below {test_pitfalls.WORKS}. "
        "The squared error of pooled means falls like 1 / (T (K + R)): "
        f"`tests/samplers/{Path(test_lair.__file__).name}` fits the slope.",
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
