"""Errors about the model, the posterior and the noise that a caller passed."""


class UnsuitableModel(ValueError):
    """A module returns no log-densities, or does not describe its latents."""


class NotAModel(UnsuitableModel, TypeError):
    """An object is no module with a suitable `log_density`."""


class UnknownLatents(UnsuitableModel):
    """The number of latents of a module is not known."""


class UnsuitablePosterior(ValueError):
    """A distribution of latents has a wrong shape."""


class NotAPosterior(UnsuitablePosterior, TypeError):
    """An object is no module that returns a distribution."""


class DrawsNotSmooth(ValueError):
    """Draws have no derivative, which L-BFGS needs."""


class SingleDraw(ValueError):
    """A gradient needs at least two draws of each row."""
