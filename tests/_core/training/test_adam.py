"""The loop over epochs, and Adam on one vector."""

import math

import pytest
import torch
from torch import nn

from skvnce._core.training.adam import FlatAdam, NotFinite, Schedule, descend, train

# The loop over epochs: batches, steps of known length, refusals


N = 10


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def run(loss, named, n=N, **settings):
    defaults = {
        "batch_size": 4,
        "learning_rate": 0.1,
        "max_iter": 5,
        "on_epoch": lambda epoch, loss: False,
    }
    return train(loss, named, n, **{**defaults, **settings})


def test_every_epoch_takes_every_row_once(torch_seeded):
    v, batches = leaf(0.0), []

    def loss(rows):
        batches.append(rows.tolist())
        return v.square().sum()

    run(loss, [("v", v)], max_iter=3)
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    epochs = [sum(batches[i : i + 3], []) for i in range(0, 9, 3)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_losses_are_means_over_rows(torch_seeded):
    v, y, losses = leaf(0.0), torch.arange(float(N)).double(), []

    def loss(rows):
        return y[rows].mean() + 0 * v.sum()

    def stop(epoch, value):
        losses.append((epoch, value))
        return epoch == 2

    result = run(loss, [("v", v)], on_epoch=stop)
    assert result == pytest.approx([4.5] * 2)  # batches of unequal size
    assert losses == list(enumerate(result, 1))


def test_the_learning_rate_falls_along_half_a_cosine():
    """Along a line every step of Adam is as long as the learning rate."""
    v, n_epochs = leaf(0.0, 0.0), 7
    slope = torch.tensor([3.0, -1e3]).double()
    run(lambda rows: slope @ v, [("v", v)], batch_size=N, max_iter=n_epochs)
    whole = sum((1 + math.cos(math.pi * t / n_epochs)) / 2 for t in range(n_epochs))
    expected = torch.tensor([-0.1, 0.1]).double() * whole
    torch.testing.assert_close(v.detach(), expected, rtol=1e-6, atol=0)


def test_it_reaches_the_minimum(torch_seeded):
    v, unread = leaf(3.0, -2.0), leaf(7.0)
    x = torch.randn(N, 2).double()
    losses = run(
        lambda rows: (x[rows] - v).square().sum(1).mean(),
        [("v", v), ("unread", unread)],
        batch_size=N,
        max_iter=300,
    )
    torch.testing.assert_close(v.detach(), x.mean(0), atol=1e-3, rtol=0)
    assert losses[-1] < losses[0]
    assert unread.item() == 7


def test_a_gradient_that_is_not_finite_is_named_before_the_step():
    fine, bad = leaf(1.0), leaf(0.0)
    with pytest.raises(NotFinite, match="the loss is 1.0.*not finite: bad$"):
        run(lambda rows: fine.sum() + bad.sqrt().sum(), [("fine", fine), ("bad", bad)])
    assert (fine.item(), bad.item()) == (1, 0)


def test_a_loss_that_is_not_finite_is_refused():
    v, constant = leaf(1.0), torch.tensor(torch.inf).double()
    with pytest.raises(NotFinite, match="the loss is inf; .*: none"):
        run(lambda rows: v.sum() + constant, [("v", v)])
    both = leaf(1.0)
    with pytest.raises(NotFinite, match="the loss is nan; .*: v, both"):
        run(lambda rows: (v * both).sum() * torch.nan, [("v", v), ("both", both)])
    assert v.item() == 1


# Steps along the gradient


class PlainSteps(FlatAdam):
    """Steps of a length along the gradient."""

    def step(self):
        [group], [piece] = self.param_groups, self._pieces
        piece.flat.values.sub_(group["lr"] * piece.flat.gradients)


def go(loss, named, **settings):
    """Descend by plain steps of length 1 along the gradient."""
    leaves = [leaf for _, leaf in named]
    optimiser = PlainSteps(leaves, lr=1.0)
    rates = []

    def rate(epoch):
        rates.append(epoch)
        return 0.5**epoch

    defaults = {
        "batches": lambda: torch.arange(4).split(2),
        "max_iter": 3,
        "on_epoch": lambda epoch, loss: False,
    }
    settings = {**defaults, **settings}
    result = descend(
        loss, named, optimiser=optimiser, schedule=Schedule(optimiser, rate), **settings
    )
    return result, rates


def test_the_schedule_is_notified_of_every_epoch():
    """The first one at the start, and the steps of an epoch all alike."""
    v, epochs = leaf(0.0), []

    def loss(rows):
        epochs.append(v.item())
        return v.sum()

    _, rates = go(loss, [("v", v)])
    assert rates == [0, 1, 2, 3]
    assert epochs == [0, -1, -2, -2.5, -3, -3.25]
    assert v.item() == -3.5


def test_batches_are_asked_for_once_an_epoch():
    v, calls, batches = leaf(0.0), [], []

    def give():
        calls.append(len(batches))
        return iter([torch.tensor([3]), torch.tensor([0, 0, 1])])

    def loss(rows):
        batches.append(rows.tolist())
        return v.sum() + rows.double().mean()

    stop = []
    result, rates = go(
        loss,
        [("v", v)],
        batches=give,
        max_iter=9,
        on_epoch=lambda *caught: stop.append(caught) or len(stop) == 2,
    )
    assert calls == [0, 2]
    assert batches == [[3], [0, 0, 1]] * 2
    # the mean over rows of the values before each step
    assert result == pytest.approx([(3 + 3 * (1 / 3 - 1)) / 4, (1 + 3 * (-13 / 6)) / 4])
    assert stop == list(enumerate(result, 1))
    assert rates == [0, 1, 2]


def test_no_epochs_are_none():
    v = leaf(1.0)
    assert go(lambda rows: v.sum(), [("v", v)], max_iter=0)[0] == []
    assert v.item() == 1


@pytest.mark.parametrize(
    ("max_norm", "expected"), [(math.inf, (-3.0, -4.0)), (2.5, (-1.5, -2.0))]
)
def test_long_gradients_are_cut_together(max_norm, expected):
    """Over all parameters, and keeping their direction."""
    a, b = leaf(0.0), leaf(0.0)
    one = {"batches": lambda: [torch.arange(1)], "max_iter": 1}
    go(
        lambda _: 3 * a.sum() + 4 * b.sum(),
        [("a", a), ("b", b)],
        max_norm=max_norm,
        **one,
    )
    assert (a.item(), b.item()) == pytest.approx(expected)


def test_what_is_not_finite_is_named_before_it_is_cut():
    v = leaf(0.0)
    with pytest.raises(NotFinite, match="not finite: v$"):
        go(lambda rows: v.sqrt().sum(), [("v", v)], max_norm=1.0)
    assert v.item() == 0


# Adam on one vector: equal to torch's, and what it refuses


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
    result = trained(ours, mine, seed, falling[0])
    expected = trained(theirs, other, seed, falling[1])
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)
    plain = FlatAdam(network(seed).parameters(), lr=RATE)
    assert (trained(network(seed), plain, seed) - expected).abs().max() > 1e-3


def test_fixed_parameters_stay_and_types_may_differ(torch_seeded):
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
