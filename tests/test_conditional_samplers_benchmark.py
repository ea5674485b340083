"""The parts of the benchmarks of conditional samplers that are not the package's."""

import _autoencoders as networks
import _conditional_report as reports
import _conditional_samplers as study
import _conditional_scores as scores
import numpy as np
import pytest
import torch
import vae_omniglot
import vae_tables
from _results import Results
from oracles import GATE, first_and_second, z_mean
from samplers.toy import (
    LINEAR,
    ROWS,
    exact_latents,
    exact_moments,
    linear_posterior,
    repeat,
)
from scipy import stats
from sklearn.metrics import f1_score
from torch import nn

from skvnce._incomplete import Incomplete
from skvnce._random import seeded

# Scores


def test_squared_errors_and_their_root():
    truth = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    x = truth + torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 3.0]]])
    errors = scores.squared_errors(x, truth)
    assert errors.tolist() == [2.5, 4.5]
    hidden = torch.tensor([[True, False], [True, True]])
    assert scores.rmse(errors, hidden) == pytest.approx((7 / 3) ** 0.5)


def test_energy_distance_of_a_row_by_hand():
    x = torch.tensor([0.0, 1.0, 4.0]).view(3, 1, 1)
    exact = torch.tensor([2.0, 6.0]).view(2, 1, 1)
    across = np.mean([2, 1, 2, 6, 5, 2])
    within = np.mean([1, 4, 3])
    found = scores.row_energy(x, exact)
    assert found.tolist() == pytest.approx([2 * across - within - 4])


def test_energy_distance_of_exact_draws_is_zero(seed):
    with seeded(seed):
        found = scores.row_energy(torch.randn(5, 4000, 2), torch.randn(40, 4000, 2))
    z = found.mean() / (found.std() / len(found) ** 0.5)
    assert abs(float(z)) < stats.norm.isf(1e-5 / 2)


def test_sinkhorn_divergence_of_a_translation(seed):
    with seeded(seed):
        x, shift = torch.randn(60, 3), torch.tensor([1.0, -2.0, 0.5])
    assert scores.sinkhorn(x, x) == pytest.approx(0, abs=1e-9)
    found = scores.sinkhorn(x + shift, x)
    assert found == pytest.approx(float(shift @ shift) / 2, rel=1e-3)


def test_transport_of_far_points_is_their_matching():
    x = torch.tensor([[0.0, 0.0], [10.0, 0.0]]).double()
    y = torch.tensor([[10.0, 1.0], [0.0, 2.0]]).double()
    assert scores.transport(x, y, 0.01) == pytest.approx((0.5 + 2.0) / 2, abs=0.02)


def test_f1(seed):
    rng = np.random.default_rng(seed)
    x, truth = rng.integers(0, 2, (3, 6, 20)), rng.integers(0, 2, (6, 20))
    hidden = rng.random((6, 20)) < 0.5
    hidden[0] = truth[0] = False
    x[:, 1], truth[1] = 0, 0  # nothing there and nothing found
    expected = np.mean([f1_score(truth[hidden], one[hidden]) for one in x])
    tensors = torch.tensor(x).float(), torch.tensor(truth).float(), torch.tensor(hidden)
    assert scores.f1(*tensors) == pytest.approx(expected)
    by_row = [
        np.mean([f1_score(t[h], one[h]) for one in several])
        for several, t, h in zip(
            x[:, 2:].swapaxes(0, 1), truth[2:], hidden[2:], strict=True
        )
    ]
    assert scores.row_f1(*tensors).tolist() == pytest.approx([1, 1, *by_row])


def test_ssim(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, 9, 9))
    found = []
    for i in range(3):
        for j in range(3):
            p, q = a[i : i + 7, j : j + 7].ravel(), b[i : i + 7, j : j + 7].ravel()
            (var_p, cov), (_, var_q) = np.cov(p, q)
            upper = (2 * p.mean() * q.mean() + 1e-4) * (2 * cov + 9e-4)
            lower = (p.mean() ** 2 + q.mean() ** 2 + 1e-4) * (var_p + var_q + 9e-4)
            found.append(upper / lower)
    rows = torch.tensor(np.stack([a, b])).view(2, 81)
    expected = [np.mean(found), 1.0]
    assert scores.ssim(rows, rows[1], 9).tolist() == pytest.approx(expected)


# Autoencoder


class Exact(nn.Module):
    """Factor analysis with its exact posterior as the encoder."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(2).double())

    def prior(self):
        return LINEAR.prior()

    def likelihood(self, z):
        return LINEAR.likelihood(z)

    def posterior(self, x):
        return linear_posterior(shift=self.shift)(x, torch.ones_like(x).bool())


def test_the_gradient_of_the_bound_has_no_noise_at_the_exact_posterior(seed):
    vae, x = Exact(), repeat(np.array([[1.0, -2.0, 0.8, 3.5]]), 1).x
    with seeded(seed):
        found = networks.bound(vae, x, 1)
    found.backward()
    assert vae.shift.grad.abs().max() < 1e-9
    factor = LINEAR.factor_model()
    density = torch.distributions.MultivariateNormal(LINEAR.mean, factor.covariance())
    assert float(found.detach()) == pytest.approx(float(density.log_prob(x)), abs=1e-9)


# Samplers


class Counted:
    """Factor analysis that counts the rows it encodes and the latents it decodes."""

    def __init__(self):
        self.encoded, self.latents = 0, []

    def prior(self):
        return LINEAR.prior()

    def likelihood(self, z):
        self.latents.append(z.reshape(-1, z.shape[-1]))
        return LINEAR.likelihood(z)

    def posterior(self, x, observed=None):
        self.encoded += x[..., 0].numel()
        return linear_posterior(widen=1.2)(x, torch.ones_like(x).bool())

    def evaluations(self):
        """Rows encoded, and different latents decoded."""
        return self.encoded + len(torch.cat(self.latents).unique(dim=0))


def problem(n_steps=60, n=3, vae=None, rows=ROWS[:1]):
    infinite = -torch.inf, torch.inf
    return study.Problem(vae or Counted(), repeat(rows, n), n_steps, infinite, 0.3, 10)


EVERY = study.METHODS | study.ABLATIONS


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [name for name in EVERY if name != "marginal"])
def test_the_budget_is_what_is_evaluated(name, seed):
    given = problem()
    with seeded(seed):
        found = EVERY[name](given)
    per_row = given.vae.evaluations() / len(given.data.x)
    extra = 6 * study.N_CHAINS  # the start, and what is left of an iteration
    assert given.budget - extra <= per_row <= given.budget + extra
    assert max(found) == 1
    for x in found.values():
        assert x.shape[1:] == given.data.x.shape
        observed = given.data.observed
        assert (x[:, observed] == given.data.x[observed]).all()


@pytest.mark.parametrize("name", ["marginal", "LAIR 4 + 1", "AC-MWG'"])
def test_imputations_of_rows_without_observed_cells(name, seed):
    """Are draws of the model, whatever the sampler."""
    with seeded(seed):
        x = EVERY[name](problem(n_steps=60, n=400, rows=ROWS[2:]))[1]
    deviation = LINEAR.factor_model().covariance().diagonal().sqrt()
    z = (x[0] - LINEAR.mean) / deviation
    limit = stats.norm.isf(1e-5 / 8) / len(z) ** 0.5
    assert z.mean(0).abs().max() < limit + 0.02  # bias of 300 proposals


def test_the_reference_counts_its_proposals(seed):
    """Proposals from the prior have equal weights if nothing is observed."""
    settings = {"n_particles": 0, "n_replenish": 5, "n_steps": 12, "n_draws": 7}
    with seeded(seed):
        x, found = study.reference(problem(rows=ROWS[2:]), **settings, n_moves=4)
    assert x.shape == (7, 3, 4)
    assert found["sizes"].tolist() == pytest.approx([60] * 3)
    assert (found["accepted"] > 0).all()


def test_langevin_steps_find_and_keep_the_target(seed):
    given, row = problem(n=3), ROWS[0]
    data = repeat(ROWS[:1], 1000)
    with seeded(seed):
        z, accepted = study.langevin(given, torch.randn(1000, 3, 2).double() * 2, 60)
        assert (abs(accepted - study.ACCEPTED) < 0.15).all()
        exact = study.draws_given(given.vae, data, exact_latents(data))
        assert_same_moments(exact, exact_moments(row), row)  # so is the oracle
        x = study.draws_given(given.vae, data, z[:, 0])
        assert_same_moments(x, exact_moments(row), row)
        kept, _ = study.langevin(given, exact_latents(data).view(1000, 1, 2), 2)
        x = study.draws_given(given.vae, data, kept[:, 0])
        assert_same_moments(x, exact_moments(row), row)


def assert_same_moments(x, expected, row):
    sample = first_and_second(x[:, torch.tensor(np.isnan(row))].numpy())
    assert np.abs(z_mean(sample, expected)).max() < GATE


def one_step(change, seed, rows=ROWS[:1], eps=0.3):
    given = problem(rows=rows, n=50)
    with seeded(seed):
        sampler = study.adaptive(change, eps=eps)(given)
        state = sampler.init(given.data, given.data.x.expand(5, -1, -1))
        for _ in range(3):
            state, info = sampler.step(state, given.data)
    return state, info


def test_a_history_that_rests_or_is_all_there_is(seed):
    state, _ = one_step(study.holding_history, seed)
    assert (state.history.n_available == 1).all() and state.history.n_stored == 1
    state, _ = one_step(study.with_all_history, seed)
    assert (state.history.n_available == 4).all() and state.history.n_stored == 4
    assert (state.history.available == state.history.stored).all()


def test_the_target_of_mwg(seed):
    """Proposals from the prior are always accepted if nothing is observed, else not."""
    _, info = one_step(None, seed, ROWS[2:], eps=1.0)
    assert (info.acceptance > 1 - 1e-9).all()
    _, info = one_step(study.with_target_of_mwg, seed, ROWS[2:], eps=1.0)
    assert (info.acceptance < 0.5).any()


def test_particles_that_rest(seed):
    given = problem()
    sampler = study.Resampling(4, 1, fixed=True).make(given)
    with seeded(seed):
        first = sampler.init(given.data)
        state, _ = sampler.step(first, given.data)
    assert (state.x == first.x).all() and state.step == 1


# Report


def test_standing_is_a_paired_t_test(seed):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(40, 12))
    second = first + rng.normal(0.3, 0.6, size=first.shape)
    for a, b in zip(first, second, strict=True):
        test = stats.ttest_rel(a, b)
        word, t = reports.standing(a, b)
        assert t == pytest.approx(test.statistic)
        better = "better" if t < 0 else "worse"
        assert word == (better if test.pvalue < 0.05 else "equal")
        assert reports.standing(a, b, higher=True)[1] == pytest.approx(-t)


def test_records_are_kept_and_judged(tmp_path):
    records = Results(tmp_path / "new" / "found.jsonl")
    for seed in range(3):
        for method, level in [("a", 1.0), ("b", 2.0), ("c", 2.0)]:
            rows = level + np.arange(6) % 2 * (0.2 if method == "c" else 0.1)
            line = {"method": method, "seed": seed, "score": list(rows + seed)}
            records.add(line)
    records = Results(tmp_path / "new" / "found.jsonl")
    assert records.has(method="a", seed=2) and not records.has(method="d")
    values = reports.values(records, "score", method="a")
    assert values.tolist() == pytest.approx([2, 2.1] * 3)
    pairs = ("a", "b"), ("b", "a"), ("c", "b")
    claim = reports.Claim("1", "text", "score", pairs, ("better", "equal"))
    held, failed = reports.evaluate(records, claim)
    assert held == 2 and len(failed) == 1 and failed[0].startswith("b worse than a")
    assert reports.verdict([3, 3], [3, 3]) == "REPRODUCED"
    assert reports.verdict([0, 3], [3, 3]) == "PARTIAL"
    assert reports.verdict([0, 0], [3, 3]) == "DIFFERENT"
    line = reports.claim_table(records, [claim], {"one": {"seed": 1}}).splitlines()[-1]
    assert "| 2 of 3 | PARTIAL |" in line


# Data


def test_quadrants():
    rng = np.random.default_rng(0)
    for n_hidden in (1, 2, 3):
        masks = vae_omniglot.quadrants(200, n_hidden, 6, rng).view(-1, 2, 3, 2, 3)
        blocks = masks.movedim(2, 3).flatten(3)
        assert (blocks.all(-1) == blocks.any(-1)).all()
        assert (blocks[..., 0].sum((1, 2)) == n_hidden).all()
        assert blocks[..., 0].float().mean(0).sub(n_hidden / 4).abs().max() < 0.15


def test_incomplete_rows():
    truth, data = vae_tables.incomplete("simulated", 30)
    assert isinstance(data, Incomplete) and truth.shape == (30, 5)
    assert (~data.observed).any(1).all()
    assert (data.x == truth * data.observed).all()
