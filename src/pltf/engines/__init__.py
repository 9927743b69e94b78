"""Sums over cells: the two that inference needs, for every storage and device."""
