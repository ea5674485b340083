"""The five ways to infer causes against enumeration, and against each other."""

import numpy as np
import pytest
import torch
from _enumerated_causes import all_states, enumerate_joint
from oracles import GATE, z_mean
from scipy.sparse import csr_array
from tables import cells_of
from torch.nn.functional import logsigmoid

from skvnce.datasets import make_binary_patterns
from skvnce.noisy_or import em
from skvnce.noisy_or.estimator import torch_rows
from skvnce.noisy_or.model import NoisyOrModel, gather, lower_bound, upper_bound

D, K, N = 64, 8, 60


@pytest.fixture
def pictures(seed):
    return make_binary_patterns(N, random_state=seed)


@pytest.fixture
def truth(pictures):
    weight = torch.tensor(-np.log1p(-pictures.components)).T.clamp(min=1e-4)
    leak = torch.tensor(-np.log1p(-pictures.leak)).clamp(min=1e-2)
    return NoisyOrModel(weight, leak, torch.full((K,), 1 / 8).double())


@pytest.fixture
def evidence(truth, pictures):
    with torch.no_grad():
        return gather(truth.causes(), cells_of(pictures.data))


def rows_of(table):
    return torch_rows(csr_array(table))


def built(way, seed, dtype=torch.float64):
    torch.manual_seed(seed)
    inference = em.INFERENCES[way](em.Sizes(D, K, (16,), 7.0), em.Relaxation(10))
    inference.network.to(dtype)
    return inference


def enumerated_elbo(evidence, logit):
    z = all_states(K)[:, None].expand(-1, len(logit), -1)
    log_q = (z * logsigmoid(logit) + (1 - z) * logsigmoid(-logit)).sum(-1)
    return (log_q.exp() * (enumerate_joint(evidence) - log_q)).sum(0)


@pytest.mark.parametrize("way", em.INFERENCES)
def test_no_posterior_beats_the_evidence(way, evidence, pictures, seed):
    inference = built(way, seed)
    with torch.no_grad():
        logit = inference.posterior(evidence, cells_of(pictures.data))
        assert logit.shape == (N, K)
        exact = enumerate_joint(evidence).logsumexp(0)
        assert (enumerated_elbo(evidence, logit) < exact + 1e-9).all()


@pytest.mark.parametrize("way", ["svi", "lb-cdi"])
def test_chords_infer_well(way, evidence, pictures):
    """Within a nat of the evidence, where a posterior that is the prior is far off."""
    with torch.no_grad():
        logit = built(way, 0).posterior(evidence, cells_of(pictures.data))
        exact = enumerate_joint(evidence).logsumexp(0)
        assert (exact - enumerated_elbo(evidence, logit)).mean() < 1
        prior = evidence.prior_logit.expand(N, K)
        assert (exact - enumerated_elbo(evidence, prior)).mean() > 10


def test_bounds_of_what_is_learned(evidence, pictures, seed):
    """Lower ones lie below the evidence, the upper one above."""
    cells, rows = cells_of(pictures.data), torch.arange(N)
    exact = enumerate_joint(evidence).logsumexp(0)
    with torch.no_grad():
        bounds = {
            way: built(way, seed).bound(evidence, cells, rows)
            for way in ("svi", "lb-cdi", "ub-cdi")
        }
    assert (bounds["svi"] < bounds["lb-cdi"] + 1e-9).all()
    assert (bounds["lb-cdi"] < exact + 1e-9).all()
    assert (bounds["ub-cdi"] > exact - 1e-9).all()


@pytest.mark.slow
def test_free_parameters_of_rows_end_at_the_tightest_bound(evidence, pictures):
    """Visited again and again under one model, as the facts of the paper say."""
    cells, rows = cells_of(pictures.data), torch.arange(N)
    inference = built("svi", 0)
    with torch.no_grad():
        values = [inference.bound(evidence, cells, rows).sum() for _ in range(300)]
    best = lower_bound(evidence, em.best_chords(evidence, 300)).sum()
    assert values[0] < best - 10
    torch.testing.assert_close(values[-1], best, rtol=0, atol=0.2)


def test_the_best_lines_are_better_than_others(evidence):
    best = upper_bound(evidence, em.best_lines(evidence, 300))
    for factor in (0.5, 0.9, 1.1, 2.0):
        psi = factor * em.best_lines(evidence, 300)
        assert (upper_bound(evidence, psi) > best - 1e-9).all()


def test_relaxed_draws_become_hard_as_the_temperature_falls(torch_seeded):
    logit = torch.tensor([[-2.0, 0.0, 1.5]])
    early, late = em.Relaxation(4000), em.Relaxation(4000)
    late.n_steps = 10**6
    between = [
        ((z > 0.1) & (z < 0.9)).double().mean() for z in (early(logit), late(logit))
    ]
    assert between[1] < between[0] / 2
    hard = (late(logit)[:, 0] > 0.5).double().numpy()
    assert np.abs(z_mean(hard, logit.sigmoid()[0].numpy())).max() < GATE
    assert np.abs(z_mean(hard, logit.sigmoid()[0].numpy() + 0.1)).max() > GATE


def test_the_elbo_of_hard_draws_is_that_of_enumeration(evidence, seed):
    generator = torch.Generator().manual_seed(seed)
    logit = torch.randn(N, K, generator=generator).double()
    with torch.no_grad():
        uniform = torch.rand(2000, N, K, generator=generator).double()
        each = np.array(
            [em.hard_elbo(evidence, logit, u[None]).numpy() for u in uniform]
        )
        exact = enumerated_elbo(evidence, logit).numpy()
    drawn = each.std(0) > 1e-6  # without a cell that is on nothing is left to chance
    assert drawn.sum() > N / 2
    np.testing.assert_allclose(each[0, ~drawn], exact[~drawn], rtol=1e-9)
    each, exact = each[:, drawn], exact[drawn]
    assert np.abs(z_mean(each, exact)).max() < GATE
    assert np.abs(z_mean(each, exact + 1)).max() > GATE


def test_the_model_learns_through_the_posterior(pictures, truth):
    """Nothing is detached in "acp"; "avi" learns from what is expected only."""
    cells, slopes = cells_of(pictures.data), {}
    for way in ("acp", "avi"):
        causes = truth.causes()
        logit = built(way, 0).posterior(gather(causes, cells), cells)
        (slopes[way],) = torch.autograd.grad(
            logit.sum(), truth.raw_weight, allow_unused=True
        )
    assert (slopes["acp"] != 0).any()
    assert slopes["avi"] is None


def test_rows_are_listed_whatever_their_order(pictures):
    x = pictures.data.copy()
    x[3], x[5, 2] = 0.0, np.nan
    rows, order = rows_of(x), torch.tensor([5, 3, 0, 5])
    cells = rows.cells(order, torch.float64)
    for place, row in enumerate(order.tolist()):
        on = cells.columns[place][cells.on[place] > 0].tolist()
        assert sorted(on) == np.flatnonzero(x[row] == 1).tolist()
        missing = cells.columns[place][cells.missing[place] > 0].tolist()
        assert missing == np.flatnonzero(np.isnan(x[row])).tolist()


def learner_of(way, x, components, seed):
    rows = rows_of(x)
    model = em.start(rows, torch.tensor(components))
    return rows, em.Learner(model, built(way, seed, torch.float32))


@pytest.mark.quick(2)
@pytest.mark.parametrize("way", em.INFERENCES)
def test_learning_raises_its_bound(way, pictures, seed, rng):
    near = 0.5 * pictures.components + 0.2 * rng.random(pictures.components.shape)
    rows, learner = learner_of(way, pictures.data, near, seed)
    seen = []
    losses = em.learn(
        learner,
        rows,
        penalty=1.0 / len(pictures.data),
        batch_size=20,
        learning_rate=0.03,
        max_iter=10,
        on_epoch=lambda epoch, value: seen.append((epoch, value)),
    )
    assert seen == list(enumerate(losses, 1)) and len(losses) == 10
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("stop", [1, 2, 3, 7])
def test_the_network_learns_before_the_model_moves(stop, pictures, seed):
    """In two passes of ten; and who asks to stop is heard in any of them."""
    rows, learner = learner_of("avi", pictures.data, pictures.components, seed)
    before = learner.model.raw_weight.clone()
    moved = []

    def look(epoch, value):
        moved.append(bool((learner.model.raw_weight != before).any()))
        return epoch == stop

    effort = {"penalty": 0.0, "batch_size": 20, "learning_rate": 0.01, "max_iter": 10}
    losses = em.learn(learner, rows, **effort, on_epoch=look)
    assert moved == ([False] * 2 + [True] * 8)[:stop] and len(losses) == stop


@pytest.mark.parametrize("way", em.INFERENCES)
def test_the_penalty_is_the_log_of_an_exponential_prior(way, pictures):
    rows, learner = learner_of(way, pictures.data, pictures.components, 0)
    places = torch.arange(10)
    values = []
    for penalty in (0.0, 0.25):
        torch.manual_seed(0)
        values.append(float(em.loss(learner, rows, penalty)(places).detach()))
        rows, learner = learner_of(way, pictures.data, pictures.components, 0)
    weight = learner.model.causes().weight.detach().double()
    prior = torch.distributions.Exponential(0.25)
    expected = (np.log(0.25) - prior.log_prob(weight)).sum()
    assert values[1] - values[0] == pytest.approx(float(expected), rel=1e-4)


def test_the_start_explains_the_rates_of_columns(pictures):
    x = pictures.data.copy()
    x[:30, 0] = np.nan
    causes = em.start(rows_of(x), torch.tensor(pictures.components)).causes()
    on, seen = np.nansum(x, 0), (~np.isnan(x)).sum(0)
    expected = 1 - (1 - (on + 0.5) / (seen + 1)) ** 0.1
    np.testing.assert_allclose(-torch.expm1(-causes.leak.detach()), expected, rtol=1e-5)
    result = -torch.expm1(-causes.weight.detach()).T
    np.testing.assert_allclose(result, pictures.components, atol=2e-4)
    assert causes.prior_logit.sigmoid().tolist() == pytest.approx([1 / 8] * 8)


def test_losses_are_minus_the_bound(pictures, seed):
    rows, learner = learner_of("lb-cdi", pictures.data, pictures.components, seed)
    places = torch.tensor([3, 8])
    with torch.no_grad():
        result = em.loss(learner, rows)(places)
        cells = rows.cells(places)
        evidence = gather(learner.model.causes(), cells)
        expected = -lower_bound(evidence, em.best_chords(evidence)).mean()
    torch.testing.assert_close(result, expected)
