"""The page of `vae_tables`."""

import numpy as np
from _conditional_report import (
    Claim,
    claim_table,
    curve_table,
    results_of,
    spread,
)
from _conditional_samplers import ABLATIONS, FRACTIONS, METHODS, N_CHAINS, WARM_UP
from _report import Texts, made_by, table

TEXTS = Texts("vae_tables", globals())

SAMPLERS = [name for name in METHODS if name != "marginal"]
NEW, OLD = ("AC-MWG'", "LAIR 4 + 1"), ("pseudo-Gibbs", "MWG'")
PAIRS = tuple((new, old) for new in NEW for old in OLD)
OVER_MARGINAL = tuple((name, "marginal") for name in SAMPLERS)
BETTER, AS_GOOD, EQUAL, WORSE = ("better",), ("better", "equal"), ("equal",), ("worse",)
CLAIMS = [
    Claim("5", "all have a lower RMSE than marginal", "squared", OVER_MARGINAL, BETTER),
    Claim(
        "5",
        "all have a smaller Sinkhorn divergence than marginal",
        "sinkhorn",
        OVER_MARGINAL,
        BETTER,
    ),
    Claim("5", "RMSE: MWG' < pseudo-Gibbs", "squared", (OLD[::-1],), BETTER),
    Claim("5", "Sinkhorn: MWG' < pseudo-Gibbs", "sinkhorn", (OLD[::-1],), BETTER),
    Claim(
        "5",
        "Sinkhorn: AC-MWG', LAIR <= pseudo-Gibbs, MWG'",
        "sinkhorn",
        PAIRS,
        AS_GOOD,
    ),
    Claim("5", "RMSE: AC-MWG', LAIR < pseudo-Gibbs, MWG'", "squared", PAIRS, BETTER),
    Claim(
        "15",
        "energy distance to the truth: AC-MWG', LAIR <= pseudo-Gibbs, MWG'",
        "energy to truth",
        PAIRS,
        AS_GOOD,
    ),
    Claim(
        "1-3",
        "distance to the exact conditional: AC-MWG', LAIR < pseudo-Gibbs, MWG'",
        "energy",
        PAIRS,
        BETTER,
    ),
    Claim(
        "12, 15",
        "MWG: better from LAIR than from pseudo-Gibbs",
        "energy",
        (("MWG'", "MWG"),),
        BETTER,
    ),
    Claim(
        "14",
        "AC-MWG: better from LAIR than from the marginal",
        "energy",
        (("AC-MWG'", "AC-MWG"),),
        BETTER,
    ),
    Claim(
        "9, 14",
        "AC-MWG' is worse without the prior component",
        "energy",
        (("AC-MWG', eps = 0", "AC-MWG'"),),
        WORSE,
    ),
    Claim(
        "9, 14",
        "AC-MWG' is worse with the target of MWG",
        "energy",
        (("AC-MWG', target of MWG", "AC-MWG'"),),
        WORSE,
    ),
    Claim(
        "alg. 1",
        "AC-MWG' is worse with a fixed proposal",
        "energy",
        (("AC-MWG', fixed proposal", "AC-MWG'"),),
        WORSE,
    ),
    Claim(
        "9, 14",
        "LAIR is worse without the prior component, 5 + 0",
        "energy",
        (("LAIR 5 + 0", "LAIR 4 + 1"),),
        WORSE,
    ),
    Claim(
        "9, 14",
        "LAIR 2 + 3 is as good as 4 + 1",
        "energy",
        (("LAIR 2 + 3", "LAIR 4 + 1"),),
        AS_GOOD,
    ),
    Claim(
        "14",
        "importance resampling from the prior, 0 + 5, is worse",
        "energy",
        (("LAIR 0 + 5", "LAIR 4 + 1"),),
        WORSE,
    ),
    Claim(
        "alg. 2",
        "LAIR is worse with a fixed proposal",
        "energy",
        (("LAIR 4 + 1, fixed proposal", "LAIR 4 + 1"),),
        WORSE,
    ),
    Claim(
        "alg. 2",
        "LAIR is worse without the pooled final resampling",
        "energy",
        (("LAIR 4 + 1, last particles", "LAIR 4 + 1"),),
        WORSE,
    ),
]


def scores_table(records, methods, name, against=None):
    """Tabulate the scores at the end of the budget."""
    rows = []
    for method in methods:
        found = records.of(table=name, method=method)
        hidden = np.sum(records.of(table=name, method="exact")[0]["hidden"])
        error = [np.sqrt(np.sum(r["squared"]) / hidden) for r in found]
        energy = [np.mean(r["energy"]) for r in found]
        rows.append(
            [
                method,
                spread(error),
                spread(energy),
                *(
                    spread([r[k] for r in found], 4)
                    for k in ("sinkhorn", "energy to truth")
                ),
                *(f"{r['seconds']:.0f}" if "seconds" in r else "" for r in found[:1]),
            ]
        )
    header = ["sampler", "RMSE", "to the exact conditional", "Sinkhorn"]
    return table([*header, "energy to the truth", "CPU s"], rows)


def setting(records, name, study):
    """Describe the autoencoder and the reference of a table."""
    (found,) = records.of(table=name, method="exact")
    training, exact = study.training, study.exact
    least, low, middle = found["sizes"]
    return TEXTS(
        "Autoencoder: latents",
        locals(),
        seconds=found["training seconds"],
        hidden=np.sum(found["hidden"]),
    )


FOUND = TEXTS("found")


def section(records, name, study):
    """Write the part of one table."""
    if not records.has(table=name, method="exact"):
        return []
    methods = ["exact", *METHODS, *ABLATIONS]
    return [
        f"## {name}",
        setting(records, name, study),
        scores_table(records, methods, name),
        TEXTS("Energy distance to the"),
        curve_table(records, methods[2:], FRACTIONS, 1, table=name),
        "RMSE:",
        curve_table(records, methods[2:], FRACTIONS, 0, table=name),
    ]


def report(records, names, studies, found=()):
    """Return the parts of the page."""
    n_seeds = len({r["seed"] for r in records.records if r["method"] == "marginal"})
    keys = {name: {"table": name} for name in names}
    return [
        "# Samplers of missing cells on real tables",
        made_by("vae_tables.py", results_of(records)),
        INTRODUCTION.format(n_seeds=n_seeds, n_chains=N_CHAINS, share=1 / WARM_UP),
        "## Verdicts",
        VERDICTS,
        claim_table(records, CLAIMS, keys),
        *found,
        *(part for name in names for part in section(records, name, studies[name])),
    ]


INTRODUCTION = TEXTS("introduction")

VERDICTS = TEXTS("verdicts")
