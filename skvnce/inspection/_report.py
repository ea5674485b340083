"""Plot of the scores of imputers."""

import numpy as np

from skvnce.inspection._common import FAINT, check_width, colours

_LABELS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage": "coverage",
    "pfc": "share of\nfalse levels",
    "brier": "Brier score",
    "seconds": "seconds",
}
_NAMES, _LEAST = 1.2, 1.3  # inches of names of imputers, and of a narrow panel


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

    Raises
    ------
    ValueError
        If ``report`` is no such data frame, or has no score.
    """

    def __init__(self, report, level=None):
        needed = {"mechanism", "imputer"} - set(getattr(report, "columns", ()))
        if needed:
            raise ValueError(
                f"report must be a data frame of imputation_report, got none with "
                f"{', '.join(sorted(needed))}"
            )
        self.scores = [
            one for one in _LABELS if one in report and report[one].notna().any()
        ]
        if not self.scores:
            raise ValueError("report must have at least one score, got none")
        self.report, self.level = report, level

    @classmethod
    def from_report(cls, report, *, level=0.9, width=None):
        """Draw a report.

        Parameters
        ----------
        report : pandas.DataFrame
            From `skvnce.evaluation.imputation_report`.
        level : float or None, default=0.9
            Nominal coverage; None leaves out the line.
        width : float or None, default=None
            Of the figure in inches; if it is narrow, the scores are in several rows.
            None chooses it.

        Returns
        -------
        ReportDisplay
        """
        return cls(report, level).plot(width=width)

    def plot(self, *, width=None):
        """Draw repetitions as dots, and their means as lines.

        Parameters
        ----------
        width : float or None, default=None
            Of the figure in inches; if it is narrow, the scores are in several rows.
            None chooses it.

        Returns
        -------
        ReportDisplay
            Itself.
        """
        mechanisms = list(dict.fromkeys(self.report["mechanism"]))
        imputers = list(dict.fromkeys(self.report["imputer"]))
        self._make_panels(len(mechanisms), len(imputers), width)
        for row, mechanism in zip(self.axes_, mechanisms, strict=True):
            chosen = self.report[self.report["mechanism"] == mechanism]
            for ax, score in zip(row, self.scores, strict=True):
                _panel(ax, chosen, score, imputers)
                if score == "coverage" and self.level is not None:
                    ax.axvline(self.level, color="0.6", lw=1, zorder=0)
            for ax in row[:: self._per_row]:
                # a $ in a name is no formula
                ax.set_ylabel(mechanism, parse_math=False)
        for ax, score in zip(self.axes_[-1], self.scores, strict=True):
            ax.set_xlabel(_LABELS[score])
        self.axes_[0, 0].set_yticks(range(len(imputers)), imputers, parse_math=False)
        self.axes_[0, 0].set_ylim(len(imputers) - 0.5, -0.5)
        return self

    def _make_panels(self, n_mechanisms, n_imputers, width):
        """Make a panel for each mechanism and score; `_per_row` scores in a row."""
        import matplotlib.pyplot as plt

        check_width(width)
        n = len(self.scores)
        # names of imputers take the rest of the width
        most = n if width is None else int((width - _NAMES) / _LEAST)
        self._per_row = max(1, min(n, most))
        blocks = -(-n // self._per_row)
        self.figure_, grid = plt.subplots(
            blocks * n_mechanisms,
            self._per_row,
            figsize=(
                width or _NAMES + 2.1 * n,
                blocks * n_mechanisms * (1.0 + 0.35 * n_imputers),
            ),
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        grid = grid.reshape(blocks, n_mechanisms, -1).swapaxes(0, 1)
        grid = grid.reshape(n_mechanisms, -1)
        self.axes_ = grid[:, :n]
        for ax in grid[:, n:].ravel():
            ax.set_visible(False)
        if width is not None:
            for ax in self.axes_.ravel():
                ax.locator_params(axis="x", nbins=3)
                ax.tick_params(axis="x", labelsize="small")


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
