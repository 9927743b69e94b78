"""What the commands do."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pltf.cli.data import hidden, model_of, observed, written
from pltf.cli.words import Teller, output_path, priors_of, range_of, sizes_of
from pltf.data import CooObservation, Observation
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.io import load
from pltf.selection import Selection

MOST_SHOWN = 12  # components in a listing


def fit(file: Path, output: Path, force: bool, json: bool, quiet: bool, **options: Any) -> int:
    """Read, fit, save."""
    tell, target = Teller(json, quiet), output_path(output, force)
    prior = priors_of(options["prior"])
    seen = _read(tell, file, options)
    model = model_of(seen, options)
    train, held = hidden(seen, options["holdout"], options["seed"])
    result = model.fit(
        train,
        method=options["method"],
        prior=prior,
        **_fitting(options, force),
        progress=tell.shown,
    )
    result = replace(result, held_out=held, origin=_origin(file))
    assert target is not None
    result.save(target)
    _tell_fit(tell, result)
    _tell_saved(tell, output)
    tell.end()
    return 130 if any(row.stopped == "interrupted" for row in result.rows) else 0


def select(file: Path, output: Path | None, force: bool, json: bool, quiet: bool, **options: Any) -> int:
    """Read, search, save."""
    from pltf.selection import select as search

    tell, target = Teller(json, quiet), output_path(output, force)
    prior = priors_of(options["prior"])
    seen = _read(tell, file, options)
    sizes: dict[str, Any] = dict(sizes_of(options["size"]))
    for option in ("cp", "nmf"):
        if options[option] is not None:
            sizes.setdefault("r", range_of(options[option], f"--{option}"))
    model = model_of(seen, options)
    found = search(
        model, seen, prior=prior, **_fitting(options, force), workers=options["workers"], progress=tell.shown, **sizes
    )
    found = replace(found, best_fit=replace(found.best_fit, origin=_origin(file)))
    if target is not None:
        found.save(target)
    tell.say("best", ", ".join(f"{name}={size}" for name, size in found.best.items()))
    summary = found.summary()
    tell.say("", summary.drop(columns=["mean", "sd", "similarity", "edge"]).to_string(index=False))
    tell.know(best=found.best, candidates=summary.to_dict("records"), doubts=found.doubts)
    if target is not None:
        _tell_saved(tell, target)
    tell.end()
    return 130 if found.interrupted else 0


def _fitting(options: Mapping[str, Any], force: bool) -> dict[str, Any]:
    names = ("restarts", "seed", "max_iter", "tol", "dtype", "checkpoint", "every", "resume")
    return {name: options[name] for name in names}


def predict(
    run: Path,
    cells: Path | None,
    top: int | None,
    among: str,
    atleast: int,
    level: float,
    draws: int,
    seed: int,
    output: Path | None,
    format: str | None,
    force: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Predict cells of a saved fit."""
    from pltf.io.files import read_data

    if (cells is None) == (top is None):
        raise PltfError("predict needs either --cells, a table of cells, or --top, a number of them")
    tell, target = Teller(json, quiet), output_path(output, force)
    known = _fit_of(run)
    indices = list(known.model.observed[known.tensor()])
    if top is not None:
        table = known.top(top, among, atleast=atleast, draws=draws, seed=seed, progress=tell.shown)
        at: Any = table[indices]
    else:
        assert cells is not None
        table = read_data(cells, format=format, keys=indices)
        if not hasattr(table, "columns"):
            raise PltfError(f"--cells must be a table with the columns {', '.join(indices)}, and {cells} is none")
        taken = [name for name in ("mean", "sd", "prob", "low", "high") if name in table.columns]
        if taken:
            raise PltfError(f"{cells} has a column {taken[0]!r} already: rename it")
        at = table[indices]
        spread = np.sqrt(known.var(at, progress=tell.shown))
        probability = known.prob(at, atleast, draws=draws, seed=seed, progress=tell.shown)
        table = table.assign(mean=known.mean(at), sd=spread, prob=probability)
    low, high = known.interval(at, level, draws=draws, seed=seed, progress=tell.shown)
    table = table.assign(low=low, high=high)
    if target is not None:
        written(table, target)
        _tell_saved(tell, target, f"{len(table):,} cells")
    elif not json and not quiet:
        table.to_csv(sys.stdout, index=False)
    tell.know(cells=table.astype(object).to_dict("records"), level=level)
    tell.end()
    return 0


def score(
    run: Path,
    file: Path | None,
    value: str | None,
    format: str | None,
    level: float,
    seed: int,
    json: bool,
    quiet: bool,
) -> int:
    """Score hidden cells."""
    from pltf import metrics
    from pltf.cli.data import held_in

    tell, known = Teller(json, quiet), _fit_of(run)
    if file is None and known.held_out is None:
        raise PltfError(f"no cells were hidden when {run} was fitted: name a table of cells, or fit with --holdout")
    held = known.held_out if file is None else held_in(file, known, value, format)
    scores = metrics.score(known, held, level=level, seed=seed, progress=tell.shown)
    tell.say("", repr(scores).strip("<>"))
    rows = {str(name): row for name, row in scores.table.to_dict("index").items()}
    tell.know(cells=scores.values.size, above_zero=int((scores.values > 0).sum()), level=level, scores=rows)
    tell.know(calibration=scores.calibration.to_dict("records"))
    tell.end()
    return 0


def report(run: Path, output: Path, title: str | None, top: int, force: bool, json: bool, quiet: bool) -> int:
    """Write a report."""
    from pltf.report import write

    tell, target = Teller(json, quiet), output_path(output, force)
    assert target is not None
    write(load(run), target, title=title, top=top, progress=tell.shown)
    _tell_saved(tell, target)
    tell.end()
    return 0


def plan(file: Path, json: bool, quiet: bool, **options: Any) -> int:
    """Tell what a fit would take."""
    tell = Teller(json, quiet)
    seen = _read(tell, file, options)
    planned = model_of(seen, options).plan(seen, dtype=options["dtype"])
    tell.say("", str(planned))
    tell.know(engine=planned.engine, flops=planned.flops, work_bytes=planned.work_bytes, threads=planned.threads)
    tell.end()
    return 0


def info(file: Path, format: str | None, json: bool, quiet: bool) -> int:
    """Tell what is in a file."""
    from pltf.io.files import is_saved, read_data

    tell = Teller(json, quiet)
    if format is None and is_saved(file):
        result = load(file)
        if isinstance(result, Selection):
            tell.say("", repr(result).strip("<>"))
            tell.know(best=result.best, candidates=result.summary().to_dict("records"))
            result = result.best_fit
        else:
            tell.say("", repr(result).strip("<>"))
        _tell_fit(tell, result, short=True)
        for name, text in result.origin.items():
            tell.say(name, text)
        tell.know(origin=dict(result.origin))
    else:
        held = read_data(file, format=format)
        for name, text in _told_of(held).items():
            tell.say(name, text)
            tell.know(**{name: text})
    tell.end()
    return 0


def _told_of(held: Any) -> dict[str, str]:
    """What data look like."""
    if hasattr(held, "columns"):
        columns = [f"{name} ({dtype})" for name, dtype in zip(held.columns, held.dtypes, strict=True)]
        return {"table": f"{len(held):,} rows", "columns": ", ".join(columns)}
    shape = "x".join(map(str, held.shape))
    values = getattr(held, "values", getattr(held, "data", held))
    kind = "listed cells" if hasattr(held, "coords") and not hasattr(held, "dims") else "array"
    return {kind: shape, "values": f"{np.size(values):,}, {np.asarray(values).dtype}"}


def convert(file: Path, output: Path, force: bool, json: bool, quiet: bool, **options: Any) -> int:
    """Write data in another format."""
    from pltf.cli.data import write_observation

    tell, target = Teller(json, quiet), output_path(output, force)
    assert target is not None
    seen = _read(tell, file, options)
    also = write_observation(seen, target)
    _tell_saved(tell, target)
    if also is not None:
        _tell_saved(tell, also, "labels, which the format cannot hold")
    tell.end()
    return 0


def demo(folder: Path, force: bool, json: bool, quiet: bool) -> int:
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
    demo_events().to_csv(events, index=False)
    index = ["--index", "user,place,when:week"]
    steps = [
        ["select", events, *index, "--cp", "1:6", "--restarts", "5", "-o", search],
        ["fit", events, *index, "--cp", "3", "--restarts", "5", "--holdout", "0.2", "-o", saved],
        ["score", saved],
        ["predict", saved, "--top", "5", "--among", "missing"],
        ["report", saved, "-o", page],
    ]
    for step in steps:
        if not quiet:
            print(f"\n$ {shlex.join(['pltf', *step])}", flush=True)
        replaces = ["--force"] if "-o" in step else []
        code = run([*step, *replaces, *(["--quiet"] if quiet else [])])
        if code:
            return code
    if not quiet:
        print(f"\nOpen {page} in a browser.")
    return 0


# -- what is told -------------------------------------------------------------------------------


def _read(tell: Teller, file: Path, options: Mapping[str, Any]) -> Observation:
    seen, source = observed(file, options)
    shape = " x ".join(f"{dim} {size:,}" for dim, size in zip(seen.dims or (), seen.shape, strict=True))
    held = f"{np.count_nonzero(seen.values):,} cells above zero" if isinstance(seen, CooObservation) else ""
    missing = "" if not seen.has_missing else f"{seen.n_observed:,} cells observed"
    tell.say("data", "; ".join(part for part in (f"{source}: {shape or seen.shape}", held, missing) if part))
    tell.know(data={"source": source, "shape": seen.shape, "dims": seen.dims, "total": seen.total})
    return seen


def _tell_fit(tell: Teller, result: Fit, short: bool = False) -> None:
    if not short:
        state = "converged" if result.converged else "not converged"
        sizes = ", ".join(f"{index}={size}" for index, size in result.model.sizes.items())
        tell.say("model", f"{result.model.text.replace(chr(10), '; ')}; {sizes}")
        tell.say(result.objective, f"{result.bound:.6f} after {result.n_iter} sweeps, {state}")
    tell.know(
        model=result.model.text,
        latent=dict(result.model.sizes),
        method=result.method,
        objective=result.objective,
        bound=result.bound,
        sweeps=result.n_iter,
        converged=result.converged,
        stopped=result.stopped,
        seconds=result.seconds,
        seed=result.seed,
        sizes=dict(result.sizes),
    )
    if len(result.model.sizes) == 1:
        table = result.components()
        tell.know(components=[{"component": number, **row} for number, row in table.to_dict("index").items()])
        for number, row in list(table.iterrows())[:MOST_SHOWN]:
            tops = "  ".join(f"{name}: {', '.join(map(str, row[name]))}" for name in table.columns[2:])
            tell.say(f"component {number}", f"{row['share']:6.1%} of the counts  {tops}")
        if len(table) > MOST_SHOWN:
            tell.say("", f"and {len(table) - MOST_SHOWN} more components")


def _tell_saved(tell: Teller, path: Path, what: str = "") -> None:
    size = path.stat().st_size
    told = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
    tell.say("saved", f"{path} ({told}{'; ' + what if what else ''})")
    tell.know(saved=str(path))


def _origin(file: Path) -> dict[str, str]:
    return {"source": str(file), "command": shlex.join(["pltf", *sys.argv[1:]])}


def _fit_of(path: Path) -> Fit:
    result = load(path)
    return result.best_fit if isinstance(result, Selection) else result
