"""Training of variational autoencoders from a linear model on, and its limits."""

from copy import deepcopy
from functools import partial
from math import sqrt

import numpy as np
import pytest
import torch
import vaes
from oracles import GATE, z_mean
from vaes import NORMAL, circle, families, table

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded, stream
from skvnce._core.training.adam import NotFinite
from skvnce._core.training.rounds import STEPS
from skvnce.autoencoder import losses, vae
from skvnce.autoencoder.factor_analysis import FactorModel, infer, log_prob
from skvnce.autoencoder.vae import Architecture, Autoencoder, Training


def linear(rng, n):
    x = rng.normal(size=(n, 1)) * [1.0, -1.0, 1.0, 1.0]
    return x + 0.7 * rng.normal(size=x.shape)


def parabola(rng, n):
    t = rng.normal(size=n)
    x = np.stack([t, t**2, t - t**2], 1)
    return x + 0.2 * rng.normal(size=x.shape)


def single(data):
    return Incomplete(data.x.float(), data.observed)


def started(data, dropout=0.0, families=NORMAL):
    return vaes.started(data, Architecture((16,), dropout, 1), families)


def of(learning_rate=3e-3, n_draws=5):
    return Training(n_draws, 128, learning_rate, 0.05)


def training_by(loss, auto, data):
    """Make the rounds that train by a loss, of the visible cells."""
    algorithm = losses.Algorithm(lambda auto, parts, visible, settings: loss(visible))
    sizes = Architecture((16,), 0.0, 1)
    return losses.Rounds(auto, data, stratified(data), algorithm, of(), sizes)


def miwae_loss(auto, data, training):
    return losses.ALGORITHMS["miwae"].loss(auto, {}, data, training)


# Families


def test_a_linear_model_keeps_its_moments_in_every_family(torch_seeded):
    """Student's t its variance, a two-valued column the tangent of its logit."""
    share = torch.tensor([0.2, 0.7]).double()
    std = (share * (1 - share)).sqrt()
    pairs = torch.stack([-share / std, (1 - share) / std], 1)
    given = FactorModel(
        0.1 * torch.randn(4).double(),
        torch.randn(4, 2).double(),
        torch.rand(4).double(),
    )
    before = [part.clone() for part in given]
    mixed = families([1], [0, 3], (), pairs)
    mean, loadings, scale = vae.as_family(given, mixed)
    assert all(map(torch.equal, given, before))
    deviation = given.noise_variance.sqrt()
    assert (mean[1:3] == given.mean[1:3]).all()
    assert (loadings[1:3] == given.loadings[1:3]).all()
    assert scale[2] == deviation[2]
    assert float(scale[1] * sqrt(2)) == pytest.approx(float(deviation[1]))
    at, z = torch.tensor([0, 3]), torch.randn(2).double()
    low, high = pairs.T
    probability = (given.mean[at] + given.loadings[at] @ z - low) / (high - low)
    leaf = share.clone().requires_grad_()
    slope = torch.autograd.grad(torch.logit(leaf).sum(), leaf)[0]
    tangent = torch.logit(share) + slope * (probability - share)
    torch.testing.assert_close(mean[at] + loadings[at] @ z, tangent)
    both = zip(vae.as_family(given, NORMAL), (*given[:2], deviation), strict=True)
    for result, same in both:
        assert torch.equal(result, same)


# What is known at the start


def test_log_densities_and_means_at_the_start(seed):
    data = table(parabola, seed)
    auto, known = started(data)
    auto = Autoencoder(*(part.double() for part in auto)).evaluated()
    result = vae.scored(auto, data, stream(seed), 3)[:, 0]
    torch.testing.assert_close(result, log_prob(known, data), rtol=0, atol=1e-10)
    exact = infer(known, *data)
    mean = vae.latent_mean(auto, data, stream(seed), 40)
    root = exact.factor[:, 0]  # the precision's
    z = ((mean - exact.mean) * root * sqrt(40)).flatten()
    assert abs(z_mean(z, 0.0)) < GATE
    assert abs(z_mean(z**2, 1.0)) < GATE
    assert abs(z_mean(z + 0.6, 0.0)) > GATE


def test_predictions_leave_the_modes_of_the_parts_alone(seed):
    """And are the same again; what they are is in `test_losses.py`."""
    data = table(parabola, seed)
    auto = Autoencoder(*(part.double() for part in started(data, dropout=0.5)[0]))
    auto.posterior.eval()
    hidden = data.observed & (torch.arange(3) == 1)
    result, again = (vae.held_out_log_prob(auto, data, hidden) for _ in range(2))
    assert torch.equal(result, again)
    assert auto.model.training and not auto.posterior.training


@pytest.mark.parametrize("n_draws", [1, 64, 10**6])
def test_chunks_bound_the_memory(n_draws):
    auto, _ = started(table(parabola, 0))
    every = torch.arange(10_000)
    values = [every[rows] for rows in vae.chunks(auto, 10_000, n_draws)]
    assert torch.equal(torch.cat(values), every)
    size = max(map(len, values))
    assert size == 1 or size * n_draws * (2 * 3 + 1 + 16) <= 2**21
    assert (len(values) == 1) == (n_draws == 1)
    assert list(vae.chunks(auto, 0, n_draws)) == []


def test_chunks_do_not_change_what_is_found(monkeypatch, seed):
    """Of numbers that have no row: here one draw for all."""
    data = table(parabola, seed, n=40)
    auto = Autoencoder(*(part.float() for part in started(data)[0]))
    hidden = data.observed & (torch.arange(3) == 1)
    numbers = partial(torch.full_like, fill_value=0.3)
    monkeypatch.setattr(vae, "stream", lambda seed: lambda step, x: numbers(x))
    whole = vae.held_out_log_prob(auto, single(data), hidden)
    monkeypatch.setattr(vae, "_AT_ONCE", 2**13)
    assert len(list(vae.chunks(auto, len(data.x), 64))) > 2
    cut = vae.held_out_log_prob(auto, single(data), hidden)
    torch.testing.assert_close(cut, whole)


# Training


def test_a_hostile_learning_rate_is_reported(seed):
    data = single(table(parabola, seed))
    with seeded(seed):
        auto, _ = started(data._replace(x=data.x.double()))
        auto = Autoencoder(*(part.float() for part in auto))
        training = of(learning_rate=1e30)
        loss = miwae_loss(auto, data, training)
        with pytest.raises(NotFinite, match="the loss is"):
            vae.train(auto, loss, stratified(data), training, n_rounds=2)


def stratified(data):
    """Weigh all rows alike."""
    return torch.ones(len(data.x))


def captured(monkeypatch, n, **settings):
    """Return what `train` asks of the loop."""
    asked = {}

    def descend(loss, named, batches, **rest):
        asked.update(rest, named=named, batches=batches)
        return []

    monkeypatch.setattr(vae, "descend", descend)
    auto, _ = started(table(parabola, 0))
    vae.train(auto, None, torch.ones(n), of(), **settings)
    return asked


def test_networks_decay_and_learn_faster_than_the_rest(monkeypatch):
    asked = captured(monkeypatch, 500, n_rounds=3)
    networks, others = asked["optimiser"].param_groups
    assert (networks["weight_decay"], others["weight_decay"]) == (0.05, 0.0)
    assert others["lr"] == pytest.approx(0.3 * networks["lr"])
    names = {id(leaf): name for name, leaf in asked["named"]}
    expected = {"model.mean", "model.loadings", "model.free_scale"}
    assert {names[id(leaf)] for leaf in others["params"]} == expected
    assert len(networks["params"]) + 3 == len(names)
    assert any("posterior.network" in names[id(leaf)] for leaf in networks["params"])


@pytest.mark.parametrize("n_rounds", [0, 3])
def test_the_learning_rate_falls_in_the_last_rounds(n_rounds, monkeypatch):
    asked = captured(monkeypatch, 500, n_rounds=n_rounds, n_cooling=4)
    assert asked["max_iter"] == n_rounds + 4
    rates = []
    for _ in range(asked["max_iter"]):
        rates.append(asked["optimiser"].param_groups[0]["lr"])
        asked["optimiser"].step()
        asked["schedule"].step()
    assert rates[:n_rounds] == [3e-3] * n_rounds
    assert rates[-1] < rates[-2] < rates[-3] <= rates[-4] <= 3e-3
    assert rates[-1] / rates[-2] == pytest.approx(rates[-2] / rates[-3])


@pytest.mark.parametrize(("n", "size"), [(500, 128), (30, 30), (1, 1)])
def test_rounds_are_batches_of_rows_drawn_with_replacement(n, size, monkeypatch, seed):
    batches = captured(monkeypatch, n, n_rounds=1)["batches"]
    with seeded(seed):
        first, second = (list(batches()) for _ in range(2))
    assert [len(rows) for rows in first] == [size] * STEPS
    drawn = torch.cat(first)
    assert 0 <= drawn.min() and drawn.max() < n
    if n == 30:
        assert not torch.equal(drawn, torch.cat(second))
        assert abs(z_mean(drawn.double(), (n - 1) / 2)) < GATE
        assert any(len(rows.unique()) < size for rows in first)


# The number of rounds


def chosen(gains, monkeypatch, patience=3, max_rounds=20, stop_at=None):
    """Choose a round where the gains after each are given."""
    caught, tables = [], iter([0.0, *gains])

    def train(auto, loss, weights, training, *, n_rounds, on_round, on_step, parts):
        assert n_rounds == max_rounds
        for n_round in range(1, n_rounds + 1):
            if on_round(n_round, 7.0):
                break

    class HeldOut:
        def __init__(self, auto, part, hidden):
            assert part.observed.any(1).all() and hidden.any(1).all()
            self.n = len(hidden)

        def log_prob(self):
            return torch.full((self.n,), next(tables))

    def watch(n_round, loss, gain):
        caught.append(gain)
        return n_round == stop_at

    monkeypatch.setattr(vae, "train", train)
    monkeypatch.setattr(vae, "HeldOut", HeldOut)
    data = Incomplete(torch.zeros(6, 2), torch.ones(6, 2).bool())
    nothing = Autoencoder(torch.nn.Identity(), torch.nn.Identity())
    hidden = torch.zeros(6, 2).bool()
    hidden[:4, 1] = True
    result = training_by(lambda data: None, nothing, data).while_better(
        hidden, max_rounds=max_rounds, patience=patience, on_round=watch
    )
    assert caught == pytest.approx([min(max(g, -5), 5) for g in gains[: len(caught)]])
    return result, len(caught)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([-0.1, -0.2, -0.1], (0, 3)),
        ([0.0, 0.0, 0.0], (0, 3)),
        ([0.1, 0.3, 0.2, 0.3, 0.1], (2, 5)),
        ([-0.1, -0.1, 0.1, 0.05, -9.0, 0.05], (3, 6)),
        ([9.0, 6.0, 7.0, 8.0], (1, 4)),  # a row counts with 5 nats
    ],
)
def test_the_round_with_the_best_prediction_is_taken(gains, expected, monkeypatch):
    assert chosen(gains, monkeypatch) == expected


def test_without_cells_to_hold_out_the_linear_model_stays(seed):
    data = single(table(parabola, seed, n=20))
    nothing = torch.zeros_like(data.observed)
    auto, caught = started(table(parabola, seed, n=20))[0], []
    settings = {
        "max_rounds": 9,
        "patience": 9,
        "on_round": lambda *args: caught.append(1),
    }
    training = training_by(lambda data: None, auto, data)
    assert training.while_better(nothing, **settings) == 0
    assert caught == []


def test_it_stops_when_it_is_reported(monkeypatch):
    rising = [0.1 * n for n in range(1, 21)]
    assert chosen(rising, monkeypatch) == (20, 20)
    assert chosen(rising, monkeypatch, max_rounds=7) == (7, 7)
    assert chosen(rising, monkeypatch, stop_at=4) == (4, 4)


def trained(kind, seed):
    """Train from the linear model on; autoencoders at the start and at the end."""
    data = table(kind, seed)
    rng = np.random.default_rng(seed)
    hidden = data.observed & torch.tensor(rng.uniform(size=data.x.shape) < 0.2)
    kept = Incomplete(data.x.where(~hidden, 0.0), data.observed & ~hidden)
    with seeded(seed):
        auto, _ = started(kept, dropout=0.1)
        auto = Autoencoder(*(part.float() for part in auto))
        start = Autoencoder(*map(deepcopy, auto))
        training = training_by(
            lambda visible: miwae_loss(auto, visible, of()), auto, single(data)
        )
        limits = {"max_rounds": 9, "patience": 3, "on_round": lambda *_: False}
        training.while_better(hidden, **limits)
    return start, auto


def gain_on_new_rows(kind, seed):
    """Gain in log p of a fifth of the cells of other rows, nats a row."""
    start, auto = trained(kind, seed)
    new = single(table(kind, seed + 1000, n=2000))
    hidden = new.observed & (torch.rand(new.x.shape) < 0.2)
    before, after = (
        vae.held_out_log_prob(one, new, hidden).mean() for one in (start, auto)
    )
    return float(after - before)


def test_a_linear_model_is_hardly_changed(seed):
    """Over ten seeds new rows lost .0036 nats at most, and .0003 on average."""
    assert gain_on_new_rows(linear, seed) > -0.02


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [circle, parabola])
def test_curves_are_worth_training(kind, seed):
    """The control of the test above: .05 nats at least."""
    assert gain_on_new_rows(kind, seed) > 0.02


# What training computes once


@pytest.mark.parametrize("most", [10**9, 0])
def test_batches_are_what_the_modules_say_of_their_rows(most, seed, monkeypatch):
    """Whether the posteriors of the linear model are kept, or are too large."""
    monkeypatch.setattr(vae, "_KEPT", most)
    data = table(linear, seed)
    auto = Autoencoder(*(part.double() for part in started(data)[0]))
    rows = torch.tensor([3, 0, 40])
    known = vae.Batches(auto, data)
    assert (known.anchor is None) == (most == 0)
    (model, posterior), part = known.of(rows)
    assert torch.equal(part.x, data.x[rows])
    z = torch.zeros(len(rows), 1).double()
    result, expected = posterior(*part), auto.posterior(*data.take(rows))
    torch.testing.assert_close(result.log_prob(z), expected.log_prob(z))
    other = auto.posterior(*data.take(rows + 1))
    assert not torch.allclose(other.log_prob(z), expected.log_prob(z))
    seen = [m.likelihood(z).sum_observed(*part) for m in (model, auto.model)]
    torch.testing.assert_close(*seen)
