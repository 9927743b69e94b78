"""The steps of a search: fits to folds, fits to all data, widening of the grid if requested, and the choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pltf.data import Observation
from pltf.errors import PltfError
from pltf.inference.progress import Progress
from pltf.inference.race import BEHIND
from pltf.inference.run import Row
from pltf.interrupts import first_interrupt_waits
from pltf.likelihoods import as_option
from pltf.selection.choice import FoldScores, allowances, one_standard_error
from pltf.selection.folds import BLOCKS, Data, make_folds, too_few
from pltf.selection.grid import GridPoint, edges
from pltf.selection.grid import shown as in_words
from pltf.selection.heldout import (
    FEWEST_STARTS,
    LOG_LIKELIHOOD,
    FoldCandidate,
    FoldFindings,
    check_enough,
    check_rankable,
    fold_options,
)
from pltf.selection.result import Selection
from pltf.selection.search import ROUNDING, Candidate, Contender, Findings, Options, Outcome, search
from pltf.threads import available_threads

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.selection.checkpoint import SearchCheckpoint, SearchStage

AUTO = "auto"
CRITERIA = (AUTO, "bound", "heldout", "both")
WIDENINGS = 5  # maximum number of times that a grid is widened

Wider = Callable[[Mapping[str, str]], Sequence[GridPoint]]  # edges of a grid to a wider grid


class Criterion(NamedTuple):
    """The criterion and its options."""

    criterion: str
    folds: int
    score: str
    widen: bool
    note: str = ""  # why the ELBO chooses instead of held-out cells

    def settled(self, seen: Mapping[str, Observation], candidates: int, options: Options) -> Criterion:
        """Replace "auto" by a criterion: held-out cells, unless they cannot or need not choose."""
        if self.criterion != AUTO:
            return self
        if candidates == 1 and not self.widen:
            return self._replace(criterion="bound")
        restarts, starts = options.fitting.restarts, fold_options(options.fitting).restarts
        why = too_few(seen, self.folds)
        if starts < FEWEST_STARTS:
            why = f"with {restarts} restart{'s' * (restarts > 1)} each fold gets only {starts}, which is unreliable"
        if self.score != LOG_LIKELIHOOD:
            why = ""  # a ranking score was requested explicitly
        return self._replace(criterion="bound" if why else "both", note=why)

    @property
    def heldout(self) -> bool:
        """Whether held-out cells are scored."""
        return self.criterion != "bound"

    @property
    def bound(self) -> bool:
        """Whether all candidates are fitted to all data."""
        return self.criterion != "heldout"


class Course:
    """A running search: the grid, the candidates and their results so far."""

    def __init__(self, data: Mapping[str, Any], masks: Mapping[str, Any], options: Options, asked: Criterion) -> None:
        self.options, self.asked = options, asked
        self._given = data, masks
        self.points, self.candidates = list[GridPoint](), list[Candidate]()
        self._on_folds = list[FoldCandidate]()
        self.fits = Findings(max(options.fitting.tol, ROUNDING))
        self.folds = FoldFindings(asked.folds)
        self._data = Data({})
        self._winner: Contender | None = None

    def add(self, points: Iterable[GridPoint]) -> None:
        """Add candidates, ready to be fitted; raises errors about any of them before any work."""
        from pltf.fitting import prepare

        known = [one.label for one in self.points]
        new = [one for one in points if one.label not in known]
        options = self.options
        threads = max(1, available_threads() // min(options.workers, max(1, len(new) * options.fitting.restarts)))
        threads = threads if options.cluster is None else 1  # each thread of a worker runs its own fit
        for one in new:
            try:
                ready = prepare(one.model, *self._given, replace(options.fitting, prior=one.prior, threads=threads))
            except PltfError as error:
                if not self.candidates:
                    raise
                raise PltfError(f"at {in_words(one.label)}: {error.marked}") from None  # the first one was valid
            self.points.append(one)
            self.candidates.append(Candidate(one.label, ready, options.race))
            self.candidates[-1].check_memory()

    # -- running --------------------------------------------------------------------------------

    def run(self, seen: Mapping[str, Observation], keeper: SearchCheckpoint | None, wider: Wider) -> None:
        """Run the search; ``wider`` returns the grid to continue with when the winner is at an edge."""
        asked = self.asked
        self._data = Data(seen, self._hidden(seen) if asked.heldout else ())
        stages = None if keeper is None else (keeper.stage("folds", self.folds), keeper.stage("candidates", self.fits))
        fold_stage, fit_stage = stages or (None, None)

        def decide() -> int:
            if asked.heldout:
                self._search(self._fold_candidates(), self.folds, fold_stage)
                return self._best_predicting()
            self._search(self.candidates, self.fits, fit_stage)
            highest = self._highest().number
            self.fits.chosen.add(highest)  # a resumed search must widen the same grid at the same edge
            return highest

        number = decide()
        for _ in range(WIDENINGS if asked.widen else 0):
            before = len(self.points)
            self.add(() if self.interrupted else wider(self._edges(number)))
            if len(self.points) == before:
                break
            number = decide()
        while asked.heldout:
            self._want(number)
            some = None if asked.bound and not self.interrupted else [number]
            self._search(self.candidates, self.fits, fit_stage, some)
            if number not in self.fits.failures:
                break
            number = self._best_predicting()  # of the others
        self._winner = self._run_of(number)

    def _want(self, number: int) -> None:
        """Keep the best run of a candidate; it is fitted again if its run was discarded."""
        self.fits.chosen.add(number)
        if number in self.fits.outcomes and all(one.number != number for one in self.fits.contenders):
            del self.fits.outcomes[number]
            known = self.candidates[number]
            self.candidates[number] = Candidate(known.label, known.ready, known.race)

    def _hidden(self, seen: Mapping[str, Observation]) -> Any:
        check_enough(seen, self.asked.folds, self.asked.score)
        blocks = BLOCKS if self.asked.score == LOG_LIKELIHOOD else 1  # ranks of few cells are unreliable
        folds = make_folds(seen, self.asked.folds, self.options.seed, blocks)
        check_rankable(folds, self.asked.score)
        return folds

    def _fold_candidates(self) -> list[FoldCandidate]:
        """Every candidate in every fold, prepared for the first fold only, as the others differ only in cells."""
        from pltf.fitting import prepare

        first, train = self.candidates[0].ready, self._data.part(0)
        options = fold_options(self.options.fitting, as_option(first.likelihoods(self._data.seen)))
        for point in self.points[len(self._on_folds) // self.asked.folds :]:
            fitting = replace(options, prior=point.prior, threads=first.options.threads)
            ready = prepare(point.model, train, {}, fitting)
            self._on_folds += [
                FoldCandidate(point.label, ready, self.options.race, fold, self.asked.score)
                for fold in range(self.asked.folds)
            ]
        return self._on_folds

    def _search(
        self,
        candidates: Sequence[Candidate],
        found: Findings | FoldFindings,
        keeper: SearchStage | None,
        only: Sequence[int] | None = None,
    ) -> None:
        some = candidates if only is None else [candidates[number] for number in only]
        work = sum(candidate.work for candidate in some)
        with Progress(self.options.fitting.progress, work, time_left=True) as bar:
            search(candidates, self._data, self.options, found, bar.show, keeper, only)

    @property
    def interrupted(self) -> bool:
        """Whether the search was interrupted while fitting to folds or to all data."""
        return self.folds.interrupted or self.fits.interrupted

    # -- choosing -------------------------------------------------------------------------------

    def _highest(self) -> Contender:
        """The candidate with the highest ELBO."""
        if self.fits.winner is None:
            raise self._why_nothing()
        return self.fits.winner

    def _best_predicting(self) -> int:
        """The smallest candidate within one standard error of the best, among those that did not fail."""
        scores = {n: one for n, one in self.folds.scores().items() if n not in self.fits.failures}
        if not scores:
            raise self._why_nothing()
        numbers = list(scores)
        sizes = [self.candidates[n].entries for n in numbers]
        found = list(scores.values())
        return numbers[one_standard_error([one.mean for one in found], allowances(found), sizes)]

    def _why_nothing(self) -> BaseException:
        """Why no candidate has a result: the search was interrupted, or all failed (the first error is shown)."""
        if self.interrupted:
            return KeyboardInterrupt()
        failures = {**self.folds.failed(), **self.fits.failures}
        return next(iter(failures.values()), PltfError("no candidate has a result"))

    def _run_of(self, number: int) -> Contender:
        """The best run of a candidate on all data; after an interrupt, possibly that of another candidate."""
        kept = [one for one in self.fits.contenders if one.number == number]
        return kept[0] if kept else self._highest()

    def _edges(self, number: int) -> dict[str, str]:
        done = self.folds.scores() if self.asked.heldout else self.fits.outcomes
        return edges(self.points[number].model, [self.points[other].model for other in done])

    # -- telling --------------------------------------------------------------------------------

    def selection(self, seen: Mapping[str, Observation]) -> Selection:
        """The result of the search."""
        assert self._winner is not None
        number = self._winner.number
        outcomes, failures = self._outcomes(), {**self.folds.failed(), **self.fits.failures}
        return Selection(
            outcomes=tuple(outcomes.values()),
            winner=outcomes[number],
            best_fit=self._best_fit(seen),
            best=dict(self.points[number].label),
            edges=self._edges(number),
            failures=tuple({**self.points[n].label, "error": _said(failures[n])} for n in sorted(failures)),
            interrupted=self.interrupted,
            n_candidates=len(self.candidates),
            unsettled=self._unsettled(),
            seed=self.options.seed,
            criterion=self.asked.criterion,
            score=self.asked.score,
            note=self.asked.note,
        )

    def _outcomes(self) -> dict[int, Outcome]:
        """The outcomes of all candidates that were fitted to all data or to all folds."""
        scores: dict[int, FoldScores] = self.folds.scores()
        nothing = np.empty(0)
        found = {}
        for number in sorted({*self.fits.outcomes, *scores}):
            fitted = self.fits.outcomes.get(number, Outcome(self.points[number].label, math.nan, (), nothing))
            folds = scores.get(number)
            entries = 0 if folds is None else self.candidates[number].entries
            found[number] = replace(fitted, folds=folds, entries=entries)
        return found

    def _best_fit(self, seen: Mapping[str, Observation]) -> Fit:
        assert self._winner is not None
        number, _, run = self._winner
        ready = self.candidates[number].ready
        fit = ready.result(ready.problem(seen), run, self.fits.outcomes[number].rows, seen)
        if self.interrupted:
            return fit
        with first_interrupt_waits() as pressed:  # the search is complete: only the dispersion can be lost
            return ready.with_dispersion(fit, seen, pressed)

    def warn_of_winner(self) -> None:
        """Warn if the winning fit has not converged."""
        assert self._winner is not None
        ready = self.candidates[self._winner.number].ready
        total = math.fsum(one.total for one in self._data.seen.values())
        ready.warn_of(self._winner.run, total)

    def _unsettled(self) -> int:
        rows: list[Row] = [row for one in self.fits.outcomes.values() for row in one.rows]
        return sum(not row.converged and row.stopped != BEHIND for row in rows) if self.options.fitting.tol else 0


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, PltfError) else f"{type(error).__name__} {error}".strip()
