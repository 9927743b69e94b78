"""The commands: what runs after the options are parsed."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pltf.cli.app import COMMAND
from pltf.cli.data import (
    ENDINGS,
    TABLE_ENDINGS,
    UNLISTED,
    as_labelled,
    as_words_where_some_are,
    demo_events,
    for_csv,
    held_in,
    hidden,
    observed,
    read_alike,
    reading_in_words,
    reading_of,
    refuse_no_text,
    table_of,
    value_name,
    write_observation,
    write_table,
)
from pltf.cli.guide import columns_of, described_column, guide
from pltf.cli.models import TensorFile, Wanted, model_of, sources_of, wanted_of, with_model_file
from pltf.cli.parsing import (
    dispersion_of,
    ending_of,
    free_path,
    indices_of,
    names_of,
    output_path,
    priors_of,
    refuse_misspelt,
    same_place,
)
from pltf.cli.spelling import option
from pltf.cli.telling import Teller, is_terminal, plain
from pltf.cluster import connected
from pltf.data import CooObservation, Observation, StoredObservation, observe
from pltf.data.aligned import aligned
from pltf.data.labels import Labels, in_short
from pltf.data.observe import in_order
from pltf.data.pattern import ForgottenPattern
from pltf.data.split import MOST_SCORED, HeldOut
from pltf.data.stored import is_store, open_store
from pltf.devices import HOST, check_device
from pltf.engines.plan import human
from pltf.errors import PltfError, naming_rows, spelled
from pltf.fit import Fit
from pltf.hints import suggestion
from pltf.inference.run import INTERRUPTED
from pltf.inference.state import shown_objective
from pltf.io import load
from pltf.io.databases import without_password
from pltf.io.files import TABLES, SourceTable, kind_of, read_data
from pltf.io.listed import ListedFile
from pltf.io.saved import is_saved
from pltf.io.spreadsheets import with_text
from pltf.prediction.table import COLUMNS, intervals
from pltf.selection import Selection
from pltf.selection.result import described, marked_doubts, overview
from pltf.store.container import leaving_others
from pltf.threads import available_threads

if TYPE_CHECKING:
    import pandas as pd

    from pltf.engines.plan import Plan
    from pltf.metrics import Scores

MOST_SHOWN = 12  # components in a listing
PLANNED_CELLS = 100_000  # predictions whose memory is estimated
MOST_COLUMNS = 10_000  # described columns of a table
_PASSING = {"--resume", "--force", "--quiet", "-q", "--json"}  # options that do not change the result


def fit(tell: Teller, file: Path | None, output: Path | None, force: bool, **options: Any) -> int:
    """Fit a model to data, and save the fit."""
    if guide(tell, "fit", file, options, output):
        return 0
    asked = _asked_for(file, options)
    if output is None:
        raise PltfError("--output must name the file for the fit, for example -o run.nc")
    goes_on = _goes_on(output, options)
    target = _target(output, force or goes_on, asked, options)
    if options["holdout"] is not None and not 0 < options["holdout"] < 1:
        raise PltfError(f"--holdout must be above 0 and below 1, such as 0.1, got {options['holdout']:g}")
    fitting = _fitting(tell, asked)
    seen = _read_all(tell, asked)
    model, _ = model_of(_alone(seen), asked.wanted)
    seen, held = _hidden(tell, seen, asked)
    with connected(options["scheduler"]) as client:
        fitted = model.fit(_alone(seen), client=client, **fitting)
    fitted = replace(fitted, held_out=held, origin=_origin(asked))
    target = _saved(tell, target, force or goes_on, fitted.save)
    _tell_fit(tell, fitted)
    interrupted = len(fitted.rows) < options["restarts"] or INTERRUPTED in (fitted.rows[-1].stopped, fitted.stopped)
    if held is not None and not interrupted:
        _tell_verdict(tell, fitted, held, seen)
    tell.know(interrupted=interrupted)
    _tell_saved(tell, target, "the best so far: it was interrupted" if interrupted else "")
    return 130 if interrupted else 0


class ModelAndData(NamedTuple):
    """The model and the data of a command."""

    options: Mapping[str, Any]  # including those of a model file
    wanted: Wanted
    sources: Mapping[str, TensorFile]


def _asked_for(file: Path | None, options: Mapping[str, Any], *, several: bool = False) -> ModelAndData:
    options = with_model_file(options)
    wanted = wanted_of(options, several=several)
    if options.get("of") is not None and options["holdout"] is None:
        raise PltfError("--of needs --holdout: it names the tensor whose cells are held out")
    tensor_of(wanted.tensors, options.get("of"))
    zeros = names_of(options["zeros"], "--zeros")
    if zeros and len(wanted.tensors) == 1:
        raise PltfError("--zeros is for models with several tensors: with one, cells without a row are zeros already")
    wanted.refuse_unknown("--zeros", zeros)
    return ModelAndData(options, wanted, sources_of(file, options, wanted))


def _read_all(tell: Teller, asked: ModelAndData) -> dict[str, Observation]:
    """Read the data of all tensors; tensors that share an index get the same labels."""
    coupled = len(asked.sources) > 1
    seen = {}
    for name, source in asked.sources.items():
        wanted = replace(asked.wanted, tensor=name)
        seen[name] = _read(tell, source.path, source.options, wanted, name=name if coupled else "")
    return _aligned(tell, seen, asked) if coupled else seen


def _aligned(tell: Teller, seen: Mapping[str, Observation], asked: ModelAndData) -> dict[str, Observation]:
    """Align tensors by their labels, and report the labels that this adds to each."""
    assert asked.wanted.model is not None
    indices, zeros = asked.wanted.model.observed, names_of(asked.options["zeros"], "--zeros")
    ordered = {name: in_order(one, indices[name], name) for name, one in seen.items()}
    found, added = aligned(as_words_where_some_are(ordered), indices, zeros)
    for one in added:
        number = f"{len(one.labels):,} label{'s' * (len(one.labels) != 1)}"
        absent = f"{one.tensor} has no row for {number} of {one.index!r} ({in_short(one.labels.index)})"
        stays = one.index in zeros or asked.sources[one.tensor].options["missing"] == "unlisted"
        how = "zeros" if one.zeros else "missing" if stays else f"missing (--zeros {one.index}: zeros)"
        tell.say("", f"{'':<12} {plain(absent)}: their cells are {how}")
    tell.know(added=[{"tensor": one.tensor, "index": one.index, "labels": len(one.labels)} for one in added])
    return found


def _alone(seen: Mapping[str, Observation]) -> Any:
    """The data in the form that a model takes: a mapping if there are several tensors."""
    return next(iter(seen.values())) if len(seen) == 1 else dict(seen)


def _hidden(
    tell: Teller, seen: Mapping[str, Observation], asked: ModelAndData
) -> tuple[dict[str, Observation], HeldOut | None]:
    """Hold out cells of one tensor; return the training data and the held-out cells."""
    share = asked.options["holdout"]
    if share is None:
        return dict(seen), None
    name = tensor_of(asked.wanted.tensors, asked.options["of"])
    train, held = hidden(seen[name], share, asked.options["seed"], name)
    above, where = np.count_nonzero(held.values), f" of {name}" if len(seen) > 1 else ""
    tell.say("held out", f"{len(held.values):,} cells{where}, {above:,} of them above zero")
    tell.know(hidden={"of": name, "cells": len(held.values), "above_zero": int(above), "zeros_sampled": held.sampled})
    if held.sampled:
        low = f"so expected counts come out about {share:.0%} low"
        tell.say("", f"with this many cells, only some zeros are held out, {low}: fit without --holdout to predict")
    return {**seen, name: train}, held


def _target(output: Path, replaces: bool, asked: ModelAndData, options: Mapping[str, Any]) -> Path:
    """Check the output path of a run."""
    if options["checkpoint"] is not None and same_place(options["checkpoint"], output):
        raise PltfError(f"--checkpoint and the output must be two files, and both are {output}")
    target = output_path(output, replaces, *(source.path for source in asked.sources.values()))
    ending_of(target, [".nc"])
    return target


def _saved(tell: Teller, target: Path, replaces: bool, save: Callable[[Path], object]) -> Path:
    """Save the result; return the path."""
    with _leaving_others(tell, replaces) as names:
        save(target)
    tell.saved = names.get(target, target)
    return tell.saved


@contextmanager
def _leaving_others(tell: Teller, replaces: bool) -> Iterator[dict[Path, Path]]:
    """Never overwrite files that have appeared meanwhile; yields the paths that are used instead."""
    if replaces:
        yield {}
        return
    with leaving_others(free_path) as names:
        yield names
    for asked, name in names.items():
        _tell_of_others(tell, asked, name)


def _tell_of_others(tell: Teller, asked: Path, name: Path) -> None:
    if name != asked:
        tell.insist(f"{asked} was created by another process meanwhile and is not overwritten: the result is in {name}")


def _goes_on(output: Path, options: Mapping[str, Any]) -> bool:
    """Whether the output is from the same command, interrupted earlier and resumed now."""
    if not (options["resume"] and output.is_file() and options["checkpoint"] and options["checkpoint"].exists()):
        return False
    try:
        before = _fit_of(output).origin.get("command", "")
    except PltfError:
        return False
    told, now = (Counter(words) for words in (shlex.split(before), _as_written()))
    return not ((told - now) + (now - told)).keys() - _PASSING


def select(tell: Teller, file: Path | None, output: Path | None, force: bool, **options: Any) -> int:
    """Search, and save the result."""
    from pltf.selection import select as search

    if guide(tell, "select", file, options, output):
        return 0
    asked = _asked_for(file, options, several=True)
    replaces = force or (output is not None and _goes_on(output, options))
    target = None if output is None else _target(output, replaces, asked, options)
    fitting = _fitting(tell, asked)
    seen = _read_all(tell, asked)
    model, sizes = model_of(_alone(seen), asked.wanted)
    names = ("workers", "race", "criterion", "folds", "score", "widen")
    settings: dict[str, Any] = {**fitting, **{name: options[name] for name in names}, **sizes}
    with connected(options["scheduler"]) as client:
        found = search(model, _alone(seen), client=client, **settings)
    found = replace(found, best_fit=replace(found.best_fit, origin=_origin(asked)))
    if target is not None:
        target = _saved(tell, target, replaces, found.save)
    _tell_search(tell, found)
    if target is not None:
        _tell_saved(tell, target)
    return 130 if found.interrupted else 0


def _fitting(tell: Teller, asked: ModelAndData) -> dict[str, Any]:
    """The options of a fit, checked before the data are read."""
    from pltf.options import FitOptions
    from pltf.store.checkpoint import Place

    options = asked.options
    given = {one.name: options[one.name] for one in fields(FitOptions) if one.name in options}
    given |= {"prior": priors_of(options["prior"]), "progress": tell.shown}
    given["dispersion"] = dispersion_of(options["dispersion"])
    for source in asked.sources.values():
        if given["checkpoint"] is not None and same_place(given["checkpoint"], source.path):
            raise PltfError(f"--checkpoint must be a separate file, and {source.path} holds the data")
    device = check_device("device", given["device"])
    here = device if options["scheduler"] is None else HOST  # a cluster has the device on its workers
    checked = FitOptions(**{**given, "device": here})
    Place(checked.checkpoint, checked.every, checked.resume)
    return given


def update(tell: Teller, run: Path, file: Path, output: Path, force: bool, **options: Any) -> int:
    """Read new data, update a saved fit, save the result."""
    from pltf.update import judged

    target = output_path(output, force, run, file)
    ending_of(target, [".nc"])
    how = {name: options[name] for name in ("forget", "restarts", "seed", "max_iter", "tol", "keep_data")}
    how |= {name: names_of(options[name], f"--{name}") for name in ("append", "zeros")}
    known = _fit_of(run, options["limit"])
    judged(known, how["forget"], how["append"], how["zeros"])
    if len(known.model.observed) > 1:
        raise PltfError(f"{run} is a fit of several tensors, which can be updated in Python only (fit.update)")
    reading = options if is_store(file) else read_alike(known, options, file)
    seen = _read(tell, file, reading, known=known)
    fitted = known.update(seen, progress=tell.shown, **how)
    fitted = replace(fitted, origin=_origin_of(str(file), reading_in_words(reading)))
    target = _saved(tell, target, force, fitted.save)
    _tell_new_rows(tell, known, fitted)
    _tell_fit(tell, fitted)
    interrupted = fitted.stopped == INTERRUPTED
    tell.know(interrupted=interrupted, batches=fitted.batches.to_dict("records"))
    _tell_saved(tell, target, "the best so far, for it was interrupted" if interrupted else "")
    return 130 if interrupted else 0


def _tell_new_rows(tell: Teller, known: Fit, fitted: Fit) -> None:
    """Say how many rows an update has added."""
    new = {index: size - known.sizes[index] for index, size in fitted.sizes.items() if size > known.sizes[index]}
    tell.know(new=new)
    if new:
        tell.say("new", ", ".join(f"{index} {size:,}" for index, size in new.items()))


def predict(
    tell: Teller,
    run: Path,
    of: str | None,
    cells: Path | None,
    top: int | None,
    among: str | None,
    atleast: int,
    level: float,
    draws: int,
    seed: int,
    device: str,
    output: Path | None,
    force: bool,
    unsupported: bool,
    spreadsheet_safe: bool,
    store: Path | None,
    **reading: Any,
) -> int:
    """Predict cells of a saved fit."""
    if (cells is None) == (top is None):
        raise PltfError(
            "predict needs either --cells FILE, the cells to predict, or --top N, the N most probable cells"
        )
    if cells is not None and among is not None:
        raise PltfError("--among needs --top, and cannot be used with --cells")
    if cells is not None and unsupported:
        raise PltfError("--unsupported needs --top, and cannot be used with --cells")
    if output is not None:
        output_path(output, force, run, cells)
        refuse_no_text(ending_of(output, TABLE_ENDINGS), spreadsheet_safe)
    known = _with_store(_fit_of(run, reading["limit"]), run, store, of).to(device)
    name = tensor_of(tuple(known.model.observed), of)
    indices = list(known.model.observed[name])
    how: dict[str, Any] = {"draws": draws, "seed": seed, "of": name, "progress": tell.shown}
    if top is not None:
        table = known.top(top, among, atleast=atleast, unsupported=unsupported, **how)
        table = table.assign(**intervals(known, table[indices], level, **how))
        if not unsupported:
            _tell_left_out(tell, known, top, among, atleast=atleast, **how)
    else:
        assert cells is not None
        asked, table = _asked(cells, reading, known, name)
        with naming_rows(asked.place):
            found = known.predict(as_labelled(table[indices], known), atleast=atleast, level=level, **how)
        table = table.assign(**{column: found[column] for column in COLUMNS})
    text = _with_dates_as_text(table, known, Labels.written)
    tell.know(of=name, cells=text.astype(object).to_dict("records"), level=level, atleast=atleast)
    if output is not None:
        typed = ending_of(output, TABLE_ENDINGS) in (".parquet", ".pq")
        wanted = table if typed else text
        output = _saved(tell, output, force, lambda path: write_table(wanted, path, safe=spreadsheet_safe))
        _tell_saved(tell, output, f"{len(table):,} cells")
    elif tell.talks:
        _print_table(_with_dates_as_text(table, known, Labels.called) if is_terminal() else text, spreadsheet_safe)
    return 0


def _tell_left_out(tell: Teller, known: Fit, top: int, among: str | None, **how: Any) -> None:
    """Say how many of the most probable cells are left out."""
    with warnings.catch_warnings(action="ignore"):  # the table has the same
        every = known.top(top, among, unsupported=True, **how)
    loose = int((~every["supported"]).sum())
    tell.know(left_out=loose)
    if loose and tell.shown:
        reason = "the data do not support their predictions (--unsupported includes them)"
        tell.insist(f"{loose:,} of the {len(every):,} most probable cells are left out: {reason}")


def _with_store(known: Fit, run: Path, store: Path | None, of: str | None = None) -> Fit:
    """A fit with its cell store, if one is named."""
    if store is None:
        return known
    if known.keeps_data:
        raise PltfError(f"--store goes with a fit of a cell store, and {run} has its data itself")
    return known.with_store(store, of=tensor_of(tuple(known.model.observed), of))


def _lacks_store(known: Fit) -> bool:
    """Whether a fit was loaded without the cell store that it was fitted to."""
    return any(isinstance(one, ForgottenPattern) and one.digest for one in known.patterns.values())


def _asked(cells: Path, reading: Mapping[str, Any], known: Fit, name: str) -> tuple[SourceTable, pd.DataFrame]:
    """The table of cells to predict; other columns are kept as they are."""
    indices = ", ".join(known.model.observed[name])
    otherwise = f"--cells must be a table with the columns {indices}, and {cells} is not a table"
    table, columns = table_of(cells, known, reading, name, otherwise)
    taken = [name for name in COLUMNS if name in columns]
    if taken:
        raise PltfError(f"{cells} has a column {taken[0]!r}, which is also a column of the predictions: rename it")
    rows = table.read(columns, columns)
    if not len(rows):
        raise PltfError(f"{cells} has no rows")
    return table, rows


def _with_dates_as_text(table: pd.DataFrame, known: Fit, told: Callable[[Labels, Any], Any]) -> pd.DataFrame:
    """A table with its dates as text: December 2015 on a terminal, 2015-12 elsewhere."""
    table = table.copy(deep=False)
    for index, labels in known.labels.items():
        if index in table and table[index].dtype.kind == "M":
            table[index] = told(labels, labels.positions(table[index], index))
    return table


def _print_table(table: pd.DataFrame, safe: bool) -> None:
    """Print a table: rounded numbers on a terminal, all digits in a pipe."""
    if is_terminal():
        print(with_text(table, plain).to_string(index=False, float_format=lambda number: f"{number:.4g}"))
    else:
        for_csv(table, safe).to_csv(sys.stdout, index=False)


def tensor_of(tensors: tuple[str, ...], of: str | None) -> str:
    """The tensor named by --of; default: the first."""
    if of is None:
        return tensors[0]
    if of not in tensors:
        near = suggestion(of, tensors)
        raise PltfError(f"--of must name a tensor of the model ({', '.join(tensors)}), got {of!r}{near}")
    return of


def score(
    tell: Teller,
    run: Path,
    file: Path | None,
    of: str | None,
    value: str | None,
    level: float,
    ranking: bool | None,
    seed: int,
    device: str,
    store: Path | None,
    **reading: Any,
) -> int:
    """Score held-out cells."""
    from pltf import metrics

    known = _fit_of(run, reading["limit"])
    held_of = None if known.held_out is None else known.held_out.of
    name = tensor_of(tuple(known.model.observed), of or (held_of if file is None else None))
    if store is None and file is not None and is_store(file):
        store, file = file, None
    known = _with_store(known, run, store, name).to(device)
    told = {"value": value, **{one: given for one, given in reading.items() if one != "limit"}}
    if file is None and any(told.values()):
        name_of = next(one for one, given in told.items() if given).replace("_", "-")
        raise PltfError(f"--{name_of} needs a table of cells, and no FILE is given")
    if file is None and known.held_out is None:
        raise PltfError(f"{run} has no held-out cells: pass a table of cells, or fit with --holdout")
    if file is None and not known.keeps_data:
        advice = "name it with --store" if _lacks_store(known) else "pass a table of cells"
        lost = "the cell store" if _lacks_store(known) else "the data"
        raise PltfError(f"{run} does not contain {lost} that its held-out cells come from: {advice}")
    held = known.held_out if file is None else held_in(file, known, name, value, reading)
    assert held is not None
    asked = held.both_kinds if ranking is None else ranking
    scores = metrics.score(known, held, of=name, level=level, ranking=asked, seed=seed, progress=tell.shown)
    tell.say("", repr(scores).strip("<>"))
    if ranking is None and not held.both_kinds:
        tell.say("", "  no AUC and average precision: they need both zeros and non-zeros")
    tell.say("", f"  {scores.verdict()}")
    tell.know(of=name, verdict=scores.verdict(), beats_popularity=scores.beats_popularity)
    _know_support(tell, scores)
    rows = {str(name): row for name, row in scores.table.to_dict("index").items()}
    tell.know(cells=scores.values.size, above_zero=int((scores.values > 0).sum()), level=level, scores=rows)
    tell.know(calibration=scores.calibration.to_dict("records"))
    tell.know(coverage={str(kind): row for kind, row in scores.coverage.to_dict("index").items()})
    return 0


def report(
    tell: Teller,
    run: Path,
    output: Path,
    title: str | None,
    top: int,
    force: bool,
    limit: float | None,
    store: Path | None,
) -> int:
    """Write a report."""
    from pltf.report.page import save, text_of

    target = output_path(output, force, run)
    ending_of(target, [".html", ".htm"])
    refuse_misspelt(run)
    result = load(run, limit=limit)
    fitted = _with_store(result.best_fit if isinstance(result, Selection) else result, run, store)
    if _lacks_store(fitted):
        lost = "so the report leaves out what depends on the observed cells"
        text = f"{run} does not contain the cell store that it was fitted to, {lost}: --store names it"
        warnings.warn(text, stacklevel=2)
    result = replace(result, best_fit=fitted) if isinstance(result, Selection) else fitted
    text = text_of(result, title=title, top=top, progress=tell.shown)
    target = _saved(tell, target, force, lambda path: save(text, path))
    _tell_saved(tell, target)
    return 0


def plan(tell: Teller, file: Path | None, **options: Any) -> int:
    """Estimate the cost of a fit."""
    if guide(tell, "plan", file, options):
        return 0
    asked, dispersion = _asked_for(file, options), dispersion_of(options["dispersion"])
    seen = _read_all(tell, asked)
    model, _ = model_of(_alone(seen), asked.wanted)
    chosen = {name: options[name] for name in ("dtype", "method", "device")}
    planned = model.plan(_alone(seen), dispersion=dispersion, **chosen)
    tell.say("", str(planned))
    tell.know(model=model.text, latent=dict(model.sizes), engine=planned.engine, dtype=options["dtype"])
    tell.know(flops=planned.flops, work_bytes=planned.work_bytes, threads=planned.threads)
    _tell_memory(tell, planned)
    return 0


def _tell_memory(tell: Teller, planned: Plan) -> None:
    """Report the memory of a search, of predictions and of a report, each including the data."""
    workers = available_threads()  # the default of a search
    search, answers = planned.search_bytes(workers), planned.predict_bytes(PLANNED_CELLS)
    tell.say("", f"search    {human(search, 'B')} with 10 restarts, {workers} at a time")
    there = f", and {human(planned.predict_device_bytes, 'B')} on the device" if planned.device else ""
    tell.say("", f"predict   {human(answers, 'B')} for {PLANNED_CELLS:,} cells{there}")
    tell.say("", f"report    {human(planned.report_bytes, 'B')}")
    tell.know(peak_bytes=planned.peak_bytes, search_bytes=search, search_workers=workers)
    tell.know(predict_bytes=answers, predict_cells=PLANNED_CELLS, report_bytes=planned.report_bytes)
    if planned.device_bytes:
        tell.know(device_bytes=planned.device_bytes, predict_device_bytes=planned.predict_device_bytes)


def info(tell: Teller, file: Path, **options: Any) -> int:
    """Show what is in a file."""
    reading, limit = reading_of(options), options["limit"]
    is_file = getattr(file, "url", None) is None
    if is_file:
        refuse_misspelt(file)
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
    kind = kind_of(file, reading)
    if kind in TABLES:
        table = SourceTable(file, kind, reading)
        _tell_table(tell, table.read(None, most=MOST_COLUMNS), len(table.columns()))
    else:
        _tell_array(tell, read_data(file, **vars(reading)))
    return 0


def _tell_store(tell: Teller, path: Path) -> None:
    """Describe a cell store."""
    seen = open_store(path)
    _tell_data(tell, seen, str(path))
    owner = seen.owner if seen.dims is None else plain(seen.dims[seen.owner])
    parts = "1 part" if len(seen.parts) == 1 else f"{len(seen.parts):,} parts"
    tell.say("", f"{'':<12} {parts} on disk, sorted by {owner}; {human(seen.cell_bytes, 'B')}")
    tell.know(kind="cell store", parts=len(seen.parts))


def _tell_table(tell: Teller, table: pd.DataFrame, width: int) -> None:
    """Describe the columns of a table, at most ``MOST_COLUMNS``."""
    tell.say("table", f"{len(table):,} rows, {width} columns")
    columns = columns_of(table)
    longest = min(max((len(plain(one["name"])) for one in columns), default=0), 30)
    for one in columns:
        tell.say("", f"  {plain(one['name']) or '(no name)':<{longest}}  {described_column(one)}")
    if len(columns) < width:
        tell.say("", f"  and {width - len(columns):,} more columns")
    tell.know(kind="table", rows=len(table), columns=columns, more_columns=width - len(columns))


def _tell_array(tell: Teller, held: Any) -> None:
    """Describe the cells of an array, or say why it cannot be fitted."""
    try:
        seen = held.observed(duplicates="sum") if isinstance(held, ListedFile) else observe(held)
    except PltfError as refused:
        reason = refused.spelled(option)
        tell.say("array", f"{' x '.join(map(str, held.shape))}, which cannot be fitted: {reason}")
        tell.know(kind="array", shape=held.shape, refused=reason)
        return
    _tell_data(tell, seen, "")
    tell.know(kind="listed cells" if isinstance(seen, CooObservation) else "array")


def convert(tell: Teller, file: Path, output: Path, force: bool, spreadsheet_safe: bool, **options: Any) -> int:
    """Write data in another format."""
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
        tell.say("", f"{'':<12} {one} has the labels, which this format cannot store")
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
    """The file for labels, for formats that cannot store them."""
    return target.with_name(f"{target.name}.labels.csv")


def prepare(
    tell: Teller,
    files: list[Path],
    output: Path,
    index: str | None,
    sum: bool,
    missing: str,
    memory: float | None,
    force: bool,
    **reading: Any,
) -> int:
    """Sort tables of any size into a folder of cells."""
    from pltf.io.prepare import prepare as prepared

    done = prepared(
        files,
        output,
        dims=indices_of(index) or None,
        unlisted=UNLISTED[missing],
        duplicates="sum" if sum else "error",
        memory_limit=memory,
        overwrite=force,
        progress=tell.shown,
        **reading,
    )
    parts = "1 part" if done.parts == 1 else f"{done.parts:,} parts"
    sizes = ", ".join(f"{size:,} {dim}" for dim, size in zip(done.dims, done.shape, strict=True))
    holes = f", and {done.missing:,} are missing" if done.missing else ""
    tell.say("cells", f"{done.cells:,} of {sizes}{holes}; total {done.total:g}")
    tell.say("saved", f"{done.path} ({parts}, {human(done.size, 'B')}, {done.seconds:.1f} s)")
    tell.know(**{**vars(done), "path": str(done.path), "shape": dict(zip(done.dims, done.shape, strict=True))})
    return 0


def demo(tell: Teller, folder: Path, force: bool) -> int:
    """Run every step on generated events; without the extra for reports, all other steps."""
    from pltf.cli.main import run
    from pltf.report.page import need_jinja

    if folder.exists() and not folder.is_dir():
        raise PltfError(f"{folder} is a file, and the demo needs a folder")
    files = [folder / name for name in ("events.csv", "search.nc", "run.nc", "report.html")]
    existing = [file for file in files if file.exists()]
    if existing and not force:
        raise PltfError(f"{existing[0]} exists: use --force to overwrite it")
    folder.mkdir(parents=True, exist_ok=True)
    events, search, saved, page = map(str, files)
    write_table(demo_events(), files[0])
    index = ["--index", "user,place,when:week"]
    steps = [
        ["select", events, *index, "--cp", "1:6", "--restarts", "5", "-o", search],
        ["fit", events, *index, "--cp", "3", "--restarts", "5", "--holdout", "0.2", "-o", saved],
        ["score", saved],
        ["predict", saved, "--top", "5", "--among", "missing"],
    ]
    end = f"Open {page} in a browser."
    try:
        need_jinja()
        steps.append(["report", saved, "-o", page])
    except PltfError as lack:
        files.pop()
        end = f"There is no report: {lack}"
    for step in steps:
        tell.say("", f"\n$ {shlex.join(['pltf', *step])}")
        replaces = ["--force"] if force and "-o" in step else []
        code = run([*step, *replaces, *([] if tell.talks else ["--quiet"])])
        if code:
            return code
    tell.know(saved=[str(file) for file in files])
    tell.say("", f"\n{end}")
    return 0


# -- output -------------------------------------------------------------------------------


def _read(
    tell: Teller,
    file: Path,
    options: Mapping[str, Any],
    wanted: Wanted | None = None,
    known: Fit | None = None,
    name: str = "",
) -> Observation:
    seen, source = observed(file, options, wanted, known)
    _tell_data(tell, seen, source, name)
    return seen


def _tell_data(tell: Teller, seen: Observation, source: str, name: str = "") -> None:
    """Report what was read, with the name of the tensor if there are several."""
    dims = seen.dims or ("",) * len(seen.shape)
    shape = " x ".join(f"{dim} {size:,}".strip() for dim, size in zip(dims, seen.shape, strict=True))
    above = seen.n_positive
    cells = f"{seen.n_observed:,} cells observed" if seen.has_missing else "all cells observed"
    tell.say(f"data {name}".strip(), ": ".join(plain(part) for part in (source, shape) if part))
    tell.say("", f"{'':<12} {cells}, {above:,} of them above zero, total {seen.total:g}")
    storage = {CooObservation: "listed", StoredObservation: "parts"}.get(type(seen), "dense")
    facts = {"source": source, "shape": seen.shape, "dims": seen.dims, "total": seen.total, "observed": seen.n_observed}
    facts |= {"above_zero": above, "largest": seen.largest, "storage": storage}
    if name:
        tell.know(data={**tell.known.get("data", {}), name: facts})
    else:
        tell.know(data=facts)


def _tell_fit(tell: Teller, fitted: Fit) -> None:
    state = "converged" if fitted.converged else f"not converged ({fitted.stopped})"
    sizes = ", ".join(f"{index}={size}" for index, size in fitted.model.sizes.items())
    tell.say("model", f"{'; '.join(fitted.model.text.splitlines())}; {sizes}")
    for note in fitted.notes:
        tell.say("note", plain(note))
    ended = f"after {fitted.n_iter} iterations, {state}; {fitted.seconds:.1f} s"
    tell.say(shown_objective(fitted.objective), f"{fitted.bound:.6f} {ended}")
    for name, found in fitted.dispersion.items():
        tell.say("counts", f"{f'{name}: ' if len(fitted.dispersion) > 1 else ''}{found.brief}")
    _tell_components(tell, fitted)
    _know_fit(tell, fitted)


def _tell_verdict(tell: Teller, fitted: Fit, held: HeldOut, train: Mapping[str, Observation]) -> None:
    """Report whether the fit predicts held-out cells better than popularity does."""
    from pltf import metrics

    every, held = len(held.values), held.some(MOST_SCORED)
    knowing = replace(fitted, patterns={name: one.pattern() for name, one in train.items()}, held_out=held)
    with warnings.catch_warnings(action="ignore"):  # of sampled zeros, which is said above
        try:
            scores = metrics.score(knowing, ranking=held.both_kinds, progress=tell.shown)
        except PltfError:  # pltf score says why
            return
    scored = len(held.values)
    some = f" ({scored:,} of the {every:,} held-out cells; pltf score takes all)" if scored < every else ""
    tell.say("score", f"{scores.verdict()}{some}")
    if scores.support_note:
        tell.say("", f"{'':<12} {scores.support_note}")
    tell.know(verdict=scores.verdict(), beats_popularity=scores.beats_popularity)
    _know_support(tell, scores)


def _know_support(tell: Teller, scores: Scores) -> None:
    """The number of cells whose predictions the data do not support, and the scores of the others."""
    loose = 0 if scores.supported is None else int((~scores.supported).sum())
    alone = None if scores.of_supported is None else scores.of_supported.to_dict("index")
    tell.know(unsupported=loose, scores_of_supported=alone)


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
    """List components by the counts they explain, numbered as in the report; empty ones are only counted."""
    if len(fitted.model.sizes) != 1:
        return
    table = fitted.components()
    tell.know(components=[{"component": number, **row} for number, row in table.to_dict("index").items()])
    alive = table[table["mass"] >= min(1.0, table["mass"].sum() / 1000)]
    for number, row in list(alive.iterrows())[:MOST_SHOWN]:
        tops = "; ".join(f"{name} {', '.join(map(plain, row[name]))}" for name in table.columns[2:])
        tell.say(f"component {number}", f"{row['share']:6.1%} of the counts: {tops}")
    if len(alive) > MOST_SHOWN:
        tell.say("", f"{'':<12} and {len(alive) - MOST_SHOWN} more components")
    if len(alive) < len(table):
        tell.say("", f"{'':<12} {len(table) - len(alive)} of {len(table)} components are empty")


def _tell_search(tell: Teller, found: Selection) -> None:
    summary = found.summary()
    doubts = [spelled(text, option) for text in marked_doubts(found)]
    tell.know(best=found.best, candidates=summary.to_dict("records"), doubts=doubts, interrupted=found.interrupted)
    tell.say("best", ", ".join(f"{name}={size}" for name, size in found.best.items()))
    if found.note:
        tell.say("chosen", f"by ELBO: {found.note}")
    for note in found.best_fit.notes:
        tell.say("note", note)
    tell.know(likelihoods=dict(found.best_fit.likelihoods), notes=list(found.best_fit.notes))
    if tell.talks:
        tell.say("", overview(found).to_string(index=False))


def _tell_saved(tell: Teller, path: Path, what: str = "") -> None:
    size = path.stat().st_size
    tell.say("saved", f"{path} ({human(size, 'B')}{'; ' + what if what else ''})")
    tell.know(saved=str(path), bytes=size)


def _tell_origin(tell: Teller, origin: Mapping[str, str]) -> None:
    """Say where a fit comes from: data, command, time and versions."""
    told = dict(origin)
    tell.know(origin=dict(origin))
    for name in ("source", "read", "command"):
        if name in told:
            tell.say(name, plain(told.pop(name)))
    when = told.pop("saved", "")
    tell.say("saved", plain(f"{when} by {', '.join(f'{name} {version}' for name, version in told.items())}"))


def _origin(asked: ModelAndData) -> dict[str, str]:
    """Where the data came from and how they were read, for each tensor if there are several."""
    sources = asked.sources
    if len(sources) == 1:
        (source,) = sources.values()
        return _origin_of(str(source.path), reading_in_words(source.options))
    files = ", ".join(f"{name}={source.path}" for name, source in sources.items())
    return _origin_of(files, "; ".join(f"{name}: {reading_in_words(one.options)}" for name, one in sources.items()))


def _origin_of(source: str, read: str) -> dict[str, str]:
    return {"source": source, "read": read, "command": shlex.join(_as_written())}


def _as_written() -> list[str]:
    return ["pltf", *map(without_password, COMMAND.get())]


def _fit_of(path: Path, limit: float | None = None) -> Fit:
    refuse_misspelt(path)
    result = load(path, limit=limit)
    return result.best_fit if isinstance(result, Selection) else result
