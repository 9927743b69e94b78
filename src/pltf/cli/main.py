"""From the shell and back: one sentence for whatever goes wrong, and a code that says so."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from pltf.cli.app import COMMAND, INTERRUPTED, NOTHING, app

REFUSED, BROKEN = 2, 1  # exit codes; INTERRUPTED is another

# What the library calls by the names of arguments has other names here.
_WORDS = {
    "; go on with init=fit, or give checkpoint= next time": "; with --checkpoint one can go on from there",
    "raise max_iter or tol, or go on with init=fit": "raise --max-iter or --tol",
    "count=True": "--count",
    "value=": "--value",
    "dims={'user_id': 'user'}": "--index user_id=user",
    "dims=": "--index",
    ": dims must": ": --index must",
    ": dims: ": ": --index: ",
    "pass duplicates='sum' to observe to add them up": "--sum adds them up",
    "duplicates='sum'": "--sum",
    "format=": "--format",
    "variable=": "--variable",
    "go on with resume=True": "go on with --resume",
    "resume=True": "--resume",
    "keep_data=False": "--no-keep-data",
    "among='all'": "--among all",
    "see model.plan(X)": "see pltf plan",
    "checkpoint=": "--checkpoint",
    "choose another name": "name it otherwise, as in --index r=other",
    "dtype='float64'": "--dtype float64",
    "value must be a column": "--value must be a column",
    "among must be 'zero' or 'all'": "--among must be zero or all",
    "ranking=False": "--no-ranking",
}
_OPTIONS = re.compile(
    r"^(restarts|seed|max_iter|tol|dtype|method|every|workers|level|draws|atleast|among|checkpoint|prior|title|top)\b"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" not in given:
        sys.unraisablehook = _quietly  # what fails while others clean up after a broken file
    sys.exit(run(given))


def run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    debug = "--debug" in arguments
    arguments = [one for one in arguments if one != "--debug"]
    quiet = "--quiet" in arguments or "-q" in arguments
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)  # for those who write programs
        warnings.showwarning = _quietly if quiet else _as_note
        try:
            return _run(arguments)
        except KeyboardInterrupt:
            return _told(NOTHING, INTERRUPTED)
        except BrokenPipeError:  # whoever was reading has seen enough
            return _silenced(0)
        except Exception as error:
            if debug:
                traceback.print_exc()
            return _explained(error)


def _run(arguments: list[str]) -> int:
    before = COMMAND.set(arguments)
    try:
        code = app(arguments, prog_name="pltf", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer makes an error of it
            return _silenced(0)
        code = leaving.code
    finally:
        COMMAND.reset(before)
    return code if isinstance(code, int) else 0


def _explained(error: Exception) -> int:
    """One sentence about an error."""
    from pltf.errors import NotationError, PltfError

    if hasattr(error, "format_message"):  # of the command line itself: an option that is not there, for example
        text = _one_line(error.format_message()).replace("Value error, ", "").removesuffix(".")
        return _told(text, REFUSED)
    if type(error).__name__ == "Abort":
        return _told(NOTHING, INTERRUPTED)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, NotationError):  # shows the place in the text of the model
        return _told(str(error), REFUSED)
    if isinstance(error, PltfError):
        return _told(in_our_words(_one_line(str(error))), REFUSED)
    if isinstance(error, MemoryError):
        return _told("there is not enough memory for this: pltf plan tells what it takes", REFUSED)
    if isinstance(error, OSError):
        return _silenced(_told(_one_line(str(error)), REFUSED))
    told = f"{type(error).__name__}: {_one_line(str(error))}"
    return _told(f"this should not have happened ({told}); --debug shows where", BROKEN)


def in_our_words(text: str) -> str:
    """A message of the library with the names of options.

    >>> in_our_words("say which one with value=, or count the rows with count=True")
    'say which one with --value, or count the rows with --count'
    >>> in_our_words("max_iter must be a whole number of at least 1, got 0")
    '--max-iter must be a whole number of at least 1, got 0'
    """
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    text = re.sub(r"give it as a keyword, for example Model\(\.\.\., (\w+=3)\)", r"give it as --size \1", text)
    text = re.sub(r"^at\b", "--cells", text)
    text = re.sub(r"\brow (\d+)(?= has | of column )", lambda found: f"row {int(found[1]) + 1}", text)  # from 1
    return _OPTIONS.sub(lambda found: f"--{found[1].replace('_', '-')}", text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _told(text: str, code: int) -> int:
    if text and sys.stderr is not None:
        with contextlib.suppress(BrokenPipeError):  # nobody reads it
            print(f"pltf: {text}", file=sys.stderr)
    return code


def _silenced(code: int) -> int:
    """Python writes what is left when it ends: to nowhere, if it could not be written before."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    _told(f"note: {in_our_words(_one_line(str(message)))}", 0)


def _quietly(*_: Any, **__: Any) -> None:
    pass
