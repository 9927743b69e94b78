"""The door of a search: check every argument, run it, wrap the result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pltf.cluster import Cluster, client_for
from pltf.data import Observation
from pltf.devices import HOST
from pltf.errors import PltfError, SelectionWarning, choice, flag, py, whole
from pltf.notation import Model
from pltf.selection.course import AUTO, CRITERIA, Asked, Course
from pltf.selection.grid import Prior, grid_points, wider
from pltf.selection.heldout import LOG_LIKELIHOOD, SCORES
from pltf.selection.result import Selection, marked_doubts
from pltf.selection.search import Options
from pltf.threads import available_threads, single_threaded_blas

if TYPE_CHECKING:
    from distributed import Client

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
    criterion: str = "auto",
    folds: int = 5,
    score: str = "log_likelihood",
    widen: bool = False,
    device: str = "cpu",
    client: Client | None = None,
    **sizes: int | Iterable[int],
) -> Selection:
    """Fit a model at every size of a grid, from several starts each; the bound or hidden cells choose.

    Parameters
    ----------
    model
        A model, or several: their bounds can be compared as long as they describe the same tensors.
    X, mask, max_iter, tol, init, fixed, dtype, engine, accelerate, likelihood, dispersion, device
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
        Fits at a time (default: one a core; on a GPU one, which has it to itself). Their number does not change a bit
        of any result. The data are shared.
    progress
        Show a bar with the time left on a terminal. Ctrl-C ends the search and gives what is finished.
    checkpoint, every, resume
        A file in which the search is kept, run by run, and when it has ended, as for :meth:`pltf.Model.fit`: broken off
        at any moment, the same call with ``resume=True`` goes on from there and ends with the same bits.
    criterion
        ``"auto"``: as ``"both"``. But the bound chooses alone, and ``note`` says why, where data are too few to hide 30
        non-zeros in each fold, and with fewer than 5 restarts, of which a fold would have only one. It does so as well
        where there is only one candidate, and in a search that goes on from a file in which it did.

        ``"bound"``: the candidate with the highest bound on the evidence (ELBO) wins. Bounds that differ by less than
        ``tol`` are the same, and of those the candidate with the smallest factors wins.

        ``"heldout"``: every candidate is fitted to ``folds`` parts of the data, each without another tenth of the
        observed cells, and scored by how well it predicts these. The smallest candidate within one standard error of
        the best score wins, and is fitted to all data. How much counts vary beyond Poisson is found from the hidden
        cells as well, unless ``dispersion`` says it.

        ``"both"``: hidden cells choose, and all candidates are fitted to all data as well, so that bounds and scores
        are in one table; there is a warning where they disagree.
    folds, score
        Of hidden cells: the number of folds, and what is scored: ``"log_likelihood"``, the mean
        posterior-predictive log-likelihood of a hidden cell; ``"auc"`` or ``"average_precision"``, how well non-zeros
        are ranked above zeros.
    widen
        Add sizes to the grid, and go on, while the winner has the largest or smallest size that was tried.
    client
        A ``distributed.Client``: the workers of its Dask cluster run the fits, one on each of their threads unless
        ``workers`` says how many at a time. The result is the same. Every worker gets the data once; cells in a store
        (:func:`pltf.open`) stay there.
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
    from pltf.engines.on_cluster import crew_for
    from pltf.options import FitOptions  # brings the compiler, which `import pltf` should not wait for
    from pltf.planning import observations, tensors
    from pltf.store.checkpoint import Place

    tried = grid_points(model, prior, sizes)
    asked = _asked(criterion, folds, score, widen)
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
        device=device,
        client=client_for(client, X),
    )
    cluster = None if fitting.client is None else Cluster(fitting.client)
    place = Place(fitting.checkpoint, fitting.every, fitting.resume)
    options = Options(
        fitting=replace(fitting, seed=fitting.entropy(place.identity), client=None),
        race=None if race is None else flag("race", race),
        workers=_workers(workers, device, cluster),
        cluster=cluster,
    )
    data, masks = tensors(tried[0].model, X, mask)
    seen = observations(data, masks)
    if cluster is not None:
        crew_for(cluster, seen, sums=False)
    course = Course(data, masks, options, _settled(asked, seen, len(tried), options, place))
    course.add(tried)
    course.candidates[0].ready.likelihoods(seen)  # refuses data that do not go with them, before any work
    keeper = _keeper(place, seen, course)
    if keeper is not None and keeper.finished is not None:
        return keeper.finished
    with single_threaded_blas:
        course.run(seen, keeper, lambda ends: grid_points(model, prior, wider(course.points, ends)))
        selection = course.selection(seen)
    if keeper is not None and not selection.interrupted:
        keeper.end(selection)
    course.warn_of_winner(stacklevel=4)
    for text in marked_doubts(selection):
        warnings.warn(text, SelectionWarning, stacklevel=2)
    return selection


def _workers(asked: int | None, device: str, cluster: Cluster | None) -> int:
    """Fits at a time."""
    if asked is None and cluster is not None:
        return max(cluster.threads, 1)
    if asked is None:
        return available_threads() if device == HOST else 1
    return whole("workers", asked, 1)


def _asked(criterion: Any, folds: Any, score: Any, widen: Any) -> Asked:
    """What is to choose, checked."""
    asked = Asked(
        choice("criterion", criterion, CRITERIA),
        whole("folds", folds, 2),
        choice("score", score, SCORES),
        flag("widen", widen),
    )
    if not asked.heldout and asked.score != LOG_LIKELIHOOD:
        either = f"{py:criterion='heldout'} or {py:criterion='both'}"
        raise PltfError(f"{py:score={score!r}} goes with {either}, got {py:criterion='bound'}")
    return asked


def _settled(asked: Asked, seen: Mapping[str, Observation], candidates: int, options: Options, place: Place) -> Asked:
    """What is to choose, if that was left open: what chose in a search that is gone on with, or what data allow."""
    settled, earlier = asked.settled(seen, candidates, options), place.identity
    if asked.criterion != AUTO or earlier is None:
        return settled
    before = earlier.get("criterion", "bound")  # 0.1 had no other
    return settled if settled.criterion == before else settled._replace(criterion=before, note="")


def _keeper(place: Place, seen: Mapping[str, Observation], course: Course) -> SearchCheckpoint | None:
    """What keeps the search in a file, if it is to be kept; with all that makes it this search and no other."""
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
