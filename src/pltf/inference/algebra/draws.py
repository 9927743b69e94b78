"""Random numbers for start values: drawn on the host, so that a start does not depend on the device."""

from __future__ import annotations

import numpy as np


def restart_seed(seed: int, restart: int) -> int:
    """The seed of restart k, for any number of restarts: a fit with this seed reproduces that restart."""
    if restart == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(restart,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int) -> np.random.Generator:
    """The random generator of a start."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
