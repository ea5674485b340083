"""The free normal against dense algebra, and where it starts."""

import pytest
import torch
from oracles import shaken
from torch.distributions import MultivariateNormal

from skvnce._core.distributions.normal import FreeNormal, Normal

D = 4


@pytest.fixture
def initial(torch_seeded):
    root = torch.randn(D, D).double()
    return Normal(3 * torch.randn(D).double(), root @ root.T + 0.2 * torch.eye(D))


@pytest.fixture
def free(initial):
    return shaken(FreeNormal(initial), 0.5)


def test_eq_1_by_dense_algebra(free, initial):
    R = torch.linalg.cholesky(initial.covariance)
    A = free.log_diagonal.exp().diag()
    place = iter(free.below)
    for i in range(D):
        for j in range(i):
            A[i, j] = next(place)
    precision = R.T.inverse() @ A @ A.T @ R.inverse()
    torch.testing.assert_close(free.factor(), A)
    torch.testing.assert_close(free.mean(), initial.mean + R @ free.shift)
    torch.testing.assert_close(free.precision(), precision)
    torch.testing.assert_close(free.log_det(), -precision.logdet())
    assert (free.precision() - initial.covariance.inverse()).abs().max() > 0.1


def test_all_forms_agree(free):
    normal, inverted = free.normal(), free.factored()
    torch.testing.assert_close(normal.mean, free.mean().detach())
    exact = torch.eye(D).double()
    torch.testing.assert_close(normal.covariance @ free.precision(), exact)
    torch.testing.assert_close(normal.covariance.logdet(), free.log_det().detach())
    assert not normal.covariance.requires_grad
    for result, expected in (
        (inverted.mean, free.mean()),
        (inverted.precision, free.precision()),
        (inverted.log_det, free.log_det()),
    ):
        assert (result == expected).all()
        assert result.requires_grad


def test_square(free):
    x = torch.randn(2, 3, D).double()
    residual = x - free.mean()
    expected = ((residual @ free.precision()) * residual).sum(-1)
    torch.testing.assert_close(free.square(x), expected)
    log_prob = MultivariateNormal(*free.normal()).log_prob(x)
    constant = D * torch.tensor(2 * torch.pi).double().log() + free.log_det()
    torch.testing.assert_close(-(free.square(x) + constant) / 2, log_prob)


@pytest.mark.parametrize("form", ["mean", "precision", "log_det", "factor"])
def test_gradients(free, form):
    names, leaves = zip(*free.named_parameters(), strict=True)

    class Form(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.free = free

        def forward(self):
            return getattr(self.free, form)()

    def function(*values):
        parameters = {f"free.{k}": v for k, v in zip(names, values, strict=True)}
        return torch.func.functional_call(Form(), parameters, ())

    assert torch.autograd.gradcheck(function, leaves)


def test_the_units_of_the_columns_do_not_matter(initial):
    """Slopes at zero are those of the whitened rows, whatever the initial."""
    x = MultivariateNormal(*initial).sample((50,))
    slopes = []
    for scale in (1.0, 1e4):
        unit = torch.tensor([scale, 1.0, 1.0, 1 / scale]).double()
        free = FreeNormal(
            Normal(unit * initial.mean, initial.covariance * torch.outer(unit, unit))
        )
        loss = free.square(x * unit).mean() + free.log_det()
        slopes.append(torch.autograd.grad(loss, free.parameters()))
    for first, second in zip(*slopes, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-8)
