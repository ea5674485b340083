"""Gibbs sampling by univariate conditionals, exact and wrong ones."""

from functools import partial
from math import gamma

import numpy as np
import pytest
import torch
from oracles import (
    GATE,
    first_and_second,
    missing_moments,
    worst_z,
    z_mean,
    z_two_sample,
)
from statistical import FAILURE, p_counts
from torch import nn
from torch.distributions import Gumbel, MultivariateNormal, Normal

from skvnce._core.distributions.cells import NumberOrLevel
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import run_chain
from skvnce._core.random import seeded, stream
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    NormalHead,
    StandardConditionals,
    anchor,
)
from skvnce.vgi.densities import FactorDensity
from skvnce.vgi.training import (
    Hypercube,
    metropolised_gibbs,
    observed_hypercube,
    unbounded,
    variational_gibbs,
)

# Gibbs sampling by univariate conditionals, exact and wrong ones, with and without a
# correction, against Gaussian algebra and a skewed density's moments.
#
# Every row is copied many times and its copies are independent chains.


D, N = 4, 1500
MODEL = FactorModel(
    torch.tensor([0.5, -1.0, 0.0, 2.0]).double(),
    torch.tensor([[1.0, 0.3], [0.8, -0.9], [-1.1, 0.2], [0.4, 1.2]]).double(),
    torch.tensor([0.5, 0.8, 0.4, 1.0]).double(),
)
nan = np.nan
ROWS = np.array([[1.0, nan, nan, 3.5], [nan, nan, 0.8, nan], [nan, nan, nan, nan]])
COMPLETE = np.array([0.1, 0.2, 0.3, 0.4])
ALL = unbounded(D)


def repeat(rows=ROWS, n=N):
    return Incomplete.from_array(np.repeat(rows, n, axis=0))


def conditionals(kind=StandardConditionals, shift=0.0, widen=1.0, shake=0.0):
    """Make exact conditionals of the model, or some that are off."""
    body = nn.Sequential(nn.Linear(D, 5), nn.Tanh())
    with seeded(1):
        q = kind(D, NormalHead(), body, 5, (3,)).double()
        anchor(q, MODEL.mean, MODEL.precision())
        with torch.no_grad():
            q.intercepts += shift
            q.log_scales += np.log(widen)
            for weight in (q.networks.weights[-1], q.networks.biases[-1]):
                weight += shake * torch.randn_like(weight)
    return q


WRONG = {
    "off": conditionals(shift=0.5, widen=1.4),
    "off, standard networks": conditionals(shake=0.2, widen=1.3),
    "off, extended": conditionals(ExtendedConditionals, shake=0.2, widen=1.3),
}


def worst(x):
    moments = partial(missing_moments, MODEL.mean.numpy(), MODEL.covariance().numpy())
    return worst_z(x, ROWS, moments)


def run(sampler, seed, n_steps, rows=ROWS, start=0.0):
    data = repeat(rows)
    with seeded(seed):
        state = sampler.init(data, torch.full(data.x.shape, start).double())
        return run_chain(sampler, state, data, n_steps).x


@pytest.mark.parametrize("kind", [StandardConditionals, ExtendedConditionals])
def test_exact_conditionals_reach_the_exact_distribution(kind, seed):
    sampler = variational_gibbs(conditionals(kind), ALL)
    assert worst(run(sampler, seed, 60)) < GATE


def test_too_few_steps_are_seen(seed):
    assert worst(run(variational_gibbs(conditionals(), ALL), seed, 3)) > 2 * GATE


@pytest.mark.parametrize("name", WRONG)
def test_wrong_conditionals_are_wrong_without_a_correction(name, seed):
    assert worst(run(variational_gibbs(WRONG[name], ALL), seed, 60)) > 2 * GATE


@pytest.mark.quick
@pytest.mark.parametrize("n_together", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WRONG)
def test_the_correction_reaches_the_exact_distribution(name, n_together, seed):
    density = FactorDensity.of(MODEL)
    sampler = metropolised_gibbs(density, WRONG[name], ALL, n_together=n_together)
    assert worst(run(sampler, seed, {1: 200, 2: 150, 5: 100}[n_together])) < GATE


@pytest.mark.parametrize("n_together", [1, 3])
@pytest.mark.parametrize("kind", [StandardConditionals, ExtendedConditionals])
def test_exact_conditionals_are_always_accepted(kind, n_together, seed):
    density, data, result = FactorDensity.of(MODEL), repeat(n=50), []
    step = metropolised_gibbs(density, conditionals(kind), ALL, n_together=n_together)
    with seeded(seed):
        state = step.init(data, data.x)
        run_chain(step, state, data, 6, lambda _, v: result.append(v.acceptance))
    ones = torch.ones(6, len(data.x)).double()
    torch.testing.assert_close(torch.stack(result), ones, rtol=0, atol=1e-9)


class Skewed:
    """Gumbel columns on a line: x_j = z_j + x_(j-1) / 2, where z_j is skewed."""

    base = Gumbel(torch.tensor(0.0).double(), torch.tensor(1.0).double())

    def log_prob(self, x):
        last = torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1]], -1)
        return self.base.log_prob(x - last / 2).sum(-1)

    def sample(self, n):
        z = self.base.sample((n, D))
        for j in range(1, D):
            z[:, j] += z[:, j - 1] / 2
        return z


@pytest.mark.quick(1)
@pytest.mark.parametrize("n_together", [1, 2])
def test_a_skewed_target(n_together, seed):
    """Against third moments too, in closed form; q is normal, standard or extended."""
    blank = ROWS[[2]]
    exact = gumbel_moments()
    for kind in (StandardConditionals, ExtendedConditionals):
        q = conditionals(kind, shake=0.3, widen=2.0)
        with torch.no_grad():
            q.slopes.zero_()
            q.intercepts.fill_(1.0)
        sampler = metropolised_gibbs(Skewed(), q, ALL, n_together=n_together)
        x = run(sampler, seed, 120, blank).numpy()
        assert np.abs(z_mean(powers(x), exact)).max() < GATE
        free = run(variational_gibbs(q, ALL), seed, 40, blank).numpy()
        assert np.abs(z_mean(powers(free), exact)).max() > 2 * GATE
    right = Skewed().sample(N).numpy()
    assert np.abs(z_mean(powers(right), exact)).max() < GATE


def powers(x):
    return np.concatenate([x, x**2, np.exp(-x / 4)], -1)


def gumbel_moments():
    """E[x], E[x^2] and E[exp(-x / 4)]; E[exp(-t z)] of a Gumbel is Gamma(1 + t)."""
    euler, variance = np.euler_gamma, np.pi**2 / 6
    shares = [[0.5**k for k in range(j + 1)] for j in range(D)]
    mean = np.array([euler * sum(s) for s in shares])
    square = np.array([variance * sum(v * v for v in s) for s in shares]) + mean**2
    curved = [np.prod([gamma(1 + v / 4) for v in s]) for s in shares]
    return np.concatenate([mean, square, curved])


def visits(sampler, data, n_steps, seed, shape=()):
    """Collect the tables after each step, and the columns."""
    tables, columns = [], []

    def keep(state, visit):
        tables.append(state.x)
        columns.append(visit.columns)

    with seeded(seed):
        state = sampler.init(data, torch.zeros(*shape, *data.x.shape).double())
        run_chain(sampler, state, data, n_steps, keep)
    return [state.x, *tables], columns


def table():
    """Make rows of every number of missing cells."""
    return repeat(np.vstack([ROWS, COMPLETE, [1.0, 2.0, nan, 4.0]]), 40)


SAMPLERS = {
    False: lambda: variational_gibbs(conditionals(), ALL),
    True: lambda: metropolised_gibbs(FactorDensity.of(MODEL), conditionals(), ALL),
}


@pytest.mark.parametrize("corrected", SAMPLERS)
def test_sweeps_visit_each_missing_column_once(corrected, seed):
    data = table()
    sampler = SAMPLERS[corrected]()
    tables, columns = visits(sampler, data, 24, seed, (2,))
    order = torch.stack(columns)  # (24, 2, n)
    for i in range(len(data.x)):
        missing = (~data.observed[i]).nonzero()[:, 0]
        for chain in range(2) if len(missing) else ():
            sweeps = order[:, chain, i].view(-1, len(missing))
            assert (sweeps.sort(1).values == missing).all()
    firsts = order[0, 0, 80:120]  # of the rows that miss all: any comes first
    assert len(firsts.unique()) == D
    for before, after, at in zip(tables[:-1], tables[1:], columns, strict=True):
        changed = before != after
        assert (changed.sum(-1) <= 1).all()
        if not corrected:
            mine = changed.gather(-1, at[..., None]).squeeze(-1)
            assert torch.equal(mine, (~data.observed).any(1).expand(2, -1))
        assert torch.equal(changed & data.observed, torch.zeros_like(changed))


@pytest.mark.parametrize("corrected", SAMPLERS)
def test_observed_cells_stay_and_their_starts_are_not_read(corrected, seed):
    data = table()
    hidden = data.x.where(data.observed, torch.nan)
    blind = Incomplete(hidden, data.observed)
    sampler = SAMPLERS[corrected]()
    ends = []
    for made, fill in ((data, 0.0), (blind, 0.0), (data, 1e6)):
        start = torch.zeros_like(data.x).where(~data.observed, fill)
        with seeded(seed):
            ends.append(run_chain(sampler, sampler.init(made, start), made, 9).x)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    assert torch.equal(ends[0][data.observed], data.x[data.observed])
    assert ends[0].isfinite().all()


def test_the_same_numbers_give_the_same_chains():
    data = table()
    one, two, other = (
        run_chain(sampler, sampler.init(data, data.x), data, 5).x
        for sampler in (
            variational_gibbs(conditionals(), ALL, uniforms=stream(s))
            for s in (3, 3, 4)
        )
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_draws_outside_the_hypercube_are_not_taken(seed):
    data = table()
    low, high = torch.full((D,), -0.5), torch.full((D,), 0.8)
    cube = Hypercube(low, high)
    outside = []
    sampler = variational_gibbs(conditionals(), cube)
    with seeded(seed):
        state = sampler.init(data, torch.zeros_like(data.x))
        for _ in range(12):
            before = state.x
            state, visit = sampler.step(state, data)
            outside.append(visit.outside)
            assert torch.equal(state.x[visit.outside], before[visit.outside])
    inner = (state.x >= low) & (state.x <= high)
    assert inner[~data.observed].all()
    values = torch.stack(outside)
    assert values.any()
    assert not values[:, data.observed.all(1)].any()


def test_the_corrected_sampler_is_exact_in_the_hypercube(seed):
    """Of one cell, a truncated normal; two together, against rejection."""
    cube = Hypercube(torch.full((D,), -1.0), torch.full((D,), 1.0))
    data, density = repeat(ROWS[[2]]), FactorDensity.of(MODEL)
    with seeded(seed):
        many = MultivariateNormal(MODEL.mean, MODEL.covariance()).sample((200_000,))
        right = many[(many.abs() <= 1).all(1)]
        right = right[:N]
        for n_together in (1, 2):
            sampler = metropolised_gibbs(
                density, WRONG["off, extended"], cube, n_together=n_together
            )
            x = run_chain(sampler, sampler.init(data, data.x), data, 120).x
            assert (x.abs() <= 1).all()
            z = z_two_sample(first_and_second(x), first_and_second(right))
            assert np.abs(z).max() < GATE


def test_hypercubes():
    data = Incomplete.from_array(np.array([[1.0, nan], [3.0, -2.0], [nan, 5.0]]))
    cube = observed_hypercube(data)
    assert torch.equal(cube.low, torch.tensor([1.0, -2.0]).double())
    assert torch.equal(cube.high, torch.tensor([3.0, 5.0]).double())
    value = torch.tensor([1.0, 6.0, nan, -3.0])
    columns = torch.tensor([0, 1, 0, 1])
    assert cube.outside(value, columns).tolist() == [False, True, True, True]
    ends = torch.tensor([1e30, torch.inf, nan, -torch.inf])
    values = unbounded(2).outside(ends, columns).tolist()
    assert values == [False, True, True, True]


def test_nothing_is_recorded():
    data, sampler = table(), variational_gibbs(conditionals(), ALL)
    state, _ = sampler.step(sampler.init(data, data.x), data)
    assert not state.x.requires_grad


# Gibbs sampling of levels and numbers by conditionals, against enumeration


N_LEVELS, STEPS = 3000, 30
SIZES = torch.tensor([2, 3, 4, 0])
CUBE = Hypercube(torch.tensor([0.0, 0.0, 0.0, -50.0]), torch.tensor([1, 2, 3, 50.0]))
SHIFT = torch.tensor([-1.5, -0.5, 0.5, 1.5]).double()  # of the number, by column 2


def table_levels(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    return logits.flatten().softmax(0).view(2, 3, 4)


class Conditionals:
    """Those of a table of three levels, and a number whose mean the third one sets."""

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def at(self, x, columns):
        i, j, k = x[..., :3].round().long().unbind(-1)
        p, number = self.probabilities, Normal(SHIFT[k], 1.0)
        density = Normal(SHIFT, 1.0).log_prob(x[..., 3:]).exp()
        levels = torch.zeros(*columns.shape, 4).double()
        for column, result in enumerate((p[:, j, k].movedim(0, -1), p[i, :, k])):
            levels[..., : result.shape[-1]] += (columns == column)[..., None] * result
        levels += (columns == 2)[..., None] * p[i, j] * density
        return NumberOrLevel(number, levels.log(), SIZES[columns])


def chained(q, row, seed):
    data = Incomplete.from_array(np.tile(row, (N_LEVELS, 1)))
    sampler = variational_gibbs(q, CUBE)
    torch.manual_seed(seed)
    start = torch.rand(N_LEVELS, 4).double() * torch.tensor([2, 3, 4, 1])
    state = sampler.init(data, start.floor())
    return run_chain(sampler, state, data, STEPS).x


def p_common(counts, probabilities):
    """Compare the counts of outcomes that are frequent enough."""
    common = probabilities * N_LEVELS >= 12
    part = probabilities[common] / probabilities[common].sum()
    return p_counts(counts[common].numpy(), part.numpy())


def test_levels_follow_the_joint_probabilities(seed):
    """All of a row is missing: the chain's stationary law is that of the table."""
    row, joint = np.full(4, np.nan), table_levels(seed)
    x = chained(Conditionals(joint), row, seed)
    place = x[:, 0] * 12 + x[:, 1] * 4 + x[:, 2]
    counts, expected = torch.bincount(place.long(), minlength=24), joint.flatten()
    assert p_common(counts, expected) > FAILURE
    for k in range(4):
        own = x[x[:, 2] == k, 3]
        if len(own) > 30:
            assert abs(z_mean(own, SHIFT[k])) < GATE
    other = table_levels(seed + 1).flatten()  # control
    assert (
        abs(counts / N_LEVELS - expected).sum()
        < abs(counts / N_LEVELS - other).sum() / 2
    )


def test_observed_cells_condition_the_levels(seed):
    joint = table_levels(seed)
    x = chained(Conditionals(joint), np.array([1.0, np.nan, np.nan, 0.7]), seed)
    assert (x[:, 0] == 1).all() and (x[:, 3] == 0.7).all()
    density = Normal(SHIFT, 1.0).log_prob(torch.tensor(0.7)).exp()
    expected = (joint[1] * density).flatten()
    expected = expected / expected.sum()
    result = torch.bincount((x[:, 1] * 4 + x[:, 2]).long(), minlength=12)
    assert p_common(result, expected) > FAILURE
    wrong = joint[0].flatten()
    assert (
        abs(result / N_LEVELS - expected).sum()
        < abs(result / N_LEVELS - wrong).sum() / 2
    )


def test_levels_outside_of_the_hypercube_are_rejected(seed):
    cube = Hypercube(CUBE.low, torch.tensor([1, 2, 2, 50.0]))
    data = Incomplete.from_array(np.full((200, 4), np.nan))
    sampler = variational_gibbs(Conditionals(table_levels(seed)), cube)
    torch.manual_seed(seed)
    state = sampler.init(data, torch.zeros(200, 4).double())
    assert run_chain(sampler, state, data, STEPS).x[:, 2].max() == 2
