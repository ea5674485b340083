"""Which imputer for this table: hidden cells of it, and scores without truth.

`missing_report` looks at a table before it is imputed, in one page of HTML.
`imputation_report` hides observed cells of a table, lets several imputers fill and draw
them, and sets the scores of `skvnce.metrics` in one data frame.
`skvnce.inspection.ReportDisplay` draws it. `energy_i_score` hides nothing that an
imputer learns from: it scores imputations of the cells that are really missing.

References
----------
Näf, J., Grzesiak, K. and Scornet, E. (2025). How to rank imputation methods?
arXiv:2507.11297.

Näf, J., Spohn, M. L., Michel, L. and Meinshausen, N. (2022). Imputation scores.
arXiv:2106.03742.
"""

from skvnce.evaluation._missing_report import MissingReport, missing_report
from skvnce.evaluation._report import (
    EnergyIScore,
    energy_i_score,
    imputation_report,
    own_patterns,
)

__all__ = [
    "EnergyIScore",
    "MissingReport",
    "energy_i_score",
    "imputation_report",
    "missing_report",
    "own_patterns",
]
