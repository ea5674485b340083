"""
========================
A graph of gene activity
========================

Which genes are active together, beyond what all others explain?  We learn the graph of
the sixty genes that vary most between breast tumours, along a path of penalties, and
look at its hubs.
"""

# %%
# The data
# --------
# Counts of 353 genes in 445 tumours (TCGA, breast), as log(1 + count).  The path of all
# 353 takes many minutes; we keep the sixty genes of the largest variance.

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

from skvnce import TruncatedGaussianGraphLearnerCV
from skvnce.inspection import EdgePathDisplay, GraphDisplay

here = Path(__file__).parent if "__file__" in globals() else Path.cwd()
sys.path.insert(0, str(here.resolve().parent / "benchmarks"))
from _data import load  # noqa: E402

counts = load("tcga_brca_rnaseq").drop(columns="sample")
X = np.log1p(counts)
X = X[X.var().nlargest(60).index]

# %%
# The path
# --------
# The penalty falls from left to right, and links enter, the strongest first.

learner = TruncatedGaussianGraphLearnerCV(alphas=15, random_state=0).fit(X)
print(pd.DataFrame(learner.cv_results_).round(3).to_string(index=False))
display = EdgePathDisplay.from_estimator(learner)
display.figure_.set_layout_engine("constrained")
plt.show()

# %%
# The dashed line is the penalty that EBIC chooses: about a quarter of all pairs, since
# most genes here depend on several others.  That is no graph to read, so for the
# picture we stay at the sparse end: the first graph of the path with two links a gene.

place = np.argmax(learner.cv_results_["n_edges"] >= 2 * len(learner.nodes_))
associations = pd.DataFrame(
    learner.path_[place], index=learner.nodes_, columns=learner.nodes_
)
graph = nx.from_pandas_adjacency(associations)

# %%
# The graph and its hubs
# ----------------------
# Blue links join genes that are active together given all others, red ones those that
# exclude each other.  Only the largest connected part is drawn.

display = GraphDisplay(graph).plot(n_labels=12)
display.figure_.set_layout_engine("constrained")
plt.show()

# %%
# Two groups stand out: genes of lymphocytes (PTPRC, IKZF1, ITK, IRF4), and FOXA1 and
# GATA3, which mark luminal tumours.  The genes with most links, and the strongest
# neighbour of each:

strongest = associations.abs().idxmax()
hubs = pd.DataFrame(
    {
        "links": pd.Series(dict(graph.degree)),
        "strongest neighbour": strongest,
        "association": [associations.loc[a, b] for a, b in strongest.items()],
    }
)
print(hubs.nlargest(10, "links").round(2))

# %%
# A hub of such a graph is a gene worth a look, not a finding: with 445 tumours of
# several subtypes, genes that mark a subtype are linked through it.
