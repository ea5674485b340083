"""An imputer by mixtures of normals and of latent classes."""

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils._param_validation import StrOptions

from skvnce._random import seed_from
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._imputer import Imputer
from skvnce.estimators._validation import (
    AUTO,
    BOUND,
    N_JOBS,
    OF_IMPUTERS,
    ON_MISFIT,
    RANDOM_STATE,
    integer_from,
)
from skvnce.fits import mixtures
from skvnce.fitted.held_out_cells import hold_out
from skvnce.fitted.mixture import Averaged, MixtureModel

_REMEDY = "GaussianImputer or ForestImputer may fill them better."


class MixtureImputer(CallbackSupportMixin, Imputer):
    """Impute by averages of mixtures of normals."""

    _has_density = True
    _has_new_rows = True

    _parameter_constraints = {
        "n_components": [AUTO, integer_from(1)],
        "n_estimators": [integer_from(1)],
        "marginals": [StrOptions(set(mixtures.MARGINALS))],
        "max_iter": [integer_from(1)],
        "min_value": BOUND,
        "max_value": BOUND,
        **OF_IMPUTERS,
        "on_misfit": ON_MISFIT,
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components="auto",
        *,
        n_estimators=8,
        marginals="both",
        max_iter=12,
        min_value=None,
        max_value=None,
        missing_values=np.nan,
        keep_empty_features=False,
        add_indicator=False,
        categorical_features="from_dtype",
        handle_unknown="error",
        on_misfit="warn",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.n_estimators = n_estimators
        self.marginals = marginals
        self.max_iter = max_iter
        self.min_value = min_value
        self.max_value = max_value
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.on_misfit = on_misfit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None, sample_weight=None):
        """Fit to X."""
        return self._set(self._new()._fit(X, sample_weight))

    @reports_fit
    def _fit(self, X, sample_weight):
        """Do what `fit` does, on a copy that has no other user."""
        cells = self._read(X, sample_weight)
        self._fit_indicator(cells.table)
        on_round, finish = report_rounds(self, None, X=cells.table)
        rng = np.random.default_rng(seed_from(self.random_state))
        self._report_numbers(cells)
        with self._threads():
            self._fit_members(cells, rng, on_round)
            self._check_predictions(cells, rng)
        finish()
        return self

    def _report_numbers(self, cells):
        numbers = self.feature_indices_[~self._schema.is_categorical]
        self._report_tails(cells.table, numbers)

    def _fit_members(self, cells, rng, on_round):
        """Fit all members; each but a single one to random weights of the rows."""
        self._members = ()
        self.n_components_ = 0
        if not self.feature_indices_.size:
            return
        number = int(self.n_estimators)
        weights = [
            mixtures.posterior_weights(rng, cells.weights) if number > 1 else cells.weights
            for _ in range(number)
        ]
        self._members = tuple(
            one.plain() for one in self._fitted(cells, weights, rng, on_round)
        )
        self.n_components_ = len(self._members[0][0][0])

    def _fitted(self, cells, weights, rng, on_round):
        kinds = mixtures.MARGINALS[self.marginals]
        size = mixtures.count_components(self.n_components, *cells.nodes.shape)
        given = (
            (w, mixtures.Settings(size, int(self.max_iter), kinds[i % len(kinds)]), one)
            for i, (w, one) in enumerate(zip(weights, rng.spawn(len(weights))))
        )
        return Parallel(self.n_jobs, prefer="threads")(
            delayed(mixtures.fit_member)(cells, self._schema, *one, lambda *_: None)
            for one in given
        )

    def _check_predictions(self, cells, rng):
        """Fit without the held-out cells, and predict them."""

        def predict(kept, rows):
            some = ~np.isnan(kept).all(1)
            without = cells._replace(nodes=kept[some])
            weights = [cells.weights[some]] * len(mixtures.MARGINALS[self.marginals])
            models = self._fitted(without, weights, rng, lambda *_: None)
            filled, shares = Averaged(models).fill(kept[rows])
            columns = self.feature_indices_
            return self._schema.values.clipped(filled, columns), shares

        predict = predict if self.feature_indices_.size else None
        known = {"weights": cells.weights, "scale": cells.scale}
        self._check_held_out(cells.nodes, predict, **known)
        self._report_misfit(_REMEDY)

    def _models(self):
        return [MixtureModel.of_plain(one) for one in self._members]

    def _cell_model(self):
        return Averaged(self._models())

    def _drawing_models(self, n_draws, *, is_joint=True):
        return self._models()

    def _with_one_draw(self):
        members = [(one,) for one in self._members]
        return self._copies_with("_members", members) or [self]
