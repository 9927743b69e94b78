"""Every command end to end, through the installed script, on real files."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io

import pltf
from pltf.cli import commands
from pltf.engines.plan import human
from pltf.report.checks import checks
from tests.cli import SCRIPT, Outcome, here, script

INDEX = ("--index", "user,place,act")
HALVES = [np.repeat(np.eye(2), n // 2, axis=0) * 2 + 0.02 for n in (12, 8, 4)]
RATE = 0.5 * np.einsum("ir,jr,kr->ijk", *HALVES)
COUNTS = np.random.default_rng(5).poisson(RATE)
EVENTS = np.repeat(np.argwhere(COUNTS), COUNTS[COUNTS > 0], axis=0)
WEIGHTY = ("numpy", "scipy", "pandas", "numba", "xarray", "sklearn", "matplotlib", "jinja2", "h5py", "loky", "pyarrow")
UNUSED = ("sklearn", "scipy.stats", "xarray", "matplotlib", "jinja2", "loky", "torch", "dask")  # by a fit of a table

ENDS = ("rate_low", "rate_high", "count_low", "count_high")  # of the intervals


def events() -> pd.DataFrame:
    """A row for each event, in words."""
    names = [[f"{word}{n:02d}" for n in range(size)] for word, size in zip(("u", "p", "a"), COUNTS.shape, strict=True)]
    columns = {name: np.array(names[at])[EVENTS[:, at]] for at, name in enumerate(("user", "place", "act"))}
    return pd.DataFrame(columns).sample(frac=1, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with events and a fit of them."""
    folder = tmp_path_factory.mktemp("cli")
    events().to_csv(folder / "events.csv", index=False)
    done = script("fit", "events.csv", *INDEX, "--cp", 2, "--holdout", 0.2, "--json", "-o", "run.nc", cwd=folder)
    assert done.code == 0, done
    (folder / "fit.json").write_text(done.out)
    return folder


def facts(done: Outcome) -> dict[str, Any]:
    """The JSON that a command prints, and nothing else."""
    assert done.code == 0, done
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_fit(folder: Path) -> None:
    told = json.loads((folder / "fit.json").read_text())
    fit = pltf.load(folder / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert told["bound"] == fit.bound
    assert told["data"]["total"] == len(EVENTS)
    assert told["saved"] == "run.nc"
    assert told["sizes"] == {"user": 12, "place": 8, "act": 4, "r": 2}
    assert len(told["components"]) == 2
    assert fit.held_out is not None
    assert told["hidden"]["cells"] == len(fit.held_out.values)
    hidden = COUNTS[tuple(fit.held_out.cells.T)]
    assert (fit.held_out.values == hidden).all()
    train = pltf.observe(events(), dims=["user", "place", "act"])
    assert fit.n_observed["X"] == train.n_observed - len(hidden)
    assert fit.origin["command"].startswith("pltf fit events.csv --index user,place,act")
    same = pltf.cp(("user", "place", "act"), rank=2).fit(pltf.holdout(train, 0.2).train)
    assert fit.bound == same.bound


def test_fit_of_an_equation_with_a_prior_in_words(folder: Path) -> None:
    text = "X[user,place,act] = U[user,r] * P[place,r] * A[act,r]"
    command = ("fit", folder / "events.csv", "--model", text, "--size", "r=2", "--prior", "U:shape=0.5,mean=10")
    done = here(*command, "--prior", "P:learn=mean,tie=component", "--seed", 3, "-o", folder / "text.nc", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    fit = pltf.load(folder / "text.nc")
    prior = {"U": pltf.Gamma(0.5, 10.0), "P": pltf.Gamma(learn="mean", tie="component")}
    assert isinstance(fit, pltf.Fit)
    assert fit.bound == pltf.Model(text, r=2).fit(events(), prior=prior, seed=3).bound


@pytest.mark.slow
def test_select(folder: Path) -> None:
    command = ("select", "events.csv", *INDEX, "--cp", "1:3", "--restarts", 2, "-o", "search.nc")
    done = script(*command, cwd=folder)
    assert done.code == 0, done
    assert "best         r=2" in done.out
    assert "chosen       by ELBO: with 2 restarts each fold gets only 1, which is unreliable" in done.out
    assert "nats" in done.out
    found = pltf.load(folder / "search.nc")
    assert isinstance(found, pltf.Selection)
    assert found.best == {"r": 2}
    told = facts(here("select", folder / "events.csv", *INDEX, "--cp", "1:3", "--restarts", 2, "--json"))
    assert told["best"] == {"r": 2}
    assert [one["r"] for one in told["candidates"]] == found.summary()["r"].tolist()
    grid = facts(here("select", folder / "events.csv", *INDEX, "--tucker", "1:2,1,2", "--restarts", 1, "--json"))
    assert [one["p"] for one in sorted(grid["candidates"], key=lambda one: int(one["p"]))] == [1, 2]


def test_select_by_hidden_cells(folder: Path) -> None:
    command = ("select", folder / "events.csv", *INDEX, "--cp", "1:3", "--restarts", 1, "--criterion", "heldout")
    done = here(*command, "--folds", 3)
    assert done.code == 0, done
    assert "held-out" in done.out
    assert "+-" in done.out
    assert "nan" not in done.out
    told = facts(here(*command, "--score", "auc", "--json"))
    assert told["best"] == {"r": 2}
    assert all(0 < one["heldout"] <= 1 for one in told["candidates"])
    refused = here(*command[:-1], "bound", "--score", "auc")
    assert refused.code == 2
    assert "--score auc requires --criterion heldout or --criterion both, got --criterion bound" in refused.err


@pytest.mark.extra("io")
@pytest.mark.slow
def test_predict(folder: Path) -> None:
    asked = pd.DataFrame({"note": ["007", ""], "act": ["a01", "a00"], "user": ["u03", "u01"], "place": ["p00", "p02"]})
    asked.to_csv(folder / "asked.csv", index=False)
    done = script("predict", "run.nc", "--cells", "asked.csv", "--level", 0.8, cwd=folder)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0] == "note,act,user,place,mean,sd,prob,supported,rate_low,rate_high,count_low,count_high"
    assert lines[1].startswith("007,a01,u03,p00,")
    fit = pltf.load(folder / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert float(lines[1].split(",")[4]) == fit.mean(asked)[0]
    assert float(lines[2].split(",")[9]) == fit.interval(asked, 0.8)[1][1]
    assert float(lines[2].split(",")[11]) == fit.interval(asked, 0.8, counts=True)[1][1]
    assert lines[2].split(",")[7] == str(fit.supported(asked)[1])
    for name in ("top.csv", "top.tsv.gz", "top.parquet"):
        assert here("predict", folder / "run.nc", "--top", 5, "-o", folder / name).code == 0
    top = pd.read_csv(folder / "top.csv")
    assert top.equals(pd.read_csv(folder / "top.tsv.gz", sep="\t"))
    assert top["user"].tolist() == fit.top(5)["user"].tolist()
    assert pd.read_parquet(folder / "top.parquet")["prob"].tolist() == top["prob"].tolist()
    told = facts(here("predict", folder / "run.nc", "--top", 2, "--among", "all", "--json"))
    assert len(told["cells"]) == 2
    assert set(told["cells"][0]) == {"user", "place", "act", "mean", "sd", "prob", "supported", *ENDS}


def test_predict_tells_how_many_cells_are_left_out(tmp_path: Path) -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    X[2], X[1, 1] = np.nan, np.nan  # nothing is known of a row
    pltf.nmf(rank=1).fit(X, prior=pltf.Gamma(1.0, 10.0), progress=False).save(tmp_path / "run.nc")
    done = here("predict", tmp_path / "run.nc", "--top", 20)
    assert "5 of the 6 most probable cells are left out: the data do not support their predictions" in done.err
    assert facts(here("predict", tmp_path / "run.nc", "--top", 20, "--json"))["left_out"] == 5
    assert "left out" not in here("predict", tmp_path / "run.nc", "--top", 20, "--unsupported").err


@pytest.mark.slow
def test_score(folder: Path) -> None:
    fit = pltf.load(folder / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.held_out is not None
    told = facts(script("score", "run.nc", "--json", cwd=folder))
    labels = [[f"{word}{n:02d}" for n in cell] for word, cell in zip("upa", fit.held_out.cells.T, strict=True)]
    table = pd.DataFrame(dict(zip(("user", "place", "act"), labels, strict=True))).assign(n=fit.held_out.values)
    table.to_csv(folder / "hidden.csv", index=False)
    again = facts(here("score", folder / "run.nc", folder / "hidden.csv", "--value", "n", "--json"))
    assert again["scores"]["auc"]["value"] == pytest.approx(told["scores"]["auc"]["value"], abs=1e-12)
    assert told["cells"] == again["cells"] == len(table)


def test_score_of_ratings(tmp_path: Path) -> None:
    """None of them is zero, so there is nothing to be told apart."""
    at = np.argwhere(np.random.default_rng(0).random((12, 8)) < 0.7)
    stars = 1 + at.sum(axis=1) % 5
    pd.DataFrame({"user": at[:, 0], "film": at[:, 1], "stars": stars}).to_csv(tmp_path / "stars.csv", index=False)
    read = (tmp_path / "stars.csv", "--index", "user,film", "--value", "stars", "--missing", "unlisted")
    assert here("fit", *read, "--nmf", 1, "--holdout", 0.3, "-o", tmp_path / "run.nc").code == 0
    refused = here("score", tmp_path / "run.nc", "--ranking")
    assert refused.code == 2
    assert refused.err.endswith(" are above zero: --no-ranking leaves these out\n")
    assert "no AUC and average precision: they need both" in here("score", tmp_path / "run.nc").out
    told = facts(here("score", tmp_path / "run.nc", "--json"))
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert told["scores"]["rmse"]["value"] == pltf.metrics.score(fit, ranking=False).rmse
    assert list(told["scores"]) == ["log_likelihood", "deviance", "rmse"]


@pytest.mark.extra("plot")
@pytest.mark.slow
def test_report(folder: Path) -> None:
    done = script("report", "run.nc", "-o", "report.html", "--title", "Visits", cwd=folder)
    assert done.code == 0, done
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Visits" in page
    assert done.out.startswith("saved        report.html (")


def test_plan(folder: Path) -> None:
    done = script("plan", "events.csv", *INDEX, "--cp", 2, cwd=folder)
    assert done.code == 0, done
    assert "engine    sparse: X lists its cells" in done.out
    told = facts(here("plan", folder / "events.csv", *INDEX, "--tucker", "2,2,2", "--json"))
    assert told["latent"] == {"p": 2, "q": 2, "r": 2}
    assert told["flops"] > 0


def test_plan_tells_the_memory_of_all_that_can_be_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "available_threads", lambda: 3)
    np.save(folder / "x.npy", COUNTS)
    command = ("plan", folder / "x.npy", "--cp", 2)
    planned, told = pltf.cp(rank=2).plan(pltf.observe(COUNTS)), facts(here(*command, "--json"))
    assert told["peak_bytes"] == planned.peak_bytes
    assert (told["search_bytes"], told["search_workers"]) == (planned.search_bytes(workers=3), 3)
    assert told["predict_bytes"] == planned.predict_bytes(cells=100_000)
    assert told["report_bytes"] == planned.report_bytes
    shown = here(*command).out
    assert f"search    {human(planned.search_bytes(workers=3), 'B')} with 10 restarts, 3 at a time\n" in shown
    assert f"predict   {human(planned.predict_bytes(cells=100_000), 'B')} for 100,000 cells\n" in shown
    assert f"report    {human(planned.report_bytes, 'B')}\n" in shown


@pytest.mark.parametrize("options", [{"method": "em"}, {"method": "gibbs"}, {"dispersion": None}, {"dispersion": 2.5}])
def test_plan_of_other_fits(folder: Path, options: dict[str, Any]) -> None:
    np.save(folder / "x.npy", COUNTS)
    words = [word for name, one in options.items() for word in (f"--{name}", str(one).lower())]
    told = facts(here("plan", folder / "x.npy", "--cp", 2, *words, "--json"))
    assert told["work_bytes"] == pltf.cp(rank=2).plan(pltf.observe(COUNTS), **options).work_bytes
    assert told["work_bytes"] != facts(here("plan", folder / "x.npy", "--cp", 2, "--json"))["work_bytes"]


def test_info(folder: Path) -> None:
    done = script("info", "events.csv", cwd=folder)
    assert done.code == 0, done
    assert f"{len(EVENTS):,} rows, 3 columns" in done.out
    assert "user   words, 12 different: u00 to u11" in done.out
    told = facts(here("info", folder / "run.nc", "--json"))
    assert (told["kind"], told["latent"]) == ("fit", {"r": 2})
    assert told["origin"]["source"] == "events.csv"
    assert "Fit of Model" in here("info", folder / "run.nc").out
    np.save(folder / "x.npy", np.where(COUNTS == 3, np.nan, COUNTS))
    told = facts(here("info", folder / "x.npy", "--json"))
    assert told["data"]["shape"] == [12, 8, 4]
    assert told["data"]["observed"] == COUNTS.size - (COUNTS == 3).sum()
    np.save(folder / "minus.npy", -COUNTS)
    assert "cannot be fitted" in here("info", folder / "minus.npy").out


def test_info_of_many_kinds_of_columns(tmp_path: Path) -> None:
    text = "who,when,n,x,,b\nann,2026-01-05,3,0.5,1,true\nbob,2026-02-05,,NA,2,false\n"
    (tmp_path / "a.csv").write_text(text)
    columns = facts(here("info", tmp_path / "a.csv", "--json"))["columns"]
    assert [one["holds"] for one in columns] == [
        "words",
        "dates",
        "whole numbers",
        "numbers",
        "whole numbers",
        "whole numbers",
    ]
    assert [one["absent"] for one in columns] == [0, 0, 1, 1, 0, 0]
    assert "(no name)" in here("info", tmp_path / "a.csv").out


def test_convert(folder: Path) -> None:
    done = script("convert", "events.csv", "counts.tns", *INDEX, cwd=folder)
    assert done.code == 0, done
    assert (folder / "counts.tns").read_text().startswith("# sizes 12 8 4\n")
    labels = pd.read_csv(folder / "counts.tns.labels.csv")
    assert labels[labels["index"] == "place"]["label"].tolist() == [f"p{n:02d}" for n in range(8)]
    told = facts(here("convert", folder / "counts.tns", folder / "counts.npz", "--json"))
    assert told["data"]["total"] == len(EVENTS)


def test_fit_of_matlab_data(folder: Path) -> None:
    scipy_io.savemat(folder / "x.mat", {"X": COUNTS, "Y": COUNTS[0]})
    done = here("fit", folder / "x.mat", "--variable", "X", "--cp", 2, "-i", "a,b,c", "-o", folder / "mat.nc")
    assert done.code == 0, done
    fit = pltf.load(folder / "mat.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.bound == pytest.approx(pltf.cp(("a", "b", "c"), rank=2).fit(COUNTS).bound, rel=1e-9)


@pytest.mark.extra("plot")
@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    done = script("demo", tmp_path / "demo")
    assert done.code == 0, done
    assert sorted(os.listdir(tmp_path / "demo")) == ["events.csv", "report.html", "run.nc", "search.nc"]
    assert "best         r=3" in done.out
    assert "exists: use --force to overwrite it" in here("demo", tmp_path / "demo").refusal


@pytest.mark.slow
def test_ctrl_c_saves_the_best_so_far(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).poisson(1.0, (60, 60, 60)))
    command = [str(SCRIPT), "fit", "x.npy", "--cp", "10", "--tol", "0", "--max-iter", "1000000", "--restarts", "9"]
    command += ["--checkpoint", "kept.nc", "--every", "0.1", "-o", "run.nc"]
    going = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while not (tmp_path / "kept.nc").exists() and time.monotonic() < until:
        time.sleep(0.1)
    going.send_signal(signal.SIGINT)
    out, err = going.communicate(timeout=100)
    assert going.returncode == 130, err
    assert "the best so far" in out
    assert "interrupted" in err
    assert "Traceback" not in err
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.rows[-1].stopped == "interrupted"
    assert sorted(os.listdir(tmp_path)) == ["kept.nc", "run.nc", "x.npy"]


def test_ctrl_c_before_anything_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **options: Any) -> int:
        if options["checkpoint"] is not None:
            options["checkpoint"].touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "select", stop)
    command = ("select", tmp_path / "x.npy", "--nmf", "1:2")
    told = here(*command)
    assert (told.code, told.err) == (130, "pltf: interrupted before anything was finished: nothing is saved\n")
    kept = tmp_path / "kept.nc"
    told = here(*command, "--checkpoint", kept)
    assert f"interrupted: {kept} has the progress so far, continue with --resume" in told.err
    assert "nothing is saved" in here(*command, "--checkpoint", kept).err  # it was there before
    assert "has the progress so far" in here(*command, "--checkpoint", kept, "--resume").err


def test_ctrl_c_after_the_result_is_saved(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_tell_fit", stop)
    told = here("fit", folder / "events.csv", *INDEX, "--cp", 1, "-o", tmp_path / "run.nc", "--quiet")
    assert (told.code, told.err) == (130, f"pltf: interrupted: {tmp_path / 'run.nc'} is saved\n")
    assert isinstance(pltf.load(tmp_path / "run.nc"), pltf.Fit)


def test_a_checkpoint_is_gone_on_with(folder: Path, tmp_path: Path) -> None:
    command = ("fit", folder / "events.csv", *INDEX, "--cp", 2, "--every", 0, "--checkpoint", tmp_path / "kept.nc")
    assert here(*command, "-o", tmp_path / "a.nc").code == 0
    assert "--resume" in here(*command, "-o", tmp_path / "b.nc").refusal
    assert here(*command, "--resume", "-o", tmp_path / "b.nc").code == 0
    first, second = pltf.load(tmp_path / "a.nc"), pltf.load(tmp_path / "b.nc")
    assert isinstance(first, pltf.Fit)
    assert isinstance(second, pltf.Fit)
    assert first.bound == second.bound
    assert "a different model" in here(*command[:5], 3, *command[6:], "--resume", "-o", tmp_path / "c.nc").err


def test_going_on_replaces_its_own_output_and_no_other(folder: Path, tmp_path: Path) -> None:
    def fit(rank: int, checkpoint: str, *more: str) -> Outcome:
        kept = ("--every", 0, "--checkpoint", tmp_path / checkpoint)
        return here("fit", folder / "events.csv", *INDEX, "--cp", rank, *kept, "-o", tmp_path / "a.nc", *more)

    assert fit(1, "one.nc").code == 0
    for again in ("--resume", "--resume --quiet", "--resume --json"):
        assert fit(1, "one.nc", *again.split()).code == 0
    for rank, checkpoint in ((2, "one.nc"), (2, "none.nc"), (1, "none.nc")):
        assert "exists: use --force to overwrite it" in fit(rank, checkpoint, "--resume").refusal
    (tmp_path / "one.nc").unlink()
    assert "exists: use --force to overwrite it" in fit(1, "one.nc", "--resume").refusal
    (tmp_path / "a.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:-9])
    assert "exists: use --force to overwrite it" in fit(1, "one.nc", "--resume").refusal


def test_a_column_with_a_comma_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"Last, first",place,n\n"Lee, Ann",bar,3\n"Lee, Bob",gym,4\n')
    named = '"Last, first"=name,place'
    assert here("fit", tmp_path / "a.csv", "-i", named, "--nmf", 1, "-o", tmp_path / "run.nc").code == 0
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.labels["name"].names() == ["Lee, Ann", "Lee, Bob"]


@pytest.mark.extra("plot")
@pytest.mark.slow
def test_work_is_done_though_nobody_reads_on(tmp_path: Path) -> None:
    command = f"({SCRIPT} demo out; echo rc $? > code) 2>&1 | head -n 1"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=300)
    until = time.monotonic() + 200
    while not (tmp_path / "code").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (tmp_path / "code").read_text() == "rc 0\n"
    assert (tmp_path / "out" / "report.html").exists()


# -- help, pipes, terminals ---------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    check = (
        f"import sys; from pltf.cli.main import run; run(['--help']); print([m for m in {WEIGHTY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_fit_of_a_table_imports_only_what_it_needs(folder: Path, tmp_path: Path) -> None:
    words = ["fit", str(folder / "events.csv"), *INDEX, "--cp", "2", "-o", str(tmp_path / "run.nc")]
    check = f"import sys; from pltf.cli.main import run; assert run({words}) == 0; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=300, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert not imported.intersection(UNUSED)
    assert "pandas" in imported


def test_help_has_examples_on_lines_of_their_own() -> None:
    for command in ("fit", "select", "predict", "score", "report", "plan", "info", "convert", "demo"):
        told = here(command, "--help")
        assert told.code == 0
        lines = [line.strip() for line in told.out.splitlines()]
        examples = [line for line in lines if line.startswith(f"pltf {command}")]
        assert examples, told.out
        assert command in here("--help").out
    assert "'X[i,j] = A[i,r] * B[j,r]'" in here("fit", "--help").out


def test_version_and_module() -> None:
    done = subprocess.run([sys.executable, "-m", "pltf", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, version("pltf"), "")


def test_completion(folder: Path) -> None:
    words = {"_PLTF_COMPLETE": "complete_bash", "COMP_WORDS": "pltf se", "COMP_CWORD": "1"}
    done = subprocess.run([SCRIPT], env={**os.environ, **words}, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["select"]
    in_bash = ["bash", "-c", f"{SCRIPT} --show-completion; exit $?"]  # which shell it is for is seen from the parents
    shown = subprocess.run(in_bash, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "_PLTF_COMPLETE" in shown.stdout


@pytest.mark.slow
def test_a_reader_who_has_seen_enough(folder: Path) -> None:
    command = f"{SCRIPT} predict run.nc --top 300 --draws 10 --among all; echo rc $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | head -n 1"], cwd=folder, capture_output=True, text=True)
    assert done.stdout.startswith("user,place,act")
    assert done.stderr.splitlines() == ["rc 0"]


def test_a_terminal_shows_a_table(folder: Path) -> None:
    screen, terminal = pty.openpty()
    command = [str(SCRIPT), "predict", "run.nc", "--top", "2", "--among", "all"]
    done = subprocess.run(command, cwd=folder, stdout=terminal, stderr=subprocess.PIPE, timeout=60)
    os.close(terminal)
    shown = os.read(screen, 1 << 16).decode()
    os.close(screen)
    assert done.returncode == 0
    assert shown.split()[:4] == ["user", "place", "act", "mean"]
    assert "," not in shown


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    done = here("info", tmp_path / "none.csv", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("pltf: there is no file")


def test_a_bug_has_another_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr("pltf.cli.commands.load", broken)
    done = here("score", folder / "run.nc")
    assert done.code == 1
    assert "internal error, please report it (ZeroDivisionError: of all things)" in done.err


def test_a_fit_that_is_worse_than_popularity_is_called_so(tmp_path: Path) -> None:
    """Counts that are popularity and noise, and far too many components without a prior."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.outer(rng.gamma(2.0, 1.0, 40), rng.gamma(2.0, 1.0, 30)))
    cells = pd.DataFrame(np.argwhere(counts), columns=["user", "place"]).assign(n=counts[counts > 0])
    cells.to_csv(tmp_path / "flat.csv", index=False)
    command = ("fit", tmp_path / "flat.csv", "-i", "user,place", "--value", "n", "--nmf", 12, "--method", "em")
    done = here(*command, "--holdout", 0.2, "-o", tmp_path / "flat.nc")
    assert "score        Worse than popularity: the log-likelihood is -" in done.out
    scores = here("score", tmp_path / "flat.nc")
    verdict = scores.out.splitlines()[-1].strip()
    assert f"score        {verdict}" in done.out
    told = facts(here("score", tmp_path / "flat.nc", "--json"))
    assert (told["verdict"], told["beats_popularity"]) == (verdict, False)


def test_of_many_held_out_cells_fit_and_report_score_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sample with the same seed, and both say so."""
    for module in ("pltf.cli.commands", "pltf.report.checks"):
        monkeypatch.setattr(f"{module}.MOST_SCORED", 200)
    counts = np.random.default_rng(0).poisson(0.3, (50, 40))
    cells = pd.DataFrame(np.argwhere(counts), columns=["user", "place"]).assign(n=counts[counts > 0])
    cells.to_csv(tmp_path / "flat.csv", index=False)
    command = ("fit", tmp_path / "flat.csv", "-i", "user,place", "--value", "n", "--nmf", 2, "--holdout", 0.5)
    done = here(*command, "-o", tmp_path / "flat.nc")
    verdict = next(line for line in done.out.splitlines() if line.startswith("score")).removeprefix("score").strip()
    verdict, sample = verdict.split(" (200 of")
    assert sample == " the 1,000 held-out cells; pltf score takes all)"
    fit = pltf.load(tmp_path / "flat.nc")
    assert isinstance(fit, pltf.Fit)
    (checked,) = checks(fit, None, progress=False)
    assert checked.scores is not None
    assert checked.scores.verdict() == verdict
    assert "Scored on 200 of the 1,000 held-out cells" in checked.notes[0]
