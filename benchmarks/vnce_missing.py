"""VNCEEstimator on tables with missing cells: its default Gaussian, and several modes.

    python benchmarks/vnce_missing.py [--quick] [--results FILE] [--only part=modes]
        [--output doc/benchmarks/vnce_missing.md]

Gaussian: real tables, 30 % of the cells missing; errors of mean and covariance against
those of the complete training rows, as ratios to EM's; RMSE of `transform` on unseen
rows, as a ratio to IterativeImputer(BayesianRidge).  Modes: a ring, two moons and a
mixture in two columns; densities are normalised by quadrature and compared at complete
rows that no fit has seen.  Limits: what missing cells cost the likelihood itself.
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from _energies import Ring
from _report import Texts, by, lines, table
from _runner import main_of
from imputation_tables import split
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from torch import nn

from skvnce import GaussianImputer, VNCEEstimator

TEXTS = Texts("vnce_missing", globals())

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


def gaussian(name, seed, options):
    """Yield a record of each method on a real table."""
    parts = split(name, "MCAR 30", seed)
    rival = rmse(IterativeImputer(random_state=seed).fit(parts.masked[0]), parts)
    of_em = None
    for method, make in METHODS.items():
        start = time.process_time()
        fitted = make(seed).fit(parts.masked[0])
        seconds = time.process_time() - start
        found = errors(fitted, parts.full[0])
        of_em = of_em or found
        mean, covariance = (x / y for x, y in zip(found, of_em, strict=True))
        figures = rmse(fitted, parts) / rival, mean, covariance, seconds
        yield {"method": method, "figures": [float(one) for one in figures]}


SHARES = (0.2, 0.4)
ROWS, UNSEEN = 500, 2000
GRID = torch.linspace(-6, 6, 401).double()


class Normals(nn.Module):
    """A mixture of normals with diagonal covariances."""

    def __init__(self, n_features, number):
        super().__init__()
        self.centre = nn.Parameter(torch.randn(number, n_features))
        self.log_spread = nn.Parameter(torch.zeros(number, n_features))
        self.weight = nn.Parameter(torch.zeros(number))

    def log_density(self, x):
        """Compute the log-density up to a constant."""
        apart = (x[:, None] - self.centre) * (-self.log_spread).exp()
        parts = self.log_spread.sum(1) + apart.square().sum(-1) / 2
        return (self.weight.log_softmax(0) - parts).logsumexp(1)


def ring(rng, n):
    """Draw rows around a circle."""
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(2, 0.2, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def moons(rng, n):
    """Draw rows around two half circles."""
    angle, second = rng.uniform(0, np.pi, n), rng.integers(2, size=n)
    x = np.where(second, 1 - np.cos(angle), np.cos(angle)) - 0.5
    y = np.where(second, 0.5 - np.sin(angle), np.sin(angle)) - 0.25
    return 1.5 * np.column_stack([x, y]) + 0.15 * rng.normal(size=(n, 2))


def mixture(rng, n):
    """Draw rows of three clusters."""
    centre = np.array([[-2, -2], [2, 2], [-2, 2]])
    spread = np.array([0.4, 0.5, 0.3])[:, None]
    cluster = rng.choice(3, n, p=[0.4, 0.35, 0.25])
    return centre[cluster] + spread[cluster] * rng.normal(size=(n, 2))


SHAPES = {
    "ring": (ring, Ring),
    "two moons": (moons, partial(Normals, number=6)),
    "mixture": (mixture, partial(Normals, number=3)),
}
DRAWS = {"auto": "auto", "one draw": 1}


def mean_log_density(fitted, rows):
    """Average the log-density of complete rows, normalised by quadrature."""
    model = fitted.to_torch()
    with torch.no_grad():
        at = torch.cartesian_prod(GRID, GRID)
        log_integral = (
            model.log_density(at).logsumexp(0) + 2 * (GRID[1] - GRID[0]).log()
        )
        return float((model.log_density(torch.from_numpy(rows)) - log_integral).mean())


def fit(model, X, seed, draws="auto"):
    """Fit; return the estimator, CPU seconds and whether it warned of its draws."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = VNCEEstimator(
            model, n_training_draws=draws, random_state=seed, on_misfit="ignore"
        ).fit(X)
    warned = any("draws of missing cells" in str(one.message) for one in caught)
    return found, time.process_time() - start, warned


def modes(name, seed, options):
    """Yield a record of each share of missing cells and each way to draw."""
    draw, model = SHAPES[name]
    rng = np.random.default_rng(seed)
    X, unseen = draw(rng, ROWS), draw(rng, UNSEEN)
    complete, seconds, _ = fit(model, X, seed)
    best = mean_log_density(complete, unseen)
    for share in SHARES[: 1 if options.quick else None]:
        masked = np.where(rng.random(X.shape) < share, np.nan, X)
        alone, *_ = fit(model, masked[~np.isnan(masked).any(1)], seed)
        for way, draws in DRAWS.items():
            found, taken, warned = fit(model, masked, seed, draws)
            scores = [mean_log_density(one, unseen) - best for one in (found, alone)]
            figures = *scores, float(found.bound_gap_), warned, taken / seconds
            yield {"share": share, "draws": way, "figures": figures}


def log_parts(x, observed, mean, variance, weight):
    """Compute log weight_k p_k(x_obs) of normals with diagonal covariances; (n, k)."""
    square = (x[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance)
    return np.log(weight) - (square * observed[:, None]).sum(2) / 2


def maximum_likelihood(X, number, rng, starts=10, rounds=300):
    """Fit a mixture of normals with diagonal covariances to observed cells, by EM."""
    X = X[~np.isnan(X).all(1)]
    observed, found = ~np.isnan(X), []
    x = np.where(observed, X, 0.0)
    for _ in range(starts):
        mean, variance = rng.normal(size=(number, 2)), np.ones((number, 2))
        weight = np.full(number, 1 / number)
        for _ in range(rounds):
            parts = log_parts(x, observed, mean, variance, weight)
            share = np.exp(parts - np.logaddexp.reduce(parts, 1)[:, None])
            total, weight = share.sum(0)[:, None], share.mean(0).clip(1e-6)
            filled = np.where(observed[:, None], x[:, None], mean)
            unknown = np.where(observed[:, None], 0.0, variance)
            mean = (share[..., None] * filled).sum(0) / total
            square = (filled - mean) ** 2 + unknown
            variance = ((share[..., None] * square).sum(0) / total).clip(1e-3)
        found.append((parts, (mean, variance, weight / weight.sum())))
    return max(found, key=lambda one: np.logaddexp.reduce(one[0], 1).sum())[1]


def limits(name, seed, options):
    """Yield what missing cells cost the likelihood of mixtures of normals."""
    draw, number = SHAPES[name][0], SHAPES[name][1].keywords["number"]
    for n in (ROWS, 4 * ROWS):
        rng = np.random.default_rng(seed)
        X, unseen = draw(rng, n), draw(rng, UNSEEN)
        holes = [rng.random(X.shape) < share for share in (0, *SHARES)]
        fits = [maximum_likelihood(np.where(h, np.nan, X), number, rng) for h in holes]
        seen = np.ones(unseen.shape, dtype=bool)
        parts = [log_parts(unseen, seen, *one) for one in fits]
        score = [np.logaddexp.reduce(part, 1).mean() for part in parts]
        for share, value in zip(SHARES, score[1:], strict=True):
            yield {"n": n, "share": share, "lost": float(value - score[0])}


PARTS = {
    "gaussian": (gaussian, ["diabetes", "breast_cancer", "gas_turbine"], 3),
    "modes": (modes, [*SHAPES], 3),
    "limits": (limits, ["two moons", "mixture"], 4),
}


def measured(key, options):
    """Compute the records of a part on a table."""
    return PARTS[key["part"]][0](key["table"], key["seed"], options)


def mean_of(at, form):
    """Make a function that writes the mean of a figure."""
    return lambda some: format(np.mean([r["figures"][at] for r in some]), form)


def gaussian_table(results):
    """Set the errors of the default Gaussian in a table."""
    names = "RMSE / BR", "mean / EM", "covariance / EM", "CPU s"
    columns = {name: mean_of(at, ".3g") for at, name in enumerate(names)}
    groups = by(results.of(part="gaussian"), "table", "method")
    return lines(groups.items(), columns, "table", "method")


def modes_table(results):
    """Set the densities of several modes in a table."""

    def warned(some):
        return f"{sum(r['figures'][3] for r in some)} of {len(some)}"

    names = "nats", "nats, complete rows alone", "`bound_gap_`"
    columns = {name: mean_of(at, ".3f") for at, name in enumerate(names)}
    columns |= {"warned": warned, "time": mean_of(4, ".0f")}
    groups = by(results.of(part="modes"), "table", "share", "draws").items()
    groups = [((name, f"{share:.0%}", way), r) for (name, share, way), r in groups]
    return lines(groups, columns, "table", "missing", "draws")


def limits_table(results):
    """Set what is lost in any case in a table."""
    rows = []
    groups = by(results.of(part="limits"), "table", "n", "share")
    for (name, n, share), some in groups.items():
        lost = np.array([r["lost"] for r in some])
        span = f"{lost.min():.3f} to {lost.max():.3f}"
        rows.append([name, n, f"{share:.0%}", f"{lost.mean():.3f}", span])
    return table(["table", "rows", "missing", "nats", "range"], rows)


def values(results, options):
    """Return what the page names besides."""
    seeds = {r["seed"] for r in results.of(part="gaussian")}
    return {"seeds": len(seeds), "of_limits": PARTS["limits"][2]}


def possible(key):
    """Say whether a part has a table and a seed."""
    _, tables, n_seeds = PARTS[key["part"]]
    return key["table"] in tables and key["seed"] < n_seeds


CASES = {
    "part": PARTS,
    "table": [*PARTS["gaussian"][1], *SHAPES],
    "seed": range(4),
}
QUICK = {"part": ["gaussian", "modes"], "table": ["diabetes", "ring"], "seed": [0]}
main = main_of(globals(), QUICK)
