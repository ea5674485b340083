"""VNCEEstimator where a missing cell may have several values: section of a page.

A ring, two moons and a mixture in two columns.  Densities are normalised by quadrature
and compared at complete rows that no fit has seen.  `vnce_missing.py` includes it.

    python benchmarks/vnce_modes.py --quick
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from _report import Texts, made_by, table
from _runner import options_of
from torch import nn

from skvnce import VNCEEstimator

TEXTS = Texts("vnce_modes", globals())

SHARES = (0.2, 0.4)
ROWS, UNSEEN = 500, 2000
GRID = torch.linspace(-6, 6, 401).double()


class Ring(nn.Module):
    """Distance from the origin nearly constant."""

    def __init__(self, n_features):
        super().__init__()
        self.radius = nn.Parameter(torch.tensor(1.5))
        self.log_spread = nn.Parameter(torch.tensor(0.0))

    def log_density(self, x):
        """Compute the log-density up to a constant."""
        apart = x.norm(dim=1) - self.radius
        return -(apart * (-self.log_spread).exp()).square() / 2


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


TABLES = {
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


def one_table(name, seed, shares):
    """Yield the figures of each share of missing cells."""
    draw, model = TABLES[name]
    rng = np.random.default_rng(seed)
    X, unseen = draw(rng, ROWS), draw(rng, UNSEEN)
    complete, seconds, _ = fit(model, X, seed)
    best = mean_log_density(complete, unseen)
    for share in shares:
        masked = np.where(rng.random(X.shape) < share, np.nan, X)
        kept = ~np.isnan(masked).any(1)
        alone, *_ = fit(model, X[kept], seed)
        for way, draws in DRAWS.items():
            found, taken, warned = fit(model, masked, seed, draws)
            yield (
                (name, f"{share:.0%}", way),
                mean_log_density(found, unseen) - best,
                mean_log_density(alone, unseen) - best,
                found.bound_gap_,
                warned,
                taken / seconds,
            )


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


def limits(seeds, rows=(ROWS, 4 * ROWS)):
    """Return the part about what missing cells cost the likelihood itself."""
    lines = []
    for name, number in (("two moons", 6), ("mixture", 3)):
        for n in rows:
            lost = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                X, unseen = TABLES[name][0](rng, n), TABLES[name][0](rng, UNSEEN)
                holes = [rng.random(X.shape) < share for share in (0, *SHARES)]
                found = [
                    maximum_likelihood(np.where(one, np.nan, X), number, rng)
                    for one in holes
                ]
                seen = np.ones(unseen.shape, dtype=bool)
                score = [
                    np.logaddexp.reduce(log_parts(unseen, seen, *one), 1).mean()
                    for one in found
                ]
                lost.append(np.subtract(score[1:], score[0]))
                print(name, n, *lost[-1], flush=True)
            for share, each in zip(SHARES, np.transpose(lost), strict=True):
                span = f"{each.min():.3f} to {each.max():.3f}"
                lines.append([name, n, f"{share:.0%}", f"{each.mean():.3f}", span])
    header = ["table", "rows", "missing", "nats", "range"]
    text = TEXTS("What missing cells cost", seeds=seeds)
    return [text, table(header, lines)]


def section(seeds, names=tuple(TABLES), shares=SHARES):
    """Return the parts of the section."""
    found = {}
    for name in names:
        for seed in range(seeds):
            for key, *figures in one_table(name, seed, shares):
                found.setdefault(key, []).append(figures)
                print(*key, *(f"{one:.3g}" for one in figures), flush=True)
    rows = [
        [*key, *(f"{one:.3f}" for one in np.mean(some, 0)[:3])]
        + [f"{sum(one[3] for one in some)} of {seeds}", f"{np.mean(some, 0)[4]:.0f}"]
        for key, some in found.items()
    ]
    header = ["table", "missing", "draws", "nats", "nats, complete rows alone"]
    header += ["`bound_gap_`", "warned", "time"]
    notes = TEXTS("Means over tables of", seeds=seeds)
    text = TEXTS("A missing cell of these")
    title = "## Cells with several modes"
    return [title, made_by("vnce_modes.py", notes), table(header, rows), text]


def main():
    """Print the section."""
    asked = options_of(__doc__, {}, seeds=3, limits=0)
    if asked.limits:
        print("\n\n".join(limits(asked.limits)))
        return
    ways = (1, ("ring",), SHARES[:1]) if asked.quick else (asked.seeds,)
    print("\n\n".join(section(*ways)))


if __name__ == "__main__":
    main()
