"""Merge the files of changelog.d into CHANGELOG.md.

python tools/changelog.py                       shows what would be merged
python tools/changelog.py --merge               merges it, and deletes the files
python tools/changelog.py --merge --date DATE   at a release: dates the version, too
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (\S+) \((.+)\)$", re.M)
UNRELEASED = "unreleased"


def version(root=ROOT):
    """Read the version of the package without an import of it."""
    text = (root / "skvnce" / "_version.py").read_text()
    return re.search(r'__version__ = "(.+)"', text)[1]


def newest(text):
    """Return the newest version of a changelog, and its date or "unreleased"."""
    found = HEADING.search(text)
    if found is None:
        raise ValueError("CHANGELOG.md has no heading such as: ## 0.1.0 (unreleased)")
    return found.groups()


def fragments(root=ROOT):
    """List the (path, text) of changes, by name; the README of the folder is none."""
    paths = sorted((root / "changelog.d").glob("*.md"))
    return [(p, checked(p)) for p in paths if p.name != "README.md"]


def checked(path):
    """Return the text of a change: items of a list, each from "- "."""
    text = path.read_text().strip("\n")
    lines = text.split("\n")
    wrong = [line for line in lines if not line.startswith(("- ", "  "))]
    if wrong or not lines[0].startswith("- "):
        raise ValueError(
            f'{path.name} must have items that begin with "- ", and further lines of '
            f"an item that begin with two spaces, got {(wrong or lines)[0]!r}"
        )
    return text


def merged(text, changes, own_version, date=None):
    """Put changes first in the section of a version, which is made if it is new.

    Parameters
    ----------
    text : str
        The changelog.
    changes : list of str
    own_version : str
        Of the package.
    date : str or None
        Of the release; None leaves the version unreleased.
    """
    latest, when = newest(text)
    start = HEADING.search(text).start()
    if when != UNRELEASED:
        if latest == own_version:
            raise ValueError(f"{latest} was released on {when}: raise __version__")
        text = f"{text[:start]}## {own_version} ({UNRELEASED})\n\n\n{text[start:]}"
    elif latest != own_version:
        raise ValueError(f"CHANGELOG.md is of {latest}, the package of {own_version}")
    head = f"## {own_version} ({UNRELEASED})\n\n"
    assert head in text
    items = "".join(f"{change}\n" for change in changes)
    text = text.replace(head, f"## {own_version} ({date or UNRELEASED})\n\n{items}", 1)
    return text


def main(arguments=None, root=ROOT):
    """Show or merge the changes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--date", help="of a release, such as 2027-01-31")
    given = parser.parse_args(arguments)
    if given.date and not re.fullmatch(r"\d{4}-\d\d-\d\d", given.date):
        parser.error("--date must be such as 2027-01-31")
    found, page = fragments(root), root / "CHANGELOG.md"
    changes = [text for _, text in found]
    text = merged(page.read_text(), changes, version(root), given.date)
    if not given.merge:
        print("\n".join(changes) or "no changes")
        return 0
    page.write_text(text)
    for path, _ in found:
        path.unlink()
    print(f"merged {len(found)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
