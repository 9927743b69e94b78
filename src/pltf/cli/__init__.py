"""The command line: ``pltf fit events.csv --index user,place,act --cp 7 -o run.nc``. Nothing heavy is imported here."""

from pltf.cli.main import main

__all__ = ["main"]
