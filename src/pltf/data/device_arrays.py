"""Arrays of other libraries, on the host or on a GPU: PyTorch, CuPy and others that support DLPack."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.errors import ObservationError

_ON_HOST = (1, 3)  # kDLCPU and kDLCUDAHost (pinned host memory)
_CHECKED_THERE = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


def is_foreign(data: Any) -> bool:
    """Whether data are an array that NumPy may not be able to read directly.

    >>> import torch
    >>> is_foreign(torch.ones(2)), is_foreign(np.ones(2))
    (True, False)
    """
    return hasattr(data, "__dlpack_device__") and not isinstance(data, (np.ndarray, np.generic))


def lies_on_host(data: Any) -> bool:
    """Whether an array is in host memory.

    >>> import torch
    >>> lies_on_host(torch.ones(2))
    True
    """
    return int(data.__dlpack_device__()[0]) in _ON_HOST


def on_device(data: Any) -> Any:
    """An array in device memory as a PyTorch tensor, without a copy; None for other data.

    Types with little PyTorch support are left to the host, which accepts or rejects them.

    >>> on_device(np.ones(2))
    """
    if not is_foreign(data) or is_sparse(data) or lies_on_host(data):
        return None
    try:
        tensor = importlib.import_module("torch").from_dlpack(_plain(data))
    except (BufferError, RuntimeError, TypeError, ValueError, ImportError):
        return None
    return tensor if dtype_of(tensor) in _CHECKED_THERE else None


def dtype_of(tensor: Any) -> str:
    """The NumPy name of the dtype of a tensor.

    >>> import torch
    >>> dtype_of(torch.ones(2))
    'float32'
    """
    return str(tensor.dtype).removeprefix("torch.")


def on_host(data: Any, name: str) -> NDArray[Any]:
    """The array in host memory, without a copy if it is already there.

    >>> import torch
    >>> tensor = torch.ones(2)
    >>> array = on_host(tensor, "X")
    >>> tensor[0] = 7
    >>> array
    array([7., 1.], dtype=float32)
    """
    try:
        if lies_on_host(data):
            return np.from_dlpack(_plain(data))
        return np.asarray(importlib.import_module("torch").from_dlpack(_plain(data)).cpu().numpy())
    except (BufferError, RuntimeError, TypeError, ValueError, ImportError) as reason:
        kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
        raise ObservationError(f"{name}: a {kind} could not be read: {str(reason).splitlines()[0]}") from None


def _plain(data: Any) -> Any:
    """A tensor without its gradient."""
    return data.detach() if hasattr(data, "detach") else data


def is_sparse(data: Any) -> bool:
    """Whether data are a sparse PyTorch tensor."""
    return type(data).__module__.partition(".")[0] == "torch" and str(data.layout) != "torch.strided"


def sparse_parts(data: Any) -> tuple[NDArray[Any], NDArray[Any], tuple[int, ...]]:
    """Positions, values and shape of a sparse PyTorch tensor.

    >>> import torch
    >>> coords, values, shape = sparse_parts(torch.eye(3).to_sparse())
    >>> coords.T, values, shape
    (array([[0, 1, 2],
           [0, 1, 2]]), array([1., 1., 1.], dtype=float32), (3, 3))
    """
    listed = data.detach().to_sparse_coo().coalesce().cpu()
    return listed.indices().numpy().T, listed.values().numpy(), tuple(listed.shape)
