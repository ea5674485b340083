"""SQUAREM: extrapolation of EM.

Varadhan and Roland (2008), Simple and globally convergent methods for accelerating the
convergence of any EM algorithm.
"""

from collections.abc import Callable
from typing import Any


def extrapolate(
    first: tuple, second: tuple, third: tuple, is_valid: Callable[..., bool]
) -> tuple[Any, ...]:
    """Extrapolate from three points of EM by SQUAREM's third scheme (eqs. 6-9).

    The points are tuples of arrays, or tensors; `is_valid` says whether a point is in
    the parameter space.  The step is halved until it is.  Returns a tuple, or `third`.
    """
    steps = [(b - a, c - b) for a, b, c in zip(first, second, third, strict=True)]
    before = sum(float((r**2).sum()) for r, _ in steps)
    bend = sum(float(((v - r) ** 2).sum()) for r, v in steps)
    length = (before / bend) ** 0.5 if bend else 1.0
    # a length of 1 is a step of EM without extrapolation
    while length > 1.01:
        point = tuple(
            a + 2 * length * r + length**2 * (v - r)
            for a, (r, v) in zip(first, steps, strict=True)
        )
        if is_valid(*point):
            return point
        length = (length + 1) / 2
    return third
