"""Kernels over listed cells of a CP model, sorted by one mode: rows own their sums, and no atomics are needed.

A program processes a chunk, that is some cells of one row of that mode, accumulates the sums of the row in registers
and writes them once. :func:`add_segments` adds the results of the chunks of each row, in a fixed order, in float64.
Offsets into cells and tables are 64 bits wide, so their sizes are not limited.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from pltf.engines.torch.cell_kernels import ratio_of, wide_log_term_of

ONES, COUNTS, LINKS = 0, 1, 2  # what is summed over the cells: the products, or the products times the ratios


@triton.jit
def product_of_others(
    table, positions, stride, cell, seen, r, MODES: tl.constexpr, SKIPPED: tl.constexpr, WIDTH: tl.constexpr
):
    """Product of the rows of all modes except the owned one: (cells, components); 0 outside the valid range."""
    inside = seen[:, None] & (r < WIDTH)[None, :]
    product = tl.where(inside, 1.0, 0.0).to(table.dtype.element_ty)
    for n in tl.static_range(MODES):
        if n != SKIPPED:
            row = tl.load(positions + n * stride + cell, mask=seen, other=0).to(tl.int64)
            product *= tl.load(table + row[:, None] * WIDTH + r[None, :], mask=inside, other=0.0)
    return product


@triton.jit(do_not_specialize=["stride"])
def cp_sums(
    starts,  # (chunks + 1,) first cell of each chunk
    owners,  # (chunks,) table row of each chunk
    positions,  # (MODES, cells) table rows, of all modes but the owned one; or with it, see SKIPPED
    order,  # (cells,) permutation of positions and x; None: identity
    x,  # (cells,) counts; not read for ONES
    table,  # (rows, WIDTH) all factors stacked
    parts,  # (chunks, WIDTH) out: sums of each chunk
    log_terms,  # (chunks,) out, in float64, if LOG
    stride,  # cells
    MODES: tl.constexpr,
    SKIPPED: tl.constexpr,  # -1: none
    WIDTH: tl.constexpr,
    COMPONENTS: tl.constexpr,  # WIDTH, or the next power of two
    CELLS: tl.constexpr,  # processed at a time
    KIND: tl.constexpr,  # ONES, COUNTS or LINKS
    LOG: tl.constexpr,
):
    """Sums over the cells of one chunk: with P the product of the other modes' rows, a its own row, for COUNTS::

    ratio = x / (P @ a)
    parts[chunk] = a * (ratio @ P)
    log_terms[chunk] = -(x * log(ratio)).sum()
    """
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + chunk).to(tl.int64)
    count = (tl.load(starts + chunk + 1).to(tl.int64) - start).to(tl.int32)
    stride = stride.to(tl.int64)
    r, c = tl.arange(0, COMPONENTS), tl.arange(0, CELLS)
    own = tl.load(owners + chunk).to(tl.int64) * WIDTH + r
    a = tl.load(table + own, mask=r < WIDTH, other=0.0)
    sums = tl.zeros((CELLS, COMPONENTS), table.dtype.element_ty)
    logs = tl.zeros((CELLS,), tl.float64)
    for first in range(0, count, CELLS):
        seen = first + c < count
        cell = start + first + c
        if order is not None:
            cell = tl.load(order + cell, mask=seen, other=0).to(tl.int64)
        P = product_of_others(table, positions, stride, cell, seen, r, MODES, SKIPPED, WIDTH)
        if KIND == 0:
            sums += P
        else:
            rate = tl.sum(P * a[None, :], axis=1)
            counts = tl.load(x + cell, mask=seen, other=0.0)
            ratio = ratio_of(counts, rate, seen, KIND == 2)
            sums += ratio[:, None] * P
            if LOG:
                logs += wide_log_term_of(counts, rate, ratio, seen, KIND == 2)
    found = tl.sum(sums, axis=0)
    if KIND != 0:
        found *= a
    tl.store(parts + chunk * WIDTH + r, found, mask=r < WIDTH)
    if LOG:
        tl.store(log_terms + chunk, tl.sum(logs, axis=0))


@triton.jit(do_not_specialize=["segments", "stride", "columns"])
def add_segments(
    parts,  # (parts, stride) of any type
    order,  # (parts,) order of the parts of the segments; None: identity
    starts,  # (segments + 1,) first part of each segment
    rows,  # (segments,) distinct rows of the sums; None: row s for segment s
    sums,  # (rows, columns) of float64, added to
    segments,
    stride,
    columns,
    SEGMENTS: tl.constexpr,  # per program
    COLUMNS: tl.constexpr,  # per program
):
    """``sums[rows[s]] += parts[order[starts[s]:starts[s + 1]]].sum(axis=0)``, in this order, for some segments."""
    s = tl.program_id(0).to(tl.int64) * SEGMENTS + tl.arange(0, SEGMENTS)
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside, held = s < segments, k < columns
    start = tl.load(starts + s, mask=inside, other=0).to(tl.int64)
    count = (tl.load(starts + s + 1, mask=inside, other=0).to(tl.int64) - start).to(tl.int32)
    found = tl.zeros((SEGMENTS, COLUMNS), tl.float64)
    for n in range(0, tl.max(count, axis=0)):
        seen = n < count
        part = start + n
        if order is not None:
            part = tl.load(order + part, mask=seen, other=0).to(tl.int64)
        both = seen[:, None] & held[None, :]
        found += tl.load(parts + part[:, None] * stride + k[None, :], mask=both, other=0.0).to(tl.float64)
    row = s
    if rows is not None:
        row = tl.load(rows + s, mask=inside, other=0).to(tl.int64)
    at = sums + row[:, None] * columns + k[None, :]
    both = inside[:, None] & held[None, :]
    tl.store(at, tl.load(at, mask=both, other=0.0) + found, mask=both)
