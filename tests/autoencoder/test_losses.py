"""Losses of autoencoders, their gradients, and predictions of held-out cells."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
import vaes
from oracles import GATE, z_mean
from vaes import (
    NORMAL,
    N,
    circle,
    families,
    log_evidence,
    moved_autoencoder,
    rounded_families,
    rounded_table,
)

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import Sampler, State, draw_latents
from skvnce._core.random import seeded, stream
from skvnce._core.training.adam import named_leaves
from skvnce.autoencoder import losses, vae
from skvnce.autoencoder.factor_analysis import log_prob
from skvnce.autoencoder.vae import Architecture, Autoencoder, Training

# The algorithms that train autoencoders: what they complete, move and raise


HALVES = torch.arange(-8.0, 8.5, 0.5).double()[None]
ROUNDED = families((), (), [1], (), HALVES, torch.arange(-8.25, 8.5, 0.5)[None])
COMPLETING = ["vbgi-vae", "demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae-m"]
TRAINING = Training(3, 128, 8e-3, 0.05)
SIZES = Architecture((16,), 0.0, 1)
table = partial(vaes.table, circle)


def started(data, families=NORMAL, dropout=0.0):
    auto, model = vaes.started(data, SIZES._replace(dropout=dropout), families)
    return Autoencoder(*(part.double() for part in auto)), model


def rounds(name, auto, data, training=TRAINING):
    weights = torch.ones(len(data.x))
    return losses.Rounds(auto, data, weights, losses.ALGORITHMS[name], training, SIZES)


def state(modules):
    return [leaf.detach().clone() for part in modules for leaf in part.parameters()]


def single(data, auto):
    """Convert a table and an autoencoder to single precision."""
    data = Incomplete(data.x.float(), data.observed)
    return data, Autoencoder(*(part.float() for part in auto))


# Training


@torch.no_grad()
def evidence(auto, data):
    """Integrate log p(x_obs) of the model, in which the encoder has no part."""
    model = deepcopy(auto.model).double().eval()
    return log_evidence(model, data.x.double(), data.observed, n_points=300)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [*COMPLETING[:2], "mvae", "miwae", *COMPLETING[2:]])
def test_training_raises_the_likelihood(name, seed):
    data = table(seed)
    with seeded(seed):
        data, auto = single(data, started(data)[0])
        before = evidence(auto, data)
        training = rounds(name, auto, data)
        modules = [*auto, *training.parts.values()]
        start = state(modules)
        assert training.on_all(0, 0, lambda *_: False) == []
        assert all(map(torch.equal, state(modules), start))
        result = training.on_all(2, 1, lambda *_: False)
        after = evidence(auto, data)
    assert z_mean(after - before, 0.0) > GATE
    assert len(result) == 3 and np.isfinite(result).all()
    moved = [not torch.equal(*pair) for pair in zip(state(modules), start, strict=True)]
    assert all(moved)
    assert bool(training.parts) == (name == "vbgi-vae")


@pytest.mark.parametrize("rises", [False, True])
def test_the_best_round_is_that_of_all_parts(rises, seed, monkeypatch):
    """If no round is better, the network of missing cells is at its start again."""
    data = table(seed, 60)
    with seeded(seed):
        data, auto = single(data, started(data)[0])
        training = rounds("vbgi-vae", auto, data)
        modules = [*auto, *training.parts.values()]
        start, gains = state(modules), iter([0.0, 1.0 if rises else -1.0])
        monkeypatch.setattr(
            vae.HeldOut,
            "log_prob",
            lambda self: torch.full((len(self.hidden),), next(gains)),
        )
        hidden = data.observed & (torch.arange(3) == 1)
        limits = {"max_rounds": 1, "patience": 1, "on_round": lambda *_: False}
        assert training.while_better(hidden, **limits) == rises
    same = [torch.equal(*pair) for pair in zip(state(modules), start, strict=True)]
    assert not any(same) if rises else all(same)


# What is known at the start


@pytest.mark.parametrize("name", ["vbgi-vae-m", "demiss-vae", "cvi-vae", "mvb-vae"])
def test_complete_rows_have_their_log_likelihood(name, seed):
    """At the linear model, whose encoder is exact; without missing cells."""
    data = table(seed, 80, missing=0.0)
    with seeded(seed):
        auto, known = started(data)
        loss = losses.ALGORITHMS[name].loss(auto, {}, data, TRAINING)
        result = loss(torch.arange(80))
    expected = -log_prob(known, data).mean()
    torch.testing.assert_close(result.detach(), expected, rtol=0, atol=1e-10)


def test_the_two_blocks_at_the_start_are_log_densities(seed):
    """A is log p(x~) in each draw, B is log p(x_obs, z~) on average."""
    data = table(seed, 20)
    n = len(data.x)
    with seeded(seed):
        auto, known = started(data)
        training = rounds("vbgi-vae", auto, data, TRAINING._replace(n_draws=1000))
        visited = []
        original = losses.vbgi

        def spy(model, posterior, cells, x, z, observed, uniforms):
            value = original(model, posterior, cells, x, z, observed, uniforms)
            visited.append((x, z, value.detach()))
            return value

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(losses, "vbgi", spy)
            loss = training.algorithm.loss(
                auto, training.parts, data, training.training
            )
            loss(torch.arange(n))
    ((x, z, value),) = visited
    whole = Incomplete(x.flatten(0, 1), torch.ones(1000 * n, 3).bool())
    first = log_prob(known, whole).view(1000, n)
    cells = auto.model.likelihood(z).log_prob(x).where(data.observed, 0.0).sum(-1)
    second = (cells + auto.model.prior().log_prob(z)).detach()
    apart = (2 * value - first - second)[:, ~data.observed.all(1)]
    assert abs(z_mean(apart, 0.0)).max() < GATE
    assert abs(z_mean(apart + 0.5, 0.0)).max() > GATE  # control


def test_chains_start_at_the_conditional_of_the_linear_model(seed):
    """The sweeps keep it: means and variances after the first visit are exact."""
    data = table(seed, 30)
    with seeded(seed):
        auto, known = started(data)
        view = losses.completed_model(auto.model, data.observed).likelihood
        start = losses.initial(auto, data, 4000, lambda cells: cells)
        assert view(start[1]).batch_shape == start[0].shape
    covariance = known.loadings @ known.loadings.T + known.noise_variance.diag()
    pairs = zip(data.x, data.observed, start[0].movedim(1, 0), strict=True)
    for x, observed, cells in pairs:
        if observed.all():
            assert (cells == x).all()
            continue
        o, m = observed.nonzero()[:, 0], (~observed).nonzero()[:, 0]
        slope = torch.linalg.solve(covariance[o][:, o], covariance[o][:, m]).T
        mean = known.mean[m] + slope @ (x - known.mean)[o]
        variance = (covariance[m][:, m] - slope @ covariance[o][:, m]).diagonal()
        assert (cells[:, o] == x[o]).all()
        assert abs(z_mean(cells[:, m], mean)).max() < GATE
        assert abs(z_mean((cells[:, m] - mean) ** 2, variance)).max() < GATE


# Completed rows


def test_rounded_cells_are_drawn_before_rounding(seed):
    data = table(seed, 60, rounded=True)
    seen = {}

    def visit(name):
        original = getattr(losses, name)

        def spy(*arguments):
            seen[name] = arguments[3 if name == "vbgi" else 2]
            return original(*arguments)

        return spy

    with seeded(seed), pytest.MonkeyPatch.context() as patch:
        for name in ("vbgi", "vbgi_marginal"):
            patch.setattr(losses, name, visit(name))
        for name in ("vbgi-vae", "vbgi-vae-m"):
            auto, _ = started(data, ROUNDED)
            training = rounds(name, auto, data)
            loss = losses.ALGORITHMS[name].loss(auto, training.parts, data, TRAINING)
            loss(torch.arange(len(data.x))).backward()
            for part in training.parts.values():  # the other layers: after a step
                for leaf in (part.mean, part.loadings, part.network.last.weight):
                    assert (leaf.grad != 0).any()
    hidden = ~data.observed[:, 1]
    scores, values = (x[:, hidden, 1] for x in seen.values())
    assert list(seen) == ["vbgi", "vbgi_marginal"]
    assert not torch.isin(scores, HALVES).any()
    assert torch.isin(values, HALVES).all()


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", COMPLETING)
@pytest.mark.parametrize("garbage", [torch.nan, 1e6])
def test_values_under_the_mask_are_never_read(name, garbage, seed):
    data = table(seed, 30)
    dirty = Incomplete(data.x.where(data.observed, garbage), data.observed)
    records = []
    for given in (data, dirty):
        with seeded(seed):
            auto, _ = started(data)
            parts = rounds(name, auto, data).parts
            loss = losses.ALGORITHMS[name].loss(auto, parts, given, TRAINING)
            value = loss(torch.arange(20))
            value.backward()
            leaves = [*auto.model.parameters(), *auto.posterior.parameters()]
            records.append([value, *(leaf.grad for leaf in leaves)])
    assert all(map(torch.equal, *records))


def test_samplers_run_without_dropout(seed):
    data, modes = table(seed, 20), []

    def step(given, part):
        modes.append((auto.model.training, auto.posterior.training))
        return given, None

    with seeded(seed):
        auto, _ = started(data, dropout=0.5)
        sampler = Sampler(lambda part, x: State(part.with_values(x)), step)
        result = losses.without_dropout(sampler, list(auto))
        auto.posterior.eval()
        result.step(result.init(data, data.x[None]), data)
    assert modes == [(False, False)]
    assert (auto.model.training, auto.posterior.training) == (True, False)


def test_imputations_persist_and_observed_cells_stay(seed):
    data, seen = table(seed, n=40), []
    n = len(data.x)

    def bound(observed, x):
        seen.append(x.clone())
        assert torch.equal(observed, data.observed[rows])
        return x.sum(-1)

    def step(given, part):
        assert torch.equal(part.observed, data.observed[rows])
        return State(part.with_values(given.x + 1), given.step + 1), None

    sampler = Sampler(lambda part, x: State(part.with_values(x)), step)
    with seeded(seed):
        auto, _ = started(data)
        scheme = losses.Scheme(torch.nn.ModuleDict(), sampler, bound, 1)
        loss = losses.completed_loss(scheme, auto, data, TRAINING)
    rows = torch.arange(n)
    value = loss(rows)
    assert value.item() == pytest.approx(-float(seen[0].sum(-1).mean()))
    assert seen[0].shape == (3, n, 3)
    hidden = ~data.observed
    assert len(seen[0][:, hidden].unique()) == 3 * hidden.sum()  # draws, not a mean
    rows = torch.tensor([5, 3, 8])
    loss(rows)
    rows = torch.arange(n)
    loss(rows)
    moved = torch.ones(n, 1).double()
    moved[[5, 3, 8]] = 2.0
    torch.testing.assert_close(seen[2], seen[0] + moved * hidden)
    for x in (seen[0], seen[2]):
        assert (x[:, data.observed] == data.x[data.observed]).all()


# MIWAE's bound and its gradient, written out, against autograd


def loss_of(auto, data, n_draws=5, name="miwae"):
    training = Training(n_draws, 16, 3e-3, 0.05)
    return losses.ALGORITHMS[name].loss(auto, {}, data, training)


def slopes_of(auto):
    return {name: leaf.grad.clone() for name, leaf in named_leaves(auto._asdict())}


@pytest.mark.parametrize("hidden", [(6,), (5, 4), ()])
@pytest.mark.parametrize("rounded", [(), (2, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_it_is_the_gradient_of_autograd(hidden, rounded, far, seed, torch_seeded):
    """With the same random numbers; also where probabilities underflow."""
    k = 1 + seed % 3
    auto = moved_autoencoder(4, k, rounded, Architecture(hidden, 0.2, 1), far)
    loss = loss_of(auto, rounded_table(rounded, 4))
    assert isinstance(loss, losses.WeightedBound)
    rows = torch.randint(N, (16,))
    torch.manual_seed(seed)
    value, result = loss.differentiate(rows), slopes_of(auto)
    for _, leaf in named_leaves(auto._asdict()):
        leaf.grad = None
    torch.manual_seed(seed)
    expected = loss(rows)
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-10)
    for name, slope in slopes_of(auto).items():
        scale = float(slope.abs().max())
        error = float((result[name] - slope).abs().max())
        assert error <= 1e-10 * max(scale, 1.0), name
    other = loss.differentiate(rows + 0)  # other random numbers
    assert abs(float(other) - float(value)) > 1e-6


def test_other_losses_are_left_to_autograd(torch_seeded):
    data, sizes = rounded_table((), 4), Architecture((6,), 0.0, 1)
    auto = moved_autoencoder(4, 2, (), sizes)
    assert isinstance(loss_of(auto, data), losses.WeightedBound)
    for name in ("mvae", "miss-siwae"):
        assert not isinstance(loss_of(auto, data, name=name), losses.WeightedBound)
    mixed = moved_autoencoder(4, 2, (), sizes._replace(n_components=2))
    assert not isinstance(loss_of(mixed, data, name="miss-iwae"), losses.WeightedBound)
    auto.model.families = rounded_families()._replace(student=torch.tensor([1]))
    assert not isinstance(loss_of(auto, data), losses.WeightedBound)
    auto.model.families = rounded_families()
    auto.model.requires_grad_(False)  # as `fit_posterior` has it
    assert not isinstance(loss_of(auto, data), losses.WeightedBound)


# Predictions of held-out cells, against their definition


def by_definition(auto, data, hidden):
    """Use the densities of all cells, by the model."""
    kept = data.observed & ~hidden
    with torch.no_grad():
        q = auto.posterior(data.x, kept)
        z = draw_latents(q, stream(0), 32, data.x)
        inside = auto.model.likelihood(z).log_prob(data.x).where(data.observed, 0.0)
        seen = inside.where(kept, 0.0).sum(-1)
        log_weight = seen + auto.model.prior().log_prob(z) - q.log_prob(z)
        log_share = log_weight.log_softmax(0).unsqueeze(-1)
        return (log_share + inside).logsumexp(0).where(hidden, 0.0).sum(-1)


@pytest.mark.parametrize("rounded", [(), (2, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("student", [False, True])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_they_are_those_of_the_model(rounded, student, far, seed, monkeypatch):
    """By its intervals and by its densities, in parts of rows, and far off, too."""
    monkeypatch.setattr(vae, "_IN_CACHE", 7)
    torch.manual_seed(seed)
    auto, data = (
        moved_autoencoder(4, 2, rounded, Architecture((6,), 0.2, 1), far),
        rounded_table(rounded, 4),
    )
    if student:
        auto.model.families = rounded_families(*rounded)._replace(
            student=torch.tensor([3])
        )
    hidden = data.observed & (torch.rand(data.x.shape) < 0.3)
    auto.model.eval()
    auto.posterior.eval()
    result = vae.HeldOut(auto, data, hidden).log_prob()
    expected = by_definition(auto, data, hidden)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
    assert (result[~hidden.any(1)] == 0).all() and (result[hidden.any(1)] != 0).all()
    x = data.x.where(data.observed, torch.nan)
    again = vae.HeldOut(auto, Incomplete(x, data.observed), hidden).log_prob()
    assert torch.equal(again, result)
