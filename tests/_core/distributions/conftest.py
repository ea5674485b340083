"""A normal distribution of five columns, and cells for the rows of `observed`."""

import pytest
import torch

from skvnce._core.distributions.normal import Normal

D = 5


@pytest.fixture
def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(D, D, generator=generator, dtype=torch.float64)
    mean = torch.randn(D, generator=generator, dtype=torch.float64)
    return Normal(mean, root @ root.T + 0.3 * torch.eye(D))


@pytest.fixture
def x(seed, observed):
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(observed.shape, generator=generator, dtype=torch.float64)
