"""The rules of the benchmarks of long fits and of complete test rows."""

from itertools import islice

import numpy as np
import pytest
import torch
import vae_bounds_long as long
import vae_likelihood as study
from _results import Results
from torch.distributions import Normal
from torch.nn.functional import softplus

FITS, ROWS, D, LATENTS = 2, 40, 3, 2


def weights(model):
    return torch.cat([leaf.detach().flatten() for leaf in model.parameters()])


def tables(x, observed):
    """Tables that differ in hidden cells, and one that differs in observed ones."""
    for value in (torch.nan, 1e3):
        yield x.where(observed, torch.tensor(value))
    yield x.where(~observed, x + 1)


@pytest.fixture
def rows(seed):
    torch.manual_seed(seed)
    x, observed = torch.randn(FITS, ROWS, D), torch.rand(FITS, ROWS, D) < 0.5
    observed[..., 0] |= ~observed.any(-1)
    return x, observed


@pytest.mark.quick(2)
@pytest.mark.parametrize("method", study.METHODS)
def test_no_method_sees_hidden_cells(method, rows, monkeypatch):
    """Those of training and of validation rows; observed ones matter."""
    monkeypatch.setattr(study, "CHECKS", 2)
    found = []
    for x in tables(*rows):
        part = study.Part(x, rows[1])
        model, kept = study.fit(method, part, part, LATENTS, 4)
        found.append(weights(model))
        assert len(kept.curve) == 2
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])  # control


@pytest.mark.parametrize("method", ["miss-svae", "demiss-vae"])
def test_no_long_fit_sees_hidden_cells(method, rows, monkeypatch):
    monkeypatch.setattr(long.study, "BATCH", 16)
    # networks of five columns
    x, observed = (torch.cat([part, part[..., :2]], -1) for part in rows)
    found = []
    for one in tables(x, observed):
        data = long.study.Table(None, one, observed, None)  # no test rows
        scored = []
        long.fit(method, data, 0, (3, 6), lambda *one, keep=scored: keep.append(one))
        assert [step for step, _ in scored] == [3, 6]
        found.append(weights(scored[-1][1]))
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])  # control


def test_batches_are_whole_and_visit_all_rows(monkeypatch):
    monkeypatch.setattr(long.study, "BATCH", 16)
    epoch = list(islice(long.batches(48), 3))
    assert [len(rows) for rows in epoch] == [16] * 3
    assert sorted(torch.cat(epoch).tolist()) == [*range(48)]
    assert all(len(rows) == 16 for rows in islice(long.batches(40), 5))


def test_test_rows_are_complete_and_never_trained_on():
    train, validation, test = study.split("simulated", study.QUICK)
    every, _ = study.rows_of("simulated")
    known = {tuple(row) for row in every.tolist()}
    assert test.isfinite().all()
    assert not known & {tuple(row) for row in test.tolist()}
    assert {tuple(row) for row in every[:9].tolist()} <= known  # control
    assert train.x.shape[1] + validation.x.shape[1] == len(every)
    for part in (train, validation):
        assert (part.x.isnan() == ~part.observed).all()
        assert part.observed.any(-1).all()
        share = float(part.observed.float().mean())
        n = part.observed.numel()
        kept = study.HIDDEN ** (1 + part.x.shape[-1])  # first cells of empty rows
        assert abs(share - 0.5 - kept / part.x.shape[-1]) < 5 * 0.5 / n**0.5
    assert not torch.equal(train.observed[0], train.observed[1])


def test_the_score_is_the_log_density():
    """Of a model whose columns do not depend on the latents, with q near the prior."""
    torch.manual_seed(0)
    model = study.Autoencoder(FITS, study.WIDTH, D, LATENTS)
    with torch.no_grad():
        model.network.last.weight.zero_()
    x = torch.randn(ROWS, D)
    zeros = torch.zeros(FITS, ROWS, LATENTS)
    q = study.independent(zeros, zeros + 1)
    loc, free = model.network.last.bias.detach().chunk(2, -1)
    exact = Normal(loc, softplus(free) + 1e-5).log_prob(x).sum(-1)
    found = study.log_likelihood(model, q, x, 4000)
    assert found.shape == (2, FITS, ROWS)
    # weights are at most 1.25, so the error is 0.5 / 2000**0.5 at most
    torch.testing.assert_close(
        found.float(), exact.expand(2, -1, -1), atol=0.06, rtol=0
    )
    with torch.no_grad():  # control
        model.network.last.bias += 0.5
    moved = study.log_likelihood(model, q, x, 4000)
    assert (moved - found).abs().mean() > 0.06


def test_proposals_are_the_posteriors_of_a_linear_model(seed):
    """The estimate is then the log-density, which draws of the prior do not reach.

    Latents of orthogonal loadings are independent given a row, as the proposals are.
    """
    torch.manual_seed(seed)
    model = study.Autoencoder(1, study.WIDTH, D, LATENTS)
    loadings, noise = 5 * torch.linalg.qr(torch.randn(D, LATENTS))[0], 0.3
    model.likelihood = lambda z: Normal(z @ loadings.T, noise, validate_args=False)
    covariance = loadings @ loadings.T + noise**2 * torch.eye(D)
    exact = torch.distributions.MultivariateNormal(torch.zeros(D), covariance)
    x = exact.sample((ROWS,))
    sizes = study.QUICK._replace(refit=100, rowwise=600)
    q = study.proposals(model, x, sizes)
    found = study.log_likelihood(model, q, x, 2000)[0, 0].float()
    # .010 at most at 13 seeds
    assert (found - exact.log_prob(x)).abs().max() < 0.05
    prior = study.independent(torch.zeros_like(q.mean), torch.ones_like(q.mean))
    control = study.log_likelihood(model, prior, x, 20)[0, 0].float()
    assert (control - exact.log_prob(x)).abs().median() > 1


def test_gradients_are_clipped_fit_by_fit():
    leaves = [torch.zeros(2, 3, requires_grad=True) for _ in range(2)]
    for leaf in leaves:
        leaf.grad = torch.tensor([[3.0, 0.0, 0.0], [0.3, 0.0, 0.0]])
    study.clip(leaves, 1.0)
    norm = torch.cat([leaf.grad for leaf in leaves], 1).norm(dim=1)
    torch.testing.assert_close(norm, torch.tensor([1.0, 0.3 * 2**0.5]))


def test_the_best_weights_of_each_fit_are_kept():
    model = study.Autoencoder(FITS, 4, D, LATENTS)
    kept = study.Kept(model)
    bias = model.network.last.bias
    for step, scores in enumerate([(1.0, 5.0), (3.0, 4.0), (2.0, 1.0)], 1):
        with torch.no_grad():
            bias.fill_(step)
        kept.evaluate(step, torch.tensor(scores))
    kept.restore()
    assert bias[0].unique().tolist() == [2.0]
    assert bias[1].unique().tolist() == [1.0]
    assert kept.steps.tolist() == [2, 1]


def test_pages_are_made_from_the_file(tmp_path):
    results, better = Results(tmp_path / "a.jsonl"), np.array([0.5, 1.0, 1.5])
    for method, score in (("mvae", -3.0 + 0 * better), ("miss-svae", -3.0 + better)):
        record = {"method": method, "step": 10, "scores": score.tolist()}
        results.add({**record, "minutes": 1.0, "commit": "abc", "errors": [1e-4]})
    page = "\n".join(long.report(Results(tmp_path / "a.jsonl"), 0.1, (9, 9), []))
    assert "| miss-svae - mvae | 10 | +1.000 ± 0.289 | +3.5 | 3 of 3 |" in page
