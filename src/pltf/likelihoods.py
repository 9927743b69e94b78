"""Likelihoods: counts are Poisson; a link is 1 where a Poisson count is above zero (Bernoulli-Poisson).

Engines use the likelihood in the ratio and the log term of a counts pass, inference in the constants of the
log-likelihood, and predictions in the distribution of values given their rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pltf.data import Observation
from pltf.data.labels import named_cell
from pltf.errors import ObservationError, PltfError, py

POISSON, BERNOULLI = LIKELIHOODS = "poisson", "bernoulli"
AUTO = "auto"  # bernoulli for a tensor of zeros and ones, poisson for all others
CHOICES = (*LIKELIHOODS, AUTO)


def check_likelihood(name: str, value: Any) -> Any:
    """Check the option: a likelihood for all tensors, or a mapping from tensor to likelihood."""
    named = value if isinstance(value, Mapping) else {None: value}
    for tensor, one in named.items():
        if not isinstance(one, str) or one not in CHOICES:
            what = f"{py:{name}}" if tensor is None else f"{py:{name}[{tensor!r}]}"
            mapping = ", or a mapping from tensor to one of these" if tensor is None else ""
            raise PltfError(f"{what} must be one of {', '.join(map(repr, CHOICES))}{mapping}; got {one!r}")
    return dict(value) if isinstance(value, Mapping) else value


def by_tensor(asked: str | Mapping[str, str], tensors: tuple[str, ...]) -> dict[str, str]:
    """The requested likelihood of each tensor; Poisson if a mapping does not name it."""
    if isinstance(asked, str):
        return dict.fromkeys(tensors, asked)
    unknown = [name for name in asked if name not in tensors]
    if unknown:
        raise PltfError(f"unknown tensor {unknown[0]!r} in {py:likelihood}: the model has {', '.join(tensors)}")
    return {name: asked.get(name, POISSON) for name in tensors}


def likelihoods_of(asked: str | Mapping[str, str], seen: Mapping[str, Observation]) -> dict[str, str]:
    """The likelihood of every tensor: ``"auto"`` depends on the data, ``"bernoulli"`` requires 0 and 1."""
    found = by_tensor(asked, tuple(seen))
    for name, one in seen.items():
        if found[name] == AUTO:
            found[name] = BERNOULLI if looks_like_links(one) else POISSON
        elif found[name] == BERNOULLI and not is_binary(one):
            raise ObservationError(f"{name} must hold only 0 and 1 under {py:likelihood='bernoulli'}{_other_in(one)}")
    return found


def _other_in(seen: Observation) -> str:
    """The end of a message: the first value other than 0 and 1."""
    other = first_other(seen)
    return "" if other is None else f", but cell {named_cell(other[0], seen.dims, seen.labels)} holds {other[1]:g}"


def remarks(asked: str | Mapping[str, str], seen: Mapping[str, Observation]) -> tuple[str, ...]:
    """Notes on the likelihoods: what ``"auto"`` chose and why, counts that look like links, values that are not counts.

    >>> import numpy as np, pltf
    >>> remarks("auto", {"X": pltf.observe(np.eye(3))})
    ('X was taken as links (bernoulli): all 9 observed values are 0 or 1',)
    >>> remarks("auto", {"X": pltf.observe(np.array([0, 7]))})
    ('X was taken as counts (poisson): it holds 7',)
    >>> remarks("poisson", {"X": pltf.observe(np.eye(3))})
    ("all observed values of X are 0 or 1: if they are links, use likelihood 'bernoulli'",)
    >>> remarks("poisson", {"X": pltf.observe(np.array([7, 0.5]))})[0].split("; ")[0]
    'X holds values that are not whole numbers, such as 0.5 in cell (1,): factors and means are valid'
    """
    found = []
    for name, likelihood in by_tensor(asked, tuple(seen)).items():
        one = seen[name]
        if likelihood == AUTO and looks_like_links(one):
            found.append(f"{name} was taken as links (bernoulli): all {one.n_observed:,} observed values are 0 or 1")
        elif likelihood == AUTO:
            found.append(f"{name} was taken as counts (poisson): {_why_counts(one)}")
        elif likelihood == POISSON and looks_like_links(one):
            advice = f"if they are links, use likelihood {BERNOULLI!r}"
            found.append(f"all observed values of {name} are 0 or 1: {advice}")
        if likelihood != BERNOULLI and (fraction := first_fraction(one)) is not None:
            found.append(_not_counts(name, one, *fraction))
    return tuple(found)


def _not_counts(name: str, seen: Observation, cell: tuple[int, ...], value: float) -> str:
    """What is valid in a fit to values that are not counts."""
    what = f"{value:g} in cell {named_cell(cell, seen.dims, seen.labels)}"
    use = "factors and means are valid; probabilities, intervals and scores assume counts"
    return f"{name} holds values that are not whole numbers, such as {what}: {use}"


def _why_counts(seen: Observation) -> str:
    if is_binary(seen):
        return f"all observed values are {seen.largest:g}"
    if seen.largest > 1:
        return f"it holds {seen.largest:g}"
    cell = first_other(seen)
    return "it holds values between 0 and 1" if cell is None else f"it holds {cell[1]:g}"


def in_words(likelihoods: Mapping[str, str]) -> str:
    """The likelihoods of a fit as text; empty if all tensors are counts.

    >>> in_words({"X": "poisson"}), in_words({"X": "bernoulli"}), in_words({"X": "poisson", "Y": "bernoulli"})
    ('', 'bernoulli', 'poisson for X, bernoulli for Y')
    """
    if set(likelihoods.values()) <= {POISSON}:
        return ""
    if len(likelihoods) == 1:
        return next(iter(likelihoods.values()))
    return ", ".join(f"{likelihood} for {name}" for name, likelihood in likelihoods.items())


def as_option(likelihoods: Mapping[str, str]) -> str | dict[str, str]:
    """The ``likelihood=`` argument for these likelihoods."""
    kinds = set(likelihoods.values()) or {POISSON}
    return kinds.pop() if len(kinds) == 1 else dict(likelihoods)


def is_binary(seen: Observation) -> bool:
    """Whether all observed values are 0 or 1; known without reading the cells.

    >>> import numpy as np, pltf
    >>> is_binary(pltf.observe(np.eye(3))), is_binary(pltf.observe(2 * np.eye(3)))
    (True, False)
    """
    return seen.largest <= 1 and seen.total == seen.n_positive


def first_other(seen: Observation) -> tuple[tuple[int, ...], float] | None:
    """The first cell with a value other than 0 and 1, and the value."""
    return seen.first_where(lambda values: (values != 0) & (values != 1))


def first_fraction(seen: Observation) -> tuple[tuple[int, ...], float] | None:
    """The first cell with an observed value that is not a whole number, and the value.

    >>> import numpy as np, pltf
    >>> first_fraction(pltf.observe(np.array([[3.0, np.nan, 0.5]])))
    ((0, 2), 0.5)
    """
    if np.dtype(seen.dtype_name).kind != "f":
        return None
    return seen.first_where(lambda values: values != np.floor(values))


def looks_like_links(seen: Observation) -> bool:
    """Whether values are 0 and 1, and both occur: ones alone may be links or counts."""
    return is_binary(seen) and 0 < seen.n_positive < seen.n_observed
