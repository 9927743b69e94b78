"""Saving and loading fits."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pltf.data.numeric import brief
from pltf.data.split import HeldOut
from pltf.errors import PltfError, py
from pltf.fit import Batch, Fit
from pltf.inference.methods import METHODS
from pltf.likelihoods import LIKELIHOODS, by_tensor
from pltf.notation import Model
from pltf.store.container import Box, Boxes, write
from pltf.store.serialize import (
    get_beliefs,
    get_dispersion,
    get_labels,
    get_pattern,
    get_trace,
    inside,
    put_beliefs,
    put_dispersion,
    put_labels,
    put_pattern,
    put_trace,
    rows_as_text,
    rows_from_text,
    told,
)

FIT = "fit"
_TOLD = {
    "method": str,
    "objective": str,
    "converged": bool,
    "stopped": str,
    "best_restart": int,
    "seed": int,
    "dtype": str,
    "engine": str,
}


def save_fit(fit: Fit, path: str | os.PathLike[str], more: Boxes | None = None) -> None:
    """Write a fit, and optional extra data, to a file."""
    write(as_path(path), FIT, {**fit_boxes(fit), **(more or {})})


def as_path(path: Any, argument: str = "path") -> Path:
    """Convert to a path, or raise a clear error."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise PltfError(f"{py:{argument}} must be a file name, got {brief(path)}")
    where = Path(text)
    try:
        is_folder = where.is_dir()
    except OSError as reason:  # for example, a name that is too long
        raise PltfError(f"{py:{argument}} is invalid: {brief(path)}: {reason.strerror or reason}") from None
    if is_folder:
        raise PltfError(f"{py:{argument}} must be a file name, but {where} is a folder")
    return where


def fit_boxes(fit: Fit) -> Boxes:
    """All parts of a fit, as boxes."""
    root = Box()
    put_beliefs(root, fit)
    put_labels(root, fit.labels)
    put_dispersion(root, fit.dispersion)
    put_trace(root, fit.trace)
    root.about |= {name: getattr(fit, name) for name in _TOLD}
    root.about |= {
        "model": fit.model.text,
        "latent": dict(fit.model.sizes),
        "sizes": dict(fit.sizes),
        "fixed": sorted(fit.fixed),
        "rows": rows_as_text(fit.rows),
        "n_observed": dict(fit.n_observed),
        "origin": {**_versions(), **fit.origin},
        "options": dict(fit.options),
        "likelihoods": dict(fit.likelihoods),
        "notes": list(fit.notes),
        "spread": fit.spread,
        "history": [vars(one) for one in fit.history],
    }
    boxes = {"": root}
    for name, pattern in fit.patterns.items():
        boxes[f"data/{name}"] = Box()
        put_pattern(boxes[f"data/{name}"], pattern)
    if fit.held_out is not None:
        boxes["held_out"] = Box({"sampled": fit.held_out.sampled, "of": fit.held_out.of})
        boxes["held_out"].put("cells", fit.held_out.cells)
        boxes["held_out"].put("values", fit.held_out.values)
    return boxes


def _versions() -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    packages = {name: version(name) for name in ("pltf", "numpy", "scipy", "numba")}
    return {"saved": now, "python": platform.python_version(), **packages}


def fit_from(boxes: Boxes) -> Fit:
    """Rebuild a saved fit."""
    root, about = boxes[""], boxes[""].about
    model = Model(about["model"], **about["latent"])
    sizes = {index: int(size) for index, size in about["sizes"].items()}
    if sizes != sizes | dict(model.sizes) or min(sizes.values()) < 1:
        raise ValueError(f"invalid sizes: {sizes}")
    if about["method"] not in tuple(METHODS):
        raise ValueError(f"unknown method {about['method']!r}")
    if not about["rows"]:
        raise ValueError("expected one row per restart")
    seen = {name: tuple(sizes[index] for index in indices) for name, indices in model.observed.items()}
    return Fit(
        **told(about, _TOLD),
        **get_beliefs(root, model, sizes),
        model=model,
        sizes=sizes,
        fixed=frozenset(about["fixed"]),
        trace=get_trace(root),
        rows=rows_from_text(about["rows"]),
        n_observed={name: int(about["n_observed"][name]) for name in seen},
        patterns={name: get_pattern(boxes[f"data/{name}"], shape) for name, shape in seen.items()},
        labels=get_labels(root, sizes),
        held_out=_held_out(boxes["held_out"], seen) if "held_out" in boxes else None,
        origin=dict(about["origin"]),
        options=dict(about.get("options", {})),  # not in older files
        likelihoods=_likelihoods(about.get("likelihoods", {}), tuple(seen)),
        notes=tuple(map(str, about.get("notes", ()))),
        dispersion=get_dispersion(root, model, sizes),
        spread=_spread(about.get("spread", 1.0)),
        history=tuple(_batch(one, tuple(seen)) for one in about.get("history", ())),
    )


_BATCH = {"bound": float, "n_iter": int, "converged": bool, "forget": float}


def _batch(about: Mapping[str, Any], tensors: tuple[str, ...]) -> Batch:
    """One batch of an updated fit; it need not contain data of every tensor."""
    counts = {name: int(about["n_observed"][name]) for name in tensors if name in about["n_observed"]}
    return Batch(**told(about, _BATCH), n_observed=counts)


def _likelihoods(kept: Mapping[str, str], tensors: tuple[str, ...]) -> dict[str, str]:
    """Likelihood of every tensor; older files do not store it because there was only one."""
    if not set(kept.values()) <= set(LIKELIHOODS):
        raise ValueError(f"invalid likelihoods: {kept}")
    return by_tensor(kept, tensors)


def _spread(value: Any) -> float:
    if not math.isfinite(value) or value < 1:
        raise ValueError(f"invalid spread: {value!r}")
    return float(value)


def _held_out(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> HeldOut:
    cells, values, of = box.get("cells", kinds="iu"), box.get("values"), box.about.get("of")
    possible = shapes.values() if of is None else [shapes[of]]
    if not any(cells.shape == (*values.shape, len(shape)) and inside(cells.T, shape) for shape in possible):
        raise ValueError("cells must belong to a tensor")
    return HeldOut(cells, values, bool(box.about.get("sampled", False)), of)
