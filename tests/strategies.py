"""Random models and data for hypothesis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

import pltf
from pltf.engines import dense_cp, parts
from pltf.engines import plan as planning
from pltf.engines.torch import blocks, plain, row_lists, sums
from tests.reference import Array, Reference

OBSERVED = ("user", "place", "act", "w")
LATENT = ("r", "topic", "q")


@dataclass(frozen=True, eq=False)
class Case:
    """A model with data, masks, priors and a starting point."""

    model: pltf.Model
    data: Mapping[str, Array]
    masks: Mapping[str, NDArray[np.bool_]]
    priors: Mapping[str, pltf.Gamma]
    init: Mapping[str, Array]
    likelihoods: Mapping[str, str] = field(default_factory=dict)  # "poisson" where none is named

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.model.index_sizes({name: x.shape for name, x in self.data.items()})

    def reference(self) -> Reference:
        shape = {a: prior.broadcast(self.init[a].shape)[0] for a, prior in self.priors.items()}
        mean = {a: prior.broadcast(self.init[a].shape)[1] for a, prior in self.priors.items()}
        return Reference(self.model, self.data, self.masks, shape, mean, self.likelihoods)


@st.composite
def models(draw: st.DrawFn, coupled: bool | None = None) -> pltf.Model:
    """Any multilinear model: 2 to 4 factors, cores, shared observed indices, lone latent ones, coupled pairs."""
    observed = OBSERVED[: draw(st.integers(1, 3))]
    latent = LATENT[: draw(st.integers(0, 2))]
    count = draw(st.integers(2, 4))
    subsets = st.lists(st.sampled_from(observed + latent), min_size=0, max_size=3, unique=True)
    factors = [draw(subsets) for _ in range(count)]
    for number, index in enumerate(observed):  # every observed index has to be in a factor
        if not any(index in factor for factor in factors):
            factors[number % count].append(index)
    terms = [f"F{n}[{','.join(factor)}]" for n, factor in enumerate(factors)]
    lines = [f"X[{','.join(draw(st.permutations(observed)))}] = {' * '.join(terms)}"]
    if draw(st.booleans()) if coupled is None else coupled:
        lines.append(_second_line(draw, factors, terms, latent))
    used = [index for index in latent if any(index in line for line in map(_indices, lines))]
    return pltf.Model("\n".join(lines), **{index: draw(st.integers(1, 3)) for index in used})


def _indices(line: str) -> list[str]:
    return line.replace("[", ",").replace("]", ",").replace(" ", "").split(",")


def _second_line(draw: st.DrawFn, factors: list[list[str]], terms: list[str], latent: tuple[str, ...]) -> str:
    """An equation of Y that shares some factors with X and has a factor of its own."""
    shared = draw(st.lists(st.integers(0, len(factors) - 1), min_size=1, max_size=2, unique=True))
    own = ["m", *draw(st.lists(st.sampled_from(latent), max_size=2, unique=True))] if latent else ["m"]
    held = dict.fromkeys(i for n in shared for i in factors[n] if i not in LATENT)
    output = [*[i for i in held if draw(st.booleans())], "m"]
    return f"Y[{','.join(output)}] = {' * '.join([terms[n] for n in shared])} * Own[{','.join(own)}]"


@st.composite
def cp_models(draw: st.DrawFn) -> pltf.Model:
    """CP with 1 to 4 modes, factors either way round."""
    modes = OBSERVED[: draw(st.integers(1, 4))]
    terms = [f"F{n}[{i},r]" if draw(st.booleans()) else f"F{n}[r,{i}]" for n, i in enumerate(modes)]
    text = f"X[{','.join(draw(st.permutations(modes)))}] = {' * '.join(terms)}"
    return pltf.Model(text, r=draw(st.integers(1, 5)))


def cp_cases(links: bool = False) -> st.SearchStrategy[Case]:
    """Random CP problems."""
    return cases(model_strategy=cp_models(), links=links)


@st.composite
def cases(
    draw: st.DrawFn,
    coupled: bool | None = None,
    whole: bool = False,
    model_strategy: st.SearchStrategy[pltf.Model] | None = None,
    links: bool = False,
) -> Case:
    """A random model with counts (with ``links``, tensors may be links), masks (unless ``whole``), priors, a start."""
    model = draw(models(coupled) if model_strategy is None else model_strategy)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = dict(model.sizes)
    for indices in model.observed.values():
        for index in indices:
            sizes.setdefault(index, draw(st.integers(1, 4)))
    shapes = {name: tuple(sizes[i] for i in indices) for name, indices in model.observed.items()}
    scale = draw(st.sampled_from([0.3, 3.0, 200.0]))
    fractional = draw(st.booleans())
    data = {name: rng.poisson(scale, shape) * np.float64(0.37 if fractional else 1.0) for name, shape in shapes.items()}
    kinds = st.sampled_from(["poisson", "bernoulli"] if links else ["poisson"])
    likelihoods = {name: draw(kinds) for name in data}
    data = {name: (x > 0).astype(np.float64) if likelihoods[name] == "bernoulli" else x for name, x in data.items()}
    density = 1.0 if whole else draw(st.sampled_from([0.3, 0.7, 1.0]))
    masks = {name: rng.random(shape) < density for name, shape in shapes.items()}
    masks["X"].flat[0] = True
    priors, init = {}, {}
    for name, indices in model.factors.items():
        shape = tuple(sizes[index] for index in indices)
        if draw(st.booleans()):
            priors[name] = pltf.Gamma(rng.uniform(0.2, 3, shape), rng.uniform(0.5, 20, shape))
        else:
            priors[name] = pltf.Gamma(draw(st.sampled_from([0.1, 0.5, 4.0])), draw(st.sampled_from([1.0, 10.0])))
        init[name] = rng.gamma(1.0, 1.0, shape) + 1e-3
    return Case(model, data, masks, priors, init, likelihoods)


def cut_small(patch: pytest.MonkeyPatch, size: int) -> None:
    """Have every engine cut its cells into blocks of about so many bytes."""
    patch.setattr(planning, "BLOCK_BYTES", size)
    patch.setattr(plain, "ON_HOST", 4 * size)
    patch.setattr(parts, "BLOCK", max(1, size // 16))
    for name in ("LEAST_CELLS", "MOST_CELLS", "LEAST_MASK_CELLS"):
        patch.setattr(dense_cp, name, max(1, size // 16))
    patch.setattr(blocks, "HOST_BYTES", 32 * size)
    patch.setattr(row_lists, "MOST_CELLS", max(2, size // 32))
    patch.setattr(sums, "MOST_PARTS", 2)
