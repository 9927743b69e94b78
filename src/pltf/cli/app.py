"""The commands and their options. What they do is in :mod:`pltf.cli.commands`, imported when one is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from pltf.cli.main import INTERRUPTED, NOTHING, REFUSED, Ended, told, too_little_memory

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

    options |= _READ.get({})
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
            return Ended(getattr(commands, command)(tell, **options))
    except KeyboardInterrupt:
        text = NOTHING
        if tell.saved is not None:
            text = f"interrupted: {tell.saved} is saved"
        elif kept is not None and kept.exists() and not known:
            text = f"interrupted: {kept} has the progress so far, continue with --resume"
        return Ended(told(text, INTERRUPTED))


_OF_SEVERAL_TENSORS = ("fit", "select", "plan")  # commands that take coupled models

# -- options that several commands have -----------------------------------------------------------

DATA, MODEL, FITTING, TALK = "Data", "Model", "Fitting", "Output"


class FileFormat(StrEnum):
    """File formats."""

    csv = "csv"
    tsv = "tsv"
    parquet = "parquet"
    feather = "feather"
    excel = "excel"
    jsonl = "jsonl"
    json = "json"
    sqlite = "sqlite"
    duckdb = "duckdb"
    tns = "tns"
    npz = "npz"
    npy = "npy"
    mat = "mat"
    netcdf = "netcdf"
    h5ad = "h5ad"
    h5mu = "h5mu"


class MissingCells(StrEnum):
    """Which cells are missing."""

    nan = "nan"
    unlisted = "unlisted"


class MethodName(StrEnum):
    """Inference methods."""

    vb = "vb"
    em = "em"
    map = "map"
    gibbs = "gibbs"


class CriterionName(StrEnum):
    """Selection criteria."""

    auto = "auto"
    bound = "bound"
    heldout = "heldout"
    both = "both"


class ScoreName(StrEnum):
    """Scores of held-out cells."""

    log_likelihood = "log_likelihood"
    auc = "auc"
    average_precision = "average_precision"


class DtypeName(StrEnum):
    """Floating-point types."""

    float64 = "float64"
    float32 = "float32"


class LikelihoodName(StrEnum):
    """Likelihoods."""

    poisson = "poisson"
    bernoulli = "bernoulli"
    auto = "auto"


class AmongCells(StrEnum):
    """Cells among which the most probable are searched."""

    missing = "missing"
    zero = "zero"
    all = "all"


_FILES = (
    "Data: CSV, TSV (also .gz, .zst, .zip), JSON lines, Excel, Parquet, Feather, SQLite, DuckDB, .tns, .npz, "
    ".npy, .mat, netCDF, .h5ad or .h5mu; the URL of a database; or - for standard input."
)
File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILES)]
OptionalFile = Annotated[Path | None, typer.Argument(metavar="FILE", help=f"{_FILES} For coupled models, use --data.")]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", "-d", metavar="X=FILE", rich_help_panel=DATA,
                 help="File of one tensor of a coupled model; repeat for each tensor."),
]  # fmt: skip
Run = Annotated[Path, typer.Argument(metavar="RUN", help="File saved by pltf fit or pltf select.")]
Index = Annotated[
    list[str] | None,
    typer.Option(
        "--index", "-i", metavar="COLUMNS", rich_help_panel=DATA,
        help="Columns that are indices: user,place. Rename with user_id=user. Bin dates with when:week or "
        "datetime:hour=h; one column may be used twice: when:weekday=day,when:hourofday=hour. Bins: minute, hour, "
        "day, week, month, quarter, year, weekday, hourofday. For arrays: names of the axes. "
        "With several tensors: X:user_id=user.",
    ),
]  # fmt: skip
Value = Annotated[
    str | None,
    typer.Option(
        "--value", metavar="COLUMN", rich_help_panel=DATA, help="Column with the values. Default: every row counts one."
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="COLUMN", rich_help_panel=DATA,
                 help="Column with the values. Default: every row counts one. With several tensors: X:COLUMN."),
]  # fmt: skip
Count = Annotated[
    bool,
    typer.Option(
        "--count", metavar="", rich_help_panel=DATA, help="Count the rows, and do not list the unused columns."
    ),
]
Sum = Annotated[bool, typer.Option("--sum", metavar="", rich_help_panel=DATA, help="Add up rows of the same cell.")]
Missing = Annotated[
    MissingCells,
    typer.Option(
        "--missing", rich_help_panel=DATA,
        help="Which cells are missing: those with an empty value (nan; unlisted cells are zeros), or all cells "
        "without a row (unlisted; for ratings).",
    ),
]  # fmt: skip
MissingOfTensors = Annotated[
    list[str] | None,
    typer.Option(
        "--missing", metavar="nan|unlisted", rich_help_panel=DATA,
        help="Which cells are missing: those with an empty value (nan, the default; unlisted cells are zeros), or all "
        "cells without a row (unlisted; for ratings). With several tensors: X:unlisted.",
    ),
]  # fmt: skip
Zeros = Annotated[
    str | None,
    typer.Option("--zeros", metavar="NAMES", rich_help_panel=DATA,
                 help="With several tensors: indices whose labels all tensors know. Cells of labels that have rows in "
                 "another tensor only are zeros. Default: missing."),
]  # fmt: skip
Format = Annotated[
    FileFormat | None,
    typer.Option("--format", metavar="FORMAT", rich_help_panel=DATA,
                 help="csv, tsv, jsonl, json, excel, parquet, feather, sqlite, duckdb, tns, npz, npy, mat, netcdf, "
                 "h5ad or h5mu. Default: detected from content and extension."),
]  # fmt: skip
Variable = Annotated[
    str | None,
    typer.Option(
        "--variable", metavar="NAME", rich_help_panel=DATA, help="Array or layer to read from a file with several."
    ),
]
ModelText = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="TEXT", rich_help_panel=MODEL,
        help=r"Equation: 'X\[i,j] = A\[i,r] * B\[j,r]', in short 'ir,jr->ij'; several with ';' between them for "
        "coupled tensors; or a model file (model.toml, model.yaml).",
    ),
]  # fmt: skip
Cp = Annotated[
    str | None,
    typer.Option("--cp", metavar="R", rich_help_panel=MODEL,
                 help="CP model with R components. For select: 2:10 or 2,4,8."),
]  # fmt: skip
Tucker = Annotated[
    str | None,
    typer.Option("--tucker", metavar="P,Q,R", rich_help_panel=MODEL,
                 help="Tucker model, one rank per index. For select: 1:3,1:3,2."),
]  # fmt: skip
Nmf = Annotated[
    str | None,
    typer.Option(
        "--nmf", metavar="R", rich_help_panel=MODEL, help="Matrix factorization with R components. For select: 2:10."
    ),
]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", metavar="r=R", rich_help_panel=MODEL,
                 help="Size of a latent index of --model, for example r=7. For select: r=2:10."),
]  # fmt: skip
Prior = Annotated[
    list[str] | None,
    typer.Option(
        "--prior", "-p", metavar="TEXT", rich_help_panel=MODEL,
        help="Gamma prior: shape=0.5,mean=10 for all factors, U:shape=0.5,mean=10 for one. "
        "learn=mean|shape|both learns it from the data, tie=factor|component|index:NAME shares it.",
    ),
]  # fmt: skip
Restarts = Annotated[
    int,
    typer.Option(
        "--restarts", min=1, metavar="N", rich_help_panel=FITTING, help="Random starts; the best one is kept."
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", min=0, metavar="N", rich_help_panel=FITTING, help="Random seed; the same seed gives the same result."
    ),
]
MaxIter = Annotated[
    int,
    typer.Option(
        "--max-iter", min=1, metavar="N", rich_help_panel=FITTING, help="Maximum iterations per random start."
    ),
]
Tol = Annotated[
    float,
    typer.Option("--tol", min=0.0, max=1.0, metavar="SHARE", rich_help_panel=FITTING,
                 help="Tolerance: stop when three iterations improve the ELBO by less than this share."),
]  # fmt: skip
Dtype = Annotated[
    DtypeName, typer.Option("--dtype", rich_help_panel=FITTING, help="Floating-point type of the sums over cells.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", rich_help_panel=FITTING,
                 help="Save the progress to this file, to continue with --resume."),
]  # fmt: skip
Every = Annotated[
    float,
    typer.Option("--every", min=0.0, metavar="SECONDS", rich_help_panel=FITTING, help="Seconds between checkpoints."),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", metavar="", rich_help_panel=FITTING, help="Resume from the checkpoint, if it exists."),
]
KeepData = Annotated[
    bool,
    typer.Option("--keep-data/--no-keep-data", metavar="", rich_help_panel=FITTING,
                 help="Save the observed cells with the fit; predict --top, score and report need them."),
]  # fmt: skip
Likelihood = Annotated[
    LikelihoodName,
    typer.Option("--likelihood", rich_help_panel=FITTING,
                 help="Counts (poisson), links that are 0 or 1 (bernoulli), or chosen from the data (auto)."),
]  # fmt: skip
Method = Annotated[
    MethodName,
    typer.Option("--method", rich_help_panel=FITTING,
                 help="Variational Bayes (vb), sampling (gibbs), or point estimates (em, map)."),
]  # fmt: skip
DispersionText = Annotated[
    str,
    typer.Option("--dispersion", metavar="HOW", rich_help_panel=FITTING,
                 help="Overdispersion of the counts: auto (estimated), none, a number, or index:NAME (one per label)."),
]  # fmt: skip
DeviceName = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", rich_help_panel=FITTING,
                 help="Device: cpu, cuda, cuda:1, or auto (a GPU if it is faster)."),
]  # fmt: skip
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", rich_help_panel=FITTING,
                 help="Compute on the Dask cluster with this scheduler, as tcp://host:8786. For fit, FILE is a cell "
                 "store (pltf prepare) that all workers see."),
]  # fmt: skip
PredictDevice = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE",
                 help="Device for large requests: cpu, cuda, cuda:1, or auto (a GPU if available)."),
]  # fmt: skip
Force = Annotated[bool, typer.Option("--force", metavar="", rich_help_panel=TALK, help="Overwrite existing output.")]
Json = Annotated[bool, typer.Option("--json", metavar="", rich_help_panel=TALK, help="Print one JSON object.")]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", metavar="", rich_help_panel=TALK, help="Print no progress, notes or results; errors only."
    ),
]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="SIZE", rich_help_panel=DATA,
                 help="Memory limit for reading a file, for example 8GB. Default: half of the free memory."),
]  # fmt: skip
SpreadsheetSafe = Annotated[
    bool,
    typer.Option("--spreadsheet-safe", metavar="", rich_help_panel=TALK,
                 help="In CSV and TSV, put a ' before labels that spreadsheets would run as formulas."),
]  # fmt: skip
Level = Annotated[float, typer.Option("--level", metavar="SHARE", help="Interval probability.")]
Of = Annotated[str | None, typer.Option("--of", metavar="NAME", help="Tensor of a coupled model. Default: the first.")]
Store = Annotated[
    Path | None,
    typer.Option("--store", metavar="FOLDER", rich_help_panel=DATA,
                 help="The cell store that RUN was fitted to: it says which cells were observed."),
]  # fmt: skip


# -- how files are read: options that many commands have, added by a decorator --------------------

Sheet = Annotated[
    str | None,
    typer.Option("--sheet", metavar="NAME", rich_help_panel=DATA, help="Sheet of an Excel workbook."),
]
Query = Annotated[
    str | None,
    typer.Option("--query", metavar="SQL", rich_help_panel=DATA, help="For databases: SQL, or the name of a table."),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", rich_help_panel=DATA, help="Encoding of text, such as cp1252."),
]
Decimal = Annotated[
    str | None,
    typer.Option("--decimal", metavar="SIGN", rich_help_panel=DATA, help="Decimal sign of numbers in text: . or ,"),
]
KeepBlanks = Annotated[
    bool,
    typer.Option("--keep-blanks", metavar="", rich_help_panel=DATA,
                 help="Keep leading and trailing blanks of labels and column names."),
]  # fmt: skip
DateFormat = Annotated[
    str | None,
    typer.Option("--date-format", metavar="FORMAT", rich_help_panel=DATA,
                 help="How dates to be binned are written, such as %d.%m.%Y; epoch, epoch-ms, epoch-us or epoch-ns for "
                 "numbers since 1970."),
]  # fmt: skip
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", rich_help_panel=DATA,
                 help="Bin dates by the clock of this time zone, such as Europe/Berlin."),
]  # fmt: skip
Wide = Annotated[
    bool,
    typer.Option("--wide", metavar="", rich_help_panel=DATA,
                 help="A wide table, rows x columns of values: the last index is along the columns."),
]  # fmt: skip
_OF_FILES = {
    "sheet": (Sheet, None), "query": (Query, None), "encoding": (Encoding, None), "decimal": (Decimal, None),
    "keep_blanks": (KeepBlanks, False),
}  # fmt: skip
_OF_DATA = {**_OF_FILES, "date_format": (DateFormat, None), "timezone": (Timezone, None), "wide": (Wide, False)}
_READ: ContextVar[dict[str, Any]] = ContextVar("_READ")


def _reads(options: Mapping[str, tuple[Any, Any]]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add options to a command; :func:`_do` gets them together with its own."""

    def extended(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def with_options(**given: Any) -> int:
            before = _READ.set({name: given.pop(name) for name in options})
            try:
                return command(**given)
            finally:
                _READ.reset(before)

        own = signature(command, eval_str=True)
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in options.items()
        ]
        with_options.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
        with_options.__annotations__ = {
            **command.__annotations__,
            **{name: kind for name, (kind, _) in options.items()},
        }
        return with_options

    return extended


# -- commands -----------------------------------------------------------------------------------


@app.command()
@_reads(_OF_DATA)
def fit(
    file: OptionalFile = None,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File for the fit (netCDF).", rich_help_panel=TALK),
    ] = None,
    index: Index = None,
    value: Values = None,
    count: Count = False,
    sum: Sum = False,
    missing: MissingOfTensors = None,
    zeros: Zeros = None,
    format: Format = None,
    variable: Variable = None,
    model: ModelText = None,
    cp: Cp = None,
    tucker: Tucker = None,
    nmf: Nmf = None,
    size: Size = None,
    prior: Prior = None,
    method: Method = MethodName.vb,
    restarts: Restarts = 1,
    seed: Seed = 0,
    max_iter: MaxIter = 2000,
    tol: Tol = 1e-6,
    dtype: Dtype = DtypeName.float64,
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout",
            metavar="SHARE",
            rich_help_panel=FITTING,
            help="Hold out this share of the cells to score the fit. Beyond a million cells: of the non-zeros, and as "
            "many zeros.",
        ),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="NAME", rich_help_panel=FITTING,
                     help="With --holdout: the tensor of a coupled model. Default: the first."),
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    keep_data: KeepData = True,
    likelihood: Likelihood = LikelihoodName.poisson,
    dispersion: DispersionText = "auto",
    device: DeviceName = "cpu",
    scheduler: Scheduler = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    chains: Annotated[
        int | None,
        typer.Option("--chains", min=1, metavar="N", rich_help_panel=FITTING, help="For gibbs: chains. Default: 4."),
    ] = None,
    burn_in: Annotated[
        int | None,
        typer.Option("--burn-in", min=0, metavar="N", rich_help_panel=FITTING,
                     help="For gibbs: iterations to discard at the start of each chain. Default: 200."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=4, metavar="N", rich_help_panel=FITTING,
                     help="For gibbs: draws to keep from each chain. Default: 200."),
    ] = None,
    thin: Annotated[
        int | None,
        typer.Option("--thin", min=1, metavar="N", rich_help_panel=FITTING,
                     help="For gibbs: iterations between draws. Default: 1."),
    ] = None,
    limit: Limit = None,
) -> int:  # fmt: skip
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
    return _do("fit", locals())


@app.command()
@_reads(_OF_DATA)
def select(
    file: OptionalFile = None,
    data: Data = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File for the search and its best fit.", rich_help_panel=TALK
        ),
    ] = None,
    index: Index = None,
    value: Values = None,
    count: Count = False,
    sum: Sum = False,
    missing: MissingOfTensors = None,
    zeros: Zeros = None,
    format: Format = None,
    variable: Variable = None,
    model: ModelText = None,
    cp: Cp = None,
    tucker: Tucker = None,
    nmf: Nmf = None,
    size: Size = None,
    prior: Prior = None,
    restarts: Restarts = 10,
    seed: Seed = 0,
    max_iter: MaxIter = 2000,
    tol: Tol = 1e-6,
    dtype: Dtype = DtypeName.float64,
    race: Annotated[
        bool | None,
        typer.Option(
            "--race/--no-race",
            rich_help_panel=FITTING,
            help="Stop restarts that fall behind. Default: for CP models, from 5 restarts.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, metavar="N", rich_help_panel=FITTING, help="Fits in parallel. Default: one per core."
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    likelihood: Likelihood = LikelihoodName.poisson,
    dispersion: DispersionText = "auto",
    device: DeviceName = "cpu",
    scheduler: Scheduler = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    criterion: Annotated[
        CriterionName,
        typer.Option(
            "--criterion",
            rich_help_panel=FITTING,
            help="Criterion: the bound, or the prediction of held-out cells (auto: these, if there are enough).",
        ),
    ] = CriterionName.auto,
    folds: Annotated[
        int, typer.Option("--folds", min=2, metavar="N", rich_help_panel=FITTING, help="Folds of held-out cells.")
    ] = 5,
    score: Annotated[
        ScoreName, typer.Option("--score", rich_help_panel=FITTING, help="Score of held-out cells.")
    ] = ScoreName.log_likelihood,
    widen: Annotated[
        bool,
        typer.Option("--widen", rich_help_panel=FITTING, help="Extend the range while the best size is at its edge."),
    ] = False,
    limit: Limit = None,
) -> int:
    """Choose the number of components: fit a model at several sizes and compare.

    pltf select events.csv --index user,place,act --cp 2:10 -o search.nc

    pltf select counts.npz --tucker 1:3,1:3,2 -o search.nc

    pltf select links.csv -m 'ir,jr->ij' --size r=2:8 --restarts 5
    """
    return _do("select", locals())


@app.command()
@_reads(_OF_DATA)
def update(
    run: Run,
    file: File,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for the updated fit.", rich_help_panel=TALK)
    ],
    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index", "-i", metavar="COLUMNS", rich_help_panel=DATA,
            help="Columns that are indices, if their names differ from those that RUN was fitted to.",
        ),
    ] = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Annotated[
        MissingCells | None,
        typer.Option("--missing", rich_help_panel=DATA, help="Which cells are missing. Default: as RUN was fitted."),
    ] = None,
    format: Format = None,
    variable: Variable = None,
    forget: Annotated[
        float,
        typer.Option("--forget", metavar="SHARE", rich_help_panel=FITTING,
                     help="Share of the past to forget, from 0 to below 1."),
    ] = 0.0,
    zeros: Annotated[
        str | None,
        typer.Option(
            "--zeros", metavar="NAMES", rich_help_panel=DATA,
            help="Indices whose labels are complete: cells of labels without a row are zeros. Default: missing.",
        ),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option("--append", metavar="NAMES", rich_help_panel=DATA,
                     help="Indices without labels whose positions are all new."),
    ] = None,
    restarts: Restarts = 1,
    seed: Seed = 0,
    max_iter: MaxIter = 2000,
    tol: Tol = 1e-6,
    keep_data: KeepData = True,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:  # fmt: skip
    """Update a fit with new data, using its posterior as the prior. New labels get new rows.

    By default, FILE is read with the options that RUN was fitted with.

    pltf update run.nc today.csv -o run2.nc

    pltf update run.nc today.csv -o run2.nc --zeros user,place --forget 0.05
    """
    return _do("update", locals())


@app.command()
@_reads(_OF_FILES)
def predict(
    run: Run,
    of: Of = None,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", metavar="FILE", help="Cells to predict: a table with one column per index."),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Or: the N most probable cells.")] = None,
    among: Annotated[
        AmongCells | None,
        typer.Option("--among", help="For --top: which cells to search. Default: missing cells, otherwise zeros."),
    ] = None,
    atleast: Annotated[
        int,
        typer.Option(
            "--atleast", min=1, metavar="N", help="The column prob is the probability of a count of at least N."
        ),
    ] = 1,
    level: Level = 0.9,
    draws: Annotated[int, typer.Option("--draws", min=1, metavar="N", help="Number of posterior draws.")] = 1000,
    seed: Seed = 0,
    device: PredictDevice = "cpu",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=TALK,
            help=".csv, .tsv (also .gz) or .parquet. Default: print, as a table to a terminal and as CSV to a pipe.",
        ),
    ] = None,
    format: Format = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    unsupported: Annotated[
        bool,
        typer.Option(
            "--unsupported",
            help="With --top: include cells that the data do not support (column supported).",
        ),
    ] = False,
    limit: Limit = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    store: Store = None,
) -> int:
    """Predict cells: the rate (mean, sd, rate_low, rate_high) and the count (count_low, count_high, prob).

    The column supported is False where the data do not support a prediction; --top leaves such cells out.

    pltf predict run.nc --cells asked.csv -o answers.csv

    pltf predict run.nc --top 20

    pltf predict run.nc --top 100 --among zero --atleast 3 -o likely.parquet

    pltf predict coupled.nc --of Y --top 20

    pltf predict run.nc --top 20 --store cells.pltf
    """
    return _do("predict", locals())


@app.command()
@_reads(_OF_FILES)
def score(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Table of held-out cells with their values, or the cell store that RUN was fitted to. "
            "Default: the cells of fit --holdout.",
        ),
    ] = None,
    of: Of = None,
    value: Value = None,
    format: Format = None,
    level: Level = 0.9,
    ranking: Annotated[
        bool | None,
        typer.Option(
            "--ranking/--no-ranking",
            help="Compute AUC and average precision. Default: if there are both zeros and non-zeros, which they need.",
        ),
    ] = None,
    seed: Seed = 0,
    device: PredictDevice = "cpu",
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:
    """Score predictions of held-out cells, compared with the popularity of rows and columns alone.

    pltf score run.nc

    pltf score run.nc hidden.csv --value count

    pltf score ratings.nc --no-ranking
    """
    return _do("score", locals())


@app.command()
def report(
    run: Run,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file.", rich_help_panel=TALK)
    ],
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Report title.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Number of labels and cells to show.")] = 10,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
    store: Store = None,
) -> int:
    """Write a report: one self-contained HTML file with components, predictions and checks.

    pltf report run.nc -o report.html

    pltf report run.nc -o report.html --title 'Visits in spring' --force
    """
    return _do("report", locals())


@app.command()
@_reads(_OF_DATA)
def plan(
    file: OptionalFile = None,
    data: Data = None,
    index: Index = None,
    value: Values = None,
    count: Count = False,
    sum: Sum = False,
    missing: MissingOfTensors = None,
    zeros: Zeros = None,
    format: Format = None,
    variable: Variable = None,
    model: ModelText = None,
    cp: Cp = None,
    tucker: Tucker = None,
    nmf: Nmf = None,
    size: Size = None,
    dtype: Dtype = DtypeName.float64,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
    method: Method = MethodName.vb,
    dispersion: DispersionText = "auto",
    device: DeviceName = "cpu",
) -> int:
    """Estimate the cost of a fit without running it: memory, operations, order of the contractions.

    Also estimates the memory of a search, of predictions and of a report.

    pltf plan events.csv --index user,place,act --cp 7

    pltf plan counts.npy --tucker 3,2,2 --json
    """
    return _do("plan", locals())


@app.command()
@_reads(_OF_FILES)
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Saved fit or search, or data.")],
    format: Format = None,
    variable: Variable = None,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:
    """Show what is in a file: a fit with its components, or data with their columns.

    pltf info run.nc

    pltf info events.csv
    """
    return _do("info", locals())


@app.command()
@_reads(_OF_DATA)
def convert(
    file: File,
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Output: .csv, .tsv, .tns (also .gz), .parquet, .npz or .nc.")
    ],
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
    format: Format = None,
    variable: Variable = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> int:
    """Convert data to another format: events become counts, labels are kept.

    pltf convert events.csv counts.npz --index user,place,act

    pltf convert counts.npz counts.tns
    """
    return _do("convert", locals())


@app.command()
@_reads({name: _OF_FILES[name] for name in ("sheet", "query", "encoding")})
def prepare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="Tables of one format: CSV, TSV (also .gz, .zst, .zip), Parquet, Feather, JSON lines, Excel, SQLite "
            "or DuckDB; the URL of a database; - for standard input; or one .tns, .npy, HDF5 or Zarr file.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the cells.", rich_help_panel=TALK)
    ],
    index: Index = None,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="COLUMN", rich_help_panel=DATA,
                     help="Column with the values. Default: count the rows."),
    ] = None,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
    variable: Variable = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", rich_help_panel=DATA,
                     help="Memory for sorting, for example 2GB. Default: a quarter of the free memory, at most 2GiB."),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:  # fmt: skip
    """Sort tables of any size into a folder of cells, which need not fit in memory.

    pltf prepare events/*.parquet --index user,place,when:week -o cells.pltf

    pltf prepare ratings.csv.gz -i user,film --value stars --missing unlisted -o ratings.pltf

    pltf prepare 2025.csv 2026.csv -i who=user,when:day --value n --sum --memory 2GB -o days.pltf

    pltf prepare shop.db --query orders -i user,item -o orders.pltf
    """
    return _do("prepare", locals())


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder for the files of the demo.")] = Path(
        "pltf-demo"
    ),
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Generate a table of events, choose the number of components, fit, predict and write a report.

    pltf demo

    pltf demo somewhere --force
    """
    return _do("demo", locals())
