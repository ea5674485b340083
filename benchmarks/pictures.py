"""Draw the pictures of the pages of benchmarks anew, from the tables on the pages.

Usage: python benchmarks/pictures.py [PAGE ...]

The scripts that make the pages do the same for their page (`_report.publish`).
"""

import argparse
from pathlib import Path

from _picture_list import PICTURES
from _pictures import illustrated

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
