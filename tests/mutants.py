"""Mutation testing of the engines and of inference: ``make mutants ARGS='--sample 40 --seed 0'``.

A mutant is the source with one small fault: a changed operator, comparison or number, or a swapped function. The tests
of its layer should fail on it. The script works on a copy of the project, draws mutants at random, and prints those
that survive: each is a missing test, or a change that makes no difference.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("engines", "inference")
LEFT_OUT = ("torch", "kernels", "on_device", "newton", "_numba", "interpreted")  # compiled code, and GPUs
TESTS = {
    "engines": [
        "tests/inference/test_golden.py",
        "tests/contract",
        "tests/engines",
        "tests/test_fit.py",
    ],
    "inference": ["tests/inference", "tests/contract/test_algebras.py", "tests/test_fit.py", "tests/test_sampling.py"],
}
SECONDS = 900  # that the tests of a mutant may take: an endless loop is found out, too

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
    before: str
    after: str

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
                            yield Mutant(path, node.lineno, before, after)


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


def sample(count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Mutants of both packages, drawn evenly from all there are."""
    everything = [
        (package, mutant)
        for package in PACKAGES
        for path in sorted((ROOT / "src" / "pltf" / package).rglob("*.py"))
        if not any(part in path.relative_to(ROOT).as_posix() for part in LEFT_OUT)
        for mutant in dict.fromkeys(mutants(path.relative_to(ROOT)))
    ]
    print(f"{len(everything)} mutants, of which {min(count, len(everything))} are tried", flush=True)
    return random.Random(seed).sample(everything, min(count, len(everything)))


def killed(copy: Path, tests: Sequence[str]) -> bool:
    """Whether the tests fail: first the fast ones, then the slow ones."""
    return any(_fail(copy, ["-m", marked, *tests]) for marked in ("not slow", "slow"))


def _fail(copy: Path, arguments: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PLTF_TEST_WITHOUT_TORCH": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)  # 5: there are no tests


def main() -> int:
    """Try a sample, print the survivors and the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="mutation testing on a sample")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="mutants to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: %(default)s)")
    options = parser.parse_args()
    survivors: list[Mutant] = []
    chosen = sample(options.sample, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "pltf"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "docs", "__pycache__", ".*cache"))
        if killed(copy, TESTS["engines"]) or killed(copy, TESTS["inference"]):
            print("the tests fail without a mutant")
            return 2
        for number, (package, mutant) in enumerate(chosen, 1):
            file = copy / mutant.path
            source = file.read_text()
            file.write_text(mutant.applied(source))
            dead = killed(copy, TESTS[package])
            file.write_text(source)
            survivors += [] if dead else [mutant]
            print(f"{number:3d} {'killed  ' if dead else 'SURVIVED'} {mutant}", flush=True)
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed")
    for mutant in survivors:
        print(f"  survived: {mutant}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
