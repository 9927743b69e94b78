"""A search that can be broken off at any moment, and gone on with to the same bits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pltf.inference.run import INTERRUPTED, Run
from pltf.selection.result import Selection
from pltf.selection.saved import SEARCH, outcome_as_text, outcome_from_text, save_search, search_from
from pltf.selection.search import Candidate, Contender, Findings
from pltf.store.checkpoint import Identity, Place, kept
from pltf.store.container import Box, Boxes, readable, write
from pltf.store.serialize import get_run, put_run

UNFINISHED = "checkpoint of a search"
_SHARE = 20  # writing takes at most one part in so many of the time


class SearchCheckpoint:
    """Keeps a search in a file: whenever a candidate is done, if writing is quick, and every so many seconds."""

    def __init__(self, place: Place, identity: Identity) -> None:
        assert place.path is not None
        self._path, self._every, self._identity = place.path, place.every, identity
        self._boxes = place.boxes if place.kind == UNFINISHED else Boxes()
        self.finished: Selection | None = None
        place.check(identity)
        if place.kind == SEARCH:
            with readable(self._path):
                self.finished = search_from(place.boxes)
        self._last, self._took, self._done = time.monotonic(), 0.0, 0

    def restore(self, found: Findings, candidates: Sequence[Candidate]) -> None:
        """Bring back the candidates that were done, and the runs of those that were not."""
        if not self._boxes:
            return
        with readable(self._path):
            about = self._boxes["checkpoint"].about
            found.outcomes |= {int(number): outcome_from_text(one) for number, one in about["outcomes"].items()}
            found.contenders = [
                Contender(n, candidates[n].entries, self._run(candidates, n, restart))
                for n, restart in about["contenders"]
            ]
            for number, (turn, restarts) in about["open"].items():
                candidate = candidates[int(number)]
                candidate.turn = turn
                candidate.runs = {restart: self._run(candidates, int(number), restart) for restart in restarts}
            for number in found.outcomes:
                candidates[number].clear()
        self._boxes, self._done = Boxes(), len(found.outcomes)

    def _run(self, candidates: Sequence[Candidate], number: int, restart: int) -> Run:
        return get_run(self._boxes[f"candidates/{number}/{restart}"], candidates[number].ready.planned.factor_shapes)

    def due(self, found: Findings) -> bool:
        """Whether it is time to keep it."""
        since = time.monotonic() - self._last
        return since >= self._every or (len(found.outcomes) > self._done and since >= _SHARE * self._took)

    def keep(self, found: Findings, candidates: Sequence[Candidate]) -> None:
        """Write it down."""
        began = time.monotonic()
        going = {
            number: _standing(candidate) for number, candidate in enumerate(candidates) if number not in found.outcomes
        }
        head = Box({"identity": self._identity})
        head.about["outcomes"] = {number: outcome_as_text(one) for number, one in found.outcomes.items()}
        head.about["contenders"] = [(one.number, one.run.restart) for one in found.contenders]
        head.about["open"] = {n: (candidates[n].turn, list(runs)) for n, runs in going.items() if runs}
        boxes = {"checkpoint": head}
        for number, runs in going.items():
            for run in runs.values():
                _put(boxes, candidates, number, run)
        for one in found.contenders:
            _put(boxes, candidates, one.number, one.run)
        kept(lambda: write(self._path, UNFINISHED, boxes))
        self._last = time.monotonic()
        self._took, self._done = self._last - began, len(found.outcomes)

    def end(self, found: Selection) -> None:
        """Write down what came out."""
        kept(lambda: save_search(found, self._path, {"checkpoint": Box({"identity": self._identity})}))


def _put(boxes: Boxes, candidates: Sequence[Candidate], number: int, run: Run) -> None:
    box = boxes[f"candidates/{number}/{run.restart}"] = Box()
    put_run(box, run, candidates[number].ready.model.factors)


def _standing(candidate: Candidate) -> dict[int, Run]:
    """The runs of a candidate that have begun; those that were interrupted are not at their end."""
    begun = {restart: run for restart, run in candidate.runs.items() if run.n_swept}
    return {r: replace(run, unfinished=True) if run.stopped == INTERRUPTED else run for r, run in begun.items()}
