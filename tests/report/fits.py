"""Fits to report on: small, but with everything that a report shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import pltf
import pltf.metrics
from pltf.data.split import HeldOut
from pltf.datasets import draw

NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "</script>",
    "<b>bold</b> & <a href='https://example.org'>link</a>",
    "<!-- comment",
    "a label that is much too long to stand beside a chart, and goes on and on",
    "  ",
)
WHERE = ("home", "work", "gym", "bar", "shop")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday")
ORIGIN = {"command": "pltf fit '<script>alert(2)</script>.csv' -o run.nc", "source": "events.csv", "pltf": "0.1.0"}


def users() -> list[str]:
    return [*NASTY, *(f"user {n}" for n in range(len(NASTY), 30))]


def counts() -> np.ndarray:
    return np.asarray(draw(pltf.cp(rank=3), (30, 5, 4), seed=3).counts["X"])


@cache
def labelled() -> pltf.Fit:
    """Held-out cells, labels that are not kind, several restarts."""
    X = counts()
    keep = pltf.holdout(X, 0.3, seed=1)
    seen = pltf.observe(X, keep, dims=("user", "place", "day"), labels={"user": users(), "place": WHERE, "day": DAYS})
    fit = pltf.cp(("user", "place", "day"), rank=3).fit(seen, restarts=3, progress=False)
    hidden = np.argwhere(~keep)
    return replace(fit, held_out=HeldOut(hidden, X[tuple(hidden.T)].astype(float)), origin=ORIGIN)


@cache
def scored() -> pltf.metrics.Scores:
    """Its scores, for reports in which they do not matter: to score takes longer than all else."""
    return pltf.metrics.score(labelled(), progress=False)


@cache
def searched() -> pltf.Selection:
    """A search whose best fit is like the one above."""
    fit = labelled()
    X = counts()
    options: dict[str, Any] = {"restarts": 3, "workers": 1, "criterion": "bound"}
    found = pltf.select(pltf.cp(rank=1), X, mask=pltf.holdout(X, 0.3, seed=1), r=[1, 2, 3, 4], **options)
    return replace(found, best_fit=fit)
