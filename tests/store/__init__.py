"""What the tests of files share: fits of all kinds, and what it means that two of them are the same."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

import pltf
from pltf.data.pattern import Pattern
from pltf.gamma import Gamma
from pltf.store.container import sign

X = np.random.default_rng(0).poisson(2.0, (6, 5, 4)).astype(float)
X[::2, 1, ::3] = np.nan
COUPLED = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
Y = np.random.default_rng(1).poisson(3.0, (5, 3))


def quietly(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call without a word of what has not converged."""
    with warnings.catch_warnings(action="ignore"):
        return call(*args, **options)


def labelled_fit() -> pltf.Fit:
    """A small fit with labels of several kinds."""
    days = pd.date_range("2026-11-09", periods=4, freq="7D")
    seen = pltf.observe(X, dims=["who", "n", "day"], labels={"who": list("abcdef"), "n": [-1, 3, 2, 9, 0], "day": days})
    return pltf.Model("X[who,n,day] = A[who,r] * B[n,r] * C[day,r]", r=2).fit(seen, restarts=2)


def assert_same(fit: pltf.Fit, other: pltf.Fit, *, seconds: bool = True) -> None:
    """To the bit, and in the same order in memory, on which sums depend."""
    for name in ("model", "method", "objective", "converged", "stopped", "best_restart", "seed", "dtype", "engine"):
        assert getattr(fit, name) == getattr(other, name)
    assert dict(fit.sizes) == dict(other.sizes)
    assert dict(fit.n_observed) == dict(other.n_observed)
    assert fit.fixed == other.fixed
    drop = [] if seconds else ["seconds"]
    pd.testing.assert_frame_equal(fit.restarts.drop(columns=drop), other.restarts.drop(columns=drop), check_exact=True)
    _same(fit.trace, other.trace)
    assert not other.trace.flags.writeable
    assert (fit.bound, fit.pace.eta, fit.pace.refused) == (other.bound, other.pace.eta, other.pace.refused)
    assert fit.waiting == other.waiting
    for part in ("C", "D", "points", "mass"):
        _same_factors(getattr(fit, part), getattr(other, part))
    assert list(fit.priors) == list(other.priors)
    for a in fit.priors:
        _same_prior(fit.priors[a], other.priors[a])
    assert list(fit.labels) == list(other.labels)
    for index, labels in fit.labels.items():
        known = other.labels[index]
        assert (labels.index.dtype, labels.bin) == (known.index.dtype, known.bin)
        assert list(labels.index) == list(known.index)
    for name in fit.patterns:
        _same_pattern(fit.patterns[name], other.patterns[name])


def _same(one: Any, other: Any) -> None:
    assert one.dtype == other.dtype
    assert one.flags.c_contiguous == other.flags.c_contiguous
    np.testing.assert_array_equal(one, other, strict=True)


def _same_factors(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    for a in one:
        _same(one[a], other[a])


def _same_prior(one: Gamma, other: Gamma) -> None:
    assert (one.learn, one.tie) == (other.learn, other.tie)
    for part in ("shape", "mean"):
        assert type(getattr(one, part)) is type(getattr(other, part))
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


def _same_pattern(one: Pattern, other: Pattern) -> None:
    assert type(one) is type(other)
    assert one.unlisted == other.unlisted
    for name, part in vars(one).items():
        if isinstance(part, np.ndarray):
            _same(part, getattr(other, name))
        elif name in ("shape", "sizes", "known", "missing"):
            assert part == getattr(other, name)


def change(path: Path, edit: Callable[[h5py.File], None]) -> None:
    """Change a saved file, as somebody would who knows how it is signed."""
    with h5py.File(path, "r+") as file:
        edit(file)
    sign(path)


def change_about(path: Path, edit: Callable[[dict[str, Any]], None], group: str = "/") -> None:
    """Change what is told of a fit."""

    def write(file: h5py.File) -> None:
        about = json.loads(file[group]["about.json"].asstr()[()])
        edit(about)
        file[group]["about.json"][()] = json.dumps(about)

    change(path, write)
