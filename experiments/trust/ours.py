"""The variants of pltf, as a table of options; those that this version does not support are left out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

import pltf
from experiments.common import Array, quietly
from experiments.trust.measures import Predicted
from experiments.trust.tasks import Task
from pltf.dispersion import HeldBack, estimate, together
from pltf.options import FitOptions

MAX_ITER, TOL = 300, 1e-5
DRAWS, FEWEST = 100, 50  # posterior draws for predictions: of a single fit, and of each of several
CHAINS = 2  # of the sampler; few, to save time
Prior = pltf.Gamma | Mapping[str, pltf.Gamma]


# A factor over pairs: most pairs have no link, some have all. Fixed, because there are more pairs than links to learn
# from, and a sampler moves a shape shared by many entries only slowly.
OF_PAIRS = pltf.Gamma(0.1, 1.0)


def _by_factor(of: Callable[[str], pltf.Gamma]) -> Callable[[pltf.Model], Prior]:
    """Priors of factors by their observed index; the factor over pairs always has the same prior."""

    def prior(model: pltf.Model) -> Prior:
        observed = {name: [i for i in indices if i != "r"] for name, indices in model.factors.items()}
        return {name: of(some[0]) if len(some) == 1 else OF_PAIRS for name, some in observed.items()}

    return prior


PRIORS: dict[str, Callable[[pltf.Model], Prior]] = {
    "default": _by_factor(lambda _: pltf.Gamma(learn="mean")),
    "learned shapes": _by_factor(lambda _: pltf.Gamma(0.5, 1.0, learn="both")),
    # Some users and places are more active than others.
    "a mean for each position": _by_factor(lambda index: pltf.Gamma(0.5, 1.0, learn="mean", tie=f"index:{index}")),
    "sparse, a mean for each position": _by_factor(
        lambda index: pltf.Gamma(0.1, 1.0, learn="mean", tie=f"index:{index}")
    ),
}
PAIRS = "CP with pairs"
MODELS: dict[str, Callable[[int], pltf.Model]] = {
    "NMF": lambda rank: pltf.nmf(rank=rank),
    "CP": lambda rank: pltf.cp(rank=rank),
    PAIRS: lambda rank: pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r] * V[i,j]", r=rank),
}


def models(order: int, way: Way) -> tuple[str, ...]:
    """The models to choose from: NMF for a table, CP for a tensor, optionally with a factor over pairs."""
    return ("NMF",) if order == 2 else ("CP", PAIRS) if way.pairs else ("CP",)


@dataclass(frozen=True)
class Way:
    """Options of a fit, and what is chosen on held-back cells besides the rank."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    priors: tuple[str, ...] = ("default",)  # none: that of the variant ``like``
    pairs: bool = False  # may also choose a factor over pairs of the first two indices of a tensor
    links: bool | None = None  # True: links only, False: counts only, None: both
    starts: int = 1  # number of restarts whose predictive distributions are averaged
    chains: int = CHAINS
    like: str = ""  # use the model and rank chosen by this variant, because choosing takes long; the prior is its own

    def following(self, setting: Sequence[Any]) -> list[tuple[str, int, str]]:
        """The settings to choose from, given the choice of another variant."""
        model, rank, prior = setting
        return [(model, rank, own) for own in self.priors or (prior,)]

    def takes(self, links: bool) -> bool:
        """Whether it supports data of this kind."""
        return self.links is None or self.links == links


GIBBS = {"method": "gibbs"}
WAYS = (
    Way("VB, Poisson", {"dispersion": None}),
    Way("VB", links=False),
    Way("VB, 8 starts", {"dispersion": None}, starts=8, links=False),
    Way("VB, links", {"likelihood": "bernoulli"}, ("default", "a mean for each position"), pairs=True, links=True),
    Way("VB, links, 8 starts", {"likelihood": "bernoulli"}, (), starts=8, links=True, like="VB, links"),
    Way("Gibbs", GIBBS, links=False, like="VB"),
    Way(
        "Gibbs, links",
        {**GIBBS, "likelihood": "bernoulli"},
        ("learned shapes", "sparse, a mean for each position"),
        links=True,
        chains=4,  # the default of pltf
        like="VB, links",
    ),
)


def known(way: Way) -> bool:
    """Whether this version of pltf supports all of its options."""
    try:
        FitOptions(**_new(way))
    except (TypeError, pltf.PltfError):
        return False
    return True


def _new(way: Way) -> dict[str, Any]:
    """The options, without those that turn off something that this version does not have."""
    names = FitOptions.__dataclass_fields__
    return {name: value for name, value in way.options.items() if value is not None or name in names}


def fits(task: Task, way: Way, model: str, rank: int, prior: str) -> list[pltf.Fit]:
    """One fit, or one per restart if they are averaged."""
    return [_fit(task, way, MODELS[model](rank), prior, start) for start in range(way.starts)]


def _fit(task: Task, way: Way, model: pltf.Model, prior: str, start: int) -> pltf.Fit:
    with quietly():
        return model.fit(
            task.X,
            mask=task.keep,
            prior=PRIORS[prior](model),
            seed=zlib.crc32(f"{task.seed} {start}".encode()),
            max_iter=MAX_ITER,
            tol=TOL,
            threads=1,
            progress=False,
            **_new(way),
            **(chain(task.sweeps, way.chains) if "method" in way.options else {}),
        )


def chain(sweeps: int, chains: int = CHAINS) -> dict[str, Any]:
    """Options for the chains: they start at a VB fit, so half of the sweeps is enough burn-in."""
    return {"chains": chains, "burn_in": sweeps // 2, "draws": sweeps - sweeps // 2}


def around_average(found: Sequence[Sequence[pltf.Fit]], inner: Sequence[Task]) -> pltf.Dispersion:
    """The dispersion of counts around the average of several restarts, whose error is smaller than that of one.

    Each fold has its own fits; the rates of its hidden cells have the mean and variance of their mixture.
    """
    held = []
    for fits_of_fold, fold in zip(found, inner, strict=True):
        means = [fit.mean(at=fold.hidden, progress=False) for fit in fits_of_fold]
        variances = [fit.var(at=fold.hidden, progress=False) for fit in fits_of_fold]
        spread = np.mean(variances, axis=0) + np.var(means, axis=0)
        cells = np.stack(np.nonzero(fold.hidden))
        held.append(HeldBack(cells, fold.asked, np.ones(fold.asked.size), np.mean(means, axis=0), spread))
    return estimate(together(held))


def with_noise(found: Sequence[pltf.Fit], around: pltf.Dispersion | None) -> list[pltf.Fit]:
    """The same fits with this dispersion, if one is given.

    The mixture already includes the differences between restarts: the dispersion is that around each of them.
    """
    return [replace(fit, dispersion={"X": around}) if around is not None else fit for fit in found]


def predicted(found: Sequence[pltf.Fit], task: Task) -> Predicted:
    """The mixture of the predictions of several fits for the hidden cells."""
    said = [said_of(fit, task.hidden, task.asked, draws=_draws(found)) for fit in found]
    return Predicted(
        score=np.mean([one.score for one in said], axis=0),
        log_prob=_mixed([one.log_prob for one in said]),
        at_least=np.mean([one.at_least for one in said], axis=0),
        at_most=np.mean([one.at_most for one in said], axis=0),
    )


def log_prob(found: Sequence[pltf.Fit], task: Task) -> Array:
    """Log-probabilities of the hidden cells, for the choice of settings."""
    said = [fit.log_prob(task.hidden, task.asked, draws=_draws(found), progress=False) for fit in found]
    return _mixed(said)


def _draws(found: Sequence[pltf.Fit]) -> int:
    """Number of draws per fit; several fits share the draws, because they are averaged."""
    return max(DRAWS // len(found), FEWEST)


def _mixed(log_probs: Sequence[Array]) -> Array:
    return np.asarray(logsumexp(log_probs, axis=0) - np.log(len(log_probs)))


def said_of(fit: pltf.Fit, hidden: Array, x: Array, draws: int) -> Predicted:
    """Predictions of one fit for cells with true values ``x``, ranked by the probability of a count above zero.

    Tails are expensive: the upper one is computed for cells above zero only, and the lower one follows from it.
    """
    told: dict[str, Any] = {"draws": draws, "progress": False}
    log_probs, above = fit.log_prob(hidden, x, **told), x > 0
    cells, upper = np.zeros(hidden.shape, dtype=bool), np.ones(x.shape)
    cells[hidden] = above
    upper[above] = fit.surprise(cells, x[above], **told)
    lower = np.clip(1 - upper + np.exp(log_probs), 0, 1)
    return Predicted(fit.prob(at=hidden, **told), log_probs, upper, lower)
