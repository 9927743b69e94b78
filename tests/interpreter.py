"""Triton's interpreter, quickened.

It fits its language to the host whenever a kernel calls a function, which takes longer than what most functions do.
Once for every module is enough, for nothing undoes it but the end of a kernel, and kernels do it themselves.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def quicken() -> None:
    """Call functions of kernels as they are; where Triton is built otherwise, nothing changes."""
    from triton.runtime import interpreter

    function: Any = getattr(interpreter, "InterpretedFunction", None)
    if function is None or not hasattr(function, "rewrite"):
        return
    fitted, plain_call = set[int](), function.__call__

    def call(self: Any, *args: Any, **options: Any) -> Any:
        module = id(self.fn.__globals__)
        if module in fitted:
            return self.rewrite()(*args, **options)
        fitted.add(module)
        return plain_call(self, *args, **options)

    function.__call__ = call
