"""Draw the pictures of the pages of benchmarks anew, from the tables on the pages.

Usage: python benchmarks/pictures.py [PAGE ...]

The scripts that make the pages do the same for their page (`_report.publish`).
"""

import argparse
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

BLUE, ORANGE, MARKERS = "#0072B2", "#D55E00", "osD^v"
OURS = "skvnce|Table|Gaussian|Mixture|LAIR|Forest|VGI|VNCE|Copula|Truncated|NoisyOr|VAE"
_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*\.?\d*")


class Series(NamedTuple):
    """A column of a table: its name in the legend, and where it is on the page."""

    name: str
    heading: str  # the table is below it; empty: the top of the page
    column: str
    nth: int = 0  # of the tables below the heading
    where: tuple = ()  # (column, value): only rows with this value


class Panel(NamedTuple):
    """Rows of methods, and series of their numbers."""

    title: str
    label: str  # the column that names the rows
    series: tuple
    reference: float | None = None  # a vertical line
    leave_out: str = "^$"  # rows whose name matches
    log: bool = False


class Picture(NamedTuple):
    """Panels, what they show in words, and which rows are methods of ours."""

    text: str
    panels: tuple
    ours: str = OURS


class Row(NamedTuple):
    """A method, its numbers by series, and the series that average fewer tables."""

    name: str
    values: list  # a number or None
    partial: list


def tables(text, heading):
    """Return the tables below a heading, each a list of dicts, up to the next one."""
    section, level = text, 1
    if heading:
        start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.M)
        if start is None:
            raise ValueError(f"no heading {heading!r}")
        section, level = text[start.end() :], len(start[1])
        section = re.split(rf"^#{{1,{level}}} ", section, maxsplit=1, flags=re.M)[0]
    blocks = re.findall(r"(?:^\|.*\|\n?)+", section, re.M)
    return [_rows(block) for block in blocks]


def _rows(block):
    lines = [
        [c.strip() for c in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        for line in block.strip().splitlines()
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def number(cell):
    """Return the first number of a cell, or None."""
    found = _NUMBER.search(cell)
    return float(found[0].replace(",", "")) if found else None


def read(panel, text):
    """Return the rows of a panel, in the order of the page, without empty ones."""
    values, partial, names = {}, {}, []
    for i, one in enumerate(panel.series):
        for line in tables(text, one.heading)[one.nth]:
            if all(line[column] == value for column, value in one.where):
                name = line[panel.label]
                names += [name] if name not in names else []
                values[name, i] = number(line[one.column])
                partial[name, i] = bool(re.search(r" \(\d+\)$", line[one.column]))
    order = range(len(panel.series))
    rows = [
        Row(
            name,
            [values.get((name, i)) for i in order],
            [partial.get((name, i), False) for i in order],
        )
        for name in names
        if not re.search(panel.leave_out, name)
    ]
    return [row for row in rows if any(v is not None for v in row.values)]


def fingerprint(picture, text):
    """Return what tells a picture of other numbers; it is written into the file."""
    shown = [(panel, read(panel, text)) for panel in picture.panels]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def draw(picture, text, path):
    """Draw a picture of a page into an SVG file."""
    import matplotlib
    import matplotlib.pyplot as plt

    read_panels = [(panel, read(panel, text)) for panel in picture.panels]
    heights = [len(rows) * 0.21 + 0.75 for _, rows in read_panels]
    style = {"svg.fonttype": "none", "svg.hashsalt": Path(path).stem, "font.size": 9}
    about = {"Date": None, "Description": fingerprint(picture, text)}
    with matplotlib.rc_context(style):
        fig, axes = plt.subplots(
            len(heights),
            1,
            figsize=(4.5, sum(heights)),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        for ax, (panel, rows) in zip(axes[:, 0], read_panels, strict=True):
            _fill(ax, panel, rows, re.compile(picture.ours))
        fig.savefig(path, metadata=about)
        plt.close(fig)


def _fill(ax, panel, rows, ours):
    for i, one in enumerate(panel.series):
        for height, row in enumerate(rows):
            if row.values[i] is not None:
                color = BLUE if ours.match(row.name) else ORANGE
                face = "white" if row.partial[i] else color
                ax.plot(row.values[i], height, MARKERS[i], color=color, mfc=face, ms=5)
        if len(panel.series) > 1:
            ax.plot([], [], MARKERS[i], color="0.4", ms=5, label=one.name)
    if panel.log:
        ax.set_xscale("log")
    else:
        ax.locator_params(axis="x", nbins=6)
    if panel.reference is not None:
        ax.axvline(panel.reference, color="0.5", lw=1, zorder=0)
    ax.set_yticks(range(len(rows)), [_shortened(row.name) for row in rows])
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(BLUE if ours.match(row.name) else "black")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_title(panel.title, fontsize=9, loc="right")
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if len(panel.series) > 1:
        names = ax.legend(
            loc="upper center", bbox_to_anchor=(0.3, -0.03 - 1.3 / len(rows)),
            ncols=len(panel.series), frameon=False, fontsize=8, handletextpad=0,
        )  # fmt: skip
        names.set_in_layout(True)


def _shortened(name, most=27):
    return name if len(name) <= most else name[: most - 1].rstrip() + "\u2026"


def illustrated(text, page, pictures):
    """Return the text of a page with its picture below the title, and draw it."""
    page = Path(page)
    images = page.parent.parent / "images"
    if page.stem not in pictures or not images.is_dir():
        return text
    picture = pictures[page.stem]
    name = f"benchmark_{page.stem}.svg"
    draw(picture, text, images / name)
    link = f"![{picture.text}](../images/{name})"
    title, rest = text.split("\n\n", 1)
    if rest.startswith(f"![{rest[2:].split(']', 1)[0]}](../images/{name})"):
        rest = rest.split("\n\n", 2)[2]
    return "\n\n".join([title, link, f"*{picture.text}.*", rest])


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


PAGES = Path(__file__).parents[1] / "doc" / "benchmarks"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", default=list(PICTURES), metavar="PAGE")
    for name in parser.parse_args().pages:
        page = PAGES / f"{name}.md"
        text = illustrated(page.read_text(encoding="utf-8"), page, PICTURES)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
