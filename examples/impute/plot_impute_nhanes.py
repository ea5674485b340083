"""
===========================================
Imputing a table, and drawing missing cells
===========================================

A data frame of measurements of US adults has missing values.  `GaussianImputer` fits a
normal distribution to all rows, imputes missing values by their conditional means, and
draws them with the variance that the unknown values have.
"""

# %%
# The data
# --------
# Nineteen measurements from the NHANES survey; a column misses up to 57 % of its cells.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skvnce import GaussianImputer
from skvnce.datasets import load_nhanes

X = load_nhanes(as_frame=True).data
columns = pd.DataFrame({"missing": X.isna().mean(), "skewness": X.skew()})
print(columns.query("missing > 0.05").sort_values("missing").round(2))

# %%
# Frame in, frame out
# -------------------
# No parameter is required.  `fit_transform` fills each missing cell by its mean given
# the observed cells of the same row; observed cells stay as they are.

imputer = GaussianImputer(random_state=0).set_output(transform="pandas")
filled = imputer.fit_transform(X)
print(f"Missing before: {X.isna().sum().sum()}, after: {filled.isna().sum().sum()}.")
print(filled.loc[X["Testosterone"].isna(), ["Age", "Weight", "Testosterone"]].head())

# %%
# Conditional means are the best predictions, but vary less than the values that they
# replace.  Draws vary as much.


def std(column):
    """Compare the spreads of observed cells, of their means and of draws."""
    gone = X[column].isna()
    place = X.columns.get_loc(column)
    return {
        "observed": X[column].std(),
        "means": filled.loc[gone, column].std(),
        "draws": draws[:, gone, place].std(),
    }


draws = imputer.sample(X, n_draws=5, random_state=0, as_array=True)
columns = ["Poverty", "TotChol", "Testosterone", "PhysActiveDays", "AlcoholDay"]
print("Standard deviations:")
print(pd.DataFrame({c: std(c) for c in columns}).T.round(2))

# %%
# A skewed column
# ---------------
# Columns of counts are levels, so that the imputer gives each column its observed
# distribution.  Draws of a normal distribution have the right mean and standard
# deviation, and the wrong shape where a column is skewed: without bounds a tenth of the
# drawn concentrations of testosterone is negative.  By default draws stay in the range
# that is learned from each column (``feature_ranges_``).

place = X.columns.get_loc("Testosterone")
gone = X["Testosterone"].isna()
free = {"min_value": -np.inf, "max_value": np.inf}
# counts are numbers here: with levels, each column has its observed distribution
normal = {"marginals": "normal", "categorical_features": None, "random_state": 0}
imputers = {
    "normal, no bounds": GaussianImputer(**normal, **free),
    "normal": GaussianImputer(**normal),
}
with warnings.catch_warnings():
    # it says that many draws of the second are negative, and set to 0, as is shown
    warnings.simplefilter("ignore", UserWarning)
    kinds = {
        kind: one.fit(X).sample(X, n_draws=5, random_state=0, as_array=True)
        for kind, one in imputers.items()
    }
kinds["default"] = draws
kinds = {kind: tables[:, gone, place] for kind, tables in kinds.items()}
for kind, values in kinds.items():
    print(f"Negative draws, {kind}: {(values < 0).mean():.1%}")

fig, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
bins = np.linspace(-600, 1400, 51)
for ax, (kind, values) in zip(axes, kinds.items(), strict=True):
    ax.hist(X["Testosterone"], bins, density=True, color="0.75", label="observed")
    ax.hist(values.ravel(), bins, density=True, histtype="step", color="#D55E00", lw=2)
    ax.plot([], [], color="#D55E00", lw=2, label="drawn for missing cells")
    ax.set(title=kind, xlabel="testosterone, ng/dL")
axes[0].set_ylabel("density")
axes[0].legend(frameon=False)

# %%
# A relation of two columns
# -------------------------
# Draws keep the relation of two columns: observed rows (grey), and means and draws of
# missing cells.

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
# close to a line, and their correlation is more than twice as large.  So fill by means
# to predict, and use draws for inference, as the example on pooled regression does.
