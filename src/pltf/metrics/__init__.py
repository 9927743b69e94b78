"""How good predictions of hidden cells are."""

from pltf.metrics.baseline import popularity
from pltf.metrics.scores import Scores, score

__all__ = ["Scores", "popularity", "score"]
