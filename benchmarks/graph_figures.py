"""Figures of the papers on graphs, drawn again with all methods.

    python benchmarks/graph_figures.py [--sets 10] [--n-jobs 2] [--only-draw]
        [--results graph_recovery.jsonl] [--output doc/benchmarks/graph_figures.md]

Figure 5 of Rhodes and Gutmann (2019) and figures 5.2 to 5.4 of Rhodes (2018).  Fits
that the file of results lacks are made first, the costly methods last; the file is that
of ``graph_recovery.py``.  Pictures go to ``images`` beside the page's folder.
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from _report import Texts, made_by, publish, specs, table
from _runner import Some, options_of
from graph_recovery import COSTLY, FREE, METHODS, Store, against, chosen, median, values
from PIL import Image

TEXTS = Texts("graph_figures", globals())

PAPER_RATES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
THESIS_RATES = [*PAPER_RATES, 0.6, 0.7, 0.8, 0.9]
PAPER_GRAPHS = ["ring", "hub"]
ALL_GRAPHS = ["ring", "hub", "ring-mixed", "hub-mixed"]


class Style(NamedTuple):
    """How a method is drawn, and what the papers call it."""

    shown: str
    color: str
    marker: str
    line: str = "-"


SPECS = specs("graph_figures")
STYLES = {name: Style(**style) for name, style in SPECS["styles"].items()}
LOGNORMAL, TRUE, APPROX = (f"skvnce vnce{kind}" for kind in ("-lognormal", "", "-cdi"))
MLE, SCORE = "skvnce maximum-likelihood", "skvnce score-matching"
FREE_SCORE, FREE_MLE, FREE_TRUE = (f"{name}{FREE}" for name in (SCORE, MLE, TRUE))
MEANS, PARTIAL = "skvnce imputed-nce, mean", "mean-filled partial corr."
FILLED = "skvnce imputed-score-matching, mean"
ROUGH = tuple(f"skvnce imputed-nce, {kind}" for kind in ("noise", "uniform", "zeros"))
PAPER = [name for name in STYLES if name not in ROUGH and FREE not in name]
THESIS = [name for name in STYLES if name not in (FILLED, PARTIAL)]
CURVES = [TRUE, APPROX, MEANS, MLE, SCORE, FREE_MLE, FREE_TRUE]


def place_of(name, linear):
    """Find a method by its name and whether it fits b."""
    return next(
        place
        for place, method in enumerate(METHODS)
        if method.name == name and method.linear in (linear, None)
    )


def cell_of(store, graph, missing, name, linear):
    """Get {seed: Result}."""
    return store.cell(graph, missing, METHODS[place_of(name, linear)])


def jobs_of(options):
    """List the fits of the papers' figures: cheap methods first."""
    settings = [(g, m, False) for g in options.graphs for m in options.rates]
    settings += [("thesis", m, True) for m in options.thesis_rates]
    jobs = [
        (graph, seed, missing, place)
        for seed in range(options.sets)
        for graph, missing, linear in settings
        for place in chosen(THESIS if linear else PAPER, graph, [linear])
        if METHODS[place].name not in options.without
    ]
    return sorted(jobs, key=lambda job: METHODS[job[3]].name in COSTLY)


def draw_quantiles(ax, store, graph, linear, rates, names, measure):
    """Draw medians and quartiles against the share of missing cells."""
    for number, name in enumerate(names):
        style = STYLES[name]
        cells = {m: cell_of(store, graph, m, name, linear) for m in rates}
        at = [m for m in rates if cells[m]]
        if not at:
            continue
        low, middle, high = np.transpose(
            [np.quantile(values(cells[m], measure), [0.25, 0.5, 0.75]) for m in at]
        )
        shift = 1.2 * (number / max(1, len(names) - 1) - 0.5)
        ax.errorbar(
            100 * np.array(at) + 4 * shift,
            middle,
            [middle - low, high - middle],
            color=style.color,
            marker=style.marker,
            ls=style.line,
            lw=1,
            ms=4.5,
            elinewidth=0.8,
        )
    ax.set_xticks([100 * m for m in rates])
    ax.grid(axis="y", color="0.9", lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(fig, names, ncols):
    """Explain the lines below the panels."""
    handles = [
        plt.Line2D([], [], color=s.color, marker=s.marker, ls=s.line, label=s.shown)
        for s in (STYLES[name] for name in names)
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=ncols, frameon=False)


def has_any(store, graph, linear, rates):
    """Tell whether anything was run."""
    cells = (
        cell_of(store, graph, m, name, linear)
        for m in rates
        for name in PAPER
        if name != PARTIAL
    )
    return any(cells)


def paper_figure(store, options):
    """Draw figure 5: AUC against missing cells; b fitted and mixed signs beside it."""
    settings = [(g, b) for g in ALL_GRAPHS for b in (False, True)]
    there = {s for s in settings if has_any(store, *s, PAPER_RATES)}
    graphs = [g for g in ALL_GRAPHS if (g, False) in there or (g, True) in there]
    linears = sorted({b for _, b in there})
    fig, axes = plt.subplots(
        len(linears),
        len(graphs),
        figsize=(3.6 * max(2, len(graphs)), 3 * len(linears) + 1),
        layout="constrained",
        sharey="col",
        squeeze=False,
    )
    for row, linear in zip(axes, linears, strict=True):
        for ax, graph in zip(row, graphs, strict=True):
            ax.axhline(0.5, color="0.7", lw=0.8)
            draw_quantiles(ax, store, graph, linear, PAPER_RATES, PAPER, "auc")
            ax.set_title(f"{graph}, {'b fitted' if linear else 'b = 0'}")
            ax.set_ylim(top=1.01)
        row[0].set_ylabel("AUC of |K|")
    for ax in axes[-1]:
        ax.set_xlabel("% missing")
    add_legend(fig, PAPER, 3 if len(graphs) < 4 else 5)
    return fig


def error_figure(store, options):
    """Draw figure 5.2: errors of b, and of K on and off the diagonal."""
    panels = {"linear_mse": "b", "diagonal_mse": "diagonal of K"}
    panels["link_mse"] = "off-diagonal of K"
    fig, axes = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
    for ax, (measure, title) in zip(axes, panels.items(), strict=True):
        draw_quantiles(ax, store, "thesis", True, THESIS_RATES, THESIS, measure)
        ax.set_yscale("log")
        ax.set_title(f"MSE of {title}")
        ax.set_xlabel("% missing")
    add_legend(fig, THESIS, 5)
    return fig


def roc(ranking, grid):
    """Share of edges found at each share of other pairs taken for edges."""
    edge = np.array(list(ranking)) == "1"
    hits = np.append(0, np.cumsum(edge)) / edge.sum()
    false = np.append(0, np.cumsum(~edge)) / (~edge).sum()
    return hits[np.searchsorted(false, grid + 1e-9, side="right") - 1]


def curve_figure(store, options):
    """Draw figure 5.3: for each share of false edges, the median of the true."""
    fig, axes = plt.subplots(
        2, 5, figsize=(13, 5.6), layout="constrained", sharex=True, sharey=True
    )
    grid = np.linspace(0, 1, 51)
    for ax, missing in zip(axes.flat, THESIS_RATES, strict=True):
        for number, name in enumerate(CURVES):
            cell = cell_of(store, "thesis", missing, name, True)
            if cell:
                curves = [roc(ranking, grid) for ranking in values(cell, "ranking")]
                style = STYLES[name]
                shift = 0.006 * (number - 2)  # curves which agree stay visible
                ax.plot(
                    grid + shift,
                    np.median(curves, 0) + shift,
                    color=style.color,
                    ls=style.line,
                    lw=1.3,
                )
        ax.plot([0, 1], [0, 1], color="0.8", lw=0.8, zorder=0)
        ax.set_title(f"{missing:.0%} missing", fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("false positive rate")
    for ax in axes[:, 0]:
        ax.set_ylabel("true positive rate")
    handles = [
        plt.Line2D([], [], color=s.color, ls=s.line, label=s.shown)
        for s in (STYLES[name] for name in CURVES)
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return fig


def auc_figure(store, options):
    """Draw figure 5.4: AUC on the graph of the thesis."""
    fig, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    ax.axhline(0.5, color="0.7", lw=0.8)
    draw_quantiles(ax, store, "thesis", True, THESIS_RATES, THESIS, "auc")
    ax.set_xlabel("% missing")
    ax.set_ylabel("AUC of |K|")
    add_legend(fig, THESIS, 4)
    return fig


FIGURES = {
    "graph_paper_5": (paper_figure, "Figure 5 of the paper"),
    "graph_thesis_5_2": (error_figure, "Figure 5.2 of the thesis"),
    "graph_thesis_5_3": (curve_figure, "Figure 5.3 of the thesis"),
    "graph_thesis_5_4": (auc_figure, "Figure 5.4 of the thesis"),
}


def draw(store, options, folder):
    """Draw all; save where a folder is given."""
    for name, (figure, _) in FIGURES.items():
        fig = figure(store, options)
        fig.set_dpi(80)
        fig.canvas.draw()
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(np.asarray(fig.canvas.buffer_rgba()))
            few = picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
            few.save(folder / f"{name}.png", optimize=True)
        plt.close(fig)


class Claim(NamedTuple):
    """What a source says of two methods: the first is more accurate."""

    source: str
    first: str
    second: str
    graphs: list
    rates: list

    def settings(self):
        """List the settings (graph, b fitted, missing)."""
        linears = [True] if self.graphs == ["thesis"] else [False, True]
        return [(g, b, m) for g in self.graphs for b in linears for m in self.rates]


CLAIMS = [Claim(**one) for one in SPECS["claims"]]


def evaluate(store, claim):
    """Compare the two methods of a claim in all settings that have both."""
    for graph, linear, missing in claim.settings():
        first, second = (
            cell_of(store, graph, missing, name, linear)
            for name in (claim.first, claim.second)
        )
        if first.keys() & second.keys():
            yield (graph, linear, missing), against(first, second)


def claim_table(store):
    """Write where each claim holds."""
    header = ["claim", "graph", "b", "missing", "first", "second"]
    header += ["sets ahead, level, behind", "the first is"]
    rows = [
        [
            claim.source,
            graph,
            "fitted" if linear else "0",
            f"{missing:.0%}",
            *(f"{value:.3f}" for value in medians),
            sets,
            word,
        ]
        for claim in CLAIMS
        for (graph, linear, missing), (medians, sets, word) in evaluate(store, claim)
    ]
    return table(header, rows)


def summary_table(store):
    """Count the settings in which each claim holds, by kind of setting."""
    kinds = {
        "b = 0, one sign": lambda g, b: not b and "mixed" not in g,
        "b = 0, mixed signs": lambda g, b: not b and "mixed" in g,
        "b fitted, one sign": lambda g, b: b and "mixed" not in g,
        "b fitted, mixed signs": lambda g, b: b and "mixed" in g,
    }
    rows = []
    for claim in CLAIMS:
        found = list(evaluate(store, claim))
        row = [claim.source]
        for belongs in kinds.values():
            gaps = [one[0][0] - one[0][1] for key, one in found if belongs(*key[:2])]
            row.append(count(gaps))
        rows.append(row)
    return table(["claim", *kinds], rows)


def count(gaps):
    """Write in how many settings the first is ahead, and by how much."""
    if not gaps:
        return "not run"
    ahead = sum(gap > 0 for gap in gaps)
    return f"{ahead} of {len(gaps)}, median difference {np.median(gaps):+.3f}"


def set_table(store):
    """Write how many sets each cell of the figures has."""
    settings = [(g, b) for b in (False, True) for g in ALL_GRAPHS]
    rows = []
    for graph, linear in [*settings, ("thesis", True)]:
        for name in THESIS if graph == "thesis" else PAPER:
            sets = [len(cell_of(store, graph, m, name, linear)) for m in THESIS_RATES]
            if any(sets):
                shown = [n or "-" for n in sets]
                b = "fitted" if linear else "0"
                rows.append([graph, b, STYLES[name].shown, *shown])
    return table(["graph", "b", "method", *(f"{m:.0%}" for m in THESIS_RATES)], rows)


def thesis_table(store):
    """Write the medians behind figures 5.2 and 5.4."""
    rows = []
    measures = {"auc": "AUC", "linear_mse": "MSE of b"}
    measures |= {"diagonal_mse": "MSE of diag K", "link_mse": "MSE of off-diag K"}
    for measure, shown in measures.items():
        for name in THESIS:
            cells = [cell_of(store, "thesis", m, name, True) for m in THESIS_RATES]
            if any(cells):
                medians = [f"{median(c, measure):.3g}" if c else "-" for c in cells]
                rows.append([shown, STYLES[name].shown, *medians])
    return table(["measure", "method", *(f"{m:.0%}" for m in THESIS_RATES)], rows)


READING = [  # what to say, and the medians that show it
    (
        TEXTS("reading"),
        [("ring", 0.3, False), ("hub", 0.3, False)],
        [MLE, SCORE, LOGNORMAL, MEANS],
    ),
    (
        TEXTS("reading 2"),
        [("ring", 0.5, False), ("ring", 0.5, True), ("hub", 0.5, True)],
        [MEANS, FILLED, PARTIAL, TRUE, MLE],
    ),
    (
        TEXTS("reading 3"),
        [("ring-mixed", 0.5, False), ("ring-mixed", 0.5, True)],
        [MLE, SCORE, FILLED, PARTIAL, MEANS],
    ),
    (
        TEXTS("reading 4"),
        [("thesis", m, True) for m in (0.5, 0.7, 0.8, 0.9)],
        [SCORE, MLE, TRUE, APPROX, LOGNORMAL, FREE_SCORE, FREE_MLE, FREE_TRUE, MEANS],
    ),
    (TEXTS("reading 5"), [], []),
]


def reading(store):
    """Say what the figures show, with the medians behind it."""
    lines = []
    for said, settings, names in READING:
        lines.append(f"* {said}")
        for graph, missing, linear in settings:
            shown = medians_of(store, graph, missing, linear, names)
            b = "b fitted" if linear else "b = 0"
            lines.append(f"    * {graph}, {missing:.0%} missing, {b}: {shown}.")
    return "\n".join(lines)


def medians_of(store, graph, missing, linear, names):
    """Write the median AUC of methods, and on how many sets where they are not ten."""
    cells = {name: cell_of(store, graph, missing, name, linear) for name in names}
    return (
        ", ".join(
            f"{STYLES[name].shown} {median(cell, 'auc'):.2f}"
            + ("" if len(cell) == 10 else f" ({len(cell)} sets)")
            for name, cell in cells.items()
            if cell
        ).replace("(1 sets)", "(1 set)")
        or "not run"
    )


def report(store, options):
    """Write the page."""
    notes = (
        "Medians and quartiles over the sets; AUC of |K|; n = 1000 rows, MCAR masks."
    )
    parts = [
        "# The papers' figures, drawn again",
        made_by("graph_figures.py", notes),
        TEXTS("Methods are named as in"),
        "## What holds, and what does not",
        reading(store),
        "## In how many settings the papers' orderings hold",
        TEXTS("By the median AUC on"),
        summary_table(store),
    ]
    for name, (_, title) in FIGURES.items():
        parts += [f"## {title}", f"![{title}](../images/{name}.png)"]
    parts += ["### The medians on the graph of the thesis", thesis_table(store)]
    parts += ["## Each setting", claim_table(store)]
    filled = "Without `--only-draw` the command above fits what the figures lack."
    parts += ["## Sets behind each point", filled, set_table(store)]
    return parts


def main():
    """Run what is missing, draw, and write the page."""
    quick = {"sets": 1, "graphs": ["ring"], "without": COSTLY}
    options = options_of(
        __doc__,
        quick | {"rates": [0.0, 0.3], "thesis_rates": [0.3, 0.8]},
        sets=10,
        n_jobs=1,
        graphs=PAPER_GRAPHS,
        rates=PAPER_RATES,
        thesis_rates=THESIS_RATES,
        without=Some([]),
        results=None,
        only_draw=False,
    )
    store = Store(options.results)
    if not options.only_draw:
        store.run(jobs_of(options), options.n_jobs)
    elif not store.cells:
        raise SystemExit(f"There are no results in {options.results}.")
    folder = Path(options.output).parent.parent / "images" if options.output else None
    draw(store, options, folder)
    publish(report(store, options), options.output)


if __name__ == "__main__":
    main()
