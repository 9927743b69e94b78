"""The experiments of the paper, with the public API of pltf only: ``python -m experiments --help``."""
