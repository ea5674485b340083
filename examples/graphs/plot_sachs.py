"""
===================================================
A signalling network from cells with missing values
===================================================

Sachs et al. (2005) measured eleven signalling molecules in single cells, and the
network that links them is known from the literature.  Here we lose 30 % of the
measurements, learn the graph from what is left, and compare it with the published one.
"""

# %%
# The data
# --------
# We take the 853 cells under general stimulation (condition ``cd3cd28``), where no
# molecule was perturbed.  The intensities are positive and very skewed.  Their
# logarithms are not negative either, since the floor of the instrument is 1.

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.preprocessing import StandardScaler

from skvnce import TruncatedGaussianGraphLearner
from skvnce.datasets import load_sachs
from skvnce.exceptions import MisfitWarning
from skvnce.metrics import edge_auc
from skvnce.missingness import hide, mcar

sachs = load_sachs(as_frame=True)
raw = sachs.data[sachs.target == "cd3cd28"]
tables = {"raw": raw, "log": np.log(raw)}
print("Skewness of the columns:")
print(pd.DataFrame({name: X.skew() for name, X in tables.items()}).round(1))

# %%
# The published network, without the directions of its arrows, has 20 links among the 55
# pairs.

published = nx.Graph(sachs.edges["literature20"])
truth = nx.to_numpy_array(published, nodelist=raw.columns)

# %%
# Learning from the incomplete table
# ----------------------------------
# The ``score`` of our learner predicts observed cells from others of the same row and
# needs no complete row, so that ``GridSearchCV`` chooses the penalty on the incomplete
# table itself.  The rival is the graphical lasso, with its own cross-validation, after
# the missing cells have been filled by column means.


def learn(X):
    """Choose alpha by half of the rows."""
    halves = ShuffleSplit(1, test_size=0.5, random_state=0)
    grid = {"alpha": [0.05, 0.1, 0.2]}
    learner = TruncatedGaussianGraphLearner(random_state=0)
    with warnings.catch_warnings():  # the raw columns are as skewed as said above
        warnings.simplefilter("ignore", MisfitWarning)
        return GridSearchCV(learner, grid, cv=halves).fit(X).best_estimator_


def mean_filled_lasso(X):
    """Fill by means, scale, and choose the penalty by cross-validation."""
    filled = StandardScaler().fit_transform(SimpleImputer().fit_transform(X))
    with warnings.catch_warnings():  # of the weakest penalties on its path
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GraphicalLassoCV().fit(filled).precision_


def evaluate(strengths):
    """Score the ranking of all pairs, and count the links that are published."""
    found = np.triu(strengths, 1) > 0
    hits = np.count_nonzero(found & (truth > 0))
    return [edge_auc(truth, strengths), np.count_nonzero(found), hits]


# %%
# The columns: the area under the ROC curve of the ranking of pairs (1 is best, 0.5 is
# chance), the number of links, and how many of them are published.


def compare(X):
    """Judge both methods on one table; also return our learner."""
    ours = learn(X)
    lasso = np.abs(mean_filled_lasso(X))
    return ours, [*evaluate(ours.edge_strengths_), *evaluate(lasso)]


rows, learners = {}, {}
for name, X in tables.items():
    rows[name, "complete"] = compare(X)[1]
    incomplete = hide(X, mcar(X, 0.3, random_state=0))
    learners[name], rows[name, "30 % lost"] = compare(incomplete)
methods = ["truncated Gaussian", "mean-filled lasso"]
columns = pd.MultiIndex.from_product([methods, ["AUC", "links", "published"]])
print(pd.DataFrame(rows, index=columns).T.round(2).to_string())

# %%
# What the numbers show.  Neither method recovers the published network, and both rank
# its links better than chance.  On the log scale they are level on the complete table;
# after the loss both keep fewer links, most of them published, and the mean-filled
# lasso keeps more and ranks slightly better: filling by means does little harm to a
# table of few columns and many rows.  On the raw scale, where the tails rule, our
# learner keeps few links, most of them published.  The lasso keeps half of all
# pairs, and after the loss all of them, right little more often than pairs chosen
# blindly (20 of 55), but it ranks them better.
#
# There are reasons not to expect more: the published arrows are causal, and a graph of
# conditional dependence adds links between the causes of one effect; they are a
# consensus of the literature, not the truth; and ``score`` chooses the penalty that
# predicts best, which is not the one that finds most edges.

# %%
# The graphs
# ----------
# Left: learned on the log scale with 30 % of the cells missing, wider lines
# for stronger links.  Right: the published one.

learned = nx.Graph()
learned.add_nodes_from(raw.columns)
for edge in learners["log"].edges().itertuples():
    color = "C0" if published.has_edge(edge.source, edge.target) else "C1"
    width = 1 + 8 * abs(edge.association)
    learned.add_edge(edge.source, edge.target, color=color, width=width)

places = nx.circular_layout(sorted(raw.columns))
fig, axes = plt.subplots(1, 2, figsize=(11, 5.5), layout="constrained")
for ax, graph in zip(axes, [learned, published], strict=True):
    edges = graph.edges(data=True)
    nx.draw_networkx(
        graph,
        places,
        ax=ax,
        node_color="white",
        edgecolors="black",
        node_size=1100,
        font_size=10,
        edge_color=[style.get("color", "C0") for *_, style in edges],
        width=[style.get("width", 2) for *_, style in edges],
    )
    ax.set_axis_off()
axes[0].set_title("learned (blue: published, orange: not)")
axes[1].set_title("published")
plt.show()
