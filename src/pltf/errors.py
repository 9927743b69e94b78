"""What can go wrong, said in one sentence: which argument, what was expected, what came."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class PltfError(ValueError):
    """Any refusal of pltf; every error it raises on purpose is one of these.

    >>> import pltf
    >>> try:
    ...     pltf.Model("X[i,j] = A[i,r] * B[j,r]")
    ... except pltf.PltfError as error:
    ...     print(error)
    latent index 'r' has no size: give it as a keyword, for example Model(..., r=3)
    """


class NotationError(PltfError):
    """A model text that cannot be read; shows the text with a caret under the character.

    >>> import pltf
    >>> pltf.Model("X[i,j] = A[i,r] * A[j,r]", r=2)
    Traceback (most recent call last):
        ...
    pltf.errors.NotationError: factor A stands twice in one equation, so the model is not linear in it
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
        super().__init__(f"{reason}\n  {line.strip()}\n  {caret}")

    def __reduce__(self) -> tuple[type[NotationError], tuple[str, str, int]]:
        return type(self), (self.reason, self.text, self.position)


class ObservationError(PltfError):
    """Data that cannot be used as they are.

    >>> import numpy as np, pltf
    >>> pltf.observe(np.array([[1.0, -2.0]]))
    Traceback (most recent call last):
        ...
    pltf.errors.ObservationError: data: observed values must be >= 0, but cell (0, 1) holds -2.0
    """


class EngineError(PltfError):
    """An engine that does not exist or cannot take these data.

    >>> import numpy as np, pltf
    >>> pltf.nmf(rank=2).fit(np.ones((3, 4)), engine="abacus")
    Traceback (most recent call last):
        ...
    pltf.errors.EngineError: engine must be one of 'auto', 'dense', 'sparse'; got 'abacus'
    """


class ConvergenceWarning(UserWarning):
    """A fit that ended before it settled; the message says what to try.

    >>> import pltf
    >>> issubclass(pltf.ConvergenceWarning, UserWarning)
    True
    """


class SelectionWarning(UserWarning):
    """A search whose answer calls for a second look; the message says why.

    >>> import warnings, numpy as np, pltf
    >>> with warnings.catch_warnings(action="always", record=True) as told:
    ...     found = pltf.select(pltf.nmf(rank=1), np.eye(6) * 9, r=[1, 2], restarts=1)
    >>> print(told[-1].message)
    the best candidate (r=2) has the largest r tried: widen the grid
    """


class ScoreWarning(UserWarning):
    """A score that says less than it seems to; the message says why.

    >>> import warnings, numpy as np, pltf, pltf.metrics
    >>> X = np.eye(4)
    >>> with warnings.catch_warnings(action="always", record=True) as told:
    ...     scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X), X, X >= 0)
    >>> print(told[-1].message)
    16 of the 16 cells were seen by the fit: their scores tell what it remembers
    """


def whole(argument: str, value: Any, least: int) -> int:
    """A whole number of at least so much, or a PltfError that names the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PltfError(f"{argument} must be a whole number of at least {least}, got {value!r}")
    return number


def flag(argument: str, value: Any) -> bool:
    """True or False, or a PltfError that names the argument."""
    if not is_flag(value):
        raise PltfError(f"{argument} must be True or False, got {value!r}")
    return bool(value)


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, of Python or of NumPy."""
    return isinstance(value, (bool, np.bool_))
