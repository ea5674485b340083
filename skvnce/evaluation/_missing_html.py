"""The page of a `MissingReport`: HTML with its own style, without scripts.

Whatever comes from the table passes through `of_user` or `escaped`.
"""

import re
from html import escape
from importlib.resources import files

from skvnce._version import __version__
from skvnce.evaluation._table_findings import PREDICTORS, TARGETS
from skvnce.evaluation._user_table import percent

# ----------------------------------------
# Pieces of the page of a `MissingReport`: text, tables and pictures.
#
# Whatever comes from the table passes through `of_user` or `escaped`.

NO_VALUE = "–"
_NAME, _SENTENCE = 60, 1500  # most characters of a name, and of a sentence
_NAMES, _STRIP = 8, 300  # most names, and columns of a strip, that are shown
_NO_CELL = ' class="none"'
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def escaped(value, most=_SENTENCE):
    """Escape a text, shortened."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))
    return escape(text if len(text) <= most else text[:most] + "…")


def of_user(value):
    """Escape a name or a cell; its direction of writing changes nothing around it."""
    return f"<bdi>{escaped(value, _NAME)}</bdi>"


def listed(names, most=_NAMES):
    """List names, the first ones."""
    rest = len(names) - most
    shown = ", ".join(map(of_user, names[:most]))
    return shown + (f" and {rest:,} more" if rest > 0 else "")


def paragraph(text, soft=False):
    return f'<p class="soft">{text}</p>' if soft else f"<p>{text}</p>"


def section(key, title, *parts):
    """Return a section, to which the contents link by its key."""
    head = f'<section id="skvnce-{key}">\n<h2>{title}</h2>'
    return "\n".join([head, *parts, "</section>"])


def beyond(items, most, name):
    """Say how many items a table leaves out, if it does."""
    rest = len(items) - most
    return [paragraph(f"And {rest:,} more {name}.", soft=True)] * (rest > 0)


def bullets(items):
    """List warnings."""
    lines = "".join(f"<li>{escaped(one)}</li>" for one in items)
    return f'<ul class="warn">{lines}</ul>'


def table_of(heads, rows):
    """Return a table whose cells are HTML; narrow pages show a row as a list."""
    top = "".join(f"<th>{head}</th>" for head in heads)
    lines = [
        "<tr>"
        + "".join(
            f'<td data-label="{head}"{_NO_CELL * (cell == NO_VALUE)}>'
            f"<div>{cell}</div></td>"
            for head, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    return (
        f"<table><thead><tr>{top}</tr></thead>\n<tbody>"
        + "\n".join(lines)
        + "</tbody></table>"
    )


def bar(share, colour="bar", height=8):
    """Draw a share as a bar."""
    wide = 100 * min(max(share, 0.0), 1.0)
    wide = max(wide, 1.0) if share > 0 else 0
    return (
        f'<svg viewBox="0 0 100 1" height="{height}" preserveAspectRatio="none" '
        'aria-hidden="true"><rect width="100" height="1" fill="var(--rest)"/>'
        f'<rect width="{wide:.4g}" height="1" fill="var(--{colour})"/></svg>'
    )


def scale(text, share):
    return f'<div class="scale"><span>{text}</span>{bar(share, "bar")}</div>'


def histogram(heights):
    """Draw a histogram as one path."""
    top = max(heights)
    steps = [
        f"M{place} 40v-{max(40 * height / top, 0.7):.3g}h.92V40z"
        for place, height in enumerate(heights)
        if height
    ]
    return (
        f'<svg viewBox="0 0 {len(heights)} 40" height="48" preserveAspectRatio="none" '
        f'aria-hidden="true"><path fill="var(--bar)" d="{"".join(steps)}"/></svg>'
    )


def strip(missing):
    """Draw which columns of a pattern are missing."""
    shown, paths = missing[:_STRIP], []
    for colour, is_drawn in (("rest", False), ("gap", True)):
        steps = [
            f"M{j} 0h.86v1h-.86z" for j, one in enumerate(shown) if one == is_drawn
        ]
        paths.append(f'<path fill="var(--{colour})" d="{"".join(steps)}"/>')
    return (
        f'<div class="strip"><svg viewBox="0 0 {len(shown)} 1" height="16" '
        f'style="max-width:{20 * len(missing)}px" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(paths)}</svg></div>'
    )


_STYLE = files(__package__).joinpath("missing_report.css").read_text("utf-8")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Report of a table with missing values</title>
<style>
body {{ margin: 0; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14181d; }} }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
_CARDS, _ROWS, _PATTERNS = 120, 60, 15  # most that are shown
_LINE = 22  # characters below a histogram that fit a line
_CONTENTS = (
    ("imputer", "Imputer"),
    ("warnings", "Warnings"),
    ("columns", "Columns"),
    ("relations", "Relations"),
    ("patterns", "Patterns"),
    ("where", "Where cells are missing"),
    ("hidden", "Hidden cells"),
    ("skips", "Skipped questions"),
)


def page(report):
    """Return a report as a page (str)."""
    return _PAGE.format(body=fragment(report))


def fragment(report):
    """Return a report as a part of a page (str), such as a notebook."""
    parts = _head, _answer, _warnings, _columns, _relations, _patterns, _reasons
    inside = "\n".join(part(report) for part in (*parts, _hidden, _skips, _foot))
    return (
        f'<div class="skvnce-report"><style>\n{_STYLE}</style>\n<div>\n{inside}\n</div>'
        "</div>"
    )


def _head(report):
    n, d = report.shape
    complete = report.patterns.counts[~report.patterns.missing.any(1)].sum()
    links = (f'<a href="#skvnce-{key}">{title}</a>' for key, title in _CONTENTS)
    return (
        "<h1>A table with missing values</h1>\n"
        f"<p>{n:,} rows and {d:,} columns. {percent(report.share_missing)} of the "
        f"cells are missing, in {len(report.patterns.columns):,} of the columns. "
        f"Complete rows: {complete:,} ({percent(complete / n)}).</p>\n"
        f"<nav>{' '.join(links)}</nav>"
    )


def _answer(report):
    chosen = report.recommendation
    reasons = " ".join(escaped(one) for one in chosen.reasons)
    return section(
        "imputer",
        f"Recommended imputer: {chosen.imputer}",
        f'<div class="answer"><pre><code>{escaped(chosen.code, 5000)}</code></pre>',
        paragraph(reasons),
        paragraph(
            "<code>skvnce.evaluation.imputation_report</code> compares several "
            "imputers on this table. For means, regressions and their standard errors, "
            "use several draws (<code>sample</code>) and <code>skvnce.pooling</code>, "
            "not one filled table.",
            soft=True,
        ),
        "</div>",
    )


def _warnings(report):
    if not report.warnings:
        return section(
            "warnings", "Warnings", paragraph("None: no check found anything unusual.")
        )
    note = "What is probably not as it seems. Imputers warn of most of it at "
    return section(
        "warnings",
        f"Warnings: {len(report.warnings)}",
        paragraph(note + "<code>fit</code>, too.", soft=True),
        bullets(report.warnings),
    )


def _columns(report):
    columns = report.columns
    if len(columns) > _CARDS:
        columns = sorted(columns, key=lambda one: -one.share_missing)[:_CARDS]
    note = "Types are as the imputers see them; <code>categorical_features</code> "
    note += "changes them. Histograms and shares are of observed cells. "
    if len(columns) < len(report.columns):
        note += f"Shown are the {_CARDS} columns with most missing cells, of "
        note += f"{len(report.columns):,}. "
    cards = "\n".join(map(_card, columns))
    return section(
        "columns",
        "Columns",
        paragraph(note, soft=True),
        f'<div class="cards">{cards}</div>',
    )


def _card(column):
    missing = "nothing missing"
    if column.n_missing:
        cells = "cell" if column.n_missing == 1 else "cells"
        missing = f"{percent(column.share_missing)} missing "
        missing += f"({column.n_missing:,} {cells})"
    parts = [f"<h3>{of_user(column.name)}</h3>", paragraph(column.kind, soft=True)]
    parts += [paragraph(missing), bar(column.share_missing, "gap", 5)]
    if len(column.labels) == 3 and not column.n_levels:
        parts += ["<p></p>", histogram(column.heights), _ends(column.labels)]
    elif column.heights:
        parts.append(_levels(column))
    if column.examples and not (column.heights and column.n_levels):
        parts.append(paragraph(f"such as {listed(column.examples)}", soft=True))
    return f'<article class="card">{"".join(parts)}</article>'


def _ends(labels):
    """Write the ends and the median of a histogram, long ones in two lines."""
    style = "ends long" if sum(map(len, labels)) > _LINE else "ends"
    low, middle, high = map(of_user, labels)
    ends = f"<span>{low}</span><span>median {middle}</span><span>{high}</span>"
    return f'<div class="{style} soft">{ends}</div>'


def _levels(column):
    n = sum(column.heights)
    rest = column.n_levels - len(column.heights)
    whole = max(column.n_observed, 1)
    lines = [
        f"{of_user(label)}{bar(height / whole)}<span>{percent(height / whole)}</span>"
        for label, height in zip(column.labels, column.heights, strict=True)
    ]
    if rest > 0:
        name, share = "other" if rest == 1 else "others", percent((whole - n) / whole)
        lines.append(f"<span>{rest:,} {name}</span><span></span><span>{share}</span>")
    return f'<ul class="levels">{"".join(f"<li>{line}</li>" for line in lines)}</ul>'


def _relations(report):
    key, title, relations = "relations", "Relations of columns", report.relations
    if relations.why_not:
        return section(key, title, paragraph(escaped(relations.why_not)))
    if not relations.found:
        return section(key, title, paragraph("None found: no column follows exactly."))
    note = (
        "Each holds in the rows that observe its columns, up to rounding. "
        f"<b>Missing cells that follow from others: {relations.n_follow:,}</b>. "
        "TableImputer computes them, and keeps formulas and sets of zeros and ones "
        "true (<code>relations=</code>)."
    )
    rows = [
        (escaped(one), one.kind, f"{one.support:,}", f"{one.violations:,}")
        for one in relations.found[:_ROWS]
    ]
    table = table_of(("Relation", "Kind", "Shown by", "Violated in rows"), rows)
    parts = [paragraph(note, soft=True), table]
    parts += beyond(relations.found, _ROWS, "relations")
    if relations.typos:
        rest = relations.n_typos - len(relations.typos)
        items = [*relations.typos, *[f"and {rest:,} more"] * (rest > 0)]
        parts.append(paragraph("Probably errors. The first row is row 0:"))
        parts.append(bullets(items))
    return section(key, title, *parts)


def _patterns(report):
    patterns, n = report.patterns, report.shape[0]
    key, title, names = "patterns", "Patterns of missing cells", patterns.columns
    if not names:
        return section(key, title, paragraph("No cell is missing."))
    rows = []
    for missing, count in zip(patterns.missing[:_PATTERNS], patterns.counts):  # noqa: B905
        share = scale(f"{count:,} ({percent(count / n)})", count / n)
        gone = [name for name, one in zip(names, missing, strict=True) if one]
        rows.append((share, strip(missing), listed(gone) or "nothing: all observed"))
    note = (
        f"Which of the {len(names):,} columns with missing cells are missing together "
        "in a row. A strip shows them from left to right. "
    )
    if len(rows) < len(patterns.counts):
        kept = percent(patterns.counts[:_PATTERNS].sum() / n)
        note += (
            f"There are {len(patterns.counts):,} different patterns; those listed are "
            f"of {kept} of the rows."
        )
    table = table_of(("Rows", "Columns", "Missing are"), rows)
    return section(key, title, paragraph(note, soft=True), table)


def _reasons(report):
    key, title, why = "where", "Where cells are missing", report.reasons
    if not why.n_pairs:
        return section(
            key, title, paragraph("There are too few missing cells to compare.")
        )
    note = f"None of {why.n_targets:,} columns is missing more often at some values "
    note += "of other columns."
    if why.n_explained:
        note = (
            f"{why.n_explained:,} of {why.n_targets:,} columns are missing more "
            "often at some values of other columns. Means of observed cells alone can "
            "then be biased; imputers use these columns, if they are in the table."
        )
    how = (
        f"{why.n_pairs:,} pairs of columns are compared in {why.n_rows:,} of "
        f"{report.shape[0]:,} rows, at a level of 0.01 for all of them together. "
        "Listed are at most three columns for each, of a strength of 0.1 or more (0: "
        "none, 1: complete). Whether cells are missing because of their own values, no "
        "table shows."
    )
    if report.shape[1] > TARGETS:
        how += f" Compared are at most {TARGETS} columns, those with most missing "
        how += f"cells, with {PREDICTORS}, those with fewest."
    rows = [
        (of_user(one.name), of_user(one.by), scale(f"{one.strength:.2f}", one.strength),
         escaped(one.text))
        for one in why.found
    ]  # fmt: skip
    heads = "Missing cells of", "depend on", "Strength", "How"
    table = [table_of(heads, rows)] if rows else []
    return section(key, title, paragraph(note), *table, paragraph(how, soft=True))


def _hidden(report):
    key, title, hidden = "hidden", "How well hidden cells are predicted", report.hidden
    if hidden.why_not:
        return section(key, title, paragraph(escaped(hidden.why_not)))
    note = (
        f"A tenth of the observed cells was hidden at random in {hidden.n_rows:,} of "
        f"{report.shape[0]:,} rows and {hidden.n_columns:,} columns, and predicted by "
        "one fit of GaussianImputer. <b>Error removed</b> is the share of the squared "
        "error of the mean that it removes or, of levels, of the wrong cells if each "
        "got the most frequent level. With few hidden cells such shares are rough, and "
        "cells that are really missing may be harder."
    )
    scored = sorted(hidden.columns, key=_removed, reverse=True)
    rows = [
        (
            of_user(one.name),
            f"{one.n_cells:,}",
            scale(percent(_removed(one)), _removed(one)),
            _of_levels(one),
            NO_VALUE if one.coverage != one.coverage else percent(one.coverage),
        )
        for one in scored[:_ROWS]
    ]
    heads = "Column", "Hidden cells", "Error removed", "Right levels"
    table = table_of((*heads, "90 % interval covers"), rows)
    parts = [paragraph(note, soft=True), table]
    parts += beyond(scored, _ROWS, "columns")
    if hidden.left_out:
        why = "Not scored, as too few of their cells were hidden, or as there are too "
        why += f"many levels or columns: {listed(hidden.left_out)}."
        parts.append(paragraph(why, soft=True))
    return section(key, title, *parts)


def _removed(one):
    """Return the share of the error that an imputer removes."""
    if one.gain == one.gain:
        return one.gain
    return (one.accuracy - one.usual) / (1 - one.usual) if one.usual < 1 else 0.0


def _of_levels(one):
    if one.accuracy != one.accuracy:
        return NO_VALUE
    return f"{percent(one.accuracy)} (most frequent: {percent(one.usual)})"


def _skips(report):
    key, title = "skips", "Skipped questions"
    if not report.skips:
        return section(key, title, paragraph("None found."))
    rows = [
        (listed(a.names), f"{of_user(a.by)} = {of_user(a.level)}", f"{a.n_rows:,}")
        for a in report.skips[:_ROWS]
    ]
    note = "Never observed at a level of another column. If such cells have no value, "
    note += "keep them empty by <code>where=</code> of <code>transform</code>."
    table = table_of(("Never observed", "where", "Rows"), rows)
    return section(key, title, paragraph(note), table)


def _foot(report):
    return paragraph(
        "The page shows names of columns and values of cells: treat it like the table. "
        f"Made by skvnce {escaped(__version__)}.",
        soft=True,
    )
