"""Fit a model: check the options against the model and the data, choose an engine, run, return the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pltf.data import Observation
from pltf.data.labels import Labels
from pltf.data.numeric import frozen, numeric
from pltf.data.observe import frame_as_array, is_frame, is_xarray
from pltf.data.pattern import ForgottenPattern, Pattern
from pltf.devices import HOST, Device
from pltf.dispersion import checked, dispersions
from pltf.engines import registry
from pltf.engines.plan import Plan, human
from pltf.engines.registry import facts_of
from pltf.engines.ways import KINDS, LISTED
from pltf.errors import ConvergenceWarning, PltfError, py, py_only, warn_caller
from pltf.fit import Fit, counted_factors, dispersed, masses, remembering, resumable, with_spread
from pltf.gamma import Array, Gamma, Point, Posterior, Samples
from pltf.hints import suggestion
from pltf.inference import start
from pltf.inference.algebra import Algebra, Factors, Groups
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.algebra.recording import Recordings
from pltf.inference.balance import trades
from pltf.inference.batch import RestartBatch
from pltf.inference.em import EM, MAP
from pltf.inference.methods import METHODS
from pltf.inference.priors import groups
from pltf.inference.run import ASKED, INTERRUPTED, Row, Run, Stop, best_of
from pltf.inference.start import Known
from pltf.inference.state import Method, Problem, State, placed
from pltf.interrupts import first_interrupt_waits
from pltf.likelihoods import BERNOULLI, POISSON, as_option, by_tensor, likelihoods_of, remarks
from pltf.memory import memory_there_is
from pltf.notation import Model
from pltf.options import FitOptions
from pltf.planning import labels_by_index, observations, plan, tensors
from pltf.prediction.cells import labelled_array
from pltf.prediction.spread import Sample
from pltf.store.checkpoint import FitCheckpoint, Identity, Place, digest_of
from pltf.threads import single_threaded_blas

JUDGING_TOL, JUDGING_SWEEPS = 1e-4, (30, 100)  # of the fit for the dispersion: minimum and maximum
JUDGING_FLOPS = 3e8  # in all of these sweeps; or a quarter of the sweeps of the fit, if more


def fit(model: Model, X: Any, *, mask: Any, options: FitOptions) -> Fit:
    """Fit a model; see :meth:`pltf.Model.fit`."""
    place = Place(options.checkpoint, options.every, options.resume)
    options = replace(options, seed=options.entropy(place.identity))
    data, masks = tensors(model, X, mask)
    ready = prepare(model, data, masks, options)
    restarts, stop = options.restarts, options.stop
    if restarts > 1 and not isinstance(ready.init, str | Known):
        raise PltfError(f"{py:restarts} must be 1 when {py:init} gives the starting point, got {restarts}")
    seen = observations(data, masks)
    ready = ready.as_before(place.identity, seen)
    keeper = None
    if place.path is not None:
        keeper = FitCheckpoint(place, ready.identity(seen), model.factors, ready.planned.factor_shapes)
        if keeper.finished is not None:
            where = _name_of(ready.planned.device)
            return replace(keeper.finished, patterns=patterns_of(seen, options.keep_data), device=where)
    problem = ready.problem(seen)
    with single_threaded_blas, first_interrupt_waits() as interrupted:
        stop = replace(stop, interrupted=interrupted)
        start, earlier = ready.starting(problem)
        batch = RestartBatch.of(problem, ready.method, restarts) if keeper is None and stop.callback is None else None
        if batch is not None:
            run, rows = batch.best(start, stop, shown=options.progress)
        else:
            how: dict[str, Any] = {"earlier": earlier, "shown": options.progress, "keeper": keeper}
            run, rows = best_of(problem, ready.method, start, restarts, stop, **how)
        problem = replace(problem, engine=problem.engine.fresh())
        del start  # frees what the engine has cached, as the result needs memory too
        result = ready.result(problem, run, rows, seen)
        broken_off = len(rows) < restarts or any(row.stopped == INTERRUPTED for row in rows)
        if not broken_off:
            result = ready.with_dispersion(result, seen, interrupted)
        if keeper is not None and not broken_off:
            keeper.end(result)
    if broken_off:
        where = f"restart {len(rows)} of {restarts}, after {rows[-1].n_iter} iterations"
        advice = f"{py_only:resume with init=fit, or }use {py:checkpoint=} next time"
        advice = advice if keeper is None else f"rerun with {py:resume=True} to resume"
        text = f"the fit was interrupted in {where}: this is the best result so far; {advice}"
        warn_caller(text, ConvergenceWarning)
    else:
        ready.warn_of(run, problem.total)
    return result


def prepare(model: Model, data: Mapping[str, Any], masks: Mapping[str, Any], options: FitOptions) -> PreparedFit:
    """Check everything that can be checked without reading the data."""
    how = METHODS[options.method]
    labels = labels_by_index({name: one for name, one in data.items() if isinstance(one, Observation)})
    planned = plan(model, data, mask=masks, options=options)
    by_tensor(options.likelihood, tuple(model.observed))
    held = _fixed(options.fixed, model, planned, labels)
    priors = _priors(how, options.prior, planned.factor_shapes, held)
    learns = _learns(how, priors, model, planned.factor_shapes)
    begin = _init(options.init, model, planned, held, labels)
    checked(options.dispersion, model)
    _check_memory(planned)
    return PreparedFit(model, how, planned, priors, learns, held, begin, options)


@dataclass(frozen=True, eq=False)
class PreparedFit:
    """A fit that is ready to start: all arguments are checked, no data have been read."""

    model: Model
    method: Method
    planned: Plan
    priors: Mapping[str, Gamma]
    learns: Mapping[str, Groups]
    held: Factors
    init: str | Factors | Fit | Known
    options: FitOptions  # as passed by the caller, with a seed

    @property
    def seed(self) -> int:
        """The seed of the fit."""
        return self.options.entropy(None)

    def identity(self, seen: Mapping[str, Observation]) -> Identity:
        """Everything that must be equal to resume a fit."""
        planned = self.planned_for(seen)
        means = {a: factor.mean for a, factor in self.init.factors.items()} if isinstance(self.init, Fit) else None
        judged = {
            "method": self.options.method,
            "prior": digest_of(self.priors),
            "init": digest_of(self.init if means is None else means),
            "fixed": digest_of(self.held),
            "dtype": self.planned.dtype.name,
            "engine": planned.engine,
        }
        return {
            "model": repr(self.model),
            "data": {name: one.digest() for name, one in seen.items()},
            **self.options.identity(**judged),
            "ways": planned.ways,
        }

    def as_before(self, identity: Identity | None, seen: Mapping[str, Observation]) -> PreparedFit:
        """The fit with the ways of an earlier run, if any, so that the result is bit-identical on any machine.

        Version 0.1 did not record them: it chose by the storage of the data.
        """
        likelihoods = self.likelihoods(seen)
        if identity is None or self.options.engine != "auto":
            return self
        earlier = identity.get("ways")
        if earlier is None:
            facts = {name: facts_of(one) for name, one in seen.items()}
            plans = (replace(self.planned, asked=engine).knowing(facts, likelihoods) for engine in KINDS)
            by_storage = dict(zip(KINDS, (plan.ways for plan in plans), strict=True))
            earlier = {name: by_storage[one.storage][name] for name, one in facts.items()}
        pinned = {name: tuple(ways) for name, ways in earlier.items()}
        return replace(self, planned=replace(self.planned, pinned=pinned))

    def planned_for(self, seen: Mapping[str, Observation]) -> Plan:
        """The plan once the data are read."""
        return self.planned.knowing({name: facts_of(one) for name, one in seen.items()}, self.likelihoods(seen))

    def likelihoods(self, seen: Mapping[str, Observation]) -> dict[str, str]:
        """The likelihood of every tensor; raises an error if the data do not fit the requested one."""
        return likelihoods_of(self.options.likelihood, seen)

    def problem(self, seen: Mapping[str, Observation]) -> Problem:
        """The model bound to its data."""
        planned, likelihoods = self.planned_for(seen), self.likelihoods(seen)
        algebra = _algebra(planned)
        return Problem(
            engine=registry.build(planned, seen),
            algebra=algebra,
            shapes=planned.factor_shapes,
            priors=self.priors,
            fixed={a: algebra.put(z) for a, z in self.held.items()},
            total=math.fsum(one.total for one in seen.values()),
            saturated=math.fsum(one.saturated for name, one in seen.items() if likelihoods[name] == POISSON),
            eps=float(np.finfo(planned.dtype).eps),
            trades=trades(self.model, self.held) if self.options.accelerate else None,
            learns=self.learns,
            links=math.fsum(one.total for name, one in seen.items() if likelihoods[name] == BERNOULLI),
            recordings=Recordings.on(planned.device),
        )

    def starting(self, problem: Problem) -> tuple[Callable[[int], State], tuple[float, ...]]:
        """The function from restart to initial state, and the trace to continue."""
        init, method = self.init, self.method
        if isinstance(init, Fit):
            return _going_on(problem, method, init)
        if isinstance(init, Mapping):
            Z = {**problem.fixed, **{a: problem.algebra.put(z) for a, z in init.items()}}
            return lambda _: method.begin(problem, Z, Z), ()
        smallest, threads = float(np.finfo(self.planned.dtype).tiny), self.planned.threads

        def draw(restart: int) -> State:
            rng = start.generator(start.restart_seed(self.seed, restart))
            if isinstance(init, Known):
                return method.begin(problem, *init.draw(problem, rng, smallest, threads))
            if init == "random":
                return method.begin(problem, *start.at_random(problem, rng))
            return method.begin(problem, *start.from_prior(problem, rng, smallest, threads))

        return draw, ()

    def result(self, problem: Problem, run: Run, rows: tuple[Row, ...], seen: Mapping[str, Observation]) -> Fit:
        """The Fit from a finished run."""
        state = run.state
        counts = _component_counts(self.model, problem, state)
        fit = Fit(
            model=self.model,
            method=self.method.name,
            objective=self.method.objective,
            sizes=self.planned.sizes,
            C=dict(state.C),
            D=dict(state.D),
            points={a: state.E[a] for a in self.model.factors if a not in state.C},
            bound=state.objective,
            mass=masses(self.model, counts),
            priors=state.priors,
            trace=frozen(run.trace),
            converged=run.converged,
            stopped=run.stopped,
            rows=rows,
            best_restart=run.restart,
            seed=self.seed,
            options=self.options.as_code(),
            pace=state.at_end.pace,
            waiting=state.waiting,
            **self.about(seen),
            device=_name_of(self.planned.device),
        )
        fit = with_spread(fit, {name: Sample(one) for name, one in seen.items()})
        return fit if run.converged else remembering(fit, state)  # converged fits are rarely resumed

    def about(self, seen: Mapping[str, Observation]) -> dict[str, Any]:
        """What a fit says of its data and of how it was computed."""
        return {
            "fixed": frozenset(self.held),
            "dtype": self.planned.dtype.name,
            "engine": self.planned_for(seen).engine,
            "n_observed": {name: one.n_observed for name, one in seen.items()},
            "patterns": patterns_of(seen, self.options.keep_data),
            "labels": labels_by_index(seen),
            "likelihoods": self.likelihoods(seen),
            "notes": remarks(self.options.likelihood, seen),
        }

    def with_dispersion(
        self, fit: Fit, seen: Mapping[str, Observation], interrupted: Callable[[], bool] | None = None
    ) -> Fit:
        """The fit with the overdispersion of its counts."""

        def refit(train: Mapping[str, Observation]) -> Fit | None:
            return _judge(self, fit, train, interrupted)

        return dispersed(fit, dispersions(fit, seen, self.options.dispersion, refit))

    def warn_of(self, run: Run, total: float) -> None:
        """Warn if the run has not converged, or if float32 is too coarse for its objective."""
        float32, early = self.planned.dtype == np.float32, run.n_swept < self.options.max_iter
        if not run.converged and run.stopped != ASKED and (self.options.tol > 0 or early):
            advice = f"raise {py:max_iter} or {py:tol}{py_only:, or resume with init=fit}"
            if early and float32:
                advice = f"float32 may be too coarse for these counts: try {py:dtype='float64'}"
            text = f"the fit has not converged: {run.stopped}; {advice}"
            warn_caller(text, ConvergenceWarning)
        lost = 1e-8 * total  # benchmarks/NOTES.md: float32 and the bound
        if float32 and lost > 0.01 * abs(run.objective):
            text = f"float32 computes the {self.method.objective} only to within {lost:.2g} for counts this large"
            warn_caller(f"{text}: use {py:dtype='float64'}", ConvergenceWarning)


def _algebra(planned: Plan) -> Algebra[Any]:
    """Arithmetic on factors, on the device of the plan."""
    if planned.device is None:
        return NumbaAlgebra(planned.threads)
    from pltf.inference.algebra.on_device import DeviceAlgebra

    return DeviceAlgebra(planned.device)


def _name_of(device: Device | None) -> str:
    return HOST if device is None else device.name


def _judge(
    known: PreparedFit, fit: Fit, train: Mapping[str, Observation], interrupted: Callable[[], bool] | None
) -> Fit | None:
    """A fit to the training cells, to estimate the dispersion; None if interrupted."""
    ready, stop = judging(known, fit, train, interrupted)
    problem = ready.problem(train)
    state, _ = ready.starting(problem)
    try:
        run, rows = best_of(problem, ready.method, state, 1, stop, shown=ready.options.progress)
    except KeyboardInterrupt:  # before the first sweep
        return None
    return None if run.stopped == INTERRUPTED else ready.result(problem, run, rows, train)


def judging(
    known: PreparedFit, fit: Fit, train: Mapping[str, Observation], interrupted: Callable[[], bool] | None
) -> tuple[PreparedFit, Stop]:
    """Setup of the fit that estimates the dispersion: the prepared fit, and when it stops.

    It has the same start as the fit, not its result, which has learned from the held-out cells. The dispersion is
    accurate to about 10 % long before the factors converge (docs/prediction.md), so it stops earlier.
    """
    begin = known.init if isinstance(known.init, str) else "prior"
    seed = start.restart_seed(fit.seed, fit.best_restart)
    once: dict[str, Any] = {"restarts": 1, "callback": None, "checkpoint": None, "resume": False, "keep_data": False}
    options = replace(known.options, init=begin, seed=seed, likelihood=as_option(fit.likelihoods), **once)
    ready = prepare(known.model, train, {}, options)
    cheap = int(np.clip(JUDGING_FLOPS / max(ready.planned.flops, 1.0), *JUDGING_SWEEPS))
    return ready, Stop(max(cheap, fit.n_iter // 4), max(JUDGING_TOL, options.tol), interrupted=interrupted)


def patterns_of(seen: Mapping[str, Observation], keep_data: bool) -> dict[str, Pattern]:
    """Which cells were observed, if ``keep_data`` is True."""
    if keep_data:
        return {name: one.pattern() for name, one in seen.items()}
    return {name: ForgottenPattern(getattr(one, "unlisted", "zero")) for name, one in seen.items()}


def _component_counts(model: Model, problem: Problem, state: State) -> Factors:
    """Expected counts for the mass of components: from a state on the host, or from one more pass over the data."""
    known, needed = state.counts.by_factor, dict.fromkeys(counted_factors(model).values())
    absent, algebra = [a for a in needed if a not in known], problem.algebra
    if not absent:
        return {a: known[a] for a in needed}
    found = problem.engine.counts({a: algebra.put(z) for a, z in state.L.items()}, absent, log=False).by_factor
    return {a: known[a] if a in known else algebra.get(found[a]) for a in needed}


def _going_on(problem: Problem, method: Method, earlier: Fit) -> tuple[Callable[[int], State], tuple[float, ...]]:
    """Start from an earlier fit; its trace is continued if this is the same problem."""
    left = placed(resumable(earlier), problem.algebra)
    if earlier.method != method.name:
        Z = {**left.E, **problem.fixed}
        return lambda _: method.begin(problem, Z, Z), ()
    state = method.resume(problem, left)
    same = earlier.fixed == frozenset(problem.fixed) and all(
        (prior.learn, prior.tie) == (earlier.priors[a].learn, earlier.priors[a].tie)
        for a, prior in problem.priors.items()
        if a in earlier.priors
    )
    if not (same and math.isclose(state.objective, earlier.bound, rel_tol=1e3 * problem.eps)):
        return lambda _: state, ()
    state = replace(state, objective=earlier.bound, pace=left.pace, waiting=left.waiting and problem.learns_shapes)
    return lambda _: state, tuple(earlier.trace)


def _check_memory(planned: Plan) -> None:
    """Raise an error if the fit needs more memory than there is."""
    memory, whose = memory_there_is()
    if planned.work_bytes > memory:
        need, have = human(planned.work_bytes, "B"), human(memory, "B")
        copies = sum(e.made_bytes + e.listing_bytes for e in planned.equations if e.task.facts.storage == LISTED)
        advice = f", or write a cell store with {py:pltf.prepare}" if copies else ""
        text = f"the fit needs {need} beside the data, and {whose} {have}: see {py:model.plan(X)}{advice}"
        raise PltfError(text)
    if planned.crew is not None and planned.worker_bytes > planned.crew.memory:
        need, have = human(planned.worker_bytes, "B"), human(planned.crew.memory, "B")
        raise PltfError(f"each worker of the cluster needs {need}, and one has {have}: use more or larger workers")
    device = planned.site or planned.device
    if device is not None and planned.device_bytes > device.memory()[0]:
        need, have = human(planned.device_bytes, "B"), human(device.memory()[0], "B")
        who = "the fit" if planned.crew is None else "each worker of the cluster"
        raise PltfError(f"{who} needs {need} on {py:device={device.name!r}}, which has {have} free")


def _fixed(fixed: Any, model: Model, planned: Plan, labels: Mapping[str, Labels]) -> Factors:
    held = _factor_arrays("fixed", {} if fixed is None else fixed, model, planned.factor_shapes, labels)
    if len(held) == len(model.factors):
        raise PltfError(f"{py:fixed} names every factor: nothing is left to learn")
    return held


def _factor_arrays(
    argument: str, given: Any, model: Model, shapes: Mapping[str, tuple[int, ...]], labels: Mapping[str, Labels]
) -> Factors:
    """Copies of the arrays for factors; checked to be finite, non-negative and of the right shape."""
    if not isinstance(given, Mapping):
        raise PltfError(f"{py:{argument}} must be a mapping from factor to array, got {type(given).__name__}")
    arrays: dict[str, Array] = {}
    for name, value in given.items():
        _known_factor(argument, name, shapes)
        what = f"{py:{argument}[{name!r}]}"
        if isinstance(value, (Posterior, Samples, Point)):
            raise PltfError(f"{what} must be an array, got a {type(value).__name__}: pass its .mean")
        if is_frame(value):
            value = frame_as_array(value, model.factors[name], labels, what)
        if is_xarray(value):
            value = labelled_array(value, model.factors[name], labels, what)
        array = numeric(value, what)
        if array.shape != shapes[name]:
            axes = ", ".join(f"{i}={n}" for i, n in zip(model.factors[name], shapes[name], strict=True))
            raise PltfError(f"{what} must have shape {shapes[name]} ({axes}), got {array.shape}")
        if not (np.isfinite(array.astype(np.float64)) & (array >= 0)).all():
            raise PltfError(f"{what} must be finite and not negative")
        arrays[name] = frozen(np.array(array, dtype=np.float64, order="C"))
    return arrays


def _known_factor(argument: str, name: str, shapes: Mapping[str, Any]) -> None:
    if name not in shapes:
        factors = f"{', '.join(shapes)}{suggestion(name, shapes)}"
        raise PltfError(f"{py:{argument}} names {name!r}, but the factors of the model are {factors}")


def _priors(
    method: Method,
    prior: Gamma | Mapping[str, Gamma] | None,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Factors,
) -> dict[str, Gamma]:
    free = [name for name in shapes if name not in fixed]
    if method is EM:
        if prior is not None:
            raise PltfError(f"{py:method='em'} has no prior: omit {py:prior}, or use {py:method='vb'}")
        return {}
    named = dict.fromkeys(free, prior) if isinstance(prior, Gamma) else {} if prior is None else prior
    if not isinstance(named, Mapping):
        raise PltfError(f"{py:prior} must be a Gamma or a mapping from factor to Gamma, got {type(prior).__name__}")
    for name, one in named.items():
        _known_factor("prior", name, shapes)
        if name in fixed:
            raise PltfError(f"{py:prior} names {name!r}, which is fixed and takes no prior")
        if not isinstance(one, Gamma):
            raise PltfError(f"{py:prior[{name!r}]} must be a Gamma, got {type(one).__name__}")
        try:
            one.broadcast(shapes[name])
        except ValueError:
            came = np.broadcast_shapes(np.shape(one.shape), np.shape(one.mean))
            raise PltfError(f"{py:prior} of {name} must broadcast to {shapes[name]}, got {came}") from None
    default = start.MAP_PRIOR if method is MAP else start.DEFAULT_PRIOR
    return {name: named.get(name, default) for name in free}


def _learns(
    method: Method, priors: Mapping[str, Gamma], model: Model, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Groups]:
    """The priors with learned hyperparameters, and which entries share a value."""
    learning = {a: prior for a, prior in priors.items() if prior.learn is not None}
    if learning and method is MAP:
        reason = "the joint density of factors and hyperparameters has no maximum"
        raise PltfError(f"{py:method='map'} cannot learn a prior: {reason}; use 'vb'")
    return {a: groups(prior, shapes[a], model.factors[a], model.sizes, a) for a, prior in learning.items()}


def _init(
    init: Any, model: Model, planned: Plan, fixed: Factors, labels: Mapping[str, Labels]
) -> str | Factors | Fit | Known:
    """The starting point, checked."""
    if isinstance(init, str | Known):
        return init
    if isinstance(init, Fit):
        if init.model != model:
            raise PltfError(f"{py:init} must be a fit of the same model, got a fit of {init.model!r}")
        for index, size in planned.sizes.items():
            if init.sizes[index] != size:
                raise PltfError(f"index '{index}' is {size} in the data and {init.sizes[index]} in {py:init}")
            if index in labels and index in init.labels and labels[index] != init.labels[index]:
                other = f"index '{index}' has different labels in the data and in {py:init}"
                raise PltfError(f"{other}, or in a different order")
        return init
    arrays = _factor_arrays("init", init, model, planned.factor_shapes, labels)
    for name in model.factors:
        if name in arrays and name in fixed:
            raise PltfError(f"{py:init} names {name!r}, which is fixed")
        if name not in arrays and name not in fixed:
            raise PltfError(f"{py:init} has no array for factor {name}")
    return arrays
