"""Plot of the scores of imputers."""

import numpy as np

from skvnce.inspection._common import RISE

_LABELS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage": "coverage",
    "pfc": "share of false levels",
    "brier": "Brier score",
    "seconds": "seconds",
}


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
    def from_report(cls, report, *, level=0.9):
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

    def plot(self):
        """Draw repetitions as dots, and their means as lines.

        Returns
        -------
        ReportDisplay
            Itself.
        """
        import matplotlib.pyplot as plt

        mechanisms = list(dict.fromkeys(self.report["mechanism"]))
        imputers = list(dict.fromkeys(self.report["imputer"]))
        shape = len(mechanisms), len(self.scores)
        size = 1.2 + 2.1 * shape[1], shape[0] * (1.0 + 0.35 * len(imputers))
        self.figure_, self.axes_ = plt.subplots(
            *shape, figsize=size, sharey=True, squeeze=False, layout="constrained"
        )
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
    for height, imputer in enumerate(imputers):
        values = report.loc[report["imputer"] == imputer, score].to_numpy(float)
        values = values[np.isfinite(values)]
        ax.plot(values, np.full(len(values), height), "o", color=RISE, alpha=0.5, ms=4)
        if len(values):
            ends = [height - 0.3, height + 0.3]
            ax.plot([values.mean()] * 2, ends, color=RISE, lw=2)
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
