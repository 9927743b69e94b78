"""Damaged and crafted files of every format, each opened in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
from scipy import io as scipy_io
from scipy import sparse
from tests import crafted

from faults.children import Ended, command, forked
from faults.opens import Openings
from faults.samples import convert_of, done, events, fit_of, search_of
from faults.tally import Bench, Tally, folder

MEMORY = 300e6  # bytes allowed for bombs, passed as --limit
BOMB = 2_000_000_000  # bytes that they would take


def tallies(bench: Bench) -> Iterator[Tally]:
    """Damaged files of each format, then crafted ones."""
    with folder() as where:
        if not _opening_is_seen(where):
            yield Tally("other files read", why_not="openings cannot be watched here")
        sound = _sound(where)
        for path in sound:
            yield _damaged(bench, path, 0.8 / len(sound))
        yield _crafted(where)
        yield _others(where)
        yield _bombs(where)


def _sound(where: Path) -> list[Path]:
    """A file of every format that pltf reads."""
    data = events(where)
    done(*fit_of(data, where / "fit.nc"))
    (where / "kept.nc").rename(where / "checkpoint.nc")
    done(*search_of(data, where / "search.nc"))
    files = ["events.csv", "fit.nc", "checkpoint.nc", "search.nc"]
    for name in ("table.tsv", "table.csv.gz", "table.tns", "table.npz", "table.parquet", "table.nc"):
        done(*convert_of(data, where / name))
        files.append(name)
    X = np.random.default_rng(0).poisson(1.0, (9, 7)).astype(float)
    np.save(where / "array.npy", X)
    sparse.save_npz(where / "sparse.npz", sparse.csc_matrix(X))
    scipy_io.savemat(where / "array.mat", {"X": X}, do_compression=True)
    scipy_io.savemat(where / "sparse.mat", {"X": sparse.csc_matrix(X)})
    crafted.sparse_mat_73(where / "new.mat")
    return [where / name for name in (*files, "array.npy", "sparse.npz", "array.mat", "sparse.mat", "new.mat")]


def _opening_is_seen(where: Path) -> bool:
    """Whether files opened by libraries can be watched."""
    other = where / "other.nc"
    with h5py.File(other, "w"):
        openings = Openings()
    forked(lambda: h5py.File(other).close(), where / "said", openings).wait()
    return str(other) in openings.fault()


# -- damage ---------------------------------------------------------------------------------------

Change = Callable[[bytearray, np.random.Generator], bytes | bytearray]


def _flip(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    for at in rng.integers(len(content), size=rng.integers(1, 9)):
        content[at] ^= 1 << int(rng.integers(8))
    return content


def _extreme(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    at, length = int(rng.integers(len(content))), int(rng.choice([1, 2, 4, 8]))
    content[at : at + length] = bytes([int(rng.choice([0, 0x7F, 0x80, 0xFF]))]) * length
    return content


def _cut(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    return content[: int(rng.integers(len(content)))]


def _without(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
    return content[:at] + content[at + length :]


def _repeated(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 512))
    return content[:at] + content[at : at + length] * int(rng.integers(2, 5)) + content[at:]


def _noise(content: bytearray, rng: np.random.Generator) -> bytes | bytearray:
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
    content[at : at + length] = rng.bytes(length)
    return content


CHANGES: tuple[Change, ...] = (_flip, _extreme, _cut, _without, _repeated, _noise)


def _damaged(bench: Bench, path: Path, share: float) -> Tally:
    tally = Tally(f"damaged: {path.name}")
    content = path.read_bytes()
    assert not command(*_reading(path, path, path.parent), said=path.with_name("said")).wait(60).code
    kind = path.name.removeprefix(path.name.split(".")[0])
    for number in bench.rounds(share):
        changed = CHANGES[number % len(CHANGES)](bytearray(content), bench.rng)
        with folder() as inside:
            file = inside / f"file{kind}"
            file.write_bytes(changed)
            _, fault = _watched(inside / "said", *_reading(path, file, inside))
            left = [one.name for one in inside.iterdir() if one not in (file, inside / "out.nc", inside / "said")]
            tally.count(fault and f"{CHANGES[number % len(CHANGES)].__name__}: {fault}", f"left {left}" if left else "")
    return tally


def _watched(said: Path, *arguments: object) -> tuple[Ended, str]:
    """How a command ended, and the problem, if any; it may read only the files that it names."""
    openings = Openings()
    ended = command(*arguments, said=said, openings=openings).wait()
    read = openings.fault(*(one for one in arguments if isinstance(one, Path)))
    return ended, "; ".join(filter(None, (ended.fault(), read)))


def _reading(sound: Path, file: Path, inside: Path) -> list[object]:
    """A command that reads a whole file."""
    if sound.name == "fit.nc":
        return ["predict", file, "--top", 5]
    if sound.name == "checkpoint.nc":
        return fit_of(sound.with_name("events.csv"), inside / "out.nc", "--checkpoint", file)
    return ["info", file]


# -- crafted files ---------------------------------------------------------------------------------


def _crafted(where: Path) -> Tally:
    """Sparse matrices with inconsistent parts."""
    tally = Tally("crafted: sparse matrices")
    for suffix, make in crafted.SPARSE.items():
        for name, parts in crafted.UNSOUND.items():
            if (suffix, name) == ("73.mat", "too few columns"):
                continue  # the number of columns of this format follows from the starts
            path = make(where / f"unsound.{suffix}", **parts)
            ended, fault = _watched(where / "said", "info", path)
            tally.count(fault, "" if ended.code == 2 else "was read")
    return tally


def _others(where: Path) -> Tally:
    """Files that link to another file, which must not be read."""
    tally = Tally("crafted: links to other files")
    secret = where / "secret.h5"
    for suffix in (".nc", ".mat"):
        for how in crafted.OUTSIDE:
            path = crafted.reads_another(where / f"links{suffix}", how, secret)
            ended, fault = _watched(where / "said", "info", path)
            tally.count(fault, "" if ended.code == 2 else "was not refused")
    tally.count(_watched(where / "said", "info", crafted.zone_of_another(where / "zone.npz", where / "zone"))[1])
    return tally


def _bombs(where: Path) -> Tally:
    """Small files with large content, under a memory limit."""
    tally = Tally("crafted: bombs")
    for make, name, size in (
        (crafted.gzip_bomb, "bomb.csv.gz", BOMB),
        (crafted.mat_bomb, "bomb.mat", BOMB // 4),
        (crafted.hdf5_bomb, "bomb.nc", BOMB),
        (crafted.hdf5_bomb, "bomb73.mat", BOMB),
        (lambda path, size: crafted.netcdf_words(path, size // 200, "xy"), "words.nc", BOMB),
        (crafted.npz_bomb, "bomb.npz", BOMB // 4),
        (lambda path, size: crafted.npz_of_names(path, size, 0), "names.npz", BOMB),
        (crafted.parquet_bomb, "bomb.parquet", BOMB // 8),
    ):
        path = make(where / name, size)
        ended, fault = _watched(where / "said", "info", path, "--limit", f"{MEMORY / 1e6:.0f}MB")
        tally.count(fault, "" if "memory to read" in ended.said else "was not refused for its size")
        path.unlink()
    return tally
