"""Models of the rows of a reference group.

Missing values of some rows may follow the distribution of another group, for example
those of patients who stop a treatment that of patients who never had it ("copy
reference").  Their cells are drawn given their own observed cells, from a model that is
fitted to the rows of the reference group.

References
----------
Carpenter, Roger and Kenward (2013), Analysis of longitudinal trials with protocol
deviation: a framework for relevant, accessible assumptions, and inference via multiple
imputation.
"""

import warnings

import numpy as np
from sklearn.base import clone

from skvnce.tables.schema import Encoded


def fitted_to(estimator, rows, seed):
    """Fit a clone of an imputer to the rows of a reference group.

    `estimator` Imputer: fitted; its levels and columns are those of the clone; `rows`
    (n_reference, n_features); `seed` int: of the fit. Raises `ValueError`: if a column
    of the model has no observed cell in the rows, if all columns are constant there, or
    if the imputer uses a model that it does not train.
    """
    if not estimator._trains_model():
        raise ValueError(
            "reference needs a model that can be trained on its rows, but "
            f"{type(estimator).__name__} does not train its model. Pass a "
            "VariationalAutoencoder, without FrozenEstimator."
        )
    # codes of the first fit, whose levels the group may lack
    table = estimator._checked(rows)
    empty = np.isnan(table).all(0)
    unknown = [j for j in estimator._schema.with_data if empty[j]]
    if unknown:
        names = estimator._schema.labels(unknown)
        raise ValueError(
            f"reference has no observed cell in {names}, so nothing is known about the "
            "missing cells. Add rows to reference."
        )
    model = clone(estimator)
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=seed)
    with warnings.catch_warnings():  # the column of the group is constant in its rows
        warnings.filterwarnings("ignore", message="Constant where observed")
        warnings.filterwarnings("ignore", message="Entirely missing")
        model.fit(Encoded(table, estimator._schema))
    if estimator.feature_indices_.size and not model.feature_indices_.size:
        raise ValueError(
            "reference has a single value in each column, so it has no distribution. "
            "Add rows to reference."
        )
    return model
