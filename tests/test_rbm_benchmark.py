"""What the comparison on Boltzmann machines stands on: exact rows, a true maximum."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import vnce_rbm
from _rbm_rivals import (
    every_row,
    log_likelihood,
    maximum_likelihood,
    normal,
    simulate,
    start_at_marginals,
    stream,
)
from scipy.stats import chi2

from skvnce.training.lbfgs import flat

D, K, N = 5, 3, 4000


def probabilities(model):
    """Sum phi over all z, and divide; (2**features,)."""
    with torch.no_grad():
        x = every_row(model)
        pairs = [model.log_density(x, z.expand(len(x), -1)) for z in model.states]
        return torch.stack(pairs).logsumexp(0).softmax(0).numpy()


def p_value(prob, x):
    """Compare counts of rows with probabilities by Pearson's test."""
    number = (x.numpy() @ 2 ** np.arange(D)).astype(int)
    count = np.bincount(number, minlength=2**D)
    few = len(x) * prob < 5  # their cells are joined
    expected = np.append(len(x) * prob[~few], len(x) * prob[few].sum())
    found = np.append(count[~few], count[few].sum())
    kept = expected > 0
    statistic = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    return chi2.sf(statistic, kept.sum() - 1)


@pytest.fixture
def drawn(seed):
    return simulate(seed, N, D, K)


def test_rows_are_draws_of_the_machine(drawn):
    truth, x = drawn
    assert p_value(probabilities(truth), x) > 1e-3


def test_rows_are_not_draws_of_another_machine(drawn, seed):
    truth, x = drawn
    with torch.no_grad():
        truth.weight += normal((D, K), stream(seed, "other"), 0.5)
    assert p_value(probabilities(truth), x) < 1e-3


def slope(model, loss):
    """Return the largest entry of the gradient."""
    parameters = list(model.parameters())
    return float(flat(torch.autograd.grad(loss, parameters)).abs().max())


@pytest.mark.parametrize("penalised", [False, True])
def test_gradient_vanishes(drawn, penalised):
    _, x = drawn
    if penalised:
        model, _ = vnce_rbm.penalised_likelihood(x, K, 0)
    else:
        model = maximum_likelihood(x, K)
    square = sum(p.square().sum() for p in model.parameters())
    weight = vnce_rbm.RIDGE / (2 * len(x)) if penalised else 0.0
    assert slope(model, weight * square - log_likelihood(model, x)) < 2e-5
    start = start_at_marginals(x, K, stream(0, "fit"), 0.1)
    assert slope(start, -log_likelihood(start, x)) > 1e-3


def test_machine_without_closed_forms_is_the_same_one(drawn):
    _, x = drawn
    ways = vnce_rbm.by_em([3]).values()
    (model, found), (by_em, also) = (fit(x[:200], K, 0) for fit in ways)
    assert type(model) is type(by_em)
    assert also["objective"] < found["objective"]


def test_table_has_differences_on_the_same_machine():
    record = partial(vnce_rbm.baseline, n=10, train=0.0)
    records = [
        record(name, seed=seed, test=test)
        for seed, tests in enumerate([(-1.0, -1.5), (-2.0, -1.0)])
        for name, test in zip(("first", "second"), tests, strict=True)
    ]
    frame = [{**one, "seconds": 1.0} for one in records]
    last = vnce_rbm.summarise(frame, "first").splitlines()[-1]
    assert pd.Series(last.split(" | "))[[2, 3, 4]].tolist() == [
        "-1.2500",
        "+0.2500 (-0.5000 to +1.0000)",
        "1 of 2",
    ]
