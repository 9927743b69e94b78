"""Predictions of cells as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.engines.plan import human
from pltf.errors import PltfError, py

if TYPE_CHECKING:
    import pandas as pd

    from pltf.fit import Fit

INTERVALS = ("rate_low", "rate_high", "count_low", "count_high")
COLUMNS = ("mean", "sd", "prob", "supported", *INTERVALS)
MOST = 1 << 31  # maximum bytes of a table that was not requested by cells


def predicted(
    fit: Fit, at: Any, name: str, atleast: int, level: float, draws: int, seed: int, progress: bool
) -> pd.DataFrame:
    """A row for each cell."""
    import pandas as pd

    check_columns(fit.model.observed[name])
    belief, cells = fit._asked(at, name)
    refuse_huge(8 * (len(belief.shape) + len(COLUMNS)) * cells.size, f"select fewer cells with {py:at=}")
    positions = np.ascontiguousarray(cells.coords(slice(0, cells.size)))
    how: dict[str, Any] = {"of": name, "progress": progress}
    drawn = {**how, "draws": draws, "seed": seed}
    rows = positions.T if at is not None else None  # all cells of a tensor need not be listed
    table = pd.DataFrame(fit._labelled(belief, positions), index=at.index if isinstance(at, pd.DataFrame) else None)
    found = {
        "mean": fit.mean(rows, **how),
        "sd": np.sqrt(fit.var(rows, **how)),
        "prob": fit.prob(rows, atleast, **drawn),
        "supported": fit.supported(rows, of=name),
        **intervals(fit, rows, level, **drawn),
    }
    return table.assign(**{column: values.reshape(-1) for column, values in found.items()})


def intervals(fit: Fit, at: Any, level: float, **drawn: Any) -> dict[str, Any]:
    """The ends of the intervals of rates and of counts."""
    ends = [*fit.interval(at, level, **drawn), *fit.interval(at, level, counts=True, **drawn)]
    return dict(zip(INTERVALS, ends, strict=True))


def check_columns(indices: Sequence[str]) -> None:
    """Raise an error if an index has the name of a column of the table."""
    lost = [index for index in indices if index in COLUMNS]
    if lost:
        raise PltfError(f"index '{lost[0]}' has the name of a column of the table: rename it")


def refuse_huge(size: int, advice: str) -> None:
    """Raise an error if the result has too many bytes."""
    if size > MOST:
        raise PltfError(f"the result would take {human(size, 'B')}: {advice}")
