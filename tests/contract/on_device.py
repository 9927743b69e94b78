"""Engines on a device among tests that hand over NumPy arrays: factors are put there, and sums fetched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Counts, Engine
from pltf.engines.factors import Versioned
from tests.reference import Array


class OnDevice:
    """An engine of tensors as one of NumPy arrays. Factors of known versions keep them.

    Triton's interpreter computes with NumPy, which warns where a kernel divides by a zero rate.
    """

    def __init__(self, engine: Engine, device: Device) -> None:
        device.torch.set_num_threads(1)  # arrays are tiny, and threads of a busy machine wait for one another
        self._engine, self._device = engine, device
        self.names = engine.names

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return self._fetched(self._engine.counts(self._put(factors), wanted, log))

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        return self._fetched(self._engine.allocate(self._put(factors), wanted, key))

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return self._engine.together

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self._array(self._engine.exposure(self._put(factors), of))

    def total(self, factors: Mapping[str, Array]) -> float:
        return self._number(self._engine.total(self._put(factors)))

    def fresh(self) -> OnDevice:
        return OnDevice(self._engine.fresh(), self._device)

    def _put(self, factors: Mapping[str, Array]) -> Any:
        tensors = {name: self._device.put(array) for name, array in factors.items()}
        if not isinstance(factors, Versioned):
            return tensors
        return Versioned(tensors, dict(zip(factors, factors.versions(factors), strict=True)))

    def _fetched(self, counts: Counts) -> Counts:
        by_factor = {name: self._array(sums) for name, sums in counts.by_factor.items()}
        return replace(counts, by_factor=by_factor, log_term=self._number(counts.log_term))

    def _number(self, found: Any) -> float:
        """A float, or what the device keeps to itself until it is asked for."""
        if type(found) is not float:
            assert (found.dtype, found.shape) == (self._device.torch.float64, ())
            assert found.device == self._device.place
        return float(found)

    def _array(self, tensor: Any) -> Array:
        assert tensor.device == self._device.place
        assert tensor.is_contiguous()
        found: Array = tensor.cpu().numpy()
        return found


class Unwarned:
    """An engine of NumPy arrays that computes them on a device, without the warnings of Triton's interpreter."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        if name == "_engine":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._engine, name)

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def counts(self, *args: Any, **options: Any) -> Any:
        return self._engine.counts(*args, **options)

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def allocate(self, *args: Any, **options: Any) -> Any:
        return self._engine.allocate(*args, **options)
