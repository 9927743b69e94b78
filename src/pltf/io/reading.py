"""Options for reading a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pltf.errors import PltfError, choice, flag, py
from pltf.io.opening import checked_encoding

TEXTS = ("csv", "tsv", "tns", "jsonl", "json")
DATABASES = ("sqlite", "duckdb", "sql")
ARRAYS = ("npz", "mat", "netcdf", "h5ad", "h5mu", "zarr")
# Which options go with which formats.
GO_WITH = {
    "variable": ARRAYS,
    "sheet": ("excel",),
    "query": DATABASES,
    "encoding": TEXTS,
    "decimal": ("csv", "tsv"),
}


@dataclass(frozen=True)
class Reading:
    """Options for reading a file; None means detect from the file."""

    format: str | None = None
    variable: str | None = None  # array to read, if the file has several
    sheet: str | None = None  # sheet of a workbook
    query: str | None = None  # SQL, or the name of a table
    encoding: str | None = None  # encoding of text
    decimal: str | None = None  # "." or ","
    keep_blanks: bool = False  # keep leading and trailing blanks of labels and headers
    limit: float | None = None  # maximum memory in bytes

    def __post_init__(self) -> None:
        flag("keep_blanks", self.keep_blanks)
        if self.decimal is not None:
            choice("decimal", self.decimal, (".", ","))
        object.__setattr__(self, "encoding", checked_encoding(self.encoding))

    def header(self, names: Iterable[str]) -> list[str]:
        """The names of columns without blanks around them, unless they are kept."""
        return list(names) if self.keep_blanks else [name.strip() for name in names]

    def check(self, path: Path, kind: str) -> None:
        """Refuse what does not go with a format."""
        for option, kinds in GO_WITH.items():
            if getattr(self, option) is not None and kind not in kinds:
                raise PltfError(f"{py:{option}} cannot be used here: {path} is a {kind} file")
