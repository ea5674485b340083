"""Adam on one vector: equal to torch's, and what it refuses."""

import pytest
import torch
from torch import nn

from skvnce._core.training.adam import FlatAdam, Schedule

DECAY, RATE = 0.1, 0.05


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def groups_of(model):
    """Two groups, of which one decays and one is slower."""
    first, second = list(model[0].parameters()), list(model[2].parameters())
    return [
        {"params": first, "weight_decay": DECAY},
        {"params": second, "weight_decay": 0.0, "lr": RATE / 3},
    ]


def trained(model, optimiser, seed, schedule=None, n_steps=30):
    torch.manual_seed(seed)
    for _ in range(n_steps):
        optimiser.zero_grad()
        (model(torch.randn(8, 3).double()) - 1).square().mean().backward()
        optimiser.step()
        if schedule is not None:
            schedule.step()
    return torch.cat([leaf.detach().flatten() for leaf in model.parameters()])


@pytest.mark.parametrize("amsgrad", [False, True])
def test_its_steps_are_those_of_torch(amsgrad, seed):
    ours, theirs = network(seed), network(seed)
    mine = FlatAdam(groups_of(ours), lr=RATE, amsgrad=amsgrad)
    other = torch.optim.AdamW(groups_of(theirs), lr=RATE, amsgrad=amsgrad)
    falling = [
        make(one, lambda n: 0.9**n)
        for make, one in ((Schedule, mine), (torch.optim.lr_scheduler.LambdaLR, other))
    ]
    found = trained(ours, mine, seed, falling[0])
    expected = trained(theirs, other, seed, falling[1])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    plain = FlatAdam(network(seed).parameters(), lr=RATE)
    assert (trained(network(seed), plain, seed) - expected).abs().max() > 1e-3


def test_a_state_continues(seed):
    whole, parts = network(seed), network(seed)
    long = FlatAdam(whole.parameters(), lr=RATE)
    first = FlatAdam(parts.parameters(), lr=RATE)
    trained(whole, long, seed)
    trained(parts, first, seed)
    second = FlatAdam(parts.parameters(), lr=RATE)
    second.restore(first.state())
    expected = trained(whole, long, seed + 1)
    afresh = network(seed)
    afresh.load_state_dict(parts.state_dict())
    found = trained(parts, second, seed + 1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    forgetful = trained(afresh, FlatAdam(afresh.parameters(), lr=RATE), seed + 1)
    assert (forgetful - expected).abs().max() > 1e-3


def test_fixed_parameters_stay_and_types_may_differ(seed):
    torch.manual_seed(seed)
    fixed = torch.ones(2, requires_grad=False)
    single = torch.ones(2, requires_grad=True)
    double = torch.ones(2, dtype=torch.float64, requires_grad=True)
    adam = FlatAdam([fixed, single, double, single], lr=0.5, weight_decay=DECAY)
    (single.double() @ double).backward()
    adam.step()
    assert fixed.tolist() == [1, 1]
    for leaf in (single, double):  # the first step is as long as the rate
        torch.testing.assert_close(leaf.detach(), torch.full_like(leaf, 0.45))


def test_a_replaced_gradient_counts(seed):
    """Modules of users may forget gradients in their own way."""
    v = torch.ones(2, requires_grad=True)
    adam = FlatAdam([v], lr=0.5)
    v.grad = torch.tensor([1.0, -1.0])
    adam.step()
    assert v.tolist() == pytest.approx([0.5, 1.5])
    v.grad = None
    assert [one.tolist() for one in adam.gradients] == [[0, 0]]


def test_parameters_that_have_moved_are_refused():
    model = network(0)
    adam = FlatAdam(model.parameters())
    model.float()
    with pytest.raises(RuntimeError, match="replaced after the optimiser was made"):
        adam.step()
