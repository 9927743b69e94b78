"""What was seen: arrays with holes, checked once and never changed."""

from pltf.data.dense import DenseObservation
from pltf.data.observe import Observation, observe
from pltf.data.split import holdout

__all__ = ["DenseObservation", "Observation", "holdout", "observe"]
