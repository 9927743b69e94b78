"""Results on disk, one file each, written as soon as they are there: a run that is broken off goes on where it was."""

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
        self.folder, self.cores, self.until = folder, cores, until  # -1: all of them; and when to begin nothing more
        folder.mkdir(parents=True, exist_ok=True)

    def part(self, name: str) -> Store:
        """A folder in it."""
        return Store(self.folder / name, self.cores, self.until)

    def path(self, key: Key) -> Path:
        """The file of a result."""
        words = (re.sub(r"[^\w.]+", "-", str(part)).strip("-").lower() for part in key)
        return self.folder / f"{'_'.join(words)}.json"

    def get(self, key: Key) -> Json | None:
        """A result, if it is there."""
        path = self.path(key)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, key: Key, result: Json) -> None:
        """Keep a result; whoever reads sees all of it or nothing."""
        path = self.path(key)
        half = path.with_suffix(f".{os.getpid()}.part")
        half.write_text(json.dumps(result) + "\n")
        half.replace(path)


def complete(store: Store, title: str, work: Callable[..., Json], keys: Iterable[Key]) -> Iterator[tuple[Key, Json]]:
    """Do what is not there yet, as long as there is time; then all results that are there, with their keys."""
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
    with threadpool_limits(1):  # runs go side by side, and small tables gain nothing
        found = work(*key)
    store.put(key, {**found, "seconds": time.process_time() - began})
