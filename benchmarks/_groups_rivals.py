"""R's packages for clustered tables as rivals: jomo, pan, and mice's two-level methods.

jomo: joint model, homoscedastic, 1000 iterations before the first draw and 1000 between
draws, its defaults, or 200 ("jomo_200"); binary and ordinal columns are factors. pan:
joint model of numbers, 1000 and 100 iterations, columns standardised, priors as weak as
they may be; binary and ordinal columns, and columns of groups, are responses like
others. mice, 5 iterations: 2l.pan (with group means as predictors) or 2l.norm for
numbers, 2l.bin for binary columns, 2lonly.norm or 2lonly.pmm for columns that are
constant within groups; "mice_pmm" does not know the groups. Tables travel as csv files
in a temporary folder.
"""

from functools import cache
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from _mice import run_r

RIVALS = "jomo", "jomo_200", "pan", "mice_2lpan", "mice_2lnorm", "mice_pmm"
_SCRIPT = Path(__file__).with_name("_groups_rivals.R")


def draw(method, frame, roles, n_draws, seed):
    """Complete a table by a package of R.

    Parameters
    ----------
    method : str
        One of `RIVALS`.
    frame : DataFrame
        Numbers, 0, 1, ... in categorical columns; NaN where missing.
    roles : dict
        Of each column: "group", "row", "group level" or "design".
    n_draws, seed : int

    Returns
    -------
    draws : array of shape (n_draws, n_samples, n_features)
    costs : dict
        Version and seconds of CPU, without the start of R.
    """
    numbers = frame.astype(float)
    [group] = [name for name in frame if roles[name] == "group"]
    order = np.argsort(numbers[group].to_numpy(), kind="stable")
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        codes = numbers.iloc[order].assign(**{group: codes_of(numbers, group)[order]})
        codes.to_csv(folder / "table.csv", index=False, na_rep="NA")
        _columns(frame, roles).to_csv(folder / "columns.csv", index=False)
        run_r(str(_SCRIPT), str(folder), method, str(n_draws), str(seed))
        cells = pd.read_csv(folder / "draws.csv")[list(frame)].to_numpy(float)
        version, seconds = (folder / "costs.txt").read_text().splitlines()
    draws = np.empty((n_draws, *frame.shape))
    draws[:, order] = cells.reshape(draws.shape)
    table = numbers.to_numpy()
    costs = {"version": version, "seconds": float(seconds)}
    return np.where(np.isnan(table), draws, table), costs


def codes_of(frame, group):
    """Number the groups from 1."""
    return pd.factorize(frame[group], sort=True)[0] + 1


def _columns(frame, roles):
    kinds = [_kind_of(frame[name]) for name in frame]
    return pd.DataFrame(
        {"name": list(frame), "kind": kinds, "role": [roles[name] for name in frame]}
    )


def _kind_of(column):
    if not is_categorical(column):
        return "numeric"
    return "ordinal" if column.dtype.ordered else "binary"


def is_categorical(column):
    """Say whether a column has categories: two, or ordered ones."""
    return isinstance(column.dtype, pd.CategoricalDtype)


@cache
def data_of_r(package, expression):
    """Return a data frame of R; nothing of it is kept."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "table.csv")
        code = (
            f"suppressPackageStartupMessages(library({package})); "
            f"write.csv(as.data.frame({expression}), '{file}', row.names = FALSE)"
        )
        run(["Rscript", "--vanilla", "-e", code], check=True, capture_output=True)
        return pd.read_csv(file)
