"""Errors and warnings: one sentence with the argument, what was expected and what was passed.

Messages use the names of Python arguments. Every piece of Python in a message is marked with a format specification of
:data:`py`, so that the command line can write ``--max-iter`` instead of ``max_iter``::

    raise PltfError(f"{py:restarts} must be 1 when {py:init} gives the starting point, got {restarts}")
    raise PltfError(f"{py:method='em'} has no prior: use {py:method='vb'}")

``str(error)`` is the plain message; ``error.spelled(...)`` replaces each marked piece.
"""

from __future__ import annotations

import operator
import re
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pltf.hints import suggestion
from pltf.terminal import printable

P = ParamSpec("P")
T = TypeVar("T")
_OPEN, _CLOSE = "\x0e", "\x0f"  # shift out, shift in: they do not occur in values or file names
_SPELLED, _ONLY = "=", "-"  # kinds of pieces
_PIECE = re.compile(f"{_OPEN}([{_SPELLED}{_ONLY}])(.*?){_CLOSE}", re.DOTALL)
_ROWS = re.compile(r"rows? [0-9]+( and [0-9]+)*")
# The arguments of `pltf.observe`, which people pass to `fit` as well.
OF_DATA = ("unlisted", "missing", "shape", "dims", "value", "count", "labels", "duplicates", "keep_blanks", "layer")
_ARGUMENT = re.compile(r"(?:[A-Z]\w*: )?([A-Za-z_]\w*)(?=$|=|\[)")  # as in "tol", "tol=0", "init['U']", "Gamma: shape"


class _Mark:
    """Marks a piece of a sentence: the format specification is its text."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __format__(self, text: str) -> str:
        return f"{_OPEN}{self._kind}{text}{_CLOSE}"


py = _Mark(_SPELLED)  # an argument, alone or with its value: {py:tol}, {py:tol=}, {py:tol=0}; also {py:model.plan(X)}
py_only = _Mark(_ONLY)  # words that make sense only in Python, and are left out elsewhere


def spelled(marked: str, spell: Callable[[str], str] | None = None) -> str:
    """The text of a marked message; ``spell`` replaces each marked piece of Python.

    >>> spelled(f"{py:tol} must be a number{py_only: or None}", lambda text: f"--{text}")
    '--tol must be a number'
    """

    def read(piece: re.Match[str]) -> str:
        kind, text = piece.groups()
        if spell is None:
            return text
        return spell(text) if kind == _SPELLED else ""

    return _PIECE.sub(read, marked)


def with_rows(marked: str, called: Callable[[int], str]) -> str:
    """A marked message whose rows are named by ``called``, a function of their positions.

    >>> spelled(with_rows(f"{py:rows 0 and 3} differ", lambda row: f"line {row + 2}"))
    'line 2 and line 5 differ'
    """

    def read(piece: re.Match[str]) -> str:
        kind, text = piece.groups()
        if kind != _SPELLED or not _ROWS.fullmatch(text):
            return piece[0]
        return " and ".join(called(int(number)) for number in re.findall("[0-9]+", text))

    return _PIECE.sub(read, marked)


@contextmanager
def naming_rows(called: Callable[[int], str]) -> Iterator[None]:
    """Name the rows in errors by ``called``, a function of their positions.

    >>> with naming_rows(lambda row: f"line {row + 2}"):
    ...     raise PltfError(f"{py:row 3} has no label")
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: line 5 has no label
    """
    try:
        yield
    except PltfError as error:
        text = with_rows(error.marked, called)
        if text == error.marked:
            raise
        raise type(error)(text, error.argument) from None


class Sentence(Exception):
    """Base of errors and warnings whose message marks its pieces of Python."""

    argument: str | None  # the argument it is about; default: the first one in the message

    def __init__(self, message: str = "", argument: str | None = None) -> None:
        self.marked = str(message)
        named = (_ARGUMENT.match(text) for kind, text in _PIECE.findall(self.marked) if kind == _SPELLED)
        self.argument = argument or next((found[1] for found in named if found), None)
        super().__init__(printable(spelled(self.marked)))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message with each marked piece of Python replaced by ``spell(piece)``."""
        return printable(spelled(self.marked, spell))


class PltfError(Sentence, ValueError):
    """Base class of all errors that pltf raises on purpose.

    ``argument`` is the name of the invalid argument, or None.

    >>> import pltf
    >>> try:
    ...     pltf.nmf(rank=2).fit([[1, 2], [3, 4]], tol=3)
    ... except pltf.PltfError as error:
    ...     print(error)
    ...     print(error.argument)
    tol must be a number from 0 to below 1, got 3
    tol
    """


class NotationError(PltfError):
    """Invalid model text; the message shows the text with a caret under the position.

    >>> import pltf
    >>> pltf.Model("X[i,j] = A[i,r] * A[j,r]", r=2)
    Traceback (most recent call last):
        ...
    pltf.errors.NotationError: factor A occurs twice in one equation: the model must be linear in each factor
      X[i,j] = A[i,r] * A[j,r]
                        ^
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason, self.text, self.position = reason, text, position
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        line = text[start : end if end >= 0 else len(text)]
        indent = len(line) - len(line.lstrip())
        before = line[indent : position - start]
        caret = "".join("\t" if character == "\t" else " " for character in before) + "^"
        super().__init__(f"{reason}\n  {line.strip()}\n  {caret}", argument="text")

    def __reduce__(self) -> tuple[type[NotationError], tuple[str, str, int]]:
        return type(self), (self.reason, self.text, self.position)


class ObservationError(PltfError):
    """Invalid or unsupported data.

    >>> import numpy as np, pltf
    >>> pltf.observe(np.array([[1.0, -2.0]]))
    Traceback (most recent call last):
        ...
    pltf.errors.ObservationError: data: observed values must be >= 0, but cell (0, 1) holds -2.0
    """


class UnknownNameError(PltfError, KeyError):
    """An unknown key of a mapping; also a :class:`KeyError`.

    >>> import numpy as np, pltf
    >>> pltf.nmf(rank=1).fit(np.ones((2, 3))).factors["w"]
    Traceback (most recent call last):
        ...
    pltf.errors.UnknownNameError: no factor 'w': the factors are W, H; did you mean 'W'? Names are case-sensitive
    """

    def __str__(self) -> str:  # KeyError would put quotes around the message
        return str(self.args[0])


class UnknownArgumentError(PltfError, TypeError):
    """An unknown argument of a function that takes data; also a :class:`TypeError`.

    >>> import numpy as np, pltf
    >>> pltf.nmf(rank=2).fit(np.ones((3, 4)), restart=5)
    Traceback (most recent call last):
        ...
    pltf.errors.UnknownArgumentError: fit has no argument 'restart'; did you mean 'restarts'?
    """


class EngineError(PltfError):
    """An unknown engine, or one that does not support these data.

    >>> import numpy as np, pltf
    >>> pltf.nmf(rank=2).fit(np.ones((3, 4)), engine="abacus")
    Traceback (most recent call last):
        ...
    pltf.errors.EngineError: engine must be one of 'auto', 'dense', 'sparse'; got 'abacus'
    """


class ConvergenceWarning(Sentence, UserWarning):
    """A fit that stopped before it converged; the message says what to try.

    >>> import pltf
    >>> issubclass(pltf.ConvergenceWarning, UserWarning)
    True
    """


class DataWarning(Sentence, UserWarning):
    """Ambiguous data; the message says how they were read, and how to be explicit.

    >>> import warnings, pandas as pd, pltf
    >>> visits = pd.DataFrame({"user": ["ann", "bob"], "page": ["a", "b"], "age": [31, 46]})
    >>> with warnings.catch_warnings(action="always", record=True) as told:
    ...     seen = pltf.observe(visits, dims=["user", "page"])
    >>> print(told[-1].message)
    data: every row counts one, and the column age is not used: name it with value= in pltf.observe, or pass count=True
    """


class SelectionWarning(Sentence, UserWarning):
    """A search whose result is doubtful; the message says why.

    >>> import warnings, numpy as np, pltf
    >>> with warnings.catch_warnings(action="always", record=True) as told:
    ...     found = pltf.select(pltf.nmf(rank=1), np.eye(6) * 9, r=[1, 2], restarts=1)
    >>> print(told[-1].message)
    the best candidate (r=2) has the largest r tried: widen the grid
    """


class ScoreWarning(Sentence, UserWarning):
    """A score that may be misleading; the message says why.

    >>> import warnings, numpy as np, pltf, pltf.metrics
    >>> X = np.eye(4)
    >>> with warnings.catch_warnings(action="always", record=True) as told:
    ...     scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X), X, X >= 0)
    >>> print(told[-1].message)
    16 of the 16 cells were used in the fit: their scores measure the fit, not prediction
    """


def warn_caller(text: str, category: type[Warning]) -> None:
    """Issue a warning that points at the calling line outside of this package."""
    package, depth, frame = __name__.split(".")[0], 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(category(text), stacklevel=depth)


def arguments_known(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of Model or Fit that takes data: an unknown argument is one sentence with what to write."""
    known, checked = list(signature(function).parameters), call_checked(function)

    @wraps(function)
    def called(*given: P.args, **options: P.kwargs) -> T:
        for name in options:
            if name not in known:
                owner: Any = given[0]
                refuse_of_data(name, options, getattr(owner, "model", owner).observed)
                raise UnknownArgumentError(f"{function.__name__} has no argument {name!r}{suggestion(name, known)}")
        return checked(*given, **options)

    return called


def call_checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function or a constructor: a call that does not fit its arguments is one sentence, and a PltfError.

    >>> import pltf
    >>> pltf.nmf(4)
    Traceback (most recent call last):
        ...
    pltf.errors.UnknownArgumentError: nmf needs the argument rank=
    """
    shape = signature(function)

    @wraps(function)
    def called(*given: P.args, **options: P.kwargs) -> T:
        try:
            shape.bind(*given, **options)
        except TypeError as reason:
            raise UnknownArgumentError(_wrong_call(function, len(given), options) or str(reason)) from None
        return function(*given, **options)

    return called


def _wrong_call(function: Callable[..., Any], given: int, options: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call."""
    arguments = [one for one in signature(function).parameters.values() if one.name != "self"]
    given -= len(signature(function).parameters) - len(arguments)
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    by_position = [one.name for one in arguments if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    known = [one.name for one in arguments if one.kind not in (one.POSITIONAL_ONLY, one.VAR_KEYWORD)]
    unknown = [] if len(known) + len(by_position) < len(arguments) else [one for one in options if one not in known]
    if unknown:
        near = suggestion(unknown[0], known) or f"; it has {', '.join(known)}"
        return f"{name} has no argument {unknown[0]!r}{near}"
    if given > len(by_position):
        named = ", ".join([one for one in known if one not in by_position][:6]) or "sizes"
        advice = f"pass the others by name ({named})"
        return f"{name} takes only {' and '.join(by_position)} without a name, got {given} arguments: {advice}"
    absent = [one.name for one in arguments if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    absent = [one for one in absent if one not in by_position[:given] and one not in options]
    return f"{name} needs the argument {absent[0]}=" if absent else ""


def refuse_of_data(name: str, options: Mapping[str, Any], observed: Mapping[str, Sequence[str]]) -> None:
    """Raise an error for an argument that describes the data; ``observed`` are the tensors and their indices."""
    if name in OF_DATA:
        given = {
            "dims": list(next(iter(observed.values()))),
            **{one: options[one] for one in options if one in OF_DATA},
        }
        words = ", ".join(f"{one}={reprlib.repr(value)}" for one, value in given.items())
        raise UnknownArgumentError(f"{py:{name}} describes the data: pass pltf.observe(data, {words}) instead of data")


def whole(argument: str, value: Any, least: int) -> int:
    """Check for a whole number of at least ``least``; raise a PltfError that names the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PltfError(f"{py:{argument}} must be a whole number of at least {least}, got {value!r}")
    return number


def flag(argument: str, value: Any) -> bool:
    """Check for True or False; raise a PltfError that names the argument."""
    if not is_flag(value):
        raise PltfError(f"{py:{argument}} must be True or False, got {value!r}")
    return bool(value)


def is_flag(value: Any) -> bool:
    """Whether a value is a bool, of Python or NumPy."""
    return isinstance(value, (bool, np.bool_))


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether a value is a real number, or a whole one, of Python or NumPy, and not a bool."""
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)


def choice(argument: str, value: Any, choices: Sequence[str], error: type[PltfError] = PltfError) -> str:
    """Check for one of several strings; raise an error that names the argument."""
    if not isinstance(value, str) or value not in choices:
        near = suggestion(value, choices) if isinstance(value, str) else ""
        came = " ".join(reprlib.repr(value).split())
        raise error(f"{py:{argument}} must be one of {', '.join(map(repr, choices))}; got {came}{near}")
    return str(value)
