"""Mutation testing of the engines and of inference: ``make mutants ARGS='--sample 40 --seed 0'``.

A mutant is the source with one small fault: a changed operator, comparison or number, or a swapped function. The tests
of the two layers should fail on it. The script works on copies of the project, records which tests run which lines,
draws mutants at random, runs the tests of their lines, and prints those that survive: each is a missing test, or a
change that makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
PACKAGES = ("engines", "inference")
LEFT_OUT = ("torch", "kernels", "on_device", "newton", "_numba", "interpreted")  # compiled code, and GPUs
TESTS = (
    "tests/inference",
    "tests/contract",
    "tests/engines",
    "tests/test_fit.py",
    "tests/test_sampling.py",
    "tests/test_evidence.py",
)
SECONDS = 900  # that the tests of a mutant may take: an endless loop is found out, too
WORKERS = 2  # mutants that are tried side by side
AT_ONCE = 500  # tests of one process: their names have to fit into a command line

Covering = Mapping[str, Mapping[int, Collection[str]]]  # file -> line -> tests that run it

SWAPPED: dict[type[Any], type[Any]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One fault: the statement of a file, before and after."""

    path: Path  # from the root of the project
    line: int
    end: int  # last line
    before: str
    after: str

    @property
    def lines(self) -> range:
        """Lines that it stands on."""
        return range(self.line, self.end + 1)

    def applied(self, source: str) -> str:
        """The source of the file with the fault."""
        lines = source.splitlines(keepends=True)
        whole = "".join(lines[self.line - 1 :])
        assert whole.count(self.before) >= 1
        return "".join(lines[: self.line - 1]) + whole.replace(self.before, self.after, 1)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {_brief(self.before)}  ->  {_brief(self.after)}"


def _brief(text: str) -> str:
    return " ".join(text.split())[:90]


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file.

    >>> [str(one).split(':', 1)[1] for one in mutants_of("def f(x):\\n    return x + 1\\n", Path("f.py"))]
    ['2  x + 1  ->  x - 1', '2  x + 1  ->  x + 2']
    """
    yield from mutants_of((ROOT / path).read_text(), path)


def mutants_of(source: str, path: Path) -> Iterator[Mutant]:
    """All mutants of a source text."""
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            body = function.body if isinstance(function.body, list) else [function.body]
            for node in (inner for statement in body for inner in ast.walk(statement)):
                if isinstance(node, ast.expr) and not _inside_text(node):
                    before = ast.get_source_segment(source, node)
                    for after in _changed(node):
                        if before is not None:
                            yield Mutant(path, node.lineno, node.end_lineno or node.lineno, before, after)


def _inside_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.FormattedValue)


def _changed(node: ast.expr) -> list[str]:
    """An expression with one fault at its top, each way that there is."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            found: list[ast.expr] = [ast.BinOp(node.left, SWAPPED[type(op)](), node.right)]
            if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
                found.append(ast.BinOp(node.left, op, ast.Constant(node.right.value + 1)))
        case ast.BoolOp(op=op):
            found = [ast.BoolOp(SWAPPED[type(op)](), node.values)]
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            found = [ast.Compare(node.left, [SWAPPED[type(op)]()], node.comparators)]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            found = [node.operand]
        case ast.IfExp():
            found = [ast.IfExp(node.test, node.orelse, node.body)]
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            found = [ast.Call(ast.Name(NAMES[name]), node.args, node.keywords)]
        case ast.Constant(value=bool() as flag):
            found = [ast.Constant(not flag)]
        case _:
            found = []
    return [f"({ast.unparse(one)})" if isinstance(node, ast.IfExp) else ast.unparse(one) for one in found]


def sample(count: int, seed: int) -> list[Mutant]:
    """Mutants of both packages, drawn evenly from all there are."""
    everything = [
        mutant
        for package in PACKAGES
        for path in sorted((ROOT / "src" / "pltf" / package).rglob("*.py"))
        if not any(part in path.relative_to(ROOT).as_posix() for part in LEFT_OUT)
        for mutant in dict.fromkeys(mutants(path.relative_to(ROOT)))
    ]
    print(f"{len(everything)} mutants, of which {min(count, len(everything))} are tried", flush=True)
    return random.Random(seed).sample(everything, min(count, len(everything)))


def covering(copy: Path) -> Covering:
    """The tests that run each line of each file."""
    measured = ["--cov=pltf.engines", "--cov=pltf.inference", "--cov-context=test", "--cov-report="]
    measured += ["--cov-fail-under=0", "-n", str(WORKERS)]
    said = _failure(copy, [*measured, *TESTS], seconds=None)
    if said is not None:
        raise SystemExit(f"the tests fail without a mutant:\n{said[-3000:]}")
    data = CoverageData(str(copy / ".coverage"))
    data.read()
    return {
        str(Path(file).relative_to(copy)): {
            line: _tests(names) for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }


def _tests(contexts: Collection[str]) -> set[str]:
    return {name.rpartition("|")[0] for name in contexts if "::" in name}


def killed(copy: Path, mutant: Mutant, tests: Covering) -> bool:
    """Whether a test that runs the lines of the mutant fails."""
    of_lines = tests.get(str(mutant.path), {})
    wanted = sorted({one for line in mutant.lines for one in of_lines.get(line, ())})
    chunks = (wanted[k : k + AT_ONCE] for k in range(0, len(wanted), AT_ONCE))
    return any(_failure(copy, ["-x", *chunk]) is not None for chunk in chunks)


def _failure(copy: Path, arguments: Sequence[str], seconds: float | None = SECONDS) -> str | None:
    """What pytest says if a test fails, or None."""
    plain = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow", "--ignore=tests/engines/torch"]
    command = [sys.executable, "-m", "pytest", *plain, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PLTF_TEST_WITHOUT_TORCH": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no result after {seconds} s"
    return None if done.returncode in (0, 5) else done.stdout.decode(errors="replace")  # 5: there are no tests


def tried(copies: Queue[Path], mutant: Mutant, tests: Covering) -> bool:
    """Whether a mutant is killed, in one of the copies."""
    copy = copies.get()
    file = copy / mutant.path
    source = file.read_text()
    try:
        file.write_text(mutant.applied(source))
        dead = killed(copy, mutant, tests)
    finally:
        file.write_text(source)
        copies.put(copy)
    print(f"{'killed  ' if dead else 'SURVIVED'} {mutant}", flush=True)
    return dead


def main() -> int:
    """Try a sample, print the survivors and the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="mutation testing on a sample")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="mutants to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: %(default)s)")
    options = parser.parse_args()
    chosen = sample(options.sample, options.seed)
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        for number in range(WORKERS):
            copies.put(copy := Path(folder) / str(number))
            shutil.copytree(
                ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "docs", "__pycache__", ".*cache")
            )
        tests = covering(copy)
        dead = list(pool.map(lambda mutant: tried(copies, mutant, tests), chosen))
    print(f"\n{sum(dead)} of {len(chosen)} mutants were killed")
    for mutant in (one for one, gone in zip(chosen, dead, strict=True) if not gone):
        print(f"  survived: {mutant}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
