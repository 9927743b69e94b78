"""Engines: compute the two sums over cells that inference needs, for every storage and device."""
