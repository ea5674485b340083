"""A model with latents whose columns are known to lie within bounds."""

from torch import Tensor
from torch.distributions import Distribution

from skvnce.distributions.bounded_cells import BoundedCells
from skvnce.models.vae import VariationalAutoencoderModel


class BoundedModel:
    """An autoencoder's model of rows whose missing cells lie within bounds.

    The prior is unchanged.  That the missing cells of a row lie within bounds is
    treated as an observation, which contributes to `observed_log_prob`.  So each
    sampler of latents draws from ``p(z | x_obs, x_mis within bounds)``.
    """

    def __init__(
        self,
        model: VariationalAutoencoderModel,
        # int (n_bounded,): indices of columns with bounds, none of them binary or
        # rounded
        places: Tensor,
        low: Tensor,  # (n_bounded,)
        high: Tensor,  # (n_bounded,)
    ) -> None:
        self.model, self.places, self.low, self.high = model, places, low, high
        self.families = model.families

    def prior(self) -> Distribution:
        """Return p(z), of event shape (latents,)."""
        return self.model.prior()

    def likelihood(self, z: Tensor) -> BoundedCells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        cells = self.model.likelihood(z)
        return BoundedCells(cells, self.places, self.low, self.high)
