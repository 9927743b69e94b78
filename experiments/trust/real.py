"""Hidden cells of real data: every tool on the same masks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pltf
from experiments.common import Json, console
from experiments.trust import sets
from experiments.trust.contest import in_turn, leaders, result, tools
from experiments.trust.sets import RealSet
from experiments.trust.store import Key, Store, complete


def run(store: Store, quick: bool, masks: int) -> Json:
    """The five data sets."""
    return _contest(store, sets.SMALL[:-1] if quick else sets.SETS, masks)


def run_links(store: Store, quick: bool, masks: int) -> Json:
    """UCLAF."""
    return _contest(store, sets.SMALL[-1:] if quick else [sets.UCLAF], masks)


def _contest(store: Store, some: Iterable[RealSet], number: int) -> Json:
    """A row for every data set, level and tool, with the measures of each mask; and the tools that could not run."""
    absent = {name: tool.lacks() for name, tool in tools().items() if tool.lacks()}
    rows: list[Json] = []
    for one in some:
        try:
            X = one.load()
        except (ImportError, pltf.PltfError) as error:
            console.print(f"  {one.name} is left out: {error}")
            continue
        names = [name for name, tool in tools().items() if name not in absent and tool.takes(one)]
        found: dict[Key, Json] = {}
        for group in in_turn(names):
            settled = {key: done["setting"] for key, done in found.items()}
            keys = [(level, mask, name) for mask in range(number) for level in one.levels for name in group]
            keys = [key for key in keys if set(leaders(key)) <= set(settled)]
            found |= complete(store.part(one.name), one.name, partial(result, one, settled), keys)
        about = {"set": one.name, "about": one.about, "shape": list(X.shape), "links": one.links}
        for level in one.levels:
            done = [mask for mask in range(number) if all((level, mask, name) in found for name in names)]
            for name in names if done else ():
                masks = [found[level, mask, name] for mask in done]
                rows.append({**about, "level": level, "tool": name, "masks": masks})
    return {"rows": rows, "absent": absent}
