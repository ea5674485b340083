"""Plot of the rounds of a fit."""

import numpy as np

from skvnce.inspection._common import FAINT, check_count, colours, fitted, panels

_LABELS = ("mean", "explained variance")
_PANEL = 3.0, 2.2, 2.5  # width, height and least width in inches
_CONVERGED = 1.05  # as in `skvnce.metrics.split_r_hat`


class ConvergenceDisplay:
    """Plot of the loss of a fit and, where there is a Markov chain, of its parameters.

    The first panel is the loss of each round.  `GaussianImputer` fits tables with
    categories by a Markov chain; further panels show those of its parameters whose
    split R-hat is largest, with the burn-in in grey.  A chain that has converged looks
    like noise around a line.  If it drifts, raise ``max_iter``.  The titles say R-hat;
    chains with one above 1.05 are red, as their titles, and others are blue.

    Parameters
    ----------
    loss_curve : array-like of shape (n_iter,)
    trace : array-like of shape (n_iter, 2, n_latents), default=None
        Means of latent variables, and the shares of their variances that the others
        explain.
    r_hat : array-like of shape (2, n_latents), default=None
        Their split R-hat.
    names : sequence of n_latents str, default=()
    n_burn_in : int, default=0
        Number of rounds before those that count.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_panels,)
    figure_ : matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no round, or shapes do not match.
    """

    def __init__(self, loss_curve, trace=None, r_hat=None, names=(), n_burn_in=0):
        self.loss_curve = np.asarray(loss_curve, dtype=np.float64)
        if self.loss_curve.ndim != 1 or not len(self.loss_curve):
            raise ValueError("loss_curve must have a value for each round, got none")
        self.trace = None if trace is None else np.asarray(trace, dtype=np.float64)
        self.r_hat = None if trace is None else np.asarray(r_hat, dtype=np.float64)
        self.names, self.n_burn_in = list(names), n_burn_in
        if trace is not None:
            shape = (len(self.loss_curve), 2, len(self.names))
            if self.trace.shape != shape or self.r_hat.shape != shape[1:]:
                raise ValueError(
                    f"trace must have the shape {shape} and r_hat {shape[1:]}, got "
                    f"{self.trace.shape} and {self.r_hat.shape}"
                )

    @classmethod
    def from_estimator(cls, estimator, *, n_traces=5, width=None):
        """Draw the rounds of a fit.

        Parameters
        ----------
        estimator : fitted estimator
            With ``loss_curve_``, and perhaps ``trace_`` (`GaussianImputer` fitted to a
            table with categories).  Ensembles have them in ``estimators_``, and
            `ColumnImputer` in ``model_``.
        n_traces : int, default=5
            Maximum number of parameters that are drawn.
        width : float or None, default=None
            Of the figure in inches, which has fewer panels in a row if it is narrow;
            None chooses it.

        Returns
        -------
        ConvergenceDisplay

        Raises
        ------
        TypeError
            If `n_traces` is not an integer.
        ValueError
            If the estimator has no ``loss_curve_``, `n_traces` is negative, or
            `width` is not positive.

        Warns
        -----
        ConvergenceWarning
            If an R-hat is above 1.05; names how many sweeps would do.

        Examples
        --------
        >>> from skvnce import GaussianImputer
        >>> from skvnce.datasets import load_nhanes
        >>> from skvnce.inspection import ConvergenceDisplay
        >>> df = load_nhanes(as_frame=True, categories=True).data[::40]
        >>> columns = ["Age", "BMI", "SmokeNow"]
        >>> imputer = GaussianImputer(random_state=0).fit(df[columns])
        >>> ConvergenceDisplay.from_estimator(imputer).axes_.shape
        (6,)
        """
        (losses,) = fitted(estimator, "loss_curve_")
        chain = {}
        if hasattr(estimator, "trace_"):
            trace, r_hat, names, burn_in = fitted(
                estimator, "trace_", "r_hat_", "latent_names_", "n_burn_in_"
            )
            chain = dict(trace=trace, r_hat=r_hat, names=names, n_burn_in=burn_in)
        display = cls(losses, **chain).plot(n_traces=n_traces, width=width)
        if chain:
            estimator._warn_of_slow_chain(vars(estimator))
        return display

    def plot(self, *, n_traces=5, width=None):
        """Draw the loss and the parameters with the largest split R-hat.

        Parameters
        ----------
        n_traces : int, default=5
            Maximum number of parameters that are drawn.
        width : float or None, default=None
            Of the figure in inches, which has fewer panels in a row if it is narrow;
            None chooses it.

        Returns
        -------
        ConvergenceDisplay
            Itself.
        """
        check_count(n_traces, "n_traces")
        chosen = self._slowest(n_traces)
        self.figure_, self.axes_ = panels(1 + len(chosen), 3, _PANEL, width)
        rise, fall = colours(self.axes_[0])
        rounds = np.arange(1, 1 + len(self.loss_curve))
        self.axes_[0].plot(rounds, self.loss_curve, color=rise, lw=1)
        self.axes_[0].set_title("loss", fontsize="medium")
        for ax, (part, place) in zip(self.axes_[1:], chosen, strict=True):
            r_hat = self.r_hat[part, place]
            is_slow = r_hat > _CONVERGED
            colour = fall if is_slow else rise
            ax.plot(rounds, self.trace[:, part, place], color=colour, lw=1)
            ax.set_title(
                f"{self.names[place]}: {_LABELS[part]}\n{_in_words(r_hat)}",
                fontsize="medium",
                **({"color": fall} if is_slow else {}),
                # a $ in a name is no formula
                parse_math=False,
            )
        for ax in self.axes_:
            if self.n_burn_in:
                ax.axvspan(1, self.n_burn_in, lw=0, zorder=0, **FAINT)
            ax.set_xlabel("round")
        return self

    def _slowest(self, n_traces):
        """List the (part, latent) with the largest R-hat, NaN left out."""
        if self.trace is None:
            return []
        order = np.argsort(-self.r_hat, axis=None)  # NaN last
        order = order[np.isfinite(self.r_hat.ravel()[order])][:n_traces]
        return [tuple(map(int, np.unravel_index(k, self.r_hat.shape))) for k in order]


def _in_words(r_hat):
    """Format R-hat, with enough digits that it is above the limit if it is."""
    if r_hat <= _CONVERGED:
        return f"R-hat {r_hat:.2f}"
    text = f"{r_hat:.2f}" if r_hat >= _CONVERGED + 0.005 else f"{r_hat:.4f}"
    return f"R-hat {text}, above {_CONVERGED}"
