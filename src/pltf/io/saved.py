"""Fits and searches in files."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pltf.api import METHODS
from pltf.data.split import HeldOut
from pltf.data.values import brief
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.inference.factors import frozen
from pltf.notation import Model
from pltf.selection.result import Selection
from pltf.selection.search import Outcome
from pltf.store.container import Box, Boxes, read, readable, write
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

FIT, SEARCH = "fit", "search"
_TOLD = ("method", "objective", "converged", "stopped", "best_restart", "seed", "dtype", "engine")


def save(result: Fit | Selection, path: str | os.PathLike[str]) -> None:
    """Write a fit or a search to a file; :meth:`pltf.Fit.save` says what is in it."""
    if isinstance(result, Selection):
        write(as_path(path), SEARCH, {**fit_boxes(result.best_fit), "search": _search_box(result)})
    elif isinstance(result, Fit):
        write(as_path(path), FIT, fit_boxes(result))
    else:
        raise PltfError(f"a Fit or a Selection can be saved, got {brief(result)}")


def load(path: str | os.PathLike[str]) -> Fit | Selection:
    """A fit, or a search, from the file that it was saved in.

    Loading runs no code of the file, whoever it comes from. Files of older versions of pltf can be read.

    >>> import numpy as np, pltf, tempfile, os
    >>> fit = pltf.nmf(rank=2).fit(np.diag([1, 2, 3, 4]))
    >>> path = os.path.join(tempfile.mkdtemp(), "run.nc")
    >>> fit.save(path)
    >>> again = pltf.load(path)
    >>> again.bound == fit.bound, bool((again.mean() == fit.mean()).all())
    (True, True)
    """
    where = as_path(path)
    kind, boxes = read(where)
    if kind not in (FIT, SEARCH):
        raise PltfError(f"{where} is a checkpoint of a {kind} that has not ended: go on with resume=True")
    with readable(where):
        fit = _fit(boxes)
        return fit if kind == FIT else _search(boxes["search"].about, boxes["search"], fit)


def as_path(path: Any, argument: str = "path") -> Path:
    """A path, or one sentence."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise PltfError(f"{argument} must be the name of a file, got {brief(path)}")
    where = Path(path)
    if where.is_dir():
        raise PltfError(f"{argument} must be the name of a file, and {where} is a folder")
    return where


# -- fits ---------------------------------------------------------------------------------------


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


def _fit(boxes: Boxes) -> Fit:
    root, about = boxes[""], boxes[""].about
    model = Model(about["model"], **about["latent"])
    sizes = {index: int(size) for index, size in about["sizes"].items()}
    shapes = {a: tuple(sizes[index] for index in indices) for a, indices in model.factors.items()}
    if about["method"] not in METHODS:
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


# -- searches -----------------------------------------------------------------------------------

_SEARCHED = ("best", "edges", "interrupted", "n_candidates", "unsettled", "seed")


def _search_box(found: Selection) -> Box:
    box = Box({name: getattr(found, name) for name in _SEARCHED})
    box.about["winner"] = next(n for n, one in enumerate(found.outcomes) if one is found.winner)
    box.about["failures"] = [dict(one) for one in found.failures]
    box.about["edges"] = dict(found.edges)
    box.about["outcomes"] = [outcome_as_text(one) for one in found.outcomes]
    return box


def outcome_as_text(one: Outcome) -> dict[str, Any]:
    """What came of a candidate, as plain things."""
    return {"label": one.label, "bound": one.bound, "rows": rows_as_text(one.rows), "alike": one.alike.tolist()}


def outcome_from_text(one: dict[str, Any]) -> Outcome:
    """The outcome again."""
    return Outcome(one["label"], float(one["bound"]), rows_from_text(one["rows"]), np.array(one["alike"]))


def _search(about: dict[str, Any], box: Box, fit: Fit) -> Selection:
    outcomes = tuple(outcome_from_text(one) for one in about["outcomes"])
    return Selection(
        **{name: about[name] for name in _SEARCHED},
        outcomes=outcomes,
        winner=outcomes[about["winner"]],
        best_fit=fit,
        failures=tuple(about["failures"]),
    )
