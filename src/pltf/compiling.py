"""Compiled functions, kept on disk where that can be done: a cache saves time, and nothing depends on it.

Numba keeps them in NUMBA_CACHE_DIR, beside the source or in the cache folder of the user, and refuses to compile where
none of these can be written to, as in many containers. Here a private temporary folder is next, and then no cache.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pltf.errors import PltfError

_threads = os.environ.get("NUMBA_NUM_THREADS", "")
if re.fullmatch(r"\s*(-\d+|\+?0+)\s*", _threads):  # Numba could not be imported; it ignores what is no number
    raise PltfError(f"NUMBA_NUM_THREADS must be a whole number of at least 1, got {_threads}")

import numba  # noqa: E402

caching: Any = import_module("numba.core.caching")  # has types for half of its names
if import_module("numba.core.config").DISABLE_JIT:
    raise PltfError("pltf needs the compiler of Numba: unset NUMBA_DISABLE_JIT")

_ANEW = "every process compiles them again, unless NUMBA_CACHE_DIR names a folder with space"
_LASTS = "NUMBA_CACHE_DIR can name a folder that lasts longer"
_notes: list[str] = []


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """``numba.njit``, but for a cache that may fail."""
    if function is None:
        return partial(njit, cache=cache, **options)
    dispatcher = numba.njit(**options)(function)
    if cache:
        try:
            dispatcher._cache = _KernelCache(function)
        except (RuntimeError, OSError):  # Numba found no folder
            _note("compiled functions cannot be kept, as no folder can be written to", _ANEW)
    return dispatcher


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """A cache that is left aside when it is damaged or full."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was kept for a signature, or None."""
        try:
            return super().load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception:  # whatever a damaged pickle makes of itself
            with suppress(Exception):
                self.flush()  # so that it can be used again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for a signature, if that can be done."""
        try:
            super().save_overload(sig, data)
        except MemoryError:
            raise
        except Exception as reason:
            told = getattr(reason, "strerror", None) or "the files there are damaged"
            _note(f"compiled functions cannot be kept in {self.cache_path} ({told})", _ANEW)


class _TemporaryLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]
    """Has Numba keep a function in the temporary folder."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        folder = temporary_folder()
        if folder is None:
            raise OSError
        self._folder = folder / self.get_suitable_cache_subpath(file)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        """The locator of a function, or None."""
        try:
            found = super().from_function(function, file)
        except OSError:
            return None
        if found is not None:
            _note(f"compiled functions are kept in {temporary_folder()}, as no other folder can be written to", _LASTS)
        return found


class _Places(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Where a function may be kept: as Numba has it, and in the temporary folder."""

    _locator_classes = [*caching.CompileResultCacheImpl._locator_classes, _TemporaryLocator]  # noqa: RUF012


_KernelCache._impl_class = _Places


@lru_cache(maxsize=1)
def temporary_folder() -> Path | None:
    """A temporary folder of this user alone: code is loaded from it, so nobody else may have made it."""
    user = os.geteuid() if hasattr(os, "geteuid") else None
    try:
        folder = Path(tempfile.gettempdir(), f"pltf-compiled-{'' if user is None else user}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = user is None or (found.st_uid == user and not found.st_mode & 0o022)
    return folder if stat.S_ISDIR(found.st_mode) and private else None


def _note(text: str, advice: str) -> None:
    """Tell of the first thing that went wrong; worker processes leave that to the one that started them."""
    if not _notes and multiprocessing.current_process().name == "MainProcess":
        warnings.warn(f"{text}: {advice}", RuntimeWarning, stacklevel=2)
    _notes.append(text)
