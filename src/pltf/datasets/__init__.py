"""Example data sets."""

from pltf.datasets.synthetic import Draw, draw
from pltf.datasets.uclaf_data import Uclaf, uclaf

__all__ = ["Draw", "Uclaf", "draw", "uclaf"]
