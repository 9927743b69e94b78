"""Fits in files."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pltf.data.split import HeldOut
from pltf.data.values import brief
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.inference.factors import frozen
from pltf.notation import Model
from pltf.store.container import Box, Boxes, write
from pltf.store.pack import (
    get_labels,
    get_pattern,
    get_state,
    put_labels,
    put_pattern,
    put_state,
    rows_as_text,
    rows_from_text,
)

FIT = "fit"
_METHODS = ("vb", "em", "map")
_TOLD = ("method", "objective", "converged", "stopped", "best_restart", "seed", "dtype", "engine")


def save_fit(fit: Fit, path: str | os.PathLike[str], more: Boxes | None = None) -> None:
    """Write a fit, and whatever else belongs to it, to a file."""
    write(as_path(path), FIT, {**fit_boxes(fit), **(more or {})})


def as_path(path: Any, argument: str = "path") -> Path:
    """A path, or one sentence."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise PltfError(f"{argument} must be the name of a file, got {brief(path)}")
    where = Path(path)
    if where.is_dir():
        raise PltfError(f"{argument} must be the name of a file, and {where} is a folder")
    return where


def fit_boxes(fit: Fit) -> Boxes:
    """What is written of a fit: everything but the pace of its sweeps."""
    root = Box()
    put_state(root, fit.state, fit.model.factors, pace=False)
    put_labels(root, fit.labels)
    root.put("trace", fit.trace)
    root.about |= {name: getattr(fit, name) for name in _TOLD}
    root.about |= {
        "model": fit.model.text,
        "latent": dict(fit.model.sizes),
        "sizes": dict(fit.sizes),
        "fixed": sorted(fit.fixed),
        "rows": rows_as_text(fit.rows),
        "n_observed": dict(fit.n_observed),
        "origin": {**_versions(), **fit.origin},
    }
    boxes = {"": root}
    for name, pattern in fit.patterns.items():
        boxes[f"data/{name}"] = Box()
        put_pattern(boxes[f"data/{name}"], pattern)
    if fit.held_out is not None:
        boxes["held_out"] = Box()
        boxes["held_out"].put("cells", fit.held_out.cells, ("cell", "mode"))
        boxes["held_out"].put("values", fit.held_out.values, ("cell",))
    return boxes


def _versions() -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    packages = {name: version(name) for name in ("pltf", "numpy", "scipy", "numba")}
    return {"saved": now, "python": platform.python_version(), **packages}


def fit_from(boxes: Boxes) -> Fit:
    root, about = boxes[""], boxes[""].about
    model = Model(about["model"], **about["latent"])
    sizes = {index: int(size) for index, size in about["sizes"].items()}
    shapes = {a: tuple(sizes[index] for index in indices) for a, indices in model.factors.items()}
    if about["method"] not in _METHODS:
        raise ValueError(f"no method is called {about['method']!r}")
    state = get_state(root, shapes)
    if not set(state.E) == set(state.L) == set(shapes) or not set(state.C) == set(state.D) <= set(shapes):
        raise ValueError("not every factor is there")
    patterns = {
        name: get_pattern(boxes[f"data/{name}"], tuple(sizes[index] for index in indices))
        for name, indices in model.observed.items()
    }
    held = boxes.get("held_out")
    return Fit(
        **{name: about[name] for name in _TOLD},
        model=model,
        sizes=sizes,
        state=state,
        priors=state.priors,
        fixed=frozenset(about["fixed"]),
        trace=frozen(root.get("trace")),
        rows=rows_from_text(about["rows"]),
        n_observed={name: int(count) for name, count in about["n_observed"].items()},
        patterns=patterns,
        labels=get_labels(root, sizes),
        held_out=None if held is None else HeldOut(held.get("cells"), held.get("values")),
        origin=about["origin"],
    )
