"""Arithmetic on factor-sized arrays: the only part of inference that knows what an array is and where it lives."""

from pltf.inference.algebra.base import Algebra, Factors, Groups, Key

__all__ = ["Algebra", "Factors", "Groups", "Key"]
