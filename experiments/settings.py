"""How much is run: everything, as in the paper, or a small part of everything."""

from __future__ import annotations

from dataclasses import dataclass

import pltf

LEVELS = (0.4, 0.6, 0.8)  # shares of missing cells
PAPER = pltf.Gamma(0.5, 10.0)  # the paper's prior, fixed
MAX_ITER, TOL = 2000, 1e-6  # of every VB and EM fit, unless stated otherwise


@dataclass(frozen=True)
class Settings:
    """Numbers of runs and restarts, and sizes, of all parts."""

    quick: bool
    runs: int  # data sets or masks, each with its own seed
    restarts: int  # of a fit; the best one is kept
    synthetic_orders: tuple[int, ...]
    uclaf_orders: tuple[int, ...]
    order_restarts: int
    small: int  # edge of the small tensor
    large: int  # edge of the large tensor
    large_runs: int
    large_restarts: int
    sweeps: int  # timed iterations
    timings: int  # repetitions for the small tensor; the large one is timed once
    tucker_sizes: tuple[tuple[int, int, int], ...]
    side_ranks: tuple[int, ...]  # with the default prior
    side_shape_rank: int  # with learned shapes
    side_restarts: int
    side_shape_restarts: int
    coverage_edge: int
    coverage_cells: int  # number of hidden cells, and of observed ones
    coverage_draws: int


FULL = Settings(
    quick=False,
    runs=10,
    restarts=5,
    synthetic_orders=tuple(range(2, 11)),
    uclaf_orders=tuple(range(1, 21)),
    order_restarts=10,
    small=50,
    large=500,
    large_runs=3,
    large_restarts=2,
    sweeps=2000,
    timings=10,
    tucker_sizes=((2, 2, 2), (5, 5, 5), (10, 10, 5)),
    side_ranks=(2, 10, 20),
    side_shape_rank=5,
    side_restarts=3,
    side_shape_restarts=2,
    coverage_edge=30,
    coverage_cells=2000,
    coverage_draws=1000,
)

QUICK = Settings(
    quick=True,
    runs=2,
    restarts=1,
    synthetic_orders=(5, 6, 7, 8, 9),
    uclaf_orders=(1, 2, 3, 5),
    order_restarts=2,
    small=50,
    large=100,
    large_runs=2,
    large_restarts=2,
    sweeps=100,
    timings=2,
    tucker_sizes=((2, 2, 2), (5, 5, 5)),
    side_ranks=(2,),
    side_shape_rank=2,
    side_restarts=1,
    side_shape_restarts=1,
    coverage_edge=20,
    coverage_cells=300,
    coverage_draws=200,
)
