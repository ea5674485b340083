"""The built site shows no path of the machine that built it."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from site_pages import ROOT, built_site

pytestmark = pytest.mark.site
SUFFIXES = {".html", ".txt", ".js", ".py", ".ipynb", ".svg", ".css", ".xml"}
# What Python prints of a warning or a traceback, wherever the site was built.
PRINTED = re.compile(r"(?:(?:/[\w.+-]+){2,}\.py:\d+: |File \"(?:/[\w.+-]+){2,}\.py\")")


def own_paths(site):
    """Return folders of this machine, which no page should name."""
    folders = {ROOT, ROOT.parent, site, site.parent, Path.home()}
    folders |= {Path(sys.prefix), Path(tempfile.gettempdir())}
    folders = {Path(f).resolve() for f in folders}
    return sorted(f"{f}/" for f in folders if f != Path(f.anchor))


def shown(folder, paths):
    """Return the lines of a site that contain one of the paths."""
    pattern = re.compile(
        "|".join([r"(?<![\w.])" + re.escape(p) for p in paths] + [PRINTED.pattern])
    )
    return [
        f"{path.relative_to(folder)}: {line.strip()[:160]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and "_static" not in path.parts
        for line in path.read_text(errors="replace").splitlines()
        if pattern.search(line)
    ]


def test_pages_show_no_path_of_the_machine():
    site = built_site()
    assert not shown(site, own_paths(site))
