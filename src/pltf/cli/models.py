"""Models of the commands: equations, sizes, priors and data sources, from options or a model file."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pltf.cli.parsing import OF_PRIOR, indices_of, range_of, refuse_misspelt, sizes_of
from pltf.data import Observation
from pltf.data.forms import letters
from pltf.data.numeric import brief
from pltf.errors import PltfError
from pltf.hints import suggestion
from pltf.io.sources import ShownPath, database_url
from pltf.notation import Model, cp, nmf, tucker

KINDS = ("model", "cp", "tucker", "nmf")
MODEL_FILES = (".toml", ".yaml", ".yml")
_KEYS = ("model", "sizes", "priors", "data")  # of a model file
_BY_TENSOR = ("index", "value", "missing")  # options that may begin with a tensor, as in X:n
_FLAGS = ("count", "sum", "keep_blanks", "wide")
_OF_FILE = ("format", "variable", "sheet", "query", "encoding", "decimal", "date_format", "timezone")
_OF_DATES = ("date_format", "timezone")
_OF_ONE_FILE = ("format", "variable", "sheet", "query")
_OF_DATA = ("file", *_BY_TENSOR, *_FLAGS, *_OF_FILE)  # of a tensor in a model file
_PREFIX = re.compile(r"([^\W\d]\w*):(.+)", re.DOTALL)


@dataclass(frozen=True)
class Wanted:
    """The requested model, before the data are known, with the sizes to try."""

    kind: str  # "model", "cp", "tucker" or "nmf"
    model: Model | None  # parsed from its text
    ranks: list[list[int]]
    sizes: dict[str, list[int]]
    tensor: str | None = None  # the tensor to read, if the model has several

    @property
    def tensors(self) -> tuple[str, ...]:
        """The observed tensors."""
        return ("X",) if self.model is None else tuple(self.model.observed)

    def indices(self) -> dict[str, str]:
        """The indices of the data, if the model text names them."""
        if self.model is None:
            return {}
        return {index: index for index in self.model.observed[self.tensor or self.tensors[0]]}

    def refuse_unknown(self, option: str, indices: Iterable[str]) -> None:
        """Refuse an index that no tensor of the model has."""
        known = () if self.model is None else self.model.observed_indices
        for index in indices:
            if index not in known:
                near = suggestion(index, known)
                raise PltfError(f"{option} names {index!r}, and the indices of the model are {', '.join(known)}{near}")


@dataclass(frozen=True)
class TensorFile:
    """The file of a tensor, and the options for reading it."""

    path: Path
    options: Mapping[str, Any]


# -- model files --------------------------------------------------------------------------------


def with_model_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options with a model file; options of the command line take precedence.

    ``data`` maps each tensor to its file, ``reading`` to how it is read.
    """
    given = {**options, "data": _data_of(options["data"]), "reading": {}}
    text = options["model"]
    if text is None or "=" in text or "->" in text:
        return given
    path = Path(text)
    if path.suffix.lower() == ".json":
        raise PltfError(f"a model file must be TOML or YAML ({', '.join(MODEL_FILES)}), got {text}")
    if path.suffix.lower() not in MODEL_FILES:
        return given
    held = _table(_read(path), path, "a model file")
    _known_keys(held, _KEYS, str(path))
    if not isinstance(held.get("model"), str):
        raise PltfError(f"{path} must have the equations as the text 'model'")
    data, reading = _data_in(held.get("data", {}), path)
    sizes, priors = _sizes_in(held.get("sizes", {}), path), _priors_in(held.get("priors", {}), path)
    overridden = {one.partition("=")[0].strip() for one in options["size"] or ()}
    replaced = {one.partition(":")[0] for one in options.get("prior") or () if _PREFIX.match(one)}
    everything = any(not _PREFIX.match(one) for one in options.get("prior") or ())
    return {
        **given,
        "model": held["model"],
        "size": [f"{i}={n}" for i, n in sizes.items() if i not in overridden] + list(options["size"] or ()),
        "prior": [one for factor, one in priors.items() if not everything and factor not in replaced]
        + list(options.get("prior") or ()),
        "data": {**data, **given["data"]},
        "reading": reading,
    }


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix.lower() == ".toml" else _yaml(text, path)
    except FileNotFoundError:
        raise PltfError(f"there is no model file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise PltfError(f"{path} is not valid TOML: {reason}") from None
    except OSError as reason:
        raise PltfError(f"{path} cannot be read: {reason.strerror}") from None


def _yaml(text: str, path: Path) -> Any:
    """Parse YAML. Aliases are refused: with them, a small file can expand to a huge one.

    A plain 2:8 is text, as in TOML and on the command line, though YAML 1.1 has it as the number 128, in base 60.
    """
    try:
        import yaml
    except ImportError:
        raise PltfError(f"reading {path} requires pyyaml: pip install 'pltf[io]'") from None
    loader = yaml.SafeLoader(text)
    usual = loader.resolve
    loader.resolve = lambda kind, value, plain: usual(kind, value, (False, False) if ":" in (value or "") else plain)
    try:
        aliases = any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(text, yaml.SafeLoader))
        held = None if aliases else loader.get_single_data()
    except (LookupError, AttributeError):
        raise PltfError(f"{path} is not valid YAML: a value does not match its tag, such as !!int") from None
    except (yaml.YAMLError, ValueError, RecursionError) as reason:
        mark, problem = getattr(reason, "problem_mark", None), getattr(reason, "problem", None) or str(reason)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise PltfError(f"{path} is not valid YAML: {problem}{where}") from None
    if aliases:
        raise PltfError(f"{path} must not have aliases such as *name: write out what they stand for")
    return held


def _known_keys(held: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in held:
        if key not in known:
            raise PltfError(f"{where} has an unknown key {key!r}; known are {', '.join(known)}{suggestion(key, known)}")


def _table(held: Any, path: Path, name: str) -> dict[str, Any]:
    if not isinstance(held, dict):
        raise PltfError(f"{path}: {name} must be a table, got {brief(held)}")
    for key in held:
        if not isinstance(key, str):  # in YAML, 2014 is a number, and no means False
            raise PltfError(f"{path}: {name}: put the key {key!r} in quotes")
    return held


def _sizes_in(held: Any, path: Path) -> dict[str, str]:
    """Sizes in the form of the command line: 5, "2:8" or [2, 4, 8]."""
    sizes = {}
    for index, size in _table(held, path, "sizes").items():
        if isinstance(size, bool) or not isinstance(size, (int, str, list)):
            raise PltfError(f"{path}: the size of {index!r} must be a whole number, got {size!r}")
        sizes[index] = ",".join(map(str, size)) if isinstance(size, list) else str(size)
    return sizes


def _priors_in(held: Any, path: Path) -> dict[str, str]:
    """Priors in the form of the command line, by factor; "" means all factors."""
    table = _table(held, path, "priors")
    by_factor = table if all(isinstance(one, dict) for one in table.values()) else {"": table}
    priors = {}
    for factor, prior in by_factor.items():
        _known_keys(_table(prior, path, "priors"), OF_PRIOR, f"{path}: priors")
        words = ",".join(f"{name}={value}" for name, value in prior.items())
        priors[factor] = f"{factor}:{words}" if factor else words
    return priors


def _data_in(held: Any, path: Path) -> tuple[dict[str, Path], dict[str, dict[str, Any]]]:
    """Files, relative to the model file, and how to read them."""
    files, reading = {}, {}
    for name, given in _table(held, path, "data").items():
        told = {"file": given} if isinstance(given, str) else _table(given, path, f"data.{name}")
        _known_keys(told, _OF_DATA, f"{path}: data.{name}")
        for key, value in told.items():
            kinds = (bool,) if key in _FLAGS else (str, dict) if key == "index" else (str,)
            if not isinstance(value, kinds):
                kind = "true or false" if key in _FLAGS else "a text"
                raise PltfError(f"{path}: data.{name}.{key} must be {kind}, got {value!r}")
        if "file" in told:
            files[name] = _beside(path, told["file"])
        reading[name] = {key: value for key, value in told.items() if key != "file"}
        if isinstance(told.get("index"), dict):
            columns = _table(told["index"], path, f"data.{name}.index")
            reading[name]["index"] = _as_text({column: str(index) for column, index in columns.items()})
    return files, reading


def _beside(path: Path, told: str) -> Path:
    """A file or the URL of a database in a model file."""
    found = database_url(told)
    return found if isinstance(found, ShownPath) else path.parent / (found or told)


# -- options ------------------------------------------------------------------------------------


def wanted_of(options: Mapping[str, Any], *, several: bool = False) -> Wanted:
    """The model that the options describe."""
    given = [name for name in KINDS if options[name] is not None]
    if len(given) != 1:
        came = " and ".join(f"--{name}" for name in given) or "none; for example --cp 5"
        raise PltfError(f"one of --model, --cp, --tucker and --nmf must say what to fit, got {came}")
    kind = given[0]
    text, sizes = options[kind], sizes_of(options["size"])
    if sizes and kind != "model":
        raise PltfError(f"--size goes with --model: --{kind} sets the sizes itself")
    parts = text.split(",") if kind == "tucker" else [] if kind == "model" else [text]
    ranks = [range_of(part, f"--{kind}") for part in parts]
    if not several and any(len(one) > 1 for one in [*ranks, *sizes.values()]):
        raise PltfError(f"--{kind if ranks else 'size'} must be one size here: to try several, use pltf select")
    if kind != "model":
        return Wanted(kind, None, ranks, sizes)
    return Wanted(kind, Model(text, **{index: numbers[0] for index, numbers in sizes.items()}), ranks, sizes)


def model_of(seen: Observation | Mapping[str, Observation], wanted: Wanted) -> tuple[Model, dict[str, list[int]]]:
    """The requested model with the indices of the data, and the sizes to try."""
    if wanted.model is not None:
        return wanted.model, wanted.sizes
    assert isinstance(seen, Observation)
    indices = seen.dims or letters(len(seen.shape))
    ranks = [numbers[0] for numbers in wanted.ranks]
    if wanted.kind == "nmf" and len(indices) != 2:
        raise PltfError(f"--nmf needs two indices, and the data have {len(indices)}: use --cp")
    if len(indices) < 2:
        advice = "the components of a single index cannot be told apart"
        raise PltfError(f"--{wanted.kind} needs at least two indices, and the data have only {indices[0]}: {advice}")
    if wanted.kind == "tucker" and len(ranks) != len(indices):
        raise PltfError(f"--tucker must have a rank for each of {', '.join(indices)}, got {len(ranks)}")
    if wanted.kind == "tucker":
        model = tucker(indices, ranks=ranks)
    else:
        model = (nmf if wanted.kind == "nmf" else cp)(indices, rank=ranks[0])
    return model, dict(zip(model.sizes, wanted.ranks, strict=True))


# -- data of each tensor ------------------------------------------------------------------------


def _data_of(given: Sequence[str] | None) -> dict[str, Path]:
    """Files by tensor, from --data."""
    files: dict[str, Path] = {}
    for text in given or ():
        name, equals, path = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not path:
            raise PltfError(f"--data must be like X=visits.csv, got {text!r}")
        if name in files:
            raise PltfError(f"--data is given twice for {name!r}")
        if path == "-":
            raise PltfError(f"--data needs a file for {name}: only FILE may be - for standard input")
        files[name] = database_url(path) or Path(path)
    return files


def sources_of(file: Path | None, options: Mapping[str, Any], wanted: Wanted) -> dict[str, TensorFile]:
    """The file of each tensor, and how to read it."""
    files, tensors = options["data"], wanted.tensors
    if file is not None:
        if len(tensors) > 1:
            example = " ".join(f"--data {name}=FILE" for name in tensors)
            raise PltfError(
                f"the model has the tensors {', '.join(tensors)}: give each its file ({example}), not {file}"
            )
        files = {**files, tensors[0]: file}  # replaces the file in a model file
    for name in files:
        if name not in tensors:
            raise PltfError(f"--data names {name!r}, and the model has {', '.join(tensors)}{suggestion(name, tensors)}")
    absent = [name for name in tensors if name not in files]
    if absent:
        what = f"--data {absent[0]}=FILE" if len(tensors) > 1 else "FILE, for example events.csv"
        raise PltfError(f"there are no data for {absent[0]}: name a file ({what})")
    read = {name: _reading(name, options, wanted) for name in tensors}
    for text in options["index"] or () if len(tensors) > 1 else ():
        prefix = _PREFIX.fullmatch(text.strip())
        plain = prefix[2] if prefix is not None and prefix[1] in tensors else text
        wanted.refuse_unknown("--index", indices_of(plain).values())
    for one in _OF_DATES:
        if options.get(one) is not None and not any(how.get(one) for how in read.values()):
            raise PltfError(f"--{one.replace('_', '-')} goes with an index of dates, such as --index user,when:day")
    for path in files.values():
        refuse_misspelt(path)
    return {name: TensorFile(files[name], read[name]) for name in tensors}


def _only(name: str, given: Sequence[str] | None) -> str | None:
    """The value of an option for a single tensor: repeated --index are joined, others must not be repeated."""
    if not given:
        return None
    if len(given) > 1 and name != "index":
        raise PltfError(f"--{name} is given twice: {' and '.join(given)}")
    return ",".join(given)


def _reading(name: str, options: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """The reading options of one tensor."""
    told = options["reading"].get(name, {})
    if len(wanted.tensors) > 1:
        refused = next((one for one in _OF_ONE_FILE if options.get(one) is not None), None)
        if refused:
            raise PltfError(f"--{refused} is for one file: with several tensors, say it in a model file")
        mine = {one: _of_tensor(name, one, options[one], wanted) for one in _BY_TENSOR}
    else:
        mine = {one: _only(one, options[one]) for one in _BY_TENSOR}
    read = {**options, **told, **{one: given for one, given in mine.items() if given}}
    read |= {one: options.get(one) or told.get(one, False) for one in _FLAGS}
    read |= {one: options[one] for one in _OF_FILE if options.get(one) is not None}
    if any(text.strip().startswith(f"{name}:") for text in options["value"] or ()):
        read["count"] = False  # --count is for the other tensors
    read |= {one: told.get(one) if one in told and not mine[one] else mine[one] for one in ("index", "value")}
    read["missing"] = mine["missing"] or told.get("missing", "nan")
    if read["missing"] not in ("nan", "unlisted"):
        near = suggestion(read["missing"], ("nan", "unlisted"))
        raise PltfError(f"--missing must be nan or unlisted, got {read['missing']!r}{near}")
    read["index"] = _completed(read["index"], name, wanted)
    if len(wanted.tensors) > 1 and not any(":" in column for column in indices_of(read["index"])):
        read |= {one: told.get(one) for one in _OF_DATES}  # the options are for tensors with dates
    return read


def _of_tensor(name: str, option: str, given: Sequence[str] | None, wanted: Wanted) -> str | None:
    """The value of an option for one tensor: entries with its name, as in X:n, precede those without a name."""
    assert wanted.model is not None
    named, plain = [], []
    for text in given or ():
        prefix = _PREFIX.fullmatch(text.strip())
        if prefix is None or prefix[1] not in wanted.tensors:
            plain.append(text)
        elif prefix[1] == name:
            named.append(prefix[2])
    if option != "index":
        if len(named) > 1 or (len(plain) > 1 and not named):
            raise PltfError(f"--{option} is given twice for {name}")
        return (named or plain or [None])[0]
    indices = wanted.model.observed[name]
    shared = {column: i for text in plain for column, i in indices_of(text).items() if i in indices}
    return _as_text({**shared, **{column: i for text in named for column, i in indices_of(text).items()}}) or None


def _completed(text: str | None, name: str, wanted: Wanted) -> str | None:
    """Columns for all indices of an equation; the default column has the name of the index."""
    if text is None or wanted.model is None:
        return text
    found, indices = indices_of(text), wanted.model.observed[name]
    if not set(found.values()) <= set(indices):
        return text
    columns = {index: column for column, index in found.items()}
    return _as_text({columns.get(index, index): index for index in indices})


def _as_text(indices: Mapping[str, str]) -> str:
    """Columns and their indices in the form of --index.

    >>> _as_text({"user_id": "user", "place": "place"}), _as_text({"Last, first": "name"})
    ('user_id=user,place=place', '"Last, first=name"')
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([f"{column}={index}" for column, index in indices.items()])
    return line.getvalue() if indices else ""
