"""What a fitted normal distribution says about rows of nodes, in the units of X.

`NormalRows` are rows of numbers, and `MixedRows` are rows with categories.  Both have
the same methods.
"""

from typing import NamedTuple

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._random import row_keyed, row_lattice
from skvnce._units import Units
from skvnce.algorithms.gaussian import copula
from skvnce.algorithms.gaussian.copula import Copula
from skvnce.algorithms.mixed import fill, score
from skvnce.algorithms.mixed.columns import NUMERIC, Latents
from skvnce.algorithms.mixed.fill import Chains
from skvnce.algorithms.mixed.gibbs import Factors, at_once

_PREDICTING = Chains(n_burn_in=10, n_sweeps=30)
_BURN_IN, _APART, _LEAST_APART = 10, 5, 2  # sweeps before and between draws
_MANY = 100  # sweeps between all draws above which fewer are made between two
_SCORED = 64  # draws from which the probability of a row is estimated


def _lattice(data):
    """Make the random numbers of rows as functions of the row content."""
    return row_lattice(data.to_array(), 0)


class NormalRows(NamedTuple):
    """Rows of numbers.

    Attributes
    ----------
    model : Copula
        Of the scaled columns.
    units : Units
    """

    model: Copula
    units: Units

    def predictions(self, nodes, limits=None):
        """Fill missing cells of nodes (n, n_nodes) by their conditional means.

        Parameters
        ----------
        nodes : ndarray of shape (n, n_nodes)
        limits : CellLimits, default=None
            Of the missing cells.

        Returns
        -------
        filled : ndarray of shape (n, n_nodes)
        probabilities : dict
            Empty: there are no levels.
        """
        model = self._within(limits)
        means = copula.conditional_mean(model, self.units.scaled(nodes), _lattice)
        return self.units.restored(means), {}

    def draws(self, nodes, n_draws, limits=None):
        """Draw missing cells of nodes; (n_draws, n, n_nodes)."""
        scaled, model = self.units.scaled(nodes), self._within(limits)
        return self.units.restored(copula.draw(model, scaled, n_draws))

    def log_prob(self, nodes):
        """Compute the log-density of the observed cells of each row; (n,)."""
        found = copula.log_prob(self.model, self.units.scaled(nodes)).numpy()
        return found - self.units.log_scales(nodes)

    def moments(self, normal):
        """Convert mean and covariance to the units of X."""
        return self.units.moments(normal)

    def _within(self, limits):
        """Return the model with limits of the missing cells of rows."""
        if limits is None:
            return self.model
        location, scale = self.units.tensors()
        low, high = ((end - location) / scale for end in limits.tensors())
        if self.model.bounds is not None:
            least, most = self.model.bounds
            low, high = low.clamp(least, most), high.clamp(least, most)
        return self.model._replace(bounds=(low, high))


class MixedRows(NamedTuple):
    """Rows with categories.

    Attributes
    ----------
    latents : Latents
    kinds : list of str
        Of the columns.
    normals : list of Normal
        The estimate of the parameters, or draws of them.
    units : Units, default=None
        Of the latent variables; None means that they have none.
    """

    latents: Latents
    kinds: list
    normals: list
    units: Units | None = None

    def predictions(self, nodes, limits=None):
        """Fill by means of numbers, and by the most probable levels.

        Returns
        -------
        filled : ndarray of shape (n, n_nodes)
        probabilities : dict of int to ndarray of shape (n, n_levels)
            Those of the levels of the columns that have some, 1 and 0 where observed.
        """
        predicted, found = self._predicted(nodes, limits), {}
        cells = predicted.means.clone()
        for j, shares in enumerate(predicted.probabilities):
            if shares is not None:
                cells[:, j] = shares.argmax(1)
                seen = ~np.isnan(nodes[:, j])
                found[j] = shares.numpy().copy()
                found[j][seen] = np.eye(shares.shape[1])[nodes[seen, j].astype(int)]
        return Incomplete.from_array(nodes).with_values(cells).numpy(), found

    def draws(self, nodes, n_draws, limits=None):
        """Draw missing cells of nodes, with each of the parameters in turn."""
        turns = torch.randperm(len(self.normals)).repeat(n_draws)[:n_draws]
        normals = [self.normals[turn] for turn in turns]
        models = {id(one): Factors.of(one, self.latents) for one in normals}
        models = [models[id(one)] for one in normals]
        chains = Chains(_BURN_IN, int(np.clip(_MANY // n_draws, _LEAST_APART, _APART)))
        found = [
            fill.draw(
                self.latents,
                models,
                Incomplete.from_array(part),
                chains,
                limits=ends,
            )
            for part, ends in self._parts(nodes, limits)
        ]
        return torch.cat(found, 1).numpy()

    def log_prob(self, nodes):
        """Estimate log-probabilities, with the first of the parameters; (n,)."""
        model = self.latents, self.normals[0]
        found = [
            score.log_prob(
                *model, Incomplete.from_array(part), row_lattice(part, 0), _SCORED
            )
            for part, _ in self._parts(nodes)
        ]
        return torch.cat(found).numpy()

    def moments(self, normal):
        """Return mean and covariance of the latent variables."""
        if self.units is None:
            return normal.mean.numpy(), normal.covariance.numpy()
        return self.units.moments(normal)

    def _parts(self, nodes, limits=None):
        """Yield parts of the rows that are swept together, and their limits."""
        size = at_once(self.latents)
        for first in range(0, max(len(nodes), 1), size):
            part = slice(first, first + size)
            ends = limits and tuple(one[part] for one in limits.tensors())
            yield nodes[part], ends

    def _predicted(self, nodes, limits=None):
        ordinal = {j for j, kind in enumerate(self.kinds) if kind != NUMERIC}
        models = [Factors.of(one, self.latents) for one in self.normals]
        found = [
            fill.predict(
                self.latents,
                models,
                Incomplete.from_array(part),
                _PREDICTING,
                row_keyed(part, 0),
                ordinal,
                ends,
            )
            for part, ends in self._parts(nodes, limits)
        ]
        return fill.Predictions.joined(found)
