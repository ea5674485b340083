"""Tables of the studies of papers: scores by setting, over seeds or masks."""

import numpy as np
from _report import by, lines


def spread(numbers, digits=3):
    """Write the median, and in brackets the quartiles, of several numbers."""
    if not numbers:
        return "-"
    low, middle, high = np.quantile(numbers, [0.25, 0.5, 0.75])
    around = f" ({low:.{digits}g} to {high:.{digits}g})" if len(numbers) > 1 else ""
    return f"{middle:.{digits}g}{around}"


def each(numbers, digits=3):
    """Write the median, and all of several numbers."""
    shown = ", ".join(f"{number:.{digits}f}" for number in numbers)
    return f"{np.median(numbers):.{digits}f}", shown


def medians(records, keys, scores, digits=3):
    """Tabulate medians and quartiles of scores, which have labels, by keys."""

    def column(score):
        return lambda some: spread(
            [r[score] for r in some if r.get(score) is not None], digits
        )

    columns = {label: column(score) for score, label in scores.items()}
    return lines(by(records, *keys).items(), {"fits": len} | columns, *keys)


def along(records, keys, points, found, unit=""):
    """Tabulate medians of what a function finds of records at several points."""

    def column(point):
        return lambda some: spread([v for r in some for v in found(r, point)])

    columns = {f"{point}{unit}": column(point) for point in points}
    return lines(by(records, *keys).items(), columns, *keys)


def of_curve(which):
    """Find a score of a record's curve, whose lines are a point and its scores."""
    return lambda record, point: [
        line[1 + which] for line in record["curve"] if line[0] == point
    ]


def slope(records, size, score):
    """Fit log median score over log size; the slope and its standard error."""
    groups = by([r for r in records if r.get(score) is not None], size).items()
    x = np.log([n for (n,), _ in groups])
    y = np.log([np.median([r[score] for r in some]) for _, some in groups])
    x, y = x - x.mean(), y - y.mean()
    steep = x @ y / (x @ x)
    rest = y - steep * x
    return steep, np.sqrt(rest @ rest / max(1, len(x) - 2) / (x @ x))


def slopes(records, keys, size, scores):
    """Tabulate slopes of scores, which have labels, by keys."""

    def column(score):
        return lambda some: "{:.2f} ({:.2f})".format(*slope(some, size, score))

    columns = {label: column(score) for score, label in scores.items()}
    return lines(by(records, *keys).items(), columns, *keys)
