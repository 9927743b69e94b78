"""Packages that a plain installation lacks: the extras of pltf, and the libraries whose data it takes.

`make test-minimal` runs the tests without any of them and says so by PLTF_TEST_MINIMAL; then, and only then, what needs
one is skipped. Everywhere else a package that is absent is an error: a skip must not hide a promise.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, NoReturn

import numpy as np
import pytest

MINIMAL = bool(os.environ.get("PLTF_TEST_MINIMAL"))
TORCH = not (MINIMAL or os.environ.get("PLTF_TEST_WITHOUT_TORCH"))  # the lowest versions are tested without it


class _Absent:
    """Stands for a package that is not there: the first use skips the test, or the module, that makes it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # pytest and doctest look into all that a module holds
            raise AttributeError(name)
        pytest.skip(f"needs {self._package}", allow_module_level=True)


def required(package: str) -> Any:
    """The package; in a minimal run the whole module that asks for it is skipped."""
    if MINIMAL:
        pytest.skip(f"needs {package}", allow_module_level=True)
    return importlib.import_module(package)


def optional(package: str) -> Any:
    """The package; in a minimal run something that skips whoever uses it."""
    return _Absent(package) if MINIMAL else importlib.import_module(package)


def strict_arrays() -> Any:
    """The library that has the functions of the array API and no more; NumPy on a machine with a GPU that lacks it."""
    if os.environ.get("PLTF_TEST_GPU") and importlib.util.find_spec("array_api_strict") is None:
        return np
    return importlib.import_module("array_api_strict")
