"""Does the search find the true order? Do learned priors predict better?

Run as ``python -m benchmarks.selection PART`` from the root of the project. Parts, with their time on two cores:

    order     CP 50x50x50 of order 7, 40/60/80 % missing: orders 2 to 10, with and without the race (25 min)
    tucker    sizes of a Tucker model on a grid, and CP against Tucker (5 min)
    pruning   one fit with too many components and a mean for each of them, against the search (20 min)
    priors    held-out cells under fixed and learned priors, at several scales of the counts (15 min)
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import sparse
from scipy.stats import poisson
from sklearn.metrics import roc_auc_score

import pltf
import pltf.datasets

PAPER = pltf.Gamma(0.5, 10.0)
PRIORS = {
    "fixed (0.5, 10)": PAPER,
    "mean": pltf.Gamma(learn="mean"),
    "mean by component": pltf.Gamma(learn="mean", tie="component"),
    "both": pltf.Gamma(learn="both"),
    "both by component": pltf.Gamma(learn="both", tie="component"),
}


def order_seven(mean: float, missing: float, draw: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A draw of the paper's synthetic data: counts and mask."""
    prior, seed = pltf.Gamma(0.5, mean), 1000 * draw + round(100 * missing)
    X = pltf.datasets.draw(pltf.cp(rank=7), (50, 50, 50), prior=prior, seed=seed).counts["X"]
    return X, pltf.holdout(X, missing, seed=draw)


def order(draws: int, console: Console) -> None:
    """The chosen order, with and without the race."""
    table = Table(
        "factor mean", "missing", "draw", "order", "gap to next", "race: order", "bounds differ", "s", "race: s"
    )
    right = total = 0
    for mean in (1.0, 0.5):
        for missing in (0.4, 0.6, 0.8):
            for draw in range(draws):
                X, mask = order_seven(mean, missing, draw)
                found = {race: _timed(race, X, mask) for race in (False, True)}
                (full, seconds), (raced, raced_seconds) = found[False], found[True]
                gap = -full.summary()["gap"].nlargest(2).iloc[1]
                differ = full.best_fit.bound - raced.best_fit.bound
                row = [
                    f"{mean:g}",
                    f"{missing:.0%}",
                    str(draw),
                    str(full.best["r"]),
                    f"{gap:.1f}",
                    str(raced.best["r"]),
                ]
                row += [f"{differ:.3f}", f"{seconds:.1f}", f"{raced_seconds:.1f}"]
                console.print(*row)
                table.add_row(*row, style=None if full.best == raced.best == {"r": 7} else "bold red")
                right, total = right + (full.best["r"] == 7), total + 1
    console.print(table)
    console.print(f"order 7 found in {right} of {total}")


def _timed(race: bool, X: Any, mask: Any) -> tuple[pltf.Selection, float]:
    began = time.perf_counter()
    found = pltf.select(pltf.cp(rank=7), X, mask=mask, r=range(2, 11), restarts=10, race=race)
    return found, time.perf_counter() - began


def tucker(draws: int, console: Console) -> None:
    """Sizes of a Tucker model, and CP against Tucker on data from each."""
    table = Table("data", "draw", "found", "next", "gap", "s")
    three = pltf.tucker(ranks=(3, 2, 3))
    prior = pltf.Gamma(0.5, 2.0)
    rivals = [pltf.cp(rank=r) for r in range(2, 7)] + [pltf.tucker(ranks=(p, q, 3)) for p in (2, 3) for q in (2, 3)]
    for draw in range(draws):
        X = pltf.datasets.draw(three, (30, 30, 30), prior=prior, seed=draw).counts["X"]
        began = time.perf_counter()
        found = pltf.select(three, X, p=range(2, 5), q=range(2, 5), r=range(2, 5), restarts=5)
        _tell(table, "Tucker (3, 2, 3), grid", draw, found, began, console)
        for name, model in (("CP 4", pltf.cp(rank=4)), ("Tucker (3, 2, 3)", three)):
            X = pltf.datasets.draw(model, (30, 30, 30), prior=prior, seed=100 + draw).counts["X"]
            began = time.perf_counter()
            found = pltf.select(rivals, X, restarts=5)
            _tell(table, f"{name}, rivals", draw, found, began, console)
    console.print(table)


def _tell(table: Table, data: str, draw: int, found: pltf.Selection, began: float, console: Console) -> None:
    summary = found.summary().sort_values("best", ascending=False, ignore_index=True)
    labels = [
        ("CP " if len(row) == 1 else "Tucker ") + str(tuple(row))
        for row in (summary[list("pqr") if "p" in summary else ["r"]].iloc[n].dropna().astype(int) for n in (0, 1))
    ]
    row = data, str(draw), *labels, f"{-summary['gap'][1]:.1f}", f"{time.perf_counter() - began:.1f}"
    console.print(*row)
    table.add_row(*row)


def pruning(draws: int, console: Console) -> None:
    """The remaining order of one fit with twice the rank, compared with the search."""
    table = Table("data", "draw", "search", "one fit", "s", "best of 5", "smallest kept", "largest dropped")
    for missing in (0.4, 0.8):
        for draw in range(draws):
            X, mask = order_seven(1.0, missing, draw)
            _prune(table, f"order 7, {missing:.0%} missing", draw, X, mask, range(2, 11), 15, console)
    for scale in (0.1, 1.0, 100.0, 1e4):
        prior = pltf.Gamma(0.5, (scale / 5) ** (1 / 3))
        for draw in range(draws):
            X = pltf.datasets.draw(pltf.cp(rank=5), (40, 35, 30), prior=prior, seed=draw).counts["X"]
            title = f"order 5, mean count {scale:g}"
            _prune(table, title, draw, X, pltf.holdout(X, 0.5, seed=draw), range(3, 9), 12, console)
    console.print(table)


def _prune(table: Table, data: str, draw: int, X: Any, mask: Any, orders: range, rank: int, console: Console) -> None:
    prior = pltf.Gamma(learn="mean", tie="component")
    with warnings.catch_warnings(action="ignore"):
        searched = pltf.select(pltf.cp(rank=2), X, mask=mask, r=orders, restarts=5).best["r"]
        one, best = (pltf.cp(rank=rank).fit(X, mask=mask, prior=prior, restarts=n) for n in (1, 5))
    mass = one.components()["mass"].to_numpy()
    kept, dropped = mass[mass >= 1].min(), mass[mass < 1].max(initial=0.0)
    row = [data, str(draw), str(searched), str(one.effective_rank), f"{one.seconds:.1f}"]
    row += [str(best.effective_rank), f"{kept:.1f}", f"{dropped:.1g}"]
    console.print(*row)
    table.add_row(*row)


Split = tuple[Any, pltf.Model, NDArray[np.intp], NDArray[np.float64]]  # data, model, hidden cells, their counts


def priors(draws: int, console: Console) -> None:
    """Log-likelihood and AUC of held-out cells for each prior."""
    for title, split in _splits():
        runs = Parallel(n_jobs=-1)(delayed(_held_out)(split, draw) for draw in range(draws))
        table = Table("prior", "log-likelihood a cell", "AUC", "bound", "sweeps", "s", title=title)
        for name in PRIORS:
            scores = np.array([run[name] for run in runs])
            mean, sd = scores.mean(axis=0), scores.std(axis=0, ddof=1) if draws > 1 else scores[0] * 0
            ll, auc = (f"{mean[n]:.{digits}f} +- {sd[n]:.{digits}f}" for n, digits in ((0, 5), (1, 4)))
            table.add_row(name, ll, auc, f"{mean[2]:.1f}", f"{mean[3]:.0f}", f"{mean[4]:.2f}")
        console.print(table)


def _held_out(split: Callable[[int], Split], draw: int) -> dict[str, tuple[float, ...]]:
    data, model, cells, counts = split(draw)
    model.fit(data, max_iter=1, tol=0, threads=1)  # compile before anything is timed
    scores: dict[str, tuple[float, ...]] = {}
    for name, prior in PRIORS.items():
        with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
            fit = model.fit(data, prior=prior, restarts=3, threads=1)
        rate = fit.mean(at=cells)
        both = 0 < (counts > 0).mean() < 1
        auc = roc_auc_score(counts > 0, rate) if both else np.nan
        scores[name] = (float(poisson.logpmf(counts, rate).mean()), auc, fit.bound, fit.n_iter, fit.seconds)
    return scores


def _splits() -> Iterator[tuple[str, Callable[[int], Split]]]:
    for missing in (0.4, 0.6, 0.8):
        for rank in (2, 20):
            yield f"UCLAF, {missing:.0%} missing, R={rank}", partial(_uclaf, missing, rank)
    for scale in (1e-3, 1e-1, 1.0, 1e2, 1e4):
        for rank in (5, 12):
            title = f"CP 40x35x30 of order 5, mean count {scale:g}, 50% missing, R={rank}"
            yield title, partial(_synthetic, scale, rank)
    for scale in (0.001, 0.1):
        yield f"listed 2000x1500 of order 5, mean count {scale:g}, R=10", partial(_listed, scale)


def _uclaf(missing: float, rank: int, draw: int) -> Split:
    X = pltf.datasets.uclaf().X
    return _hidden(X, pltf.cp(rank=rank), missing, draw)


def _synthetic(scale: float, rank: int, draw: int) -> Split:
    prior = pltf.Gamma(0.5, (scale / 5) ** (1 / 3))
    X = pltf.datasets.draw(pltf.cp(rank=5), (40, 35, 30), prior=prior, seed=draw).counts["X"]
    return _hidden(X, pltf.cp(rank=rank), 0.5, draw)


def _hidden(X: Any, model: pltf.Model, missing: float, draw: int) -> Split:
    keep = pltf.holdout(X, missing, seed=draw)
    return pltf.observe(X, keep), model, np.argwhere(~keep), X[~keep].astype(float)


def _listed(scale: float, draw: int) -> Split:
    prior = pltf.Gamma(0.3, (scale / 5) ** 0.5)
    X = pltf.datasets.draw(pltf.nmf(rank=5), (2000, 1500), prior=prior, seed=draw).counts["X"]
    hidden = np.unique(np.random.default_rng(draw).integers(0, X.shape, (300_000, 2)), axis=0)
    counts = X[tuple(hidden.T)].astype(float)
    X[tuple(hidden.T)] = 0
    listed = sparse.coo_array(X)
    data = pltf.observe((np.stack(listed.coords, 1), listed.data), shape=X.shape, missing=hidden)
    return data, pltf.nmf(rank=10), hidden, counts


def run_part(parts: Mapping[str, Callable[[int, Console], None]], about: str | None, console: Console) -> None:
    """The command line of a module of parts, each for some draws of its problems."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--draws", type=int, default=10, help="draws of each problem (default 10)")
    arguments = parser.parse_args()
    parts[arguments.part](arguments.draws, console)


PARTS = {"order": order, "tucker": tucker, "pruning": pruning, "priors": priors}

if __name__ == "__main__":
    run_part(PARTS, __doc__, Console(width=160))
