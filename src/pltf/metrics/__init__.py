"""Scores of predictions of held-out cells."""

from pltf.metrics.baseline import popularity
from pltf.metrics.scores import Scores, score

__all__ = ["Scores", "popularity", "score"]
