"""Plots of estimators, tables and scores; matplotlib is imported when used."""

from skvnce.inspection._graphs import EdgePathDisplay, GraphDisplay
from skvnce.inspection._imputations import (
    ConvergenceDisplay,
    ImputationDisplay,
    MissingnessDisplay,
)
from skvnce.inspection._report import ReportDisplay, SensitivityDisplay

__all__ = [
    "ConvergenceDisplay",
    "EdgePathDisplay",
    "GraphDisplay",
    "ImputationDisplay",
    "MissingnessDisplay",
    "ReportDisplay",
    "SensitivityDisplay",
]
