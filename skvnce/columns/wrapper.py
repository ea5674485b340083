"""Imputers that use other, fitted imputers."""

from contextlib import contextmanager

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skvnce._imputer.fitted import Fitted
from skvnce._imputer.imputer import Imputer
from skvnce._imputer.parts.tables import reject_groups
from skvnce._imputer.validation import OF_IMPUTERS, warn_of_unused_by_levels
from skvnce._tables.model_columns import rows_with_data
from skvnce._tables.schema import Encoded, column_of_groups
from skvnce._tables.values import column_moments
from skvnce.columns.fit import Table, fit_columns, hold_out_rows, refit
from skvnce.columns.model import ByColumns, Chains, Pool, Turns
from skvnce.exceptions import DivergenceError
from skvnce.gaussian.estimator import GaussianImputer

_SWEEPS = {"n_burn_in": 1, "n_sweeps": 2}  # of the chains of `transform`
_DRAWN = 30  # models of which tables are drawn during a fit
# classes of errors of a model in a stack, which are raised again
_ERRORS = (InvalidParameterError, DivergenceError, TypeError, ValueError)
PASSED_ON = {  # constraints of parameters for `model`; None leaves those of `model`
    "missing_values": OF_IMPUTERS["missing_values"],
    "keep_empty_features": ["boolean", None],
    "add_indicator": ["boolean", None],
    "categorical_features": OF_IMPUTERS["categorical_features"],
    "handle_unknown": [*OF_IMPUTERS["handle_unknown"], None],
}


class ByModel(Imputer):
    """Base class of imputers with the parameters `model` and `random_state`."""

    _parts = {"model": lambda _: GaussianImputer()}

    def _with_one_draw(self):
        return self._copies_with("model_", self.model_._with_one_draw())

    def _settings(self):
        """Return the imputer that decides how columns are read."""
        model = getattr(self, "model_", None)
        return (self._requested_models()[0] if model is None else model)._settings()

    def _requested_models(self):
        """List the imputers of `model`; the first reads tables by the parameters."""
        many = isinstance(self.model, list | tuple)
        default = GaussianImputer() if self.model is None else self.model
        first, *others = self.model if many else [default]
        values = {name: getattr(self, name) for name in PASSED_ON}
        parameters = {
            name: value for name, value in values.items() if value is not None
        }
        return [clone(first).set_params(**parameters) if parameters else first, *others]

    def _check_models(self):
        """Check parameters of models; tables of averages would satisfy no equations."""
        for number, model in enumerate(self._requested_models()):
            with self._named_errors(number):
                model._check_parameters()
            if isinstance(model, ByModel) and not hasattr(model, "weight"):
                name = type(self).__name__
                raise TypeError(
                    f"model of {name} cannot be {model!r}: averages do not satisfy its "
                    f"equations. Pass {name} as its model instead."
                )
            if hasattr(self, "weight"):
                reject_groups(
                    column_of_groups(getattr(model, "groups", None)).columns,
                    f"model of {type(self).__name__} cannot have groups, of which the "
                    "models of columns know nothing. Use GaussianImputer(groups=...) "
                    "itself, or leave out groups.",
                )

    @contextmanager
    def _named_errors(self, number):
        """Let errors of one of several models say which it is."""
        try:
            yield
        except _ERRORS as error:
            if not isinstance(self.model, list | tuple):
                raise
            kind = next(kind for kind in _ERRORS if isinstance(error, kind))
            raise kind(f"{self._label_of(number)} of the stack: {error}") from error

    def _label_of(self, number):
        """Name a model by its number and its class."""
        return f"model[{number}] ({type(self.model[number]).__name__})"

    def _seeded(self, rng, model=None):
        """Clone `model`, with a seed."""
        model = clone(self._requested_models()[0] if model is None else model)
        # drawn in any case, so that later numbers do not depend on the model
        seed = int(rng.integers(2**31 - 1))
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed)
        return model

    def _fit_model(self, rng, X, sample_weight, model=None):
        """Fit a clone of `model`."""
        model = self._seeded(rng, model)
        if sample_weight is None:
            return model.fit(X)
        if not has_fit_parameter(model, "sample_weight"):
            raise TypeError(
                f"{type(model).__name__}.fit takes no sample_weight. Leave it out, or "
                "pass another model, such as GaussianImputer."
            )
        return model.fit(X, sample_weight=sample_weight)

    @staticmethod
    def _report_of(model):
        """List the attributes of a fitted imputer that are those of this one."""
        report = {"model_": model}
        if hasattr(model, "indicator_"):
            report["indicator_"] = model.indicator_
        return report

    def _checked(self, X):
        check_is_fitted(self)  # before `_schema` is asked for
        # read here, so that errors name this class and not that of `model_`
        return self.model_._checked(Encoded(super()._checked(X), self._schema))

    def _mask_of(self, where, X, checked):
        return self.model_._mask_of(where, X, checked)

    def _shift_of(self, shift):
        return self.model_._shift_of(shift)

    def _trains_model(self):
        return all(model._trains_model() for model in self._joint_models())

    def _marginal_columns(self):
        return {}  # they are those of `model_`

    def _marker(self):
        """Return that of `model_`, which reads the tables, or else of `model`."""
        model = getattr(self, "model_", None)
        if model is not None:
            return model._marker()
        return self._requested_models()[0]._marker()

    def _keeps_empty(self):
        return hasattr(self, "model_") and self.model_._keeps_empty()

    def _joint_models(self):
        """List the fitted imputers that columns are averaged with."""
        return getattr(self, "models_", [self.model_])

    def _fit_columns(self, schema, joint, cells, sample_weight, rng):
        """Fit models of columns, and weigh them and the fitted joint models."""
        weights, has_cell = rows_with_data(cells, sample_weight)
        cells, weights = cells[has_cell], weights[has_cell]
        nodes = cells[:, schema.model_columns].astype(np.float64)
        scale = column_moments(nodes, weights)[1]
        held_out = np.zeros(len(nodes), dtype=bool)
        weights = None if sample_weight is None else weights
        early, learners = joint, {}
        if nodes.shape[1] > 1:  # a single column has no others that predict it
            learners = self._learners(schema, nodes)
        if len(joint) > 1 or (learners and isinstance(self.weight, str)):
            held_out = hold_out_rows(nodes)
        if held_out.any():
            rows = cells[~held_out], None if weights is None else weights[~held_out]
            seeds = rng.integers(2**31 - 1, size=len(joint)).tolist()
            early = []
            for number, (model, seed) in enumerate(zip(joint, seeds, strict=True)):
                with self._named_errors(number):
                    early.append(refit(model, *rows, seed))
        fitted = fit_columns(
            Table(nodes, weights, held_out, scale, schema.is_categorical),
            [self._turns(model, _DRAWN) for model in early],
            [self._turns(model, _DRAWN) for model in joint],
            learners,
            self.weight,
            int(self.n_completions),
            rng,
        )
        warn_of_unused_by_levels(self, schema)
        report = {
            "weights_": fitted.weights,
            "spreads_": fitted.spreads,
            "model_weights_": fitted.joint_weights,
        }
        return Fitted(schema, fitted.columns, report)

    def _by_columns(self, n_draws):
        """Make the model of all cells."""
        columns = self._fitted.model
        chains = Chains(int(self.n_draws), **_SWEEPS)
        joint = [self._turns(imputer, n_draws) for imputer in self._joint_models()]
        pool = joint[0] if len(joint) == 1 else Pool(joint, self.model_weights_)
        return ByColumns(
            pool, columns, self.weights_, self.spreads_, chains, int(self.n_steps)
        )

    def _cell_model(self):
        return self._by_columns(0)  # predictions need no models that draw

    def _drawing_models(self, n_draws, rows=None):
        return [self._by_columns(n_draws)]

    @staticmethod
    def _turns(imputer, n_draws):
        """Make the model of an imputer that fills by one, and draws by several."""
        # means whatever its `strategy`, which is for its own `transform`
        filler = imputer._valid_model()  # None if all columns are constant
        filler = filler and filler._replace(strategy="mean")
        drawers = imputer._models_of_draws(n_draws) if n_draws else []
        return Turns(filler, drawers)
