"""Performance targets of pltf, relative to a peer or to the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.peers import READ

DATA = "memory of the data"
BUSY = 0.2  # cores kept busy by others, from which a time is not to be trusted
Found = Mapping[tuple[str, str], Mapping[str, float] | None]  # by problem and contender


@dataclass(frozen=True)
class Target:
    """A ratio: at least so much of the time of ``against`` by that of pltf or, ``most``, at most the other way."""

    problem: str
    ours: str
    against: str  # a contender, or the data
    wanted: float
    most: bool = False

    def ratio(self, found: Found) -> float | None:
        """The measured ratio; None if one side is missing."""
        ours, theirs = found.get((self.problem, self.ours)), found.get((self.problem, self.against))
        if ours is None:
            return None
        if self.against == DATA:
            return (ours["data_mb"] + ours["above_mb"]) / ours["data_mb"]
        if theirs is None:
            return None
        times = ours["fastest"] / theirs["fastest"]
        return times if self.most else 1 / times

    def met(self, ratio: float) -> bool:
        return ratio <= self.wanted if self.most else ratio >= self.wanted

    def disturbed(self, found: Found) -> bool:
        """Whether other programs kept the machine busy while one side was timed."""
        sides = [found.get((self.problem, name)) for name in (self.ours, self.against)]
        return self.against != DATA and any(side is not None and side["others"] > BUSY for side in sides)


TARGETS = (
    Target("cp-50-masked", "pltf vb", "pyttb cp_apr mu", 10),
    Target("cp-500", "pltf vb f32", READ, 8, most=True),
    Target("cp-500", "pltf vb f32", DATA, 1.1, most=True),
    Target("nmf-2000", "pltf em f32", "scikit-learn mu f32", 1),
    Target("nmf-2000", "pltf em f32", "torchnmf f32", 1),
    Target("cp-sparse", "pltf vb", "pyttb cp_apr mu", 30),
    Target("cp-sparse", "pltf vb f32", "pyttb cp_apr mu", 30),
    Target("nmf-sparse", "pltf vb", "scikit-learn mu", 8),
    Target("nmf-sparse", "pltf vb f32", "scikit-learn mu f32", 8),
    Target("nmf-sparse", "pltf vb", "hpfrec", 12),
    Target("nmf-sparse", "pltf vb f32", "hpfrec f32", 12),
)
