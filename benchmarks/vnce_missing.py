"""The default Gaussian of VNCEEstimator on real tables, 30 % of the cells missing.

Errors of mean and covariance against those of the complete training rows, as ratios to
EM's; RMSE of `transform` on unseen rows, as a ratio to IterativeImputer(BayesianRidge).

    python benchmarks/vnce_missing.py --output doc/benchmarks/vnce_missing.md
"""

import time
import warnings

import numpy as np
from _report import Texts, made_by, publish, table
from _runner import options_of
from imputation_tables import split
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from vnce_modes import TABLES as TWO_COLUMNS
from vnce_modes import section

from skvnce import GaussianImputer, VNCEEstimator

TEXTS = Texts("vnce_missing", globals())

TABLES = ["diabetes", "breast_cancer", "gas_turbine"]
METHODS = {
    "EM": lambda seed: GaussianImputer(marginals="normal"),
    "VNCE": lambda seed: VNCEEstimator(random_state=seed),
    "VNCE, nu = 50": lambda seed: VNCEEstimator(noise_ratio=50, random_state=seed),
    "VNCE, no penalty": lambda seed: VNCEEstimator(ridge=0.0, random_state=seed),
    "VNCE, noise of marginals": lambda seed: VNCEEstimator(
        noise="marginal", random_state=seed
    ),
}


def rmse(imputer, parts):
    """Score the hidden cells of the unseen rows."""
    error = (imputer.transform(parts.masked[1]) - parts.full[1])[parts.hidden[1]]
    return np.sqrt(np.mean(error**2))


def errors(fitted, complete):
    """Return the distances of mean and covariance to those of complete rows."""
    covariance = np.cov(complete.T)
    return (
        np.linalg.norm(fitted.mean_ - complete.mean(0)),
        np.linalg.norm(fitted.covariance_ - covariance),
    )


def one_split(name, seed):
    """Yield a row of figures for each method."""
    parts = split(name, "MCAR 30", seed)
    rival = rmse(IterativeImputer(random_state=seed).fit(parts.masked[0]), parts)
    of_em = None
    for method, make in METHODS.items():
        start = time.process_time()
        fitted = make(seed).fit(parts.masked[0])
        seconds = time.process_time() - start
        found = errors(fitted, parts.full[0])
        of_em = of_em or found
        mean, covariance = (a / b for a, b in zip(found, of_em, strict=True))
        yield method, (rmse(fitted, parts) / rival, mean, covariance, seconds)


def main():
    """Run and report."""
    asked = options_of(__doc__, {}, seeds=3)
    warnings.simplefilter("ignore", ConvergenceWarning)
    names, seeds = (TABLES[:1], 1) if asked.quick else (TABLES, asked.seeds)
    rows = []
    for name in names:
        found = {method: [] for method in METHODS}
        for seed in range(seeds):
            for method, figures in one_split(name, seed):
                found[method].append(figures)
        for method, figures in found.items():
            mean = np.mean(figures, 0)
            rows.append([name, method, *(f"{value:.3g}" for value in mean)])
            print(*rows[-1], sep=" | ", flush=True)
    header = ["table", "method", "RMSE / BR", "mean / EM", "covariance / EM", "CPU s"]
    notes = (
        f"Means over {seeds} splits and masks, 30 % MCAR; ratios, below 1 is better."
    )
    text = TEXTS("The noise of the default")
    parts = [
        "# The default Gaussian of VNCEEstimator",
        made_by("vnce_missing.py", notes),
    ]
    names = ("ring",) if asked.quick else tuple(TWO_COLUMNS)
    modes = section(seeds, names)
    publish([*parts, table(header, rows), text, *modes], asked.output)


if __name__ == "__main__":
    main()
