"""The door of a search: check every argument, run it, wrap the result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pltf.data import Observation
from pltf.errors import PltfError, SelectionWarning, flag, py, whole
from pltf.inference.progress import Progress
from pltf.inference.race import BEHIND
from pltf.inference.run import Row
from pltf.notation import Model
from pltf.selection.grid import GridPoint, Prior, edges, grid_points
from pltf.selection.grid import shown as in_words
from pltf.selection.result import Selection, marked_doubts
from pltf.selection.search import Candidate, Findings, Options, search
from pltf.threads import available_threads, single_threaded_blas

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.selection.checkpoint import SearchCheckpoint
    from pltf.store.checkpoint import Place


def select(
    model: Model | Sequence[Model],
    X: Any,
    *,
    mask: Any = None,
    prior: Prior | Sequence[Prior] = None,
    restarts: int = 10,
    seed: int | None = 0,
    max_iter: int = 2000,
    tol: float = 1e-6,
    init: str = "prior",
    fixed: Mapping[str, Any] | None = None,
    dtype: Any = "float64",
    engine: str = "auto",
    accelerate: bool = True,
    race: bool | None = None,
    workers: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: bool = False,
    likelihood: str | Mapping[str, str] = "poisson",
    dispersion: float | str | None = "auto",
    **sizes: int | Iterable[int],
) -> Selection:
    """Fit a model at every size of a grid, from several starts each; the highest bound wins.

    Bounds that differ by less than ``tol`` are the same, and of those the candidate with the smallest factors wins.

    Parameters
    ----------
    model
        A model, or several: their bounds can be compared as long as they describe the same tensors.
    X, mask, max_iter, tol, init, fixed, dtype, engine, accelerate, likelihood, dispersion
        As for :meth:`pltf.Model.fit`; the method is variational Bayes. The dispersion is that of the winner.
    prior
        As for :meth:`pltf.Model.fit`, or a list of such priors: each of them is tried.
    restarts, seed
        Starts of each candidate. A run equals the single fit with its sizes, its prior and its seed (see ``table``), up
        to where it was dropped if it was.
    race
        Drop restarts that are clearly behind another one of the same candidate, True, or run all of them to the end,
        False. If it is not said, candidates race where that was measured to be safe: five starts or more of CP without
        learned shapes.
    workers
        Fits at a time (default: one a core). Their number does not change a bit of any result. The data are shared.
    progress
        Show a bar with the time left on a terminal. Ctrl-C ends the search and gives what is finished.
    checkpoint, every, resume
        A file in which the search is kept, run by run, and when it has ended, as for :meth:`pltf.Model.fit`: broken off
        at any moment, the same call with ``resume=True`` goes on from there and ends with the same bits.
    sizes
        Sizes to try for latent indices, such as ``r=range(2, 11)``; several of them make a grid. An index that is not
        named keeps the size that its model has.

    >>> import pltf, pltf.datasets
    >>> X = pltf.datasets.draw(pltf.cp(rank=2), (15, 15, 15), prior=pltf.Gamma(0.5, 2.0), seed=0).counts["X"]
    >>> found = pltf.select(pltf.cp(rank=1), X, r=range(1, 5), restarts=3)
    >>> found.best
    {'r': 2}
    >>> found.best_fit.factors["A"].mean.shape
    (15, 2)
    >>> list(found.table.columns)
    ['r', 'restart', 'seed', 'bound', 'sweeps', 'converged', 'stopped', 'seconds']
    """
    from pltf.options import FitOptions  # brings the compiler, which `import pltf` should not wait for
    from pltf.planning import observations, tensors
    from pltf.store.checkpoint import Place

    tried = grid_points(model, prior, sizes)
    if not isinstance(init, str):
        raise PltfError(f"{py:init} must be 'prior' or 'random' in a search, got {type(init).__name__}")
    fitting = FitOptions(
        restarts=restarts,
        seed=seed,
        max_iter=max_iter,
        tol=tol,
        init=init,
        fixed=fixed,
        dtype=dtype,
        engine=engine,
        accelerate=accelerate,
        progress=progress,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
        likelihood=likelihood,
        dispersion=dispersion,
    )
    place = Place(fitting.checkpoint, fitting.every, fitting.resume)
    options = Options(
        fitting=replace(fitting, seed=fitting.entropy(place.identity)),
        race=None if race is None else flag("race", race),
        workers=available_threads() if workers is None else whole("workers", workers, 1),
    )
    data, masks = tensors(tried[0].model, X, mask)
    candidates = _candidates(tried, data, masks, options)
    seen = observations(data, masks)
    candidates[0].ready.likelihoods(seen)  # refuses data that do not go with them, before any work
    keeper = _keeper(place, seen, tried, candidates, options)
    if keeper is not None and keeper.finished is not None:
        return keeper.finished
    work = sum(candidate.work for candidate in candidates)
    with single_threaded_blas, Progress(options.fitting.progress, work, time_left=True) as bar:
        found = search(candidates, seen, options, bar, keeper)
        if found.winner is None:
            raise next(iter(found.failures.values()))
        number, _, run = found.winner
        winner = candidates[number].ready
        problem = winner.problem(seen)
        best_fit = winner.result(problem, run, found.outcomes[number].rows, options.seed, seen)
        if not found.interrupted:
            best_fit = winner.with_dispersion(best_fit, seen)
    selection = _selection(found, best_fit, tried, candidates, options)
    if keeper is not None and not found.interrupted:
        keeper.end(selection)
    winner.warn_of(run, options.stop, problem.total, stacklevel=3)
    for text in marked_doubts(selection):
        warnings.warn(text, SelectionWarning, stacklevel=2)
    return selection


def _candidates(
    tried: Sequence[GridPoint],
    data: Mapping[str, Any],
    masks: Mapping[str, Any],
    options: Options,
) -> list[Candidate]:
    """The candidates, ready to be fitted: whatever is wrong with one of them comes out before any work."""
    from pltf.fitting import prepare

    threads = max(1, available_threads() // min(options.workers, len(tried) * options.restarts))
    candidates: list[Candidate] = []
    for one in tried:
        try:
            ready = prepare(one.model, data, masks, replace(options.fitting, prior=one.prior, threads=threads))
        except PltfError as error:
            if not candidates:
                raise
            raise PltfError(f"at {in_words(one.label)}: {error.marked}") from None  # the first candidate was all right
        candidates.append(Candidate(one.label, ready, options))
        candidates[-1].check_memory()
    return candidates


def _keeper(
    place: Place,
    seen: Mapping[str, Observation],
    tried: Sequence[GridPoint],
    candidates: Sequence[Candidate],
    options: Options,
) -> SearchCheckpoint | None:
    """What keeps the search in a file, if it is to be kept; with all that makes it this search and no other."""
    from pltf.selection.checkpoint import SearchCheckpoint
    from pltf.store.checkpoint import digest_of

    if place.path is None:
        return None
    identity = {
        "data": {name: one.digest() for name, one in seen.items()},
        "grid": [
            (repr(one.model), digest_of(candidate.ready.priors))
            for one, candidate in zip(tried, candidates, strict=True)
        ],
        "race": options.race,
        **{name: value for name, value in options.fitting.identity().items() if name not in ("method", "prior")},
    }
    return SearchCheckpoint(place, identity)


def _selection(
    found: Findings, best_fit: Fit, tried: Sequence[GridPoint], candidates: Sequence[Candidate], options: Options
) -> Selection:
    """What people get to see of a search."""
    assert found.winner is not None
    number = found.winner.number
    return Selection(
        outcomes=tuple(found.outcomes[other] for other in sorted(found.outcomes)),
        winner=found.outcomes[number],
        best_fit=best_fit,
        best=dict(candidates[number].label),
        edges=edges(best_fit.model, [tried[other].model for other in found.outcomes]),
        failures=tuple({**candidates[n].label, "error": _said(found.failures[n])} for n in sorted(found.failures)),
        interrupted=found.interrupted,
        n_candidates=len(candidates),
        unsettled=_unsettled(row for one in found.outcomes.values() for row in one.rows) if options.stop.tol else 0,
        seed=options.seed,
    )


def _unsettled(rows: Iterable[Row]) -> int:
    return sum(not row.converged and row.stopped != BEHIND for row in rows)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, PltfError) else f"{type(error).__name__} {error}".strip()
