"""The kernels over the cells of a table, as they are compiled for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.torch.dense_kernels import add_parts, mask_sums, table_counts
from pltf.engines.torch.fused import ENTRIES, PARTS, WARPS, Tiles

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
    types |= dict.fromkeys(("rows", "width", "columns", "tiles"), "i32")
    constants = {"BOND": bond, "TERMS": _terms(bond), "ROWS": tiles.rows, "COLUMNS": tiles.columns, "LINKS": links}
    constants |= {"LOG": True, "TO_ROWS": True, "TO_COLUMNS": True, "NATIVE": True}
    return table_counts, types, constants, WARPS, tiles.stages, (*arrays, "width", "columns")


def _mask(bond: int, to_rows: bool) -> Asked:
    """Exposures of the rows, or of the columns."""
    types = {"mask": "*u8", "W": "*fp64", "out": "*fp64"} | dict.fromkeys(("outer", "inner", "tiles"), "i32")
    along, across = ("inner", "outer") if to_rows else ("outer", "inner")
    types |= {f"mask_{across}": "i32", "w_term" if to_rows else "w_inner": "i32"}
    constants = {f"mask_{along}": 1, "w_inner" if to_rows else "w_term": 1, "BOND": bond, "TERMS": _terms(bond)}
    constants |= {"OUTER": Tiles().mask_outer, "INNER": Tiles().mask_inner}
    return mask_sums, types, constants, WARPS, 3, ("mask", "W", "out", f"mask_{across}")


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
    "mask, to rows": _mask(20, to_rows=True),
    "mask, to columns": _mask(7, to_rows=False),
}
