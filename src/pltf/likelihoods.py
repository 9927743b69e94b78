"""How values scatter around their rates: counts are Poisson; a link is a Poisson count above zero (Bernoulli-Poisson).

Engines need to know it for the ratio and the log term of a counts pass (``special.link_ratio``), inference for the
constants of the log-likelihood, predictions for what may be seen at a rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pltf.data import Observation
from pltf.errors import ObservationError, PltfError, py

POISSON, BERNOULLI = LIKELIHOODS = "poisson", "bernoulli"
AUTO = "auto"  # bernoulli for a tensor of zeros and ones, poisson for all others
CHOICES = (*LIKELIHOODS, AUTO)


def check_likelihood(name: str, value: Any) -> Any:
    """A likelihood for all tensors, or a mapping from tensor to likelihood; refuses anything else."""
    named = value if isinstance(value, Mapping) else {None: value}
    for tensor, one in named.items():
        if not isinstance(one, str) or one not in CHOICES:
            what = f"{py:{name}}" if tensor is None else f"{py:{name}[{tensor!r}]}"
            mapping = ", or a mapping from tensor to one of these" if tensor is None else ""
            raise PltfError(f"{what} must be one of {', '.join(map(repr, CHOICES))}{mapping}; got {one!r}")
    return dict(value) if isinstance(value, Mapping) else value


def by_tensor(asked: str | Mapping[str, str], tensors: tuple[str, ...]) -> dict[str, str]:
    """What was asked for each tensor; those that a mapping leaves out are Poisson."""
    if isinstance(asked, str):
        return dict.fromkeys(tensors, asked)
    unknown = [name for name in asked if name not in tensors]
    if unknown:
        raise PltfError(f"unknown tensor {unknown[0]!r} in {py:likelihood}: the model has {', '.join(tensors)}")
    return {name: asked.get(name, POISSON) for name in tensors}


def likelihoods_of(asked: str | Mapping[str, str], seen: Mapping[str, Observation]) -> dict[str, str]:
    """The likelihood of every tensor: ``"auto"`` looks at the data, and ``"bernoulli"`` refuses all but 0 and 1."""
    found = by_tensor(asked, tuple(seen))
    for name, one in seen.items():
        if found[name] == AUTO:
            found[name] = BERNOULLI if looks_like_links(one) else POISSON
        elif found[name] == BERNOULLI and not is_binary(one):
            other = one.first_where(lambda values: (values != 0) & (values != 1))
            held = "" if other is None else f", but cell {other[0]} holds {other[1]:g}"
            raise ObservationError(f"{name} must hold only 0 and 1 under {py:likelihood='bernoulli'}{held}")
    return found


def in_words(likelihoods: Mapping[str, str]) -> str:
    """The likelihoods of a fit in words, or nothing if all tensors are counts.

    >>> in_words({"X": "poisson"}), in_words({"X": "bernoulli"}), in_words({"X": "poisson", "Y": "bernoulli"})
    ('', 'bernoulli', 'poisson for X, bernoulli for Y')
    """
    if set(likelihoods.values()) <= {POISSON}:
        return ""
    if len(likelihoods) == 1:
        return next(iter(likelihoods.values()))
    return ", ".join(f"{likelihood} for {name}" for name, likelihood in likelihoods.items())


def as_option(likelihoods: Mapping[str, str]) -> str | dict[str, str]:
    """What to pass as ``likelihood=`` to get these."""
    kinds = set(likelihoods.values()) or {POISSON}
    return kinds.pop() if len(kinds) == 1 else dict(likelihoods)


def is_binary(seen: Observation) -> bool:
    """Whether all observed values are 0 or 1; known without a look at the cells.

    >>> import numpy as np, pltf
    >>> is_binary(pltf.observe(np.eye(3))), is_binary(pltf.observe(2 * np.eye(3)))
    (True, False)
    """
    return seen.largest <= 1 and seen.total == seen.n_positive


def looks_like_links(seen: Observation) -> bool:
    """Whether values are 0 and 1, and both occur: of ones alone nothing tells whether they are links or counts."""
    return is_binary(seen) and 0 < seen.n_positive < seen.n_observed
