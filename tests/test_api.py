"""Every option is checked before any work starts, and says which argument, what was expected, what came."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import pltf
from pltf import api

X = np.random.default_rng(0).poisson(3.0, (4, 3))
MODEL = pltf.nmf(rank=2)
COUPLED = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)


@pytest.fixture(scope="module")
def fitted() -> pltf.Fit:
    return MODEL.fit(X, max_iter=3, tol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gibbs"}, "method must be one of 'vb', 'em', 'map'; got 'gibbs'"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
        ({"max_iter": 2.5}, "max_iter must be a whole number of at least 1, got 2.5"),
        ({"tol": -1}, "tol must be a number from 0 to below 1, got -1"),
        ({"tol": float("nan")}, "tol must be a number from 0 to below 1, got nan"),
        ({"tol": "small"}, "tol must be a number from 0 to below 1, got 'small'"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number of at least 0, got 1.5"),
        ({"dtype": "int32"}, "dtype must be one of 'float64', 'float32'; got 'int32'"),
        ({"dtype": "nonsense"}, "dtype must be one of 'float64', 'float32'; got 'nonsense'"),
        ({"engine": "gpu"}, "engine must be one of 'auto', 'dense', 'sparse'; got 'gpu'"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"method": np.array(["vb"])}, "method must be one of"),
        ({"dtype": None}, "dtype must be one of"),
        ({"dtype": "f8,,("}, "dtype must be one of"),
        ({"tol": np.complex128(1e-3)}, "tol must be a number from 0 to below 1"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"accelerate": 1}, "accelerate must be True or False, got 1"),
        ({"init": {"W": [[1, 2], [3]]}}, r"init\['W'\]: expected a numeric array, got list"),
        ({"fixed": {"W": np.ma.masked_equal(np.ones((4, 2)), 1)}}, r"fixed\['W'\] must not have masked entries"),
        ({"callback": 3}, "callback must be a function of a sweep, got int"),
        ({"init": "zeros"}, "init must be one of 'prior', 'random'; got 'zeros'"),
        ({"init": 3}, "init must be a mapping from factor to array, got int"),
        ({"init": {"W": np.ones((4, 2))}}, "init has no array for factor H"),
        ({"init": {"Q": np.ones((4, 2))}}, "init names 'Q', but the factors of the model are W, H"),
        ({"init": {"W": np.ones((3, 2))}}, r"init\['W'\] must have shape \(4, 2\) \(i=4, r=2\), got \(3, 2\)"),
        ({"init": {"W": -np.ones((4, 2))}}, r"init\['W'\] must be finite and not negative"),
        ({"init": {"W": np.full((4, 2), "a")}}, r"init\['W'\]: expected real or integer numbers, got dtype <U1"),
        ({"fixed": {"W": np.ones((4, 2)), "H": np.ones((2, 3))}}, "fixed names every factor: nothing is left to learn"),
        ({"fixed": {"V": np.ones((4, 2))}}, "fixed names 'V', but the factors of the model are W, H"),
        ({"fixed": {"W": np.full((4, 2), np.nan)}}, r"fixed\['W'\] must be finite and not negative"),
        ({"fixed": [1]}, "fixed must be a mapping from factor to array, got list"),
        ({"prior": 3}, "prior must be a Gamma or a mapping from factor to Gamma, got int"),
        ({"prior": {"Q": pltf.Gamma()}}, "prior names 'Q', but the factors of the model are W, H"),
        ({"prior": {"W": 0.5}}, r"prior\['W'\] must be a Gamma, got float"),
        ({"prior": pltf.Gamma(np.ones(5))}, r"prior of W must broadcast to \(4, 2\), got \(5,\)"),
        (
            {"prior": pltf.Gamma(), "method": "em"},
            "method='em' has no prior, and none to learn: leave prior out, or use method='vb'",
        ),
        (
            {"prior": {"W": pltf.Gamma()}, "fixed": {"W": np.ones((4, 2))}},
            "prior names 'W', which is fixed and takes no prior",
        ),
        ({"mask": np.ones((2, 2), dtype=bool)}, r"mask must have the shape of X, \(4, 3\); got \(2, 2\)"),
        ({"mask": {"Q": np.ones((4, 3), dtype=bool)}}, "unknown tensor 'Q' in mask: the model has X"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        MODEL.fit(X, **options)


def test_refused_data_of_coupled_models() -> None:
    with pytest.raises(
        pltf.PltfError, match="the data must be a mapping from tensor to array, with X and Y; got ndarray"
    ):
        COUPLED.fit(X)
    with pytest.raises(
        pltf.PltfError, match="the data must have an array for every tensor of the model, but Y is absent"
    ):
        COUPLED.fit({"X": X})
    with pytest.raises(pltf.PltfError, match="unknown tensor 'Z' in the data: the model has X, Y"):
        COUPLED.fit({"X": X, "Y": np.ones((3, 5)), "Z": X})
    with pytest.raises(pltf.PltfError, match="Y: observed values must be >= 0"):
        COUPLED.fit({"X": X, "Y": -np.ones((3, 5))})


def test_masks_of_coupled_models_may_be_given_for_some() -> None:
    mask = np.random.default_rng(0).random(X.shape) < 0.5
    fit = COUPLED.fit({"X": X, "Y": np.ones((3, 5))}, mask={"X": mask}, max_iter=2, tol=0)
    assert dict(fit.n_observed) == {"X": int(mask.sum()), "Y": 15}


def test_init_and_fixed_do_not_mix() -> None:
    W, H = np.ones((4, 2)), np.ones((2, 3))
    with pytest.raises(pltf.PltfError, match="init names 'W', which is fixed"):
        MODEL.fit(X, init={"W": W, "H": H}, fixed={"W": W})


def test_refused_options_made_of_a_fit(fitted: pltf.Fit) -> None:
    with pytest.raises(pltf.PltfError, match=r"fixed\['W'\] must be an array, got a Posterior: pass its .mean"):
        MODEL.fit(X, fixed={"W": fitted.factors["W"]})
    with pytest.raises(pltf.PltfError, match="restarts must be 1 when init gives the starting point, got 2"):
        MODEL.fit(X, init=fitted, restarts=2)


def test_init_must_be_a_fit_of_the_same_thing(fitted: pltf.Fit) -> None:
    with pytest.raises(pltf.PltfError, match="init must be a fit of the same model, got a fit of Model"):
        pltf.nmf(rank=3).fit(X, init=fitted)
    with pytest.raises(pltf.PltfError, match="index 'i' is 5 in the data and 4 in init"):
        MODEL.fit(np.ones((5, 3)), init=fitted)


def test_a_start_or_a_fixed_factor_that_forbids_a_count_is_refused() -> None:
    W = np.array([[0.0, 0.0], [1, 1], [1, 1], [1, 1]])
    message = "a positive count has rate zero under these starting and fixed factors"
    with pytest.raises(pltf.PltfError, match=message):
        MODEL.fit(X + 1, init={"W": W, "H": np.ones((2, 3))})
    with pytest.raises(pltf.PltfError, match=message):
        MODEL.fit(X + 1, fixed={"W": W})


def test_arrays_given_are_copied() -> None:
    init = {"W": np.ones((4, 2)), "H": np.full((2, 3), 2.0)}
    first = MODEL.fit(X, init=init, max_iter=2, tol=0)
    for array in init.values():
        assert array.flags.writeable
        array[:] = 7
    assert first.trace[0] != MODEL.fit(X, init=init, max_iter=2, tol=0).trace[0]


def test_a_prior_for_one_factor_leaves_the_default_for_the_others() -> None:
    strong = {"W": pltf.Gamma(5.0, 1.0)}
    default = pltf.Gamma(0.5, 10.0, learn="mean")
    explicit = {**strong, "H": default}
    one, both = (MODEL.fit(X, prior=prior, max_iter=3, tol=0) for prior in (strong, explicit))
    np.testing.assert_array_equal(one.trace, both.trace)
    one, both = (MODEL.fit(X, prior=prior, max_iter=3, tol=0) for prior in (None, default))
    np.testing.assert_array_equal(one.trace, both.trace)


def test_model_fit_forwards_every_argument() -> None:
    for ours, theirs in ((pltf.Model.fit, api.fit), (pltf.Model.plan, api.plan), (pltf.Fit.fold_in, api.fold_in)):
        behind = [name for name in inspect.signature(theirs).parameters if not name.startswith("_")]
        assert list(inspect.signature(ours).parameters)[1:] == behind[1:]


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'restart'"):
        MODEL.fit(X, restart=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gibbs"}, "method must be"),
        ({"dtype": "int8"}, "dtype must be"),
        ({"engine": "gpu"}, "engine must be"),
        ({"threads": 0}, "threads must be"),
        ({"prior": {"Q": pltf.Gamma()}}, "prior names"),
        ({"fixed": {"Q": np.ones(3)}}, "fixed names"),
        ({"init": {"W": np.ones((4, 2))}}, "init has no array"),
        ({}, "X: observed values must be >= 0"),
    ],
)
def test_options_are_checked_before_the_data_are_read(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        MODEL.fit(-np.ones((4, 3)), **options)
