"""Does variational Gibbs inference estimate factor analysis as well as EM does?

    python benchmarks/vgi_factor_analysis.py [--quick] [--results FILE] [--output FILE]

Figures 3 to 7 of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for
statistical model estimation from incomplete data: factor analysis of six columns and
two latents, one to five of six cells missing completely at random.  For this model EM
is exact, so it is what any method of this kind may hope for.  With `--results` what was
fitted is kept in a file, and a later run goes on from there.
"""

import time
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from _paper import medians, slopes
from _report import specs
from _runner import main_of
from scipy.linalg import cholesky
from scipy.linalg.lapack import strtri
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence
from torch.optim.swa_utils import AveragedModel

from skvnce._core.incomplete import Incomplete, Rows
from skvnce.autoencoder.factor_analysis import (
    FactorModel,
    fit_covariance,
    fit_factors,
    infer,
)
from skvnce.vgi import training
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    NormalHead,
    StandardConditionals,
)
from skvnce.vgi.densities import FactorDensity

# The truth is that of appendix K, but for the sign of a loading and a digit of a noise
# variance, in which the printed tables differ from the data that were used.
TRUTH = FactorModel(
    torch.tensor([3.0, -1, 0, 2, -1, 0]).double(),
    torch.tensor([[-5.0, -2], [4, 0], [3, -1], [-3, -3], [1, 5], [-1, 2]]).double(),
    torch.tensor([50.4794, 30.0988, 6.7666, 17.3357, 40.9839, 25.1122]).double(),
)
D, RANK = TRUTH.loadings.shape
N_TEST = 5000
K = 5  # chains of a row, and imputations of the baselines
EFFORT = training.TrainingSettings(
    n_updates=3, n_selected=1, batch_size=2048, learning_rate=0.1, q_learning_rate=0.02
)
Q_WARM_UP, WARM_UP = 120, 100  # steps
DATA_SEED = 2027
LOWER = 0.2  # factor of the learning rates after a third of the epochs
EM = {"floor": 1e-6, "max_iter": 3000, "tol": 1e-6}


def simulate(n, *seed):
    """Draw complete rows; (n, 6)."""
    rng = np.random.default_rng([DATA_SEED, *seed])
    root = np.linalg.cholesky(TRUTH.covariance().numpy())
    return torch.tensor(rng.normal(size=(n, D)) @ root.T + TRUTH.mean.numpy())


def incomplete(x, observed):
    """Make a table; rows of which nothing is observed are dropped."""
    kept = observed.any(1)
    return Incomplete(x.where(observed, 0.0)[kept], observed[kept])


def hide(x, fraction, seed):
    """Hide cells completely at random."""
    rng = np.random.default_rng([DATA_SEED, seed])
    return incomplete(x, torch.tensor(rng.uniform(size=x.shape) >= fraction))


def complete(x):
    """Make a table without missing values."""
    return Incomplete(x, torch.ones_like(x, dtype=torch.bool))


def standardised(data):
    """Scale columns by their observed cells; the table, their means and spreads."""
    count = data.observed.sum(0)
    mean = data.x.sum(0) / count
    centred = (data.x - mean).where(data.observed, 0.0)
    std = (centred.square().sum(0) / count).sqrt()
    return Incomplete(centred / std, data.observed), mean, std


def in_units(model, mean, std):
    """Undo the scaling of columns."""
    return FactorModel(
        mean + std * model.mean,
        std[:, None] * model.loadings,
        std.square() * model.noise_variance,
    )


def fit_em(data, rank=RANK, limits=EM):
    """Fit by exact EM."""
    scaled, mean, std = standardised(data)
    weights = torch.ones(len(data.x), dtype=torch.float64)
    fit = fit_factors(Rows(scaled, weights), rank, **limits)
    return in_units(fit.model, mean, std)


def fit_complete(x, rank=RANK, limits=EM):
    """Fit by EM to complete rows, of which it needs the moments alone; (*batch, d)."""
    scaled, mean, std = standardised(complete(x.flatten(0, -2)))
    found = fit_covariance(
        torch.zeros_like(mean),
        scaled.x.T @ scaled.x / len(scaled.x),
        rank,
        floor=limits["floor"],
        n_rounds=limits["max_iter"],
    )
    return in_units(found, mean, std)


def draw_rows(model, data, n):
    """Complete rows by n draws of p(x_mis | x_obs); (n, rows, columns)."""
    found = infer(model, *data)
    noise = torch.randn(n, *found.mean.shape, 1).to(data.x)
    root = found.factor.mT.expand(n, *found.factor.shape)
    z = found.mean + torch.linalg.solve_triangular(root, noise, upper=True)[..., 0]
    x = model.mean + z @ model.loadings.T
    x = x + model.noise_variance.sqrt() * torch.randn(n, *data.x.shape).to(x)
    return data.with_values(x)


def fit_marginal(data, seed):
    """Fill by observed cells of the same column, and fit."""
    torch.manual_seed(seed)
    return fit_complete(training.from_marginals(data, K))


def chained(data, rng, n_sweeps=10):
    """Complete a table by draws of chained Bayesian ridge regressions.

    What scikit-learn's IterativeImputer does with ``sample_posterior=True``: it starts
    at the means, columns with the fewest missing cells come first, and each cell is
    drawn from the predictive distribution of its column.  Here the precisions of noise
    and slopes are those of the last sweep but for two steps of their fixed point.
    """
    scaled, mean, std = standardised(data)
    x, observed = scaled.x.numpy().astype(np.float32), data.observed.numpy()
    d = x.shape[1]
    unit, precisions = np.eye(d, dtype=x.dtype), np.ones((d, 2), x.dtype)
    for _, j in product(range(n_sweeps), np.argsort(-observed.sum(0), kind="stable")):
        seen = observed[:, j]
        others, y = x - x[seen].mean(0), x[seen, j]
        others[:, j] = 0  # its slope is then zero, and not one of those fitted
        z, level = others[seen], y.mean()
        gram, cross = z.T @ z, z.T @ (y - level)
        noise, ridge = precisions[j]
        for _ in range(2):
            root = cholesky(noise * gram + ridge * unit, lower=True)
            inverse = strtri(root, lower=1)[0]
            slopes = noise * (inverse.T @ (inverse @ cross))
            n_fitted = d - ridge * (inverse**2).sum()
            ridge = n_fitted / (slopes @ slopes)
            noise = (len(y) - n_fitted) / ((y - level - z @ slopes) ** 2).sum()
        precisions[j] = noise, ridge
        apart = others[~seen]
        variance = 1 / noise + ((apart @ inverse.T) ** 2).sum(1)
        draws = rng.normal(size=len(apart)) * np.sqrt(variance)
        x[~seen, j] = level + apart @ slopes + draws
    return data.with_values(mean + std * torch.tensor(x).double())


def fit_mice(data, seed):
    """Fill by draws of chained regressions, and fit."""
    tables = [chained(data, np.random.default_rng([seed, k])) for k in range(K)]
    return fit_complete(torch.stack(tables))


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
        std = (x - mean).T @ (x - mean) / len(x)
        std += (hidden / precision.diagonal()).diag()
        slopes = model.loadings.T @ precision
        cross = std @ slopes.T
        latent = torch.eye(RANK).to(x) - slopes @ model.loadings + slopes @ cross
        loadings = torch.linalg.solve(latent, cross.T).T
        noise = std.diagonal() - (loadings * cross).sum(1)
        last, model = model, FactorModel(mean, loadings, noise)
        if float(normal(last, model)) < tol:
            break
    return model


def shared(kind=StandardConditionals, d=D, width=18, hidden=(3,), head=NormalHead):
    """Make conditionals that share a body of two layers."""
    rectifier = nn.LeakyReLU(0.01)
    layers = nn.Linear(d, width), rectifier, nn.Linear(width, width), rectifier
    return kind(d, head(), nn.Sequential(*layers), width, hidden)


# independent ones have networks of their own; extended ones see the previous value
CONDITIONALS = {
    "independent": lambda: StandardConditionals(
        D, NormalHead(), nn.Identity(), D, (3, 3)
    ),
    "shared": shared,
    "extended": partial(shared, ExtendedConditionals),
}


def start_model():
    """Start where the paper does."""
    zero = torch.zeros(D)
    return FactorDensity(zero, torch.randn(D, RANK), torch.ones(D))


def fit_vgi(data, conditionals, seed, n_steps, settings=EFFORT):
    """Fit by variational Gibbs inference, as the paper does but for the schedule.

    In the second warm-up model and conditionals learn from the objective and the chains
    rest.  After a third of the main stage the learning rates fall to `LOWER` of what
    they were, and both are averaged from the middle on (Polyak).
    """
    torch.manual_seed(seed)
    scaled, mean, std = standardised(data)
    data = Incomplete(scaled.x.float(), data.observed)
    chains = training.Chains(data, training.from_marginals(data, K))
    pair = training.Pair(start_model(), conditionals())
    per_epoch = -(-len(data.x) // settings.batch_size)
    settings = settings._replace(batch_size=-(-len(data.x) // per_epoch))  # equal ones
    n_epochs = -(-n_steps // per_epoch)
    averages = [AveragedModel(part) for part in pair]

    def follow(epoch, loss):
        if epoch > n_epochs / 2:
            for average, part in zip(averages, pair, strict=True):
                average.update_parameters(part)
        return False

    training.warm_up_conditionals(
        pair.conditionals,
        chains,
        n_epochs=-(-Q_WARM_UP // per_epoch),
        learning_rate=settings.q_learning_rate,
        batch_size=settings.batch_size,
    )
    training.train(
        pair, chains, settings._replace(n_updates=0), n_epochs=-(-WARM_UP // per_epoch)
    )
    training.train(
        pair,
        chains,
        settings,
        n_epochs=n_epochs,
        schedule=lambda epoch: 1.0 if epoch < n_epochs / 3 else LOWER,
        on_epoch=follow,
    )
    model = FactorModel(*(part.double() for part in averages[0].module.factors()))
    return (in_units(model, mean, std), Scaled(averages[1].module, mean, std), chains)


def normal(model, other):
    """Compute KL(N of one model || N of another)."""
    p, q = (MultivariateNormal(m.mean, m.covariance()) for m in (model, other))
    return kl_divergence(p, q)


AT_ONCE = 2**24  # size of rows, once for each of their columns, in memory


class Scaled(NamedTuple):
    """Normal conditionals of columns that were scaled."""

    conditionals: nn.Module
    mean: torch.Tensor
    std: torch.Tensor

    def all(self, x):
        """Give all conditionals of rows in their own units."""
        d, parts = x.shape[1], []
        for rows in ((x - self.mean) / self.std).float().split(max(1, AT_ONCE // d**2)):
            columns = torch.arange(d).expand(rows.shape)
            q = self.conditionals.at(rows[:, None].expand(-1, d, -1), columns)
            parts.append((q.loc.double(), q.scale.double()))
        loc, scale = map(torch.cat, zip(*parts, strict=True))
        return torch.distributions.Normal(self.mean + self.std * loc, self.std * scale)


@torch.no_grad()
def conditional_kl(conditionals, model, x):
    """Compute KL(q_j || p_j) of all conditionals of rows; (n, 6)."""
    q = conditionals.all(x)
    precision, apart = model.precision(), x - model.mean
    variance = 1 / precision.diagonal()
    loc = x - (apart @ precision) * variance
    p = torch.distributions.Normal(loc, variance.sqrt())
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
    std = S.diagonal().sqrt()
    apart = (model.covariance() - S) / torch.outer(std, std)
    return float(apart.square().mean().sqrt())


def accuracy(fraction, seed, size):
    """Fit all methods to one mask; a record for each."""
    x, test = simulate(size.n_train, 0), simulate(N_TEST, 1)
    data = hide(x, fraction, seed)
    exact = fit_em(data)
    fits = {
        "EM, complete data": fit_complete(x),
        "EM": exact,
        "observed marginals": fit_marginal(data, seed),
        "chained regressions": fit_mice(data, seed),
        "mean field": fit_mean_field(data, exact),
    }
    for name, model in fits.items():
        yield {"method": name, "kl": float(normal(TRUTH, model))}
    for name, make in CONDITIONALS.items():
        begin = time.process_time()
        model, q, chains = fit_vgi(data, make, seed, size.n_steps)
        seconds = time.process_time() - begin
        near = {
            f"to the {target}": float(conditional_kl(q, exactly, test).median())
            for target, exactly in (("truth", TRUTH), ("model", model))
        }
        found = {"method": f"VGI, {name}", "kl": float(normal(TRUTH, model)), **near}
        yield found | {"seconds": seconds, "outside": int(chains.n_outside.sum())}


def consistency(n, seed, size):
    """Fit VGI and EM to rows of their own, half of the cells missing."""
    data = hide(simulate(n, 2, seed), 0.5, seed)
    fits = {
        "EM": fit_em(data),
        "VGI": fit_vgi(data, CONDITIONALS["independent"], seed, size.n_steps)[0],
    }
    for name, model in fits.items():
        yield {
            "method": name,
            "parameters": parameter_error(model),
            "covariance": covariance_error(model),
            "kl": float(normal(TRUTH, model)),
        }


class Size(NamedTuple):
    """How much is fitted."""

    fractions: tuple
    n_train: int
    n_steps: int
    sizes: tuple
    seeds: int


FULL = Size((1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6), 6400, 800, (1000, 4000, 16000), 3)
QUICK = Size((0.5,), 500, 40, (200, 400, 800), 1)


def cells(options):
    """List the fits: of both parts the fractions, or numbers of rows, and the seeds."""
    size = QUICK if options.quick else FULL
    for seed in range(20, 20 + size.seeds):
        for fraction in size.fractions:
            yield {"part": "accuracy", "fraction": fraction, "seed": seed}
        for n in size.sizes:
            yield {"part": "consistency", "n": n, "seed": seed}


def measured(key, options):
    """Fit."""
    part, *arguments = key.values()
    size = QUICK if options.quick else FULL
    return {"accuracy": accuracy, "consistency": consistency}[part](*arguments, size)


SCORES, ERRORS = specs("vgi_factor_analysis").values()


def values(results, options):
    """Make medians of divergences and errors, and slopes over the number of rows."""
    accurate, consistent = (results.of(part=p) for p in ("accuracy", "consistency"))
    return {
        "divergences": medians(accurate, ("fraction", "method"), SCORES),
        "errors": medians(consistent, ("n", "method"), ERRORS),
        "slopes_of_errors": slopes(consistent, ("method",), "n", ERRORS),
    }


main = main_of(globals(), {})
