"""An overview of the fit, and the code to repeat it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from pltf.data.pattern import DensePattern, ListedPattern, Pattern
from pltf.data.stored import StoredPattern
from pltf.fit import Fit, Sampled
from pltf.gamma import Gamma
from pltf.inference.run import INTERRUPTED
from pltf.inference.state import shown_objective
from pltf.report.checks import Checks
from pltf.report.components import Ranking
from pltf.report.formatting import listed, many, names, nats, number, percent, seconds
from pltf.report.history import SearchHistory

METHODS = {
    "vb": "variational Bayes",
    "em": "expectation maximization",
    "map": "maximum a posteriori",
    "gibbs": "Gibbs sampling",
}
OBJECTIVES = {
    "bound": "evidence lower bound (ELBO)",
    "log-likelihood": "log-likelihood",
    "log-posterior": "log-posterior",
}
WIDE = 88  # characters: a longer call is broken into lines
VERSIONS = ("pltf", "python", "numpy", "scipy", "numba")


@dataclass(frozen=True)
class Figure:
    """A highlighted number."""

    name: str
    value: str
    words: str


@dataclass(frozen=True)
class TensorFact:
    """An observed tensor."""

    name: str
    shape: str
    observed: str
    positive: str  # cells above zero; a dash if the fit does not keep its data
    factors: str


def restart_objective(fit: Fit) -> str:
    """The objective that compares restarts: for Gibbs sampling, the ELBO of the VB fits where chains start."""
    return "ELBO" if fit.draws else shown_objective(fit.objective)


def headline(fit: Fit) -> str:
    """A summary of the fit in one sentence."""
    tensors = [f"{name} ({_shape(fit, name)})" for name in fit.model.observed]
    sizes = listed([f"{index}\u00a0=\u00a0{size}" for index, size in fit.model.sizes.items()])
    return f"{listed(tensors)}, factorized by {METHODS[fit.method]}{f' with {sizes}' if sizes else ''}."


def _shape(fit: Fit, name: str) -> str:
    return " × ".join(f"{fit.sizes[index]:,} {index}" for index in fit.model.observed[name])


def figures(
    fit: Fit, ranked: Mapping[str, Ranking], checks: Sequence[Checks], search: SearchHistory | None
) -> list[Figure]:
    """The numbers at the top of the page."""
    told = [_components(ranking) for ranking in ranked.values()]
    told += [_held_out(one, len(fit.model.observed) > 1) for one in checks if one.headline is not None]
    told.append(_bound(fit, search))
    told += [_observed(fit, name) for name in fit.model.observed]
    taken = search.seconds if search is not None else fit.seconds
    runs = many(search.runs, "run") if search is not None else many(len(fit.rows), "restart")
    told.append(Figure("time", seconds(taken), f"{runs}; the best took {many(fit.n_iter, 'iteration')}"))
    return told


def _held_out(found: Checks, several: bool) -> Figure:
    """The headline score."""
    assert found.headline is not None
    value, popular = (f"{x:.3f}".replace("-", "−") for x in (found.headline.value, found.headline.popularity))
    per_cell = " per cell" if found.headline.name == "log-likelihood" else ""
    name = f"held-out {found.headline.name}{f' of {found.tensor}' if several else ''}"
    return Figure(name, value, f"{'nats' + per_cell + '; ' if per_cell else ''}popularity alone: {popular}")


def tensors(fit: Fit) -> list[TensorFact]:
    """Every tensor: its shape, its observed cells and its factors."""
    return [
        TensorFact(
            e.output.name,
            _shape(fit, e.output.name),
            compact(fit.n_observed[e.output.name]),
            compact(stored(fit.patterns[e.output.name])) if fit.keeps_data else "–",
            ", ".join(term.name for term in e.factors),
        )
        for e in fit.model.equations
    ]


def _components(ranking: Ranking) -> Figure:
    size = len(ranking.order)
    words = "all explain counts" if ranking.used == size else f"of {size} explain counts"
    if ranking.share is not None and ranking.used > 1:
        words += f"; the largest {percent(float(ranking.share[0]))}"
    return Figure(f"components ({ranking.index})", f"{ranking.used:,}", words)


def _bound(fit: Fit, search: SearchHistory | None) -> Figure:
    state = "converged" if fit.converged else "not converged"
    if search is not None and search.lead is not None:
        state = f"{nats(search.lead)} above the next candidate"
    return Figure(shown_objective(fit.objective), nats(fit.bound), f"nats; {state}")


def _observed(fit: Fit, name: str) -> Figure:
    cells = math.prod(fit.sizes[index] for index in fit.model.observed[name])
    some = fit.n_observed[name]
    words = f"{percent(some / cells)} of {compact(cells)}"
    if fit.keeps_data:
        words += f"; {stored(fit.patterns[name]):,} above zero"
    what = "observed cells" if len(fit.model.observed) == 1 else f"observed cells of {name}"
    return Figure(what, compact(some), words)


def stored(pattern: Pattern) -> int:
    """The number of observed cells above zero."""
    if isinstance(pattern, DensePattern):
        return int(np.bitwise_count(pattern.above_zero).sum())
    if isinstance(pattern, StoredPattern):
        return pattern.seen.n_positive
    assert isinstance(pattern, ListedPattern)
    return int(np.count_nonzero(pattern.values > 0))


def compact(count: int) -> str:
    """A count that may be very large.

    >>> compact(122640), compact(10**12)
    ('122,640', '1.0e+12')
    """
    return f"{count:,}" if count < 10**9 else number(float(count))


def indices(fit: Fit) -> list[tuple[str, int, str]]:
    """Observed indices, their sizes and their first labels."""
    return [(index, fit.sizes[index], _in_short(fit, index)) for index in fit.model.observed_indices]


def _in_short(fit: Fit, index: str) -> str:
    if index not in fit.labels:
        return "no labels: positions from 0"
    size = fit.sizes[index]
    called = names(fit, index, list(range(size)) if size <= 4 else [0, 1, 2, size - 1])
    return ", ".join(called if size <= 4 else [*called[:3], "…", called[3]])


def facts(fit: Fit) -> list[tuple[str, str]]:
    """How it was fitted."""
    priors = {name: _in_words(prior) for name, prior in fit.priors.items()}
    told = [
        ("method", f"{METHODS[fit.method]} ({fit.method}); the trace is the {OBJECTIVES[fit.objective]}"),
        (
            "ended",
            f"{'converged' if fit.converged else 'not converged'} after {many(fit.n_iter, 'iteration')}: {fit.stopped}",
        ),
        ("restarts", f"{len(fit.rows):,}, seed {fit.seed}; restart {fit.best_restart} is the best (counted from 0)"),
        ("engine", f"{fit.engine}, {fit.dtype}"),
        ("likelihood", _likelihood(fit)),
    ]
    if fit.sampled is not None:
        told.append(("chains", _chains_in_words(fit, fit.sampled)))
    told += [
        ("counts" if len(fit.dispersion) == 1 else f"counts of {name}", str(found))
        for name, found in fit.dispersion.items()
    ]
    if fit.fixed:
        told.append(("fixed factors", ", ".join(sorted(fit.fixed))))
    if len(set(priors.values())) == 1 and priors:
        told.append(
            ("prior of every learned factor" if fit.fixed else "prior of every factor", next(iter(priors.values())))
        )
    else:
        told += [(f"prior of {name}", text) for name, text in priors.items()]
    return told


def _chains_in_words(fit: Fit, sampled: Sampled) -> str:
    """The number of draws, and whether the chains agree."""
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    table = fit.diagnostics()
    made = (
        f"{many(chains, 'chain')} of {many(draws, 'draw')} each, after {many(sampled.burn_in, 'iteration')} of burn-in"
    )
    told = [
        f"{name}: R-hat {row['rhat']:.3f}, effective sample size {row['ess']:,.0f}"
        for name, row in table.iterrows()
        if name == "log-likelihood" or str(name).endswith("median")
    ]
    return "; ".join([made, *told])


def _likelihood(fit: Fit) -> str:
    words = {
        "poisson": "poisson: counts around their rates",
        "bernoulli": "bernoulli: links, 1 where a Poisson count of the rate is above zero",
    }
    kinds = {name: words[fit.likelihoods.get(name, "poisson")] for name in fit.model.observed}
    return "; ".join(kinds.values() if len(kinds) == 1 else (f"{name} {text}" for name, text in kinds.items()))


def _in_words(prior: Gamma) -> str:
    """A prior, its numbers rounded."""
    told = [_value(prior, name) for name in ("shape", "mean")]
    tied = f"; {' and '.join(prior.learns)} learned for each {prior.tie.removeprefix('index:')}" if prior.learns else ""
    return f"Gamma with {' and '.join(told)}{tied}"


def _value(prior: Gamma, name: str) -> str:
    values = np.asarray(getattr(prior, name), dtype=float)
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return f"{name} {low if low == high else f'{low} to {high}'}"


def provenance(fit: Fit) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Where the fit comes from, and the versions of the packages that made it; if unknown, those installed here."""
    origin = {str(key): str(value) for key, value in fit.origin.items()}
    versions = [(name, origin.pop(name)) for name in VERSIONS if name in origin]
    return list(origin.items()), versions or _here()


def _here() -> list[tuple[str, str]]:
    return [(name, platform.python_version() if name == "python" else _version(name)) for name in VERSIONS]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def in_python(fit: Fit) -> str:
    """Python code that repeats the fit."""
    options = [f'method="{fit.method}"'] if fit.method != "vb" else []
    options += [f"restarts={len(fit.rows)}"] if len(fit.rows) > 1 else []
    options += [f"seed={fit.seed}"]
    options += [f'dtype="{fit.dtype}"'] if fit.dtype != "float64" else []
    options += [f"{name}={code}" for name, code in fit.options.items()]
    data = "data" if len(fit.model.observed) == 1 else f"{{{', '.join(f'{n!r}: {n}' for n in fit.model.observed)}}}"
    call = f"fit = model.fit({', '.join([data, *options])})"
    if len(call) > WIDE:
        call = "\n    ".join(["fit = model.fit(", *(f"{one}," for one in [data, *options])]) + "\n)"
    if any(row.stopped == INTERRUPTED for row in fit.rows):
        call = f"# This fit was interrupted; the code runs to the end.\n{call}"
    return f"import pltf\n\nmodel = pltf.{fit.model!r}\n{call}"


def data_in_words(fit: Fit) -> str:
    """What the names of the data in the code stand for, and how to get these data if that is known."""
    names = list(fit.model.observed) if len(fit.model.observed) > 1 else ["data"]
    stand = f"{listed(names)} {'stands' if len(names) == 1 else 'stand'} for the data"
    if fit.origin.get("command", "").startswith(("pltf fit ", "pltf select ")):
        held = fit.held_out is not None
        reads = f"it reads the data{' and holds out the same cells' if held else ''}"
        missing = ", with the held-out cells missing" if held else ""
        return f"To repeat all of it, run the command above: {reads}. Here {stand} as it reads them{missing}."
    cells = {name: math.prod(fit.sizes[index] for index in indices) for name, indices in fit.model.observed.items()}
    whole = all(fit.n_observed[name] == cells[name] for name in cells)
    missing = "" if whole else ", with the same cells missing (held out, or never observed)"
    again = "" if fit.history else " With the same data it gives the same result."
    return f"Here {stand} that the fit was given{missing}.{again}"
