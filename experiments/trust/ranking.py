"""Why a singular value decomposition of log(1+x) ranks pixels better than a factorization of counts.

Every row changes one thing: the values, whether parts may be negative, how many restarts are averaged, whether the
absence of ink is data too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import pltf
from experiments.common import Array, Json, console, quietly
from experiments.formatting import page, percent, pm, prose, table
from experiments.trust import ours, sets
from experiments.trust.peers import SHRINKAGE, soft_impute
from experiments.trust.store import Store, complete
from experiments.trust.tasks import Task, task

LEVEL = 0.2
STARTS = 4
SWEEPS = 300
RANKS = {"digits": 16, "Reuters": 24}
Score = Callable[[Task, int], Array]  # from a task and a rank to a number for every cell


def run(store: Store, quick: bool, masks: int) -> Json:
    """AUC and average precision of every row, on several masks."""
    some = [one for one in (sets.SMALL[:-1] if quick else sets.SETS) if one.name in RANKS]
    rows = []
    for one in some:
        try:
            X = one.load()
        except ImportError as error:
            console.print(f"  {one.name} is left out: {error}")
            continue
        names = [name for name in LINES if one.name in ONLY.get(name, RANKS) and (not quick or name in QUICK_LINES)]
        keys = [(name, mask) for name in names for mask in range(masks)]
        found = dict(complete(store.part(one.name), one.name, partial(ranked, one.name, X), keys))
        rows += [
            {"set": one.name, "line": name, "masks": done}
            for name in names
            if (done := [found[name, mask] for mask in range(masks) if (name, mask) in found])
        ]
    return {"rows": rows}


def ranked(name: str, X: Array, line: str, mask: int) -> Json:
    """One row on one mask."""
    outer = task(X, LEVEL, mask)
    score = LINES[line](outer, RANKS[name])[outer.hidden]
    above = outer.asked > 0
    return {"auc": float(roc_auc_score(above, score)), "ap": float(average_precision_score(above, score))}


def _svd(outer: Task, _: int, *, of: Callable[[Array], Array]) -> Array:
    """Soft-imputed SVD with the shrinkage that predicts held-back cells best."""
    Y, inner = of(outer.X), outer.inner()[0]
    errors = [np.mean((soft_impute(Y, inner.keep, one) - Y)[inner.hidden] ** 2) for one in SHRINKAGE]
    return soft_impute(Y, outer.keep, SHRINKAGE[int(np.argmin(errors))])


def _non_negative(outer: Task, rank: int, *, starts: int) -> Array:
    """The same squared error of log(1+x), with non-negative parts."""
    Y, keep = np.log1p(outer.X), outer.keep.astype(np.float64)
    scores = []
    for start in range(starts):
        rng = np.random.default_rng([outer.seed, start])
        W, H = (rng.random(shape) * np.sqrt(Y.mean() / rank) * 2 for shape in ((len(Y), rank), (rank, Y.shape[1])))
        for _ in range(SWEEPS):
            W *= (keep * Y) @ H.T / ((keep * (W @ H)) @ H.T + 1e-9)
            H *= W.T @ (keep * Y) / (W.T @ (keep * (W @ H)) + 1e-9)
        scores.append(W @ H)
    return np.asarray(np.mean(scores, axis=0))


def _counts(outer: Task, rank: int, *, starts: int) -> Array:
    """pltf with variational Bayes."""
    return np.asarray(np.mean([_means(outer.X, outer.keep, rank, start) for start in range(starts)], axis=0))


def _two_sided(outer: Task, rank: int, *, starts: int) -> Array:
    """pltf on ink and on missing ink (up to a full pixel), side by side: the share of ink."""
    X, keep = np.concatenate([outer.X, outer.X.max() - outer.X], axis=1), np.tile(outer.keep, 2)
    shares = []
    for start in range(starts):
        ink, paper = np.split(_means(X, keep, rank, start), 2, axis=1)
        shares.append(ink / (ink + paper))
    return np.asarray(np.mean(shares, axis=0))


def _means(X: Array, keep: Array, rank: int, start: int) -> Array:
    with quietly():
        fit = pltf.nmf(rank=rank).fit(
            X, mask=keep, seed=start, max_iter=ours.MAX_ITER, tol=ours.TOL, threads=1, progress=False
        )
    return fit.mean()


LINES: dict[str, Score] = {
    "SVD of log(1+x)": partial(_svd, of=np.log1p),
    "SVD of x": partial(_svd, of=np.asarray),
    "SVD of x > 0": partial(_svd, of=lambda x: (x > 0).astype(np.float64)),
    "non-negative parts of log(1+x)": partial(_non_negative, starts=1),
    "non-negative parts of log(1+x), 4 starts averaged": partial(_non_negative, starts=STARTS),
    "pltf": partial(_counts, starts=1),
    "pltf, 4 starts averaged": partial(_counts, starts=STARTS),
    "pltf on ink and paper": partial(_two_sided, starts=1),
    "pltf on ink and paper, 4 starts averaged": partial(_two_sided, starts=STARTS),
}
ONLY = {name: ("digits",) for name in LINES if "paper" in name}  # only ink has a maximum
QUICK_LINES = ("SVD of log(1+x)", "pltf")


def tell(found: Json) -> str:
    """The section of the page."""
    lines = [
        (row["set"], row["line"], *(pm([mask[measure] for mask in row["masks"]]) for measure in ("auc", "ap")))
        for row in found["rows"]
    ]
    return page(
        prose(f"""
            Ranking cells by whether they are above zero does not need a model of counts. A soft-imputed singular value
            decomposition (SVD) of log(1+x) ranks the pixels of digits better than pltf. Why? Each row of this table
            changes one thing. {percent(LEVEL)} of the cells are hidden; there are {RANKS["digits"]} components on
            digits and {RANKS["Reuters"]} on Reuters; the table shows the mean ± standard deviation over the masks.
            Statements below about things that are not in the table are based on trials on a single mask.
            """),
        table(("set", "what ranks the cells", "AUC", "average precision"), lines),
        "\n".join(FINDINGS),
        prose("""
            For the best ranking, average fits from several random starts. This costs as many fits, and gives better
            probabilities too:
            """),
        RECIPE,
        prose("Use another tool"),
        "\n".join(ELSEWHERE),
        prose("""
            Use pltf for counts and links with any number of modes and with missing cells, if the probability of each
            count matters and not only the order of the cells.
            """),
    )


FINDINGS = (
    "- **A single fit relies on one of many decompositions.** Different starts end at different components that are"
    " about equally good, and the ELBO cannot tell which of them predict better. Their average ranks better than any"
    " one of them. One chain of a Gibbs sampler stays near its start and gains less, and so does a larger number of"
    " components. The SVD has a single solution, and its shrinkage is chosen on held-back cells.",
    "- **Non-negative parts** explain the difference between the SVD and the average of non-negative decompositions"
    " of the same log(1+x). A stroke at one place can mean no stroke at another, and a sum of non-negative parts"
    " cannot express that. Every model of counts has this limit.",
    "- **The logarithm** reduces the weight of full pixels, whose values are bounded and vary less than counts of"
    " that size would.",
    "- **Neither the likelihood nor the prior.** Fits to rounded logarithms, to values divided by 4 or 16, and to"
    " links (x > 0) rank digits no better than fits to the values. P(x > 0) instead of the mean does not help either,"
    " and learned or smaller shapes rank worse. Dispersion changes intervals and log-likelihood, not the order of the"
    " cells.",
    '- **Bounded values.** If the ink of a pixel and the ink missing to a full pixel are fitted side by side ("ink'
    ' and paper"), absence becomes evidence. This helps a single fit, and adds little to an average of starts.',
)
RECIPE = """```python
import numpy as np
import pltf

X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2, 7], [3, 0.1, 1, 0.5]))
mask = pltf.holdout(X, 0.3, seed=1)
fits = [pltf.nmf(rank=2).fit(X, mask=mask, seed=seed) for seed in range(4)]
prob = np.mean([fit.prob(at=~mask) for fit in fits], axis=0)  # rank by this
```"""
ELSEWHERE = (
    "- if only the order of cells matters, values are bounded, and everything is observed in one table, as with"
    " pixels: an SVD of log(1+x), or a model of images;",
    "- if values can be negative, or are measurements and not counts: PCA, or a Gaussian factorization;",
    "- if there is no structure beyond busy rows and columns: popularity (`pltf.metrics.popularity`), which every"
    " score shows next to the fit.",
)
