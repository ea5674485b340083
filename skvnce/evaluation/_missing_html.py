"""The page of a `MissingReport`: HTML with its own style, without scripts.

Whatever comes from the table passes through `of_user` or `escaped`.
"""

import re
from html import escape
from importlib.resources import files
from itertools import compress

from skvnce._tables.findings import is_measurement
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


def text(name, **values):
    """Fill a part of the file of texts."""
    return _TEXTS[name].format(**values)


def section(key, title, *parts):
    """Return a section, to which the contents link by its key."""
    return text("section", key=key, title=title, content="\n".join(parts))


def beyond(items, most, name):
    """Say how many items a table leaves out, if it does."""
    rest = len(items) - most
    return [paragraph(f"And {rest:,} more {name}.", soft=True)] * (rest > 0)


def bullets(items):
    """List warnings."""
    lines = "".join(f"<li>{escaped(item)}</li>" for item in items)
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
            f"M{j} 0h.86v1h-.86z" for j, gap in enumerate(shown) if gap == is_drawn
        ]
        paths.append(f'<path fill="var(--{colour})" d="{"".join(steps)}"/>')
    return (
        f'<div class="strip"><svg viewBox="0 0 {len(shown)} 1" height="16" '
        f'style="max-width:{20 * len(missing)}px" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(paths)}</svg></div>'
    )


_STYLE = files(__package__).joinpath("missing_report.css").read_text("utf-8")
_PARTS = re.split(
    r"^\[(.+)\]\n",
    files(__package__).joinpath("missing_report.html").read_text("utf-8"),
    flags=re.MULTILINE,
)
_TEXTS = dict(zip(_PARTS[1::2], (part[:-1] for part in _PARTS[2::2]), strict=True))
_CARDS, _ROWS, _PATTERNS = 120, 60, 15  # most that are shown
_LINE = 22  # characters below a histogram that fit a line


def fragment(report):
    """Return a report as a part of a page (str), such as a notebook."""
    parts = _head, _answer, _warnings, _columns, _relations, _patterns, _reasons
    inside = [part(report) for part in (*parts, _hidden, _skips)]
    inside.append(text("foot", version=escaped(__version__)))
    return text("report", style=_STYLE, inside="\n".join(inside))


def _head(report):
    n, d = report.shape
    complete = report.patterns.counts[~report.patterns.missing.any(1)].sum()
    return text(
        "head",
        **{"n": n, "d": d, "missing": percent(report.share_missing)},
        **{"gaps": len(report.patterns.columns), "complete": complete},
        share=percent(complete / n),
    )


def _answer(report):
    chosen = report.recommendation
    reasons = " ".join(escaped(reason) for reason in chosen.reasons)
    answer = text("imputer", code=escaped(chosen.code, 5000), reasons=reasons)
    return section("imputer", f"Recommended imputer: {chosen.imputer}", answer)


def _warnings(report):
    if not report.warnings:
        return section(
            "warnings", "Warnings", paragraph("None: no check found anything unusual.")
        )
    listed = text("warnings", warnings=bullets(report.warnings))
    return section("warnings", f"Warnings: {len(report.warnings)}", listed)


def _columns(report):
    columns, more = report.columns, ""
    if len(columns) > _CARDS:
        more = text("more columns", shown=_CARDS, all=len(columns))
        columns = sorted(columns, key=lambda column: -column.share_missing)[:_CARDS]
    cards = "\n".join(map(_card, columns))
    return section("columns", "Columns", text("columns", more=more, cards=cards))


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
    rows = [
        (escaped(rule), rule.kind, f"{rule.support:,}", f"{rule.violations:,}")
        for rule in relations.found[:_ROWS]
    ]
    table = table_of(("Relation", "Kind", "Shown by", "Violated in rows"), rows)
    parts = [text("relations", n_follow=relations.n_follow, table=table)]
    parts += beyond(relations.found, _ROWS, "relations")
    if relations.typos:
        rest = relations.n_typos - len(relations.typos)
        items = [*relations.typos, *[f"and {rest:,} more"] * (rest > 0)]
        parts.append(text("typos", typos=bullets(items)))
    if relations.redundant:
        pairs = listed([f"{name} by {by}" for name, by in relations.redundant.items()])
        parts.append(text("redundant", pairs=pairs))
    if relations.products:
        parts.append(text("products", products=listed(relations.products)))
    return section(key, title, *parts)


def _patterns(report):
    patterns, n = report.patterns, report.shape[0]
    key, title, names = "patterns", "Patterns of missing cells", patterns.columns
    if not names:
        return section(key, title, paragraph("No cell is missing."))
    rows = []
    for missing, count in zip(patterns.missing[:_PATTERNS], patterns.counts):  # noqa: B905
        share = scale(f"{count:,} ({percent(count / n)})", count / n)
        gone = list(compress(names, missing))
        rows.append((share, strip(missing), listed(gone) or "nothing: all observed"))
    number, more = len(patterns.counts), ""
    if len(rows) < number:
        share = percent(patterns.counts[:_PATTERNS].sum() / n)
        more = text("more patterns", number=number, share=share)
    table = table_of(("Rows", "Columns", "Missing are"), rows)
    body = text("patterns", width=len(names), more=more, table=table)
    return section(key, title, body)


def _reasons(report):
    key, title, why = "where", "Where cells are missing", report.reasons
    if not why.n_pairs:
        return section(
            key, title, paragraph("There are too few missing cells to compare.")
        )
    counts = why._asdict() | {"n": report.shape[0]}
    note = text("reasons" if why.n_explained else "no reasons", **counts)
    more = ""
    if report.shape[1] > TARGETS:
        more = text("some compared", targets=TARGETS, predictors=PREDICTORS)
    how = text("compared", **counts, more=more)
    rows = [
        (of_user(name), of_user(by), scale(f"{strength:.2f}", strength), escaped(text_))
        for name, by, strength, _, text_ in why.found
    ]
    heads = "Missing cells of", "depend on", "Strength", "How"
    table = [table_of(heads, rows)] if rows else []
    return section(key, title, paragraph(note), *table, paragraph(how, soft=True))


def _hidden(report):
    key, title, hidden = "hidden", "How well hidden cells are predicted", report.hidden
    if hidden.why_not:
        return section(key, title, paragraph(escaped(hidden.why_not)))
    scored = sorted(hidden.columns, key=_removed, reverse=True)
    rows = [
        (
            of_user(score.name),
            f"{score.n_cells:,}",
            scale(percent(_removed(score)), _removed(score)),
            _of_levels(score),
            NO_VALUE if score.coverage != score.coverage else percent(score.coverage),
        )
        for score in scored[:_ROWS]
    ]
    heads = "Column", "Hidden cells", "Error removed", "Right levels"
    table = table_of((*heads, "90 % interval covers"), rows)
    counts = {"n_rows": hidden.n_rows, "n_columns": hidden.n_columns}
    parts = [text("hidden", n=report.shape[0], **counts, table=table)]
    parts += beyond(scored, _ROWS, "columns")
    if hidden.left_out:
        parts.append(text("left out", names=listed(hidden.left_out)))
    return section(key, title, *parts)


def _removed(score):
    """Return the share of the error that an imputer removes."""
    if score.gain == score.gain:
        return score.gain
    if score.usual < 1:
        return (score.accuracy - score.usual) / (1 - score.usual)
    return 0.0


def _of_levels(score):
    if score.accuracy != score.accuracy:
        return NO_VALUE
    return f"{percent(score.accuracy)} (most frequent: {percent(score.usual)})"


def _skips(report):
    key, title, parts = "skips", "Skipped questions, and identifiers", []
    if report.skips:
        rows = [
            (listed(a.names), f"{of_user(a.by)} = {of_user(a.level)}", f"{a.n_rows:,}")
            for a in report.skips[:_ROWS]
        ]
        table = table_of(("Never observed", "where", "Rows"), rows)
        parts.append(text("skips", table=table))
    if report.identifiers:
        rows = [
            (
                of_user(column.name),
                f"{column.n_levels:,} in {column.n_observed:,} cells",
                listed(column.examples),
            )
            for column in report.identifiers[:_ROWS]
        ]
        table = table_of(("Column", "Different values", "Such as"), rows)
        parts.append(text("identifiers", table=table))
        parts += _text_numbers(report.identifiers)
    return section(key, title, *(parts or [paragraph("None found.")]))


def _text_numbers(identifiers):
    """Say how to convert columns of text whose cells are numbers, if there are any."""
    names = [
        column.name
        for column in identifiers
        if column.examples and all(map(is_measurement, column.examples))
    ]
    return [text("text that is numbers", names=listed(names))] if names else []
