"""The result of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError
from pltf.gamma import Array, Factor, Gamma, Point, Posterior
from pltf.inference.run import Row
from pltf.inference.start import restart_seed
from pltf.inference.state import State
from pltf.notation import Equation, Model
from pltf.prediction import as_cells, rates, rates_at

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What was learned: the posterior of every factor, the bound and how it was reached.

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

    model: Model
    method: str  # "vb", "em" or "map"
    objective: str  # what the trace holds: "bound", "log-likelihood" or "log-posterior"
    sizes: Mapping[str, int]  # of every index
    state: State
    priors: Mapping[str, Gamma]  # with the values that were learned, where they were
    fixed: frozenset[str]
    trace: Array
    converged: bool
    stopped: str
    rows: tuple[Row, ...]
    best_restart: int
    seed: int
    dtype: str
    engine: str
    n_observed: Mapping[str, int]  # observed cells of each tensor

    @property
    def bound(self) -> float:
        """Lower bound on the log evidence; for EM the log-likelihood, for MAP the log-posterior."""
        return self.state.objective

    @property
    def n_iter(self) -> int:
        """Sweeps done, earlier ones included when the fit went on from another."""
        return len(self.trace)

    @property
    def seconds(self) -> float:
        """Time of all restarts."""
        return sum(row.seconds for row in self.rows)

    @property
    def factors(self) -> Mapping[str, Factor]:
        """Every factor: a Posterior, or a Point where it was fixed or estimated by EM or MAP."""
        return MappingProxyType({name: self._factor(name) for name in self.model.factors})

    def _factor(self, name: str) -> Factor:
        indices = self.model.factors[name]
        if name in self.state.C:
            return Posterior(indices, self.state.C[name], self.state.D[name])
        return Point(indices, self.state.E[name])

    @property
    def restarts(self) -> pd.DataFrame:
        """One row a restart: its seed, bound, sweeps, whether and why it stopped, seconds, which one was kept.

        A fit with the seed of a restart is that restart.

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

    def mean(self, at: Any = None, *, of: str | None = None) -> Array:
        """Expected value of cells, exact under the posterior.

        ``at`` lists cells: an (n, modes) array of positions, a tuple of index arrays such as
        ``np.nonzero`` gives, or a boolean array of the tensor's shape. Without it: the whole tensor.
        ``of`` names the tensor when the model has several.

        >>> import numpy as np, pltf
        >>> X = np.array([[4.0, 2.0], [2.0, np.nan]])
        >>> fit = pltf.nmf(rank=1).fit(X)
        >>> fit.mean().shape, fit.mean(at=np.isnan(X)).shape
        ((2, 2), (1,))
        """
        equation = self._equation(of)
        if at is None:
            return rates(equation, self.state.E, self.sizes)
        indices = equation.output.indices
        shape = tuple(self.sizes[index] for index in indices)
        return rates_at(equation, self.state.E, self.sizes, as_cells(at, shape, indices))

    def components(self, index: str | None = None, *, top: int = 3) -> pd.DataFrame:
        """Components by the observed counts that they explain, largest first.

        ``index`` is the latent index that numbers them (needed when the model has several). ``mass``
        adds up to the total of the tensors that the component takes part in, ``share`` to one; then,
        for each factor with one other index, the positions of its ``top`` largest entries.

        >>> import numpy as np, pltf
        >>> X = np.diag([9.0, 5.0, 1.0]) + 0.01
        >>> table = pltf.nmf(rank=2).fit(X, restarts=5).components()
        >>> list(table.columns), bool(abs(table["mass"].sum() - X.sum()) < 1e-6)
        (['mass', 'share', 'W[i]', 'H[j]'], True)
        """
        import pandas as pd

        if isinstance(top, bool) or not isinstance(top, (int, np.integer)) or top < 0:
            raise PltfError(f"top must be a whole number of at least 0, got {top!r}")
        index = component_index(self.model, index)
        mass = self._mass(index)
        table = pd.DataFrame({"mass": mass, "share": mass / max(mass.sum(), np.finfo(float).tiny)})
        table.index.name = index
        for name, indices in self.model.factors.items():
            if index in indices and len(indices) == 2:
                mean = self.state.E[name]
                by_component = mean if indices[0] == index else mean.T
                largest = np.argsort(-by_component, axis=1, kind="stable")[:, :top]
                (other,) = (i for i in indices if i != index)
                table[f"{name}[{other}]"] = [tuple(map(int, row)) for row in largest]
        return table.sort_values("mass", ascending=False, kind="stable")

    @property
    def effective_rank(self) -> int | Mapping[str, int]:
        """How many components explain at least one count, or a thousandth of all if there are fewer than a thousand.

        For each latent index, when there are several.

        Components that the data do not support lose their counts: above all those of a prior with means that are
        learned for each component, ``Gamma(learn="mean", tie="component")``.

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
        """Expected counts of each value of a latent index, from any factor that holds it."""
        counts = self.state.counts.by_factor
        for name in counts:
            indices = self.model.factors[name]
            if index in indices and not self._shared_unequally(name, index):
                axes = tuple(axis for axis, i in enumerate(indices) if i != index)
                return np.asarray(counts[name].sum(axis=axes))
        raise PltfError(f"components of '{index}' cannot be counted: no factor is in every equation that sums over it")

    def _shared_unequally(self, name: str, index: str) -> bool:
        return any(name not in {t.name for t in e.factors} for e in self.model.equations if index in e.summed)

    def _equation(self, of: str | None) -> Equation:
        tensors = {e.output.name: e for e in self.model.equations}
        if of is None and len(tensors) == 1:
            return next(iter(tensors.values()))
        if not isinstance(of, str) or of not in tensors:
            raise PltfError(f"of must name an observed tensor ({', '.join(tensors)}), got {of!r}")
        return tensors[of]

    @property
    def data(self) -> str:
        """What was fitted, in words.

        >>> import numpy as np, pltf
        >>> pltf.nmf(rank=1).fit(np.array([[4.0, 2.0], [2.0, np.nan]])).data
        'X 2x2 (3 cells observed)'
        """
        return ", ".join(
            f"{name} {'x'.join(str(self.sizes[i]) for i in indices)} ({self.n_observed[name]:,} cells observed)"
            for name, indices in self.model.observed.items()
        )

    def __repr__(self) -> str:
        objective = self.objective
        state = "converged" if self.converged else "not converged"
        lines = [
            f"<Fit of {self.model!r}",
            f"  data     {self.data}",
            f"  method   {self.method}, {self.dtype}, {self.engine} engine, seed {self.seed}",
            f"  result   {objective} {self.bound:.6f} after {self.n_iter} sweeps, {state}: {self.stopped}",
        ]
        if len(self.rows) > 1:
            bounds = [row.bound for row in self.rows]
            spread = f"{min(bounds):.6g} to {max(bounds):.6g}"
            kept = f"kept restart {self.best_restart} (counted from 0)"
            lines.append(f"  restarts {len(bounds)}, {kept}; {objective} {spread}")
        lines.append(f"  time     {self.seconds:.2f} s>")
        return "\n".join(lines)


def component_index(model: Model, index: str | None) -> str:
    """The latent index that numbers components: the one named, or the only one."""
    latent = tuple(model.sizes)
    if index is None and len(latent) == 1:
        return latent[0]
    if index not in latent:
        known = ", ".join(latent) or "none"
        came = f"got {index!r}" if index is not None else "for there are several" if latent else "and there is none"
        raise PltfError(f"index must name a latent index of the model ({known}), {came}")
    return index
