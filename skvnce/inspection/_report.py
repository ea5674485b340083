"""Displays of reports, and of sensitivity to values missing not at random."""

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skvnce.inspection._common import FAINT, axes_or_new, colours

# ----------------------------------------
# Plot of the scores of imputers.

_LABELS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage": "coverage",
    "pfc": "share of\nfalse levels",
    "brier": "Brier score",
    "seconds": "seconds",
}
_NAMES = 1.2  # inches of names of imputers


class ReportDisplay:
    """Scores of imputers on hidden cells, a panel for each score.

    Parameters
    ----------
    report : pandas.DataFrame
        From `skvnce.evaluation.imputation_report`.
    level : float or None, default=None
        Nominal coverage, drawn as a line in the panel of coverage.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_mechanisms, n_scores)
    figure_ : matplotlib.figure.Figure
    """

    def __init__(self, report: ArrayLike, level: float | None = None) -> None:
        lacking = {"mechanism", "imputer"} - set(getattr(report, "columns", ()))
        if lacking:
            raise ValueError(
                f"report must be a data frame of imputation_report, got none with "
                f"{', '.join(sorted(lacking))}"
            )
        self.scores = [
            score
            for score in _LABELS
            if score in report and report[score].notna().any()
        ]
        if not self.scores:
            raise ValueError("report must have at least one score, got none")
        self.report, self.level = report, level

    @classmethod
    def from_report(cls, report: ArrayLike, *, level: float | None = 0.9) -> Self:
        """Draw a report.

        Parameters
        ----------
        report : pandas.DataFrame
            From `skvnce.evaluation.imputation_report`.
        level : float or None, default=0.9
            Nominal coverage; None leaves out the line.

        Returns
        -------
        ReportDisplay
        """
        return cls(report, level).plot()

    def plot(self) -> Self:
        """Draw repetitions as dots, means as lines.

        Returns
        -------
        ReportDisplay
            Itself.
        """
        import matplotlib.pyplot as plt

        mechanisms = list(dict.fromkeys(self.report["mechanism"]))
        imputers = list(dict.fromkeys(self.report["imputer"]))
        shape = len(mechanisms), len(self.scores)
        size = _NAMES + 2.1 * shape[1], shape[0] * (1.0 + 0.35 * len(imputers))
        options = {"sharey": True, "squeeze": False, "layout": "constrained"}
        self.figure_, self.axes_ = plt.subplots(*shape, figsize=size, **options)
        for row, mechanism in zip(self.axes_, mechanisms, strict=True):
            chosen = self.report[self.report["mechanism"] == mechanism]
            for ax, score in zip(row, self.scores, strict=True):
                _panel(ax, chosen, score, imputers)
                if score == "coverage" and self.level is not None:
                    ax.axvline(self.level, color="0.6", lw=1, zorder=0)
            # a $ in a name is no formula
            row[0].set_ylabel(mechanism, parse_math=False)
        for ax, score in zip(self.axes_[-1], self.scores, strict=True):
            ax.set_xlabel(_LABELS[score])
        self.axes_[0, 0].set_yticks(range(len(imputers)), imputers, parse_math=False)
        self.axes_[0, 0].set_ylim(len(imputers) - 0.5, -0.5)
        return self


def _panel(ax, report, score, imputers):
    """Draw one score of all imputers."""
    blue = colours(ax)[0]
    for height, imputer in enumerate(imputers):
        values = report.loc[report["imputer"] == imputer, score].to_numpy(float)
        values = values[np.isfinite(values)]
        ax.plot(values, np.full(len(values), height), "o", color=blue, alpha=0.5, ms=4)
        if len(values):
            ends = [height - 0.3, height + 0.3]
            ax.plot([values.mean()] * 2, ends, color=blue, lw=2)
    ax.grid(axis="x", **FAINT)
    ax.set_axisbelow(True)


# ----------------------------------------
# Plot of an analysis under several assumptions on missing values.


class SensitivityDisplay:
    """Plot of one coefficient under several shifts of the missing values.

    The line is the pooled estimate and the band its interval.  A dotted line marks the
    first shift that changes whether the interval contains `null`, the tipping point.

    Parameters
    ----------
    curve : SensitivityCurve
        From `skvnce.pooling.sensitivity_curve`.
    name : str or int, default=None
        A coefficient, as in ``curve.summary``; None if the analysis has one estimate.
    level : float, default=0.95
        Of the intervals, in (0, 1).
    null : float, default=0.0
        The value of a coefficient without an effect.

    Attributes
    ----------
    summary : pandas.DataFrame
        ``curve.summary(name, level)``.
    tipping_point : dict or None
        ``curve.tipping_point(name, level, null)``.
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    line_ : matplotlib.lines.Line2D
    band_ : matplotlib.collections.FillBetweenPolyCollection
    tipping_ : matplotlib.lines.Line2D or None
    """

    def __init__(
        self,
        curve: Any,
        name: str | int | None = None,
        level: float = 0.95,
        null: float = 0.0,
    ) -> None:
        if not hasattr(curve, "tipping_point"):
            raise TypeError(f"curve must be of sensitivity_curve, got {curve!r}")
        self.curve, self.name, self.level, self.null = curve, name, level, null
        self.summary = curve.summary(name, level)
        self.tipping_point = curve.tipping_point(name, level, null)

    @classmethod
    def from_curve(
        cls,
        curve: Any,
        name: str | int | None = None,
        *,
        level: float = 0.95,
        null: float = 0.0,
        ax: Any = None,
    ) -> Self:
        """Draw a curve.

        Parameters
        ----------
        curve : SensitivityCurve
            As of the class.
        name : str or int, default=None
            As of the class.
        level : float, default=0.95
            As of the class.
        null : float, default=0.0
            As of the class.
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        SensitivityDisplay
        """
        return cls(curve, name, level, null).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        SensitivityDisplay
            Itself.
        """
        shifts = list(self.curve.shifts)
        places, label = _numbers_of(shifts)
        self.ax_ = axes_or_new(ax, 6, 4)
        self.figure_, (rise, fall) = self.ax_.figure, colours(self.ax_)
        # lines run from left to right, whatever the order of the shifts
        order = np.argsort(places, kind="stable")
        x, table = np.array(places)[order], self.summary.iloc[order]
        self.band_ = self.ax_.fill_between(
            x, table["low"], table["high"], color=rise, alpha=0.2, lw=0
        )
        (self.line_,) = self.ax_.plot(x, table["coef"], "o-", color=rise, ms=4)
        self.ax_.axhline(self.null, color="0.6", lw=1, zorder=0)
        self.tipping_ = None
        if self.tipping_point is not None:
            place = places[shifts.index(self.tipping_point)]
            self.tipping_ = self.ax_.axvline(place, color=fall, ls=":", lw=1.5)
        if label is None:
            texts = [_text(shift) for shift in shifts]
            self.ax_.set_xticks(places, texts, rotation=90, parse_math=False)
        else:
            self.ax_.set_xlabel(label, parse_math=False)
        what = "estimate" if self.name is None else str(self.name)
        self.ax_.set_ylabel(f"{what} ({self.level:.0%} interval)", parse_math=False)
        return self


def _numbers_of(shifts):
    """Return places on the axis, and its label if all shifts are of one column."""
    keys = {(key, level) for shift in shifts for key, level, _ in _items(shift)}
    if len(keys) != 1:
        return list(range(len(shifts))), None
    [(key, level)] = keys
    places = [next((size for _, _, size in _items(shift)), 0.0) for shift in shifts]
    if level is None:
        return places, f"shift of missing {key}, in standard deviations"
    return places, f"shift of missing {key}: log-odds of {level}"


def _items(shift):
    """List the (column, level, number) of a shift; level None for numbers."""
    for key, value in shift.items():
        if isinstance(value, Real):
            yield key, None, float(value)
        else:
            for level, odds in value.items():
                yield key, level, float(odds)


def _text(shift):
    parts = [
        f"{key} {number:g}" if level is None else f"{key}={level} {number:g}"
        for key, level, number in _items(shift)
    ]
    return ", ".join(parts) or "none"
