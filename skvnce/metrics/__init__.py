r"""Scores of imputations on hidden cells, and of graph recovery.

`imputation_rmse` and `imputation_mae` evaluate one imputed table, `crps` and `coverage`
several draws of it, on the cells marked True in ``hidden`` (see `skvnce.missingness`),
whose true values are known. In data frames, and in arrays of objects with columns of
text, they score the columns of numbers and leave out categories, text, booleans and
dates. A scale may hold one entry per column, or one per column of numbers.
Tables are matched by place; one whose columns or rows have the labels of the true table
in another order is an error.

`false_classification_rate` evaluates imputed categories, `category_log_loss`,
`brier_score`, `ranked_probability_score` and `expected_calibration_error` their
probabilities, or the frequencies of their levels in draws. They leave out numbers.

`energy_distance` compares two tables as samples, `two_sample_auc` true with completed
rows, and `edge_auc` compares a ranking of pairs with the edges of a known graph.
`split_r_hat` compares the halves of Markov chains.

References
----------
Brier, G. W. (1950). Verification of forecasts expressed in terms of probability.
Monthly Weather Review, 78(1), 1-3.

Epstein, E. S. (1969). A scoring system for probability forecasts of ranked categories.
Journal of Applied Meteorology, 8(6), 985-987.

Ferro, C. A. T. (2014). Fair scores for ensemble forecasts. Quarterly Journal of the
Royal Meteorological Society, 140(683), 1917-1923.

Gelman, A., Carlin, J. B., Stern, H. S., Dunson, D. B., Vehtari, A. and Rubin, D. B.
(2013). Bayesian data analysis, third edition. Chapman and Hall.

Good, I. J. (1952). Rational decisions. Journal of the Royal Statistical Society B,
14(1), 107-114.

Guo, C., Pleiss, G., Sun, Y. and Weinberger, K. Q. (2017). On calibration of modern
neural networks. International Conference on Machine Learning.

Lopez-Paz, D. and Oquab, M. (2017). Revisiting classifier two-sample tests.
International Conference on Learning Representations.

Murphy, A. H. (1971). A note on the ranked probability score. Journal of Applied
Meteorology, 10(1), 155-156.

Naeini, M. P., Cooper, G. F. and Hauskrecht, M. (2015). Obtaining well calibrated
probabilities using Bayesian binning. AAAI Conference on Artificial Intelligence.

Stekhoven, D. J. and Buehlmann, P. (2012). MissForest: non-parametric missing value
imputation for mixed-type data. Bioinformatics, 28(1), 112-118.

Szekely, G. J. and Rizzo, M. L. (2013). Energy statistics: a class of statistics based
on distances. Journal of Statistical Planning and Inference, 143(8), 1249-1272.
"""

from skvnce.metrics._categories import (
    brier_score,
    category_log_loss,
    expected_calibration_error,
    false_classification_rate,
    ranked_probability_score,
)
from skvnce.metrics._chains import split_r_hat
from skvnce.metrics._numbers import coverage, crps, imputation_mae, imputation_rmse
from skvnce.metrics._samples import edge_auc, energy_distance, two_sample_auc

__all__ = [
    "brier_score",
    "category_log_loss",
    "coverage",
    "crps",
    "edge_auc",
    "energy_distance",
    "expected_calibration_error",
    "false_classification_rate",
    "imputation_mae",
    "imputation_rmse",
    "ranked_probability_score",
    "split_r_hat",
    "two_sample_auc",
]
