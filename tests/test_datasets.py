"""Synthetic draws, and files that are found, fetched and checked."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import pickle
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

import pltf
import pltf.datasets
from pltf.datasets import fetch, uclaf_data

SMALL = fetch.Remote("small.bin", "http://localhost/small.bin", hashlib.sha256(b"small").hexdigest())


def test_counts_follow_their_rates() -> None:
    drawn = pltf.datasets.draw(pltf.cp(rank=3), (30, 20, 10), seed=2)
    A, B, C = (drawn.factors[name] for name in "ABC")
    np.testing.assert_allclose(drawn.rates["X"], np.einsum("ir,jr,kr->ijk", A, B, C))
    residual = (drawn.counts["X"] - drawn.rates["X"]).sum() / np.sqrt(drawn.rates["X"].sum())
    assert abs(residual) < 4


def test_one_seed_one_draw() -> None:
    first, again, other = (pltf.datasets.draw(pltf.nmf(rank=2), (5, 6), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.counts["X"], again.counts["X"])
    assert (first.rates["X"] != other.rates["X"]).any()


def test_coupled_draws_share_factors() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    drawn = pltf.datasets.draw(model, {"X": (4, 5), "Y": (5, 6)})
    np.testing.assert_allclose(drawn.rates["Y"], drawn.factors["B"] @ drawn.factors["D"].T)
    with pytest.raises(pltf.PltfError, match="shape must give a shape for each of X, Y, got X"):
        pltf.datasets.draw(model, (4, 5))


def test_the_prior_is_used() -> None:
    drawn = pltf.datasets.draw(pltf.nmf(rank=3), (300, 200), prior=pltf.Gamma(50.0, 4.0))
    assert drawn.factors["W"].mean() == pytest.approx(4.0, rel=0.05)
    assert drawn.factors["W"].var() == pytest.approx(16 / 50, rel=0.2)


def test_refusals() -> None:
    model = pltf.nmf(rank=2)
    with pytest.raises(pltf.PltfError, match=r"shape must be sizes such as \(50, 50, 50\), got 5"):
        pltf.datasets.draw(model, 5)
    with pytest.raises(pltf.PltfError, match="every size of shape must be a whole number of at least 1, got -5"):
        pltf.datasets.draw(model, (5, -5))
    with pytest.raises(pltf.PltfError, match="prior must be a Gamma, got dict"):
        pltf.datasets.draw(model, (5, 5), prior={})  # type: ignore[arg-type]
    with pytest.raises(pltf.PltfError, match="prior gives rates of"):
        pltf.datasets.draw(model, (5, 5), prior=pltf.Gamma(1.0, 1e20))
    with pytest.raises(pltf.PltfError, match="seed must be a whole number of at least 0, got -1"):
        pltf.datasets.draw(model, (5, 5), seed=-1)


# -- files --------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no folder of data, and no network."""
    monkeypatch.delenv("PLTF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    answering(monkeypatch, urllib.error.URLError("no route to host"))
    return tmp_path / "caches" / "pltf"


def answering(monkeypatch: pytest.MonkeyPatch, answer: bytes | Exception) -> list[str]:
    """Have the network answer so; the list fills with the addresses that were asked."""
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        assert 0 < timeout < 120
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


def test_a_file_is_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, b"small")
    assert fetch.contents(SMALL) == b"small"
    assert [path.name for path in cache.iterdir()] == ["small.bin"]
    assert fetch.contents(SMALL) == b"small"
    assert asked == [SMALL.url]


def test_the_named_folder_comes_first(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    (cache / "small.bin").write_bytes(b"other")
    (tmp_path / "small.bin").write_bytes(b"small")
    monkeypatch.setenv("PLTF_DATA", str(tmp_path))
    assert fetch.contents(SMALL) == b"small"
    (cache / "small.bin").write_bytes(b"small")
    monkeypatch.setenv("PLTF_DATA", str(tmp_path / "nowhere"))
    assert fetch.contents(SMALL) == b"small"


def test_the_cache_is_that_of_the_user(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    answering(monkeypatch, b"small")
    fetch.contents(SMALL)
    assert (tmp_path / ".cache" / "pltf" / "small.bin").read_bytes() == b"small"


@pytest.mark.parametrize("named", [True, False])
def test_a_wrong_checksum_on_disk(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    folder = tmp_path if named else cache
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.bin").write_bytes(b"Small")
    if named:
        monkeypatch.setenv("PLTF_DATA", str(tmp_path))
    asked = answering(monkeypatch, b"small")
    with pytest.raises(pltf.PltfError, match=rf"small.bin must have the SHA-256 {SMALL.sha256}, but .* replace the"):
        fetch.contents(SMALL)
    assert not asked


@pytest.mark.parametrize("answer", [b"smal", b"", b"<html>404</html>"])
def test_a_wrong_download_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(pltf.PltfError, match=r"download from http://localhost/small.bin must .* put small.bin"):
        fetch.contents(SMALL)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (urllib.error.URLError("no route to host"), "urlopen error no route to host"),
        (urllib.error.HTTPError(SMALL.url, 404, "Not Found", http.client.HTTPMessage(), None), "HTTP Error 404"),
        (TimeoutError(), "TimeoutError"),
        (http.client.IncompleteRead(b"sm", 3), "IncompleteRead"),
    ],
)
def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch, answer: Exception, words: str) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(pltf.PltfError, match=rf"could not be downloaded from .*\({words}.* to this folder$") as refused:
        fetch.contents(SMALL)
    assert str(cache) in str(refused.value)
    assert not cache.exists()


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_nothing_half_written_is_left(cache: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(path: Path, what: Any) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    answering(monkeypatch, b"small")
    monkeypatch.setattr(Path, step, full)
    with pytest.raises(pltf.PltfError, match=r"cannot be written \(No space left on device\): set XDG_CACHE_HOME"):
        fetch.contents(SMALL)
    assert not list(cache.iterdir())


def test_a_file_that_cannot_be_read(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.bin").mkdir()
    monkeypatch.setenv("PLTF_DATA", str(tmp_path))
    with pytest.raises(pltf.PltfError, match=r"small.bin cannot be read \(.*\): make it readable, or set the"):
        fetch.contents(SMALL)


# -- UCLAF --------------------------------------------------------------------------------------


@pytest.fixture
def real() -> Path:
    folder = os.environ.get("PLTF_DATA")
    path = Path(folder or ".", uclaf_data.FILE.name)
    if not folder or not path.is_file():
        pytest.skip(f"the environment variable PLTF_DATA names no folder with {uclaf_data.FILE.name}")
    return path


def test_uclaf_is_what_the_paper_says(real: Path) -> None:
    data = pltf.datasets.uclaf()
    shapes = {name: getattr(data, name).shape for name in data.dims}
    assert repr(data) == "<Uclaf: X 146x168x5, UserLoc 146x168, LocFea 168x14, ActAct 5x5, UserUser 146x146>"
    for name, dims in data.dims.items():
        assert shapes[name] == tuple(len(data.labels[index]) for index in dims)
    assert set(np.unique(data.X)) == {0, 1}
    assert data.X.sum() == 1436
    assert data.X.dtype == np.int64
    assert data.X.any(axis=(1, 2)).all()
    assert data.labels["activity"][1] == "Shopping"


def test_uclaf_counts_and_all_users(real: Path) -> None:
    binary, counts = pltf.datasets.uclaf(), pltf.datasets.uclaf("counts")
    everyone = pltf.datasets.uclaf("counts", users="all")
    np.testing.assert_array_equal(counts.X > 0, binary.X)
    assert (counts.X.sum(), counts.X.max(), counts.UserLoc.sum()) == (7581, 249, 9349)
    assert everyone.X.shape == (164, 168, 5)
    assert (everyone.X.sum(), everyone.UserLoc.sum()) == (7581, 9428)
    kept = list(counts.labels["user"])
    np.testing.assert_array_equal(everyone.X[kept], counts.X)
    np.testing.assert_array_equal(everyone.UserLoc[kept], counts.UserLoc)
    np.testing.assert_array_equal(everyone.UserUser[kept][:, kept], counts.UserUser)
    np.testing.assert_array_equal(counts.UserUser, counts.UserUser.T)
    np.testing.assert_array_equal(counts.LocFea[:, 0], counts.labels["location"])
    assert (counts.UserLoc >= (counts.X > 0).any(axis=2)).all()  # who did something somewhere was there


def test_uclaf_can_be_fitted_and_is_nobody_elses(real: Path) -> None:
    data = pltf.datasets.uclaf()
    fit = pltf.cp(data.dims["X"], rank=2).fit(data.X, max_iter=2, tol=0)
    assert np.isfinite(fit.bound)
    data.X[:] = 9
    assert pltf.datasets.uclaf().X.max() == 1


def test_uclaf_from_the_network(real: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, real.read_bytes())
    assert pltf.datasets.uclaf().X.sum() == 1436
    assert pltf.datasets.uclaf().X.sum() == 1436
    assert asked == ["http://www.cse.ust.hk/~vincentz/aaai10.uclaf.data.mat"]


def test_uclaf_is_a_mat_file_and_no_pickle(real: Path) -> None:
    content = real.read_bytes()
    assert content.startswith(b"MATLAB 5.0 MAT-file")
    assert all(kind == "double" for _, _, kind in scipy.io.whosmat(io.BytesIO(content)))


class Trap:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.path,)


def test_uclaf_loads_no_pickle(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / uclaf_data.FILE.name).write_bytes(pickle.dumps(Trap(str(sprung))))
    monkeypatch.setenv("PLTF_DATA", str(tmp_path))
    with pytest.raises(pltf.PltfError, match="must have the SHA-256 4b07264d"):
        pltf.datasets.uclaf()
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("thing", "came"),
    [
        (np.full((164, 168), 0.0, dtype=object), r"object of shape \(164, 168\)"),
        ({"a": 1}, r"\[\('a', 'O'\)\] of shape \(1, 1\)"),
        ("text", "<U4 of shape"),
        (np.ones((2, 2)), r"float64 of shape \(2, 2\)"),
        (None, "NoneType"),
    ],
)
def test_uclaf_takes_numbers_only(thing: Any, came: str) -> None:
    arrays = {name: np.ones(shape) for name, shape in uclaf_data._SHAPES.items()}
    other = {} if thing is None else {"UserLoc": thing}
    file = io.BytesIO()
    scipy.io.savemat(file, {name: array for name, array in arrays.items() if name != "UserLoc"} | other)
    with pytest.raises(pltf.PltfError, match=rf"UserLoc must be numbers of shape \(164, 168\), got {came}"):
        uclaf_data._arrays(file.getvalue())


def test_uclaf_without_file_and_network(cache: Path) -> None:
    with pytest.raises(pltf.PltfError, match=r"^aaai10.uclaf.data.mat is not in .* could not be downloaded from http"):
        pltf.datasets.uclaf()
    assert not cache.exists()


def test_uclaf_refuses_what_it_does_not_know(cache: Path) -> None:
    with pytest.raises(pltf.PltfError, match="kind must be one of 'binary', 'counts'; got 'links'"):
        pltf.datasets.uclaf("links")
    with pytest.raises(pltf.PltfError, match="users must be one of 'active', 'all'; got 146"):
        pltf.datasets.uclaf(users=146)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "shape", "prior", "message"),
    [
        ("ir,jr->ij", (3, 4), None, "model must be a pltf.Model, got str"),
        (pltf.nmf(rank=2), {}, None, "got none"),
        (pltf.nmf(rank=2), (10**6, 10**9), None, "shape needs 16.0 PB"),
        (pltf.nmf(rank=2), (10**20, 2), None, "shape needs"),
        (pltf.nmf(rank=2), (3, 4), pltf.Gamma([1.0, 2.0, 3.0], 1.0), "prior must broadcast to every factor"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(model: Any, shape: Any, prior: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.datasets.draw(model, shape, prior=prior)
