"""A user's own density: checks, and support of leading dimensions."""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Rowwise(nn.Module):
    """A density of rows with any leading dimensions, from one of tables (n, features).

    `module`: its ``log_prob(x)`` maps a table (n, features) to (n,).
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x); (*batch, features) -> (*batch,).

        Raises ValueError if `log_prob` of the module returns another shape.
        """
        rows = x.reshape(-1, x.shape[-1]).clone()  # the module may modify its input
        found = self.module.log_prob(rows)
        if not isinstance(found, Tensor) or found.shape != rows.shape[:1]:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found)
            raise ValueError(
                f"log_prob of {type(self.module).__name__} must map a table of shape "
                f"(n, {x.shape[-1]}) to log-densities of shape (n,); for "
                f"{len(rows)} rows it returned {what}."
            )
        return found.view(x.shape[:-1])


def own_density(module: nn.Module, n_features: int) -> Rowwise:
    """Check a user's density; return a copy.

    Raises TypeError if it has no `log_prob`.  Raises ValueError if it has no parameter,
    or if `log_prob` returns another shape, is not finite, has no gradient, does not
    support double precision, or mixes rows.
    """
    name = type(module).__name__
    if not callable(getattr(module, "log_prob", None)):
        raise TypeError(
            f"{name} has no method log_prob(x). Give it one that maps a table (n, "
            "columns) to log-densities (n,)."
        )
    if not any(leaf.requires_grad for leaf in module.parameters()):
        raise ValueError(f"{name} has no parameter to fit.")
    if any(isinstance(part, _BatchNorm) for part in module.modules()):
        raise ValueError(f"The batch normalisation of {name} mixes rows. Remove it.")
    density = Rowwise(deepcopy(module))
    rows = torch.linspace(-1.0, 1.0, 3 * n_features).view(3, n_features)
    # single precision last, because the density is returned in it
    for dtype in (torch.float64, torch.float32):
        _probe(density.to(dtype).eval(), rows.to(dtype), name)
    return density.train()


def _probe(density: Rowwise, rows: Tensor, name: str) -> None:
    """Evaluate a density at some rows, with and without gradients."""
    try:
        with torch.enable_grad():
            found = density.log_prob(rows)
        with torch.no_grad():
            alone = density.log_prob(rows[:1])
    except RuntimeError as error:
        raise ValueError(
            f"log_prob of {name} fails at rows of {rows.dtype}: {error}. It is called "
            "in single and in double precision, with and without gradients: register "
            "constants as buffers, and make new tensors of the type of x."
        ) from error
    if not found.requires_grad:
        raise ValueError(
            f"log_prob of {name} has no gradient in its parameters: it cannot be "
            "fitted. Do not detach tensors or turn gradients off."
        )
    if not found.isfinite().all():
        raise ValueError(
            f"log_prob of {name} is not finite at rows between -1 and 1. The columns "
            "are standardised, so it must be a density on all real numbers."
        )
    # not equal bit by bit, because products of other shapes round differently
    if not torch.allclose(found[:1], alone, rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"log_prob of {name} depends on the other rows of a table. It must be a "
            "function of each row alone."
        )
