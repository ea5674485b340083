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


def medians(records, keys, scores, digits=3):
    """Tabulate medians and quartiles of scores, which have labels, by keys."""

    def column(score):
        return lambda some: spread(
            [r[score] for r in some if r.get(score) is not None], digits
        )

    columns = {label: column(score) for score, label in scores.items()}
    return lines(by(records, *keys).items(), {"fits": len} | columns, *keys)
