"""Stores: opened, they hold what the list had; whatever is damaged is refused in one sentence."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.data import CooObservation, StoredObservation, part_files, split
from pltf.data.arrow_files import mapped_table
from pltf.data.part_files import FilePart, checksum_of, write_columns
from pltf.data.random_cells import distinct_numbers
from pltf.data.stored import open_store
from tests.extras import required
from tests.stores import in_memory, stored, write

pa = required("pyarrow")

pytestmark = pytest.mark.extra("io")
SHAPE = (30, 8, 6)


def cells(
    unlisted: str = "zero", missing: bool = True, seed: int = 3, shape: tuple[int, ...] = SHAPE
) -> CooObservation:
    rng = np.random.default_rng(seed)
    x = rng.poisson(2.0, shape) * (rng.random(shape) < 0.2)
    listed = (x > 0) | (rng.random(shape) < 0.05)
    options: dict[str, Any] = {"unlisted": unlisted}
    if unlisted == "zero" and missing:
        options["missing"] = np.argwhere(~listed & (rng.random(shape) < 0.1))
    seen = pltf.observe((np.argwhere(listed), x[listed]), shape=shape, dims=("user", "place", "act"), **options)
    assert isinstance(seen, CooObservation)
    return seen


@pytest.fixture(params=["zero", "missing"])
def seen(request: pytest.FixtureRequest) -> CooObservation:
    return cells(request.param)


def everywhere(shape: tuple[int, ...]) -> Any:
    return np.indices(shape).reshape(len(shape), -1)


def assert_alike(one: Any, other: Any) -> None:
    """Two observations of the same cells."""
    for name in ("shape", "n_observed", "n_positive", "total", "largest", "has_missing", "dims", "unlisted"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.saturated == pytest.approx(other.saturated, rel=1e-12)
    at = everywhere(one.shape)
    np.testing.assert_array_equal(one.values_at(at), other.values_at(at))
    np.testing.assert_array_equal(one.missing, other.missing)


# -- what is in a store -------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [0, 1, 2])
@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_a_store_has_what_the_list_had(seen: CooObservation, owner: int, kind: str, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", parts=4, owner=owner, kind=kind)
    assert_alike(opened, seen)
    assert opened.dtype_name == kind
    assert len(opened.parts) > 1
    one, other = opened.pattern(), seen.pattern()
    at = everywhere(SHAPE)
    np.testing.assert_array_equal(one.observed(at), other.observed(at))
    np.testing.assert_array_equal(one.positive(at), other.positive(at))
    assert one.unlisted == other.unlisted
    few, many = one.missing_cells(1), one.missing_cells(10**6)
    assert few is None
    assert (many is None) == (seen.unlisted == "missing")
    assert f"30x8x6 {kind}: {seen.n_observed:,} of 1,440 cells observed" in repr(opened)


def test_axes_may_be_turned(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", owner=1)
    turned = opened.transposed((2, 0, 1))
    assert_alike(turned, seen.transposed((2, 0, 1)))
    assert turned.owner == 2
    assert turned.parts is opened.parts
    assert turned.digest() != opened.digest()
    assert turned.transposed((1, 2, 0)).digest() == opened.digest()


def test_cells_come_back_into_memory(seen: CooObservation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = stored(seen, tmp_path / "cells")
    listed = opened.cells()
    assert listed.digest() == seen.digest()
    assert_alike(opened.in_memory(), seen)
    monkeypatch.setattr("pltf.data.stored.at_hand", lambda: 1000.0)
    with pytest.raises(pltf.ObservationError, match=r"cells of a store would take 0\.0 GB of memory"):
        opened.cells()


def test_tensors_beyond_machine_integers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    at = np.unique(rng.integers(2**30, size=(200, 3)), axis=0)
    seen = pltf.observe((at, np.arange(len(at)) + 1), shape=(2**30,) * 3, missing=[(5, 5, 5)])
    assert isinstance(seen, CooObservation)
    opened = stored(seen, tmp_path / "cells")
    asked = np.concatenate([at[::-1], at[:3] + 1, [(5, 5, 5)], at[:2]]).T
    np.testing.assert_array_equal(opened.values_at(asked), seen.values_at(asked))
    assert opened.n_observed == 2**90 - 1


def test_rows_of_a_position_may_come_in_any_order() -> None:
    seen = cells("missing")
    rng = np.random.default_rng(1)
    data = in_memory(seen, parts=3)
    mixed = []
    for part in data.parts:
        columns, x = part.load()
        order = np.lexsort((rng.random(x.size), columns[0]))
        mixed.append(replace(part, columns=tuple(column[order] for column in columns), values=x[order]))  # type: ignore[call-arg]
    at = everywhere(SHAPE)
    np.testing.assert_array_equal(replace(data, parts=tuple(mixed)).values_at(at), seen.values_at(at))


def test_first_where_and_links(tmp_path: Path) -> None:
    seen = cells()
    opened = stored(seen, tmp_path / "cells")
    found = opened.first_where(lambda values: values > 3)
    assert found is not None
    assert seen.values_at(np.array(found[0])[:, None])[0] == found[1] > 3
    assert opened.first_where(lambda values: values > 1e9) is None


def test_a_store_can_be_sent_to_another_process(tmp_path: Path) -> None:
    opened = stored(cells(), tmp_path / "cells")
    sent = pickle.dumps(opened)
    assert len(sent) < 10_000
    again = pickle.loads(sent)
    assert again.digest() == opened.digest()
    assert_alike(again, opened)


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(cells(), tmp_path / "cells")
    monkeypatch.chdir(tmp_path)
    opened = pltf.open("cells")
    monkeypatch.chdir("/")
    assert opened.values_at(np.zeros((3, 1), int)).shape == (1,)


def test_observe_takes_it_as_it_is(tmp_path: Path) -> None:
    opened = stored(cells(), tmp_path / "cells")
    assert pltf.observe(opened) is opened
    with pytest.raises(pltf.ObservationError, match="is already an observation"):
        pltf.observe(opened, unlisted="missing")


# -- hiding cells -------------------------------------------------------------------------------

ASKS: tuple[dict[str, Any], ...] = (
    {"by": "cells"},
    {"by": "nonzeros"},
    {"by": "nonzeros", "negatives": 0.5},
    {"by": "cells", "stratify": "value"},
    {"by": "user"},
    {"by": ("user", "act")},
)


@pytest.mark.parametrize("ask", [*ASKS, {"by": "cells", "stratify": 1}, {"by": "nonzeros", "stratify": "place"}])
def test_the_same_cells_are_hidden_as_of_a_list(seen: CooObservation, ask: dict[str, Any], tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", parts=5, owner=1)
    one, other = (pltf.holdout(data, 0.3, seed=4, **ask) for data in (opened, seen))
    np.testing.assert_array_equal(one.cells, other.cells)
    np.testing.assert_array_equal(one.values, other.values)
    assert isinstance(one.train, StoredObservation)
    assert_alike(one.train, other.train)
    again, twice = (pltf.holdout(data.train, 0.2, seed=5) for data in (one, other))  # of what is left, once more
    np.testing.assert_array_equal(again.cells, twice.cells)
    assert_alike(again.train, twice.train)
    assert "left to fit" in repr(one)


@pytest.mark.parametrize("ask", ASKS)
def test_cells_of_a_large_store_are_hidden_part_by_part(
    seen: CooObservation, ask: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "SMALL", 0)
    data = in_memory(seen, 5)
    found = pltf.holdout(data, 0.3, seed=4, **ask)
    other = pltf.holdout(seen, 0.3, seed=4, **ask)
    np.testing.assert_array_equal(found.values, seen.values_at(found.cells.T))
    assert len(np.unique(found.cells, axis=0)) == len(found.cells)
    assert np.isnan(found.train.values_at(found.cells.T)).all()
    assert found.train.n_observed == seen.n_observed - len(found.cells)
    if ask["by"] in ("cells", "nonzeros"):
        assert (found.values > 0).sum() == pytest.approx((other.values > 0).sum(), abs=25)
        assert len(found.cells) == len(other.cells)
    if ask["by"] == "nonzeros":
        assert (found.values > 0).sum() == (other.values > 0).sum()
    if ask["by"] == "user":
        at = everywhere(SHAPE)[:, np.isin(everywhere(SHAPE)[0], found.cells[:, 0])]
        assert np.isnan(found.train.values_at(at)).all()


def test_every_cell_is_hidden_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALL", 0)
    data, times = in_memory(cells("missing"), 4), np.zeros(SHAPE)
    for seed in range(300):
        times[tuple(pltf.holdout(data, 0.5, seed=seed).cells.T)] += 1
    hidden = times[tuple(data.cells().coords)]
    assert abs(hidden / 300 - 0.5).max() < 0.14  # five standard deviations
    assert times.sum() == hidden.sum()


def test_stratifying_a_large_store_along_an_axis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALL", 0)
    with pytest.raises(pltf.PltfError, match="stratify must be None or 'value' for a store of more than"):
        pltf.holdout(in_memory(cells("missing")), 0.3, stratify=1)


def test_hiding_the_largest_value_lowers_the_largest() -> None:
    seen = cells()
    top = seen.coords[:, seen.values == seen.largest]
    train, _ = in_memory(seen).hiding(top)
    assert train.largest == seen.values[seen.values < seen.largest].max()


@given(volume=st.integers(1, 200), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_distinct_numbers(volume: int, share: float, seed: int) -> None:
    n = int(share * volume)
    drawn = distinct_numbers(np.random.default_rng(seed), volume, n)
    assert drawn.size == n == np.unique(drawn).size
    assert drawn.size == 0 or (drawn[0] >= 0 and drawn[-1] < volume)
    assert (np.diff(drawn) > 0).all()


def test_samples_leave_out_what_is_hidden() -> None:
    data = in_memory(cells("missing"), 4)
    held = pltf.holdout(data, 0.4, seed=0)
    assert isinstance(held.train, StoredObservation)
    rng = np.random.default_rng(0)
    every = held.train.sample(rng, 10**6)
    assert sorted(map(tuple, every.T)) == sorted(map(tuple, held.train.cells().coords.T))
    some = held.train.sample(rng, 50)
    assert some.shape == (3, 50)
    assert not np.isnan(held.train.values_at(some)).any()
    ones = held.train.pick(np.arange(held.train.n_positive), lambda values: values > 0)
    assert (held.train.values_at(ones) > 0).all()
    assert len(np.unique(ones, axis=1).T) == held.train.n_positive


# -- what is refused ----------------------------------------------------------------------------


def edited(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    about = json.loads((folder / "store.json").read_text())
    edit(about)
    (folder / "store.json").write_text(json.dumps(about))
    return folder


def put(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda about: about.update(fields)


def in_part(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda about: about["parts"][1].update(fields)


def in_labels(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    entry = {"file": "store.json", "size": 1, "checksum": "", "kind": "string", "count": 30}
    return lambda about: about.update(labels={"user": {**entry, **fields}})


DAMAGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format": (put(format="csv"), "does not describe a cell store of pltf"),
    "newer": (put(version=99), r"has version 99 of the format, and this pltf reads up to 1: install a newer pltf"),
    "dims": (put(dims=["a", "a", "b"]), "'dims' must be different names"),
    "no dims": (put(dims=[]), "'dims' must be different names"),
    "value as a name": (put(dims=["value", "a", "b"]), "'dims' must be different names"),
    "sizes": (put(sizes=[30, 8]), "'sizes' must be a number from 1 to 2147483647 for each mode"),
    "size of 0": (put(sizes=[30, 0, 6]), "'sizes' must be a number from 1"),
    "true as a size": (put(sizes=[30, True, 6]), "'sizes' must be a number from 1"),
    "owner": (put(owner=3), "'owner' must be from 0 to 2, got 3"),
    "unlisted": (put(unlisted="unknown"), "'unlisted' must be one of 'zero', 'missing', got 'unknown'"),
    "value type": (put(value_type="object"), "'value_type' must be one of"),
    "cells": (put(cells=7), "the numbers of cells are inconsistent"),
    "negative": (put(positive=-1), "'positive' must be from 0"),
    "text": (put(cells="7"), "'cells' must be a whole number, got '7'"),
    "total": (put(total=float("nan")), "'total' must be a finite number, got nan"),
    "huge": (put(saturated=-(10**400)), "'saturated' must be a finite number"),
    "totals": (put(largest=0.0), "the totals are inconsistent"),
    "parts": (put(parts={}), "'parts' must be a list, got {}"),
    "a part": (put(parts=[3]), "a part must be an object, got 3"),
    "order": (in_part(first=0), "'first' must be from"),
    "beyond": (in_part(last=31), "'last' must be from"),
    "empty": (in_part(cells=0), "'cells' must be from 1"),
    "outside": (in_part(file="../part-00001.arrow"), "a file must be a plain name inside the folder"),
    "absolute": (in_part(file="/etc/passwd"), "a file must be a plain name inside the folder"),
    "windows": (in_part(file="..\\x"), "a file must be a plain name inside the folder"),
    "twice": (in_part(file="part-00000.arrow"), "is listed twice|has changed since it was written"),
    "gone": (in_part(file="part-00077.arrow"), r"part-00077\.arrow of a cell store is missing"),
    "file size": (in_part(size=5), "has changed since it was written: run prepare again"),
    "missing cells": (
        lambda about: about["missing"].update(cells=1),
        r"missing\.arrow must have 1 cells of the tensor",
    ),
    "many missing": (lambda about: about["missing"].update(cells=10**9), r"missing\.arrow is too small for"),
    "missing in ratings": (put(unlisted="missing"), "'missing' lists cells, but all cells that are not in a part are"),
    "labels": (put(labels={"city": {}}), r"'labels' must name a mode \(user, place, act\), got 'city'"),
    "labels of nothing": (put(labels={"user": {}}), "'file' must be a string, got None"),
    "labels outside": (in_labels(file="../labels-0.arrow"), "a file must be a plain name inside the folder"),
    "labels gone": (in_labels(file="labels-7.arrow"), r"labels-7\.arrow of a cell store is missing"),
    "NUL in a name": (in_labels(file="a\0b"), "a file must be a plain name inside the folder"),
    "half a character": (in_part(file="part\ud800"), "a file must be a plain name inside the folder"),
    "version": (put(version="1"), "'version' must be a whole number from 1, got '1'"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_stores(case: str, tmp_path: Path) -> None:
    edit, sentence = DAMAGED[case]
    folder = edited(write(cells(), tmp_path / "cells", parts=4), edit)
    with pytest.raises(pltf.ObservationError, match=sentence) as error:
        open_store(folder)
    assert "\n" not in str(error.value)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(pltf.ObservationError, match=r"cells does not exist: write a cell store with pltf\.prepare"):
        open_store(tmp_path / "cells")
    (tmp_path / "cells").mkdir()
    with pytest.raises(pltf.ObservationError, match=r"cells is not a cell store: it has no store\.json"):
        open_store(tmp_path / "cells")
    (tmp_path / "cells" / "store.json").write_text("[" * 100_000)
    with pytest.raises(pltf.ObservationError, match=r"store\.json is damaged: it must be JSON"):
        open_store(tmp_path / "cells")
    (tmp_path / "cells" / "store.json").write_text("[1]")
    with pytest.raises(pltf.ObservationError, match="does not describe a cell store"):
        open_store(tmp_path / "cells")
    with pytest.raises(pltf.ObservationError, match="is a file, but a cell store is a folder"):
        open_store(tmp_path / "cells" / "store.json")


def read_all(folder: Path) -> None:
    for _ in open_store(folder).blocks():
        pass


def test_a_changed_file_is_found_when_it_is_read(tmp_path: Path) -> None:
    folder = write(cells(), tmp_path / "cells")
    path = folder / "part-00001.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(pltf.ObservationError, match=r"part-00001\.arrow of a cell store has changed since"):
        read_all(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A store whose second part has other columns, with the right checksum: as a stranger might send it."""
    (part,) = [one for one in open_store(folder).parts if one.number == 1]
    assert isinstance(part, FilePart)
    columns, x = part.load()
    held: dict[str, Any] = dict(zip((*part.names, "value"), (np.array(one) for one in (*columns, x)), strict=True))
    change(held)
    part.file.path.unlink()
    write_columns(part.file.path, held)
    size, checksum = part.file.path.stat().st_size, checksum_of(part.file.path)
    return edited(folder, in_part(size=size, checksum=checksum))


def set_cell(name: str, at: int, value: float) -> Callable[[dict[str, Any]], Any]:
    return lambda held: held[name].__setitem__(at, value)


STRANGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "beyond": (set_cell("place", 3, 8), "must have positions of 'place' from 0 to 7: run prepare again"),
    "below": (set_cell("act", 0, -1), "must have positions of 'act' from 0 to 5"),
    "another part's": (set_cell("user", 0, 0), r"must be sorted by 'user', from \d+ to \d+"),
    "unsorted": (
        lambda held: held["user"].sort() or held["user"].__setitem__(slice(None), held["user"][::-1].copy()),
        "must be sorted by 'user'",
    ),
    "negative": (set_cell("value", 2, -1.0), "must have values that are finite and not negative"),
    "infinite": (set_cell("value", 2, np.inf), "must have values that are finite and not negative"),
    "types": (lambda held: held.update(place=held["place"].astype(np.int64)), "must have int32 positions and float64"),
    "value types": (lambda held: held.update(value=held["value"].astype(np.float32)), "must have int32 positions"),
    "shorter": (lambda held: held.update({name: one[:-1] for name, one in held.items()}), "must have [0-9]+ cells"),
    "no column": (lambda held: held.pop("place"), "cannot be read as a part of a cell store"),
}


@pytest.mark.parametrize("case", STRANGE)
def test_cells_that_would_lead_out_of_memory_are_refused(case: str, tmp_path: Path) -> None:
    change, sentence = STRANGE[case]
    folder = rewritten(write(cells(), tmp_path / "cells"), change)
    with pytest.raises(pltf.ObservationError, match=sentence):
        read_all(folder)
    with pytest.raises(pltf.ObservationError, match=sentence):  # it is not taken for checked
        pltf.cp(("user", "place", "act"), rank=2).fit(open_store(folder), progress=False)


def test_a_file_that_is_no_arrow_file(tmp_path: Path) -> None:
    folder = write(cells(), tmp_path / "cells")
    path = folder / "part-00001.arrow"
    path.write_bytes(b"nothing of the kind")
    edited(folder, in_part(size=path.stat().st_size, checksum=checksum_of(path)))
    with pytest.raises(pltf.ObservationError, match="cannot be read as a part of a cell store"):
        read_all(folder)


def replaced(folder: Path, name: str) -> Path:
    """Tell the size and the checksum that a file has now."""
    path = folder / name

    def edit(about: dict[str, Any]) -> None:
        for entry in (*about["parts"], *about["labels"].values()):
            if entry["file"] == name:
                checksum = checksum_of(path) if path.is_file() else ""
                entry.update(size=path.stat().st_size, checksum=checksum)

    return edited(folder, edit)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_plain_file_is_not_read(kind: str, tmp_path: Path) -> None:
    folder = write(cells(), tmp_path / "cells")
    path = folder / "part-00001.arrow"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(pltf.ObservationError, match=r"part-00001\.arrow of a cell store must be a plain file"):
        read_all(replaced(folder, path.name))


@pytest.mark.parametrize("kind", ["compressed", "no batch", "two batches"])
def test_arrow_files_that_are_no_parts(kind: str, tmp_path: Path) -> None:
    folder = write(cells(), tmp_path / "cells")
    path = folder / "part-00001.arrow"
    table = mapped_table(path)
    path.unlink()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "compressed" else None)
    with path.open("xb") as stream, pa.ipc.new_file(stream, table.schema, options=options) as writer:
        for _ in range({"compressed": 1, "no batch": 0, "two batches": 2}[kind]):
            writer.write_table(table)
    sentence = "cannot be read as a part of a cell store: " + ("it is compressed" if kind == "compressed" else "")
    with pytest.raises(pltf.ObservationError, match=sentence):
        read_all(replaced(folder, path.name))


@pytest.mark.parametrize("kind", ["starts", "text", "compressed"])
def test_labels_that_would_lead_out_of_memory_are_refused(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    pltf.prepare(pd.DataFrame({"user": ["ann", "bob"]}), folder, dims=["user"], progress=False)
    path = folder / "labels-0.arrow"
    table, content = mapped_table(path), path.read_bytes()
    path.unlink()
    if kind == "compressed":
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with path.open("xb") as stream, pa.ipc.new_file(stream, table.schema, options=options) as writer:
            writer.write_table(table)
    else:
        starts = (np.array([0, 3, 6]).tobytes(), np.array([0, 3, 1 << 40]).tobytes())
        right, wrong = starts if kind == "starts" else (b"annbob", b"ann\xffob")
        assert content.count(right) == 1
        path.write_bytes(content.replace(right, wrong))
    labels = open_store(replaced(folder, path.name)).labels["user"]
    for name in ("at", "index"):
        with pytest.raises(pltf.ObservationError, match="cannot be read as the labels of a cell store"):
            getattr(labels, name)([1])


def test_files_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(cells(), tmp_path / "cells")
    read_all(folder)
    monkeypatch.setattr(part_files, "checksum_of", lambda _: pytest.fail("read again"))
    read_all(folder)


def test_missing_cells_must_lie_in_the_tensor(tmp_path: Path) -> None:
    folder = write(cells(), tmp_path / "cells")
    path = folder / "missing.arrow"
    for place, sentence in ((8, r"missing\.arrow must have 2 cells of the tensor"), (1, "has a cell twice")):
        path.unlink()
        two = np.array([place, 1], dtype=np.int32)
        file = write_columns(path, {"user": two * 0, "place": two, "act": two * 0})
        edited(folder, put(missing={"cells": 2, **file.about()}))
        with pytest.raises(pltf.ObservationError, match=sentence):
            open_store(folder)
