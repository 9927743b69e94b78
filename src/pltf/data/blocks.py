"""Cut an array into blocks along its leading axes, so that temporaries stay small."""

from __future__ import annotations

import itertools
from collections.abc import Callable

Block = tuple[slice, ...]

_NARROW = 16  # axes shorter than this are cut last


def block_shape(shape: tuple[int, ...], fits: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Largest block shape that fits, found by halving: leading axes first, none below 16 while another axis is longer.

    >>> block_shape((300, 300, 300), lambda shape: shape[0] * shape[1] * shape[2] <= 250_000)
    (10, 75, 300)
    """
    pieces = [1] * len(shape)

    def current() -> tuple[int, ...]:
        return tuple(-(-size // n) for size, n in zip(shape, pieces, strict=True))

    while not fits(current()):
        sizes = current()
        wide = [axis for axis, size in enumerate(sizes) if size > _NARROW]
        axis = next(iter(wide or [axis for axis, size in enumerate(sizes) if size > 1]), None)
        if axis is None:
            break
        pieces[axis] *= 2
    return current()


def blocks(shape: tuple[int, ...], block: tuple[int, ...]) -> list[Block]:
    """All blocks of an array, in the order of its cells.

    >>> blocks((3, 2), (2, 2))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 3, None), slice(0, 2, None))]
    """
    ranges = [
        [slice(start, min(start + step, size)) for start in range(0, size, max(step, 1))]
        for size, step in zip(shape, block, strict=True)
    ]
    return list(itertools.product(*ranges))
