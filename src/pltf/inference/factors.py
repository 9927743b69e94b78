"""Collections of factor arrays, which are never changed in place."""

from pltf.data.numeric import frozen
from pltf.inference.algebra import Factors

__all__ = ["Factors", "frozen"]
