"""The commands and their options. What they do is in :mod:`pltf.cli.commands`, imported when one is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="pltf",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Bayesian factorization of counts and links over several kinds of things, with holes in them.

    From a table of events to a report that you can send around:

        pltf fit events.csv --index user,place,act --cp 7 -o run.nc

        pltf report run.nc -o report.html

    Errors are one sentence, with exit code 2; --debug shows where they come from.""",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("pltf"))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _do(command: str, options: dict[str, Any]) -> int:
    from pltf.cli import commands  # brings NumPy and more, for which --help does not wait

    return int(getattr(commands, command)(**options))


# -- options that several commands have -----------------------------------------------------------

DATA, MODEL, FITTING, TALK = "Data", "Model", "Fitting", "Output"

File = Annotated[Path, typer.Argument(help="Data: CSV, TSV (also .gz), Parquet, .tns, .npz, .npy, .mat or netCDF.")]
Run = Annotated[Path, typer.Argument(help="A file that fit or select has saved.")]
Index = Annotated[
    str | None,
    typer.Option(
        "--index", "-i", rich_help_panel=DATA,
        help="Columns that are indices: user,place or user_id=user,when:week. Dates are binned by minute, hour, day, "
        "week, month, quarter, year, weekday or hourofday. For arrays: names of the axes.",
    ),
]  # fmt: skip
Value = Annotated[
    str | None, typer.Option("--value", rich_help_panel=DATA, help="Column of values, if there are several.")
]
Count = Annotated[bool, typer.Option("--count", rich_help_panel=DATA, help="Every row is one count.")]
Sum = Annotated[bool, typer.Option("--sum", rich_help_panel=DATA, help="Add up rows of the same cell.")]
Missing = Annotated[
    str,
    typer.Option(
        "--missing", rich_help_panel=DATA, metavar="nan|unlisted",
        help="What was not observed: cells without a value (nan), or all that are not listed (unlisted). "
        "With nan, cells that are not listed are zeros.",
    ),
]  # fmt: skip
Format = Annotated[
    str | None,
    typer.Option("--format", rich_help_panel=DATA, help="csv, tsv, parquet, tns, npz, npy, mat, netcdf; else guessed."),
]
Variable = Annotated[
    str | None, typer.Option("--variable", rich_help_panel=DATA, help="The array, in a file that has several.")
]
ModelText = Annotated[
    str | None,
    typer.Option("--model", "-m", rich_help_panel=MODEL, help="The equation: 'X[i,j,k] = A[i,r] * B[j,r] * C[k,r]'."),
]
Cp = Annotated[
    str | None,
    typer.Option("--cp", rich_help_panel=MODEL, help="CP with so many components. For select: 2:10 or 2,4,8."),
]
Tucker = Annotated[str | None, typer.Option("--tucker", rich_help_panel=MODEL, help="Tucker with ranks such as 3,2,2.")]
Nmf = Annotated[str | None, typer.Option("--nmf", rich_help_panel=MODEL, help="A matrix with so many components.")]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", rich_help_panel=MODEL, help="Size of a latent index, as r=7. For select: r=2:10."),
]
Prior = Annotated[
    list[str] | None,
    typer.Option(
        "--prior", "-p", rich_help_panel=MODEL,
        help="shape=0.5,mean=10 for all factors, or U:shape=0.5,mean=10 for one. learn=mean|shape|both and "
        "tie=factor|component|index:NAME learn it from the data.",
    ),
]  # fmt: skip
Restarts = Annotated[int, typer.Option("--restarts", rich_help_panel=FITTING, help="Random starts; the best is kept.")]
Seed = Annotated[int, typer.Option("--seed", rich_help_panel=FITTING, help="One seed gives one result.")]
MaxIter = Annotated[int, typer.Option("--max-iter", rich_help_panel=FITTING, help="Most sweeps of a start.")]
Tol = Annotated[
    float, typer.Option("--tol", rich_help_panel=FITTING, help="Stop when three sweeps add less than this share.")
]
Dtype = Annotated[str, typer.Option("--dtype", rich_help_panel=FITTING, help="float64 or float32.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", rich_help_panel=FITTING, help="Keep the work in this file, to go on with --resume."),
]
Every = Annotated[float, typer.Option("--every", rich_help_panel=FITTING, help="Seconds between checkpoints.")]
Resume = Annotated[
    bool, typer.Option("--resume", rich_help_panel=FITTING, help="Go on from the checkpoint, if there is one.")
]
Force = Annotated[bool, typer.Option("--force", rich_help_panel=TALK, help="Replace the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=TALK, help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=TALK, help="Print nothing but errors.")]
Level = Annotated[float, typer.Option("--level", help="Share that intervals hold.")]


# -- commands -----------------------------------------------------------------------------------


@app.command()
def fit(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the fit (netCDF).", rich_help_panel=TALK)],
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = "nan",
    format: Format = None,
    variable: Variable = None,
    model: ModelText = None,
    cp: Cp = None,
    tucker: Tucker = None,
    nmf: Nmf = None,
    size: Size = None,
    prior: Prior = None,
    method: Annotated[str, typer.Option("--method", rich_help_panel=FITTING, help="vb, em or map.")] = "vb",
    restarts: Restarts = 1,
    seed: Seed = 0,
    max_iter: MaxIter = 2000,
    tol: Tol = 1e-6,
    dtype: Dtype = "float64",
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout",
            rich_help_panel=FITTING,
            help="Hide this share of the cells, to be scored. Of tables: of the counts, and as many zeros.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Learn the factors of a model from a file, and save what was learned.

    pltf fit events.csv --index user,place,act --cp 7 -o run.nc

    pltf fit visits.csv -i who=user,when:week --value visits --nmf 5 -o run.nc

    pltf fit counts.npy -m 'X[i,j,k] = A[i,r] * B[j,r] * C[k,r]' -s r=7 --restarts 10 -o run.nc

    pltf fit ratings.csv -i user,film --value stars --missing unlisted --nmf 10 --holdout 0.1 -o run.nc
    """
    return _do("fit", locals())


@app.command()
def select(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the search and its best fit.", rich_help_panel=TALK)
    ] = None,
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = "nan",
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
    dtype: Dtype = "float64",
    workers: Annotated[
        int | None, typer.Option("--workers", rich_help_panel=FITTING, help="Fits at a time; one a core.")
    ] = None,
    checkpoint: Checkpoint = None,
    every: Every = 60.0,
    resume: Resume = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Find out how many components the data support: fit a model at several sizes.

    pltf select events.csv --index user,place,act --cp 2:10 -o search.nc

    pltf select counts.npz --tucker 2,2,2 --size p=1:3 --size q=1:3 -o search.nc
    """
    return _do("select", locals())


@app.command()
def predict(
    run: Run,
    cells: Annotated[
        Path | None, typer.Option("--cells", help="Table with a column for each index: the cells to predict.")
    ] = None,
    top: Annotated[int | None, typer.Option("--top", help="Instead: so many of the most probable cells.")] = None,
    among: Annotated[str, typer.Option("--among", help="For --top: missing, zero or all.")] = "missing",
    atleast: Annotated[int, typer.Option("--atleast", help="The probability is that of so many, or more.")] = 1,
    level: Level = 0.9,
    draws: Annotated[int, typer.Option("--draws", help="Draws from the posterior.")] = 1000,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV or Parquet; else CSV is printed.", rich_help_panel=TALK)
    ] = None,
    format: Format = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Predict cells: expected count, its standard deviation and interval, and the probability of any.

    pltf predict run.nc --cells asked.csv -o answers.csv

    pltf predict run.nc --top 20
    """
    return _do("predict", locals())


@app.command()
def score(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(help="Table of cells that were hidden, with their values; else those of --holdout."),
    ] = None,
    value: Value = None,
    format: Format = None,
    level: Level = 0.9,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Tell how well hidden cells were predicted, beside the popularity of rows and columns alone.

    pltf score run.nc

    pltf score run.nc hidden.csv --value count
    """
    return _do("score", locals())


@app.command()
def report(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.", rich_help_panel=TALK)],
    title: Annotated[str | None, typer.Option("--title", help="What stands on top.")] = None,
    top: Annotated[int, typer.Option("--top", help="How many labels and cells are shown.")] = 10,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a report: one HTML file that opens anywhere, with components, predictions and checks.

    pltf report run.nc -o report.html
    """
    return _do("report", locals())


@app.command()
def plan(
    file: File,
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = "nan",
    format: Format = None,
    variable: Variable = None,
    model: ModelText = None,
    cp: Cp = None,
    tucker: Tucker = None,
    nmf: Nmf = None,
    size: Size = None,
    dtype: Dtype = "float64",
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Tell what a fit would take, before any work: memory, operations, order of the contractions.

    pltf plan events.csv --index user,place,act --cp 7
    """
    return _do("plan", locals())


@app.command()
def info(
    file: Annotated[Path, typer.Argument(help="A saved fit, or data.")],
    format: Format = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Tell what is in a file: a fit with its components, or data with their columns.

    pltf info run.nc
    """
    return _do("info", locals())


@app.command()
def convert(
    file: File,
    output: Annotated[Path, typer.Argument(help="Where to: .csv, .tsv (also .gz), .parquet, .tns, .npz or .nc.")],
    index: Index = None,
    value: Value = None,
    count: Count = False,
    sum: Sum = False,
    missing: Missing = "nan",
    format: Format = None,
    variable: Variable = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write data in another format: events become counts, labels are kept.

    pltf convert events.csv counts.npz --index user,place,act

    pltf convert counts.npz counts.tns
    """
    return _do("convert", locals())


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="A folder for the files of the demo.")] = Path("pltf-demo"),
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Draw a table of events, find its order, fit it, predict what is missing and write a report.

    pltf demo
    """
    return _do("demo", locals())
