"""Without an extra: one sentence that says what to install. `make test-minimal` runs this without any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pytest

import pltf
import pltf.plotting
import pltf.report
from pltf.io.files import read_data
from tests.cli import here
from tests.extras import MINIMAL

EXTRAS = ("matplotlib", "jinja2", "pyarrow", "arviz", "distributed")


def hide(package: str, patch: pytest.MonkeyPatch) -> None:
    """Make every import of a package fail, also of what is loaded already."""
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        patch.setitem(sys.modules, name, None)


@pytest.fixture(autouse=not MINIMAL)
def _no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "matplotlib",
        "jinja2",
        "pyarrow.parquet",
        "arviz",
        "distributed",
        "yaml",
    ):  # pandas needs the rest of pyarrow
        hide(name, monkeypatch)


@pytest.fixture(scope="module")
def fit() -> pltf.Fit:
    return pltf.nmf(rank=1).fit(np.ones((3, 4)), max_iter=2, tol=0)


@pytest.mark.parametrize("package", [*EXTRAS, "polars", "sparse", "pyttb"])
def test_a_minimal_run_has_none_of_them_and_every_other_run_has_all(package: str) -> None:
    assert (PathFinder.find_spec(package) is None) == MINIMAL


def needs(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(pltf.PltfError) as error:
        call()
    assert str(error.value) == sentence


def test_plots(fit: pltf.Fit) -> None:
    needs(lambda: pltf.plotting.trace(fit), "plots need matplotlib: pip install 'pltf[plot]'")


def test_reports(fit: pltf.Fit, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    needs(lambda: pltf.report.write(fit, path), "reports need jinja2: pip install 'pltf[plot]'")
    assert not path.exists()


def test_arviz(fit: pltf.Fit) -> None:
    needs(fit.to_arviz, "to_arviz needs ArviZ: pip install 'pltf[arviz]'")


def test_clusters(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 4)))
    options = ("--nmf", 1, "-o", tmp_path / "run.nc", "--scheduler", "tcp://127.0.0.1:1")
    assert here("fit", tmp_path / "a.npy", *options).refusal == "--scheduler needs Dask: pip install 'pltf[dask]'"


def test_parquet_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    needs(lambda: read_data(path), f"reading {path} requires pyarrow: pip install 'pltf[io]'")


def test_model_files_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("model: ir,jr->ij")
    refusal = here("fit", "-m", tmp_path / "model.yaml", "-o", tmp_path / "run.nc").refusal
    assert refusal == f"reading {tmp_path / 'model.yaml'} requires pyyaml: pip install 'pltf[io]'"


def test_the_command_line(fit: pltf.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "run.nc")
    report = here("report", tmp_path / "run.nc", "-o", tmp_path / "report.html")
    assert report.refusal == "reports need jinja2: pip install 'pltf[plot]'"
    top = here("predict", tmp_path / "run.nc", "--top", 1, "--among", "all", "-o", tmp_path / "top.parquet")
    assert top.refusal == "Parquet requires pyarrow: pip install 'pltf[io]'"
    assert [one.name for one in tmp_path.iterdir()] == ["run.nc"]


@pytest.mark.slow
def test_the_demo_without_a_report(tmp_path: Path) -> None:
    done = here("demo", tmp_path / "demo")
    assert done.code == 0, done
    assert done.out.endswith("There is no report: reports need jinja2: pip install 'pltf[plot]'\n")
    assert sorted(file.name for file in (tmp_path / "demo").iterdir()) == ["events.csv", "run.nc", "search.nc"]
