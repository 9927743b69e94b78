"""Compiled functions, cached on disk where possible; the cache saves time, but is never required.

Numba caches them in NUMBA_CACHE_DIR, next to the source or in the user cache folder, and fails if none of these is
writable, as in many containers. Here a private temporary folder is tried next, and then compiling without a cache.
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
if re.fullmatch(r"\s*(-\d+|\+?0+)\s*", _threads):  # Numba could not be imported with it; other non-numbers are ignored
    raise PltfError(f"NUMBA_NUM_THREADS must be a whole number of at least 1, got {_threads}")

import numba  # noqa: E402

caching: Any = import_module("numba.core.caching")  # only partly typed
if import_module("numba.core.config").DISABLE_JIT:
    raise PltfError("pltf needs the compiler of Numba: unset NUMBA_DISABLE_JIT")

_ANEW = "every process compiles them again, unless NUMBA_CACHE_DIR is set to a folder with free space"
_LASTS = "set NUMBA_CACHE_DIR to a permanent folder"
_notes: list[str] = []


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """``numba.njit``, with a cache that may fail."""
    if function is None:
        return partial(njit, cache=cache, **options)
    dispatcher = numba.njit(**options)(function)
    if cache:
        try:
            dispatcher._cache = _KernelCache(function)
        except (RuntimeError, OSError):  # Numba found no folder
            _note("compiled functions cannot be cached, because no folder is writable", _ANEW)
    return dispatcher


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """A cache that is ignored if it is damaged or full."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cached code for a signature, or None."""
        try:
            return super().load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception:  # loading a damaged pickle can raise anything
            with suppress(Exception):
                self.flush()  # so that it can be used again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache the compiled code for a signature if possible."""
        try:
            super().save_overload(sig, data)
        except MemoryError:
            raise
        except Exception as reason:
            told = getattr(reason, "strerror", None) or "its files are damaged"
            _note(f"compiled functions cannot be cached in {self.cache_path} ({told})", _ANEW)


class _TemporaryLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]
    """Makes Numba cache a function in the temporary folder."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        folder = temporary_folder()
        if folder is None:
            raise OSError
        self._folder = folder / self.get_suitable_cache_subpath(file)

    def get_cache_path(self) -> str:
        """The cache folder."""
        return str(self._folder)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        """The locator for a function, or None."""
        try:
            found = super().from_function(function, file)
        except OSError:
            return None
        if found is not None:
            _note(f"compiled functions are cached in {temporary_folder()}, because no other folder is writable", _LASTS)
        return found


class _CachePlaces(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Cache locations for a function: those of Numba, and the temporary folder."""

    _locator_classes = [*caching.CompileResultCacheImpl._locator_classes, _TemporaryLocator]  # noqa: RUF012


_KernelCache._impl_class = _CachePlaces


@lru_cache(maxsize=1)
def temporary_folder() -> Path | None:
    """A temporary folder owned by this user: code is loaded from it, so nobody else may have created it."""
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
    """Warn about the first problem; worker processes leave this to their parent."""
    if not _notes and multiprocessing.current_process().name == "MainProcess":
        warnings.warn(f"{text}: {advice}", RuntimeWarning, stacklevel=2)
    _notes.append(text)
