"""The grid of repeated values, and values that many cells have at an end."""

import numpy as np

MOST_CODES = 10  # different values, up to which repeated values are codes
LEAST_CELLS = 2  # observed cells for each of these values, on average
_POWERS_OF_STEPS = 4  # of ten, from the smallest gap between values down
_LARGEST = 1e100  # absolute value of a column with a grid
_MASS, _FEWEST, _TIMES = 0.05, 5, 3  # share and number of cells, and times the next


def are_codes(n_values: int, n_cells: int) -> bool:
    """Say whether so many values in so many cells are few enough to be codes."""
    return n_values <= min(MOST_CODES, n_cells // LEAST_CELLS)


def grid_of(values: np.ndarray, n_cells: int) -> float:
    """Return the step of the grid that repeated values lie on; 0 if there is none."""
    if len(values) >= 0.7 * n_cells:
        return 0.0
    if abs(values).max() > _LARGEST:
        return 0.0
    spacing = 4 * np.spacing(abs(values).max())  # of floats of this size
    gaps = np.diff(values)
    if not (gaps > spacing).any():
        return 0.0
    gap = gaps[gaps > spacing].min()  # no step is larger
    top = int(np.ceil(np.log10(gap)))
    for power in range(top, top - _POWERS_OF_STEPS, -1):
        for unit in (1.0, 0.5, 0.25, 0.2):
            step = unit * 10.0**power
            off = abs(np.round(values / step) * step - values)
            if (off <= max(1e-6 * step, spacing)).all() and step > 2 * spacing:
                return step
    return 0.0


def on_grid(
    cells: np.ndarray, step: float, low: float = -np.inf, high: float = np.inf
) -> np.ndarray:
    """Round cells to the multiples of a step that are in a range; shape of the cells.

    Multiples of a fraction such as 0.1 are rounded like its decimals.
    """
    ends = np.ceil(low / step - 1e-6), np.floor(high / step + 1e-6)
    places = np.clip(np.round(cells / step), *ends)
    return places * step if step >= 1 else places / np.round(1 / step)


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
