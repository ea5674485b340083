"""The start of variational Gibbs inference for numbers and levels."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import GATE, z_mean
from torch.distributions import Normal as Univariate
from torch.testing import assert_close
from toy import of_all_columns
from vaes import NORMAL

from skvnce._core.distributions.cells import Nominal, Ordinal, ScoredCells
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.vgi import conditionals
from skvnce.vgi.conditionals import LatentNormal, NormalHead, count_levels
from skvnce.vgi.densities import AutoencoderDensity
from skvnce.vgi.fit import range_of_levels
from skvnce.vgi.training import observed_hypercube

D, OUTPUTS = 4, 6  # a number, a nominal column of 3 levels, an ordinal one, counts
LOADINGS = torch.tensor([0.9, -0.8, 0.8, -0.7, 0.0, 0.8]).double()


def families():
    """Describe the columns: outputs 4 and 5 are further ones of column 1."""
    ordinal = Ordinal.of([2], [torch.tensor([0.2])])
    values = torch.tensor([[-0.75, 0.75]]).double()
    edges = torch.tensor([[-1e3, 0.0, 1e3]]).double()
    nominal = Nominal.of([1], [3], D)
    numbers = {"rounded": torch.tensor([3]), "values": values, "edges": edges}
    return NORMAL._replace(**numbers, levels=(ordinal, nominal))


def normal():
    covariance = torch.outer(LOADINGS, LOADINGS)
    covariance.diagonal().fill_(1.0)
    return Normal(torch.zeros(OUTPUTS).double(), covariance)


def rows(n, seed):
    """Draw rows of cells, and the latent variables, from the definition."""
    with seeded(seed):
        z = torch.randn(n, 1).double()
        v = LOADINGS * z + (1 - LOADINGS**2).sqrt() * torch.randn(n, OUTPUTS).double()
    nominal = v[:, [1, 4, 5]].argmax(1)
    ordinal, count = (v[:, 2] > 0.2), torch.where(v[:, 3] > 0, 0.75, -0.75)
    return torch.stack([v[:, 0], nominal, ordinal, count], 1), v


@pytest.fixture(scope="module")
def q():
    with seeded(0):
        result = conditionals.mixed_conditionals(normal(), families(), NormalHead())
    return result.double().requires_grad_(False)


def test_levels_are_counted():
    assert count_levels(families(), D).tolist() == [0, 3, 2, 0]


def test_conditionals_start_near_the_latent_normal(q, seed):
    """By their mean log-probabilities, beside shares and the exact ones by counts."""
    x, _ = rows(20_000, seed)
    result = of_all_columns(q, x)
    for column, size in ((1, 3), (2, 2)):
        codes = x[:, column].long()
        own = result.log_prob(x)[:, column]
        shares = torch.bincount(codes) / len(x)
        gain = own - shares.log()[codes]
        assert z_mean(gain, 0.0) > 2 * GATE
        for k in range(size):  # calibrated on average
            p = result.log_probabilities[:, column, k].exp()
            assert abs(float((p - (codes == k).double()).mean())) < 0.02
    for column in (0, 3):
        latent = rows(20_000, seed)[1][:, column]
        error = latent - result.number.loc[:, column]
        # the conditionals start from 2**14 rows that are drawn
        both = (1 / 20_000 + 1 / 2**14) ** 0.5
        assert abs(error.mean()) < GATE * both * error.std()
        expected = float(result.number.scale[0, column])
        assert error.std() == pytest.approx(expected, rel=0.03)
        assert error.std() < 0.9 * latent.std()


def test_of_two_columns_they_are_exact():
    """A number given a level of two is linear, and its logit almost."""
    r = 0.7
    covariance = torch.tensor([[1.0, r], [r, 1.0]]).double()
    part = NORMAL._replace(levels=(Ordinal.of([1], [torch.tensor([0.0])]),))
    pair = Normal(torch.zeros(2).double(), covariance)
    with seeded(0):
        values = conditionals.mixed_conditionals(pair, part, NormalHead()).double()
    values.requires_grad_(False)
    both = torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double()
    number = values.at(both, torch.zeros(2, dtype=torch.long)).number
    mean = r * (2 / torch.pi) ** 0.5
    np.testing.assert_allclose(number.loc, [-mean, mean], atol=0.03)
    np.testing.assert_allclose(number.scale, (1 - mean**2) ** 0.5, rtol=0.02)
    x = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.5, 0.0]]).double()
    level = values.at(x, torch.ones(3, dtype=torch.long)).log_probabilities[:, 1].exp()
    exact = Univariate(0.0, 1.0).cdf(r * x[:, 0] / (1 - r**2) ** 0.5)
    np.testing.assert_allclose(level, exact, atol=0.06)
    assert abs(level - exact.flip(0)).max() > 0.5  # control


def test_rows_are_completed_by_the_latent_normal_model(seed):
    """Levels of rows that miss all but the number, by those drawn with it."""
    x, _ = rows(4000, seed)
    observed = torch.zeros_like(x, dtype=torch.bool)
    observed[:, 0] = True
    data = Incomplete(x.where(observed, 0.0), observed)
    with seeded(seed + 1):
        result = LatentNormal.of(normal(), families()).completed(data, 2)
    assert result.shape == (2, *x.shape)
    assert_close(result[:, :, 0], x[:, 0].expand(2, -1), atol=1e-6, rtol=0)
    high = x[:, 0] > 0.5
    for column in (1, 2, 3):
        values = x[:, column].unique()
        for some in (high, ~high):
            shares = [
                (one[:, None] == values).double().mean(0)
                for one in (x[some, column], result[0, some, column])
            ]
            assert abs(shares[0] - shares[1]).max() < 0.06
        apart = x[high, column].mean() - x[~high, column].mean()
        drawn = result[0, high, column].mean() - result[0, ~high, column].mean()
        assert abs(apart) > 0.2 and abs(drawn - apart) < 0.15  # control


def test_chains_may_reach_all_levels_and_intervals():
    x, _ = rows(50, 0)
    x[:, 1], x[:, 2] = 0.0, 0.0
    data = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    cube = range_of_levels(families(), observed_hypercube(data))
    assert cube.low[1:].tolist() == [0, 0, -1e3]
    assert cube.high[1:].tolist() == [2, 1, 1e3]
    assert cube.high[0] == x[:, 0].max()


@pytest.mark.parametrize("kind", conditionals.NETWORKS)
def test_networks_start_at_zero(kind, q):
    x, _ = rows(30, 3)
    with seeded(0):
        make = partial(
            conditionals.mixed_conditionals, normal(), families(), NormalHead()
        )
        result = of_all_columns(make(kind).double().requires_grad_(False), x)
    assert result.log_probabilities.shape == (30, D, 3)
    change = result.log_prob(x) - of_all_columns(q, x).log_prob(x)
    assert abs(change).mean() < 0.05  # but for the rows that both are made from


def test_values_are_intervals_and_other_numbers_are_not():
    """Numbers before rounding have densities, whose integral is that of the value."""
    loadings = LOADINGS[:, None]
    linear = FactorModel(torch.zeros(OUTPUTS).double(), loadings, 1 - LOADINGS**2)
    with seeded(0):
        model = AutoencoderDensity(linear, families()).double().eval()
    x = rows(5, 1)[0]
    whole, z = model._completed(x), torch.zeros(5, 1).double()
    assert whole.likelihood(z).observed.all()
    moved = x.clone()
    moved[:2, 3] += 0.3
    exact = model._completed(moved).likelihood(z).observed
    assert exact[:, :3].all() and exact[:, 3].tolist() == [False] * 2 + [True] * 3
    cells = model._completed(moved).likelihood(z)
    assert isinstance(cells, ScoredCells)
    grid = torch.linspace(1e-6, 8, 4001).double()
    table = x[:1].expand(len(grid), -1).clone()
    table[:, 3] = grid
    z = torch.full((len(grid), 1), 0.4).double()
    density = model._completed(table).likelihood(z).log_prob(table)[:, 3].exp()
    value = x[:1].clone()
    value[:, 3] = 0.75
    values = model._completed(value).likelihood(z[:1]).log_prob(value)[0, 3].exp()
    assert_close(torch.trapezoid(density, grid), values, atol=1e-4, rtol=0)
    assert model.log_prob(moved).isfinite().all()
