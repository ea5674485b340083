"""Plots of fitted estimators; matplotlib and networkx are imported at first use."""

from skvnce.inspection._graph import GraphDisplay
from skvnce.inspection._path import EdgePathDisplay
from skvnce.inspection._roc import EdgeRocDisplay

__all__ = ["EdgePathDisplay", "EdgeRocDisplay", "GraphDisplay"]
