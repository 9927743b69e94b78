"""Triton kernels compiled for compute capability 9.0, which takes no GPU: registers, spills and memory of each.

Run as ``python -m tests.sm90 MODULE`` without TRITON_INTERPRET: prints a line for each kernel that MODULE names in
``SM90``, a mapping from a name to (kernel, types of its arguments, constants, warps), and if need be stages of loops
and the arguments that are multiples of 16.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

CAPABILITY, WARP = 90, 32
MOST_SHARED = 227 << 10  # bytes that a program may have: Triton tells only at the launch that a kernel has more


class Compiled(NamedTuple):
    """What the compiler says of a kernel, in registers and bytes a thread."""

    registers: int
    stack: int
    local: int
    threads: int  # of a program
    shared: int  # bytes of a program


def compiled(module: str) -> dict[str, Compiled]:
    """The kernels of a module, compiled in a process of its own, where no interpreter stands in for the compiler."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-m", "tests.sm90", module], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return {name: Compiled(*found) for name, found in json.loads(run.stdout).items()}


def _compile(
    kernel: Any,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    warps: int,
    stages: int = 3,
    aligned: Collection[str] = (),
) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    attributes = {(n,): [["tt.divisibility", 16]] for n, name in enumerate(signature) if name in aligned}
    source = ASTSource(kernel, signature=signature, constexprs=dict(constants), attrs=attributes)
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, WARP), options=options)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        told = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", told.stdout)}
    assert made.metadata.shared <= MOST_SHARED, kernel
    return Compiled(found["REG"], found["STACK"], found["LOCAL"], WARP * warps, made.metadata.shared)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kernels = importlib.import_module(sys.argv[1]).SM90
    print(json.dumps({name: _compile(*asked) for name, asked in kernels.items()}))
