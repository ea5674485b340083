"""Plot of an analysis under several assumptions on missing values."""

from numbers import Real

import numpy as np

from skvnce.inspection._common import axes_or_new, colours


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

    Raises
    ------
    TypeError
        If `curve` is not a result of `sensitivity_curve`.
    ValueError
        If it has no such coefficient, or `level` is not in (0, 1).
    """

    def __init__(self, curve, name=None, level=0.95, null=0.0):
        if not hasattr(curve, "tipping_point"):
            raise TypeError(f"curve must be of sensitivity_curve, got {curve!r}")
        self.curve, self.name, self.level, self.null = curve, name, level, null
        self.summary = curve.summary(name, level)
        self.tipping_point = curve.tipping_point(name, level, null)

    @classmethod
    def from_curve(cls, curve, name=None, *, level=0.95, null=0.0, ax=None):
        """Draw a curve.

        Parameters
        ----------
        curve : SensitivityCurve
            From `skvnce.pooling.sensitivity_curve`.
        name : str or int, default=None
            A coefficient; None if the analysis has one estimate.
        level : float, default=0.95
            Of the intervals, in (0, 1).
        null : float, default=0.0
            The value of a coefficient without an effect.
        ax : matplotlib.axes.Axes or None, default=None

        Returns
        -------
        SensitivityDisplay
        """
        return cls(curve, name, level, null).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            A new figure by default.

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
    places = [next((one for _, _, one in _items(shift)), 0.0) for shift in shifts]
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
