"""Parts of a fit as arrays and plain things, and back: priors, states, runs, labels, what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import Labels
from pltf.data.pattern import DensePattern, ListedPattern, Pattern
from pltf.engines.base import Counts
from pltf.errors import PltfError
from pltf.gamma import Gamma
from pltf.inference.factors import Factors, frozen
from pltf.inference.run import Row, Run
from pltf.inference.state import Pace, State, Trail
from pltf.store.container import Box

Indices = Mapping[str, tuple[str, ...]]  # of every factor
PARTS = ("E", "L", "C", "D")  # of a state
WORDS = {"E": "mean", "L": "geomean", "C": "shape", "D": "scale"}  # what files call them


# -- states -------------------------------------------------------------------------------------


def put_state(box: Box, state: State, indices: Indices, *, pace: bool) -> None:
    """A state; with its pace it goes on as if there had been no break."""
    for part in PARTS:
        for a, array in getattr(state, part).items():
            box.put(f"{a}.{WORDS[part]}", array, indices[a])
    for a, array in state.counts.by_factor.items():
        box.put(f"{a}.counts", array, indices[a])
    put_priors(box, state.priors)
    box.about["state"] = {
        **{part: list(getattr(state, part)) for part in PARTS},
        "counts": list(state.counts.by_factor),
        "log_term": state.counts.log_term,
        "objective": state.objective,
        "zeros": state.zeros,
        "waiting": state.waiting,
        "pace": _put_pace(box, state.pace) if pace else None,
    }


def get_state(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> State:
    """The state that was put there."""
    about = box.about["state"]

    def factors(part: str, word: str) -> Factors:
        return {a: _numbers(box, f"{a}.{word}", shapes[a]) for a in about[part]}

    return State(
        **{part: factors(part, WORDS[part]) for part in PARTS},
        counts=Counts(factors("counts", "counts"), float(about["log_term"])),
        priors=get_priors(box, shapes),
        objective=float(about["objective"]),
        zeros=int(about["zeros"]),
        waiting=bool(about["waiting"]),
        pace=Pace() if about["pace"] is None else _get_pace(box, about["pace"], shapes),
    )


def _numbers(box: Box, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = box.get(name, shape)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers in float64")
    return frozen(array)


def _put_pace(box: Box, pace: Pace) -> dict[str, Any]:
    about: dict[str, Any] = {"eta": pace.eta, "refused": pace.refused, "trail": None}
    if pace.trail is not None:
        for a, array in pace.trail.before.items():
            box.put(f"{a}.before", array)
        box.put("trail.residual", pace.trail.residual)
        for number, (x, f) in enumerate(pace.trail.pairs):
            box.put(f"trail.{number}.x", x)
            box.put(f"trail.{number}.f", f)
        about["trail"] = {"before": list(pace.trail.before), "pairs": len(pace.trail.pairs)}
    return about


def _get_pace(box: Box, about: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Pace:
    trail = about["trail"]
    if trail is None:
        return Pace(float(about["eta"]), int(about["refused"]))
    before = {a: frozen(box.get(f"{a}.before", shapes[a])) for a in trail["before"]}
    pairs = tuple((box.get(f"trail.{n}.x"), box.get(f"trail.{n}.f")) for n in range(trail["pairs"]))
    return Pace(float(about["eta"]), int(about["refused"]), Trail(before, box.get("trail.residual"), pairs))


# -- priors -------------------------------------------------------------------------------------


def put_priors(box: Box, priors: Mapping[str, Gamma]) -> None:
    """Priors: single values among the plain things, others as arrays."""
    about: dict[str, dict[str, Any]] = {}
    for a, prior in priors.items():
        about[a] = {"learn": prior.learn, "tie": prior.tie}
        for part in ("shape", "mean"):
            value = np.asarray(getattr(prior, part))
            if value.ndim:
                box.put(f"{a}.prior.{part}", value)
            about[a][part] = None if value.ndim else float(value)
    box.about["priors"] = about


def get_priors(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Gamma]:
    """The priors that were put there."""
    priors = {}
    for a, about in box.about["priors"].items():
        shape, mean = (box.get(f"{a}.prior.{p}") if about[p] is None else float(about[p]) for p in ("shape", "mean"))
        prior = Gamma(shape, mean, learn=about["learn"], tie=about["tie"])
        prior.broadcast(shapes[a])
        priors[a] = prior
    return priors


# -- runs ---------------------------------------------------------------------------------------

_RUN = ("restart", "converged", "stopped", "seconds", "n_swept", "unfinished", "comparable_from")


def put_run(box: Box, run: Run, indices: Indices) -> None:
    """A run, to be gone on with."""
    put_state(box, run.state, indices, pace=True)
    box.put("trace", run.trace)
    box.about["run"] = {name: getattr(run, name) for name in _RUN}


def get_run(box: Box, shapes: Mapping[str, tuple[int, ...]]) -> Run:
    """The run that was put there."""
    return Run(state=get_state(box, shapes), trace=box.get("trace"), **{name: box.about["run"][name] for name in _RUN})


def rows_as_text(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Rows of the table of restarts as plain things."""
    return [vars(row) for row in rows]


def rows_from_text(rows: list[dict[str, Any]]) -> tuple[Row, ...]:
    """The rows again."""
    return tuple(Row(**row) for row in rows)


# -- labels -------------------------------------------------------------------------------------


def put_labels(box: Box, labels: Mapping[str, Labels]) -> None:
    """Labels stand along their axes; what a file cannot tell of their type is told beside."""
    for index, one in labels.items():
        box.coords[index] = one.index
    box.about["labels"] = {i: {"dtype": str(one.index.dtype), "bin": one.bin} for i, one in labels.items()}


def get_labels(box: Box, sizes: Mapping[str, int]) -> dict[str, Labels]:
    """The labels that were put there."""
    import pandas as pd

    labels = {}
    for index, about in box.about["labels"].items():
        held = pd.Index(box.coords[index]).rename(None)
        dtype = about["dtype"]
        held = held.astype(dtype) if np.dtype(dtype).kind != "O" else pd.Index(np.asarray(held, dtype=object))
        if len(held) != sizes[index] or held.has_duplicates:
            raise ValueError(f"{index} must have {sizes[index]} different labels")
        labels[index] = Labels(held, about["bin"])
    return labels


# -- what was observed --------------------------------------------------------------------------


def put_pattern(box: Box, pattern: Pattern) -> None:
    """Which cells were observed, and what they held."""
    if isinstance(pattern, DensePattern):
        box.about["storage"] = "dense"
        box.put("above_zero", pattern.above_zero)
        if pattern.known is not None:
            box.put("known", pattern.known)
    elif isinstance(pattern, ListedPattern):
        box.about["storage"] = "listed"
        box.put("cells", pattern.coords, ("mode", "cell"))
        if pattern.missing is not None:
            box.put("missing", pattern.missing)
    else:
        raise PltfError(f"a {type(pattern).__name__} cannot be saved")
    box.put("values", pattern.values)


def get_pattern(box: Box, shape: tuple[int, ...]) -> Pattern:
    """The pattern that was put there."""
    values = box.get("values")
    if box.about["storage"] == "dense":
        above_zero, known = box.get("above_zero"), box.arrays.get("known")
        found = DensePattern(shape, known, above_zero, values)
        if int(np.unpackbits(above_zero).sum()) != values.size:
            raise ValueError("not every cell above zero has a value")
        return found
    cells, missing = box.get("cells", (len(shape), values.size)), box.arrays.get("missing")
    for listed in (cells,) if missing is None else (cells, missing):
        if listed.shape[0] != len(shape) or ((listed < 0) | (listed >= np.array(shape)[:, None])).any():
            raise ValueError("cells must lie in the tensor")
    return ListedPattern(shape, cells, values, missing)
