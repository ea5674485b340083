"""The scale parameter of a model that knows nothing of it."""

import pytest
import torch
from _energies import UnnormalisedScaleMixture

from skvnce._core.distributions.normal import Normal
from skvnce._core.models import log_joint_of_states
from skvnce.contrast.models import FreeGaussian, Scaled


@pytest.fixture
def mixture():
    return UnnormalisedScaleMixture(torch.tensor(3.0).double())


@pytest.fixture
def gaussian():
    return FreeGaussian(Normal(torch.ones(2).double(), 2 * torch.eye(2).double()))


def test_the_scale_is_subtracted(mixture, gaussian, torch_seeded):
    x, z = torch.randn(3, 2, 4, 1).double(), torch.randint(2, (3, 2, 4, 1)).double()
    y, observed = torch.randn(3, 4, 2).double(), torch.rand(4, 2) < 0.5
    for scale in (0.0, 1.5):
        latent, plain = Scaled(mixture), Scaled(gaussian)
        for model in (latent, plain):
            model.rescale(scale)
        for result, expected in (
            (latent.log_density(x, z), mixture.log_density(x, z)),
            (plain.log_density(y), gaussian.log_density(y)),
            (plain.log_marginal(y, observed), gaussian.log_marginal(y, observed)),
        ):
            torch.testing.assert_close(result, expected - scale)


def test_rows_reach_the_model_as_a_matrix(seed):
    class Narrow(torch.nn.Module):
        def log_density(self, x):
            n, d = x.shape  # no leading dimensions
            return x.sum(1)

    x = torch.randn(2, 3, 4, 5)
    result = Scaled(Narrow()).log_density(x)
    torch.testing.assert_close(result, x.sum(-1), check_dtype=False)


def test_its_slope_is_minus_one_where_it_is_free(mixture):
    model = Scaled(mixture)
    (slope,) = torch.autograd.grad(
        log_joint_of_states(model, torch.zeros(5, 1).double()).sum(), model.log_scale
    )
    assert slope == -10  # five rows at two states
    assert (model.states == mixture.states).all()
    fixed = Scaled(mixture, free=False)
    assert not fixed.log_scale.requires_grad
    fixed.rescale(2.0)
    assert fixed.log_scale == 2
