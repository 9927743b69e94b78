"""How values scatter around their rates: counts are Poisson; a link is a Poisson count above zero (Bernoulli-Poisson).

Engines need to know it for the ratio and the log term of a counts pass, inference for the constants of the
log-likelihood, predictions for what may be seen at a rate.
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
            raise ObservationError(f"{name} must hold only 0 and 1 under {py:likelihood='bernoulli'}{_other_in(one)}")
    return found


def _other_in(seen: Observation) -> str:
    """Where data hold something else than 0 and 1, as the end of a sentence."""
    other = first_other(seen)
    return "" if other is None else f", but cell {named_cell(other[0], seen.dims, seen.labels)} holds {other[1]:g}"


def remarks(asked: str | Mapping[str, str], seen: Mapping[str, Observation]) -> tuple[str, ...]:
    """What a reader should know of the likelihoods: what ``"auto"`` chose and why, and counts that look like links.

    >>> import numpy as np, pltf
    >>> remarks("auto", {"X": pltf.observe(np.eye(3))})
    ('X was taken as links (bernoulli): all 9 observed values are 0 or 1',)
    >>> remarks("auto", {"X": pltf.observe(np.array([0, 7]))})
    ('X was taken as counts (poisson): it holds 7',)
    >>> remarks("poisson", {"X": pltf.observe(np.eye(3))})
    ("all observed values of X are 0 or 1: if they are links, likelihood 'bernoulli' is made for them",)
    >>> remarks("poisson", {"X": pltf.observe(np.array([0.5, 7]))})
    ('X holds values that are not whole numbers, such as 0.5, and is fitted as counts',)
    """
    found = []
    for name, likelihood in by_tensor(asked, tuple(seen)).items():
        one = seen[name]
        if likelihood == AUTO and looks_like_links(one):
            found.append(f"{name} was taken as links (bernoulli): all {one.n_observed:,} observed values are 0 or 1")
        elif likelihood == AUTO:
            found.append(f"{name} was taken as counts (poisson): {_why_counts(one)}")
        elif likelihood == POISSON and looks_like_links(one):
            advice = f"if they are links, likelihood {BERNOULLI!r} is made for them"
            found.append(f"all observed values of {name} are 0 or 1: {advice}")
        fraction = (
            one.first_where(lambda x: x != np.floor(x)) if likelihood != BERNOULLI and _may_be_fractions(one) else None
        )
        if fraction is not None:
            found.append(
                f"{name} holds values that are not whole numbers, such as {fraction[1]:g}, and is fitted as counts"
            )
    return tuple(found)


def _may_be_fractions(seen: Observation) -> bool:
    """Whether values can be other than whole numbers, by their type."""
    return "float" in seen.dtype_name


def _why_counts(seen: Observation) -> str:
    if is_binary(seen):
        return f"all observed values are {seen.largest:g}"
    if seen.largest > 1:
        return f"it holds {seen.largest:g}"
    cell = first_other(seen)
    return "it holds values between 0 and 1" if cell is None else f"it holds {cell[1]:g}"


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


def first_other(seen: Observation) -> tuple[tuple[int, ...], float] | None:
    """The first cell that holds something else than 0 and 1, and what it holds."""
    return seen.first_where(lambda values: (values != 0) & (values != 1))


def looks_like_links(seen: Observation) -> bool:
    """Whether values are 0 and 1, and both occur: of ones alone nothing tells whether they are links or counts."""
    return is_binary(seen) and 0 < seen.n_positive < seen.n_observed
