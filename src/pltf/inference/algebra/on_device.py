"""Factors on a PyTorch device: array arithmetic, with kernels for loops over whole factors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pltf.data.numeric import frozen
from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.either import added
from pltf.engines.torch.launch import launched, power_of_two
from pltf.gamma import Array, Gamma
from pltf.inference.algebra.arrays import ArrayAlgebra, newton
from pltf.inference.algebra.base import Factors, Groups, Key
from pltf.inference.algebra.chance import TINY
from pltf.inference.algebra.host import CURVED, shapes_along
from pltf.inference.algebra.newton import BALANCE_SETTLED, BALANCE_STEPS

MOST_AT_ONCE = 1 << 16  # entries that share a learned mean, for one program to learn it
MOST_AT_A_TIME, AT_A_TIME = 4096, 256  # of these, processed by a program, and by a warp
WARP = 32  # positions of an index that a program balances: one per thread


class DeviceAlgebra(ArrayAlgebra):
    """Float64 tensors in device memory.

    Where kernels are available, each step reads its arrays once (``entry_kernels.py``); plain arithmetic would read
    them up to sixty times. Array-valued priors use plain arithmetic.

    With ``lanes``, arrays have a first axis over so many problems of the same size, and numbers are arrays of one per
    problem. Only posteriors, means, balance and acceleration support it, by kernels.

    >>> import numpy as np, pltf
    >>> from pltf.devices import device_of
    >>> algebra = DeviceAlgebra(device_of("torch:cpu"))
    >>> D, E = algebra.scales(algebra.put(np.array([2.0])), algebra.put(np.array([3.5])), pltf.Gamma(1.0, 2.0))
    >>> algebra.get(D), algebra.get(E)
    (array([0.25]), array([0.5]))
    """

    def __init__(self, device: Device, lanes: int | None = None) -> None:
        from array_api_compat import torch as xp

        super().__init__(xp, device.place)
        self._on, self._lanes = device, lanes
        self._constants: dict[Any, Any] = {}

    def __reduce__(self) -> Any:
        return DeviceAlgebra, (self._on, self._lanes)

    def put(self, host: Array) -> Any:
        """A copy in device memory. PyTorch's own ``asarray`` does not support copies from the host to a GPU."""
        return self._on.put(host, self._on.torch.float64)

    def get(self, array: Any) -> Array:
        """A copy in host memory."""
        host = array.cpu()
        return frozen((host.clone() if host is array else host).numpy())

    # -- posteriors -----------------------------------------------------------------------------

    def scales(self, C: Any, exposure: Any, prior: Gamma) -> tuple[Any, Any]:
        if not self._fused(prior):
            return super().scales(C, exposure, prior)
        D, E = self._like(C), self._like(C)
        self._run("scales", C, exposure, D, E, self._each(self._of(prior, "rate")))
        return D, E

    def geomean_kl(self, C: Any, D: Any, prior: Gamma) -> tuple[Any, Number]:
        if not self._fused(prior):
            return super().geomean_kl(C, D, prior)
        L, sums, rate = self._like(C), self._sums_of(C), self._each(self._of(prior, "rate"))
        self._run("geomean_kl", C, D, L, sums, rate, *(self._of(prior, part) for part in ("shape", "log_norm")))
        return L, self._over_programs(sums)[..., 0]

    def best_scales(
        self, C: Any, exposure: Any, prior: Gamma, groups: Groups, limits: tuple[float, float]
    ) -> tuple[Any, Any, Any]:
        entries = math.prod(groups.shape) // groups.count
        if self._on.kernels and entries <= MOST_AT_ONCE and not groups.vary(prior.shape):
            B = self._best_means(C, exposure, prior, groups, limits)
        elif self._fused(prior) and groups.count == 1:
            B = self._best_mean(C, exposure, prior, limits)
        else:
            return super().best_scales(C, exposure, prior, groups, limits)
        return B, *self.scales(C, exposure, prior.with_values(prior.shape, B))

    def _best_means(self, C: Any, exposure: Any, prior: Gamma, groups: Groups, limits: tuple[float, float]) -> Any:
        """B by one kernel, whose programs iterate over one group each; nothing is copied to the host."""
        entries = math.prod(groups.shape) // groups.count
        A, B = (self._filled(groups.value_shape, self._of(prior, part)) for part in ("shape", "mean"))
        rows = [one.permute((*groups.apart, *groups.shared)).contiguous() for one in (C, exposure)]
        block = min(power_of_two(entries), MOST_AT_A_TIME)
        warps = max(block // AT_A_TIME, 1)
        self._launch("best_means", (groups.count,), *rows, A, B, *limits, entries, BLOCK=block, num_warps=warps)
        return B

    def _filled(self, shape: tuple[int, ...], value: Any) -> Any:
        """A new array of one value, or of an array that broadcasts to it."""
        here = {"dtype": self._on.torch.float64, "device": self._on.place}
        return self._on.torch.full(shape, value, **here) if isinstance(value, float) else value.expand(shape).clone()

    def _best_mean(self, C: Any, exposure: Any, prior: Gamma, limits: tuple[float, float]) -> float:
        """B of a large factor that shares one mean: the sums are copied to the host at each Newton step."""
        A, norm = self._of(prior, "shape"), self._of(prior, "shape") * C.numel()

        def sums(B: Any) -> Any:
            both = self._sums_of(C, 2).reshape(2, -1)
            self._run("newton_sums", C, exposure, *both, A, float(B))
            return self.get(both.sum(1))

        with np.errstate(all="ignore"):
            return float(newton(np, sums, np.float64(self._of(prior, "mean")), norm, limits))

    # -- balance --------------------------------------------------------------------------------

    def trade(
        self, axes: Mapping[str, int], basis: Array, priors: Mapping[str, Gamma], E: Factors, D: Factors
    ) -> tuple[Factors, Factors]:
        """As :class:`ArrayAlgebra`, without waiting for the device."""
        if not self._on.kernels:
            return super().trade(axes, basis, priors, E, D)
        first = 0 if self._lanes is None else 1
        alpha = self._shapes_along(axes, priors, E)
        beta = self._on.torch.stack(
            [self._along(E[a], self._of(priors[a], "rate"), first + axis).reshape(-1) for a, axis in axes.items()]
        )
        scales = self._on.torch.empty_like(beta)
        sizes = {"FACTORS": len(axes), "SIZE": basis.shape[1], "STEPS": BALANCE_STEPS}
        sizes |= {"F": power_of_two(len(axes)), "M": power_of_two(basis.shape[1]), "WIDTH": WARP, "num_warps": 1}
        width = beta.shape[1]
        programs = -(-width // WARP)
        self._launch(
            "balance", (programs,), alpha, beta, self._constant(basis), scales, BALANCE_SETTLED, width, **sizes
        )
        means, deviations = {}, {}
        for s, (a, axis) in zip(scales, axes.items(), strict=True):
            means[a], deviations[a] = self._like(E[a]), self._like(E[a])
            positions, *others = E[a].shape[first + axis :]
            self._run("scale_along", E[a], D[a], s, means[a], deviations[a], math.prod(others), positions)
        return means, deviations

    def _along(self, E: Any, rate: Any, axis: int) -> Any:
        kept = {axis} if self._lanes is None else {0, axis}
        away = tuple(n for n in range(E.ndim) if n not in kept)
        rate = self._array(rate)
        if rate.numel() == 1:  # then no array of products is written
            return self._sum(E, away, keepdims=False) * rate.reshape(())
        return self._sum(E * rate, away, keepdims=False)

    def _shapes_along(self, axes: Mapping[str, int], priors: Mapping[str, Gamma], E: Factors) -> Any:
        """The sums of prior shapes along the axes: (factors, positions)."""
        if all(isinstance(priors[a].shape, float) for a in axes):
            first, lanes = (0, 1) if self._lanes is None else (1, self._lanes)
            shapes = [shapes_along(priors[a], tuple(E[a].shape[first:]), n) for a, n in axes.items()]
            return self._constant(np.tile(np.array(shapes), lanes))
        torch = self._on.torch
        ones = (self._along(torch.ones_like(E[a]), self._of(priors[a], "shape"), axis) for a, axis in axes.items())
        return torch.stack(list(ones))

    def _constant(self, host: Array) -> Any:
        """A small array on the device, copied once."""
        key = host.shape, host.tobytes()
        if key not in self._constants:
            self._constants[key] = self.put(host)
        return self._constants[key]

    # -- draws ----------------------------------------------------------------------------------

    def gamma_draws(self, C: Any, D: Any, key: Key) -> Any:
        """Draws from Gamma(shape C, scale D), all positive; made on the device with its own generator.

        Below shape 1: a draw with shape C + 1 times U^(1/C), whose logarithm does not underflow.
        """
        torch, source = self._on.torch, self._generator(key)
        small = C < 1
        z = torch._standard_gamma(C + small, generator=source)
        exponential = torch.empty_like(C).exponential_(generator=source)
        z = torch.where(small, z * torch.exp(-exponential / C), z)
        return torch.clip(z * D, min=TINY)

    def _generator(self, key: Key) -> Any:
        """The random generator of a key."""
        digest = hashlib.sha256(repr(tuple(map(int, key))).encode()).digest()
        source = self._on.torch.Generator(device=self._on.place)
        return source.manual_seed(int.from_bytes(digest[:8], "little") >> 1)

    # -- acceleration ---------------------------------------------------------------------------

    def stretch(self, old: Factors, new: Factors, eta: float, noise: float) -> Factors:
        if not self._on.kernels:
            return super().stretch(old, new, eta, noise)
        number = self._each(self._array(eta))
        return {name: self._made("stretch", old[name], b, number, noise) for name, b in new.items()}

    def log_ratio(self, a: Factors, b: Factors) -> Factors:
        if not self._on.kernels:
            return super().log_ratio(a, b)
        return {name: self._made("log_ratio", x, b[name]) for name, x in a.items()}

    def move(self, old: Factors, plain: Factors, step: Factors, length: float) -> Factors:
        if not self._on.kernels:
            return super().move(old, plain, step, length)
        number = self._each(self._array(length))
        return {name: self._made("move", old[name], b, step[name], number) for name, b in plain.items()}

    def quasi_newton(self, rows: Sequence[Factors], weight: Factors, longest: float) -> Factors | None:
        if not self._on.kernels:
            return super().quasi_newton(rows, weight, longest)
        by_factor, size = {name: [row[name] for row in rows] for name in rows[0]}, len(rows)
        lanes = self._lanes or 1
        shares = self._on.torch.empty(lanes * size, dtype=self._on.torch.float64, device=self._on.place)
        constants = {"K": size, "WIDTH": max(power_of_two(size), 2), "num_warps": 1}
        self._launch("two_loops", (lanes,), self._lower(by_factor, weight), shares, CURVED, **constants)
        return self._combined(shares, by_factor, longest)

    def _lower(self, rows: Mapping[str, Any], weight: Factors) -> Any:
        """The inner products of each row with those before it and itself; the others are not set."""
        parts = []
        for name, own in rows.items():
            sums = self._sums_of(own[0], len(own) ** 2)
            self._run("gram", *self._seven(own), weight[name], sums, like=own[0], K=len(own))
            parts.append(self._over_programs(sums, len(own) ** 2))
        return added(parts).unflatten(-1, (len(own), len(own)))

    def _combined(self, shares: Any, rows: Mapping[str, Any], longest: float) -> Factors:
        """The sum of the rows, each times its share."""
        combined = {}
        for name, own in rows.items():
            combined[name] = self._like(own[0])
            self._run("combine", *self._seven(own), shares, combined[name], longest, like=own[0], K=len(own))
        return combined

    def _number(self, total: Any) -> Number:
        """A sum over all entries, which stays on the device."""
        return total

    # -- kernels --------------------------------------------------------------------------------

    def _fused(self, prior: Gamma) -> bool:
        """Whether the kernels support this prior."""
        return (
            self._on.kernels and isinstance(prior.shape, float) and self._of(prior, "rate").numel() in (1, self._lanes)
        )

    def _made(self, name: str, *arguments: Any) -> Any:
        """Run a kernel that writes to a new array, which is passed before the numbers."""
        arrays = [one for one in arguments if not isinstance(one, float)]
        out = self._like(arrays[0])
        self._run(name, *arrays, out, *arguments[len(arrays) :])
        return out

    def _run(self, name: str, *arguments: Any, like: Any = None, **constants: int) -> None:
        """Run a kernel over all entries; arrays are read in memory order, which must be the same for all."""
        from pltf.inference.algebra import entry_kernels as kernels

        first = arguments[0] if like is None else like
        given = [one if isinstance(one, (int, float)) else one.contiguous() for one in arguments]
        lanes = self._lanes or 1
        grid = (self._programs(first), lanes)
        self._launch(name, grid, *given, first.numel() // lanes, BLOCK=kernels.BLOCK, **constants)

    def _launch(self, name: str, grid: tuple[int, ...], *operands: Any, **constants: int) -> None:
        """Run the programs of a kernel."""
        from pltf.inference.algebra import entry_kernels as kernels

        launched(self._on, getattr(kernels, name), grid, *operands, **{"num_warps": kernels.WARPS, **constants})

    def _programs(self, array: Any) -> int:
        """Number of programs for a lane of an array."""
        from pltf.inference.algebra.entry_kernels import BLOCK

        return -(-int(array.numel()) // ((self._lanes or 1) * BLOCK))

    def _each(self, number: Any) -> Any:
        """An array with a number for each lane."""
        return number if number.numel() == (self._lanes or 1) else number.expand(self._lanes)

    def _over_programs(self, sums: Any, each: int = 1) -> Any:
        """The total of each sum that programs made, and of each lane if there are any: (lanes, sums)."""
        parts = sums.reshape(self._lanes or 1, -1, each)
        total = parts[:, 0] if parts.shape[1] == 1 else parts.sum(1)
        return total[0] if self._lanes is None else total

    def _like(self, array: Any) -> Any:
        """An empty array of this shape."""
        return self._on.torch.empty(array.shape, dtype=array.dtype, device=array.device)

    def _sums_of(self, array: Any, each: int = 1) -> Any:
        """An empty array for the sums of all programs over an array."""
        count = (self._lanes or 1) * self._programs(array) * each
        return self._on.torch.empty(count, dtype=array.dtype, device=array.device)

    @staticmethod
    def _seven(rows: Sequence[Any]) -> list[Any]:
        """Pad the rows to the number of kernel arguments, by repeating the first one."""
        return [*rows, *[rows[0]] * (7 - len(rows))]
