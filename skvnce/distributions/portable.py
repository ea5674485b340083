"""Random numbers that are drawn on the CPU and moved: the same on each device."""

import torch
from torch import Tensor
from torch.distributions import Normal


def uniform_numbers(shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Draw uniform numbers of the type, and on the device, of a tensor."""
    return torch.rand(shape, dtype=like.dtype).to(like.device)


def normal_numbers(shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Draw standard normal numbers of the type, and on the device, of a tensor."""
    return torch.randn(shape, dtype=like.dtype).to(like.device)


class PortableNormal(Normal):
    """Normal distributions whose draws are the same on each device."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw (*sample, *batch)."""
        shape = self._extended_shape(sample_shape)
        return self.loc + normal_numbers(shape, self.loc) * self.scale

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008
        """Draw without gradients (*sample, *batch)."""
        with torch.no_grad():
            return self.rsample(sample_shape)
