"""A table of numbers and categories with hidden cells, and who fills it."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from _data import cpu_seconds
from _peers import Missing


class Case(NamedTuple):
    """A table with hidden cells."""

    kinds: list  # of columns: "numeric", "ordinal" or "nominal"
    levels: list  # how many levels columns have, 0 of numbers; their cells are codes
    names: list  # of columns
    # arrays (n, d): rows to learn from, and others to fill, NaN where missing
    full: tuple
    masked: tuple

    @property
    def hidden(self):
        """The cells that are scored, in each part."""
        pairs = zip(self.masked, self.full, strict=True)
        return tuple(np.isnan(masked) & ~np.isnan(full) for masked, full in pairs)

    @property
    def nominal(self):
        """The places of the columns of categories without an order."""
        return tuple(j for j, kind in enumerate(self.kinds) if kind == "nominal")


class Answer(NamedTuple):
    """What a method says, of the parts of a case or of the only one."""

    points: list | np.ndarray | None  # (n, d), codes of levels; None: means of draws
    draws: list | np.ndarray | None  # (m, n, d)
    # (n, n_levels) by column; None: the frequencies of the draws
    probabilities: dict | None = None
    seconds: float | None = None  # of CPU
    notes: dict = {}  # what a record of the results keeps besides: version, remarks


def frame_of(case, x):
    """Make a data frame whose data types tell the kinds of columns."""
    columns = {}
    for cells, name, kind, count in zip(
        x.T, case.names, case.kinds, case.levels, strict=True
    ):
        if kind != "numeric":
            codes = np.nan_to_num(cells, nan=-1).astype(int)
            ordered = kind == "ordinal"
            cells = pd.Categorical.from_codes(codes, range(count), ordered=ordered)
        columns[name] = cells
    return pd.DataFrame(columns)


def by_imputer(imputer, case, parts, n_draws, seed):
    """Fit an imputer of skvnce, fill parts of a case and draw them.

    Returns
    -------
    imputer : fitted
    answer : Answer
    """
    begin = cpu_seconds()
    imputer.set_output(transform="pandas").fit(frame_of(case, case.masked[0]))
    frames = [frame_of(case, x) for x in parts]
    points = [as_codes(imputer.transform(rows)) for rows in frames]
    draws = [
        np.stack([*map(as_codes, imputer.sample(rows, n_draws, random_state=seed))])
        for rows in frames
        if n_draws
    ]
    return imputer, Answer(points, draws or None, seconds=cpu_seconds() - begin)


def as_codes(filled):
    """Convert a filled data frame to an array."""
    return filled.astype(float).to_numpy()


def by_peer(peer, case, n_draws, seed, *, start=0, limit=None):
    """Let a package of others fill the rows of a case from a number on.

    It gets codes of the levels that the rows to learn from hold; other levels of the
    rows to fill are missing for it.  Columns of a single value are left out.  What it
    leaves missing is drawn from the observed cells of the column, and a remark.
    """
    tables, seen = coded(case)
    columns = [j for j, values in enumerate(seen) if len(values) > 1]
    learn, *others = (x[:, columns] for x in tables)
    others = np.vstack(others) if others else learn[:0]
    kinds = [(case.kinds[j], len(seen[j])) for j in columns]
    run = peer.run(learn, others, kinds, n_draws, seed, start, limit)
    rows, rng, left = np.vstack(case.masked)[start:], np.random.default_rng(seed), 0
    draws = np.tile(rows, (len(run.draws), 1, 1))
    for j, values in enumerate(seen):
        known = case.masked[0][:, j]
        cells = rng.choice(known[~np.isnan(known)], draws.shape[:2])
        if j in columns:
            own = run.draws[..., columns.index(j)]
            found = ~np.isnan(own)
            cells[found] = levels_of(own[found], case.kinds[j], values)
            left += int((~found[0]).sum())
        draws[..., j] = cells
    draws = np.where(np.isnan(rows), draws, rows)
    remarks = [*run.remarks, *([f"cells left missing: {left}"] if left else [])]
    notes = {"version": run.version} | ({"remarks": remarks} if remarks else {})
    return Answer(None, draws, None, run.seconds, notes)


def coded(case):
    """Number the levels of each column that the rows to learn from hold."""
    tables = [x.copy() for x in case.masked]
    seen = [np.unique(x[~np.isnan(x)]) for x in tables[0].T]
    for j, kind in enumerate(case.kinds):
        if kind != "numeric":
            for x in tables:
                unknown = ~np.isin(x[:, j], seen[j])
                place = np.searchsorted(seen[j], x[:, j]).astype(float)
                x[:, j] = np.where(unknown, np.nan, place)
    return tables, seen


def levels_of(cells, kind, seen):
    """Convert codes of the levels that were seen to codes of the case."""
    if kind == "numeric":
        return cells
    return seen[np.clip(np.round(cells), 0, len(seen) - 1).astype(int)]


def scored(method, score):
    """Score what a method answers, or say why there is no answer."""
    begin = cpu_seconds()
    try:
        answer = method()
    except Missing as reason:
        return {"missing": str(reason)}
    seconds = answer.seconds or cpu_seconds() - begin
    return score(answer) | {"seconds": round(seconds, 2)} | answer.notes


def intercepts(score, share):
    """Find by bisection what makes logistic chances of columns average to a share."""
    low, high = np.full(score.shape[1:], -100.0), np.full(score.shape[1:], 100.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = (1 / (1 + np.exp(-score - middle))).mean(0) >= share
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def lacking(registry, peers, methods):
    """List the methods that cannot be run here: those removed, or not installed."""
    there = [m for m in methods if registry[m]]
    there = [m for m in there if m not in peers or peers[m].installed()]
    return [m for m in methods if m not in there]
