"""Imputers that use another, fitted imputer, their `model_`."""

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skvnce._memory import needs_memory
from skvnce.estimators._gaussian import GaussianImputer
from skvnce.estimators._imputer import Imputer

_OF_MODEL = (
    "feature_indices_",
    "constants_",
    "feature_ranges_",
    "indicator_",
    "_valid",
    "_spreads",
)


class ByModel(Imputer):
    """Base class of imputers with the parameters `model` and `random_state`."""

    def _with_one_draw(self):
        return self._copies_with("model_", self.model_._with_one_draw())

    def _settings(self):
        """Return the imputer that decides how columns are read."""
        model = getattr(self, "model_", self.model)
        return (GaussianImputer() if model is None else model)._settings()

    def _seeded(self, rng):
        """Clone `model`, with a seed."""
        model = GaussianImputer() if self.model is None else clone(self.model)
        # drawn in any case, so that later numbers do not depend on the model
        seed = int(rng.integers(2**31 - 1))
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed)
        return model

    def _fitted_model(self, rng, X, sample_weight):
        """Fit a clone of `model`."""
        model = self._seeded(rng)
        if sample_weight is None:
            return model.fit(X)
        if not has_fit_parameter(model, "sample_weight"):
            raise TypeError(
                f"{type(model).__name__}.fit takes no sample_weight. Leave it out, or "
                "pass another model, such as GaussianImputer."
            )
        return model.fit(X, sample_weight=sample_weight)

    def _set_fitted_model(self, base):
        """Take over what the other imputer has learned about the columns."""
        self.model_ = base
        self._set_columns(base._schema)
        for name in _OF_MODEL:
            if hasattr(base, name):
                setattr(self, name, getattr(base, name))

    def _checked(self, X):
        check_is_fitted(self)
        self._check_parameters()
        needs_memory(type(self), X, reset=False)
        return self.model_._checked(X)

    def _trains_model(self):
        return self.model_._trains_model()

    def _marginal_columns(self):
        return {}  # they are those of `model_`

    def _marker(self):
        """Return that of `model_`, which reads the tables, or else of `model`."""
        model = getattr(self, "model_", self.model)
        return np.nan if model is None else model._marker()

    def _keeps_empty(self):
        return hasattr(self, "model_") and self.model_._keeps_empty()
