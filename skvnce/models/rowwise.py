"""A user's own density: checked, and given free leading dimensions."""

import torch
from torch import Tensor, nn


class Rowwise(nn.Module):
    """A density of tables (n, features), of rows with any leading dimensions.

    Parameters
    ----------
    module : nn.Module
        Its ``log_prob(x)`` maps a table (n, features) to (n,).
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log p(x); (*batch, features) -> (*batch,).

        Raises
        ------
        ValueError
            For a module whose `log_prob` gives another shape.
        """
        rows = x.reshape(-1, x.shape[-1])
        found = self.module.log_prob(rows)
        if not isinstance(found, Tensor) or found.shape != rows.shape[:1]:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found)
            raise ValueError(
                f"log_prob of {type(self.module).__name__} must map a table of shape "
                f"(n, {x.shape[-1]}) to log-densities of shape (n,); of "
                f"{len(rows)} rows it gave {what}."
            )
        return found.view(x.shape[:-1])


def checked_density(module: object, n_features: int, name: str) -> nn.Module:
    """Check that a module is a density of rows of some width, and wrap it.

    Raises
    ------
    TypeError
        For what is no module or has no `log_prob`.
    ValueError
        For a `log_prob` of another shape, or that is not finite anywhere.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"{name} must give a torch.nn.Module, got {type(module).__name__}."
        )
    if not callable(getattr(module, "log_prob", None)):
        raise TypeError(
            f"{name} gives {type(module).__name__}, which has no method log_prob(x). "
            "Give it one that maps a table (n, features) to log-densities (n,)."
        )
    if not any(leaf.requires_grad for leaf in module.parameters()):
        raise ValueError(
            f"{name} gives {type(module).__name__}, which has no parameter to fit."
        )
    density = Rowwise(module.float())
    with torch.no_grad():
        density.log_prob(torch.zeros(3, n_features))
    return density
