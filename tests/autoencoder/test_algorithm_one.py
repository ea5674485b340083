"""AC-MWG against algorithm 1 written out row by row, and what its history holds."""

import numpy as np
import pytest
import torch
from oracles import GATE
from toy import LINEAR, ROWS, linear_posterior, repeat

from skvnce._core.distributions.functions import at_quantiles, draw
from skvnce._core.models import observed_log_prob
from skvnce._core.posteriors import stream
from skvnce._core.random import seeded
from skvnce._core.samplers import FIRST, columns, run_chain
from skvnce.autoencoder.samplers import ac_mwg, begin, pick, record

OFF = linear_posterior(widen=1.3, shift=0.2)
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

        proposal = draw(PRIOR if u_part < eps else q, u_z)
        log_ratio = log_target(data, proposal) - log_target(data, z)
        if u_accept.log() < log_ratio + log_q(z) - log_q(proposal):
            z, n_available = proposal, len(history)
        x = data.with_values(at_quantiles(LINEAR.likelihood(z), u_x))
        history.append(x)
        tables.append(x)
    return torch.stack(tables)


@pytest.mark.quick(3)
@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("row", range(3))
def test_against_algorithm_one(eps, row, seed):
    data, uniforms, n_steps = repeat(ROWS[[row]], 1), stream(seed), 60
    sampler = ac_mwg(LINEAR, OFF, eps=eps, history_size=100, uniforms=uniforms)
    state, tables = sampler.init(data), []
    run_chain(sampler, state, data, n_steps, lambda s, _: tables.append(s.x))
    expected = algorithm_one(data, eps, state.x, state.z, uniforms, n_steps)
    torch.testing.assert_close(torch.stack(tables), expected)


def test_the_first_imputation_is_independent_of_the_latents(seed):
    data, sampler = repeat(ROWS[[2]], 4000), ac_mwg(LINEAR, OFF)
    with seeded(seed):
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
    with seeded(seed):
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
