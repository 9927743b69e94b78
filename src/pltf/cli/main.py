"""Run a command: errors become one sentence on stderr and an exit code."""

# Already imported by Python; everything else is imported where Ctrl-C and lack of memory are handled.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

REFUSED, BROKEN, INTERRUPTED = 2, 1, 130  # exit codes
NOTHING = "interrupted before anything was finished: nothing is saved"
_FEW, _LITTLE = 1024, 16 << 30  # processes and bytes of memory: limits below these may be reached
_LEAST = 640 << 20  # bytes that the libraries need; some abort the process without them
_UNMAPPED = ("failed to map segment", "cannot allocate memory")  # as in the errors of libraries


class ExitCode(int):
    """The exit code of a command that has reported how it ended; a plain number comes from typer."""


def main(arguments: "Sequence[str] | None" = None) -> None:
    """Run a command and exit with its code."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        if "--debug" not in given:
            sys.unraisablehook = _quietly  # errors while other libraries clean up after a damaged file
        _spare_resources()
        code = run(given)
    except KeyboardInterrupt:  # before or after `run`
        code = told("interrupted", INTERRUPTED)
    sys.exit(code)


def _spare_resources() -> None:
    """If limits are low, keep libraries from allocating more than they need.

    BLAS starts a thread for each core, and raises KeyboardInterrupt if it cannot. Arrow's allocator reserves 1 GiB.
    """
    if _limit("NPROC") < _FEW or _limit("AS") < _LITTLE:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _limit("AS") < _LITTLE:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def too_little_memory() -> str:
    """The error message if the memory limit is below what the libraries need, or ""."""
    most = _limit("AS")
    least, given = f"{_LEAST >> 20} MB", f"{most / (1 << 20):.0f} MB"
    return f"pltf needs at least {least} of memory, and the limit (ulimit -v) is {given}" if most < _LEAST else ""


def _limit(name: str) -> float:
    """A system limit of this process."""
    import math

    try:
        import resource

        most = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
    except (ImportError, AttributeError, OSError, ValueError):
        return math.inf
    return math.inf if most == resource.RLIM_INFINITY else most


def run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    import warnings

    debug = "--debug" in arguments
    arguments = [one for one in arguments if one != "--debug"]
    quiet = "--quiet" in arguments or "-q" in arguments
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)  # meant for developers
        warnings.showwarning = _quietly if quiet else _as_note
        try:
            return _run(arguments)
        except KeyboardInterrupt:
            return told(NOTHING, INTERRUPTED)
        except BrokenPipeError:  # the pipe is closed
            return _silenced(0)
        except Exception as error:
            if debug:
                import traceback

                traceback.print_exc()
            return _explained(error, arguments)


def _run(arguments: list[str]) -> int:
    from pltf.cli.app import COMMAND, command_line

    before = COMMAND.set(arguments)
    try:
        code = command_line()(arguments, prog_name="pltf", standalone_mode=False)
        if code == INTERRUPTED and not isinstance(code, ExitCode):
            raise KeyboardInterrupt
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer turns it into an exit
            return _silenced(0)
        code = leaving.code
    finally:
        COMMAND.reset(before)
    return code if isinstance(code, int) else 0


def _explained(error: Exception, arguments: "Sequence[str]") -> int:
    """Report an error in one sentence."""
    if isinstance(error.__cause__, KeyboardInterrupt):  # raised in a class body, where Python wraps it
        return told(NOTHING, INTERRUPTED)
    if _lacks_memory(error):
        return told("out of memory: pltf plan estimates what a fit needs", REFUSED)

    if hasattr(error, "format_message"):  # from the command line itself, such as an unknown option
        from pltf.cli.usage import sentence

        return told(_one_line(sentence(error, arguments)), REFUSED)
    if type(error).__name__ == "Abort":
        return told(NOTHING, INTERRUPTED)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))

    from pltf.cli.spelling import option
    from pltf.errors import NotationError, PltfError  # brings NumPy, for which a misspelt option does not wait

    if isinstance(error, NotationError):  # has a caret under the model text
        return told(str(error), REFUSED)
    if isinstance(error, PltfError):
        return told(_one_line(error.spelled(option)), REFUSED)
    if isinstance(error, OSError):
        return _silenced(told(_one_line(str(error)), REFUSED))
    named = f"{type(error).__name__}: {_one_line(str(error))}"
    return told(f"internal error, please report it ({named}); --debug shows the traceback", BROKEN)


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a lack of memory."""
    while error is not None:
        unloaded = isinstance(error, (ImportError, OSError)) and any(sign in str(error).lower() for sign in _UNMAPPED)
        hidden = (
            isinstance(error, ImportError) and _limit("AS") < _LITTLE
        )  # some packages report a missing dependency instead
        if isinstance(error, MemoryError) or unloaded or hidden:
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _one_line(text: str) -> str:
    return " ".join(text.split())


def told(text: str, code: int) -> int:
    """Print one sentence to stderr; returns the exit code."""
    from contextlib import suppress

    from pltf.terminal import printable

    if text and sys.stderr is not None:
        with suppress(BrokenPipeError):  # the pipe is closed
            print(f"pltf: {printable(text)}", file=sys.stderr)
    return code


def _silenced(code: int) -> int:
    """Discard what Python still writes at exit, because the pipe is closed."""
    from contextlib import suppress

    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _as_note(message: "Any", *_: "Any", **__: "Any") -> None:
    from pltf.cli.spelling import option
    from pltf.errors import Sentence

    text = message.spelled(option) if isinstance(message, Sentence) else str(message)
    told(f"note: {_one_line(text)}", 0)


def _quietly(*_: "Any", **__: "Any") -> None:
    pass
