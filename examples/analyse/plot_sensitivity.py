"""
====================================================
Does a result depend on why values are missing?
====================================================

Do people who exercise on more days have a lower body mass index?  Half of the adults of
the survey did not say on how many days they exercise, and probably because they do not.
Here their days are drawn, first as if they were like similar adults who answered, and
then lower and lower.  A sensitivity curve shows at which assumption the conclusion
changes.
"""

# %%
# What is missing
# ---------------
# Each row of the picture is a pattern of missing cells; the number of adults with it is
# at the right.  The days of exercise are missing in about half of all rows, and mostly
# alone.

import warnings

import matplotlib.pyplot as plt
import statsmodels.formula.api as smf

from skvnce import GaussianImputer
from skvnce.datasets import load_nhanes
from skvnce.inspection import ImputationDisplay, MissingnessDisplay, SensitivityDisplay
from skvnce.pooling import fit_each, pool_models, sensitivity_curve

columns = ["Age", "Gender", "Education", "Poverty", "Height", "BMI", "Pulse"]
columns += ["BPSysAve", "DirectChol", "SleepHrsNight", "PhysActiveDays"]
adults = load_nhanes(as_frame=True, categories=True).data[columns][::4]
MissingnessDisplay.from_frame(adults, max_patterns=10)
plt.show()

# %%
# Draws
# -----
# If values are missing at random, the days of those who did not answer follow those of
# similar adults who did.  Drawn days (red) are then distributed nearly like observed
# ones (blue).

imputer = GaussianImputer(random_state=0).set_output(transform="pandas").fit(adults)
draws = imputer.sample(adults, n_draws=20, random_state=0)
ImputationDisplay.from_draws(
    adults, draws, columns=["PhysActiveDays", "Poverty", "Education"]
)
plt.show()

# %%
# The answer, if values are missing at random
# -------------------------------------------


def regression(table):
    """Regress the body mass index on days of exercise."""
    return smf.ols("BMI ~ Age + Gender + PhysActiveDays", table).fit()


pooled = pool_models(fit_each(regression, draws))
print(pooled.summary()[["coef", "se", "low", "high", "p"]].round(3).to_string())

# %%
# The answer under other assumptions
# ----------------------------------
# A shift of -1 says: the missing days are lower, by one standard deviation of the
# observed ones, than those of similar adults.  Filled days stay within the range of
# answers, so that the mean moves by less: warnings, which are not shown here, say by
# how much.  The interval is that of 95 %.  The curve uses the same random numbers for
# all shifts, others than the draws above, so that its first row differs a little from
# the table above.

shifts = [{"PhysActiveDays": by} for by in (0, -0.5, -1, -1.25)]
with warnings.catch_warnings(action="ignore"):
    curve = sensitivity_curve(
        imputer, adults, regression, shifts, n_draws=20, random_state=0
    )
# sphinx_gallery_thumbnail_number = 3
display = SensitivityDisplay.from_curve(curve, "PhysActiveDays")
plt.show()
print(curve.summary("PhysActiveDays").round(3).to_string())
print("Tipping point:", display.tipping_point)

# %%
# What the figure shows.  If values are missing at random, the interval contains zero:
# the survey does not show that days of exercise and body mass are associated.  If those
# who did not answer exercise clearly less than similar adults who did, it does.  The
# answer depends on an assumption that the data cannot check, and a report should say
# so.  The dotted line is the tipping point, the first of the listed shifts with another
# conclusion.
