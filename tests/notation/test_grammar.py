"""Reading model texts, and saying where they are wrong."""

from __future__ import annotations

import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.notation.grammar import Equation, parse

SAME = "X[i,j,k] = A[i,r] * B[j,r] * C[k,r]"


@pytest.mark.parametrize(
    "text",
    [
        "X[i,j,k]=A[i,r]*B[j,r]*C[k,r]",
        "X[i,j,k] = A[i,r] B[j,r] C[k,r]",
        "  X[ i , j,k ] =\n  A[i,r] *\n  B[j,r]\n  * C[k,r]  \n\n",
        "\n\nX[i,j,k] = A[i,\nr] * B[j,r] * C[k,r]",
    ],
)
def test_spaces_stars_and_broken_lines(text: str) -> None:
    assert parse(text) == parse(SAME)


def test_shorthand_names_factors_and_tensor() -> None:
    (equation,) = parse(" ir, jr ,kr -> ijk ")
    assert str(equation) == "X[i,j,k] = Z1[i,r] * Z2[j,r] * Z3[k,r]"


def test_long_names_and_other_alphabets() -> None:
    (equation,) = parse("Größe[user_1,place] = λ[user_1,thema] * P[thema,place]")
    assert equation.output.indices == ("user_1", "place")
    assert equation.factors[0].name == "λ"
    assert equation.summed == ("thema",)


def test_several_lines_are_several_tensors() -> None:
    equations = parse("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]")
    assert [equation.output.name for equation in equations] == ["X", "Y"]


def test_factors_without_latent_or_observed_index_and_scalars() -> None:
    (equation,) = parse("X[i,j] = s[] * A[i,j] * G[p,q] * B[i,p] * C[j,q]")
    assert equation.factors[0].indices == ()
    assert equation.summed == ("p", "q")


@pytest.mark.parametrize(
    ("text", "reason", "caret"),
    [
        (
            "X[i,j] = A[i,r] * A[j,r]",
            "factor A occurs twice in one equation: the model must be linear in each factor",
            18,
        ),
        ("X[i,j] = A[i,r] * B[r,k]", "observed index 'j' of X is not an index of any factor", 4),
        ("ir,kr->ijk", "observed index 'j' of X is not an index of any factor", 8),
        ("X[i,i] = A[i,r] * B[r]", "index 'i' is repeated in output X[i,i]", 4),
        ("ir,jr->ijj", "index 'j' is repeated in output X[i,j,j]", 9),
        ("X[i,j] = A[i,r,r] * B[j,r]", "index 'r' is repeated in factor A[i,r,r]", 15),
        ("X[i,j] = A[i,r * B[j,r]", "expected ',' or ']', found '*'", 15),
        ("X[i,j] A[i,r]", "expected '=', found 'A'", 7),
        ("X[i,j] =", "expected a name such as A, found the end", 8),
        ("X[i,j] = A[i,r] *", "expected a name such as A, found the end", 17),
        ("X = A[i,r]", "expected '[' and the indices of X, found '='", 2),
        ("X[i,,j] = A[i,j]", "expected an index name, found ','", 4),
        ("X[i,2] = A[i,r]", "unexpected character '2'", 4),
        ("X[i,j] = A[i,r] + B[j,r]", "unexpected character '+'", 16),
        ("X[i] = A[i,r] = B[r]", "expected a name such as A, found '='", 14),
        ("X[] = A[i]", "observed tensor X must have at least one index", 0),
        ("i1,j->ij", "indices of the shorthand must be single letters, found '1'", 1),
        ("ir->i->r", "the shorthand must have exactly one '->'", 5),
        ("X[i,j] = A[i,r] * X[j,r]", "X is an observed tensor and cannot also be a factor", 18),
        ("   ", "the model text is empty", 0),
    ],
)
def test_errors_point_at_the_character(text: str, reason: str, caret: int) -> None:
    with pytest.raises(pltf.NotationError) as caught:
        pltf.Model(text, r=2)
    said, line, pointer = str(caught.value).split("\n")
    assert said == reason
    assert line == f"  {text.strip()}"
    assert pointer.index("^") - 2 == caret
    assert pickle.loads(pickle.dumps(caught.value)).position == caught.value.position


def test_errors_in_a_later_line_show_that_line() -> None:
    with pytest.raises(pltf.NotationError) as caught:
        pltf.Model("X[i,j] = A[i,r] * B[j,r]\n   Y[j,m] = B[m,r] * D[j,r]", r=2)
    assert str(caught.value) == (
        "factor B is B[j,r] above and B[m,r] here; a shared factor must have fixed indices\n"
        "  Y[j,m] = B[m,r] * D[j,r]\n"
        "           ^"
    )
    with pytest.raises(pltf.NotationError, match="tensor X has two equations"):
        pltf.Model("X[i] = A[i]\nX[j] = B[j]")


@given(st.text(alphabet=string.ascii_letters + "[],*=-> \n1é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    equations: tuple[Equation, ...] | None
    try:
        equations = parse(text)
    except pltf.NotationError as error:
        position, equations = error.position, None
    else:
        position = 0
    assert 0 <= position <= len(text)
    assert equations is None or parse("\n".join(map(str, equations))) == equations


def test_equations_with_semicolons_between_them() -> None:
    lines = parse("X[i,j] = A[i,r] * B[j,r]\nY[i,k] = A[i,r] * C[k,r]")
    assert parse("X[i,j] = A[i,r] * B[j,r]; Y[i,k] = A[i,r] * C[k,r]") == lines
    assert parse("X[i,j]=A[i,r]*B[j,r];\n Y[i,k]=A[i,r]*C[k,r];") == lines
    with pytest.raises(pltf.NotationError, match="found '='"):
        parse("X[i,j] = A[i,r] *; Y[i,k] = A[i,r]")
