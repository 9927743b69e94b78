"""Files and folders of work in progress: held by a lock, swept when nobody holds them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pltf
from pltf import stale_files
from pltf.stale_files import LOCK, held_file, held_folder, remove, sweep
from pltf.store import container
from pltf.store.container import replacing
from pltf.workers import SharedFolderLost, shared

HOLD = """
import os, sys
from pathlib import Path
from pltf.stale_files import held_file, held_folder
with held_folder(Path(sys.argv[1]), "pltf-") as folder, held_file(Path(sys.argv[1]), ".run.nc.", ".part") as part:
    print(folder, part, sep="\\n", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_what_is_held_is_left_alone_and_gone_afterwards(tmp_path: Path) -> None:
    with held_folder(tmp_path, "pltf-") as folder, held_file(tmp_path, ".run.nc.", ".part") as part:
        assert folder.stat().st_mode & 0o077 == 0
        with held_folder(tmp_path, "pltf-") as other, held_file(tmp_path, ".run.nc.", ".part") as second:
            assert names(tmp_path) == {folder.name, part.name, other.name, second.name}
        assert names(tmp_path) == {folder.name, part.name}
    assert names(tmp_path) == set()


def test_the_living_and_the_dead_of_other_processes_are_told_apart(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        left = {Path(owner.stdout.readline().strip()).name for _ in range(2)}
        sweep(tmp_path, "pltf-", "")
        sweep(tmp_path, ".run.nc.", ".part")
        assert names(tmp_path) == left
        owner.send_signal(signal.SIGKILL)
    assert names(tmp_path) == left
    sweep(tmp_path, "pltf-", "")
    sweep(tmp_path, ".run.nc.", ".part")
    assert names(tmp_path) == set()


def test_names_say_nothing_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another container the number of a living process may be that of none here, or of another."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / f"pltf-{2**22 + 1}-abcdefgh"
    elsewhere.mkdir()
    with shared([1]) as given:
        assert names(tmp_path) == {elsewhere.name, Path(given.folder).name}
        assert str(os.getpid()) not in Path(given.folder).name.split("-")


def test_a_folder_without_its_lock_is_somebody_elses(tmp_path: Path) -> None:
    other = tmp_path / "pltf-0123456789abcdef"
    other.mkdir()
    (other / "head").touch()
    sweep(tmp_path, "pltf-", "")
    assert other.exists()
    (other / LOCK).touch()
    sweep(tmp_path, "pltf-", "")
    assert not other.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "tmp"
    precious.mkdir()
    folder.mkdir()
    (precious / LOCK).touch()
    (folder / "pltf-0123456789abcdef").symlink_to(precious)
    (folder / ".run.nc.0123456789abcdef.part").symlink_to(precious / LOCK)
    sweep(folder, "pltf-", "")
    sweep(folder, ".run.nc.", ".part")
    assert (precious / LOCK).exists()


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".run.nc.0123456789abcdef.part").touch()
    monkeypatch.setattr(stale_files, "_fcntl", None)
    with held_folder(tmp_path, "pltf-"), replacing(tmp_path / "run.nc") as part:
        part.write_bytes(b"whole")
    assert names(tmp_path) == {".run.nc.0123456789abcdef.part", "run.nc"}


def test_one_that_is_swept_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, swept = stale_files._locked, list[Path]()

    def late(handle: int, *, alone: bool) -> bool | None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            remove(swept[0])
        return whole(handle, alone=alone)

    monkeypatch.setattr(stale_files, "_locked", late)
    with held_file(tmp_path, ".run.nc.", ".part") as part:
        assert names(tmp_path) == {part.name} != {swept[0].name}


def test_a_folder_that_cannot_be_held_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stale_files, "_held", full)
    with pytest.raises(OSError, match="No space left"), held_folder(tmp_path, "pltf-"):
        pass
    assert names(tmp_path) == set()


def test_many_writers_of_one_file_never_see_a_part(tmp_path: Path) -> None:
    path, contents = tmp_path / "run.nc", [bytes([n]) * 5000 for n in range(4)]
    with replacing(path) as part:
        part.write_bytes(contents[0])

    def write(content: bytes) -> None:
        for _ in range(25):
            with replacing(path) as part, part.open("wb") as file:
                for at in range(0, len(content), 1000):
                    file.write(content[at : at + 1000])
                    file.flush()

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        assert path.read_bytes() in contents
    assert names(tmp_path) == {"run.nc"}


def test_a_long_name_of_wide_letters_has_room_for_its_part(tmp_path: Path) -> None:
    path = tmp_path / ("語" * 80 + ".nc")
    with replacing(path) as part:
        part.write_bytes(b"whole")
    assert names(tmp_path) == {path.name}


# -- shared folders -----------------------------------------------------------------------------


def test_a_shared_folder_that_is_gone_is_an_error_and_not_a_stop() -> None:
    with shared([1, 2]) as given:
        remove(Path(given.folder))
        with pytest.raises(
            SharedFolderLost, match=r"the shared folder \S+ of the worker processes was removed"
        ) as told:
            given.stopping()
        assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
        with pytest.raises(SharedFolderLost):
            given.value()
        given.stop()
        with pytest.raises(SharedFolderLost):
            given.stopping()


def test_a_shared_file_that_is_gone_alone_is_no_stop_either() -> None:
    with shared([1, 2]) as given:
        (Path(given.folder) / "go").unlink()
        with pytest.raises(SharedFolderLost):
            given.stopping()


def test_a_new_file_can_be_read_from_the_moment_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 locks what it reads, and its writer still holds it."""
    publish, seen = container._publish, list[object]()

    def then_read(part: Path, path: Path) -> None:
        publish(part, path)
        seen.append(pltf.load(path))

    monkeypatch.setattr(container, "_publish", then_read)
    pltf.nmf(rank=1).fit([[1, 2], [3, 4]]).save(tmp_path / "run.nc")
    assert len(seen) == 1
