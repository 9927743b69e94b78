"""Kernels over factors and the sides of a table, H (rows, bond) and C (bond, columns): each reads them once.

A side has positions (rows or columns) and terms. Its strides say where they are, so that no side is transposed. With
PyTorch's operations, rounding a side, padding it, and correcting its sums for rounding would read it some twenty times.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["positions", "padded", "bond"])
def round_side(
    W,  # a side, in float64
    out,  # the same, rounded, and padded with zeros
    totals,  # (programs, TERMS) out, in float64, if NARROW: sums of the rounded numbers
    positions,
    padded,  # positions of ``out``
    bond,
    w_position,
    w_term,
    out_position,
    out_term,
    TERMS: tl.constexpr,
    POSITIONS: tl.constexpr,  # per program
    NARROW: tl.constexpr,  # whether ``out`` is float32
):
    """A side as ``table_counts`` reads it."""
    program = tl.program_id(0).to(tl.int64)
    at, term = program * POSITIONS + tl.arange(0, POSITIONS), tl.arange(0, TERMS)
    real = (at < positions)[:, None] & (term < bond)[None, :]
    exact = tl.load(W + at[:, None] * w_position + term[None, :] * w_term, mask=real, other=0.0)
    rounded = exact.to(out.dtype.element_ty)
    own = out + at[:, None] * out_position + term[None, :] * out_term
    tl.store(own, rounded, mask=(at < padded)[:, None])
    if NARROW:
        tl.store(totals + program * TERMS + term, tl.sum(rounded.to(tl.float64), axis=0))


@triton.jit
def _cast_loss(exact):
    """log(exact / rounded) for rounding to float32; 0 where that gives 0."""
    rounded = exact.to(tl.float32).to(tl.float64)
    return tl.log(tl.where(rounded > 0, exact / tl.where(rounded > 0, rounded, 1.0), 1.0))


@triton.jit
def cast_loss(counts, L, sums, n, BLOCK: tl.constexpr):
    """The sum of counts * log(L / rounded L) of each program over a factor."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    N, exact = tl.load(counts + at, mask=at < n, other=0.0), tl.load(L + at, mask=at < n, other=1.0)
    tl.store(sums + tl.program_id(0), tl.sum(N * _cast_loss(exact), axis=0))


@triton.jit(do_not_specialize=["count", "positions", "bond"])
def finish_side(
    parts,  # partial sums, of any type
    W,  # the side, in float64
    out,  # their totals, in float64
    totals,  # (2, programs) out, in float64, if NARROW
    count,  # number of parts
    positions,
    bond,
    part,  # stride of the parts
    part_position,
    part_term,
    w_position,
    w_term,
    out_position,
    out_term,
    TERMS: tl.constexpr,
    POSITIONS: tl.constexpr,  # per program
    PARTS: tl.constexpr,  # added at a time
    NARROW: tl.constexpr,  # whether the rates were computed with a side rounded to float32
):
    """The sums for a side, and for each program, of its expected counts N = sums * W::

    totals[0] = N.sum()
    totals[1] = (N * log(W / rounded)).sum()
    """
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    at, term = program * POSITIONS + tl.arange(0, POSITIONS), tl.arange(0, TERMS)
    real = (at < positions)[:, None] & (term < bond)[None, :]
    own = parts + (at[:, None] * part_position + term[None, :] * part_term)[None, :, :]
    sums = tl.zeros((POSITIONS, TERMS), tl.float64)
    for first in range(0, count, PARTS):
        n = first + tl.arange(0, PARTS)
        here = (n < count)[:, None, None] & real[None, :, :]
        found = tl.load(own + n.to(tl.int64)[:, None, None] * part, mask=here, other=0.0)
        sums += tl.sum(found.to(tl.float64), axis=0)
    tl.store(out + at[:, None] * out_position + term[None, :] * out_term, sums, mask=real)
    if NARROW:
        exact = tl.load(W + at[:, None] * w_position + term[None, :] * w_term, mask=real, other=0.0)
        N = sums * exact
        tl.store(totals + program, tl.sum(tl.sum(N, axis=1), axis=0))
        tl.store(totals + programs + program, tl.sum(tl.sum(N * _cast_loss(exact), axis=1), axis=0))


@triton.jit
def _total(numbers, count, BLOCK: tl.constexpr):
    """Sum of some numbers, in a fixed order."""
    total = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(numbers + at, mask=at < count, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit
def _totals(numbers, count, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums over the rows of (count, TERMS) numbers."""
    ROWS: tl.constexpr = BLOCK // TERMS
    total, term = tl.zeros((ROWS, TERMS), tl.float64), tl.arange(0, TERMS)
    for first in range(0, count, ROWS):
        at = first + tl.arange(0, ROWS)
        total += tl.load(numbers + at[:, None] * TERMS + term[None, :], mask=(at < count)[:, None], other=0.0)
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["cells", "rows", "columns", "rows_done", "columns_done"])
def log_term(
    of_cells,  # (2, cells) of table_counts: log terms, and sums of the rates
    of_rows,  # (rows, TERMS) of round_side
    of_columns,  # (columns, TERMS), likewise
    rows_finished,  # (2, rows_done) of finish_side
    columns_finished,  # (2, columns_done), likewise
    out,  # one number
    cells,
    rows,
    columns,
    rows_done,
    columns_done,
    TERMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The log term, corrected for the rounding of both sides, and for rates that tensor cores truncate.

    Truncation takes nearly the same share of all rates: it is measured by their sum, which is known.
    """
    logs, rates = _total(of_cells, cells, BLOCK), _total(of_cells + cells, cells, BLOCK)
    exact = tl.sum(_totals(of_rows, rows, TERMS, BLOCK) * _totals(of_columns, columns, TERMS, BLOCK), axis=0)
    lost = _total(rows_finished, rows_done, BLOCK) * tl.log(exact / rates)
    lost += _total(rows_finished + rows_done, rows_done, BLOCK)
    lost += _total(columns_finished + columns_done, columns_done, BLOCK)
    finite = (tl.abs(logs) < float("inf")) & (tl.abs(lost) < float("inf"))
    tl.store(out, tl.where(finite, logs + lost, logs))
