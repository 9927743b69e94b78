"""Data to try things on."""

from pltf.datasets.synthetic import Draw, draw

__all__ = ["Draw", "draw"]
