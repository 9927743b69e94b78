"""Kernels over the mask of a table, as bits: exposures are its products with the sides of the table, in float64.

A word has the bits of positions that are ``WORDS`` apart: bit k of word w of a block is position ``k * WORDS + w`` of
this block. So the same bit of all words is a tile of neighbours, which tensor cores multiply by the weights of these.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["outer", "inner", "blocks"])
def pack_mask(
    mask,  # bytes: position (o, i) is at o * mask_outer + i * mask_inner
    packed,  # (blocks, outer, WORDS) of int32 or uint8, out
    outer,
    inner,
    blocks,  # of inner positions: there may be more than a GPU allows along a second axis of programs
    mask_outer,
    mask_inner,
    OUTER: tl.constexpr,  # positions per program
    WORDS: tl.constexpr,
    BITS: tl.constexpr,
):
    """The bits of one block of inner positions, for some outer ones."""
    program = tl.program_id(0).to(tl.int64)
    o = program // blocks * OUTER + tl.arange(0, OUTER)
    block, w = program % blocks, tl.arange(0, WORDS)
    there = (o < outer)[:, None]
    found = tl.zeros((OUTER, WORDS), tl.int32)
    for bit in range(BITS):
        i = (block * BITS + bit) * WORDS + w
        cells = mask + o[:, None] * mask_outer + i[None, :] * mask_inner
        seen = tl.load(cells, mask=there & (i < inner)[None, :], other=0) > 0
        found |= seen.to(tl.int32) << bit
    tl.store(packed + (block * outer + o[:, None]) * WORDS + w[None, :], found.to(packed.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["outer", "inner", "blocks", "bond"])
def mask_sums(
    packed,  # (all blocks, outer, WORDS) of int32 or uint8
    W,  # float64, at i * w_inner + term * w_term
    out,  # (groups, outer, bond)
    outer,
    inner,
    blocks,  # per group of inner positions
    bond,
    w_inner,
    w_term,
    TERMS: tl.constexpr,
    OUTER: tl.constexpr,  # positions per tile
    WORDS: tl.constexpr,
    BITS: tl.constexpr,
):
    """The mask contracted with W over inner positions, for each group of these: ``out[group] = mask @ W``."""
    group = tl.program_id(1)
    o = tl.program_id(0).to(tl.int64) * OUTER + tl.arange(0, OUTER)
    term, w = tl.arange(0, TERMS), tl.arange(0, WORDS)
    real, there = (term < bond)[None, :], (o < outer)[:, None]
    total = tl.zeros((OUTER, TERMS), tl.float64)
    for block in range(group * blocks, tl.minimum((group + 1) * blocks, tl.cdiv(inner, BITS * WORDS))):
        own = packed + (block * outer.to(tl.int64) + o[:, None]) * WORDS + w[None, :]
        bits = tl.load(own, mask=there, other=0).to(tl.int32)
        first = block * (BITS * WORDS)
        for bit in range(0, tl.minimum(tl.cdiv(inner - first, WORDS), BITS)):
            i = (first + bit * WORDS + w).to(tl.int64)
            at = W + i[:, None] * w_inner + term[None, :] * w_term
            weights = tl.load(at, mask=(i < inner)[:, None] & real, other=0.0)
            # These are the bits of 1.0; a conversion would take longer.
            ones = ((bits & 1).to(tl.int64) * 0x3FF0000000000000).to(tl.float64, bitcast=True)
            bits >>= 1  # and not ``bits >> bit``: Triton 3.6 cannot compile products of numbers that come from bytes
            total += tl.dot(ones, weights, input_precision="ieee", out_dtype=tl.float64)
    tl.store(out + (group * outer.to(tl.int64) + o[:, None]) * bond + term[None, :], total, mask=there & real)
