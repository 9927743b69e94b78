"""Open files, compressed or not, in any encoding, with one clear sentence per error."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from pltf.errors import PltfError, py
from pltf.memory import Allowance
from pltf.store.foreign import check_plain_file

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ZIP = b"PK\x03\x04"
_FIELD = 64  # bytes in memory per field of a line; a field has at least one character
_BLOCK = 1 << 16  # bytes re-encoded at a time
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def beginning(path: Path, encoding: str | None = None) -> bytes:
    """The first bytes of a file, decompressed and in UTF-8."""
    check_plain_file(path)
    with readable(path, "data", encoding):
        with path.open("rb") as file:
            if not file.read(1):
                raise PltfError(f"{path} is empty")
        with unpacked(path, encoding) as file:
            return file.read(1024)


@contextmanager
def readable(path: Path, kind: str, encoding: str | None = None) -> Iterator[None]:
    """Convert errors of readers (missing, truncated or invalid files) to one clear sentence."""
    try:
        yield
    except (PltfError, MemoryError):  # not an error of the file
        raise
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except ImportError as reason:
        if "failed to map segment" in str(reason):  # installed, but out of memory
            raise MemoryError(str(reason)) from reason
        package = (reason.name or "another package").split(".")[0]
        raise PltfError(f"reading {path} requires {package}: pip install 'pltf[io]'") from None
    except UnicodeError as reason:
        advice = f": set {py:encoding=}, for example cp1252" if encoding is None else ""
        raise PltfError(f"{path} is not valid {encoding or 'UTF-8'} text{advice}") from reason
    except Exception as reason:  # readers raise many types of error for damaged files
        text = str(getattr(reason, "strerror", None) or reason)
        if "allow_pickle" in text:
            raise PltfError(f"{path} contains Python objects, which are not loaded: save numbers") from reason
        text = " ".join(text.split())[:200] or type(reason).__name__
        raise PltfError(f"{path} cannot be read as {kind}: {text}") from reason


@contextmanager
def opened(path: Path, encoding: str | None = None) -> Iterator[TextIOWrapper]:
    """Open a text file, decompressed, with unchanged line endings."""
    with unpacked(path, encoding) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield text


class Lines:
    """The lines of a text, and the number of characters read since the last complete row.

    The length of a row, which can span several lines, is limited, because a compressed file may be one huge line.
    """

    def __init__(self, file: TextIOWrapper, allowance: Allowance) -> None:
        self._file, self._allowance = file, allowance
        self._longest = int(min(allowance.left / _FIELD, 2**62))
        self._pending = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._longest + 1)
        if not line:
            raise StopIteration
        self._pending += len(line)
        if self._pending > self._longest:
            self._allowance.refuse()
        return line

    def row_ended(self) -> int:
        """The number of characters in the row that has ended."""
        size, self._pending = self._pending, 0
        return size


# -- compressed files -------------------------------------------------------------------------------


def unpacked(path: Path, encoding: str | None = None) -> IO[bytes]:
    """The bytes of a file, decompressed; text in another encoding is converted to UTF-8."""
    packing = packing_of(path)
    if packing == "gzip":
        file: Any = gzip.open(path)  # noqa: SIM115
    elif packing == "zstd":
        import pyarrow

        file = pyarrow.input_stream(str(path), compression="zstd")
    elif packing == "zip":
        file = ZipFile(path).open(_only_member(path))  # noqa: SIM115
    else:
        file = path.open("rb")
    return cast("IO[bytes]", file if encoding is None else BufferedReader(_Recoded(file, encoding), _BLOCK))


def packing_of(path: Path) -> str | None:
    """The compression of a file, detected from its content: "gzip", "zstd", "zip" or None.

    Formats that are ZIP archives themselves, such as .npz and .xlsx, do not count as compressed.
    """
    with path.open("rb") as file:
        begin = file.read(4)
    if begin == _ZIP:
        return "zip" if zip_kind(path) is None else None
    return next((packing for mark, packing in _PACKED.items() if begin.startswith(mark)), None)


def zip_kind(path: Path) -> str | None:
    """The format of a ZIP archive, such as .xlsx; None if it only contains other files."""
    try:
        with ZipFile(path) as archive:
            names = archive.namelist()
    except BadZipFile:
        raise PltfError(f"{path} is damaged: it begins like a ZIP archive, but cannot be opened as one") from None
    if any(name.endswith(".npy") for name in names) or not names:
        return "npz"
    if "xl/workbook.xml" in names:
        return "excel"
    return "ods" if "content.xml" in names else None


def _only_member(path: Path) -> ZipInfo:
    with ZipFile(path) as archive:
        files = [one for one in archive.infolist() if not one.is_dir() and not _is_litter(one.filename)]
    if len(files) != 1:
        few = ", ".join(one.filename for one in files[:3]) + (", ..." if len(files) > 3 else "")
        raise PltfError(f"{path} must contain one file, got {len(files)} ({few}): extract it first")
    if files[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise PltfError(f"{path} uses an unsupported compression method: extract it first")
    if files[0].flag_bits & 1:
        raise PltfError(f"{path} is encrypted: extract it first")
    return files[0]


def _is_litter(name: str) -> bool:
    """Whether a file in an archive was added by the operating system."""
    return name.startswith("__MACOSX/") or name.rpartition("/")[2] in (".DS_Store", "Thumbs.db")


def name_inside(path: Path) -> Path:
    """The file name that determines the format; for an archive, the name of the file in it."""
    return Path(_only_member(path).filename) if packing_of(path) == "zip" else path


# -- encodings ----------------------------------------------------------------------------------


def checked_encoding(encoding: str | None) -> str | None:
    """Check the name of an encoding; None for UTF-8."""
    if encoding is None:
        return None
    try:
        known = codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError):
        known = None
    if known is None or not getattr(known, "_is_text_encoding", True):
        raise PltfError(f"{py:encoding} must be an encoding such as utf-8, cp1252 or utf-16, got {encoding!r}")
    return None if known.name in ("utf-8", "utf-8-sig", "ascii") else known.name


def looks_like_utf_16(begin: bytes) -> bool:
    """Whether a text begins with a UTF-16 byte order mark."""
    return begin.startswith(_UTF_16)


class _Recoded(RawIOBase):
    """A text in another encoding, re-encoded as UTF-8 bytes."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file, self._ended, self._rest = file, False, memoryview(b"")
        self._decode = codecs.getincrementaldecoder(encoding)().decode

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        """Fill a buffer with at most one block."""
        while not self._rest and not self._ended:
            raw = self._file.read(_BLOCK)
            self._ended = not raw
            self._rest = memoryview(self._decode(raw, self._ended).encode())
        size = min(len(into), len(self._rest))
        into[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()
