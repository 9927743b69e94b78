"""Random numbers: they are drawn on the host, so that a start is the same wherever the factors live."""

from __future__ import annotations

import numpy as np


def restart_seed(seed: int, restart: int) -> int:
    """The seed of restart k, whatever their number: a fit with it as its own seed is that restart."""
    if restart == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(restart,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int) -> np.random.Generator:
    """Random numbers of a start."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
