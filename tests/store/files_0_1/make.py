"""Write the files of this folder with version 0.1: ``git checkout 63f341c && python -m tests.store.files_0_1.make``.

They stay as they are, however the format changes; the tests take the problems from here, and never call ``main``.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pltf

FOLDER = Path(__file__).parent

CUBE = np.random.default_rng(0).poisson(2.0, (5, 4, 3)).astype(float)
CUBE[::2, 1, ::2] = np.nan
MATRIX = np.random.default_rng(1).poisson(3.0, (4, 3))
BLOCKS = np.random.default_rng(3).poisson(np.kron(np.diag([9, 5, 7]), np.ones((2, 3))) + 0.2)
CP = pltf.cp(rank=2)
COUPLED = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
LABELLED = pltf.Model("X[who,n,day] = A[who,r] * B[n,r] * C[day,r]", r=2)
LABELS = {"who": list("abcde"), "n": [-1, 3, 2, 9], "day": pd.date_range("2026-11-09", periods=3, freq="7D")}
FIXED = {"D": np.linspace(0.1, 2, 6).reshape(3, 2)}
SEARCH: dict[str, Any] = {"r": [1, 2, 3], "restarts": 4, "workers": 1, "tol": 1e-8, "race": True}


@dataclass(frozen=True)
class Problem:
    """A call of ``Model.fit``."""

    model: pltf.Model
    data: Any
    options: dict[str, Any] = field(default_factory=dict)

    def fit(self, **more: Any) -> pltf.Fit:
        """Fit it, without a word of what has not converged."""
        with warnings.catch_warnings(action="ignore"):
            return self.model.fit(self.data, **{**self.options, **more})


def _listed() -> pltf.Observation:
    at = np.argwhere(np.nan_to_num(CUBE) > 0)
    return pltf.observe((at, CUBE[tuple(at.T)]), shape=CUBE.shape, missing=np.argwhere(np.isnan(CUBE)))


FITS = {
    "labelled": Problem(LABELLED, pltf.observe(CUBE, dims=list(LABELS), labels=LABELS), {"restarts": 2, "seed": 7}),
    "coupled": Problem(COUPLED, {"X": CUBE, "Y": MATRIX}, {"fixed": FIXED}),
    "listed": Problem(CP, _listed(), {"prior": pltf.Gamma(learn="both", tie="component"), "max_iter": 30, "tol": 0}),
    "em": Problem(CP, CUBE, {"method": "em", "dtype": "float32"}),
    "map": Problem(CP, CUBE, {"method": "map", "prior": pltf.Gamma(2.0, np.full((1, 2), 3.0))}),
}
UNFINISHED = Problem(pltf.cp(rank=3), CUBE, {"tol": 0, "max_iter": 60, "restarts": 2, "seed": 1})
UNFINISHED_EM = Problem(CP, CUBE, {"tol": 0, "max_iter": 60, "method": "em", "init": "random"})


def search(**more: Any) -> pltf.Selection:
    """The search that was saved, and broken off."""
    return pltf.select(CP, CUBE, **SEARCH, **more)


def unpacked(name: str, folder: Path) -> Path:
    """One of the files, in a folder."""
    path = folder / f"{name}.nc"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.nc.gz").read_bytes()))
    return path


def facts() -> dict[str, Any]:
    """What version 0.1 said of the fits."""
    return dict(json.loads((FOLDER / "facts.json").read_text()))


# -- writing, with version 0.1 alone ------------------------------------------------------------


def main() -> None:
    """Write everything."""
    told = {}
    for name, problem in FITS.items():
        fit = problem.fit()
        _pack(name, fit.save)
        told[name] = _facts(fit)
    folded = FITS["labelled"].fit().fold_in(CUBE[:2] + 1, "who")
    _pack("folded", folded.save)
    told["folded"] = _facts(folded)
    found = search()
    _pack("search", found.save)
    told["search"] = {"best": found.best, "bounds": found.table["bound"].tolist(), **_facts(found.best_fit)}
    _pack("unfinished", lambda path: _broken_off(UNFINISHED, path, 105))
    _pack("unfinished_em", lambda path: _broken_off(UNFINISHED_EM, path, 40))
    _pack("unfinished_search", _broken_off_search)
    (FOLDER / "facts.json").write_text(json.dumps(told) + "\n")


def _pack(name: str, write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.nc"
        write(path)
        (FOLDER / f"{name}.nc.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def _facts(fit: pltf.Fit) -> dict[str, Any]:
    return {
        "bound": fit.bound,
        "trace": fit.trace.tolist(),
        "means": {a: factor.mean.tolist() for a, factor in fit.factors.items()},
        "vars": {a: factor.var.tolist() for a, factor in fit.factors.items()},
        "expected": {name: fit.mean(of=name).tolist() for name in fit.model.observed},
        "mass": fit.components(top=0)["mass"].tolist(),
        "text": repr(fit),
    }


class _Break(Exception):
    pass


def _broken_off(problem: Problem, path: Path, sweeps: int) -> None:
    done = 0

    def stop(sweep: pltf.Sweep) -> None:
        nonlocal done
        done += 1
        if done == sweeps:
            raise _Break

    try:
        problem.fit(checkpoint=path, every=0, callback=stop)
    except _Break:
        return
    raise AssertionError("it has ended")


def _broken_off_search(path: Path) -> None:
    """Broken off when one candidate is done and another has begun."""
    from pltf.selection.checkpoint import SearchCheckpoint
    from pltf.store.container import read

    keep = SearchCheckpoint.keep

    def once_more(self: SearchCheckpoint, *args: Any) -> None:
        keep(self, *args)
        about = read(path)[1]["checkpoint"].about
        if about["outcomes"] and about["open"]:
            raise _Break

    SearchCheckpoint.keep = once_more  # type: ignore[method-assign]
    try:
        search(checkpoint=path, every=0)
    except _Break:
        return
    finally:
        SearchCheckpoint.keep = keep  # type: ignore[method-assign]
    raise AssertionError("it has ended")


if __name__ == "__main__":
    main()
