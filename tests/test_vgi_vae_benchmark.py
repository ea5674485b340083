"""The parts of the benchmark of variational Gibbs inference that are its own."""

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


@pytest.mark.slow
@pytest.mark.sampled
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


def test_complete_rows_are_given_to_one_method_alone(truth):
    rows = study.problem(truth, study.QUICK, 0.5, 0)
    given = {k: v[2] for k, v in study.methods(rows, None).items()}
    assert given.pop(study.COMPLETE) is rows.complete
    assert given.pop("MVAE") is rows.train
    assert all(table is rows.train for table in given.values())
    assert not rows.complete.x[~rows.train.observed].eq(0).any()  # control


def test_all_methods_start_at_the_same_decoder(truth, monkeypatch):
    rows, starts = study.problem(truth, study.QUICK, 0.5, 0), []

    class Reached(Exception):
        pass

    def fit(model, *arguments):
        starts.append(model.network[0].weight.detach().clone())
        raise Reached

    fits = {k: (v[0], fit) for k, v in study.methods(rows, None).items()}
    monkeypatch.setattr(study, "methods", lambda rows, linear: fits)
    for seed in (3, 4):
        for name in fits:
            with pytest.raises(Reached):
                study.autoencoder(name, rows, None, study.QUICK, seed)
    first, second = starts[: len(fits)], starts[len(fits) :]
    assert all(torch.equal(one, first[0]) for one in first)
    assert not torch.equal(second[0], first[0])  # control


def evaluated(truth, shifts, size):
    """Evaluate a model at epochs 1, 2, ... whose output biases are moved by shifts."""
    rows = study.problem(truth, study.QUICK, 0.5, 0)
    keep = study.Selection(truth, rows.validation, rows.test, size)
    bias = truth.network[-1].bias.data.clone()
    stops = []
    for epoch, shift in enumerate(shifts, 1):
        truth.network[-1].bias.data = bias + shift
        stops.append(keep(epoch, 0.0))
    return keep, stops, bias


def test_selection_keeps_the_likeliest_checkpoint(truth):
    shifts = 0.5, 0.0, 1.0
    size = study.QUICK._replace(every=1, patience=9)
    keep, stops, bias = evaluated(truth, shifts, size)
    assert stops == [False] * 3
    epochs, seconds, validation, _ = zip(*keep.path, strict=True)
    assert epochs == (1, 2, 3)
    assert 0 <= seconds[0] <= seconds[1] <= seconds[2]
    best = max(range(3), key=lambda k: validation[k])
    assert keep.best[:2] == (best + 1, validation[best])
    assert torch.equal(keep.best[2]["network.2.bias"], bias + shifts[best])


@pytest.mark.parametrize(
    ("patience", "last"), [(2, [False, False, True]), (3, [False] * 3)]
)
def test_training_stops_when_validation_rows_stop_improving(truth, patience, last):
    size = study.QUICK._replace(every=1, patience=patience)
    keep, stops, _ = evaluated(truth, (0.0, 2.0, 3.0), size)
    assert keep.best[0] == 1
    assert stops == last


def test_test_rows_have_no_part_in_the_choice(truth, monkeypatch):
    """Scores of test rows are recorded; with others the same checkpoint is kept."""
    rows = study.problem(truth, study.QUICK, 0.5, 0)
    size = study.QUICK._replace(every=1, patience=9)
    kept = []
    for sign in (1.0, -1.0):
        keep = study.Selection(truth, rows.validation, rows.test, size)
        validation, test = iter((1.0, 3.0, 2.0)), iter((sign, 2 * sign, 3 * sign))
        monkeypatch.setattr(keep.followed[0], "estimate", lambda v=validation: next(v))
        monkeypatch.setattr(keep.followed[1], "estimate", lambda v=test: next(v))
        for epoch in (1, 2, 3):
            keep(epoch, 0.0)
        kept.append(keep.best[:2])
    assert kept == [(2, 3.0)] * 2


def test_scores_at_stated_seconds_are_those_reached_by_then():
    path = [[5, 1.0, -3.0, 10.0], [10, 2.0, -2.0, 20.0], [15, 9.0, -1.0, 30.0]]
    assert np.isnan(study.at_time(path, 0.5))
    found = [study.at_time(path, seconds) for seconds in (1, 2, 8.9, 9, 99)]
    assert found == [10.0, 20.0, 20.0, 30.0, 30.0]
