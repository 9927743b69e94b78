"""Matrix factorization as a scikit-learn transformer."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import exceptions
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from pltf.data import Observation, observe
from pltf.data.labels import known_labels
from pltf.data.sparse_parts import check_sparse
from pltf.errors import ConvergenceWarning as PltfConvergenceWarning
from pltf.errors import PltfError, choice, is_number, py, warn_caller, whole
from pltf.fit import Fit
from pltf.gamma import PARTS, TIES, Array, Gamma
from pltf.inference.run import ASKED, Sweep, at_limit
from pltf.notation import nmf
from pltf.options import FitOptions
from pltf.threads import available_threads
from pltf.update import next_batch

__all__ = ["ConvergenceWarning", "PoissonNMF"]

LEARN = "learn"


class ConvergenceWarning(PltfConvergenceWarning, exceptions.ConvergenceWarning):  # type: ignore[misc]
    """A fit has not converged; subclass of the warnings of pltf and scikit-learn, for the filters of both.

    >>> import pltf, pltf.sklearn, sklearn.exceptions
    >>> told = pltf.sklearn.ConvergenceWarning
    >>> issubclass(told, pltf.ConvergenceWarning), issubclass(told, sklearn.exceptions.ConvergenceWarning)
    (True, True)
    """


class PoissonNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Non-negative matrix factorization of counts, ``X ~ Poisson(W H)`` with Gamma priors, by variational Bayes.

    A Bayesian alternative to :class:`sklearn.decomposition.NMF` with the Kullback-Leibler loss: rows of ``X`` are
    samples, rows of ``H`` are components, and ``W`` has the weight of each component in each sample. Priors prevent
    overfitting, and cells may be missing. This is the model :func:`pltf.nmf`; ``fit_`` has its fit with the posterior
    of every entry.

    ``X`` is an array or a table; NaN and masked entries of ``numpy.ma`` are missing. In a ``scipy.sparse`` matrix
    unlisted cells are observed zeros, and a listed NaN is missing. ``X`` is never modified.

    Parameters
    ----------
    n_components
        Number of components.
    prior_shape, prior_mean
        Hyperparameters of the Gamma prior of ``W`` and ``H``: positive numbers, or ``"learn"`` to learn one value for
        each factor. A small shape gives sparse factors.
    prior_tie
        Which entries share a learned hyperparameter: all of a ``"factor"``, or those of one ``"component"``. With means
        learned for each component, unsupported components shrink to zero.
    max_iter, tol
        Maximum number of iterations, and relative tolerance: stop when the last three iterations together improve the
        ELBO by less than ``tol * |ELBO|``. For new rows, stop when no row changes by more than ``tol`` of its largest
        entry. ``tol=0``: never stop early.
    n_init, random_state
        Number of random restarts, of which the best is kept, and their random state. An int is the ``seed`` of
        :meth:`pltf.Model.fit`.
    verbose
        Show a progress bar if the fit takes more than a second.
    likelihood
        ``"poisson"``: values are counts. ``"bernoulli"``: values are links, 0 or 1; a link is 1 where a Poisson count
        is above zero. ``"auto"`` chooses by the data; ``fit_.likelihoods`` has the choice.

    Attributes
    ----------
    components_
        Posterior mean of ``H``, components x features.
    n_components_, n_features_in_, feature_names_in_
        As in all scikit-learn estimators.
    bound_
        Evidence lower bound (ELBO) of the training data.
    n_iter_
        Number of iterations of the best restart.
    fit_
        The :class:`pltf.Fit`, with rows ``i``, columns ``j`` and components ``r``. Columns have labels if ``X`` is a
        table whose column names are unique strings.

    A fit uses ``OMP_NUM_THREADS`` threads, which joblib sets in its processes; by default all cores. The result is
    bit-identical for any number of threads.

    >>> import numpy as np
    >>> from pltf.sklearn import PoissonNMF
    >>> X = np.array([[4, 2, 0], [8, np.nan, 0], [0, 1, 6], [0, 0, 12]])
    >>> model = PoissonNMF(n_components=2, n_init=5, random_state=0)
    >>> W = model.fit_transform(X)
    >>> W.shape, model.components_.shape
    ((4, 2), (2, 3))
    >>> bool(model.inverse_transform(W)[1, 1] > 2)
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        prior_shape: float | str = 0.5,
        prior_mean: float | str = LEARN,
        prior_tie: str = "factor",
        max_iter: int = 2000,
        tol: float = 1e-6,
        n_init: int = 1,
        random_state: Any = None,
        verbose: bool = False,
        likelihood: str = "poisson",
    ) -> None:
        self.n_components = n_components
        self.prior_shape = prior_shape
        self.prior_mean = prior_mean
        self.prior_tie = prior_tie
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state
        self.verbose = verbose
        self.likelihood = likelihood

    def fit(self, X: Any, y: Any = None) -> PoissonNMF:
        """Learn the components; ``y`` is not used.

        >>> import numpy as np
        >>> from pltf.sklearn import PoissonNMF
        >>> PoissonNMF(n_components=1, random_state=0).fit(np.eye(3)).n_components_
        1
        """
        rank, prior = whole("n_components", self.n_components, 1), self._prior()
        restarts, seed = whole("n_init", self.n_init, 1), _seed(self.random_state)
        seen = self._named(self._observed(X, reset=True))
        fitted = self._run(
            seen,
            rank,
            prior=prior,
            restarts=restarts,
            seed=seed,
            tol=self.tol,
            callback=self._at_the_end,
            likelihood=self.likelihood,
        )
        self.n_components_ = rank
        return self._learned(fitted)

    def _at_the_end(self, sweep: Sweep) -> bool:
        """Callback that stops a fit at its last iteration, so that pltf does not warn about convergence."""
        return bool(sweep.n_iter >= self.max_iter)

    def _learned(self, fitted: Fit) -> PoissonNMF:
        """Set the fitted attributes; returns the estimator."""
        self.fit_, self.components_ = fitted, fitted.factors["H"].mean
        self.n_iter_, self.bound_ = fitted.n_iter, fitted.bound
        if self.tol > 0 and not fitted.converged:
            stopped = fitted.stopped
            _warn(at_limit(self.n_iter_) if stopped == ASKED else stopped)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> PoissonNMF:
        """Update with another batch of rows: the posterior of ``H`` becomes its prior; ``y`` is not used.

        The first call is the same as :meth:`fit`. In later calls all rows are new samples with the same features.
        ``components_`` and ``fit_`` are then learned from all batches, except that ``fit_.factors["W"]`` has the rows
        of the last batch, and ``bound_`` is its ELBO given the batches before it. Hyperparameters are learned from the
        first batch only, so it should not be too small. :meth:`fit` starts again from the prior.

        >>> import numpy as np
        >>> from pltf.sklearn import PoissonNMF
        >>> X = np.random.default_rng(0).poisson(np.outer(np.full(60, 3.0), [1, 2, 4]))
        >>> model = PoissonNMF(n_components=1, random_state=0)
        >>> for batch in np.split(X, 3):
        ...     model = model.partial_fit(batch)
        >>> model.transform(X).shape
        (60, 1)
        """
        if not hasattr(self, "fit_"):
            return self.fit(X)
        options = FitOptions(
            max_iter=whole("max_iter", self.max_iter, 1),
            tol=self.tol,
            restarts=whole("n_init", self.n_init, 1),
            seed=_seed(self.random_state),
            callback=self._at_the_end,
            progress=bool(self.verbose),
            threads=_threads(),
        )
        seen = self._named(self._observed(X, reset=False))
        return self._learned(next_batch(self.fit_, seen, append="i", options=options))

    def transform(self, X: Any) -> Array:
        """Posterior mean of ``W`` for old or new rows, with ``H`` fixed at its mean.

        All rows have the same starting point, so the result for a row does not depend on the other rows, up to the
        tolerance. (With a prior shape far below 0.5 the ELBO of a row has several maxima, and a few rows may reach
        another one if the other rows change.) A row without observed cells gets the prior mean. Training rows are
        treated like new ones: ``fit_transform`` is bit-identical to ``fit`` followed by ``transform``. The posterior of
        the training rows in the fit, ``fit_.factors["W"]``, is similar, but includes the uncertainty of ``H``.

        >>> import numpy as np
        >>> from pltf.sklearn import PoissonNMF
        >>> model = PoissonNMF(n_components=2, random_state=0).fit(np.kron(np.diag([9, 5]), np.ones((4, 3))))
        >>> model.transform([[8, np.nan, 9, 0, 0, 0]]).argmax() == model.transform([[90] * 3 + [0] * 3]).argmax()
        np.True_
        """
        check_is_fitted(self, "fit_")
        seen = self._observed(X, reset=False)
        if not seen.n_observed:
            return self._expected_rows(seen.shape[0])
        return self._fold_in(seen).factors["W"].mean

    def inverse_transform(self, X: Any) -> Array:
        """Expected counts of rows with weights ``W``, that is ``W @ components_``; for links, their rates.

        >>> import numpy as np
        >>> from pltf.sklearn import PoissonNMF
        >>> model = PoissonNMF(n_components=1, random_state=0).fit(np.full((20, 3), 7))
        >>> model.inverse_transform(model.transform([[7, np.nan, 7]])).round()
        array([[7., 7., 7.]])
        """
        check_is_fitted(self, "fit_")
        W = check_array(X, accept_sparse=("csr", "csc"))
        if W.shape[1] != self.n_components_:
            expected = f"a column for each of the {self.n_components_} components"
            raise PltfError(f"{py:X} must have {expected}, as transform returns it; got {W.shape[1]}")
        rates: Array = W @ self.components_
        return rates

    def score(self, X: Any, y: Any = None) -> float:
        """ELBO of old or new rows given ``H``, in nats per observed cell; higher is better.

        This is the lower bound on ``log p(X | H)``, with ``W`` integrated out, divided by the number of observed cells.
        So a component that explains nothing new has a small cost, and a search over ``n_components`` has a maximum,
        where the likelihood at the estimated ``W`` would be nearly flat. As a mean over cells, it is comparable between
        folds of different sizes and with different missing cells. ``y`` is not used.

        >>> import numpy as np
        >>> from pltf.sklearn import PoissonNMF
        >>> X = np.kron(np.ones((10, 1)), [[9, 9, 0, 0], [0, 0, 9, 9]])
        >>> one, two = (PoissonNMF(n, random_state=0).fit(X).score(X) for n in (1, 2))
        >>> one < two
        True
        """
        check_is_fitted(self, "fit_")
        seen = self._observed(X, reset=False)
        if not seen.n_observed:
            raise PltfError(f"{py:X} must have an observed cell to be scored, but all are missing")
        return self._fold_in(seen).bound / seen.n_observed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _prior(self) -> Gamma:
        """The prior of both factors, with default initial values where it is learned."""
        values = {part: getattr(self, f"prior_{part}") for part in PARTS}
        learns = [part for part, value in values.items() if isinstance(value, str) and value == LEARN]
        for part, value in values.items():
            if part not in learns and not (is_number(value) and 0 < value < math.inf):
                raise PltfError(f"{py:prior_{part}} must be a positive number or 'learn', got {value!r}")
        choice("prior_tie", self.prior_tie, TIES)
        if self.prior_tie != "factor" and not learns:
            raise PltfError(
                f"{py:prior_tie={self.prior_tie!r}} needs {py:prior_shape='learn'} or {py:prior_mean='learn'}, or both"
            )
        given = {part: value for part, value in values.items() if part not in learns}
        learn = None if not learns else "both" if len(learns) == len(PARTS) else learns[0]
        return Gamma(**given, learn=learn, tie=self.prior_tie)

    def _observed(self, X: Any, *, reset: bool) -> Observation:
        """The observed data, validated as in scikit-learn."""
        if isinstance(X, np.ma.MaskedArray):  # NumPy would discard the mask
            X = np.ma.filled(X.astype(np.float64), np.nan)
        check_sparse(X, "X")  # scikit-learn validates it first
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan")
        least = np.fmin.reduce(X.data if sparse.issparse(X) else X, axis=None, initial=0)
        if least < 0:
            raise PltfError(f"Negative values in data passed to PoissonNMF: X must be >= 0, but it holds {least}")
        return _listed(X) if sparse.issparse(X) else observe(X, name="X")

    def _named(self, seen: Observation) -> Observation:
        """The data with unique feature names, if there are any, as labels of the columns."""
        names = getattr(self, "feature_names_in_", ())
        if not len(names) or len(set(names)) < len(names):
            return seen
        return replace(seen, dims=("i", "j"), labels={"j": known_labels(names, "feature_names_in_")})

    def _fold_in(self, seen: Observation) -> Fit:
        """The posterior of the observed rows, with H fixed."""
        learned = self.fit_.priors["W"]
        found = self._run(
            seen,
            self.n_components_,
            prior=Gamma(learned.shape, learned.mean),
            fixed={"H": self.components_},
            init={"W": self._expected_rows(seen.shape[0])},
            tol=0,
            callback=_Settled(self.tol),
            likelihood=dict(self.fit_.likelihoods),  # the choice of "auto" in the fit, not by the new rows
        )
        if self.tol > 0 and not found.converged and found.stopped != ASKED:
            _warn(found.stopped)
        return found

    def _expected_rows(self, n: int) -> Array:
        """Rows of W from prior expectations: sweeps reach a higher ELBO than from draws, and always the same one."""
        return np.array(np.broadcast_to(self.fit_.priors["W"].mean, (n, self.n_components_)))

    def _run(self, seen: Observation, rank: int, **options: Any) -> Fit:
        options |= {"progress": bool(self.verbose), "dispersion": None}  # a transformer needs only means
        return nmf(rank=rank).fit(seen, max_iter=self.max_iter, threads=_threads(), **options)


class _Settled:
    """Stops a fold-in when no row changes; with a tolerance for the total ELBO, some rows would stop too early."""

    def __init__(self, tol: float) -> None:
        self._tol = tol
        self._before: Array | float = math.inf

    def __call__(self, sweep: Sweep) -> bool:
        W = sweep.means["W"]
        moved, self._before = np.abs(W - self._before), W
        return bool((moved <= self._tol * W.max(axis=1, keepdims=True)).all())


def _warn(reason: str) -> None:
    text = f"PoissonNMF has not converged: {reason}; raise {py:max_iter} or {py:tol}"
    warn_caller(text, ConvergenceWarning)


def _listed(X: Any) -> Observation:
    """The cells of a sparse matrix: unlisted cells are zeros, a listed NaN is missing."""
    listed = X.tocoo(copy=True)
    listed.sum_duplicates()
    cells, hole = np.stack(listed.coords, axis=1), np.isnan(listed.data)
    return observe((cells[~hole], listed.data[~hole]), shape=listed.shape, missing=cells[hole], name="X")


def _seed(random_state: Any) -> int:
    if is_number(random_state, whole=True):
        return whole("random_state", random_state, 0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _threads() -> int:
    """The number of OpenMP threads, so that joblib processes do not each use all cores."""
    allowed = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(int(allowed), available_threads())) if allowed.isdigit() else available_threads()
