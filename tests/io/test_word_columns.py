"""Columns of words: what is done in bulk against what is done word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pltf.io import word_columns
from pltf.io.word_columns import WordColumn, as_numbers

NUMERALS = st.one_of(
    st.integers(0, 10**20).map(str),
    st.floats(0, allow_nan=False).map(repr),
    st.floats(0, 1).map(repr),
    st.text("0123456789.e-", max_size=6),
    st.sampled_from(["", "-0", "007", "5.", ".5", "1e5", "1e-05", "e-", "1e", "NA", " 7", "٣", "inf", "1_0", "true"]),
)


def one_by_one(words: list[str]) -> np.ndarray[Any, Any]:
    """The column without the shortcut."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(word_columns, "_plain_numbers", lambda words: None)
        return as_numbers(WordColumn(words, np.arange(len(words))))


def same_numbers(words: list[str]) -> bool:
    """Whether the shortcut gives the same type and the same bits, signs of zeros included."""
    bulk, slow = as_numbers(WordColumn(words, np.arange(len(words)))), one_by_one(words)
    return bulk.dtype == slow.dtype and list(map(repr, bulk)) == list(map(repr, slow))


@given(st.lists(NUMERALS, max_size=6))
def test_numbers_in_bulk_are_those_of_single_words(words: list[str]) -> None:
    assert same_numbers(words)


@pytest.mark.parametrize("second", ["1.2.3", ".", "", "-0", "-1", "1e", "e-", "9" * 16, "9" * 400, "1e999", "3", "x"])
@pytest.mark.parametrize("first", ["0.5", "3", "2e-7"])
def test_numbers_in_bulk_beside_others(first: str, second: str) -> None:
    assert same_numbers([first, second])
    assert same_numbers([second, first])


@pytest.mark.parametrize("words", [["1", "22", "007"], ["0.5", "12", "3.0", "5e-05"]])
def test_plain_numbers_are_taken_in_bulk(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_columns, "number_in", lambda word: pytest.fail("one by one"))
    assert as_numbers(WordColumn(words, np.arange(len(words)))).tolist() == list(map(float, words))
