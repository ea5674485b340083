"""MIWAE's bound and its gradient, written out, against autograd."""

import pytest
import torch

from skvnce._incomplete import Incomplete
from skvnce.algorithms.vae import autoencoder, losses
from skvnce.algorithms.vae.autoencoder import Architecture, Autoencoder, Training
from skvnce.algorithms.vae.gradient import WeightedBound
from skvnce.distributions.cells import Families
from skvnce.models.factor_analysis import FactorModel
from skvnce.training.adam import descend, named_leaves
from skvnce.training.flat_adam import FlatAdam

NONE, EMPTY = torch.zeros(0, dtype=torch.long), torch.zeros(0, 2).double()
N = 40


def families(*rounded):
    """Make columns of the values -1, 0 and 1, and normal ones."""
    at = torch.tensor(rounded, dtype=torch.long)
    values = torch.tensor([-1.0, 0.0, 1.0]).double().repeat(len(at), 1)
    edges = torch.tensor([-1.5, -0.5, 0.5, 1.5]).double().repeat(len(at), 1)
    return Families(NONE, NONE, at, EMPTY, values, edges)


def table(rounded, d):
    x = torch.randn(N, d).double()
    for column in rounded:
        x[:, column] = torch.randint(-1, 2, (N,)).double()
    return Incomplete(x, torch.rand(N, d) < 0.6)


def model(d, k, rounded, sizes, far=1.0):
    """Make an autoencoder whose parameters are all far from their start."""
    linear = FactorModel(
        far * torch.randn(d).double(),
        torch.randn(d, k).double(),
        torch.rand(d).double() + 0.1,
    )
    auto = autoencoder.build(linear, families(*rounded), sizes)
    auto = Autoencoder(*(part.double() for part in auto))
    for _, leaf in named_leaves(auto._asdict()):
        leaf.data += 0.3 * torch.randn_like(leaf)
        leaf.grad = torch.full_like(leaf, torch.nan)  # all are to be set
    return auto


def loss_of(auto, data, n_draws=5, name="miwae"):
    training = Training(n_draws, 16, 3e-3, 0.05)
    return losses.ALGORITHMS[name].loss(auto, {}, data, training)


def slopes_of(auto):
    return {name: leaf.grad.clone() for name, leaf in named_leaves(auto._asdict())}


@pytest.mark.parametrize("hidden", [(6,), (5, 4), ()])
@pytest.mark.parametrize("rounded", [(), (2, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_it_is_the_gradient_of_autograd(hidden, rounded, far, seed):
    """With the same random numbers; also where probabilities underflow."""
    torch.manual_seed(seed)
    k = 1 + seed % 3
    auto = model(4, k, rounded, Architecture(hidden, 0.2, 1), far)
    loss = loss_of(auto, table(rounded, 4))
    assert isinstance(loss, WeightedBound)
    rows = torch.randint(N, (16,))
    torch.manual_seed(seed)
    value, found = loss.differentiate(rows), slopes_of(auto)
    for _, leaf in named_leaves(auto._asdict()):
        leaf.grad = None
    torch.manual_seed(seed)
    expected = loss(rows)
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-10)
    for name, slope in slopes_of(auto).items():
        scale = float(slope.abs().max())
        error = float((found[name] - slope).abs().max())
        assert error <= 1e-10 * max(scale, 1.0), name
    other = loss.differentiate(rows + 0)  # other random numbers
    assert abs(float(other) - float(value)) > 1e-6


def test_values_under_the_mask_do_not_matter(seed):
    torch.manual_seed(seed)
    auto, data = model(4, 2, (1,), Architecture((6,), 0.0, 1)), table((1,), 4)
    found = []
    for hidden in (0.0, 1e6, torch.nan):
        torch.manual_seed(seed)
        x = data.x.where(data.observed, hidden)
        loss = loss_of(auto, Incomplete(x, data.observed))
        found.append(loss.differentiate(torch.arange(9)))
    assert torch.isfinite(found[0])
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    seen = data.observed.clone()
    seen[:, 0] = ~seen[:, 0]
    torch.manual_seed(seed)
    other = loss_of(auto, Incomplete(data.x, seen)).differentiate(torch.arange(9))
    assert not torch.equal(found[0], other)


def test_training_takes_the_same_steps(seed):
    torch.manual_seed(seed)
    data = table((1,), 4)
    state, sizes, ended = None, Architecture((6,), 0.1, 1), []
    for takes_graph in (False, True):
        torch.manual_seed(seed)
        auto = model(4, 2, (1,), sizes)
        named = named_leaves(auto._asdict())
        start = torch.cat([leaf.detach().flatten() for _, leaf in named])
        assert state is None or torch.equal(state, start)
        state, whole = start, loss_of(auto, data)
        loss = whole.__call__ if takes_graph else whole
        curve = descend(
            loss,
            named,
            lambda: [torch.randint(N, (16,)) for _ in range(5)],
            optimiser=FlatAdam([leaf for _, leaf in named], lr=1e-2),
            max_iter=3,
            max_norm=5.0,
        )
        ended.append(torch.cat([leaf.detach().flatten() for _, leaf in named]))
        ended.append(torch.tensor(curve))
    torch.testing.assert_close(ended[0], ended[2], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ended[1], ended[3], rtol=1e-9, atol=1e-9)
    assert (ended[0] - state).abs().max() > 1e-2


def test_other_losses_are_left_to_autograd(seed):
    torch.manual_seed(seed)
    data, sizes = table((), 4), Architecture((6,), 0.0, 1)
    auto = model(4, 2, (), sizes)
    assert isinstance(loss_of(auto, data), WeightedBound)
    for name in ("mvae", "miss-siwae"):
        assert not isinstance(loss_of(auto, data, name=name), WeightedBound)
    mixed = model(4, 2, (), sizes._replace(n_components=2))
    assert not isinstance(loss_of(mixed, data, name="miss-iwae"), WeightedBound)
    auto.model.families = families()._replace(student=torch.tensor([1]))
    assert not isinstance(loss_of(auto, data), WeightedBound)
    auto.model.families = families()
    auto.model.requires_grad_(False)  # as `fit_posterior` has it
    assert not isinstance(loss_of(auto, data), WeightedBound)
