"""Models of single columns given the other ones, which any regressor can be.

Cells of a regressor's column are drawn as its prediction plus a residual of a row whose
prediction was similar, so that the spread may depend on the prediction.  Residuals are
out of fold: those of the rows that a model was fitted to are too small.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

_LEAST = 1e-6  # probability of a level of which a classifier knows nothing
_NEAR = 20  # residuals from which a draw selects; with fewer, spreads are noisy
_QUANTILES = 99  # of regressors that predict quantiles


class ColumnModel(Protocol):
    """A model of a column given completed rows."""

    column: int  # its place among the columns of the joint model
    width: int  # number of levels of the column, or 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw the cells of the column.

        `rows`: (n, n_nodes), completed rows; the column itself has no influence.
        `uniform`: (n,), random numbers, of which the draws are functions. `with_means`:
        whether means, or probabilities of levels, are wanted. Returns `cells` (n,);
        `means` (n, width).
        """
        ...


class ColumnModels(NamedTuple):
    """The models of the columns that have one."""

    columns: list[ColumnModel]


class Design(NamedTuple):
    """The predictors of a column, as a matrix that any regressor accepts."""

    columns: tuple[int, ...]  # places among the columns of the joint model
    # of the nominal ones with at least three levels, which become indicators; 0 for
    # others
    n_levels: tuple[int, ...]
    # the word column and the name of the column that is predicted, for errors
    label: str = "a column"

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """Make the matrix (n, n_predictors) of completed rows (n, n_nodes)."""
        parts = [
            rows[:, [j]] if not n else (rows[:, [j]] == np.arange(n)).astype(float)
            for j, n in zip(self.columns, self.n_levels, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def asked(self, model: Any, method: str, rows: np.ndarray, **options: Any) -> Any:
        """Let a fitted estimator predict completed rows; errors name the column."""
        try:
            return getattr(model, method)(self.matrix(rows), **options)
        except Warning:  # a filter makes an error of it
            raise
        except Exception as error:  # of any library; it is raised again
            raise failed(model, self.label, error) from error


def failed(model: Any, label: str, error: Exception, remedy: str = "") -> ValueError:
    """Make the error that names the estimator of a column that has failed."""
    said = str(error).rstrip() or type(error).__name__
    said += "" if said.endswith((".", "!", "?")) else "."
    return ValueError(
        f"{model!r} failed on {label}: {said} Pass another estimator for this column, "
        f"or None{remedy}."
    )


class Regression(NamedTuple):
    """A fitted regressor of a column; see `ColumnModel`."""

    column: int
    model: Any
    design: Design
    predictions: np.ndarray  # (n,), out of fold, increasing
    residuals: np.ndarray  # (n,), of the same rows
    width: int = 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw predictions plus residuals; see `ColumnModel`."""
        found = self.design.asked(self.model, "predict", rows)
        means = np.ravel(found).astype(float)
        size = min(_NEAR, len(self.residuals))
        middle = np.searchsorted(self.predictions, means) - size // 2
        first = np.clip(middle, 0, len(self.residuals) - size)
        picked = self.residuals[first + (uniform * size).astype(int)]
        return means + picked, means[:, None] if with_means else None


class Quantiles(NamedTuple):
    """A fitted regressor whose `predict` takes ``quantiles``; see `ColumnModel`."""

    column: int
    model: Any
    design: Design
    options: dict  # other arguments of `predict`
    width: int = 1

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw between predicted quantiles; see `ColumnModel`."""
        levels = np.arange(1, _QUANTILES + 1) / (_QUANTILES + 1)
        given = {"quantiles": levels.tolist(), **self.options}
        found = self.design.asked(self.model, "predict", rows, **given)
        # a list of quantiles (TabPFN), or a row for each row
        table = (
            np.stack(found, 1) if isinstance(found, list | tuple) else np.asarray(found)
        )
        table = np.sort(table.astype(float), axis=1)  # quantiles may cross
        place = uniform * (_QUANTILES + 1) - 1
        low = np.clip(np.floor(place).astype(int), 0, _QUANTILES - 2)
        share = np.clip(place - low, 0.0, 1.0)
        at = np.arange(len(rows))
        drawn = table[at, low] * (1 - share) + table[at, low + 1] * share
        return drawn, table.mean(1)[:, None] if with_means else None


class Classification(NamedTuple):
    """A fitted classifier of a column; see `ColumnModel`."""

    column: int
    model: Any  # its classes are codes of levels
    design: Design
    width: int

    def draw(
        self, rows: np.ndarray, uniform: np.ndarray, *, with_means: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw levels by their probabilities; see `ColumnModel`."""
        shares = np.full((len(rows), self.width), _LEAST)
        found = self.design.asked(self.model, "predict_proba", rows)
        shares[:, self.model.classes_.astype(int)] += found
        shares /= shares.sum(1, keepdims=True)
        # the last sum may be rounded to less than a uniform number
        drawn = (shares.cumsum(1)[:, :-1] <= uniform[:, None]).sum(1)
        return drawn.astype(float), shares if with_means else None
