"""Which pages of benchmarks have a picture, and of which tables."""

from _pictures import Panel, Picture, Series

_RMSE, _CRPS = "RMSE: ratio, less is better", "CRPS: ratio, less is better"
_HOLLOW = "Hollow markers average fewer tables"


def _ratios(*mechanisms):
    """Compare imputers by RMSE and CRPS; pages of `imputation.py` share the tables."""
    return (
        Panel(
            "RMSE over that of IterativeImputer (BR)",
            "to BR",
            tuple(Series(name, _RMSE, name) for name in mechanisms),
            reference=1,
        ),
        Panel(
            "CRPS over that of draws of IterativeImputer",
            "to BR draws",
            tuple(Series(name, _CRPS, name) for name in mechanisms),
            reference=1,
        ),
    )


_IMPUTERS = (
    "Errors of imputed numbers (blue: skvnce) as ratios to those of IterativeImputer, "
    f"half of the cells hidden; less is better. {_HOLLOW}"
)


def _by(column, values, heading, of, nth=0):
    return tuple(Series(v, heading, of, nth, ((column, v),)) for v in values)


def _sets(graph, missing):
    return tuple(Series(name, graph, "AUC", i) for i, name in enumerate(missing))


_SETS = ("complete", "30 % MCAR", "30 % MAR", "50 % MCAR")
_TOPICS = "Topics of NeurIPS titles, 1987-2016 (6519 titles of 1220 words, K = 20)"
_QUADRANTS = ("1 hidden", "2 hidden", "3 hidden")
_BOUNDS = "Short: all nine methods (figure 2)"
_HIDDEN = ("0% missing", "30% missing", "50% missing")

_COVERAGE = Panel(
    "coverage, %", "analysis", _by("missing", ("MCAR", "MAR"), "", "mean"), reference=95
)

PICTURES = {
    "imputation": Picture(_IMPUTERS, _ratios("MCAR 50", "MAR 50")),
    "vgi_imputer": Picture(_IMPUTERS, _ratios("MCAR 50", "MAR 50")),
    "mice": Picture(_IMPUTERS, _ratios("MCAR 50")),
    "gaussian_imputer": Picture(_IMPUTERS, _ratios("MCAR 50")),
    "mixed": Picture(
        "Errors on eight mixed tables, MCAR (blue: skvnce), as ratios to draws of the "
        "marginal; less is better. Methods that ran on all tables and seeds only",
        (
            Panel(
                "over draws of the marginal",
                "method",
                tuple(
                    Series(name, "All tables, MCAR", column, 0, (("cells", "24"),))
                    for name, column in (
                        ("log-loss of levels", "log-loss"),
                        ("CRPS of numbers", "CRPS"),
                    )
                ),
                reference=1,
            ),
        ),
    ),
    "pooling_models": Picture(
        "Coverage of 95 % intervals, mean of eight coefficients (blue: skvnce); 95 % "
        "is right",
        (_COVERAGE,),
    ),
    "copula_graph": Picture(
        "Areas under the ROC curve of edges of simulated graphs (blue: skvnce); 1 is "
        "best",
        (
            Panel(
                "20 columns of five kinds",
                "method",
                _sets("copula20: 20 nodes of five kinds", _SETS[:3]),
            ),
            Panel(
                "ring of 20 truncated normals",
                "method",
                _sets("ring: ring of truncated normals", _SETS[:3]),
            ),
        ),
    ),
    "graph_recovery": Picture(
        "Areas under the ROC curve of edges, medians over sets (blue: skvnce); 1 is "
        "best",
        tuple(
            Panel(
                f"{graph}, 20 columns",
                "method",
                tuple(
                    Series(c, "As the paper has it (b = 0)", c, 0, (("graph", graph),))
                    for c in _HIDDEN
                ),
                leave_out="imputed-",
            )
            for graph in ("ring", "hub")
        ),
    ),
    "vae_tables": Picture(
        "Energy distance of imputations to exact draws of the same autoencoder (blue: "
        "the samplers of Simkus and Gutmann 2023); 0 is best",
        tuple(
            Panel(
                name,
                "sampler",
                (Series(name, name, "to the exact conditional"),),
                reference=0,
                leave_out=", (eps|target|fixed|all)|^exact",
            )
            for name in ("uci_power", "miniboone")
        ),
        "AC-MWG|LAIR",
    ),
    "prediction": Picture(
        "Errors of models fitted to several draws, over those of other ways; below 1, "
        "several draws are better",
        tuple(
            Panel(
                f"{error} over that of the other way",
                "several draws against",
                tuple(
                    Series(
                        model,
                        "Several draws against other ways",
                        "ratio",
                        0,
                        (("model", model), ("error", error)),
                    )
                    for model in ("linear", "trees")
                ),
                reference=1,
            )
            for error in ("log-loss", "RMSE")
        ),
    ),
    "graph_selection": Picture(
        "F1 of the edges that each rule chooses, ring of 20 columns; 1 is best. CV and "
        "stability: one set, others: ten",
        (
            Panel(
                "F1",
                "rule",
                tuple(
                    Series(m, "", "F1", 0, (("graph", "ring"), ("missing", m)))
                    for m in ("0%", "30%")
                ),
            ),
        ),
        ".",
    ),
    "noisy_or_titles": Picture(
        "Coherence (NPMI) of topics of 5519 titles (blue: skvnce); more is better",
        (
            Panel(
                "NPMI",
                "method",
                (
                    Series(
                        "5519",
                        _TOPICS,
                        "NPMI (sd over seeds)",
                        0,
                        (("titles", "5519"),),
                    ),
                ),
            ),
        ),
    ),
    "vae_likelihood": Picture(
        "Log-likelihood of complete test rows, in nats, of autoencoders fitted to "
        "tables of which half is missing; more is better",
        tuple(
            Panel(name.split(",")[0], "method", (Series(name, name, "log p(x)"),))
            for name in (
                "uci_power, 16999 training rows",
                "miniboone, 3148 training rows",
            )
        ),
        ".",
    ),
    "vae_omniglot": Picture(
        "F1 of the hidden pixels of images with one, two or three hidden quadrants; "
        "more is better. Blue: the samplers of Simkus and Gutmann (2023)",
        (
            Panel(
                "F1 of hidden pixels",
                "sampler",
                tuple(Series(c, "F1", c) for c in _QUADRANTS),
            ),
        ),
        "AC-MWG|LAIR",
    ),
    "vae_bounds": Picture(
        "Log-likelihood of complete rows, in nats, medians of five seeds, of "
        "autoencoders fitted by nine bounds; more is better",
        (Panel("log-likelihood", "method", (Series("median", _BOUNDS, "median"),)),),
        ".",
    ),
    "vgi_factor_analysis": Picture(
        "Distance of the fitted factor analysis from the true one, by share of missing "
        "cells (blue: skvnce); less is better",
        (
            Panel(
                "KL(truth, fit), 1e-3",
                "KL(truth, fit), 1e-3",
                tuple(
                    Series(c, "Accuracy (figures 3 and 4)", c)
                    for c in ("1/6", "3/6", "5/6")
                ),
                log=True,
            ),
        ),
    ),
}
