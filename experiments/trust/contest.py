"""One tool on one mask: choose its setting on held-back training cells, predict the hidden cells, measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from typing import Any, Protocol

import numpy as np

from experiments.common import Json
from experiments.trust import noise, ours, peers
from experiments.trust.measures import Predicted, measured
from experiments.trust.sets import RealSet
from experiments.trust.store import Key
from experiments.trust.tasks import Task, task
from pltf import Dispersion


class Tool(Protocol):
    """A tool in the comparison."""

    name: str

    def lacks(self) -> str:
        """What is missing to run it, or ""."""

    def takes(self, one: RealSet) -> bool:
        """Whether it supports such data."""

    def settings(self, one: RealSet) -> list[Any]:
        """The settings to choose from."""

    def inside(self, inner: list[Task], setting: Any) -> tuple[float, Any]:
        """Log-probability of held-back cells, and what was learned from them."""

    def predict(self, outer: Task, setting: Any, learned: Any) -> Predicted:
        """Fit all training cells, and predict the hidden ones."""


class PeerTool:
    """Another program: it predicts numbers, whose noise is estimated from held-back cells."""

    def __init__(self, peer: peers.Peer) -> None:
        self.peer, self.name = peer, peer.name

    def lacks(self) -> str:
        missing = self.peer.package and find_spec(self.peer.package) is None
        return f"{self.peer.package} is not installed" if missing else ""

    def takes(self, one: RealSet) -> bool:
        return True

    def settings(self, one: RealSet) -> list[Any]:
        return list(self.peer.settings or one.ranks)

    def inside(self, inner: list[Task], setting: Any) -> tuple[float, noise.Noise]:
        said = np.concatenate([self.peer.predict(fold, setting)[fold.hidden] for fold in inner])
        x = np.concatenate([fold.asked for fold in inner])
        around = noise.likeliest(x, said, links=inner[0].links)
        return float(around.log_prob(x, said).mean()), around

    def predict(self, outer: Task, setting: Any, learned: noise.Noise) -> Predicted:
        return learned.of(outer.asked, self.peer.predict(outer, setting)[outer.hidden])


class OurTool:
    """A variant of pltf, with its own noise, or that of the average if several restarts are averaged."""

    def __init__(self, way: ours.Way) -> None:
        self.way, self.name = way, f"pltf, {way.name}"

    def lacks(self) -> str:
        return "" if ours.known(self.way) else "not in this version of pltf"

    def takes(self, one: RealSet) -> bool:
        return self.way.takes(one.links)

    def settings(self, one: RealSet) -> list[Any]:
        return list(product(ours.models(one.load().ndim, self.way), one.ranks, self.way.priors))

    def inside(self, inner: list[Task], setting: Any) -> tuple[float, Dispersion | None]:
        found = [ours.fits(fold, self.way, *setting) for fold in inner]
        around = ours.around_average(found, inner) if self.way.starts > 1 and not self.way.links else None
        said = [ours.log_prob(ours.with_noise(some, around), fold) for some, fold in zip(found, inner, strict=True)]
        return float(np.concatenate(said).mean()), around

    def predict(self, outer: Task, setting: Any, learned: Dispersion | None) -> Predicted:
        return ours.predicted(ours.with_noise(ours.fits(outer, self.way, *setting), learned), outer)


@cache
def tools() -> dict[str, Tool]:
    """All tools, by name."""
    all_tools: list[Tool] = [*map(PeerTool, peers.PEERS), *map(OurTool, ours.WAYS)]
    return {tool.name: tool for tool in all_tools}


def in_turn(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tools that choose their setting, and then those that use the choice of another one."""
    followers = [name for name in names if _leader(name)]
    return [name for name in names if name not in followers], followers


def _leader(name: str) -> str:
    tool = tools()[name]
    return f"pltf, {tool.way.like}" if isinstance(tool, OurTool) and tool.way.like else ""


def leaders(key: Key) -> list[Key]:
    """The tools whose choice a result needs."""
    *place, name = key
    return [(*place, leader)] if (leader := _leader(name)) else []


def _settings(tool: Tool, one: RealSet, settled: Mapping[str, Any]) -> list[Any]:
    """The settings to choose from, given the choices of other tools."""
    if isinstance(tool, OurTool) and tool.way.like:
        return tool.way.following(settled[_leader(tool.name)])
    return tool.settings(one)


def result(one: RealSet, settled: Mapping[Key, Any], level: float, mask: int, name: str) -> Json:
    """The result of a tool on one mask, given the settings that others have chosen."""
    tool = tools()[name]
    outer = task(one.load(), level, mask, links=one.links, quick=one.quick)
    others = {other: setting for (*place, other), setting in settled.items() if place == [level, mask]}
    choice = chosen(tool, _settings(tool, one, others), outer)
    said = tool.predict(outer, choice.setting, choice.learned)
    return {**measured(outer.asked, said), "setting": choice.setting, "inner": choice.value}


@dataclass(frozen=True)
class Choice:
    """A setting, the log-probability of held-back training cells under it, and what was learned from these."""

    setting: Any
    value: float
    learned: Any


def chosen(tool: Tool, settings: Sequence[Any], outer: Task) -> Choice:
    """The setting with the highest probability of held-back training cells."""
    inner = outer.inner()
    tried = (Choice(setting, *tool.inside(inner, setting)) for setting in settings)
    return max(tried, key=lambda choice: choice.value)
