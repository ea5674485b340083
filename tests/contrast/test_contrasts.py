"""Units, statistics of columns, and the noise that is chosen from them."""

import numpy as np
import pytest
import torch
from torch import distributions, nn

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Units
from skvnce.contrast.noise import (
    BINARY,
    POSITIVE,
    REAL,
    ColumnSummary,
    GaussianNoise,
    NotANoise,
    Rescaled,
    check_density,
    draw_contrast,
    fit_noise,
)

NODES = np.array([[0.0, -1.0, 0.5], [1.0, 2.0, np.nan], [np.nan, 0.5, 3.0]])
MEAN, SCALE = np.nanmean(NODES, 0), np.nanstd(NODES, 0)
UNITS = Units(MEAN, SCALE)
NORMAL = Normal(torch.tensor([0.1, -0.2, 0.3]).double(), 2 * torch.eye(3).double())
OBSERVED = torch.tensor(~np.isnan(NODES))


def summary():
    return ColumnSummary.of(NODES, MEAN, SCALE)


def chosen(kind, units=UNITS):
    counts = OBSERVED.sum(0).double()
    return fit_noise(kind, summary().marginals(counts), units, lambda: NORMAL)


def test_kinds_of_columns_and_what_replaces_zeros():
    found = summary()
    assert found.kind.tolist() == [BINARY, REAL, POSITIVE]
    assert found.floor.tolist() == [0.5, 0.25, 0.25]
    assert set(ColumnSummary.standard(3).kind.tolist()) == {REAL}


def test_units_go_back():
    data = UNITS.scaled(NODES)
    assert (data.observed == OBSERVED).all()
    np.testing.assert_allclose(
        np.where(OBSERVED, UNITS.restored(data.x), np.nan), NODES, atol=1e-15
    )
    np.testing.assert_array_equal(Units.none(3).scaled(NODES).to_array(), NODES)
    mean, covariance = UNITS.moments(NORMAL)
    np.testing.assert_allclose(mean, MEAN + SCALE * NORMAL.mean.numpy())
    np.testing.assert_allclose(covariance, 2 * np.diag(SCALE**2))


@pytest.mark.parametrize("kind", ["marginal", "gaussian"])
def test_fitted_noise_has_one_density_in_all_units(kind):
    """The density of scaled rows is that of the user's rows times the scales."""
    scaled, raw = chosen(kind).distribution, chosen(kind, Units.none(3)).distribution
    if kind == "gaussian":  # given in the scale of the model
        raw = Rescaled(scaled, torch.tensor(-MEAN / SCALE), torch.tensor(1 / SCALE))
    data, nodes = UNITS.scaled(NODES), Incomplete.from_array(NODES)
    found = scaled.log_prob(*data) - OBSERVED.double() @ torch.tensor(SCALE).log()
    torch.testing.assert_close(found, raw.log_prob(*nodes))


def test_parameters_of_noise_are_in_the_units_of_the_user():
    mean, covariance = UNITS.moments(NORMAL)
    found = chosen("gaussian").parameters
    np.testing.assert_array_equal(found["mean"], mean)
    np.testing.assert_array_equal(found["covariance"], covariance)
    found = chosen("marginal").parameters
    assert found["location"][1] == MEAN[1]
    assert chosen("conditional") == (None, {})


def test_a_module_makes_the_noise():
    class Flow(nn.Module):
        def forward(self):
            return distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))

    data = UNITS.scaled(NODES)
    found = chosen(Flow()).distribution.log_prob(*data)
    torch.testing.assert_close(found, chosen(Flow()()).distribution.log_prob(*data))


@pytest.mark.parametrize("noise", [3.0, "gaussian", nn.Linear(2, 2)])
def test_noise_without_a_density_is_refused(noise):
    with pytest.raises(NotANoise, match=f"{type(noise).__name__} has no method"):
        check_density(noise)


def test_contrasts_have_the_masks_of_the_data():
    torch.manual_seed(0)
    data, noise = UNITS.scaled(NODES), GaussianNoise(NORMAL)
    for one in (noise, None):
        found = draw_contrast(one, data, ColumnSummary.standard(3), 4)
        assert found.noise.x.shape == (4, 3, 3)
        assert (found.noise.observed == OBSERVED).all()
        assert found.data.x is data.x
    assert (found.noise.log_noise == 0).all()  # around rows, without a density
    found = draw_contrast(noise, data, ColumnSummary.standard(3), 4)
    expected = noise.log_prob(found.noise.x, data.observed)
    torch.testing.assert_close(found.noise.log_noise, expected)
