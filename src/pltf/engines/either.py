"""Where NumPy and PyTorch have different names, for code that takes arrays of either.

Methods and operators that both have need nothing from here. NumPy does what it would do without this.
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
    """NumPy or PyTorch, whichever made an array."""
    return np if isinstance(array, _OF_NUMPY) else importlib.import_module("torch")


def permuted(array: Any, order: Sequence[int]) -> Any:
    """A view with the axes in this order.

    >>> permuted(np.zeros((2, 3, 4)), [2, 0, 1]).shape
    (4, 2, 3)
    """
    return array.transpose(order) if isinstance(array, _OF_NUMPY) else array.permute(list(order))


def summed(array: Any, axes: Sequence[int]) -> Any:
    """The sum along some axes; the array itself without any, where ``sum`` of PyTorch would add up all of it."""
    return array.sum(tuple(axes)) if axes else array


def with_axes(array: Any, axes: Collection[int]) -> Any:
    """A view with axes of size 1 at these places of the result.

    >>> with_axes(np.zeros((2, 3)), (0, 2)).shape
    (1, 2, 1, 3)
    """
    if not axes:
        return array
    return array[tuple(None if axis in axes else slice(None) for axis in range(array.ndim + len(axes)))]


def spread(array: Any, shape: Sequence[int]) -> Any:
    """A contiguous copy of an array, broadcast to this shape."""
    if isinstance(array, _OF_NUMPY):
        return np.array(np.broadcast_to(array, shape), order="C")
    return array.new_empty(tuple(shape)).copy_(array)


def one_number(total: Any) -> Any:
    """A sum that an array gave as a number: a float of NumPy, and of PyTorch the 0-d tensor."""
    return float(total) if isinstance(total, _OF_NUMPY) else total


def added(numbers: Sequence[Any]) -> Any:
    """The sum of some numbers: exact for floats; 0-d tensors are added in their order, and nothing waits for the sum.

    >>> added([1e16, 1.0, -1e16])
    1.0
    """
    return sum_of(numbers) if all(isinstance(one, float) for one in numbers) else reduce(add, numbers)


def like(host: Any, array: Any) -> Any:
    """An array of the host in the library, and on the device, of another one; it keeps its dtype."""
    return host if isinstance(array, _OF_NUMPY) else library(array).tensor(host, device=array.device)


def fetched(array: Any) -> Any:
    """An array as one of NumPy, on the host."""
    return array if isinstance(array, _OF_NUMPY) else array.cpu().numpy()
