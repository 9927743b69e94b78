"""Predictions of cells from a posterior, without building the tensor."""
