"""Kernels over the cells of a table, X (rows, columns) with the rates H (rows, bond) @ C (bond, columns).

A program processes a block of columns and iterates over the rows of its group, one tile of cells at a time. It
accumulates the sums for its columns, and writes those of every row for its block. Both are partial sums, which PyTorch
adds in float64 and in a fixed order, so no atomics are needed.

float32 products run on tensor cores, which multiply 8-bit numbers exactly (bfloat16) and add in float32. A float32 is
the sum of three such numbers, and six of the nine products of two of them give full float32 precision. Tensor cores
truncate instead of rounding: kernels also sum the rates, to measure the total loss.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

import triton
import triton.language as tl

from pltf.engines.torch.cell_kernels import log_parts, log_term_of, quick_ratio_of, ratio_of


@triton.jit
def _top(x):
    """The first 8 of the 24 bits of a float32, truncated."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _narrow(x):
    """A float32 with 8 significant bits as bfloat16, which is its upper half."""
    return (x.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def split(x, NATIVE: tl.constexpr):
    """Split a float32 into three 8-bit numbers (bfloat16 on tensor cores); float64 stays unchanged."""
    if x.dtype == tl.float32:
        first = _top(x)
        rest = x - first
        second = _top(rest)
        if NATIVE:
            return _narrow(first), _narrow(second), _narrow(rest - second)
        else:
            return first, second, rest - second
    else:
        return x, x, x


@triton.jit
def turned(a):
    """The transposes of three matrices."""
    return tl.trans(a[0]), tl.trans(a[1]), tl.trans(a[2])


@triton.jit
def product(a, b):
    """a @ b of two split matrices; small parts are added first."""
    if a[0].dtype == tl.float64:
        return tl.dot(a[0], b[0], input_precision="ieee", out_dtype=tl.float64)
    else:
        sums = tl.dot(a[2], b[0], input_precision="ieee")
        sums = tl.dot(a[0], b[2], sums, input_precision="ieee")
        sums = tl.dot(a[1], b[1], sums, input_precision="ieee")
        sums = tl.dot(a[1], b[0], sums, input_precision="ieee")
        sums = tl.dot(a[0], b[1], sums, input_precision="ieee")
        return tl.dot(a[0], b[0], sums, input_precision="ieee")


@triton.jit
def _log_terms(x, rate, ratio, LINKS: tl.constexpr):
    """Contribution of each row of a tile to the log term, in float64."""
    if x.dtype == tl.float64:
        return tl.sum(log_term_of(x, rate, ratio, LINKS), axis=1)
    else:
        powers, rest = log_parts(ratio)
        linked = tl.where(x > 0, rate, 0.0) if LINKS else x * 0
        # Powers are scaled by 2^23, hence log(2) / 2^23.
        logs = tl.sum(x * powers, axis=1).to(tl.float64) * 8.262958294867817e-08
        return tl.sum(linked - x * rest, axis=1).to(tl.float64) - logs


@triton.jit(do_not_specialize=["rows", "tiles"])
def table_counts(
    X,  # (rows, width) counts; rows are padded with zeros to whole blocks
    H,  # (tiles, TERMS) of rows, padded with zeros
    C,  # (TERMS, width), likewise
    G,  # (blocks, rows, BOND) out, if TO_ROWS
    S,  # (groups, BOND, width) out, if TO_COLUMNS
    sums,  # (2, programs) out, in float64, if LOG: log terms and sums of the rates
    rows,
    width,  # of X, C and S, of which these may be some blocks
    tiles,  # per group of rows
    BOND: tl.constexpr,
    TERMS: tl.constexpr,  # BOND, or the next power of two, at least 16
    ROWS: tl.constexpr,  # per tile
    COLUMNS: tl.constexpr,  # per block
    LINKS: tl.constexpr,
    LOG: tl.constexpr,
    TO_ROWS: tl.constexpr,
    TO_COLUMNS: tl.constexpr,
    NATIVE: tl.constexpr,  # whether this is compiled for a GPU with tensor cores
):
    """Ratios and their sums: for each block of columns and each group of rows::

    ratio = X / (H @ C)
    G[block] = ratio @ C.T
    S[group] = H.T @ ratio
    sums[:, program] = -(X * log(ratio)).sum(), (H @ C).sum()
    """
    block, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dtype = C.dtype.element_ty
    n = block * COLUMNS + tl.arange(0, COLUMNS)
    term = tl.arange(0, TERMS)
    real = term < BOND
    c = split(tl.load(C + term[:, None] * width.to(tl.int64) + n[None, :]), NATIVE)
    to_columns = tl.zeros((COLUMNS, TERMS), dtype)
    logs, rates = tl.zeros((ROWS,), tl.float64), tl.zeros((ROWS,), tl.float64)
    above = H + group.to(tl.int64) * tiles * (ROWS * TERMS)  # of a tile: offsets from there fit into 32 bits
    for tile in range(group * tiles, (group + 1) * tiles):
        m = tile * ROWS + tl.arange(0, ROWS)
        inside = (m < rows)[:, None]
        x = tl.load(X + m[:, None].to(tl.int64) * width + n[None, :], mask=inside, other=0).to(dtype)
        h = split(tl.load(above + tl.arange(0, ROWS)[:, None] * TERMS + term[None, :]), NATIVE)
        above += ROWS * TERMS
        rate = product(h, c)
        ratio = quick_ratio_of(x, rate, LINKS, NATIVE) if dtype == tl.float32 else ratio_of(x, rate, inside, LINKS)
        if LOG:
            logs += _log_terms(x, rate, ratio, LINKS)
            rates += tl.sum(rate, axis=1).to(tl.float64)
        shares = split(ratio, NATIVE)
        if TO_ROWS:
            own = G + (block * rows + m[:, None]) * BOND + term[None, :]
            tl.store(own, product(shares, turned(c)), mask=inside & real[None, :])
        if TO_COLUMNS:
            to_columns += product(turned(shares), h)
    if TO_COLUMNS:
        own = S + (group.to(tl.int64) * BOND + term[None, :]) * width.to(tl.int64) + n[:, None]
        tl.store(own, to_columns, mask=real[None, :])
    if LOG:
        program = group * tl.num_programs(0) + block
        tl.store(sums + program, tl.sum(logs, axis=0))
        tl.store(sums + tl.num_programs(0).to(tl.int64) * tl.num_programs(1) + program, tl.sum(rates, axis=0))


@triton.jit(do_not_specialize=["count", "each"])
def add_parts(
    parts,  # (count, size)
    out,  # (groups, size), in float64
    count,
    size,
    each,  # parts per group
    PARTS: tl.constexpr,  # added at a time
    ENTRIES: tl.constexpr,  # per program
):
    """Sums of groups of parts: PyTorch would first convert all parts to float64."""
    group = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    stop = tl.minimum((group + 1) * each, count)
    total = tl.zeros((ENTRIES,), tl.float64)
    for first in range(group * each, stop, PARTS):
        part = first + tl.arange(0, PARTS)
        here = (part < stop)[:, None] & (at < size)[None, :]
        total += tl.sum(
            tl.load(parts + part[:, None] * size + at[None, :], mask=here, other=0.0).to(tl.float64), axis=0
        )
    tl.store(out + group * size + at, total, mask=at < size)
