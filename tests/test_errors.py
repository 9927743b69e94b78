"""Errors and warnings know the argument they are about, and can be spelled for those who write no Python."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable

import pytest

import pltf
from pltf.errors import Sentence, choice, flag, py, py_only, spelled, whole


def shout(code: str) -> str:
    """Another spelling."""
    return f"--{code.upper()}"


def test_sentences_read_as_python_and_can_be_spelled() -> None:
    value = "{tol}"
    error = pltf.PltfError(f"{py:tol} must be small{py_only: or None}, got {value!r}: use {py:tol={1e-3!r}}")
    assert str(error) == "tol must be small or None, got '{tol}': use tol=0.001"
    assert error.spelled(shout) == "--TOL must be small, got '{tol}': use --TOL=0.001"
    assert error.argument == "tol"


@pytest.mark.parametrize(
    ("marked", "argument"),
    [
        (f"{py:tol} must be small", "tol"),
        (f"X is too large: use {py:dtype='float64'}, not {py:engine}", "dtype"),
        (f"{py:init['U']} must be an array", "init"),
        (f"{py:Gamma: shape} must be positive", "shape"),
        (f"{py:row 3} has no {py:value}", "value"),
        (f"see {py:model.plan(X)}{py_only: or tol}", None),
        ("there is no file", None),
    ],
)
def test_the_argument_is_the_first_that_a_sentence_names(marked: str, argument: str | None) -> None:
    assert pltf.PltfError(marked).argument == argument


def test_the_argument_can_be_told() -> None:
    assert pltf.PltfError(f"{py:method='em'} has no prior", argument="prior").argument == "prior"


@pytest.mark.parametrize(
    "error",
    [
        pltf.PltfError(f"{py:tol} must be small"),
        pltf.ObservationError(f"{py:mask} must be boolean", argument="X"),
        pltf.EngineError("no such engine"),
        pltf.NotationError("unexpected character", "X[i] = ?", 7),
        pltf.ConvergenceWarning(f"raise {py:max_iter}"),
    ],
)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_pickling(error: Sentence, again: Callable[[Sentence], Sentence]) -> None:
    other = again(error)
    assert type(other) is type(error)
    assert (str(other), other.argument, other.marked) == (str(error), error.argument, error.marked)
    assert other.spelled(shout) == error.spelled(shout)


def test_warnings_are_sentences_too() -> None:
    with pytest.warns(pltf.ConvergenceWarning, match=r"^raise max_iter$") as told:
        warnings.warn(f"raise {py:max_iter}", pltf.ConvergenceWarning, stacklevel=1)
    assert isinstance(told[0].message, pltf.ConvergenceWarning)
    assert told[0].message.spelled(shout) == "raise --MAX_ITER"


def test_checks_name_their_argument() -> None:
    for check in (lambda: whole("n", 0, 1), lambda: flag("n", 2), lambda: choice("n", "z", ("a", "b"))):
        with pytest.raises(pltf.PltfError, match=r"^n must be") as refused:
            check()
        assert refused.value.argument == "n"


def test_a_model_text_is_an_argument_and_shown_as_it_is() -> None:
    with pytest.raises(pltf.NotationError) as refused:
        pltf.Model("X[i] = A[i,r] * {tol}", r=1)
    assert refused.value.argument == "text"
    assert "{tol}" in str(refused.value)


def test_a_sentence_without_marks_is_not_changed() -> None:
    assert spelled("got {py:tol} and `tol`", shout) == "got {py:tol} and `tol`"
