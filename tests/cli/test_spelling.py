"""The command line never shows a Python name for an option, whatever is wrong."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import typer

import pltf
import pltf.metrics
import pltf.report
from pltf.cli.app import app, fit
from pltf.cli.spelling import OPTIONS, option
from pltf.io.files import read_data
from pltf.io.reading import Reading
from pltf.options import SAMPLING, FitOptions
from tests.cli import here

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TABLE = "user,place,n\nann,bar,3\nbob,gym,1\nann,gym,2\nbob,bar,0\n"
NMF = ("fit", "a.csv", "-i", "user,place", "--nmf", "1", "-o", "out.nc", "--value", "n", "--force")
RIGHT = {
    "fit": (*NMF, "--max-iter", "2", "--tol", "0"),
    "select": ("select", "a.csv", "-i", "user,place", "--count", "--nmf", "1:2", "--restarts", "1", "--workers", "1"),
    "update": ("update", "held.nc", "a.csv", "-o", "out.nc", "--force", "--max-iter", "2", "--tol", "0"),
    "predict": ("predict", "run.nc", "--top", "2", "--among", "all"),
    "score": ("score", "held.nc"),
    "report": ("report", "run.nc", "-o", "out.html", "--force"),
    "plan": ("plan", "a.csv", "-i", "user,place", "--count", "--nmf", "1"),
    "info": ("info", "x.npy"),
    "convert": ("convert", "a.csv", "out.npz", "-i", "user,place", "--count", "--force"),
}
WRONG = ("", "-1", "1.5", "nan", "a=b", "user", "nowhere/a.b", "999999999")
SLOW = {"restarts", "max_iter", "draws", "top", "workers", "cp", "nmf", "tucker", "atleast"}  # the last would be done
OF_PRIOR = {"shape", "mean", "learn", "tie"}  # --prior has these parts too
ENGLISH = {"X", "index", "cells", "data", "model", "text", "result", *OF_PRIOR}  # that sentences say of other things


def _arguments() -> set[str]:
    """The arguments of everything that the commands call."""
    classes = (pltf.Model, pltf.Fit, pltf.Gamma, pltf.Selection, pltf.Posterior)
    called: list[Callable[..., Any]] = [
        one for kind in classes for _, one in inspect.getmembers(kind, inspect.isfunction)
    ]
    called += [pltf.observe, pltf.prepare, pltf.holdout, pltf.select, pltf.load, pltf.cp]
    called += [read_data, Reading, pltf.metrics.score, pltf.report.write]
    return {name for one in called for name in inspect.signature(one).parameters} - {"self"}


ARGUMENTS = _arguments()
NAMES = "|".join(sorted(ARGUMENTS - ENGLISH))
PYTHON = (
    re.compile(rf"(?<![-\w])({'|'.join(sorted(ARGUMENTS - OF_PRIOR - {'X'}))})="),  # mask=, method='vb'
    re.compile(rf"(?<![-\w])({NAMES}) (must|goes|names|cannot|lists)\b"),
    re.compile(r"(?<![-\w])(max_iter|keep_data|fraction|dims|duplicates|unlisted=)\b"),
    re.compile(r"\b(pltf|np|pd|numpy|pandas|xarray|Model|Gamma)[.(]\w|Gamma:"),
    re.compile(r"<[A-Z]\w+|\bPosixPath\b|\b(True|False|None)\b|\.dt\.|[\x0e\x0f]"),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in, with some files."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("desk")
        patch.chdir(folder)
        Path("a.csv").write_text(TABLE)
        Path("twice.csv").write_text("user,place,n\nann,bar,3\nann,bar,4\n")
        Path("zones.csv").write_text("user,when\nann,2026-01-01T10:00+01:00\nbob,2026-01-01T10:00+02:00\n")
        Path("empty.csv").write_text("user,place,n\nann,bar,\n")
        Path("cells.csv").write_text("i,j\n7,0\n")
        Path("a.tns").write_text("1 1 3\n2 2 1\n2 2 1\n")
        np.save("x.npy", np.arange(6.0).reshape(3, 2))
        np.save("minus.npy", np.array([[1.0, -1.0]]))
        np.savez("two.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
        Path("odd.bin").write_bytes(b"a\x00b")
        pltf.nmf(rank=1).fit(np.eye(3) + 1).save("run.nc")
        assert here(*NMF, "-o", "held.nc", "--holdout", "0.5", "-q").code == 0
        kept = ("--checkpoint", "kept.nc")
        assert here(*NMF, *kept, "--max-iter", "2", "--tol", "0", "-q").code == 0
        yield folder


def told(*command: str) -> str:
    """All that a command says to people, which must be free of Python."""
    done = here(*command)
    assert done.code in (0, 2), done
    python = [found[0] for one in PYTHON if (found := one.search(done.err))]
    assert not python, f"{' '.join(command)}: {python[0]!r} in {done.err!r}"
    return done.err


@pytest.mark.parametrize("command", RIGHT)
def test_wrong_values_of_every_option(command: str, desk: Path) -> None:
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "argument" or parameter.name in ("output", "json", "quiet", "force"):
            continue
        if parameter.is_flag:
            told(*RIGHT[command], parameter.opts[0])
            continue
        for value in WRONG if parameter.name not in SLOW else WRONG[:-1]:
            told(*RIGHT[command], f"{parameter.opts[0]}={value}")


DEEP = [
    ((*NMF, "--holdout", "0.01"), "--holdout must hide at least one of 4 observed cells"),
    ((*NMF, "--holdout", "0.99"), "--holdout must keep at least one of 4 observed cells"),
    ((*NMF, "--method", "em", "-p", "shape=1"), "--method em has no prior: omit --prior, or"),
    ((*NMF, "--method", "map", "-p", "learn=mean"), "--method map cannot learn a prior"),
    ((*NMF, "-p", "tie=component"), "--prior: tie=component says how a learned value is shared: it needs learn="),
    ((*NMF, "-p", "learn=all"), "--prior: learn must be one of 'mean', 'shape', 'both'; got 'all'"),
    ((*NMF, "-p", "mean=0"), "--prior: mean must be positive and finite, got 0.0"),
    ((*NMF, "-p", "W:learn=mean,tie=index:place"), "--prior of W: tie=index:place needs a factor with index 'place'"),
    ((*NMF, "--tol", "1"), "--tol must be a number from 0 to below 1, got 1.0"),
    ((*NMF, "--every", "inf"), "--every must be a number of seconds of at least 0, got inf"),
    ((*NMF, "--nmf", "999999999"), "see pltf plan"),
    ((*NMF, "--checkpoint", "kept.nc"), "kept.nc already exists: resume from it with --resume, or remove it"),
    ((*NMF, "--checkpoint", "kept.nc", "--resume"), "started with a different --max-iter (2 there, 2000 here)"),
    ((*NMF, "--checkpoint", "run.nc", "--resume"), "run.nc is not a checkpoint"),
    ((*NMF, "--max-iter", "1"), "the fit has not converged: reached the maximum of 1 iteration; raise --max-iter"),
    (("fit", "twice.csv", *NMF[2:]), "in line 2 and line 3; pass --sum to add them up"),
    (("fit", "a.tns", "--nmf", "1", "-o", "new.nc"), "pass --sum to add them up"),
    (("fit", "empty.csv", *NMF[2:]), "at least one cell must be observed, but all are missing"),
    (
        ("fit", "zones.csv", "--nmf", "1", "-o", "out.nc", "--force", "-i", "user,when:day"),
        "one time zone, got UTC+01:00 and UTC+02:00: use one UTC offset",
    ),
    (("fit", "a.csv", "--nmf", "1", "-o", "new.nc", "-i", "user,place:decade"), "--index"),
    (("fit", "a.csv", "--nmf", "1", "-o", "new.nc", "-i", "user=r,place"), "rename it in --index"),
    (("fit", "x.npy", "--nmf", "1", "-o", "new.nc", "-i", "a"), "--index must be 2 different names"),
    (("fit", "x.npy", "-m", "ir,jr->ij", "-o", "new.nc"), "latent index 'r' has no size: give it as --size r=3"),
    (("fit", "two.npz", "--nmf", "1", "-o", "new.nc"), "select one with --variable"),
    (("fit", "odd.bin", "--nmf", "1", "-o", "new.nc"), "set --format"),
    (("select", "a.csv", "-i", "user,place", "-m", "ir,jr->ij", "-s", "q=1:2", "-s", "r=1"), "the latent indices"),
    (("predict", "run.nc", "--top", "2", "--among", "zero"), "no cell of X is zero: --among all searches the others"),
    (("predict", "run.nc", "--cells", "cells.csv"), "--cells: line 2 has 7 for index 'i', which runs from 0 to 2"),
    (("predict", "run.nc", "--top", "2", "--among", "all", "--level", "2"), "--level must lie between 0 and 1"),
    (("predict", "run.nc", "--top", "2", "--among", "all", "--atleast", "9" * 17), "--atleast must be at most 2**53"),
    (("score", "held.nc", "--level", "0"), "--level must lie between 0 and 1"),
]


@pytest.mark.parametrize(("command", "why"), DEEP, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_sentences_of_the_library_name_options(command: tuple[str, ...], why: str, desk: Path) -> None:
    assert why in told(*command)


def test_what_is_told_of_an_array_and_of_a_search_names_options(desk: Path) -> None:
    assert "cannot be fitted" in here("info", "minus.npy").out
    search = ("select", "a.csv", "-i", "user,place", "--count", "--nmf", "1:2", "--restarts", "1", "--workers", "1")
    done = here(*search, "--max-iter", "1", "-o", "search.nc", "--force", "--json")
    assert "raise --max-iter" in done.err
    assert "raise --max-iter" in done.out
    assert "raise --max-iter" in here("info", "search.nc").out


def test_every_option_of_the_table_exists() -> None:
    known = {name for one in COMMANDS.values() for parameter in one.params for name in parameter.opts}
    assert set(OPTIONS.values()) <= known
    assert set(OPTIONS) <= ARGUMENTS


def test_an_argument_with_an_option_of_its_name_is_in_the_table() -> None:
    """A new option of a fit is spelled as such without further ado only if it is listed."""
    options = {parameter.name for one in COMMANDS.values() for parameter in one.params}
    other = {
        "index",
        "missing",
        "sum",
        "model",
        "size",
        "cells",
        "output",
        "file",
        "data",
        "run",
        "holdout",
        "nmf",
        "cp",
    }
    assert (options & ARGUMENTS) - other <= set(OPTIONS)


def test_whole_numbers_have_the_limits_of_the_library() -> None:
    """So help and messages agree."""
    hints = get_type_hints(fit, include_extras=True)
    options = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    limits: dict[str, Any] = {name: int(one.min) for name, one in options.items() if one.min is not None}
    known = {one.name for one in fields(FitOptions)} & set(limits) - {"tol", "every"}  # these are no whole numbers
    assert known >= {"restarts", "max_iter", *SAMPLING}
    for name in known:
        FitOptions(method="gibbs", **{name: limits[name]})
        with pytest.raises(pltf.PltfError, match=f"{name} must be a whole number of at least {limits[name]}, got"):
            FitOptions(method="gibbs", **{name: limits[name] - 1})


def test_what_has_no_option_stays_as_it_is() -> None:
    assert option("mask=") == "mask="
    assert option("the data") == "the data"
    assert option("value=array([1])") == "--value array([1])"
