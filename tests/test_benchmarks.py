"""Benchmarks: each command of a page is one, and makes the page of its records."""

import argparse
import importlib
import re
import shlex
import sys
from itertools import zip_longest
from pathlib import Path

import pictures
import pytest

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc" / "benchmarks"
COMMAND = re.compile(r"`python benchmarks/(\w+\.py[^`]*)`(?: of commit (\w+))?")
MADE = {
    path.stem: COMMAND.search(path.read_text(encoding="utf-8"))
    for path in sorted(DOC.glob("*.md"))
}
# pages that are no longer written have the commit whose script wrote them
COMMANDS = {name: shlex.split(made[1]) for name, made in MADE.items() if not made[2]}
# commands of the page on figures of the papers
FIDELITY = (DOC.parent / "fidelity.md").read_text(encoding="utf-8")
FIGURES = sorted({m[1] for m in COMMAND.finditer(FIDELITY) if not m[2]})
# what makes a page of records without computing anything
READS = "--only-report", "--repetitions=0"


def makes_a_page(words):
    options = {f"{a}={b}" for a, b in zip(words, [*words[1:], ""], strict=True)}
    return any(name in words or name in options for name in READS)


def run(monkeypatch, words):
    script, *arguments = words
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    module = importlib.import_module(script.removesuffix(".py"))
    if hasattr(module, "picture"):
        monkeypatch.setattr(module, "picture", lambda *_: None)
    return module.main()


def body(text):
    """Return a page without its picture and the versions of packages."""
    text = re.sub(r"!\[[^\]]*\]\(\.\./images/benchmark\S*\n\n\*.*\*\n\n", "", text)
    return re.sub(r"Made by `[^`]*` with [^\n]*?Python [\d.]+\.", "Made.", text)


class ParsedError(Exception):
    """The command line was read."""


def test_a_page_without_a_script_names_the_commit_that_has_it():
    for name in MADE.keys() - COMMANDS.keys():
        assert re.fullmatch("[0-9a-f]{8}", MADE[name][2]), name
        script, text = MADE[name][1].split()[0], MADE[name].string
        gone = not (ROOT / "benchmarks" / script).exists()
        assert gone == ("which is the last that has it" in text), name


@pytest.mark.parametrize(
    "words", [*COMMANDS.values(), *map(shlex.split, FIGURES)], ids=" ".join
)
def test_the_command_of_a_page_has_its_options(words, monkeypatch):
    read_options = argparse.ArgumentParser.parse_args

    def stop(parser, *arguments):
        read_options(parser, *arguments)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(ParsedError):
        run(monkeypatch, words)
    with pytest.raises(SystemExit):
        run(monkeypatch, [*words, "--no-such-option"])


@pytest.mark.parametrize("page", [p for p in COMMANDS if makes_a_page(COMMANDS[p])])
def test_a_page_is_that_of_its_records(page, monkeypatch, tmp_path):
    words = list(COMMANDS[page])
    words[words.index("--output") + 1] = str(tmp_path / "page.md")
    run(monkeypatch, words)
    wanted = body((DOC / f"{page}.md").read_text(encoding="utf-8"))
    made = body((tmp_path / "page.md").read_text(encoding="utf-8"))
    lines = zip_longest(made.splitlines(), wanted.splitlines())
    others = [pair for pair in lines if pair[0] != pair[1]]
    assert len(wanted) > 500
    assert not others[:2]


@pytest.mark.parametrize(
    "command", [text for text in FIGURES if makes_a_page(shlex.split(text))]
)
def test_a_command_of_figures_reads_its_records(command, monkeypatch, tmp_path):
    run(monkeypatch, [*shlex.split(command), "--output", str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    name = re.search(r"results/(\w+)\.jsonl", command)[1]
    records = (ROOT / f"benchmarks/results/{name}.jsonl").read_text(encoding="utf-8")
    for method in set(re.findall(r'"method": "([^"]+)"', records)) - {"fit"}:
        assert f"| {method} |" in page, method


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_picture_of_a_page_is_current(name):
    text = (DOC / f"{name}.md").read_text(encoding="utf-8")
    link = f"![{pictures.PICTURES[name].text}](../images/benchmark_{name}.svg)"
    assert text.splitlines()[2] == link
    file = (DOC.parent / "images" / f"benchmark_{name}.svg").read_text()
    assert pictures.fingerprint(pictures.PICTURES[name], text) in file


def test_pictures_have_the_numbers_of_the_tables(tmp_path):
    lines = ["# Title", "Made.", "| method | score |\n| --- | --- |\n| a | 1.5 (2) |"]
    page = "\n\n".join([*lines, "## Next", lines[2].replace("1.5", "-1,234")]) + "\n"
    columns = (
        pictures.Series("top", "", "score"),
        pictures.Series("below", "Next", "score"),
    )
    panel = pictures.Panel("scores", "method", columns)
    assert pictures.read(panel, page) == [pictures.Row("a", [1.5, -1234], [True, True])]
    assert pictures.number("-") is None
    assert pictures.illustrated(page, tmp_path / "benchmarks" / "some.md", {}) == page
