"""Noisy-OR: ways of inference at several sparsities and numbers of rows.

    python benchmarks/noisy_or_sparsity.py [--results FILE] [--only-report] [--quick]
        [--seeds 3] [--output doc/benchmarks/noisy_or_sparsity.md]

Figure 5 of Yan, Ailem and Sha (2019): held-out -ELBO on SYN-RANDOM with 50
columns and 100 causes, of three sparsities (their table 3).  As many validation rows
as rows to learn from, at least 200, choose alpha of each fit.  Each result is a line of
FILE; those that are there are not computed again.
"""

import warnings
from itertools import product

import numpy as np
from _report import Results, Texts, made_by, publish, table
from _runner import options_of
from noisy_or_synthetic import random_rows

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


def measure(sparsity, way, n, seed, *, quick):
    """Learn with each alpha; the held-out -ELBO of the best one, and column rates."""
    rng = np.random.default_rng([seed, *map(ord, sparsity)])
    model = model_of(sparsity, rng)
    x, valid, test = (random_rows(rng, model, m) for m in (n, max(n, 200), N_TEST))
    found = []
    for alpha in ALPHAS[: 1 if quick else None]:
        options = {"max_iter": 1} if quick else {}
        learner = NoisyOr(100, algorithm=way, alpha=alpha, random_state=seed, **options)
        learner.fit(x)
        found.append((-learner.score(valid), alpha, -learner.score(test)))
    rate = (x.sum(0) + 0.5) / (n + 1)
    rates = -(test * np.log(rate) + (1 - test) * np.log1p(-rate)).sum(1).mean()
    _, alpha, loss = min(found)
    return {
        "alpha": alpha,
        "loss": loss,
        "independent": rates,
        "zeros": float((test == 0).mean()),
    }


def report(results):
    """Write the tables of the page."""
    rows = []
    for sparsity, n in product(DRAWS, SIZES):
        some = results.of(sparsity=sparsity, n=n)
        if not some:
            continue
        by_way = {
            way: np.array([x["loss"] for x in some if x["way"] == way]) for way in WAYS
        }
        behind = {
            way: by_way[way] - by_way["acp"]
            for way in WAYS[1:]
            if len(by_way[way]) == len(by_way["acp"])
        }
        rows.append(
            [
                f"{100 * np.mean([x['zeros'] for x in some]):.1f} %",
                n,
                f"{np.mean([x['independent'] for x in some]):.2f}",
                *(
                    f"{v.mean():.2f} ({len(v)})" if len(v) else "-"
                    for v in by_way.values()
                ),
                *(
                    f"{v.mean():.2f} ± {v.std(ddof=1) / len(v) ** 0.5:.2f}"
                    if len(v) > 1
                    else "-"
                    for v in behind.values()
                ),
            ]
        )
    header = ["zeros", "rows", "independent columns", *WAYS]
    header += [f"{way} - acp" for way in WAYS[1:]]
    return [
        "# Noisy-OR at several sparsities",
        made_by(
            "noisy_or_sparsity.py", f"One thread. Code of commit {results.commits()}."
        ),
        " ".join(__doc__.split("\n\n")[2].split()),
        TEXTS("Held-out -ELBO a row in"),
        table(header, rows),
    ]


def main():
    """Measure and report."""
    options = options_of(
        __doc__, {"seeds": 1}, results=None, seeds=3, only_report=False
    )
    warnings.simplefilter("ignore")
    results = Results(options.results)
    seeds, sizes = range(options.seeds), SIZES[: 1 if options.quick else None]
    for seed, sparsity, n, way in product(seeds, DRAWS, sizes, WAYS):
        key = {"sparsity": sparsity, "way": way, "n": n, "seed": seed}
        if options.only_report or results.has(**key):
            continue
        results.add(key | measure(**key, quick=options.quick))
    publish(report(results), options.output)


if __name__ == "__main__":
    main()
