"""Nested mappings and tuples of tensors that lie in one flat tensor, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

ALIGNED = 2  # numbers: Triton compiles a kernel once more for arrays that do not begin at a multiple of 16 bytes

Tree = Any  # nested mappings and tuples of tensors and numbers


class FlatPlace(NamedTuple):
    """Where a tensor lies."""

    start: int
    size: int
    shape: tuple[int, ...]

    def of(self, flat: Any) -> Any:
        """The tensor, as a view."""
        return flat.narrow(0, self.start, self.size).view(self.shape)


class FlatPart:
    """The tensors of a mapping, by name. Equal only to itself: arguments with the same parts are known at a glance."""

    def __init__(self, places: Mapping[str, FlatPlace]) -> None:
        self.places = places


class Late(Mapping[str, Any]):
    """A mapping whose tensors lie in a flat one: a view is made when somebody asks for it.

    Most iterations only pass their results on to the next one, and views of them would take longer than that.

    >>> import torch
    >>> Late(FlatPart({"A": FlatPlace(2, 2, (1, 2))}), torch.arange(6))["A"]
    tensor([[2, 3]])
    """

    __slots__ = ("_views", "flat", "part")

    def __init__(self, part: FlatPart, flat: Any) -> None:
        self.part, self.flat = part, flat
        self._views: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._views:
            self._views[name] = self.part.places[name].of(self.flat)
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.part.places)

    def __len__(self) -> int:
        return len(self.part.places)


def places_of(shapes: Sequence[tuple[int, ...]]) -> tuple[list[FlatPlace], int]:
    """Places of tensors of these shapes, each aligned, and the size of the flat tensor.

    >>> places_of([(3,), (2, 2)])
    ([FlatPlace(start=0, size=3, shape=(3,)), FlatPlace(start=4, size=4, shape=(2, 2))], 8)
    """
    sizes = [prod(shape) for shape in shapes]
    *starts, end = accumulate((size + -size % ALIGNED for size in sizes), initial=0)
    return [FlatPlace(*one) for one in zip(starts, sizes, shapes, strict=True)], end


def reader(form: Any, places: Iterator[FlatPlace]) -> Callable[[Any], Tree]:
    """The function from a flat tensor to the tree of this form (of ``recording.flattened``)."""
    kind, keys, children = form
    if kind is None:
        return lambda _: keys
    if kind == "leaf":
        return next(places).of
    if kind is dict and all(child[0] == "leaf" for child in children):
        part = FlatPart({key: next(places) for key in keys})
        return lambda flat: Late(part, flat)
    below = [reader(child, places) for child in children]
    if kind is dict:
        return lambda flat: {key: read(flat) for key, read in zip(keys, below, strict=True)}
    if kind is tuple:
        return lambda flat: tuple([read(flat) for read in below])
    return lambda flat: kind(*[read(flat) for read in below])


class Copied(NamedTuple):
    """Tensors to be copied at once, as they follow each other in the same order elsewhere."""

    flat: int  # the number of the flat tensor that has them
    start: int
    size: int
    there: int  # where they begin elsewhere


class Origin:
    """Where arguments come from, if all of their tensors lie in flat ones."""

    def __init__(self, given: Tree) -> None:
        self.flats: list[Any] = []
        self.numbers: list[float] = []
        self._parts: list[tuple[int, FlatPart]] = []
        marks: list[Any] = []
        self.known = self._follow(given, marks) and bool(self.flats)
        self.mark = tuple(marks)  # equal for arguments of the same form that lie at the same places

    def _follow(self, tree: Tree, marks: list[Any]) -> bool:
        for one in tree:
            if type(one) is Late:
                own = self._number(one.flat), one.part
                marks.append(own)
                self._parts.append(own)
            elif isinstance(one, float):
                marks.append(float)
                self.numbers.append(one)
            elif isinstance(one, tuple):
                marks.append((type(one), len(one)))
                if not self._follow(one, marks):
                    return False
            else:
                return False
        return True

    def _number(self, flat: Any) -> int:
        for number, known in enumerate(self.flats):
            if known is flat:
                return number
        self.flats.append(flat)
        return len(self.flats) - 1

    def runs(self, places: Sequence[FlatPlace]) -> list[Copied]:
        """The copies that bring the tensors to other places, as few as possible."""
        runs: list[Copied] = []
        here = ((flat, place) for flat, part in self._parts for place in part.places.values())
        for (flat, own), other in zip(here, places, strict=True):
            last = runs[-1] if runs else None
            gap = own.start - last.start - last.size if last else 0  # of what no tensor has
            if last and flat == last.flat and 0 <= gap < ALIGNED and own.start - last.start == other.start - last.there:
                runs[-1] = last._replace(size=own.start - last.start + own.size)
            else:
                runs.append(Copied(flat, own.start, own.size, other.start))
        return runs
