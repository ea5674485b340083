"""
===============================================
A signalling network from cells with lost values
===============================================

Sachs et al. (2005) measured eleven signalling proteins in single cells, and a network
of them is known from the literature.  Here we lose 30 % of the measurements, learn the
graph from what is left, and compare it with the published one.
"""

# %%
# The data
# --------
# We take the 853 cells under general stimulation (condition ``cd3cd28``), for which no
# protein was perturbed.  The intensities are positive and very skewed.

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from sklearn.covariance import GraphicalLassoCV
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvnce import TruncatedGaussianGraphLearner
from skvnce.metrics import edge_auc
from skvnce.missingness import hide, mcar

here = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
sys.path.insert(0, str(here.parent / "benchmarks"))
from _data import load  # noqa: E402

cells = load("sachs").query("condition == 'cd3cd28'")
raw = cells.select_dtypes("number")
proteins = list(raw.columns)
tables = {"raw": raw, "log": np.log(raw)}  # the instrument's floor is 1: no log is < 0
print(f"{len(raw)} cells, {len(proteins)} proteins, skewness of the intensities:")
print(pd.DataFrame({name: X.skew() for name, X in tables.items()}).round(1).T)

# %%
# The published network has 20 links among 55 pairs.

links = load("sachs", "sachs_edges").dropna(subset="literature20")
published = pd.DataFrame(0.0, index=proteins, columns=proteins)
for a, b in zip(links.node_a, links.node_b, strict=True):
    published.loc[a, b] = published.loc[b, a] = 1.0

# %%
# Learning from the incomplete table
# ----------------------------------
# ``score`` predicts cells from other cells of the same row and needs no complete row, so
# that ``GridSearchCV`` chooses the penalty on the incomplete table.  The rival fills
# the holes by column means, for the graphical lasso with its own cross-validation.


def learn(X):
    """Choose alpha by cross-validation."""
    grid = {"alpha": [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]}
    learner = TruncatedGaussianGraphLearner(random_state=0)
    return GridSearchCV(learner, grid, cv=3).fit(X).best_estimator_


def mean_filled_lasso(X):
    """Fill by means, scale, and choose the penalty by cross-validation."""
    return make_pipeline(SimpleImputer(), StandardScaler(), GraphicalLassoCV()).fit(X)[
        -1
    ]


def compare(X, label, hidden_fraction):
    """Learn by both methods, and score the ranking of the pairs."""
    X = hide(X, mcar(X, hidden_fraction, random_state=0))
    ours, lasso = learn(X), mean_filled_lasso(X)
    row = {
        "scale": label,
        "hidden": f"{hidden_fraction:.0%}",
        "alpha": ours.alpha,
        "AUC": edge_auc(published, ours.edge_strengths_),
        "links": len(ours.edges()),
        "AUC (lasso)": edge_auc(published, np.abs(lasso.precision_)),
        "links (lasso)": np.count_nonzero(np.triu(lasso.precision_, 1)),
    }
    return ours, row


runs = [compare(X, name, f) for name, X in tables.items() for f in (0.0, 0.3)]
print(pd.DataFrame([row for _, row in runs]).round(3).to_string(index=False))
