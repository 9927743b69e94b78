"""Bayesian factorization of count and link data of any number of modes.

Write the model as an equation and pass the data, which may have missing cells; get the posterior of every factor, an
evidence lower bound (ELBO) to choose the number of components by, and predictions of missing cells.

>>> import numpy as np, pltf
>>> X = np.random.default_rng(0).poisson(2.0, (8, 6, 5)).astype(float)
>>> X[0, 0, 0] = np.nan
>>> fit = pltf.Model("X[user,place,act] = U[user,r] * P[place,r] * A[act,r]", r=2).fit(X)
>>> fit.mean(at=[(0, 0, 0)]).shape
(1,)
"""

# Nothing is imported here: the command line cannot handle Ctrl-C until this module is imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as _Any

    from pltf.data import Holdout, Observation, holdout, observe
    from pltf.data import open_store as open
    from pltf.errors import (
        ConvergenceWarning,
        DataWarning,
        EngineError,
        NotationError,
        ObservationError,
        PltfError,
        ScoreWarning,
        SelectionWarning,
    )
    from pltf.evidence import Evidence
    from pltf.fit import Fit
    from pltf.gamma import Gamma, Point, Posterior, Samples
    from pltf.inference.run import Sweep
    from pltf.io import load
    from pltf.io.prepare import prepare
    from pltf.matching import Match, match
    from pltf.notation import Model, cp, nmf, tucker
    from pltf.prediction.dispersion import Dispersion
    from pltf.selection import Selection, select

# Module of each public name, imported on first use, so that `pltf --help` is fast.
_HOMES = {
    "pltf.data": ("Holdout", "Observation", "holdout", "observe", "open"),
    "pltf.errors": (
        "ConvergenceWarning",
        "DataWarning",
        "EngineError",
        "NotationError",
        "ObservationError",
        "PltfError",
        "ScoreWarning",
        "SelectionWarning",
    ),
    "pltf.evidence": ("Evidence",),
    "pltf.fit": ("Fit",),
    "pltf.gamma": ("Gamma", "Point", "Posterior", "Samples"),
    "pltf.inference.run": ("Sweep",),
    "pltf.io": ("load",),
    "pltf.io.prepare": ("prepare",),
    "pltf.matching": ("Match", "match"),
    "pltf.notation": ("Model", "cp", "nmf", "tucker"),
    "pltf.prediction.dispersion": ("Dispersion",),
    "pltf.selection": ("Selection", "select"),
}
_CALLED = {"open": "open_store"}  # named so to avoid hiding a builtin
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("datasets", "io", "metrics", "plotting", "report", "sklearn")

__version__: str  # looked up on first use

__all__ = [
    "ConvergenceWarning",
    "DataWarning",
    "Dispersion",
    "EngineError",
    "Evidence",
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
    "Samples",
    "ScoreWarning",
    "Selection",
    "SelectionWarning",
    "Sweep",
    "cp",
    "holdout",
    "load",
    "match",
    "nmf",
    "observe",
    "open",
    "prepare",
    "select",
    "tucker",
]


def __getattr__(name: str) -> "_Any":
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("pltf")
    if name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), _CALLED.get(name, name))
        globals()[name] = found
        return found
    if name in _MODULES:
        return import_module(f"pltf.{name}")
    raise AttributeError(f"module 'pltf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
