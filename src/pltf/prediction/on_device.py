"""Rates and quantiles of many cells on a device, in blocks of bounded memory; plain PyTorch in float64.

Random numbers are drawn on the host, so a seed gives the same draws on every device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pltf.data.blocks import Block, block_shape, blocks
from pltf.data.cell_index import Coords
from pltf.devices import Device
from pltf.engines.plan import human, plan_equation
from pltf.engines.torch.blocks import Leaf, block_of, budget, cells_tree, forward
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.cost import predict_bytes
from pltf.engines.ways import LISTED, Facts, Task
from pltf.errors import PltfError, py
from pltf.gamma import Array
from pltf.notation import Equation
from pltf.prediction.cells import Asked
from pltf.prediction.rates import Tell, no_one

LEAST = 1 << 24  # minimum number of products for a device; with fewer the host is faster
_FLOAT64 = np.dtype(np.float64)
Terms = Sequence[tuple[Equation, Mapping[str, Array]]]


def pays(equation: Equation, sizes: Mapping[str, int], rates: int) -> bool:
    """Whether a device is faster for this number of rates.

    >>> import pltf
    >>> equation, = pltf.nmf(rank=4).equations
    >>> pays(equation, {"r": 4}, 1000), pays(equation, {"r": 4}, 10**7)
    (False, True)
    """
    return rates * prod(sizes[index] for index in equation.summed) >= LEAST


def check_room(device: Device, entries: int) -> None:
    """Raise an error if a request does not fit in the memory of the device."""
    need, free = predict_bytes(device, entries), device.memory()[0]
    if need > free:
        sizes = f"{human(need, 'B')} on {py:device={device.name!r}}, which has {human(free, 'B')} free"
        raise PltfError(f"the prediction needs {sizes}: use {py:device='cpu'}")


class RatesOn:
    """Xhat of listed cells on a device, prepared once for many sets of factors."""

    def __init__(self, equation: Equation, sizes: Mapping[str, int], device: Device) -> None:
        shape = [sizes[index] for index in equation.output.indices]
        task = Task(equation, sizes, _FLOAT64, Facts(LISTED, _FLOAT64, prod(shape), 0, 0))
        self._device, self._tree = device, cells_tree(task)
        self._leaves = [Leaf(task, n, self._tree.nodes[n]) for n in range(task.n_factors)]
        self._names = [term.name for term in equation.factors]
        self._step = block_of(task, self._tree, device)

    def tables(self, factors: Mapping[str, Array]) -> list[Tensor]:
        """Factors of the host as tables on the device."""
        named = zip(self._names, self._leaves, strict=True)
        return [leaf.table(self._device.put(factors[name], self._device.torch.float64)) for name, leaf in named]

    def at(self, tables: Sequence[Tensor], cells: Tensor) -> Tensor:
        """Rates of cells (modes, n) on the device."""
        torch = self._device.torch
        out = torch.empty(cells.shape[1], dtype=torch.float64, device=self._device.place)
        for start in range(0, cells.shape[1], self._step):
            some = slice(start, start + self._step)
            values = forward(self._tree, self._leaves, tables, cells[:, some])
            out[some] = values[len(self._tree.nodes) - 1]
        return out


def sums(terms: Terms, sizes: Mapping[str, int], cells: Asked, device: Device, tell: Tell = no_one) -> Array:
    """The sum of some contractions at the cells, as a host array; one at a time is on the device."""
    check_room(device, max(sum(int(np.size(array)) for array in arrays.values()) for _, arrays in terms))
    out = cells.empty()
    for number, (equation, arrays) in enumerate(terms):
        parts: Iterator[tuple[Any, Array]]
        if cells.listed is None:
            parts = _of_all(equation, arrays, sizes, device)
        else:
            parts = _of_listed(equation, arrays, sizes, cells.listed, device)
        whole = out.reshape(cells.shape)
        for part, rates in parts:
            whole[part] = whole[part] + rates if number else rates
            tell(rates.size)
    return out.reshape(cells.shape)


def _of_listed(
    equation: Equation, arrays: Mapping[str, Array], sizes: Mapping[str, int], listed: Coords, device: Device
) -> Iterator[tuple[slice, Array]]:
    """Rates of listed cells, part by part."""
    rates = RatesOn(equation, sizes, device)
    tables = rates.tables(arrays)
    step = max(budget(device) // (8 * (len(listed) + 2)), 1)
    for start in range(0, listed.shape[1], step):
        part = slice(start, start + step)
        yield part, rates.at(tables, device.put(listed[:, part])).cpu().numpy()


def _of_all(
    equation: Equation, arrays: Mapping[str, Array], sizes: Mapping[str, int], device: Device
) -> Iterator[tuple[Block, Array]]:
    """Rates of a whole tensor, block by block."""
    plan = plan_equation(equation, sizes, _FLOAT64, masked=False, dtype=_FLOAT64)
    tensors: list[Tensor] = [device.put(arrays[term.name], device.torch.float64) for term in equation.factors]
    shape = block_shape(plan.shape, lambda block: plan.block_bytes(block) <= budget(device))
    for block in blocks(plan.shape, shape):
        rates: Tensor = plan.tree.forward(plan.tree.block_leaves(tensors, block))[-1]
        yield block, rates.cpu().numpy()


def quantiles(device: Device, drawn: Array, levels: Array, method: str) -> Array:
    """Quantiles of the columns of draws (draws, cells), as in ``np.quantile``, in parts that fit on the device.

    >>> from pltf.devices import device_of
    >>> drawn = np.arange(12.0).reshape(4, 3)
    >>> quantiles(device_of("torch:cpu"), drawn, np.array([0.5]), "linear")
    array([[4.5, 5.5, 6.5]])
    """
    check_room(device, 0)
    out = np.empty((len(levels), drawn.shape[1]))
    step = max(1, budget(device) // (8 * max(len(drawn), 1)))
    for start in range(0, drawn.shape[1], step):
        some = slice(start, start + step)
        out[:, some] = of_draws(device.put(drawn[:, some]), levels, method).cpu().numpy()
    return out


def of_draws(drawn: Tensor, levels: Array, method: str) -> Tensor:
    """Quantiles of the columns of a tensor (draws, cells)."""
    places = np.quantile(np.arange(drawn.shape[0], dtype=np.float64), levels, method=method)  # type: ignore[call-overload]
    ordered = drawn.sort(dim=0).values.double()
    below = np.floor(places).astype(int)
    above = np.minimum(below + 1, drawn.shape[0] - 1)
    low, high = ordered[below.tolist()], ordered[above.tolist()]
    return low + (high - low) * low.new_tensor((places - below)[:, None])
