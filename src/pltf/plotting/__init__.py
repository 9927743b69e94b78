"""Figures. matplotlib is imported only when one is drawn."""

from pltf.plotting.accessor import FitPlots
from pltf.plotting.of_fits import components, factors, time_courses, trace
from pltf.plotting.of_scores import calibration, roc, scores
from pltf.plotting.of_searches import bound_curve, search

__all__ = [
    "FitPlots",
    "bound_curve",
    "calibration",
    "components",
    "factors",
    "roc",
    "scores",
    "search",
    "time_courses",
    "trace",
]
