"""Checkpoints of a search, which can be interrupted at any time and resumed with identical results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pltf.inference.run import INTERRUPTED, Run
from pltf.selection.heldout import FoldFindings
from pltf.selection.result import Selection
from pltf.selection.saved import (
    SEARCH,
    fold_as_text,
    fold_from_text,
    outcome_as_text,
    outcome_from_text,
    save_search,
    search_from,
)
from pltf.selection.search import Candidate, Contender, Findings
from pltf.store.checkpoint import Identity, Place, kept
from pltf.store.container import Box, Boxes, readable, write
from pltf.store.serialize import get_run, put_run

UNFINISHED = "checkpoint of a search"
_SHARE = 20  # writing takes at most this fraction (1/20) of the time


class SearchCheckpoint:
    """Saves a search to a file at regular intervals, and after each candidate if writing is fast."""

    def __init__(self, place: Place, identity: Identity) -> None:
        assert place.path is not None
        self.path, self._every, self._identity = place.path, place.every, identity
        self.boxes = place.boxes if place.kind == UNFINISHED else Boxes()
        self.finished: Selection | None = None
        place.check(identity)
        if place.kind == SEARCH:
            with readable(self.path):
                self.finished = search_from(place.boxes)
        self._last, self._took, self._done = time.monotonic(), 0.0, 0
        self._stages = list[SearchStage]()

    def stage(self, name: str, found: Findings | FoldFindings) -> SearchStage:
        """Checkpoint of one stage of the search: the fits to folds, or the fits to all data."""
        of_folds = isinstance(found, FoldFindings)
        one: SearchStage = FoldStage(self, name, found) if of_folds else FitStage(self, name, found)
        self._stages.append(one)
        return one

    def due(self) -> bool:
        """Whether it is time to save."""
        since = time.monotonic() - self._last
        return since >= self._every or (self._n_done > self._done and since >= _SHARE * self._took)

    @property
    def _n_done(self) -> int:
        return sum(len(stage.found.outcomes) for stage in self._stages)

    def keep(self) -> None:
        """Write the checkpoint."""
        began = time.monotonic()
        head = Box({"identity": self._identity})
        boxes = {"checkpoint": head}
        for stage in self._stages:
            stage.put(head, boxes)
        kept(lambda: write(self.path, UNFINISHED, boxes))
        self._last = time.monotonic()
        self._took, self._done = self._last - began, self._n_done

    def end(self, found: Selection) -> None:
        """Write the result."""
        kept(lambda: save_search(found, self.path, {"checkpoint": Box({"identity": self._identity})}))


class SearchStage:
    """One stage of a search in the checkpoint; its runs are stored under ``name``."""

    open = "open"  # key of the unfinished runs

    def __init__(self, file: SearchCheckpoint, name: str, found: Findings | FoldFindings) -> None:
        self.file, self._name, self.found = file, name, found
        self._candidates: Sequence[Candidate] = ()

    def restore(self, candidates: Sequence[Candidate]) -> None:
        """Restore finished candidates and the runs of unfinished ones, for those in ``candidates``."""
        self._candidates = candidates
        if not self.file.boxes:
            return
        with readable(self.file.path):
            about = self.file.boxes["checkpoint"].about
            self._restore(about)
            for number, (turn, restarts) in about.get(self.open, {}).items():
                if int(number) < len(candidates) and int(number) not in self.found.outcomes:
                    candidate = candidates[int(number)]
                    candidate.turn = turn
                    candidate.runs = {restart: self._run(int(number), restart) for restart in restarts}
            for number in self.found.outcomes:
                candidates[number].clear()

    def _restore(self, about: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _run(self, number: int, restart: int) -> Run:
        shapes = self._candidates[number].ready.planned.factor_shapes
        return get_run(self.file.boxes[f"{self._name}/{number}/{restart}"], shapes)

    def put(self, head: Box, boxes: Boxes) -> None:
        """Add this stage to what is written."""
        going = {n: _standing(one) for n, one in enumerate(self._candidates) if n not in self.found.outcomes}
        head.about[self.open] = {n: (self._candidates[n].turn, list(runs)) for n, runs in going.items() if runs}
        for number, runs in going.items():
            for run in runs.values():
                self._put(boxes, number, run)

    def _put(self, boxes: Boxes, number: int, run: Run) -> None:
        box = boxes[f"{self._name}/{number}/{run.restart}"] = Box()
        put_run(box, run, self._candidates[number].ready.model.factors)


class FitStage(SearchStage):
    """The fits to all data."""

    found: Findings

    def _restore(self, about: Mapping[str, Any]) -> None:
        found = self.found
        here = {int(number): one for number, one in about["outcomes"].items() if int(number) < len(self._candidates)}
        kept = {number for number, _ in about["contenders"]}
        lost = found.chosen - kept  # the chosen candidate has failed since: this one is fitted again
        new = [number for number in here if number not in found.outcomes and number not in lost]
        found.outcomes |= {number: outcome_from_text(here[number]) for number in new}
        found.contenders += [
            Contender(n, self._candidates[n].entries, self._run(n, restart))
            for n, restart in about["contenders"]
            if n in new
        ]
        if found.outcomes and not found.contenders:
            raise ValueError("the best run is missing")

    def put(self, head: Box, boxes: Boxes) -> None:
        """Add this stage to what is written."""
        super().put(head, boxes)
        head.about["outcomes"] = {number: outcome_as_text(one) for number, one in self.found.outcomes.items()}
        head.about["contenders"] = [(one.number, one.run.restart) for one in self.found.contenders]
        for one in self.found.contenders:
            self._put(boxes, one.number, one.run)


class FoldStage(SearchStage):
    """The fits to folds."""

    found: FoldFindings
    open = "open folds"

    def _restore(self, about: Mapping[str, Any]) -> None:
        here = {int(number): fold_from_text(one) for number, one in about.get("folds", {}).items()}
        self.found.outcomes |= {number: one for number, one in here.items() if number < len(self._candidates)}

    def put(self, head: Box, boxes: Boxes) -> None:
        """Add this stage to what is written."""
        super().put(head, boxes)
        head.about["folds"] = {number: fold_as_text(one) for number, one in self.found.outcomes.items()}


def _standing(candidate: Candidate) -> dict[int, Run]:
    """The runs of a candidate that have started; interrupted runs are unfinished."""
    begun = {restart: run for restart, run in candidate.runs.items() if run.n_swept}
    return {r: replace(run, unfinished=True) if run.stopped == INTERRUPTED else run for r, run in begun.items()}
