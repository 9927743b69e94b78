"""Chains over listed cells, driven by tables: one kernel for any model, compiled once; see ``chain.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.compiling import njit
from pltf.engines._numba import APART, TILE
from pltf.engines.chain import Chain, ChainStep
from pltf.engines.contraction import Indices
from pltf.special import ANY_ORDER, link_ratio, natural_log

FORWARD, TO_FACTOR, TO_T_IN = range(3)  # the tasks of a step
RATES, RATIOS, ONES, LINKS = range(4)  # use of a cell's rate: output, count over rate, 1, ratio of a link


# Columns of the step table.
FACTOR, LEVEL, T_IN, T_OUT, WIDTH, FIRST, COUNT, LENGTH, IN_BEFORE, IN_HELD, IN_AFTER = range(11)


def tables_of(chain: Chain, sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """A chain as numeric tables, as :func:`run` takes them.

    - steps (steps, columns)
    - strips of all steps (strips, 3): offsets of T_in, F and T_out
    - widths (factors): entries per row
    - strides (factors, levels): row strides of the modes, in sort order
    - levels (levels + 2): first step of each level
    - work: total number of entries of all T
    """
    rows, strips, start, work = [], [], 0, 1  # the first T is the number 1
    for step in chain.steps:
        table, length = _strips(step, chain.latent, sizes)
        width = prod(sizes[index] for index in step.after)
        *_, inner = step.groups(chain.latent) or [()]
        has = [not inner or inner[0] in indices for indices in (step.before, step.held, step.after)]
        t_in = work - prod(sizes[index] for index in step.before)
        rows.append([step.factor, step.level, t_in, work, width, start, len(table), length, *has])
        strips.append(table)
        start, work = start + len(table), work + width
    ordered = [chain.equation.output.indices[mode] for mode in chain.modes]
    held = {step.factor: prod(sizes[index] for index in step.held) for step in chain.steps}
    strides = [[_stride(chain.seen(factor), index, sizes) for index in ordered] for factor in range(len(held))]
    levels = np.searchsorted([step.level for step in chain.steps], np.arange(len(ordered) + 2))
    return (
        np.array(rows, dtype=np.int64),
        np.concatenate(strips).astype(np.int64),
        np.array([held[factor] for factor in range(len(held))], dtype=np.int64),
        np.array(strides, dtype=np.int64).reshape(len(held), len(ordered)),
        levels.astype(np.int64),
        work,
    )


def _stride(held: Sequence[str], index: str, sizes: Mapping[str, int]) -> int:
    """Row stride of an index in a factor with these observed indices; 0 if the factor does not have the index."""
    return prod(sizes[i] for i in held[held.index(index) + 1 :]) if index in held else 0


def _strips(step: ChainStep, latent: Indices, sizes: Mapping[str, int]) -> tuple[NDArray[np.int64], int]:
    """Offsets of the arrays of a step for each iteration of its outer loops, and the length of the innermost loop."""
    *outer, inner = step.groups(latent) or [()]
    loops = tuple(index for group in outer for index in group)
    return _offsets(loops, (step.before, step.held, step.after), sizes), prod(sizes[index] for index in inner)


Splits = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def splits(chain: Chain, sizes: Mapping[str, int]) -> Splits:
    """The terms of the sum in every entry of T_out, as tables for ``kernels/allocation.py``.

    Offsets of the rows of each step in the other two tables; for every entry of T_out, the offsets of its first term in
    T_in and F; for every term of a sum, its offset from there. The tables thus have the lengths of T_out and of a sum.
    """
    outs, terms = [], []
    for step in chain.steps:
        summed = tuple(i for i in chain.latent if i in (*step.before, *step.held) and i not in step.after)
        outs.append(_offsets(step.after, (step.before, step.held), sizes))
        terms.append(_offsets(summed, (step.before, step.held), sizes))
    where = [[0, 0], *([len(a), len(b)] for a, b in zip(outs, terms, strict=True))]
    return np.cumsum(where, axis=0, dtype=np.int64), np.concatenate(outs), np.concatenate(terms)


def _offsets(over: Indices, arrays: Sequence[Indices], sizes: Mapping[str, int]) -> NDArray[np.int64]:
    """Offsets in arrays with these indices, for every position of some indices: (positions, arrays)."""
    at = np.indices([sizes[index] for index in over]).reshape(len(over), prod(sizes[index] for index in over))
    strides = [[_stride(indices, index, sizes) for index in over] for indices in arrays]
    return np.ascontiguousarray((np.array(strides, dtype=np.int64).reshape(len(arrays), len(over)) @ at).T)


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _add_products(a, a_at, a_long, b, b_at, b_long, out, out_at, out_long, strips, columns, length):  # type: ignore[no-untyped-def]
    """``out += a * b`` strip by strip; each operand is a strip, or a scalar for the whole strip."""
    to_a, to_b, to_out = columns
    for n in range(strips.shape[0]):
        i, j, k = a_at + strips[n, to_a], b_at + strips[n, to_b], out_at + strips[n, to_out]
        if not out_long:
            u, v, total = a[i : i + length], b[j : j + length], 0.0
            for m in range(length):
                total += u[m] * v[m]
            out[k] += total
        elif not a_long:
            w, v, one = out[k : k + length], b[j : j + length], a[i]
            for m in range(length):
                w[m] += one * v[m]
        elif not b_long:
            w, u, one = out[k : k + length], a[i : i + length], b[j]
            for m in range(length):
                w[m] += one * u[m]
        else:
            w, u, v = out[k : k + length], a[i : i + length], b[j : j + length]
            for m in range(length):
                w[m] += u[m] * v[m]


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _forward(step, strips, F, at, T):  # type: ignore[no-untyped-def]
    """``T_out = sum T_in * F``."""
    here = strips[step[FIRST] : step[FIRST] + step[COUNT]]
    T[step[T_OUT] : step[T_OUT] + step[WIDTH]] = 0
    before, held, after = step[IN_BEFORE] != 0, step[IN_HELD] != 0, step[IN_AFTER] != 0
    _add_products(T, step[T_IN], before, F, at, held, T, step[T_OUT], after, here, (0, 1, 2), step[LENGTH])


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _backward(step, todo, strips, F, at, T, dT, sums, sums_at):  # type: ignore[no-untyped-def]
    """Propagate the gradient of T_out to the factor and to T_in, and reset it."""
    here = strips[step[FIRST] : step[FIRST] + step[COUNT]]
    before, held, after = step[IN_BEFORE] != 0, step[IN_HELD] != 0, step[IN_AFTER] != 0
    t_in, t_out, length = step[T_IN], step[T_OUT], step[LENGTH]
    if todo[TO_FACTOR]:
        _add_products(dT, t_out, after, T, t_in, before, sums, sums_at, held, here, (2, 0, 1), length)
    if todo[TO_T_IN]:
        _add_products(dT, t_out, after, F, at, held, dT, t_in, before, here, (2, 1, 0), length)
    dT[t_out : t_out + step[WIDTH]] = 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def run(tables, rows, x, what, log, todo, F, F_at, own, others, sums_at, owned, out, start, stop):  # type: ignore[no-untyped-def]
    """Run a chain over cells [start, stop); ``rows`` (modes in the order of the chain, cells) are sorted.

    Sums of factors that are ``owned`` are added to ``own``, those of other factors to ``others``. ``what`` is RATES
    (written to ``out``), RATIOS, ONES or LINKS. Returns sum x*log(Xhat/x), for LINKS sum x*log(exp(Xhat)-1), or NaN. In
    NumPy, for ``ip,jq,pq->ij`` and RATIOS::

        P = np.einsum("np,nq,pq->n", A[i], B[j], G)
        ratio = x / P
        np.add.at(sums_A, i, ratio[:, None] * np.einsum("nq,pq->np", B[j], G))    # likewise B
        sums_G += np.einsum("n,np,nq->pq", ratio, A[i], B[j])
    """
    steps, strips, widths, strides, levels, work = tables
    modes, last = rows.shape[0], steps.shape[0] - 1
    T = np.zeros(work + 2 * APART, F.dtype)[APART:-APART]
    dT = np.zeros(work + 2 * APART)[APART:-APART]
    T[0] = 1
    row_of, here = np.zeros(widths.size, np.int64), np.full(modes, -1, np.int64)
    quotients, rate_at, log_term = np.empty(TILE, F.dtype), steps[last, T_OUT], 0.0 if log else np.nan
    for s in range(levels[0], levels[1]):
        if todo[s, FORWARD]:
            _forward(steps[s], strips, F, F_at[steps[s, FACTOR]], T)
    for tile in range(start, stop, TILE):
        end = min(tile + TILE, stop)
        for n in range(tile, end):
            level = 0
            while level < modes - 1 and rows[level, n] == here[level]:
                level += 1
            if n > start and what != RATES:
                for s in range(last, levels[level + 1] - 1, -1):
                    f = steps[s, FACTOR]
                    sums = own if owned[f] else others
                    at = row_of[f] * widths[f]
                    _backward(steps[s], todo[s], strips, F, F_at[f] + at, T, dT, sums, sums_at[f] + at)
            for m in range(level, modes):
                here[m] = rows[m, n]
            for s in range(levels[level + 1], last + 1):
                f = steps[s, FACTOR]
                row = 0
                for m in range(modes):
                    row += strides[f, m] * here[m]
                row_of[f] = row
                if todo[s, FORWARD]:
                    _forward(steps[s], strips, F, F_at[f] + row * widths[f], T)
            if what == RATIOS:
                quotients[n - tile] = x[n] / T[rate_at]
                dT[rate_at] = quotients[n - tile]
            elif what == ONES:
                dT[rate_at] = 1
            elif what == LINKS:
                quotients[n - tile] = link_ratio(T[rate_at])
                dT[rate_at] = quotients[n - tile]
                if log:
                    log_term += T[rate_at]
            else:
                out[n] = T[rate_at]
        if log:
            for n in range(end - tile):
                log_term -= np.float64(x[tile + n]) * natural_log(quotients[n])
    if stop > start and what != RATES:
        for s in range(last, -1, -1):
            f = steps[s, FACTOR]
            sums = own if owned[f] else others
            at = row_of[f] * widths[f]
            _backward(steps[s], todo[s], strips, F, F_at[f] + at, T, dT, sums, sums_at[f] + at)
    return log_term
