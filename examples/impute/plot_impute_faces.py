"""
================================
The hidden half of a face, drawn
================================

Frames of a video of one face, each with two of its four quarters missing.
`LAIRImputer` trains an autoencoder on the incomplete frames, and draws the hidden
quarters of frames that it has not seen.
"""

# %%
# The data
# --------
# The Frey faces: 1965 frames of 28 x 20 grey values.  To be quick we cut off a margin
# of two pixels, average blocks of 2 x 2, and take every sixth frame.  A random choice
# of test frames would leak, for neighbours in a video are nearly the same; so the last
# fifth of the video is the test, and twenty frames before it are left out.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from skvnce import GaussianImputer, LAIRImputer, VariationalAutoencoder
from skvnce.datasets import load_frey_faces
from skvnce.metrics import coverage, crps, imputation_rmse

# no estimates are pooled
warnings.filterwarnings("ignore", "Draws of LAIRImputer are for filling")
inner = load_frey_faces().data.reshape(-1, 28, 20)[:, 2:26, 2:18]
frames = inner.reshape(-1, 12, 2, 8, 2).mean((2, 4)) / 255
X = np.concatenate([frames[:1580:6], frames[1600::6]]).reshape(-1, 96)
test = np.arange(len(X)) >= 264

rng = np.random.default_rng(0)
quarters = rng.permuted(np.tile([True, True, False, False], (len(X), 1)), axis=1)
quarters = quarters.reshape(-1, 2, 2)
hidden = np.kron(quarters, np.ones((1, 6, 4), dtype=bool)).reshape(-1, 96)
incomplete = np.where(hidden, np.nan, X)
print(f"{(~test).sum()} frames to train on, {test.sum()} unseen ones, 96 pixels.")

# %%
# The imputers
# ------------
# An autoencoder of ten latents, as rows are few.  Averages of grey values repeat,
# but finely; we say that they are normal.

settings = {"n_components": 10, "likelihood": "normal", "marginals": "normal"}
autoencoder = VariationalAutoencoder(max_iter=6, **settings)
imputers = {
    "GaussianImputer": GaussianImputer(marginals="normal", random_state=0),
    "LAIRImputer": LAIRImputer(autoencoder, n_estimators=1, n_draws=10, random_state=0),
}
means = np.where(hidden, np.nanmean(incomplete[~test], 0), X)[test]
truth, gone = X[test], hidden[test]
filled, draws, scores = {}, {}, {}
scores["column means"] = {"RMSE": imputation_rmse(truth, means, gone)}
for name, imputer in imputers.items():
    start = time.perf_counter()
    with warnings.catch_warnings():  # it stops early, for the reason given below
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputer.fit(incomplete[~test])
    filled[name] = imputer.transform(incomplete[test])
    draws[name] = imputer.sample(incomplete[test], 19, random_state=0, as_array=True)
    scores[name] = {
        "RMSE": imputation_rmse(truth, filled[name], gone),
        "CRPS": crps(truth, draws[name], gone),
        "90 % coverage": coverage(truth, draws[name], gone),
        "seconds": time.perf_counter() - start,
    }
print("Grey values from 0 to 1, hidden pixels of unseen frames:")
print(pd.DataFrame(scores).T.round(3).to_string())

# %%
# What is behind the mask?
# ------------------------
# The mean is the best prediction; draws are faces that the hidden quarters may belong
# to.  All pictures but the first column are smoothed.

drawn = draws["LAIRImputer"]
chosen = np.linspace(0, len(truth) - 1, 6).astype(int)
pictures = {
    "given": incomplete[test],
    "normal mean": filled["GaussianImputer"],
    "mean": filled["LAIRImputer"],
    **{f"draw {k + 1}": drawn[k] for k in range(3)},
    "truth": truth,
}
fig, axes = plt.subplots(
    len(chosen), len(pictures), figsize=(7.5, 9), layout="constrained"
)
for (title, rows), column in zip(pictures.items(), axes.T, strict=True):
    column[0].set_title(title, fontsize="medium")
    for ax, row in zip(column, rows[chosen], strict=True):
        smooth = "nearest" if title == "given" else "bicubic"
        picture = row.reshape(12, 8)
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation=smooth)
        ax.set(xticks=[], yticks=[], facecolor="#D55E00")
plt.show()

# %%
# What the numbers show.  With so few frames the normal distribution is nearer to the
# hidden pixels than the autoencoder, by its means and by its draws (CRPS).  Its
# intervals cover what they should, as its draws carry the uncertainty of all
# parameters.  Of those of the autoencoder that should cover 90 %, fewer than half do.
# Held-out cells choose its number of rounds, and these are single pixels, whose
# neighbours are there; a quarter is harder to predict.  We stop after six rounds;
# twelve change little.  More autoencoders (``n_estimators``) cover more, and take as
# many times as long.
