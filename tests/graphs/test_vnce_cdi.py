"""Cumulative data imputation with learnt conditionals."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, orthant_rule, rejection, z_mean

from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.contrast.objective import nce
from skvnce.graphs import em
from skvnce.graphs.em import Penalty, Theta
from skvnce.graphs.vnce_cdi import (
    AffineConditionals,
    LatentCells,
    latent_cells,
    mean_of_draws,
    one_draw,
    vnce_cdi,
)

D, NU = 3, 4
PRECISION = np.array([[1.5, 0.6, -0.5], [0.6, 1.5, 0.0], [-0.5, 0.0, 2.0]])
LINEAR = np.array([1.5, 0.5, 1.0])
CENTRE = torch.zeros(D).double()
TRUTH = Theta(
    torch.tensor(PRECISION), torch.tensor(LINEAR), torch.zeros((), dtype=torch.float64)
)


def simulate(n, share, seed):
    """Draw rows of the model and hide a share of the cells."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rejection(PRECISION, LINEAR, np.full(D, np.nan), n, rng))
    observed = torch.tensor(rng.uniform(size=x.shape) >= share)
    return Incomplete(x.where(observed, 0.0), observed)


def method(data, **options):
    noise = em.marginals(data)
    options = {"noise_ratio": NU, "fit_linear": True, **options}
    return vnce_cdi(data, noise, CENTRE, **options), noise


def test_without_holes_it_is_nce(seed):
    data = simulate(150, 0.0, seed)
    with seeded(seed):
        (e_step, m_step, _), noise = method(data)
    with seeded(seed):
        y = noise.sample((NU * len(data.x),))
    _, both = e_step.step(e_step.init(), em.to_model(TRUTH, CENTRE))
    penalty = Penalty(torch.zeros(D, D).double(), 0.0)
    found = m_step.solve(m_step.summarise(both), TRUTH, penalty, 1e-7)
    model = em.to_model(found.theta, CENTRE)
    ratios = [
        (model.log_density(x) - noise.log_prob(x).sum(-1)).detach() for x in (data.x, y)
    ]
    assert e_step.once
    assert found.loss == pytest.approx(float(nce(*ratios, NU).loss), rel=1e-10)


@pytest.mark.parametrize("write", [one_draw, mean_of_draws])
@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_observed_cells_stay_and_others_move_one_a_step(write, value, seed):
    data = simulate(100, 0.5, seed)
    hidden = Incomplete(
        data.x.where(data.observed, torch.tensor(value).double()), data.observed
    )
    with seeded(seed):
        e_step = method(hidden, n_steps=1, write=write)[0].e_step
        first = e_step.init()
        second, both = e_step.step(first, em.to_model(TRUTH, CENTRE))
    seen, moved = data.observed, (second.x - first.x).abs() > 1e-12  # of means
    assert torch.equal(second.x[seen], data.x[seen])
    assert (second.x >= 0).all()
    assert torch.equal(moved.sum(1), (~seen).any(1).long())
    for x, mask in ((both.data.x, seen), (both.noise.x, seen.repeat(NU, 1))):
        changed = (x != x[0]).any(0)
        assert torch.equal(changed.sum(1), (~mask).any(1).long())
        assert not (changed & mask).any()


def test_draws_carry_their_density(seed):
    data = simulate(50, 0.5, seed)
    noise = em.marginals(data)
    q = AffineConditionals(noise, torch.ones(D).double())
    with seeded(seed), torch.no_grad():
        q.slopes += 0.1 * torch.randn(2, D, D)
        rows = latent_cells(data.with_values(noise.sample((50,))), data.observed)
        draws = rows.draw(q, 4)
    (x,) = draws.values
    for i, j in enumerate(rows.latent.tolist()):
        dist = q.at(rows.x[i : i + 1], torch.tensor([max(j, 0)]))
        expected = dist.log_prob(x[:, i, j]) if j >= 0 else torch.zeros(4).double()
        torch.testing.assert_close(draws.log_prob[:, i], expected.detach())
    given = rows.given()
    assert torch.equal(x[:, given], rows.x[given].expand(4, -1))
    assert torch.equal((~given).sum(1), (rows.latent >= 0).long())


def trained(data, seed, n_rounds, **options):
    """Train q at the true model, which stays."""
    with seeded(seed):
        e_step = method(data, **options)[0].e_step
        state = e_step.init()
        for _ in range(n_rounds):
            state, _ = e_step.step(state, em.to_model(TRUTH, CENTRE))
    return state


def relative_entropy(q, seed):
    """Integrate KL(q_j || p_j), for each column, at rows of the model."""
    rows = simulate(40, 0.0, seed + 1).x
    points, weights = orthant_rule(1, 12.0, 100)
    model, found = em.to_model(TRUTH, CENTRE), []
    for j in range(D):
        filled = rows.repeat(len(points), 1, 1)
        filled[..., j] = points
        log_q = q.at(filled, torch.full((40,), j)).log_prob(points)
        log_p = model.conditional(filled, j).log_prob(points)
        found.append(((log_q - log_p) * log_q.exp() * weights[:, None]).sum(0).mean())
    return torch.stack(found).detach()


def test_q_learns_the_conditionals_of_the_model(seed):
    data = simulate(1000, 0.5, seed)
    state = trained(data, seed, 6)
    start = AffineConditionals(em.marginals(data), torch.ones(D).double())
    before, after = relative_entropy(start, seed), relative_entropy(state.q, seed)
    assert float(after.max()) < 0.01
    assert float(before.min()) > 0.01
    assert float(before.max()) > 10 * float(after.max())


def test_q_learns_from_the_data_alone(seed, monkeypatch):
    data = simulate(100, 0.5, seed)
    options = {"n_steps": 3}
    first = trained(data, seed, 2, **options).q
    drawn_cells = LatentCells.draw

    def broken(self, q, n_draws):
        """Draw; noise rows far away."""
        if len(self.x) > len(data.x):
            return drawn_cells(self._replace(x=self.x + 50), q, n_draws)
        return drawn_cells(self, q, n_draws)

    monkeypatch.setattr(LatentCells, "draw", broken)
    second = trained(data, seed, 2, **options).q
    assert torch.equal(first.slopes, second.slopes)
    assert torch.equal(first.intercepts, second.intercepts)


@pytest.mark.slow
def test_single_draws_have_the_spread_of_the_data_and_means_have_not(seed):
    """Completed rows against the complete ones, whose moments they should have."""
    complete = simulate(3000, 0.0, seed).x
    rng = np.random.default_rng([seed, 1])
    observed = torch.tensor(rng.uniform(size=complete.shape) >= 0.5)
    data, z = Incomplete(complete, observed), {}
    for write in (one_draw, mean_of_draws):
        x = trained(data, seed, 4, n_draws=8, write=write).x
        change = first_and_second(x) - first_and_second(complete)
        z[write] = np.abs(z_mean(change, 0)).max()
    assert z[one_draw] < GATE
    assert z[mean_of_draws] > GATE
