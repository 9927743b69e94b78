"""What was fitted, in facts and figures; and how to have it again."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from pltf.data.pattern import DensePattern, ListedPattern, Pattern
from pltf.data.stored import StoredPattern
from pltf.fit import Fit, Sampled
from pltf.gamma import Gamma
from pltf.inference.run import INTERRUPTED
from pltf.report.checks import Checks
from pltf.report.components import Ranking
from pltf.report.formatting import listed, many, nats, number, percent, seconds
from pltf.report.history import SearchHistory

METHODS = {
    "vb": "variational Bayes",
    "em": "expectation maximization",
    "map": "maximum a posteriori",
    "gibbs": "Gibbs sampling",
}
OBJECTIVES = {
    "bound": "lower bound on the log evidence",
    "log-likelihood": "log-likelihood",
    "log-posterior": "log-posterior",
}
WIDE = 88  # characters: a longer call is broken into lines
VERSIONS = ("pltf", "python", "numpy", "scipy", "numba")


@dataclass(frozen=True)
class Figure:
    """A number that stands out."""

    name: str
    value: str
    words: str


@dataclass(frozen=True)
class IndexFact:
    """An observed index."""

    name: str
    size: int
    labels: str  # the first few


def headline(fit: Fit) -> str:
    """What it is, in one sentence."""
    tensors = [
        f"{name} of {' × '.join(f'{fit.sizes[index]:,} {index}' for index in indices)}"
        for name, indices in fit.model.observed.items()
    ]
    sizes = listed([f"{index}\u00a0=\u00a0{size}" for index, size in fit.model.sizes.items()])
    return f"{listed(tensors)}, factorized by {METHODS[fit.method]}{f' with {sizes}' if sizes else ''}."


def figures(fit: Fit, ranked: Mapping[str, Ranking], checks: Checks, search: SearchHistory | None) -> list[Figure]:
    """The numbers at the top of the page."""
    told = [_components(ranking) for ranking in list(ranked.values())[:3]]
    told.append(_bound(fit, search))
    told += [_observed(fit, name) for name in list(fit.model.observed)[:2]]
    if checks.scores is not None:
        first = checks.measures[0]  # AUC, or the log-likelihood where there is none
        value, popular = (f"{x:.3f}".replace("-", "−") for x in (first.value, first.popularity))
        told.append(Figure(f"held-out {first.name}", value, f"popularity alone: {popular}"))
    taken = search.seconds if search is not None else fit.seconds
    runs = many(search.runs, "run") if search is not None else many(len(fit.rows), "start")
    told.append(Figure("time", seconds(taken), f"{runs}; the one kept took {many(fit.n_iter, 'sweep')}"))
    return told


def _components(ranking: Ranking) -> Figure:
    size = len(ranking.order)
    words = "all of them explain counts" if ranking.used == size else f"of {size} explain counts"
    if ranking.share is not None and ranking.used > 1:
        words += f"; the largest {percent(float(ranking.share[0]))}"
    return Figure(f"components ({ranking.index})", f"{ranking.used:,}", words)


def _bound(fit: Fit, search: SearchHistory | None) -> Figure:
    state = "converged" if fit.converged else "not converged"
    if search is not None and search.lead is not None:
        state = f"{nats(search.lead)} above the next candidate"
    return Figure(fit.objective, nats(fit.bound), f"nats; {state}")


def _observed(fit: Fit, name: str) -> Figure:
    cells = math.prod(fit.sizes[index] for index in fit.model.observed[name])
    some = fit.n_observed[name]
    words = f"{percent(some / cells)} of {compact(cells)}"
    if fit.keeps_data:
        words += f"; {stored(fit.patterns[name]):,} above zero"
    what = "observed cells" if len(fit.model.observed) == 1 else f"observed cells of {name}"
    return Figure(what, compact(some), words)


def stored(pattern: Pattern) -> int:
    """How many cells were observed above zero."""
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


def indices(fit: Fit) -> list[IndexFact]:
    """Observed indices, their sizes and what their positions are called."""
    observed = dict.fromkeys(index for named in fit.model.observed.values() for index in named)
    return [IndexFact(index, fit.sizes[index], _in_short(fit, index)) for index in observed]


def _in_short(fit: Fit, index: str) -> str:
    if index not in fit.labels:
        return "no labels: positions from 0"
    labels, size = fit.labels[index], fit.sizes[index]
    few = range(size) if size <= 4 else [0, 1, 2, size - 1]
    called = labels.names(list(few))
    return ", ".join(called if size <= 4 else [*called[:3], "…", called[3]])


def facts(fit: Fit) -> list[tuple[str, str]]:
    """How it was fitted."""
    priors = {name: _in_words(prior) for name, prior in fit.priors.items()}
    told = [
        ("method", f"{METHODS[fit.method]} ({fit.method}); the trace is the {OBJECTIVES[fit.objective]}"),
        (
            "ended",
            f"{'converged' if fit.converged else 'not converged'} after {many(fit.n_iter, 'sweep')}: {fit.stopped}",
        ),
        ("starts", f"{len(fit.rows):,}, seed {fit.seed}; restart {fit.best_restart} was kept (counted from 0)"),
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
    """How many draws there are, and whether the chains agree."""
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    table = fit.diagnostics()
    made = f"{many(chains, 'chain')} of {many(draws, 'draw')} each, after {many(sampled.burn_in, 'sweep')} of burn-in"
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
    """A prior without the digits that nobody reads."""
    told = [_value(prior, name) for name in ("shape", "mean")]
    tied = f"; {' and '.join(prior.learns)} learned for each {prior.tie.removeprefix('index:')}" if prior.learns else ""
    return f"Gamma with {' and '.join(told)}{tied}"


def _value(prior: Gamma, name: str) -> str:
    values = np.asarray(getattr(prior, name), dtype=float)
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return f"{name} {low if low == high else f'{low} to {high}'}"


def provenance(fit: Fit) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Where the fit comes from, and the versions of what made it; without a record, of what is here."""
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
    """The fit again, as Python."""
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
        call = f"# This fit was interrupted: its code runs to the end.\n{call}"
    return f"import pltf\n\nmodel = pltf.{fit.model!r}\n{call}"
