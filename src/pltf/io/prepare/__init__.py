"""Cells on the disk: tables of any size, sorted into the parts of a store.

The rows of any source are read by DuckDB (:mod:`~pltf.io.prepare.database`), which finds and sorts the labels
(:mod:`~pltf.io.prepare.coding`), turns each row into one number, its key, and sorts the keys, all of it within a limit
on memory. The sorted keys are added up and cut into parts here (:mod:`~pltf.io.prepare.cells`).
"""

from pltf.io.prepare.run import Prepared, prepare

__all__ = ["Prepared", "prepare"]
