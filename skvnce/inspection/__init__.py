"""Plots of estimators and scores; matplotlib and networkx are imported when used."""

from skvnce.inspection._graph import GraphDisplay
from skvnce.inspection._path import EdgePathDisplay
from skvnce.inspection._report import ReportDisplay
from skvnce.inspection._roc import EdgeRocDisplay

__all__ = ["EdgePathDisplay", "EdgeRocDisplay", "GraphDisplay", "ReportDisplay"]
