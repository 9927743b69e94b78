"""Inference methods by name."""

from __future__ import annotations

from collections.abc import Mapping

from pltf.inference.em import EM, MAP
from pltf.inference.gibbs import NAME as GIBBS
from pltf.inference.state import Method
from pltf.inference.vb import VB

# Gibbs sampling has its own loop; it starts from a VB fit.
METHODS: Mapping[str, Method] = {method.name: method for method in (VB, EM, MAP)} | {GIBBS: VB}
