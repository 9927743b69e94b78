"""The Gamma distribution: prior (shape, mean), posterior (shape, scale), moments, KL."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pltf.data.labels import Labels
from pltf.data.numeric import numeric
from pltf.errors import PltfError, UnknownNameError, is_number, py, py_only, whole
from pltf.hints import suggestion

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

PARTS = ("shape", "mean")
LEARN = {"mean": ("mean",), "shape": ("shape",), "both": PARTS}
TIES = ("factor", "component")


@dataclass(frozen=True, eq=False, repr=False)
class Gamma:
    """Prior of a factor: Gamma with ``shape`` A and ``mean`` B (so scale B/A, rate A/B).

    Both are scalars, or arrays that broadcast to the factor. A small shape makes factors sparse.

    >>> import pltf
    >>> pltf.Gamma(shape=0.5, mean=10.0)
    Gamma(shape=0.5, mean=10.0)
    >>> pltf.Gamma(shape=0.5, mean=10.0).rate
    array(0.05)

    ``learn="mean"``, ``"shape"`` or ``"both"`` learns these hyperparameters, starting at the given values. ``tie`` says
    which entries share a learned value: the whole ``"factor"``; each ``"component"``, that is all entries with the same
    values of the latent indices (or the whole factor, if it lacks latent or observed indices); or all entries with
    the same value of an index, as in ``"index:user"``. The learned values are in ``fit.priors``:

    >>> import numpy as np
    >>> fit = pltf.nmf(rank=2).fit(np.eye(6) + 1, prior=pltf.Gamma(0.5, 1.0, learn="mean", tie="component"))
    >>> fit.priors["W"].mean.shape
    (1, 2)
    """

    shape: ArrayLike = 0.5  # a number, or an array that broadcasts to the factor
    mean: ArrayLike = 10.0  # a number, or an array that broadcasts to the factor
    learn: str | None = None  # None, "mean", "shape" or "both"
    tie: str = "factor"  # "factor", "component" or "index:NAME"

    def __post_init__(self) -> None:
        self._check_learning()
        for name in ("shape", "mean"):
            given = getattr(self, name)
            if hasattr(given, "to_numpy"):
                expected = "a number or an array in the order of the factor"
                raise PltfError(f"{py:Gamma: {name}} must be {expected}, got a {type(given).__name__}: pass its values")
            kept = np.array(numeric(given, f"{py:Gamma: {name}}"), dtype=np.float64)  # a copy: the caller's may change
            good = np.isfinite(kept) & (kept > 0)
            if not good.all():
                raise PltfError(f"{py:Gamma: {name}} must be positive and finite, got {kept[~good].flat[0]}")
            kept.flags.writeable = False
            object.__setattr__(self, name, float(kept) if kept.ndim == 0 else kept)
        try:
            np.broadcast_shapes(np.shape(self.shape), np.shape(self.mean))
        except ValueError:
            shapes = f"{np.shape(self.shape)} and {np.shape(self.mean)}"
            raise PltfError(f"{py:Gamma: shape} and mean must broadcast together, got {shapes}") from None

    def _check_learning(self) -> None:
        if self.learn is not None and not (isinstance(self.learn, str) and self.learn in LEARN):
            raise PltfError(
                f"{py:Gamma: learn} must be {py_only:None or }one of {', '.join(map(repr, LEARN))}; got {self.learn!r}"
            )
        if not (isinstance(self.tie, str) and (self.tie in TIES or re.fullmatch(r"index:\w+", self.tie))):
            raise PltfError(f"{py:Gamma: tie} must be 'factor', 'component' or as 'index:user'; got {self.tie!r}")
        if self.learn is None and self.tie != "factor":
            raise PltfError(f"{py:Gamma: tie={self.tie!r}} says how a learned value is shared: it needs {py:learn=}")

    @property
    def learns(self) -> tuple[str, ...]:
        """Which of "shape" and "mean" are learned."""
        return LEARN[self.learn] if self.learn else ()

    def with_values(self, shape: ArrayLike, mean: ArrayLike) -> Gamma:
        """The same kind of prior with other values, neither checked nor copied: during a fit also on a device."""
        new = object.__new__(Gamma)
        new.__dict__.update(shape=shape, mean=mean, learn=self.learn, tie=self.tie)
        if shape is self.shape:
            new.__dict__["log_norm"] = self.log_norm
        return new

    def __repr__(self) -> str:
        learning = f", learn={self.learn!r}, tie={self.tie!r}" if self.learn else ""
        return f"Gamma(shape={_short(self.shape)}, mean={_short(self.mean)}{learning})"

    @cached_property
    def rate(self) -> Array:
        """A/B, the prior's part of a posterior rate.

        >>> float(Gamma(shape=0.5, mean=10.0).rate)
        0.05
        """
        return np.asarray(np.asarray(self.shape, dtype=np.float64) / np.asarray(self.mean, dtype=np.float64))

    @cached_property
    def log_norm(self) -> Array:
        """log Gamma(A)."""
        return np.asarray(special.gammaln(np.asarray(self.shape, dtype=np.float64)))

    def broadcast(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Shape and mean as arrays of the given shape."""
        return (
            np.broadcast_to(np.asarray(self.shape, dtype=np.float64), shape),
            np.broadcast_to(np.asarray(self.mean, dtype=np.float64), shape),
        )

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """A draw of a factor of the given shape.

        >>> import numpy as np, pltf
        >>> pltf.Gamma(shape=2.0, mean=5.0).sample((2, 3), np.random.default_rng(0)).shape
        (2, 3)
        """
        A, B = self.broadcast(shape)
        return rng.standard_gamma(A) * (B / A)

    def log_pdf(self, z: Array) -> Array:
        """Log density at ``z``; zeros contribute nothing if the shape is below 1."""
        A, B = self.broadcast(z.shape)
        power = np.where((A < 1) & (z == 0), 0.0, special.xlogy(A - 1, z))
        return np.asarray(power - z * A / B + A * np.log(A / B) - special.gammaln(A))


def _short(value: Any) -> str:
    return repr(value) if np.ndim(value) == 0 else f"<{'x'.join(map(str, np.shape(value)))} array>"


def geometric_mean(shape: Array, scale: Array) -> Array:
    """exp(<log z>) of Gamma(shape, scale): exp(digamma(C)) * D, exact to float64 for any C.

    >>> import numpy as np
    >>> geometric_mean(np.array([1.0, 1e8]), np.array([1.0, 1.0])).round(6)
    array([5.61459000e-01, 9.99999995e+07])
    """
    from pltf.special import geomean_loop  # imports the compiler, which `import pltf` should not wait for

    C, D = _flat(shape), _flat(scale)
    L = np.empty(C.size)
    geomean_loop(C, D, L)
    return L.reshape(shape.shape)


def _flat(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=np.float64).reshape(-1)


class Factor(Protocol):
    """A factor of a fit: a :class:`Posterior`, :class:`Samples` or :class:`Point`.

    >>> import numpy as np, pltf
    >>> fit = pltf.nmf(rank=1).fit(np.ones((2, 3)))
    >>> fit.factors["W"].mean.shape
    (2, 1)
    """

    @property
    def indices(self) -> tuple[str, ...]:
        """Names of the axes."""

    @property
    def labels(self) -> Mapping[str, Labels]:
        """Labels of the labelled indices."""

    @property
    def mean(self) -> Array:
        """Expected value, E."""

    @property
    def geomean(self) -> Array:
        """exp of the expected logarithm, L."""

    @property
    def shape(self) -> Array:
        """Shape parameter, C."""

    @property
    def scale(self) -> Array:
        """Scale parameter, D."""

    @property
    def var(self) -> Array:
        """Variance."""

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Central interval that holds each entry with probability ``level``."""

    def sample(self, n: int, seed: int = 0) -> Array:
        """``n`` independent draws, along a new first axis."""

    def to_xarray(self, level: float = 0.9) -> xr.Dataset:
        """Mean, standard deviation and interval of each entry, with labels."""


class NamedFactors(dict[str, Factor]):
    """Factors by name; the error for an unknown name lists them."""

    def __missing__(self, name: object) -> Factor:
        raise UnknownNameError(f"no factor {name!r}: the factors are {', '.join(self)}{suggestion(name, self)}")


class _Labelled:
    """What all kinds of factors have in common."""

    def to_xarray(self: Factor, level: float = 0.9) -> xr.Dataset:
        """Mean, standard deviation and the ends of the interval of each entry, with labels.

        >>> import numpy as np
        >>> Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25])).to_xarray()["mean"].values
        array([1., 2.])
        """
        import xarray as xr

        lost = [index for index in self.indices if index in ("mean", "sd", "low", "high")]
        if lost:
            raise PltfError(f"index '{lost[0]}' has the same name as a variable of the Dataset: rename it")
        low, high = self.interval(level)
        parts = {"mean": self.mean, "sd": np.sqrt(self.var), "low": low, "high": high}
        coords = coords_of(self.indices, self.mean.shape, self.labels)
        return xr.Dataset({name: (self.indices, part) for name, part in parts.items()}, coords, {"level": level})

    def __repr__(self: Factor) -> str:
        size = "x".join(map(str, self.mean.shape)) or "scalar"
        kind, axes = type(self).__name__, ",".join(self.indices)
        return f"<{kind} [{axes}] {size}: mean {self.mean.min():.3g} to {self.mean.max():.3g}>"


def _absent(part: str, reason: str) -> Any:
    """A parameter that a kind of factor does not have."""

    def absent(_: Factor) -> Array:
        raise PltfError(f"{reason}: it has no posterior {part}")

    return property(absent, doc=f"Raises an error: {reason}.")


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(_Labelled):
    """Independent Gamma posteriors of the entries of a factor.

    >>> import numpy as np
    >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
    >>> z
    <Posterior [i] 2: mean 1 to 2>
    >>> z.mean, z.var
    (array([1., 2.]), array([0.5, 0.5]))
    >>> low, high = z.interval(0.9)
    >>> bool((low < z.mean).all() and (z.mean < high).all())
    True
    >>> z.sample(3, seed=0).shape
    (3, 2)
    """

    indices: tuple[str, ...]  # indices of the axes
    shape: Array  # C
    scale: Array  # D
    labels: Mapping[str, Labels] = field(default_factory=dict)  # labels of the indices that have them

    @property
    def mean(self) -> Array:
        """Expected value, E = C*D.

        >>> import numpy as np
        >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
        >>> z.mean
        array([1., 2.])
        """
        return self.shape * self.scale

    @property
    def geomean(self) -> Array:
        """exp of the expected logarithm, L = exp(digamma(C))*D.

        >>> import numpy as np
        >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
        >>> bool((z.geomean < z.mean).all())
        True
        """
        return geometric_mean(self.shape, self.scale)

    @property
    def var(self) -> Array:
        """Variance, C*D^2.

        >>> import numpy as np
        >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
        >>> z.var
        array([0.5, 0.5])
        """
        return self.shape * self.scale**2

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Central interval that holds each entry with probability ``level``.

        >>> import numpy as np
        >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
        >>> low, high = z.interval(0.9)
        >>> low.round(2), high.round(2)
        (array([0.18, 1.  ]), array([2.37, 3.29]))
        """
        tail = (1 - level_of(level)) / 2
        low, high = (special.gammaincinv(self.shape, p) * self.scale for p in (tail, 1 - tail))
        return low, high

    def sample(self, n: int, seed: int = 0) -> Array:
        """``n`` independent draws, along a new first axis.

        >>> import numpy as np
        >>> z = Posterior(("i",), np.array([2.0, 8.0]), np.array([0.5, 0.25]))
        >>> z.sample(3, seed=0).shape
        (3, 2)
        """
        rng = np.random.default_rng(whole("seed", seed, 0))
        return rng.standard_gamma(self.shape, size=(whole("n", n, 1), *self.shape.shape)) * self.scale


@dataclass(frozen=True, eq=False, repr=False)
class Point(_Labelled):
    """A factor known as a single value: fixed, or estimated by EM or MAP.

    >>> import numpy as np
    >>> z = Point(("i",), np.array([1.0, 2.0]))
    >>> z.mean is z.geomean, z.var
    (True, array([0., 0.]))
    >>> z.shape
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: this factor is a point estimate or fixed: it has no posterior shape
    """

    indices: tuple[str, ...]  # indices of the axes
    mean: Array  # the value
    labels: Mapping[str, Labels] = field(default_factory=dict)  # labels of the indices that have them

    @property
    def geomean(self) -> Array:
        """The value itself.

        >>> import numpy as np
        >>> z = Point(("i",), np.array([1.0, 2.0]))
        >>> z.geomean
        array([1., 2.])
        """
        return self.mean

    @property
    def var(self) -> Array:
        """Zero.

        >>> import numpy as np
        >>> z = Point(("i",), np.array([1.0, 2.0]))
        >>> z.var
        array([0., 0.])
        """
        return np.zeros_like(self.mean)

    shape, scale = (_absent(part, "this factor is a point estimate or fixed") for part in ("shape", "scale"))

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The value twice.

        >>> import numpy as np
        >>> z = Point(("i",), np.array([1.0, 2.0]))
        >>> z.interval()
        (array([1., 2.]), array([1., 2.]))
        """
        level_of(level)
        return self.mean, self.mean

    def sample(self, n: int, seed: int = 0) -> Array:
        """The value ``n`` times, along a new first axis.

        >>> import numpy as np
        >>> z = Point(("i",), np.array([1.0, 2.0]))
        >>> z.sample(2).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
        """
        return np.repeat(self.mean[None], whole("n", n, 1), axis=0)


@dataclass(frozen=True, eq=False, repr=False)
class Samples(_Labelled):
    """Posterior draws of a factor, from :meth:`pltf.Model.fit` with ``method="gibbs"``.

    ``draws`` has the axes (chain, draw) and those of the factor.

    >>> import numpy as np
    >>> z = Samples(("i",), np.random.default_rng(0).gamma(2.0, [0.5, 1.0], size=(4, 100, 2)))
    >>> z
    <Samples [i] 2: mean 1.04 to 1.94>
    >>> low, high = z.interval(0.9)
    >>> bool((low < z.mean).all() and (z.mean < high).all())
    True
    >>> z.sample(3, seed=0).shape
    (3, 2)
    >>> z.shape
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: this factor is known by draws: it has no posterior shape
    """

    indices: tuple[str, ...]  # indices of the axes
    draws: Array  # axes: chain, draw, and those of the factor
    labels: Mapping[str, Labels] = field(default_factory=dict)  # labels of the indices that have them

    @cached_property
    def mean(self) -> Array:
        """Mean of the draws.

        >>> import numpy as np
        >>> z = Samples(("i",), np.array([[[1.0], [2.0], [3.0]]]))
        >>> z.mean
        array([2.])
        """
        return np.asarray(self.draws.mean(axis=(0, 1)))

    @cached_property
    def geomean(self) -> Array:
        """exp of the mean of the logarithms.

        >>> import numpy as np
        >>> z = Samples(("i",), np.array([[[1.0], [2.0], [3.0]]]))
        >>> z.geomean.round(3)
        array([1.817])
        """
        total = np.zeros(self.draws.shape[2:])
        for chain in self.draws:
            for draw in chain:
                total += np.log(np.maximum(draw, np.finfo(np.float64).tiny))
        return np.exp(total / math.prod(self.draws.shape[:2]))

    @cached_property
    def var(self) -> Array:
        """Variance of the draws.

        >>> import numpy as np
        >>> z = Samples(("i",), np.array([[[1.0], [2.0], [3.0]]]))
        >>> z.var.round(3)
        array([0.667])
        """
        return np.asarray(self.draws.var(axis=(0, 1)))

    shape, scale = (_absent(part, "this factor is known by draws") for part in ("shape", "scale"))

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Central interval that holds each entry with probability ``level``: quantiles of the draws.

        >>> import numpy as np
        >>> z = Samples(("i",), np.array([[[1.0], [2.0], [3.0]]]))
        >>> z.interval(0.5)
        (array([1.5]), array([2.5]))
        """
        tail = (1 - level_of(level)) / 2
        low, high = np.quantile(self.draws, [tail, 1 - tail], axis=(0, 1))
        return low, high

    def sample(self, n: int, seed: int = 0) -> Array:
        """``n`` of the draws in random order, along a new first axis, with replacement if there are fewer.

        All factors of a fit return the same draws for the same seed.

        >>> import numpy as np
        >>> z = Samples(("i",), np.array([[[1.0], [2.0], [3.0]]]))
        >>> sorted(z.sample(3).ravel().tolist())
        [1.0, 2.0, 3.0]
        """
        flat = self.draws.reshape(-1, *self.draws.shape[2:])
        rng, n = np.random.default_rng(whole("seed", seed, 0)), whole("n", n, 1)
        return np.asarray(flat[rng.choice(len(flat), n, replace=n > len(flat))])


def coords_of(indices: Sequence[str], shape: Sequence[int], labels: Mapping[str, Labels]) -> dict[str, Any]:
    """Coordinates of a labelled array: labels, or positions."""
    sized = zip(indices, shape, strict=True)
    return {index: labels[index].index if index in labels else np.arange(size) for index, size in sized}


def level_of(level: float) -> float:
    if not is_number(level) or not 0 < level < 1:
        raise PltfError(f"{py:level} must lie between 0 and 1, got {level!r}")
    return level
