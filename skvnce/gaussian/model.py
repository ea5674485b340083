"""Fitted normal distributions: they fill, draw and score rows, in the units of X.

`CopulaModel` is one of numbers, and `LatentNormal` one of the latent variables of
tables with categories, or with limits of cells.  Both have the same methods.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Units
from skvnce._core.random import row_keyed, row_lattice
from skvnce._imputer.fitted import Densities, Filled, make_in_turn, repeated
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.gaussian import copula
from skvnce.gaussian.copula import Copula
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.columns import NUMERIC, Latents
from skvnce.gaussian.latent.fill import Chains, Pairs, Predictions
from skvnce.gaussian.latent.gibbs import Factors, at_once
from skvnce.gaussian.truncation import by_content

Pair = tuple[np.ndarray, np.ndarray]  # mean and covariance

_PREDICTING = Chains(n_burn_in=10, n_sweeps=30)
_BURN_IN, _APART, _LEAST_APART = 10, 5, 2  # sweeps before and between draws
_MANY = 100  # sweeps between all draws above which fewer are made between two
# a power of two, because the draws are Sobol points
_SCORED = 64  # draws from which the probability of a row is estimated


def tensors(
    limits: Limits, rows: np.ndarray | slice | tuple = slice(None)
) -> tuple[Tensor, ...]:
    """Return copies of the limits of some rows as a pair of tensors; () without."""
    return tuple(torch.tensor(end[rows]) for end in limits)


def normal_of(pair: Pair) -> Normal:
    """Make a normal distribution of its mean and covariance."""
    return Normal(*map(torch.from_numpy, pair))


def chains_of(n_draws: int, n_burn_in: int, most: int, ends: tuple) -> Chains:
    """Choose the sweeps between draws: `most` in all, and between `ends` for each."""
    return Chains(n_burn_in, int(np.clip(most // n_draws, *ends)))


def in_units(units: Units | None, pair: Pair) -> Pair:
    """Convert mean and covariance of latent variables, which may have no units."""
    return pair if units is None else units.moments(normal_of(pair))


def columns_of_levels(kinds: list) -> set[int]:
    """Return the columns whose predictions are probabilities."""
    return {j for j, kind in enumerate(kinds) if kind != NUMERIC}


def arrays_of(value: tuple) -> tuple:
    """Convert a tuple of tensors to one of arrays."""
    return tuple(part.numpy() for part in value)


class CopulaModel(NamedTuple):
    """A normal distribution of columns of numbers, or of functions of them."""

    model: Copula  # of the scaled columns
    units: Units

    def parameters(self) -> Pair:
        """Return the mean and the covariance of the scores."""
        return arrays_of(self.normal)

    def with_normals(self, pairs: Sequence[Pair]) -> Self:
        """Replace the mean and the covariance; numbers are of one pair at a time."""
        model = self.model._replace(normal=normal_of(pairs[0]))
        return self._replace(model=model)

    def given_rows(
        self, parameters: list[Pair], nodes: np.ndarray, n_draws: int
    ) -> list[Self]:
        """List a model of each parameters; given it, rows are independent."""
        return [self.with_normals([pair]) for pair in parameters]

    def with_signs(self, signs: np.ndarray) -> Self:
        """Leave out the tails of columns whose cells have lost their common sign."""
        tails = self.model.tails and self.model.tails.within(torch.from_numpy(signs))
        return self._replace(model=self.model._replace(tails=tails))

    @property
    def normal(self) -> Normal:
        """The distribution of the scores."""
        return self.model.normal

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill missing cells of nodes (n, n_nodes) by their conditional means.

        `nodes` (n, n_nodes); `limits`: of the missing cells.  Returns `filled` (n,
        n_nodes); `probabilities`: empty: there are no levels.
        """
        model = self._within(limits)
        means = copula.conditional_mean(model, self.units.scaled(nodes), by_content)
        return self.units.restored(means), {}

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        model, scaled = self._within(limits), self.units.scaled(nodes)
        cells = copula.quantiles(model, scaled, torch.tensor(levels), by_content)
        return self.units.restored(cells), {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells of nodes; (n_draws, n, n_nodes)."""
        scaled, model = self.units.scaled(nodes), self._within(limits)
        return self.units.restored(copula.draw(model, scaled, n_draws))

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = False) -> Densities:
        """Compute log-densities of rows, and their standard errors, 0; each (n,)."""
        log_probs = copula.log_prob(self.model, self.units.scaled(nodes)).numpy()
        return log_probs - self.units.log_scales(nodes), np.zeros(len(nodes))

    def moments(self, pair: Pair) -> Pair:
        """Convert mean and covariance to the units of X."""
        return self.units.moments(normal_of(pair))

    def _within(self, limits: Limits) -> Copula:
        """Return the model with limits of the missing cells of rows."""
        bounds = limits.scaled(*self.units, self.model.bounds)
        bounds = bounds and tuple(map(torch.as_tensor, bounds))
        return self.model._replace(bounds=bounds)


class LatentNormal(NamedTuple):
    """A normal distribution of the latent variables of columns."""

    latents: Latents
    kinds: list  # of the columns
    normals: list  # the estimate of the parameters, or draws of them
    # of the latent variables; None means that they have none
    units: Units | None = None

    of_sweep = 2  # what a sweep counts in `max_iter`
    given_rows = CopulaModel.given_rows

    def parameters(self) -> Pair:
        """Return the first mean and covariance of the latent variables."""
        return arrays_of(self.normal)

    def with_normals(self, pairs: Sequence[Pair]) -> Self:
        """Replace the parameters, which draws use in turn."""
        return self._replace(normals=[normal_of(pair) for pair in pairs])

    @property
    def normal(self) -> Normal:
        """The distribution of the latent variables, by the first parameters."""
        return self.normals[0]

    def fill(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Filled:
        """Fill by means of numbers, and by the most probable levels.

        Returns `filled` (n, n_nodes); `probabilities` (n, n_levels): those of the
        levels of the columns that have some, 1 and 0 where observed.
        """
        levels = columns_of_levels(self.kinds)
        parts = [fill.predict(pairs, levels) for pairs in self._pairs(nodes, limits)]
        return filled_by(Predictions.joined(parts), nodes)

    def points(
        self, nodes: np.ndarray, levels: np.ndarray, limits: Limits = NO_LIMITS
    ) -> Filled:
        """Find quantiles of missing cells; see `_imputer.fill`."""
        levels = torch.tensor(levels)
        parts = [fill.quantiles(pairs, levels) for pairs in self._pairs(nodes, limits)]
        has_levels = columns_of_levels(self.kinds)
        probabilities = self.fill(nodes, limits)[1] if has_levels else {}
        return torch.cat(parts, 1).numpy(), probabilities

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells of nodes, with each of the parameters in turn."""
        models = make_in_turn(
            self.normals, n_draws, lambda normal: Factors.of(normal, self.latents)
        )
        chains = chains_of(n_draws, _BURN_IN, _MANY, (_LEAST_APART, _APART))
        tables = [
            fill.draw(
                self.latents, models, Incomplete.from_array(part), chains, limits=ends
            )
            for part, ends in self._parts(nodes, limits)
        ]
        return torch.cat(tables, 1).numpy()

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = False) -> Densities:
        """Estimate log-probabilities, with the first of the parameters; each (n,).

        Errors are the standard deviations of other estimates: points of a lattice are
        not independent draws, and the variance within them is far too large.
        """
        return repeated(partial(self._log_prob, nodes), with_errors=with_errors)

    def _log_prob(self, nodes: np.ndarray, seed: int) -> np.ndarray:
        model = self.latents, self.normals[0]
        parts = [
            fill.log_prob(
                *model, Incomplete.from_array(part), row_lattice(part, seed), _SCORED
            )
            for part, _ in self._parts(nodes)
        ]
        return torch.cat(parts).numpy()

    def moments(self, pair: Pair) -> Pair:
        """Return mean and covariance of the latent variables."""
        return in_units(self.units, pair)

    def _parts(self, nodes: np.ndarray, limits: Limits = NO_LIMITS) -> Iterator:
        """Yield parts of the rows that are swept together, and their limits."""
        size = at_once(self.latents)
        # one part at least, because parts are concatenated
        for first in range(0, max(len(nodes), 1), size):
            part = slice(first, first + size)
            yield nodes[part], tensors(limits, part)

    def _pairs(self, nodes: np.ndarray, limits: Limits) -> Iterator[Pairs]:
        """Yield parts of the rows, whose cells chains predict."""
        models = [Factors.of(normal, self.latents) for normal in self.normals]
        for part, ends in self._parts(nodes, limits):
            data, numbers = Incomplete.from_array(part), row_keyed(part, 0)
            yield Pairs(self.latents, models, data, _PREDICTING, numbers, ends)


def filled_by(predicted: Predictions, nodes: np.ndarray) -> Filled:
    """Fill nodes by means, or by the most probable levels; see `LatentNormal.fill`."""
    cells, probabilities = predicted.means.clone(), {}
    for j, shares in enumerate(predicted.probabilities):
        if shares is not None:
            cells[:, j] = shares.argmax(1)
            observed = ~np.isnan(nodes[:, j])
            probabilities[j] = shares.numpy().copy()
            probabilities[j][observed] = np.eye(shares.shape[1])[
                nodes[observed, j].astype(int)
            ]
    return Incomplete.from_array(nodes).with_values(cells).numpy(), probabilities
