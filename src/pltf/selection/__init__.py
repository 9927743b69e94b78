"""How many components? Every size, model and prior of a grid, from many starts; the bound decides."""

from pltf.selection.result import Selection
from pltf.selection.selector import select

__all__ = ["Selection", "select"]
