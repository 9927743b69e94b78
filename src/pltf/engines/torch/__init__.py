"""Engines on a device of PyTorch: the same sums, with factors, sums and cells in its memory.

Factors and sums are float64 tensors; cells have the dtype of the plan. Nothing adds with atomics, so one device gives
the same bits in every run. Triton kernels do the work where they run; plain PyTorch does it elsewhere, and is what the
kernels are tested against.
"""
