"""Parse the values of options."""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.hints import meant, suggestion
from pltf.store.container import check_writable

if TYPE_CHECKING:
    from pltf.gamma import Gamma

OF_PRIOR = ("shape", "mean", "learn", "tie")
_MOST_FILES = 10_000  # files of a folder that are searched for a similar name
_LONGEST_NAME = 255  # bytes allowed by file systems


def indices_of(text: str | None) -> dict[str, str]:
    """Map columns to indices; a column with a comma in its name is quoted.

    >>> indices_of("user_id=user,place,when:week")
    {'user_id': 'user', 'place': 'place', 'when:week': 'when'}
    >>> indices_of('"Last, first"=name,place')
    {'Last, first': 'name', 'place': 'place'}
    """
    found: dict[str, str] = {}
    for part in (one.strip() for one in next(csv.reader([text or ""], skipinitialspace=True), [""])):
        if not part:
            if text is not None:
                raise PltfError(f"--index must be columns with commas between them, got {text!r}")
            continue
        column, _, name = part.rpartition("=") if "=" in part else (part, "", "")
        name = name or column.split(":")[0]
        if ";" in part or "|" in part:
            raise PltfError(f"--index: separate columns with commas, not {part!r}")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            plain = re.sub(r"[^A-Za-z0-9]+", "_", column.split(":")[0]).strip("_0123456789").lower() or "index"
            raise PltfError(
                f"--index: {name!r} cannot be the name of an index, which has letters, digits and _ only: "
                f"rename it, as in '{column}={plain}'"
            )
        if column in found or name in found.values():
            raise PltfError(f"--index names {name!r} twice")
        found[column] = name
    return found


def names_of(text: str | None, option: str) -> tuple[str, ...]:
    """Parse comma-separated names.

    >>> names_of("user, place", "--zeros"), names_of(None, "--zeros")
    (('user', 'place'), ())
    """
    names = tuple(one.strip() for one in text.split(",")) if text is not None else ()
    if not all(names):
        raise PltfError(f"{option} must be names with commas between them, got {text!r}")
    return names


def options_in_words(given: Mapping[str, Any]) -> list[str]:
    """Options as words of a command, without those that are not set.

    >>> options_in_words({"date_format": "%d.%m.%Y", "value": None, "count": True})
    ['--date-format', '%d.%m.%Y', '--count']
    """
    found = [(f"--{name.replace('_', '-')}", one) for name, one in given.items() if one]
    return [word for name, one in found for word in ([name] if one is True else [name, str(one)])]


def number_of(text: str, option: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) < 1:
        raise PltfError(f"{option} must be a whole number of at least 1, got {text!r}")
    return int(text)


def limit_of(text: str | None, option: str = "--limit") -> float | None:
    """Parse a memory size into bytes.

    >>> limit_of("8GB"), limit_of("1.5 MiB"), limit_of(None)
    (8000000000.0, 1572864.0, None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    size = float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " ") if found else 0.0
    if not 0 < size < math.inf:
        raise PltfError(f"{option} must be a memory size such as 8GB or 500MB, got {text!r}")
    return size


def dispersion_of(text: str) -> float | str | None:
    """Parse --dispersion.

    >>> dispersion_of("none"), dispersion_of("2.5"), dispersion_of("index:user")
    (None, 2.5, 'index:user')
    """
    if text == "none":
        return None
    if text == "auto" or text.startswith("index:"):
        return text
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not size > 0:
        raise PltfError(f"--dispersion must be auto, none, a size above 0 or index:NAME, got {text!r}")
    return size


def range_of(text: str, option: str) -> list[int]:
    """Sizes to try: one, several with commas, or an inclusive range.

    >>> range_of("2:5", "--cp"), range_of("2,4,8", "--cp"), range_of("7", "--cp")
    ([2, 3, 4, 5], [2, 4, 8], [7])
    """
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        if ":" in last:
            raise PltfError(f"{option} must be a number, a range such as 2:10 or a list such as 2,4,8, got {text!r}")
        low = number_of(first, option)
        high = number_of(last, option) if colon else low
        if high < low or high - low >= 10_000:
            raise PltfError(f"{option}: {part!r} must go from a smaller to a larger number")
        found += range(low, high + 1)
    return list(dict.fromkeys(found))


def sizes_of(given: Sequence[str] | None) -> dict[str, list[int]]:
    """Sizes of latent indices.

    >>> sizes_of(["p=2:3", "q=4"])
    {'p': [2, 3], 'q': [4]}
    """
    sizes: dict[str, list[int]] = {}
    for text in given or ():
        index, equals, numbers = (part.strip() for part in text.partition("="))
        if not equals or not index.isidentifier():
            raise PltfError(f"--size must be like r=7, got {text!r}")
        if index in sizes:
            raise PltfError(f"--size is given twice for {index!r}")
        sizes[index] = range_of(numbers, f"--size {index}")
    return sizes


def priors_of(given: Sequence[str] | None) -> Gamma | dict[str, Gamma] | None:
    """Parse --prior: one for all factors, or one for each of some.

    >>> priors_of(["shape=0.5,mean=10"])
    Gamma(shape=0.5, mean=10.0)
    >>> priors_of(["U:learn=mean,tie=component"])
    {'U': Gamma(shape=0.5, mean=10.0, learn='mean', tie='component')}
    """
    from pltf.gamma import Gamma

    named: dict[str, Gamma] = {}
    for text in given or ():
        match = re.fullmatch(r"(?:(\w+):)?(\w+=.*)", text.strip())
        if match is None:
            raise PltfError(f"--prior must be like shape=0.5,mean=10 or U:shape=0.5,mean=10, got {text!r}")
        parts: dict[str, Any] = {}
        for part in match[2].split(","):
            name, _, value = (one.strip() for one in part.partition("="))
            if name not in OF_PRIOR or name in parts:
                near = "" if name in OF_PRIOR else suggestion(name, OF_PRIOR)
                raise PltfError(f"--prior takes shape, mean, learn and tie, each once; got {part!r}{near}")
            parts[name] = value if name in ("learn", "tie") else _float(value, f"--prior: {name}")
        factor = match[1] or ""
        if factor in named:
            raise PltfError(f"--prior is given twice for {factor or 'all factors'}")
        named[factor] = Gamma(**parts)
    if "" in named and len(named) > 1:
        raise PltfError("--prior must be one for all factors, or each must name its factor")
    return named.get("", named or None)


def _float(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PltfError(f"{what} must be a number, got {text!r}") from None


def output_path(path: Path, force: bool, *inputs: Path | None) -> Path:
    """Check the output path before any work: the input is never overwritten."""
    if str(path) in ("-", "", "."):
        raise PltfError(f"the output must be a file name, got {str(path)!r}")
    if path.is_dir():
        raise PltfError(f"the output must be a file, and {path} is a folder")
    if any(one is not None and same_place(path, one) for one in inputs):
        raise PltfError(f"{path} is the input: write to another file")
    if os.path.lexists(path) and not force:  # also a broken link
        raise PltfError(f"{path} exists: use --force to overwrite it")
    if path.exists() and not path.is_file():
        raise PltfError(f"{path} is not a regular file and cannot be overwritten")
    if not path.parent.is_dir():
        raise PltfError(f"there is no folder {path.parent} for {path.name}")
    if not os.access(path.parent, os.W_OK):
        raise PltfError(f"the folder {path.parent} cannot be written to")
    check_writable(path)
    return path


def refuse_misspelt(path: Path) -> None:
    """Refuse the name of a file that does not exist if its folder has a similar one."""
    if getattr(path, "url", None) is not None:  # of a database
        return
    with suppress(OSError):
        if path.exists():
            return
        others = {one.stem: one.name for one in itertools.islice(path.parent.iterdir(), _MOST_FILES)}
        near = meant(path.stem, others)
        if near is not None:
            raise PltfError(f"there is no file {path}; did you mean {others[near]!r}?")


def same_place(one: Path, other: Path) -> bool:
    """Whether two paths name the same file, with links resolved as far as possible."""
    return os.path.realpath(one) == os.path.realpath(other)


def free_path(path: Path) -> Path:
    """The output path, or a free name next to it if a file has appeared there since the command began.

    >>> free_path(Path("nowhere/answers.csv.gz")).name
    'answers.csv.gz'
    """
    stem, *endings = _pieces(path)
    for number in itertools.count(2):
        if not os.path.lexists(path):
            return path
        tail = f"-{number}{''.join(endings)}"
        kept = stem.encode("utf-8", "surrogateescape")[: _LONGEST_NAME - len(tail.encode())].decode("utf-8", "ignore")
        path = path.with_name(kept + tail)
    raise AssertionError


def _pieces(path: Path) -> tuple[str, str, str]:
    """The stem of a file name, its extension, and .gz if it is packed."""
    packed = path.suffix if path.suffix.lower() == ".gz" else ""
    plain = Path(path.name.removesuffix(packed))
    return plain.stem, plain.suffix, packed


def ending_of(path: Path, known: Sequence[str]) -> str:
    """The extension that selects the format, without .gz.

    >>> ending_of(Path("counts.tsv.gz"), [".csv", ".tsv"])
    '.tsv'
    """
    _, ending, packed = _pieces(path)
    ending = ending.lower()
    if ending not in known or (packed and ending not in (".csv", ".tsv", ".tns")):
        raise PltfError(f"the output must end in {', '.join(known)}, got {path.name!r}")
    return ending
