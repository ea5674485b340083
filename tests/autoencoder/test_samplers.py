"""Samplers of latent variable models against exact answers."""

from math import log

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, worst_z, z_mean
from toy import (
    LINEAR,
    ROWS,
    exact_latents,
    exact_moments,
    latents,
    linear_posterior,
    repeat,
)

from skvnce._core import models, random
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import FIRST, columns, decode, observed_log_prob, run_chain
from skvnce.autoencoder.factor_analysis import log_prob_observed
from skvnce.autoencoder.losses import variational_block_gibbs
from skvnce.autoencoder.samplers import (
    ac_mwg,
    begin,
    lair,
    mwg,
    pick,
    pseudo_gibbs,
    record,
    run_pooled,
)
from skvnce.autoencoder.samplers import pooled_draws as draws

# What all samplers of latent variable models hold to; a new one joins the list


N, INF = np.nan, np.inf
OFF = linear_posterior(widen=1.3, shift=0.2)
TABLE = np.concatenate([ROWS, [[1.0, -1.0, 0.5, 3.0], [N, 0.0, 1.0, N]]])
DATA = Incomplete.from_array(TABLE)


def block_gibbs(model, posterior, **options):
    """With q(x_mis | z, x_obs) of the model itself."""

    def cells(x, observed, z):
        return model.likelihood(z)

    return variational_block_gibbs(model, posterior, cells, **options)


SAMPLERS = {
    "pseudo_gibbs": pseudo_gibbs,
    "mwg": mwg,
    "ac_mwg": lambda *parts, **options: ac_mwg(*parts, history_size=3, **options),
    "lair": lambda *parts, **options: lair(*parts, n_particles=4, **options),
    "block_gibbs": block_gibbs,
}
every = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


def run(make, data, uniforms, x=None, n_steps=12):
    sampler = make(LINEAR, OFF, uniforms=uniforms)
    return run_chain(sampler, sampler.init(data, x), data, n_steps)


@every
def test_observed_cells_stay_and_others_move(make, seed):
    start = make(LINEAR, OFF, uniforms=random.stream(seed)).init(DATA)
    end = run(make, DATA, random.stream(seed))
    assert end.step == 12
    assert end.x.shape == start.x.shape
    for x in (start.x, end.x):
        seen = DATA.observed.expand_as(x)
        assert torch.equal(x[seen], DATA.x.expand_as(x)[seen])
        assert x.isfinite().all()
    assert (end.x != start.x)[~seen].all()
    assert torch.equal(end.x[:, 3], DATA.x[3].expand(len(end.x), -1))  # a complete row


@every
@pytest.mark.parametrize("garbage", [N, 1e6, -INF])
def test_values_under_the_mask_do_not_matter(make, garbage, seed):
    dirty = Incomplete(DATA.x.where(DATA.observed, garbage), DATA.observed)
    x = torch.randn(4, *TABLE.shape, generator=torch.Generator().manual_seed(seed))
    for start in (None, x.double()):
        clean, other = (run(make, d, random.stream(seed), start) for d in (DATA, dirty))
        assert torch.equal(clean.x, other.x)


@every
def test_rows_in_any_order_and_batch(make, seed):
    def of(rows):
        data = Incomplete.from_array(rows)
        return run(make, data, random.row_keyed(rows, seed)).x

    whole, order = of(TABLE), torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(of(TABLE[order]), whole[:, order])
    torch.testing.assert_close(of(TABLE[1:3]), whole[:, 1:3])
    assert (whole[:, 2] != whole[:, 4])[:, [0, 3]].all()


@every
def test_a_step_changes_no_argument(make, seed):
    sampler = make(LINEAR, OFF, uniforms=random.stream(seed))
    state = run_chain(sampler, sampler.init(DATA), DATA, 5)
    first, second = (sampler.step(state, DATA)[0] for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert not torch.equal(first.x, state.x)
    assert state.step + 1 == first.step


@every
def test_chains_go_on_from_given_tables(make, seed):
    x = torch.full((2, 3, *TABLE.shape), 7.0).double()  # chains of any shape
    sampler = make(LINEAR, OFF, uniforms=random.stream(seed))
    state = sampler.init(DATA, x)
    assert (state.x[..., 2, :] == 7.0).all()
    assert sampler.step(state, DATA)[0].x.shape == x.shape


@every
def test_one_call_of_one_shape_for_each_number(make, seed):
    """So that numbers which are keyed by the row are never used twice."""
    calls = []

    def uniforms(number, template):
        calls.append((number, template.shape))
        return random.stream(seed)(number, template)

    run(make, DATA, uniforms, n_steps=3)
    numbers, shapes = zip(*calls, strict=True)
    assert len(set(numbers)) == len(numbers)
    assert len(set(shapes)) == 1


@every
def test_no_gradient_is_kept(make, seed):
    parts = LINEAR._replace(mean=torch.nn.Parameter(LINEAR.mean)), OFF
    sampler = make(*parts, uniforms=random.stream(seed))
    state = run_chain(sampler, sampler.init(DATA), DATA, 2)
    assert not state.x.requires_grad


@every
def test_single_precision(make, seed):
    model = type(LINEAR)(*(part.float() for part in LINEAR))

    def posterior(x, observed):
        return latents(x[..., :2] / 10, torch.ones_like(x[..., :2]))

    def edges(number, template):  # all that numbers in [0, 1) may be rounded to
        return random.stream(seed)(number, template).round()

    data = Incomplete.from_array(TABLE, torch.float32)
    for uniforms in (random.stream(seed), edges):
        sampler = make(model, posterior, uniforms=uniforms)
        x = run_chain(sampler, sampler.init(data), data, 5).x
        assert x.dtype == torch.float32
        assert x.isfinite().all()


def test_the_pool_is_a_function_of_the_row(seed):
    def of(rows):
        data = Incomplete.from_array(rows)
        numbers = [random.row_keyed(rows, seed + k) for k in range(3)]
        sampler = lair(LINEAR, OFF, n_particles=4, uniforms=numbers[0])
        options = {"n_steps": 5, "n_draws": 3, "uniforms": numbers[1]}
        state = sampler.init(data)
        _, pool = run_pooled(sampler, state, data, torch.square, **options)
        return draws(LINEAR, data, pool, numbers[2]), pool

    (x, pool), (y, other) = of(TABLE), of(TABLE[::-1])
    torch.testing.assert_close(y, x.flip(1))
    torch.testing.assert_close(other.log_total, pool.log_total.flip(0))


# Bounds of pseudo-Gibbs


def test_draws_are_clamped_to_bounds(seed):
    low = torch.full((4,), -0.1, dtype=torch.float64)
    bounds = low, -low
    sampler = pseudo_gibbs(LINEAR, OFF, bounds=bounds, uniforms=random.stream(seed))
    x = run_chain(sampler, sampler.init(DATA), DATA, 3).x
    hidden = ~DATA.observed.expand_as(x)
    assert (x[hidden].abs() <= 0.1).all()
    assert torch.equal(x[~hidden], DATA.x.expand_as(x)[~hidden])  # though beyond them


def test_draws_that_are_not_finite_leave_the_cell_as_it_was(seed):
    model = LINEAR._replace(mean=torch.tensor([N, INF, 0.0, 0.0]).double())

    class Lenient:
        prior = model.prior

        def likelihood(self, z):
            mean = model.mean + z @ model.loadings.T
            return torch.distributions.Normal(mean, model.std, validate_args=False)

    data = Incomplete.from_array(TABLE[[2]])
    sampler = pseudo_gibbs(Lenient(), OFF, uniforms=random.stream(seed))
    state = sampler.init(data, torch.full((1, 1, 4), 3.0).double())
    x = sampler.step(state, data)[0].x[0, 0]
    assert x[:2].tolist() == [3.0, 3.0]
    assert (x[2:] != 3.0).all()


# Samplers of latent variable models against the exact conditionals of factor analysis.
#
# Every row is copied many times and its copies are independent chains, so that standard
# errors need no autocorrelations.


N_EXACT = 3000
EXACT = linear_posterior()
SAMPLERS_EXACT = {
    "pseudo_gibbs": pseudo_gibbs(LINEAR, EXACT),
    "mwg": mwg(LINEAR, OFF),
    "ac_mwg": ac_mwg(LINEAR, OFF, eps=0.1),
    "ac_mwg, short history": ac_mwg(LINEAR, OFF, eps=0.1, history_size=3),
}


def worst(x):
    return worst_z(x, ROWS, exact_moments)


def run_exact(sampler, seed, n_steps):
    data = repeat(ROWS, N_EXACT)
    with random.seeded(seed):
        return run_chain(sampler, sampler.init(data), data, n_steps).x


def run_from_target(sampler, seed, n_steps=4):
    """Start latents and cells at draws of the target, histories elsewhere."""
    data = repeat(ROWS, N_EXACT)
    with random.seeded(seed):
        z = exact_latents(data)[None]
        x = decode(LINEAR, data, z, torch.rand(1, *data.x.shape).double())
        state = sampler.init(data, x)
        if hasattr(state, "history"):  # an imputation independent of z
            state = sampler.init(data)
        if hasattr(state, "z"):
            state = state._replace(x=x, z=z)
        return run_chain(sampler, state, data, n_steps).x


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", SAMPLERS_EXACT)
def test_chains_converge_to_the_target(name, seed):
    assert worst(run_exact(SAMPLERS_EXACT[name], seed, 60)) < GATE


@pytest.mark.parametrize("name", SAMPLERS_EXACT)
def test_the_target_is_invariant(name, seed):
    assert worst(run_from_target(SAMPLERS_EXACT[name], seed)) < GATE


@pytest.mark.parametrize("name", SAMPLERS_EXACT)
def test_too_few_steps_are_seen(name, seed):
    assert worst(run_exact(SAMPLERS_EXACT[name], seed, 1)) > 2 * GATE


def test_pseudo_gibbs_is_wrong_where_its_encoder_is(seed):
    sampler = pseudo_gibbs(LINEAR, OFF)
    assert worst(run_from_target(sampler, seed)) > 2 * GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["mwg", "ac_mwg", "ac_mwg, short history"])
@pytest.mark.parametrize("rule", ["accept all", "turned over"])
def test_a_broken_accept_step_is_seen(name, rule, seed, monkeypatch):
    right = models.accept

    def accept_all(log_weight, uniform):
        return torch.ones_like(uniform, dtype=torch.bool), torch.ones_like(uniform)

    def turned_over(log_weight, uniform):
        return right(-log_weight, uniform)

    broken = accept_all if rule == "accept all" else turned_over
    monkeypatch.setattr(models, "accept", broken)
    assert worst(run_exact(SAMPLERS_EXACT[name], seed, 40)) > 2 * GATE


def test_rows_without_observed_cells_give_unconditional_draws(seed):
    """Those of the start are exact, with no step made."""
    blank = repeat(ROWS[[2]], N_EXACT)
    with random.seeded(seed):
        x = (
            pseudo_gibbs(LINEAR, OFF, uniforms=random.global_stream)
            .init(blank)
            .x[0]
            .numpy()
        )
    z = z_mean(first_and_second(x), exact_moments(ROWS[2]))
    assert np.abs(z).max() < GATE


# AC-MWG against algorithm 1 written out row by row, and what its history holds


PRIOR = LINEAR.prior()


def log_target(data, z):
    return observed_log_prob(LINEAR.likelihood(z), *data) + PRIOR.log_prob(z)


def algorithm_one(data, eps, x, z, uniforms, n_steps):
    """Run algorithm 1 for one row (1, features); all of its tables."""
    history, n_available, tables = [x], 1, []
    for t in range(n_steps):
        u_z, u_x, more = columns(uniforms, t + FIRST, LINEAR, data, (1,), 4)
        u_past, u_part, u_accept, _ = more.flatten(1)
        q = OFF(history[int(u_past * n_available)], torch.tensor(True))

        def log_q(z, q=q):
            return (
                (1 - eps) * q.log_prob(z).exp() + eps * PRIOR.log_prob(z).exp()
            ).log()

        proposal = random.draw(PRIOR if u_part < eps else q, u_z)
        log_ratio = log_target(data, proposal) - log_target(data, z)
        if u_accept.log() < log_ratio + log_q(z) - log_q(proposal):
            z, n_available = proposal, len(history)
        x = data.with_values(random.at_quantiles(LINEAR.likelihood(z), u_x))
        history.append(x)
        tables.append(x)
    return torch.stack(tables)


@pytest.mark.quick(3)
@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("row", range(3))
def test_against_algorithm_one(eps, row, seed):
    data, uniforms, n_steps = repeat(ROWS[[row]], 1), random.stream(seed), 60
    sampler = ac_mwg(LINEAR, OFF, eps=eps, history_size=100, uniforms=uniforms)
    state, tables = sampler.init(data), []
    run_chain(sampler, state, data, n_steps, lambda s, _: tables.append(s.x))
    expected = algorithm_one(data, eps, state.x, state.z, uniforms, n_steps)
    torch.testing.assert_close(torch.stack(tables), expected)


def test_the_first_imputation_is_independent_of_the_latents(seed):
    data, sampler = repeat(ROWS[[2]], 4000), ac_mwg(LINEAR, OFF)
    with random.seeded(seed):
        fresh = sampler.init(data)
        caught = sampler.init(data, fresh.x)
    assert torch.equal(caught.x, fresh.x)
    for state in (fresh, caught):
        both = torch.cat([state.x[0], state.z[0]], 1).numpy()
        correlation = np.corrcoef(both.T)[:4, 4:]
        assert np.abs(correlation).max() * np.sqrt(len(both)) < GATE


# The history


def filled(size, accepted):
    """Record the imputations 1, 2, ... of many rows; they accept at the given steps."""
    n = 40_000
    history = begin(torch.zeros(1, n, 1).double(), size)
    for t, yes in enumerate(accepted, 1):
        x = torch.full((1, n, 1), float(t)).double()
        u = torch.rand(1, n).double()
        history = record(history, torch.full((1, n), yes), x, u)
    return history, pick(history, torch.rand(1, n).double()).flatten().long()


@pytest.mark.parametrize("size", [1, 3, 5, 20])
@pytest.mark.parametrize(
    ("accepted", "n_available"),
    [
        ([False] * 6, 1),  # never accepted: only the first
        ([False, False, True], 3),  # x^0, x^1, x^2, but not the one drawn since
        ([True] * 9 + [False] * 4, 9),
        ([True, False, False, True] * 3, 12),
    ],
)
def test_picks_are_uniform_over_what_is_available(size, accepted, n_available, seed):
    with random.seeded(seed):
        history, picked = filled(size, accepted)
    assert (history.n_available == n_available).all()
    assert history.n_stored == len(accepted) + 1
    count = torch.bincount(picked, minlength=n_available).double()
    assert len(count) == n_available  # never beyond
    share = 1 / n_available
    error = np.sqrt(share * (1 - share) / len(picked)) + 1e-12
    assert float((count / len(picked) - share).abs().max()) / error < GATE


def test_rows_keep_histories_of_their_own():
    history = begin(torch.zeros(3, 1), 10)
    for t, accepted in enumerate([(0, 0, 0), (1, 0, 0), (0, 1, 0)], 1):
        x = torch.full((3, 1), float(t))
        history = record(history, torch.tensor(accepted).bool(), x, torch.zeros(3))
    assert history.n_available.tolist() == [2, 3, 1]
    last = pick(history, torch.full((3,), 1.0))  # a uniform number rounded up
    assert last.flatten().tolist() == [1.0, 2.0, 0.0]


# LAIR and its pool against the exact answers of factor analysis


N_LAIR = 500


def mean_of_cells(z):
    return LINEAR.likelihood(z).mean


def pooled(sampler, data, seed, *, n_steps, n_draws=1, particles=None):
    with random.seeded(seed):
        state = sampler.init(data, particles)
        _, pool = run_pooled(
            sampler, state, data, mean_of_cells, n_steps=n_steps, n_draws=n_draws
        )
        return pool, draws(LINEAR, data, pool)


def of_rows(values):
    """Split values of copies of rows, and keep the hidden cells."""
    blocks = np.split(values, len(ROWS), -2)
    return [b[..., np.isnan(row)] for b, row in zip(blocks, ROWS, strict=True)]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("k", "r", "n_steps"), [(10, 1, 60), (4, 2, 120), (1, 2, 400), (0, 10, 60)]
)
def test_draws_of_the_pool(k, r, n_steps, seed):
    sampler = lair(LINEAR, OFF, n_particles=k, n_replenish=r)
    _, x = pooled(sampler, repeat(ROWS, N_LAIR), seed, n_steps=n_steps, n_draws=8)
    for row, drawn in zip(ROWS, of_rows(x.numpy()), strict=True):
        sample = first_and_second(drawn).mean(0)  # draws of one row are dependent
        assert np.abs(z_mean(sample, exact_moments(row))).max() < GATE


def test_few_particles_of_one_iteration_are_biased(seed):
    """So that agreement above is the merit of the pool."""
    sampler, data = lair(LINEAR, OFF, n_particles=1), repeat(ROWS, 12_000)
    with random.seeded(seed):
        x = run_chain(sampler, sampler.init(data), data, 10).x.numpy()
    z = [
        z_mean(first_and_second(drawn).mean(0), exact_moments(row))
        for row, drawn in zip(ROWS, of_rows(x), strict=True)
    ]
    assert np.abs(np.concatenate(z)).max() > 2 * GATE


@pytest.mark.parametrize("n_steps", [1, 5])
@pytest.mark.parametrize("r", [1, 3])
def test_weights_estimate_the_evidence_without_bias(n_steps, r, seed):
    data = repeat(ROWS, 4000)
    sampler = lair(LINEAR, OFF, n_particles=4, n_replenish=r)
    pool, _ = pooled(sampler, data, seed, n_steps=n_steps)
    exact, _ = log_prob_observed(LINEAR.factor_model(), *data)
    ratio = (
        ((pool.log_total - log(pool.n_proposals))[:, None] - exact[:, None])
        .exp()
        .numpy()
    )
    assert pool.n_proposals == n_steps * (4 + r)
    for row, weight, mean in zip(
        ROWS, np.split(ratio, len(ROWS)), of_rows(pool.mean.numpy()), strict=True
    ):
        assert np.abs(z_mean(weight, 1.0)).max() < GATE
        expected = exact_moments(row)[: mean.shape[-1]]
        assert np.abs(z_mean(weight * (mean - expected), 0.0)).max() < GATE
        assert np.abs(z_mean(weight, 1.1)).max() > 2 * GATE


# Errors


# Limits


def wide(step, template):
    """Give the same leading columns whatever the width."""
    generator = torch.Generator().manual_seed(step)
    shape = (*template.shape[:-1], 32)
    numbers = torch.rand(shape, generator=generator, dtype=template.dtype)
    return numbers[..., : template.shape[-1]]


def test_one_particle_and_no_prior_is_pseudo_gibbs():
    data = repeat(ROWS, 2)
    one = lair(LINEAR, OFF, n_particles=1, n_replenish=0, uniforms=wide)
    gibbs = pseudo_gibbs(LINEAR, OFF, uniforms=wide)
    states = [run_chain(s, s.init(data), data, 5) for s in (one, gibbs)]
    assert torch.equal(states[0].x, states[1].x)
    assert states[0].step == 5


def test_weights_of_exact_proposals_are_equal():
    """A complete row, whose encoder is exact: all weights are p(x)."""
    data = repeat(np.array([[1.0, -1.0, 0.5, 3.0]]), 3)
    sampler = lair(LINEAR, linear_posterior(), n_particles=5, n_replenish=0)
    _, info = sampler.step(sampler.init(data), data)
    exact, _ = log_prob_observed(LINEAR.factor_model(), *data)
    torch.testing.assert_close(info.log_weight, exact.expand(5, 3))


def test_the_pool_resamples_all_proposals_by_weight(seed):
    """Many draws of one row against the weights of all proposals, kept for once."""
    data, sampler, records = repeat(ROWS[[0]], 1), lair(LINEAR, OFF, n_particles=3), []

    def step(state, data):
        state, info = sampler.step(state, data)
        records.append(info)
        return state, info

    pool, _ = pooled(sampler._replace(step=step), data, seed, n_steps=4, n_draws=40_000)
    log_weight = torch.cat([t.log_weight for t in records])[:, 0]
    all_z = torch.cat([t.z for t in records])[:, 0]
    weight = log_weight.softmax(0).numpy()
    chosen = (pool.z[:, 0, :1] == all_z[:, 0]).double().numpy()
    assert (chosen.sum(1) == 1).all()
    error = np.sqrt(weight * (1 - weight) / len(chosen)) + 1e-12
    assert np.abs((chosen.mean(0) - weight) / error).max() < GATE
    mean = (log_weight.softmax(0)[:, None] * mean_of_cells(all_z)).sum(0)
    torch.testing.assert_close(pool.mean[0], mean)
    expected = log_weight.logsumexp(0) - log(len(log_weight))
    torch.testing.assert_close(pool.log_total[0] - log(pool.n_proposals), expected)
