"""
=================================
A ring, two moons and body values
=================================

One normal distribution does not see that points lie on a ring, or in two groups.
`MixtureImputer` averages mixtures of normals, which do.  Whether a real table gains
from them is to be measured: the last section hides cells and compares.
"""

# %%
# A ring
# ------
# The third column is the product of the other two, up to a factor.  A third of its
# cells are missing.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_moons

from skvnce import GaussianImputer, MixtureImputer
from skvnce.datasets import load_nhanes
from skvnce.metrics import coverage, crps, imputation_rmse
from skvnce.missingness import hide, mcar

IMPUTERS = {
    "GaussianImputer": GaussianImputer(on_misfit="ignore", random_state=0),
    "MixtureImputer": MixtureImputer(on_misfit="ignore", random_state=0),
}

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, size=600)
ring = np.column_stack([np.cos(angle), np.sin(angle), np.sin(2 * angle)])
ring += 0.05 * rng.normal(size=ring.shape)
hidden = np.zeros(ring.shape, dtype=bool)
hidden[:200, 2] = True
incomplete = hide(ring, hidden)
for name, imputer in IMPUTERS.items():
    error = imputation_rmse(ring, imputer.fit_transform(incomplete), hidden)
    print(f"{name}: RMSE {error:.2f} (standard deviation {ring[:, 2].std():.2f})")

# %%
# Two moons
# ---------
# The second coordinate of half of the points is missing.  Means are of little use where
# a point may be on either moon; draws show both.

moons, _ = make_moons(600, noise=0.06, random_state=0)
known = moons.copy()
known[:300, 1] = np.nan
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharex=True, sharey=True)
axes[0].scatter(*moons[:300].T, s=6, color="black")
axes[0].set_title("true points")
for axis, (name, imputer) in zip(axes[1:], IMPUTERS.items(), strict=True):
    [drawn] = imputer.fit(known).sample(known, random_state=0)
    axis.scatter(*drawn[:300].T, s=6, color="tab:blue")
    axis.set_title(f"draws of {name}")
figure.tight_layout()

# %%
# Measurements of adults
# ----------------------
# Some columns of the NHANES survey.  A fifth of the observed cells is hidden,
# completely at random.  Errors are in standard deviations of a column.

names = ["Age", "Weight", "Height", "BMI", "Pulse", "BPSysAve", "BPDiaAve", "TotChol"]
frame = load_nhanes(as_frame=True).data[names].iloc[::3]
truth = ((frame - frame.mean()) / frame.std()).to_numpy()
hidden = mcar(truth, 0.2, random_state=0) & ~np.isnan(truth)
incomplete = hide(truth, hidden)
scores = {}
for name, imputer in IMPUTERS.items():
    filled = imputer.fit_transform(incomplete)
    draws = imputer.sample(incomplete, 39, random_state=0, as_array=True)
    scores[name] = {
        "RMSE": imputation_rmse(truth, filled, hidden),
        "CRPS": crps(truth, draws, hidden),
        "coverage of 90 %": coverage(truth, draws, hidden, level=0.9),
    }
print(pd.DataFrame(scores).T.round(3))

# %%
# `BMI` is a ratio of weight and squared height, which a mixture of normals approaches
# by pieces.  On your own table, compare with `skvnce.evaluation.imputation_report`.
