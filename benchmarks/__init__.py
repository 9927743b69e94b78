"""pltf and its peers on the same problems, in one run: ``python -m benchmarks``."""
