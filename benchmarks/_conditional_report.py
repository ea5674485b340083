"""Records, tables and verdicts of the benchmarks of conditional samplers."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from _report import Texts, table
from scipy import stats

TEXTS = Texts("conditional_report", globals())

LEVEL = 0.95  # of two-sided comparisons
DIGITS = 4


def rounded(values):
    """Round numbers to DIGITS significant digits."""
    return [float(f"{float(v):.{DIGITS}g}") for v in values]


def results_of(records):
    """Say where the results of a page come from."""
    return TEXTS("The results are those of", records=records.commits())


def values(records, score, **key):
    """Return one number for each row, or for each seed: what comparisons pair.

    Scores of rows are averaged over the seeds; the rows of several records of one seed
    follow each other.
    """
    found = {}
    for record in records.of(**key):
        found.setdefault(record["seed"], []).append(np.atleast_1d(record[score]))
    numbers = np.stack([np.concatenate(found[seed]) for seed in sorted(found)])
    return numbers.mean(0) if numbers.shape[1] > 1 else numbers[:, 0]


def standing(first, second, *, higher=False):
    """Compare two samplers by paired values: "better", "equal" or "worse", and t.

    Equal means that 0 is inside the interval of Student's t of the mean difference.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Lower is better, unless `higher`.
    """
    difference = (second - first) if higher else (first - second)
    n = len(difference)
    error = difference.std(ddof=1) / sqrt(n) if n > 1 else np.inf
    mean = float(difference.mean())
    t = mean / error if error > 0 else mean and float(np.copysign(np.inf, mean))
    limit = stats.t.ppf((1 + LEVEL) / 2, max(n - 1, 1))
    return "equal" if abs(t) < limit else "better" if t < 0 else "worse", t


class Claim(NamedTuple):
    """What a figure shows: first samplers against second ones.

    Attributes
    ----------
    figure, text : str
    score : str
        Name of the values of a record.
    pairs : tuple of pairs of str
        Samplers, the first of which is compared with the second.
    expected : tuple of str
        Words of `standing` with which the claim holds for a pair.
    higher : bool
        Whether larger values are better.
    """

    figure: str
    text: str
    score: str
    pairs: tuple
    expected: tuple
    higher: bool = False


def evaluate(records, claim, **key):
    """Compare the pairs of a claim; the number that hold, and words of the others."""
    failed = []
    for first, second in claim.pairs:
        a, b = (
            values(records, claim.score, method=method, **key)
            for method in (first, second)
        )
        word, t = standing(a, b, higher=claim.higher)
        if word not in claim.expected:
            failed.append(f"{first} {word} than {second} (t = {t:+.1f})")
    return len(claim.pairs) - len(failed), failed


def verdict(held, n_pairs):
    """Name the verdict of counts of pairs that hold, one for each problem."""
    shares = [h / n for h, n in zip(held, n_pairs, strict=True)]
    if min(shares) == 1:
        return "REPRODUCED"
    return "PARTIAL" if max(shares) > 0 else "DIFFERENT"


def claim_table(records, claims, keys):
    """Tabulate the claims: for each key, the pairs that hold, and those that do not.

    Parameters
    ----------
    keys : dict
        Name of a problem to the key of its records.
    """
    rows = []
    for claim in claims:
        found = [evaluate(records, claim, **key) for key in keys.values()]
        n_pairs = len(claim.pairs)
        held = [h for h, _ in found]
        against = [
            f"{name}: {text.replace('equal than', 'equal to')}"
            for name, (_, failed) in zip(keys, found, strict=True)
            for text in failed
        ]
        rows.append(
            [
                claim.figure,
                claim.text,
                *(f"{h} of {n_pairs}" for h in held),
                verdict(held, [n_pairs] * len(held)),
                "; ".join(against) or "-",
            ]
        )
    return table(["figure", "claim", *keys, "verdict", "pairs that do not hold"], rows)


def spread(numbers, digits=3):
    """Write the mean and the standard deviation over seeds."""
    deviation = f" ({np.std(numbers, ddof=1):.{digits}f})" if len(numbers) > 1 else ""
    return f"{np.mean(numbers):.{digits}f}{deviation}"


def curve_table(records, methods, fractions, which, digits=3, **key):
    """Tabulate a score at fractions of the budget, averaged over seeds."""
    rows = []
    for method in methods:
        curves = [dict(_pairs(r, which)) for r in records.of(method=method, **key)]
        cells = []
        for fraction in fractions:
            numbers = [curve[fraction] for curve in curves if fraction in curve]
            cells.append(f"{np.mean(numbers):.{digits}f}" if numbers else "")
        rows.append([method, *cells])
    return table(["sampler", *(f"{f:.0%}" for f in fractions)], rows)


def _pairs(record, which):
    return [(row[0], row[1 + which]) for row in record["curve"]]
