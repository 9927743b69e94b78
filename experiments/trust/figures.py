"""Small figures of the page. Colours have the same meaning in all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt

from experiments.common import Json
from experiments.figures import save
from experiments.formatting import percent
from experiments.results import Saved
from experiments.trust.summary import best_of, by_set, is_ours, mean_of

OURS, PEERS = "#0072B2", "#D55E00"


def draw(saved: Saved, folder: Path) -> None:
    """Draw every figure whose results exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, (name, figure) in FIGURES.items():
        if part in saved and saved[part]["rows"]:
            save(figure, saved[part], folder / f"trust-{name}.svg")


def leads(found: Json) -> Any:
    """Log-likelihood of every tool, relative to the best variant of pltf."""
    sets = by_set(found["rows"])
    figure, axes = plt.subplots(1, len(sets), figsize=(2.3 * len(sets) + 1, 3.4), layout="constrained", squeeze=False)
    for ax, (name, levels) in zip(axes[0], sets.items(), strict=True):
        for at, rows in enumerate(levels.values()):
            best = mean_of(best_of(rows, ours=True), "log_likelihood")
            for row in rows:
                lead = mean_of(row, "log_likelihood") - best
                ax.plot(at, lead, "o", color=OURS if is_ours(row["tool"]) else PEERS, alpha=0.8, markersize=5)
        ax.axhline(0, color="0.5", linewidth=0.8)
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_xticks(range(len(levels)), [percent(level) for level in levels])
        ax.set(title=name, xlabel="hidden")
    axes[0, 0].set_ylabel("nats per hidden cell, relative to the best pltf")
    return figure


def coverage(found: Json) -> Any:
    """Coverage on drawn data, by model and method."""
    cases, ways = (list(dict.fromkeys(row[key] for row in found["rows"])) for key in ("case", "way"))
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
    for ax, kind in zip(axes, ("rates", "counts"), strict=True):
        for n, way in enumerate(ways):
            rows = [row for row in found["rows"] if row["way"] == way]
            shares = [100 * np.mean([draw[kind] for draw in row["draws"]]) for row in rows]
            places = np.arange(len(rows)) + 0.15 * (n - (len(ways) - 1) / 2)
            ax.plot(places, shares, "o", color=(PEERS, OURS)[n % 2], label=way)
        ax.axhspan(88, 92, color="0.9", zorder=0)
        ax.set_xticks(range(len(cases)), cases, rotation=20)
        ax.set_title(f"90 % intervals of {kind}")
    axes[0].set_ylabel("coverage (%)")
    axes[0].legend()
    return figure


FIGURES: dict[str, tuple[str, Callable[[Json], Any]]] = {
    "real": ("leads", leads),
    "drawn": ("coverage", coverage),
}
