"""How many components? The bound decides, and the result says how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.fit import Fit
from pltf.inference.race import BEHIND
from pltf.inference.run import Row
from pltf.inference.start import restart_seed
from pltf.selection.grid import Label, shown
from pltf.selection.search import Outcome

if TYPE_CHECKING:
    import pandas as pd

ALIKE = 0.9  # restarts with at least this similarity have found the same components


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The result of a search: every run, the winner, and how sure that is.

    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5, 7]), np.ones((5, 4)))
    >>> found = pltf.select(pltf.nmf(rank=1), X, r=range(1, 6), restarts=3)
    >>> found.best
    {'r': 3}
    >>> found.summary()[["r", "gap", "restarts"]].head(1)
       r  gap  restarts
    0  3  0.0         3
    """

    outcomes: tuple[Outcome, ...]  # of every candidate with a run, in the order of the grid
    best_fit: Fit
    best: Label  # {"r": 7}; with "model" and "prior" where there were several
    edges: Mapping[str, str]  # indices at the end of their range: "smallest" or "largest"
    failures: tuple[Mapping[str, Any], ...]  # candidates that failed, each with its "error"
    interrupted: bool
    n_candidates: int
    seed: int

    @property
    def table(self) -> pd.DataFrame:
        """One row a run: what was tried, restart, seed, bound, sweeps, whether and why it stopped, seconds.

        >>> import numpy as np, pltf
        >>> X = np.eye(6) + 1
        >>> table = pltf.select(pltf.nmf(rank=1), X, r=[1, 2], restarts=2).table
        >>> row = table.iloc[3]
        >>> bool(pltf.nmf(rank=row["r"]).fit(X, seed=row["seed"]).bound == row["bound"])
        True
        """
        return _frame([(one.label, _told(row, self.seed)) for one in self.outcomes for row in one.rows])

    def summary(self) -> pd.DataFrame:
        """One row a candidate, the best first.

        ``best``, ``mean``, ``sd``: of the bounds of its restarts, dropped ones where they stood. ``gap``: from its best
        to the winner's. ``weight``: its probability, had all candidates the same beforehand and were the bound the
        evidence. ``agree``: the share of its restarts that found the same components as its best one (similarity of
        0.9 or more, see :func:`pltf.match`), and ``similarity`` the mean. ``dropped``: restarts that lost the race.
        ``edge``: whether the winner has the largest or the smallest size tried.
        """
        best = np.array([one.bound for one in self.outcomes])
        weight = np.exp(best - best.max())
        rows = [
            (
                one.label,
                {
                    "best": one.bound,
                    "mean": one.bounds.mean(),
                    "sd": one.bounds.std(ddof=1) if len(one.bounds) > 1 else 0.0,
                    "gap": one.bound - best.max(),
                    "weight": share,
                    "restarts": len(one.rows),
                    "agree": float((one.alike >= ALIKE).mean()),
                    "similarity": float(one.alike.mean()),
                    "dropped": sum(row.stopped == BEHIND for row in one.rows),
                    "seconds": sum(row.seconds for row in one.rows),
                    "edge": ", ".join(f"{end} {i}" for i, end in self.edges.items()) if one.label == self.best else "",
                },
            )
            for one, share in zip(self.outcomes, weight / weight.sum(), strict=True)
        ]
        return _frame(rows).sort_values("best", ascending=False, kind="stable", ignore_index=True)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What a user should know about the search, one sentence each.

        >>> import warnings, numpy as np, pltf
        >>> with warnings.catch_warnings(action="ignore"):
        ...     found = pltf.select(pltf.nmf(rank=1), np.eye(6) * 9, r=[1, 2], restarts=1)
        >>> found.doubts
        ('the best candidate (r=2) has the largest r tried: widen the grid',)
        """
        texts = []
        if self.interrupted:
            done = f"{len(self.outcomes)} of {self.n_candidates} candidates"
            texts.append(f"the search was interrupted: {done} have results")
        if self.failures:
            first = self.failures[0]
            label = {name: value for name, value in first.items() if name != "error"}
            count = f"{len(self.failures)} of {self.n_candidates} candidates"
            texts.append(f"{count} failed; {shown(label)}: {first['error']}")
        if self.edges:
            ends = " and ".join(f"the {end} {index} tried" for index, end in self.edges.items())
            texts.append(f"the best candidate ({shown(self.best)}) has {ends}: widen the grid")
        return tuple(texts)

    def plot(self, axes: Any = None) -> Any:
        """The bound against each size that was varied, with every run; returns the axes."""
        from pltf.plotting import search

        return search(self, axes)

    def __repr__(self) -> str:
        first, *others = sorted((one.bound for one in self.outcomes), reverse=True)
        winner = self.summary().iloc[0]
        lead = f"{first - others[0]:,.1f} nats above the next" if others else "the only candidate"
        runs = sum(len(one.rows) for one in self.outcomes)
        lines = [
            f"<Selection of {self.best_fit.model!r}",
            f"  best     {shown(self.best)}: bound {first:.6f}, {lead}",
            f"  restarts {winner['agree']:.0%} of {winner['restarts']} found the same components",
            f"  search   {len(self.outcomes)} candidates, {runs} runs, {self.table['seconds'].sum():.1f} s of fitting",
        ]
        return "\n".join([*lines, *(f"  doubt    {text}" for text in self.doubts)]) + ">"


def _told(row: Row, seed: int) -> dict[str, Any]:
    """A run in the table of all."""
    told = vars(row) | {"seed": restart_seed(seed, row.restart), "sweeps": row.n_iter}
    return {name: told[name] for name in ("restart", "seed", "bound", "sweeps", "converged", "stopped", "seconds")}


def _frame(rows: Sequence[tuple[Label, Mapping[str, Any]]]) -> pd.DataFrame:
    """A table with what was tried on the left; sizes that a model does not have are missing."""
    import pandas as pd

    names = dict.fromkeys(name for label, _ in rows for name in label)
    sizes = [name for name in names if name not in ("model", "prior")]
    order = [*(name for name in names if name == "model"), *sizes, *(name for name in names if name == "prior")]
    table = pd.DataFrame([{**label, **told} for label, told in rows])
    some = [name for name in sizes if table[name].isna().any()]
    return table[[*order, *rows[0][1]]].astype(dict.fromkeys(some, "Int64"))
