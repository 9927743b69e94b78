"""The state of a fit stays on the device: a sweep copies back the objective, and little else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pltf
from pltf.devices import INTERPRETED, PLAIN
from pltf.inference.algebra.on_device import DeviceAlgebra
from tests.extras import TORCH
from tests.interpreter import quicken
from tests.on_device import NAMES, ON_GPU
from tests.test_devices import COUPLED, CP, CUBE, NMF, TABLE, TUCKER, TWO, Problem, fitted, listed, with_holes

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)
if not ON_GPU:
    quicken()

from tests.copies import Copies

FIXED = pltf.Gamma(0.5, 2.0)  # a prior that learns nothing
PLAIN_SWEEPS = {
    "cp": Problem(CP, CUBE),
    "cp with holes": Problem(CP, with_holes(CUBE)),
    "cp in float32": Problem(CP, CUBE, {"dtype": "float32"}),
    "cp, listed": Problem(CP, listed(CUBE)),
    "cp, listed, in float32": Problem(CP, listed(CUBE), {"dtype": "float32"}),
    "cp, missing unlisted": Problem(CP, listed(CUBE, unlisted="missing")),
    "tucker, listed": Problem(TUCKER, listed(TABLE[:, :, None] + np.ones(2)), {"engine": "sparse"}),
    "tucker, missing unlisted": Problem(TUCKER, listed(TABLE[:, :, None], unlisted="missing"), {"dtype": "float32"}),
    "coupled": Problem(COUPLED, TWO),
    "links": Problem(CP, (CUBE > 0).astype(int), {"likelihood": "bernoulli"}),
    "arrays as priors": Problem(NMF, TABLE, {"prior": {"W": pltf.Gamma(np.full((8, 1), 0.5), 2.0), "H": FIXED}}),
    "em": Problem(NMF, with_holes(TABLE), {"method": "em"}),
    "map": Problem(NMF, TABLE, {"method": "map"}),
}
# The interpreter takes milliseconds for each program.
INTERPRETED_TOO = ("cp in float32", "cp, listed, in float32", "tucker, listed", "tucker, missing unlisted")


def copies(problem: Problem, device: str, **options: Any) -> tuple[int, int]:
    """From the device and to it, in four sweeps: what a fit of six copies more than one of two."""
    found = []
    for sweeps in (2, 6):
        with Copies() as seen:
            fit = fitted(problem, device=device, max_iter=sweeps, **options)
        assert fit.n_iter == sweeps
        found.append((seen.to_host.total(), seen.from_host.total()))
    (few_back, few_there), (back, there) = found
    return back - few_back, there - few_there


CASES = [
    (name, device) for name in PLAIN_SWEEPS for device in NAMES if device != INTERPRETED or name in INTERPRETED_TOO
]


@pytest.mark.parametrize(("name", "device"), CASES)
def test_a_plain_sweep_copies_back_the_objective_alone(name: str, device: str) -> None:
    problem = PLAIN_SWEEPS[name]
    prior = {} if "prior" in problem.options or name in ("em", "map") else {"prior": FIXED}
    assert copies(problem, device, accelerate=False, **prior) == (4, 0)


@pytest.mark.parametrize("tie", ["factor", "component", "index:i"])
def test_learned_means_stay_on_the_device(tie: str) -> None:
    prior = {"W": pltf.Gamma(learn="mean", tie=tie), "H": FIXED}
    assert copies(Problem(NMF, TABLE), NAMES[-1], accelerate=False, prior=prior) == (4, 0)


def test_maximum_posteriors_of_small_shapes_copy_the_number_of_zeros_too() -> None:
    problem = Problem(NMF, TABLE, {"method": "map", "prior": FIXED})
    assert copies(problem, NAMES[0], accelerate=False) == (8, 0)


@pytest.mark.parametrize("device", NAMES)
def test_a_trade_of_scale_copies_nothing_where_there_are_kernels(device: str) -> None:
    """Elsewhere it is one copy each way along r, whatever the number of factors."""
    assert copies(Problem(CP, CUBE), device, prior=FIXED) == ((4 + 4, 4) if device == PLAIN else (4, 0))


@pytest.mark.parametrize("device", [name for name in NAMES if name != INTERPRETED])
def test_a_quasi_newton_step_is_one_copy_more(device: str) -> None:
    """The inner products of the last steps; coefficients go back where kernels take them."""
    problem = Problem(NMF, TABLE, {"prior": FIXED, "tol": 1e-12, "max_iter": 400})
    with Copies() as seen:
        fit = fitted(problem, device=device, max_iter=400)
    assert seen.to_host.total() < 5 * fit.n_iter + 40


def test_a_sum_of_holes_is_looked_at_for_each_factor() -> None:
    """Whether digits are left of the difference from all cells."""
    problem = Problem(CP, listed(CUBE, missing=np.argwhere(CUBE == 0)[::3]))
    assert copies(problem, NAMES[0], prior=FIXED, accelerate=False) == (4 + 4 * 3, 0)


def test_chains_stay_on_the_device_until_a_draw_is_kept() -> None:
    """Beside log-likelihoods go the seeds of draws, and sums for the trade of scale."""
    options: dict[str, Any] = {"method": "gibbs", "chains": 1, "draws": 4, "prior": FIXED, "thin": 2}

    def many(burn_in: int) -> int:
        with Copies() as seen, np.errstate(all="ignore"), pytest.warns(pltf.ConvergenceWarning):
            fitted(Problem(NMF, TABLE), device=NAMES[0], burn_in=burn_in, **options)
        return int(seen.to_host.total())

    assert many(7) - many(3) == 4 * (1 + 2)  # of each sweep the log-likelihood, and what two factors have along r


@pytest.mark.parametrize("name", ["cp", "em"])
def test_the_end_of_a_fit_copies_nothing_to_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, put = list[tuple[int, ...]](), DeviceAlgebra.put

    def counted(self: DeviceAlgebra, host: Any) -> Any:
        copied.append(host.shape)
        return put(self, host)

    monkeypatch.setattr(DeviceAlgebra, "put", counted)
    begun = []
    fitted(PLAIN_SWEEPS[name], device=NAMES[0], max_iter=2, callback=lambda _: begun.append(len(copied)))
    assert 0 < begun[-1] == len(copied)
