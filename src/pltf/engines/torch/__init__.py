"""Engines on a PyTorch device: the same sums, with factors, sums and cells in device memory.

Factors and sums are float64 tensors; cells have the dtype of the plan. No atomics are used, so results on one device
are reproducible bit by bit. Triton kernels do the work where available, else plain PyTorch, which is also the
reference for testing the kernels.
"""
