"""``fit.plot``: figures of a fit as its methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pltf.errors import choice
from pltf.plotting.of_fits import components, factors, time_courses, trace
from pltf.plotting.of_scores import calibration

if TYPE_CHECKING:
    from pltf.fit import Fit

KINDS = ("components", "factors", "time_courses", "trace", "calibration")


class FitPlots:
    """Figures of a fit: ``fit.plot.components()``, or ``fit.plot("components")``. Each returns its axes.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf
    >>> fit = pltf.nmf(rank=1).fit(np.ones((3, 4)))
    >>> fit.plot.trace().get_xlabel() == fit.plot("trace").get_xlabel()
    True
    >>> fit.plot
    <plots of a fit: components, factors, time_courses, trace, calibration>
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit

    def __call__(self, kind: str = "components", **options: Any) -> Any:
        """A figure by its name, with the options of the method.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=2).fit(np.eye(3) + 1).plot("components").get_title()
        'components'
        """
        return getattr(self, choice("kind", kind, KINDS))(**options)

    def components(self, ax: Any = None, *, index: str | None = None, top: int = 3) -> Any:
        """The share of the counts that each component explains: :func:`pltf.plotting.components`.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=2).fit(np.eye(3) + 1).plot.components().get_title()
        'components'
        """
        return components(self._fit, ax, index=index, top=top)

    def factors(self, names: str | Sequence[str] | None = None, axes: Any = None, *, most: int = 40) -> Any:
        """Heat maps of the factors, one panel for each: :func:`pltf.plotting.factors`.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> len(pltf.nmf(rank=2).fit(np.eye(3) + 1).plot.factors())
        2
        """
        return factors(self._fit, names, axes, most=most)

    def time_courses(self, index: str | None = None, ax: Any = None, *, level: float = 0.9) -> Any:
        """The components along dates, hours or numbers, with credible intervals: :func:`pltf.plotting.time_courses`.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> pltf.nmf(("user", "week"), rank=1).fit(np.ones((3, 9))).plot.time_courses("week").get_ylabel()
        'counts explained'
        """
        return time_courses(self._fit, index, ax, level=level)

    def trace(self, ax: Any = None) -> Any:
        """The ELBO against the iterations: :func:`pltf.plotting.trace`.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> ax = pltf.nmf(rank=2).fit(np.eye(3) + 1).plot.trace()
        """
        return trace(self._fit, ax)

    def calibration(self, X: Any = None, cells: Any = None, *, ax: Any = None, **options: Any) -> Any:
        """Observed against expected counts of held-out cells: :func:`pltf.plotting.calibration`.

        ``X``, ``cells`` and ``options`` are those of :func:`pltf.metrics.score`. A fit that comes with its held-out
        cells, as one that was saved by ``pltf fit --holdout``, needs none.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> pltf.nmf(rank=1).fit(X, mask=mask).plot.calibration(X, ~mask).get_title()
        'calibration'
        """
        from pltf.metrics import score

        return calibration(score(self._fit, X, cells, **{"ranking": False, **options}), ax)

    def __repr__(self) -> str:
        return f"<plots of a fit: {', '.join(KINDS)}>"
