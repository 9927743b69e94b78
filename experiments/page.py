"""The page, written from the existing results."""

from __future__ import annotations

from pathlib import Path

from experiments.claims import CLAIMS, Told
from experiments.formatting import page, prose, table
from experiments.further import FURTHER
from experiments.results import Saved
from experiments.settings import MAX_ITER, TOL


def write(saved: Saved, path: Path) -> None:
    """Write the page."""
    told = {
        title: tell(saved) if part in saved else Told("Not run", _missing(part), "")
        for title, (tell, part) in CLAIMS.items()
    }
    sections = [f"## {title}\n\n**{one.verdict}.** {one.line}\n\n{one.body}" for title, one in told.items()]
    sections += [
        f"## {title}\n\n{tell(saved) if part in saved else _missing(part)}" for title, (tell, part) in FURTHER.items()
    ]
    overview = table(("claim", "verdict", "here"), [(title, one.verdict, one.line) for title, one in told.items()])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(_opening(saved), overview, *sections, _again(saved)) + "\n", encoding="utf-8")


def _opening(saved: Saved) -> str:
    quick = any(found["settings"]["quick"] for found in saved.values())
    warning = "> **A quick run**, to test that everything works: few runs, small grids. Its numbers mean nothing."
    return page(
        "# The experiments of the paper, rerun",
        warning if quick else "",
        prose(f"""
            Ermiş, Yılmaz, Cemgil and Acar, *Variational Inference for Probabilistic Latent Tensor Factorization with KL
            Divergence* (arXiv:1409.8083), report experiments that support six claims. This page compares each claim
            with what pltf finds. `python -m experiments` writes the page, including the verdicts, from its results.

            Unless stated otherwise, there are {_setting(saved, "runs")} runs, each with its own draw of the data or its
            own mask. The prior is the fixed prior of the paper, `pltf.Gamma(0.5, 10)`. VB and EM both take at most
            {MAX_ITER} iterations with `tol={TOL:g}`, and the best of {_setting(saved, "restarts")} random starts is
            used, by the ELBO (VB) or the likelihood (EM). Tables show means over the runs ± their standard deviation.
            Differences are computed on the same masks, with their standard error in parentheses, and count as
            differences if they are larger than two standard errors. All masks hide cells of the same data, so this
            shows how certain a difference is on UCLAF, and nothing about other data. AUC is the area under the ROC
            curve of the hidden cells. *Popularity* is the product-of-marginals baseline, without any factorization: the
            activity of each user, location and activity in the observed cells, multiplied.
            """),
    )


def _again(saved: Saved) -> str:
    rows = [
        (name, f"{found['seconds'] / 60:.1f}", f"{found['fits']:,}", f"{found['unconverged']:,}")
        for name, found in saved.items()
    ]
    total = sum(found["seconds"] for found in saved.values())
    at = next((found["machine"] for found in saved.values()), {"cpu": "nothing", "cores": 0})
    return page(
        "## Run it again",
        "    make paper            # everything, into docs/\n"
        "    make paper QUICK=1    # a small part of everything, into paper-output/",
        prose(f"""
            `python -m experiments --only side` runs one part again; `--only page` writes figures and page from the
            results in `paper-output/`. The results of this page took {total / 60:.0f} minutes on {at["cpu"]},
            {at["cores"]} cores:
            """),
        table(("part", "minutes", "fits", f"not converged after {MAX_ITER} iterations"), rows),
        prose("""
            A fit is a single start; starts that were dropped during a search count too. `experiments/` has one module
            for each part.
            """),
    )


def _setting(saved: Saved, name: str) -> str:
    return " or ".join(dict.fromkeys(str(found["settings"][name]) for found in saved.values())) or "no"


def _missing(part: str) -> str:
    return f"There are no results yet: `python -m experiments --only {part}`."
