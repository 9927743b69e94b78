"""Checkpoints: a fit that is interrupted at any time can be resumed, with an identical result."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pltf.errors import PltfError, py
from pltf.fit import Fit
from pltf.gamma import Gamma
from pltf.inference.run import Standing
from pltf.store.container import Box, Boxes, as_text, check_writable, read, readable, write
from pltf.store.fits import FIT, fit_from, save_fit
from pltf.store.serialize import Indices, get_run, put_run, rows_as_text, rows_from_text, told

UNFINISHED = "checkpoint of a fit"
LATER = ("ways",)  # parts of an identity that version 0.1 did not store

Shapes = Mapping[str, tuple[int, ...]]
Identity = dict[str, Any]  # settings that must match to resume


class Place:
    """A checkpoint file: checked before any work, including what an earlier run left in it."""

    def __init__(self, checkpoint: str | os.PathLike[str] | None, every: float, resume: bool) -> None:
        self.path = None if checkpoint is None else Path(checkpoint)
        self.every = every
        self.kind, self.boxes = "", Boxes()
        if self.path is None:
            if resume:
                raise PltfError(f"{py:resume=True} needs {py:checkpoint=}, the file to resume from")
            return
        if not self.path.parent.is_dir():
            raise PltfError(f"{py:checkpoint} must be in an existing folder, but {self.path.parent} does not exist")
        check_writable(self.path)
        if self.path.exists():
            if not resume:
                raise PltfError(f"{self.path} already exists: resume from it with {py:resume=True}, or remove it")
            self.kind, self.boxes = read(self.path)
            if "checkpoint" not in self.boxes:
                raise PltfError(f"{self.path} is not a checkpoint")

    @property
    def identity(self) -> Identity | None:
        """Settings of the earlier run."""
        if self.path is None or not self.boxes:
            return None
        with readable(self.path):
            identity = dict(self.boxes["checkpoint"].about["identity"])
            return identity | told(identity, {"seed": int})

    def check(self, identity: Identity) -> None:
        """Raise an error if the checkpoint belongs to a different call."""
        known = self.identity
        if known is None:
            return
        new = json.loads(as_text(identity))
        known = {**{name: new[name] for name in LATER if name in new}, **known}
        if set(known) != set(new):
            raise PltfError(f"{self.path} is the {self.kind.removeprefix('checkpoint of a ')} of a different call")
        for name, value in new.items():
            if known[name] != value:
                what = "different data" if name == "data" else f"a different {py:{name}}"
                both = f" ({known[name]} there, {value} here)" if isinstance(value, (str, int, float)) else ""
                raise PltfError(f"{self.path} was started with {what}{both}: it cannot be resumed")


class FitCheckpoint:
    """Saves the progress of one fit to a file every few seconds."""

    def __init__(self, place: Place, identity: Identity, indices: Indices, shapes: Shapes) -> None:
        assert place.path is not None
        self._path, self._every, self.identity, self._indices = place.path, place.every, identity, indices
        self._last = time.monotonic()
        self.standing: Standing | None = None
        self.finished: Fit | None = None
        place.check(identity)
        with readable(self._path):
            if place.kind == UNFINISHED:
                self.standing = _standing(place.boxes, shapes)
            elif place.kind == FIT:
                self.finished = fit_from(place.boxes)

    def due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def keep(self, standing: Standing) -> None:
        head = Box({"identity": self.identity, "rows": rows_as_text(standing.rows)})
        boxes = {"checkpoint": head, "going": Box()}
        put_run(boxes["going"], standing.going, self._indices)
        if standing.best is not None:
            boxes["best"] = Box()
            put_run(boxes["best"], standing.best, self._indices)
        self.write(UNFINISHED, boxes)

    def write(self, kind: str, boxes: Boxes) -> None:
        """Write a checkpoint and schedule the next one."""
        kept(lambda: write(self._path, kind, boxes))
        self._last = time.monotonic()

    def end(self, fit: Fit) -> None:
        """Save the final result."""
        kept(lambda: save_fit(fit, self._path, {"checkpoint": Box({"identity": self.identity})}))


def kept(write: Callable[[], None]) -> None:
    """Write, or warn on failure: a full disk must not lose hours of work."""
    try:
        write()
    except PltfError as error:
        warnings.warn(f"{error}; continuing without a checkpoint", RuntimeWarning, stacklevel=2)


def _standing(boxes: Boxes, shapes: Shapes) -> Standing:
    best = get_run(boxes["best"], shapes) if "best" in boxes else None
    return Standing(best, rows_from_text(boxes["checkpoint"].about["rows"]), get_run(boxes["going"], shapes))


def digest_of(value: Any) -> Any:
    """Plain text that identifies a setting; arrays are replaced by a content hash."""
    if isinstance(value, Mapping):
        return {str(name): digest_of(one) for name, one in value.items()}
    if isinstance(value, Gamma):
        return {
            "shape": digest_of(value.shape),
            "mean": digest_of(value.mean),
            "learn": value.learn,
            "tie": value.tie,
        }
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (type, np.dtype)):
        return np.dtype(value).name
    array = np.ascontiguousarray(value)
    return f"{array.shape} {hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}"
