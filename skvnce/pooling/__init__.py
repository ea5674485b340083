r"""From the analyses of several completed tables to one answer.

`fit_each` analyses each of the tables that ``sample`` of an imputer draws, and `pool`
combines estimates and variances by Rubin's rules. `pool_models` takes them from fitted
models of statsmodels and scikit-learn, and `pooled_table` prints them side by side.
`wald_test` (D1), `chi2_test` (D2) and `likelihood_ratio_test` (D3) test several
coefficients at once. `sensitivity_curve` repeats an analysis under other assumptions on
missing values.

References
----------
Barnard, J. and Rubin, D. B. (1999). Small-sample degrees of freedom with multiple
imputation. Biometrika, 86(4), 948-955.

Li, K. H., Meng, X. L., Raghunathan, T. E. and Rubin, D. B. (1991). Significance levels
from repeated p-values with multiply-imputed data. Statistica Sinica, 1(1), 65-92.

Li, K. H., Raghunathan, T. E. and Rubin, D. B. (1991). Large-sample significance levels
from multiply imputed data using moment-based statistics and an F reference
distribution. Journal of the American Statistical Association, 86(416), 1065-1073.

Meng, X. L. and Rubin, D. B. (1992). Performing likelihood ratio tests with
multiply-imputed data sets. Biometrika, 79(1), 103-111.

Reiter, J. P. (2007). Small-sample degrees of freedom for multi-component significance
tests with multiple imputation for missing data. Biometrika, 94(2), 502-508.

Rubin, D. B. (1987). Multiple imputation for nonresponse in surveys. Wiley.
"""

from skvnce.pooling._hypotheses import (
    PooledTest,
    chi2_test,
    likelihood_ratio_test,
    wald_test,
)
from skvnce.pooling._models import (
    SensitivityCurve,
    fit_each,
    pool_models,
    sensitivity_curve,
)
from skvnce.pooling._rules import Pooled, pool
from skvnce.pooling._tables import PooledTable, pooled_table

__all__ = [
    "Pooled",
    "PooledTable",
    "PooledTest",
    "SensitivityCurve",
    "chi2_test",
    "fit_each",
    "likelihood_ratio_test",
    "pool",
    "pool_models",
    "pooled_table",
    "sensitivity_curve",
    "wald_test",
]
