"""
=====================================
Filling a table, and drawing its holes
=====================================

A frame of measurements of US adults has holes.  `GaussianImputer` fits a normal
distribution to all of its rows, fills the holes by their conditional means, and draws
them with the spread that the unknown values have.
"""

# %%
# The data
# --------
# Nineteen measurements from the NHANES survey; a column misses up to 57 % of its cells.

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skvnce import GaussianImputer

here = Path(__file__).parent if "__file__" in globals() else Path.cwd()
sys.path.insert(0, str(here.resolve().parent / "benchmarks"))
from _data import load  # noqa: E402

X = load("nhanes_adults").select_dtypes("number")
holes = pd.DataFrame({"missing": X.isna().mean(), "skewness": X.skew()})
print(holes.query("missing > 0.05").sort_values("missing").round(2))

# %%
# Frame in, frame out
# -------------------
# Nothing has to be chosen.  `fit_transform` fills each hole by its mean given the
# observed cells of the same row; observed cells stay as they are.

imputer = GaussianImputer(random_state=0).set_output(transform="pandas")
filled = imputer.fit_transform(X)
print(f"Holes before: {X.isna().sum().sum()}, after: {filled.isna().sum().sum()}.")
print(filled.loc[X["Testosterone"].isna(), ["Age", "Weight", "Testosterone"]].head())

# %%
# Means are the best single guesses, and no data: they vary less than the values that
# they stand for.  Draws vary as much.


def spread(column):
    """Compare the spreads of observed cells, of their means and of draws."""
    gone = X[column].isna()
    place = X.columns.get_loc(column)
    return {
        "observed": X[column].std(),
        "means": filled.loc[gone, column].std(),
        "draws": draws[:, gone, place].std(),
    }


draws = imputer.sample(X, n_draws=5, random_state=0)
columns = ["Poverty", "TotChol", "Testosterone", "PhysActiveDays", "AlcoholDay"]
print("Standard deviations:")
print(pd.DataFrame({c: spread(c) for c in columns}).T.round(2))

# %%
# A skewed column
# ---------------
# Draws of a normal distribution have the right mean and spread, and the wrong shape
# where a column is skewed: of the drawn concentrations of testosterone, many are
# negative.  A logarithm before the fit and an exponential after it mend that, but not
# all: men and women are mixed here, and a column of two humps is not normal on any
# scale.  Look at such a picture before you analyse draws.


def to_log(X):
    """Take logarithms of a column that is skewed and positive."""
    return X.assign(Testosterone=np.log(X["Testosterone"]))


place = X.columns.get_loc("Testosterone")
gone = X["Testosterone"].isna()
logs = GaussianImputer(random_state=0).fit(to_log(X))
of_logs = np.exp(logs.sample(to_log(X), n_draws=5, random_state=0)[:, gone, place])
drawn = draws[:, gone, place]
print(f"Negative draws: {(drawn < 0).mean():.0%}")
print(f"Negative draws by way of logarithms: {(of_logs < 0).mean():.0%}")

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
bins = np.linspace(-600, 1400, 51)
for ax, values, title in zip(
    axes, [drawn, of_logs], ["drawn as it is", "drawn as a logarithm"], strict=True
):
    ax.hist(X["Testosterone"], bins, density=True, color="0.75", label="observed")
    ax.hist(values.ravel(), bins, density=True, histtype="step", color="#D55E00", lw=2)
    ax.plot([], [], color="#D55E00", lw=2, label="drawn for the holes")
    ax.set(title=title, xlabel="testosterone, ng/dL")
axes[0].set_ylabel("density")
axes[0].legend(frameon=False)

# %%
# A relation of two columns
# -------------------------
# What links two columns survives in the draws.

pair = ["BMI", "DirectChol"]
gone = X["DirectChol"].isna() & X["BMI"].notna()
tables = {
    "observed": X[pair].dropna(),
    "drawn": pd.DataFrame(draws[0], columns=X.columns).loc[gone, pair],
    "conditional mean": filled.loc[gone, pair],
}
fig, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
styles = [("0.8", ".", 8), ("#D55E00", "o", 16), ("#0072B2", "+", 30)]
for (name, table), (color, marker, size) in zip(tables.items(), styles, strict=True):
    r = table.corr().iloc[0, 1]
    label = f"{name}: correlation {r:.2f}"
    ax.scatter(*table.to_numpy().T, c=color, marker=marker, s=size, label=label)
ax.set(xlabel="body mass index, kg/m2", ylabel="HDL cholesterol, mmol/L")
ax.legend(frameon=False)
plt.show()

# %%
# The draws scatter like the observed values and keep their correlation.  The means lie
# close to a line and more than double it.  So fill by means to predict, and analyse
# draws to learn about the population, as the example on pooled regression does.
