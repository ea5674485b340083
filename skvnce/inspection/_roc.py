"""Plot of the recovery of a known graph by ranked pairs."""

import numpy as np

from skvnce.inspection._common import axes_or_new, finite_numbers, fitted, shown_name

_EDGE = 1e-5  # as in `skvnce.metrics.edge_auc`: rounding errors of an inverse are less
_CHANCE = "chance"
_SCORES = {
    "strength": "edge_strengths_",
    "probability": "edge_probabilities_",
    "frequency": "edge_frequencies_",
}


class EdgeRocDisplay:
    """ROC curve of ranked pairs of variables, against the edges of a known graph.

    The curve has one point for each distinct score, with straight lines across ties,
    and the area is that of `skvnce.metrics.edge_auc`.

    Parameters
    ----------
    fpr : array-like of shape (n_points,)
        Share of the pairs without an edge that are classified as edges, increasing.
    tpr : array-like of shape (n_points,)
        Share of the edges that are found, increasing.
    roc_auc : float or None, default=None
        Area under the curve; None leaves it out of the legend.
    name : str or None, default=None
        Name in the legend.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    line_ : matplotlib.lines.Line2D
        The curve.
    chance_level_ : matplotlib.lines.Line2D
        The diagonal, one per axes.

    Raises
    ------
    TypeError
        If a rate is not numeric.
    ValueError
        If the rates are not finite or have different lengths.
    """

    def __init__(self, fpr, tpr, roc_auc=None, name=None):
        self.fpr, self.tpr = finite_numbers(fpr, "fpr"), finite_numbers(tpr, "tpr")
        if self.fpr.ndim != 1 or self.fpr.shape != self.tpr.shape:
            raise ValueError(
                "fpr and tpr must have one shape (n_points,), got "
                f"{self.fpr.shape} and {self.tpr.shape}; pass one of each per threshold"
            )
        self.roc_auc = roc_auc
        self.name = name

    @classmethod
    def from_estimator(cls, estimator, truth, *, name=None, ax=None, scores="strength"):
        """Draw the curve of a fitted graph learner.

        Parameters
        ----------
        estimator : fitted estimator with ``nodes_`` and the scores
        truth : array-like of shape (n_nodes, n_nodes) or networkx.Graph
            The known graph: the pairs whose entry is above 1e-5 in absolute value, or
            the edges of the networkx graph.  Nodes of a graph, and rows and columns of
            a dataframe with names, are matched with ``nodes_``; additional ones are
            ignored.  An array must be in the order of ``nodes_``.
        name : str or None, default=None
            Name in the legend; the class of the estimator by default.
        ax : matplotlib.axes.Axes or None, default=None
        scores : {"strength", "probability", "frequency"}, default="strength"
            Rank by ``edge_strengths_``, ``edge_probabilities_`` or
            ``edge_frequencies_``.

        Returns
        -------
        EdgeRocDisplay

        Raises
        ------
        TypeError
            If a matrix is not numeric.
        ValueError
            If ``scores`` is none of the three or the estimator does not have them, if
            the truth lacks a node, has no edge or has an edge for every pair, or if a
            matrix is not square, symmetric, finite and of the right shape.
        """
        if scores not in _SCORES:
            raise ValueError(f"scores must be one of {[*_SCORES]}, got {scores!r}")
        strengths, nodes = fitted(estimator, _SCORES[scores], "nodes_")
        name = type(estimator).__name__ if name is None else name
        return cls._from_named(truth, strengths, list(nodes), name).plot(ax=ax)

    @classmethod
    def from_predictions(cls, truth, strengths, *, name=None, ax=None):
        """Draw the curve of any scores of pairs.

        Parameters
        ----------
        truth : array-like of shape (n_nodes, n_nodes) or networkx.Graph
            The known graph: the pairs whose entry is above 1e-5 in absolute value, or
            the edges of the networkx graph.  Nodes of a graph are matched with the
            names of ``strengths``.
        strengths : array-like of shape (n_nodes, n_nodes)
            Evidence for an edge, symmetric, not negative, larger for more evidence; the
            diagonal is ignored.  The names of its nodes are the columns of a dataframe,
            or 0 to n_nodes - 1 for an array.
        name : str or None, default=None
            Name in the legend.
        ax : matplotlib.axes.Axes or None, default=None

        Returns
        -------
        EdgeRocDisplay

        Raises
        ------
        TypeError
            If a matrix is not numeric.
        ValueError
            If the truth lacks a node, has no edge or has an edge for every pair, or if
            a matrix is not square, symmetric, finite and of the right shape.
        """
        nodes = list(getattr(strengths, "columns", range(len(strengths))))
        return cls._from_named(truth, strengths, nodes, name).plot(ax=ax)

    @classmethod
    def _from_named(cls, truth, strengths, nodes, name):
        """Rank the pairs of named nodes."""
        shape = (len(nodes), len(nodes))
        true = _pairs(_in_order(truth, nodes), "truth", shape)
        edge = np.abs(true) > _EDGE
        strength = _pairs(strengths, "strengths", shape)
        if (strength < 0).any():
            raise ValueError(
                f"strengths must not be negative, got {strength.min()}; pass absolute "
                "values if the sign is that of an association"
            )
        if edge.all() or not edge.any():
            raise ValueError(
                "truth must have both edges and pairs without one, got "
                f"{edge.sum()} edges among {edge.size} pairs; it has no ROC curve"
            )
        fpr, tpr = _rates(edge, strength)
        return cls(fpr, tpr, _area(fpr, tpr), name)

    def plot(self, *, ax=None, name=None):
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            A new figure by default; curves on one axes share the diagonal.
        name : str or None, default=None
            Name in the legend; that of the display by default.

        Returns
        -------
        EdgeRocDisplay
            Itself.
        """
        self.ax_ = axes_or_new(ax, 6, 6)
        self.figure_ = self.ax_.figure
        label = self._label(self.name if name is None else name)
        (self.line_,) = self.ax_.plot(self.fpr, self.tpr, label=label)
        self.chance_level_ = _chance_line(self.ax_)
        self.ax_.set(
            xlim=(-0.01, 1.01),
            ylim=(-0.01, 1.01),
            aspect="equal",
            xlabel="share of the other pairs taken for edges",
            ylabel="share of the edges found",
        )
        legend = self.ax_.legend(loc="lower right", frameon=False)
        for text in legend.get_texts():
            # a $ in a name is no formula
            text.set_parse_math(False)
        return self

    def _label(self, name):
        """Return the name and the area, as far as they are known."""
        area = None if self.roc_auc is None else f"AUC = {self.roc_auc:.2f}"
        if name is None or area is None:
            return area if name is None else str(name)
        return f"{name} ({area})"


def _chance_line(ax):
    """Return the diagonal of the axes, drawn only once."""
    for line in ax.lines:
        if line.get_label() == _CHANCE:
            return line
    return ax.plot(
        [0, 1], [0, 1], "--", color="0.5", linewidth=1, label=_CHANCE, zorder=1
    )[0]


def _in_order(truth, nodes):
    """Return the truth as a matrix, rows and columns in the order of the nodes."""
    if hasattr(truth, "has_edge"):
        _check_names(truth, nodes, "truth")
        return np.array([[1 * truth.has_edge(a, b) for b in nodes] for a in nodes])
    if _has_names(truth) and not _numbered(nodes):
        _check_names(set(truth.index), nodes, "the rows of truth")
        _check_names(set(truth.columns), nodes, "the columns of truth")
        return truth.loc[nodes, nodes]
    return truth


def _has_names(table):
    """Whether a table has names for rows and columns, not only positions."""
    named = hasattr(table, "columns") and hasattr(table, "index")
    return named and not (_numbered(table.columns) and _numbered(table.index))


def _numbered(names):
    """Whether names are only positions."""
    return list(names) == list(range(len(names)))


def _check_names(known, nodes, where):
    """Raise if a node is not known."""
    missing = [shown_name(node) for node in nodes if node not in known]
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise ValueError(
            f"{where} must have every node, got none named {', '.join(missing[:10])}"
            f"{more}; rename its nodes, or pass an array in the order of the nodes"
        )


def _pairs(matrix, name, shape):
    """Return the entries below the diagonal of a symmetric matrix."""
    matrix = np.asarray(matrix)
    if matrix.shape != shape:
        raise ValueError(
            f"{name} must have shape (n_nodes, n_nodes), here {shape}, got "
            f"{matrix.shape}; pass one row and column per node"
        )
    below = np.tril_indices(len(matrix), -1)
    entries = finite_numbers(matrix[below], name)
    if not np.allclose(entries, finite_numbers(matrix.T[below], name)):
        raise ValueError(
            f"{name} must be symmetric, got a matrix that is not; an edge has no "
            "direction"
        )
    return entries


def _rates(edge, strength):
    """Return the two rates, from (0, 0), after each distinct score from the top."""
    # negative, because unique sorts in increasing order
    _, rank = np.unique(-strength, return_inverse=True)
    found = np.cumsum(np.bincount(rank, weights=edge))
    wrong = np.cumsum(np.bincount(rank, weights=~edge))
    return tuple(np.append(0, count) / count[-1] for count in (wrong, found))


def _area(fpr, tpr):
    """Return the area under the curve by trapezoids; numpy 1 and 2 name it apart."""
    return float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1])) / 2)
