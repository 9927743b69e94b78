"""Arithmetic on factor-sized arrays: the only part of inference that depends on the array type and device."""

from pltf.inference.algebra.base import Algebra, Factors, Groups, Key

__all__ = ["Algebra", "Factors", "Groups", "Key"]
