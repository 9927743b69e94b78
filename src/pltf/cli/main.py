"""From the shell and back: one sentence for whatever goes wrong, and a code that says so."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from pltf.cli.app import app

REFUSED, BROKEN, INTERRUPTED = 2, 1, 130  # exit codes

# What the library calls by the names of arguments has other names here.
_WORDS = {
    "count=True": "--count",
    "value=": "--value",
    "dims={'user_id': 'user'}": "--index user_id=user",
    "dims=": "--index",
    "pass duplicates='sum' to observe to add them up": "--sum adds them up",
    "duplicates='sum'": "--sum",
    "format=": "--format",
    "variable=": "--variable",
    "go on with resume=True": "go on with --resume",
    "resume=True": "--resume",
    "checkpoint=": "--checkpoint",
    "init=fit": "--checkpoint",
    "raise max_iter": "raise --max-iter",
    "dtype='float64'": "--dtype float64",
    "value must be a column": "--value must be a column",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given))


def run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    debug = "--debug" in arguments
    arguments = [one for one in arguments if one != "--debug"]
    quiet = "--quiet" in arguments or "-q" in arguments
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _quietly if quiet else _as_note
        try:
            code = app(arguments, prog_name="pltf", standalone_mode=False)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 0
        except KeyboardInterrupt:
            return _told("interrupted", INTERRUPTED)
        except BrokenPipeError:  # whoever was reading has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            if debug:
                raise
            return _explained(error)


def _explained(error: Exception) -> int:
    """One sentence about an error."""
    from pltf.errors import PltfError

    if hasattr(error, "format_message"):  # of the command line itself: an option that is not there, for example
        return _told(_one_line(error.format_message()), REFUSED)
    if type(error).__name__ == "Abort":
        return _told("interrupted", INTERRUPTED)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, PltfError):
        return _told(in_our_words(str(error)), REFUSED)
    if isinstance(error, MemoryError):
        return _told("there is not enough memory for this: pltf plan tells what it takes", BROKEN)
    if isinstance(error, OSError):
        return _told(_one_line(str(error)), REFUSED)
    told = f"{type(error).__name__}: {_one_line(str(error))}"
    return _told(f"this should not have happened ({told}); --debug shows where", BROKEN)


def in_our_words(text: str) -> str:
    """A message of the library with the names of options.

    >>> in_our_words("say which one with value=, or count the rows with count=True")
    'say which one with --value, or count the rows with --count'
    """
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _told(text: str, code: int) -> int:
    if text:
        print(f"pltf: {text}", file=sys.stderr)
    return code


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    print(f"pltf: note: {in_our_words(_one_line(str(message)))}", file=sys.stderr)


def _quietly(*_: Any, **__: Any) -> None:
    pass
