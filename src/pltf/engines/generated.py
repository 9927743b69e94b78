"""Kernels generated for one chain: the tables of ``interpreted.py`` become loops that the compiler can optimize.

A kernel supports any sizes, so a search over ranks needs only one. Its source is stored in a file next to the other
compiled kernels, named by a content hash, so that Numba's cache finds it; the executed source is always generated here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pltf import special
from pltf.compiling import njit, temporary_folder
from pltf.engines._numba import APART, TILE
from pltf.engines.chain import Chain, ChainStep
from pltf.engines.contraction import Indices
from pltf.notation import Equation, Term
from pltf.stale_files import held_file

Named = tuple[str, Indices]  # an array of the kernel and its indices


@lru_cache(maxsize=256)
def compiled(chain: Chain) -> Callable[..., float]:
    """The kernel of a chain; compiled at the first call with each array type."""
    return _compiled(source(chain))


@lru_cache(maxsize=64)
def _compiled(text: str) -> Callable[..., float]:
    path = _kept(text)
    # Cached code refers to the module in which it was compiled.
    names: dict[str, Any] = {"np": np, "__name__": __name__}
    names |= {"natural_log": special.natural_log, "link_ratio": special.link_ratio}
    exec(compile(text, str(path or "<chain>"), "exec"), names)
    keep = path is not None
    kernel: Callable[..., float] = njit(
        names["kernel"], cache=keep, nogil=True, error_model="numpy", fastmath=special.ANY_ORDER
    )
    return kernel


def _kept(text: str) -> Path | None:
    """A file with the source, as the key for Numba's cache; None if no folder is writable."""
    # Numba only checks this file, not the functions that are compiled into the kernel.
    around = Path(special.__file__).read_bytes()
    digest = hashlib.blake2b(text.encode() + around, digest_size=12).hexdigest()
    name = f"chain_{digest}.kernel"  # not .py: not a module of the package
    for folder in _folders():
        path = folder / name
        try:
            if not path.is_file() or path.read_text() != text:
                _write(path, text)
        except OSError:
            continue
        return path
    return None


def _folders() -> Iterator[Path]:
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / "pltf-chains"
    yield Path(__file__).parent / "__pycache__" / "chains"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "pltf" / "chains"
    temporary = temporary_folder()
    if temporary is not None:
        yield temporary / "chains"


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: other processes may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with held_file(path.parent, f"{path.stem}.", ".part") as part:
        part.write_text(text)
        os.replace(part, path)


def source(chain: Chain) -> str:
    """Source of a function ``kernel`` with the arguments of ``interpreted.run``, but index sizes instead of tables."""
    return "\n".join(_Writer(_with_plain_names(chain)).lines()) + "\n"


def _with_plain_names(chain: Chain) -> Chain:
    """The chain with numbers as names: models with the same structure share a kernel."""
    names = {index: str(n) for n, index in enumerate(chain.indices)}

    def plain(indices: Indices) -> Indices:
        return tuple(names[index] for index in indices if index in names)

    output, *factors = (Term("", plain(term.indices)) for term in (chain.equation.output, *chain.equation.factors))
    steps = tuple(
        ChainStep(step.factor, step.level, plain(step.before), plain(step.held), plain(step.after))
        for step in chain.steps
    )
    return Chain(Equation(output, tuple(factors)), chain.modes, steps, plain(chain.latent))


class _Writer:
    """Generates the kernel. In step s, ``t`` is T_out, ``d`` its gradient, ``f`` the factor row, ``to`` the sums."""

    def __init__(self, chain: Chain) -> None:
        self._chain, self._steps = chain, chain.steps
        self._modes = [chain.equation.output.indices[mode] for mode in chain.modes]

    def lines(self) -> Iterator[str]:
        """The complete kernel."""
        yield "def kernel(sizes, rows, x, what, log, todo, F, F_at, own, others, sums_at, owned, out, start, stop):"
        yield from _indented(1, self._prologue())
        yield from _indented(1, self._level(0, self._open))
        yield f"    for tile in range(start, stop, {TILE}):"
        yield f"        end = min(tile + {TILE}, stop)"
        yield "        for n in range(tile, end):"
        yield from _indented(3, self._cell())
        yield "        if log:"
        yield "            for n in range(end - tile):"
        yield "                log_term -= np.float64(x[tile + n]) * natural_log(quotients[n])"
        yield "    if stop > start and what != 0:"
        for level in reversed(range(len(self._modes))):
            yield from _indented(2, self._level(level, self._close))
        yield "        pass"
        yield "    return log_term"

    def _prologue(self) -> Iterator[str]:
        """Sizes, and memory for every T."""
        for place, index in enumerate(self._chain.indices):
            yield f"n_{index} = sizes[{place}]"
        ends = [_size(step.after) for step in self._steps]
        yield f"work = {' + '.join(ends)} + {2 * APART}"
        yield f"T, D, at = np.zeros(work, F.dtype), np.zeros(work), {APART}"
        for s, step in enumerate(self._steps):
            if step.after:
                yield f"t{s}, d{s}, at = T[at:at + {ends[s]}], D[at:at + {ends[s]}], at + {ends[s]}"
            else:
                yield f"t{s}, d{s} = F.dtype.type(0), 0.0"
            yield f"go{s}, sum{s}, back{s} = todo[{s}, 0], todo[{s}, 1], todo[{s}, 2]"
            yield f"row{s}, f{s} = np.int64(0), F[:0]"
            yield f"to{s} = own if owned[{step.factor}] else others"
        for m in range(len(self._modes)):
            yield f"r{m}, was{m} = rows[{m}], np.int64(-1)"
        yield f"quotients, log_term = np.empty({TILE}, F.dtype), 0.0 if log else np.nan"

    def _cell(self) -> Iterator[str]:
        """One cell: close the levels that differ from the previous cell, open the new ones, compute its ratio."""
        last, final = len(self._modes), len(self._steps) - 1
        for m in range(last):
            yield f"i{m} = np.int64(r{m}[n])"
        yield f"level = {last - 1}"
        for m in reversed(range(last - 1)):
            yield f"if i{m} != was{m}:"
            yield f"    level = {m}"
        for level in reversed(range(1, last)):
            yield f"if level < {level} and n > start and what != 0:"
            yield from _indented(1, self._level(level, self._close))
            yield "    pass"
        for m in range(last):
            yield f"was{m} = i{m}"
        for level in range(1, last):
            yield f"if level < {level}:"
            yield from _indented(1, self._level(level, self._open))
            yield "    pass"
        yield from self._level(last, self._open)
        yield "if what == 1:"
        yield f"    quotients[n - tile] = x[n] / t{final}"
        yield f"    d{final} = np.float64(quotients[n - tile])"
        yield "elif what == 2:"
        yield f"    d{final} = 1.0"
        yield "elif what == 3:"
        yield f"    quotients[n - tile] = link_ratio(t{final})"
        yield f"    d{final} = np.float64(quotients[n - tile])"
        yield "    if log:"
        yield f"        log_term += t{final}"
        yield "else:"
        yield f"    out[n] = t{final}"
        yield "if what != 0:"
        yield from _indented(1, self._level(last, self._close))
        yield "    pass"

    def _level(self, level: int, write: Callable[[int, ChainStep], Iterator[str]]) -> Iterator[str]:
        steps = [(s, step) for s, step in enumerate(self._steps) if step.level == level]
        for s, step in steps if write == self._open else reversed(steps):
            yield from write(s, step)

    def _open(self, s: int, step: ChainStep) -> Iterator[str]:
        """``T_out = sum T_in * F``, with the row of the factor for the current cell."""
        seen = self._chain.seen(step.factor)
        places = [f"i{self._modes.index(i)} * {_stride(seen, i)}" for i in seen]
        yield f"row{s} = ({' + '.join(places) or 'np.int64(0)'}) * {_size(step.held)}"
        yield f"f{s} = F[F_at[{step.factor}] + row{s}:][:{_size(step.held)}]"
        yield f"if go{s}:"
        yield from _indented(1, _cleared(f"t{s}", step.after, "F.dtype.type(0)"))
        yield from _indented(1, self._products(step, self._before(s), (f"f{s}", step.held), (f"t{s}", step.after)))

    def _close(self, s: int, step: ChainStep) -> Iterator[str]:
        """Propagate the gradient of T_out to the factor and to T_in, and reset it."""
        back: Named = (f"d{s}", step.after)
        yield f"if sum{s}:"
        yield f"    to_row = to{s}[sums_at[{step.factor}] + row{s}:][:{_size(step.held)}]"
        yield from _indented(1, self._products(step, back, self._before(s), ("to_row", step.held)))
        if s:
            yield f"if back{s}:"
            yield from _indented(1, self._products(step, back, (f"f{s}", step.held), (f"d{s - 1}", step.before)))
        yield from _cleared(f"d{s}", step.after, "0.0")

    def _before(self, s: int) -> Named:
        return (f"t{s - 1}" if s else "1", self._steps[s].before)

    def _products(self, step: ChainStep, a: Named, b: Named, out: Named) -> Iterator[str]:
        """``out += a * b`` over all indices of a step; the innermost loop is contiguous."""
        *outer, inner = step.groups(self._chain.latent) or [()]
        loops = [index for group in outer for index in group]
        for depth, index in enumerate(loops):
            yield from _indented(depth, [f"for at_{index} in range(n_{index}):"])
        yield from _indented(len(loops), _strip(loops, inner, a, b, out))


def _strip(loops: Sequence[str], inner: Indices, a: Named, b: Named, out: Named) -> Iterator[str]:
    """The innermost loop of a product, inside the others."""
    names = []
    for letter, (name, indices) in zip("abw", (a, b, out), strict=True):
        offset = " + ".join(f"at_{i} * {_stride(indices, i)}" for i in loops if i in indices) or "0"
        if inner and inner[0] in indices:
            yield f"{letter} = {name}[{offset}:][:{_size(inner)}]"
            names.append(f"{letter}[z]")
        elif indices or name.startswith(("f", "to_row")):
            names.append(f"{name}[{offset}]")
        else:
            names.append(name)  # a single number
    left, right, target = names
    if not inner:
        yield f"{target} += {left} * {right}"
    elif inner[0] in out[1]:
        if "[z]" not in left:
            yield f"one = {left}"
            left = "one"
        if "[z]" not in right:
            yield f"other = {right}"
            right = "other"
        yield f"for z in range({_size(inner)}):"
        yield f"    {target} += {left} * {right}"
    else:
        yield "total = 0.0"
        yield f"for z in range({_size(inner)}):"
        yield f"    total += {left} * {right}"
        yield f"{target} += total"


def _cleared(name: str, indices: Indices, zero: str) -> Iterator[str]:
    """Set an array or a scalar to zero."""
    if not indices:
        yield f"{name} = {zero}"
        return
    yield f"for z in range({_size(indices)}):"
    yield f"    {name}[z] = 0"


def _size(indices: Sequence[str]) -> str:
    return f"({' * '.join(f'n_{index}' for index in indices)})" if indices else "1"


def _stride(indices: Sequence[str], index: str) -> str:
    return _size(indices[indices.index(index) + 1 :])


def _indented(depth: int, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    return (" " * 4 * depth + line for line in lines)
