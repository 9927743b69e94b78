"""Parser of model texts.

One equation per line, or several separated by ``;`` (a line that ends or starts with an operator continues). ``*``
is optional::

    model    := equation ((newline | ";") equation)*
    equation := term "=" term ("*"? term)*
    term     := NAME "[" (NAME ("," NAME)*)? "]"

or the einsum shorthand ``ir,jr,kr->ijk`` for one tensor X with factors Z1, Z2, Z3.
All errors that can be found in the text alone are raised here, where the position is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from pltf.errors import NotationError

_TOKEN = re.compile(r"(?P<name>[^\W\d]\w*)|(?P<mark>[\[\],*=\n;])|(?P<space>[^\S\n]+)")


@dataclass(frozen=True, slots=True)
class Term:
    """A named array with its indices, as ``A[i,r]``.

    >>> from pltf.notation import Term
    >>> print(Term("A", ("i", "r")))
    A[i,r]
    """

    name: str
    indices: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}[{','.join(self.indices)}]"


@dataclass(frozen=True, slots=True)
class Equation:
    """One observed tensor as a sum over products of factors.

    >>> import pltf
    >>> equation, = pltf.Model("ir,jr->ij", r=2).equations
    >>> print(equation)
    X[i,j] = Z1[i,r] * Z2[j,r]
    >>> equation.summed
    ('r',)
    """

    output: Term
    factors: tuple[Term, ...]

    @property
    def summed(self) -> tuple[str, ...]:
        """Indices of the factors that are not in the output, in order of appearance."""
        indices = dict.fromkeys(index for term in self.factors for index in term.indices)
        return tuple(index for index in indices if index not in self.output.indices)

    def __str__(self) -> str:
        return f"{self.output} = {' * '.join(map(str, self.factors))}"


def parse(text: str) -> tuple[Equation, ...]:
    """Parse a model text; a NotationError points at the first invalid character."""
    if not text.strip():
        raise NotationError("the model text is empty", text, 0)
    parsed = [_parse_einsum(text)] if "->" in text else _Parser(text).equations()
    for output, factors in parsed:
        _check_equation(text, output, factors)
    _check_names(text, parsed)
    return tuple(Equation(output.term, tuple(factor.term for factor in factors)) for output, factors in parsed)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A term with the positions of its name and of each of its indices in the text."""

    term: Term
    position: int
    index_positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str  # "" at the end
    position: int
    is_name: bool = False


_Parsed = tuple[_Placed, list[_Placed]]


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotationError(f"unexpected character {text[position]!r}", text, position)
        if match.lastgroup != "space":
            found = "\n" if match.group() == ";" else match.group()
            yield _Token(found, position, match.lastgroup == "name")
        position = match.end()


def _join_lines(tokens: list[_Token]) -> list[_Token]:
    """Drop the newlines that do not end an equation."""
    joined: list[_Token] = []
    following = [token.text for token in tokens[1:]] + [""]
    for token, after in zip(tokens, following, strict=True):
        before = joined[-1].text if joined else "\n"
        if token.text == "\n" and (before in "\n*=,[" or after in ("\n", "*", "=", ",", "]", "")):
            continue
        joined.append(token)
    return joined


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: list[_Token] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        end = len(self.text.rstrip())
        self.tokens = [*_join_lines(list(_tokens(self.text))), _Token("", end)]

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, expected: str) -> NoReturn:
        names = {"": "the end", "\n": "the end of the line"}
        came = names.get(self.token.text, repr(self.token.text))
        raise NotationError(f"expected {expected}, found {came}", self.text, self.token.position)

    def take(self, mark: str, expected: str) -> None:
        if self.token.text != mark:
            self.fail(expected)
        self.at += 1

    def name(self, expected: str) -> _Token:
        token = self.token
        if not token.is_name:
            self.fail(expected)
        self.at += 1
        return token

    def term(self) -> _Placed:
        name = self.name("a name such as A")
        self.take("[", f"'[' and the indices of {name.text}")
        indices: list[_Token] = []
        while self.token.text != "]":
            if indices:
                self.take(",", "',' or ']'")
            indices.append(self.name("an index name"))
        self.at += 1
        return _Placed(
            Term(name.text, tuple(index.text for index in indices)),
            name.position,
            tuple(index.position for index in indices),
        )

    def equation(self) -> _Parsed:
        output = self.term()
        self.take("=", "'='")
        factors = [self.term()]
        while self.token.text not in ("", "\n"):
            if self.token.text == "*":
                self.at += 1
            factors.append(self.term())
        return output, factors

    def equations(self) -> list[_Parsed]:
        parsed = [self.equation()]
        while self.token.text == "\n":
            self.at += 1
            parsed.append(self.equation())
        return parsed


def _parse_einsum(text: str) -> _Parsed:
    arrow = text.index("->")
    if "->" in text[arrow + 2 :]:
        raise NotationError("the shorthand must have exactly one '->'", text, text.index("->", arrow + 2))

    def placed(name: str, start: int, end: int) -> _Placed:
        letters = [(text[at], at) for at in range(start, end) if not text[at].isspace()]
        for letter, at in letters:
            if not letter.isalpha():
                raise NotationError(f"indices of the shorthand must be single letters, found {letter!r}", text, at)
        indices = tuple(letter for letter, _ in letters)
        return _Placed(Term(name, indices), start, tuple(at for _, at in letters))

    factors, start = [], 0
    for number, piece in enumerate(text[:arrow].split(","), start=1):
        factors.append(placed(f"Z{number}", start, start + len(piece)))
        start += len(piece) + 1
    return placed("X", arrow + 2, len(text)), factors


def _check_equation(text: str, output: _Placed, factors: list[_Placed]) -> None:
    if not output.term.indices:
        raise NotationError(f"observed tensor {output.term.name} must have at least one index", text, output.position)
    for placed in (output, *factors):
        seen: set[str] = set()
        what = "output" if placed is output else "factor"
        for index, position in zip(placed.term.indices, placed.index_positions, strict=True):
            if index in seen:
                raise NotationError(f"index '{index}' is repeated in {what} {placed.term}", text, position)
            seen.add(index)
    names: set[str] = set()
    for factor in factors:
        if factor.term.name in names:
            reason = f"factor {factor.term.name} occurs twice in one equation: the model must be linear in each factor"
            raise NotationError(reason, text, factor.position)
        names.add(factor.term.name)
    held = {index for factor in factors for index in factor.term.indices}
    for index, position in zip(output.term.indices, output.index_positions, strict=True):
        if index not in held:
            reason = f"observed index '{index}' of {output.term.name} is not an index of any factor"
            raise NotationError(reason, text, position)


def _check_names(text: str, parsed: list[_Parsed]) -> None:
    outputs: set[str] = set()
    for output, _ in parsed:
        if output.term.name in outputs:
            raise NotationError(f"tensor {output.term.name} has two equations", text, output.position)
        outputs.add(output.term.name)
    terms: dict[str, Term] = {}
    for _, factors in parsed:
        for factor in factors:
            term = factor.term
            if term.name in outputs:
                reason = f"{term.name} is an observed tensor and cannot also be a factor"
                raise NotationError(reason, text, factor.position)
            first = terms.setdefault(term.name, term)
            if first != term:
                reason = f"factor {term.name} is {first} above and {term} here; a shared factor must have fixed indices"
                raise NotationError(reason, text, factor.position)
