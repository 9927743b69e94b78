"""A slow program for any model, written from the equations alone: the oracle of the tests.

It shares nothing with pltf but the notation. Every sum is one plain einsum over all indices at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, xlogy

import pltf
from pltf.notation import Equation, Term

Array = NDArray[np.float64]
Arrays = Mapping[str, Array]


@dataclass
class Reference:
    model: pltf.Model
    data: Arrays  # tensor -> values
    masks: Mapping[str, NDArray[np.bool_]]
    shape: Arrays = field(default_factory=dict)  # prior shape A of each free factor, full size
    mean: Arrays = field(default_factory=dict)  # prior mean B
    likelihoods: Mapping[str, str] = field(default_factory=dict)  # of tensors; "poisson" where none is named

    def xhat(self, equation: Equation, Z: Arrays) -> Array:
        return self._einsum(equation.factors, equation.output, [Z[term.name] for term in equation.factors])

    def delta(self, equation: Equation, name: str, Q: Array, Z: Arrays) -> Array:
        """Q contracted with all factors but one; ones in its place keep its lone indices."""
        arrays = [np.ones_like(Z[t.name]) if t.name == name else Z[t.name] for t in equation.factors]
        target = next(term for term in equation.factors if term.name == name)
        return self._einsum((*equation.factors, equation.output), target, [*arrays, Q])

    def _einsum(self, terms: tuple[Term, ...], target: Term, arrays: list[Array]) -> Array:
        numbers = {index: n for n, index in enumerate(dict.fromkeys(i for term in terms for i in term.indices))}
        operands: list[object] = []
        for term, array in zip(terms, arrays, strict=True):
            operands += [array, [numbers[index] for index in term.indices]]
        return np.asarray(np.einsum(*operands, [numbers[index] for index in target.indices]))  # type: ignore[call-overload]

    def counts(self, name: str, Z: Arrays) -> Array:
        """Z_a * Delta_a(M*X/Xhat), summed over the tensors that hold the factor."""
        total = np.zeros_like(Z[name])
        for equation in self.model.equations:
            if name in {term.name for term in equation.factors}:
                x, mask = self.data[equation.output.name], self.masks[equation.output.name]
                xhat = self.xhat(equation, Z)
                expected = self.expected_count(equation, x, xhat)
                ratio = np.divide(expected, xhat, out=np.zeros(x.shape), where=mask & (x > 0))
                total += Z[name] * self.delta(equation, name, ratio, Z)
        return total

    def is_links(self, equation: Equation) -> bool:
        return self.likelihoods.get(equation.output.name) == "bernoulli"

    def expected_count(self, equation: Equation, x: Array, xhat: Array) -> Array:
        """The count itself, or for a link the mean of a Poisson count that is above zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return xhat / -np.expm1(-xhat) if self.is_links(equation) else x

    def exposure(self, name: str, Z: Arrays) -> Array:
        total = np.zeros_like(Z[name])
        for equation in self.model.equations:
            if name in {term.name for term in equation.factors}:
                mask = self.masks[equation.output.name].astype(float)
                total += self.delta(equation, name, mask, Z)
        return total

    def log_likelihood(self, L: Arrays, E: Arrays) -> float:
        total = 0.0
        for equation in self.model.equations:
            mask = self.masks[equation.output.name]
            x = self.data[equation.output.name][mask]
            rate = self.xhat(equation, L)[mask]
            if self.is_links(equation):
                total += float(log_odds(rate[x > 0]).sum() - self.xhat(equation, E)[mask].sum())
                continue
            logs = xlogy(x, rate)
            total += float((logs - self.xhat(equation, E)[mask] - gammaln(x + 1)).sum())
        return total

    def vb(self, init: Arrays, sweeps: int, init_E: Arrays | None = None) -> tuple[list[float], Arrays, Arrays]:
        """Bounds and the posterior (C, D) after so many sweeps."""
        L, E = dict(init), dict(init_E or init)
        bounds, C, D = [], dict[str, Array](), dict[str, Array]()
        for _ in range(sweeps):
            C = {a: self.shape[a] + self.counts(a, L) for a in self.shape}
            for a in self.shape:
                D[a] = 1 / (self.shape[a] / self.mean[a] + self.exposure(a, E))
                E[a] = C[a] * D[a]
            for a in self.shape:
                L[a] = np.exp(digamma(C[a])) * D[a]
            bounds.append(self.log_likelihood(L, E) - sum(self.kl(a, C[a], D[a]) for a in self.shape))
        return bounds, C, D

    def kl(self, a: str, C: Array, D: Array) -> float:
        """KL between Gammas given by shape and rate, from the textbook."""
        p_shape, p_rate, q_rate = self.shape[a], self.shape[a] / self.mean[a], 1 / D
        kl = (
            (C - p_shape) * digamma(C)
            - gammaln(C)
            + gammaln(p_shape)
            + p_shape * (np.log(q_rate) - np.log(p_rate))
            + C * (p_rate - q_rate) / q_rate
        )
        return float(kl.sum())

    def em(self, init: Arrays, sweeps: int, free: tuple[str, ...]) -> tuple[list[float], Arrays]:
        Z, likelihoods = dict(init), []
        for _ in range(sweeps):
            for a in free:
                counts, exposure = self.counts(a, Z), self.exposure(a, Z)
                Z[a] = np.where(exposure > 0, counts / np.where(exposure > 0, exposure, 1), Z[a])
            likelihoods.append(self.log_likelihood(Z, Z))
        return likelihoods, Z

    def map(self, init: Arrays, sweeps: int) -> tuple[list[float], Arrays]:
        Z, posteriors = dict(init), []
        for _ in range(sweeps):
            for a in self.shape:
                rate = self.shape[a] / self.mean[a]
                counts, exposure = self.counts(a, Z), self.exposure(a, Z)
                Z[a] = np.maximum(self.shape[a] - 1 + counts, 0) / (rate + exposure)
            prior = 0.0
            for a in self.shape:
                A, rate = self.shape[a], self.shape[a] / self.mean[a]
                prior += float((xlogy(A - 1, Z[a]) - rate * Z[a] + A * np.log(rate) - gammaln(A)).sum())
            posteriors.append(self.log_likelihood(Z, Z) + prior)
        return posteriors, Z


def log_odds(rate: Array) -> Array:
    """log(exp(rate) - 1): P(X=1) / P(X=0) of a link."""
    small = np.minimum(rate, 1.0)
    return np.where(rate < 1, np.log(np.expm1(small)), rate + np.log1p(-np.exp(-np.maximum(rate, 1.0))))
