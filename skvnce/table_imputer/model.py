"""The fitted model: it fills and draws the missing cells of any rows."""

from typing import NamedTuple

import numpy as np
import torch

from skvnce._core.warnings import warn_user
from skvnce._imputer.fitted import in_turn
from skvnce.table_imputer import draws
from skvnce.table_imputer.columns import Filling, Rows
from skvnce.table_imputer.expansion import ALONE, Expansion
from skvnce.table_imputer.levels import levels_at
from skvnce.table_imputer.normal import Fit, Normal, completed

FEWEST = 10  # observed cells, from which on a column has a model of its own
ROWS_OF_CHAIN = 2000  # by which parameters are drawn
MOST_ROWS = 5000  # from which the model of a column is fitted
_GAIN = 0.15  # of a forest that draws factors; products alone give .07 at most
_WITHOUT_PRODUCTS = (
    "Draws with the products of interactions_ do not stay finite, and are without "
    "them. Transform columns with very large values, or set interactions=None."
)
_DIGITS = 12  # of numbers: standardised and back, 0 is 1e-14
# of missing cells that would be negative: their number, their share, and that over the
# share of observed ones, above which they seem to be
_FEW, _MANY, _TIMES = 5, 0.05, 4.0


class Settings(NamedTuple):
    """What `fit` was asked for."""

    n_trees: int | None  # of each forest; None chooses it
    n_draws: int  # of the parameters
    share: float  # of the prior, in rows for each column
    seed: int


class Training(NamedTuple):
    """Rows that models of columns and draws of parameters are fitted to."""

    cells: np.ndarray  # (n, p)
    weights: np.ndarray  # (n,)
    folds: np.ndarray  # (n,), the fold in which a row is held out
    weight_of_all: float  # of which these rows may be a sample


class Mates(NamedTuple):
    """Columns from which another one follows: where that is missing, one of them is."""

    columns: np.ndarray  # int, among those of the order
    is_lookup: bool  # whether equal cells must be in another row


class Source(NamedTuple):
    """Where the columns of a model are in the rows that are filled.

    They are in an order of their own, that of their content.  Those that follow from
    others stay missing, see `skvnce._imputer.related`.
    """

    order: np.ndarray  # (p,), places of the columns
    # of each column of the rows, -1 or 1: negative numbers are modelled as positive
    # ones, so that losses have logarithms as incomes do
    signs: np.ndarray
    mates: list  # (p,) of lists of Mates, for each column

    def signed(self, cells):
        """Change the signs of cells (..., n, columns of the rows); zero has none."""
        return cells * self.signs + 0.0


class TableModel(NamedTuple):
    """A normal distribution of the expanded table, and a model of each column."""

    source: Source
    expansion: Expansion
    normal: Fit
    held_out: list  # of Normal, without the rows of each fold
    training: Training
    settings: Settings
    columns: dict  # of Filling, or None; by column, fitted when first needed
    cache: dict  # the matrix of the training rows, and the posterior; not stored

    def n_chains(self, n_draws):
        """Return how many copies of the rows are in memory at a time."""
        return 3 * max(1, n_draws or 1)  # with features, and proposals

    def fill(self, nodes, limits=None):
        """Fill missing cells; see `skvnce._imputer.fitted.CellModel`."""
        source, probabilities = self.source, {}
        filled = source.signed(nodes)
        for q, rows, completions in self._completed_gaps(filled[:, source.order]):
            part, node = self.expansion.parts[q], source.order[q]
            predicted = self._predicted(q, completions)
            if part.is_number:
                filled[rows, node] = unscaled(part, predicted)
                continue
            if not part.are_codes:
                filled[rows, node] = predicted @ part.values
                continue
            filled[rows, node] = predicted.argmax(1)
            probabilities[node] = in_rows(predicted, rows, len(nodes))
        return source.signed(filled), probabilities

    def points(self, nodes, levels, limits=None):
        """Compute quantiles of missing cells; see `skvnce._imputer.fill`."""
        source, probabilities = self.source, {}
        nodes = source.signed(nodes)
        points = np.repeat(nodes[None], len(levels), 0)
        for q, rows, completions in self._completed_gaps(nodes[:, source.order]):
            part, node, model = self.expansion.parts[q], source.order[q], self.column(q)
            at = levels if source.signs[node] > 0 else 1 - levels
            if part.is_number and model is not None:
                quantiles = model.quantiles(Rows.of(completions, part), at)
                points[:, rows, node] = unscaled(part, quantiles)
                continue
            predicted = self._predicted(q, completions)
            if part.is_number:
                points[:, rows, node] = unscaled(part, predicted)
                continue
            places = levels_at(predicted, at[:, None])
            points[:, rows, node] = places if part.are_codes else part.values[places]
            if part.are_codes:
                probabilities[node] = in_rows(predicted, rows, len(nodes))
        return source.signed(points), probabilities

    def _completed_gaps(self, cells):
        """Yield columns, the rows where they are missing, and these, completed."""
        X, expansion = self.expansion.matrix(cells), self.expansion
        F = self.completed(X, np.isnan(X)) if X.size else X
        for q in range(len(expansion.parts)):
            rows = np.flatnonzero(np.isnan(cells[:, q]))
            if len(rows):
                yield q, rows, F[rows]

    def _predicted(self, q, completions):
        """Predict numbers (n,), or probabilities (n, n_levels), in rows (n, d)."""
        part, model = self.expansion.parts[q], self.column(q)
        if model is not None:
            return model.predict(Rows.of(completions, part))[0]
        if part.is_number:
            return completions[:, part.base[0]]
        return np.tile(part.shares, (len(completions), 1))

    def completed(self, X, gone):
        """Fill cells of a matrix (n, d), where `gone`, by the normal distribution."""
        return completed(X, gone, Normal.of(*self.normal[:2]))

    def column(self, q):
        """Fit the model of a column, once; None if it has too few cells."""
        if q not in self.columns:
            self.columns[q] = self._fitted_column(q)
        return self.columns[q]

    def _has_model(self, q):
        n_observed = (~np.isnan(self.training.cells[:, q])).sum()
        return self.expansion.parts[q].kind != ALONE and n_observed >= FEWEST

    def _fitted_column(self, q):
        if not self._has_model(q):
            return None
        part, training = self.expansion.parts[q], self.training
        seed = self.settings.seed + q
        rows = draws.observed_rows(training.cells[:, q], MOST_ROWS, seed)
        filled, L = self.held_out_predictions(q, rows, self._gone_with(q, rows))
        return Filling.of(
            self.expansion,
            part,
            training.cells[rows, q],
            Rows(filled[None], L[None], L[None]),
            training.weights[rows],
            self.settings.n_trees,
            seed,
        )

    def _gone_with(self, q, rows):
        """Choose cells that are missing where a column is (n_rows, d)."""
        parts, cells = self.expansion.parts, self.training.cells[rows]
        gone = np.zeros((len(rows), self.training_matrix().shape[1]), bool)
        rng = np.random.default_rng([self.settings.seed, 2, q])
        for mates, is_lookup in self.source.mates[q]:
            turns = mates[rng.integers(len(mates), size=len(rows))]
            turns[np.isnan(cells[:, mates]).any(1)] = -1
            if is_lookup:  # from a key of one row alone nothing follows
                _, place, counts = np.unique(
                    cells[:, mates], axis=0, return_inverse=True, return_counts=True
                )
                turns[counts[place] == 1] = -1
            for mate in mates:
                gone[np.ix_(turns == mate, parts[mate].block)] = True
        return gone

    def held_out_predictions(self, q, rows, hidden=False):
        """Predict a column of training rows by fits without them.

        `hidden`, bool (n_rows, d): other cells that are hidden.

        Returns `filled` (n_rows, d): the rows, completed as if the column were missing;
        `L` (n_rows, len(responses)).
        """
        part, training = self.expansion.parts[q], self.training
        X, gone = self._rows_without(q, rows, hidden)
        filled = self.completed(X, gone)
        L = np.empty((len(rows), len(part.responses)))
        for fold, normal in enumerate(self.held_out):
            in_fold = training.folds[rows] == fold
            if in_fold.any():
                of_fold = completed(X[in_fold], gone[in_fold], normal)
                L[in_fold] = of_fold[:, part.responses]
        return filled, L

    def _rows_without(self, q, rows, hidden=False):
        """Return training rows, and their missing cells with those of a column."""
        X = self.training_matrix()[rows]
        gone = np.isnan(X) | hidden
        gone[:, self.expansion.parts[q].block] = True
        return X, gone

    def predictions(self, q, rows):
        """Complete training rows as if a column were missing, by the fit of all."""
        return self.completed(*self._rows_without(q, rows))

    def negative_shares(self):
        """Map columns of positive numbers to the share of missing cells below 0.

        So the others predict them, by the normal distribution, and not the observed
        ones: where a column ends is a guess then.
        """
        X, shares = self.training_matrix(), {}
        parts = {
            q: part
            for q, part in enumerate(self.expansion.parts)
            if part.is_number and part.is_positive and part.values[0] and not part.link
        }
        filled = self.completed(X, np.isnan(X)) if parts else X
        for q, part in parts.items():
            zero, gone = -part.centre[0] / part.scale[0], np.isnan(X[:, part.base[0]])
            below = filled[gone, part.base[0]] < zero
            if below.sum() <= _FEW or below.mean() < _MANY:
                continue
            rows = draws.some_rows(np.flatnonzero(~gone), MOST_ROWS, self.settings.seed)
            of_observed = self.predictions(q, rows)[:, part.base[0]] < zero
            if below.mean() > _TIMES * of_observed.mean():
                shares[int(self.source.order[q])] = below.mean()
        return shares

    def training_matrix(self):
        """Return the matrix (n, d) of the training rows, which is not to be changed."""
        if "matrix" not in self.cache:
            self.cache["matrix"] = self.expansion.matrix(self.training.cells)
        return self.cache["matrix"]

    def posterior(self):
        """Draw parameters and completions of the training rows, once."""
        if "posterior" not in self.cache:
            X, (rows, chain) = self.training_matrix(), self._chain()
            total = self.training.weight_of_all
            posterior = self._posterior_of(self.expansion, chain, total)
            rng = chain.rng
            if len(rows) < len(X):
                first = posterior.normals.of_turns(slice(draws.COMPLETIONS))
                copies = np.repeat(X[None], len(first.mean), 0)
                states = draws.completions(copies, first, rng)
                posterior = posterior._replace(states=states)
            self.cache["posterior"] = posterior
        return self.cache["posterior"]

    def _posterior_of(self, expansion, chain, total):
        """Draw parameters; without products, if with them cells run away."""
        try:
            return draws.run_chain(expansion, self.normal, chain, total)
        except np.linalg.LinAlgError as error:
            expansion = without_products(expansion)
            if expansion is None:
                raise ValueError(explain_singular(self.training.weights)) from error
            return self._posterior_of(expansion, chain, total)

    def slopes_on_products(self):
        """Draw slopes of targets on their products (n_rounds, n_draws, n_products).

        Returns them, completions of rows (n_draws, n, d), and their Chain.
        """
        _, chain = self._chain()
        drawn = draws.slopes_on_products(self.expansion, self.normal, chain)
        return *drawn, chain

    def _chain(self):
        """Choose rows for a chain, and begin it."""
        training, settings = self.training, self.settings
        X = self.training_matrix()
        rows = draws.some_rows(np.arange(len(X)), ROWS_OF_CHAIN, settings.seed)
        rng = np.random.default_rng([settings.seed, 1])
        weights = training.weights[rows]
        correlation = self.expansion.correlation(X)
        options = settings.share, correlation, settings.n_draws, rng
        return rows, draws.Chain.of(X[rows], weights, *options)

    def with_one_draw(self):
        """List models that have one draw of the parameters each."""
        normals = self.posterior().normals
        return [
            self._replace(cache={**self.cache, "normals": normals.of_turns([k])})
            for k in range(len(normals.mean))
        ]

    def draw(self, nodes, n_draws, limits=None):
        """Draw missing cells; see `skvnce._imputer.fitted.CellModel`."""
        rng = np.random.default_rng(torch.randint(2**62, (1,)).item())
        source = self.source
        nodes = source.signed(nodes)
        cells, drawn = nodes[:, source.order], np.repeat(nodes[None], n_draws, 0)
        gone = np.isnan(cells)
        columns = np.flatnonzero(gone.any(0))
        proposers = {}
        if any([self._has_model(q) for q in columns]):
            posterior = self.posterior()
            for q in self._sweep_order(columns):
                proposers[q] = self._proposers_of(posterior, q)
            normals = self.cache.get("normals", posterior.normals)
            normals = normals.of_turns(in_turn(len(normals.mean), n_draws))
            X, expansion = self.expansion.matrix(cells), self.expansion
            summed = [q for q in columns if source.mates[q]]
            try:
                cells_of = draws.draw_cells(
                    normals, expansion, X, proposers, rng, summed
                )
            except np.linalg.LinAlgError:
                expansion = without_products(expansion)
                if expansion is None:
                    raise
                plain = self._replace(expansion=expansion, cache={})
                return plain.draw(source.signed(nodes), n_draws)
            for q, values in cells_of.items():
                rows, part = np.flatnonzero(gone[:, q]), self.expansion.parts[q]
                if part.is_number:
                    values = unscaled(part, values)
                elif not part.are_codes:
                    values = part.values[values]
                drawn[:, rows, source.order[q]] = values
        for q in columns:
            if q not in proposers:
                shape = n_draws, gone[:, q].sum()
                drawn[:, gone[:, q], source.order[q]] = self._observed(q, shape, rng)
        return source.signed(drawn)

    def _sweep_order(self, columns):
        """Order columns by the number of their missing cells in the training rows.

        Levels that start as shares of rows come last, see `draws.draw_cells`.
        """
        n_missing, parts = np.isnan(self.training.cells).sum(0), self.expansion.parts
        modelled = [int(q) for q in columns if self._has_model(q)]
        return sorted(modelled, key=lambda q: (parts[q].is_binary, n_missing[q]))

    def _proposers_of(self, posterior, q):
        training, settings = self.training, self.settings
        part, n_trees = self.expansion.parts[q], settings.n_trees
        if draws.parts_told(self.expansion, part):
            # a forest would know what targets tell, which counts twice
            n_trees = n_trees if self.column(q).model.gain >= _GAIN else 0
        return draws.proposers_of(
            posterior,
            self.expansion,
            q,
            training.cells,
            training.weights,
            n_trees,
            MOST_ROWS,
            settings.seed + q,
        )

    def _observed(self, q, shape, rng):
        """Draw observed cells of a column that has no model."""
        column, weights = self.training.cells[:, q], self.training.weights
        observed = ~np.isnan(column)
        p = weights[observed] / weights[observed].sum()
        return rng.choice(column[observed], size=shape, p=p)


def without_products(expansion):
    """Make products unlikely, with a warning; None if there are none."""
    if not any(product.probability for product in expansion.products):
        return None
    warn_user(_WITHOUT_PRODUCTS)
    unlikely = [product._replace(probability=0.0) for product in expansion.products]
    return expansion._replace(products=unlikely)


def in_rows(probabilities, rows, n):
    """Put the probabilities of the levels of some of n rows into a table of zeros."""
    table = np.zeros((n, probabilities.shape[1]))
    table[rows] = probabilities
    return table


def unscaled(part, values):
    """Convert standardised numbers of a column to its units, without noise."""
    centre, scale = part.centre[0], part.scale[0]
    # relative to the deviation, as far as floats near the mean carry that
    digits = _DIGITS - int(np.ceil(np.log10(scale)))
    spacing = 4 * np.spacing(abs(centre) + scale)
    digits = min(digits, int(np.floor(-np.log10(spacing))))
    values = np.round(values * scale + centre, min(max(digits, -300), 300))
    # far below the deviation, rounding leaves no sign
    return values if part.link is None else np.maximum(values, part.link.lowest * scale)


def explain_singular(weights):
    """Explain a covariance matrix that cannot be inverted; `weights` (n,)."""
    remedy = "Drop columns that others determine, or rescale columns with outliers."
    if (weights != 1).any():
        remedy = (
            f"By sample_weight, its {len(weights)} rows count as {weights.sum():.3g}, "
            f"and a row as up to {weights.max():.3g}, beside which the prior has no "
            "effect. Divide them by their mean: sample_weight / sample_weight.mean()."
        )
    return f"A covariance matrix of the table is singular. {remedy}"
