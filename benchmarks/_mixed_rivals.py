"""One run of a Python package on a mixed table, in the environment of the rivals.

    python _mixed_rivals.py FOLDER PACKAGE M SEED

FOLDER/table.bin: doubles by columns, NaN where missing; FOLDER/shape.txt: rows,
columns, rows to learn from, which come first; FOLDER/columns.txt: of each column its
kind and its number of levels, whose codes begin at 0. Writes FOLDER/draws.bin, the
other rows of M completed tables, FOLDER/points.bin where the package has best guesses
of its own, and FOLDER/notes.txt: version, seconds of CPU, remarks.

Only numpy and the packages that are compared are needed here.
"""

import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np


def read(folder):
    """Read a table: rows to learn from, other rows, kinds, numbers of levels."""
    rows, width, first = map(int, (folder / "shape.txt").read_text().split())
    x = np.fromfile(folder / "table.bin", "<f8").reshape(width, rows).T
    columns = [
        line.split() for line in (folder / "columns.txt").read_text().splitlines()
    ]
    return x[:first], x[first:], [c[0] for c in columns], [int(c[1]) for c in columns]


def frames(tables, kinds, levels):
    """Make data frames with categories."""
    import pandas as pd

    found = []
    for x in tables:
        frame = pd.DataFrame({f"c{j}": cells for j, cells in enumerate(x.T)})
        for j, kind in enumerate(kinds):
            if kind != "numeric":
                codes = np.nan_to_num(x[:, j], nan=-1).astype(int)
                names = [f"l{k}" for k in range(levels[j])]
                frame[f"c{j}"] = pd.Categorical.from_codes(
                    codes, names, ordered=kind == "ordinal"
                )
        found.append(frame)
    return found


def codes_of(frame, kinds):
    """Convert a data frame of `frames` back to codes."""
    cells = np.empty(frame.shape)
    for j, kind in enumerate(kinds):
        column = frame[f"c{j}"]
        if kind != "numeric":
            column = column.astype(str).str[1:]
        cells[:, j] = column.astype(float)
    return cells


def gcimpute(train, test, kinds, levels, n_draws, seed):
    """Gaussian copula of codes; it decides itself which are ordinal.

    Where it fails with its decision, as with many equal numbers, categories are passed
    as ordinal and numbers as continuous.
    """
    np.round_ = np.round  # gcimpute 0.0.4 was written for numpy 1
    from gcimpute.gaussian_copula import GaussianCopula

    def fit(**types):
        model = GaussianCopula(random_state=seed)
        model.fit(X=train, **types)  # returns nothing
        return model

    remarks = []
    try:
        model = fit()
    except ValueError:
        remarks = ["types of columns given, as it fails with its own decision"]
        numeric = [j for j, kind in enumerate(kinds) if kind == "numeric"]
        others = [j for j, kind in enumerate(kinds) if kind != "numeric"]
        model = fit(continuous=numeric, ordinal=others)
    points = model.transform(X=test)
    np.random.seed(seed)  # of the global generator, from which it draws
    draws = np.moveaxis(model.sample_imputation(X=test, num=n_draws), -1, 0)
    return draws, points, remarks


def mixed_imputer(train, test, kinds, levels, n_draws, seed):
    """Chained Bayesian ridge and logistic regressions, drawn from their posterior.

    On scaled columns, which lowers the CRPS on penguins and horse_colic by a quarter,
    with a penalty that lowers the log-loss on horse_colic by 15 %.
    """
    from mixedimputer import MixedImputer
    from sklearn.linear_model import BayesianRidge, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    frame, new = frames((train, test), kinds, levels)
    for j, kind in enumerate(kinds):
        if kind != "numeric":  # it asks for text
            for one in (frame, new):
                one[f"c{j}"] = one[f"c{j}"].astype(object)
    model = MixedImputer(
        regressor=make_pipeline(StandardScaler(), BayesianRidge()),
        classifier=make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, max_iter=200)
        ),
        sample_posterior=True,
        random_state=seed,
    ).fit(frame)
    tables = [codes_of(model.transform(new), kinds) for _ in range(n_draws)]
    return np.stack(tables), None, []


def unmasking_trees(train, test, kinds, levels, n_draws, seed, copies=10):
    """Trees that unmask the columns in random orders.

    On penguins ten copies of each row had a log-loss 10 % lower than 50, the default.
    """
    from utrees import UnmaskingTrees

    names = {"numeric": "continuous", "ordinal": "integer", "nominal": "categorical"}
    model = UnmaskingTrees(
        duplicate_K=copies, random_state=seed, xgboost_kwargs={"n_jobs": 1}
    )
    model.fit(train, quantize_cols=[names[kind] for kind in kinds])
    return model.impute(n_impute=n_draws, X=test.copy()), None, []


PACKAGES = {
    "gcimpute": ("gcimpute", gcimpute),
    "mixed-imputer": ("mixed-imputer", mixed_imputer),
    "utrees": ("utrees", unmasking_trees),
}


def main():
    """Run a package on the table of a folder."""
    folder, package, n_draws, seed = sys.argv[1:]
    folder, n_draws, seed = Path(folder), int(n_draws), int(seed)
    distribution, function = PACKAGES[package]
    warnings.simplefilter("ignore")
    __import__({"mixed-imputer": "mixedimputer"}.get(package, package))
    begin = time.process_time()
    draws, points, remarks = function(*read(folder), n_draws, seed)
    seconds = time.process_time() - begin
    draws.transpose(0, 2, 1).astype("<f8").tofile(folder / "draws.bin")
    if points is not None:
        points.T.astype("<f8").tofile(folder / "points.bin")
    notes = [f"{distribution} {version(distribution)}", f"{seconds:.3f}", *remarks]
    (folder / "notes.txt").write_text("\n".join(notes), encoding="utf-8")


if __name__ == "__main__":
    main()
