"""Functions of kernels over dense cells, each in a kernel of its own."""
# Triton reads the source of these functions, and knows no types of Python.
# mypy: ignore-errors

import triton
import triton.language as tl

from pltf.engines.torch.cell_kernels import log_parts, quick_ratio_of
from pltf.engines.torch.dense_kernels import split


@triton.jit
def logs(ratio, powers, rest, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    power, left = log_parts(tl.load(ratio + at, mask=at < n, other=1.0))
    tl.store(powers + at, power, mask=at < n)
    tl.store(rest + at, left, mask=at < n)


@triton.jit
def ratios(x, rate, out, n, BLOCK: tl.constexpr, NATIVE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    counted, rates = tl.load(x + at, mask=at < n, other=0.0), tl.load(rate + at, mask=at < n, other=1.0)
    tl.store(out + at, quick_ratio_of(counted, rates, LINKS=False, NATIVE=NATIVE), mask=at < n)


@triton.jit
def pieces(x, one, two, three, n, BLOCK: tl.constexpr, NATIVE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    parts = split(tl.load(x + at, mask=at < n, other=0.0), NATIVE)
    tl.store(one + at, parts[0].to(tl.float32), mask=at < n)
    tl.store(two + at, parts[1].to(tl.float32), mask=at < n)
    tl.store(three + at, parts[2].to(tl.float32), mask=at < n)
