"""Data for the commands: from files and options to observations, and back to files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.cli.words import indices_of, number_of, sizes_of
from pltf.data import CooObservation, DenseObservation, Observation, holdout, observe
from pltf.data.split import HeldOut
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.io.files import Cells, guess, read_data, refuse_absent, table_columns
from pltf.notation import Model, cp, nmf, tucker
from pltf.store.container import replacing

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("csv", "tsv", "parquet")
MOST_DENSE = 100_000_000  # cells of an array that is written whole
_UNLISTED = {"nan": "zero", "unlisted": "missing"}


# -- reading ------------------------------------------------------------------------------------


def observed(file: Path, options: Mapping[str, Any]) -> tuple[Observation, str]:
    """What a file holds, by the options of the command; and where it comes from, in words."""
    if options["missing"] not in _UNLISTED:
        raise PltfError(f"--missing must be nan or unlisted, got {options['missing']!r}")
    unlisted = _UNLISTED[options["missing"]]
    listed: dict[str, Any] = {"unlisted": unlisted, "duplicates": "sum" if options["sum"] else "error"}
    kind = options["format"] or guess(file)
    if kind in TABLES:
        return _table(file, kind, options, listed)
    for option in ("value", "count"):
        if options[option]:
            raise PltfError(f"--{option} goes with a table, and {file} is a {kind} file")
    held = read_data(file, format=options["format"], variable=options["variable"])
    names = tuple(indices_of(options["index"]).values()) or None
    if isinstance(held, Cells):
        return observe((held.coords, held.values), shape=held.shape, dims=names, **listed, name=file.name), str(file)
    if isinstance(held, Observation):
        if names is not None or unlisted != "zero":
            raise PltfError(
                f"{file} says itself what its indices are and what was observed: leave --index and --missing"
            )
        return held, str(file)
    if hasattr(held, "tocoo"):
        return observe(held, dims=names, **listed, name=file.name), str(file)
    if unlisted == "missing":
        raise PltfError(f"--missing unlisted goes with lists of cells, and {file} holds an array: NaN is missing there")
    return observe(held, dims=names, name=file.name), str(file)


def _table(file: Path, kind: str, options: Mapping[str, Any], listed: Mapping[str, Any]) -> tuple[Observation, str]:
    """A table: the columns that are named, and no others, are read."""
    columns = table_columns(file, kind)
    dims = indices_of(options["index"]) or _from_model(options["model"])
    if not dims:
        raise PltfError(f"--index must say which columns are indices; {file} has {', '.join(columns)}")
    keys = [one if one in columns else one.rpartition(":")[0] or one for one in dims]
    refuse_absent(file, keys, columns)
    rest = [column for column in columns if column not in keys]
    value = options["value"]
    if value is None and not options["count"]:
        if len(rest) > 1:
            found = ", ".join(rest)
            advice = "say which one holds the values with --value, or count the rows with --count"
            raise PltfError(f"besides {', '.join(keys)} {file} has several columns ({found}): {advice}")
        value = rest[0] if rest else None
    wanted = [*keys, *([value] if value is not None else [])]
    table = read_data(file, format=options["format"], columns=wanted, keys=keys)
    if not len(table):
        raise PltfError(f"{file} has no rows")
    seen = observe(table, dims=dims, value=value, count=value is None, **listed, name=file.name)
    return seen, f"{len(table):,} rows of {file}, " + (f"values from {value!r}" if value else "each one count")


def _from_model(text: str | None) -> dict[str, str]:
    """The indices of the tensor in the text of a model."""
    if text is None:
        return {}
    indices = next(iter(_sized(text, {}).observed.values()))
    return {index: index for index in indices}


def _sized(text: str, sizes: Mapping[str, int]) -> Model:
    """A model whose latent indices have the sizes that are known, and 1 otherwise."""
    from pltf.notation.grammar import parse

    equations = parse(text)
    observed = {index for e in equations for index in e.output.indices}
    latent = dict.fromkeys(i for e in equations for i in e.summed if i not in observed)
    return Model(text, **{**dict.fromkeys(latent, 1), **sizes})


def model_of(seen: Observation, options: Mapping[str, Any]) -> Model:
    """The model that is asked for."""
    given = [name for name in ("model", "cp", "tucker", "nmf") if options[name] is not None]
    if len(given) != 1:
        came = " and ".join(f"--{name}" for name in given) or "none"
        raise PltfError(f"one of --model, --cp, --tucker and --nmf must say what to fit, got {came}")
    sizes = sizes_of(options["size"])
    single = {index: numbers[0] for index, numbers in sizes.items()}
    indices = seen.dims or tuple("ijklmnop"[: len(seen.shape)])
    if options["model"] is not None:
        model = Model(options["model"], **single)
        if len(model.observed) > 1:
            raise PltfError("--model must be one equation: coupled models are fitted in Python")
        return model
    if options["cp"] is not None:
        return cp(indices, rank=_first(options["cp"], "--cp", single, "r"))
    if options["nmf"] is not None:
        if len(indices) != 2:
            raise PltfError(f"--nmf needs two indices, got {len(indices)}: use --cp")
        return nmf(indices, rank=_first(options["nmf"], "--nmf", single, "r"))
    ranks = tuple(number_of(part, "--tucker") for part in options["tucker"].split(","))
    if len(ranks) != len(indices):
        raise PltfError(f"--tucker must have a rank for each of {', '.join(indices)}, got {len(ranks)}")
    return tucker(indices, ranks=ranks).resized(**single)


def _first(text: str, option: str, sizes: Mapping[str, int], index: str) -> int:
    return sizes.get(index, number_of(text.split(":")[0].split(",")[0], option))


def hidden(seen: Observation, share: float | None, seed: int) -> tuple[Observation, HeldOut | None]:
    """Data without a share of their cells, and these."""
    if share is None:
        return seen, None
    if isinstance(seen, CooObservation):
        by_counts = seen.unlisted == "zero"
        split = holdout(seen, share, by="nonzeros" if by_counts else "cells", negatives=float(by_counts), seed=seed)
        return split.train, HeldOut(split.cells, split.values)
    assert isinstance(seen, DenseObservation)
    keep = holdout(seen, share, seed=seed)
    known = np.ones(seen.shape, dtype=bool) if seen.mask is None else seen.mask
    cells = np.argwhere(known & ~keep)
    train = observe(seen.values, keep, dims=seen.dims, labels=seen.labels if seen.dims else None)
    return train, HeldOut(cells, seen.values_at(cells.T))


def held_in(file: Path, fit: Fit, value: str | None, format: str | None) -> HeldOut:
    """Cells with their values, from a table."""
    from pltf.prediction.cells import observed_like

    kind = format or guess(file)
    indices = fit.model.observed[fit.tensor()]
    if kind not in TABLES:
        raise PltfError(f"{file} must be a table with the columns {', '.join(indices)} and one of values")
    rest = [column for column in table_columns(file, kind) if column not in indices]
    if value is None and len(rest) != 1:
        raise PltfError(
            f"--value must say which column of {file} holds the values: {', '.join(rest) or 'there is none'}"
        )
    value = value or rest[0]
    table = read_data(file, format=format, columns=[*indices, value], keys=indices)
    seen = observed_like(table, indices, fit.labels, fit.sizes, file.name)
    assert isinstance(seen, CooObservation)
    return HeldOut(seen.coords.T, seen.values)


# -- writing ------------------------------------------------------------------------------------


def written(table: pd.DataFrame, path: Path) -> None:
    """A table in a file, whole or not at all."""
    endings = [ending.lower() for ending in path.suffixes]
    with replacing(path) as part:
        if endings[-1:] in (["parquet"], [".parquet"], [".pq"]):
            try:
                table.to_parquet(part, engine="pyarrow", index=False)
            except ImportError:
                raise PltfError("Parquet needs pyarrow: pip install 'pltf[io]'") from None
        else:
            packed = "gzip" if endings[-1:] == [".gz"] else None
            table.to_csv(part, index=False, sep="\t" if ".tsv" in endings else ",", compression=packed)


def write_observation(seen: Observation, path: Path) -> Path | None:
    """Data in a file; where the format cannot hold labels, these go to a second file, which is told."""
    endings = [ending.lower() for ending in path.suffixes]
    plain = [ending for ending in endings if ending != ".gz"]
    kind = plain[-1] if plain else ""
    if kind in (".csv", ".tsv", ".parquet", ".pq"):
        written(_long(seen), path)
    elif kind == ".tns":
        return _write_tns(seen, path)
    elif kind == ".npz":
        _write_npz(seen, path)
    elif kind in (".nc", ".nc4"):
        _write_netcdf(seen, path)
    else:
        known = ".csv, .tsv, .parquet, .tns, .npz or .nc"
        raise PltfError(f"the output must end in {known}, got {path.name!r}")
    return None


def _dims(seen: Observation) -> tuple[str, ...]:
    return seen.dims or tuple(f"axis{axis}" for axis in range(len(seen.shape)))


def _listed(seen: Observation, what: str) -> CooObservation:
    """Data as a list of cells: an array gives those above zero, and its holes."""
    if isinstance(seen, CooObservation):
        return seen
    assert isinstance(seen, DenseObservation)
    if np.size(seen.values) > MOST_DENSE:
        raise PltfError(f"an array of {np.size(seen.values):,} cells is too large to be written as {what}")
    known = np.ones(seen.shape, dtype=bool) if seen.mask is None else seen.mask
    cells = np.argwhere(known & (seen.values > 0))
    labels = seen.labels if seen.dims else None
    again = observe(
        (cells, seen.values[tuple(cells.T)]),
        shape=seen.shape,
        missing=np.argwhere(~known),
        dims=seen.dims,
        labels=labels,
    )
    assert isinstance(again, CooObservation)
    return again


def _long(seen: Observation) -> pd.DataFrame:
    """A long table: a row for each listed cell; holes are rows without a value."""
    import pandas as pd

    listed = _listed(seen, "a table")
    cells = np.concatenate([listed.coords, listed.missing], axis=1)
    values = np.concatenate([listed.values, np.full(listed.missing.shape[1], np.nan)])
    columns = {}
    for dim, at in zip(_dims(seen), cells, strict=True):
        columns[dim] = seen.labels[dim].at(at) if dim in seen.labels else at
    whole = not np.isnan(values).any() and bool((values == np.floor(values)).all())
    name = "value" if "value" not in columns else "count"
    return pd.DataFrame({**columns, name: values.astype(np.int64) if whole else values})


def _write_tns(seen: Observation, path: Path) -> Path | None:
    import gzip

    listed = _listed(seen, "a list of cells")
    if listed.missing.shape[1]:
        raise PltfError(f"a .tns file cannot say that cells are missing, and there are {listed.missing.shape[1]:,}")
    beside = path.with_name(f"{path.name}.labels.csv") if seen.labels else None
    if beside is not None:
        import pandas as pd

        rows = [
            pd.DataFrame({"index": dim, "position": np.arange(len(one)) + 1, "label": one.names()})
            for dim, one in seen.labels.items()
        ]
        written(pd.concat(rows), beside)
    whole = (listed.values == np.floor(listed.values)).all()
    rows_of = np.column_stack([listed.coords.T + 1, listed.values])
    with replacing(path) as part:
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(part, "wt") as file:
            np.savetxt(file, rows_of, fmt=["%d"] * len(listed.coords) + ["%d" if whole else "%.17g"])
    return beside


def _write_npz(seen: Observation, path: Path) -> None:
    listed = _listed(seen, "a list of cells")
    arrays: dict[str, Any] = {
        "cells": listed.coords.T,
        "values": listed.values,
        "shape": np.array(listed.shape),
        "unlisted": np.array(listed.unlisted),
    }
    if listed.unlisted == "zero":
        arrays["missing"] = listed.missing.T
    if seen.dims is not None:
        arrays["dims"] = np.array(seen.dims)
        for dim, one in seen.labels.items():
            held = one.index.to_numpy()
            arrays[f"labels.{dim}"] = held.astype(str) if held.dtype == object else held
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _write_netcdf(seen: Observation, path: Path) -> None:
    import xarray as xr

    if not isinstance(seen, DenseObservation):
        size = float(np.prod([float(n) for n in seen.shape]))
        if size > MOST_DENSE:
            raise PltfError(f"netCDF holds whole arrays, and this one has {size:.3g} cells: write .npz or .parquet")
        cells = np.stack(np.unravel_index(np.arange(int(size)), seen.shape))
        values = seen.values_at(cells).reshape(seen.shape)
    else:
        values = seen.values if seen.mask is None else np.where(seen.mask, seen.values, np.nan)
    coords = {dim: one.index for dim, one in seen.labels.items()}
    array = xr.DataArray(values, coords, _dims(seen), name="X")
    with replacing(path) as part:
        array.to_dataset().to_netcdf(part, engine="h5netcdf")


def demo_events() -> pd.DataFrame:
    """Events with a meaning: three habits that users share, by the week."""
    import pandas as pd

    rng = np.random.default_rng(7)
    places = ["office", "cafe", "gym", "pool", "park", "cinema", "club", "bar", "museum", "library"]
    habits = [[8, 5, 0, 0, 0, 0, 0, 0, 0, 3], [0, 1, 6, 4, 5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 4, 5, 6, 2, 0]]
    users = [f"user{number:02d}" for number in range(40)]
    share = rng.gamma(0.4, 1.0, (len(users), 3))
    season = np.array([[1.0] * 20, np.linspace(0.2, 2.0, 20), 1 + np.sin(np.arange(20) / 3)])
    rate = 0.25 * np.einsum("ur,rp,rw->upw", share, np.array(habits), season)
    counts = rng.poisson(rate)
    rows = np.repeat(np.argwhere(counts), counts[counts > 0], axis=0)
    days = rows[:, 2] * 7 + rng.integers(0, 7, len(rows))
    when = pd.Timestamp("2026-01-05") + pd.to_timedelta(days, unit="D")
    table = pd.DataFrame({"user": np.array(users)[rows[:, 0]], "place": np.array(places)[rows[:, 1]], "when": when})
    return table.sort_values("when", kind="stable").assign(when=lambda one: one["when"].dt.strftime("%Y-%m-%d"))
