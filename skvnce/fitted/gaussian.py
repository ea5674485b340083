"""The model of `GaussianImputer`: a distribution, and draws of its parameters."""

from typing import NamedTuple, Self

from skvnce.fitted.grouped import GroupedNormal
from skvnce.fitted.normal import CopulaModel, LatentNormal


class GaussianModel(NamedTuple):
    """A fitted distribution, and what its parameters are drawn from."""

    model: CopulaModel | LatentNormal | GroupedNormal
    draws: list | None = None  # of the parameters; None if none has been requested
    training: tuple | None = None  # rows from which they are drawn, and settings
    online: tuple | None = None  # moments from which `partial_fit` goes on
    stream: tuple | None = None  # rows that `partial_fit` keeps

    def parameters(self) -> list:
        """List the parameters that draws use in turn."""
        return self.draws or [self.model.parameters()]

    def drawing(self, *, is_joint: bool) -> list:
        """List the models that draws come from."""
        found = self.parameters()
        # a chain over categories needs a burn-in, which all draws share
        if is_joint and not isinstance(self.model, CopulaModel):
            return [self.model.with_normals(found)]
        return [self.model.with_normals([one]) for one in found]

    def with_one_draw(self) -> list[Self]:
        """Make a model of each draw of the parameters."""
        model = self.without_training()
        return [model._replace(draws=[one]) for one in self.parameters()]

    def without_training(self) -> Self:
        """Leave out the rows of the fit."""
        return self._replace(draws=[], training=None, online=None, stream=None)
