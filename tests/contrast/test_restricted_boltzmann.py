"""Restricted Boltzmann machines against sums over all states, written out."""

from itertools import product

import numpy as np
import pytest
import torch
from energies import RestrictedBoltzmann

from skvnce._core.models import log_joint_of_states

D, K, N = 5, 3, 7


def machine(seed, d=D, k=K, scale=1.5):
    rng = np.random.default_rng(seed)
    model = RestrictedBoltzmann(d, k).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.tensor(rng.normal(0, scale, parameter.shape)))
    return model


def numpy_parameters(model):
    return [
        parameter.detach().numpy()
        for parameter in (model.weight, model.visible_bias, model.hidden_bias)
    ]


def binary(units):
    return np.array(list(product([0.0, 1.0], repeat=units)))


def brute_force(model, row):
    """Sum phi over all z and all values of the NaN cells of a row, one by one."""
    W, b, c = numpy_parameters(model)
    hidden = np.isnan(row)
    total = 0.0
    for values in binary(hidden.sum()):
        x = row.copy()
        x[hidden] = values
        total += sum(np.exp(x @ W @ z + b @ x + c @ z) for z in binary(len(c)))
    return np.log(total)


@pytest.fixture
def model(seed):
    return machine(seed)


@pytest.fixture
def rows(seed):
    """x without missing values, and a mask with a complete and an empty row."""
    rng = np.random.default_rng([seed, 1])
    observed = rng.uniform(size=(N, D)) < 0.6
    observed[0], observed[1] = True, False
    x = rng.integers(0, 2, (N, D)).astype(float)
    return torch.tensor(x), torch.tensor(observed)


def test_states(model):
    states = model.states
    assert states.dtype == torch.float64
    assert {*map(tuple, states.tolist())} == {*product([0.0, 1.0], repeat=K)}
    assert len(states) == 2**K
    assert model.float().states.dtype == torch.float32
    assert set(model.state_dict()) == {"weight", "visible_bias", "hidden_bias"}


def test_the_marginal_of_complete_rows(model, rows):
    x, _ = rows
    expected = [brute_force(model, row) for row in x.numpy()]
    found = model.log_marginal(x, torch.ones_like(x).bool()).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    found = torch.logsumexp(log_joint_of_states(model, x), 0).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_marginal_of_incomplete_rows(model, rows):
    x, observed = rows
    incomplete = x.where(observed, torch.nan).numpy()
    found = model.log_marginal(x, observed).detach()
    expected = [brute_force(model, row) for row in incomplete]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    as_zeros = [brute_force(model, row) for row in np.nan_to_num(incomplete)]
    assert np.abs(found.numpy() - as_zeros).max() > 0.1  # the mask matters


@pytest.mark.parametrize(("d", "k"), [(5, 3), (3, 5), (4, 4), (1, 1)])
def test_the_normaliser(seed, d, k):
    model = machine(seed, d, k)
    W, b, c = numpy_parameters(model)
    x, z = np.split(binary(d + k), [d], 1)
    total = np.exp((x @ W * z).sum(1) + x @ b + z @ c).sum()
    assert float(model.log_normaliser().detach()) == pytest.approx(
        np.log(total), rel=1e-12
    )


def test_too_many_latents_to_enumerate():
    model = RestrictedBoltzmann(3, 13)
    with pytest.raises(ValueError, match="n_components=13"):
        _ = model.states
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="n_components=13"):
        model.log_marginal(x, x == 0)
    assert model.log_marginal(x, x == 1).shape == (2,)  # needs no enumeration
    assert torch.isfinite(model.log_normaliser())  # enumerates the visible side
    assert len(RestrictedBoltzmann(3, 12).states) == 4096
    with pytest.raises(ValueError, match="n_components=13"):
        RestrictedBoltzmann(13, 13).log_normaliser()
