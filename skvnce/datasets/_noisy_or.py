"""Binary tables drawn from noisy-OR models with known causes."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skvnce._types import Seed

_STRENGTH = 0.8  # probability with which a cause turns its cells on
_PRIOR = 1 / 8


class BinaryPatterns(NamedTuple):
    """Pictures of 8 x 8 cells with superposed patterns.

    Attributes
    ----------
    data : ndarray of shape (n_samples, 64)
        Zeros and ones.
    causes : ndarray of shape (n_samples, 8)
        The patterns of each picture.
    components : ndarray of shape (8, 64)
        Probabilities with which patterns turn cells on: 0.8 or 0.
    leak : ndarray of shape (64,)
        Probabilities with which cells are on without a pattern: 0.8 for one, else 0.
    """

    data: np.ndarray
    causes: np.ndarray
    components: np.ndarray
    leak: np.ndarray


def make_binary_patterns(
    n_samples: int = 1000, random_state: Seed = None
) -> BinaryPatterns:
    """Draw pictures of eight superposed patterns, each with probability 1/8.

    They are similar to the data SYN-PATTERN of the paper, of which 89 % are zeros.  Its
    patterns are published only as a picture, so these are our own.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of pictures.
    random_state : int, RandomState instance or None, default=None
        Seed of the pictures.

    Returns
    -------
    BinaryPatterns

    References
    ----------
    Yan, Ailem and Sha (2019), Amortized inference of variational bounds for
    learning noisy-OR, section 4.1.

    Examples
    --------
    >>> from skvnce.datasets import make_binary_patterns
    >>> pictures = make_binary_patterns(1000, random_state=0)
    >>> pictures.data.shape, pictures.causes.shape
    ((1000, 64), (1000, 8))
    """
    rng = check_random_state(random_state)
    drawing = files("skvnce.datasets") / "data" / "binary_patterns.txt"
    rows = [line.split() for line in drawing.read_text("utf-8").splitlines()]
    on = np.array([[list(part) for part in row] for row in rows]) == "#"
    *components, leak = _STRENGTH * on.transpose(1, 0, 2).reshape(9, 64)
    causes = (rng.random_sample((n_samples, 8)) < _PRIOR).astype(float)
    chance = 1 - (1 - leak) * np.exp(causes @ np.log1p(-np.array(components)))
    data = (rng.random_sample(chance.shape) < chance).astype(float)
    return BinaryPatterns(data, causes, np.array(components), leak)
