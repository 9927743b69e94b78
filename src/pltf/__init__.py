"""Bayesian factorization of count and link data of any number of modes.

Write the model as an equation, hand over the data with its holes; get the posterior of every factor,
a bound on the evidence that tells how many components the data support, and predictions of missing cells.

>>> import numpy as np, pltf
>>> X = np.random.default_rng(0).poisson(2.0, (8, 6, 5)).astype(float)
>>> X[0, 0, 0] = np.nan
>>> fit = pltf.Model("X[user,place,act] = U[user,r] * P[place,r] * A[act,r]", r=2).fit(X)
>>> fit.mean(at=[(0, 0, 0)]).shape
(1,)
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from types import ModuleType as _ModuleType

from pltf.data import Holdout, Observation, holdout, observe
from pltf.errors import (
    ConvergenceWarning,
    EngineError,
    NotationError,
    ObservationError,
    PltfError,
    ScoreWarning,
    SelectionWarning,
)
from pltf.fit import Fit
from pltf.gamma import Gamma, Point, Posterior
from pltf.inference.run import Sweep
from pltf.matching import Match, match
from pltf.notation import Model, cp, nmf, tucker
from pltf.selection import Selection, select

__version__ = _version("pltf")

__all__ = [
    "ConvergenceWarning",
    "EngineError",
    "Fit",
    "Gamma",
    "Holdout",
    "Match",
    "Model",
    "NotationError",
    "Observation",
    "ObservationError",
    "PltfError",
    "Point",
    "Posterior",
    "ScoreWarning",
    "Selection",
    "SelectionWarning",
    "Sweep",
    "cp",
    "holdout",
    "match",
    "nmf",
    "observe",
    "select",
    "tucker",
]


def __getattr__(name: str) -> _ModuleType:
    if name in ("datasets", "metrics", "plotting"):  # imported when they are first asked for
        return _import_module(f"pltf.{name}")
    raise AttributeError(f"module 'pltf' has no attribute {name!r}")
