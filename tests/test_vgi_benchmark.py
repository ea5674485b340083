"""The benchmarks of variational Gibbs inference, but for the package's parts."""

import numpy as np
import pytest
import torch
import vgi_factor_analysis as study
from oracles import GATE, z_mean
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vgi.initial import anchored_conditionals
from skvnce.algorithms.vgi.training import (
    Chains,
    Pair,
    TrainingSettings,
    from_marginals,
    train,
)
from skvnce.distributions.normal import Normal as NormalRows
from skvnce.models.factor_analysis import FactorModel, log_prob_observed
from skvnce.models.factor_density import FactorDensity
from skvnce.variational.heads import NormalHead


@pytest.fixture
def model(seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(study.D, study.RANK + 2, generator=generator).double()
    return FactorModel(numbers[:, 0], numbers[:, 1:-1], numbers[:, -1].exp())


def test_rows_are_those_of_the_truth(seed):
    x = study.simulate(20000, 7, seed)
    assert np.abs(z_mean(x, study.TRUTH.mean)).max() < GATE
    apart = x - study.TRUTH.mean
    found = apart[:, :, None] * apart[:, None]
    assert np.abs(z_mean(found, study.TRUTH.covariance())).max() < GATE
    assert float(study.TRUTH.covariance()[0, 2]) == -13  # as in the stored data


def test_rows_of_which_nothing_is_left_are_dropped():
    x = torch.ones(2000, study.D).double()
    data = study.hide(x, 5 / 6, 3)
    assert data.observed.any(1).all()
    assert (data.x[~data.observed] == 0).all()
    kept = 1 - (5 / 6) ** 6
    shares = np.repeat([1.0, 0.0], [len(data.x), 2000 - len(data.x)])
    assert abs(z_mean(shares, kept)) < GATE


def test_fits_do_not_depend_on_units():
    data = study.hide(study.simulate(300, 1), 0.3, 4)
    unit = torch.tensor([10.0, 0.1, 1, 3, 1, 1]).double()
    scaled = data._replace(x=data.x * unit)
    plain, other = study.fit_em(data), study.fit_em(scaled)
    torch.testing.assert_close(plain.mean * unit, other.mean)
    expected = plain.covariance() * torch.outer(unit, unit)
    torch.testing.assert_close(expected, other.covariance())


def test_complete_rows_need_their_moments_alone():
    """The same as EM over the rows; and stacked tables weigh as one."""
    x = study.simulate(300, 1)
    rows, moments = study.fit_em(study.complete(x)), study.fit_complete(x)
    assert float(study.normal(rows, moments)) < 1e-6
    twice = study.fit_complete(x.expand(2, -1, -1))
    torch.testing.assert_close(twice.covariance(), moments.covariance())


def mean_field_bound(leaves, data):
    """Compute sum log p(x_obs) less the divergence of the best product, in closed form.

    Which is (sum_j log K_jj - log|K_mm|) / 2 of the missing columns m.
    """
    mean, loadings, log_variance = leaves
    S = loadings @ loadings.T + log_variance.exp().diag()
    precision = torch.linalg.inv(S)
    total = torch.zeros(()).double()
    for row, o in zip(data.x, data.observed, strict=True):
        total = total + MultivariateNormal(mean[o], S[o][:, o]).log_prob(row[o])
        inner = precision[~o][:, ~o]
        total = total - (inner.diagonal().log().sum() - torch.logdet(inner)) / 2
    return total


def test_the_mean_field_fit_is_a_stationary_point_of_its_bound():
    data = study.hide(study.simulate(60, 1), 0.4, 4)
    exact = study.fit_em(data)
    for model, flat in (
        (study.fit_mean_field(data, exact, 30000, 1e-14), True),
        (exact, False),  # the control
    ):
        leaves = [
            leaf.clone().requires_grad_()
            for leaf in (model.mean, model.loadings, model.noise_variance.log())
        ]
        slopes = torch.autograd.grad(mean_field_bound(leaves, data), leaves)
        largest = max(float(slope.abs().max()) for slope in slopes)
        assert largest < 1e-2 if flat else largest > 0.5


@pytest.mark.slow
def test_vgi_leaves_the_biased_fit_of_the_mean_field(seed):
    """Figure 3; in seeds 0 to 3 a quarter of the divergence from EM was left."""
    torch.manual_seed(seed)
    data, *_ = study.standardised(study.hide(study.simulate(1000, seed), 0.5, seed))
    exact = study.fit_em(data)
    biased = study.fit_mean_field(data, exact)
    start = NormalRows(biased.mean, biased.covariance())
    conditionals = anchored_conditionals(start, NormalHead())
    pair = Pair(FactorDensity.of(biased).float(), conditionals.float())
    rows = Incomplete(data.x.float(), data.observed)
    settings = TrainingSettings(
        n_updates=6, batch_size=250, learning_rate=0.01, q_learning_rate=0.01
    )
    train(pair, Chains(rows, from_marginals(rows, 2)), settings, n_epochs=30)
    found = FactorModel(*(part.double() for part in pair.model.factors()))
    assert study.normal(found, exact) < 0.5 * study.normal(biased, exact)


class Anchored:
    """Conditionals of a model itself."""

    def __init__(self, model):
        self.model = model

    def all(self, x):
        S, mean = self.model.covariance(), self.model.mean
        locs, spreads = [], []
        for j in range(study.D):
            rest = [k for k in range(study.D) if k != j]
            gain = torch.linalg.solve(S[rest][:, rest], S[rest, j])
            locs.append(mean[j] + (x - mean)[:, rest] @ gain)
            spreads.append((S[j, j] - gain @ S[rest, j]).sqrt().expand(len(x)))
        return Normal(torch.stack(locs, -1), torch.stack(spreads, -1))


def test_divergences_of_conditionals(model):
    x = study.simulate(50, 1)
    own = study.conditional_kl(Anchored(model), model, x)
    torch.testing.assert_close(own, torch.zeros_like(own), rtol=0, atol=1e-9)
    q, p = (Anchored(m).all(x) for m in (model, study.TRUTH))
    found = study.conditional_kl(Anchored(model), study.TRUTH, x)
    torch.testing.assert_close(found, kl_divergence(q, p))


def test_errors_do_not_depend_on_the_rotation():
    assert study.parameter_error(study.TRUTH) == pytest.approx(0, abs=1e-9)
    angle = torch.tensor(0.7).double()
    turn = torch.stack(
        [
            torch.stack([angle.cos(), angle.sin()]),
            torch.stack([-angle.sin(), angle.cos()]),
        ]
    )
    turned = study.TRUTH._replace(loadings=study.TRUTH.loadings @ turn)
    assert study.parameter_error(turned) == pytest.approx(0, abs=1e-9)
    assert study.covariance_error(turned) == pytest.approx(0, abs=1e-12)
    shifted = study.TRUTH._replace(mean=study.TRUTH.mean + 1)
    assert study.parameter_error(shifted) == pytest.approx((6 / 24) ** 0.5)


def test_slopes():
    found = {n: [{"error": n**-0.5}, {"error": 2 * n**-0.5}] for n in (10, 100, 1000)}
    steep, std = study.slope(found, "error")
    assert steep == pytest.approx(-0.5)
    assert std > 0


def test_the_likelihood_of_the_truth_is_that_of_its_rows():
    """The generator and the model are of one parametrisation."""
    x = study.simulate(5, 1)
    found, _ = log_prob_observed(study.TRUTH, *study.complete(x))
    dense = MultivariateNormal(study.TRUTH.mean, study.TRUTH.covariance())
    torch.testing.assert_close(found, dense.log_prob(x))
