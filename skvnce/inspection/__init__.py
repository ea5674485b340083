"""Plots of estimators, tables and scores; matplotlib is imported when used."""

from skvnce.inspection._convergence import ConvergenceDisplay
from skvnce.inspection._graph import GraphDisplay
from skvnce.inspection._imputation import ImputationDisplay
from skvnce.inspection._missingness import MissingnessDisplay
from skvnce.inspection._path import EdgePathDisplay
from skvnce.inspection._report import ReportDisplay
from skvnce.inspection._roc import EdgeRocDisplay
from skvnce.inspection._sensitivity import SensitivityDisplay

__all__ = [
    "ConvergenceDisplay",
    "EdgePathDisplay",
    "EdgeRocDisplay",
    "GraphDisplay",
    "ImputationDisplay",
    "MissingnessDisplay",
    "ReportDisplay",
    "SensitivityDisplay",
]
