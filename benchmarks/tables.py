"""Tables of results, ratios and targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.peers import OURS, Contender
from benchmarks.problems import Spec
from benchmarks.targets import BUSY, DATA, TARGETS, Found, Target


@dataclass(frozen=True)
class Row:
    """One contender on one problem: the measurement, or the reason for a failure."""

    spec: Spec
    contender: Contender
    sweeps: int
    result: Mapping[str, float] | None
    reason: str = ""


def summary(row: Row) -> str:
    """A row in one line."""
    if row.result is None:
        return f"failed: {row.reason}"
    r = row.result
    return f"{_seconds(r['fastest'])} s a sweep, peak {r['peak_mb']:.0f} MB, KL {_divergence(r['divergence'])}"


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the results, the ratios of peers to pltf, and which targets are met."""
    console.print()
    console.print(_results(rows))
    console.print(
        "KL: generalized Kullback-Leibler divergence over the observed cells, same start for all, unless remarked."
    )
    if all(row.contender.name in OURS for row in rows):
        return
    console.print()
    console.print(_ratios(rows))
    console.print("Seconds of the peer by seconds of pltf (minima): above 1, pltf is so many times faster.")
    targets = [target for target in TARGETS if target.problem in {row.spec.name for row in rows}]
    if targets:
        console.print()
        console.print(_targets(targets, _found(rows)))
        console.print(f"x: times the seconds of a sweep (minima); {DATA}: data and peak of the fit, by the data.")


def _results(rows: Sequence[Row]) -> Table:
    table = Table(title="Results", title_justify="left")
    table.add_column("problem", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    for heading in ("s/sweep\nmin", "s/sweep\nmedian", "peak\nMB", "of which\nfit MB", "sweeps", "KL\nreached"):
        table.add_column(heading, justify="right")
    table.add_column("remark")
    last = ""
    for row in rows:
        if row.spec.name != last:
            table.add_section()
            last = row.spec.name
        table.add_row(row.spec.name, row.contender.name, *_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    r = row.result
    if r is None:
        return ["-"] * 4 + [str(row.sweeps), "-", escape(f"failed: {row.reason}")]
    return [
        _seconds(r["fastest"]),
        _seconds(r["median"]),
        f"{r['peak_mb']:.0f}",
        f"{r['above_mb']:.1f}",
        str(row.sweeps),
        _divergence(r["divergence"]),
        _remark(row),
    ]


def _remark(row: Row) -> str:
    """Notes for the row."""
    disturbed = disturbance(row.result["others"]) if row.result else ""
    return "; ".join(filter(None, (row.contender.remarks(row.spec), disturbed)))


def disturbance(others: float) -> str:
    """A warning if other programs used so many cores that times are unreliable."""
    return f"disturbed: others on {others:.1f} cores" if others > BUSY else ""


def _ratios(rows: Sequence[Row]) -> Table:
    table = Table(title="Peer / pltf", title_justify="left")
    table.add_column("problem", no_wrap=True)
    table.add_column("peer", no_wrap=True)
    headings = [f"time, by\n{name}" for name in OURS]
    others = ("peak MB, by\npltf vb", "fit MB, by\npltf vb", "KL less that\nof pltf em", "KL less that\nof truth")
    for heading in (*headings, *others):
        table.add_column(heading, justify="right")
    table.add_column("remark")
    found = _found(rows)
    last = ""
    for row in rows:
        if row.contender.name in OURS or row.result is None:
            continue
        if row.spec.name != last:
            table.add_section()
            last = row.spec.name
        ours = [found.get((row.spec.name, name)) for name in OURS]
        cells = _compared(row.result, ours)
        table.add_row(row.spec.name, row.contender.name, *cells, _remark(row))
    return table


def _compared(peer: Mapping[str, float], ours: Sequence[Mapping[str, float] | None]) -> list[str]:
    times = ["-" if one is None else _ratio(peer["fastest"], one["fastest"]) for one in ours]
    vb, em = ours[0], ours[2]
    memory = ["-" if vb is None else _ratio(peer[part], vb[part]) for part in ("peak_mb", "above_mb")]
    by_em = math.nan if em is None else peer["divergence"] - em["divergence"]
    return [*times, *memory, _divergence(by_em, "+"), _divergence(peer["divergence"] - peer["at_truth"], "+")]


def _found(rows: Sequence[Row]) -> Found:
    return {(row.spec.name, row.contender.name): row.result for row in rows}


def _targets(targets: Sequence[Target], found: Found) -> Table:
    table = Table(title="Targets", title_justify="left")
    for heading in ("problem", "contender", "against"):
        table.add_column(heading, no_wrap=True)
    table.add_column("wanted", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for target in targets:
        wanted = f"{'at most' if target.most else 'at least'} {target.wanted:g}x"
        table.add_row(target.problem, target.ours, target.against, wanted, *_outcome(target, found))
    return table


def _outcome(target: Target, found: Found) -> tuple[str, str]:
    ratio = target.ratio(found)
    if ratio is None:
        return "-", "not measured"
    met = "met" if target.met(ratio) else "not met"
    return f"{ratio:.2f}x", f"{met}, but disturbed" if target.disturbed(found) else met


def _ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.2f}" if ours > 0 else "-"


def _seconds(seconds: float) -> str:
    return f"{seconds:.5f}" if seconds < 0.1 else f"{seconds:.3f}"


def _divergence(value: float, sign: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{sign}.1f}"
