"""An autoencoder's model of completed rows, whose missing cells are not rounded."""

from typing import NamedTuple

from torch import Tensor
from torch.distributions import Independent

from skvnce.distributions.cells import ScoredCells
from skvnce.models.vae import VariationalAutoencoderModel


class Completed(NamedTuple):
    """The model of completed rows, whose missing cells are not rounded."""

    model: VariationalAutoencoderModel
    observed: Tensor  # bool that broadcasts to (*batch, features)

    def prior(self) -> Independent:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> ScoredCells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return ScoredCells(self.model.likelihood(z), self.observed)
