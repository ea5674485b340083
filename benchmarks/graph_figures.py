"""Figures of the papers on graphs, drawn again with all methods.

    python benchmarks/graph_figures.py [--sets 10] [--only-report]
        [--results graph_recovery.jsonl] [--output doc/benchmarks/graph_figures.md]

Figure 5 of Rhodes and Gutmann (2019) and figures 5.2 to 5.4 of Rhodes (2018).  Fits
that the file of results lacks are made first, the costly methods last; the file is that
of ``graph_recovery.py``.  Pictures go to ``images`` beside the page's folder.
"""

from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from _report import Texts, grid, made_by, specs, table
from _runner import Some, carry_out
from graph_recovery import (
    COSTLY,
    FREE,
    METHODS,
    Fits,
    against,
    b_of,
    chosen,
    measured,
    median,
    values,
)
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


def cell_of(fits, graph, missing, name, linear):
    """Get {seed: record} of the method of a name that fits b or does not."""
    methods = (m for m in METHODS if m.name == name and m.linear in (linear, None))
    return fits.cell(graph, missing, next(methods))


def cells(options):
    """List the fits of the papers' figures: cheap methods first."""
    settings = [(g, m, False) for g in options.graphs for m in options.rates]
    settings += [("thesis", m, True) for m in options.thesis_rates]
    keys = [
        (
            method.name in COSTLY,
            {"graph": graph, "seed": seed, "missing": missing},
            method,
        )
        for seed in range(options.sets)
        for graph, missing, linear in settings
        for method in chosen(THESIS if linear else PAPER, graph, [linear])
        if method.name not in options.without
    ]
    for _, key, method in sorted(keys, key=itemgetter(0)):
        yield key | {"method": method.label}


def draw_quantiles(ax, fits, graph, linear, rates, names, measure):
    """Draw medians and quartiles against the share of missing cells."""
    for number, name in enumerate(names):
        style = STYLES[name]
        cells = {m: cell_of(fits, graph, m, name, linear) for m in rates}
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


def has_any(fits, graph, linear, rates):
    """Tell whether anything was run."""
    cells = (
        cell_of(fits, graph, m, name, linear)
        for m in rates
        for name in PAPER
        if name != PARTIAL
    )
    return any(cells)


def paper_figure(fits):
    """Draw figure 5: AUC against missing cells; b fitted and mixed signs beside it."""
    settings = [(g, b) for g in ALL_GRAPHS for b in (False, True)]
    there = {s for s in settings if has_any(fits, *s, PAPER_RATES)}
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
            draw_quantiles(ax, fits, graph, linear, PAPER_RATES, PAPER, "auc")
            ax.set_title(f"{graph}, {'b fitted' if linear else 'b = 0'}")
            ax.set_ylim(top=1.01)
        row[0].set_ylabel("AUC of |K|")
    for ax in axes[-1]:
        ax.set_xlabel("% missing")
    add_legend(fig, PAPER, 3 if len(graphs) < 4 else 5)
    return fig


def error_figure(fits):
    """Draw figure 5.2: errors of b, and of K on and off the diagonal."""
    panels = {"linear_mse": "b", "diagonal_mse": "diagonal of K"}
    panels["link_mse"] = "off-diagonal of K"
    fig, axes = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
    for ax, (measure, title) in zip(axes, panels.items(), strict=True):
        draw_quantiles(ax, fits, "thesis", True, THESIS_RATES, THESIS, measure)
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


def curve_figure(fits):
    """Draw figure 5.3: for each share of false edges, the median of the true."""
    fig, axes = plt.subplots(
        2, 5, figsize=(13, 5.6), layout="constrained", sharex=True, sharey=True
    )
    grid = np.linspace(0, 1, 51)
    for ax, missing in zip(axes.flat, THESIS_RATES, strict=True):
        for number, name in enumerate(CURVES):
            cell = cell_of(fits, "thesis", missing, name, True)
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


def auc_figure(fits):
    """Draw figure 5.4: AUC on the graph of the thesis."""
    fig, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    ax.axhline(0.5, color="0.7", lw=0.8)
    draw_quantiles(ax, fits, "thesis", True, THESIS_RATES, THESIS, "auc")
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


def draw(fits, folder):
    """Draw all; save where a folder is given."""
    for name, (figure, _) in FIGURES.items():
        fig = figure(fits)
        fig.set_dpi(80)
        fig.canvas.draw()
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(np.asarray(fig.canvas.buffer_rgba()))
            few = picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
            few.save(folder / f"{name}.png", optimize=True)
        plt.close(fig)


def settings_of(claim):
    """List the settings of a claim: graph, whether b is fitted, share missing."""
    linears = [True] if claim["graphs"] == ["thesis"] else [False, True]
    return product(claim["graphs"], linears, claim["rates"])


def evaluate(fits, claim):
    """Compare the methods of a claim, the first more accurate, where both have results.

    Yields the setting, the medians, the sets and a word.
    """
    for graph, linear, missing in settings_of(claim):
        first, second = (
            cell_of(fits, graph, missing, claim[side], linear)
            for side in ("first", "second")
        )
        if first.keys() & second.keys():
            yield (graph, linear, missing), *against(first, second)


def claim_table(fits):
    """Write where each claim holds."""
    rows = []
    for claim in SPECS["claims"]:
        for (graph, linear, missing), medians, sets, word in evaluate(fits, claim):
            shown = [f"{value:.3f}" for value in medians]
            setting = [claim["source"], graph, b_of(linear), f"{missing:.0%}"]
            rows.append([*setting, *shown, sets, word])
    header = ["claim", "graph", "b", "missing", "first", "second"]
    return table([*header, "sets ahead, level, behind", "the first is"], rows)


def summary_table(fits):
    """Count the settings in which each claim holds, by kind of setting."""
    kinds = {
        f"{b}, {signs}": (linear, signs == "mixed signs")
        for b, linear in (("b = 0", False), ("b fitted", True))
        for signs in ("one sign", "mixed signs")
    }

    def cell(claim, kind):
        gaps = [
            medians[0] - medians[1]
            for (graph, linear, _), medians, *_ in evaluate(fits, claim)
            if (linear, "mixed" in graph) == kind
        ]
        ahead = f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"
        middle = f"median difference {np.median(gaps):+.3f}" if gaps else ""
        return f"{ahead}, {middle}" if gaps else "not run"

    rows = [
        [claim["source"], *(cell(claim, kind) for kind in kinds.values())]
        for claim in SPECS["claims"]
    ]
    return table(["claim", *kinds], rows)


def set_table(fits):
    """Write how many sets each cell of the figures has."""
    settings = [(g, b) for b in (False, True) for g in ALL_GRAPHS]
    rows = []
    for graph, linear in [*settings, ("thesis", True)]:
        for name in THESIS if graph == "thesis" else PAPER:
            sets = [len(cell_of(fits, graph, m, name, linear)) for m in THESIS_RATES]
            if any(sets):
                shown = [n or "-" for n in sets]
                rows.append([graph, b_of(linear), STYLES[name].shown, *shown])
    return table(["graph", "b", "method", *(f"{m:.0%}" for m in THESIS_RATES)], rows)


def thesis_table(fits):
    """Write the medians behind figures 5.2 and 5.4."""

    def cell(key, missing):
        measure, name = key
        found = cell_of(fits, "thesis", missing, name, True)
        return f"{median(found, measure):.3g}" if found else "-"

    measures = {"auc": "AUC", "linear_mse": "MSE of b"}
    measures |= {"diagonal_mse": "MSE of diag K", "link_mse": "MSE of off-diag K"}
    rows = {
        (shown, STYLES[name].shown): (measure, name)
        for measure, shown in measures.items()
        for name in THESIS
    }
    rates = {f"{missing:.0%}": missing for missing in THESIS_RATES}
    return grid(["measure", "method"], rows, rates, cell)


READING = [  # the text of what they say, and the medians that show it
    (
        "reading",
        [("ring", 0.3, False), ("hub", 0.3, False)],
        [MLE, SCORE, LOGNORMAL, MEANS],
    ),
    (
        "reading 2",
        [("ring", 0.5, False), ("ring", 0.5, True), ("hub", 0.5, True)],
        [MEANS, FILLED, PARTIAL, TRUE, MLE],
    ),
    (
        "reading 3",
        [("ring-mixed", 0.5, False), ("ring-mixed", 0.5, True)],
        [MLE, SCORE, FILLED, PARTIAL, MEANS],
    ),
    (
        "reading 4",
        [("thesis", m, True) for m in (0.5, 0.7, 0.8, 0.9)],
        [SCORE, MLE, TRUE, APPROX, LOGNORMAL, FREE_SCORE, FREE_MLE, FREE_TRUE, MEANS],
    ),
    ("reading 5", [], []),
]


def reading(fits):
    """Say what the figures show, with the medians behind it."""
    lines = []
    for text, settings, names in READING:
        lines.append(f"* {TEXTS(text)}")
        for graph, missing, linear in settings:
            shown = []
            for name in names:
                if found := cell_of(fits, graph, missing, name, linear):
                    count = f"{len(found)} set{'s' if len(found) > 1 else ''}"
                    few = "" if len(found) == 10 else f" ({count})"
                    middle = median(found, "auc")
                    shown.append(f"{STYLES[name].shown} {middle:.2f}{few}")
            b = "b fitted" if linear else "b = 0"
            said = ", ".join(shown) or "not run"
            lines.append(f"    * {graph}, {missing:.0%} missing, {b}: {said}.")
    return "\n".join(lines)


def page(results, options):
    """Draw, and write the page."""
    fits = Fits(results)
    draw(fits, options.output and Path(options.output).parent.parent / "images")
    notes = (
        "Medians and quartiles over the sets; AUC of |K|; n = 1000 rows, MCAR masks."
    )
    parts = [
        "# The papers' figures, drawn again",
        made_by("graph_figures.py", notes),
        TEXTS("Methods are named as in"),
        "## What holds, and what does not",
        reading(fits),
        "## In how many settings the papers' orderings hold",
        TEXTS("By the median AUC on"),
        summary_table(fits),
    ]
    for name, (_, title) in FIGURES.items():
        parts += [f"## {title}", f"![{title}](../images/{name}.png)"]
    parts += ["### The medians on the graph of the thesis", thesis_table(fits)]
    parts += ["## Each setting", claim_table(fits)]
    filled = "Without `--only-report` the command above fits what the figures lack."
    return [*parts, "## Sets behind each point", filled, set_table(fits)]


def main():
    """Run what is missing, draw, and write the page."""
    quick = {"sets": 1, "graphs": ["ring"], "without": COSTLY}
    carry_out(
        __doc__,
        cells,
        measured,
        page,
        quick | {"rates": [0.0, 0.3], "thesis_rates": [0.3, 0.8]},
        sets=10,
        graphs=PAPER_GRAPHS,
        rates=PAPER_RATES,
        thesis_rates=THESIS_RATES,
        without=Some([]),
    )


if __name__ == "__main__":
    main()
