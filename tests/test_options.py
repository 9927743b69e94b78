"""Every option is checked before any work starts, and says which argument, what was expected, what came."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.cli import app
from pltf.errors import OF_DATA
from pltf.inference.methods import METHODS
from pltf.options import DTYPES, IF_SET, FitOptions, _rule
from pltf.selection.course import CRITERIA
from pltf.selection.heldout import SCORES
from pltf.sklearn import PoissonNMF

X = np.random.default_rng(0).poisson(3.0, (4, 3))
MODEL = pltf.nmf(rank=2)
COUPLED = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)


@pytest.fixture(scope="module")
def fitted() -> pltf.Fit:
    return MODEL.fit(X, max_iter=3, tol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mcmc"}, "method must be one of 'vb', 'em', 'map', 'gibbs'; got 'mcmc'"),
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
        ({"device": "gpu"}, "device must be 'cpu', 'cuda', 'cuda:1' .or another number. or 'auto', got 'gpu'"),
        ({"device": 0}, "device must be 'cpu', 'cuda', .*, got 0"),
        ({"device": "mps"}, "device='mps' is not supported: Apple's GPUs have no float64"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"method": np.array(["vb"])}, "method must be one of"),
        ({"dtype": None}, "dtype must be one of"),
        ({"dtype": "f8,,("}, "dtype must be one of"),
        ({"tol": np.complex128(1e-3)}, "tol must be a number from 0 to below 1"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"keep_data": None}, "keep_data must be True or False, got None"),
        ({"every": -1}, "every must be a number of seconds of at least 0, got -1"),
        ({"resume": 1}, "resume must be True or False, got 1"),
        ({"checkpoint": 3}, "checkpoint must be a file name, got 3"),
        ({"accelerate": 1}, "accelerate must be True or False, got 1"),
        ({"init": {"W": [[1, 2], [3]]}}, r"init\['W'\]: expected a numeric array, got list"),
        ({"fixed": {"W": np.ma.masked_equal(np.ones((4, 2)), 1)}}, r"fixed\['W'\] must not have masked entries"),
        ({"callback": 3}, "callback must be a function that takes a pltf.Sweep, got int"),
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
            "method='em' has no prior: omit prior, or use method='vb'",
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
    with pytest.raises(pltf.PltfError, match=message) as refused:
        MODEL.fit(X, **options)
    assert refused.value.argument in options


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
    message = "some positive counts have rate zero under the given start values and fixed factors"
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


# -- one home -----------------------------------------------------------------------------------

DEFAULTS = {one.name: one.default for one in fields(FitOptions)}


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a function that have a default."""
    parameters = inspect.signature(function).parameters.items()
    return {name: one.default for name, one in parameters if one.default is not one.empty}


def test_arguments_of_the_data_are_those_of_observe() -> None:
    parameters = inspect.signature(pltf.observe).parameters.values()
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    assert sorted(named) == sorted([*OF_DATA, "name"])


@pytest.mark.parametrize("function", [MODEL.fit, MODEL.plan, partial(pltf.select, MODEL)])
def test_arguments_of_the_data_are_for_observe(function: Callable[..., Any]) -> None:
    with pytest.raises(pltf.PltfError) as error:
        function(X, value="n", unlisted="missing")
    written = "pltf.observe(data, dims=['i', 'j'], value='n', unlisted='missing')"
    assert str(error.value) == f"value describes the data: pass {written} instead of data"
    assert error.value.argument == "value"


def test_a_fit_has_all_options_in_their_order() -> None:
    assert defaults(pltf.Model.fit) == {"mask": None, **DEFAULTS}
    assert ["mask", *DEFAULTS] == list(defaults(pltf.Model.fit))


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (pltf.Model.plan, {"mask": None}),
        (pltf.Fit.fold_in, {"mask": None}),
        (pltf.Fit.update, {"mask": None, "forget": 0.0, "append": (), "zeros": ()}),
        (
            pltf.select,
            {
                **{"mask": None, "race": None, "workers": None, "restarts": 10},
                **{"criterion": "auto", "folds": 5, "score": "log_likelihood", "widen": False},
            },
        ),
    ],
)
def test_defaults_are_those_of_a_fit(function: Callable[..., Any], others: dict[str, Any]) -> None:
    for name, default in defaults(function).items():
        assert default == (others[name] if name in others else DEFAULTS[name]), name


def test_defaults_of_the_estimator_are_those_of_a_fit() -> None:
    names = {"max_iter": "max_iter", "tol": "tol", "n_init": "restarts"}
    estimator = defaults(PoissonNMF.__init__)
    assert {ours: estimator[ours] for ours in names} == {ours: DEFAULTS[option] for ours, option in names.items()}


def test_defaults_of_the_command_line_are_those_of_a_fit() -> None:
    of_search = defaults(pltf.select)
    for command in (app.fit, app.select, app.plan):
        for name, default in defaults(command).items():
            expected = of_search.get(name) if command is app.select else DEFAULTS.get(name)
            if name in DEFAULTS or name in ("criterion", "folds", "score", "widen"):
                assert default == expected, name


def test_choices_of_the_command_line_are_those_of_a_fit() -> None:
    assert tuple(app.MethodName) == tuple(METHODS)
    assert tuple(app.DtypeName) == DTYPES
    assert tuple(app.CriterionName) == CRITERIA
    assert tuple(app.ScoreName) == SCORES


class Recorded(Exception):
    """Raised instead of going on."""


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options with which FitOptions is made, which goes no further."""
    found: dict[str, Any] = {}

    def record(_: FitOptions, **options: Any) -> None:
        found.update(options)
        raise Recorded

    monkeypatch.setattr(FitOptions, "__init__", record)
    return found


def test_every_option_is_handed_on(fitted: pltf.Fit, recorded: dict[str, Any]) -> None:
    of_search = {
        "prior",
        "race",
        "workers",
        "criterion",
        "folds",
        "score",
        "widen",
    }  # each candidate has a prior of its own
    calls: tuple[tuple[Callable[..., Any], tuple[Any, ...], set[str]], ...] = (
        (pltf.Model.fit, (MODEL, X), set()),
        (pltf.Model.plan, (MODEL, X), set()),
        (pltf.Fit.fold_in, (fitted, X, "i"), set()),
        (pltf.Fit.update, (fitted, X), {"forget", "append", "zeros"}),
        (pltf.select, (MODEL, X), of_search),
    )
    for function, arguments, others in calls:
        given = {name: f"a {name}" for name in defaults(function) if name != "mask" and name not in others}
        recorded.clear()
        with pytest.raises(Recorded):
            function(*arguments, **given)
        assert recorded == given | ({"prior": None} if function is pltf.select else {})


def test_a_new_option_is_one_line() -> None:
    @dataclass(frozen=True, eq=False, kw_only=True)
    class More(FitOptions):
        likelihood: str = field(default="poisson", metadata=_rule(same=IF_SET, told=True))

    assert More().identity() == FitOptions().identity()  # so earlier checkpoints can be resumed
    assert More(likelihood="gauss").identity() == {**FitOptions().identity(), "likelihood": "gauss"}
    assert More(likelihood="gauss").as_code() == {"likelihood": "'gauss'"}


def test_text_as_python() -> None:
    arrays = pltf.Gamma(np.ones(2), 1.0)
    told = FitOptions(
        prior={"W": pltf.Gamma(0.5, 1.0)}, init={"W": X}, fixed={"H": X}, engine="dense", accelerate=False, tol=0
    )
    assert told.as_code() == {
        "prior": "{'W': pltf.Gamma(shape=0.5, mean=1.0)}",
        "tol": "0.0",
        "init": "init",
        "fixed": "fixed",
        "engine": "'dense'",
        "accelerate": "False",
    }
    assert FitOptions(prior=arrays).as_code() == {"prior": "prior"}
    assert FitOptions(seed=7, restarts=3, method="em", dtype=np.float32).as_code() == {}
    assert FitOptions(keep_data=False).as_code() == {"keep_data": "False"}


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"^fit has no argument 'restart'; did you mean 'restarts'\?"):
        MODEL.fit(X, restart=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mcmc"}, "method must be"),
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
