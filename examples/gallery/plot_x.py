"""
Trial
=====

Words.
"""
import pltf
print(pltf.cp(rank=2))
