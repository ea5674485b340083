"""The prose of a page of reStructuredText, and what is wrong with it.

Code, tables, pictures, headings and the targets of links are no prose.  Nothing but
the standard library is needed, so that the check runs where Sphinx is not installed.
"""

import re
from statistics import median

MEDIAN_WORDS = 16  # of the sentences of a page
LONG_SENTENCE = 28  # words, which at most a tenth of the sentences exceed
PAGE_WORDS = 400
NUMERALS = 2  # in a paragraph; figures are on the pages of benchmarks
FIGURES = 4  # in a paragraph of an explanation that names no source of them

# Directives whose content is text that a reader reads.
PROSE = {
    *("note", "tip", "hint", "important", "warning", "caution", "attention", "danger"),
    *("admonition", "seealso", "topic", "container", "div", "only", "dropdown"),
    *("grid", "grid-item", "grid-item-card", "card", "tab-set", "tab-item"),
    *("versionadded", "versionchanged", "deprecated", "rst-class"),
}
DIRECTIVE = re.compile(r"\.\. +([\w:.+-]+?):: *(.*)$")
FIELD = re.compile(r":[\w.-][^:`]*:(?= |$)")
ITEM = re.compile(r"(?:[-*+•]|\(?(?:\d+|[a-zA-Z#])[.)]) +")
ADORNMENT = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}$")
SIMPLE_TABLE = re.compile(r"=+(?: +=+)+$")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|Fig|Eq|et al)\.")
ENDS = re.compile(r"(?<=[.!?])[)\"'”’]*\s+(?=[(\"'“‘]?[A-Z0-9])")
WORD = re.compile(r"[^\W_][\w'’.,/-]*")
SOURCE = re.compile(r"benchmarks/|\b(?:1[89]|20)\d\d[a-z]?[);,]")  # a page, a paper
EQUATIONS = re.compile(r"\b(?:eqs?\.|algorithm) \(?\d[\d. ]*\)?|\(\d+\)")
PRIVATE = re.compile(
    r"\b(?:told|blind(?:ly|ed|ness)?|fates?|judg(?:e[sd]?|ing)|since then)\b|\(old\)",
    re.IGNORECASE,
)
NUMERAL = re.compile(r"(?<![\w.,-])[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?![\w-])")


def paragraphs(text):
    """Return the paragraphs, list items, fields and cards of a page as plain text."""
    return [plain for _, plain in _raw_and_plain(text)]


def sentences(text):
    """Return the sentences of the paragraphs of a page; names of things are none."""
    pieces = [
        piece
        for paragraph in paragraphs(text)
        for piece in ENDS.split(ABBREVIATION.sub(r"\1", paragraph))
    ]
    return [p for p in pieces if p[-1:] in ".!?:" or len(WORD.findall(p)) > 4]


def faults(text):
    """Return a line for each rule of a short page, as of how-to, that a page breaks."""
    found = []
    blocks = paragraphs(text)
    n_words = sum(len(WORD.findall(p)) for p in blocks)
    if n_words > PAGE_WORDS:
        found.append(f"{n_words} words; at most {PAGE_WORDS} a page")
    for paragraph in blocks:
        numerals = NUMERAL.findall(paragraph)
        if len(numerals) > NUMERALS:
            found.append(f"{len(numerals)} numerals in: {paragraph}")
    return found + sentence_faults(text)


def sentence_faults(text):
    """Return a line for each rule of sentences that a page of any length breaks."""
    found = []
    read = sentences(text)
    lengths = [len(WORD.findall(s)) for s in read]
    if lengths and (middle := median(lengths)) > MEDIAN_WORDS:
        found.append(f"{middle:g} words in the median sentence; at most {MEDIAN_WORDS}")
    long = [s for s, n in zip(read, lengths, strict=True) if n > LONG_SENTENCE]
    if len(long) > len(lengths) / 10:
        found.append(
            f"{len(long)} of {len(lengths)} sentences have more than {LONG_SENTENCE} "
            f"words: {' | '.join(long)}"
        )
    return found


def figure_faults(text):
    """Return the paragraphs with many figures that name no benchmark and no paper."""
    return [
        f"{len(numerals)} numerals without a source in: {plain}"
        for raw, plain in _raw_and_plain(text)
        if not SOURCE.search(raw)
        and len(numerals := NUMERAL.findall(EQUATIONS.sub("", plain))) > FIGURES
    ]


def private_words(text):
    """Return words of the workshop, which readers do not know in that meaning."""
    return PRIVATE.findall(" ".join(paragraphs(text)))


def _raw_and_plain(text):
    found = []
    _read([line.rstrip() for line in text.expandtabs().splitlines()], found)
    pairs = [(paragraph, _plain(paragraph)) for paragraph in found]
    return [(raw, plain) for raw, plain in pairs if WORD.search(plain)]


def _read(lines, found):
    """Append the paragraphs of a block of lines, which starts at any indent."""
    i = 0
    while i < len(lines):
        line = lines[i].strip()
        if not line:
            i += 1
        elif line.startswith(".. ") or line == "..":
            i = _explicit(lines, i, found)
        elif line.startswith(">>>"):
            i = _until_blank(lines, i)
        elif SIMPLE_TABLE.match(line):
            i = _simple_table(lines, i)
        elif line[:2] in ("+-", "+=", "| "):
            i = _until_blank(lines, i)
        elif ADORNMENT.match(line):
            over = i + 2 < len(lines) and lines[i + 2].strip() == line
            i += 3 if over else 1
        elif i + 1 < len(lines) and ADORNMENT.match(lines[i + 1]):
            i += 2
        else:
            i = _paragraph(lines, i, found)


def _indent(line):
    return len(line) - len(line.lstrip())


def _until_blank(lines, i):
    while i < len(lines) and lines[i].strip():
        i += 1
    return i


def _block_end(lines, i, indent):
    """Return the end of the lines that are blank or indented by more."""
    while i < len(lines) and (not lines[i].strip() or _indent(lines[i]) > indent):
        i += 1
    return i


def _simple_table(lines, i):
    """Skip a simple table, which ends with a border before a blank line."""
    i += 1
    while i < len(lines):
        border = SIMPLE_TABLE.match(lines[i].strip())
        i += 1
        if border and (i == len(lines) or not lines[i].strip()):
            break
    return i


def _explicit(lines, i, found):
    """Skip a directive, a comment or a target; read what a directive tells."""
    directive = DIRECTIVE.match(lines[i].strip())
    end = _block_end(lines, i + 1, _indent(lines[i]))
    if directive and directive[1] in PROSE:
        body = i + 1
        while body < end and FIELD.match(lines[body].strip()):
            options = body == i + 1 or lines[body - 1].strip()
            if not options:
                break
            body += 1
        if directive[1] in ("note", "tip", "hint", "important", "warning"):
            found.append(directive[2])
        _read(lines[body:end], found)
    return end


def _paragraph(lines, i, found):
    """Read a paragraph, an item of a list, a field, or a term; return its end."""
    indent = _indent(lines[i])
    first = lines[i].strip()
    mark = FIELD.match(first) or ITEM.match(first)
    if mark:
        first = first[mark.end() :].strip()
    words, i = [first], i + 1
    start = i
    while i < len(lines) and lines[i].strip():
        deeper = _indent(lines[i]) > indent
        if ITEM.match(lines[i].strip()) and not deeper and mark:
            break
        if FIELD.match(lines[i].strip()) and not deeper:
            break
        if deeper and not mark and i == start:  # a term, which its definition follows
            return start
        words.append(lines[i].strip())
        i += 1
    paragraph = " ".join(words)
    if paragraph.endswith("::"):
        paragraph = paragraph.removesuffix(":")
        i = _block_end(lines, i, indent)
    found.append(paragraph)
    return i


def _plain(text):
    """Replace inline markup: code is a word, and a link is its text."""
    text = re.sub(r"``.+?``", "Code", text)
    text = re.sub(r"!?`([^`<]+?)\s*<[^`>]*>`_{0,2}", r"\1", text)
    text = re.sub(r":(?:math|code|func|class|meth|mod|attr):`[^`]*`", "Code", text)
    text = re.sub(r":[\w:+-]+:(?=[^\s:`])|:[\w:+-]+:(?=`)", "", text)
    text = re.sub(r"`([^`]+)`_{0,2}", r"\1", text)
    text = re.sub(r"\[[#*\w]+\]_", "", text)
    text = re.sub(r"\*{1,2}([^*]+)\*{1,2}", r"\1", text)
    text = re.sub(r"https?://\S+", "Link", text)
    return " ".join(text.split())
