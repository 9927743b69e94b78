"""The door: check every argument, bind model and data to an engine, run, wrap the result."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pltf.data import CooObservation, DenseObservation, Observation, observe
from pltf.data.labels import Labels
from pltf.data.numeric import numeric
from pltf.data.observe import (
    check_mask,
    frame_as_array,
    has_names,
    in_order,
    is_frame,
    is_listed,
    is_xarray,
    shape_and_dtype,
)
from pltf.data.tables import column_names, is_table
from pltf.engines import registry
from pltf.engines.plan import EquationPlan, ListedPlan, Plan, human, physical_memory, plan_equation
from pltf.errors import ConvergenceWarning, ObservationError, PltfError, flag, whole
from pltf.fit import Fit
from pltf.gamma import PARTS, Array, Gamma, Point, Posterior
from pltf.inference import start
from pltf.inference.algebra import Groups
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.balance import trades
from pltf.inference.em import EM, MAP
from pltf.inference.factors import Factors, frozen
from pltf.inference.priors import groups
from pltf.inference.run import ASKED, INTERRUPTED, Callback, Row, Run, Stop, best_of
from pltf.inference.state import Method, Problem, State, fetched, placed
from pltf.inference.vb import VB
from pltf.interrupts import first_interrupt_waits
from pltf.notation import Model
from pltf.prediction.cells import check_labels, labelled_array, observed_like
from pltf.store.checkpoint import EVERY, FitCheckpoint, Identity, Place, digest_of
from pltf.threads import available_threads, single_threaded_blas

METHODS: Mapping[str, Method] = {method.name: method for method in (VB, EM, MAP)}
INITS = ("prior", "random")
DTYPES = ("float64", "float32")


def fit(
    model: Model,
    X: Any,
    *,
    mask: Any,
    method: str,
    prior: Gamma | Mapping[str, Gamma] | None,
    max_iter: int,
    tol: float,
    restarts: int,
    seed: int | None,
    init: str | Mapping[str, Any] | Fit,
    fixed: Mapping[str, Any] | None,
    dtype: Any,
    engine: str,
    threads: int | None,
    accelerate: bool,
    progress: bool,
    callback: Callback | None,
    checkpoint: Any = None,
    every: float = EVERY,
    resume: bool = False,
    _callers: int = 2,
) -> Fit:
    """Fit a model; :meth:`pltf.Model.fit` says what the arguments mean. Warnings point so many callers up."""
    stop = Stop(whole("max_iter", max_iter, 1), tolerance(tol), _callback(callback))
    restarts, progress = whole("restarts", restarts, 1), flag("progress", progress)
    place = Place(checkpoint, every, resume)
    entropy = place.identity["seed"] if seed is None and place.identity else seed_of(seed)
    data, masks = tensors(model, X, mask)
    ready = prepare(
        model,
        data,
        masks,
        method=method,
        prior=prior,
        init=init,
        fixed=fixed,
        dtype=dtype,
        engine=engine,
        threads=threads,
        accelerate=accelerate,
    )
    if restarts > 1 and not isinstance(ready.init, str):
        raise PltfError(f"restarts must be 1 when init gives the starting point, got {restarts}")
    seen = observations(data, masks)
    keeper = None
    if place.path is not None:
        settings = {"seed": entropy, "restarts": restarts, "tol": tol, "max_iter": max_iter}
        keeper = FitCheckpoint(place, ready.identity(seen) | settings, model.factors, ready.planned.factor_shapes)
        if keeper.finished is not None:
            return keeper.finished
    problem = ready.problem(seen)
    with single_threaded_blas, first_interrupt_waits() as interrupted:
        stop = replace(stop, interrupted=interrupted)
        start, earlier = ready.starting(problem, entropy)
        run, rows = best_of(
            problem, ready.method, start, restarts, stop, earlier=earlier, shown=progress, keeper=keeper
        )
        result = ready.result(problem, run, rows, entropy, seen, stop)
        broken_off = len(rows) < restarts or rows[-1].stopped == INTERRUPTED
        if keeper is not None and not broken_off:
            keeper.end(result)
    if broken_off:
        where = f"restart {len(rows)} of {restarts}, after {rows[-1].n_iter} sweeps"
        advice = "init=fit, or give checkpoint= next time" if keeper is None else "resume=True"
        text = f"the fit was interrupted in {where}: this is the best so far; go on with {advice}"
        warnings.warn(text, ConvergenceWarning, stacklevel=_callers + 1)
    else:
        ready.warn_of(run, stop, problem.total, stacklevel=_callers + 2)
    return result


def prepare(
    model: Model,
    data: Mapping[str, Any],
    masks: Mapping[str, Any],
    *,
    method: str = "vb",
    prior: Gamma | Mapping[str, Gamma] | None = None,
    init: str | Mapping[str, Any] | Fit = "prior",
    fixed: Mapping[str, Any] | None = None,
    dtype: Any = "float64",
    engine: str = "auto",
    threads: int | None = None,
    accelerate: bool = True,
) -> Prepared:
    """Judge everything that can be judged without reading the data."""
    how = METHODS[_choice("method", method, tuple(METHODS))]
    accelerate = flag("accelerate", accelerate)
    labels = labels_by_index({name: one for name, one in data.items() if isinstance(one, Observation)})
    planned = plan(model, data, mask=masks, dtype=dtype, engine=engine, threads=threads)
    held = _fixed(fixed, model, planned, labels)
    priors = _priors(how, prior, planned.factor_shapes, held)
    learns = _learns(how, priors, model, planned.factor_shapes)
    begin = _init(init, model, planned, held, labels)
    _check_memory(planned)
    given = _as_code({"prior": prior, "init": init, "fixed": fixed, "engine": engine, "accelerate": accelerate})
    return Prepared(model, how, planned, priors, learns, held, begin, accelerate, given)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A fit that may begin: every argument has been checked, no data have been read."""

    model: Model
    method: Method
    planned: Plan
    priors: Mapping[str, Gamma]
    learns: Mapping[str, Groups]
    held: Factors
    init: str | Factors | Fit
    accelerate: bool
    given: Mapping[str, str]  # what the caller said, for those who want to do it again

    def identity(self, seen: Mapping[str, Observation]) -> Identity:
        """What has to be the same for a fit to be gone on with."""
        init = self.init.state.E if isinstance(self.init, Fit) else self.init
        return {
            "model": repr(self.model),
            "data": {name: one.digest() for name, one in seen.items()},
            "method": self.method.name,
            "prior": digest_of(self.priors),
            "init": digest_of(init),
            "fixed": digest_of(self.held),
            "dtype": self.planned.dtype.name,
            "engine": self.planned.engine,
            "accelerate": self.accelerate,
        }

    def problem(self, seen: Mapping[str, Observation]) -> Problem:
        """The model bound to its data."""
        planned = self.planned.knowing({name: one.has_missing for name, one in seen.items()})
        algebra = NumbaAlgebra(planned.threads)
        return Problem(
            engine=registry.build(planned, seen),
            algebra=algebra,
            shapes=planned.factor_shapes,
            priors=self.priors,
            fixed={a: algebra.put(z) for a, z in self.held.items()},
            total=math.fsum(one.total for one in seen.values()),
            saturated=math.fsum(one.saturated for one in seen.values()),
            eps=float(np.finfo(planned.dtype).eps),
            trades=trades(self.model, self.held) if self.accelerate else None,
            learns=self.learns,
        )

    def starting(self, problem: Problem, seed: int) -> tuple[Callable[[int], State], tuple[float, ...]]:
        """The state that restart k begins with, and the trace that it goes on with."""
        init, method = self.init, self.method
        if isinstance(init, Fit):
            return _going_on(problem, method, init)
        if isinstance(init, Mapping):
            Z = {**problem.fixed, **{a: problem.algebra.put(z) for a, z in init.items()}}
            return lambda _: method.begin(problem, Z, Z), ()
        smallest = float(np.finfo(self.planned.dtype).tiny)

        def draw(restart: int) -> State:
            rng = start.generator(start.restart_seed(seed, restart))
            drawn = start.from_prior(problem, rng, smallest) if init == "prior" else start.at_random(problem, rng)
            return method.begin(problem, *drawn)

        return draw, ()

    def result(
        self, problem: Problem, run: Run, rows: tuple[Row, ...], seed: int, seen: Mapping[str, Observation], stop: Stop
    ) -> Fit:
        """The fit that a run has made."""
        state = placed(run.state, problem.algebra)
        state = fetched(replace(state, counts=problem.engine.counts(state.L)), problem.algebra)
        return Fit(
            model=self.model,
            method=self.method.name,
            objective=self.method.objective,
            sizes=self.planned.sizes,
            state=state,
            priors=state.priors,
            fixed=frozenset(self.held),
            trace=frozen(run.trace),
            converged=run.converged,
            stopped=run.stopped,
            rows=rows,
            best_restart=run.restart,
            seed=seed,
            dtype=self.planned.dtype.name,
            engine=self.planned.engine,
            n_observed={name: one.n_observed for name, one in seen.items()},
            patterns={name: one.pattern() for name, one in seen.items()},
            labels=labels_by_index(seen),
            options={**self.given, **_as_code({"max_iter": stop.max_iter, "tol": stop.tol})},
        )

    def warn_of(self, run: Run, stop: Stop, total: float, stacklevel: int) -> None:
        """Tell of a run that has not settled, or whose bound has lost its digits."""
        float32 = self.planned.dtype == np.float32
        if not run.converged and run.stopped != ASKED and (stop.tol > 0 or run.n_swept < stop.max_iter):
            advice = "raise max_iter or tol, or go on with init=fit"
            if run.n_swept < stop.max_iter and float32:
                advice = "float32 may have no more digits for these counts: try dtype='float64'"
            text = f"the fit has not converged: {run.stopped}; {advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)
        lost = 1e-8 * total  # benchmarks/NOTES.md: float32 and the bound
        if float32 and lost > 0.01 * abs(run.objective):
            text = f"float32 gives the {self.method.objective} only to about {lost:.2g} with counts as large as these"
            warnings.warn(f"{text}: use dtype='float64'", ConvergenceWarning, stacklevel=stacklevel)


def _as_code(given: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of a fit that are not the defaults, as Python; what is too large to write goes by its name."""
    usual = inspect.signature(Model.fit).parameters
    code = {}
    for name, value in given.items():
        if isinstance(value, str | bool | int | float):
            text = repr(value)
        elif isinstance(value, Gamma):
            text = f"pltf.{value!r}"
        elif isinstance(value, Mapping) and all(isinstance(one, Gamma) for one in value.values()):
            text = "{" + ", ".join(f"{factor!r}: pltf.{one!r}" for factor, one in value.items()) + "}"
        else:
            text = name
        if value is not None and text != repr(usual[name].default):
            code[name] = name if "<" in text else text  # arrays are written so
    return code


def fold_in(
    known: Fit,
    X_new: Any,
    index: str,
    *,
    mask: Any,
    prior: Gamma | Mapping[str, Gamma] | None,
    max_iter: int,
    tol: float,
    restarts: int,
    seed: int | None,
    threads: int | None,
    progress: bool,
) -> Fit:
    """Learn new rows with all else kept; :meth:`pltf.Fit.fold_in` says what the arguments mean."""
    model = _around(known, index)
    given = _by_tensor(model, X_new, "X_new", partial=True)
    if not given:
        raise PltfError(f"X_new must have an array for one of {', '.join(model.observed)} at least, got none")
    if mask is not None and any(is_listed(one) or has_names(one) for one in given.values()):
        raise ObservationError("mask goes with a plain array, and X_new is none: pass pltf.observe(...) of it")
    rows, masks = (_as_rows(known, model, one, index, name) for one, name in ((given, "X_new"), (mask, "mask")))
    unmatched = [name for name in masks if name not in rows]
    if unmatched:
        raise PltfError(f"mask names {unmatched[0]}, of which X_new has no array")
    data = _unseen(known, model, rows, index) | rows
    kept = {a: known.factors[a].mean for a, indices in model.factors.items() if index not in indices}
    free = [a for a in model.factors if a not in kept]
    new = fit(
        model,
        data,
        mask=masks,
        method=known.method,
        prior=_new_priors(known, prior, free, index),
        max_iter=max_iter,
        tol=tol,
        restarts=restarts,
        seed=seed,
        init="prior",
        fixed=kept,
        dtype=known.dtype,
        engine="auto",
        threads=threads,
        accelerate=True,
        progress=progress,
        callback=None,
        _callers=3,
    )
    # The new rows were learned with the others at their means; in predictions these are as uncertain as they were.
    C, D = known.state.C, known.state.D
    random = [a for a in kept if a in C]
    state = replace(
        new.state,
        C={**{a: C[a] for a in random}, **new.state.C},
        D={**{a: D[a] for a in random}, **new.state.D},
    )
    labels = {i: known.labels[i] for i in known.labels if i != index and i in new.sizes}
    return replace(new, state=state, labels={**labels, **new.labels})


def _around(known: Fit, index: Any) -> Model:
    """The equations of the tensors that have an index, as a model of their own."""
    observed = dict.fromkeys(i for indices in known.model.observed.values() for i in indices)
    if not isinstance(index, str) or index not in observed:
        raise PltfError(f"index must name an observed index of the model ({', '.join(observed)}), got {index!r}")
    equations = [e for e in known.model.equations if index in e.output.indices]
    seen = {i for e in equations for i in e.output.indices}
    latent = dict.fromkeys(i for e in equations for i in e.summed if i not in seen)
    return Model("\n".join(map(str, equations)), **{i: known.sizes[i] for i in latent})


def _unseen(known: Fit, model: Model, rows: Mapping[str, Any], index: str) -> dict[str, Observation]:
    """Tensors of which nothing was given, as lists without a cell, with as many rows as the first that was."""
    first, given = next(iter(rows.items()))
    shape = dict(zip(model.observed[first], shape_and_dtype(given, first)[0], strict=False))
    sizes = {**known.sizes, index: max(1, shape.get(index, 1))}  # what has no such axis or no row, the fit refuses
    unseen = {}
    for name, indices in model.observed.items():
        if name not in rows:
            nothing = np.empty((0, len(indices)), dtype=np.intp), np.empty(0)
            unseen[name] = observe(nothing, shape=[sizes[i] for i in indices], unlisted="missing", name=name)
    return unseen


def _as_rows(known: Fit, model: Model, given: Any, index: str, argument: str) -> dict[str, Any]:
    """Data or masks of new rows, as wide as those of the fit; a single row may come without its axis."""
    rows: dict[str, Any] = {}
    if given is None:
        return rows
    for name, one in _by_tensor(model, given, argument, partial=True).items():
        indices = model.observed[name]
        place = indices.index(index)
        if isinstance(one, Observation):
            whole = len(one.shape) == len(indices) or one.dims is None
            one = in_order(one, indices if whole else tuple(i for i in indices if i != index), name)
            check_labels(one, {i: known.labels[i] for i in known.labels if i != index}, name)
        elif has_names(one):
            one = _named_rows(known, one, indices, index, name)
        elif is_listed(one):
            one = _listed_rows(known, one, indices, index, name)
        shape = shape_and_dtype(one, name)[0]
        if len(shape) == len(indices) - 1:
            one, shape = _with_axis(one, place), (*shape[:place], 1, *shape[place:])
        same = len(shape) == len(indices)  # another number of axes is refused by the fit
        for i, size in zip(indices, shape, strict=True) if same else ():
            if i != index and size != known.sizes[i]:
                wide = f"index '{i}' is {size} in {name}, and {known.sizes[i]} in the fit"
                raise PltfError(f"{argument} must be as wide as the data of the fit, but {wide}")
        rows[name] = one
    return rows


def _named_rows(known: Fit, given: Any, indices: tuple[str, ...], index: str, name: str) -> Observation:
    """New rows from a table or a labelled array, in which all other indices have the labels of the fit."""
    unlisted = known.patterns[name].unlisted
    if index not in (given.dims if is_xarray(given) else column_names(given)):  # a single row
        others = tuple(i for i in indices if i != index)
        return observed_like(given, others, known.labels, known.sizes, name, unlisted=unlisted)
    if known.labels or is_xarray(given):
        return observed_like(given, indices, known.labels, known.sizes, name, unlisted=unlisted, new=index)
    return _listed_rows(known, given, indices, index, name)


def _listed_rows(known: Fit, given: Any, indices: tuple[str, ...], index: str, name: str) -> Observation:
    """Listed cells of new rows. The fit knows how wide they are, and the last one that is listed, how many."""
    if not isinstance(given, tuple) and not is_table(given):
        return observe(given, name=name)
    sizes, unlisted = {**known.sizes, index: 2**62}, known.patterns[name].unlisted
    seen = observe(given, shape=tuple(sizes[i] for i in indices), dims=indices, unlisted=unlisted, name=name)
    assert isinstance(seen, CooObservation)
    sizes[index] = int(seen.coords[indices.index(index)].max(initial=0)) + 1
    listed, shape = (seen.coords.T, seen.values), tuple(sizes[i] for i in indices)
    return observe(listed, shape=shape, unlisted=unlisted, name=name)


def _with_axis(row: Any, place: int) -> Any:
    """A single row with an axis of its own."""
    if isinstance(row, CooObservation):
        coords, missing = (np.insert(cells, place, 0, axis=0) for cells in (row.coords, row.missing))
        sizes = (*row.sizes[:place], 1, *row.sizes[place:])
        return replace(row, sizes=sizes, coords=coords, missing=missing, dims=None)
    if isinstance(row, DenseObservation):
        mask = None if row.mask is None else np.expand_dims(row.mask, place)
        return replace(row, values=np.expand_dims(row.values, place), mask=mask, dims=None)
    return np.expand_dims(row, place)


def _new_priors(known: Fit, given: Any, free: Sequence[str], index: str) -> Any:
    """Priors of new rows: those given, or those of the fit. What was learned for each row is learned again."""
    if known.method == EM.name or not (given is None or isinstance(given, Mapping)):
        return given
    priors = dict(given or {})
    for a in free:
        if a in priors:
            continue
        if a not in known.priors:
            raise PltfError(f"{a} was fixed in the fit, so its new rows have no prior: give one with prior=")
        prior, indices = known.priors[a], known.model.factors[a]
        by_row = prior.learns if prior.tie == f"index:{index}" else ()
        axis = indices.index(index) - len(indices)
        values = {}
        for part in PARTS:
            value = np.asarray(getattr(prior, part))
            if part in by_row and value.ndim >= -axis:
                value = np.exp(np.log(value).mean(axis=axis, keepdims=True))
            if value.ndim >= -axis and value.shape[axis] > 1:
                raise PltfError(
                    f"the prior of {a} differs along '{index}', so new rows have none: give one with prior="
                )
            values[part] = value
        learning = (prior.learn, prior.tie) if by_row else (None, "factor")
        priors[a] = Gamma(values["shape"], values["mean"], *learning)
    return priors


def plan(model: Model, X: Any, *, mask: Any, dtype: Any, engine: str, threads: int | None) -> Plan:
    """Plan a fit from shapes and dtypes alone; :meth:`pltf.Model.plan` says what the arguments mean."""
    data, masks = tensors(model, X, mask)
    arrays = {name: shape_and_dtype(one, name) for name, one in data.items()}
    sizes = model.index_sizes({name: shape for name, (shape, _) in arrays.items()})
    for name, given in masks.items():
        check_mask(given, arrays[name][0], name, data[name])
    listed = {name: isinstance(one, CooObservation) for name, one in data.items()}
    chosen, reason = registry.choose(engine, listed)
    compute = _dtype(dtype)
    threads = available_threads() if threads is None else whole("threads", threads, 1)
    known = {name: _known_to_be_masked(data[name], masks.get(name)) for name in data}
    equations: list[EquationPlan | ListedPlan] = []
    for e in model.equations:
        name, seen = e.output.name, data[e.output.name]
        if isinstance(seen, CooObservation):
            cells, holes = seen.coords.shape[1], seen.missing.shape[1]
            equations.append(ListedPlan(e, sizes, compute, cells, holes, seen.unlisted))
        else:
            equations.append(plan_equation(e, sizes, arrays[name][1], known[name] is not False, compute))
    unread = frozenset(name for name, one in known.items() if one is None)
    return Plan(model, chosen, reason, compute, threads, tuple(equations), unread)


def _known_to_be_masked(data: Any, mask: Any) -> bool | None:
    """True, False, or None when only reading the data would tell."""
    if isinstance(data, Observation):
        return data.has_missing
    if mask is not None or (isinstance(data, np.ma.MaskedArray) and data.mask is not np.ma.nomask):
        return True
    return None if np.asarray(data).dtype.kind == "f" else False


# -- data ---------------------------------------------------------------------------------------


def _by_tensor(model: Model, given: Any, argument: str, partial: bool = False) -> dict[str, Any]:
    """What was given for each observed tensor."""
    names = tuple(model.observed)
    if not isinstance(given, Mapping) or is_listed(given):  # scipy's dictionary of keys is a mapping too
        if len(names) > 1:
            wanted = " and ".join(names)
            raise PltfError(
                f"{argument} must be a mapping from tensor to array, with {wanted}; got {type(given).__name__}"
            )
        return {names[0]: given}
    unknown = [name for name in given if name not in names]
    absent = [name for name in names if name not in given]
    if unknown:
        raise PltfError(f"unknown tensor {unknown[0]!r} in {argument}: the model has {', '.join(names)}")
    if absent and not partial:
        raise PltfError(f"{argument} must have an array for every tensor of the model, but {absent[0]} is absent")
    return {name: given[name] for name in names if name in given}


def tensors(model: Model, X: Any, mask: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and masks by tensor. Cells that are listed or have labels are read here, once; arrays are left unread."""
    data = _by_tensor(model, X, "the data")
    masks = {} if mask is None else _by_tensor(model, mask, "mask", partial=True)
    for name, one in data.items():
        indices = model.observed[name]
        if is_listed(one) or has_names(one):
            data[name] = observe(one, masks.pop(name, None), dims=indices, name=name)
        elif isinstance(one, Observation):
            data[name] = in_order(one, indices, name)
    return data, masks


def labels_by_index(seen: Mapping[str, Observation]) -> dict[str, Labels]:
    """The labels of every index that has some; tensors that share it must agree on them."""
    found: dict[str, tuple[str, Labels]] = {}
    for name, one in seen.items():
        for index, labels in one.labels.items():
            first, known = found.setdefault(index, (name, labels))
            if known == labels:
                continue
            other = labels.index.symmetric_difference(known.index, sort=False)
            differ = f"{other[0]!r} is only in one of them" if len(other) else "their order differs"
            if labels.zone != known.zone:
                differ = f"their time zones differ, {known.zone} and {labels.zone}"
            advice = f"give both the same with pltf.observe(..., labels={{{index!r}: [...]}})"
            raise ObservationError(
                f"the labels of {index!r} must be the same in {first} and {name}: {differ}; {advice}"
            )
    return {index: labels for index, (_, labels) in found.items()}


def observations(data: Mapping[str, Any], masks: Mapping[str, Any]) -> dict[str, Observation]:
    seen = {name: observe(one, masks.get(name), name=name) for name, one in data.items()}
    if not any(one.n_observed for one in seen.values()):
        names = " and ".join(seen)
        raise ObservationError(
            f"{names}: at least one cell must be observed, but all are missing (mask: True = observed)"
        )
    return seen


# -- factors ------------------------------------------------------------------------------------


def _fixed(fixed: Any, model: Model, planned: Plan, labels: Mapping[str, Labels]) -> Factors:
    held = _factor_arrays("fixed", {} if fixed is None else fixed, model, planned.factor_shapes, labels)
    if len(held) == len(model.factors):
        raise PltfError("fixed names every factor: nothing is left to learn")
    return held


def _factor_arrays(
    argument: str, given: Any, model: Model, shapes: Mapping[str, tuple[int, ...]], labels: Mapping[str, Labels]
) -> Factors:
    """Arrays for factors, copied: finite, not negative, of the right shape."""
    if not isinstance(given, Mapping):
        raise PltfError(f"{argument} must be a mapping from factor to array, got {type(given).__name__}")
    arrays: dict[str, Array] = {}
    for name, value in given.items():
        _known_factor(argument, name, shapes)
        if isinstance(value, (Posterior, Point)):
            raise PltfError(f"{argument}[{name!r}] must be an array, got a {type(value).__name__}: pass its .mean")
        if is_frame(value):
            value = frame_as_array(value, model.factors[name], labels, f"{argument}[{name!r}]")
        if is_xarray(value):
            value = labelled_array(value, model.factors[name], labels, f"{argument}[{name!r}]")
        array = numeric(value, f"{argument}[{name!r}]")
        if array.shape != shapes[name]:
            axes = ", ".join(f"{i}={n}" for i, n in zip(model.factors[name], shapes[name], strict=True))
            raise PltfError(f"{argument}[{name!r}] must have shape {shapes[name]} ({axes}), got {array.shape}")
        if not (np.isfinite(array.astype(np.float64)) & (array >= 0)).all():
            raise PltfError(f"{argument}[{name!r}] must be finite and not negative")
        arrays[name] = frozen(np.array(array, dtype=np.float64, order="C"))
    return arrays


def _known_factor(argument: str, name: str, shapes: Mapping[str, Any]) -> None:
    if name not in shapes:
        raise PltfError(f"{argument} names {name!r}, but the factors of the model are {', '.join(shapes)}")


def _priors(
    method: Method,
    prior: Gamma | Mapping[str, Gamma] | None,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Factors,
) -> dict[str, Gamma]:
    free = [name for name in shapes if name not in fixed]
    if method is EM:
        if prior is not None:
            raise PltfError("method='em' has no prior, and none to learn: leave prior out, or use method='vb'")
        return {}
    named = dict.fromkeys(free, prior) if isinstance(prior, Gamma) else {} if prior is None else prior
    if not isinstance(named, Mapping):
        raise PltfError(f"prior must be a Gamma or a mapping from factor to Gamma, got {type(prior).__name__}")
    for name, one in named.items():
        _known_factor("prior", name, shapes)
        if name in fixed:
            raise PltfError(f"prior names {name!r}, which is fixed and takes no prior")
        if not isinstance(one, Gamma):
            raise PltfError(f"prior[{name!r}] must be a Gamma, got {type(one).__name__}")
        try:
            one.broadcast(shapes[name])
        except ValueError:
            came = np.broadcast_shapes(np.shape(one.shape), np.shape(one.mean))
            raise PltfError(f"prior of {name} must broadcast to {shapes[name]}, got {came}") from None
    default = start.MAP_PRIOR if method is MAP else start.DEFAULT_PRIOR
    return {name: named.get(name, default) for name in free}


def _learns(
    method: Method, priors: Mapping[str, Gamma], model: Model, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Groups]:
    """The priors that learn, and which entries share a learned value."""
    learning = {a: prior for a, prior in priors.items() if prior.learn is not None}
    if learning and method is MAP:
        raise PltfError(
            "method='map' cannot learn a prior: the density of factors and prior together has no maximum; use 'vb'"
        )
    return {a: groups(prior, shapes[a], model.factors[a], model.sizes, a) for a, prior in learning.items()}


def _init(init: Any, model: Model, planned: Plan, fixed: Factors, labels: Mapping[str, Labels]) -> str | Factors | Fit:
    """The starting point, checked."""
    if isinstance(init, str):
        return _choice("init", init, INITS)
    if isinstance(init, Fit):
        if init.model != model:
            raise PltfError(f"init must be a fit of the same model, got a fit of {init.model!r}")
        for index, size in planned.sizes.items():
            if init.sizes[index] != size:
                raise PltfError(f"index '{index}' is {size} in the data and {init.sizes[index]} in init")
            if index in labels and index in init.labels and labels[index] != init.labels[index]:
                raise PltfError(f"index '{index}' has other labels in the data than in init, or another order of them")
        return init
    arrays = _factor_arrays("init", init, model, planned.factor_shapes, labels)
    for name in model.factors:
        if name in arrays and name in fixed:
            raise PltfError(f"init names {name!r}, which is fixed")
        if name not in arrays and name not in fixed:
            raise PltfError(f"init has no array for factor {name}")
    return arrays


def _going_on(problem: Problem, method: Method, earlier: Fit) -> tuple[Callable[[int], State], tuple[float, ...]]:
    """Start where another fit ended; its trace goes on if this is the same problem."""
    known = placed(earlier.state, problem.algebra)
    if earlier.method != method.name:
        Z = {**known.E, **problem.fixed}
        return lambda _: method.begin(problem, Z, Z), ()
    state = method.resume(problem, known)
    same = earlier.fixed == frozenset(problem.fixed) and all(
        (prior.learn, prior.tie) == (earlier.priors[a].learn, earlier.priors[a].tie)
        for a, prior in problem.priors.items()
        if a in earlier.priors
    )
    if not (same and math.isclose(state.objective, earlier.bound, rel_tol=1e3 * problem.eps)):
        return lambda _: state, ()
    state = replace(state, objective=earlier.bound, pace=known.pace, waiting=known.waiting)
    return lambda _: state, tuple(earlier.trace)


def _check_memory(planned: Plan) -> None:
    """Refuse what cannot fit, rather than dying on the way."""
    memory = physical_memory()
    if planned.work_bytes > memory:
        need, have = human(planned.work_bytes, "B"), human(memory, "B")
        raise PltfError(f"the fit needs {need} beside the data, and this machine has {have}: see model.plan(X)")


# -- plain options ------------------------------------------------------------------------------


def _choice(argument: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise PltfError(f"{argument} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return str(value)


def tolerance(tol: Any) -> float:
    if isinstance(tol, bool) or not isinstance(tol, (int, float, np.integer, np.floating)) or not 0 <= tol < 1:
        raise PltfError(f"tol must be a number from 0 to below 1, got {tol!r}")
    return float(tol)


def seed_of(seed: Any) -> int:
    if seed is None:
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        return entropy
    return whole("seed", seed, 0)


def _callback(callback: Callback | None) -> Callback | None:
    if callback is not None and not callable(callback):
        raise PltfError(f"callback must be a function of a sweep, got {type(callback).__name__}")
    return callback


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in DTYPES:
        raise PltfError(f"dtype must be one of {', '.join(map(repr, DTYPES))}; got {dtype!r}")
    chosen: np.dtype[Any] = np.dtype(name)
    return chosen
