"""The model notation: parses text into immutable equations, in pure Python."""

from pltf.notation.catalogue import cp, nmf, tucker
from pltf.notation.grammar import Equation, Term
from pltf.notation.model import Model

__all__ = ["Equation", "Model", "Term", "cp", "nmf", "tucker"]
