"""A flow of splines, which are those of zuko: a normal as it starts."""

import pytest
import torch
from oracles import GATE
from torch.distributions import MultivariateNormal

from skvnce._core.random import seeded
from skvnce.vgi.densities import SplineFlow
from skvnce.vgi.splines import MonotonicRQSTransform

# A flow of splines: a normal as it starts, and a density wherever it is


MEAN = torch.tensor([0.5, -1.0, 2.0, 0.0]).double()
FACTOR = torch.tensor(
    [[1.5, 0, 0, 0], [-0.4, 0.6, 0, 0], [0.3, 0.9, 2.0, 0], [0.1, 0.0, -0.7, 1.0]]
).double()
KINDS = {"coupling": 2, "autoregressive": None}
SIZES = [(d, kind) for d in (1, 2, 4) for kind in KINDS]


def flow(d=4, kind="coupling", shake=0.0, dtype=torch.float64, seed=0, **settings):
    """Make a flow, with all parameters moved at random."""
    with seeded(seed):
        model = SplineFlow(
            MEAN[:d].to(dtype),
            FACTOR[:d, :d].to(dtype),
            n_steps=settings.pop("n_steps", 2),
            n_bins=5,
            hidden=(8,),
            n_passes=KINDS[kind],
            **settings,
        )
        with torch.no_grad():
            for leaf in model.parameters():
                leaf += shake * torch.randn_like(leaf)
    return model


def rows(d=4, n=50, dtype=torch.float64, seed=1):
    """Draw rows that reach into the splines' tails."""
    with seeded(seed):
        return MEAN[:d].to(dtype) + 3 * torch.randn(n, d, dtype=dtype)


@pytest.mark.parametrize(("d", "kind"), SIZES)
def test_it_starts_as_the_normal(d, kind):
    x = rows(d)
    exact = MultivariateNormal(MEAN[:d], scale_tril=FACTOR[:d, :d]).log_prob(x)
    torch.testing.assert_close(flow(d, kind).log_prob(x), exact)
    assert (flow(d, kind, 0.1).log_prob(x) - exact).abs().min() > 1e-6


@pytest.mark.quick
@pytest.mark.parametrize(("d", "kind"), SIZES)
def test_the_log_determinant_is_that_of_the_jacobian(d, kind):
    model, x = flow(d, kind, 0.3).requires_grad_(False), rows(d, 20)
    u, log_det = model.to_base(x)
    for row, base, result in zip(x, u, log_det, strict=True):
        row, base = row[None], base[None]
        forward = torch.autograd.functional.jacobian(lambda x: model.to_base(x)[0], row)
        back = torch.autograd.functional.jacobian(model.from_base, base)
        forward, back = (j[0, :, 0] for j in (forward, back))
        assert result == pytest.approx(float(forward.slogdet()[1]), abs=1e-9)
        assert result == pytest.approx(-float(back.slogdet()[1]), abs=1e-6)


@pytest.mark.parametrize(("d", "kind"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_way_back(d, kind, dtype):
    double, wide = flow(d, kind, 0.1), rows(d, 20).view(4, 5, d)
    model, x = flow(d, kind, 0.1).to(dtype), wide.to(dtype)
    with torch.no_grad():
        u, log_det = model.to_base(x)
        back, log_prob = model.from_base(u), model.log_prob(x)
        exact = double.log_prob(wide)
    assert u.shape == x.shape
    assert log_det.shape == log_prob.shape == x.shape[:-1]
    assert {u.dtype, log_det.dtype, log_prob.dtype} == {dtype}
    near = {torch.float32: 1e-3, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(back, x, atol=near, rtol=near)
    torch.testing.assert_close(log_prob.double(), exact, atol=near, rtol=near)


@pytest.mark.parametrize(("d", "kind"), SIZES)
def test_gradients_reach_all_parameters(d, kind):
    model = flow(d, kind, 0.3)
    model.log_prob(rows(d)).sum().backward()
    for name, leaf in model.named_parameters():
        assert leaf.grad is not None and leaf.grad.isfinite().all(), name
        masked = name.startswith("splines") or name in ("whiten", "linear")
        assert (leaf.grad != 0).any() or (d == 1 and masked), name


def test_draws_follow_the_density(seed):
    """Their probability transform, of the flow's one column, is uniform."""
    model = flow(1, shake=0.5)
    with seeded(seed), torch.no_grad():
        x = model.sample(4000)
        again = model.from_base(model.to_base(x)[0])
    torch.testing.assert_close(x, again)
    line = torch.linspace(-25, 25, 20001).double()
    with torch.no_grad():
        cdf = model.log_prob(line[:, None]).softmax(0).cumsum(0)
    cdf = cdf[torch.searchsorted(line, x[:, 0])]
    z = (cdf.mean() - 0.5) * (12 * len(cdf)) ** 0.5
    assert abs(float(z)) < GATE


@pytest.mark.parametrize(("d", "kind"), SIZES)
def test_no_rows(d, kind):
    """As where a batch has no complete row."""
    model, none = flow(d, kind, 0.1), torch.empty(0, d).double()
    assert model.log_prob(none).shape == (0,)
    assert model.log_prob(none.expand(3, 0, d)).shape == (3, 0)
    assert model.from_base(none).shape == (0, d)


# The splines are those of zuko, in values, inverses and gradients


Reference = MonotonicRQSTransform.__base__  # zuko itself is imported once, by `splines`


def outputs(kind, knots, x):
    """Evaluate a spline, its log-derivative, its inverse, and gradients of knots."""
    spline = kind(*knots, bound=4.0)
    y, log_slope = spline.call_and_ladj(x)
    total = (y + log_slope).sum()
    return [y, log_slope, spline.inv(y), *torch.autograd.grad(total, knots)]


@pytest.mark.parametrize("n_bins", [2, 4, 8, 20])
def test_splines_equal_those_of_zuko(n_bins, seed):
    with seeded(seed):
        knots = [
            torch.randn(50, 3, n).double().requires_grad_()
            for n in (n_bins, n_bins, n_bins - 1)
        ]
        x = 3 * torch.randn(50, 3).double()
    result = outputs(MonotonicRQSTransform, knots, x)
    torch.testing.assert_close(result, outputs(Reference, knots, x), rtol=0, atol=1e-8)
    torch.testing.assert_close(result[2], x, rtol=0, atol=1e-8)
    other = outputs(Reference, [knots[1], knots[0], knots[2]], x)  # a control
    assert (result[0] - other[0]).abs().max() > 0.1
