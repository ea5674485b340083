"""Pieces of the page of a `MissingReport`: text, tables and pictures.

Whatever comes from the table passes through `of_user` or `escaped`.
"""

import re
from html import escape

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
    return "\n".join(
        [f'<section id="skvnce-{key}">', f"<h2>{title}</h2>", *parts, "</section>"]
    )


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


def scale(text, share, colour="bar"):
    return f'<div class="scale"><span>{text}</span>{bar(share, colour)}</div>'


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
    steps = [f"M{j} 0h.86v1h-.86z" for j, one in enumerate(missing[:_STRIP]) if one]
    others = [
        f"M{j} 0h.86v1h-.86z" for j, one in enumerate(missing[:_STRIP]) if not one
    ]
    return (
        f'<div class="strip"><svg viewBox="0 0 {len(missing[:_STRIP])} 1" height="16" '
        f'style="max-width:{20 * len(missing)}px" '
        'preserveAspectRatio="none" aria-hidden="true">'
        f'<path fill="var(--rest)" d="{"".join(others)}"/>'
        f'<path fill="var(--gap)" d="{"".join(steps)}"/></svg></div>'
    )
