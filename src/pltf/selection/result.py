"""The result of a search for the number of components, with its uncertainty."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import py, spelled
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.inference.race import BEHIND
from pltf.inference.run import Row, is_limit
from pltf.inference.start import restart_seed
from pltf.selection.choice import UNCLEAR, allowances, standard_error, wins_by_bound, wins_by_score, within_errors
from pltf.selection.grid import OF_CANDIDATES, OF_FOLDS, OF_RUNS, Label, is_size, shown
from pltf.selection.search import Outcome

if TYPE_CHECKING:
    import pandas as pd

SURE = 2 / 3  # a winner with a lower weight raises a doubt
FAR_APART = 4  # times the entries of another candidate: equal predictions then raise a doubt
TOLERANCE = 1e-6  # relative difference of ELBOs below which they agree
MOST_TOLD = 30  # candidates in the text of a search
ALIKE = 0.9  # restarts with at least this similarity have found the same components


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The result of a search: every run, the winner, and how certain the choice is.

    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5, 7]), np.ones((5, 4)))
    >>> found = pltf.select(pltf.nmf(rank=1), X, r=range(1, 6), restarts=3)
    >>> found.best
    {'r': 3}
    >>> found.summary().query("winner")[["r", "gap", "restarts"]]
       r  gap  restarts
    2  3  0.0         3
    """

    outcomes: tuple[Outcome, ...]  # results of every candidate with a run, in the order of the grid
    winner: Outcome
    best_fit: Fit  # the best candidate, fitted to all data
    best: Label  # {"r": 7}; with "model" and "prior" where there were several
    edges: Mapping[str, str]  # indices whose best size is the "smallest" or "largest" tried
    failures: tuple[Mapping[str, Any], ...]  # failed candidates, each with its "error"
    interrupted: bool  # whether Ctrl-C ended the search early
    n_candidates: int
    unsettled: int  # number of runs that did not converge
    seed: int
    criterion: str = "bound"  # "bound", "heldout", or "both" (held-out cells chose, ELBOs are known as well)
    score: str = "log_likelihood"  # score on held-out cells
    note: str = ""  # why the ELBO chose instead of held-out cells

    @property
    def table(self) -> pd.DataFrame:
        """One row for each run, in the order of the sizes; ``winner`` marks those of the candidate that was chosen.

        Columns: what was tried, restart, seed, ELBO (``bound``), sweeps, convergence, why it stopped, seconds.

        >>> import numpy as np, pltf
        >>> X = np.eye(6) + 1
        >>> table = pltf.select(pltf.nmf(rank=1), X, r=[1, 2], restarts=2).table
        >>> row = table.iloc[3]
        >>> bool(pltf.nmf(rank=row["r"]).fit(X, seed=row["seed"]).bound == row["bound"])
        True
        """
        ordered = [self.outcomes[n] for n in self._by_size]
        rows = [(one, row) for one in ordered for row in one.rows]
        return _frame([(one.label, _told(row, self.seed, one is self.winner)) for one, row in rows])

    @property
    def heldout(self) -> pd.DataFrame:
        """One row for each candidate and fold: the score on held-out cells. Empty if the ELBO chose.

        >>> import numpy as np, pltf
        >>> X = np.random.default_rng(0).poisson(np.kron(np.diag([9, 5]), np.ones((9, 8))) + 0.1)
        >>> found = pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=2, criterion="heldout")
        >>> found.heldout.columns.tolist(), len(found.heldout)
        (['r', 'fold', 'score', 'se'], 15)
        """
        rows = []
        for one in (self.outcomes[n] for n in self._by_size):
            for fold, values in enumerate(one.folds.best if one.folds is not None else ()):
                told = fold, float(values.mean()), standard_error(values)
                rows.append((one.label, dict(zip(OF_FOLDS, told, strict=True))))
        return _frame(rows)

    def summary(self) -> pd.DataFrame:
        """One row for each candidate, in the order of the sizes; ``winner`` marks the one that was chosen.

        ``best``: its highest ELBO. ``gap``: the difference to the highest ELBO of all candidates. ``agree``: the share
        of its ``known`` restarts with the same components as the best one (similarity of at least 0.9, see
        :func:`pltf.match`). ``dropped``: how many of the ``restarts`` were stopped early; they count only in
        ``weight``. ``mean``, ``sd``: of the ELBOs. ``similarity``: mean similarity to the best restart. ``weight``: how
        often it wins when restarts (and folds) are resampled with replacement. ``seconds``: of all its runs. ``edge``:
        whether the winner has the largest or smallest size tried. ``heldout``, ``heldout_se``: score on held-out cells
        and its standard error. A candidate that was fitted to folds only has no ELBO.

        >>> import numpy as np, pltf
        >>> X = np.kron(np.diag([9, 5]), np.ones((5, 4)))
        >>> summary = pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=2).summary()
        >>> summary[["r", "winner", "agree", "restarts"]]
           r  winner  agree  restarts
        0  1   False    1.0         2
        1  2    True    1.0         2
        2  3   False    1.0         2
        """
        highest = np.nanmax([one.bound for one in self.outcomes])
        rows = []
        for one, weight in zip(self.outcomes, self.weights, strict=True):
            told = _summed_up(one) | (_predicted(one) if self.by_hidden_cells else {})
            told |= {"gap": one.bound - highest, "winner": one is self.winner, "weight": float(weight)}
            told |= {"edge": self._edge(one)}
            rows.append((one.label, {name: told[name] for name in OF_CANDIDATES if name in told}))
        return _frame([rows[n] for n in self._by_size])

    @property
    def by_hidden_cells(self) -> bool:
        """Whether held-out cells chose, not the ELBO.

        >>> import numpy as np, pltf
        >>> pltf.select(pltf.nmf(rank=1), np.eye(6) + 1, r=[1, 2], restarts=2, criterion="bound").by_hidden_cells
        False
        """
        return self.criterion != "bound"

    @cached_property
    def weights(self) -> Array:
        """How often each of the ``outcomes`` wins when restarts, folds and held-out cells are resampled.

        >>> import numpy as np, pltf
        >>> X = np.kron(np.diag([9, 5]), np.ones((5, 4)))
        >>> pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=2, criterion="heldout").weights
        array([0., 1., 0.])
        """
        weights = np.zeros(len(self.outcomes))
        if self.by_hidden_cells:
            at = [n for n, one in enumerate(self.outcomes) if one.folds is not None]
            found = [one.folds for one in self.outcomes if one.folds is not None]
            weights[at] = wins_by_score(found, [self.outcomes[n].entries for n in at], self.seed)
        else:
            weights[:] = wins_by_bound([np.array([row.bound for row in one.rows]) for one in self.outcomes], self.seed)
        return weights

    @property
    def _by_size(self) -> list[int]:
        """The outcomes, model by model in the order of their sizes; models and priors as they were given."""
        words = [[one.label.get(name) for one in self.outcomes] for name in ("model", "prior")]
        models, priors = ([found.index(word) for word in found] for found in words)
        names = dict.fromkeys(name for one in self.outcomes for name in one.label if is_size(name))
        sizes = [tuple(int(one.label.get(name, 0)) for name in names) for one in self.outcomes]
        return sorted(range(len(sizes)), key=lambda n: (models[n], sizes[n], priors[n]))

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
        """Write the search to a file, readable by :func:`pltf.load`: the best fit, and the results of all others.

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
        """Plot the ELBO of every run and the scores on held-out cells against what was varied.

        Returns the axes, or an array of axes if several sizes, models or priors were varied.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> found = pltf.select(pltf.nmf(rank=1), np.kron(np.diag([9, 5]), np.ones((5, 4))), r=[1, 2, 3], restarts=2)
        >>> found.plot().get_xlabel()
        'size of r'
        """
        from pltf.plotting import search

        return search(self, axes)

    def _repr_html_(self) -> str:
        from pltf.notebooks import selection_html

        return selection_html(self)

    def __repr__(self) -> str:
        return f"<{described(self)}>"


def marked_doubts(found: Selection) -> tuple[str, ...]:
    """The doubts about a search, with Python names marked up."""
    texts = []
    if found.interrupted:
        done = f"{len(found.outcomes)} of {found.n_candidates} candidates"
        texts.append(f"the search was interrupted: {done} have results")
    if found.unsettled:
        runs = sum(len(one.rows) for one in found.outcomes)
        texts.append(f"{found.unsettled} of {runs} runs did not converge: raise {py:max_iter}")
    if found.failures:
        first = found.failures[0]
        label = {name: value for name, value in first.items() if name != "error"}
        count = f"{len(found.failures)} of {found.n_candidates} candidates"
        texts.append(f"{count} failed; {shown(label)}: {first['error']}")
    if found.edges:
        ends = " and ".join(f"the {end} {index} tried" for index, end in found.edges.items())
        texts.append(f"the best candidate ({shown(found.best)}) has {ends}: widen the grid")
    return (*texts, *_unclear(found))


def _unclear(found: Selection) -> list[str]:
    """Doubts about the choice itself."""
    weight = float(found.weights[next(n for n, one in enumerate(found.outcomes) if one is found.winner)])
    best, fitted = shown(found.best), [one for one in found.outcomes if one.rows]
    texts = []
    if found.by_hidden_cells:
        if weight < SURE or _many_level(found):
            texts.append(f"held-out scores are inconclusive: {_level(found)}; {best} wins {_often(weight)}")
        top = max(fitted, key=lambda one: one.bound)
        ahead = top.bound - found.winner.bound
        if ahead > _rounding(top.bound):
            bound = f"the ELBO is highest at {shown(top.label)}, by {ahead:,.1f} nats"
            texts.append(f"the criteria disagree: {bound}, but held-out cells chose {best}; trust the held-out cells")
    elif len(fitted) > 1:
        lead = found.winner.bound - max(one.bound for one in fitted if one is not found.winner)
        spread = _spread(found.winner)
        if weight < SURE and spread > max(lead, _rounding(found.winner.bound)):
            text = f"restarts of {best} differ by {spread:,.1f} nats, but its lead is only {lead:,.1f}"
            texts.append(f"{text}; with other restarts it wins {_often(weight)}: raise {py:restarts}")
    return texts


def _rounding(bound: float) -> float:
    """The largest difference between two ELBOs that is rounding error."""
    return TOLERANCE * max(abs(bound), 1.0)


def _often(weight: float) -> str:
    return f"{weight:.0%} of the time"


def _spread(one: Outcome) -> float:
    """Range of the ELBOs of the restarts of a candidate, without those stopped early."""
    bounds = [row.bound for row in one.rows if row.stopped != BEHIND]
    return max(bounds) - min(bounds)


def _within(found: Selection) -> list[Outcome]:
    """The candidates within two standard errors of the best."""
    scored = [one for one in found.outcomes if one.folds is not None]
    folds = [one.folds for one in scored if one.folds is not None]
    return [scored[n] for n in within_errors([one.mean for one in folds], allowances(folds), UNCLEAR)]


def _many_level(found: Selection) -> bool:
    """Whether candidates of very different sizes predict equally well."""
    sizes = [one.entries for one in _within(found)]
    return max(sizes) >= FAR_APART * min(sizes)


def _level(found: Selection) -> str:
    """The candidates within two standard errors of the best, in words."""
    return f"{_range([one.label for one in _within(found)])} within two standard errors of the best"


def _range(labels: Sequence[Label]) -> str:
    """Labels in words: from the smallest to the largest if they have one size, otherwise the first few.

    >>> _range([{"r": 2}, {"r": 5}, {"r": 3}])
    'r=2 to r=5 are'
    >>> _range([{"p": 1, "q": 2}])
    'p=1, q=2 is'
    """
    if len(labels) == 1:
        return f"{shown(labels[0])} is"
    (name, *more) = labels[0]
    if not more and is_size(name):
        sizes = [label[name] for label in labels]
        return f"{name}={min(sizes)} to {name}={max(sizes)} are"
    few = "; ".join(shown(label) for label in labels[:3])
    return f"{few}{f' and {len(labels) - 3} more' if len(labels) > 3 else ''} are"


def described(found: Selection, spell: Callable[[str], str] | None = None) -> str:
    """Summary of a search as text; ``spell`` is that of :func:`pltf.errors.spelled`."""
    fitted = [one for one in found.outcomes if one.rows]
    runs, count = sum(len(one.rows) for one in fitted), len(found.outcomes)
    seconds = sum(row.seconds for one in fitted for row in one.rows)
    lines = [
        f"Selection of {found.best_fit.model!r}",
        f"  data     {found.best_fit.data}",
        f"  best     {shown(found.best)}: ELBO {found.winner.bound:.6f}{_lead(found)}",
    ]
    if found.by_hidden_cells and found.winner.folds is not None:
        folds = [one.folds for one in found.outcomes if one.folds is not None]
        runs += sum(one.bounds.size for one in folds)
        seconds += sum(one.seconds for one in folds)
        name = found.score.replace("_", " ")
        own = f"{name} {found.winner.folds.mean:.4f} +- {found.winner.folds.se:.4f} on held-out cells"
        lines.append(f"  held out {own}; {_level(found)}")
    if found.note:
        lines.append(f"  chosen   by ELBO: {found.note}")
    lines.append(f"  search   {count} candidate{'s' * (count > 1)}, {runs} runs, {seconds:.1f} s of fitting")
    if len(found.winner.rows) > 1:
        row = _summed_up(found.winner)
        dropped = f", {row['dropped']} more were dropped" if row["dropped"] else ""
        same = round(row["agree"] * row["known"]) if row["known"] > 1 else 1
        lines.append(f"  restarts {same} of {row['known']} found the same components{dropped}")
    if count > 1:
        table = overview(found, MOST_TOLD)
        lines += ["", *(f"  {line}" for line in table.to_string(index=False).splitlines()), ""]
        lines += [f"  and {count - MOST_TOLD} more candidates, with lower scores", ""] if count > MOST_TOLD else []
    return "\n".join([*lines, *(f"  doubt    {spelled(text, spell)}" for text in marked_doubts(found))])


def labels_of(summary: pd.DataFrame) -> list[str]:
    """What identifies the candidates of a summary: its first columns."""
    return list(summary.columns[: list(summary.columns).index("best")])


def best_scores(found: Selection, name: str) -> dict[Any, tuple[float, float]]:
    """The best held-out score for each value of a size, of the model or of the prior, with its standard error."""
    best: dict[Any, tuple[float, float]] = {}
    for one in found.outcomes:
        if one.folds is not None and name in one.label:
            value = one.label[name]
            best[value] = max(best.get(value, (-math.inf, 0.0)), (one.folds.mean, one.folds.se))
    return {value: best[value] for value in (sorted(best) if is_size(name) else best)}


def overview(found: Selection, most: int | None = None) -> pd.DataFrame:
    """The candidates as text, or the best of them, in the order of the sizes, with the winner marked."""
    import pandas as pd

    summary = found.summary()
    best = summary.sort_values(["winner", "heldout" if found.by_hidden_cells else "best"], ascending=False)
    summary = summary.loc[best.index[:most].sort_values()]
    shown: dict[str, Any] = {"": np.where(summary["winner"], "*", "")}
    shown |= {name: summary[name].to_numpy() for name in labels_of(summary)}
    if found.by_hidden_cells:
        pairs = zip(summary["heldout"], summary["heldout_se"], strict=True)
        shown["held-out"] = [_unless_unknown("{:.4f} +- {:.4f}", *pair) for pair in pairs]
    shown["ELBO"] = [_unless_unknown("{:.2f}", one) for one in summary["best"]]
    shown["gap"] = [_unless_unknown("{:.1f} nats", one) for one in summary["gap"]]
    shown["agree"] = [_unless_unknown("{:.0%}", one) for one in summary["agree"]]
    shown |= {name: list(map(str, summary[name])) for name in ("restarts", "dropped")}
    shown["weight"] = list(map("{:.1%}".format, summary["weight"]))
    shown["time"] = list(map("{:.1f} s".format, summary["seconds"]))
    return pd.DataFrame(shown)


def _unless_unknown(form: str, *numbers: float) -> str:
    return "-" if any(map(math.isnan, numbers)) else form.format(*numbers)


def _lead(found: Selection) -> str:
    """How far ahead the winner is by its ELBO, in words."""
    if len(found.outcomes) == 1:
        return ", the only candidate"
    others = [one.bound for one in found.outcomes if one is not found.winner and one.rows]
    if not others or found.by_hidden_cells:
        return ""
    ahead = found.winner.bound - max(others)
    return f", {ahead:,.1f} nats above the next" if ahead > 0 else ", as high as others with larger factors"


def _summed_up(one: Outcome) -> dict[str, Any]:
    """Summary of the restarts of a candidate, without those stopped early."""
    whole = np.array([row.stopped != BEHIND for row in one.rows], dtype=bool)
    bounds, alike = np.array([row.bound for row in one.rows])[whole], one.alike[whole]
    known, dropped = len(bounds), int((~whole).sum())
    alone = known == 1 and dropped > 0  # nothing to compare it with
    return {
        "best": one.bound,
        "agree": float((alike >= ALIKE).mean()) if known and not alone else math.nan,
        "dropped": dropped,
        "restarts": len(one.rows),
        "mean": bounds.mean() if known else math.nan,
        "sd": bounds.std(ddof=1) if known > 1 else math.nan,
        "similarity": float(alike.mean()) if known else math.nan,
        "seconds": sum(row.seconds for row in one.rows) + (one.folds.seconds if one.folds else 0.0),
        "known": known,
    }


def _predicted(one: Outcome) -> dict[str, Any]:
    """Held-out score of a candidate."""
    mean, se = (math.nan, math.nan) if one.folds is None else (one.folds.mean, one.folds.se)
    return {"heldout": mean, "heldout_se": se}


def _told(row: Row, seed: int, winner: bool) -> dict[str, Any]:
    """A run as a row of the table."""
    told = vars(row) | {"seed": restart_seed(seed, row.restart), "sweeps": row.n_iter, "winner": winner}
    return {name: told[name] for name in OF_RUNS} | {"stopped": _in_a_word(row)}


def _in_a_word(row: Row) -> str:
    """Why a run ended: "converged", "dropped", "max_iter", or "fell" if the ELBO stopped increasing."""
    if row.converged or row.stopped == BEHIND:
        return "converged" if row.converged else "dropped"
    return "max_iter" if is_limit(row.stopped) else "fell"


def _frame(rows: Sequence[tuple[Label, Mapping[str, Any]]]) -> pd.DataFrame:
    """A table whose first columns are the label; sizes that a model does not have are missing values."""
    import pandas as pd

    names = dict.fromkeys(name for label, _ in rows for name in label)
    sizes = [name for name in names if is_size(name)]
    order = [*(name for name in names if name == "model"), *sizes, *(name for name in names if name == "prior")]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame([{**label, **told} for label, told in rows])
    some = [name for name in sizes if table[name].isna().any()]
    return table[[*order, *rows[0][1]]].astype(dict.fromkeys(some, "Int64"))
