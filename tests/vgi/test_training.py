"""Variational Gibbs inference of factor analysis against EM and Gaussian algebra."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from torch import nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from toy import of_all_columns

from skvnce._core.incomplete import Incomplete, Rows
from skvnce._core.random import seeded
from skvnce.autoencoder.factor_analysis import FactorModel, fit_factors
from skvnce.vgi import training
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    NormalHead,
    StandardConditionals,
    anchor,
)
from skvnce.vgi.densities import FactorDensity

D = 4
TRUTH = FactorModel(
    torch.tensor([0.5, -0.3, 0.0, 0.2]).double(),
    torch.tensor([[0.9], [0.8], [-0.7], [0.6]]).double(),
    torch.tensor([0.2, 0.4, 0.5, 0.6]).double(),
)
KINDS = [StandardConditionals, ExtendedConditionals]


@pytest.fixture(autouse=True)
def fenced(seed):
    with seeded(seed):
        yield


def conditionals(kind=StandardConditionals, exact=None):
    q = kind(D, NormalHead(), nn.Sequential(nn.Linear(D, 4), nn.Tanh()), 4, (3,))
    if exact:
        anchor(q, exact.mean, exact.precision())
    return q.double()


def density(model=TRUTH):
    return FactorDensity.of(model)


def simulate(n, hidden=0.4):
    """Draw rows; every eighth is complete, and none is empty."""
    x = MultivariateNormal(TRUTH.mean, TRUTH.covariance()).sample((n,))
    observed = torch.rand(n, D) >= hidden
    observed[::8] = True
    observed[:, 0] |= ~observed.any(1)
    return x, Incomplete(x.where(observed, 0.0), observed)


def divergence(model):
    p, q = (MultivariateNormal(m.mean, m.covariance()) for m in (TRUTH, model))
    return float(kl_divergence(p, q))


# Chains


def test_chains_keep_the_order_of_rows():
    """Every missing cell follows the observed one of its own row, exactly nearly."""
    x = torch.randn(40, 2).double()
    observed = torch.tensor([True, False]).expand(40, 2)
    data = Incomplete(x.where(observed, 0.0), observed)
    q = StandardConditionals(2, NormalHead(), nn.Identity(), 2, (3,)).double()
    with torch.no_grad():
        q.slopes[1, 0], q.log_scales[1] = 2.0, -30.0
    chains = training.Chains(data, torch.zeros(3, 40, 2).double())
    for rows in training.epochs(40, 7)():
        moved = chains.move(q, rows, 1)
        assert torch.equal(moved, chains.take(rows))
    assert torch.equal(chains.x[:, :, 0], x[:, 0].expand(3, 40))
    expected = 2 * x[:, 0].expand(3, 40)
    torch.testing.assert_close(chains.x[:, :, 1], expected, rtol=0, atol=1e-4)


def test_observed_cells_and_other_rows_stay():
    _, data = simulate(60)
    chains = training.Chains(data, training.from_marginals(data, 2))
    before, rows = chains.x.clone(), torch.randperm(60)[:20]
    chains.move(conditionals(), rows, 5)
    rest = torch.ones(60).bool().scatter(0, rows, False)
    assert torch.equal(chains.x[:, rest], before[:, rest])
    assert torch.equal(chains.x[:, data.observed], data.x[data.observed].expand(2, -1))
    incomplete = (~data.observed).any(1)[rows]
    moved = (chains.x != before)[:, rows].any(-1)
    assert torch.equal(moved, incomplete.expand(2, -1))
    assert int(chains.n_drawn.sum()) == 2 * 5 * int(incomplete.sum())
    assert (chains.n_outside == 0).all()


def test_values_under_the_mask_are_never_read():
    _, data = simulate(30)
    blind = Incomplete(data.x.where(data.observed, torch.nan), data.observed)
    records = []
    for table in (data, blind):
        with seeded(5):
            chains = training.Chains(table, training.from_marginals(table, 2))
            pair = training.Pair(density(), conditionals())
            settings = training.TrainingSettings(2, 1, 16, 0.01, 0.01)
            training.warm_up_conditionals(pair.conditionals, chains, n_epochs=1)
            training.train(pair, chains, settings, n_epochs=2)
            records.append((chains.x, pair.model.loadings, pair.conditionals.slopes))
    assert all(torch.equal(*parts) for parts in zip(*records, strict=True))


def test_the_first_imputations_are_observed_values_of_the_column():
    _, data = simulate(50)
    x = training.from_marginals(data, 300)
    assert torch.equal(x[:, data.observed], data.x[data.observed].expand(300, -1))
    for j in range(D):
        seen, hidden = data.observed[:, j], ~data.observed[:, j]
        values, drawn = data.x[seen, j], x[:, hidden, j]
        assert torch.isin(drawn, values).all()
        moments = torch.stack([values.mean(), values.square().mean()]).numpy()
        z = z_mean(first_and_second(drawn.flatten()[:, None]), moments)
        assert np.abs(z).max() < GATE


def test_cells_are_selected_among_the_missing_ones():
    _, data = simulate(40)
    incomplete = data.take((~data.observed).any(1).nonzero()[:, 0])
    x = incomplete.x.expand(5, *incomplete.x.shape)
    columns = training.select(incomplete.observed, x, 6)
    assert columns.shape == (6, 5, len(incomplete.x))
    hit = incomplete.observed.expand(6, 5, -1, -1).gather(-1, columns.unsqueeze(-1))
    assert not hit.any()
    n_missing = (~incomplete.observed).sum(1)
    for i, count in enumerate(n_missing.tolist()):
        for chain in range(5):
            first = columns[: min(count, 6), chain, i]
            assert len(first.unique()) == len(first)


def test_every_row_is_visited_once_an_epoch():
    batches = training.epochs(23, 5)
    first, second = (torch.cat(list(batches())) for _ in range(2))
    assert [len(rows) for rows in batches()] == [5, 5, 5, 5, 3]
    assert torch.equal(first.sort().values, torch.arange(23))
    assert not torch.equal(first, second)


def running_away(kind=StandardConditionals):
    """Make conditionals that triple one missing cell into the other."""
    q = kind(D, NormalHead(), nn.Identity(), D, (3,))
    with torch.no_grad():
        q.slopes[0, 1] = q.slopes[1, 0] = 3.0
    return q


def test_chains_that_run_away_are_counted():
    observed = torch.tensor([False, False, True, True]).expand(20, D)
    data = Incomplete(torch.zeros(20, D), observed)
    free = training.Chains(data, torch.ones(2, 20, D))
    free.move(running_away(), torch.arange(20), 60)
    assert free.x.abs().max() > 1e12
    assert (free.n_outside == 0).all()
    free.move(running_away(), torch.arange(20), 60)  # past single precision
    assert free.x.isfinite().all()
    assert free.n_outside[:2].min() > 0
    cube = training.Hypercube(torch.full((D,), -5.0), torch.full((D,), 5.0))
    kept = training.Chains(data, torch.ones(2, 20, D), cube)
    kept.move(running_away(), torch.arange(20), 60)
    assert (kept.x.abs() <= 5).all()
    assert kept.n_drawn.tolist() == [1200, 1200, 0, 0]
    assert (kept.n_outside[:2] > 300).all()
    assert (kept.n_outside[2:] == 0).all()
    calm = training.Chains(data, torch.ones(2, 20, D), cube)  # control
    calm.move(conditionals().float(), torch.arange(20), 60)
    assert calm.n_outside.sum() == 0


# Losses


def test_of_complete_rows_the_loss_is_that_of_maximum_likelihood():
    x, _ = simulate(50)
    data = Incomplete(x, torch.ones_like(x).bool())
    pair = training.Pair(density(), conditionals())
    loss = training.visit_loss(
        pair, training.Chains(data, x.expand(3, 50, D)), training.TrainingSettings(3, 2)
    )
    rows = torch.randperm(50)[:30]
    value = loss(rows)
    torch.testing.assert_close(value, -pair.model.log_prob(x[rows]).mean())
    value.backward()
    assert all(leaf.grad is None for leaf in pair.conditionals.parameters())
    before = [leaf.clone() for leaf in pair.conditionals.parameters()]
    losses = training.train(
        pair,
        training.Chains(data, x[None]),
        training.TrainingSettings(1, 1, 50, 0.01),
        n_epochs=20,
    )
    assert losses[-1] < losses[0]
    for mine, known in zip(pair.conditionals.parameters(), before, strict=True):
        assert torch.equal(mine, known)


def test_complete_and_incomplete_rows_count_alike():
    """With exact conditionals of one missing cell: log p(x_obs), on average."""
    x = MultivariateNormal(TRUTH.mean, TRUTH.covariance()).sample((8,))
    observed = torch.ones(8, D).bool()
    observed[3:, 1] = False
    data = Incomplete(x.where(observed, 0.0), observed)
    pair = training.Pair(density(), conditionals(exact=TRUTH))
    chains = training.Chains(data, training.from_marginals(data, 4))
    keep = [0, 2, 3]
    S = TRUTH.covariance()[keep][:, keep]
    marginal = MultivariateNormal(TRUTH.mean[keep], S).log_prob(x[3:, keep])
    exact = -torch.cat([pair.model.log_prob(x[:3]), marginal]).mean()
    loss = training.visit_loss(pair, chains, training.TrainingSettings(1, 1))
    with torch.no_grad():
        values = torch.stack([loss(torch.arange(8)) for _ in range(300)])
    # the entropy is closed, and so log p of a draw is what varies
    assert abs(z_mean(values, exact.item())) < GATE
    assert abs(z_mean(values, exact.item() + 0.1)) > GATE  # control


@pytest.mark.parametrize("kind", KINDS)
def test_regressions_weigh_all_columns_alike(kind):
    """Losses of single cells are those of eq. (12), on average."""
    _, data = simulate(60, hidden=0.6)
    chains = training.Chains(data, training.from_marginals(data, 3))
    q = conditionals(kind, exact=TRUTH)
    with torch.no_grad():
        q.intercepts += 0.3
        exact = 0.0
        for j in range(D):
            seen = data.observed[:, j].nonzero()[:, 0]
            x = chains.x[:, seen]
            score = q.masked(x, torch.full(x.shape[:2], j)).log_prob(x[..., j])
            exact -= float(score.mean())
    still = {"n_epochs": 400, "batch_size": 60, "learning_rate": 0.0}
    losses = training.warm_up_conditionals(q, chains, **still)
    assert abs(z_mean(np.array(losses), exact)) < GATE
    assert abs(z_mean(np.array(losses), exact * 1.1)) > GATE  # control


def test_warm_regressions_of_complete_rows_are_those_of_least_squares():
    x, _ = simulate(400)
    data = Incomplete(x, torch.ones_like(x).bool())
    q = conditionals()
    with torch.no_grad():  # linear parts alone
        for leaf in q.networks.parameters():
            leaf.zero_()
    q.networks.requires_grad_(False)
    for rate in (0.05, 0.005):
        chains = training.Chains(data, x[None].clone())
        rates = {"batch_size": 400, "learning_rate": rate}
        training.warm_up_conditionals(q, chains, n_epochs=300, **rates)
    for j in range(D):
        rest = [k for k in range(D) if k != j]
        design = torch.cat([x[:, rest], torch.ones(400, 1).double()], 1)
        result = torch.linalg.lstsq(design, x[:, [j]])
        slopes = result.solution[:, 0]
        residual = x[:, j] - design @ slopes
        inverse = torch.linalg.inv(design.T @ design)
        error = (inverse.diagonal() * residual.square().mean()).sqrt()
        mine = torch.cat([q.slopes[j, rest], q.intercepts[[j]]]).detach()
        assert ((mine - slopes).abs() < error).all()  # far less than rows allow
        std = residual.square().mean().sqrt().log()
        assert abs(float(q.log_scales[j].detach() - std)) < 0.05


def test_warming_the_model_up_maximises_the_likelihood_of_completed_rows():
    x, data = simulate(300)
    chains = training.Chains(data, training.from_marginals(data, 2))
    start = density(TRUTH._replace(mean=TRUTH.mean + 2))
    for rate in (0.05, 0.01):
        rates = {"batch_size": 300, "learning_rate": rate}
        losses = training.warm_up_model(start, chains, n_epochs=300, **rates)
    weights = torch.ones(600).double()
    table = Incomplete(chains.x.flatten(0, 1), torch.ones(600, D).bool())
    best = fit_factors(Rows(table, weights), 1, floor=1e-6, max_iter=500, tol=1e-8)
    assert losses[-1] == pytest.approx(-best.objectives[-1] / 600, abs=1e-3)


# Training


def fit(data, kind, n_epochs=120, rate=0.03):
    chains = training.Chains(data, training.from_marginals(data, 5))
    pair = training.Pair(density(FactorModel(*start())), conditionals(kind))
    warm = {"batch_size": len(data.x), "learning_rate": rate}
    training.warm_up_conditionals(pair.conditionals, chains, n_epochs=30, **warm)
    settings = training.TrainingSettings(3, 1, len(data.x), rate, rate)
    resting = settings._replace(n_updates=0)
    training.train(pair, chains, resting, n_epochs=30)
    losses = training.train(
        pair,
        chains,
        settings,
        n_epochs=n_epochs,
        schedule=lambda epoch: 1 - epoch / n_epochs,
    )
    return pair, chains, losses


def start():
    return torch.zeros(D).double(), torch.randn(D, 1).double(), torch.ones(D).double()


def fitted(data):
    weights = torch.ones(len(data.x)).double()
    return fit_factors(Rows(data, weights), 1, floor=1e-6, max_iter=2000, tol=1e-8)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow)]
)
def test_it_comes_near_em_and_beats_marginal_imputation(kind):
    _, data = simulate(1000)
    pair, chains, losses = fit(data, kind)
    em = fitted(data)
    assert (np.diff(em.objectives) > -1e-8 * len(data.x)).all()
    filled = training.from_marginals(data, 5).flatten(0, 1)
    poor = fitted(Incomplete(filled, torch.ones_like(filled).bool())).model
    result = pair.model.factors()
    apart = kl_divergence(
        *(MultivariateNormal(m.mean, m.covariance()) for m in (em.model, result))
    )
    assert float(apart) < 0.01
    assert divergence(result) < divergence(poor) / 10
    assert torch.equal(chains.x[:, data.observed], data.x[data.observed].expand(5, -1))
    assert np.mean(losses[-10:]) < losses[0]


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
def test_conditionals_learn_those_of_a_model_that_rests(kind):
    """And their chains then draw of the exact distribution, nearly."""
    _, data = simulate(500, hidden=0.6)
    frozen = density().requires_grad_(False)
    pair = training.Pair(frozen, conditionals(kind))
    chains = training.Chains(data, training.from_marginals(data, 4))
    x = MultivariateNormal(TRUTH.mean, TRUTH.covariance()).sample((500,))
    exact = of_all_columns(conditionals(exact=TRUTH), x)

    def apart():
        with torch.no_grad():
            q = of_all_columns(pair.conditionals, x)
            return kl_divergence(Normal(q.loc, q.scale), exact).mean(0)

    before = apart()
    settings = training.TrainingSettings(3, 2, 250, 0.0, 0.03)
    training.train(
        pair, chains, settings, n_epochs=100, schedule=lambda epoch: 1 - epoch / 100
    )
    assert (apart() < 0.01).all()
    assert (before > 0.1).all()


def test_training_moves_only_what_may_learn():
    _, data = simulate(100)
    pair = training.Pair(density().requires_grad_(False), conditionals())
    before = [leaf.clone() for leaf in pair.model.parameters()]
    q = [leaf.clone() for leaf in pair.conditionals.parameters()]
    chains = training.Chains(data, training.from_marginals(data, 2))
    training.train(
        pair, chains, training.TrainingSettings(2, 1, 50, 0.1, 0.1), n_epochs=2
    )
    for mine, known in zip(pair.model.parameters(), before, strict=True):
        assert torch.equal(mine, known)
    moved = [
        not torch.equal(*leaves)
        for leaves in zip(pair.conditionals.parameters(), q, strict=True)
    ]
    assert all(moved)


def test_the_schedule_scales_both_learning_rates():
    _, data = simulate(60)
    chains = training.Chains(data, training.from_marginals(data, 2))
    pair = training.Pair(density(), conditionals())
    kept = []

    def look(epoch, loss):
        kept.append([leaf.clone() for _, leaf in pair.named_parameters()])
        return epoch == 4

    training.train(
        pair,
        chains,
        training.TrainingSettings(1, 1, 60, 0.1, 0.1),
        n_epochs=50,
        schedule=lambda epoch: float(epoch < 2),
        on_epoch=look,
    )
    assert len(kept) == 4
    names = [name for name, _ in pair.named_parameters()]
    assert {name.split(".")[0] for name in names} == {"model", "conditionals"}
    for first, second, third, fourth in zip(*kept, strict=True):
        assert not torch.equal(first, second)
        assert torch.equal(second, third) and torch.equal(third, fourth)
