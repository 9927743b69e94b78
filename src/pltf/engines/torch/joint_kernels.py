"""Kernel over listed cells of any equation, sorted by the rows of one factor: all latent indices are one joint axis.

A factor is a table in an array of all tables. Its value for a cell at joint position j is in the row of the cell, at
the column ``offsets[factor, j]``. As in ``listed_kernels.py``, a program processes a chunk of cells of one row,
accumulates its sums in registers and writes them once. Offsets into cells and tables are 64 bits wide.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from pltf.engines.torch.cell_kernels import ratio_of, wide_log_term_of

OWNER, ONLY = -1, -2  # a factor's rows: that of the chunk; row 0. Otherwise: which of the positions


@triton.jit
def start_of(table, bases, columns, n, row):
    """Start of rows of the n-th table."""
    return table + tl.load(bases + n) + row * tl.load(columns + n).to(tl.int64)


@triton.jit
def entries_along(table, bases, columns, offsets, owner, j, n, SLOT: tl.constexpr):
    """Entries of the n-th factor along the joint axis, if all cells of the chunk have the same: (joint axis,)."""
    row = owner if SLOT == -1 else owner * 0
    return tl.load(start_of(table, bases, columns, n, row) + tl.load(offsets + j))


@triton.jit(do_not_specialize=["stride", "latent", "kept"])
def joint_sums(
    starts,  # (chunks + 1,) first cell of each chunk
    owners,  # (chunks,) row of each chunk
    positions,  # (rows of a cell, cells)
    order,  # (cells,) permutation of positions and x; None: identity
    x,  # (cells,) counts; not read for ONES
    table,  # all tables, end to end
    bases,  # (factors,) start of row 0 of each table
    columns,  # (factors,)
    offsets,  # (factors, JOINT) column of each table along the joint axis
    members,  # (KEPT, REST) joint positions of the wanted factor's columns, filled up with -1; not read if REST is 1
    parts,  # (chunks, kept) out: sums of each chunk
    log_terms,  # (chunks,) out, in float64, if LOG
    stride,  # cells
    latent,  # length of the joint axis
    kept,  # columns of the wanted factor
    SLOTS: tl.constexpr,  # for each factor OWNER, ONLY, or which of the positions are its rows
    WANTED: tl.constexpr,  # number of the wanted factor
    JOINT: tl.constexpr,  # power of two
    KEPT: tl.constexpr,  # power of two
    REST: tl.constexpr,  # the power of two for latent // kept
    CELLS: tl.constexpr,  # processed at a time
    KIND: tl.constexpr,  # ONES, COUNTS or LINKS
    LOG: tl.constexpr,
):
    """Sums over the cells of one chunk: with P the product of the other factors, a the wanted one, for COUNTS::

    ratio = x / (P @ a)
    parts[chunk] = (ratio @ P) summed over the latent indices that the wanted factor does not have
    log_terms[chunk] = -(x * log(ratio)).sum()
    """
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + chunk).to(tl.int64)
    count = (tl.load(starts + chunk + 1).to(tl.int64) - start).to(tl.int32)
    owner = tl.load(owners + chunk).to(tl.int64)
    stride = stride.to(tl.int64)
    j, c = tl.arange(0, JOINT), tl.arange(0, CELLS)
    same = tl.where(j < latent, 1.0, 0.0).to(table.dtype.element_ty)  # the part of P that all cells share
    for n in tl.static_range(len(SLOTS)):
        if n != WANTED and SLOTS[n] < 0:
            same *= entries_along(table, bases, columns, offsets + n * JOINT, owner, j, n, SLOTS[n])
    a = same * entries_along(table, bases, columns, offsets + WANTED * JOINT, owner, j, WANTED, SLOTS[WANTED])
    sums = tl.zeros((CELLS, JOINT), table.dtype.element_ty)
    logs = tl.zeros((CELLS,), tl.float64)
    for first in range(0, count, CELLS):
        seen = first + c < count
        cell = start + tl.minimum(first + c, count - 1)  # repeated at the end, with a ratio of zero
        if order is not None:
            cell = tl.load(order + cell).to(tl.int64)
        P = tl.full((CELLS, JOINT), 1.0, table.dtype.element_ty)
        for n in tl.static_range(len(SLOTS)):
            if SLOTS[n] >= 0:
                row = tl.load(positions + SLOTS[n] * stride + cell).to(tl.int64)
                at = start_of(table, bases, columns, n, row)[:, None] + tl.load(offsets + n * JOINT + j)[None, :]
                # In one dimension: of two, Triton 3.6 would give the threads of a warp to the cells.
                P *= tl.reshape(tl.load(tl.reshape(at, (CELLS * JOINT,))), (CELLS, JOINT))
        if KIND == 0:
            ratio = tl.where(seen, 1.0, 0.0).to(table.dtype.element_ty)
        else:
            rate = tl.sum(P * a[None, :], axis=1)
            counts = tl.where(seen, tl.load(x + cell), 0.0)
            ratio = ratio_of(counts, rate, seen, KIND == 2)
            if LOG:
                logs += wide_log_term_of(counts, rate, ratio, seen, KIND == 2)
        sums += ratio[:, None] * P
    found = tl.sum(sums, axis=0) * same
    if REST == 1:
        tl.store(parts + chunk * kept + tl.load(offsets + WANTED * JOINT + j), found, mask=j < latent)
    else:
        k, at = tl.arange(0, KEPT), tl.load(members + tl.arange(0, KEPT * REST))
        each = tl.where(at < 0, 0.0, tl.gather(found, tl.maximum(at, 0), 0))
        tl.store(parts + chunk * kept + k, tl.sum(tl.reshape(each, (KEPT, REST)), axis=1), mask=k < kept)
    if LOG:
        tl.store(log_terms + chunk, tl.sum(logs, axis=0))
