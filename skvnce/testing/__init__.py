"""The NaN contract: checks of estimators for tables with missing values.

scikit-learn's ``check_estimator`` hardly ever puts NaN into a table: an imputer that
imputes nothing passes it. Run the checks below in addition to it. They apply to every
estimator with ``fit`` and ``transform`` on tables with NaN; the checks of ``score``,
``score_samples(X)`` and ``sample(X, n_draws=, random_state=)`` run if the estimator has
these methods. ``sample`` returns a list of tables in the container of ``transform``.
Data are non-negative if the estimator's tag ``input_tags.positive_only`` is set. For
transformers with their own output columns (those with scikit-learn's
``ClassNamePrefixFeaturesOutMixin``) the checks require finite values, for imputers
filled cells.
"""

from skvnce.testing._contract import check_nan_contract, nan_checks

__all__ = ["check_nan_contract", "nan_checks"]
