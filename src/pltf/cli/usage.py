"""Messages for invalid command lines, such as an unknown option or value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pltf.hints import suggestion

_INDEX = ("-i", "--index")
_CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of (.*)", re.DOTALL)
_EXPECTED = (  # what pydantic says, and what we say
    (re.compile(r"Input should be greater than or equal to (\S+)"), "be at least {}"),
    (re.compile(r"Input should be less than or equal to (\S+)"), "be at most {}"),
    (re.compile(r"Input should be a valid integer.*"), "be a whole number"),
    (re.compile(r"Input should be a valid number.*"), "be a number"),
)


def sentence(error: Any, arguments: Sequence[str]) -> str:
    """One sentence about an invalid command line.

    >>> from pltf.cli.app import command_line
    >>> def told(*arguments):
    ...     try:
    ...         command_line()(list(arguments), prog_name="pltf", standalone_mode=False)
    ...     except Exception as error:
    ...         print(sentence(error, arguments))
    >>> told("fti")
    there is no command 'fti'; did you mean 'fit'?
    >>> told("fit", "a.csv", "--indx", "user,place")
    there is no option --indx for pltf fit; did you mean '--index'?
    >>> told("fit", "a.csv", "-i", "user", "place")
    unexpected argument 'place': separate columns with commas, as in --index user,place
    >>> told("fit", "a.csv", "--method", "vbb")
    --method must be one of vb, em, map, gibbs; got 'vbb'; did you mean 'vb'?
    >>> told("fit", "a.csv", "--restarts", "0")
    --restarts must be at least 1, got '0'
    """
    text: str = " ".join(error.format_message().split()).removesuffix(".")
    if type(error).__name__ == "NoSuchOption":
        known = [name for one in error.ctx.command.params for name in one.opts]
        return (
            f"there is no option {error.option_name} for {error.ctx.command_path}{suggestion(error.option_name, known)}"
        )
    if found := re.match(r"No such command '(.*?)'", text):
        return f"there is no command {found[1]!r}{suggestion(found[1], error.ctx.command.commands)}"
    if found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text):
        return f"unexpected argument {found[1]!r}{_between_columns(found[1], arguments)}"
    if found := re.match(r"Option '(.*?)' requires an argument", text):
        return f"{found[1]} needs a value"
    if type(error).__name__ == "MissingParameter" and error.param is not None:
        told = (getattr(error.param, "help", None) or "").removesuffix(".")
        return f"{_called(error.param)} is missing{f' ({told})' if told else ''}"
    if type(error).__name__ == "BadParameter" and error.param is not None:
        return _of_value(error, arguments)
    return text


def _called(parameter: Any) -> str:
    """An option by its long name, an argument as the help shows it."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip("[]")
    return str(max(parameter.opts, key=len))


def _between_columns(word: str, arguments: Sequence[str]) -> str:
    """The advice where blanks separate columns."""
    first = word.split()[0]
    at = arguments.index(first) if first in arguments else 0
    if at < 2 or arguments[at - 2] not in _INDEX:
        return ""
    return f": separate columns with commas, as in --index {','.join([arguments[at - 1], *word.split()])}"


def _of_value(error: Any, arguments: Sequence[str]) -> str:
    """The expected and the given value."""
    name, message = _called(error.param), str(error.message).removesuffix(".")
    if choice := _CHOICE.fullmatch(message):
        known = re.findall(r"'(.*?)'", choice[2])
        return f"{name} must be one of {', '.join(known)}; got {choice[1]!r}{suggestion(choice[1], known)}"
    given = _given(error.param.opts, arguments)
    came = "" if given is None else f", got {given!r}"
    for expected, words in _EXPECTED:
        if found := expected.fullmatch(message):
            return f"{name} must {words.format(*found.groups())}{came}"
    return f"{name}: {message.removeprefix('Value error, ')}{came}"


def _given(options: Iterable[str], arguments: Sequence[str]) -> str | None:
    """The value that was given for an option, the last if there are several."""
    values = [
        arguments[at + 1] if word in options else word.partition("=")[2]
        for at, word in enumerate(arguments)
        if (word in options and at + 1 < len(arguments)) or (word.partition("=")[0] in options and "=" in word)
    ]
    return values[-1] if values else None
