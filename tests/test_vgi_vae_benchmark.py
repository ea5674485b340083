"""The parts of the benchmark of variational Gibbs inference that are its own."""

import json

import _laplace
import numpy as np
import pytest
import torch
import vgi_vae as study
from oracles import GATE, first_and_second, z_mean
from torch import nn
from torch.distributions import Independent, Normal
from vaes import grid

from skvnce._incomplete import Incomplete
from skvnce.models.factor_analysis import FactorModel, log_prob_observed

N = 40
# torch's own, as it first loads what forward-mode derivatives need
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning"
)


class Linear(nn.Module):
    """Factor analysis, or with a bend a curve, in the form of a decoder."""

    def __init__(self, bend=0.0):
        super().__init__()
        rng = np.random.default_rng(0)
        self.loadings = torch.tensor(rng.normal(size=(6, 2)))
        self.log_variance = torch.tensor([0.2, -1.0, 0.0, -2.0, -1.0, 0.5]).double()
        self.bend = bend

    def network(self, z):
        curved = z + self.bend * (2 * z.flip(-1)).sin()
        log_variance = self.log_variance + self.bend * z[..., :1].tanh()
        return torch.cat([curved @ self.loadings.T, log_variance + 0 * z[..., :1]], -1)

    def prior(self):
        return Independent(Normal(torch.zeros(2).double(), 1.0), 1)

    def likelihood(self, z):
        loc, log_variance = self.network(z).chunk(2, -1)
        return Normal(loc, (log_variance / 2).exp())


def rows(seed):
    torch.manual_seed(seed)
    observed = torch.rand(N, 6) < 0.6
    return torch.randn(N, 6).double().where(observed, 0.0), observed


def exact(model, x, observed):
    mean = torch.zeros(6).double()
    factors = FactorModel(mean, model.loadings, model.log_variance.exp())
    return log_prob_observed(factors, x, observed)[0]


def test_the_estimate_is_exact_for_a_linear_model(seed):
    """One step finds the mode; the weights then only undo the wider proposal."""
    model, (x, observed) = Linear(), rows(seed)
    modes, _ = _laplace.climb(model, x, observed, torch.zeros(N, 2).double(), 30)
    found, worth = _laplace.log_likelihood(model, x, observed, modes, 4000)
    truth = exact(model, x, observed)
    torch.testing.assert_close(found, truth, atol=0.05, rtol=0.0)
    assert worth.min() > 0.9 * 4000
    off = _laplace.log_likelihood(model, x, observed, modes + 4.0, 4000)[1]
    assert off.median() < 0.1 * 4000  # control: bad modes show


def test_weights_are_unbiased_off_the_line(seed):
    """Of a curve, against quadrature."""
    model, (x, observed) = Linear(0.1), rows(seed)
    z, weights = grid(2, 7.0, 120)
    joint = _laplace.log_joint(model, x, observed, z[:, None].expand(-1, N, -1))
    truth = torch.logsumexp(joint + weights.log()[:, None], 0)
    modes, _ = _laplace.climb(model, x, observed, torch.zeros(N, 2).double(), 30)
    found = [
        _laplace.log_likelihood(model, x, observed, modes, 100) for _ in range(200)
    ]
    ratios = torch.stack([value - truth for value, _ in found]).exp()
    kept = torch.stack([worth for _, worth in found]).quantile(0.05, 0) > 50
    assert kept.sum() > N / 2  # where modes stand apart few draws are worth anything
    assert abs(z_mean(ratios[:, kept], 1.0)).max() < GATE
    line = exact(model, x, observed) - truth  # control
    assert abs(z_mean(ratios[:, kept], line[kept].exp())).max() > GATE


def test_a_climb_never_goes_down(seed):
    model, (x, observed) = Linear(0.4), rows(seed)
    z = torch.randn(N, 2).double()
    heights = [_laplace.climb(model, x, observed, z, n)[1] for n in (0, 1, 5, 20)]
    for low, high in zip(heights[:-1], heights[1:], strict=True):
        assert (high >= low).all()
    starts = torch.stack([z, torch.zeros_like(z)])
    best = _laplace.highest(model, x, observed, starts, 20)
    assert (_laplace.log_joint(model, x, observed, best) >= heights[-1] - 1e-9).all()


def test_completions_are_draws_of_factor_analysis(seed, monkeypatch):
    monkeypatch.setattr(study, "CHAINS", 4000)
    torch.manual_seed(seed)
    model, (x, observed) = Linear(), rows(seed)
    observed = torch.tensor([[True, False, True, False, False, True]])
    x = x[:1].float().where(observed, 0.0)
    factors = FactorModel(
        torch.ones(6).double(), model.loadings, model.log_variance.exp()
    )
    found = study.linear_draws(factors, Incomplete(x, observed))
    assert (found[:, observed] == x[observed]).all()
    o, m = observed[0].nonzero()[:, 0], (~observed[0]).nonzero()[:, 0]
    covariance = factors.covariance()
    gain = torch.linalg.solve(covariance[o][:, o], covariance[o][:, m]).T
    mean = 1 + gain @ (x[0, o].double() - 1)
    rest = covariance[m][:, m] - gain @ covariance[o][:, m]
    second = rest + torch.outer(mean, mean)
    i, j = np.triu_indices(len(m))
    moments = torch.cat([mean, second[i, j]])
    sample = first_and_second(found[:, 0, m])
    assert abs(z_mean(sample, moments)).max() < GATE
    assert abs(z_mean(sample, 0.0)).max() > GATE  # control


@pytest.fixture
def truth():
    torch.manual_seed(0)
    return study.Decoder().requires_grad_(False)


def test_the_same_rows_with_another_mask(truth):
    first, second = (study.problem(truth, study.QUICK, 0.5, s) for s in (0, 1))
    again = study.problem(truth, study.QUICK, 0.5, 0)
    for one, other in zip(first[:4], again[:4], strict=True):
        assert torch.equal(one.x, other.x)
    assert not torch.equal(first.train.observed, second.train.observed)
    train = first.train
    count = train.observed.sum(0)
    mean = train.x.sum(0) / count
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-4, rtol=0.0)
    square = train.x.square().sum(0) / count
    torch.testing.assert_close(square, torch.ones_like(square), atol=1e-3, rtol=0.0)
    assert (train.x[~train.observed] == 0).all()
    assert first.test.observed.all()


def test_selection_keeps_the_likeliest_checkpoint(truth):
    rows = study.problem(truth, study.QUICK, 0.5, 0)
    keep = study.Selection(truth, rows.validation, 1, 20)
    good = {k: v.clone() for k, v in truth.state_dict().items()}
    state = torch.get_rng_state()
    for epoch, shift in enumerate((0.5, 0.0, 1.0), 1):
        truth.network[-1].bias.data = good["network.2.bias"] + shift
        assert keep(epoch, 0.0) is False
    assert torch.equal(torch.get_rng_state(), state)
    assert len(keep.path) == 3
    best = max(keep.path, key=lambda pair: pair[1])
    assert keep.best[:2] == best
    shift = (0.5, 0.0, 1.0)[best[0] - 1]
    kept = keep.best[2]["network.2.bias"]
    assert torch.equal(kept, good["network.2.bias"] + shift)


def test_a_run_goes_on_from_its_results(tmp_path):
    file = tmp_path / "results.jsonl"
    first = study.Kept(file)
    made = first.get({"method": "a", "seed": 0}, lambda: {"score": 1.5})
    assert made == {"method": "a", "seed": 0, "score": 1.5}
    again = study.Kept(file)

    def refuse():
        raise AssertionError

    assert again.get({"method": "a", "seed": 0}, refuse) == made
    assert again.get({"method": "a", "seed": 1}, lambda: {"score": 2.0})["score"] == 2
    assert len(file.read_text().splitlines()) == 2
    assert json.loads(file.read_text().splitlines()[0]) == made
