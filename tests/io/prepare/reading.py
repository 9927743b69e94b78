"""Stores read back as plain arrays, and compared with what pltf.observe makes of the same data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import pltf
from pltf.data import CooObservation
from pltf.data.labels import Labels
from pltf.data.part_files import MISSING, VALUE, File, read_columns
from pltf.data.stored_labels import read_labels
from pltf.errors import PltfError


class Stored(NamedTuple):
    """All that is in a store."""

    about: dict[str, Any]
    parts: list[NDArray[np.int64]]  # (modes, cells)
    values: list[NDArray[Any]]
    missing: NDArray[np.int64]
    labels: dict[str, Labels]

    @property
    def cells(self) -> dict[tuple[int, ...], float]:
        """Cells and their values."""
        pairs = zip(self.parts, self.values, strict=True)
        return {tuple(cell): float(x) for at, values in pairs for cell, x in zip(at.T.tolist(), values, strict=True)}


def stored(path: Path) -> Stored:
    """Read a store, and check its order."""
    about = json.loads((path / "store.json").read_text())
    dims, owner = about["dims"], about["owner"]
    parts, values = [], []
    end = 0
    for line in about["parts"]:
        *columns, x = read_columns(path / line["file"], [*dims, VALUE])
        at = np.stack(columns).astype(np.int64)
        assert x.dtype == about["value_type"]
        assert line["cells"] == x.size == at.shape[1]
        assert (line["first"], line["last"]) == (at[owner, 0], at[owner, -1] + 1)
        assert line["first"] >= end
        end = line["last"]
        parts.append(at)
        values.append(x)
    others = sorted((mode for mode in range(len(dims)) if mode != owner), key=lambda mode: -about["sizes"][mode])
    if parts:
        whole = np.concatenate(parts, axis=1)[[owner, *others]]
        assert (np.lexsort(whole[::-1]) == np.arange(whole.shape[1])).all()
    missing = np.empty((len(dims), 0), dtype=np.int64)
    if "missing" in about:
        missing = np.stack(read_columns(path / MISSING, dims)).astype(np.int64)
    labels = {
        dim: read_labels(File(path / line["file"], line["size"], line["checksum"]), line)
        for dim, line in about["labels"].items()
    }
    return Stored(about, parts, values, missing, labels)


def assert_same(path: Path, seen: pltf.Observation) -> Stored:
    """The store has the cells, holes, labels and totals of an observation."""
    assert isinstance(seen, CooObservation)
    found = stored(path)
    assert tuple(found.about["sizes"]) == seen.shape
    assert tuple(found.about["dims"]) == seen.dims
    assert found.about["unlisted"] == seen.unlisted
    assert found.about["sizes"][found.about["owner"]] == max(seen.shape)
    cells = dict(zip(map(tuple, seen.coords.T.tolist()), seen.values.tolist(), strict=True))
    assert found.cells == pytest.approx(cells, rel=1e-12)
    assert found.about["cells"] == len(cells)
    assert set(map(tuple, found.missing.T.tolist())) == set(map(tuple, seen.missing.T.tolist()))
    assert found.missing.shape[1] == seen.missing.shape[1]
    for name in ("total", "saturated", "largest"):
        assert found.about[name] == pytest.approx(getattr(seen, name), rel=1e-12)
    assert found.about["positive"] == seen.n_positive
    assert set(found.labels) == set(seen.labels)
    for dim, labels in seen.labels.items():
        assert found.labels[dim] == labels, (found.labels[dim], labels)
        assert found.labels[dim].bin == labels.bin
        assert found.labels[dim].index.dtype.kind == labels.index.dtype.kind
    return found


def refusal(source: Any, path: Path, **options: Any) -> str:
    """Why something is not prepared: one line, and nothing is left behind."""
    before = sorted(one.name for one in path.parent.iterdir())
    with pytest.raises(PltfError) as caught:
        pltf.prepare(source, path, **options)
    assert sorted(one.name for one in path.parent.iterdir()) == before
    text = str(caught.value)
    assert "\n" not in text
    return text
