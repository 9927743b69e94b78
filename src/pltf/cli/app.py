"""The commands and their options. What they do is in :mod:`pltf.cli.commands`, imported when one is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import cache, partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from pltf.cli.main import INTERRUPTED, NOTHING, REFUSED, ExitCode, told, too_little_memory

COMMAND: ContextVar[Sequence[str]] = ContextVar("COMMAND", default=())  # what was written after pltf

app = typer.Typer(
    name="pltf",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Bayesian factorization of count and link data with any number of modes and missing cells.

From a table of events to a report:

    pltf fit events.csv
    pltf select events.csv --index user,place,act --cp 2:10 -o search.nc
    pltf fit events.csv --index user,place,act --cp 7 -o run.nc
    pltf report run.nc -o report.html

The first shows the columns and suggests a command. pltf demo runs all of this on generated data.
Every command has examples: pltf fit --help.

Errors are one clear sentence, with exit code 2; --debug shows the traceback.""",
)


@cache
def command_line() -> Any:
    """The click command of the app, built once: building takes longer than some commands, and the demo runs several."""
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("pltf"))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, metavar="", help="Print the version.")
    ] = False,
) -> None:
    pass


def _do(command: str, options: dict[str, Any]) -> int:
    if lack := too_little_memory():
        return told(lack, REFUSED)
    from pltf.cli import commands  # brings NumPy and more, for which --help does not wait
    from pltf.cli.data import given_files
    from pltf.cli.parsing import limit_of
    from pltf.cli.telling import Teller

    if command not in _OF_SEVERAL_TENSORS and "index" in options:
        options["index"] = ",".join(options["index"] or ()) or None
    for size in ("limit", "memory"):
        if size in options:
            options[size] = limit_of(options[size], f"--{size}")
    options = {name: one.value if isinstance(one, StrEnum) else one for name, one in options.items()}
    kept = options.get("checkpoint")
    known = kept is not None and kept.exists() and not options.get("resume")  # of another run
    tell = Teller(options.pop("json"), options.pop("quiet"))
    try:
        with tell, given_files(options, COMMAND.get()):
            return ExitCode(getattr(commands, command)(tell, **options))
    except KeyboardInterrupt:
        text = NOTHING
        if tell.saved is not None:
            text = f"interrupted: {tell.saved} is saved"
        elif kept is not None and kept.exists() and not known:
            text = f"interrupted: {kept} has the progress so far, continue with --resume"
        return ExitCode(told(text, INTERRUPTED))


_OF_SEVERAL_TENSORS = ("fit", "select", "plan")  # commands that take coupled models

# -- arguments and options ----------------------------------------------------------------------

REQUIRED = Parameter.empty


def _argument(name: str, kind: Any, metavar: str, help: str, default: Any = REQUIRED) -> Parameter:
    """An argument of a command; typer reads all of this from its signature."""
    info = typer.Argument(metavar=metavar, help=help)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _option(
    names: str, kind: Any, metavar: str | None, help: str, default: Any = None, panel: str | None = None, **more: Any
) -> Parameter:
    """An option of a command, named as in ``--index -i``; it is optional unless the default is ``REQUIRED``."""
    flags = names.split()
    name = flags[0].split("/")[0].removeprefix("--").replace("-", "_")
    info = typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, **more)
    kind = kind | None if default is None else kind
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _flag(names: str, help: str, panel: str | None = None) -> Parameter:
    """An option without a value."""
    return _option(names, bool, "", help, default=False, panel=panel)


_data, _model = partial(_option, panel="Data"), partial(_option, panel="Model")
_fitting, _output = partial(_option, panel="Fitting"), partial(_option, panel="Output")

FileFormat = StrEnum(
    "FileFormat",
    "csv tsv parquet feather excel jsonl json sqlite duckdb tns npz npy mat netcdf h5ad h5mu",
)
MissingCells = StrEnum("MissingCells", "nan unlisted")
MethodName = StrEnum("MethodName", "vb em map gibbs")
CriterionName = StrEnum("CriterionName", "auto bound heldout both")
ScoreName = StrEnum("ScoreName", "log_likelihood auc average_precision")
DtypeName = StrEnum("DtypeName", "float64 float32")
LikelihoodName = StrEnum("LikelihoodName", "poisson bernoulli auto")
AmongCells = StrEnum("AmongCells", "missing zero all")

# -- of several commands ------------------------------------------------------------------------

_FILES = (
    "Data: CSV, TSV (also .gz, .zst, .zip), JSON lines, Excel, Parquet, Feather, SQLite, DuckDB, .tns, .npz, "
    ".npy, .mat, netCDF, .h5ad or .h5mu; the URL of a database; or - for standard input."
)
FILE = _argument("file", Path, "FILE", _FILES)
RUN = _argument("run", Path, "RUN", "File saved by pltf fit or pltf select.")

COUNT = _flag("--count", "Count the rows, and do not list the unused columns.", "Data")
SUM = _flag("--sum", "Add up rows of the same cell.", "Data")
INDEX = _data(
    "--index -i", list[str], "COLUMNS",
    "Columns that are indices: user,place. Rename with user_id=user. Bin dates with when:week or "
    "datetime:hour=h; one column may be used twice: when:weekday=day,when:hourofday=hour. Bins: minute, hour, "
    "day, week, month, quarter, year, weekday, hourofday. For arrays: names of the axes. "
    "With several tensors: X:user_id=user.",
)  # fmt: skip
VALUE = _data("--value", str, "COLUMN", "Column with the values. Default: every row counts one.")
MISSING = _data(
    "--missing", MissingCells, None,
    "Which cells are missing: those with an empty value (nan; unlisted cells are zeros), or all cells "
    "without a row (unlisted; for ratings).",
    default=MissingCells.nan,
)  # fmt: skip
FORMAT = _data(
    "--format", FileFormat, "FORMAT",
    "csv, tsv, jsonl, json, excel, parquet, feather, sqlite, duckdb, tns, npz, npy, mat, netcdf, "
    "h5ad or h5mu. Default: detected from content and extension.",
)  # fmt: skip
VARIABLE = _data("--variable", str, "NAME", "Array or layer to read from a file with several.")
LIMIT = _data(
    "--limit", str, "SIZE", "Memory limit for reading a file, for example 8GB. Default: half of the free memory."
)
STORE = _data("--store", Path, "FOLDER", "The cell store that RUN was fitted to: it says which cells were observed.")

TENSORS = (
    _argument("file", Path | None, "FILE", f"{_FILES} For coupled models, use --data.", default=None),
    _data("--data -d", list[str], "X=FILE", "File of one tensor of a coupled model; repeat for each tensor."),
)
CELLS = (
    INDEX,
    _data(
        "--value", list[str], "COLUMN",
        "Column with the values. Default: every row counts one. With several tensors: X:COLUMN.",
    ),
    COUNT,
    SUM,
    _data(
        "--missing", list[str], "nan|unlisted",
        "Which cells are missing: those with an empty value (nan, the default; unlisted cells are zeros), or all "
        "cells without a row (unlisted; for ratings). With several tensors: X:unlisted.",
    ),
    _data(
        "--zeros", str, "NAMES",
        "With several tensors: indices whose labels all tensors know. Cells of labels that have rows in "
        "another tensor only are zeros. Default: missing.",
    ),
    FORMAT,
    VARIABLE,
)  # fmt: skip
MODEL = (
    _model(
        "--model -m", str, "TEXT",
        r"Equation: 'X\[i,j] = A\[i,r] * B\[j,r]', in short 'ir,jr->ij'; several with ';' between them for "
        "coupled tensors; or a model file (model.toml, model.yaml).",
    ),
    _model("--cp", str, "R", "CP model with R components. For select: 2:10 or 2,4,8."),
    _model("--tucker", str, "P,Q,R", "Tucker model, one rank per index. For select: 1:3,1:3,2."),
    _model("--nmf", str, "R", "Matrix factorization with R components. For select: 2:10."),
    _model(
        "--size -s", list[str], "r=R", "Size of a latent index of --model, for example r=7. For select: r=2:10."
    ),
)  # fmt: skip

PRIOR = _model(
    "--prior -p", list[str], "TEXT",
    "Gamma prior: shape=0.5,mean=10 for all factors, U:shape=0.5,mean=10 for one. "
    "learn=mean|shape|both learns it from the data, tie=factor|component|index:NAME shares it.",
)  # fmt: skip
METHOD = _fitting(
    "--method", MethodName, None, "Variational Bayes (vb), sampling (gibbs), or point estimates (em, map).",
    default=MethodName.vb,
)  # fmt: skip
RESTARTS = _fitting("--restarts", int, "N", "Random starts; the best one is kept.", default=1, min=1)
SEED = _fitting("--seed", int, "N", "Random seed; the same seed gives the same result.", default=0, min=0)
STOPS = (
    _fitting("--max-iter", int, "N", "Maximum iterations per random start.", default=2000, min=1),
    _fitting(
        "--tol", float, "SHARE", "Tolerance: stop when three iterations improve the ELBO by less than this share.",
        default=1e-6, min=0.0, max=1.0,
    ),
)  # fmt: skip
DTYPE = _fitting("--dtype", DtypeName, None, "Floating-point type of the sums over cells.", default=DtypeName.float64)
PROGRESS = (
    _fitting("--checkpoint", Path, "FILE", "Save the progress to this file, to continue with --resume."),
    _fitting("--every", float, "SECONDS", "Seconds between checkpoints.", default=60.0, min=0.0),
    _flag("--resume", "Resume from the checkpoint, if it exists.", "Fitting"),
)
KEEP_DATA = _fitting(
    "--keep-data/--no-keep-data", bool, "",
    "Save the observed cells with the fit; predict --top, score and report need them.",
    default=True,
)  # fmt: skip
LIKELIHOOD = _fitting(
    "--likelihood", LikelihoodName, None,
    "Counts (poisson), links that are 0 or 1 (bernoulli), or chosen from the data (auto).",
    default=LikelihoodName.poisson,
)  # fmt: skip
DISPERSION = _fitting(
    "--dispersion", str, "HOW",
    "Overdispersion of the counts: auto (estimated), none, a number, or index:NAME (one per label).",
    default="auto",
)  # fmt: skip
DEVICE = _fitting(
    "--device", str, "DEVICE", "Device: cpu, cuda, cuda:1, or auto (a GPU if it is faster).", default="cpu"
)
SCHEDULER = _fitting(
    "--scheduler", str, "ADDRESS",
    "Compute on the Dask cluster with this scheduler, as tcp://host:8786. For fit, FILE is a cell "
    "store (pltf prepare) that all workers see.",
)  # fmt: skip

OF = _option("--of", str, "NAME", "Tensor of a coupled model. Default: the first.")
LEVEL = _option("--level", float, "SHARE", "Interval probability.", default=0.9)
PREDICT_DEVICE = _option(
    "--device", str, "DEVICE", "Device for large requests: cpu, cuda, cuda:1, or auto (a GPU if available).",
    default="cpu",
)  # fmt: skip

FORCE = _flag("--force", "Overwrite existing output.", "Output")
TALK = (
    _flag("--json", "Print one JSON object.", "Output"),
    _flag("--quiet -q", "Print no progress, notes or results; errors only.", "Output"),
)
SPREADSHEET_SAFE = _flag(
    "--spreadsheet-safe", "In CSV and TSV, put a ' before labels that spreadsheets would run as formulas.", "Output"
)

OF_TEXT = (
    _data("--sheet", str, "NAME", "Sheet of an Excel workbook."),
    _data("--query", str, "SQL", "For databases: SQL, or the name of a table."),
    _data("--encoding", str, "NAME", "Encoding of text, such as cp1252."),
)
OF_FILES = (
    *OF_TEXT,
    _data("--decimal", str, "SIGN", "Decimal sign of numbers in text: . or ,"),
    _flag("--keep-blanks", "Keep leading and trailing blanks of labels and column names.", "Data"),
)
OF_DATA = (
    *OF_FILES,
    _data(
        "--date-format", str, "FORMAT",
        "How dates to be binned are written, such as %d.%m.%Y; epoch, epoch-ms, epoch-us or epoch-ns for "
        "numbers since 1970.",
    ),
    _data("--timezone", str, "ZONE", "Bin dates by the clock of this time zone, such as Europe/Berlin."),
    _flag("--drop-missing", "Leave out rows without a label.", "Data"),
    _flag("--wide", "A wide table, rows x columns of values: the last index is along the columns.", "Data"),
)  # fmt: skip


# -- commands -----------------------------------------------------------------------------------


def _command(*parameters: Parameter) -> Callable[[Callable[[], None]], Callable[..., int]]:
    """Make a command with these parameters; its name and its help are those of the decorated function."""

    def made(described: Callable[[], None]) -> Callable[..., int]:
        def command(**options: Any) -> int:
            return _do(described.__name__, options)

        command.__name__, command.__doc__ = described.__name__, described.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return app.command()(command)

    return made


@_command(
    *TENSORS,
    _output("--output -o", Path, "FILE", "File for the fit (netCDF)."),
    *(*CELLS, *MODEL, PRIOR, METHOD, RESTARTS, SEED, *STOPS, DTYPE),
    _fitting(
        "--holdout", float, "SHARE",
        "Hold out this share of the cells to score the fit. Beyond a million cells: of the non-zeros, and as "
        "many zeros.",
    ),
    _fitting("--of", str, "NAME", "With --holdout: the tensor of a coupled model. Default: the first."),
    *(*PROGRESS, KEEP_DATA, LIKELIHOOD, DISPERSION, DEVICE, SCHEDULER, FORCE, *TALK),
    _fitting("--chains", int, "N", "For gibbs: chains. Default: 4.", min=1),
    _fitting(
        "--burn-in", int, "N", "For gibbs: iterations to discard at the start of each chain. Default: 200.", min=0
    ),
    _fitting("--draws", int, "N", "For gibbs: draws to keep from each chain. Default: 200.", min=4),
    _fitting("--thin", int, "N", "For gibbs: iterations between draws. Default: 1.", min=1),
    *(LIMIT, *OF_DATA),
)  # fmt: skip
def fit() -> None:
    r"""Fit a model to a file and save the result. Without --index, show the columns and a command to run.

    pltf fit events.csv

    pltf fit events.csv --index user,place,act --cp 7 -o run.nc

    pltf fit visits.csv -i who=user,when:week --value n --sum --nmf 5 -o run.nc

    pltf fit rides.csv -i station,when:weekday=day,when:hourofday=hour --cp 5 --holdout 0.1 -o run.nc

    pltf fit ratings.csv -i user,film --value stars --missing unlisted --nmf 9 -o run.nc

    pltf fit counts.npy -m 'X\[i,j] = A\[i,r] * B\[j,r]' -s r=7 -o run.nc

    pltf fit -m 'X\[u,p]=U\[u,r]*P\[p,r]; Y\[u,w]=U\[u,r]*W\[w,r]' -s r=5 -d X=visits.csv -d Y=words.csv -o run.nc

    pltf fit -m model.toml -o run.nc
    """


@_command(
    *TENSORS,
    _output("--output -o", Path, "FILE", "File for the search and its best fit."),
    *(*CELLS, *MODEL, PRIOR, RESTARTS.replace(default=10), SEED, *STOPS, DTYPE),
    _fitting(
        "--race/--no-race", bool, None, "Stop restarts that fall behind. Default: for CP models, from 5 restarts."
    ),
    _fitting("--workers", int, "N", "Fits in parallel. Default: one per core.", min=1),
    *(*PROGRESS, LIKELIHOOD, DISPERSION, DEVICE, SCHEDULER, FORCE, *TALK),
    _fitting(
        "--criterion", CriterionName, None,
        "Criterion: the bound, or the prediction of held-out cells (auto: these, if there are enough).",
        default=CriterionName.auto,
    ),
    _fitting("--folds", int, "N", "Folds of held-out cells.", default=5, min=2),
    _fitting("--score", ScoreName, None, "Score of held-out cells.", default=ScoreName.log_likelihood),
    _fitting("--widen", bool, None, "Extend the range while the best size is at its edge.", default=False),
    *(LIMIT, *OF_DATA),
)  # fmt: skip
def select() -> None:
    """Choose the number of components: fit a model at several sizes and compare.

    pltf select events.csv --index user,place,act --cp 2:10 -o search.nc

    pltf select counts.npz --tucker 1:3,1:3,2 -o search.nc

    pltf select links.csv -m 'ir,jr->ij' --size r=2:8 --restarts 5
    """


@_command(
    *(RUN, FILE),
    _output("--output -o", Path, "FILE", "File for the updated fit, such as run2.nc.", default=REQUIRED),
    _data(
        "--index -i", list[str], "COLUMNS",
        "Columns that are indices, if their names differ from those that RUN was fitted to.",
    ),
    *(VALUE, COUNT, SUM),
    _data("--missing", MissingCells, None, "Which cells are missing. Default: as RUN was fitted."),
    *(FORMAT, VARIABLE),
    _fitting("--forget", float, "SHARE", "Share of the past to forget, from 0 to below 1.", default=0.0),
    _data(
        "--zeros", str, "NAMES",
        "Indices whose labels are complete: cells of labels without a row are zeros. Default: missing.",
    ),
    _data("--append", str, "NAMES", "Indices without labels whose positions are all new."),
    *(RESTARTS, SEED, *STOPS, KEEP_DATA, FORCE, *TALK, LIMIT, *OF_DATA),
)  # fmt: skip
def update() -> None:
    """Update a fit with new data, using its posterior as the prior. New labels get new rows.

    By default, FILE is read with the options that RUN was fitted with.

    pltf update run.nc today.csv -o run2.nc

    pltf update run.nc today.csv -o run2.nc --zeros user,place --forget 0.05
    """


@_command(
    *(RUN, OF),
    _option("--cells", Path, "FILE", "Cells to predict: a table with one column per index."),
    _option("--top", int, "N", "Or: the N most probable cells.", min=1),
    _option(
        "--among", AmongCells, None, "For --top: which cells to search. Default: missing cells, otherwise zeros."
    ),
    _option(
        "--atleast", int, "N", "The column prob is the probability of a count of at least N.", default=1, min=1
    ),
    LEVEL,
    _option("--draws", int, "N", "Number of posterior draws.", default=1000, min=1),
    *(SEED, PREDICT_DEVICE),
    _output(
        "--output -o", Path, "FILE",
        ".csv, .tsv (also .gz) or .parquet. Default: print, as a table to a terminal and as CSV to a pipe.",
    ),
    *(FORMAT, FORCE, *TALK),
    _option(
        "--unsupported", bool, None, "With --top: include cells that the data do not support (column supported).",
        default=False,
    ),
    *(LIMIT, SPREADSHEET_SAFE, STORE, *OF_FILES),
)  # fmt: skip
def predict() -> None:
    """Predict cells: the rate (mean, sd, rate_low, rate_high) and the count (count_low, count_high, prob).

    The column supported is False where the data do not support a prediction; --top leaves such cells out.

    pltf predict run.nc --cells asked.csv -o answers.csv

    pltf predict run.nc --top 20

    pltf predict run.nc --top 100 --among zero --atleast 3 -o likely.parquet

    pltf predict coupled.nc --of Y --top 20

    pltf predict run.nc --top 20 --store cells.pltf
    """


@_command(
    RUN,
    _argument(
        "file", Path | None, "[FILE]",
        "Table of cells with their values. Default: the cells of fit --holdout; if RUN was fitted to a cell store, "
        "they need --store.",
        default=None,
    ),
    *(OF, VALUE, FORMAT, LEVEL),
    _option(
        "--ranking/--no-ranking", bool, None,
        "Compute AUC and average precision. Default: if there are both zeros and non-zeros, which they need.",
    ),
    *(SEED, PREDICT_DEVICE, *TALK, LIMIT, STORE, *OF_FILES),
)  # fmt: skip
def score() -> None:
    """Score predictions of held-out cells, compared with the popularity of rows and columns alone.

    pltf score run.nc

    pltf score run.nc hidden.csv --value count

    pltf score ratings.nc --no-ranking
    """


@_command(
    RUN,
    _output("--output -o", Path, "FILE", "The HTML file, such as report.html.", default=REQUIRED),
    _option("--title", str, "TEXT", "Report title."),
    _option("--top", int, "N", "Number of labels and cells to show.", default=10, min=1),
    *(FORCE, *TALK, LIMIT, STORE),
)
def report() -> None:
    """Write a report: one self-contained HTML file with components, predictions and checks.

    pltf report run.nc -o report.html

    pltf report run.nc -o report.html --title 'Visits in spring' --force
    """


@_command(*TENSORS, *CELLS, *MODEL, DTYPE, *TALK, LIMIT, METHOD, DISPERSION, DEVICE, *OF_DATA)
def plan() -> None:
    """Estimate the cost of a fit without running it: memory, operations, order of the contractions.

    Also estimates the memory of a search, of predictions and of a report.

    pltf plan events.csv --index user,place,act --cp 7

    pltf plan counts.npy --tucker 3,2,2 --json
    """


@_command(
    _argument("file", Path, "FILE", "Saved fit or search, or data."),
    *(FORMAT, VARIABLE, *TALK, LIMIT, *OF_FILES),
)
def info() -> None:
    """Show what is in a file: a fit with its components, or data with their columns.

    pltf info run.nc

    pltf info events.csv
    """


@_command(
    FILE,
    _argument("output", Path, "OUTPUT", "Output: .csv, .tsv, .tns (also .gz), .parquet, .npz or .nc."),
    *(INDEX, VALUE, COUNT, SUM, MISSING, FORMAT, VARIABLE, FORCE, *TALK, LIMIT, SPREADSHEET_SAFE, *OF_DATA),
)
def convert() -> None:
    """Convert data to another format: events become counts, labels are kept.

    pltf convert events.csv counts.npz --index user,place,act

    pltf convert counts.npz counts.tns
    """


@_command(
    _argument(
        "files", list[Path], "FILES...",
        "Tables of one format: CSV, TSV (also .gz, .zst, .zip), Parquet, Feather, JSON lines, Excel, SQLite "
        "or DuckDB; the URL of a database; - for standard input; or one .tns, .npy, HDF5 or Zarr file.",
    ),
    _output("--output -o", Path, "FOLDER", "Folder for the cells, such as cells.pltf.", default=REQUIRED),
    INDEX,
    _data("--value", str, "COLUMN", "Column with the values. Default: count the rows."),
    *(SUM, MISSING, VARIABLE),
    _data(
        "--memory", str, "SIZE",
        "Memory for sorting, for example 2GB. Default: a quarter of the free memory, at most 2GiB.",
    ),
    *(FORCE, *TALK, *OF_TEXT),
)  # fmt: skip
def prepare() -> None:
    """Sort tables of any size into a folder of cells, which need not fit in memory.

    pltf prepare events/*.parquet --index user,place,when:week -o cells.pltf

    pltf prepare ratings.csv.gz -i user,film --value stars --missing unlisted -o ratings.pltf

    pltf prepare 2025.csv 2026.csv -i who=user,when:day --value n --sum --memory 2GB -o days.pltf

    pltf prepare shop.db --query orders -i user,item -o orders.pltf
    """


@_command(
    _argument("folder", Path, "[FOLDER]", "Folder for the files of the demo.", default=Path("pltf-demo")),
    *(FORCE, *TALK),
)
def demo() -> None:
    """Generate a table of events, choose the number of components, fit, predict and write a report.

    pltf demo

    pltf demo somewhere --force
    """
