"""What notebooks show: escaped, small, and without a picture where matplotlib is absent."""

from __future__ import annotations

import base64
import re
import sys
import warnings
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
import pltf.metrics
from pltf.html import escaped, table

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "$5 & $7 \x1b[31m",
    "</td></table><b>bold",
    "日本",
]
VOID = {"img", "br"}


class Page(HTMLParser):
    """The elements of a page; each that opens has to close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def shown(thing: Any) -> Page:
    page = Page(thing._repr_html_())
    assert {tag for tag, _ in page.tags} <= {"div", "strong", "pre", "table", "thead", "tbody", "tr", "th", "td", "img"}
    assert {name for _, attrs in page.tags for name in attrs} <= {"style", "colspan", "alt", "width", "src"}
    return page


def pictures(page: Page) -> list[bytes]:
    found = [str(attrs["src"]) for tag, attrs in page.tags if tag == "img"]
    return [base64.b64decode(one.removeprefix("data:image/png;base64,"), validate=True) for one in found]


def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    names = np.array([*EVIL, *(f"user{n}" for n in range(15))])
    return pd.DataFrame({"user": rng.choice(names, 400), "place": rng.choice([*EVIL, "gym", "bar"], 400)})


@pytest.fixture(scope="module")
def seen() -> pltf.Observation:
    return pltf.observe(data(), dims=["user", "place"])


@pytest.fixture(scope="module")
def fit(seen: pltf.Observation) -> pltf.Fit:
    return pltf.nmf(("user", "place"), rank=2).fit(seen, restarts=2)


def test_a_model_shows_its_indices() -> None:
    page = shown(pltf.Model("X[user,place] = U[user,r] * P[place,r]", r=4))
    assert "X[user,place] = U[user,r] * P[place,r]" in page.text
    assert re.search(r"r\s+latent\s+4\s+U, P", page.text)
    assert re.search(r"user\s+observed\s+from the data\s+U", page.text)
    assert pictures(page) == []


def test_an_observation_shows_its_labels(seen: pltf.Observation) -> None:
    page = shown(seen)
    assert page.text.startswith("pltf.CooObservation\n")
    assert re.search(r"total\s+400, at most", page.text)
    assert EVIL[1] in page.text
    assert "\x1b" not in page.text
    dense = shown(pltf.observe(np.array([[1.0, np.nan]])))
    assert re.search(r"observed\s+1 of 2 cells", dense.text)
    assert re.search(r"axis 1\s+2\s+0 to 1\s+positions", dense.text)


@pytest.mark.extra("plot")
def test_labels_are_inert_and_fits_have_a_picture(fit: pltf.Fit) -> None:
    text = fit._repr_html_()
    assert "<script" not in text
    assert "onerror=alert(2)>" not in text
    page = shown(fit)
    table = fit.components(top=3)
    assert all(" ".join(str(one).split("\x1b")[0].split()) in page.text for tops in table["W[user]"] for one in tops)
    assert re.search(r"ELBO\s+−[\d,.]+ after \d+ iterations, converged", page.text)
    assert [f"r={n}" for n in table.index] == re.findall(r"^r=\d$", page.text, re.MULTILINE)
    (picture,) = pictures(page)
    assert picture.startswith(b"\x89PNG")
    assert len(text) < 60_000


@pytest.mark.extra("plot")
def test_a_search_marks_its_winner(seen: pltf.Observation) -> None:
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(pltf.nmf(("user", "place"), rank=1), seen, r=[3, 1, 2], restarts=1)
    page = shown(found)
    rows = re.findall(r'<tr style="font-weight:(\w+)"><td[^>]*>(\*?)</td><td[^>]*>(\d)</td>', found._repr_html_())
    assert [r for _, _, r in rows] == ["1", "2", "3"]
    assert [(weight, mark) for weight, mark, r in rows if int(r) == found.best["r"]] == [("bold", "*")]
    assert sum(weight == "bold" for weight, _, _ in rows) == 1
    assert len(pictures(page)) == 1
    assert all(doubt in page.text for doubt in found.doubts)
    with warnings.catch_warnings(action="ignore"):
        alone = pltf.select([pltf.Model("X[i,j] = A[i] * B[j]")], np.ones((3, 2)), restarts=1)
    assert pictures(shown(alone)) == []


@pytest.mark.extra("plot")
@pytest.mark.parametrize("ranking", [True, False])
def test_scores_stand_beside_popularity(ranking: bool) -> None:
    X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    mask = pltf.holdout(X, 0.4, seed=1)
    scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask, resamples=20, ranking=ranking)
    page = shown(scores)
    assert ("average precision" in page.text) == ranking
    assert re.search(r"coverage\s+\d+ % of the counts lie in their 90 % intervals", page.text)
    assert len(pictures(page)) == 1
    without = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask, resamples=0)
    assert "nan" not in shown(without).text


@pytest.mark.parametrize("method", ["vb", "em", "map", "gibbs"])
def test_any_fit_is_shown_without_matplotlib(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    fit = pltf.nmf(rank=1).fit(np.random.default_rng(0).poisson(5.0, (6, 5)), method=method)
    page = shown(fit)
    assert pictures(page) == []
    assert page.text.startswith("pltf.Fit\n")


@pytest.mark.extra("plot")
@pytest.mark.parametrize(
    ("text", "sizes", "shape"),
    [
        ("X[i,j] = A[i] * B[j]", {}, (3, 2)),
        ("X[i,j,k] = A[i,a] * B[a,j,b] * C[b,k] * S[]", {"a": 2, "b": 2}, (3, 2, 4)),
        ("X[i] = A[i,r] * B[r]", {"r": 1}, (3,)),
    ],
)
def test_models_of_any_form(text: str, sizes: dict[str, int], shape: tuple[int, ...]) -> None:
    fit = pltf.Model(text, **sizes).fit(np.ones(shape), max_iter=3, tol=0)
    shown(fit.model)
    assert len(pictures(shown(fit))) == (any(len(indices) == 2 for indices in fit.model.factors.values()))


def test_coupled_and_updated_fits() -> None:
    coupled = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * C[m,r]", r=2)
    fit = coupled.fit({"X": np.ones((3, 4)), "Y": np.eye(4)}, likelihood={"Y": "bernoulli"}, keep_data=False)
    assert "poisson for X, bernoulli for Y" in shown(fit).text
    new = pltf.nmf(rank=1).fit(np.ones((3, 2))).update(np.ones((3, 2)))
    assert re.search(r"batches\s+2", shown(new).text)


def test_long_tables_say_what_they_leave_out() -> None:
    page = Page(table(("a", "b"), [("1", "x")], more=1234))
    assert "and 1,234 more" in page.text
    assert escaped("é" * 100, 10) == "é" * 9 + "…"
