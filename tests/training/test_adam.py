"""The loop over epochs: batches, steps of known length, refusals."""

import math

import pytest
import torch

from skvnce.training.adam import NotFinite, train

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


def test_every_epoch_takes_every_row_once(seed):
    torch.manual_seed(seed)
    v, batches = leaf(0.0), []

    def loss(rows):
        batches.append(rows.tolist())
        return v.square().sum()

    run(loss, [("v", v)], max_iter=3)
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    epochs = [sum(batches[i : i + 3], []) for i in range(0, 9, 3)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_losses_are_means_over_rows(seed):
    torch.manual_seed(seed)
    v, y, seen = leaf(0.0), torch.arange(float(N)).double(), []

    def loss(rows):
        return y[rows].mean() + 0 * v.sum()

    def stop(epoch, value):
        seen.append((epoch, value))
        return epoch == 2

    found = run(loss, [("v", v)], on_epoch=stop)
    assert found == pytest.approx([4.5] * 2)  # batches of unequal size
    assert seen == list(enumerate(found, 1))


def test_the_learning_rate_falls_along_half_a_cosine():
    """Along a line every step of Adam is as long as the learning rate."""
    v, n_epochs = leaf(0.0, 0.0), 7
    slope = torch.tensor([3.0, -1e3]).double()
    run(lambda rows: slope @ v, [("v", v)], batch_size=N, max_iter=n_epochs)
    whole = sum((1 + math.cos(math.pi * t / n_epochs)) / 2 for t in range(n_epochs))
    expected = torch.tensor([-0.1, 0.1]).double() * whole
    torch.testing.assert_close(v.detach(), expected, rtol=1e-6, atol=0)


def test_it_reaches_the_minimum(seed):
    torch.manual_seed(seed)
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
