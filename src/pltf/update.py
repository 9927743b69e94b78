"""Update a fit with new data: its posterior is the prior of the next batch.

The posterior of an entry, Gamma(shape C, scale D), becomes the prior for the new data. With ``forget`` it is tempered
towards the prior (A, B) of the first fit:

    C' = A + (1 - forget) * (C - A)        1/D' = A/B + (1 - forget) * (1/D - A/B)

New rows have C' = A and 1/D' = A/B. Rows without new data keep C' and D'. After the first few batches, C and D are
those of the widened posterior that predictions use. See docs/concepts/update.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pltf.data.numeric import frozen
from pltf.data.pattern import ForgottenPattern, Pattern
from pltf.data.union import n_observed, united
from pltf.dispersion import dispersions_in_new
from pltf.errors import DataWarning, PltfError, is_number, py, warn_caller
from pltf.fit import Batch, Fit, with_spread
from pltf.fitting import fit
from pltf.gamma import PARTS, Array, Gamma, Posterior
from pltf.incoming import Axes, Incoming, axes_of, incoming, model_of
from pltf.inference.algebra import Factors
from pltf.inference.run import Row
from pltf.inference.start import Known
from pltf.inference.state import FIRST_PACE
from pltf.inference.vb import VB
from pltf.likelihoods import BERNOULLI, POISSON, as_option
from pltf.notation import Model
from pltf.options import FitOptions
from pltf.prediction.dispersion import Dispersion
from pltf.prediction.spread import Sample

FEWEST_FOR_SPREAD = 200  # cells of new data needed to estimate the spread of predictions again
# The posterior is widened before it becomes a prior only after this many batches. Later it is not: where every batch
# brings new rows, the past would fade more and more. Measured: benchmarks/NOTES.md
EARLY = 3
NEXT_TO_NOTHING = 0.01  # counts of a row, in units of its prior shape: with fewer, its components are indistinguishable
UNEQUAL = 3.0  # totals of batches that differ by this factor are probably of different lengths of time
_TINY = float(np.finfo(np.float64).tiny)


def update(known: Fit, new: Any, *, mask: Any, forget: Any, append: Any, zeros: Any, options: FitOptions) -> Fit:
    """Update a fit with new data; see :meth:`pltf.Fit.update`."""
    share, axes = judged(known, forget, append, zeros)
    came = incoming(known, new, mask, axes)
    _warn_of_unequal_batches(known, came)
    before = beliefs(known, came, share)
    today = learned(known, came, before, options)
    return _merged(known, came, before, today, options)


def next_batch(known: Fit, new: Any, *, append: str, options: FitOptions) -> Fit:
    """Update without keeping the rows of earlier batches along an index whose rows are all new: the fit does not grow.

    Without observed cells the fit is returned unchanged.
    """
    share, axes = judged(known, 0.0, append, ())
    came = incoming(known, new, None, axes)
    # Not widened: without the rows of earlier batches the spread is unknown after the first batch.
    before = beliefs(replace(known, spread=1.0), came, share)
    today = learned(known, came, before, options)
    if today is None:
        return known
    history = _history(known, came, share, today)
    kept = {name: getattr(known, name) for name in ("priors", "options", "dispersion", "spread", "likelihoods")}
    return replace(today, **kept, history=history, notes=(*_other_notes(known), _note(len(history))))


def judged(known: Fit, forget: Any, append: Any, zeros: Any) -> tuple[float, Axes]:
    """Check the arguments; returns the share to forget and the named indices."""
    if known.method != VB.name:
        came = f"this fit has {py:method={known.method!r}}"
        raise PltfError(f"update needs a fit with {py:method='vb'}, but {came}")
    if not is_number(forget) or not 0 <= forget < 1:
        raise PltfError(f"{py:forget} must be a number from 0 to below 1, got {forget!r}")
    return float(forget), axes_of(known, append, zeros)


def _warn_of_unequal_batches(known: Fit, came: Incoming) -> None:
    """Warn if new data have a much larger or smaller total than earlier batches, in all and for each cell."""
    if not known.mass or len(known.model.observed) > 1 or BERNOULLI in known.likelihoods.values():
        return  # expected counts are the total of a single tensor of counts only
    batches = cells = 0.0
    for batch in known.history or (known._batch(),):
        kept = 1 - batch.forget
        batches, cells = kept * batches + 1, kept * cells + _as_float(sum(batch.n_observed.values()))
    mass = float(next(iter(known.mass.values())).sum())
    before, today = mass / batches, float(sum(one.total for one in came.seen.values()))
    if not min(before, today, cells) > 0:
        return
    ratios = [
        today / before,
        today / _as_float(came.n_observed) / (mass / cells),
    ]  # fewer rows or cells say nothing about time
    if max(ratios) < 1 / UNEQUAL or min(ratios) > UNEQUAL:
        earlier = "the earlier data" if len(known.history) < 2 else "an earlier batch"
        totals = f"the new data have a total of {today:,.0f}, and {earlier} of {before:,.0f}"
        advice = "if they cover different lengths of time, fit and update with batches of equal length"
        warn_caller(f"{totals}, but a rate is the expected count of a cell in one batch: {advice}", DataWarning)


def _as_float(cells: int) -> float:
    """A number of cells, which may exceed the range of floats."""
    return float(min(cells, 10**300))


# -- the prior ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The prior of all entries for the new data, including new rows."""

    priors: Mapping[str, Gamma]  # of the free factors: as learned, also for new rows
    posteriors: Mapping[str, Posterior]  # C' and D'
    counts: Factors  # C' - A, the counts
    forget: float


def beliefs(known: Fit, came: Incoming, forget: float) -> Beliefs:
    """The posteriors of a fit, widened and tempered, with rows from the prior for new labels."""
    priors, posteriors, counts = {}, {}, {}
    shapes, scales = known._wide if _is_early(known) else (known.C, known.D)
    for a, indices in known.model.factors.items():
        if a in known.fixed:
            _refuse_new_rows(known, came, a)
            continue
        shape = tuple(came.sizes[i] for i in indices)
        priors[a] = _grown_prior(known, came, a)
        A, B = priors[a].broadcast(shape)
        C, D = A.copy(), B / A
        old = tuple(slice(known.sizes[i]) for i in indices)
        C[old] = (1 - forget) * shapes[a] + forget * A[old]
        D[old] = scales[a] / ((1 - forget) + forget * scales[a] / D[old])  # bit-identical without forgetting
        posteriors[a], counts[a] = Posterior(indices, C, D), C - A
    return Beliefs(priors, posteriors, counts, forget)


def _is_early(known: Fit) -> bool:
    """Whether a fit has seen so few batches that its components are unreliable."""
    return max(len(known.history), 1) <= EARLY


def _refuse_new_rows(known: Fit, came: Incoming, a: str) -> None:
    for index in known.model.factors[a]:
        if came.sizes[index] > known.sizes[index]:
            new = f"the new data have new rows of '{index}'"
            raise PltfError(f"{a} was fixed in the fit, so it has no values for new rows, and {new}")


def _grown_prior(known: Fit, came: Incoming, a: str) -> Gamma:
    """The prior of a factor with new rows; where a value is learned for each row, new rows have the geometric mean."""
    prior, indices = known.priors[a], known.model.factors[a]
    values = {part: np.asarray(getattr(prior, part)) for part in PARTS}
    for axis, index in enumerate(indices):
        more, back = came.sizes[index] - known.sizes[index], axis - len(indices)
        for part, value in values.items():
            if not more or value.ndim < -back or value.shape[back] == 1:
                continue
            if not (part in prior.learns and prior.tie == f"index:{index}"):
                advice = "fit all data at once"
                raise PltfError(f"the prior of {a} differs along '{index}', so new rows have none: {advice}")
            typical = np.exp(np.log(value).mean(axis=back, keepdims=True))
            values[part] = np.concatenate([value, np.repeat(typical, more, axis=back)], axis=back)
    return Gamma(values["shape"], values["mean"], prior.learn, prior.tie)


# -- the fit of a batch-------------------------------------------------------------------------


def learned(known: Fit, came: Incoming, before: Beliefs, options: FitOptions) -> Fit | None:
    """Fit the new data, for the rows that they have; None without observed cells."""
    if not came.n_observed:
        return None
    model = model_of([e for e in known.model.equations if e.output.name in came.seen], known.sizes)
    places = {a: np.ix_(*came.places(indices)) for a, indices in model.factors.items()}
    own = {
        a: Posterior(z.indices, z.shape[places[a]], z.scale[places[a]])
        for a, z in before.posteriors.items()
        if a in places
    }
    counted = {a: _counted(known.model, a, own[a].shape, before.counts[a][places[a]]) for a in own}
    options = replace(
        options,
        method=VB.name,
        prior={a: Gamma(z.shape, np.maximum(z.mean, _TINY)) for a, z in own.items()},
        init=Known(own, counted),
        fixed={a: known.factors[a].mean[places[a]] for a in known.fixed if a in places},
        dtype=known.dtype,
        likelihood=as_option({name: known.likelihoods.get(name, POISSON) for name in came.seen}),
        dispersion=None,
    )
    return fit(model, dict(came.seen), mask=None, options=options)


def _counted(model: Model, a: str, shapes: Array, counts: Array) -> Array:
    """1 for each row of a factor that has counts, else 0.

    Without counts, C' - A is not exactly zero: tempering rounds, and if the shape of the prior was learned, C uses its
    previous value.
    """
    axes = tuple(axis for axis, index in enumerate(model.factors[a]) if index in model.sizes)
    behind, prior = counts.sum(axis=axes, keepdims=True), (shapes - counts).sum(axis=axes, keepdims=True)
    return np.asarray(behind > NEXT_TO_NOTHING * prior, dtype=np.float64)


# -- the updated fit -------------------------------------------------------------------------------


def _merged(known: Fit, came: Incoming, before: Beliefs, today: Fit | None, options: FitOptions) -> Fit:
    merged = replace(
        known,
        **_beliefs_after(known, came, before, today),
        **_outcome(today),
        **_data(known, came, options.keep_data),
        sizes=came.sizes,
        labels=came.labels,
        priors=before.priors,
        spread=1.0 if _is_early(known) else known.spread,  # posteriors are already widened
        dispersion=_dispersion(known, came),
    )
    history = _history(known, came, before.forget, merged)
    merged = replace(merged, history=history, notes=(*_other_notes(known), _note(len(history))))
    samples = _samples(merged, came)
    return with_spread(replace(merged, spread=1.0), samples) if samples else merged


def _beliefs_after(known: Fit, came: Incoming, before: Beliefs, today: Fit | None) -> dict[str, Any]:
    """Posteriors of all rows, and the counts that components explain in all batches."""
    C, D = dict(known.C), dict(known.D)
    for a, z in before.posteriors.items():
        C[a], D[a] = z.shape.copy(), z.scale.copy()
        if today is not None and a in today.C:
            rows = np.ix_(*came.places(z.indices))
            C[a][rows], D[a][rows] = today.C[a], today.D[a]
    mass = {index: (1 - before.forget) * one for index, one in known.mass.items()}
    if today is not None:
        mass = {index: one + today.mass.get(index, 0.0) for index, one in mass.items()}
    return {
        "C": {a: frozen(one) for a, one in C.items()},
        "D": {a: frozen(one) for a, one in D.items()},
        "mass": {index: frozen(one) for index, one in mass.items()},
    }


def _outcome(today: Fit | None) -> dict[str, Any]:
    """Outcome of the fit of the new data. Without data the evidence is 1."""
    if today is None:
        ended: dict[str, Any] = {"bound": 0.0, "converged": True, "stopped": "no cell was observed"}
        row = Row(restart=0, n_iter=1, seconds=0.0, **ended)
        return {**ended, "trace": frozen(np.zeros(1)), "rows": (row,), "best_restart": 0, "pace": FIRST_PACE}
    names = ("bound", "converged", "stopped", "trace", "rows", "best_restart", "seed", "engine", "pace")
    return {name: getattr(today, name) for name in names}


def _data(known: Fit, came: Incoming, keep: bool) -> dict[str, Any]:
    """The record of observed cells of all batches, and their number."""
    patterns: dict[str, Pattern] = {}
    counts = {}
    for name, indices in known.model.observed.items():
        old, new, shape = known.patterns[name], came.seen.get(name), tuple(came.sizes[i] for i in indices)
        pattern = united(old, shape, new, came.places(indices)) if keep else ForgottenPattern(old.unlisted)
        patterns[name] = pattern
        if isinstance(pattern, ForgottenPattern):  # overlap of the cells is unknown
            counts[name] = max(known.n_observed[name], 0 if new is None else new.n_observed)
        else:
            counts[name] = n_observed(pattern)
    return {"patterns": patterns, "n_observed": counts}


def _dispersion(known: Fit, came: Incoming) -> dict[str, Dispersion]:
    """Overdispersion, estimated from the new data before the fit has seen them."""
    places = {name: came.places(known.model.observed[name]) for name in came.seen}
    found = dispersions_in_new(known, came.seen, places)
    return {
        name: one if one.index is None else one.extended(one.index, came.sizes[one.index])
        for name, one in found.items()
    }


def _history(known: Fit, came: Incoming, forget: float, today: Fit) -> tuple[Batch, ...]:
    counts = {name: one.n_observed for name, one in came.seen.items()}
    batch = Batch(today.bound, today.n_iter, today.converged, counts, forget)
    return (*(known.history or (known._batch(),)), batch)


def _note(batches: int) -> str:
    rates = "a rate is the expected count of a cell in one batch"
    return (
        f"learned from {batches} batches of data: {rates}; the bound is that of the last batch, given the earlier ones"
    )


def _other_notes(known: Fit) -> tuple[str, ...]:
    return tuple(note for note in known.notes if note != _note(len(known.history)))


def _samples(merged: Fit, came: Incoming) -> dict[str, Sample]:
    """The new data to estimate the spread of predictions; empty if there are too few, or none for a tensor."""
    samples = {}
    for name, indices in merged.model.observed.items():
        seen = came.seen.get(name)
        if seen is None or seen.n_observed < FEWEST_FOR_SPREAD:
            return {}
        remembered = 0.0
        for batch in merged.history:
            remembered = (1 - batch.forget) * remembered + batch.n_observed.get(name, 0)
        samples[name] = Sample(seen, came.places(indices), remembered / seen.n_observed)
    return samples
