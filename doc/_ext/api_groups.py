"""A page for each section of ``api.rst``, so that the sidebar folds the other sections.

``api.rst`` has all public names, for those who read it as a file.  The site shows them
there, too, but their pages belong to the pages of the sections, ``doc/api/*.rst``,
which are written here and are not in the repository.
"""

import re
from pathlib import Path

SECTION = re.compile(
    r"^(?P<title>[^\n]+)\n-{3,}\n(?P<body>.*?)(?=^[^\n]+\n-{3,}\n|\Z)", re.M | re.S
)
TREE = "   :toctree: generated\n"


def slug(title):
    """Return the name of the page of a section."""
    return "-".join(re.findall(r"\w+", title.lower()))


def sections(text):
    """Return the titles of the sections of a page, and their text."""
    return {found["title"]: found["body"].strip() for found in SECTION.finditer(text)}


def page(title, body):
    """Return the source of the page of a section."""
    body = body.replace(TREE, TREE.replace("generated", "../generated"))
    body = body.removeprefix(".. currentmodule:: skvnce").strip()
    line = "=" * len(title)
    return f"{title}\n{line}\n\n.. currentmodule:: skvnce\n\n{body}\n"


def overview(text):
    """Return the source of the page of all names, with the other pages below it."""
    pages = "\n".join(f"   api/{slug(title)}" for title in sections(text))
    return text.replace(TREE, "") + f"\n.. toctree::\n   :hidden:\n\n{pages}\n"


def write_pages(app, config):
    """Write the pages of sections that have changed, and delete those of others."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    text = (folder.parent / "api.rst").read_text()
    wanted = {
        f"{slug(title)}.rst": page(title, b) for title, b in sections(text).items()
    }
    for path in folder.glob("*.rst"):
        if path.name not in wanted:
            path.unlink()
    for name, source in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text() != source:
            path.write_text(source)


def change_overview(app, docname, source):
    """Take the pages of names from the page of all names."""
    if docname == "api":
        source[0] = overview(source[0])


def setup(app):
    """Connect to Sphinx."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", change_overview)
    return {"parallel_read_safe": True}
