"""Sets of factor arrays, never changed in place."""

from pltf.data.numeric import frozen
from pltf.inference.algebra import Factors

__all__ = ["Factors", "frozen"]
