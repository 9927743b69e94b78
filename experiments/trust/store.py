"""Results on disk, one file each, written at once, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from experiments.common import Json, bar

Key = tuple[Any, ...]


class Store:
    """A folder of results."""

    def __init__(self, folder: Path, cores: int = -1, until: float = math.inf) -> None:
        self.folder, self.cores = folder, cores  # -1: all
        self.until = until  # the time after which nothing is started
        folder.mkdir(parents=True, exist_ok=True)

    def part(self, name: str) -> Store:
        """A subfolder."""
        return Store(self.folder / name, self.cores, self.until)

    def path(self, key: Key) -> Path:
        """The file of a result."""
        words = (re.sub(r"[^\w.]+", "-", str(part)).strip("-").lower() for part in key)
        return self.folder / f"{'_'.join(words)}.json"

    def get(self, key: Key) -> Json | None:
        """A result, or None."""
        path = self.path(key)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, key: Key, result: Json) -> None:
        """Save a result, with an atomic replace."""
        path = self.path(key)
        half = path.with_suffix(f".{os.getpid()}.part")
        half.write_text(json.dumps(result) + "\n")
        half.replace(path)


def complete(store: Store, title: str, work: Callable[..., Json], keys: Iterable[Key]) -> Iterator[tuple[Key, Json]]:
    """Compute missing results while there is time; then yield all existing results with their keys."""
    keys = list(keys)
    todo = [key for key in keys if store.get(key) is None]
    runs = Parallel(n_jobs=store.cores, return_as="generator_unordered")(
        delayed(_kept)(store, work, key) for key in todo
    )
    for _ in bar(runs, title, len(todo)):
        pass
    for key in keys:
        if (found := store.get(key)) is not None:
            yield key, found


def _kept(store: Store, work: Callable[..., Json], key: Key) -> None:
    if time.time() > store.until:
        return
    began = time.process_time()
    with threadpool_limits(1):  # runs are parallel, and small tables gain nothing
        found = work(*key)
    store.put(key, {**found, "seconds": time.process_time() - began})
