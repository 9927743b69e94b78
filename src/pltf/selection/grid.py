"""The grid of a search: models, sizes of their latent indices, priors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pltf.data.numeric import brief
from pltf.errors import PltfError, UnknownArgumentError, py, refuse_of_data, whole
from pltf.gamma import Gamma
from pltf.inference.start import DEFAULT_PRIOR
from pltf.notation import Model

Prior = Gamma | Mapping[str, Gamma] | None
Label = dict[str, Any]  # what identifies a candidate: sizes, model, prior

# Columns of the tables of a search, beside the sizes
OF_RUNS = ("restart", "seed", "bound", "sweeps", "converged", "stopped", "seconds", "winner")
OF_FOLDS = ("fold", "score", "se")
OF_RESTARTS = ("best", "gap", "winner", "agree", "dropped", "restarts", "mean", "sd", "similarity")
OF_CANDIDATES = (*OF_RESTARTS, "weight", "seconds", "edge", "known", "heldout", "heldout_se")
COLUMNS = frozenset(("model", "prior", "error", *OF_RUNS, *OF_FOLDS, *OF_CANDIDATES))


class GridPoint(NamedTuple):
    """A model with its sizes and a prior."""

    label: Label
    model: Model
    prior: Prior


def grid_points(models: Any, priors: Any, sizes: Mapping[str, Any]) -> list[GridPoint]:
    """Every model at every size with every prior, each once."""
    models, priors = _models(models), _priors(priors)
    grid = _grid(models, sizes)
    several = len({one.text for one in models}) > 1
    found: dict[tuple[Model, str], GridPoint] = {}
    for one in models:
        varied = {index: values for index, values in grid.items() if index in one.sizes}
        for values in itertools.product(*varied.values()):
            sized = one.resized(**dict(zip(varied, values, strict=True)))
            for name, prior in priors.items():
                label: Label = {"model": one.text} if several else {}
                label |= sized.sizes
                label |= {"prior": name} if len(priors) > 1 else {}
                found.setdefault((sized, name), GridPoint(label, sized, prior))
    return list(found.values())


def _models(given: Any) -> list[Model]:
    models = [given] if isinstance(given, Model) else list(given) if isinstance(given, (list, tuple)) else []
    if not models or not all(isinstance(one, Model) for one in models):
        raise PltfError(f"{py:model} must be a Model or a list of them, got {brief(given)}")
    first = models[0]
    for index in dict.fromkeys(index for one in models for index in one.sizes):
        if index in COLUMNS:
            raise PltfError(f"latent index '{index}' has the name of a column of the table: rename it")
    for one in models:
        if dict(one.observed) != dict(first.observed):
            shown = [", ".join(str(e.output) for e in model.equations) for model in (first, one)]
            raise PltfError(f"models can be compared only on the same tensors, got {shown[0]} and {shown[1]}")
    return models


def _priors(given: Any) -> dict[str, Prior]:
    """The priors to try by name, without duplicates; priors with arrays are numbered."""
    if isinstance(given, (list, tuple)) and not given:
        raise PltfError(f"{py:prior} is empty: pass at least one prior")
    names: dict[str, Prior] = {}
    for prior in given if isinstance(given, (list, tuple)) else [given]:
        name = _named(prior)
        same = [known for known in names if known == name or known.startswith(f"{name} #")]
        if not any(prior is names[known] or "array>" not in name for known in same):
            names[f"{name} #{len(same) + 1}" if same else name] = prior
    return names


def _grid(models: Sequence[Model], sizes: Mapping[str, Any]) -> dict[str, list[int]]:
    """The sizes to try for each index, without duplicates."""
    latent = list(dict.fromkeys(index for one in models for index in one.sizes))
    observed = {index: name for name, indices in models[0].observed.items() for index in indices}
    grid = {}
    for index, given in sizes.items():
        if index in observed:
            raise PltfError(f"index '{index}' is observed in {observed[index]}: its size comes from the data")
        if index not in latent:
            refuse_of_data(index, sizes, models[0].observed)
            known = ", ".join(latent) or "none"
            raise UnknownArgumentError(
                f"unknown argument '{index}': neither an option nor one of the latent indices, {known}"
            )
        if isinstance(given, (str, bytes, Mapping)):
            raise PltfError(f"sizes of '{index}' must be whole numbers, got {brief(given)}")
        single = isinstance(given, np.ndarray) and given.ndim == 0
        values = list(given) if isinstance(given, Iterable) and not single else [given]
        if not values:
            raise PltfError(f"sizes of '{index}' must have at least one size, got none")
        grid[index] = list(dict.fromkeys(whole(f"every size of '{index}'", value, 1) for value in values))
    return grid


def _named(prior: Prior) -> str:
    if isinstance(prior, Mapping):
        return ", ".join(f"{factor}: {one!r}" for factor, one in prior.items())
    return "default" if prior is None or repr(prior) == repr(DEFAULT_PRIOR) else repr(prior)


def edges(winner: Model, tried: Iterable[Model]) -> dict[str, str]:
    """Indices for which the winner has the largest or smallest of several sizes; size 1 is not an edge."""
    alike = [one for one in tried if one.text == winner.text]
    found = {}
    for index, size in winner.sizes.items():
        values = {one.sizes[index] for one in alike}
        if len(values) > 1 and size == max(values):
            found[index] = "largest"
        elif len(values) > 1 and size == min(values) > 1:
            found[index] = "smallest"
    return found


def wider(points: Sequence[GridPoint], ends: Mapping[str, str]) -> dict[str, list[int]]:
    """The sizes of all latent indices, extended where the winner was at an edge, with the same step.

    >>> points = [GridPoint({"r": r}, Model("ir,jr->ij", r=r), None) for r in (2, 4, 6)]
    >>> wider(points, {"r": "largest"})
    {'r': [2, 4, 6, 8, 10]}
    >>> wider(points[:2], {"r": "smallest"})
    {'r': [1, 2, 4]}
    """
    grown = {}
    for index in dict.fromkeys(index for one in points for index in one.model.sizes):
        sizes = sorted({one.model.sizes[index] for one in points if index in one.model.sizes})
        step = sizes[-1] - sizes[-2] if len(sizes) > 1 and index in ends else 0
        more = range(1, max(2, len(sizes) // 2) + 1) if step else ()
        if ends.get(index) == "largest":
            sizes += [sizes[-1] + step * n for n in more]
        elif ends.get(index) == "smallest":
            step = sizes[1] - sizes[0]
            while step > 1 and sizes[0] - step < 1:
                step //= 2
            sizes = [sizes[0] - step * n for n in reversed(more) if sizes[0] - step * n >= 1] + sizes
        grown[index] = sizes
    return grown


def is_size(name: str) -> bool:
    """Whether an entry of a label is the size of an index."""
    return name not in ("model", "prior")


def shown(label: Mapping[str, Any]) -> str:
    """A label as text.

    >>> shown({"p": 2, "q": 3})
    'p=2, q=3'
    """
    return ", ".join(f"{name}={value}" for name, value in label.items()) or "the model"
