"""How good predictions of hidden cells are."""

from pltf.metrics.scores import Scores, score

__all__ = ["Scores", "score"]
