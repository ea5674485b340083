"""The command line of a benchmark, and the run of a study whose results are kept."""

import argparse
import warnings
from itertools import product
from typing import NamedTuple

import torch
from _report import Results, publish, read
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


def carry_out(doc, cells, measured, page, quick=None, lacking=None, **options):
    """Compute the cells that the results lack, and write the page of all of them.

    Parameters
    ----------
    doc : str
        Of the script.
    cells : function of options to the keys of the results, dicts
    measured : function of a key and options to a dict, the result, or to several
    page : function of results and options to the parts of the page
    quick : dict, optional
        What the options are with ``--quick``.
    lacking : function of methods to those that cannot be run here, optional
    **options
        Further ones than ``--results FILE``, which keeps a line for each result, and
        ``--only-report``; ``also`` names files of results that are only read.
    """
    options = {"results": None, "only_report": False} | options
    options = options_of(doc, quick, **options)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = Results(options.results)
    for path in getattr(options, "also", ()):
        results.records += read(path)
    if not options.only_report:
        todo = [key for key in cells(options) if not results.has(**key)]
        methods = dict.fromkeys(key["method"] for key in todo if "method" in key)
        if absent := lacking(methods) if lacking else []:
            print("removed or not installed, left out:", ", ".join(absent))
        with threadpool_limits(1):
            for key in todo:
                if key.get("method") not in absent:
                    found = measured(key, options)
                    for one in [found] if isinstance(found, dict) else found:
                        results.add(key | one)
                        print(*results.records[-1].values(), flush=True)
    elif not results.records:
        raise SystemExit(f"There are no results in {options.results}.")
    publish(page(results, options), options.output)


def main_of(script, quick=None, **options):
    """Make the `main` of a script, and run it: `carry_out` of what the script has.

    The script has `measured`, and `cells`.  Without these it has `CASES`, values by
    name, or functions that return them: all combinations are measured but those of
    which `possible` says no, and with ``--only`` the chosen ones.  Without `page`, the
    page is that of its `TEXTS`.  It may have `lacking`.

    Parameters
    ----------
    script : dict
        ``globals()`` of the script.
    quick : dict, optional
        What the options are with ``--quick``, and values of `CASES`.
    **options
        As of `carry_out`.
    """

    def cells(options):
        axes = script["CASES"]
        axes = {name: getattr(options, name, some) for name, some in axes.items()}
        chosen = by_name(options.only)
        for values in product(
            *(some() if callable(some) else some for some in axes.values())
        ):
            key = dict(zip(axes, values, strict=True))
            asked = all(str(key[name]) in some for name, some in chosen.items())
            if asked and script.get("possible", lambda key: True)(key):
                yield key

    def main():
        page = script.get("page") or script["TEXTS"].page
        more = {} if "cells" in script else {"only": Some([])}
        parts = script["__doc__"], script.get("cells", cells), script["measured"], page
        carry_out(*parts, quick, script.get("lacking"), **more, **options)

    if script["__name__"] == "__main__":
        main()
    return main


def by_name(pairs):
    """Group texts NAME=VALUE by name."""
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        found.setdefault(name, []).append(value)
    return found
