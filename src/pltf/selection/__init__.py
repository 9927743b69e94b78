"""How many components? Every size, model and prior of a grid, from many starts; the bound decides."""

from pltf.selection.choose import select
from pltf.selection.result import Selection

__all__ = ["Selection", "select"]
