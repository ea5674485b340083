"""Do pooled estimates stay right if values below a detection limit are not seen?

    python benchmarks/detection_limits.py [--repetitions 200] [--output FILE]

y = 1 + s/2 + w/2 + noise, n = 200, where s is the normal score of x, correlated with w.
x is normal (mean 10, standard deviation 2) or lognormal (exp(s)).  x is not seen below
a limit: a quantile of x, so that 30 % or 50 % of its values are lost, or one of three
quantiles at random (several laboratories).  Estimated are the mean of x and the
coefficients of the regression of y on s and w, with s = (x - 10) / 2 or log x.

`GaussianImputer` is given the limits in `fit` and `sample`, with 20 draws.
"""

import numpy as np
from _report import made_by, publish, table
from _runner import options_of

from skvnce import GaussianImputer
from skvnce.pooling import pool

N = 200
BETA = np.array([1.0, 0.5, 0.5])
OFFSETS = {"one": [0.0], "several": [-0.15, 0.0, 0.15]}  # of the share below a limit
SCALES = {
    "normal": (lambda s: 10 + 2 * s, lambda x: (x - 10) / 2, 10.0),
    "lognormal": (np.exp, np.log, np.exp(0.5)),
}
QUANTITIES = ["mean of x", "intercept", "s", "w"]


def least_squares(rows):
    """Regress the last column on the others: coefficients and their variances."""
    A = np.column_stack([np.ones(len(rows)), rows[:, :-1]])
    inverse = np.linalg.inv(A.T @ A)
    beta = inverse @ A.T @ rows[:, -1]
    residual = rows[:, -1] - A @ beta
    return beta, np.diag(inverse) * (residual @ residual) / (len(A) - A.shape[1])


def simulate(rng, shape, share, limits):
    """Draw a table (x, w, y), and the detection limit of x in each row."""
    to_x, _, _ = SCALES[shape]
    s, w = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=N).T
    y = BETA[0] + BETA[1] * s + BETA[2] * w + rng.normal(size=N)
    quantiles = np.quantile(rng.normal(size=10**5), share + np.array(OFFSETS[limits]))
    return np.column_stack([to_x(s), w, y]), to_x(rng.choice(quantiles, N))


def analysed(X, shape):
    """Estimate the mean of x and the regression; estimates and variances, (4,) each."""
    x = X[:, 0]
    rows = np.column_stack([SCALES[shape][1](x), X[:, 1:]])
    beta, variances = least_squares(rows)
    return np.append(x.mean(), beta), np.append(x.var(ddof=1) / len(x), variances)


def draws_within(X, limit, seed, **options):
    """Draw the cells of x below their limits."""
    limits = {"upper": {0: limit}}
    imputer = GaussianImputer(random_state=seed, **options).fit(X, **limits)
    return imputer.sample(X, 20, seed, **limits)


def estimates(rng, shape, share, limits):
    """Estimate by each way: estimate, lower and upper end of 95 %; (4, 3) each."""
    full, limit = simulate(rng, shape, share, limits)
    seed = int(rng.integers(2**31))
    hidden = full[:, 0] < limit
    X, half = full.copy(), full.copy()
    X[hidden, 0], half[hidden, 0] = np.nan, limit[hidden] / 2
    ways = {
        "complete data": [full] * 2,
        "half the limit": [half] * 2,
        "seen rows only": [X[~hidden]] * 2,
        'limits, marginals="auto"': draws_within(X, limit, seed),
    }
    if shape == "normal":
        draws = draws_within(X, limit, seed, marginals="normal")
        ways['limits, marginals="normal"'] = draws
        signed = draws_within(X, limit, seed, min_value=-np.inf)
        ways["limits, min_value=-np.inf"] = signed
    return {name: intervals(draws, shape) for name, draws in ways.items()}


def intervals(draws, shape):
    """Pool estimates, and their 95 % intervals; (4, 3)."""
    parts = [analysed(draw, shape) for draw in draws]
    pooled = pool(*map(np.array, zip(*parts, strict=True)), len(draws[0]) - len(BETA))
    return np.column_stack([pooled.estimate, *pooled.interval(0.95)])


def rows_of(found, shape):
    """Summarise repetitions: bias in standard errors of the complete data, coverage."""
    truth = np.append(SCALES[shape][2], BETA)
    error = np.std([one["complete data"][:, 0] for one in found], axis=0)
    for way in found[0]:
        all_of = np.array([one[way] for one in found])
        bias = (all_of[..., 0].mean(0) - truth) / error
        inside = (all_of[..., 1] < truth) & (truth < all_of[..., 2])
        pairs = zip(bias, inside.mean(0), strict=True)
        yield [way, *(f"{one:+.2f} / {cover:.0%}" for one, cover in pairs)]


def main():
    """Run the simulation and report."""
    options = options_of(__doc__, repetitions=200)
    rows = []
    for shape in SCALES:
        for share in (0.3, 0.5):
            for limits in OFFSETS:
                rng = np.random.default_rng(0)
                found = [
                    estimates(rng, shape, share, limits)
                    for _ in range(options.repetitions)
                ]
                label = f"{shape}, {share:.0%}, {limits}"
                rows += [[label, *row] for row in rows_of(found, shape)]
    error = np.sqrt(0.95 * 0.05 / options.repetitions)
    notes = (
        f"{options.repetitions} repetitions; standard error of a coverage {error:.1%}. "
        "Each cell: bias in standard errors of the complete data / coverage of 95 % "
        f"intervals. A bias of {2 / np.sqrt(options.repetitions):.2f} may be chance."
    )
    parts = ["# Values below detection limits", made_by("detection_limits.py", notes)]
    header = ["x, share below, limits", "analysis", *QUANTITIES]
    publish([*parts, table(header, rows)], options.output)


if __name__ == "__main__":
    main()
