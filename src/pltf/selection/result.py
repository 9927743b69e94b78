"""How many components? The bound decides, and the result says how sure that is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import py, spelled
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
    winner: Outcome
    best_fit: Fit
    best: Label  # {"r": 7}; with "model" and "prior" where there were several
    edges: Mapping[str, str]  # indices at the end of their range: "smallest" or "largest"
    failures: tuple[Mapping[str, Any], ...]  # candidates that failed, each with its "error"
    interrupted: bool
    n_candidates: int
    unsettled: int  # runs that ended before they converged
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

        ``best``: its highest bound. ``gap``: from there to the highest of all. ``agree``: the share of its restarts
        that found the same components as its best one (similarity of 0.9 or more, see :func:`pltf.match`).
        ``dropped``: how many of the ``restarts`` were dropped from the race; they count in nothing else. ``mean``,
        ``sd``: of the bounds. ``similarity``: the mean. ``weight``: its probability, had all candidates the same
        beforehand and were the bound the evidence. ``seconds``: of all its runs. ``edge``: whether the winner has the
        largest or smallest size tried.

        >>> import numpy as np, pltf
        >>> X = np.kron(np.diag([9, 5]), np.ones((5, 4)))
        >>> summary = pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=2).summary()
        >>> summary[["r", "agree", "restarts"]]
           r  agree  restarts
        0  2    1.0         2
        1  3    1.0         2
        2  1    1.0         2
        """
        highest = max(one.bound for one in self.outcomes)
        weight = np.exp([one.bound - highest for one in self.outcomes])
        rows = [
            (one.label, _summed_up(one) | {"gap": one.bound - highest, "weight": share, "edge": self._edge(one)})
            for one, share in zip(self.outcomes, weight / weight.sum(), strict=True)
        ]
        order = sorted(range(len(rows)), key=lambda n: (self.outcomes[n] is not self.winner, -self.outcomes[n].bound))
        return _frame([rows[n] for n in order])

    def _edge(self, one: Outcome) -> str:
        return ", ".join(f"{end} {index}" for index, end in self.edges.items()) if one is self.winner else ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What a user should know about the search, one sentence each.

        >>> import warnings, numpy as np, pltf
        >>> with warnings.catch_warnings(action="ignore"):
        ...     found = pltf.select(pltf.nmf(rank=1), np.eye(6) * 9, r=[1, 2], restarts=1)
        >>> found.doubts
        ('the best candidate (r=2) has the largest r tried: widen the grid',)
        """
        return tuple(spelled(text) for text in marked_doubts(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search to a file for :func:`pltf.load`: the fit that won, and what came of all the others.

        >>> import numpy as np, pltf, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "search.nc")
        >>> X = np.kron(np.diag([9, 5]), np.ones((5, 4)))
        >>> pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=2).save(path)
        >>> pltf.load(path).best
        {'r': 2}
        """
        from pltf.selection.saved import save_search

        save_search(self, path)

    def plot(self, axes: Any = None) -> Any:
        """The bound against each size that was varied, with every run; one panel each.

        Returns the axes: one, or an array of them where several things were varied.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> found = pltf.select(pltf.nmf(rank=1), np.kron(np.diag([9, 5]), np.ones((5, 4))), r=[1, 2, 3], restarts=2)
        >>> found.plot().get_xlabel()
        'size of r'
        """
        from pltf.plotting import search

        return search(self, axes)

    def __repr__(self) -> str:
        return f"<{described(self)}>"


def marked_doubts(found: Selection) -> tuple[str, ...]:
    """The doubts about a search, with marks where they are Python."""
    texts = []
    if found.interrupted:
        done = f"{len(found.outcomes)} of {found.n_candidates} candidates"
        texts.append(f"the search was interrupted: {done} have results")
    if found.unsettled:
        runs = sum(len(one.rows) for one in found.outcomes)
        texts.append(f"{found.unsettled} of {runs} runs ended before they converged: raise {py:max_iter}")
    if found.failures:
        first = found.failures[0]
        label = {name: value for name, value in first.items() if name != "error"}
        count = f"{len(found.failures)} of {found.n_candidates} candidates"
        texts.append(f"{count} failed; {shown(label)}: {first['error']}")
    if found.edges:
        ends = " and ".join(f"the {end} {index} tried" for index, end in found.edges.items())
        texts.append(f"the best candidate ({shown(found.best)}) has {ends}: widen the grid")
    return tuple(texts)


def described(found: Selection, spell: Callable[[str], str] | None = None) -> str:
    """A search in a few lines; ``spell`` is that of :func:`pltf.errors.spelled`."""
    others = [one.bound for one in found.outcomes if one is not found.winner]
    lead = "the only candidate"
    if others:
        ahead = found.winner.bound - max(others)
        lead = f"{ahead:,.1f} nats above the next" if ahead > 0 else "as high as others with larger factors"
    runs, count = sum(len(one.rows) for one in found.outcomes), len(found.outcomes)
    seconds = sum(row.seconds for one in found.outcomes for row in one.rows)
    lines = [
        f"Selection of {found.best_fit.model!r}",
        f"  data     {found.best_fit.data}",
        f"  best     {shown(found.best)}: bound {found.winner.bound:.6f}, {lead}",
        f"  search   {count} candidate{'s' * (count > 1)}, {runs} runs, {seconds:.1f} s of fitting",
    ]
    if len(found.winner.rows) > 1:
        row = _summed_up(found.winner)
        whole = row["restarts"] - row["dropped"]
        dropped = f", {row['dropped']} more were dropped" if row["dropped"] else ""
        lines.append(f"  restarts {row['agree'] * whole:.0f} of {whole} found the same components{dropped}")
    return "\n".join([*lines, *(f"  doubt    {spelled(text, spell)}" for text in marked_doubts(found))])


def _summed_up(one: Outcome) -> dict[str, Any]:
    """What the restarts of a candidate came to, without those that were dropped."""
    whole = np.array([row.stopped != BEHIND for row in one.rows])
    bounds, alike = np.array([row.bound for row in one.rows])[whole], one.alike[whole]
    return {
        "best": one.bound,
        "gap": 0.0,
        "agree": float((alike >= ALIKE).mean()),
        "dropped": int((~whole).sum()),
        "restarts": len(one.rows),
        "mean": bounds.mean(),
        "sd": bounds.std(ddof=1) if len(bounds) > 1 else math.nan,
        "similarity": float(alike.mean()),
        "weight": 0.0,
        "seconds": sum(row.seconds for row in one.rows),
        "edge": "",
    }


def _told(row: Row, seed: int) -> dict[str, Any]:
    """A run in the table of all."""
    told = vars(row) | {"seed": restart_seed(seed, row.restart), "sweeps": row.n_iter, "stopped": _in_a_word(row)}
    return {name: told[name] for name in ("restart", "seed", "bound", "sweeps", "converged", "stopped", "seconds")}


def _in_a_word(row: Row) -> str:
    """Why a run ended: "converged", "dropped", "max_iter", or "fell", when the bound no longer rose."""
    if row.converged or row.stopped == BEHIND:
        return "converged" if row.converged else "dropped"
    return "max_iter" if row.stopped.endswith("sweeps are done") else "fell"


def _frame(rows: Sequence[tuple[Label, Mapping[str, Any]]]) -> pd.DataFrame:
    """A table with what was tried on the left; sizes that a model does not have are missing."""
    import pandas as pd

    names = dict.fromkeys(name for label, _ in rows for name in label)
    sizes = [name for name in names if name not in ("model", "prior")]
    order = [*(name for name in names if name == "model"), *sizes, *(name for name in names if name == "prior")]
    table = pd.DataFrame([{**label, **told} for label, told in rows])
    some = [name for name in sizes if table[name].isna().any()]
    return table[[*order, *rows[0][1]]].astype(dict.fromkeys(some, "Int64"))
