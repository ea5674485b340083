"""The algorithms that train autoencoders: what they complete, move and raise."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from oracles import GATE, z_mean
from vaes import circle, log_evidence

from skvnce._core.distributions.cells import Families
from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import global_stream
from skvnce._core.random import seeded
from skvnce._core.samplers import Sampler, State
from skvnce.autoencoder import losses, vae
from skvnce.autoencoder.factor_analysis import fit_factors, log_prob
from skvnce.autoencoder.losses import (
    ALGORITHMS,
    Completed,
    Rounds,
    Scheme,
    of_cells,
    of_latents,
)
from skvnce.autoencoder.vae import Architecture, Autoencoder, Training

NONE, EMPTY = torch.zeros(0, dtype=torch.long), torch.zeros(0, 2).double()
NORMAL = Families(NONE, NONE, NONE, EMPTY, EMPTY, EMPTY)
HALVES = torch.arange(-8.0, 8.5, 0.5).double()[None]
ROUNDED = Families(
    NONE, NONE, torch.tensor([1]), EMPTY, HALVES, torch.arange(-8.25, 8.5, 0.5)[None]
)
COMPLETING = ["vbgi-vae", "demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae-m"]
TRAINING = Training(3, 128, 8e-3, 0.05)
SIZES = Architecture((16,), 0.0, 1)


def table(seed, n=500, missing=0.3, rounded=False):
    rng = np.random.default_rng(seed)
    x = circle(rng, n)
    x = (x - x.mean(0)) / x.std(0)
    if rounded:
        x[:, 1] = np.round(2 * x[:, 1]) / 2
    x[rng.uniform(size=x.shape) < missing] = np.nan
    return Incomplete.from_array(x[~np.isnan(x).all(1)])


def started(data, families=NORMAL, dropout=0.0):
    """Make an autoencoder at the factor analysis of a table, and give that."""
    weights = torch.ones(len(data.x)).double()
    found = fit_factors(data, weights, 1, floor=2e-3, max_iter=200, tol=1e-2).model
    auto = vae.build(found, families, SIZES._replace(dropout=dropout))
    return Autoencoder(*(part.double() for part in auto)), found


def rounds(name, auto, data, training=TRAINING):
    weights = torch.ones(len(data.x))
    return Rounds(auto, data, weights, ALGORITHMS[name], training, SIZES)


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
        found = training.on_all(2, 1, lambda *_: False)
        after = evidence(auto, data)
    assert z_mean(after - before, 0.0) > GATE
    assert len(found) == 3 and np.isfinite(found).all()
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
        loss = ALGORITHMS[name].loss(auto, {}, data, TRAINING)
        found = loss(torch.arange(80))
    expected = -log_prob(known, data).mean()
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-10)


def test_missing_cells_start_at_the_decoder(seed):
    data = table(seed, 50)
    with seeded(seed):
        auto, _ = started(data)
        (cells,) = rounds("vbgi-vae", auto, data).parts.values()
    z = torch.randn(2, len(data.x), 1).double()
    q, decoded = cells(data.x.expand(2, -1, -1), data.observed, z), auto.model
    torch.testing.assert_close(q.loc, decoded.likelihood(z).loc)
    torch.testing.assert_close(q.scale, decoded.likelihood(z).scale)


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


def test_both_blocks_train_the_model(seed):
    """At wrong imputations, where the gradient of A alone is another one."""
    data, states = table(seed, 40), []
    rows, move = torch.arange(len(data.x)), losses.BlockChains.move

    def wrong(chains, rows, n_sweeps):
        x, z = move(chains, rows, n_sweeps)
        states.append((chains.data.take(rows).with_values(x + 1.0), z))
        torch.manual_seed(0)
        return list(states[-1])

    with seeded(seed), pytest.MonkeyPatch.context() as patch:
        auto, _ = started(data)
        training = rounds("vbgi-vae", auto, data)
        patch.setattr(losses.BlockChains, "move", wrong)
        parts = training.parts
        loss = training.algorithm.loss(auto, parts, data, training.training)
        value = loss(rows)
        ((x, z),) = states
        model = Completed(auto.model, data.observed)
        torch.manual_seed(0)
        first = of_latents(model, auto.posterior, x, data.observed, global_stream)
        second = of_cells(model, parts["cells"], x, z, data.observed)
    leaves = list(auto.model.parameters())
    found, of_both, of_one = (
        torch.autograd.grad(one, leaves, retain_graph=True, allow_unused=True)
        for one in (value, -(first + second).mean() / 2, -first.mean())
    )
    used = [place for place, slope in enumerate(of_both) if slope is not None]
    assert used
    for place in used:
        torch.testing.assert_close(found[place], of_both[place])
    apart = [abs(found[place] - of_one[place]).max() for place in used]
    assert max(apart) > 1e-2


def test_chains_start_at_the_conditional_of_the_linear_model(seed):
    """The sweeps keep it: means and variances after the first visit are exact."""
    data = table(seed, 30)
    with seeded(seed):
        auto, known = started(data)
        view = Completed(auto.model, data.observed).likelihood
        start = losses.initial(auto, data, 4000, lambda cells: cells)
        assert view(start[1]).batch_shape == start[0].shape
    covariance = known.loadings @ known.loadings.T + known.noise_variance.diag()
    for x, observed, cells in zip(
        data.x, data.observed, start[0].movedim(1, 0), strict=True
    ):
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
            loss = ALGORITHMS[name].loss(auto, training.parts, data, TRAINING)
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
    found = []
    for given in (data, dirty):
        with seeded(seed):
            auto, _ = started(data)
            parts = rounds(name, auto, data).parts
            loss = ALGORITHMS[name].loss(auto, parts, given, TRAINING)
            value = loss(torch.arange(20))
            value.backward()
            leaves = [*auto.model.parameters(), *auto.posterior.parameters()]
            found.append([value, *(leaf.grad for leaf in leaves)])
    assert all(map(torch.equal, *found))


def test_samplers_run_without_dropout(seed):
    data, modes = table(seed, 20), []

    def step(given, part):
        modes.append((auto.model.training, auto.posterior.training))
        return given, None

    with seeded(seed):
        auto, _ = started(data, dropout=0.5)
        sampler = Sampler(lambda part, x: State(part.with_values(x)), step)
        found = losses.without_dropout(sampler, list(auto))
        auto.posterior.eval()
        found.step(found.init(data, data.x[None]), data)
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
        scheme = Scheme(torch.nn.ModuleDict(), sampler, bound, 1)
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
