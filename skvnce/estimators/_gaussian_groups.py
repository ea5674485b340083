"""What `GaussianImputer` does with tables whose rows belong to groups."""

from functools import partial

import numpy as np

from skvnce._random import seed_from, seeded
from skvnce.estimators import _unused_parameters as unused
from skvnce.estimators._imputer import Imputer
from skvnce.fits import gaussian_groups as grouped
from skvnce.fits import group_checks
from skvnce.fitted.fitted import Fitted
from skvnce.fitted.gaussian import GaussianModel
from skvnce.fitted.rules import Rules
from skvnce.metrics._chains import warn_of_slow_chain


class GroupsMixin(Imputer):
    """Fit to rows of groups, and check what concerns columns of groups."""

    def _fit_groups(self, settings, table, on_round):
        """Fit to rows of groups by Gibbs sampling."""
        schema, cells = table.schema, table.cells
        unused.warn_of_unused(self, grouped.WITHOUT_EFFECT)
        unused.warn_of_unused_by_levels(self, schema)
        given = cells, schema, settings
        with seeded(seed_from(self.random_state)):
            fit = grouped.fit_groups(*given, on_round)
            report = fit.report(schema, cells, settings)
            predict = partial(grouped.predict_without, *given)
            held_out = grouped.held_out(cells, settings)
            _, found = self._held_out(schema, cells.nodes, predict, **held_out)
        self._warn_of_slow_chain(report, above=grouped.DRIFTING)
        grouped.warn_of_marginals(schema, found.marginal, self.on_misfit)
        # draws follow the model, as means know no groups
        found = found._replace(marginal=np.zeros_like(found.marginal))
        draws = fit.draws if self.n_parameter_draws else []
        report = table.report | report | found.report()
        return Fitted(schema, GaussianModel(fit.model, draws=draws), report), found

    def _warn_of_slow_chain(self, report, **options):
        """Warn if the Markov chain of the fit is short."""
        names = ("r_hat_", "latent_names_", "trace_", "n_burn_in_")
        r_hat, latents, trace, n_burn_in = (report[name] for name in names)
        of_sweep = 1 if "group_columns_" in report else 2
        chain = r_hat, latents, len(trace), n_burn_in
        warn_of_slow_chain(*chain, of_sweep=of_sweep, **options)

    def _checked(self, X):
        found = super()._checked(X)
        group_checks.check_rows(self._schema, self._cell_model(), found)
        return found

    def _wanted(self, where, X, checked):
        group_checks.check_where(self._schema, self._cell_model(), where)
        found = super()._wanted(where, X, checked)
        if not isinstance(found, Rules):
            return found
        return found._replace(of_groups=self._columns_of_groups())

    def _shift_of(self, shift):
        found = super()._shift_of(shift)
        group_checks.check_shift(self._schema, self._cell_model(), found)
        return found

    def _limits_of(self, lower, upper, X, checked):
        found = super()._limits_of(lower, upper, X, checked)
        columns = self._columns_of_groups()
        group_checks.check_limits(self._schema, columns, found, checked)
        return found

    def _columns_of_groups(self):
        return getattr(self, "group_columns_", np.zeros(0, dtype=int))
