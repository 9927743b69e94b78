"""Checkpoints of chains: the fit they start from, the state of every chain, and the draws so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from pltf.data.pattern import ForgottenPattern
from pltf.fit import Fit
from pltf.inference.algebra.kept import Kept
from pltf.inference.chains import Chains
from pltf.store.checkpoint import FitCheckpoint, Identity, Place, Shapes
from pltf.store.container import Box, readable
from pltf.store.fits import fit_boxes, fit_from
from pltf.store.serialize import Indices, get_state, put_state

CHAINS = "checkpoint of a set of chains"


class ChainsCheckpoint:
    """Saves the progress of the initial fit, then that of the chains, in one file."""

    def __init__(self, place: Place, identity: Identity, indices: Indices, shapes: Shapes) -> None:
        assert place.path is not None
        self._indices = indices
        self.fit = FitCheckpoint(place, identity, indices, shapes)  # of the initial fit and the final result
        self.start: Fit | None = None  # the fit that the chains start from
        self.chains: Chains | None = None
        if place.kind == CHAINS:
            with readable(place.path):
                self.start, self.chains = fit_from(place.boxes), _chains(place.boxes, shapes)

    def due(self) -> bool:
        return self.fit.due()

    def keep(self, chains: Chains) -> None:
        assert self.start is not None
        forgotten = {name: ForgottenPattern(one.unlisted) for name, one in self.start.patterns.items()}
        boxes = fit_boxes(replace(self.start, patterns=forgotten))
        boxes["checkpoint"] = Box({"identity": self.fit.identity})
        boxes["chains"] = head = Box({"sweeps": chains.sweeps, "seconds": chains.seconds, "count": len(chains.states)})
        for one in fields(chains.kept):
            held = getattr(chains.kept, one.name)
            named = held if isinstance(held, Mapping) else {"": held}
            head.about[one.name] = list(named)
            for name, array in named.items():
                head.put(f"{name}.{one.name}", array)
        for number, state in enumerate(chains.states):
            boxes[f"chain/{number}"] = Box()
            put_state(boxes[f"chain/{number}"], state, self._indices)
        self.fit.write(CHAINS, boxes)


def _chains(boxes: Mapping[str, Box], shapes: Shapes) -> Chains:
    head = boxes["chains"]
    states = tuple(get_state(boxes[f"chain/{number}"], shapes) for number in range(head.about["count"]))
    parts: dict[str, Any] = {}
    for one in fields(Kept):
        held = {name: np.array(head.get(f"{name}.{one.name}")) for name in head.about[one.name]}
        parts[one.name] = held.get("", held)
    return Chains(states, int(head.about["sweeps"]), Kept(**parts), float(head.about["seconds"]))
