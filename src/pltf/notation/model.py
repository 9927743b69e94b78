"""The model: equations and the sizes of their latent indices; immutable and hashable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pltf.cluster import client_for
from pltf.errors import PltfError, arguments_known, call_checked, py, py_only, whole
from pltf.hints import suggestion
from pltf.notation.grammar import Equation, parse

if TYPE_CHECKING:
    from distributed import Client

    from pltf.engines.plan import Plan
    from pltf.fit import Fit
    from pltf.gamma import Gamma
    from pltf.inference.run import Callback


@dataclass(frozen=True, init=False, repr=False)
class Model:
    """A factorization model, written as equations or in the einsum shorthand.

    Indices that occur in no observed tensor are latent: they are summed, and their sizes are given as keywords.
    The sizes of observed indices come from the data.

    >>> import pltf
    >>> model = pltf.Model("X[user,place] = U[user,r] * P[place,r]", r=4)
    >>> model
    Model("X[user,place] = U[user,r] * P[place,r]", r=4)
    >>> model.factors["U"]
    ('user', 'r')

    Several equations describe several tensors; a factor that occurs in two of them couples them:

    >>> coupled = pltf.Model('''X[i,j,k] = A[i,r] * B[j,r] * C[k,r]
    ...                         Y[j,m] = B[j,r] * D[m,r]''', r=3)
    >>> list(coupled.observed), list(coupled.factors)
    (['X', 'Y'], ['A', 'B', 'C', 'D'])

    The einsum shorthand names the factors Z1, Z2, ... and the tensor X:

    >>> pltf.Model("ir,jr,kr->ijk", r=7)
    Model("X[i,j,k] = Z1[i,r] * Z2[j,r] * Z3[k,r]", r=7)
    """

    equations: tuple[Equation, ...]
    _sizes: tuple[tuple[str, int], ...]

    @call_checked
    def __init__(self, text: str, /, **sizes: int) -> None:
        if not isinstance(text, str):
            raise PltfError(f"the model must be text such as 'ir,jr->ij', got {type(text).__name__}", argument="text")
        equations = parse(text)
        object.__setattr__(self, "equations", equations)
        object.__setattr__(self, "_sizes", tuple(_latent_sizes(equations, sizes).items()))

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the latent indices, in order of appearance.

        >>> import pltf
        >>> dict(pltf.tucker(ranks=(3, 2, 2)).sizes)
        {'p': 3, 'q': 2, 'r': 2}
        """
        return MappingProxyType(dict(self._sizes))

    @property
    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """Indices of every factor; factors are in the order in which an iteration updates them.

        >>> import pltf
        >>> dict(pltf.nmf(rank=2).factors)
        {'W': ('i', 'r'), 'H': ('r', 'j')}
        """
        return MappingProxyType({t.name: t.indices for e in self.equations for t in e.factors})

    @property
    def observed(self) -> Mapping[str, tuple[str, ...]]:
        """Indices of every observed tensor.

        >>> import pltf
        >>> dict(pltf.Model("X[i,j] = A[i,r] * B[j,r]; Y[j,k] = B[j,r] * C[k,r]", r=2).observed)
        {'X': ('i', 'j'), 'Y': ('j', 'k')}
        """
        return MappingProxyType({e.output.name: e.output.indices for e in self.equations})

    @property
    def observed_indices(self) -> tuple[str, ...]:
        """All indices of observed tensors, in order of appearance.

        >>> import pltf
        >>> pltf.Model("X[i,j] = A[i,r]*B[j,r]; Y[j,k] = B[j,r]*C[k,r]", r=2).observed_indices
        ('i', 'j', 'k')
        """
        return tuple(dict.fromkeys(index for e in self.equations for index in e.output.indices))

    @property
    def text(self) -> str:
        """The equations in full, one per line.

        >>> import pltf
        >>> pltf.Model("ir,jr->ij", r=2).text
        'X[i,j] = Z1[i,r] * Z2[j,r]'
        """
        return "\n".join(map(str, self.equations))

    def resized(self, /, **sizes: int) -> Model:
        """The same equations with different sizes of the latent indices.

        >>> import pltf
        >>> pltf.cp(rank=2).resized(r=5).sizes["r"]
        5
        """
        return Model(self.text, **{**self.sizes, **sizes})

    def index_sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Size of every index, given the shape of every observed tensor.

        >>> import pltf
        >>> pltf.nmf(rank=2).index_sizes({"X": (5, 4)})
        {'i': 5, 'j': 4, 'r': 2}
        """
        sizes: dict[str, int] = {}
        source: dict[str, str] = {}
        for name, indices in self.observed.items():
            shape = shapes[name]
            if len(shape) != len(indices):
                expected = f"{len(indices)} dimensions ({', '.join(indices)})"
                raise PltfError(f"{name} must have {expected}, got {len(shape)}: shape {shape}")
            for index, size in zip(indices, shape, strict=True):
                if size == 0:
                    raise PltfError(f"{name} has no cell: index '{index}' has size 0")
                if sizes.setdefault(index, size) != size:
                    known = f"{sizes[index]} in {source[index]}"
                    raise PltfError(f"index '{index}' must have one size, but it is {known} and {size} in {name}")
                source.setdefault(index, name)
        return sizes | dict(self._sizes)

    @arguments_known
    def fit(
        self,
        X: Any,
        *,
        mask: Any = None,
        method: str = "vb",
        prior: Gamma | Mapping[str, Gamma] | None = None,
        max_iter: int = 2000,
        tol: float = 1e-6,
        restarts: int = 1,
        seed: int | None = 0,
        init: str | Mapping[str, Any] | Fit = "prior",
        fixed: Mapping[str, Any] | None = None,
        dtype: Any = "float64",
        engine: str = "auto",
        threads: int | None = None,
        accelerate: bool = True,
        progress: bool = True,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
        resume: bool = False,
        keep_data: bool = True,
        likelihood: str | Mapping[str, str] = "poisson",
        chains: int | None = None,
        burn_in: int | None = None,
        draws: int | None = None,
        thin: int | None = None,
        dispersion: float | str | None = "auto",
        device: str = "cpu",
        client: Client | None = None,
    ) -> Fit:
        """Fit the model to data, which may have missing cells.

        Parameters
        ----------
        X
            The data: an array, a table or DataArray with labels, a list of cells, or the result of
            :func:`pltf.observe`, which lists all supported types. A mapping from tensor to data if the model has
            several tensors. NaN and masked entries of ``numpy.ma`` are missing. Tensors that share an index are
            aligned by label; cells whose labels occur only in another tensor are missing. ``X`` is never modified.
        mask
            True where a cell was observed; a mapping from tensor to mask if there are several tensors.
        method
            ``"vb"``: variational Bayes, with the posterior of every factor and the evidence lower bound (ELBO).

            ``"em"``: maximum likelihood.

            ``"map"``: maximum a posteriori. With a prior shape below 1 the density has no maximum, and entries are set
            to zero: objectives are then comparable only between iterations with the same zeros, and the trace may
            decrease when a zero is added (docs/concepts/em.md).

            ``"gibbs"``: draws from the exact posterior, for whole counts. Slower than VB, with calibrated intervals.
        prior
            A :class:`pltf.Gamma` for all factors, or a mapping from factor to Gamma. Default, also for factors that
            the mapping does not name: ``Gamma(0.5, 10, learn="mean")``, which learns the mean of each factor's
            entries and so adapts to counts of any scale. The paper uses ``Gamma(0.5, 10)``. MAP learns no
            hyperparameters; its default is ``Gamma(1, 10)``.
        max_iter, tol
            Maximum number of iterations (if ``init`` is a Fit: of further iterations), and relative tolerance: the run
            has converged when the last three iterations together improve the ELBO by less than ``tol * |ELBO|``.
            ``tol=0`` stops early only if the ELBO decreases. An iteration, or sweep, updates every factor once.
        restarts, seed
            Number of random restarts; the one with the highest ELBO is kept. Restart k of a seed does not depend on
            the number of restarts, and ``fit.restarts`` has the seed that reproduces it alone. ``seed=None`` uses a
            random seed.
        init
            ``"prior"``: start from a draw from the prior. ``"random"``: start from random positive numbers of the scale
            of the data. A mapping from factor to array, with every free factor: start from these arrays. A Fit: resume
            from it; pass the data, mask, method, prior and fixed factors again. If they are the same, the trace
            continues.
        fixed
            Mapping from factor to array. These factors are not learned and have no prior.
        dtype
            ``"float64"`` or ``"float32"``, for the arithmetic over cells. The ELBO is always summed in float64; with
            float32 its error is about 1e-8 of the total count.
        engine, threads
            How the sums over cells are computed, and the number of threads (default: all cores). The result is
            bit-identical for any number of threads.
        accelerate
            Balance the scales of the factors after each sweep, and extrapolate as long as the ELBO does not decrease;
            this takes far fewer iterations. False, with the paper's prior, is exactly its Algorithm 1.
        progress
            Show a progress bar if the fit takes more than a second.
        callback
            Called with a :class:`pltf.Sweep` after each iteration; return True to stop that restart.
        checkpoint, every, resume
            A file to which the state is saved every ``every`` seconds and at the end, when :func:`pltf.load` can read
            it. After an interruption, rerun the call with ``resume=True`` to resume; the result is identical. If the
            file does not exist, the fit starts from the beginning. Ctrl-C stops after the current iteration, saves the
            checkpoint if there is one, and returns the best fit so far; pressed twice, it raises KeyboardInterrupt.
        keep_data
            Store in the Fit, and in its file, which cells were observed and their values. Without them the Fit is
            smaller, and can still predict and be resumed, but cannot list the top missing or zero cells
            (``fit.top``), score cells without the :class:`pltf.Holdout` it was fitted to, or pass data to ArviZ.
        likelihood
            ``"poisson"``: values are counts. ``"bernoulli"``: values are links, 0 or 1; a link is 1 where a Poisson
            count is above zero. ``"auto"``: bernoulli for tensors whose observed values are 0 or 1 and include both,
            otherwise poisson; ``fit.likelihoods`` has the choice. Or a mapping from tensor to one of these; tensors
            that it does not name are poisson.
        chains, burn_in, draws, thin
            Only for ``method="gibbs"``. Every chain starts at a draw from a VB fit (to which ``restarts``, ``max_iter``
            and ``tol`` apply), discards ``burn_in`` sweeps, and keeps ``draws`` draws, one every ``thin`` sweeps.
            Defaults: 4 chains, 200 sweeps of burn-in (none if ``init`` is a Gibbs fit), 200 draws, ``thin=1``. If
            ``init`` is a VB fit, chains start from it; if it is a Gibbs fit, they continue from its last draws.
            ``callback`` is called after each sweep of each chain, whose number is ``restart``; return True to stop all
            chains.
        dispersion
            Overdispersion of the counts, used for intervals, probabilities and scores; it does not change the factors.
            ``"auto"`` estimates it after the fit from held-out cells, with a second, shorter fit (docs/prediction.md).
            ``"index:NAME"`` estimates one value for each position of an index. A number is used as it is: a count with
            rate m has variance m + m^2 / number. None: counts are Poisson.
        device
            Where to compute: ``"cpu"``, a GPU by its PyTorch name (``"cuda"``, ``"cuda:1"``), or ``"auto"``: a GPU if
            there is one and the plan expects it to be faster. Requires ``pip install 'pltf[gpu]'`` (docs/gpu.md). The
            result is an ordinary Fit on the CPU. Cells in a store are summed there part by part, by each worker of a
            cluster on its own device; factors then stay on the CPU.
        client
            A ``distributed.Client``: the workers of its Dask cluster compute the sums over a cell store that all of
            them can read (:func:`pltf.open`), or over a ``dask.dataframe`` or ``dask.array``; for these the default
            Dask client is used unless one is passed. The result is an ordinary Fit, the same as without a cluster
            (docs/howto/cluster.md). Requires ``pip install 'pltf[dask]'``.

        Returns
        -------
        Fit
            The posterior or estimate of every factor, with methods for predictions, scores and plots.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[1.0, 2.0], [2.0, np.nan]]))
        >>> fit.converged
        True
        >>> links = pltf.nmf(rank=1).fit(np.array([[1, 1, 0], [1, np.nan, 0], [0, 0, 0]]), likelihood="auto")
        >>> links.likelihoods
        {'X': 'bernoulli'}
        """
        # The only place where this layer imports from a higher one, and only when called.
        from pltf.fitting import fit
        from pltf.options import FitOptions
        from pltf.sampling import sample

        options = FitOptions.of(locals(), client=client_for(client, X))
        return (sample if options.method == "gibbs" else fit)(self, X, mask=mask, options=options)

    @arguments_known
    def plan(
        self,
        X: Any,
        *,
        mask: Any = None,
        dtype: Any = "float64",
        engine: str = "auto",
        threads: int | None = None,
        method: str = "vb",
        dispersion: float | str | None = "auto",
        device: str = "cpu",
        client: Client | None = None,
    ) -> Plan:
        """Plan a fit: how it visits the data, its memory and the time of an iteration. Reads only a sample of arrays.

        >>> import numpy as np, pltf
        >>> plan = pltf.cp(rank=7).plan(np.ones((50, 40, 30), dtype=int))
        >>> plan.engine, plan.flops
        ('dense', 2570400)
        """
        from pltf.options import FitOptions
        from pltf.planning import plan

        options = FitOptions.of(locals(), client=client_for(client, X))
        return plan(self, X, mask=mask, options=options)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from pltf.html import card, code, table

        observed = self.observed_indices
        held = dict.fromkeys((*observed, *(i for indices in self.factors.values() for i in indices)))
        rows = [
            (
                index,
                "observed" if index in observed else "latent",
                f"{self.sizes[index]:,}" if index in self.sizes else "from the data",
                ", ".join(name for name, indices in self.factors.items() if index in indices),
            )
            for index in held
        ]
        return card("Model", code(self.text), table(("index", "", "size", "factors"), rows))

    def __repr__(self) -> str:
        lines = self.text.split("\n")
        text = f'"{lines[0]}"' if len(lines) == 1 else '"""' + "\n         ".join(lines) + '"""'
        return f"Model({', '.join([text, *(f'{index}={size}' for index, size in self._sizes)])})"


def _latent_sizes(equations: tuple[Equation, ...], given: Mapping[str, int]) -> dict[str, int]:
    observed = {index: e.output.name for e in equations for index in e.output.indices}
    latent = dict.fromkeys(i for e in equations for i in e.summed if i not in observed)
    for index in given:
        if index in observed:
            raise PltfError(f"index '{index}' is observed in {observed[index]}: its size comes from the data")
        if index not in latent:
            known = ", ".join(latent) or "none"
            near = suggestion(index, latent)
            raise PltfError(f"unknown size keyword '{index}': the latent indices of this model are {known}{near}")
    return {index: _size(index, given) for index in latent}


def _size(index: str, given: Mapping[str, int]) -> int:
    if index not in given:
        absent = f"latent index '{index}' has no size"
        raise PltfError(f"{absent}: give it as {py_only:a keyword, for example }{py:Model(..., {index}=3)}")
    return whole(f"size of '{index}'", given[index], 1)
