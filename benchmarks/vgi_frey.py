"""Does variational Gibbs inference estimate factor analysis of 560 columns like EM?

    python benchmarks/vgi_frey.py --results FILE [--only-report] [--quick]
        [--only sixths=1] [--output FILE]

FA-Frey of Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for
statistical model estimation from incomplete data, figures 4 and 6 (right): factor
analysis with 43 latents is fitted to the Frey faces and generates rows, of which one to
five of six cells are missing completely at random.  Each result is a line of FILE.
Those that are there are not computed again, and the report is written from FILE alone.
`--quick` has 12 simulated columns and needs no FILE.
"""

import copy
import time
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from _data import load_array
from _paper import along, medians
from _report import specs
from _runner import main_of
from _vae_networks import minimise
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import embedding
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from vgi_factor_analysis import (
    Scaled,
    chained,
    conditional_kl,
    draw_rows,
    fit_complete,
    fit_em,
    hide,
    in_units,
    normal,
    shared,
    standardised,
)

from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.vgi import training
from skvnce.vgi.conditionals import ExtendedConditionals, StandardConditionals, anchor
from skvnce.vgi.densities import FactorDensity

MARGIN = 0.15  # of grey values, before the logit
EM = {"floor": 1e-6, "max_iter": 300, "tol": 1e-3}
DATA_SEED = 2027
COPIES = 5  # imputations of the observed marginals
DECAY = 32  # epochs after which the learning rates start to fall
SIXTHS = 1, 3, 5  # missing
SHARES = 3, 2, 1, 0  # of the epochs of a curve: 1/8, 1/4, 1/2, 1
GIBBS, MCEM, FILLED = "VGI", "Monte Carlo EM", "observed marginals"
CHAINED, N_TABLES = "chained regressions", 2  # the paper stacks five
# of figure 19: G and M of the paper, and epochs; conditionals of body and networks
NETWORKS = {
    "VGI, standard networks": StandardConditionals,
    "VGI, extended networks": ExtendedConditionals,
}
AS_PAPER, WIDTH = training.TrainingSettings(5, 10, 480, 0.03, 0.001), 200
N_SHORT = {1: 96} | dict.fromkeys(range(2, 6), 24)
FITTED = "EM, complete data", FILLED, "EM", CHAINED, GIBBS, MCEM, *NETWORKS


class Study(NamedTuple):
    """Sizes: latents, rows, rounds of EM, chains of a row, epochs and settings of VGI.

    `n_epochs` maps the number of sixths that are missing to epochs.
    """

    rank: int
    n_train: int
    n_test: int
    n_rounds: int
    n_chains: int
    n_epochs: dict
    settings: list  # of `TrainingSettings`


STUDIES = {name: Study(**one) for name, one in specs("vgi_frey").items()}


class LinearConditionals(nn.Module):
    """Normal conditionals whose means are linear in a few features of the row.

    ``q(x_j | x) = N(a_j x_j + b_j + h_j' B x, s_j^2)``: extended conditionals with a
    shared body B without activations, as the conditionals of factor analysis are of
    this form.  Weights are in units of their root mean square at the start, so that one
    learning rate suits all.

    Parameters
    ----------
    model : FactorModel
        Whose conditionals they are at the start.
    """

    def __init__(self, model):
        super().__init__()
        slopes, variance = model.loadings.T / model.noise_variance, model.noise_variance
        unit = torch.eye(len(slopes)).to(slopes)
        body = torch.linalg.solve(unit + slopes @ model.loadings, slopes)
        left = 1 - (model.loadings * body.T).sum(1)  # 1 / (psi_j K_jj), K the precision
        heads, own = model.loadings / left[:, None], 1 - 1 / left
        self.unit_of_body = float(body.square().mean().sqrt())
        self.unit_of_heads = float(heads.square().mean().sqrt())
        self.unit_of_own = float(own.square().mean().sqrt())
        parts = {
            "body": body / self.unit_of_body,
            "heads": heads / self.unit_of_heads,
            "own": own / self.unit_of_own,
            "intercepts": model.mean / left - heads @ (body @ model.mean),
            "log_scales": (variance / left).log() / 2,
        }
        for name, value in parts.items():
            self.register_parameter(name, nn.Parameter(value.float().contiguous()))

    def at(self, x, columns):
        """Return q_j of one column a row."""
        shared = x @ (self.body * self.unit_of_body).T
        heads = embedding(columns, self.heads * self.unit_of_heads)
        cell = x.expand(*columns.shape, -1).gather(-1, columns.unsqueeze(-1))
        loc = (shared * heads).sum(-1) + self.intercepts[columns]
        loc = loc + self.unit_of_own * self.own[columns] * cell.squeeze(-1)
        return Normal(loc, self.log_scales[columns].exp(), validate_args=False)


class Halves:
    """Averages of modules over the second half of 1/8, 1/4, 1/2 and all epochs.

    Attributes
    ----------
    found : dict
        Epoch to copies of the modules, as they are and averaged.
    """

    def __init__(self, modules, n_epochs):
        self.modules, self.found = modules, {}
        self.begins = {n_epochs >> k: n_epochs >> (k + 1) for k in SHARES}
        self.sums = {0: 0.0}
        self.total = 0.0

    def __call__(self, epoch):
        """Add the parameters after an epoch."""
        now = [parameters_to_vector(m.parameters()).detach() for m in self.modules]
        self.total = self.total + torch.cat(now).double()
        if epoch in self.begins.values():
            self.sums[epoch] = self.total
        if epoch in self.begins:
            begin = self.begins[epoch]
            mean = (self.total - self.sums[begin]) / (epoch - begin)
            parts = mean.float().split([len(vector) for vector in now])
            self.found[epoch] = [self.filled(now), self.filled(parts)]

    def filled(self, vectors):
        """Copy the modules with other parameters."""
        copies = [copy.deepcopy(module) for module in self.modules]
        for module, vector in zip(copies, vectors, strict=True):
            vector_to_parameters(vector, module.parameters())
        return copies


def logits(pixels):
    """Map grey values to the real line, as the paper does."""
    share = MARGIN + (1 - 2 * MARGIN) * pixels / 255
    return np.log(share / (1 - share))


@cache
def truth_of(name):
    """Return the model that generates the rows."""
    if name == "simulated":
        rng = np.random.default_rng(DATA_SEED)
        loadings = torch.tensor(rng.normal(size=(12, STUDIES[name].rank)))
        return FactorModel(torch.zeros(12).double(), loadings, torch.ones(12).double())
    x = torch.tensor(logits(load_array("frey_faces", "x").astype(float)))
    return fit_complete(x, STUDIES[name].rank, EM)


def simulate(name, n, seed):
    """Draw complete rows; (n, columns)."""
    rng = np.random.default_rng([DATA_SEED, seed])
    mean, loadings, variance = truth_of(name)
    z = torch.tensor(rng.normal(size=(n, loadings.shape[1])))
    noise = torch.tensor(rng.normal(size=(n, len(mean))))
    return mean + z @ loadings.T + noise * variance.sqrt()


def fit_marginals(data, rank):
    """Fill by observed cells of the same column, and fit: algorithm 4 at its end."""
    return fit_complete(training.from_marginals(data, COPIES), rank, EM)


def fit_chained(data, rank, truth, seed):
    """Fit to one and more stacked tables by chained regressions; the divergences."""
    tables, found = [], []
    for number in range(N_TABLES):
        tables.append(chained(data, np.random.default_rng([seed, number])))
        model = fit_complete(torch.stack(tables), rank, EM)
        found.append(round(float(normal(truth, model)), 3))
    return {"kl": found[-1], "by tables": found}


def scaled_back(model, mean, std):
    """Undo `in_units`."""
    scale = 1 / std
    return in_units(model._replace(mean=model.mean - mean), 0 * mean, scale)


def anchored(kind, model):
    """Make conditionals of networks that share a body, exact for a model at first."""
    found = shared(kind, len(model.mean), WIDTH, ())
    anchor(found, model.mean, model.precision())
    return found


def density_of(model):
    """Make the density that is trained."""
    return FactorDensity.of(FactorModel(*(p.float().contiguous() for p in model)))


def restored(density, mean, std):
    """Return the trained model in the units of the data."""
    model = FactorModel(*(part.double() for part in density.factors()))
    return in_units(model, mean, std)


def decay(epoch):
    """Return the factor of the learning rates."""
    return (1 + epoch / DECAY) ** -0.5


def by_vgi(data, start, n_epochs, study, seed, conditionals=LinearConditionals):
    """Fit by variational Gibbs inference from a model and its conditionals.

    Returns
    -------
    dict
        Epoch to the last and the averaged pair of model and conditionals.
    """
    torch.manual_seed(seed)
    scaled, mean, std = standardised(data)
    start = scaled_back(start, mean, std)
    scaled = Incomplete(scaled.x.float(), scaled.observed)
    chains = training.Chains(scaled, training.from_marginals(scaled, study.n_chains))
    pair = training.Pair(density_of(start), conditionals(start).float())
    halves = Halves(pair, n_epochs)
    training.train(
        pair,
        chains,
        training.TrainingSettings(*study.settings),
        n_epochs=n_epochs,
        schedule=decay,
        on_epoch=lambda epoch, loss: bool(halves(epoch)),
    )

    return {
        epoch: [(restored(d, mean, std), Scaled(q, mean, std)) for d, q in pairs]
        for epoch, pairs in halves.found.items()
    }


def by_mcem(data, start, n_epochs, study, seed):
    """Fit by Monte Carlo EM: each visit of a row draws it from the model, exactly.

    Returns what `by_vgi` does, without conditionals.
    """
    torch.manual_seed(seed)
    scaled, mean, std = standardised(data)
    density = density_of(scaled_back(start, mean, std))
    scaled = Incomplete(scaled.x.float(), scaled.observed)
    halves = Halves([density], n_epochs)
    settings = training.TrainingSettings(*study.settings)

    def drawn(rows):
        return draw_rows(density.factors(), scaled.take(rows), study.n_chains)

    minimise(
        lambda rows: -density.log_prob(drawn(rows)).mean(),
        [density],
        training.epochs(len(scaled.x), settings.batch_size),
        n_epochs,
        settings.learning_rate,
        decay,
        lambda epoch, loss: bool(halves(epoch)),
    )
    return {
        epoch: [(restored(one, mean, std), None) for (one,) in several]
        for epoch, several in halves.found.items()
    }


def curve_of(found, truth):
    """Judge the models that `by_vgi` returns."""
    curve = [
        [epoch, *(round(float(normal(truth, model)), 3) for model, _ in pairs)]
        for epoch, pairs in found.items()
    ]
    return {"kl": curve[-1][2], "curve": curve}


def evaluate(found, truth, test):
    """Judge what `by_vgi` returns: the curve, and the conditionals at the end."""
    model, q = list(found.values())[-1][1]  # averaged
    conditionals = {}
    for name, target in (("truth", truth), ("model", model)):
        kl = conditional_kl(q, target, test).flatten()
        ranks = (kl.kthvalue(round(p * len(kl))).values for p in (0.5, 0.95))
        conditionals[name] = [float(f"{float(value):.3g}") for value in ranks]
    return curve_of(found, truth) | {"conditionals": conditionals}


def fits(name, data, sixths, seed):
    """List the fits to one mask: functions that return a record."""
    study, truth = STUDIES[name], truth_of(name)
    x, test = simulate(name, study.n_train, 0), simulate(name, study.n_test, 1)
    limits = EM | {"max_iter": study.n_rounds}
    marginals = cache(lambda: fit_marginals(data, study.rank))

    def plain(fit):
        return lambda: {"kl": round(float(normal(truth, fit())), 3)}

    def gibbs():
        found = by_vgi(data, marginals(), n_epochs, study, seed)
        return evaluate(found, truth, test)

    def network(kind):
        short, how = study._replace(settings=AS_PAPER), partial(anchored, kind)
        start, begin = marginals(), time.process_time()
        found = by_vgi(data, start, N_SHORT[sixths], short, seed, how)
        per_epoch = (time.process_time() - begin) / N_SHORT[sixths]
        return curve_of(found, truth) | {"seconds an epoch": round(per_epoch, 3)}

    n_epochs = study.n_epochs[str(sixths)]
    return {
        "EM, complete data": plain(lambda: fit_complete(x, study.rank, EM)),
        FILLED: plain(marginals),
        "EM": plain(lambda: fit_em(data, study.rank, limits)),
        CHAINED: lambda: fit_chained(data, study.rank, truth, seed),
        GIBBS: gibbs,
        MCEM: lambda: curve_of(
            by_mcem(data, marginals(), n_epochs, study, seed), truth
        ),
        **{name: partial(network, kind) for name, kind in NETWORKS.items()},
    }


@lru_cache(1)
def fits_of(name, sixths, seed):
    """Hide cells by one mask, and list the fits to it."""
    data = hide(simulate(name, STUDIES[name].n_train, 0), sixths / 6, seed)
    return fits(name, data, sixths, seed)


def measured(key, options):
    """Fit by one method."""
    fit = fits_of(key["data"], key["sixths"], key["seed"])[key["method"]]
    torch.manual_seed(key["seed"])
    begin = time.process_time()
    return fit() | {"seconds": round(time.process_time() - begin, 1)}


def values(results, options):
    """Make divergences, and those of conditionals, by the share of missing cells."""
    records, keys = results.records, ("sixths", "method")
    curves = [record for record in records if "curve" in record]
    fits = [record for record in curves if "conditionals" in record]
    scores = {"kl": "KL(truth, fit)", "seconds": "CPU s"}
    scores |= {"seconds an epoch": "CPU s an epoch"}

    def averaged(record, share):
        return [record["curve"][SHARES.index(share)][2]]

    def near(record, target):
        return record["conditionals"][target][:1]

    return {
        "divergences": medians(records, keys, scores, 4),
        "curves": along(curves, keys, SHARES, averaged),
        "of_conditionals": along(fits, keys, ("truth", "model"), near),
    }


CASES = {"data": ["frey"], "seed": [0], "sixths": SIXTHS, "method": FITTED}
main = main_of(globals(), {"data": ["simulated"]})
