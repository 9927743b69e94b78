"""Fits and searches on a Dask cluster of processes: identical results when workers die, join or lose their data."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf import cluster as cluster_module
from pltf import fitting
from pltf.cluster import Cluster
from pltf.data import CooObservation
from pltf.engines import on_cluster, parts
from pltf.engines import plan as plan_module
from tests.cli import here
from tests.extras import required
from tests.stores import in_memory, stored

distributed = required("distributed")
dask = required("dask")

pytestmark = pytest.mark.filterwarnings("ignore::pltf.ConvergenceWarning", "ignore::pltf.SelectionWarning")

SHAPE = (60, 9, 7)
CP, TUCKER = pltf.cp(tuple("abc"), rank=2), pltf.Model("X[a,b,c] = A[a,p] * B[b,q] * C[c,s] * H[p,q,s]", p=2, q=2, s=2)
SHORT: Mapping[str, Any] = {"max_iter": 3, "tol": 0, "progress": False, "dispersion": None}
QUIET = {"silence_logs": 50, "dashboard_address": ":0"}  # killed workers cause long log messages


def cells(unlisted: str = "zero", holes: int = 0, most: int = 9) -> CooObservation:
    rng = np.random.default_rng(3)
    x = np.minimum(rng.poisson(1.0, SHAPE) * (rng.random(SHAPE) < 0.2), most)
    missing = np.argwhere(x == 0)[:holes] if holes else None
    seen = pltf.observe((np.argwhere(x), x[x > 0]), shape=SHAPE, unlisted=unlisted, missing=missing)
    assert isinstance(seen, CooObservation)
    return seen


@pytest.fixture(scope="module", autouse=True)
def _default_scheduler() -> Iterator[None]:
    """Restore the scheduler of other tests: of several clients in one process, the last to close may leave its own."""
    yield
    dask.config.config.pop("scheduler", None)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Of four processes with one thread each."""
    with (
        distributed.LocalCluster(n_workers=4, threads_per_worker=1, **QUIET) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store of nine parts."""
    return stored(cells("missing"), tmp_path_factory.mktemp("stores") / "cells", parts=9)


def only(count: int, patch: pytest.MonkeyPatch) -> None:
    """Have fits use so many workers."""
    workers = Cluster.present
    patch.setattr(Cluster, "present", lambda self: dict(list(workers(self).items())[:count]))


def assert_same(one: Any, other: Any) -> None:
    assert one.bound == other.bound
    np.testing.assert_array_equal(one.trace, other.trace)
    for name in one.factors:
        np.testing.assert_array_equal(one.factors[name].mean, other.factors[name].mean)


LEARNED = pltf.Gamma(0.5, 1.0, learn="both", tie="component")
PROBLEMS: Mapping[str, Any] = {
    "missing": (CP, cells("missing"), {"prior": LEARNED}),
    "zeros": (CP, cells(), {"dtype": "float32"}),
    "holes": (TUCKER, cells(holes=30), {}),
    "links": (CP, cells(most=1), {"likelihood": "bernoulli"}),
    "em": (TUCKER, cells("missing"), {"method": "em"}),
    "gibbs": (CP, cells(), {"method": "gibbs", "chains": 1, "burn_in": 1, "draws": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_same_bits_on_any_number_of_workers(client: Any, problem: str, tmp_path: Path) -> None:
    model, seen, options = PROBLEMS[problem]
    store = stored(seen, tmp_path / "cells", parts=7)
    alone = model.fit(store, **SHORT, **options)
    for count in (1, 2, 4):
        with pytest.MonkeyPatch.context() as patch:
            only(count, patch)
            assert_same(model.fit(store, client=client, **SHORT, **options), alone)


@pytest.mark.slow
def test_dispersion_and_hidden_cells(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "JUDGING_SWEEPS", (3, 3))
    train = pltf.holdout(data, 0.2, seed=1).train
    options = {**SHORT, "dispersion": "auto"}
    alone = CP.fit(train, **options)
    together = CP.fit(train, client=client, **options)
    assert_same(together, alone)
    assert repr(together.dispersion) == repr(alone.dispersion)
    assert alone.dispersion["X"].cells


@pytest.mark.slow
def test_the_plan_tells_of_the_workers(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "4 workers, 4 threads in all; each worker needs " in str(CP.plan(data, client=client))
    monkeypatch.setattr(plan_module, "_RECEIVED", 1 << 40)
    with pytest.raises(
        pltf.PltfError, match=r"each worker of the cluster needs .*, and one has .*: use more or larger"
    ):
        CP.fit(data, client=client)


# -- workers that come and go -------------------------------------------------------------------


def _die_once(marker: str) -> None:
    """Have the first task of all workers kill the worker in the middle."""
    before = parts.sums_of_run

    def dies(*args: Any) -> Any:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return before(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    vars(on_cluster)["sums_of_run"] = dies


def _forget() -> None:
    on_cluster._known.clear()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(data: Any, tmp_path: Path) -> None:
    alone, marker = CP.fit(data, **SHORT), tmp_path / "killed"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(sweep: pltf.Sweep) -> None:
            if sweep.n_iter == 1:
                client.run(_die_once, str(marker))

        assert_same(CP.fit(data, client=client, callback=kill, **SHORT), alone)
    assert marker.exists()


@pytest.mark.slow
def test_workers_that_join_leave_and_forget(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, passes = CP.fit(data, **SHORT), 0
    workers = Cluster.present

    def changing(self: Cluster) -> dict[str, int]:
        nonlocal passes
        passes += 1
        if passes == 3:
            client.run(_forget)
        return dict(list(workers(self).items())[passes % 3 :])

    monkeypatch.setattr(Cluster, "present", changing)
    assert_same(CP.fit(data, client=client, **SHORT), alone)
    assert passes > 4


@pytest.mark.slow
def test_a_fit_goes_on_from_a_checkpoint(client: Any, data: Any, tmp_path: Path) -> None:
    options = {**SHORT, "checkpoint": tmp_path / "fit.nc", "every": 0}

    def die(sweep: pltf.Sweep) -> None:
        if sweep.n_iter == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CP.fit(data, client=client, callback=die, **options)
    assert_same(CP.fit(data, client=client, **{**options, "resume": True}), CP.fit(data, **SHORT))


@pytest.fixture
def brief() -> Iterator[Any]:
    """A cluster in this process, to be closed by a test."""
    with distributed.LocalCluster(n_workers=1, processes=False, **QUIET) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_scheduler_that_is_gone(brief: Any, data: Any) -> None:
    with distributed.Client(brief) as client:

        def close(_: pltf.Sweep) -> None:
            client.close()
            brief.close()

        with pytest.raises(pltf.PltfError, match=r"the Dask scheduler.* is gone, or the client is closed: connect"):
            CP.fit(data, client=client, callback=close, **SHORT)
        with pytest.raises(pltf.PltfError, match=r"the Dask scheduler.* is gone, or the client is closed: connect"):
            CP.fit(data, client=client, **SHORT)


@pytest.mark.slow
def test_workers_that_stay_away(brief: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.0)
    monkeypatch.setattr(cluster_module, "LOOK", 0.01)
    with distributed.Client(brief) as client:

        def retire(sweep: pltf.Sweep) -> None:
            while sweep.n_iter == 1 and client.nthreads():  # one that still has a result stays for a moment
                client.retire_workers(list(client.nthreads()))

        with pytest.raises(pltf.PltfError, match=r"has had no workers for 0 seconds: start some, and resume from a "):
            CP.fit(data, client=client, callback=retire, **SHORT)
        with pytest.raises(pltf.PltfError, match=r"the Dask cluster at .* has no workers"):
            CP.fit(data, client=client, **SHORT)


# -- refused ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_refused_data(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(cells(), tmp_path / "cells")
    with pytest.raises(pltf.PltfError, match="client needs a cell store that all workers see, got CooObs"):
        CP.fit(cells(), client=client)
    with pytest.raises(pltf.PltfError, match="X is in memory, but cluster workers need a cell store: open one"):
        CP.fit(in_memory(cells()), client=client)
    with pytest.raises(pltf.PltfError, match=r"device='cuda' is unsupported with client in a search: workers run its"):
        pltf.select(CP, store, r=[1, 2], client=client, device="cuda")
    (tmp_path / "cells").rename(tmp_path / "elsewhere")
    with pytest.raises(pltf.PltfError, match=r"the Dask worker tcp://.* cannot read the cell store of X \(.*: write"):
        CP.fit(store, client=client)
    with pytest.raises(pltf.PltfError, match=r"cannot read the cell store of X"):
        pltf.select(CP, store, r=[1, 2], client=client, restarts=1)
    (tmp_path / "elsewhere").rename(tmp_path / "cells")
    monkeypatch.setattr(pltf, "__version__", "9.9")
    with pytest.raises(pltf.PltfError, match=r"the Dask worker tcp://.* has pltf .*, but the client has 9\.9"):
        CP.fit(store, client=client)


def test_refused_clients() -> None:
    with pytest.raises(pltf.PltfError, match=r"client must be a distributed\.Client, got str"):
        CP.fit(cells(), client="tcp://127.0.0.1:8786")  # type: ignore[arg-type]


def test_no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(cells(), tmp_path / "cells")
    monkeypatch.setattr(cluster_module, "CONNECT", 0.1)
    for address in ("tcp://127.0.0.1:1", "nowhere", "no://where:1"):
        fit = here("fit", tmp_path / "cells", "--cp", 2, "-o", tmp_path / "run.nc", "--scheduler", address)
        assert fit.refusal.startswith(f"there is no Dask scheduler at {address}: ")


@pytest.mark.slow
def test_a_damaged_part_is_told(client: Any, tmp_path: Path) -> None:
    store = stored(cells(), tmp_path / "cells", parts=5)
    path = tmp_path / "cells" / "part-00002.arrow"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(pltf.ObservationError, match=r"part-00002\.arrow of a cell store has changed"):
        CP.fit(store, client=client)


# -- searches -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["store", "memory"])
def test_a_search_on_a_cluster_is_the_same_search(client: Any, data: Any, kind: str) -> None:
    seen = data if kind == "store" else cells("missing")
    options: dict[str, Any] = {"r": [1, 2], "restarts": 4, "max_iter": 20, "progress": False, "folds": 2}
    alone = pltf.select(CP, seen, criterion="both", **options)
    together = pltf.select(CP, seen, criterion="both", client=client, **options)
    pd.testing.assert_frame_equal(together.table.drop(columns="seconds"), alone.table.drop(columns="seconds"))
    pd.testing.assert_frame_equal(together.heldout, alone.heldout)
    assert_same(together.best_fit, alone.best_fit)


# -- collections --------------------------------------------------------------------------------


@pytest.mark.slow
def test_dask_dataframes(client: Any) -> None:
    dd: Any = required("dask.dataframe")
    at, x = cells().coords.T, cells().values
    frame = pd.DataFrame(np.repeat(at, x.astype(int), axis=0), columns=list("abc"))
    few = dd.from_pandas(frame, npartitions=3)
    one, other = CP.fit(few, client=client, **SHORT), CP.fit(few, **SHORT)
    assert_same(one, other)
    np.testing.assert_allclose(one.bound, CP.fit(frame, **SHORT).bound, rtol=1e-12)
    assert one.labels["a"] == pltf.observe(frame, dims=list("abc")).labels["a"]
    with pytest.warns(
        pltf.DataWarning, match=r"every row counts one, and the columns n, m are not used: .* pltf.prepare"
    ):
        CP.fit(dd.from_pandas(frame.assign(n=1, m=1), npartitions=2), **SHORT)
    with pytest.raises(pltf.ObservationError, match=r"data is a Dask collection: write a cell store"):
        pltf.observe(few, dims=list("abc"))
    with pytest.raises(pltf.ObservationError, match="mask does not go with a collection of Dask"):
        CP.fit(few, mask=np.ones(SHAPE, bool))


@pytest.mark.slow
def test_dask_arrays(client: Any) -> None:
    da: Any = required("dask.array")
    x = np.random.default_rng(0).poisson(0.5, SHAPE).astype(float)
    x[1, 2, 3] = np.nan
    chunked = da.from_array(x, chunks=(25, 9, 4))
    fit = CP.fit(chunked, **SHORT)
    np.testing.assert_allclose(fit.bound, CP.fit(x, **SHORT).bound, rtol=1e-12)
    assert fit.n_observed["X"] == x.size - 1
    with pytest.raises(pltf.ObservationError, match="X has chunks of unknown sizes"):
        CP.fit(chunked[chunked[:, 0, 0] > 0])


def test_a_collection_leaves_nothing_behind(tmp_path: Path) -> None:
    da: Any = required("dask.array")
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        fit = CP.fit(da.ones(SHAPE, chunks=20), **SHORT)
    assert len(list(tmp_path.iterdir())) == 1
    assert fit.patterns["X"].observed(np.zeros((3, 1), int)).all()
    del fit
    assert not list(tmp_path.iterdir())


# -- the command line ---------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_line(client: Any, tmp_path: Path) -> None:
    stored(cells(), tmp_path / "cells")
    scheduler = client.scheduler.address
    options = ["--max-iter", 3, "--tol", 0, "--dispersion", "none", "--quiet"]
    here("fit", tmp_path / "cells", "--cp", 2, "-o", tmp_path / "one.nc", *options)
    here("fit", tmp_path / "cells", "--cp", 2, "-o", tmp_path / "two.nc", "--scheduler", scheduler, *options)
    one, two = (pltf.load(tmp_path / name) for name in ("one.nc", "two.nc"))
    assert_same(two, one)
    assert (
        here("select", tmp_path / "cells", "--cp", "1:2", "--restarts", 1, "--scheduler", scheduler, *options).code == 0
    )


# -- cuts ---------------------------------------------------------------------------------------


@given(
    cells=st.lists(st.integers(1, 9), min_size=1, max_size=200),
    threads=st.lists(st.integers(1, 8), min_size=1, max_size=9),
)
def test_runs_have_all_parts_once(cells: list[int], threads: list[int]) -> None:
    threads = threads[: len(cells)]
    cuts = on_cluster._cuts(cells, threads)
    assert cuts[0] == 0
    assert cuts[-1] == len(cells)
    assert len(cuts) == len(threads) + 1
    assert all(a < b for a, b in pairwise(cuts))


def test_runs_are_about_equal_and_cut_few_nodes() -> None:
    assert on_cluster._cuts([5] * 130, [1, 1]) == [0, 64, 130]
    assert on_cluster._cuts([5] * 9, [1, 1, 1]) == [0, 3, 6, 9]
    assert on_cluster._cuts([5] * 8, [3, 1]) == [0, 6, 8]
