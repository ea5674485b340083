"""The command line of a benchmark, and the run of a study whose results are kept."""

import argparse
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from _report import Results, Texts, publish, read
from threadpoolctl import threadpool_limits


class Some(NamedTuple):
    """What an option takes several of, and by default; without choices: any."""

    default: list
    choices: list | None = None
    kind: type = str


def options_of(doc, quick=None, **options):
    """Read the command line of the script that runs.

    Parameters
    ----------
    doc : str
        Of the script; its first line says what it does.
    quick : dict, optional
        What the options are with ``--quick``; without it there is no such option.
    **options
        Defaults by name.  False is a switch, None a text that is not given, a list
        takes several of its kind; of strings, those in it.

    Returns
    -------
    argparse.Namespace
        With ``output``, the file of the page, and ``quick``.
    """
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    for name, default in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, list):
            kind = type(default[0])
            default = Some(default, default if kind is str else None, kind)
        if isinstance(default, Some):
            choices = default.choices and list(default.choices)
            several = {"nargs": "+", "choices": choices, "type": default.kind}
            parser.add_argument(flag, default=list(default.default), **several)
        elif default is False:
            parser.add_argument(flag, action="store_true")
        else:
            kind = str if default is None else type(default)
            parser.add_argument(flag, type=kind, default=default)
    parser.add_argument("--output", help="file of the page")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help="a small part of it")
    found = parser.parse_args()
    if quick is not None and found.quick:
        vars(found).update(quick)
    return found


def main_of(script, quick=None, **options):
    """Make the `main` of a script, and run it.

    It computes the cells that the results lack, and writes the page of all of them.
    The script has `measured`, a function of a key and options to a dict, the result,
    or to several, and `cells`, a function of options to the keys, dicts.  Instead of
    `cells` it may have `CASES`, values by name, or functions that return them: all
    combinations are measured but those of which `possible` says no, and with ``--only``
    the chosen ones.
    It may have `lacking`, a function of methods to those that cannot be run here.  The
    page is that of its `TEXTS`, by default those of its name.

    Parameters
    ----------
    script : dict
        ``globals()`` of the script.
    quick : dict, optional
        What the options are with ``--quick``, and values of `CASES`.
    **options
        Further ones than ``--results FILE``, which keeps a line for each result, and
        ``--only-report``; ``also`` names files of results that are only read.
    """
    first = {"results": None, "only_report": False}
    if "cells" not in script:
        first["only"] = Some([])

    def main():
        found = options_of(script["__doc__"], quick, **first | options)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        results = Results(found.results)
        for path in getattr(found, "also", ()):
            results.records += read(path)
        if not found.only_report:
            measure(script, results, found)
        elif not results.records:
            raise SystemExit(f"There are no results in {found.results}.")
        texts = script.get("TEXTS") or Texts(Path(script["__file__"]).stem, script)
        publish(texts.page(results, found), found.output)

    if script["__name__"] == "__main__":
        main()
    return main


def measure(script, results, options):
    """Add to the results what they lack."""
    cells = script["cells"](options) if "cells" in script else chosen(script, options)
    todo = [key for key in cells if not results.has(**key)]
    methods = dict.fromkeys(key["method"] for key in todo if "method" in key)
    absent = script["lacking"](methods) if "lacking" in script else []
    if absent:
        print("removed or not installed, left out:", ", ".join(absent))
    with threadpool_limits(1):
        for key in todo:
            if key.get("method") not in absent:
                found = script["measured"](key, options)
                for one in [found] if isinstance(found, dict) else found:
                    results.add(key | one)
                    print(*results.records[-1].values(), flush=True)


def chosen(script, options):
    """Yield the combinations of the cases of a script that are asked for."""
    axes = script["CASES"]
    axes = {name: getattr(options, name, some) for name, some in axes.items()}
    asked = by_name(options.only).items()
    possible = script.get("possible", lambda key: True)
    for key in combinations(axes):
        if all(str(key[name]) in some for name, some in asked) and possible(key):
            yield key


def combinations(axes):
    """Yield a dict for each combination of values, or of what functions return.

    A name may be a tuple of names, of which the values are tuples.
    """
    values = (some() if callable(some) else some for some in axes.values())
    for combined in product(*values):
        key = {}
        for name, value in zip(axes, combined, strict=True):
            several = isinstance(name, tuple)
            key |= dict(zip(name, value, strict=True)) if several else {name: value}
        yield key


def by_name(pairs):
    """Group texts NAME=VALUE by name."""
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        found.setdefault(name, []).append(value)
    return found
