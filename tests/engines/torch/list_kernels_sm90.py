"""The kernels over listed cells, as they are compiled for a GPU, in sizes that take most."""

from __future__ import annotations

from typing import Any

import numpy as np

from pltf.engines.torch import allocation_kernels, joint_kernels, listed_kernels
from pltf.engines.torch.cp_passes import DRAWN, drawing_tile, tile
from pltf.engines.torch.draws import ROWS
from pltf.engines.torch.joint_kernels import ONLY, OWNER
from pltf.engines.torch.joint_passes import joint_tile
from pltf.engines.torch.listed_kernels import COUNTS, LINKS, ONES
from pltf.engines.torch.sums import TILE

Asked = tuple[Any, dict[str, str], dict[str, Any], int, int, tuple[str, ...]]
STAGES = 3  # Triton's default
POINTERS = {"float32": "*fp32", "float64": "*fp64"}
LISTS = {"starts": "*i32", "owners": "*i32", "positions": "*i32", "order": "*i32"}


def _asked(kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int) -> Asked:
    """Arrays begin at multiples of 16 bytes, as those of PyTorch do."""
    types = {name: kind for name, kind in types.items() if name not in constants}
    return kernel, types, constants, warps, STAGES, tuple(name for name, kind in types.items() if kind.startswith("*"))


def _sums(rank: int, dtype: str, kind: int, *, modes: int = 3, permuted: bool = False) -> Asked:
    of = POINTERS[dtype]
    types = {**LISTS, "x": of, "table": of, "parts": of, "log_terms": "*fp64", "stride": "i64"}
    chosen = tile(rank, np.dtype(dtype))
    constants: dict[str, Any] = {name: size for name, size in chosen.items() if name != "num_warps"}
    constants |= {"MODES": modes if permuted else modes - 1, "SKIPPED": 0 if permuted else -1, "KIND": kind}
    constants |= {"LOG": kind != ONES} | ({} if permuted else {"order": None}) | ({"x": None} if kind == ONES else {})
    return _asked(listed_kernels.cp_sums, types, constants, chosen["num_warps"])


def _joint(
    slots: tuple[int, ...], kept: int, latent: int, dtype: str, kind: int, *, permuted: bool = False, log: bool = True
) -> Asked:
    """The first factor is wanted."""
    of = POINTERS[dtype]
    types = {**LISTS, "x": of, "table": of, "bases": "*i64", "columns": "*i32", "offsets": "*i32"}
    types |= {"members": "*i32", "parts": of, "log_terms": "*fp64", "stride": "i64", "latent": "i32", "kept": "i32"}
    constants: dict[str, Any] = joint_tile(latent, kept, np.dtype(dtype).itemsize)
    warps = constants.pop("num_warps")
    constants |= {"SLOTS": slots, "WANTED": 0, "KIND": kind, "LOG": log and kind != ONES}
    constants |= ({} if permuted else {"order": None}) | ({"x": None} if kind == ONES else {})
    return _asked(joint_kernels.joint_sums, types, constants, warps)


def _draws(rank: int, *, links: bool, many: bool = True) -> Asked:
    types = {**LISTS, "x": "*fp32", "table": "*fp64", "parts": "*fp64", "log_terms": "*fp64", "seeds": "*i64"}
    constants: dict[str, Any] = {"order": None, "MODES": 2, "SKIPPED": -1, "LINKS": links, "MANY": many}
    constants |= drawing_tile(rank)
    warps = constants.pop("num_warps")
    return _asked(allocation_kernels.cp_draws, {**types, "stride": "i64", "R": "i32"}, constants, warps)


def _segments(columns: int, dtype: str, *, ordered: bool) -> Asked:
    types = {"parts": POINTERS[dtype], "order": "*i32", "starts": "*i32", "rows": "*i32", "sums": "*fp64"}
    types |= {"segments": "i64", "stride": "i64", "columns": "i32"}
    constants: dict[str, Any] = {"SEGMENTS": TILE // columns, "COLUMNS": columns} | ({} if ordered else {"order": None})
    return _asked(listed_kernels.add_segments, types, constants, 1)


def _split_rows() -> Asked:
    types = {"counts": "*fp64", "weights": "*fp64", "drawn": "*fp64", "seeds": "*i64", "rows": "i64", "terms": "i32"}
    return _asked(allocation_kernels.split_rows, types, {"ROWS": ROWS}, 1)


def _draw_links() -> Asked:
    types = {"x": "*fp64", "rates": "*fp64", "drawn": "*fp64", "seeds": "*i64", "cells": "i64"}
    return _asked(allocation_kernels.draw_links, types, {"CELLS": DRAWN}, 1)


UBER, TUCKER, CORE = (OWNER, 0, 1, 2, 3), (OWNER, 0, 1, ONLY), (OWNER, 0, 1, 2)
SM90 = {
    "joint, wr,hr,dr,ikr,jkr->whdij, R=10, K=6, wr": _joint(UBER, 10, 60, "float32", COUNTS),
    "joint, wr,hr,dr,ikr,jkr->whdij, R=10, K=6, ikr": _joint(UBER, 60, 60, "float32", COUNTS, log=False),
    "joint, wr,hr,dr,ikr,jkr->whdij, R=10, K=6, ones": _joint(UBER, 10, 60, "float64", ONES),
    "joint, wr,hr,dr,ikr,jkr->whdij, R=10, K=6, float64, links": _joint(UBER, 10, 60, "float64", LINKS),
    "joint, permuted": _joint(UBER, 10, 60, "float32", COUNTS, permuted=True),
    "joint, Tucker of ranks 5": _joint(TUCKER, 5, 125, "float32", COUNTS),
    "joint, Tucker of ranks 10": _joint(TUCKER, 10, 1000, "float32", COUNTS),
    "joint, Tucker of ranks 10, core": _joint(CORE, 1000, 1000, "float32", COUNTS),
    "joint, Tucker of ranks 10, float64, links": _joint(TUCKER, 10, 1000, "float64", LINKS),
    "joint, Tucker of ranks 10, core, float64": _joint(CORE, 1000, 1000, "float64", COUNTS),
    "joint, ir,jr,ij,kr->ijk, R=20": _joint((OWNER, 0, 1, 2), 20, 20, "float32", COUNTS),
    "joint, one latent position": _joint((OWNER, 0, 1), 1, 1, "float32", COUNTS),
    "joint, six factors, 512": _joint((OWNER, 0, 1, 2, 3, 4), 8, 512, "float32", COUNTS),
    "joint, six factors, 1024": _joint((OWNER, 0, 1, 2, 3, 4), 32, 1024, "float32", COUNTS),
    "joint, six factors, 1024, float64": _joint((OWNER, 0, 1, 2, 3, 4), 32, 1024, "float64", LINKS),
    **{f"sums, R={rank}": _sums(rank, "float32", COUNTS) for rank in (3, 20, 32, 128, 1024)},
    "sums, links": _sums(20, "float32", LINKS, modes=2),
    "sums, float64": _sums(32, "float64", LINKS, modes=5),
    "sums, float64, R=1024": _sums(1024, "float64", COUNTS),
    "sums, ones": _sums(20, "float64", ONES),
    "sums, permuted": _sums(20, "float32", COUNTS, permuted=True),
    "draws": _draws(20, links=False),
    "draws, few counts": _draws(20, links=False, many=False),
    "draws, links": _draws(128, links=True),
    "segments": _segments(32, "float32", ordered=False),
    "segments, ordered": _segments(256, "float64", ordered=True),
    "rows split": _split_rows(),
    "links drawn": _draw_links(),
}
