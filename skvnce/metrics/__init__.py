r"""Scores of imputations on hidden cells, and of graph recovery.

`imputation_rmse` evaluates one imputed table, `crps` and `coverage` several draws of
it, on the cells marked True in ``hidden`` (see `skvnce.missingness`), whose true values
are known. In data frames, and in arrays of objects with columns of text, they score the
columns of numbers and leave out categories, text, booleans and dates. A scale may hold
one entry per column, or one per column of numbers.

`false_classification_rate` evaluates imputed categories, `brier_score` their
probabilities, or the frequencies of their levels in draws. They leave out numbers.

`two_sample_auc` compares true with completed rows, and `edge_auc` a ranking of pairs
with the edges of a known graph. `split_r_hat` compares the halves of Markov chains.

References
----------
Brier, G. W. (1950). Verification of forecasts expressed in terms of probability.
Monthly Weather Review, 78(1), 1-3.

Ferro, C. A. T. (2014). Fair scores for ensemble forecasts. Quarterly Journal of the
Royal Meteorological Society, 140(683), 1917-1923.

Gelman, A., Carlin, J. B., Stern, H. S., Dunson, D. B., Vehtari, A. and Rubin, D. B.
(2013). Bayesian data analysis, third edition. Chapman and Hall.

Lopez-Paz, D. and Oquab, M. (2017). Revisiting classifier two-sample tests.
International Conference on Learning Representations.

Stekhoven, D. J. and Buehlmann, P. (2012). MissForest: non-parametric missing value
imputation for mixed-type data. Bioinformatics, 28(1), 112-118.
"""

from skvnce.metrics._categories import (
    brier_score,
    false_classification_rate,
)
from skvnce.metrics._chains import split_r_hat
from skvnce.metrics._numbers import coverage, crps, imputation_rmse
from skvnce.metrics._samples import edge_auc, two_sample_auc

__all__ = [
    "brier_score",
    "coverage",
    "crps",
    "edge_auc",
    "false_classification_rate",
    "imputation_rmse",
    "split_r_hat",
    "two_sample_auc",
]
