"""The options of a fit: names, defaults, checks, what identifies a checkpoint, and their text as Python.

This is the single place for all of that. :meth:`pltf.Model.fit`, :meth:`pltf.Model.plan`, :func:`pltf.select`,
:meth:`pltf.Fit.fold_in`, :class:`pltf.sklearn.PoissonNMF` and the command line repeat names and defaults in their
signatures, where users look for them; ``tests/test_options.py`` checks that they agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pltf.cluster import check_client
from pltf.devices import HOST, check_device, device_of
from pltf.engines.ways import ENGINES
from pltf.errors import EngineError, PltfError, choice, flag, is_number, py, whole
from pltf.gamma import Gamma
from pltf.inference.gibbs import NAME as GIBBS
from pltf.inference.methods import METHODS
from pltf.inference.run import Callback, Stop
from pltf.likelihoods import POISSON, check_likelihood
from pltf.store.checkpoint import Identity, digest_of
from pltf.store.fits import as_path

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.inference.start import Known

INITS = ("prior", "random")
DTYPES = ("float64", "float32")
SAMPLING = ("chains", "burn_in", "draws", "thin")  # options of Gibbs sampling alone
FEWEST_DRAWS = 4  # per chain: diagnostics halve it, and need two in each half

Check = Callable[[str, Any], Any]  # name and value to the value that is used; raises a PltfError


# -- checks -------------------------------------------------------------------------------------


def _any(_: str, value: Any) -> Any:
    """No check here: it needs the model or the data."""
    return value


def _at_least(least: int) -> Check:
    return lambda name, value: whole(name, value, least)


def _one_of(choices: Mapping[str, Any] | tuple[str, ...], error: type[PltfError] = PltfError) -> Check:
    return lambda name, value: choice(name, value, tuple(choices), error)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _number(name: str, value: Any, expected: str, below: float) -> float:
    if not is_number(value) or not 0 <= value < below:
        raise PltfError(f"{py:{name}} must be {expected}, got {value!r}")
    return float(value)


def _dtype(name: str, value: Any) -> str:
    try:
        known = "" if value is None else np.dtype(value).name
    except (TypeError, ValueError, SyntaxError):
        known = ""
    if known not in DTYPES:
        raise PltfError(f"{py:{name}} must be one of {', '.join(map(repr, DTYPES))}; got {value!r}")
    return known


def _init(name: str, value: Any) -> Any:
    return choice(name, value, INITS) if isinstance(value, str) else value


def _path(name: str, value: Any) -> Path:
    return as_path(value, name)


def _callback(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise PltfError(f"{py:{name}} must be a function that takes a pltf.Sweep, got {type(value).__name__}")
    return value


def _dispersion(name: str, value: Any) -> Any:
    if value is None or (isinstance(value, str) and (value == "auto" or value.startswith("index:"))):
        return value
    if not is_number(value) or not value > 0:
        raise PltfError(f"{py:{name}} must be 'auto', None, a size above 0 or 'index:NAME', got {value!r}")
    return float(value)


_tolerance = partial(_number, expected="a number from 0 to below 1", below=1.0)
_seconds = partial(_number, expected="a number of seconds of at least 0", below=math.inf)


# -- options ------------------------------------------------------------------------------------


ALWAYS, IF_SET = "always", "if set"


def _rule(check: Check = _any, *, same: str = "", told: bool = False) -> dict[str, Any]:
    """The metadata of an option.

    ``same``: resuming from a checkpoint needs the same value. ``ALWAYS`` stores it in every checkpoint; ``IF_SET`` only
    if it differs from the default: use it for options added after version 0.1, so that older checkpoints still resume.
    ``told``: ``Fit.options`` has the value as Python code, unless it is the default.
    """
    return {"check": check, "same": same, "told": told}


@dataclass(frozen=True, eq=False, kw_only=True)
class FitOptions:
    """All options of a fit. Values are checked here, except for what depends on the model or the data.

    :meth:`pltf.Model.fit` documents them. To add an option, add a line here and use it.

    >>> FitOptions(restarts=3).as_code()
    {}
    >>> FitOptions(prior=Gamma(0.5, 1.0), max_iter=50).as_code()
    {'prior': 'pltf.Gamma(shape=0.5, mean=1.0)', 'max_iter': '50'}
    >>> FitOptions(max_iter=0)
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: max_iter must be a whole number of at least 1, got 0
    """

    method: str = field(default="vb", metadata=_rule(_one_of(METHODS), same=ALWAYS))
    prior: Gamma | Mapping[str, Gamma] | None = field(default=None, metadata=_rule(same=ALWAYS, told=True))
    max_iter: int = field(default=2000, metadata=_rule(_at_least(1), same=ALWAYS, told=True))
    tol: float = field(default=1e-6, metadata=_rule(_tolerance, same=ALWAYS, told=True))
    restarts: int = field(default=1, metadata=_rule(_at_least(1), same=ALWAYS))
    seed: int | None = field(default=0, metadata=_rule(_optional(_at_least(0)), same=ALWAYS))
    init: str | Mapping[str, Any] | Fit | Known = field(default="prior", metadata=_rule(_init, same=ALWAYS, told=True))
    fixed: Mapping[str, Any] | None = field(default=None, metadata=_rule(same=ALWAYS, told=True))
    dtype: Any = field(default="float64", metadata=_rule(_dtype, same=ALWAYS))
    engine: str = field(default="auto", metadata=_rule(_one_of(ENGINES, EngineError), same=ALWAYS, told=True))
    threads: int | None = field(default=None, metadata=_rule(_optional(_at_least(1))))
    accelerate: bool = field(default=True, metadata=_rule(flag, same=ALWAYS, told=True))
    progress: bool = field(default=True, metadata=_rule(flag))
    callback: Callback | None = field(default=None, metadata=_rule(_callback))
    checkpoint: str | os.PathLike[str] | None = field(default=None, metadata=_rule(_optional(_path)))
    every: float = field(default=60.0, metadata=_rule(_seconds))
    resume: bool = field(default=False, metadata=_rule(flag))
    keep_data: bool = field(default=True, metadata=_rule(flag, told=True))
    likelihood: str | Mapping[str, str] = field(
        default=POISSON, metadata=_rule(check_likelihood, same=IF_SET, told=True)
    )
    chains: int | None = field(default=None, metadata=_rule(_optional(_at_least(1)), same=IF_SET, told=True))
    burn_in: int | None = field(default=None, metadata=_rule(_optional(_at_least(0)), same=IF_SET, told=True))
    draws: int | None = field(default=None, metadata=_rule(_optional(_at_least(FEWEST_DRAWS)), same=IF_SET, told=True))
    thin: int | None = field(default=None, metadata=_rule(_optional(_at_least(1)), same=IF_SET, told=True))
    dispersion: float | str | None = field(default="auto", metadata=_rule(_dispersion, same=IF_SET, told=True))
    device: str = field(default=HOST, metadata=_rule(check_device, same=IF_SET, told=True))
    client: Any = field(default=None, metadata=_rule(check_client))

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, one.metadata["check"](one.name, getattr(self, one.name)))
        for name in SAMPLING:
            if getattr(self, name) is not None and self.method != GIBBS:
                raise PltfError(f"{py:{name}} requires {py:method='gibbs'}, got {py:method={self.method!r}}")
        if self.client is None:
            device_of(self.device)  # raises an error if it is not available; a cluster needs it on its workers

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **more: Any) -> Self:
        """The options among the arguments of a function, given by its ``locals()``; ``more`` replaces some of them."""
        return cls(**{one.name: arguments[one.name] for one in fields(cls) if one.name in arguments} | more)

    @property
    def stop(self) -> Stop:
        """When a run stops."""
        return Stop(self.max_iter, self.tol, self.callback)

    def entropy(self, earlier: Identity | None) -> int:
        """The given seed, otherwise the seed of the resumed run, otherwise a random one."""
        if self.seed is not None:
            return self.seed
        drawn = earlier["seed"] if earlier else np.random.SeedSequence().entropy
        assert isinstance(drawn, int)
        return drawn

    def identity(self, **judged: Any) -> Identity:
        """The values that must be equal to resume from a checkpoint.

        ``judged`` replaces values that were resolved with the model and the data.

        >>> FitOptions(seed=3).identity(engine="dense")["engine"]
        'dense'
        """
        kept = [
            one.name
            for one in fields(self)
            if one.metadata["same"] == ALWAYS or (one.metadata["same"] == IF_SET and self._is_set(one))
        ]
        return {name: judged[name] if name in judged else digest_of(getattr(self, name)) for name in kept}

    def as_code(self) -> dict[str, str]:
        """Options that differ from the defaults, as Python code; arrays are replaced by the name of the option.

        Leaves out options that are attributes of the fit, and those that do not change the result.
        """
        told = [one.name for one in fields(self) if one.metadata["told"] and self._is_set(one)]
        return {name: _code(name, getattr(self, name)) for name in told}

    def _is_set(self, option: Field[Any]) -> bool:
        """Whether an option differs from its default."""
        value = getattr(self, option.name)
        plain = isinstance(value, str | bool | int | float)  # arrays are never defaults
        return value is not option.default and not (plain and value == option.default)


def _code(name: str, value: Any) -> str:
    """The text of an option as Python."""
    if value is None or isinstance(value, str | bool | int | float):
        text = repr(value)
    elif isinstance(value, Gamma):
        text = f"pltf.{value!r}"
    elif isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()):
        text = repr(dict(value))
    elif isinstance(value, Mapping) and all(isinstance(one, Gamma) for one in value.values()):
        text = "{" + ", ".join(f"{factor!r}: pltf.{one!r}" for factor, one in value.items()) + "}"
    else:
        text = name
    return name if "<" in text else text  # arrays
