"""What all samplers of latent variable models hold to; a new one joins the list."""

import numpy as np
import pytest
import torch
from toy import LINEAR, ROWS, latents, linear_posterior

from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import stream
from skvnce._core.random import row_keyed
from skvnce._core.samplers import run_chain
from skvnce.autoencoder.losses import variational_block_gibbs
from skvnce.autoencoder.samplers import ac_mwg, lair, mwg, pseudo_gibbs, run_pooled
from skvnce.autoencoder.samplers import pooled_draws as draws

N, INF = np.nan, np.inf
OFF = linear_posterior(widen=1.3, shift=0.2)
TABLE = np.concatenate([ROWS, [[1.0, -1.0, 0.5, 3.0], [N, 0.0, 1.0, N]]])


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
    data = Incomplete.from_array(TABLE)
    start = make(LINEAR, OFF, uniforms=stream(seed)).init(data)
    end = run(make, data, stream(seed))
    assert end.step == 12
    assert end.x.shape == start.x.shape
    for x in (start.x, end.x):
        seen = data.observed.expand_as(x)
        assert torch.equal(x[seen], data.x.expand_as(x)[seen])
        assert x.isfinite().all()
    assert (end.x != start.x)[~seen].all()
    assert torch.equal(end.x[:, 3], data.x[3].expand(len(end.x), -1))  # a complete row


@every
@pytest.mark.parametrize("garbage", [N, 1e6, -INF])
def test_values_under_the_mask_do_not_matter(make, garbage, seed):
    data = Incomplete.from_array(TABLE)
    dirty = Incomplete(data.x.where(data.observed, garbage), data.observed)
    x = torch.randn(4, *TABLE.shape, generator=torch.Generator().manual_seed(seed))
    for start in (None, x.double()):
        clean, other = (run(make, d, stream(seed), start) for d in (data, dirty))
        assert torch.equal(clean.x, other.x)


@every
def test_rows_in_any_order_and_batch(make, seed):
    def of(rows):
        data = Incomplete.from_array(rows)
        return run(make, data, row_keyed(rows, seed)).x

    whole, order = of(TABLE), torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(of(TABLE[order]), whole[:, order])
    torch.testing.assert_close(of(TABLE[1:3]), whole[:, 1:3])
    assert (whole[:, 2] != whole[:, 4])[:, [0, 3]].all()


@every
def test_a_step_changes_no_argument(make, seed):
    data = Incomplete.from_array(TABLE)
    sampler = make(LINEAR, OFF, uniforms=stream(seed))
    state = run_chain(sampler, sampler.init(data), data, 5)
    first, second = (sampler.step(state, data)[0] for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert not torch.equal(first.x, state.x)
    assert state.step + 1 == first.step


@every
def test_chains_go_on_from_given_tables(make, seed):
    data = Incomplete.from_array(TABLE)
    x = torch.full((2, 3, *TABLE.shape), 7.0).double()  # chains of any shape
    sampler = make(LINEAR, OFF, uniforms=stream(seed))
    state = sampler.init(data, x)
    assert (state.x[..., 2, :] == 7.0).all()
    assert sampler.step(state, data)[0].x.shape == x.shape


@every
def test_one_call_of_one_shape_for_each_number(make, seed):
    """So that numbers which are keyed by the row are never used twice."""
    calls = []

    def uniforms(number, template):
        calls.append((number, template.shape))
        return stream(seed)(number, template)

    run(make, Incomplete.from_array(TABLE), uniforms, n_steps=3)
    numbers, shapes = zip(*calls, strict=True)
    assert len(set(numbers)) == len(numbers)
    assert len(set(shapes)) == 1


@every
def test_no_gradient_is_kept(make, seed):
    parts = LINEAR._replace(mean=torch.nn.Parameter(LINEAR.mean)), OFF
    sampler = make(*parts, uniforms=stream(seed))
    data = Incomplete.from_array(TABLE)
    state = run_chain(sampler, sampler.init(data), data, 2)
    assert not state.x.requires_grad


@every
def test_single_precision(make, seed):
    model = type(LINEAR)(*(part.float() for part in LINEAR))

    def posterior(x, observed):
        return latents(x[..., :2] / 10, torch.ones_like(x[..., :2]))

    def edges(number, template):  # all that numbers in [0, 1) may be rounded to
        return stream(seed)(number, template).round()

    data = Incomplete.from_array(TABLE, torch.float32)
    for uniforms in (stream(seed), edges):
        sampler = make(model, posterior, uniforms=uniforms)
        x = run_chain(sampler, sampler.init(data), data, 5).x
        assert x.dtype == torch.float32
        assert x.isfinite().all()


def test_the_pool_is_a_function_of_the_row(seed):
    def of(rows):
        data = Incomplete.from_array(rows)
        numbers = [row_keyed(rows, seed + k) for k in range(3)]
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
    data, low = (
        Incomplete.from_array(TABLE),
        torch.full((4,), -0.1, dtype=torch.float64),
    )
    bounds = low, -low
    sampler = pseudo_gibbs(LINEAR, OFF, bounds=bounds, uniforms=stream(seed))
    x = run_chain(sampler, sampler.init(data), data, 3).x
    hidden = ~data.observed.expand_as(x)
    assert (x[hidden].abs() <= 0.1).all()
    assert torch.equal(x[~hidden], data.x.expand_as(x)[~hidden])  # though beyond them


def test_draws_that_are_not_finite_leave_the_cell_as_it_was(seed):
    model = LINEAR._replace(mean=torch.tensor([N, INF, 0.0, 0.0]).double())

    class Lenient:
        prior = model.prior

        def likelihood(self, z):
            mean = model.mean + z @ model.loadings.T
            return torch.distributions.Normal(mean, model.std, validate_args=False)

    data = Incomplete.from_array(TABLE[[2]])
    sampler = pseudo_gibbs(Lenient(), OFF, uniforms=stream(seed))
    state = sampler.init(data, torch.full((1, 1, 4), 3.0).double())
    x = sampler.step(state, data)[0].x[0, 0]
    assert x[:2].tolist() == [3.0, 3.0]
    assert (x[2:] != 3.0).all()
