"""Convert the parts of a fit to arrays and plain data, and back: priors, states, runs, labels, observed cells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.coo import UNLISTED
from pltf.data.labels import BINS, Labels, readable_zone
from pltf.data.numeric import frozen
from pltf.data.pattern import DensePattern, ForgottenPattern, ListedPattern, Pattern, listed_pattern
from pltf.data.stored import StoredPattern
from pltf.engines.base import Counts
from pltf.errors import PltfError
from pltf.fit import Fit, Sampled, masses
from pltf.gamma import PARTS, Array, Gamma
from pltf.inference.algebra import Factors
from pltf.inference.run import Row, Run
from pltf.inference.state import Pace, State, Trail
from pltf.notation import Model
from pltf.prediction.dispersion import Dispersion
from pltf.store.container import Box

if TYPE_CHECKING:
    import pandas as pd

Indices = Mapping[str, tuple[str, ...]]  # indices of every factor
_STATE = {"E": "mean", "L": "geomean", "C": "shape", "D": "scale"}  # parts of a state and their names in files


# -- states -------------------------------------------------------------------------------------


def put_state(box: Box, state: State, indices: Indices) -> None:
    """Store a state with its acceleration, so that a resumed run gives identical results."""
    for part, word in _STATE.items():
        for a, array in getattr(state, part).items():
            box.put(f"{a}.{word}", array, indices[a])
    for a, array in state.counts.by_factor.items():
        box.put(f"{a}.counts", array, indices[a])
    put_priors(box, state.priors)
    box.about["state"] = {
        **{part: list(getattr(state, part)) for part in _STATE},
        "counts": list(state.counts.by_factor),
        "log_term": state.counts.log_term,
        "objective": state.objective,
        "zeros": state.zeros,
        "waiting": state.waiting,
        "pace": _put_pace(box, state.pace, indices),
    }


def get_state(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> State:
    """Read a stored state."""
    about = box.about["state"]
    E, L, C, D = (set(about[part]) for part in _STATE)
    if not E == L == set(shapes) or not C == D <= E:
        raise ValueError("some factors are missing")
    return State(
        **{part: _factors(box, about[part], word, shapes) for part, word in _STATE.items()},
        counts=Counts(_factors(box, about["counts"], "counts", shapes), float(about["log_term"])),
        priors=get_priors(box, shapes),
        objective=float(about["objective"]),
        zeros=int(about["zeros"]),
        waiting=bool(about["waiting"]),
        pace=_get_pace(box, about["pace"], shapes),
    )


def _factors(box: Box, names: Iterable[str], word: str, shapes: Mapping[str, tuple[int, ...]]) -> Factors:
    """Arrays of some factors; they must not be negative."""
    found = {a: _numbers(box, f"{a}.{word}", shapes[a]) for a in names}
    if any((one < 0).any() for one in found.values()):
        raise ValueError(f"{word} must not be negative")
    return found


def _numbers(box: Box, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = box.get(name, shape)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers in float64")
    return frozen(array)


def _put_pace(box: Box, pace: Pace, indices: Indices) -> dict[str, Any]:
    about: dict[str, Any] = {"eta": pace.eta, "refused": pace.refused, "trail": None}
    if pace.trail is not None:
        for a, array in pace.trail.before.items():
            box.put(f"{a}.before", array, indices[a])
        entries = {"residual": pace.trail.residual}
        for number, (x, f) in enumerate(pace.trail.pairs):
            entries |= {f"{number}.x": x, f"{number}.f": f}
        for name, row in entries.items():
            flat = np.concatenate([row[a].reshape(-1) for a in pace.trail.before])
            box.put(f"trail.{name}", flat, ("trail.entry",))
        about["trail"] = {"before": list(pace.trail.before), "pairs": len(pace.trail.pairs)}
    return about


def _get_pace(box: Box, about: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Pace:
    trail = about["trail"]
    if trail is None:
        return Pace(float(about["eta"]), int(about["refused"]))
    before = {a: _numbers(box, f"{a}.before", shapes[a]) for a in trail["before"]}
    size = sum(array.size for array in before.values())

    def row(name: str) -> Factors:
        """The factors stored in one flat array."""
        ends = np.cumsum([array.size for array in before.values()])[:-1]
        parts = np.split(box.get(f"trail.{name}", (size,)), ends)
        return {a: frozen(part.reshape(shapes[a])) for a, part in zip(before, parts, strict=True)}

    pairs = tuple((row(f"{n}.x"), row(f"{n}.f")) for n in range(trail["pairs"]))
    return Pace(float(about["eta"]), int(about["refused"]), Trail(before, row("residual"), pairs))


# -- fits ---------------------------------------------------------------------------------------

_POSTERIOR = {"C": "shape", "D": "scale"}  # parts of a fit and their names in files


def put_beliefs(box: Box, fit: Fit) -> None:
    """Store the results of a fit: posteriors and point estimates, ELBO, component masses, priors."""
    indices = fit.model.factors
    for part, word in _POSTERIOR.items():
        for a, array in getattr(fit, part).items():
            box.put(f"{a}.{word}", array, indices[a])
    for a, array in fit.points.items():
        box.put(f"{a}.mean", array, indices[a])
    for index, array in fit.mass.items():
        box.put(f"{index}.mass", array, (index,))
    put_priors(box, fit.priors)
    box.about["posterior"] = {"random": list(fit.C), "points": list(fit.points), "mass": list(fit.mass)}
    if fit.sampled is not None:
        _put_draws(box, fit, fit.sampled)
    box.about |= {"bound": fit.bound, "eta": fit.pace.eta, "refused": fit.pace.refused, "waiting": fit.waiting}


def get_beliefs(box: Box, model: Model, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Read the results of a fit as a mapping by name."""
    shapes = {a: tuple(sizes[index] for index in indices) for a, indices in model.factors.items()}
    if "posterior" not in box.about:
        return _beliefs_of_format_1(get_state(box, shapes), model)
    about = box.about["posterior"]
    if sorted([*about["random"], *about["points"], *about.get("draws", ())]) != sorted(shapes):
        raise ValueError("some factors are missing")
    parts = {part: _factors(box, about["random"], word, shapes) for part, word in _POSTERIOR.items()}
    return {
        **parts,
        "points": _factors(box, about["points"], "mean", shapes),
        "mass": _factors(box, about["mass"], "mass", {index: (size,) for index, size in model.sizes.items()}),
        "bound": float(box.about["bound"]),
        "priors": get_priors(box, shapes),
        "pace": Pace(float(box.about["eta"]), int(box.about["refused"])),
        "waiting": bool(box.about["waiting"]),
        **(_get_draws(box, model, shapes) if "draws" in about else {}),
    }


_CHAIN, _DRAW, _SWEPT = "run.chain", "run.draw", "run.swept"  # axes


def _put_draws(box: Box, fit: Fit, sampled: Sampled) -> None:
    for a, array in fit.draws.items():
        box.put(f"{a}.draws", array, (_CHAIN, _DRAW, *fit.model.factors[a]))
    for index, array in sampled.mass.items():
        box.put(f"{index}.masses", array, (_CHAIN, _DRAW, index))
    box.put("run.log_likelihood", sampled.log_likelihood, (_CHAIN, _SWEPT))
    box.about["posterior"]["draws"] = list(fit.draws)
    box.about["sampled"] = {"burn_in": sampled.burn_in, "thin": sampled.thin, "seconds": sampled.seconds}


def _get_draws(box: Box, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    about, names = told(box.about["sampled"], _SAMPLED), box.about["posterior"]["draws"]
    chains, sweeps = box.arrays["run.log_likelihood"].shape
    before = chains, max(0, sweeps - about["burn_in"]) // about["thin"]
    draws = {a: (*before, *shapes[a]) for a in names}
    masses = {index: (*before, model.sizes[index]) for index in box.about["posterior"]["mass"]}
    sampled = Sampled(
        log_likelihood=_numbers(box, "run.log_likelihood", (chains, sweeps)),
        mass=_factors(box, masses, "masses", masses),
        **about,
    )
    return {"draws": _factors(box, names, "draws", draws), "sampled": sampled}


def _beliefs_of_format_1(state: State, model: Model) -> dict[str, Any]:
    """Read a file of version 0.1, which contains the full state of a fit."""
    return {
        "C": state.C,
        "D": state.D,
        "points": {a: array for a, array in state.E.items() if a not in state.C},
        "mass": masses(model, state.counts.by_factor),
        "bound": state.objective,
        "priors": state.priors,
        "pace": replace(state.pace, trail=None),
        "waiting": state.waiting,
    }


# -- dispersion ---------------------------------------------------------------------------------

_DISPERSION: dict[str, type | tuple[type, ...]] = {
    "index": (str, type(None)),
    "zeros": float,
    "power": float,
    "cells": int,
    "factor": float,
    "note": str,
    "strays": float,
    "typical": float,
}
_WITHOUT_STRAYS = {"strays": 0.0, "typical": 1.0}  # for files older than these parameters


def put_dispersion(box: Box, dispersion: Mapping[str, Dispersion]) -> None:
    """Store the overdispersion by tensor; values along an index are stored as an array."""
    about: dict[str, Any] = {}
    for name, found in dispersion.items():
        if found.index is not None:
            box.put(f"{name}.dispersion", np.asarray(found.size), (found.index,))
        size = {} if found.index is not None else {"size": float(found.size)}
        about[name] = size | {key: getattr(found, key) for key in _DISPERSION}
    box.about["dispersion"] = about


def get_dispersion(box: Box, model: Model, sizes: Mapping[str, int]) -> dict[str, Dispersion]:
    """Read the stored dispersion; older files have none."""
    found = {}
    for name, about in box.about.get("dispersion", {}).items():
        parts = {key: (_WITHOUT_STRAYS | about)[key] for key in _DISPERSION}
        index = parts["index"]
        if not all(isinstance(parts[key], kind) for key, kind in _DISPERSION.items()):
            raise ValueError(f"invalid dispersion of {name}: {about}")
        if name not in model.observed or (index is not None and index not in model.observed[name]):
            raise ValueError(f"there is no tensor {name} with index {index}")
        size = float(about["size"]) if index is None else frozen(box.get(f"{name}.dispersion", (sizes[index],)))
        shares = parts["zeros"], parts["strays"]
        if not np.all(np.asarray(size) > 0) or not all(0 <= one < 1 for one in shares) or not parts["typical"] >= 1:
            raise ValueError(f"the dispersion of {name} is out of range")
        found[name] = Dispersion(size, **parts)
    return found


# -- priors -------------------------------------------------------------------------------------


def put_priors(box: Box, priors: Mapping[str, Gamma]) -> None:
    """Store priors: single values as plain data, others as arrays."""
    about: dict[str, dict[str, Any]] = {}
    for a, prior in priors.items():
        about[a] = {"learn": prior.learn, "tie": prior.tie}
        for part in PARTS:
            value = np.asarray(getattr(prior, part))
            if value.ndim:
                box.put(f"{a}.prior.{part}", value)
            about[a][part] = None if value.ndim else float(value)
    box.about["priors"] = about


def get_priors(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Gamma]:
    """Read the stored priors."""
    priors = {}
    for a, about in box.about["priors"].items():
        shape, mean = (box.get(f"{a}.prior.{p}") if about[p] is None else float(about[p]) for p in PARTS)
        prior = Gamma(shape, mean, learn=about["learn"], tie=about["tie"])
        prior.broadcast(shapes[a])
        priors[a] = prior
    return priors


# -- runs ---------------------------------------------------------------------------------------

_RUN = {
    "restart": int,
    "converged": bool,
    "stopped": str,
    "seconds": float,
    "n_swept": int,
    "unfinished": bool,
    "comparable_from": int,
}
_SAMPLED = {"burn_in": int, "thin": int, "seconds": float}
_ROW = {"restart": int, "bound": float, "n_iter": int, "converged": bool, "stopped": str, "seconds": float}


def told(about: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Values of ``about``, checked against the expected types."""
    for name, kind in types.items():
        if type(about[name]) is not kind:
            raise ValueError(f"invalid {name}: {about[name]!r}")
    return {name: about[name] for name in types}


def put_run(box: Box, run: Run, indices: Indices) -> None:
    """Store a run so that it can be resumed."""
    put_state(box, run.state, indices)
    put_trace(box, np.array(run.trace))
    box.about["run"] = {name: getattr(run, name) for name in _RUN}


def get_run(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> Run:
    """Read a stored run."""
    return Run(state=get_state(box, shapes), trace=tuple(get_trace(box).tolist()), **told(box.about["run"], _RUN))


def put_trace(box: Box, trace: Array) -> None:
    """Store the objective after each iteration."""
    box.put("run.trace", trace, ("run.sweep",))


def get_trace(box: Box) -> Array:
    """Read the stored trace."""
    trace = box.get("run.trace")
    return frozen(trace.reshape(len(trace)))


def rows_as_text(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Rows of the table of restarts as plain data."""
    return [vars(row) for row in rows]


def rows_from_text(rows: list[dict[str, Any]]) -> tuple[Row, ...]:
    """Read the rows of the table of restarts."""
    return tuple(Row(**told(row, _ROW)) for row in rows)


# -- labels -------------------------------------------------------------------------------------


_SINCE = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_STORED = {"O": "O", "i": "i", "f": "f", "b": "i", "M": "i"}  # kinds of labels, and of the arrays that store them


def put_labels(box: Box, labels: Mapping[str, Labels]) -> None:
    """Store labels along their axes, with the type information that netCDF cannot express."""
    box.about["labels"] = {}
    for index, one in labels.items():
        kind = str(one.index.dtype)
        if kind == "object" and not all(map(_storable, one.index)):
            kind = "json"
        box.put(index, _label_array(one.index, kind), (index,), _hint(one.index))
        box.about["labels"][index] = {"kind": kind, "bin": one.bin, "zone": one.zone}


def _label_array(index: pd.Index, kind: str) -> NDArray[Any]:
    if kind == "json":
        return np.array([json.dumps(label) for label in index], dtype=object)
    if index.dtype == bool:
        return np.asarray(index, dtype=np.int8)
    return np.asarray(index.asi8 if index.dtype.kind == "M" else index)


def _hint(index: pd.Index) -> dict[str, str]:
    """Attributes from which xarray decodes dates and booleans; dates that it does not support stay as they are."""
    import pandas as pd

    if index.dtype == bool:
        return {"dtype": "bool"}
    if index.dtype.kind != "M":
        return {}
    since = f"{_SINCE[np.datetime_data(index.dtype)[0]]} since 1970-01-01"
    if index.min() < pd.Timestamp.min or index.max() > pd.Timestamp.max:
        return {"long_name": since}
    return {"units": since, "calendar": "proleptic_gregorian"}


def _storable(text: str) -> bool:
    """Whether a file can store a string unchanged: it must not contain NUL or unpaired surrogates."""
    return "\0" not in text and text.encode(errors="replace").decode() == text


def get_labels(box: Box, sizes: Mapping[str, int]) -> dict[str, Labels]:
    """Read the stored labels."""
    import pandas as pd

    labels = {}
    for index, about in box.about["labels"].items():
        as_json = about["kind"] == "json"
        dtype = np.dtype(object if as_json else about["kind"])
        array = box.get(index, (sizes[index],), _STORED[dtype.kind])
        if as_json:
            array = np.array([json.loads(label) for label in array], dtype=object)
        held = pd.Index(array.view(dtype) if dtype.kind == "M" else array.astype(dtype), dtype=dtype)
        if held.hasnans or held.has_duplicates or about["bin"] not in (None, *BINS):
            raise ValueError(f"{index} must have {sizes[index]} different labels")
        labels[index] = Labels(held, about["bin"], readable_zone(about.get("zone")))
    return labels


# -- what was observed --------------------------------------------------------------------------


def put_pattern(box: Box, pattern: Pattern) -> None:
    """Store which cells were observed, and their values."""
    if isinstance(pattern, StoredPattern):
        pattern = ForgottenPattern(pattern.unlisted, pattern.seen.digest())
    if isinstance(pattern, ForgottenPattern):
        box.about |= {"storage": "none", "unlisted": pattern.unlisted}
        box.about |= {"digest": pattern.digest} if pattern.digest else {}
        return
    if isinstance(pattern, DensePattern):
        box.about["storage"] = "dense"
        box.put("above_zero", pattern.above_zero)
        if pattern.known is not None:
            box.put("known", pattern.known)
    elif isinstance(pattern, ListedPattern):
        box.about["storage"] = "listed"
        box.put("cells", pattern.coords)
        if pattern.missing is not None:
            box.put("missing", pattern.missing)
        for mode, reached in enumerate(pattern.reached or ()):
            box.put(f"reached.{mode}", np.packbits(reached))
    else:
        raise PltfError(f"a {type(pattern).__name__} cannot be saved")
    if pattern.values is not None:
        box.put("values", pattern.values)


def get_pattern(box: Box, shape: tuple[int, ...]) -> Pattern:
    """Read the stored pattern."""
    if box.about["storage"] == "none":
        if box.about["unlisted"] not in UNLISTED:
            raise ValueError(f"invalid value for unlisted cells: {box.about['unlisted']!r}")
        return ForgottenPattern(box.about["unlisted"], str(box.about.get("digest", "")))
    values = box.get("values", kinds="iuf") if "values" in box.arrays else None
    if values is not None and not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("values must be finite and non-negative")
    if box.about["storage"] == "dense":
        bits = (-(-math.prod(shape) // 8),)
        known = box.get("known", bits, "u") if "known" in box.arrays else None
        above_zero = box.get("above_zero", bits, "u")
        if values is not None and values.shape != (int(np.unpackbits(above_zero).sum()),):
            raise ValueError("some non-zero cells have no value")
        return DensePattern(shape, known, above_zero, values)
    cells, missing = box.get("cells", kinds="iu"), box.arrays.get("missing")
    if values is None or cells.shape != (len(shape), values.size):
        raise ValueError("some cells have no value")
    for some in (cells,) if missing is None else (cells, missing):
        _check_cells(some, shape)
    return listed_pattern(shape, cells, values, missing, _reached(box, shape))


def _reached(box: Box, shape: tuple[int, ...]) -> tuple[NDArray[np.bool_], ...] | None:
    """Positions of each mode that have had data; None if all have."""
    if "reached.0" not in box.arrays:
        return None
    packed = [box.get(f"reached.{mode}", (-(-size // 8),), "u") for mode, size in enumerate(shape)]
    return tuple(np.unpackbits(one, count=size).view(bool) for one, size in zip(packed, shape, strict=True))


def _check_cells(cells: Coords, shape: tuple[int, ...]) -> None:
    """Cells must be sorted and unique, so that they can be looked up."""
    if cells.dtype.kind not in "iu" or cells.shape[:-1] != (len(shape),) or not inside(cells, shape):
        raise ValueError("cells must be inside the tensor")
    after, same = (np.full(max(cells.shape[1] - 1, 0), begin) for begin in (False, True))
    for mode in cells:
        after |= same & (mode[1:] > mode[:-1])
        same &= mode[1:] == mode[:-1]
    if not after.all():
        raise ValueError("cells must be sorted and unique")


def inside(cells: Coords, shape: tuple[int, ...]) -> bool:
    """Whether cells are inside a tensor."""
    return all(mode.min(initial=0) >= 0 and mode.max(initial=0) < size for mode, size in zip(cells, shape, strict=True))
