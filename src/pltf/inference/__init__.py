"""Inference: pure update steps on an immutable state, and the loop that runs them."""
