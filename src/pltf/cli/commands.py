"""What the commands do."""

from __future__ import annotations

import math
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.cli.app import COMMAND
from pltf.cli.data import (
    ENDINGS,
    TABLE_ENDINGS,
    UNLISTED,
    Wanted,
    as_labelled,
    for_csv,
    hidden,
    model_of,
    observed,
    read_alike,
    reading_in_words,
    refuse_no_text,
    wanted_of,
    with_store,
    write_table,
)
from pltf.cli.parsing import (
    dispersion_of,
    ending_of,
    free_path,
    indices_of,
    names_of,
    output_path,
    priors_of,
    same_place,
)
from pltf.cli.spelling import option
from pltf.cli.telling import Teller, human_bytes, is_terminal
from pltf.data import CooObservation, Observation, StoredObservation
from pltf.data.pattern import ForgottenPattern
from pltf.data.stored import is_store, open_store
from pltf.errors import PltfError, naming_rows, spelled
from pltf.fit import Fit
from pltf.inference.run import INTERRUPTED
from pltf.io import load
from pltf.io.databases import without_password
from pltf.selection import Selection
from pltf.selection.result import described, marked_doubts
from pltf.store.container import leaving_others
from pltf.terminal import printable
from pltf.threads import available_threads

if TYPE_CHECKING:
    import pandas as pd

    from pltf.cli.tables import Table
    from pltf.engines.plan import Plan

MOST_SHOWN = 12  # components in a listing
PLANNED_CELLS = 100_000  # of predictions whose memory is told
MOST_COLUMNS = 10_000  # of a table that are described
_PASSING = {"--resume", "--force", "--quiet", "-q", "--json"}  # options that change nothing of a result
_HELD = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "b": "True and False", "O": "words"}
_PREDICTED = ("mean", "sd", "prob", "supported", "rate_low", "rate_high", "count_low", "count_high")


def fit(tell: Teller, file: Path, output: Path, force: bool, **options: Any) -> int:
    """Read, fit, save."""
    goes_on = _goes_on(output, options)
    target = _target(output, force or goes_on, file, options)
    if options["holdout"] is not None and not 0 < options["holdout"] < 1:
        raise PltfError(f"--holdout must be a share between 0 and 1, got {options['holdout']:g}")
    fitting, wanted = _fitting(tell, options, file), wanted_of(options)
    seen = _read(tell, file, options, wanted)
    model, _ = model_of(seen, wanted)
    train, held = hidden(seen, options["holdout"], options["seed"])
    if held is not None:
        above = np.count_nonzero(held.values)
        tell.say("hidden", f"{len(held.values):,} cells, {above:,} of them above zero")
        tell.know(hidden={"cells": len(held.values), "above_zero": int(above), "zeros_sampled": held.sampled})
        if held.sampled:
            low = f"so expected counts come out about {options['holdout']:.0%} low"
            tell.say("", f"of so many cells only few zeros are hidden, {low}: fit without --holdout to predict")
    fitted = model.fit(train, **fitting)
    fitted = replace(fitted, held_out=held, origin=_origin(file, options))
    target = _saved(tell, target, force or goes_on, fitted.save)
    _tell_fit(tell, fitted)
    interrupted = len(fitted.rows) < options["restarts"] or INTERRUPTED in (fitted.rows[-1].stopped, fitted.stopped)
    tell.know(interrupted=interrupted)
    _tell_saved(tell, target, "the best so far, for it was interrupted" if interrupted else "")
    return 130 if interrupted else 0


def _target(output: Path, replaces: bool, file: Path, options: Mapping[str, Any]) -> Path:
    """Where a run is saved."""
    if options["checkpoint"] is not None and same_place(options["checkpoint"], output):
        raise PltfError(f"--checkpoint and the output must be two files, and both are {output}")
    target = output_path(output, replaces, file)
    ending_of(target, [".nc"])
    return target


def _saved(tell: Teller, target: Path, replaces: bool, save: Callable[[Path], object]) -> Path:
    """Where the result is once it is saved."""
    with _leaving_others(tell, replaces) as names:
        save(target)
    tell.saved = names.get(target, target)
    return tell.saved


@contextmanager
def _leaving_others(tell: Teller, replaces: bool) -> Iterator[dict[Path, Path]]:
    """Files that are written here do not replace unasked what has appeared meanwhile; yields the names they got."""
    if replaces:
        yield {}
        return
    with leaving_others(free_path) as names:
        yield names
    for asked, name in names.items():
        _tell_of_others(tell, asked, name)


def _tell_of_others(tell: Teller, asked: Path, name: Path) -> None:
    if name != asked:
        tell.insist(f"{asked} has appeared meanwhile and is left as it is: the result is in {name}")


def _goes_on(output: Path, options: Mapping[str, Any]) -> bool:
    """Whether the output is that of the same call, which was interrupted, and which this one goes on with."""
    if not (options["resume"] and output.is_file() and options["checkpoint"] and options["checkpoint"].exists()):
        return False
    try:
        before = _fit_of(output).origin.get("command", "")
    except PltfError:
        return False
    told, now = (Counter(words) for words in (shlex.split(before), _as_written()))
    return not ((told - now) + (now - told)).keys() - _PASSING


def select(tell: Teller, file: Path, output: Path | None, force: bool, **options: Any) -> int:
    """Read, search, save."""
    from pltf.selection import select as search

    replaces = force or (output is not None and _goes_on(output, options))
    target = None if output is None else _target(output, replaces, file, options)
    fitting, wanted = _fitting(tell, options, file), wanted_of(options, several=True)
    seen = _read(tell, file, options, wanted)
    model, sizes = model_of(seen, wanted)
    names = ("workers", "race", "criterion", "folds", "score", "widen")
    settings: dict[str, Any] = {**fitting, **{name: options[name] for name in names}, **sizes}
    found = search(model, seen, **settings)
    found = replace(found, best_fit=replace(found.best_fit, origin=_origin(file, options)))
    if target is not None:
        target = _saved(tell, target, replaces, found.save)
    _tell_search(tell, found)
    if target is not None:
        _tell_saved(tell, target)
    return 130 if found.interrupted else 0


def _fitting(tell: Teller, options: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The options of a fit, checked before the data are read."""
    from pltf.options import FitOptions
    from pltf.store.checkpoint import Place

    given = {one.name: options[one.name] for one in fields(FitOptions) if one.name in options}
    given |= {"prior": priors_of(options["prior"]), "progress": tell.shown}
    given["dispersion"] = dispersion_of(options["dispersion"])
    if given["checkpoint"] is not None and same_place(given["checkpoint"], file):
        raise PltfError(f"--checkpoint must be a file of its own, and {file} holds the data")
    checked = FitOptions(**given)
    Place(checked.checkpoint, checked.every, checked.resume)
    return given


def update(tell: Teller, run: Path, file: Path, output: Path, force: bool, **options: Any) -> int:
    """Read further data, update a saved fit, save it anew."""
    from pltf.update import judged

    target = output_path(output, force, run, file)
    ending_of(target, [".nc"])
    how = {name: options[name] for name in ("forget", "restarts", "seed", "max_iter", "tol", "keep_data")}
    how |= {name: names_of(options[name], f"--{name}") for name in ("append", "zeros")}
    known = _fit_of(run, options["limit"])
    judged(known, how["forget"], how["append"], how["zeros"])
    if len(known.model.observed) > 1:
        raise PltfError(f"{run} is a fit of several tensors: these are updated in Python")
    reading = read_alike(known, options)
    seen = _read(tell, file, reading, known=known)
    fitted = known.update(seen, progress=tell.shown, **how)
    fitted = replace(fitted, origin=_origin(file, reading))
    target = _saved(tell, target, force, fitted.save)
    _tell_new_rows(tell, known, fitted)
    _tell_fit(tell, fitted)
    interrupted = fitted.stopped == INTERRUPTED
    tell.know(interrupted=interrupted, batches=fitted.batches.to_dict("records"))
    _tell_saved(tell, target, "the best so far, for it was interrupted" if interrupted else "")
    return 130 if interrupted else 0


def _tell_new_rows(tell: Teller, known: Fit, fitted: Fit) -> None:
    """How many rows an update has added."""
    new = {index: size - known.sizes[index] for index, size in fitted.sizes.items() if size > known.sizes[index]}
    tell.know(new=new)
    if new:
        tell.say("new", ", ".join(f"{index} {size:,}" for index, size in new.items()))


def predict(
    tell: Teller,
    run: Path,
    cells: Path | None,
    top: int | None,
    among: str | None,
    atleast: int,
    level: float,
    draws: int,
    seed: int,
    device: str,
    output: Path | None,
    format: str | None,
    force: bool,
    unsupported: bool,
    limit: float | None,
    spreadsheet_safe: bool,
) -> int:
    """Predict cells of a saved fit."""
    if (cells is None) == (top is None):
        raise PltfError("predict needs either --cells, a table of cells, or --top, a number of them")
    if cells is not None and among is not None:
        raise PltfError("--among goes with --top, and --cells says itself which cells")
    if cells is not None and unsupported:
        raise PltfError("--unsupported goes with --top, and --cells says itself which cells")
    if output is not None:
        output_path(output, force, run, cells)
        refuse_no_text(ending_of(output, TABLE_ENDINGS), spreadsheet_safe)
    known = _fit_of(run, limit).to(device)
    indices = list(known.model.observed[known.tensor()])
    how: dict[str, Any] = {"draws": draws, "seed": seed, "progress": tell.shown}
    if top is not None:
        table = known.top(top, among or _most_asked(known), atleast=atleast, unsupported=unsupported, **how)
        at = table[indices]
    else:
        assert cells is not None
        asked, table = _asked(cells, format, known, indices, limit)
        at = as_labelled(table[indices], known)
        with naming_rows(asked.place):
            spread = np.sqrt(known.var(at, progress=tell.shown))
        table = table.assign(mean=known.mean(at), sd=spread, prob=known.prob(at, atleast, **how))
        table = table.assign(supported=known.supported(at))
    for kind, counts in (("rate", False), ("count", True)):
        low, high = known.interval(at, level, counts=counts, **how)
        table = table.assign(**{f"{kind}_low": low, f"{kind}_high": high})
    tell.know(cells=table.astype(object).to_dict("records"), level=level, atleast=atleast)
    if output is not None:
        output = _saved(tell, output, force, lambda path: write_table(table, path, safe=spreadsheet_safe))
        _tell_saved(tell, output, f"{len(table):,} cells")
    elif tell.talks:
        _print_table(table, spreadsheet_safe)
    return 0


def _asked(
    cells: Path, format: str | None, known: Fit, indices: list[str], limit: float | None
) -> tuple[Table, pd.DataFrame]:
    """The table of cells to predict; all its columns stay as they are written."""
    from pltf.cli.data import table_of
    from pltf.io.columns import refuse_absent

    table = table_of(cells, known, format, limit)
    if table is None:
        raise PltfError(f"--cells must be a table with the columns {', '.join(indices)}, and {cells} is none")
    columns = table.columns()
    refuse_absent(cells, indices, columns)
    taken = [name for name in _PREDICTED if name in columns]
    if taken:
        raise PltfError(f"{cells} has a column {taken[0]!r}, as the answer has: rename it")
    rows = table.read(columns, [])
    if not len(rows):
        raise PltfError(f"{cells} has no rows")
    return table, rows


def _print_table(table: pd.DataFrame, safe: bool) -> None:
    """Numbers that can be read on a terminal, and all their digits in a pipe."""
    if is_terminal():
        print(_for_terminal(table).to_string(index=False, float_format=lambda number: f"{number:.4g}"))
    else:
        for_csv(table, safe).to_csv(sys.stdout, index=False)


def _for_terminal(table: pd.DataFrame) -> pd.DataFrame:
    """A table with nothing in its text that would drive a terminal."""
    shown = table.copy()
    for at in range(table.shape[1]):
        column = table.iloc[:, at]
        if column.dtype.kind not in "biufcmM":
            shown.isetitem(at, column.astype(object).map(lambda one: _plain(one) if isinstance(one, str) else one))
    return shown.rename(columns=_plain)


def _plain(text: object) -> str:
    """Text of data on one line."""
    return printable(text, keep="")


def _most_asked(known: Fit) -> str:
    """The cells that people mean if they do not say: missing ones, or zeros where nothing is missing."""
    name = known.tensor()
    shape = [known.sizes[index] for index in known.model.observed[name]]
    return "missing" if known.n_observed[name] < math.prod(shape) else "zero"


def score(
    tell: Teller,
    run: Path,
    file: Path | None,
    value: str | None,
    format: str | None,
    level: float,
    ranking: bool,
    seed: int,
    device: str,
    limit: float | None,
) -> int:
    """Score hidden cells."""
    from pltf import metrics
    from pltf.cli.data import held_in

    known = _fit_of(run, limit)
    if file is not None and is_store(file):
        known, file = with_store(known, file), None
    known = known.to(device)
    if not known.keeps_data:
        if any(pattern.digest for pattern in known.patterns.values() if isinstance(pattern, ForgottenPattern)):
            raise PltfError(f"{run} was fitted to a cell store, which a file does not hold: name the store after it")
        raise PltfError(f"{run} was fitted with --no-keep-data: it does not know the cells it has seen, as scores must")
    if file is None and (value is not None or format is not None):
        raise PltfError("--value and --format go with a table of cells, and none is named")
    if file is None and known.held_out is None:
        raise PltfError(f"no cells were hidden when {run} was fitted: name a table of cells, or fit with --holdout")
    held = known.held_out if file is None else held_in(file, known, value, format, limit)
    scores = metrics.score(known, held, level=level, ranking=ranking, seed=seed, progress=tell.shown)
    tell.say("", repr(scores).strip("<>"))
    rows = {str(name): row for name, row in scores.table.to_dict("index").items()}
    tell.know(cells=scores.values.size, above_zero=int((scores.values > 0).sum()), level=level, scores=rows)
    tell.know(calibration=scores.calibration.to_dict("records"))
    tell.know(coverage={str(kind): row for kind, row in scores.coverage.to_dict("index").items()})
    return 0


def report(tell: Teller, run: Path, output: Path, title: str | None, top: int, force: bool, limit: float | None) -> int:
    """Write a report."""
    from pltf.report.page import save, text_of

    target = output_path(output, force, run)
    ending_of(target, [".html", ".htm"])
    text = text_of(load(run, limit=limit), title=title, top=top, progress=tell.shown)
    target = _saved(tell, target, force, lambda path: save(text, path))
    _tell_saved(tell, target)
    return 0


def plan(tell: Teller, file: Path, **options: Any) -> int:
    """Tell what a fit would take."""
    wanted, dispersion = wanted_of(options), dispersion_of(options["dispersion"])
    seen = _read(tell, file, options, wanted)
    model, _ = model_of(seen, wanted)
    chosen = {name: options[name] for name in ("dtype", "method", "device")}
    planned = model.plan(seen, dispersion=dispersion, **chosen)
    tell.say("", str(planned))
    tell.know(model=model.text, latent=dict(model.sizes), engine=planned.engine, dtype=options["dtype"])
    tell.know(flops=planned.flops, work_bytes=planned.work_bytes, threads=planned.threads)
    _tell_memory(tell, planned)
    return 0


def _tell_memory(tell: Teller, planned: Plan) -> None:
    """The memory of a fit, and of what comes before and after it, each with the data."""
    workers = available_threads()  # as many as a search has if it is not told
    search, answers = planned.search_bytes(workers), planned.predict_bytes(PLANNED_CELLS)
    tell.say("", f"search    {human_bytes(search)} with 10 restarts, {workers} at a time")
    there = f", and {human_bytes(planned.predict_device_bytes)} on the device" if planned.device else ""
    tell.say("", f"predict   {human_bytes(answers)} for {PLANNED_CELLS:,} cells{there}")
    tell.say("", f"report    {human_bytes(planned.report_bytes)}")
    tell.know(peak_bytes=planned.peak_bytes, search_bytes=search, search_workers=workers)
    tell.know(predict_bytes=answers, predict_cells=PLANNED_CELLS, report_bytes=planned.report_bytes)
    if planned.device is not None:
        tell.know(device_bytes=planned.device_bytes, predict_device_bytes=planned.predict_device_bytes)


def info(tell: Teller, file: Path, **options: Any) -> int:
    """Tell what is in a file."""
    from pltf.cli.data import reading_of
    from pltf.io.files import TABLES, kind_of, read_data, table_columns
    from pltf.io.saved import is_saved

    reading, limit = reading_of(options), options["limit"]
    is_file = getattr(file, "url", None) is None

    if is_store(file):
        _tell_store(tell, file)
        return 0
    if is_file and reading.format is None and reading.variable is None and is_saved(file):
        result = load(file, limit=limit)
        if isinstance(result, Selection):
            tell.say("", described(result, option))
            tell.know(kind="search", best=result.best, candidates=result.summary().to_dict("records"))
            result = result.best_fit
        else:
            tell.say("", repr(result).strip("<>"))
            tell.know(kind="fit")
        _tell_components(tell, result)
        _know_fit(tell, result)
        _tell_origin(tell, result.origin)
        return 0
    held = read_data(file, most=MOST_COLUMNS, **vars(reading))
    kind = kind_of(file, reading)
    if kind in TABLES:
        _tell_table(tell, held, len(table_columns(file, kind, reading)))
    else:
        _tell_array(tell, held)
    return 0


def _tell_store(tell: Teller, path: Path) -> None:
    """What a cell store has."""
    seen = open_store(path)
    _tell_data(tell, seen, str(path))
    owner = seen.owner if seen.dims is None else _plain(seen.dims[seen.owner])
    tell.say("", f"{'':<12} {len(seen.parts):,} parts on disk, sorted by {owner}; {human_bytes(seen.cell_bytes)}")
    tell.know(kind="cell store", parts=len(seen.parts))


def _tell_table(tell: Teller, table: pd.DataFrame, width: int) -> None:
    """What columns a table has; of very many, the first."""
    tell.say("table", f"{len(table):,} rows, {width} columns")
    columns = [_column(table.iloc[:, at], str(name)) for at, name in enumerate(table.columns)]
    longest = min(max((len(_plain(one["name"])) for one in columns), default=0), 30)
    for one in columns:
        absent = f"; {one['absent']:,} absent" if one["absent"] else ""
        span = f": {_plain(one['first'])} to {_plain(one['last'])}" if one["different"] else ""
        name = _plain(one["name"]) or "(no name)"
        tell.say("", f"  {name:<{longest}}  {one['holds']}, {one['different']:,} different{span}{absent}")
    if len(columns) < width:
        tell.say("", f"  and {width - len(columns):,} more columns")
    tell.know(kind="table", rows=len(table), columns=columns, more_columns=width - len(columns))


def _column(column: pd.Series, name: str) -> dict[str, Any]:
    """What a column holds."""
    kind, different, absent = _different(column)
    dates = kind == "O" and len(different) > 0 and all(_looks_like_a_date(word) for word in different)
    ends = (min(different), max(different)) if len(different) else (None, None)
    first, last = (one if one is None else str(one).removesuffix(" 00:00:00")[:40] for one in ends)
    facts = {"name": name, "holds": "dates" if dates else _HELD[kind], "different": len(different)}
    return {**facts, "first": first, "last": last, "absent": absent}


def _different(column: pd.Series) -> tuple[str, Any, int]:
    """The kind of what a column holds, each of it once, and how many are absent; what is no number is in words."""
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":  # at once: there may be many such columns
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
    return kind, once, len(column) - len(present)


def _looks_like_a_date(word: str) -> bool:
    return word[:4].isdigit() and word[4:5] == "-" and word[5:7].isdigit() and word[7:8] == "-"


def _tell_array(tell: Teller, held: Any) -> None:
    """What cells an array has; an array that cannot be data is told as such."""
    from pltf.data import observe
    from pltf.io.listed import ListedFile

    listed = isinstance(held, ListedFile)
    try:
        given = {"shape": held.shape, "duplicates": "sum"} if listed else {}
        seen = observe((held.coords, held.values) if listed else held, **given)
    except PltfError as refused:
        reason = refused.spelled(option)
        tell.say("array", f"{' x '.join(map(str, held.shape))}, which cannot be fitted: {reason}")
        tell.know(kind="array", shape=held.shape, refused=reason)
        return
    _tell_data(tell, seen, "")
    tell.know(kind="listed cells" if isinstance(seen, CooObservation) else "array")


def convert(tell: Teller, file: Path, output: Path, force: bool, spreadsheet_safe: bool, **options: Any) -> int:
    """Write data in another format."""
    from pltf.cli.data import value_name, write_observation

    target = output_path(output, force, file)
    ending = ending_of(target, ENDINGS)
    refuse_no_text(ending, spreadsheet_safe)
    if ending == ".tns":
        output_path(_labels_beside(target), force, file)
    seen = _read(tell, file, options)
    free = target if force else free_path(target)  # the labels are named after it
    _tell_of_others(tell, target, free)
    with _leaving_others(tell, force) as names:
        written = write_observation(seen, free, _labels_beside(free), safe=spreadsheet_safe)
    path, *others = (names.get(one, one) for one in written)
    _tell_saved(tell, path)
    for one in others:
        tell.say("", f"{'':<12} {one} has the labels, which the format cannot hold")
    tell.know(labels=str(others[0]) if others else None)
    alone = (
        isinstance(seen, CooObservation | StoredObservation)
        and seen.unlisted == "missing"
        and path.suffix not in (".npz", ".nc")
    )
    values = ["--value", value_name(seen.dims or ())] if ending in TABLE_ENDINGS else []
    read_with = [*values, *(["--missing", "unlisted"] if alone else [])]
    if read_with:
        why = "; cells without a row are missing" if alone else ""
        tell.say("", f"{'':<12} read it with {shlex.join(read_with)}{why}")
    tell.know(read_with=read_with)
    return 0


def _labels_beside(target: Path) -> Path:
    """The file for labels that the format of another one cannot hold."""
    return target.with_name(f"{target.name}.labels.csv")


def prepare(
    tell: Teller,
    files: list[Path],
    output: Path,
    index: str | None,
    value: str | None,
    sum: bool,
    missing: str,
    variable: str | None,
    memory: float | None,
    force: bool,
) -> int:
    """Sort tables of any size into a folder of cells."""
    from pltf.io.prepare import prepare as prepared

    done = prepared(
        files,
        output,
        dims=indices_of(index) or None,
        value=value,
        unlisted=UNLISTED[missing],
        duplicates="sum" if sum else "error",
        variable=variable,
        memory_limit=memory,
        overwrite=force,
        progress=tell.shown,
    )
    parts = "1 part" if done.parts == 1 else f"{done.parts:,} parts"
    sizes = ", ".join(f"{size:,} {dim}" for dim, size in zip(done.dims, done.shape, strict=True))
    holes = f", and {done.missing:,} are missing" if done.missing else ""
    tell.say("cells", f"{done.cells:,} of {sizes}{holes}; total {done.total:g}")
    tell.say("saved", f"{done.path} ({parts}, {human_bytes(done.size)}, {done.seconds:.1f} s)")
    tell.know(**{**vars(done), "path": str(done.path), "shape": dict(zip(done.dims, done.shape, strict=True))})
    return 0


def demo(tell: Teller, folder: Path, force: bool) -> int:
    """All of it, on events that are drawn."""
    from pltf.cli.data import demo_events
    from pltf.cli.main import run

    if folder.exists() and not folder.is_dir():
        raise PltfError(f"{folder} is a file, and the demo needs a folder")
    files = [folder / name for name in ("events.csv", "search.nc", "run.nc", "report.html")]
    existing = [file for file in files if file.exists()]
    if existing and not force:
        raise PltfError(f"{existing[0]} exists: --force replaces it")
    folder.mkdir(parents=True, exist_ok=True)
    events, search, saved, page = map(str, files)
    write_table(demo_events(), files[0])
    index = ["--index", "user,place,when:week"]
    steps = [
        ["select", events, *index, "--cp", "1:6", "--restarts", "5", "-o", search],
        ["fit", events, *index, "--cp", "3", "--restarts", "5", "--holdout", "0.2", "-o", saved],
        ["score", saved],
        ["predict", saved, "--top", "5", "--among", "missing"],
        ["report", saved, "-o", page],
    ]
    for step in steps:
        tell.say("", f"\n$ {shlex.join(['pltf', *step])}")
        replaces = ["--force"] if force and "-o" in step else []
        code = run([*step, *replaces, *([] if tell.talks else ["--quiet"])])
        if code:
            return code
    tell.know(saved=[str(file) for file in files])
    tell.say("", f"\nOpen {page} in a browser.")
    return 0


# -- what is told -------------------------------------------------------------------------------


def _read(
    tell: Teller, file: Path, options: Mapping[str, Any], wanted: Wanted | None = None, known: Fit | None = None
) -> Observation:
    seen, source = observed(file, options, wanted, known)
    _tell_data(tell, seen, source)
    return seen


def _tell_data(tell: Teller, seen: Observation, source: str) -> None:
    dims = seen.dims or ("",) * len(seen.shape)
    shape = " x ".join(f"{dim} {size:,}".strip() for dim, size in zip(dims, seen.shape, strict=True))
    above = seen.n_positive
    cells = f"{seen.n_observed:,} cells observed" if seen.has_missing else "all cells observed"
    tell.say("data", ": ".join(_plain(part) for part in (source, shape) if part))
    tell.say("", f"{'':<12} {cells}, {above:,} of them above zero, total {seen.total:g}")
    storage = {CooObservation: "listed", StoredObservation: "parts"}.get(type(seen), "dense")
    facts = {"source": source, "shape": seen.shape, "dims": seen.dims, "total": seen.total, "observed": seen.n_observed}
    tell.know(data={**facts, "above_zero": above, "largest": seen.largest, "storage": storage})


def _tell_fit(tell: Teller, fitted: Fit) -> None:
    state = "converged" if fitted.converged else f"not converged ({fitted.stopped})"
    sizes = ", ".join(f"{index}={size}" for index, size in fitted.model.sizes.items())
    tell.say("model", f"{' '.join(fitted.model.text.split())}; {sizes}")
    for note in fitted.notes:
        tell.say("note", _plain(note))
    tell.say(fitted.objective, f"{fitted.bound:.6f} after {fitted.n_iter} sweeps, {state}; {fitted.seconds:.1f} s")
    for name, found in fitted.dispersion.items():
        tell.say("counts", f"{f'{name}: ' if len(fitted.dispersion) > 1 else ''}{found}")
    _tell_components(tell, fitted)
    _know_fit(tell, fitted)


def _know_fit(tell: Teller, fitted: Fit) -> None:
    names = (
        "method",
        "objective",
        "bound",
        "converged",
        "stopped",
        "seconds",
        "seed",
        "dtype",
        "engine",
        "best_restart",
    )
    tell.know(model=fitted.model.text, latent=dict(fitted.model.sizes), sizes=dict(fitted.sizes), sweeps=fitted.n_iter)
    tell.know(**{name: getattr(fitted, name) for name in names}, restarts=len(fitted.rows))
    tell.know(likelihoods=dict(fitted.likelihoods), notes=list(fitted.notes))
    tell.know(dispersion={name: vars(found) for name, found in fitted.dispersion.items()})


def _tell_components(tell: Teller, fitted: Fit) -> None:
    """Components by what they explain, numbered as in the report; those that explain nothing are only counted."""
    if len(fitted.model.sizes) != 1:
        return
    (latent,) = fitted.model.sizes
    table = fitted.components()
    tell.know(components=[{"component": number, **row} for number, row in table.to_dict("index").items()])
    alive = table[table["mass"] >= min(1.0, table["mass"].sum() / 1000)]
    for rank, (number, row) in enumerate(list(alive.iterrows())[:MOST_SHOWN], 1):
        tops = "; ".join(f"{name} {', '.join(map(_plain, row[name]))}" for name in table.columns[2:])
        tell.say(f"component {rank}", f"{row['share']:6.1%} of the counts ({latent}={number}): {tops}")
    if len(alive) > MOST_SHOWN:
        tell.say("", f"{'':<12} and {len(alive) - MOST_SHOWN} more components")
    if len(alive) < len(table):
        tell.say("", f"{'':<12} {len(table) - len(alive)} of {len(table)} components explain nothing")


def _tell_search(tell: Teller, found: Selection) -> None:
    import pandas as pd

    summary = found.summary()
    doubts = [spelled(text, option) for text in marked_doubts(found)]
    tell.know(best=found.best, candidates=summary.to_dict("records"), doubts=doubts, interrupted=found.interrupted)
    tell.say("best", ", ".join(f"{name}={size}" for name, size in found.best.items()))
    for note in found.best_fit.notes:
        tell.say("note", note)
    tell.know(likelihoods=dict(found.best_fit.likelihoods), notes=list(found.best_fit.notes))
    if not tell.talks:
        return
    shown: dict[str, Any] = {name: summary[name] for name in found.best}
    if found.by_hidden_cells:
        pairs = zip(summary["heldout"], summary["heldout_se"], strict=True)
        shown["hidden cells"] = [_unless_unknown("{:.4f} +- {:.4f}", *pair) for pair in pairs]
    shown["bound"] = [_unless_unknown("{:.2f}", one) for one in summary["best"]]
    shown["gap"] = [_unless_unknown("{:.1f} nats", one) for one in summary["gap"]]
    shown["agree"] = [_unless_unknown("{:.0%}", one) for one in summary["agree"]]
    shown["restarts"] = summary["restarts"].astype(str)
    shown["dropped"] = summary["dropped"].astype(str)
    shown["weight"] = summary["weight"].map("{:.1%}".format)
    shown["time"] = summary["seconds"].map("{:.1f} s".format)
    tell.say("", pd.DataFrame(shown).to_string(index=False))


def _unless_unknown(form: str, *numbers: float) -> str:
    return "-" if any(map(math.isnan, numbers)) else form.format(*numbers)


def _tell_saved(tell: Teller, path: Path, what: str = "") -> None:
    size = path.stat().st_size
    tell.say("saved", f"{path} ({human_bytes(size)}{'; ' + what if what else ''})")
    tell.know(saved=str(path), bytes=size)


def _tell_origin(tell: Teller, origin: Mapping[str, str]) -> None:
    """Where a fit comes from: what it was made of, when and by what."""
    told = dict(origin)
    tell.know(origin=dict(origin))
    for name in ("source", "read", "command"):
        if name in told:
            tell.say(name, _plain(told.pop(name)))
    when = told.pop("saved", "")
    tell.say("saved", _plain(f"{when} by {', '.join(f'{name} {version}' for name, version in told.items())}"))


def _origin(file: Path, options: Mapping[str, Any]) -> dict[str, str]:
    return {"source": str(file), "read": reading_in_words(options), "command": shlex.join(_as_written())}


def _as_written() -> list[str]:
    return ["pltf", *map(without_password, COMMAND.get())]


def _fit_of(path: Path, limit: float | None = None) -> Fit:
    result = load(path, limit=limit)
    return result.best_fit if isinstance(result, Selection) else result
