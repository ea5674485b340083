"""A normalised mixture of two widths, to compare with the unnormalised one."""

from math import log, pi

from _energies import UnnormalisedScaleMixture


class NormalScaleMixture(UnnormalisedScaleMixture):
    """Two normals in equal parts, normalised (Rhodes 2018, eq. 4.48)."""

    def __init__(self, width, known_width=1.0):
        super().__init__(width, known_width)
        del self.log_scale

    def log_factor(self, log_width):
        """Compute the logarithm of the constant of a normal, halved."""
        return -log_width - log(2 * pi) / 2 - log(2)
