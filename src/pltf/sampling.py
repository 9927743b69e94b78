"""Gibbs sampling: a VB fit, chains that start at draws from its posterior, and a Fit made from their draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pltf.alignment import align
from pltf.data import Observation
from pltf.data.numeric import frozen
from pltf.dispersion import dispersions
from pltf.engines.plan import human
from pltf.errors import ConvergenceWarning, ObservationError, PltfError, py, py_only, warn_caller
from pltf.fit import Fit, Sampled, counted_factors, dispersed
from pltf.fitting import PreparedFit, judging, patterns_of, prepare
from pltf.gamma import Gamma
from pltf.inference.algebra import Factors
from pltf.inference.algebra.chance import chain_seed
from pltf.inference.algebra.host import prior_value
from pltf.inference.algebra.kept import Kept
from pltf.inference.balance import trades
from pltf.inference.chains import ChainProgress, Chains, Sampling, Schedule
from pltf.inference.gibbs import NAME, OBJECTIVE, Sampler
from pltf.inference.run import INTERRUPTED, Stop, best_of
from pltf.inference.state import Pace, Problem, State, fetched
from pltf.inference.vb import gone_on
from pltf.interrupts import first_interrupt_waits
from pltf.likelihoods import first_fraction
from pltf.memory import memory_there_is
from pltf.notation import Model
from pltf.options import FEWEST_DRAWS, SAMPLING, FitOptions
from pltf.planning import observations, tensors
from pltf.prediction.diagnostics import trouble
from pltf.store.chains import ChainsCheckpoint
from pltf.store.checkpoint import Place
from pltf.threads import single_threaded_blas

DEFAULTS = Schedule(chains=4, burn_in=200, draws=200, thin=1)
_FEW = 2  # VB sweeps before chains that learn shapes: components that VB removes rarely come back in a sampler
_START = 5  # in random keys, beside those of a sweep: the draws that chains start from


def sample(model: Model, X: Any, *, mask: Any, options: FitOptions) -> Fit:
    """Sample from the posterior; see :meth:`pltf.Model.fit` for the options."""
    place = Place(options.checkpoint, options.every, options.resume)
    options = replace(options, seed=options.entropy(place.identity))
    schedule = _schedule(options)
    data, masks = tensors(model, X, mask)
    ready = prepare(model, data, masks, options)
    if options.restarts > 1 and not isinstance(ready.init, str):
        raise PltfError(f"{py:restarts} must be 1 when {py:init} gives the starting point, got {options.restarts}")
    _check_memory(ready, schedule)
    seen = observations(data, masks)
    refuse_fractions(seen, f"{py:method='gibbs'}", f": use {py:method='vb'}")
    ready = ready.as_before(place.identity, seen)
    keeper = None
    if place.path is not None:
        keeper = ChainsCheckpoint(place, ready.identity(seen), model.factors, ready.planned.factor_shapes)
        if keeper.fit.finished is not None:
            return replace(keeper.fit.finished, patterns=patterns_of(seen, options.keep_data))
    ended = SamplingJob(ready, schedule, seen, keeper).run()
    _warn(ended, schedule, keeper is not None)
    return ended.fit


def _schedule(options: FitOptions) -> Schedule:
    """The requested numbers of chains and draws, or the defaults; resumed chains need no burn-in."""
    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    going_on = isinstance(options.init, Fit) and bool(options.init.draws)
    return replace(DEFAULTS, **{"burn_in": 0 if going_on else DEFAULTS.burn_in, **given})


def _check_memory(ready: PreparedFit, schedule: Schedule) -> None:
    """Raise an error if the draws do not fit in memory."""
    shapes = ready.planned.factor_shapes
    entries = sum(math.prod(shape) for a, shape in shapes.items() if a not in ready.held)
    needed = 8 * schedule.chains * schedule.draws * entries + ready.planned.work_bytes
    memory, whose = memory_there_is()
    if needed > memory:
        number = f"{schedule.chains} chains of {schedule.draws} draws need {human(needed, 'B')}"
        advice = f"use fewer {py:draws} with a larger {py:thin}, or fewer {py:chains}"
        raise PltfError(f"{number}, but {whose} {human(memory, 'B')}: {advice}")


def refuse_fractions(seen: Mapping[str, Observation], purpose: str, advice: str = "") -> None:
    """Check that counts are whole, as allocation requires."""
    for name, one in seen.items():
        wrong = first_fraction(one)
        if wrong is not None:
            raise ObservationError(f"{name} must hold whole counts for {purpose}, got {wrong[1]:g}{advice}")


class Ended(NamedTuple):
    """The end of a fit by sampling."""

    fit: Fit
    stopped: str
    draws: int  # of each chain; 0: the fit is the starting point of the chains


@dataclass(frozen=True, eq=False)
class SamplingJob:
    """A fit by sampling that is ready to start."""

    ready: PreparedFit  # of the VB fit where the chains start
    schedule: Schedule
    seen: Mapping[str, Observation]
    keeper: ChainsCheckpoint | None

    def run(self) -> Ended:
        """Sample. If interrupted before there are enough draws, the fit is the starting point."""
        problem = self.ready.problem(self.seen)
        with single_threaded_blas, first_interrupt_waits() as interrupted:
            stop = replace(self.ready.options.stop, interrupted=interrupted)
            start, ended = self._start(problem, stop)
            found = self._drawn(problem, start, stop) if ended else Ended(start, INTERRUPTED, 0)
            if found.stopped == INTERRUPTED:
                return found
            found = found._replace(fit=self._with_dispersion(found.fit, interrupted))
            if self.keeper is not None:
                self.keeper.fit.end(found.fit)
        return found

    # -- the start ------------------------------------------------------------------------------

    def _start(self, problem: Problem, stop: Stop) -> tuple[Fit, bool]:
        """The fit where chains start (given, saved, or a new VB fit), and whether it was not interrupted."""
        init, keeper, options = self.ready.init, self.keeper, self.ready.options
        if keeper is not None and keeper.start is not None:
            return keeper.start, True
        ended = True
        if isinstance(init, Fit) and set(problem.free) <= {*init.C, *init.draws}:
            own = self.ready.about(self.seen)  # with the data and options of this fit
            start = replace(init, points=dict(self.ready.held), seed=self.ready.seed, held_out=None, **own)
        else:
            begin, earlier = self.ready.starting(problem)
            standing = keeper.fit if keeper is not None else None
            most = min(stop.max_iter, _FEW) if problem.learns_shapes else stop.max_iter
            run, rows = best_of(
                problem, self.ready.method, begin, options.restarts, replace(stop, callback=None, max_iter=most),
                earlier=earlier, shown=options.progress, keeper=standing,
            )  # fmt: skip
            start = self.ready.result(problem, run, rows, self.seen)
            ended = len(rows) == options.restarts and rows[-1].stopped != INTERRUPTED
        if keeper is not None:
            keeper.start = start
        return start, ended

    # -- the chains -----------------------------------------------------------------------------

    def _drawn(self, problem: Problem, start: Fit, stop: Stop) -> Ended:
        """Run the chains, or go on with those of the checkpoint."""
        sampling, keeper = self._sampling(problem, start), self.keeper
        chains = keeper.chains if keeper is not None else None
        if chains is None:
            chains = self._begun(sampling, problem, start)
        with ChainProgress(self.ready.options.progress, self.schedule) as progress:
            chains, stopped = sampling.run(chains, stop, progress, keeper)
        if stopped == INTERRUPTED and keeper is not None:
            keeper.keep(chains)
        draws = self.schedule.kept(chains.sweeps)
        if draws < FEWEST_DRAWS and stopped == INTERRUPTED:
            return Ended(start, stopped, 0)
        return Ended(self._result(problem, start, chains, draws, stopped), stopped, draws)

    def _sampling(self, problem: Problem, start: Fit) -> Sampling:
        model, chains = self.ready.model, self.schedule.chains
        counted = counted_factors(model)
        mass = {index: (a, model.factors[a].index(index)) for index, a in counted.items()}
        sampler = Sampler(problem, frozenset(counted.values()))
        seeds = [chain_seed(self.ready.seed, n) for n in range(chains)]
        return Sampling(sampler, self.schedule, seeds, start.n_iter if start.draws else 0, mass)

    def _begun(self, sampling: Sampling, problem: Problem, start: Fit) -> Chains:
        """The chains before their first sweep."""
        schedule, sizes = self.schedule, self.ready.model.sizes
        priors = {a: gone_on(prior, start.priors.get(a, prior)) for a, prior in problem.priors.items()}
        first = (self._first_state(sampling, problem, start, priors, n) for n in range(schedule.chains))
        states = tuple(fetched(state, problem.algebra) for state in first)
        kept = Kept.empty(
            schedule.chains,
            schedule.draws,
            schedule.sweeps,
            {a: problem.shapes[a] for a in problem.free},
            {a: groups.value_shape for a, groups in problem.learns.items() if "shape" in problem.priors[a].learns},
            {index: (sizes[index],) for index in sampling.mass},
        )
        return Chains(states, 0, kept)

    def _first_state(
        self, sampling: Sampling, problem: Problem, start: Fit, priors: Mapping[str, Gamma], chain: int
    ) -> State:
        """A chain that starts at the last draw of an earlier chain, or at a draw from a VB posterior."""
        algebra, key = problem.algebra, (sampling.seeds[chain], sampling.first)
        Z: dict[str, Any] = dict(problem.fixed)
        for place, a in enumerate(problem.free):
            if a in start.draws:
                Z[a] = algebra.put(start.draws[a][chain % len(start.draws[a]), -1].copy())
            else:
                C, D = algebra.put(start.C[a]), algebra.put(start.D[a])
                Z[a] = algebra.gamma_draws(C, D, (*key, _START, place))
        state = sampling.sampler.begin(Z, priors, key)
        if state.counts.log_term == -math.inf:
            raise PltfError("a positive count has rate zero under these starting and fixed factors")
        return state

    # -- the result -----------------------------------------------------------------------------

    def _with_dispersion(self, fit: Fit, interrupted: Callable[[], bool]) -> Fit:
        """The fit with the overdispersion of its counts.

        Chains predict better than the VB fit where they start, and several chains better than one. With the predictions
        of a VB fit the overdispersion would be overestimated, so the second fit is sampled too, with half of the
        sweeps.
        """

        def refit(train: Mapping[str, Observation]) -> Fit | None:
            ready, stop = judging(self.ready, fit, train, interrupted)
            return SamplingJob(ready, self.schedule.half(FEWEST_DRAWS), train, None)._judge(stop)

        return dispersed(fit, dispersions(fit, self.seen, self.ready.options.dispersion, refit))

    def _judge(self, stop: Stop) -> Fit | None:
        """A fit to the training cells; None if interrupted."""
        problem = self.ready.problem(self.seen)
        try:
            start, ended = self._start(problem, stop)
        except KeyboardInterrupt:  # before the first sweep
            return None
        found = self._drawn(problem, start, stop) if ended else None
        return None if found is None or found.stopped == INTERRUPTED else found.fit

    def _result(self, problem: Problem, start: Fit, chains: Chains, draws: int, stopped: str) -> Fit:
        schedule, model = self.schedule, self.ready.model
        if draws < FEWEST_DRAWS:
            raise PltfError(f"the chains stopped after {draws} draws, but {FEWEST_DRAWS} are needed: {stopped}")
        kept = chains.kept.until(draws, chains.sweeps)
        # After a short start, components are not yet distinct.
        told = {a: draws[0, -1].copy() for a, draws in kept.factors.items()} if problem.learns_shapes else start._means
        reference = {**told, **self.ready.held}
        found = trades(model, self.ready.held)
        align(model, start.sizes, problem.priors, found, reference, kept.factors, kept.shapes, kept.mass)
        sampled = Sampled(
            schedule.burn_in, schedule.thin, frozen(kept.log_likelihood), _all_frozen(kept.mass), chains.seconds
        )
        earlier = start.trace if start.draws else ()
        fit = replace(
            start,
            method=NAME,
            objective=OBJECTIVE,
            C={},
            D={},
            points=dict(self.ready.held),
            bound=float(kept.log_likelihood[:, schedule.burn_in :].mean()),
            mass={index: frozen(array.mean(axis=(0, 1))) for index, array in kept.mass.items()},
            priors=_learned(problem, kept),
            trace=frozen(np.concatenate([earlier, kept.log_likelihood.mean(axis=0)])),
            stopped=stopped,
            options=self.ready.options.as_code(),
            pace=Pace(),
            waiting=True,
            spread=1.0,
            draws=_all_frozen(kept.factors),
            sampled=sampled,
        )
        return replace(fit, converged=not trouble(fit.diagnostics()))


def _all_frozen(arrays: Mapping[str, Any]) -> Factors:
    return {name: frozen(array) for name, array in arrays.items()}


def _learned(problem: Problem, kept: Kept) -> dict[str, Gamma]:
    """The priors with learned means, and geometric means of learned shapes, over the draws of each group."""
    learned = dict(problem.priors)
    for a, groups in problem.learns.items():
        prior, shape, mean = learned[a], learned[a].shape, learned[a].mean
        if "shape" in prior.learns:
            shape = prior_value(np.exp(np.log(kept.shapes[a]).mean(axis=(0, 1))), groups)
        if "mean" in prior.learns:
            mean = prior_value(kept.factors[a].mean(axis=(0, 1)).mean(axis=groups.shared, keepdims=True), groups)
        learned[a] = prior.with_values(shape, mean)
    return learned


def _warn(ended: Ended, schedule: Schedule, kept: bool) -> None:
    if ended.stopped == INTERRUPTED:
        advice = f"{py_only:resume with init=fit, or }use {py:checkpoint=} next time"
        advice = f"rerun with {py:resume=True} to resume" if kept else advice
        what = f"the fit has the first {ended.draws} of {schedule.draws} draws"
        if not ended.draws:
            what = f"with fewer than {FEWEST_DRAWS} draws, the result is the fit where the chains start"
        warn_caller(f"sampling was interrupted: {what}; {advice}", ConvergenceWarning)
    elif not ended.fit.converged:
        advice = f"raise {py:draws} or {py:burn_in}{py_only:, or resume with init=fit}"
        text = f"the chains have not converged: {trouble(ended.fit.diagnostics())}; {advice}"
        warn_caller(text, ConvergenceWarning)
