"""
Repeated rows: random effects
=============================

The distance from pituitary to fissure of 27 children was measured at the ages of 8, 10,
12 and 14 years (Potthoff and Roy 1964, Biometrika 51, table 1). The rows of a child are
correlated: most of the variance is between children. An imputer that assumes
independent rows makes this correlation too weak, and the variance between children is
underestimated. ``groups`` names the grouping factor.
"""

# %%
# The data, and 30 % of the distances hidden
# ------------------------------------------

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

from skvnce import GaussianImputer
from skvnce.pooling import fit_each, pool_models

girls = """
21.0 20.0 21.5 23.0  21.0 21.5 24.0 25.5  20.5 24.0 24.5 26.0  23.5 24.5 25.0 26.5
21.5 23.0 22.5 23.5  20.0 21.0 21.0 22.5  21.5 22.5 23.0 25.0  23.0 23.0 23.5 24.0
20.0 21.0 22.0 21.5  16.5 19.0 19.0 19.5  24.5 25.0 28.0 28.0"""
boys = """
26.0 25.0 29.0 31.0  21.5 22.5 23.0 26.5  23.0 22.5 24.0 27.5  25.5 27.5 26.5 27.0
20.0 23.5 22.5 26.0  24.5 25.5 27.0 28.5  22.0 22.0 24.5 26.5  24.0 21.5 24.5 25.5
23.0 20.5 31.0 26.0  27.5 28.0 31.0 31.5  23.0 23.0 23.5 25.0  21.5 23.5 24.0 28.0
17.0 24.5 26.0 29.5  22.5 25.5 25.5 26.0  23.0 24.5 26.0 30.0  22.0 21.5 23.5 25.0"""
children = [f"F{k}" for k in range(11)] + [f"M{k}" for k in range(16)]
complete = pd.DataFrame(
    {
        "child": np.repeat(children, 4),
        "sex": np.repeat(["female", "male"], [44, 64]),
        "age": np.tile([8.0, 10.0, 12.0, 14.0], 27),
        "distance": np.array((girls + boys).split(), dtype=float),
    }
)
hidden = np.random.default_rng(1).random(len(complete)) < 0.3
frame = complete.assign(distance=complete["distance"].mask(hidden))

# %%
# Twenty draws, with and without groups
# -------------------------------------
#
# ``sex`` is constant within children, a group-level variable, which the imputer finds.
# Without ``groups``, the column of names is left out of the model, and a warning says
# that rows are correlated within children.

names = {"child": "passthrough"}
imputers = {
    "random effects": GaussianImputer(groups="child", random_state=0),
    "independent rows": GaussianImputer(categorical_features=names, random_state=0),
}
draws = {}
for name, imputer in imputers.items():
    imputer.set_output(transform="pandas").fit(frame)
    draws[name] = imputer.sample(frame, n_draws=20, random_state=0)
shares = imputers["random effects"].intraclass_correlations_
print(f"intraclass correlation of distances: {shares[-1]:.2f}")

# %%
# The published coefficients
# --------------------------
#
# Pinheiro and Bates (2000, Mixed-Effects Models in S and S-PLUS, chapter 4) fit random
# intercepts to the complete table: 17.71 for boys at birth, 2.32 less for girls, 0.660
# a year, and standard deviations of 1.81 between children and 1.43 within them.


def fitted(table):
    return smf.mixedlm("distance ~ age + sex", table, groups=table["child"]).fit()


of_complete = fitted(complete)
print("complete", of_complete.fe_params.round(3).to_dict())
found = {name: fit_each(fitted, tables) for name, tables in draws.items()}
for name, results in found.items():
    age = pool_models(results).summary().loc["age", ["coef", "se"]]
    print(name, age.astype(float).round(3).to_dict())

# %%
# What is lost without them
# -------------------------
#
# Left: the standard deviation between children, estimated from the complete table and
# from each completed table.  It is too small if rows are taken as independent. Right:
# draws of a child with large distances, which are then too small.

spread = {"complete": [of_complete], **found}
fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for place, results in enumerate(spread.values()):
    values = [float(np.sqrt(one.cov_re.iloc[0, 0])) for one in results]
    axes[0].plot(values, np.full(len(values), place), "o", alpha=0.5)
axes[0].set(yticks=range(3), yticklabels=spread, title="Each completed table")
axes[0].set_xlabel("standard deviation between children")
own = frame[frame["child"] == "M9"]  # the largest distances of all
missing = own.index[own["distance"].isna()]
axes[1].plot(own["age"], own["distance"], "ko", label="observed")
truth = complete.loc[missing]
axes[1].plot(truth["age"], truth["distance"], "kx", label="hidden")
for place, (name, tables) in enumerate(draws.items(), 1):
    ages = np.tile(truth["age"] + 0.2 * place, len(tables))
    drawn = np.concatenate([one.loc[missing, "distance"] for one in tables])
    style = {"color": f"C{place}", "alpha": 0.3, "label": name}
    axes[1].plot(ages, drawn.astype(float), "o", **style)
axes[1].set(xlabel="age", ylabel="distance", title="Draws of child M9")
axes[1].set_xticks([8, 10, 12, 14])
axes[1].legend(loc="upper left")
plt.show()
