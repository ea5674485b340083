"""The command line of a benchmark, and the run of a study whose results are kept."""

import argparse
import warnings
from typing import NamedTuple

from _report import Results, publish
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
        takes several of its kind; of strings, those in it.  ``...`` is a file that must
        be named, but with ``--quick``.

    Returns
    -------
    argparse.Namespace
        With ``output``, the file of the page, and ``quick``.
    """
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    for name, default in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, Some):
            choices = default.choices and list(default.choices)
            several = {"nargs": "+", "choices": choices, "type": default.kind}
            parser.add_argument(flag, default=list(default.default), **several)
        elif isinstance(default, list):
            kind = type(default[0])
            choices = default if kind is str else None
            parser.add_argument(
                flag, nargs="+", type=kind, default=default, choices=choices
            )
        elif default is False:
            parser.add_argument(flag, action="store_true")
        else:
            kind = str if default in (None, ...) else type(default)
            given = None if default is ... else default
            parser.add_argument(flag, type=kind, default=given)
    parser.add_argument("--output", help="file of the page")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help="a small part of it")
    found = parser.parse_args()
    if quick is not None and found.quick:
        vars(found).update(quick)
    for name, default in options.items():
        if default is ... and not (getattr(found, name) or found.quick):
            parser.error(f"name the file of --{name}")
    return found


def carry_out(cells, measured, page, options, doc, lacking=None):
    """Compute the cells that the results lack, and write the page of all of them.

    Parameters
    ----------
    cells : function of options to the keys of the results, dicts
    measured : function of a key and options to a dict, the result
    page : function of results and notes to the parts of the page
    options : Namespace
        With ``results``, ``only_report`` and ``output``.
    doc : str
        Of the script; its third paragraph is the notes.
    lacking : function of methods to those that cannot be run here, optional
    """
    warnings.simplefilter("ignore")
    results = Results(options.results)
    if not options.only_report:
        if absent := lacking(options.methods) if lacking else []:
            print("not installed, left out:", ", ".join(absent))
            options.methods = [m for m in options.methods if m not in absent]
        with threadpool_limits(1):
            for key in cells(options):
                if not results.has(**key):
                    results.add(key | measured(key, options))
                    print(*results.records[-1].values(), flush=True)
    publish(page(results, " ".join(doc.split("\n\n")[2].split())), options.output)
