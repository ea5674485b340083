"""
========================
A graph of gene activity
========================

Which genes are active together, beyond what all others explain?  We learn the graph of
150 genes in breast tumours along a path of penalties, let a criterion choose, and look
at the hubs.
"""

# %%
# The data
# --------
# Counts of 353 genes in 445 tumours (TCGA, breast), as log(1 + count), of which we take
# the 150 genes whose activity varies most.

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

from skvnce import TruncatedGaussianGraphLearnerCV
from skvnce.datasets import load_tcga_brca
from skvnce.inspection import EdgePathDisplay, GraphDisplay

X = np.log1p(load_tcga_brca(as_frame=True).data)
X = X[X.std().nlargest(150).index]
print(X.shape)

# %%
# The path
# --------
# The penalty falls from left to right, and links enter, the strongest first.  We leave
# out the dense end of the automatic path, which takes the most time and has more links
# than can be estimated from 445 rows.  The learner warns if it chooses the last penalty
# of a path; we know that this one is cut off.

learner = TruncatedGaussianGraphLearnerCV(
    alphas=np.geomspace(0.9, 0.18, 8), random_state=0
)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "selection='ebic' chose the smallest alpha")
    learner.fit(X)
print(pd.DataFrame(learner.cv_results_).round(3).to_string(index=False))
display = EdgePathDisplay.from_estimator(learner)
display.figure_.set_layout_engine("constrained")
plt.show()

# %%
# The dashed line is the penalty that EBIC chooses.  It is the last one of the path, so
# that a longer path might give more links still.  Its graph has about nine links a
# gene: hubs can be counted in it, but a picture of it is a ball of wool.  For the
# picture we go back on the path, to the last graph with fewer than two links a gene.

few = learner.cv_results_["n_edges"] < 2 * len(learner.nodes_)
associations = pd.DataFrame(
    learner.path_[np.flatnonzero(few)[-1]],
    index=learner.nodes_,
    columns=learner.nodes_,
)
graph = nx.from_pandas_adjacency(associations)

# %%
# The graph and its hubs
# ----------------------
# Blue links join genes that are active together given all others, red ones those that
# exclude each other.  Only the largest connected part is drawn.

display = GraphDisplay(graph).plot(n_labels=15)
display.figure_.set_layout_engine("constrained")
plt.show()

# %%
# The genes with most links in the graph that was chosen, and the strongest neighbour
# of each:

edges = learner.edges()
ends = pd.concat(
    [edges, edges.rename(columns={"source": "target", "target": "source"})]
).sort_values("association", key=np.abs, ascending=False)
hubs = ends.groupby("source", sort=False).agg(
    links=("target", "size"),
    strongest_neighbour=("target", "first"),
    association=("association", "first"),
)
print(hubs.nlargest(12, "links").round(2))

# %%
# A hub of such a graph is a gene worth a look, not a finding: with 445 tumours of
# several subtypes, genes that mark a subtype are linked through it.
