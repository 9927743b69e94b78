"""Entry point of a search: check the arguments, run it, wrap the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pltf.cluster import Cluster, client_for
from pltf.data import Observation
from pltf.devices import AUTO as BY_PLAN
from pltf.devices import HOST, gpu
from pltf.errors import PltfError, SelectionWarning, call_checked, choice, flag, py, warn_caller, whole
from pltf.notation import Model
from pltf.selection.course import AUTO, CRITERIA, Course, Criterion
from pltf.selection.grid import GridPoint, Prior, grid_points, wider
from pltf.selection.heldout import LOG_LIKELIHOOD, SCORES
from pltf.selection.result import Selection, marked_doubts
from pltf.selection.search import Options
from pltf.threads import available_threads, single_threaded_blas

if TYPE_CHECKING:
    from distributed import Client

    from pltf.options import FitOptions
    from pltf.selection.checkpoint import SearchCheckpoint
    from pltf.store.checkpoint import Place


@call_checked
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
    criterion: str = "auto",
    folds: int = 5,
    score: str = "log_likelihood",
    widen: bool = False,
    device: str = "cpu",
    client: Client | None = None,
    **sizes: int | Iterable[int],
) -> Selection:
    """Fit a model at every size of a grid, with several restarts each; held-out cells or the ELBO choose the best.

    Parameters
    ----------
    model
        A model, or several models of the same tensors: their ELBOs are comparable.
    X, mask, max_iter, tol, init, fixed, dtype, engine, accelerate, likelihood, dispersion, device
        As for :meth:`pltf.Model.fit`; the method is variational Bayes. The dispersion is estimated for the winner.
    prior
        As for :meth:`pltf.Model.fit`, or a list of priors to try.
    restarts, seed
        Random restarts of each candidate. A run equals the single fit with its sizes, prior and seed (see ``table``),
        up to the point where it was stopped.
    race
        True: stop restarts early that are clearly behind another restart of the same candidate. False: run all to the
        end. Default: race where that was measured to be safe, with five or more restarts of CP without learned shapes.
    workers
        Number of parallel fits (default: one per core; on a GPU one). Results are identical for any number of workers.
        The data are shared.
    progress
        Show progress with the time left. Ctrl-C ends the search and returns the finished candidates.
    checkpoint, every, resume
        A file in which the search is saved, run by run, as for :meth:`pltf.Model.fit`. After an interruption, rerun the
        call with ``resume=True``: the result is identical.
    criterion
        ``"auto"``: as ``"both"``, but the ELBO chooses if there are too few data to hold out 30 non-zeros in each fold,
        with fewer than 5 restarts, with a single candidate, or when resuming a search in which it chose; ``note`` says
        why.

        ``"bound"``: the candidate with the highest evidence lower bound (ELBO) wins. Among ELBOs that differ by less
        than ``tol``, the candidate with the smallest factors wins.

        ``"heldout"``: every candidate is fitted ``folds`` times, each time with another tenth of the observed cells
        held out, and scored by its predictions of these. The smallest candidate within one standard error of the best
        score wins, and is fitted to all data. The overdispersion is estimated from the held-out cells as well, unless
        ``dispersion`` gives it.

        ``"both"``: held-out cells choose, and all candidates are also fitted to all data, so that one table has ELBOs
        and scores; a warning says where they disagree.
    folds, score
        Number of folds, and the score on held-out cells: ``"log_likelihood"``, the mean posterior predictive
        log-likelihood of a cell; ``"auc"`` or ``"average_precision"``, how well non-zeros are ranked above zeros.
    widen
        Extend the grid while the winner has its largest or smallest size.
    client
        A ``distributed.Client``: the workers of its Dask cluster run the fits, one per thread or as many at a time as
        ``workers`` says. The result is identical. Every worker gets the data once; cells in a store
        (:func:`pltf.open`) stay there.
    sizes
        Sizes to try for latent indices, such as ``r=range(2, 11)``; several indices make a grid. Other indices keep the
        size in the model.

    >>> import pltf, pltf.datasets
    >>> X = pltf.datasets.draw(pltf.cp(rank=2), (15, 15, 15), prior=pltf.Gamma(0.5, 2.0), seed=0).counts["X"]
    >>> found = pltf.select(pltf.cp(rank=1), X, r=range(1, 5), restarts=3)
    >>> found.best
    {'r': 2}
    >>> found.best_fit.factors["A"].mean.shape
    (15, 2)
    >>> list(found.table.columns)
    ['r', 'restart', 'seed', 'bound', 'sweeps', 'converged', 'stopped', 'seconds', 'winner']
    """
    from pltf.engines.on_cluster import crew_for
    from pltf.options import FitOptions  # imported late: it imports the compiler
    from pltf.planning import observations, tensors
    from pltf.store.checkpoint import Place

    tried = grid_points(model, prior, sizes)
    asked = _asked(criterion, folds, score, widen)
    if not isinstance(init, str):
        raise PltfError(f"{py:init} must be 'prior' or 'random' in a search, got {type(init).__name__}")
    fitting = FitOptions.of(locals(), prior=None, client=client_for(client, X))
    cluster = None if fitting.client is None else Cluster(fitting.client)
    if cluster is not None and fitting.device not in (BY_PLAN, HOST):
        text = f"{py:device={fitting.device!r}} is unsupported with {py:client} in a search"
        raise PltfError(f"{text}: workers run its fits on their CPUs")
    where = fitting.device if cluster is None else HOST
    place = Place(fitting.checkpoint, fitting.every, fitting.resume)
    options = Options(
        fitting=replace(fitting, seed=fitting.entropy(place.identity), client=None, device=where),
        race=None if race is None else flag("race", race),
        workers=_workers(workers, lambda: _on_host(tried, X, mask, fitting), cluster),
        cluster=cluster,
    )
    data, masks = tensors(tried[0].model, X, mask)
    seen = observations(data, masks)
    if cluster is not None:
        crew_for(cluster, seen, sums=False)
    course = Course(data, masks, options, _settled(asked, seen, len(tried), options, place))
    course.add(tried)
    course.candidates[0].ready.likelihoods(seen)  # raises errors about the data before any work
    keeper = _keeper(place, seen, course)
    if keeper is not None and keeper.finished is not None:
        return keeper.finished
    with single_threaded_blas:
        course.run(seen, keeper, lambda ends: grid_points(model, prior, wider(course.points, ends)))
        selection = course.selection(seen)
    if keeper is not None and not selection.interrupted:
        keeper.end(selection)
    course.warn_of_winner()
    for text in marked_doubts(selection):
        warn_caller(text, SelectionWarning)
    return selection


def _workers(asked: int | None, on_host: Callable[[], bool], cluster: Cluster | None) -> int:
    """Number of parallel fits; on a GPU one."""
    if asked is None and cluster is not None:
        return max(cluster.threads, 1)
    if asked is None:
        return available_threads() if on_host() else 1
    return whole("workers", asked, 1)


def _on_host(tried: Iterable[GridPoint], X: Any, mask: Any, fitting: FitOptions) -> bool:
    """Whether all fits run on the CPU; with ``device="auto"``, according to their plans."""
    from pltf.planning import plan

    if fitting.device != BY_PLAN or gpu() is None:
        return fitting.device in (BY_PLAN, HOST)
    plans = (plan(one.model, X, mask=mask, options=replace(fitting, prior=one.prior)) for one in tried)
    return all(one.device is None for one in plans)


def _asked(criterion: Any, folds: Any, score: Any, widen: Any) -> Criterion:
    """The criterion and its options, checked."""
    asked = Criterion(
        choice("criterion", criterion, CRITERIA),
        whole("folds", folds, 2),
        choice("score", score, SCORES),
        flag("widen", widen),
    )
    if not asked.heldout and asked.score != LOG_LIKELIHOOD:
        either = f"{py:criterion='heldout'} or {py:criterion='both'}"
        raise PltfError(f"{py:score={score!r}} requires {either}, got {py:criterion='bound'}")
    return asked


def _settled(
    asked: Criterion, seen: Mapping[str, Observation], candidates: int, options: Options, place: Place
) -> Criterion:
    """The criterion that "auto" stands for: that of the resumed search, or one that the data allow."""
    settled, earlier = asked.settled(seen, candidates, options), place.identity
    if asked.criterion != AUTO or earlier is None:
        return settled
    before = earlier.get("criterion", "bound")  # version 0.1 had no other
    return settled if settled.criterion == before else settled._replace(criterion=before, note="")


def _keeper(place: Place, seen: Mapping[str, Observation], course: Course) -> SearchCheckpoint | None:
    """The checkpoint of the search, if requested, with everything that identifies the search."""
    from pltf.selection.checkpoint import SearchCheckpoint
    from pltf.store.checkpoint import digest_of

    if place.path is None:
        return None
    options, asked = course.options, course.asked
    identity = {
        "data": {name: one.digest() for name, one in seen.items()},
        "grid": [
            (repr(one.model), digest_of(candidate.ready.priors))
            for one, candidate in zip(course.points, course.candidates, strict=True)
        ],
        "race": options.race,
        **{name: value for name, value in options.fitting.identity().items() if name not in ("method", "prior")},
        **({"criterion": asked.criterion, "folds": asked.folds, "score": asked.score} if asked.heldout else {}),
        **({"widen": True} if asked.widen else {}),
    }
    return SearchCheckpoint(place, identity)
