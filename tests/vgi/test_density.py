"""Densities of rows: exact on a normal distribution, where all has closed forms."""

import numpy as np
import pytest
import torch
from oracles import GATE, z_mean
from vaes import NORMAL, families

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import standard_error
from skvnce._core.random import row_keyed, seeded
from skvnce.gaussian import em
from skvnce.vgi import conditionals, fit
from skvnce.vgi.conditionals import NormalHead
from skvnce.vgi.densities import SplineFlow
from skvnce.vgi.model import (
    FittedPair,
    Local,
    chunks,
    dequantised_rows,
    draw,
    error_of,
    normal_draw,
    normal_log_prob,
    normal_start,
    score,
    sweep_from,
)
from skvnce.vgi.training import Pair, unbounded


@pytest.fixture
def normal(seed):
    with seeded(seed):
        root = torch.randn(4, 4).double()
        return Normal(torch.randn(4).double(), root @ root.T + torch.eye(4))


@pytest.fixture
def fitted(normal):
    with seeded(0):
        flow = SplineFlow(normal.mean, torch.linalg.cholesky(normal.covariance))
        q = conditionals.anchored_conditionals(normal, NormalHead()).double()
    return FittedPair(Pair(flow.double(), q), normal, NORMAL, unbounded(4))


@pytest.fixture
def data(normal, seed):
    """Rows that miss two cells each."""
    with seeded(seed + 1):
        x = torch.distributions.MultivariateNormal(*normal).sample((30,))
        order = torch.rand(30, 4).argsort(1)
    observed = order < 2
    return Incomplete(x.where(observed, 0.0), observed)


def streams(data, seed):
    return lambda purpose: row_keyed(data.to_array(), 100 * seed + purpose)


def test_starts_have_the_conditional_normal(fitted, data, seed):
    x = normal_start(fitted, data, streams(data, seed)(0), 4000)
    exact = em.conditional_mean(fitted.normal, data)
    missing = ~data.observed
    assert abs(z_mean((x - exact)[:, missing], 0.0)).max() < GATE
    assert (x[:, data.observed] == data.x[data.observed]).all()
    _, dequantised = em.conditional_moments(fitted.normal, data)
    square = (x - exact).square()
    assert abs(z_mean(square[:, missing], dequantised.square()[missing])).max() < GATE


@pytest.mark.slow
def test_chains_of_exact_conditionals_accept_and_keep_the_law(fitted, data, seed):
    x = draw(fitted, data, streams(data, seed), n_chains=2000, n_sweeps=2, n_tables=2)
    assert x.shape == (4000, 30, 4)
    exact = em.conditional_mean(fitted.normal, data)
    later = x[2000:]
    assert abs(z_mean((later - exact)[:, ~data.observed], 0.0)).max() < GATE
    assert not torch.equal(x[:2000], later)


@pytest.mark.slow
def test_scores_are_within_their_errors(fitted, data, seed):
    result = score(fitted, data, streams(data, seed), n_draws=512, n_sweeps=1)
    exact = em.log_prob(fitted.normal, data)
    assert (abs(result.log_prob - exact) < GATE * result.error).all()
    assert result.error.median() < 0.1
    off = fitted._replace(pair=fitted.pair._replace(model=Doubled(fitted.pair.model)))
    wrong = score(off, data, streams(data, seed), n_draws=512, n_sweeps=1)
    assert (abs(wrong.log_prob - exact) > GATE * wrong.error).any()


class Doubled(torch.nn.Module):
    """Not normalised: a negative control."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def log_prob(self, x):
        return self.model.log_prob(x) + 0.7


@pytest.mark.slow
def test_scores_are_finite_where_the_conditionals_are_wrong(fitted, data, seed):
    """One draw in nine is of the normal."""
    away = conditionals.anchored_conditionals(fitted.normal, NormalHead())
    with torch.no_grad():
        away.intercepts += 100.0  # twenty deviations of a conditional, or more
    astray = fitted._replace(pair=fitted.pair._replace(conditionals=away.double()))
    exact = em.log_prob(fitted.normal, data)
    numbers = streams(data, seed)
    result = score(astray, data, numbers, n_draws=1152, n_sweeps=1)
    assert (abs(result.log_prob - exact) < 0.8).all()
    chains = draw(astray, data, numbers, n_chains=8, n_sweeps=1)
    part = dequantised_rows(astray, data, numbers(3), 64)
    x, log_q = sweep_from(
        away.double(), part, chains, chains[:1].expand(64, -1, -1), numbers(4)
    )
    by_sweeps = fitted.pair.model.log_prob(x)[:8] - log_q[:8].logsumexp(1)
    assert (by_sweeps.max(0).values < exact - 20).all()  # the control


@pytest.mark.slow
def test_scores_find_a_density_where_no_proposal_is(fitted, normal, data, seed):
    """The density is 12 units from normal and conditionals, which extrapolate."""
    there = normal._replace(mean=normal.mean + 12.0)
    flow = SplineFlow(there.mean, torch.linalg.cholesky(there.covariance)).double()
    moved = fitted._replace(pair=fitted.pair._replace(model=flow))
    exact, numbers = em.log_prob(there, data), streams(data, seed)
    result = score(moved, data, numbers, n_draws=768, n_sweeps=1)
    near = abs(result.log_prob - exact) < GATE * result.error + 0.05
    assert near.double().mean() > 0.9
    assert result.error.median() < 1  # no single draw has all of the weight
    part = dequantised_rows(moved, data, numbers(3), 768)
    chains = draw(moved, data, numbers, n_chains=8, n_sweeps=1)
    safe = normal_draw(normal, part, numbers(5))
    x, log_q = sweep_from(moved.pair.conditionals, part, chains, safe, numbers(4))
    by_normal = normal_log_prob(normal, x, data.observed)
    log_q = torch.cat([log_q, by_normal[:, None]], 1).logsumexp(1) - np.log(9)
    without = (flow.log_prob(x) - log_q).logsumexp(0) - np.log(768)  # the control
    assert (without - exact).min() < -3


def test_local_proposals_are_normalised_and_drawn_by_their_density(seed):
    """One missing cell, by quadrature; E p / q = 1 for another normalised density."""
    observed = torch.tensor([[True, False]])
    centres = torch.tensor([[[0.0, -3.0]], [[0.0, 2.0]], [[0.0, 2.5]]]).double()
    local = Local(centres, centres.std(0).clamp(min=1e-3), observed)
    grid = torch.linspace(-30, 30, 6001).double()
    rows = torch.stack([torch.zeros_like(grid), grid], -1)[:, None]
    density_of = local.log_prob(rows)[:, 0].exp()
    assert density_of.sum() * 0.01 == pytest.approx(1, abs=1e-6)
    numbers = row_keyed(np.array([[float(seed), np.nan]]), seed)
    x = local.sample(4000, numbers)[:, 0, 1]
    for place in (-2.0, 2.2):
        share = float(density_of[grid < place].sum()) * 0.01
        error = (share * (1 - share) / 4000) ** 0.5
        assert abs(float((x < place).double().mean()) - share) < GATE * error


def test_the_error_of_a_dominating_weight_has_no_bound():
    equal, one = torch.zeros(64, 1).double(), torch.zeros(64, 1).double()
    one[5] = 30.0
    assert error_of(equal) == pytest.approx(0, abs=1e-12)
    assert standard_error(one) < 1.01 < 20 < error_of(one)


def test_complete_rows_have_exact_scores(fitted, normal):
    x = torch.randn(5, 4).double()
    data = Incomplete(x, torch.ones(5, 4).bool())
    result = score(fitted, data, streams(data, 0), n_draws=8, n_sweeps=1)
    exact = torch.distributions.MultivariateNormal(*normal).log_prob(x)
    torch.testing.assert_close(result.log_prob, exact)
    assert (result.error < 1e-10).all()


def test_held_out_cells_are_scored_by_the_conditional(fitted, normal, data):
    """With one chain and the model's own conditional no draw matters."""
    start = fit.Start(data, normal, NORMAL, torch.ones(30).double())
    pair = Pair(*(part.float() for part in fitted.pair))
    with seeded(0):
        chains = fit.make_chains(start, 1)
        cells = (~data.observed).nonzero(as_tuple=True)
        truth = torch.randn(len(cells[0]))
        result = fit.held_out_log_prob(pair, chains, cells, truth)
    q = pair.conditionals.at(chains.x[0][cells[0]], cells[1])
    torch.testing.assert_close(result, q.log_prob(truth), atol=1e-3, rtol=1e-3)


def test_rows_are_grouped_by_what_they_miss(fitted):
    observed = torch.rand(50, 4) < 0.5
    groups = list(chunks(fitted, observed, 10))
    assert torch.cat(groups).sort().values.tolist() == list(range(50))
    for rows in groups:
        assert len(observed[rows].sum(1).unique()) == 1


def test_rounded_cells_are_spread_between_their_edges():
    edges = torch.tensor([[-0.5, 0.5, 1.5, 3.5]]).double()
    values = torch.tensor([[0.0, 1.0, 2.0]]).double()
    some = families(rounded=[1], values=values, edges=edges)
    x = torch.tensor([[9.0, 0.0], [9.0, 1.0], [9.0, 2.0]]).double()
    dequantised = some.dequantised(x, torch.full((3, 2), 0.25).double())
    assert dequantised.tolist() == [[9.0, -0.25], [9.0, 0.75], [9.0, 2.0]]
    seen = torch.tensor([[True, True], [True, True], [True, False]])
    width = some.log_width(x, seen)
    torch.testing.assert_close(width, torch.tensor([0.0, 0.0, 0.0]).double())
    assert some.log_width(x, seen | True)[2] == pytest.approx(torch.tensor(2.0).log())
