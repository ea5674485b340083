"""One run of a Python package on a table, in the environment of the rivals.

    python _protocol_rivals.py GIVEN.npz ANSWER.npz PACKAGE M SEED

GIVEN.npz: ``learn``, rows to learn from with NaN where missing, ``others``, further
rows to fill, and ``levels``, the number of levels of each column: 0 for numbers, else
its cells are codes that begin at 0. Writes ``draws0`` and ``draws1``, M completed
tables of each, or the only one of a package that does not draw, and ``notes``: version,
seconds of CPU, remarks.

Only numpy and the packages that are compared are needed here.
"""

import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROUNDS = 5  # of chained equations, as R's mice


def miceforest(learn, others, levels, n_draws, seed):
    """Chained boosted trees with predictive mean matching, a chain a draw."""
    import miceforest
    import pandas as pd
    from _mixed_rivals import count_iterations

    count_iterations()
    kinds = ["nominal" if count else "numeric" for count in levels]
    frames = []
    for x in (learn, others):
        frame = pd.DataFrame({f"c{j}": cells for j, cells in enumerate(x.T)})
        for j in np.flatnonzero(levels):
            codes = np.nan_to_num(x[:, j], nan=-1).astype(int)
            names = [f"l{k}" for k in range(levels[j])]
            frame[f"c{j}"] = pd.Categorical.from_codes(codes, names)
        frames.append(frame)
    gaps = np.isnan(learn).any(0) | np.isnan(others).any(0)
    kernel = miceforest.ImputationKernel(
        frames[0],
        num_datasets=n_draws,
        variable_schema=[f"c{j}" for j in np.flatnonzero(gaps)],
        random_state=seed,
    )
    kernel.mice(ROUNDS, num_threads=1, verbose=False)

    def tables(done):
        return np.stack([cells(done.complete_data(m), kinds) for m in range(n_draws)])

    found = [tables(kernel), np.empty((n_draws, *others.shape))]
    if len(others):
        found[1] = tables(kernel.impute_new_data(frames[1], random_state=seed))
    return found, []


def cells(frame, kinds):
    """Convert a data frame back to codes."""
    from _mixed_rivals import codes_of

    return codes_of(frame, kinds)


def unmasking_trees(learn, others, levels, n_draws, seed, copies=10):
    """Trees that unmask the columns in random orders."""
    from utrees import UnmaskingTrees

    kinds = ["categorical" if count else "continuous" for count in levels]
    model = UnmaskingTrees(
        duplicate_K=copies, random_state=seed, xgboost_kwargs={"n_jobs": 1}
    ).fit(learn, quantize_cols=kinds)
    found = [
        model.impute(n_impute=n_draws, X=x.copy())
        if len(x)
        else np.empty((n_draws, *x.shape))
        for x in (learn, others)
    ]
    return found, [f"{copies} copies of each row"]


def hyperimpute(learn, others, levels, n_draws, seed):
    """Chained models that are chosen for each column; one table."""
    import pandas as pd
    from hyperimpute.plugins.imputers import Imputers

    model = Imputers().get("hyperimpute", random_state=seed)
    found = [model.fit_transform(pd.DataFrame(learn)).to_numpy(float), others]
    if len(others):
        found[1] = model.transform(pd.DataFrame(others)).to_numpy(float)
    return [table[None] for table in found], []


PACKAGES = {
    "miceforest": ("miceforest", miceforest),
    "utrees": ("utrees", unmasking_trees),
    "hyperimpute": ("hyperimpute", hyperimpute),
}


def main():
    """Run a package on the table of a file."""
    given, answer, package, n_draws, seed = sys.argv[1:]
    n_draws, seed = int(n_draws), int(seed)
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    with np.load(given) as arrays:
        learn, others, levels = (arrays[k] for k in ("learn", "others", "levels"))
    distribution, function = PACKAGES[package]
    __import__(package)
    begin = sum(os.times()[:4])  # with that of processes that it starts
    draws, remarks = function(learn, others, levels, n_draws, seed)
    seconds = sum(os.times()[:4]) - begin
    notes = [f"{distribution} {version(distribution)}", f"{seconds:.3f}", *remarks]
    found = {f"draws{i}": table for i, table in enumerate(draws)}
    np.savez(answer, notes=np.array(notes), **found)


if __name__ == "__main__":
    main()
