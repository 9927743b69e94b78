"""Noise for rates on a device. PyTorch has no beta functions, so negative binomials differ from ``noise.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pltf.engines.either import library, like
from pltf.engines.torch.cells import Tensor
from pltf.prediction import noise as host
from pltf.prediction.noise import Noise, special_of


def noise_on(noise: Noise, put: Any) -> Any:
    """The noise of some cells on a device, for probabilities of values; ``put`` copies an array to it.

    >>> import torch
    >>> rates = torch.tensor([0.0, 2.0], dtype=torch.float64)
    >>> noise_on(host.Poisson(), torch.tensor).at_least(1, rates).numpy().round(4).tolist()
    [0.0, 0.8647]
    """
    if isinstance(noise, host.ZeroInflated | host.Strays):
        return replace(noise, inner=noise_on(noise.inner, put))
    if isinstance(noise, host.NegativeBinomial):
        return NegativeBinomialOn(noise, put(np.asarray(noise.size, dtype=np.float64)))
    return noise


@dataclass(frozen=True, eq=False)
class NegativeBinomialOn:
    """A negative binomial on a device. Tails that need the incomplete beta function are computed on the host."""

    noise: host.NegativeBinomial
    size: Tensor

    def _shape(self, rates: Tensor) -> Tensor:
        shape = self.size * rates**self.noise.power if self.noise.power else self.size.expand_as(rates)
        return library(rates).clip(shape, host.SMALLEST_SHAPE, host.LARGEST_SHAPE)

    def log_prob(self, x: Tensor, rates: Tensor) -> Tensor:
        torch, size = library(rates), self._shape(rates)
        special, small = torch.special, torch.clip(size, max=host.STIRLING)
        choose = self._log_ratio(x, small) - special.gammaln(small)
        few = choose - small * torch.log1p(rates / small) + special.xlogy(x, rates / (small + rates))
        many = host.log_prob_of_large(x, rates, torch.clip(size, min=host.STIRLING))
        return torch.where(size < host.STIRLING, few, many)

    def _log_ratio(self, x: Tensor, size: Tensor) -> Tensor:
        """log Gamma(x + size) / Gamma(x + 1); for large x by Stirling's series without the canceling terms."""
        torch, gammaln = library(x), special_of(x).gammaln
        far = torch.clip(x, min=host.STIRLING)
        powers = (far + 0.5) * torch.log1p((size - 1) / (far + 1)) + (size - 1) * (torch.log(far + size) - 1)
        series = powers + host.stirling_rest(far + size) - host.stirling_rest(far + 1)
        return torch.where(x < host.STIRLING, gammaln(x + size) - gammaln(x + 1), series)

    def at_least(self, k: Tensor | int, rates: Tensor) -> Tensor:
        if isinstance(k, int) and k < 2:
            torch, size = library(rates), self._shape(rates)
            return -torch.expm1(-size * torch.log1p(rates / size)) if k == 1 else torch.ones_like(rates)
        return self._on_host(self.noise.at_least, k, rates)

    def at_most(self, k: Tensor | int, rates: Tensor) -> Tensor:
        return self._on_host(self.noise.at_most, k, rates)

    def _on_host(self, tail: Any, k: Tensor | int, rates: Tensor) -> Tensor:
        return like(tail(k if isinstance(k, int) else k.cpu().numpy(), rates.cpu().numpy()), rates)
