"""Every internal link, picture and anchor of the built site exists."""

import pytest
from site_pages import built_site, is_external, read_all, resolve

pytestmark = pytest.mark.site
LANGUAGES = {
    "python", "Python", "pycon", "default",  # run by test_code_blocks.py
    "shell", "r", "R", "stata", "sas", "text", "none", "toml",  # not run
}  # fmt: skip


@pytest.fixture(scope="module")
def site():
    return read_all(built_site())


def broken(pages):
    """Return a line for each internal link whose file or anchor is missing."""
    found = []
    for path, page in pages.items():
        for link in page.links:
            if not is_external(link.target):
                file, anchor = resolve(path, link.target)
                reason = _missing(pages, file, anchor)
                if reason:
                    found.append(f"{path}:{link.line}: {link.target}: {reason}")
    return found


def _missing(pages, file, anchor):
    """Say what is missing, or return None."""
    if file.is_dir():
        return "a folder"
    if not file.exists():
        return "no such file"
    if anchor and file in pages and anchor not in pages[file].anchors:
        return "no such anchor"
    return None


def loaded_from_elsewhere(pages):
    """Return a line for each script, style or picture from another machine."""
    return [
        f"{path}:{link.line}: {link.target}"
        for path, page in pages.items()
        for link in page.links
        if link.loads and is_external(link.target) and link.target[:5] != "data:"
    ]


def blocks_of_unknown_language(pages):
    """Return a line for each block that no check runs or knowingly leaves out."""
    found = []
    for path, page in pages.items():
        for language, text, line in page.languages:
            undeclared = language == "default" and ">>>" not in text
            if undeclared or language not in LANGUAGES:
                found.append(f"{path}:{line}: {language}: {text[:60]!r}")
    return found


def test_internal_links_exist(site):
    assert sum(len(page.links) for page in site.values()) > 1000
    found = broken(site)
    assert not found, "\n".join(found)


def test_nothing_is_loaded_from_elsewhere(site):
    found = loaded_from_elsewhere(site)
    assert not found, "\n".join(found)


def test_blocks_say_their_language(site):
    found = blocks_of_unknown_language(site)
    assert not found, "\n".join(found)
