"""The distributions of ``noise.py`` for rates on a device: probabilities of values, in PyTorch.

PyTorch has no incomplete beta function, so tails of a negative binomial that need it are computed on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pltf.engines.either import like
from pltf.engines.torch.cells import Tensor
from pltf.prediction import noise as host
from pltf.prediction.noise import Noise


class DeviceNoise(Protocol):
    """The distribution of a value given its rate; ``x`` and ``k`` are tensors, or ``k`` is one number for all."""

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        """log P(X = x)."""

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        """P(X >= k)."""

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        """P(X <= k)."""


def noise_on(noise: Noise, put: Any) -> DeviceNoise:
    """The noise of some cells on a device; ``put`` copies an array to it."""
    if isinstance(noise, host.Bernoulli):
        return OfLinks(put)
    if isinstance(noise, host.NegativeBinomial):
        return OfNegativeBinomial(put, noise, put(np.asarray(noise.size, dtype=np.float64)))
    if isinstance(noise, host.ZeroInflated):
        return OfZeroInflated(put, noise.share, noise_on(noise.inner, put))
    if isinstance(noise, host.Strays):
        return OfStrays(put, noise.share, noise.typical, noise_on(noise.inner, put))
    assert isinstance(noise, host.Poisson)
    return OfCounts(put)


@dataclass(frozen=True, eq=False)
class _OnDevice:
    put: Any

    @property
    def torch(self) -> Any:
        import torch

        return torch

    def filled(self, k: Tensor | int, rates: Tensor) -> Tensor:
        """One number for each rate."""
        return self.torch.full_like(rates, k) if isinstance(k, int) else k


class OfCounts(_OnDevice):
    """Poisson.

    >>> import torch
    >>> rates = torch.tensor([0.0, 2.0], dtype=torch.float64)
    >>> noise_on(host.Poisson(), torch.tensor).at_least(1, rates).numpy().round(4).tolist()
    [0.0, 0.8647]
    """

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        special = self.torch.special
        return special.xlogy(x, rates) - rates - special.gammaln(x + 1)

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        torch = self.torch
        if isinstance(k, int) and k < 2:
            return -torch.expm1(-rates) if k == 1 else torch.ones_like(rates)
        k = self.filled(k, rates)
        return torch.where(k > 0, torch.special.gammainc(torch.clip(k, min=1), rates), 1.0)

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        return self.torch.special.gammaincc(self.filled(k, rates) + 1, rates)


class OfLinks(_OnDevice):
    """Links: 1 where a Poisson count is above zero, otherwise 0."""

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        torch = self.torch
        link = torch.log(-torch.expm1(-rates))
        return torch.where(x == 1, link, torch.where(x == 0, -rates, -torch.inf))

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        torch, k = self.torch, self.filled(k, rates)
        return torch.where(k <= 0, 1.0, torch.where(k <= 1, -torch.expm1(-rates), 0.0))

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        torch, k = self.torch, self.filled(k, rates)
        return torch.where(k < 0, 0.0, torch.where(k < 1, torch.exp(-rates), 1.0))


@dataclass(frozen=True, eq=False)
class OfNegativeBinomial(_OnDevice):
    """Negative binomial: Poisson counts whose rates vary."""

    noise: host.NegativeBinomial
    size: Tensor

    def _shape(self, rates: Tensor) -> Tensor:
        shape = self.size * rates**self.noise.power if self.noise.power else self.size.expand_as(rates)
        return self.torch.clip(shape, host._SMALLEST, host._POISSON)

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        torch, size = self.torch, self._shape(rates)
        special, small = torch.special, torch.clip(size, max=host._STIRLING)
        choose = self._log_ratio(x, small) - special.gammaln(small)
        few = choose - small * torch.log1p(rates / small) + special.xlogy(x, rates / (small + rates))
        return torch.where(size < host._STIRLING, few, self._of_large(x, rates, torch.clip(size, min=host._STIRLING)))

    def _log_ratio(self, x: Tensor, size: Tensor) -> Tensor:
        """log Gamma(x + size) / Gamma(x + 1); for large x by Stirling's series without the canceling terms."""
        torch, gammaln = self.torch, self.torch.special.gammaln
        far = torch.clip(x, min=host._STIRLING)
        powers = (far + 0.5) * torch.log1p((size - 1) / (far + 1)) + (size - 1) * (torch.log(far + size) - 1)
        series = powers + host._stirling_rest(far + size) - host._stirling_rest(far + 1)
        return torch.where(x < host._STIRLING, gammaln(x + size) - gammaln(x + 1), series)

    def _of_large(self, x: Tensor, rates: Tensor, size: Tensor) -> Tensor:
        """As in ``noise.py``: a Poisson in the limit."""
        torch, special = self.torch, self.torch.special
        beside = torch.abs(x - rates) / (size + torch.minimum(x, rates))
        ratio = torch.where(x >= rates, 1.0, -1.0) * torch.log1p(beside)
        powers = special.xlogy(x, rates) - special.gammaln(x + 1) - x
        powers = powers + (size + x) * ratio - 0.5 * torch.log1p(x / size)
        return powers + host._stirling_rest(size + x) - host._stirling_rest(size)

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        if isinstance(k, int) and k < 2:
            torch, size = self.torch, self._shape(rates)
            return -torch.expm1(-size * torch.log1p(rates / size)) if k == 1 else torch.ones_like(rates)
        return self._on_host(self.noise.at_least, k, rates)

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        return self._on_host(self.noise.at_most, k, rates)

    def _on_host(self, tail: Any, k: Tensor | int, rates: Tensor) -> Tensor:
        return like(tail(k if isinstance(k, int) else k.cpu().numpy(), rates.cpu().numpy()), rates)


@dataclass(frozen=True, eq=False)
class OfZeroInflated(_OnDevice):
    """Excess zeros: zero in a share of all cases."""

    share: float
    inner: DeviceNoise

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        torch = self.torch
        counted = float(np.log1p(-self.share)) + self.inner.log_prob(x, rates / (1 - self.share))
        zero = torch.logaddexp(torch.full_like(counted, float(np.log(self.share))), counted)
        return torch.where(x == 0, zero, counted)

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        counted = (1 - self.share) * self.inner.at_least(k, rates / (1 - self.share))
        return self.torch.where(self.filled(k, rates) > 0, counted, 1.0)

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        counted = self.share + (1 - self.share) * self.inner.at_most(k, rates / (1 - self.share))
        return self.torch.where(self.filled(k, rates) >= 0, counted, 0.0)


@dataclass(frozen=True, eq=False)
class OfStrays(_OnDevice):
    """Strays: counts independent of their rate, in a share of all cases."""

    share: float
    typical: float
    inner: DeviceNoise

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        torch, inner = self.torch, self.inner.log_prob(x, rates)
        longer = torch.special.xlog1py(torch.clip(x - 1, min=0), x.new_tensor(-1 / self.typical))
        stray = torch.where(x > 0, longer - float(np.log(self.typical)), -torch.inf)
        mixed = torch.logaddexp(float(np.log1p(-self.share)) + inner, float(np.log(self.share)) + stray)
        return torch.where(rates > 0, mixed, inner)

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        share = self._share(rates)
        return (1 - share) * self.inner.at_least(k, rates) + share * self._longer(self.filled(k, rates) - 1)

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        share = self._share(rates)
        return (1 - share) * self.inner.at_most(k, rates) + share * (1 - self._longer(self.filled(k, rates)))

    def _share(self, rates: Tensor) -> Tensor:
        return (rates > 0).to(rates.dtype) * self.share

    def _longer(self, k: Tensor) -> Tensor:
        """P(X > k) of a stray."""
        torch = self.torch
        return torch.exp(torch.special.xlog1py(torch.clip(k, min=0), k.new_tensor(-1 / self.typical)))
