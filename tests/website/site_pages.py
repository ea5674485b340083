"""Reading the built site: links, anchors and inline code of its pages."""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source"}


class Link(NamedTuple):
    """What a page refers to, and the line of the tag."""

    target: str
    line: int
    loads: bool  # the browser fetches it to show the page


class Page(NamedTuple):
    """What the checks need of a page."""

    links: list[Link]
    anchors: set[str]
    codes: list[tuple[str, int]]  # text and line of <code>, outside of <pre>
    languages: list[tuple[str, str, int]]  # language, text and line of blocks


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.page = Page([], set(), [], [])
        self.open = []  # (tag, classes)
        self.text = None

    def handle_starttag(self, tag, attrs):
        attrs = {key: value or "" for key, value in attrs}
        line = self.getpos()[0]
        for key in ("id", "name"):
            if key in attrs and tag != "meta":
                self.page.anchors.add(attrs[key])
        for key in ("href", "src", "data-src"):
            if key in attrs:
                loads = tag != "a" and attrs.get("rel") not in ("next", "prev")
                self.page.links.append(Link(attrs[key], line, loads))
        if tag not in VOID:
            self.open.append((tag, attrs.get("class", "").split(), line))
            if tag in ("code", "pre"):
                self.text = ""

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in [name for name, _, _ in self.open]:
            return
        while self.open:
            name, _, line = self.open.pop()
            if name == tag:
                break
        inside = [name for name, _, _ in self.open]
        if tag == "code" and "pre" not in inside and self.text is not None:
            self.page.codes.append((" ".join(self.text.split()), line))
        if tag == "pre" and self.text is not None:
            for _, classes, _ in self.open:
                for name in classes:
                    if name.startswith("highlight-"):
                        language = name.removeprefix("highlight-")
                        self.page.languages.append((language, self.text, line))
        if tag in ("code", "pre"):
            self.text = None

    def handle_data(self, data):
        if self.text is not None:
            self.text += data


def read(path):
    """Parse a page of HTML."""
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def read_all(folder):
    """Return the pages of a built site by their paths."""
    paths = sorted(p for p in folder.rglob("*.html") if "_static" not in p.parts)
    return {path: read(path) for path in paths}


def is_external(target):
    """Say whether a link leaves the site."""
    parts = urlsplit(target)
    return bool(parts.scheme or parts.netloc)


def resolve(path, target):
    """Return the file and the anchor that a link of the page ``path`` names."""
    parts = urlsplit(target)
    file = path
    if parts.path:
        file = (path.parent / unquote(parts.path)).resolve()
    return file, unquote(parts.fragment)


def built_site():
    """Return the folder of the built site, or skip the test."""
    folder = Path(os.environ.get("SKVNCE_SITE", ROOT / "doc" / "_build")).resolve()
    if not (folder / "index.html").exists():
        pytest.skip(f"no site in {folder}; build it, or set SKVNCE_SITE")
    return folder
