"""Functions whose names differ between NumPy and PyTorch, for code that supports both.

Shared methods and operators are used directly. For NumPy arrays, results are the same as with NumPy functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from pltf.engines.base import sum_of

_OF_NUMPY: Any = (np.ndarray, np.generic)  # Any: what is none has methods too


def library(array: Any) -> Any:
    """The library of an array: NumPy or PyTorch."""
    return np if isinstance(array, _OF_NUMPY) else importlib.import_module("torch")


def permuted(array: Any, order: Sequence[int]) -> Any:
    """A view with the axes in this order.

    >>> permuted(np.zeros((2, 3, 4)), [2, 0, 1]).shape
    (4, 2, 3)
    """
    return array.transpose(order) if isinstance(array, _OF_NUMPY) else array.permute(list(order))


def summed(array: Any, axes: Sequence[int]) -> Any:
    """Sum along some axes; the array itself if there are none, where PyTorch's ``sum`` would add all entries."""
    return array.sum(tuple(axes)) if axes else array


def with_axes(array: Any, axes: Collection[int]) -> Any:
    """A view with axes of size 1 at these positions of the result.

    >>> with_axes(np.zeros((2, 3)), (0, 2)).shape
    (1, 2, 1, 3)
    """
    if not axes:
        return array
    return array[tuple(None if axis in axes else slice(None) for axis in range(array.ndim + len(axes)))]


def spread(array: Any, shape: Sequence[int]) -> Any:
    """A contiguous copy of an array, broadcast to a shape."""
    if isinstance(array, _OF_NUMPY):
        return np.array(np.broadcast_to(array, shape), order="C")
    return array.new_empty(tuple(shape)).copy_(array)


def one_number(total: Any) -> Any:
    """Convert a full sum to a scalar: a float for NumPy, a 0-d tensor for PyTorch."""
    return float(total) if isinstance(total, _OF_NUMPY) else total


def added(numbers: Sequence[Any]) -> Any:
    """Sum of numbers: exact for floats; 0-d tensors are added in order, without waiting for the device.

    >>> added([1e16, 1.0, -1e16])
    1.0
    """
    return sum_of(numbers) if all(isinstance(one, float) for one in numbers) else reduce(add, numbers)


def like(host: Any, array: Any) -> Any:
    """Copy a host array to the library and device of another array; keeps its dtype."""
    return host if isinstance(array, _OF_NUMPY) else library(array).tensor(host, device=array.device)


def fetched(array: Any) -> Any:
    """Convert to a NumPy array on the host."""
    return array if isinstance(array, _OF_NUMPY) else array.cpu().numpy()
