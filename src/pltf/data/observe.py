"""Turning what people have into observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pltf.data.dense import DenseObservation, dense_observation
from pltf.errors import ObservationError

Observation = DenseObservation


def observe(data: Any, mask: Any = None, *, name: str = "data") -> Observation:
    """Check data once and say which of its cells were observed.

    ``data`` is an array of any real or integer type. A cell is missing where ``mask`` is False,
    where the array holds NaN, and where a ``numpy.ma`` array is masked; zero is a value.
    Nothing is copied and nothing is changed. ``name`` stands in the error messages.

    >>> import numpy as np, pltf
    >>> counts = np.array([[3, 0], [1, 7]])
    >>> pltf.observe(counts)
    <DenseObservation 2x2 int64: 4 of 4 cells observed, total 11>
    >>> pltf.observe(counts, mask=counts != 7).n_observed
    3
    """
    if isinstance(data, DenseObservation):
        if mask is not None:
            raise ObservationError(f"{name} is an observation and has its mask already: mask must be None")
        return data
    values = _as_array(data, name)
    known = None if mask is None else _as_mask(mask, values.shape, name)
    if isinstance(data, np.ma.MaskedArray) and data.mask is not np.ma.nomask:
        unmasked = ~np.ma.getmaskarray(data)
        known = unmasked if known is None else known & unmasked
    return dense_observation(values, known, name)


def check_array(data: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of data that :func:`observe` would take, without reading a value."""
    if isinstance(data, DenseObservation):
        return data.shape, data.values.dtype
    values = _as_array(data, name)
    return values.shape, values.dtype


def _as_array(data: Any, name: str) -> NDArray[Any]:
    if sparse.issparse(data):
        raise ObservationError(f"{name}: expected a dense array, got scipy.sparse {type(data).__name__}")
    if type(data).__module__.split(".")[0] == "pandas":
        raise ObservationError(f"{name}: expected a dense array, got a pandas {type(data).__name__}")
    try:
        values = np.asarray(np.ma.getdata(data) if isinstance(data, np.ma.MaskedArray) else data)
    except (ValueError, TypeError) as error:
        raise ObservationError(f"{name}: expected a numeric array, got {type(data).__name__}: {error}") from None
    if values.dtype.kind not in "biuf":
        raise ObservationError(f"{name}: expected real or integer numbers, got dtype {values.dtype}")
    return values


def _as_mask(mask: Any, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    known = np.asarray(mask)
    if known.shape != shape:
        raise ObservationError(f"mask must have the shape of {name}, {shape}; got {known.shape}")
    if known.dtype.kind == "b":
        return known
    if known.dtype.kind in "iuf" and np.isin(known, (0, 1)).all():
        return known.astype(bool)
    raise ObservationError(f"mask must be boolean (True = observed), got dtype {known.dtype} with other values")
