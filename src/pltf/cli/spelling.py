"""Option names for the Python in messages of the library: ``--max-iter`` for ``max_iter``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

# Arguments whose option has the same name; OPTIONS adds those whose option has another one.
_SAME = (
    "among", "atleast", "checkpoint", "count", "draws", "dtype", "every", "format", "keep_data", "level", "likelihood",
    "max_iter", "method", "prior", "race", "ranking", "restarts", "resume", "seed", "title", "tol", "top", "value",
    "variable", "workers", "burn_in", "chains", "thin", "dispersion", "device", "criterion", "folds", "score", "widen",
    "unsupported", "of", "limit", "append", "forget", "store", "zeros", "sheet", "query", "encoding", "decimal",
    "keep_blanks",
)  # fmt: skip
OPTIONS: Mapping[str, str] = {name: f"--{name.replace('_', '-')}" for name in _SAME} | {
    "at": "--cells",
    "client": "--scheduler",
    "dims": "--index",
    "fraction": "--holdout",
    "indices": "--index",
    "k": "--top",
    "memory_limit": "--memory",
    "path": "--output",
}
# Other pieces of Python in messages.
_PHRASES: Mapping[str, str] = {
    "duplicates='sum'": "--sum",
    "fit.with_store(path)": "--store",
    "model.plan(X)": "pltf plan",
    "pltf.prepare": "pltf prepare",
    "overwrite=True": "--force",
    "unlisted='missing'": "--missing unlisted",
    "unlisted='zero'": "--missing nan",
}
_ARGUMENT = re.compile(r"(\w+)(=?)(.*)", re.DOTALL)
_OF_PRIOR = re.compile(r"(Gamma: )?(shape|mean|learn|tie)(=?)(?:'(.*)')?")  # --prior has the parts of a Gamma
_SIZE = re.compile(r"Model\(\.\.\., (\w+=\d+)\)")
_ROWS = re.compile(r"rows? \d+( and \d+)*")


def option(code: str) -> str:
    """The option for a piece of Python; unchanged if there is none.

    >>> option("max_iter"), option("checkpoint="), option("method='vb'"), option("dims={'user_id': 'user'}")
    ('--max-iter', '--checkpoint', '--method vb', '--index user_id=user')
    >>> option("resume=True"), option("ranking=False"), option("fraction"), option("Model(..., r=3)")
    ('--resume', '--no-ranking', '--holdout', '--size r=3')
    >>> option("Gamma: tie='component'"), option("row 0")  # people count from 1
    ('--prior: tie=component', 'row 1')
    """
    if code in _PHRASES:
        return _PHRASES[code]
    if _ROWS.fullmatch(code):
        return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), code)
    if size := _SIZE.fullmatch(code):
        return f"--size {size[1]}"
    if part := _OF_PRIOR.fullmatch(code):
        return f"{'--prior: ' if part[1] else ''}{part[2]}{part[3]}{part[4] or ''}"
    argument = _ARGUMENT.fullmatch(code)
    if argument is None or argument[1] not in OPTIONS:
        return code
    name, equals, value = argument.groups()
    return _given(OPTIONS[name], value) if equals and value else OPTIONS[name]


def _given(option: str, code: str) -> str:
    """An option with its value."""
    try:
        value: Any = ast.literal_eval(code)
    except (ValueError, SyntaxError):
        value = code
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    if isinstance(value, Mapping):
        value = ",".join(f"{name}={other}" for name, other in value.items())
    return f"{option} {value}"
