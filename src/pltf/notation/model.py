"""The model: equations and the sizes of its latent indices, immutable and hashable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pltf.cluster import client_for
from pltf.errors import PltfError, py, py_only, whole
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

    Indices that no observed tensor has are latent: they are summed, and their sizes are keywords.
    The sizes of observed indices come from the data.

    >>> import pltf
    >>> model = pltf.Model("X[user,place] = U[user,r] * P[place,r]", r=4)
    >>> model
    Model("X[user,place] = U[user,r] * P[place,r]", r=4)
    >>> model.factors["U"]
    ('user', 'r')

    Several lines are several tensors; a factor in two of them couples them:

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

    def __init__(self, text: str, /, **sizes: int) -> None:
        if not isinstance(text, str):
            raise PltfError(f"the model must be a text such as 'ir,jr->ij', got {type(text).__name__}", argument="text")
        equations = parse(text)
        object.__setattr__(self, "equations", equations)
        object.__setattr__(self, "_sizes", tuple(_latent_sizes(equations, sizes).items()))

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the latent indices, in order of appearance."""
        return MappingProxyType(dict(self._sizes))

    @property
    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """Factor name to its indices, in the order in which a sweep updates them."""
        return MappingProxyType({t.name: t.indices for e in self.equations for t in e.factors})

    @property
    def observed(self) -> Mapping[str, tuple[str, ...]]:
        """Observed tensor to its indices."""
        return MappingProxyType({e.output.name: e.output.indices for e in self.equations})

    @property
    def text(self) -> str:
        """The equations in full, one a line."""
        return "\n".join(map(str, self.equations))

    def resized(self, /, **sizes: int) -> Model:
        """The same equations with other sizes of latent indices.

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
        """Learn the factors from data with holes.

        Parameters
        ----------
        X
            An array, a table or an xarray DataArray with labels, listed cells, or an observation of
            :func:`pltf.observe`, which says what is taken; a mapping from tensor to data when the
            model has several. NaN and masked entries of ``numpy.ma`` are missing. Never changed. Tensors that
            share an index are aligned by label: cells of labels that one of them does not have are missing there.
        mask
            True where a cell was observed; likewise a mapping when there are several tensors.
        method
            ``"vb"``: posterior of every factor and a bound on the evidence. ``"em"``: maximum
            likelihood. ``"map"``: maximum of the posterior; where a prior shape is below 1 there is none, and it
            sets entries to zero: its objective can then be compared only as long as none is added, and the trace may
            fall when one is (docs/concepts/em.md).
            ``"gibbs"``: draws from the posterior itself, for whole counts; slower than VB, with intervals that hold
            what they promise.
        prior
            A :class:`pltf.Gamma` for all factors, or a mapping from factor to Gamma. A factor that the mapping does not
            name, and all of them without ``prior``, have ``Gamma(0.5, 10, learn="mean")``: the mean of each
            factor's entries is learned, so counts of any scale will do. The paper's prior is ``Gamma(0.5, 10)``. MAP
            learns no prior, and has ``Gamma(1, 10)``.
        max_iter, tol
            At most so many sweeps (more sweeps, when ``init`` is a Fit); stop earlier when the last three sweeps
            together add less than ``tol*|bound|``. ``tol=0``: never stop earlier, unless the bound falls.
        restarts, seed
            Number of random starts, of which the best is kept. Restart k of a seed is the same whatever
            their number, and ``fit.restarts`` tells the seed that gives it alone. ``seed=None`` draws a seed.
        init
            ``"prior"`` draws from the prior, ``"random"`` positive numbers of the data's scale; a mapping
            from factor to array (every free factor) starts there; a Fit is gone on from, and its trace continued if
            data, mask, method, prior and fixed factors are the same: they have to be given again.
        fixed
            Mapping from factor to the array that it is; such a factor takes no prior and is not learned.
        dtype
            ``"float64"`` or ``"float32"``: arithmetic over the cells. The bound is summed in float64 always; in
            float32 its error is some 1e-8 of the total count.
        engine, threads
            How sums over cells are done, and on how many threads (default: all cores). The number of
            threads does not change a bit of the result.
        accelerate
            Balance the scales of factors after each sweep and go further along a sweep than the sweep itself, as long
            as the bound does not fall: many times fewer sweeps. False, with the paper's prior: its Algorithm 1 to the
            letter.
        progress
            Show a bar on a terminal when the fit takes over a second.
        callback
            Called with a :class:`pltf.Sweep` after each sweep; returning True ends that restart.
        checkpoint, every, resume
            A file in which the fit is kept every so many seconds, and when it has ended; :func:`pltf.load` reads it
            then. Broken off at any moment, the same call with ``resume=True`` goes on from there and ends with the
            same bits; where there is no file yet, it begins. Ctrl-C gives the best fit so far, after the sweep at
            hand, and keeps where it stands if there is a checkpoint; pressed twice it interrupts.
        keep_data
            Keep in the Fit, and in its file, which cells were observed and what they held. Without them the Fit is
            smaller, predicts and can be resumed as before, but cannot list the top missing or zero cells
            (``fit.top``), score cells without the :class:`pltf.Holdout` it was fitted to, or give data to ArviZ.
        likelihood
            ``"poisson"``: values are counts. ``"bernoulli"``: values are links, 0 or 1, and a cell is 1 where a Poisson
            count of its rate is above zero. ``"auto"``: bernoulli for a tensor in which all observed values are 0 or 1
            and both occur, poisson for any other; ``fit.likelihoods`` tells what was chosen. Or a mapping from tensor
            to one of these, when the model has several; a tensor that it does not name is poisson.
        chains, burn_in, draws, thin
            Of ``method="gibbs"`` only. Every chain starts at a draw from a VB fit (to which ``restarts``, ``max_iter``
            and ``tol`` apply), leaves out ``burn_in`` sweeps, and then keeps ``draws`` draws, one every ``thin``
            sweeps. Defaults: 4 chains, 200 sweeps of burn-in (none if ``init`` is a Gibbs fit), 200 draws, 1. With
            ``init`` a VB fit, chains start there; with a Gibbs fit, they go on from its last draws. ``callback`` is
            called after each sweep of each chain, whose number is ``restart``; returning True ends all of them.
        dispersion
            How much counts vary beyond Poisson, for intervals, probabilities and scores; it does not change the
            factors. ``"auto"`` estimates it after the fit, with a second, shorter fit that some observed cells are
            held back from (docs/prediction.md). ``"index:NAME"`` estimates a value for each position of an index. A
            number is taken as it is: a count of rate m has the variance m + m^2 / number. None: counts are Poisson.
        device
            Where to compute: ``"cpu"``, a GPU by its PyTorch name (``"cuda"``, ``"cuda:1"``), or ``"auto"``: a GPU if
            there is one and the plan says it pays. Needs ``pip install 'pltf[gpu]'`` (docs/gpu.md). The result is an
            ordinary Fit on the host.
        client
            A ``distributed.Client``: the workers of its Dask cluster take the sums over a cell store that all of them
            see (:func:`pltf.open`), or over a ``dask.dataframe`` or ``dask.array``, for which the default client of
            Dask is used unless one is given. The result is an ordinary Fit, the same as without a cluster
            (docs/howto/cluster.md). Needs ``pip install 'pltf[dask]'``.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=1).fit(np.array([[1.0, 2.0], [2.0, np.nan]]))
        >>> fit.converged
        True
        >>> links = pltf.nmf(rank=1).fit(np.array([[1, 1, 0], [1, np.nan, 0], [0, 0, 0]]), likelihood="auto")
        >>> links.likelihoods
        {'X': 'bernoulli'}
        """
        # The front door: the one place where this layer reaches up, and only when called.
        from pltf.fitting import fit
        from pltf.options import FitOptions
        from pltf.sampling import sample

        options = FitOptions(
            method=method,
            prior=prior,
            max_iter=max_iter,
            tol=tol,
            restarts=restarts,
            seed=seed,
            init=init,
            fixed=fixed,
            dtype=dtype,
            engine=engine,
            threads=threads,
            accelerate=accelerate,
            progress=progress,
            callback=callback,
            checkpoint=checkpoint,
            every=every,
            resume=resume,
            keep_data=keep_data,
            likelihood=likelihood,
            chains=chains,
            burn_in=burn_in,
            draws=draws,
            thin=thin,
            dispersion=dispersion,
            device=device,
            client=client_for(client, X),
        )
        return (sample if options.method == "gibbs" else fit)(self, X, mask=mask, options=options)

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
        """The way of a fit through the data, its memory and the time of a sweep; of arrays few cells are looked at.

        >>> import numpy as np, pltf
        >>> plan = pltf.cp(rank=7).plan(np.ones((50, 40, 30), dtype=int))
        >>> plan.engine, plan.flops
        ('dense', 2570400)
        """
        from pltf.options import FitOptions
        from pltf.planning import plan

        options = FitOptions(
            dtype=dtype,
            engine=engine,
            threads=threads,
            method=method,
            dispersion=dispersion,
            device=device,
            client=client_for(client, X),
        )
        return plan(self, X, mask=mask, options=options)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from pltf.html import card, code, table

        tensors = {index for indices in self.observed.values() for index in indices}
        held = dict.fromkeys(i for indices in (*self.observed.values(), *self.factors.values()) for i in indices)
        rows = [
            (
                index,
                "observed" if index in tensors else "latent",
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
