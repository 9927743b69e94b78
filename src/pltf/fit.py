"""The result of a fit."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.labels import Labels
from pltf.data.numeric import EXACT, brief, frozen
from pltf.data.observe import in_order
from pltf.data.pattern import ForgottenPattern, Pattern, kept
from pltf.data.split import HeldOut
from pltf.data.stored import StoredObservation, StoredPattern, open_store
from pltf.devices import AUTO, HOST, check_device, device_of, gpu
from pltf.engines.base import Counts
from pltf.errors import PltfError, arguments_known, choice, flag, py, whole
from pltf.gamma import Array, Factor, Gamma, NamedFactors, Point, Posterior, Samples, level_of
from pltf.hints import suggestion
from pltf.inference.algebra import Factors
from pltf.inference.run import Row
from pltf.inference.start import restart_seed
from pltf.inference.state import Pace, State, Trail, shown_objective
from pltf.likelihoods import BERNOULLI, in_words
from pltf.notation import Equation, Model
from pltf.prediction.cells import Asked, asked, observed_values
from pltf.prediction.dispersion import Dispersion
from pltf.prediction.draws import DrawsInParts, at_least, at_most
from pltf.prediction.moments import Belief, mean, variance
from pltf.prediction.noise import Bernoulli, Noise, Poisson
from pltf.prediction.spread import Sample, spread_of, widened
from pltf.prediction.support import Slices, joined, slices_of, supported
from pltf.prediction.table import check_columns, predicted
from pltf.prediction.top import Choice, most_probable

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from pltf.evidence import Evidence
    from pltf.plotting import FitPlots

AMONG = ("missing", "zero", "all")
TAILS = ("upper", "lower", "both")
MOST_LISTED = 1 << 22  # missing cells that are examined one by one


@dataclass(frozen=True, eq=False)
class LastSweep:
    """State that makes a resumed fit continue exactly; several times the size of the posterior."""

    E: Factors  # C*D, up to rounding
    trail: Trail | None


@dataclass(frozen=True, eq=False)
class Sampled:
    """How the draws of a fit were made, and what was drawn in addition to the factors."""

    burn_in: int  # discarded sweeps of each chain
    thin: int  # sweeps from one draw to the next
    log_likelihood: Array  # (chain, sweep), burn-in included
    mass: Mapping[str, Array]  # latent index -> counts of each component, (chain, draw, component)
    seconds: float  # time of all chains


@dataclass(frozen=True)
class Batch:
    """One batch of data in a sequence of updates."""

    bound: float  # ELBO of this batch, given the batches before it
    n_iter: int
    converged: bool
    n_observed: Mapping[str, int]  # observed cells of this batch, by tensor
    forget: float  # share of the past that was forgotten before it


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The result of a fit: the posterior of every factor, the ELBO and how it was reached.

    >>> import numpy as np, pltf
    >>> X = np.random.default_rng(0).poisson(3.0, (6, 5, 4))
    >>> fit = pltf.cp(rank=2).fit(X, restarts=2)
    >>> fit.factors["A"]                                   # doctest: +ELLIPSIS
    <Posterior [i,r] 6x2: mean ...>
    >>> fit.mean(at=[(0, 0, 0), (5, 4, 3)]).shape
    (2,)
    >>> bool(fit.trace[-1] == fit.bound)
    True
    """

    model: Model  # with the sizes of the latent indices
    method: str  # "vb", "em", "map" or "gibbs"
    objective: str  # what the trace holds: "bound" (the ELBO), "log-likelihood" or "log-posterior"
    sizes: Mapping[str, int]  # size of every index
    C: Factors  # posterior shape of the factors with a Gamma posterior
    D: Factors  # posterior scale of these factors
    points: Factors  # values of the other factors: fixed, or estimated by EM or MAP
    bound: float  # evidence lower bound (ELBO); EM: the log-likelihood, MAP: the log-posterior, Gibbs: the mean
    # log-likelihood of the draws
    mass: Mapping[str, Array]  # latent index -> expected counts of each component
    priors: Mapping[str, Gamma]  # with learned hyperparameters, if any
    fixed: frozenset[str]  # names of the fixed factors
    trace: Array  # the objective after each iteration
    converged: bool  # whether the best restart met the tolerance (Gibbs: whether the chains have mixed)
    stopped: str  # why the best restart stopped
    rows: tuple[Row, ...]
    best_restart: int
    seed: int  # seed of all restarts; ``restarts`` has the seed of each
    dtype: str  # precision of the arithmetic over cells
    engine: str  # the engine that was used
    n_observed: Mapping[str, int]  # observed cells of each tensor
    patterns: Mapping[str, Pattern]  # which cells were observed, if this was kept
    labels: Mapping[str, Labels] = field(default_factory=dict)  # labels of the indices that have them
    held_out: HeldOut | None = None  # held-out cells, if the command line hid some
    origin: Mapping[str, str] = field(default_factory=dict)  # versions, file and command it was made with
    options: Mapping[str, str] = field(default_factory=dict)  # arguments that differ from the defaults, as Python
    pace: Pace = field(default_factory=Pace)  # step size of the acceleration, without its trail
    waiting: bool = True  # whether learning of prior shapes has not started yet
    likelihoods: Mapping[str, str] = field(default_factory=dict)  # likelihood of each tensor; default "poisson"
    notes: tuple[str, ...] = ()  # notes on the data and on automatic choices
    dispersion: Mapping[str, Dispersion] = field(default_factory=dict)  # overdispersion, by tensor
    draws: Mapping[str, Array] = field(
        default_factory=dict
    )  # Gibbs draws by factor; axes: chain, draw, axes of the factor
    sampled: Sampled | None = None  # how the draws were made
    spread: float = 1.0  # predictions divide the counts behind the posterior by it; see prediction/spread.py
    history: tuple[Batch, ...] = ()  # batches of an updated fit, the latest last
    device: str = HOST  # where large predictions are computed; not saved or pickled
    _last: LastSweep | None = field(default=None, init=False)  # not copied, saved or pickled

    @property
    def n_iter(self) -> int:
        """Number of iterations, including those of the fit it was resumed from. A sweep is one iteration.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=2).fit(np.eye(4) + 1, tol=0, max_iter=5).n_iter
        5
        """
        return len(self.trace)

    @property
    def seconds(self) -> float:
        """Time of all restarts, in seconds.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=2).fit(np.eye(4) + 1).seconds > 0
        True
        """
        return sum(row.seconds for row in self.rows) + (self.sampled.seconds if self.sampled else 0.0)

    @property
    def factors(self) -> Mapping[str, Factor]:
        """All factors by name: Posterior, Samples (Gibbs), or Point (fixed, or estimated by EM or MAP).

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=2).fit(np.ones((4, 3)), fixed={"W": np.ones((4, 2))})
        >>> {name: type(factor).__name__ for name, factor in fit.factors.items()}
        {'W': 'Point', 'H': 'Posterior'}
        """
        return MappingProxyType(NamedFactors({name: self._factor(name) for name in self.model.factors}))

    def _factor(self, name: str) -> Factor:
        indices = self.model.factors[name]
        if name in self.C:
            return Posterior(indices, self.C[name], self.D[name], self.labels)
        if name in self.draws:
            return Samples(indices, self.draws[name], self.labels)
        return Point(indices, self.points[name], self.labels)

    @cached_property
    def _means(self) -> Factors:
        """Mean of every factor, used by every prediction."""
        known = {a: frozen(self.C[a] * self.D[a]) for a in self.C}
        known |= {a: frozen(draws.mean(axis=(0, 1))) for a, draws in self.draws.items()}
        return {a: known[a] if a in known else self.points[a] for a in self.model.factors}

    @cached_property
    def _wide(self) -> tuple[Factors, Factors]:
        """Shape and scale of the posterior used for predictions."""
        return (self.C, self.D) if self.spread == 1 else widened(self.C, self._means, self.priors, self.spread)

    @property
    def keeps_data(self) -> bool:
        """Whether the fit stores which cells were observed (``keep_data`` of :meth:`pltf.Model.fit`).

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=1).fit(np.ones((2, 3)), keep_data=False).keeps_data
        False
        """
        return not any(isinstance(pattern, ForgottenPattern) for pattern in self.patterns.values())

    @property
    def restarts(self) -> pd.DataFrame:
        """One row for each restart: seed, ELBO, iterations, convergence, why it stopped, time, and which one was kept.

        A single fit with the seed of a restart reproduces that restart.

        >>> import numpy as np, pltf
        >>> X = np.eye(5) + 1
        >>> table = pltf.nmf(rank=2).fit(X, restarts=3).restarts
        >>> list(table.columns)
        ['seed', 'bound', 'n_iter', 'converged', 'stopped', 'seconds', 'best']
        >>> bool(pltf.nmf(rank=2).fit(X, seed=int(table["seed"][2])).bound == table["bound"][2])
        True
        """
        import pandas as pd

        table = pd.DataFrame([vars(row) for row in self.rows]).set_index("restart")
        table.insert(0, "seed", [restart_seed(self.seed, row.restart) for row in self.rows])
        table["best"] = table.index == self.best_restart
        return table

    @property
    def batches(self) -> pd.DataFrame:
        """One row for each batch of data; a single row unless the fit was updated.

        ``bound`` is the ELBO of a batch given the batches before it; ``n_observed`` counts its own cells. Among fits
        updated with the same batches, the one with the largest sum of ``bound`` predicted them best.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.ones((3, 2))).update(np.ones((3, 2)), forget=0.1)
        >>> fit.batches[["n_observed", "forget"]].values.tolist()
        [[6.0, 0.0], [6.0, 0.1]]
        """
        import pandas as pd

        rows = [vars(one) | {"n_observed": sum(one.n_observed.values())} for one in self.history or (self._batch(),)]
        return pd.DataFrame(rows).rename_axis("batch")

    def _batch(self) -> Batch:
        """The data of a fit without updates, as one batch."""
        return Batch(self.bound, self.n_iter, self.converged, dict(self.n_observed), forget=0.0)

    def mean(self, at: Any = None, *, of: str | None = None, progress: bool = True) -> Array:
        """Mean rate of cells, that is their expected count; exact under the posterior.

        For links (``likelihood="bernoulli"``) this is the rate, which may exceed 1; use :meth:`prob` for probabilities.

        ``at`` says which cells: an (n, modes) array of positions, a table with a column for each index, rows of labels,
        a tuple of index arrays such as ``np.nonzero`` gives, or a boolean array of the tensor's shape. In a table or a
        DataArray an index that has labels goes by them. A tuple of labels or positions, such as ``("ann", "gym")``, is
        a single cell, and the answer is a single number. Answers come in the order of the cells; for a boolean array,
        in that of ``values[at]``. Without ``at``: the whole tensor, its axes as in the model. ``of`` names the tensor
        when the model has several.

        >>> import numpy as np, pltf
        >>> X = np.array([[4.0, 2.0], [2.0, np.nan]])
        >>> fit = pltf.nmf(rank=1).fit(X)
        >>> fit.mean().shape, fit.mean(at=np.isnan(X)).shape, fit.mean((1, 1)).shape
        ((2, 2), (1,), ())
        """
        belief, cells = self._asked(at, of)
        return cells.answer(mean(belief, cells, flag("progress", progress)))

    def var(self, at: Any = None, *, counts: bool = False, of: str | None = None, progress: bool = True) -> Array:
        """Variance of the rates of cells, exact under the posterior; with ``counts=True``, variance of the counts.

        The posterior is widened by ``spread``, as for all predictions; see docs/prediction.md. Point estimates (EM,
        MAP, fixed factors) have no variance.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]]))
        >>> rate, count = fit.var(at=[(1, 1)]), fit.var(at=[(1, 1)], counts=True)
        >>> bool(rate > 0), bool(count == rate + fit.mean(at=[(1, 1)]))
        (True, True)
        """
        belief, cells = self._asked(at, of)
        counts, progress = flag("counts", counts), flag("progress", progress)
        of_rates = variance(belief, cells, progress)
        if counts:
            of_rates = belief.noise.at(cells.places).variance(mean(belief, cells, progress), of_rates)
        return cells.answer(of_rates)

    def sample(
        self,
        n: int,
        at: Any = None,
        *,
        counts: bool = False,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> NDArray[np.float64] | NDArray[np.int64]:
        """``n`` joint draws of the rates of cells from the posterior, or of counts, along a new first axis.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]]))
        >>> fit.sample(100).shape, fit.sample(3, at=[(1, 1)], counts=True).dtype
        ((100, 2, 2), dtype('int64'))
        """
        sampling = self._sampling(at, of, whole("n", n, 1), seed, progress)
        return sampling.cells.answer(sampling.sample(flag("counts", counts)))

    def prob(
        self,
        at: Any = None,
        atleast: int = 1,
        *,
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> Array:
        """Probability of a count of at least ``atleast`` in each cell, from posterior draws.

        Only the rates are drawn; given a rate the probability is exact. The Monte Carlo error is below
        ``0.5 / sqrt(draws)``, and much smaller where rates are small or well determined. Draws depend on the seed,
        not on the request: a cell has the same probability whichever other cells are asked for.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]]))
        >>> link, several = fit.prob(at=[(1, 1)]), fit.prob(at=[(1, 1)], atleast=3)
        >>> bool(0 < several < link < 1)
        True
        """
        sampling = self._sampling(at, of, draws, seed, progress)
        return sampling.cells.answer(sampling.average(at_least(_count_of(atleast, 0))))

    def interval(
        self,
        at: Any = None,
        level: float = 0.9,
        *,
        counts: bool = False,
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> tuple[Array, Array]:
        """Lower and upper end of the central credible interval of rates, or of counts, from posterior draws.

        The variational posterior treats factors as independent and would be overconfident, so predictions widen it by
        ``spread``. docs/prediction.md shows the coverage of the intervals.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]]))
        >>> low, high = fit.interval(at=[(1, 1)], level=0.9)
        >>> bool(low < fit.mean(at=[(1, 1)]) < high)
        True
        """
        half = (1 - level_of(level)) / 2
        sampling = self._sampling(at, of, draws, seed, progress)
        low, high = sampling.quantiles((half, 1 - half), flag("counts", counts))
        return sampling.cells.answer(low), sampling.cells.answer(high)

    def log_prob(
        self,
        at: Any,
        values: Any,
        *,
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> Array:
        """Pointwise log-probability of values of cells under the posterior predictive, from posterior draws.

        ``values`` has one number for each cell, or is a DataArray of the whole tensor. For values that are not whole
        numbers the Gamma function replaces the factorial.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.full((6, 5), 4.0))
        >>> near, far = fit.log_prob([(0, 0), (0, 1)], [4, 40])
        >>> bool(near > -2 > far)
        True
        """
        sampling = self._sampling(at, of, draws, seed, progress)
        return sampling.cells.answer(sampling.log_likelihood(self._values(values, sampling.cells, of)))

    def surprise(
        self,
        at: Any,
        values: Any,
        *,
        tail: str = "upper",
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> Array:
        """Posterior predictive p-values of cells: the probability of a count at least as large. Small means anomalous.

        ``tail="lower"`` is the probability of a count at most as large, ``"both"`` twice the smaller of the two.
        ``values`` has one number for each cell, or is a DataArray of the whole tensor. Cells used in the fit look less
        surprising than they are: hold them out with :func:`pltf.holdout`. A value that is not a whole number is rounded
        to the next one in its tail.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.full((6, 5), 4.0))
        >>> p = fit.surprise([(0, 0), (0, 1)], [4, 40])
        >>> bool(p[0] > 0.4), bool(p[1] < 1e-6)
        (True, True)
        """
        choice("tail", tail, TAILS)
        sampling = self._sampling(at, of, draws, seed, progress)
        x = self._values(values, sampling.cells, of)
        upper, lower = at_least(np.ceil(x)), at_most(np.floor(x))
        if tail != "both":
            return sampling.cells.answer(sampling.average(upper if tail == "upper" else lower))
        smaller: Array = np.minimum(sampling.average(upper), sampling.average(lower))
        return sampling.cells.answer(np.minimum(2 * smaller, 1.0))

    def supported(self, at: Any = None, *, of: str | None = None) -> NDArray[np.bool_]:
        """Whether the data support the predictions of cells.

        False where the variance of a rate is more than five times what one observed count of the cell would leave,
        where the rate is more than twice the largest value in any slice (row, column, ...) of the cell, and where a
        slice of the cell has no observed cell. A fit with ``keep_data=False`` checks only the first condition, EM and
        MAP only the other two.

        >>> import numpy as np, pltf
        >>> X = np.array([[9.0, np.nan], [8.0, 6.0], [np.nan, np.nan]])  # nothing is known of the last row
        >>> pltf.nmf(rank=1).fit(X).supported([(0, 1), (2, 0)]).tolist()
        [True, False]
        """
        belief, cells = self._asked(at, of)
        found = cells.empty()
        for part in cells.parts(MOST_LISTED):
            found[part] = supported(belief, self._slices[belief.equation.output.name], cells.coords(part))
        return cells.answer(found.reshape(cells.shape).astype(bool))

    @cached_property
    def _slices(self) -> Mapping[str, Slices | None]:
        """Largest observed values in the slices of each tensor."""
        shapes = {name: tuple(self.sizes[i] for i in indices) for name, indices in self.model.observed.items()}
        found = {name: slices_of(self.patterns[name], shape) for name, shape in shapes.items()}
        return joined(self.model, found, self.fixed)

    def top(
        self,
        k: int = 10,
        among: str | None = None,
        *,
        atleast: int = 1,
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
        unsupported: bool = False,
    ) -> pd.DataFrame:
        """The ``k`` most probable cells, with ``prob`` and the mean and standard deviation of their rate.

        ``among="missing"`` takes cells that were not observed, ``"zero"`` cells observed as zero, ``"all"`` all cells.
        Default: missing cells, or zeros where no cell is missing. Unsupported cells (:meth:`supported`) are left out,
        unless ``unsupported=True``. Large tensors are neither built nor scanned: blocks of cells that cannot contain
        one of the largest means are skipped.

        >>> import numpy as np, pltf
        >>> X = np.outer([9.0, 1.0, 5.0], [7.0, 2.0, 1.0])
        >>> X[[0, 1], [0, 2]] = np.nan
        >>> fit = pltf.nmf(rank=1).fit(X)
        >>> fit.top(1)[["i", "j"]].values.tolist()
        [[0, 0]]
        >>> list(fit.top(1).columns)
        ['i', 'j', 'mean', 'sd', 'prob', 'supported']
        """
        import pandas as pd

        k, atleast = whole("k", k, 1), _count_of(atleast, 1)
        draws, seed, progress = whole("draws", draws, 1), whole("seed", seed, 0), flag("progress", progress)
        belief, name = self._belief(of), self.tensor(of)
        check_columns(belief.equation.output.indices)
        if among is None:
            among = "missing" if self.n_observed[name] < math.prod(belief.shape) else "zero"
        allowed, slices = self._choice(among, belief), self._slices[name]
        if not flag("unsupported", unsupported):
            allowed = allowed.tied_down(lambda cells: supported(belief, slices, cells), belief.shape)
        cells, probability = most_probable(belief, k, atleast, allowed, draws, seed, progress)
        if not probability.size:
            if among == "zero" and allowed.none_allowed(belief.shape):
                raise PltfError(f"no cell of {name} is zero: {py:among='all'} searches the others", argument="among")
            other = "" if unsupported else f" and supported by the data: {py:unsupported=True} includes the others"
            raise PltfError(f"no cell of {name} is among those asked for ({among!r}){other}", argument="among")
        found = Asked(belief.shape, cells)
        table = pd.DataFrame(self._labelled(belief, cells))
        table = table.assign(mean=mean(belief, found), sd=np.sqrt(variance(belief, found)), prob=probability)
        return table.assign(supported=supported(belief, slices, cells))

    def predict(
        self,
        at: Any = None,
        *,
        atleast: int = 1,
        level: float = 0.9,
        draws: int = 1000,
        seed: int = 0,
        of: str | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """All that is predicted of cells in one table, a row for each cell.

        Parameters
        ----------
        at
            Which cells, as for :meth:`mean`. A DataFrame keeps its row labels. Without it: the whole tensor.
        atleast
            ``prob`` is the probability of a count of at least ``atleast``.
        level
            Probability of the intervals.
        draws, seed
            Number of posterior draws for ``prob`` and the intervals, and their seed.
        of
            Name of the tensor when the model has several.
        progress
            Show progress.

        Returns
        -------
        DataFrame
            The labels (or positions) of each cell, then ``mean`` and ``sd`` of its rate, ``prob``, ``supported`` (see
            :meth:`supported`), and the ends of the intervals of its rate and its count: ``rate_low``, ``rate_high``,
            ``count_low``, ``count_high``.

        >>> import pandas as pd, pltf
        >>> visits = pd.DataFrame({"user": ["ann", "ann", "bob", "cid"], "place": ["gym", "bar", "gym", "bar"]})
        >>> fit = pltf.nmf(("user", "place"), rank=1).fit(visits)
        >>> table = fit.predict([("bob", "bar"), ("cid", "gym")])
        >>> table[["user", "place"]].values.tolist()
        [['bob', 'bar'], ['cid', 'gym']]
        >>> list(table.columns[2:])
        ['mean', 'sd', 'prob', 'supported', 'rate_low', 'rate_high', 'count_low', 'count_high']
        >>> bool(table["mean"][0] == fit.mean(("bob", "bar")))
        True
        """
        draws, seed, progress = whole("draws", draws, 1), whole("seed", seed, 0), flag("progress", progress)
        atleast, level = _count_of(atleast, 1), level_of(level)
        return predicted(self, at, self.tensor(of), atleast, level, draws=draws, seed=seed, progress=progress)

    def _labelled(self, belief: Belief, cells: Coords) -> dict[str, Any]:
        """Columns with the labels, or positions, of cells (modes, n)."""
        named = zip(belief.equation.output.indices, cells, strict=True)
        return {index: self._named(index, positions) for index, positions in named}

    def _named(self, index: str, positions: NDArray[np.integer[Any]]) -> Any:
        """Labels of positions if the index has labels, otherwise the positions."""
        return self.labels[index].at(positions) if index in self.labels else positions

    def _told(self, index: str, positions: NDArray[np.intp]) -> tuple[Any, ...]:
        """The same for display: dates as people read them."""
        named = self._named(index, positions)
        return tuple(self.labels[index].called(positions) if named.dtype.kind == "M" else named.tolist())

    def _choice(self, among: str, belief: Belief) -> Choice:
        """The cells that may be chosen."""
        choice("among", among, AMONG)
        name = belief.equation.output.name
        if among == "all":
            return Choice(lambda cells: np.ones(cells.shape[1], dtype=bool))
        if among == "missing" and self.n_observed[name] == math.prod(belief.shape):
            raise PltfError(f"no cell of {name} is missing: {py:among} must be 'zero' or 'all'")
        pattern = kept(self.patterns[name], f"the most probable cells can be found with {py:among='all'}")
        if among == "missing":
            return Choice(lambda cells: ~pattern.observed(cells), pattern.missing_cells(MOST_LISTED))
        return Choice(lambda cells: pattern.observed(cells) & ~pattern.positive(cells))

    def _belief(self, of: str | None) -> Belief:
        equation = self._equation(of)
        names = [term.name for term in equation.factors if term.name in self.draws]
        draws = {a: self.draws[a].reshape(-1, *self.draws[a].shape[2:]) for a in names}
        device = device_of(self.device)
        return Belief(equation, self.sizes, self._means, *self._wide, self._noise(of), draws, device)

    def _noise(self, of: str | None) -> Noise:
        """Distribution of the values of a tensor given their rates."""
        name = self.tensor(of)
        if self.likelihoods.get(name) == BERNOULLI:
            return Bernoulli()
        return self.dispersion[name].noise(self.model.observed[name]) if name in self.dispersion else Poisson()

    def _asked(self, at: Any, of: str | None) -> tuple[Belief, Asked]:
        belief = self._belief(of)
        return belief, asked(at, belief.shape, belief.equation.output.indices, self.labels)

    def _sampling(self, at: Any, of: str | None, draws: int, seed: int, progress: bool) -> DrawsInParts:
        draws, seed, progress = whole("draws", draws, 1), whole("seed", seed, 0), flag("progress", progress)
        return DrawsInParts(*self._asked(at, of), draws, seed, progress)

    def _values(self, values: Any, cells: Asked, of: str | None) -> Array:
        return observed_values(values, cells, self.model.observed[self.tensor(of)], self.labels).reshape(-1)

    @arguments_known
    def fold_in(
        self,
        X_new: Any,
        index: str,
        *,
        mask: Any = None,
        prior: Gamma | Mapping[str, Gamma] | None = None,
        max_iter: int = 2000,
        tol: float = 1e-6,
        restarts: int = 1,
        seed: int | None = 0,
        threads: int | None = None,
        progress: bool = True,
    ) -> Fit:
        """The posterior of new rows of an observed index; all other factors stay as they are.

        ``X_new`` is data as for :meth:`pltf.Model.fit`, with the sizes of the fit along all other indices and any
        number of new rows along ``index``; a single row may come without its axis. Of a coupled model, give one or more
        of the tensors with that index: cells of the others are missing, and are predicted. The result is a fit of the
        new rows. Its factors with ``index`` are those of a fit with ``fixed=`` the means of the other factors; the
        prior stays the same, unless another is given. For a Gibbs fit the result is a VB fit, in which the other
        factors have Gamma posteriors with the mean and variance of their draws.

        >>> import numpy as np, pltf
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5], [7, 2, 1, 3]))
        >>> fit = pltf.nmf(rank=1).fit(X)
        >>> new = fit.fold_in([14, 4, np.nan, 6], index="i")
        >>> new.factors["W"].mean.shape, bool(new.prob(at=[(0, 2)])[0] > 0.5)
        ((1, 1), True)
        >>> both = pltf.Model("X[user,item] = U[user,r] * V[item,r]\\nY[item,word] = V[item,r] * D[word,r]", r=1)
        >>> fit = both.fit({"X": X, "Y": np.outer([7, 2, 1, 3], [2, 4])})
        >>> fit.fold_in({"Y": [14, 28]}, index="item").mean(of="X").shape
        (3, 1)
        """
        from pltf.fold_in import fold_in  # imported late, as in Model.fit: a fold-in is a fit
        from pltf.options import FitOptions

        options = FitOptions.of(locals())
        return fold_in(self, X_new, index, mask=mask, options=options)

    @arguments_known
    def update(
        self,
        new: Any,
        *,
        forget: float = 0.0,
        mask: Any = None,
        append: str | Sequence[str] = (),
        zeros: str | Sequence[str] = (),
        max_iter: int = 2000,
        tol: float = 1e-6,
        restarts: int = 1,
        seed: int | None = 0,
        threads: int | None = None,
        progress: bool = True,
        keep_data: bool = True,
    ) -> Fit:
        """Update the fit with a new batch of data, for which its posterior is the prior. VB only.

        A rate is the expected count of a cell in one batch, so batches should cover equal periods, such as a day; for n
        batches multiply it by n. Cells may be observed in one batch, in several or in all.

        In the first three updates the posterior is widened by ``spread`` before it becomes the prior, because the
        components of a small first batch are less certain than the posterior says.

        Parameters
        ----------
        new
            Data as for :meth:`pltf.Model.fit`, also a cell store; for a coupled model, of some or all tensors. The
            columns of a table have the names of the indices, and dates are binned as in the fit. Rows are matched by
            label, in any order. New labels get new rows, which start from the prior with the learned hyperparameters.
            Rows whose labels are not in the data do not change. Data without labels must have the sizes of the fit.
        forget
            Fraction of the earlier data to forget, from 0 to below 1: the counts and the exposure of every entry are
            multiplied by ``1 - forget``.
        mask
            True where a cell was observed, for arrays.
        append
            Indices without labels whose rows in the data are all new; they are appended to the rows of the fit.
        zeros
            Indices along which the data are complete: cells of labels that are not in the data are observed zeros.
            Otherwise they are missing, and nothing is learned about them. In a table of events, users without events
            have no row: ``zeros="user"``.
        max_iter, tol, restarts, seed, threads, progress
            As for :meth:`pltf.Model.fit`. The fit starts at the posterior; only new rows start at random.
        keep_data
            Keep which cells were observed in any batch, and the largest value of each. False drops this record.

        Returns
        -------
        Fit
            With the factors, sizes and labels of all rows. ``bound`` and ``trace`` are of this batch: a lower bound on
            log p(new | earlier batches). ``batches`` has one row for each batch. ``n_observed`` counts cells observed
            in any batch (without ``keep_data``: in the largest batch), ``components()`` the counts of all batches.
            ``dispersion`` is estimated from the new data before the update if they have at least as many cells as the
            previous estimate used; ``spread`` is estimated again. ``priors``, ``fixed``, ``options``, ``held_out`` and
            ``origin`` do not change.

        >>> import pandas as pd, pltf
        >>> monday = pd.DataFrame({"user": ["ann", "bob", "bob"], "place": ["gym", "bar", "gym"]})
        >>> tuesday = pd.DataFrame({"user": ["cid", "bob"], "place": ["bar", "bar"]})
        >>> fit = pltf.nmf(("user", "place"), rank=1).fit(monday).update(tuesday)
        >>> fit.labels["user"], len(fit.batches)
        (<Labels ann, bob, cid>, 2)
        """
        from pltf.options import FitOptions
        from pltf.update import update  # imported late, as in Model.fit: an update is a fit

        options = FitOptions.of(locals())
        return update(self, new, mask=mask, forget=forget, append=append, zeros=zeros, options=options)

    def evidence(
        self,
        X: Any = None,
        *,
        mask: Any = None,
        particles: int = 100,
        stages: int | None = None,
        sweeps: int = 2,
        runs: int = 4,
        seed: int = 0,
        threads: int | None = None,
        progress: bool = True,
    ) -> Evidence:
        """Estimate the log evidence, log p(X), and its gap to the ELBO. For small problems.

        Sequential Monte Carlo: data enter in ``stages`` (by default chosen by the size of the problem), and
        ``particles`` follow the posterior from the prior on, with ``sweeps`` of Gibbs sampling at each stage. The
        estimate of p(X) is unbiased; independent ``runs`` give its standard error. If that is large, the logarithm is
        probably too low: use more particles. Problems that would take more than an hour are refused.

        Learned hyperparameters are fixed at their learned values, as in the ELBO. EM and MAP fits have no evidence.
        ``X`` and ``mask`` are the data of the fit, needed only if it was made with ``keep_data=False``; other data are
        refused.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[3, 1], [4, 2]]), prior=pltf.Gamma(2.0, 2.0))
        >>> found = fit.evidence(particles=40, stages=8)
        >>> bool(found.error < 0.2), bool(found.log > fit.bound), found.gap == found.log - fit.bound
        (True, True, True)
        """
        from pltf.evidence import Effort, evidence
        from pltf.options import FitOptions

        options = FitOptions(seed=whole("seed", seed, 0), threads=threads, progress=progress)
        return evidence(self, X, mask=mask, effort=Effort(particles, stages, sweeps, runs), options=options)

    def to(self, device: str) -> Fit:
        """The same fit with large predictions computed on a device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.

        ``"auto"`` uses a GPU if there is one. A fit made with ``device="cuda"`` predicts there; a loaded or unpickled
        fit predicts on the CPU. This applies to all predictions and to :func:`pltf.metrics.score`. Results are NumPy
        arrays, and small requests stay on the CPU. Random numbers are always drawn on the CPU, so a seed gives the same
        draws on every device.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.ones((2, 3)))
        >>> fit.to("auto").mean().shape, fit.to("cpu").device
        ((2, 3), 'cpu')
        """
        name = check_device("device", device)
        found = gpu() if name == AUTO else device_of(name)
        moved = replace(self, device=HOST if found is None else found.name)
        object.__setattr__(moved, "_last", self._last)  # it resumes as this one does
        return moved

    def with_store(self, store: str | os.PathLike[str] | StoredObservation, *, of: str | None = None) -> Fit:
        """The same fit with the cell store that it was fitted to, which a saved fit does not refer to.

        Then it knows again which cells were observed, as :meth:`top`, :func:`pltf.metrics.score` and reports need.
        Cells that :func:`pltf.holdout` hid from the fit stay hidden where the file has them, as ``pltf fit --holdout``
        writes it; of others, pass ``holdout.train``. Another store is refused.
        ``of``: which tensor of a coupled model.

        >>> import os, tempfile, numpy as np, pltf
        >>> folder = tempfile.mkdtemp()
        >>> store = pltf.prepare(np.eye(4) + 1, os.path.join(folder, "cells.pltf"), progress=False)
        >>> pltf.nmf(("i", "j"), rank=1).fit(store.open()).save(os.path.join(folder, "run.nc"))
        >>> fit = pltf.load(os.path.join(folder, "run.nc"))
        >>> fit.keeps_data, fit.with_store(store).keeps_data
        (False, True)
        """
        name = self.tensor(of)
        seen = in_order(
            store if isinstance(store, StoredObservation) else open_store(store), self.model.observed[name], name
        )
        assert isinstance(seen, StoredObservation)
        pattern, shape = self.patterns[name], tuple(self.sizes[index] for index in self.model.observed[name])
        digest = pattern.digest if isinstance(pattern, ForgottenPattern) else ""
        held = self.held_out
        if held is not None and held.of in (None, name) and seen.shape == shape and seen.digest() != digest:
            seen, _ = seen.hiding(held.cells.T)
        if seen.digest() != digest:
            what = "the data" if isinstance(store, StoredObservation) else os.fspath(store)
            raise PltfError(f"{py:store} must be the cell store that the fit was made from, but {what} is not")
        return replace(self, patterns={**self.patterns, name: StoredPattern(seen)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a netCDF file, readable by :func:`pltf.load` and xarray.

        The file holds the posteriors, labels, model, priors, trace, seeds, the table of restarts, the observed cells
        (unless the fit was made with ``keep_data=False``) and the versions of the software. An existing file is
        replaced atomically.

        >>> import numpy as np, pltf, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "run.nc")
        >>> pltf.nmf(rank=1).fit(np.ones((2, 3))).save(path)
        >>> pltf.load(path).model
        Model("X[i,j] = W[i,r] * H[r,j]", r=1)
        """
        from pltf.store.fits import save_fit

        save_fit(self, path)

    def to_xarray(
        self,
        *,
        predictions: bool = True,
        intervals: bool = False,
        level: float = 0.9,
        draws: int = 1000,
        seed: int = 0,
    ) -> xr.Dataset:
        """All factors and the expected counts of all cells in one labelled Dataset.

        A factor U is in ``U`` (its mean), ``U_sd``, ``U_low`` and ``U_high``; a tensor X in ``X`` (its mean) and
        ``X_sd``. ``predictions=False`` leaves out the tensors, which may be large. ``intervals=True`` adds the ends of
        the intervals of the rate and the count of every cell, from posterior ``draws``: ``X_rate_low``,
        ``X_rate_high``, ``X_count_low``, ``X_count_high``. ``level`` is the probability of all intervals.

        >>> import numpy as np, pltf
        >>> data = pltf.nmf(rank=2).fit(np.ones((2, 3))).to_xarray()
        >>> sorted(data), dict(data["W"].sizes)
        (['H', 'H_high', 'H_low', 'H_sd', 'W', 'W_high', 'W_low', 'W_sd', 'X', 'X_sd'], {'i': 2, 'r': 2})
        """
        from pltf.prediction.labelled import as_dataset

        drawn = {"draws": whole("draws", draws, 1), "seed": whole("seed", seed, 0)}
        wanted = flag("intervals", intervals) and predictions
        return as_dataset(self, flag("predictions", predictions), level_of(level), **(drawn if wanted else {}))

    def to_arviz(self, draws: int = 500, *, seed: int = 0, of: str | None = None, at: Any = None) -> Any:
        """Posterior draws for ArviZ: posterior, posterior predictive, log-likelihood and observed data, with labels.

        The draws come from the fitted posterior: independent ones, in a single chain; for a Gibbs fit those of its
        chains, at most ``draws`` of each. Predictive counts, log-likelihoods and data are those of the observed cells:
        missing cells are left out. A tensor without missing cells keeps its axes; of others the cells are listed along
        the axis ``X_cell``. A coupled fit gives all its tensors, or the one named by ``of``.

        ``at`` says which cells of a single tensor to include, as for :meth:`mean`; large tensors need it. By default
        all observed cells are included.

        >>> import arviz, numpy as np, pltf
        >>> data = pltf.nmf(rank=2).fit(np.ones((2, 3))).to_arviz(draws=100)
        >>> data.posterior["W"].dims, data.posterior_predictive["X"].shape, data.log_likelihood["X"].shape
        (('chain', 'draw', 'i', 'r'), (1, 100, 2, 3), (1, 100, 2, 3))
        """
        from pltf.prediction.inference_data import as_inference_data

        names = tuple(self.model.observed) if of is None and at is None else (self.tensor(of),)
        return as_inference_data(self, names, at, whole("draws", draws, 1), whole("seed", seed, 0))

    @property
    def plot(self) -> FitPlots:
        """Figures of the fit: components, factors, time_courses, trace, calibration. They need matplotlib.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=1).fit(np.ones((2, 3))).plot
        <plots of a fit: components, factors, time_courses, trace, calibration>
        """
        from pltf.plotting import FitPlots

        return FitPlots(self)

    def diagnostics(self) -> pd.DataFrame:
        """Convergence diagnostics of Gibbs chains: R-hat and effective sample size of identifiable quantities.

        Rows: the log-likelihood, the share of counts of every component, and the median and worst of the rates of 200
        random cells of each tensor. R-hat (rank-normalized, split chains) is near 1 if the chains have mixed; ``ess``
        is the effective sample size.

        >>> import numpy as np, pltf
        >>> X = np.random.default_rng(0).poisson(5.0, (6, 5))
        >>> fit = pltf.nmf(rank=1).fit(X, method="gibbs")
        >>> fit.diagnostics().index.tolist()
        ['log-likelihood', 'share of r 0', 'rates of X, median', 'rates of X, worst']
        >>> bool(fit.diagnostics()["rhat"].max() < 1.05)
        True
        """
        from pltf.prediction.diagnostics import some_rates, table

        if self.sampled is None:
            raise PltfError(f"diagnostics need chains, but this is a fit by {py:method={self.method!r}}")
        chains, draws = next(iter(self.draws.values())).shape[:2]
        burn_in, thin = self.sampled.burn_in, self.sampled.thin
        kept = self.sampled.log_likelihood[:, burn_in + thin - 1 :: thin][:, :draws]
        quantities = {"log-likelihood": kept}
        for index, mass in self.sampled.mass.items():
            share = mass / np.maximum(mass.sum(axis=2, keepdims=True), np.finfo(float).tiny)
            quantities |= {f"share of {index} {n}": share[..., n] for n in range(share.shape[2])}
        for name in self.model.observed:
            belief = self._belief(name)
            quantities |= {f"rates of {name}": some_rates(belief, chains)} if belief.draws else {}
        return table(quantities)

    def components(self, index: str | None = None, *, top: int = 3) -> pd.DataFrame:
        """Components by the observed counts they explain, largest first.

        ``index`` is the latent index of the components, needed when the model has several. ``mass`` sums to the total
        of the tensors that the component takes part in, ``share`` to one. For each factor with one other index there
        are the labels, or positions, of its ``top`` largest entries.

        >>> import numpy as np, pltf
        >>> X = np.diag([9.0, 5.0, 1.0]) + 0.01
        >>> table = pltf.nmf(rank=2).fit(X, restarts=5).components()
        >>> list(table.columns), bool(abs(table["mass"].sum() - X.sum()) < 1e-6)
        (['mass', 'share', 'W[i]', 'H[j]'], True)
        """
        import pandas as pd

        top, index = whole("top", top, 0), component_index(self.model, index)
        mass = self._mass(index)
        table = pd.DataFrame({"mass": mass, "share": mass / max(mass.sum(), np.finfo(float).tiny)})
        table.index.name = index
        for name, indices in self.model.factors.items():
            if index in indices and len(indices) == 2:
                mean = self._means[name]
                by_component = mean if indices[0] == index else mean.T
                largest = np.argsort(-by_component, axis=1, kind="stable")[:, :top]
                (other,) = (i for i in indices if i != index)
                table[f"{name}[{other}]"] = [self._told(other, row) for row in largest]
        return table.sort_values("mass", ascending=False, kind="stable")

    @property
    def effective_rank(self) -> int | Mapping[str, int]:
        """Number of components that explain at least one count, or a thousandth of fewer than 1000 counts.

        A mapping when there are several latent indices. Unsupported components shrink to zero, above all with prior
        means learned for each component: ``Gamma(learn="mean", tie="component")``.

        >>> import numpy as np, pltf
        >>> X = np.kron(np.diag([9, 5, 7]), np.ones((5, 4)))
        >>> fit = pltf.nmf(rank=8).fit(X, prior=pltf.Gamma(learn="mean", tie="component"), restarts=3)
        >>> fit.effective_rank
        3
        """
        mass = {index: self._mass(index) for index in self.model.sizes}
        found = {index: int((one >= min(1.0, one.sum() / 1000)).sum()) for index, one in mass.items()}
        return next(iter(found.values())) if len(found) == 1 else MappingProxyType(found)

    def _mass(self, index: str) -> Array:
        """Expected counts of each value of a latent index."""
        if index not in self.mass:
            told = "no factor is in all equations that sum over it"
            raise PltfError(f"components of '{index}' cannot be counted: {told}")
        return self.mass[index]

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init and one.name != "device"}

    def tensor(self, of: str | None = None) -> str:
        """Name of an observed tensor: ``of``, or the only one.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=1).fit(np.ones((2, 3))).tensor()
        'X'
        """
        tensors = tuple(self.model.observed)
        if of is None and len(tensors) == 1:
            return tensors[0]
        if not isinstance(of, str) or of not in tensors:
            near = suggestion(of, tensors) if isinstance(of, str) else f": pass for example of={tensors[0]!r}"
            raise PltfError(f"{py:of} must name an observed tensor ({', '.join(tensors)}), got {of!r}{near}")
        return of

    def _equation(self, of: str | None) -> Equation:
        name = self.tensor(of)
        return next(e for e in self.model.equations if e.output.name == name)

    @property
    def data(self) -> str:
        """Short description of the data.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]])).data
        'X 2x2 (3 cells observed)'
        """
        known = "" if self.keeps_data else ", not kept"
        return ", ".join(
            f"{name} {'x'.join(str(self.sizes[i]) for i in indices)} ({self.n_observed[name]:,} cells observed{known})"
            for name, indices in self.model.observed.items()
        )

    def __repr__(self) -> str:
        objective = shown_objective(self.objective)
        state = "converged" if self.converged else "not converged"
        swept = f"{self.n_iter} iteration{'s' * (self.n_iter != 1)}"
        method = filter(None, (self.method, in_words(self.likelihoods)))
        lines = [
            f"<Fit of {self.model!r}",
            f"  data     {self.data}",
            f"  method   {', '.join(method)}, {self.dtype}, {self.engine} engine, seed {self.seed}",
            f"  result   {objective} {self.bound:.6f}{self._draws_in_words()} after {swept}, {state}: {self.stopped}",
        ]
        if len(self.rows) > 1:
            bounds = [row.bound for row in self.rows]
            spread = f"{min(bounds):.6g} to {max(bounds):.6g}"
            kept = f"kept restart {self.best_restart} (counted from 0)"
            lines.append(f"  restarts {len(bounds)}, {kept}; {'ELBO' if self.draws else objective} {spread}")
        if self.history:
            lines.append(f"  batches  {len(self.history)}; the ELBO is that of the last, given the earlier ones")
        for name, found in self.dispersion.items():
            lines.append(f"  counts   {f'{name}: ' if len(self.dispersion) > 1 else ''}{found}")
        lines.append(f"  time     {self.seconds:.2f} s>")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from pltf.notebooks import fit_html

        return fit_html(self)

    def _draws_in_words(self) -> str:
        if not self.draws:
            return ""
        chains, draws = next(iter(self.draws.values())).shape[:2]
        return f" (mean of {draws} draws of {chains} chain{'s' * (chains != 1)})"


def resumable(fit: Fit) -> State:
    """The state for the next sweep, without its counts: these take one pass over the data."""
    last = fit._last or LastSweep(fit._means, None)
    L = {a: factor.geomean for a, factor in fit.factors.items()}
    counts, pace = Counts({}, math.nan), replace(fit.pace, trail=last.trail)
    return State(last.E, L, fit.C, fit.D, counts, fit.priors, fit.bound, pace=pace, waiting=fit.waiting)


def remembering(fit: Fit, state: State) -> Fit:
    """The same fit, which now resumes exactly from its last state."""
    object.__setattr__(fit, "_last", LastSweep(state.E, state.pace.trail))
    return fit


def dispersed(fit: Fit, dispersion: Mapping[str, Dispersion]) -> Fit:
    """Set the dispersion of a new fit in place: a copy would lose its last state."""
    object.__setattr__(fit, "dispersion", dispersion)
    return fit


def with_spread(fit: Fit, samples: Mapping[str, Sample]) -> Fit:
    """The fit with the spread of its predictions, estimated from its data."""
    if not fit.C:
        return fit
    beliefs = {name: fit._belief(name) for name in fit.model.observed}
    return replace(fit, spread=spread_of(fit.model, beliefs, fit.priors, samples))


def counted_factors(model: Model) -> dict[str, str]:
    """For every latent index, a factor whose counts are those of the components, if there is one.

    It has to be in all equations that sum over the index, otherwise some counts would be left out.
    """
    found: dict[str, str] = {}
    for index in model.sizes:
        summing = [{term.name for term in e.factors} for e in model.equations if index in e.summed]
        holding = [a for a, indices in model.factors.items() if index in indices and all(a in e for e in summing)]
        found |= {index: holding[0]} if holding else {}
    return found


def masses(model: Model, counts: Factors) -> dict[str, Array]:
    """Expected counts of the components of every latent index, from the counts of its counted factor."""
    found = {}
    for index, a in counted_factors(model).items():
        axes = tuple(axis for axis, i in enumerate(model.factors[a]) if i != index)
        found[index] = frozen(counts[a].sum(axis=axes))
    return found


def _count_of(atleast: Any, least: int) -> int:
    count = whole("atleast", atleast, least)
    if count > EXACT:
        raise PltfError(f"{py:atleast} must be at most 2**53, got {brief(atleast)}")
    return count


def component_index(model: Model, index: str | None) -> str:
    """The latent index of the components: ``index``, or the only one."""
    latent = tuple(model.sizes)
    if index is None and len(latent) == 1:
        return latent[0]
    if index not in latent:
        known = ", ".join(latent) or "none"
        came = f"got {index!r}" if index is not None else "for there are several" if latent else "and there is none"
        raise PltfError(f"{py:index} must name a latent index of the model ({known}), {came}")
    return index
