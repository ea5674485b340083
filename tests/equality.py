"""Records results of all public estimators, and compares them bit for bit.

``python tests/equality.py record FILE``, and ``compare FILE`` after changes; both take
``--only NAME,...`` (parts of names of configurations), ``--tables NAME,...`` and
``--jobs N``.  The configurations are in `equality_cases.py`.
"""

import argparse
import io
import os
import pickle
import random
import re
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from inspect import signature
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from equality_cases import (
    BAD,
    CONFIGS,
    TABLES,
    bad_calls,
    calls,
    is_full,
    is_ours,
    methods_of,
)
from sklearn.base import clone, is_classifier

import skvnce
from skvnce.training import rounds

rounds.STEPS = 2  # steps of a round of training
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
SECONDS = re.compile(r"\d[\d.,:]*(e-?\d+)? ?(s|ms|min|h|seconds?|minutes?)\b")
MODULE = re.compile(r"\bskvnce(\.\w+)*\._\w+\.")
CHOICES = re.compile(r"\{'[^{}:]*'\}")
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def text(value):
    """Leave out what may differ: addresses, private modules, and the order of sets."""
    value = MODULE.sub("skvnce.", ADDRESS.sub("0x", str(value)))
    return CHOICES.sub(lambda found: str(sorted(found[0].split("'")[1::2])), value)


def plain(value):
    """Reduce a result to arrays, numbers, texts, and lists and dicts of these."""
    kind = type(value).__name__
    if isinstance(value, PLAIN) and type(value) in PLAIN:
        return text(value) if isinstance(value, str) else value
    if isinstance(value, torch.Tensor):
        return ["tensor", value.detach().cpu().numpy().copy(), value.requires_grad]
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            return [kind, value.shape, [plain(one) for one in value.ravel().tolist()]]
        return value if isinstance(value, np.generic) else np.array(value)
    if isinstance(value, dict):
        return {"dict": kind, "items": [(plain(k), plain(v)) for k, v in value.items()]}
    if isinstance(value, list | tuple | set | frozenset | skvnce.options.Chunks):
        items = [plain(one) for one in value]
        return [kind, *(sorted(items, key=repr) if "set" in kind else items)]
    if hasattr(value, "dask"):
        return [kind, str(getattr(value, "dtypes", "")), plain(value.compute())]
    if hasattr(value, "to_polars") or type(value).__module__.startswith("polars"):
        return [kind, str(value.schema), [plain(one.to_list()) for one in value]]
    if kind in ("DataFrame", "Series"):
        columns = [value[name] for name in value] if kind == "DataFrame" else [value]
        if value.columns.has_duplicates if kind == "DataFrame" else False:
            columns = [value.iloc[:, j] for j in range(value.shape[1])]
        names = [plain(one.name) for one in columns]
        return [kind, plain(value.index.tolist()), names, [series(c) for c in columns]]
    if hasattr(value, "to_dense") or hasattr(value, "tocoo"):
        return [kind, value.toarray()]
    if isinstance(value, torch.nn.Module):
        return [kind, plain(dict(value.state_dict())), str(value.training)]
    if kind in ("Graph", "DiGraph"):  # of networkx
        return [kind, plain(list(value.nodes(True))), plain(list(value.edges.data()))]
    if hasattr(value, "get_params") and is_ours(value):
        return [kind, plain(repr(value)), attributes(value)]
    if hasattr(value, "get_params"):
        return [kind, plain(repr(value))]
    return [kind, plain(repr(value))]


def series(column):
    """Reduce a column of a pandas frame."""
    dtype, found = column.dtype, [str(column.dtype)]
    if hasattr(dtype, "categories"):
        found += [plain(dtype.categories.tolist()), bool(dtype.ordered)]
    return [*found, plain(column.to_numpy())]


def attributes(estimator):
    """Collect the public fitted attributes."""
    parameters = estimator.get_params(deep=False)
    found = {k: v for k, v in vars(estimator).items() if k[0] != "_"}
    return {k: plain(found[k]) for k in sorted(found) if k not in parameters}


def told(call):
    """Call a function; return its result and what it warns of, prints or raises."""
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    printed, raised, value = io.StringIO(), None, None
    with (
        warnings.catch_warnings(record=True) as seen,
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        try:
            value = call()
            result = plain(value)
        except Exception as error:
            notes = getattr(error, "__notes__", [])
            raised = [type(error).__name__, text(error), *map(text, notes)]
            result = {"raised": raised}
    own = [
        (w.category.__name__, text(w.message), w.filename in OWN)
        for w in seen
        if not issubclass(w.category, DeprecationWarning | ResourceWarning)
    ]
    found = {"result": result}
    if own:
        found["warnings"] = own
    if printed.getvalue():
        found["printed"] = SECONDS.sub("TIME", printed.getvalue())
    return value, found, raised


OWN = {__file__, sys.modules[calls.__module__].__file__}


def accepted(function, given):
    """Select the arguments that a method has."""
    return {k: v for k, v in given.items() if k in signature(function).parameters}


def run(estimator, title, configuration):
    """Yield names and results of one configuration and table."""
    one, table, full = clone(estimator), TABLES[title](), is_full(configuration)
    takes_y = not hasattr(one, "transform")
    table.target = table.y["classes" if is_classifier(one) else "target"]
    target = {"y": table.target} if takes_y else {}
    given = target | accepted(one.fit, table.fit)
    _, found, failed = told(lambda: one.fit(table.X, **given) and None)
    yield "fit", found
    if failed:
        return
    yield "attributes", told(lambda: attributes(one))[1]
    for name, label, arguments, options in calls(one, table, full):
        method = getattr(one, name, None)
        if method is None or accepted(method, options).keys() != options.keys():
            continue
        found = told(lambda f=method, a=arguments, o=options: f(*a, **o))[1]
        yield f"{name}[{label}]" if label else name, found
    if not full:
        return
    name = "predict" if takes_y else "transform"
    if table.copies:
        again, other = pickle.loads(pickle.dumps(one)), clone(estimator)
        yield "pickled", told(lambda: getattr(again, name)(table.new))[1]
        if hasattr(one, "fit_transform"):
            fit = other.fit_transform
            yield "fit_transform", told(lambda: fit(table.X, **given))[1]
    if table.parts and hasattr(one, "partial_fit"):
        other = clone(estimator)

        def fitted_to(part):
            return attributes(other.partial_fit(part))

        for number, part in enumerate(table.parts):
            yield f"partial_fit[{number}]", told(partial(fitted_to, part))[1]
        yield "partial_fit[transform]", told(lambda: other.transform(table.X))[1]


def run_bad(estimator):
    """Yield names and errors of bad inputs."""
    for name, call in bad_calls(estimator):
        yield name, told(call)[1]
    for method in methods_of(estimator):
        found = getattr(type(estimator), method, None)
        if found is not None:
            yield f"signature[{method}]", {"result": plain(str(signature(found)))}


def work(task):
    """Run one configuration; return its results and its time of the processor."""
    name, tables = task
    start, found = time.process_time(), {}
    estimator, wanted = CONFIGS[name]
    for title in tables:
        if title in wanted:
            items = run_bad(estimator) if title == BAD else run(estimator, title, name)
            try:
                found |= {f"{name} | {title} | {item}": value for item, value in items}
            except Exception as error:  # of this script or a fit that should succeed
                stopped = {"stopped": f"{type(error).__name__}: {error}"}
                found[f"{name} | {title} | all"] = stopped
    return found, time.process_time() - start


def everything(tasks, n_jobs, old=None):
    """Run all tasks, by estimator, and compare with old results, if there are any.

    Returns the results, and the number of keys that differ.
    """
    results, seconds, part, wrong = {}, 0, {}, 0
    left = [name.split("/")[0] for name, _ in tasks]
    pool = ProcessPoolExecutor(n_jobs, get_context("fork")) if n_jobs > 1 else None
    for found, time_used in (pool.map if pool else map)(work, tasks):
        estimator, seconds = left.pop(0), seconds + time_used
        part |= found
        if estimator not in left:
            print(f"{estimator}: {len(part)} keys, {seconds:.0f} s so far", flush=True)
            if old is not None:
                known = {k: v for k, v in old.items() if k.startswith(f"{estimator}/")}
                wrong += compare(known, part)
            results |= part
            part = {}
    if pool:
        pool.shutdown()
    print(f"{len(results)} keys, {seconds:.0f} CPU seconds")
    return results, wrong


def differences(a, b, path=""):
    """Yield texts on where two results differ."""
    if type(a) is not type(b):
        yield f"{path}: {short(a)} is now {short(b)}"
    elif isinstance(a, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key in a and key in b:
                yield from differences(a[key], b[key], f"{path}.{key}")
            else:
                what = f"was {short(a[key])}" if key in a else f"is now {short(b[key])}"
                yield f"{path}.{key}: only one has it: {what}"
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            yield f"{path}: {len(a)} are now {len(b)}: {short(a)} is now {short(b)}"
            return
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{path}[{place}]")
    elif isinstance(a, np.ndarray | np.generic):
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"{path}: {a.dtype}{a.shape} is now {b.dtype}{b.shape}"
        elif a.tobytes() != b.tobytes() and not equal_but_for_bits_of_nan(a, b):
            size = ""
            if a.dtype.kind in "fiu":
                gap = abs(
                    np.nan_to_num(a.astype(float)) - np.nan_to_num(b.astype(float))
                )
                size = f", by at most {gap.max():.3g}"
            yield f"{path}: {np.sum(np.asarray(a != b))} cells differ{size}"
    elif not (a == b or (a != a and b != b)) or repr(a) != repr(b):
        yield f"{path}: {short(a)} is now {short(b)}"


def equal_but_for_bits_of_nan(a, b):
    """Compare arrays of equal types, with the signs of zeros."""
    if a.dtype.kind not in "fc":
        return False
    same = (a == b) & (np.signbit(a.real) == np.signbit(b.real))
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


def short(value, most=300):
    """Write a result in one line."""
    found = " ".join(repr(value).split())
    return found if len(found) <= most else found[:most] + "..."


def compare(old, new):
    """Print what differs; returns the number of keys that do."""
    count = 0
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new or key not in old:
            lines = ["is missing" if key not in new else "is new"]
        else:
            lines = list(differences(old[key], new[key]))
        count += bool(lines)
        for line in lines[:4]:
            print(f"{key}: {line}")
        if len(lines) > 4:
            print(f"{key}: ... and {len(lines) - 4} more")
    print(f"  {count} of {len(old.keys() | new.keys())} keys differ", flush=True)
    return count


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("file")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--tables", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    print(f"skvnce of {os.path.dirname(skvnce.__file__)}", flush=True)
    tables = given.tables or [*TABLES, BAD]
    if unknown := set(tables) - {*TABLES, BAD}:
        parser.error(f"unknown tables {unknown}; there are {[*TABLES, BAD]}")
    names = [n for n in CONFIGS if not given.only or any(o in n for o in given.only)]
    if not names:
        parser.error(f"no configuration; there are {[*CONFIGS]}")
    tasks, old = [(name, tables) for name in names], None
    if given.command == "compare":
        with open(given.file, "rb") as file:
            old = pickle.load(file)
        parts = {key: key.split(" | ") for key in old}
        old = {
            key: value
            for key, value in old.items()
            if parts[key][0] in names and parts[key][1] in tables
        }
    found, wrong = everything(tasks, given.jobs, old)
    if old is None:
        with open(given.file, "wb") as file:
            pickle.dump(found, file)
    else:
        print(f"{wrong} keys differ: " + ("NOT EQUAL" if wrong else "all equal"))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
