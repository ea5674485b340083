"""Scores of the safety of imputers: how far off, and how possible, filled cells are."""

import numpy as np

ROUNDING = 1e-9  # of a column's standard deviation


def score_fills(problem, filled, declared=None):
    """Score one filled table; `declared` is (2, n_features), the imputer's own range.

    The RMSE is in units of each column's standard deviation, over that of the means of
    the observed cells; `excess` is the mean difference of squared errors to means, in
    standard errors.
    """
    check_shape(filled, problem.masked.shape)
    missing = np.isnan(problem.masked)
    errors = scaled_errors(problem, filled)
    rival = scaled_errors(problem, np.nanmean(problem.masked, 0))
    difference = errors**2 - rival**2
    std = difference.std(ddof=1) / np.sqrt(len(difference))
    place = int(np.argmax(np.abs(errors)))
    cells = np.argwhere(problem.hidden)
    row, column = (int(i) for i in cells[place])
    return {
        "rmse": root_mean(errors),
        "rmse of means": root_mean(rival),
        "ratio": root_mean(errors) / root_mean(rival),
        "excess": float(difference.mean() / std) if std > 0 else 0.0,
        "farthest": float(np.abs(errors[place])),
        "farthest cell": [
            problem.columns[column],
            float(problem.full[row, column]),
            float(filled[row, column]),
        ],
        "fills outside": outside(filled, missing, *observed_range(problem)),
        **outside_declared("fills", filled, missing, declared),
    }


def score_draws(problem, draws, declared=None):
    """Score draws, (n_draws, n_samples, n_features).

    The share of impossible values is that of drawn cells in columns of whole numbers
    that are not whole, and in columns of 0 and 1 that are neither; None without such
    columns.
    """
    check_shape(draws[0], problem.masked.shape)
    missing = np.isnan(problem.masked)
    whole, binary = whole_numbers(problem.full)
    shares = {}
    for name, columns in (("whole", whole & ~binary), ("binary", binary)):
        cells = draws[:, missing & columns]
        bad = cells != np.round(cells)
        if name == "binary":
            bad = ~np.isin(cells, (0, 1))
        shares[name] = [int(bad.sum()), int(bad.size)]
    errors = np.abs([scaled_errors(problem, draw) for draw in draws])
    of_draws = np.broadcast_to(missing, draws.shape)
    return {
        "farthest draw": float(errors.max()),
        "draws outside": outside(draws, of_draws, *observed_range(problem)),
        "impossible whole": share(*shares["whole"]),
        "impossible binary": share(*shares["binary"]),
        "impossible": share(*np.sum(list(shares.values()), axis=0).tolist()),
        **outside_declared("draws", draws, of_draws, declared),
    }


def truth_outside(problem):
    """Return the share of hidden cells that lie outside of the observed range."""
    return outside(problem.full, problem.hidden, *observed_range(problem))


def outside(tables, cells, low, high):
    """Return the share of cells below or above their column's range."""
    wrong = ~((tables >= low) & (tables <= high))  # NaN is outside too
    return float(wrong[cells].mean()) if cells.any() else 0.0


def outside_declared(name, tables, cells, declared):
    """Return the share outside of a declared range, exactly; nothing without one."""
    if declared is None:
        return {}
    return {f"{name} outside declared": outside(tables, cells, *declared)}


def observed_range(problem):
    """Return the least and the largest observed cell of each column, and rounding."""
    slack = ROUNDING * problem.scale
    return np.nanmin(problem.masked, 0) - slack, np.nanmax(problem.masked, 0) + slack


def whole_numbers(full):
    """Mark the columns of whole numbers, and among them those of 0 and 1 only."""
    known = ~np.isnan(full)
    whole = (~known | (full == np.round(full))).all(0)
    return whole, (~known | np.isin(full, (0, 1))).all(0)


def scaled_errors(problem, filled):
    """Return filled minus true values at the hidden cells, in standard deviations."""
    return ((filled - problem.full) / problem.scale)[problem.hidden]


def root_mean(errors):
    """Return the root mean square."""
    return float(np.sqrt(np.mean(errors**2)))


def share(part, number):
    """Divide; None of nothing."""
    return part / number if number else None


def check_shape(filled, shape):
    """Refuse a filled table that lacks columns."""
    if filled.shape != shape:
        raise ValueError(
            f"Expected a filled table of shape {shape}, got {filled.shape}."
        )
