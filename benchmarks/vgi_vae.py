"""Variational Gibbs inference of variational autoencoders, beside MVAE and MIWAE.

    python benchmarks/vgi_vae.py --results FILE [--only-report] [--quick]
        [--only missing=0.5 seed=0] [--output FILE]

Figures 8 and 9 of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for
statistical model estimation from incomplete data, with fewer columns: an autoencoder is
fitted to the Frey faces, and autoencoders of the same form are fitted to rows that it
generates, of which most cells are missing completely at random.  Each is trained until
incomplete validation rows have become no likelier for some epochs.  The score is
log p(x) of complete test rows.  Each result is a line of FILE.  Those that are there
are not computed again, and the report is written from FILE alone.
"""

import copy
import math
import time
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from _data import blocks, folder
from _paper import along, medians, spread
from _report import by, lines
from _runner import main_of
from _vae_networks import (
    Completed,
    IndependentNormalEncoder,
    Masked,
    NormalLatentCells,
    half_cosine,
    minimise,
    train,
)
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal
from torch.func import jvp, vmap
from vgi_factor_analysis import complete as whole
from vgi_factor_analysis import draw_rows, incomplete, shared

from skvnce._core.incomplete import Incomplete, Rows
from skvnce._core.models import log_joint
from skvnce._core.random import global_stream
from skvnce.autoencoder import losses
from skvnce.autoencoder.factor_analysis import fit_factors, log_prob_observed
from skvnce.autoencoder.losses import miss_iwae, miss_vae
from skvnce.datasets import load_frey_faces
from skvnce.vgi import training
from skvnce.vgi.conditionals import ExtendedConditionals, anchor
from skvnce.vgi.densities import LatentDensity
from skvnce.vgi.training import observed_hypercube

DAMPED = 1e-2  # share of the diagonal that scoring adds at first
WIDER = 1.15  # the proposal's deviations over those at the mode


def information(model, observed, z):
    """Compute the Fisher information of z in rows, that of its prior included.

    Of a normal of mean m(z) and log-variance v(z), the sum over observed columns of
    dm dm' / variance + dv dv' / 2, plus the identity; (n, latents, latents).
    """
    eye = torch.eye(z.shape[-1]).to(z)
    slopes = vmap(lambda e: jvp(model.network, (z,), (e.expand_as(z),))[1])(eye)
    slopes = slopes.movedim(0, -1) * torch.cat([observed, observed], -1)[..., None]
    of_mean, of_log_variance = slopes.chunk(2, 1)  # (n, features, latents)
    of_mean = of_mean / model.likelihood(z).scale[..., None]
    return (
        of_mean.mT @ of_mean + of_log_variance.mT @ of_log_variance / 2 + eye
    ).detach()


def climb(model, x, observed, z, n_steps):
    """Climb log p(x_obs, z) by damped Fisher scoring; z and its value."""
    with torch.no_grad():
        height = log_joint(model, x, observed, z)
    damped = torch.full_like(height, DAMPED)
    for _ in range(n_steps):
        at = z.detach().requires_grad_()
        with torch.enable_grad():
            total = log_joint(model, x, observed, at).sum()
            (slope,) = torch.autograd.grad(total, at)
        matrix = information(model, observed, z)
        diagonal = matrix.diagonal(dim1=-2, dim2=-1) * damped[:, None]
        moved = z + torch.linalg.solve(matrix + diagonal.diag_embed(), slope)
        with torch.no_grad():
            found = log_joint(model, x, observed, moved)
        taken = found > height
        z = moved.where(taken[:, None], z)
        height = found.where(taken, height)
        damped = (damped * torch.where(taken, 0.2, 5.0)).clamp(1e-6, 1e6)
    return z, height


def highest(model, x, observed, starts, n_steps):
    """Climb from starts (n_starts, n, latents); the highest mode of each row."""
    ends = [climb(model, x, observed, start, n_steps) for start in starts]
    z, height = (torch.stack(part) for part in zip(*ends, strict=True))
    return z[height.argmax(0), torch.arange(z.shape[1])]


@torch.no_grad()
def log_likelihood(model, x, observed, modes, n_draws, at_once=100):
    """Estimate log p(x_obs) of rows; (n,), and effective numbers of draws (n,)."""
    found, sizes = [], []
    matrix = information(model, observed, modes) / WIDER**2
    matrix = (matrix + matrix.mT) / 2  # exactly, as torch asks for
    for rows in torch.arange(len(x)).split(at_once):
        q = MultivariateNormal(modes[rows], precision_matrix=matrix[rows])
        weights = []
        for some in torch.arange(n_draws).split(at_once):
            z = q.sample((len(some),))
            joint = log_joint(model, x[rows], observed[rows], z)
            weights.append(joint - q.log_prob(z))
        weights = torch.cat(weights)
        found.append(weights.logsumexp(0) - math.log(n_draws))
        sizes.append(1 / weights.softmax(0).square().sum(0))
    return torch.cat(found), torch.cat(sizes)


HEIGHT, WIDTH = 28, 20
SIDE = 4  # of the squares of pixels that are averaged
D = HEIGHT * WIDTH // SIDE**2
LATENTS, HIDDEN, BODY, HEAD = 10, 200, 100, 50
CHAINS, UPDATES, SELECTED, IMPORTANCE = 3, 5, 1, 5
BATCH, RATE, Q_RATE, WARM_UP = 128, 1e-2, 3e-4, 10
RATE_OF_TRUTH = 2e-3
COMPLETE, MARGINAL, BLOCK, GIBBS = "VAE, complete data", "VBGI-VAE-M", "VBGI-VAE", "VGI"
LINEAR = "factor analysis by EM"
RIVALS = "MVAE", "MIWAE"


class Size(NamedTuple):
    """How much is fitted, and when training ends: see `Selection`."""

    n_rows: tuple = (2400, 400, 1000)  # train, validation, test
    n_epochs: int = 1500
    every: int = 25
    patience: int = 100
    n_draws: int = 1000  # of the latents of a test row
    n_of_truth: int = 300  # epochs


FULL = Size()
QUICK = Size((300, 60, 60), 4, 2, 4, 100, 4)
N_FOLLOWED = 250  # test rows of the curves
SECONDS = 1, 2, 5, 10, 20, 40, 80, 160


def faces():
    """Read the faces: squares averaged, logits with a margin of 0.15, centred."""
    pixels = load_frey_faces(data_home=folder()).data / 255
    share = 0.15 + 0.7 * blocks(pixels, HEIGHT, WIDTH, SIDE)
    x = np.log(share / (1 - share))
    return torch.tensor(x - x.mean(0)).float()


def perceptron(n_in, n_out):
    """Make a network of one hidden layer."""
    return nn.Sequential(
        nn.Linear(n_in, HIDDEN), nn.Sigmoid(), nn.Linear(HIDDEN, n_out)
    )


class Decoder(nn.Module):
    """Normal columns given normal latents, each with a variance of its own."""

    def __init__(self):
        super().__init__()
        self.network = perceptron(LATENTS, 2 * D)

    def prior(self):
        """Return p(z)."""
        normal = Normal(torch.zeros(LATENTS), 1.0, validate_args=False)
        return Independent(normal, 1, validate_args=False)

    def likelihood(self, z):
        """Return p(x_j | z) of all j."""
        loc, log_variance = self.network(z).chunk(2, -1)
        scale = (log_variance / 2).clamp(-12, 12).exp()
        return Normal(loc, scale, validate_args=False)


def encoder_of(reader):
    """Make the encoder that reads completed or masked rows."""
    network = reader(lambda n_tables: perceptron(n_tables * D, 2 * LATENTS))
    return IndependentNormalEncoder(network)


@cache
def generator(n_epochs):
    """Fit the autoencoder that generates the rows."""
    torch.manual_seed(0)
    model, posterior = Decoder(), encoder_of(Completed)
    settings = TrainingSettings(n_epochs, RATE_OF_TRUTH)
    by_bound(miss_vae, 1)(model, posterior, whole(faces()), settings)
    return model.requires_grad_(False)


class TrainingSettings(NamedTuple):
    """How long and how fast to train, and what is shown each epoch and its loss."""

    n_epochs: int
    rate: float = RATE
    on_epoch: Callable[[int, float], bool] = lambda epoch, loss: False


class Problem(NamedTuple):
    """Rows of one truth with one mask, standardised by observed training cells."""

    train: Incomplete
    validation: Incomplete
    test: Incomplete  # complete
    complete: Incomplete  # the training rows without missing values
    log_unit: float  # what a log-density of these units exceeds that of the faces' by


def problem(truth, size, missing, seed):
    """Draw rows, the same at all seeds, and hide cells, by the seed."""
    torch.manual_seed(1)
    x = truth.likelihood(torch.randn(sum(size.n_rows), LATENTS)).sample()
    train, validation, test = x.split(size.n_rows)
    random = torch.Generator().manual_seed(seed)
    seen = [
        torch.rand(p.shape, generator=random) >= missing for p in (train, validation)
    ]
    count = seen[0].sum(0)
    mean = (train * seen[0]).sum(0) / count
    std = (((train - mean) ** 2 * seen[0]).sum(0) / count).sqrt()

    full = [whole((rows - mean) / std) for rows in (test, train)]
    pairs = zip((train, validation), seen, strict=True)
    parts = [incomplete((rows - mean) / std, observed) for rows, observed in pairs]
    return Problem(*parts, *full, float(std.log().sum()))


class Followed:
    """Estimate the mean log p(x_obs) of rows at some epochs of a training.

    All methods alike: by importance sampling around modes of the latents, which are
    followed from one estimate to the next.
    """

    def __init__(self, model, data, n_draws=100):
        self.model, self.data, self.n_draws, self.modes = model, data, n_draws, None

    def estimate(self):
        """Compute it, with the same random numbers each time."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            if self.modes is None:
                starts = torch.randn(3, len(self.data.x), LATENTS)
                starts[0] = 0.0
                self.modes = highest(self.model, *self.data, starts, 15)
            self.modes, _ = climb(self.model, *self.data, self.modes, 8)
            found = log_likelihood(self.model, *self.data, self.modes, self.n_draws)
        return float(found[0].mean())


class Selection:
    """Keep the epoch at which incomplete validation rows are likeliest, and stop.

    Training stops if they have become no likelier for `patience` epochs.  Complete test
    rows are followed for the curves, and have no part in this.

    Attributes
    ----------
    best : tuple
        Epoch, log-likelihood of validation rows, state of the model.
    path : list of tuples
        Epoch, CPU seconds of training, log-likelihoods of validation and test rows.
    """

    def __init__(self, model, validation, test, size):
        self.model, self.every, self.patience = model, size.every, size.patience
        self.followed = Followed(model, validation), Followed(model, test)
        self.best, self.path = None, []
        self.begin, self.aside = time.process_time(), 0.0

    def __call__(self, epoch, loss):
        """Judge now and then; a training loop calls it after every epoch."""
        if epoch % self.every:
            return False
        begin = time.process_time()
        self.evaluate(epoch, begin - self.begin - self.aside)
        self.aside += time.process_time() - begin
        return epoch - self.best[0] >= self.patience

    def evaluate(self, epoch, seconds):
        """Estimate both log-likelihoods, and keep the model if it is best."""
        found = [followed.estimate() for followed in self.followed]
        self.path.append((epoch, seconds, *found))
        if self.best is None or found[0] > self.best[1]:
            self.best = epoch, found[0], copy.deepcopy(self.model.state_dict())


def refitted(model, posterior, data, n_epochs=150):
    """Refit a copy of an encoder to complete rows; the model stays."""
    posterior, settings = copy.deepcopy(posterior), TrainingSettings(n_epochs, 2e-3)
    by_bound(miss_vae, 1, cosine=True)(model, posterior, data, settings)
    return posterior.requires_grad_(False)


def test_score(model, posterior, data, n_draws):
    """Estimate the mean log p(x) of complete rows, its error and the draws' worth."""
    torch.manual_seed(0)
    model = copy.deepcopy(model).requires_grad_(False)
    encoded = refitted(model, posterior, data)(*data).base_dist.loc
    starts = torch.stack([encoded, torch.zeros_like(encoded)])
    modes = highest(model, *data, starts, 20)
    found, worth = log_likelihood(model, *data, modes, n_draws)
    return float(found.mean()), float(worth.quantile(0.05)) / n_draws


def by_bound(bound, n_draws, *, cosine=False):
    """Make a fit that climbs a bound of log p(x_obs), maybe with small last steps."""

    def fit(model, posterior, data, settings):
        def loss(rows):
            given = model, posterior, *data.take(rows), global_stream
            return -bound(*given, n_draws).mean()

        factor = half_cosine(settings.n_epochs) if cosine else None
        batches = training.epochs(len(data.x), BATCH)
        effort = settings.n_epochs, settings.rate, factor, settings.on_epoch
        minimise(loss, (model, posterior), batches, *effort)

    return fit


def linear_fit(data):
    """Fit factor analysis by EM, of as many latents."""
    double = Incomplete(data.x.double(), data.observed)
    weights = torch.ones(len(data.x)).double()
    options = {"floor": 1e-3, "max_iter": 200, "tol": 0.1}
    return fit_factors(Rows(double, weights), LATENTS, **options).model


def linear_draws(linear, data):
    """Complete rows by draws of factor analysis; (CHAINS, n, D)."""
    double = Incomplete(data.x.double(), data.observed)
    return draw_rows(linear, double, CHAINS).float()


def by_blocks(kind):
    """Make a fit by variational block-Gibbs inference."""

    def fit(model, posterior, data, linear, settings):
        scheme = (
            losses.marginal_scheme(model, posterior)
            if kind == MARGINAL
            else losses.block_scheme(
                model, posterior, NormalLatentCells(perceptron(D + LATENTS, 2 * D))
            )
        )
        train(
            scheme,
            losses.BlockChains(scheme, data, linear_draws(linear, data)),
            training.epochs(len(data.x), BATCH),
            n_epochs=settings.n_epochs,
            n_warm_up=min(WARM_UP, settings.n_epochs // 2),
            learning_rate=settings.rate,
            on_epoch=settings.on_epoch,
        )

    return fit


def by_gibbs(model, posterior, data, linear, settings):
    """Fit by variational Gibbs inference with extended univariate conditionals."""
    q = shared(ExtendedConditionals, D, BODY, (HEAD,))
    anchor(q, linear.mean.float(), linear.precision().float())
    chains = training.Chains(data, linear_draws(linear, data), observed_hypercube(data))
    density = LatentDensity(model, posterior)
    warm = min(WARM_UP, settings.n_epochs // 2)
    training.warm_up_model(
        density, chains, n_epochs=warm, batch_size=BATCH, learning_rate=settings.rate
    )
    training.train(
        training.Pair(density, q),
        chains,
        training.TrainingSettings(UPDATES, SELECTED, BATCH, settings.rate, Q_RATE),
        n_epochs=settings.n_epochs - warm,
        on_epoch=lambda epoch, loss: settings.on_epoch(epoch + warm, loss),
    )


METHODS = LINEAR, COMPLETE, *RIVALS, MARGINAL, BLOCK, GIBBS


def methods(rows, linear):
    """List how the encoder reads, the fit and what it is given."""
    given = rows.train, linear
    return {
        COMPLETE: (Completed, by_bound(miss_vae, 1), rows.complete),
        "MVAE": (Masked, by_bound(miss_vae, 1), rows.train),
        "MIWAE": (Masked, by_bound(miss_iwae, IMPORTANCE), rows.train),
        MARGINAL: (Completed, by_blocks(MARGINAL), *given),
        BLOCK: (Completed, by_blocks(BLOCK), *given),
        GIBBS: (Completed, by_gibbs, *given),
    }


def autoencoder(name, rows, linear, size, seed):
    """Fit one autoencoder, select its checkpoint and score it; one record."""
    torch.manual_seed(seed)
    reader, fit, *data = methods(rows, linear)[name]
    model, posterior = Decoder(), encoder_of(reader)
    watched = whole(rows.test.x[:N_FOLLOWED])
    keep = Selection(model, rows.validation, watched, size)
    fit(model, posterior, *data, TrainingSettings(size.n_epochs, RATE, keep))
    seconds = time.process_time() - keep.begin - keep.aside
    epoch, _, state = keep.best
    model.load_state_dict(state)
    score, worth = test_score(model, posterior, rows.test, size.n_draws)
    path = [(e, s, v, t - rows.log_unit) for e, s, v, t in keep.path]
    return {
        "score": score - rows.log_unit,
        "worth": worth,
        "seconds": round(seconds, 3),
        "epoch": epoch,
        "n_epochs": path[-1][0],
        "path": [[e, *(round(v, 3) for v in rest)] for e, *rest in path],
    }


def size_of(options):
    """Return the size of the study."""
    return QUICK if options.quick else FULL


@lru_cache(1)
def table_of(size, missing, seed):
    """Return rows of one mask and their factor analysis, with its CPU seconds."""
    rows = problem(generator(size.n_of_truth), size, round(6 * missing) / 6, seed)
    torch.manual_seed(0)
    begin = time.process_time()
    linear = linear_fit(rows.train)
    return rows, linear, time.process_time() - begin


def measured(key, options):
    """Fit one method to one table."""
    size = size_of(options)
    rows, linear, seconds = table_of(size, key["missing"], key["seed"])
    if key["method"] == LINEAR:
        found = log_prob_observed(linear, rows.test.x.double(), rows.test.observed)[0]
        score = float(found.mean()) - rows.log_unit
        return {"score": score, "seconds": seconds}
    return autoencoder(key["method"], rows, linear, size, key["seed"])


def reached(record, seconds):
    """Return the last test score that was reached in these CPU seconds, if any."""
    return [score for _, spent, _, score in record["path"] if spent <= seconds][-1:]


def values(results, options):
    """Make medians of scores, at the end and at CPU seconds, and the epochs."""
    keys = "missing", "method"

    def epoch(some):
        return spread([1e3 * r["seconds"] / r["n_epochs"] for r in some])

    trained = [record for record in results.records if "path" in record]
    scores = {"score": "log p(x)", "epoch": "epoch kept", "n_epochs": "epochs"}
    return {
        "ends": medians(results.records, keys, scores | {"seconds": "CPU s"}, 4),
        "paths": along(trained, keys, SECONDS, reached, " s"),
        "epochs": lines(
            by(trained, "method").items(), {"ms an epoch": epoch}, "method"
        ),
    }


def possible(key):
    """Say that complete rows have no mask."""
    return key["method"] != COMPLETE or not key["seed"]


CASES = {"missing": [0.833, 0.5], "seed": range(3), "method": METHODS}
main = main_of(globals(), {"missing": [0.5], "seed": [0]})
