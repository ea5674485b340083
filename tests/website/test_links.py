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


PAGE = """<html><body><h1 id="top">A</h1><a href="#top">right</a>
<a href="other.html#end">right</a><img src="picture.png"/>
<a href="https://example.org/">outside</a>{}</body></html>"""
OTHER = '<html><body><p id="end">b</p></body></html>'
PRE = '<div class="highlight-{} x"><div class="highlight"><pre>{}</pre></div></div>'


@pytest.fixture
def with_tag(tmp_path):
    def write(tag):
        (tmp_path / "page.html").write_text(PAGE.format(tag))
        (tmp_path / "other.html").write_text(OTHER)
        (tmp_path / "picture.png").write_bytes(b"")
        return read_all(tmp_path)

    return write


def test_right_page(with_tag):
    pages = with_tag(PRE.format("default", "&gt;&gt;&gt; 1") + PRE.format("r", "a"))
    assert not broken(pages)
    assert not loaded_from_elsewhere(pages)
    assert not blocks_of_unknown_language(pages)


@pytest.mark.parametrize(
    "tag",
    [
        '<a href="missing.html">a</a>',
        '<a href="#missing">a</a>',
        '<a href="other.html#missing">a</a>',
        '<img src="missing.png">',
        '<script src="missing.js"></script>',
        '<link rel="stylesheet" href="missing.css"/>',
    ],
)
def test_broken_links_are_found(with_tag, tag):
    [found] = broken(with_tag(tag))
    assert "page.html:3: " in found and "missing" in found


def test_pictures_from_elsewhere_are_found(with_tag):
    [found] = loaded_from_elsewhere(with_tag('<img src="https://example.org/a.png">'))
    assert "example.org" in found


@pytest.mark.parametrize("block", [("default", "x = 1"), ("julia", "x = 1")])
def test_blocks_of_unknown_language_are_found(with_tag, block):
    assert len(blocks_of_unknown_language(with_tag(PRE.format(*block)))) == 1
