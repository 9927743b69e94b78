"""Observations: dense arrays with missing cells and listed cells, validated once and immutable."""

from pltf.data.base import Observation
from pltf.data.coo import CooObservation
from pltf.data.dense import DenseObservation
from pltf.data.observe import observe
from pltf.data.split import Holdout, holdout
from pltf.data.stored import StoredObservation, open_store

__all__ = [
    "CooObservation",
    "DenseObservation",
    "Holdout",
    "Observation",
    "StoredObservation",
    "holdout",
    "observe",
    "open_store",
]
