"""What is to be tried: models, sizes of their latent indices, priors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pltf.data.values import brief
from pltf.errors import PltfError, whole
from pltf.gamma import Gamma
from pltf.notation import Model

Prior = Gamma | Mapping[str, Gamma] | None
Label = dict[str, Any]  # what tells a candidate from the others: sizes, model, prior


class Candidate(NamedTuple):
    """A model with its sizes and a prior."""

    label: Label
    model: Model
    prior: Prior


def candidates(models: Any, priors: Any, sizes: Mapping[str, Any]) -> list[Candidate]:
    """Every model at every size with every prior, each once."""
    models, priors = _models(models), _priors(priors)
    grid = _grid(models, sizes)
    several = len({one.text for one in models}) > 1
    found: dict[tuple[Model, int], Candidate] = {}
    for one in models:
        varied = {index: sizes for index, sizes in grid.items() if index in one.sizes}
        for values in itertools.product(*varied.values()):
            sized = one.resized(**dict(zip(varied, values, strict=True)))
            for number, prior in enumerate(priors):
                label: Label = {"model": one.text} if several else {}
                label |= sized.sizes
                label |= {"prior": _named(prior)} if len(priors) > 1 else {}
                found.setdefault((sized, number), Candidate(label, sized, prior))
    return list(found.values())


def _models(given: Any) -> list[Model]:
    models = [given] if isinstance(given, Model) else list(given) if isinstance(given, (list, tuple)) else []
    if not models or not all(isinstance(one, Model) for one in models):
        raise PltfError(f"model must be a Model or a list of them, got {brief(given)}")
    first = models[0]
    for one in models:
        if dict(one.observed) != dict(first.observed):
            shown = [", ".join(str(e.output) for e in model.equations) for model in (first, one)]
            raise PltfError(f"models can be compared only on the same tensors, got {shown[0]} and {shown[1]}")
    return models


def _priors(given: Any) -> list[Prior]:
    priors = list(given) if isinstance(given, (list, tuple)) else [given]
    if not priors:
        raise PltfError("prior is an empty list: nothing to try")
    return priors


def _grid(models: Sequence[Model], sizes: Mapping[str, Any]) -> dict[str, list[int]]:
    """The sizes to try for each index, each once."""
    latent = list(dict.fromkeys(index for one in models for index in one.sizes))
    observed = {index: name for name, indices in models[0].observed.items() for index in indices}
    grid = {}
    for index, given in sizes.items():
        if index in observed:
            raise PltfError(f"index '{index}' is observed in {observed[index]}: its size comes from the data")
        if index not in latent:
            known = ", ".join(latent) or "none"
            raise PltfError(f"unknown argument '{index}': neither an option nor one of the latent indices, {known}")
        if isinstance(given, (str, Mapping)) or not (isinstance(given, Iterable) or np.ndim(given) == 0):
            raise PltfError(f"sizes of '{index}' must be whole numbers, got {brief(given)}")
        values = list(given) if isinstance(given, Iterable) else [given]
        if not values:
            raise PltfError(f"sizes of '{index}' are empty: nothing to try")
        grid[index] = list(dict.fromkeys(whole(f"sizes of '{index}'", value, 1) for value in values))
    return grid


def _named(prior: Prior) -> str:
    if isinstance(prior, Mapping):
        return ", ".join(f"{factor}: {one!r}" for factor, one in prior.items())
    return "default" if prior is None else repr(prior)


def edges(winner: Model, tried: Iterable[Model]) -> dict[str, str]:
    """Where the winner has the largest or the smallest of several sizes of an index; size 1 is no edge."""
    alike = [one for one in tried if one.text == winner.text]
    found = {}
    for index, size in winner.sizes.items():
        values = {one.sizes[index] for one in alike}
        if len(values) > 1 and size == max(values):
            found[index] = "largest"
        elif len(values) > 1 and size == min(values) > 1:
            found[index] = "smallest"
    return found


def shown(label: Mapping[str, Any]) -> str:
    """A label in words.

    >>> shown({"p": 2, "q": 3})
    'p=2, q=3'
    """
    return ", ".join(f"{name}={value}" for name, value in label.items()) or "the model"
