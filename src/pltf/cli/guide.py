"""If only a file is given: show its columns, what they probably are, and a command to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.cli.data import reading_of
from pltf.cli.dates import EPOCHS
from pltf.cli.models import KINDS
from pltf.cli.parsing import options_in_words, refuse_misspelt
from pltf.cli.telling import Teller, plain
from pltf.data.labels import PERIODS
from pltf.data.stored import is_store
from pltf.errors import PltfError
from pltf.io.columns import is_nameless
from pltf.io.files import TABLES, SourceTable, kind_of, read_data
from pltf.io.reading import Reading
from pltf.io.sources import name_on_the_command_line

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 40  # columns
WIDE = 12  # columns of numbers
MOST_INDICES, MOST_OF_CELLS = 3, 6  # in the suggested command: for a table of events, and for a table of cells
COMMAS = "numbers with decimal commas"
LABELS, DATES, VALUES, UNUSED = "labels", "dates", "values", "not used"
_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")
_HELD = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "b": "True and False", "O": "words"}
_SPANS = {
    "hour": 4,
    "day": 60,
    "week": 400,
    "month": 4000,
}  # longest time span in days for each bin; longer ones are binned by year
_COUNTS = re.compile(r"n|y|.*(count|value|number|visits?|qty|quantity|amount|total|freq|weight|rating|stars|score|hits|"
                     r"clicks|plays|sales|trips|pieces|times)s?", re.IGNORECASE)  # fmt: skip
_CODES = re.compile(
    r".*(year|month|day|hour|week|period|(id|code|zip|key|type|class|group|station|flight|age|subject|person|patient|"
    r"user|customer|item|product|store|site)s?)",
    re.IGNORECASE,
)
_IDS = re.compile(r".*(id|code|zip|key|phone|isbn|ean)s?", re.IGNORECASE)
_SINCE, _UNTIL = 5e8, 2.2e9  # numbers between these are probably seconds since 1970: from 1985 to 2039
_TIMES = re.compile(r".*(year|month|week)s?", re.IGNORECASE)
# Options for reading that are repeated in the suggested command.
_KEPT = (
    *("wide", "format", "variable", "sheet", "query", "encoding", "decimal", "keep_blanks"),
    *("date_format", "timezone", "count", "drop_missing"),
)
_NEARLY_EACH = 0.5  # share of distinct values above which a column identifies rows and does not group them
_NESTED = 1.3  # pairs of labels for each label of the finer column, below which it nearly determines the other
# Dates other than ISO dates; a column that matches two of them, such as 01/02/2026, is not guessed.
_FORMATS = (
    *("%a, %d %b %Y %H:%M:%S %z", "%a %b %d %H:%M:%S %Y %z", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"),
    *("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y"),
)


def columns_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Describe the columns of a table."""
    return [_column(table.iloc[:, at], str(name)) for at, name in enumerate(table.columns)]


def described_column(one: Mapping[str, Any]) -> str:
    """The description of a column in words."""
    absent = f"; {one['absent']:,} missing" if one["absent"] else ""
    span = f": {plain(one['first'])} to {plain(one['last'])}" if one["different"] else ""
    how = f" as numbers ({one['form']})" if one.get("form") in EPOCHS else f" as {one['form']}" if "form" in one else ""
    return f"{one['holds']}{how}, {one['different']:,} different{span}{absent}"


def guide(
    tell: Teller, command: str, file: Path | None, options: Mapping[str, Any], output: Path | None = None
) -> bool:
    """Without --index: show the columns of a table and a command that works, and return True.

    If a model or an output was given, the command was meant to run: then this is an error.
    """
    if file is None and options["model"] is None and not options["data"]:
        raise PltfError(f"FILE is missing, for example: pltf {command} events.csv")
    if file is None or options["index"] or options["model"] is not None or is_store(file):
        return False
    refuse_misspelt(file)
    reading = reading_of(options)
    kind = kind_of(file, reading)
    if kind not in TABLES:
        return _guide_to_array(tell, command, file, reading, options, output)
    source = SourceTable(file, kind, reading)
    columns, table = source.columns(), source.read(None, most=MOST_SHOWN)
    facts = columns_of(table)
    roles = _with_values(roles_of(facts, len(table)), facts, table)
    _show(tell, file, len(table), facts, roles, len(columns))
    _tell_of_no_header(tell, kind, columns)
    start = [*_start(command, file, options), "--index"]
    if options.get("wide") or _looks_wide(facts, roles):
        example = shlex.join([*start, *_chosen_of_wide(command, table, facts, roles, options)])
        lack = "--index must name the rows and the columns"
        if not options.get("wide"):
            example = example.replace("--index", "--wide --index", 1)
            lack = (
                f"{file} looks like a wide table, with a column for each label: read it with --wide, "
                "or say with --index which columns are indices"
            )
    else:
        example = shlex.join([*start, *_chosen(command, table, facts, roles, options)])
        lack = "--index must say which columns are indices"
    return _next(tell, lack, example, options, output)


def _tell_of_no_header(tell: Teller, kind: str, names: Sequence[str]) -> None:
    """Say how the first row was read if one of the names is a number; many may be those of a wide table."""
    number = next((name for name in names if re.fullmatch(r"-?[0-9.]+", name)), None)
    if kind in ("csv", "tsv") and len(names) < WIDE and number is not None:
        tell.say(
            "", f"The first row has the names of the columns; is {plain(number)} a value? Then put names above it."
        )


def _next(tell: Teller, lack: str, example: str, options: Mapping[str, Any], output: Path | None) -> bool:
    """Show the command to run next; an error if this command was meant to run, or nothing can be shown."""
    if not tell.talks or output is not None or any(options[one] is not None for one in KINDS):
        raise PltfError(f"{lack}, for example: {example}")
    if "wide table" in lack:
        tell.say("", lack.replace(", or say", "; or say"))
    tell.say("", f"Next: {example}")
    return True


def _guide_to_array(
    tell: Teller, command: str, file: Path, reading: Reading, options: Mapping[str, Any], output: Path | None
) -> bool:
    """Without a model: show the shape of an array and a command that works."""
    if any(options[one] is not None for one in KINDS):
        return False
    held = read_data(file, **vars(reading))
    shape = getattr(held, "shape", None)
    if shape is None or len(shape) < 2:
        return False
    names = [str(one) for one in getattr(held, "dims", None) or [""] * len(shape)]
    tell.say("", f"{file}: {' x '.join(f'{name} {size:,}'.strip() for name, size in zip(names, shape, strict=True))}")
    example = shlex.join([*_start(command, file, options), *_end(command, len(shape), options)])
    return _next(tell, "--cp or another option must say which model to fit", example, options, output)


def _looks_wide(facts: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> bool:
    """Whether all columns but one are numbers, and there are many: probably a wide table."""
    groups = sum(role in (LABELS, DATES) or one["holds"] == "words" for one, role in zip(facts, roles, strict=True))
    return groups <= 1 and sum(map(_can_be_values, facts)) >= WIDE


def roles_of(facts: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    """What each column probably is.

    >>> kinds = {"user": "words", "when": "dates", "n": "whole numbers", "note": "words"}
    >>> different = {"user": 12, "when": 30, "n": 5, "note": 99}
    >>> roles_of([{"name": name, "holds": kinds[name], "different": different[name]} for name in kinds], 100)
    ['labels', 'dates', 'values', 'not used']
    """
    roles = [_role(one, rows) for one in facts]
    if (
        not _looks_wide(facts, roles) and sum(role in (LABELS, DATES) for role in roles) < 2
    ):  # numbers that repeat may be labels as well
        spare = [at for at, role in enumerate(roles) if role == UNUSED and _repeats(facts[at], rows)]
        for at in sorted(spare, key=lambda at: facts[at]["different"])[: 2 - roles.count(LABELS) - roles.count(DATES)]:
            roles[at] = LABELS
    values = [at for at, role in enumerate(roles) if role == VALUES]
    first = min(values, key=lambda at: facts[at]["holds"] != "whole numbers", default=None)  # rather 3 items than $4.99
    return [UNUSED if role == VALUES and at != first else role for at, role in enumerate(roles)]


def _with_values(roles: list[str], facts: Sequence[Mapping[str, Any]], table: pd.DataFrame) -> list[str]:
    """If labels differ in all rows, an unused column of numbers probably holds the values."""
    keys = [at for at, role in enumerate(roles) if role in (LABELS, DATES)]
    if VALUES in roles or len(keys) < 2 or table.iloc[:, keys].duplicated().any():
        return roles
    spare = [at for at, role in enumerate(roles) if role == UNUSED and _can_be_values(facts[at])]
    return [VALUES if at == spare[0] else role for at, role in enumerate(roles)] if len(spare) == 1 else roles


def _can_be_values(one: Mapping[str, Any]) -> bool:
    numbers = one["holds"] in ("whole numbers", "numbers", COMMAS) and not str(one["first"]).startswith("-")
    name = str(one["name"])
    return numbers and not is_nameless(name) and not _IDS.fullmatch(name) and one["different"] > 1


def _role(one: Mapping[str, Any], rows: int) -> str:
    name, holds, different = str(one["name"]), one["holds"], one["different"]
    if is_nameless(name) or different < 2:
        return UNUSED
    if holds == "dates":
        return DATES
    each = rows > 20 and different > _NEARLY_EACH * rows
    if holds in ("words", "True and False"):
        return UNUSED if each else LABELS
    negative = str(one.get("first", "")).startswith("-")
    if _COUNTS.fullmatch(name) and not negative:
        return VALUES
    return LABELS if holds == "whole numbers" and not each and _CODES.fullmatch(name) else UNUSED


def _repeats(one: Mapping[str, Any], rows: int) -> bool:
    return not is_nameless(str(one["name"])) and 1 < one["different"] <= rows / 2 and one["holds"] == "whole numbers"


def _show(
    tell: Teller, file: Path, rows: int, facts: Sequence[Mapping[str, Any]], roles: Sequence[str], width: int
) -> None:
    tell.say("", f"{file}: {rows:,} rows, {width:,} columns")
    names = [plain(one["name"]) or "(no name)" for one in facts]
    longest = min(max(map(len, names), default=0), 30)
    for name, one, role in zip(names, facts, roles, strict=True):
        tell.say("", f"  {name:<{longest}}  {role + '?' if role != UNUSED else role:<8}  {described_column(one)}")
    if width > len(facts):
        tell.say("", f"  and {width - len(facts):,} more columns")


def _start(command: str, file: Path, options: Mapping[str, Any]) -> list[str]:
    """A command with its file and the given options for reading it."""
    given = options_in_words({name: options.get(name) for name in _KEPT})
    return ["pltf", command, name_on_the_command_line(file), *given]


def _end(command: str, indices: int, options: Mapping[str, Any]) -> list[str]:
    """The requested model, or one for this number of indices, and the output."""
    given = next((name for name in ("cp", "nmf", "tucker") if options[name] is not None), None)
    kind = "nmf" if indices == 2 else "cp"
    model = [f"--{given}", options[given]] if given else [f"--{kind}", "2:10" if command == "select" else "5"]
    output = [] if command == "plan" else ["-o", "search.nc" if command == "select" else "run.nc"]
    return [*model, *output]


def _chosen(
    command: str,
    table: pd.DataFrame,
    facts: Sequence[Mapping[str, Any]],
    roles: Sequence[str],
    options: Mapping[str, Any],
) -> list[str]:
    """Probable columns of indices and values, and the model."""
    dates = [at for at, role in enumerate(roles) if role == DATES]
    labels = [at for at, role in enumerate(roles) if role == LABELS]
    values = [at for at, role in enumerate(roles) if role == VALUES]
    telling, told = _without_repeating_dates(table, facts, _telling(table, facts, labels), dates[:1])
    room = MOST_INDICES - bool(dates)
    if values and len(labels) <= MOST_OF_CELLS and not table.iloc[:, sorted(labels + dates)].duplicated().any():
        room = MOST_OF_CELLS  # a row for each cell: all of them are indices
    chosen = sorted(telling[:room] + told)
    if not labels and dates:
        chosen, entries = dates[:1], _twice(facts[dates[0]])
    else:
        if len(chosen) < 2:  # a label that repeats the date
            chosen = sorted(_telling(table, facts, labels)[:room] + dates[:1])
        entries = [_entry(facts[at], roles[at]) for at in chosen]
    if len(entries) < 2:
        return ["COLUMN,COLUMN", "--cp", "5"]
    words = [",".join(entries)]
    if values and not options["count"]:
        several = _binned(table, facts, chosen, dates).duplicated().any()
        words += ["--value", str(facts[values[0]]["name"]), *(["--sum"] if several else [])]
        words += ["--decimal", ","] if facts[values[0]]["holds"] == COMMAS and not options.get("decimal") else []
    words += _how_dates_are_written(table, facts, [at for at in chosen if at in dates], options)
    if any(facts[at]["absent"] for at in chosen) and not options.get("drop_missing"):
        words.append("--drop-missing")
    return [*words, *_end(command, len(entries), options)]


def _twice(one: Mapping[str, Any]) -> list[str]:
    """A column of dates as two indices."""
    name, bin = one["name"], _bin_for(one)
    return [f"{name}:weekday=weekday", f"{name}:{bin}={bin}"]


def _chosen_of_wide(
    command: str,
    table: pd.DataFrame,
    facts: Sequence[Mapping[str, Any]],
    roles: Sequence[str],
    options: Mapping[str, Any],
) -> list[str]:
    """The column that labels the rows of a wide table, a name for the index along the columns, and the model."""
    named = [at for at, one in enumerate(facts) if one["holds"] in ("words", "dates") and not is_nameless(one["name"])]
    rows = _entry(facts[named[0]], roles[named[0]]) if named else "row"
    commas = any(one["holds"] == COMMAS for one in facts) and not options.get("decimal")
    return [
        f"{rows},column",
        *(["--decimal", ","] if commas else []),
        *_how_dates_are_written(table, facts, [at for at in named[:1] if roles[at] == DATES], options),
        *_end(command, 2, options),
    ]


def _how_dates_are_written(
    table: pd.DataFrame, facts: Sequence[Mapping[str, Any]], dates: Sequence[int], options: Mapping[str, Any]
) -> list[str]:
    """The options for reading columns of dates, unless they are given."""
    form = next((facts[at]["form"] for at in dates if "form" in facts[at]), None)
    words = ["--date-format", form] if form and not options.get("date_format") else []
    if any(_has_several_offsets(table.iloc[:, at]) for at in dates) and not options.get("timezone"):
        words += ["--timezone", "UTC"]
    return words


def _has_several_offsets(dates: pd.Series) -> bool:
    """Whether dates have different UTC offsets, so that a time zone must be chosen."""
    found = dates.dropna().astype(str).str.extract(r"\d ?(Z|[+-]\d\d:?\d\d)$", expand=False)
    return bool(found.nunique() > 1)


def _telling(table: pd.DataFrame, facts: Sequence[Mapping[str, Any]], labels: Sequence[int]) -> list[int]:
    """Columns of labels, the most informative first: complete, words, many labels.

    Without copies (code and name), and without groups of another column (the state of a city).
    """
    order = sorted(labels, key=lambda at: (facts[at]["absent"] > 0, not _in_words(facts[at]), -facts[at]["different"]))
    found: list[int] = []
    for at in order:
        if not any(_one_is_enough(table.iloc[:, [one, at]], facts[one], facts[at]) for one in found):
            found.append(at)
    found = found[: 2 * MOST_OF_CELLS]  # more would take long to compare
    coarse = [at for at in found for one in found if _groups(table, facts, at, one)]
    return [at for at in found if at not in coarse]


def _one_is_enough(pair: pd.DataFrame, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two columns have the same labels in other words."""
    return bool(one["different"] == other["different"] == len(pair.drop_duplicates()))


def _groups(table: pd.DataFrame, facts: Sequence[Mapping[str, Any]], coarse: int, fine: int) -> bool:
    """Whether a column groups the labels of another one, up to a few exceptions."""
    most, size = facts[fine]["different"], facts[coarse]["different"]
    number = facts[fine]["holds"] != "words" and _IDS.fullmatch(
        str(facts[fine]["name"])
    )  # a city says more than its code
    if number or size >= most or len(table) < 2 * most:
        return False
    return bool(len(table.iloc[:, [coarse, fine]].drop_duplicates()) <= _NESTED * most)


def _without_repeating_dates(
    table: pd.DataFrame, facts: Sequence[Mapping[str, Any]], labels: Sequence[int], dates: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Labels, without the month of a week or another group of bins; and dates, unless a label is their bin."""
    import pandas as pd

    kept = list(labels)
    for at in dates:
        bins = _binned(table, facts, [at], [at])[at]
        size = bins.nunique()
        for one in labels:
            own = facts[one]["different"]
            pairs = len(pd.DataFrame({"bin": bins, "label": table.iloc[:, one]}).drop_duplicates())
            if pairs == own == size:
                return list(labels), []
            if own < size and 2 * size <= len(table) and pairs <= _NESTED * size:
                kept.remove(one)
    return kept, list(dates)


def _in_words(one: Mapping[str, Any]) -> bool:
    """Whether labels are words, or numbers that mean a time."""
    return one["holds"] == "words" or _TIMES.fullmatch(str(one["name"])) is not None


def _binned(
    table: pd.DataFrame, facts: Sequence[Mapping[str, Any]], chosen: Sequence[int], dates: Sequence[int]
) -> pd.DataFrame:
    """Some columns, with dates in the suggested bins."""
    import pandas as pd

    columns = {}
    for at in chosen:
        column = table.iloc[:, at]
        if at in dates:
            column = (
                _moments(column, facts[at].get("form", "ISO8601"))
                .dt.tz_localize(None)
                .dt.to_period(PERIODS[_bin_for(facts[at])])
            )
        columns[at] = column
    return pd.DataFrame(columns)


def _entry(one: Mapping[str, Any], role: str) -> str:
    """A column in the form of --index: with a bin for dates, and renamed if its name is invalid."""
    name = str(one["name"])
    column = f"{name}:{_bin_for(one)}" if role == DATES else name
    if re.fullmatch(r"[^\W\d]\w*", name):
        return column
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_0123456789").lower() or "index"
    entry = f"{column}={plain}"
    return f'"{entry}"' if "," in name else entry


def _bin_for(one: Mapping[str, Any]) -> str:
    """The bin for dates that gives some tens of bins."""
    import pandas as pd

    try:
        days = (pd.Timestamp(one["last"]) - pd.Timestamp(one["first"])).days
    except (ValueError, TypeError):
        return "month"
    return next((bin for bin, most in _SPANS.items() if days <= most), "year")


def _column(column: pd.Series, name: str) -> dict[str, Any]:
    """Describe a column."""
    import pandas as pd

    kind, different, absent = _different(column)
    if kind == "f" and absent and len(different) and all(float(one).is_integer() for one in different):
        kind, different = "i", [int(one) for one in different]  # floats only because some are missing
    holds = _HELD[kind]
    if kind == "O" and len(different) and all(_looks_like_a_date(word) for word in different):
        holds = "dates"
    elif kind == "O" and any("," in word for word in different) and all(map(_COMMA.fullmatch, different)):
        holds = COMMAS
    order = (lambda word: float(word.replace(",", "."))) if holds == COMMAS else None
    ends: tuple[Any, Any] = (min(different, key=order), max(different, key=order)) if len(different) else (None, None)
    form = _epoch_of(name, *ends) if kind in "iuf" else _format_of(different) if holds == "words" else None
    if form is not None:
        dates = _moments(pd.Series(different), form).dt.tz_localize(None).dt.floor("s")
        holds, ends = "dates", (dates.min(), dates.max())
    first, last = (one if one is None else str(one).removesuffix(" 00:00:00")[:40] for one in ends)
    found = {"name": name, "holds": holds, "different": len(different), "first": first, "last": last, "absent": absent}
    return found if form is None else {**found, "form": form}


def _moments(column: pd.Series, form: str) -> pd.Series:
    """The dates of a column in UTC; NaT where there is none."""
    import pandas as pd

    how: dict[str, Any] = {"unit": EPOCHS[form]} if form in EPOCHS else {"format": form}
    return pd.to_datetime(column if form in EPOCHS else column.astype(str), errors="coerce", utc=True, **how)


def _format_of(words: Sequence[str]) -> str | None:
    """The format of words that are dates, but not ISO dates; None if several formats fit.

    >>> _format_of(["24.12.2026", "01.02.2027"]), _format_of(["31/12/2026"]), _format_of(["01/02/2026"])
    ('%d.%m.%Y', '%d/%m/%Y', None)
    """
    import pandas as pd

    fitting: tuple[str, ...] = _FORMATS
    for some in (words[:1], words):  # most columns of words are ruled out by their first word
        fitting = tuple(one for one in fitting if _moments(pd.Series(some, dtype=object), one).notna().all())
        if not len(some) or not fitting:
            return None
    return fitting[0] if len(fitting) == 1 else None


def _epoch_of(name: str, first: Any, last: Any) -> str | None:
    """The unit of numbers that are probably dates: seconds, milliseconds, ... since 1970.

    >>> _epoch_of("ts", 1400195976, 1439980054), _epoch_of("user_id", 1400195976, 1439980054), _epoch_of("n", 1, 9)
    ('epoch', None, None)
    """
    if first is None or _IDS.fullmatch(name):
        return None
    units = zip(EPOCHS, (1, 1e3, 1e6, 1e9), strict=True)
    return next((form for form, unit in units if first >= _SINCE * unit and last <= _UNTIL * unit), None)


def _different(column: pd.Series) -> tuple[str, Any, int]:
    """The type of a column, its distinct values (as text unless they are numbers), and the number of missing ones."""
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":  # fast path: there may be many such columns
        values = column.to_numpy()
        present = values[~np.isnan(values)] if column.dtype.kind == "f" else values
        return column.dtype.kind, pd.unique(present), values.size - present.size
    present = column.dropna()
    try:
        once = present.unique()
    except TypeError:  # lists, for example
        once = present
    kind = present.infer_objects().dtype.kind if len(present) else "O"
    if kind not in "iufb":
        kind, once = "O", list(dict.fromkeys(map(str, once)))
        if "" in once:  # an empty field of a text
            once.remove("")
            present = present[present.astype(str) != ""]
    return kind, once, len(column) - len(present)


def _looks_like_a_date(word: str) -> bool:
    return word[:4].isdigit() and word[4:5] == "-" and word[5:7].isdigit() and word[7:8] == "-"
