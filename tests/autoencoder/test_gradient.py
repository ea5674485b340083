"""MIWAE's bound and its gradient, written out, against autograd."""

import pytest
import torch
from vaes import N, moved_autoencoder, rounded_families, rounded_table

from skvnce._core.incomplete import Incomplete
from skvnce._core.training.adam import named_leaves
from skvnce.autoencoder import losses
from skvnce.autoencoder.losses import WeightedBound
from skvnce.autoencoder.vae import Architecture, Training


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
    auto = moved_autoencoder(4, k, rounded, Architecture(hidden, 0.2, 1), far)
    loss = loss_of(auto, rounded_table(rounded, 4))
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
    auto, data = (
        moved_autoencoder(4, 2, (1,), Architecture((6,), 0.0, 1)),
        rounded_table((1,), 4),
    )
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


def test_other_losses_are_left_to_autograd(seed):
    torch.manual_seed(seed)
    data, sizes = rounded_table((), 4), Architecture((6,), 0.0, 1)
    auto = moved_autoencoder(4, 2, (), sizes)
    assert isinstance(loss_of(auto, data), WeightedBound)
    for name in ("mvae", "miss-siwae"):
        assert not isinstance(loss_of(auto, data, name=name), WeightedBound)
    mixed = moved_autoencoder(4, 2, (), sizes._replace(n_components=2))
    assert not isinstance(loss_of(mixed, data, name="miss-iwae"), WeightedBound)
    auto.model.families = rounded_families()._replace(student=torch.tensor([1]))
    assert not isinstance(loss_of(auto, data), WeightedBound)
    auto.model.families = rounded_families()
    auto.model.requires_grad_(False)  # as `fit_posterior` has it
    assert not isinstance(loss_of(auto, data), WeightedBound)
