"""What is the model: text to an immutable structure, in pure Python."""

from pltf.notation.catalogue import cp, nmf, tucker
from pltf.notation.grammar import Equation, Term
from pltf.notation.model import Model

__all__ = ["Equation", "Model", "Term", "cp", "nmf", "tucker"]
