"""Noisy-OR: ways of inference at several sparsities and numbers of rows.

    python benchmarks/noisy_or_sparsity.py [--results FILE] [--only-report] [--quick]
        [--only way=acp] [--output doc/benchmarks/noisy_or_sparsity.md]

Figure 5 of Yan, Ailem and Sha (2019): held-out -ELBO on SYN-RANDOM with 50
columns and 100 causes, of three sparsities (their table 3).  As many validation rows
as rows to learn from, at least 200, choose alpha of each fit.  Each result is a line of
FILE; those that are there are not computed again.
"""

from itertools import product

import numpy as np
from _report import Texts, average, mean, table
from _runner import main_of
from noisy_or_synthetic import loss_of_rates, random_rows

from skvnce import NoisyOr

TEXTS = Texts("noisy_or_sparsity", globals())

# of weights and priors, Beta(a, b) each, and the share of links removed
DRAWS = {
    "94 %": ((1, 5), (1, 10), 0.95),
    "72 %": ((2, 5), (2, 5), 0.95),
    "51 %": ((2, 5), (2, 5), 0.9),
}
WAYS = ["acp", "avi", "svi"]
SIZES = [100, 1000]
ALPHAS = [1, 30]
N_TEST = 1000


def model_of(sparsity, rng, d=50, k=100):
    """Draw weights, leaks and priors; each column has a cause, and each cause one."""
    of_weight, of_prior, removed = DRAWS[sparsity]
    weight = rng.beta(*of_weight, (d, k)) * (rng.random((d, k)) > removed)
    leak = rng.beta(*of_weight, d) * (rng.random(d) > removed)
    for i in np.flatnonzero(weight.sum(1) == 0):
        weight[i, rng.integers(k)] = rng.beta(*of_weight)
    for j in np.flatnonzero(weight.sum(0) == 0):
        weight[rng.integers(d), j] = rng.beta(*of_weight)
    return weight, leak, rng.beta(*of_prior, k)


def measured(key, options):
    """Learn with each alpha; the held-out -ELBO of the best one, and column rates."""
    n, seed = key["n"], key["seed"]
    rng = np.random.default_rng([seed, *map(ord, key["sparsity"])])
    model = model_of(key["sparsity"], rng)
    x, valid, test = (random_rows(rng, model, m) for m in (n, max(n, 200), N_TEST))
    effort = {"max_iter": 1} if options.quick else {}
    found = []
    for alpha in ALPHAS[: 1 if options.quick else None]:
        fixed = {"algorithm": key["way"], "random_state": seed}
        learner = NoisyOr(100, alpha=alpha, **fixed, **effort).fit(x)
        found.append((-learner.score(valid), alpha, -learner.score(test)))
    _, alpha, loss = min(found)
    zeros = float((test == 0).mean())
    rates = loss_of_rates(x, test)
    return {"alpha": alpha, "loss": loss, "independent": rates, "zeros": zeros}


def losses(results):
    """Set the held-out -ELBO of all ways in a table."""
    rows = []
    for sparsity, n in product(DRAWS, SIZES):
        if some := results.of(sparsity=sparsity, n=n):
            losses = {
                way: np.array([x["loss"] for x in some if x["way"] == way])
                for way in WAYS
            }
            row = [f"{100 * mean(some, 'zeros'):.1f} %", n]
            row.append(average(some, "independent", 2))
            row += [
                f"{v.mean():.2f} ({len(v)})" if len(v) else "-" for v in losses.values()
            ]
            for way in WAYS[1:]:
                if len(losses[way]) == len(losses["acp"]):
                    v = losses[way] - losses["acp"]
                    error = v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0
                    row.append(f"{v.mean():.2f} ± {error:.2f}" if len(v) > 1 else "-")
            rows.append(row)
    header = ["zeros", "rows", "independent columns", *WAYS]
    header += [f"{way} - acp" for way in WAYS[1:]]
    return table(header, rows)


CASES = {"seed": range(3), "sparsity": DRAWS, "n": SIZES, "way": WAYS}
main = main_of(globals(), {"seed": [0], "n": SIZES[:1]})
