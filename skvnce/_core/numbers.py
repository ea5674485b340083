"""Checks of numbers; the grid of repeated values, and values that many cells have."""

import math
import numbers

import numpy as np

MOST_CODES = 10  # different values, up to which repeated values are codes
LEAST_CELLS = 2  # observed cells for each of these values, on average
# of different values in the cells of a column on a grid, at most
_MOST_VALUES = 0.7
_GAPS, _PARTS = 10, 10  # of the smallest gaps between values, whole parts are steps
_SAME_STEP = 1e-6  # relative
_NEARLY = 0.01  # of a step
# the same, from which on a step that errs may not be fitted to the values
_LIKELY = 0.1
_CELLS_ON_GRID, _VALUES_ON_GRID = 0.98, 0.5  # shares; a mass is no grid
_VALUES_OF_GRID = 2000  # that are compared with a grid
# of places between steps, which have rounding errors; powers of ten are finite
_DIGITS, _MOST_DIGITS = 10, 300
_MASS, _FEWEST, _TIMES = 0.05, 5, 3  # share and number of cells, and times the next


def are_codes(n_values: int, n_cells: int) -> bool:
    """Say whether so many values in so many cells are few enough to be codes."""
    return n_values <= min(MOST_CODES, n_cells // LEAST_CELLS)


def grid_of(cells: np.ndarray) -> tuple[float, float]:
    """Find step and origin of the grid that almost all of some cells (n,) lie on.

    The step is the largest of some gaps between values that repeat, and of simple
    parts of them, that suits; 0 if there is no grid.
    """
    values, count = np.unique(cells, return_counts=True)
    size = abs(values).max()  # half of it, as the spacing of the largest float is inf
    spacing = 8 * np.spacing(size / 2)
    gaps = np.diff(values[count > 1])
    gaps = np.unique(gaps[gaps > spacing])
    if len(values) >= _MOST_VALUES * len(cells) or not len(gaps):
        return 0.0, 0.0
    apart = np.append(True, np.diff(gaps) > _SAME_STEP * gaps[1:])
    steps = gaps[apart][:_GAPS] / np.arange(1, _PARTS + 1)[:, None]
    mode = values[count.argmax()]
    thinned = slice(None, None, max(1, len(values) // _VALUES_OF_GRID))
    values, count = values[thinned], count[thinned]
    steps, least = np.unique(steps)[::-1], _CELLS_ON_GRID * count.sum()
    from_origins = np.stack([values, values - mode])
    places = from_origins / steps[:, None, None]
    likely = (abs(places - np.round(places)) < _LIKELY) @ count >= least
    for i, k in np.argwhere(likely):
        exact, fits = _fitted_step(from_origins[k], steps[i], spacing)
        if count @ fits >= least:
            return exact, float((0.0, mode)[k])
    return 0.0, 0.0


def _fitted_step(
    values: np.ndarray, step: float, spacing: float
) -> tuple[float, np.ndarray]:
    """Fit a step to values on a grid of about this step, and say which are on it."""
    k = np.round(values / step)
    near = (abs(values - step * k) < _NEARLY * step) & (k != 0)
    if not near.any():
        return 0.0, near
    # a gap has the rounding errors of two cells, which k multiplies
    steps = np.sort(values[near] / k[near])  # numpy.median takes seven times as long
    step = float(steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
    fits = abs(values - step * k) <= max(_SAME_STEP * step, spacing)
    if step <= 2 * spacing or fits.mean() < _VALUES_ON_GRID:
        return step, np.zeros_like(fits)
    # a step far above the gaps between the values has one place for all of them
    is_step = len(np.unique(k[fits])) > fits.sum() / 2
    return step, fits & is_step


def on_grid(
    cells: np.ndarray,
    grid: tuple[float, float],
    low: float = -np.inf,
    high: float = np.inf,
) -> np.ndarray:
    """Round cells to places (step, origin) of a grid in a range, as decimals are."""
    step, origin = grid
    first, last = ((end - origin) / step for end in (low, high))
    places = np.round((cells - origin) / step)
    places = np.clip(places, np.ceil(first - 1e-6), np.floor(last + 1e-6))
    parts = np.round(1 / step)
    if not origin and abs(parts * step - 1) < _SAME_STEP:
        return places / parts
    digits = _DIGITS - int(np.ceil(np.log10(step)))
    return np.round(origin + places * step, min(digits, _MOST_DIGITS))


def masses_at_ends(values: np.ndarray, counts: np.ndarray) -> tuple[bool, bool]:
    """Say whether many cells have the smallest, and the largest, of different values.

    A mass is much more frequent than the value beside it: the values of a rounded
    column are frequent, too.
    """
    least = max(_MASS * counts.sum(), _FEWEST)
    if len(values) < 2:
        return False, False
    return tuple(
        bool(counts[at] >= max(least, _TIMES * counts[beside]))
        for at, beside in ((0, 1), (-1, -2))
    )


def inner_masses(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the values between the ends that many cells have, such as no change."""
    least = max(_MASS * counts.sum(), _FEWEST)
    beside = np.maximum(counts[:-2], counts[2:])
    return values[1:-1][counts[1:-1] >= np.maximum(least, _TIMES * beside)]


# ----------------------------------------
# Checks of arguments that are numbers.


def is_finite(value: object) -> bool:
    """Return whether a number is finite, also as a float64."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer
        return False


def power_of_two(value: float) -> float:
    """Return the power of two next to a value that is not negative, 1 for 0."""
    # divisions by a power of two do not round
    return 2.0 ** np.clip(np.frexp(value)[1], -1000, 1000) if value else 1.0


def least_draws(share: float) -> int:
    """Return the least number n of draws with 1 / (n + 1) at most a share."""
    # 2 / (1 - 0.9) is slightly above 20, whose ceiling would be 21
    return math.ceil(1 / share - 1e-9) - 1


def check_count(value: object, name: str) -> None:
    """Check that a value is an integer of at least 1."""
    # bool is a subclass of int, so that True would be a count of 1
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if not is_finite(value) or value < 1:
        raise ValueError(f"{name} must be finite and at least 1, got {value!r}.")


def check_share(value: object, name: str) -> None:
    """Check that a value is a number between 0 and 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, exclusive, got {value!r}.")


def check_bool(value: object, name: str) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool, got {value!r}.")
