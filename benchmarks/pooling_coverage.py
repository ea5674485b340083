"""Do pooled 95 % intervals of a regression on an incomplete table cover the truth?

    python benchmarks/pooling_coverage.py [--repetitions 200] [--output FILE]

y = 1 + x1/2 - x2/2 + noise, n = 150, x1 missing in 40 % of the rows: completely at
random (MCAR), or in rows with y above its median only (MAR).  `GaussianImputer` draws
20 tables; single imputation is its conditional mean, taken for data.
"""

import argparse

import numpy as np
from _report import made_by, publish, table

from skvnce import GaussianImputer
from skvnce.pooling import pool

BETA = np.array([1.0, 0.5, -0.5])
WAYS = ("complete data", "pooled, 20 draws", "single imputation", "complete rows only")


def least_squares(rows):
    """Regress the last column on the others: coefficients and their variances."""
    A = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    inverse = np.linalg.inv(A.T @ A)
    beta = inverse @ A.T @ rows[:, -1]
    residual = rows[:, -1] - A @ beta
    return beta, np.diag(inverse) * (residual @ residual) / (len(A) - A.shape[1])


def simulate(rng, mechanism, n=150):
    """Draw a complete table and hide cells of its first column."""
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n)
    y = BETA[0] + x @ BETA[1:] + rng.normal(size=n)
    chance = np.full(n, 0.4) if mechanism == "MCAR" else 0.8 * (y > np.median(y))
    full = np.column_stack([x, y])
    X = full.copy()
    X[rng.uniform(size=n) < chance, 0] = np.nan
    return full, X


def covered(rng, mechanism):
    """Say which intervals of which way hold the truth; (ways, coefficients)."""
    full, X = simulate(rng, mechanism)
    seed = int(rng.integers(2**31))
    imputer = GaussianImputer(shrinkage=0.01, random_state=seed).fit(X)
    draws = imputer.sample(X, n_draws=20, random_state=seed)
    estimates, variances = map(np.array, zip(*map(least_squares, draws), strict=True))
    low, high = pool(estimates, variances, len(X) - len(BETA)).interval(0.95)
    rows = X[~np.isnan(X).any(1)]
    others = [covers(t) for t in (full, imputer.transform(X), rows)]
    return np.array([others[0], (low < BETA) & (BETA < high), *others[1:]])


def covers(rows):
    """Say which 95 % intervals of one table hold the truth."""
    # a table analysed as if complete: two equal estimates pool to its own interval
    pooled = pool(*([value] * 2 for value in least_squares(rows)), len(rows) - 3)
    low, high = pooled.interval(0.95)
    return (low < BETA) & (BETA < high)


def main():
    """Run the simulation and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--output")
    options = parser.parse_args()
    rows = []
    for mechanism in ("MCAR", "MAR"):
        rng = np.random.default_rng(0)
        found = [covered(rng, mechanism) for _ in range(options.repetitions)]
        share = np.mean(found, axis=0)
        for way, values in zip(WAYS, share, strict=True):
            cells = [f"{value:.1%}" for value in (*values, values.mean())]
            rows.append([mechanism, way, *cells])
    header = ["missing", "analysis", "intercept", "x1", "x2", "mean"]
    error = np.sqrt(0.95 * 0.05 / options.repetitions)
    notes = f"{options.repetitions} repetitions; standard error of a cell {error:.1%}."
    parts = ["# Coverage of 95 % intervals", made_by("pooling_coverage.py", notes)]
    publish([*parts, table(header, rows)], options.output)


if __name__ == "__main__":
    main()
