"""Modules whose public names are imported at their first use (PEP 562).

A stub beside the module, which type checkers read, lists the names and their homes.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data


def names_of_stub(module: str, stub: str) -> tuple[Callable, Callable, list[str]]:
    """Make ``__getattr__``, ``__dir__`` and ``__all__`` from the imports of a stub."""
    homes = {
        name.name: node.module
        for node in ast.parse(get_data("skvnce", stub)).body
        for name in node.names
    }

    def public(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = homes[name]
        if home == "skvnce":
            return import_module(f"skvnce.{name}")
        # stored, so that later uses do not call this function
        value = vars(sys.modules[module])[name] = getattr(import_module(home), name)
        return value

    return public, lambda: sorted(homes), sorted(homes)
