"""What `GaussianImputer` does with tables whose rows belong to groups."""

from functools import partial

import numpy as np

from skvnce._random import seed_from, seeded
from skvnce.estimators import _unused_parameters as unused
from skvnce.estimators._imputer import Imputer
from skvnce.fits import gaussian_groups as grouped
from skvnce.fits import group_checks
from skvnce.fitted.rules import Rules
from skvnce.metrics._chains import warn_of_slow_chain


class GroupsMixin(Imputer):
    """Fit to rows of groups, and check what concerns columns of groups."""

    def _with_groups(self, cells, given, X):
        """Check columns of groups, and forget groups that do not matter."""
        group_checks.check_named(self._schema, self.groups, given, X)
        known = self._schema
        schema, cells = group_checks.unless_trivial(known, cells)
        if schema is not known:
            self._set_schema(schema)
        return cells

    def _fit_groups(self, cells, settings, on_round):
        """Fit to rows of groups by Gibbs sampling."""
        unused.warn_of_unused(self, grouped.WITHOUT_EFFECT)
        unused.warn_of_unused_by_levels(self, self._schema)
        given = cells, self._schema, settings
        with seeded(seed_from(self.random_state)):
            found = grouped.fit_groups(*given, on_round)
            vars(self).update(found.attributes(self._schema, cells, settings))
            predict = partial(grouped.predict_without, *given)
            held_out = grouped.held_out(cells, settings)
            self._check_held_out(cells.nodes, predict, **held_out)
        self._warn_of_slow_chain(above=grouped.DRIFTING)
        misfit = self._schema, self.marginal_columns_, self.on_misfit
        vars(self).update(grouped.without_marginals(*misfit))

    def _warn_of_slow_chain(self, **options):
        """Warn if the Markov chain of the fit is short."""
        chain = self.r_hat_, self.latent_names_, len(self.trace_), self.n_burn_in_
        of_sweep = 1 if hasattr(self, "group_columns_") else 2
        warn_of_slow_chain(*chain, of_sweep=of_sweep, **options)

    def _checked(self, X):
        found = super()._checked(X)
        group_checks.check_rows(self._schema, getattr(self, "_model", None), found)
        return found

    def _wanted(self, where, X, checked):
        group_checks.check_where(self._schema, self._model, where)
        found = super()._wanted(where, X, checked)
        if not isinstance(found, Rules):
            return found
        return found._replace(of_groups=self._columns_of_groups())

    def _shift_of(self, shift):
        found = super()._shift_of(shift)
        group_checks.check_shift(self._schema, self._model, found)
        return found

    def _limits_of(self, lower, upper, X, checked):
        found = super()._limits_of(lower, upper, X, checked)
        columns = self._columns_of_groups()
        group_checks.check_limits(self._schema, columns, found, checked)
        return found

    def _columns_of_groups(self):
        return getattr(self, "group_columns_", np.zeros(0, dtype=int))
