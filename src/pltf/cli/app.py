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
    help="""Bayesian factorization of counts and links over several kinds of things, with holes in them.

From a table of events to a report that you can send around:

    pltf info events.csv
    pltf select events.csv --index user,place,act --cp 2:10 -o search.nc
    pltf fit events.csv --index user,place,act --cp 7 -o run.nc
    pltf report run.nc -o report.html

pltf demo does all of it with a table of its own; pltf fit --help and so on have examples.

Errors are one sentence, with exit code 2; --debug, anywhere, shows where they come from.""",
)


@cache
def command_line() -> Any:
    """What typer makes of all that is here: once, as it takes longer than some commands, and the demo runs several."""
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
    for size in ("limit", "memory"):
        if size in options:
            options[size] = limit_of(options[size], f"--{size}")
    options = {name: one.value if isinstance(one, StrEnum) else one for name, one in options.items()}
    kept = options.get("checkpoint")
    known = kept is not None and kept.exists() and not options.get("resume")  # somebody else's
    tell = Teller(options.pop("json"), options.pop("quiet"))
    try:
        with tell, given_files(options, COMMAND.get()):
            return Ended(getattr(commands, command)(tell, **options))
    except KeyboardInterrupt:
        text = NOTHING
        if tell.saved is not None:
            text = f"interrupted: {tell.saved} is saved"
        elif kept is not None and kept.exists() and not known:
            text = f"interrupted: {kept} keeps the work, to go on with --resume"
        return Ended(told(text, INTERRUPTED))


# -- options that several commands have -----------------------------------------------------------

DATA, MODEL, FITTING, TALK = "Data", "Model", "Fitting", "Output"


class FileFormat(StrEnum):
    """Formats of files."""

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
    """What was not observed."""

    nan = "nan"
    unlisted = "unlisted"


class MethodName(StrEnum):
    """Ways of learning."""

    vb = "vb"
    em = "em"
    map = "map"
    gibbs = "gibbs"


class CriterionName(StrEnum):
    """What chooses among candidates."""

    auto = "auto"
    bound = "bound"
    heldout = "heldout"
    both = "both"


class ScoreName(StrEnum):
    """Scores of hidden cells."""

    log_likelihood = "log_likelihood"
    auc = "auc"
    average_precision = "average_precision"


class DtypeName(StrEnum):
    """Types of numbers."""

    float64 = "float64"
    float32 = "float32"


class LikelihoodName(StrEnum):
    """How values scatter around their rates."""

    poisson = "poisson"
    bernoulli = "bernoulli"
    auto = "auto"


class AmongCells(StrEnum):
    """Cells of which the most probable are asked for."""

    missing = "missing"
    zero = "zero"
    all = "all"


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Data: CSV, TSV (also .gz, .zst, .zip), JSON lines, Excel, Parquet, Feather, SQLite, DuckDB, .tns, .npz, "
        ".npy, .mat, netCDF, .h5ad or .h5mu; the URL of a database; or - for standard input.",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A file that fit or select has saved.")]
Index = Annotated[
    str | None,
    typer.Option(
        "--index", "-i", metavar="NAMES", rich_help_panel=DATA,
        help="Columns that are indices: user,place or user_id=user,when:week. Dates are binned by minute, hour, day, "
        "week, month, quarter, year, weekday or hourofday. For arrays: names of the axes.",
    ),
]  # fmt: skip
Value = Annotated[
    str | None,
    typer.Option(
        "--value", metavar="COLUMN", rich_help_panel=DATA, help="Column of values. Default: every row counts one."
    ),
]
Count = Annotated[
    bool,
    typer.Option(
        "--count", metavar="", rich_help_panel=DATA, help="Every row counts one; do not say which columns are unused."
    ),
]
Sum = Annotated[bool, typer.Option("--sum", metavar="", rich_help_panel=DATA, help="Add up rows of the same cell.")]
Missing = Annotated[
    MissingCells,
    typer.Option(
        "--missing", rich_help_panel=DATA,
        help="What was not observed: cells without a value (nan), or all that are not listed (unlisted). "
        "With nan, cells that are not listed are zeros.",
    ),
]  # fmt: skip
Format = Annotated[
    FileFormat | None,
    typer.Option("--format", metavar="FORMAT", rich_help_panel=DATA,
                 help="csv, tsv, jsonl, json, excel, parquet, feather, sqlite, duckdb, tns, npz, npy, mat, netcdf, "
                 "h5ad or h5mu. Default: by content and extension."),
]  # fmt: skip
Variable = Annotated[
    str | None,
    typer.Option(
        "--variable", metavar="NAME", rich_help_panel=DATA, help="The array or layer, in a file that has several."
    ),
]
ModelText = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="TEXT", rich_help_panel=MODEL,
        help=r"The equation: 'X\[i,j] = A\[i,r] * B\[j,r]', or for short 'ir,jr->ij'.",
    ),
]  # fmt: skip
Cp = Annotated[
    str | None,
    typer.Option("--cp", metavar="R", rich_help_panel=MODEL,
                 help="CP with so many components. For select: 2:10 or 2,4,8."),
]  # fmt: skip
Tucker = Annotated[
    str | None,
    typer.Option("--tucker", metavar="P,Q,R", rich_help_panel=MODEL,
                 help="Tucker with a rank for each index. For select: 1:3,1:3,2."),
]  # fmt: skip
Nmf = Annotated[
    str | None,
    typer.Option(
        "--nmf", metavar="R", rich_help_panel=MODEL, help="A matrix with so many components. For select: 2:10."
    ),
]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", metavar="r=R", rich_help_panel=MODEL,
                 help="Size of a latent index of --model, as r=7. For select: r=2:10."),
]  # fmt: skip
Prior = Annotated[
    list[str] | None,
    typer.Option(
        "--prior", "-p", metavar="TEXT", rich_help_panel=MODEL,
        help="shape=0.5,mean=10 for all factors, or U:shape=0.5,mean=10 for one. learn=mean|shape|both and "
        "tie=factor|component|index:NAME learn it from the data.",
    ),
]  # fmt: skip
Restarts = Annotated[
    int,
    typer.Option("--restarts", min=1, metavar="N", rich_help_panel=FITTING, help="Random starts; the best is kept."),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", rich_help_panel=FITTING, help="One seed gives one result.")
]
MaxIter = Annotated[
    int, typer.Option("--max-iter", min=1, metavar="N", rich_help_panel=FITTING, help="Most sweeps of a start.")
]
Tol = Annotated[
    float,
    typer.Option("--tol", min=0.0, max=1.0, metavar="SHARE", rich_help_panel=FITTING,
                 help="Stop when three sweeps add less than this share of the bound."),
]  # fmt: skip
Dtype = Annotated[DtypeName, typer.Option("--dtype", rich_help_panel=FITTING, help="Numbers in the sums over cells.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", rich_help_panel=FITTING,
                 help="Keep the work in this file, to go on with --resume."),
]  # fmt: skip
Every = Annotated[
    float, typer.Option("--every", min=0.0, metavar="SECONDS", rich_help_panel=FITTING, help="Between checkpoints.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", metavar="", rich_help_panel=FITTING, help="Go on from the checkpoint, if there is one."),
]
KeepData = Annotated[
    bool,
    typer.Option("--keep-data/--no-keep-data", metavar="", rich_help_panel=FITTING,
                 help="Keep what was observed in the fit: predict --top and report need it."),
]  # fmt: skip
Likelihood = Annotated[
    LikelihoodName,
    typer.Option("--likelihood", rich_help_panel=FITTING,
                 help="Counts (poisson), links that are 0 or 1 (bernoulli), or what the data look like (auto)."),
]  # fmt: skip
Method = Annotated[
    MethodName,
    typer.Option("--method", rich_help_panel=FITTING,
                 help="Posterior (vb), its draws (gibbs) or single values (em, map)."),
]  # fmt: skip
DispersionText = Annotated[
    str,
    typer.Option("--dispersion", metavar="HOW", rich_help_panel=FITTING,
                 help="How much counts vary beyond Poisson: auto, none, a size, or index:NAME."),
]  # fmt: skip
DeviceName = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", rich_help_panel=FITTING,
                 help="Where to compute: cpu, cuda, cuda:1, or auto (a GPU where it pays)."),
]  # fmt: skip
PredictDevice = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE",
                 help="Where to compute large requests: cpu, cuda, cuda:1, or auto (a GPU if there is one)."),
]  # fmt: skip
Force = Annotated[
    bool, typer.Option("--force", metavar="", rich_help_panel=TALK, help="Replace the output if it exists.")
]
Json = Annotated[
    bool, typer.Option("--json", metavar="", rich_help_panel=TALK, help="Print one JSON object, for machines.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", metavar="", rich_help_panel=TALK, help="Print no progress, notes or results.")
]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="SIZE", rich_help_panel=DATA,
                 help="Memory that reading a file may take, such as 8GB. Default: half of what is free."),
]  # fmt: skip
SpreadsheetSafe = Annotated[
    bool,
    typer.Option("--spreadsheet-safe", metavar="", rich_help_panel=TALK,
                 help="In CSV and TSV, put a ' before labels that spreadsheets take for formulas."),
]  # fmt: skip
Level = Annotated[float, typer.Option("--level", metavar="SHARE", help="Share that intervals hold.")]


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
    """Give a command more options; :func:`_do` gets them beside its own."""

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
    file: File,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for the fit (netCDF).", rich_help_panel=TALK)
    ],
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
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
            help="Hide this share of the cells, to be scored. Of over a million: of the counts, and as many zeros.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    keep_data: KeepData = True,
    likelihood: Likelihood = LikelihoodName.poisson,
    dispersion: DispersionText = "auto",
    device: DeviceName = "cpu",
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
                     help="For gibbs: sweeps of each chain that are left out first. Default: 200."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=4, metavar="N", rich_help_panel=FITTING,
                     help="For gibbs: draws of each chain that are kept. Default: 200."),
    ] = None,
    thin: Annotated[
        int | None,
        typer.Option("--thin", min=1, metavar="N", rich_help_panel=FITTING,
                     help="For gibbs: sweeps from one draw to the next. Default: 1."),
    ] = None,
    limit: Limit = None,
) -> int:  # fmt: skip
    r"""Learn the factors of a model from a file, and save what was learned.

    pltf fit events.csv --index user,place,act --cp 7 -o run.nc

    pltf fit visits.csv -i who=user,when:week --value n --sum --nmf 5 -o run.nc

    pltf fit counts.npy -m 'X\[i,j] = A\[i,r] * B\[j,r]' -s r=7 -o run.nc

    pltf fit stars.csv -i user,film --missing unlisted --nmf 9 -o run.nc

    pltf fit events.csv --index user,place,act --cp 7 --method gibbs --draws 300 -o run.nc
    """
    return _do("fit", locals())


@app.command()
@_reads(_OF_DATA)
def select(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File for the search and its best fit.", rich_help_panel=TALK
        ),
    ] = None,
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
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
            help="Drop starts that fall behind; if not said, from 5 restarts of CP on.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", rich_help_panel=FITTING, help="Fits at a time; else one a core."),
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    likelihood: Likelihood = LikelihoodName.poisson,
    dispersion: DispersionText = "auto",
    device: DeviceName = "cpu",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    criterion: Annotated[
        CriterionName,
        typer.Option(
            "--criterion",
            rich_help_panel=FITTING,
            help="What chooses: the bound, or the prediction of hidden cells (auto: these, if there are enough).",
        ),
    ] = CriterionName.auto,
    folds: Annotated[
        int, typer.Option("--folds", min=2, metavar="N", rich_help_panel=FITTING, help="Folds of hidden cells.")
    ] = 5,
    score: Annotated[
        ScoreName, typer.Option("--score", rich_help_panel=FITTING, help="Score of hidden cells.")
    ] = ScoreName.log_likelihood,
    widen: Annotated[
        bool,
        typer.Option("--widen", rich_help_panel=FITTING, help="Try further sizes while the best is at the edge."),
    ] = False,
    limit: Limit = None,
) -> int:
    """Find out how many components the data support: fit a model at several sizes.

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
        str | None,
        typer.Option(
            "--index", "-i", metavar="NAMES", rich_help_panel=DATA,
            help="Columns that are indices, if they are called otherwise than when RUN was fitted.",
        ),
    ] = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Annotated[
        MissingCells | None,
        typer.Option("--missing", rich_help_panel=DATA, help="What was not observed. Default: as RUN was fitted."),
    ] = None,
    format: Format = None,
    variable: Variable = None,
    forget: Annotated[
        float,
        typer.Option("--forget", metavar="SHARE", rich_help_panel=FITTING,
                     help="Share of what RUN has learned that fades, from 0 to below 1."),
    ] = 0.0,
    zeros: Annotated[
        str | None,
        typer.Option(
            "--zeros", metavar="NAMES", rich_help_panel=DATA,
            help="Indices whose labels are all there: cells of labels without a row are zeros. "
            "Without it nothing is learned of them.",
        ),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option("--append", metavar="NAMES", rich_help_panel=DATA,
                     help="Indices without labels of which all positions are new."),
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
    """Update a fit with further data: what it has learned is their prior. New labels get new rows.

    The file is read as the one that RUN was fitted to, unless options say otherwise.

    pltf update run.nc today.csv -o run2.nc

    pltf update run.nc today.csv -o run2.nc --zeros user,place --forget 0.05
    """
    return _do("update", locals())


@app.command()
def predict(
    run: Run,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", metavar="FILE", help="Table with a column for each index: the cells to predict."),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, metavar="N", help="Instead: so many of the most probable cells.")
    ] = None,
    among: Annotated[
        AmongCells | None,
        typer.Option("--among", help="For --top: of which cells. If not said: missing ones, else zeros."),
    ] = None,
    atleast: Annotated[
        int, typer.Option("--atleast", min=1, metavar="N", help="prob is the probability of so many, or more.")
    ] = 1,
    level: Level = 0.9,
    draws: Annotated[int, typer.Option("--draws", min=1, metavar="N", help="Draws from the posterior.")] = 1000,
    seed: Seed = 0,
    device: PredictDevice = "cpu",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=TALK,
            help=".csv, .tsv (also .gz) or .parquet; else it is printed: as a table on a terminal, as CSV in a pipe.",
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
            help="With --top: also cells that the data do not tie down (column supported).",
        ),
    ] = False,
    limit: Limit = None,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> int:
    """Predict cells: their rate (mean, sd, rate_low, rate_high), their count (count_low, count_high, prob).

    The column supported is False where the data do not tie a prediction down; --top leaves such cells out.

    pltf predict run.nc --cells asked.csv -o answers.csv

    pltf predict run.nc --top 20

    pltf predict run.nc --top 100 --among zero --atleast 3 -o likely.parquet
    """
    return _do("predict", locals())


@app.command()
def score(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="Table of cells that were hidden, with their values; else those of --holdout."
        ),
    ] = None,
    value: Value = None,
    format: Format = None,
    level: Level = 0.9,
    ranking: Annotated[
        bool,
        typer.Option("--ranking/--no-ranking", help="With AUC and average precision, which need zeros and counts."),
    ] = True,
    seed: Seed = 0,
    device: PredictDevice = "cpu",
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:
    """Tell how well hidden cells were predicted, beside the popularity of rows and columns alone.

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
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What stands on top.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="How many labels and cells are shown.")] = 10,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:
    """Write a report: one HTML file that opens anywhere, with components, predictions and checks.

    pltf report run.nc -o report.html

    pltf report run.nc -o report.html --title 'Visits in spring' --force
    """
    return _do("report", locals())


@app.command()
@_reads(_OF_DATA)
def plan(
    file: File,
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
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
    """Tell what a fit would take, before any work: memory, operations, order of the contractions.

    It tells also the memory of a search, of predictions and of a report.

    pltf plan events.csv --index user,place,act --cp 7

    pltf plan counts.npy --tucker 3,2,2 --json
    """
    return _do("plan", locals())


@app.command()
@_reads(_OF_FILES)
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A saved fit or search, or data.")],
    format: Format = None,
    variable: Variable = None,
    json: Json = False,
    quiet: Quiet = False,
    limit: Limit = None,
) -> int:
    """Tell what is in a file: a fit with its components, or data with their columns.

    pltf info run.nc

    pltf info events.csv
    """
    return _do("info", locals())


@app.command()
@_reads(_OF_DATA)
def convert(
    file: File,
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Where to: .csv, .tsv, .tns (also .gz), .parquet, .npz or .nc.")
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
    """Write data in another format: events become counts, labels are kept.

    pltf convert events.csv counts.npz --index user,place,act

    pltf convert counts.npz counts.tns
    """
    return _do("convert", locals())


@app.command()
def prepare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="Tables of one format: CSV, TSV (also .gz) or Parquet. Or one .tns, .npy, HDF5 or Zarr.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the cells.", rich_help_panel=TALK)
    ],
    index: Index = None,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="COLUMN", rich_help_panel=DATA, help="Column of values. Default: count rows."),
    ] = None,
    sum: Sum = False,
    missing: Missing = MissingCells.nan,
    variable: Variable = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", rich_help_panel=DATA,
                     help="Memory for sorting, such as 2GB. Default: a quarter of what is free, at most 2GiB."),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:  # fmt: skip
    """Sort tables of any size into a folder of cells, which need not fit in memory.

    pltf prepare events/*.parquet --index user,place,when:week -o cells.pltf

    pltf prepare ratings.csv.gz -i user,film --value stars --missing unlisted -o ratings.pltf

    pltf prepare 2025.csv 2026.csv -i who=user,when:day --value n --sum --memory 2GB -o days.pltf
    """
    return _do("prepare", locals())


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="A folder for the files of the demo.")] = Path(
        "pltf-demo"
    ),
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Draw a table of events, find its order, fit it, predict what is missing and write a report.

    pltf demo

    pltf demo somewhere --force
    """
    return _do("demo", locals())
