"""A user's own autoencoder: checks of its two modules."""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from skvnce.distributions.quantiles import at_quantiles, draw


class OwnDecoder(nn.Module):
    """A user's p(z) and p(x | z).

    `module`: its ``prior()`` returns p(z), of event shape (latents,), and its
    ``likelihood(z)`` maps latents (*batch, latents) to p(x_j | z) of all columns, of
    batch shape (*batch, features).
    """

    def __init__(self, module: nn.Module, n_features: int) -> None:
        super().__init__()
        self.module, self.n_features = module, n_features

    @property
    def sizes(self) -> tuple[int, int, list[int]]:
        """Numbers of columns and latents, and of outputs of the linear layers."""
        layers = [m for m in self.module.modules() if isinstance(m, nn.Linear)]
        widths = [layer.out_features for layer in layers]
        return self.n_features, self.prior().event_shape[0], widths or [1]

    def prior(self) -> Distribution:
        """Return p(z)."""
        return self.module.prior()

    def likelihood(self, z: Tensor) -> Distribution:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return self.module.likelihood(z)


def own_autoencoder(
    model: nn.Module, posterior: nn.Module, n_features: int
) -> tuple[OwnDecoder, nn.Module]:
    """Check a user's model and encoder; return copies in double precision on the CPU.

    Raises TypeError if they are no modules, or if the model has no `prior` or no
    `likelihood`.  Raises ValueError if a distribution has another shape, or if a
    log-density is not finite.
    """
    for name, module in (("model", model), ("posterior", posterior)):
        if not isinstance(module, nn.Module):
            raise TypeError(f"{name} must be a torch.nn.Module, got {module!r}.")
    for name in ("prior", "likelihood"):
        if not callable(getattr(model, name, None)):
            raise TypeError(f"{type(model).__name__} has no method {name}.")
    parts = (deepcopy(part).cpu().double().eval() for part in (model, posterior))
    decoder, encoder = (part.requires_grad_(False) for part in parts)
    found = OwnDecoder(decoder, n_features)
    _check_shapes(found, encoder, n_features)
    return found, encoder


def moved_to(
    decoder: OwnDecoder, encoder: nn.Module, device: torch.device
) -> tuple[OwnDecoder, nn.Module]:
    """Copy checked modules to a device, and check them there.

    Raises ValueError if they have tensors that torch cannot move.
    """
    found = tuple(deepcopy(part).to(device) for part in (decoder, encoder))
    try:
        prior = found[0].prior()
        width = prior.event_shape[0]
        # medians, so that the check uses no random numbers
        half = torch.full((2, 3, width + 1), 0.5, dtype=torch.float64).to(device)
        z = draw(prior, half)
        prior.log_prob(z)
        cells = found[0].likelihood(z)
        x = at_quantiles(cells, half[..., :1].expand(2, 3, found[0].n_features))
        cells.log_prob(x)
        q = found[1](x, torch.ones_like(x).bool())
        q.log_prob(draw(q, half))
    except RuntimeError as error:
        raise ValueError(
            f"model or posterior cannot run on the device {device}: {error} Register "
            "all tensors as parameters or buffers, and make others on the device of "
            "the input; or pass device='cpu'."
        ) from error
    return found


def _evaluated(encoder: nn.Module, x: Tensor, observed: Tensor) -> Distribution:
    """Call an encoder, and name it in its errors."""
    try:
        return encoder(x, observed)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"posterior(x, observed) fails for x and observed of shape "
            f"{tuple(x.shape)}, rows with leading dimensions: {error}"
        ) from error


def _check_shapes(decoder: OwnDecoder, encoder: nn.Module, n_features: int) -> None:
    """Evaluate the modules at a few rows with leading dimensions."""
    prior = decoder.prior()
    if len(prior.event_shape) != 1 or prior.batch_shape:
        raise ValueError(
            "prior() must return a distribution of event shape (latents,) without "
            f"batch shape, got {tuple(prior.event_shape)}, {tuple(prior.batch_shape)}."
        )
    z = prior.sample((2, 3)).double()
    cells = decoder.likelihood(z)
    if tuple(cells.batch_shape) != (2, 3, n_features) or cells.event_shape:
        raise ValueError(
            f"likelihood(z) must return a distribution of batch shape (*batch, "
            f"{n_features}), one a column of X; for z of shape {tuple(z.shape)} it has "
            f"batch shape {tuple(cells.batch_shape)}, event shape "
            f"{tuple(cells.event_shape)}."
        )
    x = cells.sample()
    for observed in (torch.ones_like(x).bool(), torch.zeros_like(x).bool()):
        q = _evaluated(encoder, x, observed)
        shapes = tuple(q.batch_shape), tuple(q.event_shape)
        if shapes != ((2, 3), tuple(prior.event_shape)):
            raise ValueError(
                f"posterior(x, observed) must return a distribution of batch shape "
                f"(2, 3) and event shape {tuple(prior.event_shape)} for x of shape "
                f"{tuple(x.shape)}, got {shapes[0]} and {shapes[1]}."
            )
        if not q.log_prob(z).isfinite().all():
            raise ValueError(
                "posterior(x, observed) has no finite log_prob at draws of the prior."
            )
