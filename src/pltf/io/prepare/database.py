"""DuckDB with a memory limit and access to the named files only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pltf.errors import PltfError, py
from pltf.inference.progress import Progress

T = TypeVar("T")
ROWS = 1 << 20  # in a batch of results
_MOMENT = 0.2  # seconds between progress checks
_LIMITS: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "preserve_insertion_order": False,  # queries that need an order ask for it; otherwise DuckDB takes less memory
    "default_collation": "",
}


class Database:
    """A database in its own folder. Queries run in another thread, so that Ctrl-C works while they run."""

    def __init__(self, folder: Path, files: Sequence[Path], memory: float, threads: int, stages: Stages) -> None:
        try:
            import duckdb
        except ImportError:
            raise PltfError("pltf.prepare needs duckdb: pip install 'pltf[io]'") from None
        self._errors, self._stages, self._memory, self._folder = duckdb.Error, stages, memory, folder
        spilled = str(folder / "spilled")
        room: dict[str, Any] = {"memory_limit": f"{int(memory)}B", "threads": threads, "temp_directory": spilled}
        self._connection = duckdb.connect(str(folder / "rows.duckdb"), config={**_LIMITS, **room})
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pltf_prepare")
        for setting in (
            f"allowed_paths = [{', '.join(quoted(str(file)) for file in files)}]",
            "enable_external_access = false",
            "enable_progress_bar = true",
            "enable_progress_bar_print = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}").fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._connection.interrupt()
        self._worker.shutdown(wait=True, cancel_futures=True)
        with suppress(self._errors):
            self._connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a small result."""
        return [tuple(row.values()) for batch in self.batches(query) for row in batch.to_pylist()]

    def run(self, statement: str) -> None:
        """Run a statement without a result."""
        self._wait(lambda: self._connection.execute(statement).fetchall())

    def batches(self, query: str) -> Iterator[Any]:
        """A result as Arrow batches, which are never all in memory."""
        reader = self._wait(lambda: self._connection.sql(query).to_arrow_reader(ROWS))
        while (batch := self._wait(lambda: next(reader, None))) is not None:
            if len(batch):
                yield batch

    @contextmanager
    def stream(self, name: str, schema: Any, batches: Iterator[Any]) -> Iterator[None]:
        """Let one query read batches under a name. Errors of the iterator are raised unchanged."""
        import pyarrow as pa

        failed: list[BaseException] = []

        def watched() -> Iterator[Any]:
            try:
                yield from batches
            except BaseException as error:
                failed.append(error)
                raise

        self._connection.register(name, pa.RecordBatchReader.from_batches(schema, watched()))
        try:
            yield
        except PltfError:
            if failed:
                raise failed[0] from None
            raise
        finally:
            with suppress(self._errors):
                self._connection.unregister(name)

    def create(self, table: str, schema: Any, batches: Iterator[Any], columns: str = "*") -> None:
        """Make a table of some columns of batches."""
        with self.stream("coming", schema, batches):
            self.run(f"CREATE TABLE {table} AS SELECT {columns} FROM coming")

    def _wait(self, work: Callable[[], T]) -> T:
        """Run something in the thread and show progress."""
        future = self._worker.submit(work)
        try:
            while True:
                try:
                    return future.result(_MOMENT)
                except NotYetError:
                    self._stages.update(self._connection.query_progress())
        except self._errors as error:
            raise self._sentence(error) from error
        except BaseException:
            self._connection.interrupt()
            raise

    def _sentence(self, error: Exception) -> PltfError:
        """Turn a DuckDB error into one sentence."""
        text = " ".join(str(error).split("\n\n")[0].split())
        if "No space left" in text or "max_temp_directory_size" in text:
            return PltfError(f"the disk of {self._folder.parent.parent} is full: sorting needs more space there")
        if "memory" in type(error).__name__.lower():
            return PltfError(
                f"{self._memory / 1e9:.1f} GB of memory are not enough to sort the data: raise {py:memory_limit}"
            )
        text = text.split(" Possible ")[0].split(": ", 1)[-1]
        return PltfError(f"{self._stages.name} cannot be read: {text[:300]}")


class Stages:
    """Shows progress through the stages of the work."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self._progress, self._doing, self._share, self._done = progress, "", (0.0, 0.0), 0.0

    def start(self, what: str, first: float, last: float) -> None:
        """Start a stage, which takes the progress from one fraction to another."""
        self._doing, self._share, self._done = what, (first, last), first
        self._progress.show(first, what)

    def update(self, percent: float) -> None:
        """Show the percentage of a query of this stage that is done; later queries of the stage do not go back."""
        first, last = self._share
        self._done = max(self._done, first + (last - first) * percent / 100)
        self._progress.show(self._done, self._doing)


def quoted(text: str) -> str:
    """A string literal in SQL.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    """A column name in SQL.

    >>> print(named('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'
