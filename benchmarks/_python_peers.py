"""One run of a Python package on a table, in the environment of the peers.

    python _python_peers.py PACKAGE FOLDER M SEED

FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
columns, rows to learn from, which come first, rows that are not to be filled;
FOLDER/columns.txt: of each column its kind and its number of levels, whose codes begin
at 0. Writes FOLDER/draws.bin, the rows to fill of M completed tables, or of the only
one of a package that does not draw, and FOLDER/notes.txt: version, seconds of CPU,
memory, remarks.

Only numpy and the packages that are compared are needed here.
"""

import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np


def unmasking_trees(learn, parts, kinds, n_draws, seed, copies=10):
    """Trees that unmask the columns in random orders.

    On penguins ten copies of each row had a log-loss 10 % lower than 50, the default.
    """
    from utrees import UnmaskingTrees

    names = {"numeric": "continuous", "ordinal": "integer", "nominal": "categorical"}
    model = UnmaskingTrees(
        duplicate_K=copies, random_state=seed, xgboost_kwargs={"n_jobs": 1}
    ).fit(learn, quantize_cols=[names[kind] for kind in kinds])
    draws = [model.impute(n_impute=n_draws, X=x.copy()) for x in parts]
    return draws, [f"{copies} copies of each row"]


def hyperimpute(learn, parts, kinds, n_draws, seed):
    """Chained models that are chosen for each column; one table."""
    import pandas as pd
    from hyperimpute.plugins.imputers import Imputers

    model = Imputers().get("hyperimpute", random_state=seed)
    filled = model.fit_transform(pd.DataFrame(learn))
    found = [filled if x is learn else model.transform(pd.DataFrame(x)) for x in parts]
    return [one.to_numpy(float)[None] for one in found], []


PACKAGES = {"utrees": unmasking_trees, "hyperimpute": hyperimpute}


def main():
    """Run a package on the table of a folder."""
    package, folder, n_draws, seed = sys.argv[1:]
    folder, n_draws, seed = Path(folder), int(n_draws), int(seed)
    warnings.simplefilter("ignore")
    __import__(package)
    shape = (folder / "shape.txt").read_text().split()
    rows, width, first, start = map(int, shape)
    x = np.fromfile(folder / "table.bin", "<f8").reshape(width, rows).T
    learn, others = x[:first], x[first:]
    parts = [part for part in (learn, others)[start > 0 :] if len(part)]
    lines = (folder / "columns.txt").read_text().splitlines()
    kinds = [line.split()[0] for line in lines]
    begin = sum(os.times()[:4])  # with that of processes that it starts
    draws, remarks = PACKAGES[package](learn, parts, kinds, n_draws, seed)
    seconds = sum(os.times()[:4]) - begin
    drawn = np.concatenate(draws, 1)
    drawn.transpose(0, 2, 1).astype("<f8").tofile(folder / "draws.bin")
    notes = [f"{package} {version(package)}", f"{seconds:.3f}", "nan"]
    text = "\n".join([*notes, *remarks])
    (folder / "notes.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
