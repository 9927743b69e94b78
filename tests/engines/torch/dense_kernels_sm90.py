"""The kernels over the cells of a table, as they are compiled for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.torch.dense_kernels import add_parts, table_counts
from pltf.engines.torch.fused import BLOCK, ENTRIES, MASK_TERMS, PARTS, SIDE, WARPS, WORDS, Tiles
from pltf.engines.torch.mask_kernels import mask_sums, pack_mask
from pltf.engines.torch.side_kernels import finish_side, log_term, round_side

Asked = tuple[Any, dict[str, str], dict[str, Any], int, int, tuple[str, ...]]
_GPU = Device("cuda:0", kernels=True)
_NUMBERS = {"float32": "fp32", "float64": "fp64"}


def _terms(bond: int) -> int:
    return max(16, 1 << (bond - 1).bit_length())


def _counts(dtype: str, bond: int, values: str = "", links: bool = False) -> Asked:
    """All sums and the log term."""
    number, tiles = _NUMBERS[dtype], Tiles.of(np.dtype(dtype), _GPU)
    arrays = {"X": values or number, "H": number, "C": number, "G": number, "S": number, "sums": "fp64"}
    types = {name: f"*{kind}" for name, kind in arrays.items()}
    types |= dict.fromkeys(("rows", "width", "tiles"), "i32")
    constants = {"BOND": bond, "TERMS": _terms(bond), "ROWS": tiles.rows, "COLUMNS": tiles.columns, "LINKS": links}
    constants |= {"LOG": True, "TO_ROWS": True, "TO_COLUMNS": True, "NATIVE": True}
    return table_counts, types, constants, WARPS, tiles.stages, (*arrays, "width")


def _packing(along: str) -> Asked:
    """Bits of a mask whose cells lie next to each other along one side."""
    types = {"mask": "*u8", "packed": "*i32"} | dict.fromkeys(("outer", "inner", "blocks"), "i32")
    across = {"inner": "outer", "outer": "inner"}[along]
    constants = {f"mask_{along}": 1, "OUTER": Tiles().mask_outer, "WORDS": WORDS, "BITS": 32}
    return pack_mask, types | {f"mask_{across}": "i32"}, constants, WARPS, 3, ("mask", "packed", f"mask_{across}")


def _mask(bond: int, to_rows: bool, bits: int = 32) -> Asked:
    """Exposures of the rows, or of the columns."""
    types = {"packed": {8: "*u8", 32: "*i32"}[bits], "W": "*fp64", "out": "*fp64"}
    types |= dict.fromkeys(("outer", "inner", "blocks", "bond", "w_term" if to_rows else "w_inner"), "i32")
    terms = max(8, 1 << (bond - 1).bit_length())
    tile = Tiles().mask_outer * MASK_TERMS // max(terms, MASK_TERMS)
    constants = {"w_inner" if to_rows else "w_term": 1, "TERMS": terms, "OUTER": tile}
    return mask_sums, types, constants | {"WORDS": WORDS, "BITS": bits}, WARPS, 2, ("packed", "W", "out")


def _rounding(bond: int) -> Asked:
    """Columns, from a node with terms next to each other."""
    types = {"W": "*fp64", "out": "*fp32", "totals": "*fp64", "positions": "i32", "padded": "i32", "bond": "i32"}
    types |= {"w_position": "i32", "out_term": "i32"}
    constants = {"w_term": 1, "out_position": 1, "TERMS": _terms(bond), "NARROW": True}
    constants |= {"POSITIONS": SIDE // _terms(bond)}
    return round_side, types, constants, WARPS, 3, ("W", "out", "totals", "out_term")


def _finishing(bond: int, parts: int) -> Asked:
    """Sums for columns, from one part or several."""
    types = {"parts": "*fp32", "W": "*fp64", "out": "*fp64", "totals": "*fp64"}
    types |= dict.fromkeys(("count", "positions", "bond", "part", "part_term", "w_position", "out_term"), "i32")
    constants = {"part_position": 1, "w_term": 1, "out_position": 1, "TERMS": _terms(bond)}
    constants |= {"POSITIONS": SIDE // (_terms(bond) * parts), "PARTS": parts, "NARROW": True}
    return finish_side, types, constants, WARPS, 3, ("parts", "W", "out", "totals", "part", "part_term")


def _log_term() -> Asked:
    arrays = ("of_cells", "of_rows", "of_columns", "rows_finished", "columns_finished", "out")
    types = dict.fromkeys(arrays, "*fp64")
    types |= dict.fromkeys(("cells", "rows", "columns", "rows_done", "columns_done"), "i32")
    return log_term, types, {"TERMS": 32, "BLOCK": BLOCK}, WARPS, 3, arrays


_PARTS: Asked = (
    add_parts,
    {"parts": "*fp32", "out": "*fp64", "count": "i32", "size": "i32", "each": "i32"},
    {"PARTS": PARTS, "ENTRIES": ENTRIES},
    WARPS,
    3,
    ("parts", "out"),
)
SM90 = {
    "7 terms": _counts("float32", 7),
    "32 terms": _counts("float32", 32),
    "20 terms, links, of bytes": _counts("float32", 20, "u8", links=True),
    "64 terms": _counts("float32", 64),
    "7 terms, float64": _counts("float64", 7),
    "parts": _PARTS,
    "mask, packed along columns": _packing("inner"),
    "mask, packed along rows": _packing("outer"),
    "mask, to rows": _mask(20, to_rows=True),
    "mask, to columns": _mask(7, to_rows=False),
    "mask, bytes": _mask(7, to_rows=False, bits=8),
    "mask, 64 terms": _mask(64, to_rows=False),
    "mask, 128 terms": _mask(128, to_rows=True),
    "rounding": _rounding(7),
    "finishing": _finishing(7, 1),
    "finishing parts": _finishing(20, PARTS),
    "log term": _log_term(),
}
