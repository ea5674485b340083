"""Draw the pictures of the pages of benchmarks anew, from the tables on the pages.

Usage: python benchmarks/pictures.py [PAGE ...]

The scripts that make the pages do the same for their page (`_report.publish`).
"""

import argparse
import hashlib
import re
import tomllib
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


def _specs(file):
    """Read which pages have a picture, and of which tables."""
    found = {}
    for page, spec in tomllib.loads(file.read_text(encoding="utf-8")).items():
        panels = []
        for panel in spec.pop("panels"):
            series = (Series(*one) for one in panel.pop("series"))
            pairs = (one._replace(where=tuple(map(tuple, one.where))) for one in series)
            panels.append(Panel(series=tuple(pairs), **panel))
        found[page] = Picture(panels=tuple(panels), **spec)
    return found


PICTURES = _specs(Path(__file__).parent / "texts" / "pictures.toml")
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
