"""Does variational Gibbs inference estimate factor analysis as well as EM does?

    python benchmarks/vgi_factor_analysis.py [--quick] [--records found.jsonl]
        [--output doc/benchmarks/vgi_factor_analysis.md]

Figures 3 to 7 of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for
statistical model estimation from incomplete data: factor analysis of six columns and
two latents, one to five of six cells missing completely at random.  For this model EM
is exact, so it is what any method of this kind may hope for.  With `--records` what was
fitted is kept in a file, and a later run goes on from there.
"""

import argparse
import json
import sys
import time
import warnings
from math import cos, pi
from pathlib import Path

import numpy as np
import torch
from _report import made_by, publish, table
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from skvnce._incomplete import Incomplete
from skvnce.algorithms.factor_analysis import fit_factors
from skvnce.algorithms.vgi import (
    Chains,
    Effort,
    Pair,
    from_marginals,
    train,
    warm_up_conditionals,
)
from skvnce.models.factor_analysis import FactorModel, infer
from skvnce.models.factor_density import FactorDensity
from skvnce.variational.gibbs import ExtendedConditionals, StandardConditionals
from skvnce.variational.heads import NormalHead

# The truth is that of appendix K, but for the sign of a loading and a digit of a noise
# variance, in which the printed tables differ from the data that were used.
TRUTH = FactorModel(
    torch.tensor([3.0, -1, 0, 2, -1, 0]).double(),
    torch.tensor([[-5.0, -2], [4, 0], [3, -1], [-3, -3], [1, 5], [-1, 2]]).double(),
    torch.tensor([50.4794, 30.0988, 6.7666, 17.3357, 40.9839, 25.1122]).double(),
)
D, RANK = TRUTH.loadings.shape
N_TRAIN, N_TEST = 6400, 5000
K = 5  # chains of a row, and imputations of the baselines
EFFORT = Effort(
    n_updates=3, n_selected=1, batch_size=2048, learning_rate=0.5, q_learning_rate=0.1
)
Q_WARM_UP, WARM_UP = 30, 25  # epochs
FRACTIONS = [k / D for k in range(1, D)]
SEEDS = range(20, 23)
SIZES = [1000, 2000, 4000, 8000, 16000]
SIZE_SEEDS = range(20, 25)
STEPS = 800
DATA_SEED = 2027
GOAL = 1.5
EM = {"floor": 1e-6, "max_iter": 3000, "tol": 1e-6}


def simulate(n, *seed):
    """Draw complete rows; (n, 6)."""
    rng = np.random.default_rng([DATA_SEED, *seed])
    root = np.linalg.cholesky(TRUTH.covariance().numpy())
    return torch.tensor(rng.normal(size=(n, D)) @ root.T + TRUTH.mean.numpy())


def hide(x, fraction, seed):
    """Hide cells completely at random; rows of which nothing is left are dropped."""
    rng = np.random.default_rng([DATA_SEED, seed])
    observed = torch.tensor(rng.uniform(size=x.shape) >= fraction)
    kept = observed.any(1)
    x, observed = x[kept], observed[kept]
    return Incomplete(x.where(observed, 0.0), observed)


def complete(x):
    """Make a table without holes."""
    return Incomplete(x, torch.ones_like(x, dtype=torch.bool))


def standardised(data):
    """Scale columns by their observed cells; the table, their means and spreads."""
    count = data.observed.sum(0)
    mean = data.x.sum(0) / count
    centred = (data.x - mean).where(data.observed, 0.0)
    spread = (centred.square().sum(0) / count).sqrt()
    return Incomplete(centred / spread, data.observed), mean, spread


def in_units(model, mean, spread):
    """Undo the scaling of columns."""
    return FactorModel(
        mean + spread * model.mean,
        spread[:, None] * model.loadings,
        spread.square() * model.noise_variance,
    )


def fit_em(data, weight=1.0):
    """Fit by exact EM."""
    scaled, mean, spread = standardised(data)
    weights = torch.full((len(data.x),), weight, dtype=torch.float64)
    return in_units(fit_factors(scaled, weights, RANK, **EM).model, mean, spread)


def fit_stacked(tables):
    """Fit by exact EM to several completed tables, stacked; (K, n, 6)."""
    return fit_em(complete(tables.flatten(0, 1)), 1 / len(tables))


def fit_marginal(data, seed):
    """Fill by observed cells of the same column, and fit."""
    torch.manual_seed(seed)
    return fit_stacked(from_marginals(data, K))


def fit_mice(data, seed):
    """Fill by draws of scikit-learn's chained regressions, and fit."""
    tables = [
        IterativeImputer(
            sample_posterior=True, random_state=100 * seed + k
        ).fit_transform(data.to_array())
        for k in range(K)
    ]
    return fit_stacked(torch.tensor(np.stack(tables)))


def fit_mean_field(data, start, max_iter=5000, tol=1e-8):
    """Fit by EM whose posterior of a row's missing cells is a product (figure 3).

    Of a normal row the best product has the exact means, and the variances 1 / K_jj of
    the precision matrix K.  Each round takes that and makes one step of EM for complete
    rows, so that the bound never falls; it starts at the exact fit.
    """
    model, hidden = start, (~data.observed).double().mean(0)
    for _ in range(max_iter):
        found = infer(model, *data)
        cells = model.mean + found.mean @ model.loadings.T
        x = data.x.where(data.observed, cells)
        mean, precision = x.mean(0), model.precision()
        spread = (x - mean).T @ (x - mean) / len(x)
        spread += (hidden / precision.diagonal()).diag()
        slopes = model.loadings.T @ precision
        cross = spread @ slopes.T
        latent = torch.eye(RANK).to(x) - slopes @ model.loadings + slopes @ cross
        loadings = torch.linalg.solve(latent, cross.T).T
        noise = spread.diagonal() - (loadings * cross).sum(1)
        last, model = model, FactorModel(mean, loadings, noise)
        if float(normal(last, model)) < tol:
            break
    return model


def independent():
    """Make conditionals each with a network of its own."""
    return StandardConditionals(D, NormalHead(), nn.Identity(), D, (3, 3))


def body():
    """Make the layers that all conditionals share."""
    return nn.Sequential(
        nn.Linear(D, 18), nn.LeakyReLU(0.01), nn.Linear(18, 18), nn.LeakyReLU(0.01)
    )


def shared():
    """Make conditionals that share a body."""
    return StandardConditionals(D, NormalHead(), body(), 18, (3,))


def extended():
    """Make conditionals that share a body, which sees the cell's previous value."""
    return ExtendedConditionals(D, NormalHead(), body(), 18, (3,))


CONDITIONALS = {"independent": independent, "shared": shared, "extended": extended}


def start_model():
    """Start where the paper does."""
    zero = torch.zeros(D)
    return FactorDensity(zero, torch.randn(D, RANK), torch.ones(D))


def fit_vgi(data, conditionals, seed, n_steps, effort=EFFORT):
    """Fit by variational Gibbs inference, as the paper does but for the schedule.

    In the second warm-up model and conditionals learn from the objective and the chains
    rest; then the learning rates fall to zero along half a cosine.
    """
    torch.manual_seed(seed)
    data = Incomplete(data.x.float(), data.observed)
    chains = Chains(data, from_marginals(data, K))
    pair = Pair(start_model(), conditionals())
    per_epoch = -(-len(data.x) // effort.batch_size)
    n_epochs = -(-n_steps // per_epoch)
    warm_up_conditionals(
        pair.conditionals,
        chains,
        n_epochs=-(-4 * Q_WARM_UP // per_epoch),
        learning_rate=effort.q_learning_rate,
        batch_size=effort.batch_size,
    )
    train(
        pair,
        chains,
        effort._replace(n_updates=0),
        n_epochs=-(-4 * WARM_UP // per_epoch),
    )
    train(
        pair,
        chains,
        effort,
        n_epochs=n_epochs,
        schedule=lambda epoch: (1 + cos(pi * epoch / n_epochs)) / 2,
    )
    model = FactorModel(*(part.double() for part in pair.model.factors()))
    return model, pair.conditionals, chains


def normal(model, other):
    """Compute KL(N of one model || N of another)."""
    p, q = (MultivariateNormal(m.mean, m.covariance()) for m in (model, other))
    return kl_divergence(p, q)


@torch.no_grad()
def conditional_kl(conditionals, model, x):
    """Compute KL(q_j || p_j) of all conditionals of rows; (n, 6)."""
    q = conditionals.all(x.float())
    precision, apart = model.precision(), x - model.mean
    variance = 1 / precision.diagonal()
    loc = x - (apart @ precision) * variance
    p = torch.distributions.Normal(loc, variance.sqrt())
    q = torch.distributions.Normal(q.loc.double(), q.scale.double())
    return kl_divergence(q, p)


def parameter_error(model):
    """Compute the RMSE of loadings, means and log-variances, rotated to the truth."""
    left, _, right = torch.linalg.svd(model.loadings.T @ TRUTH.loadings)
    apart = [
        (model.loadings @ left @ right - TRUTH.loadings).flatten(),
        model.mean - TRUTH.mean,
        (model.noise_variance / TRUTH.noise_variance).log(),
    ]
    return float(torch.cat(apart).square().mean().sqrt())


def covariance_error(model):
    """Compute the RMSE of the covariance, as that of correlations of the truth."""
    S = TRUTH.covariance()
    spread = S.diagonal().sqrt()
    apart = (model.covariance() - S) / torch.outer(spread, spread)
    return float(apart.square().mean().sqrt())


def accuracy(fraction, seed, n_train, n_steps, n_test):
    """Fit all methods to one mask."""
    x, test = simulate(n_train, 0), simulate(n_test, 1)
    data = hide(x, fraction, seed)
    exact = fit_em(data)
    fits = {
        "EM, complete data": fit_em(complete(x)),
        "EM": exact,
        "observed marginals": fit_marginal(data, seed),
        "chained regressions": fit_mice(data, seed),
        "mean field": fit_mean_field(data, exact),
    }
    found = {"rows": len(data.x)}
    for name, make in CONDITIONALS.items():
        begin = time.process_time()
        model, q, chains = fit_vgi(data, make, seed, n_steps)
        found[f"seconds, {name}"] = time.process_time() - begin
        found[f"outside, {name}"] = int(chains.n_outside.sum())
        for target, exactly in (("truth", TRUTH), ("model", model)):
            values = conditional_kl(q, exactly, test)
            found[f"{target}, {name}"] = float(values.median())
            found[f"{target}, {name}, 95%"] = float(values.quantile(0.95))
        fits[f"VGI, {name}"] = model
    return found | {name: float(normal(TRUTH, model)) for name, model in fits.items()}


def consistency(n, seed, n_steps):
    """Fit VGI and EM to rows of their own, half of the cells missing."""
    data = hide(simulate(n, 2, seed), 0.5, seed)
    found = {}
    for name, model in (
        ("EM", fit_em(data)),
        ("VGI", fit_vgi(data, independent, seed, n_steps)[0]),
    ):
        found |= {
            f"parameters, {name}": parameter_error(model),
            f"covariance, {name}": covariance_error(model),
            f"KL, {name}": float(normal(TRUTH, model)),
        }
    return found


class Records:
    """What was fitted, in a file of lines where one is named.

    Parameters
    ----------
    path : str or None
    """

    def __init__(self, path):
        self.path, self.found = path, {}
        if path and Path(path).exists():
            for line in Path(path).read_text().splitlines():
                key, value = json.loads(line)
                self.found[tuple(key)] = value

    def get(self, function, *arguments):
        """Return what a function gives, and compute it once."""
        key = function.__name__, *arguments
        if key not in self.found:
            begin = time.perf_counter()
            self.found[key] = function(*arguments)
            print(f"{key}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
            if self.path:
                with Path(self.path).open("a") as file:
                    file.write(json.dumps([key, self.found[key]]) + "\n")
        return self.found[key]
