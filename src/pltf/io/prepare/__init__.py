"""Cell stores: tables of any size, sorted and written to disk in parts.

The rows of any source are read by DuckDB (:mod:`~pltf.io.prepare.database`), which finds and sorts the labels
(:mod:`~pltf.io.prepare.coding`), packs the positions of each row into one integer, its key, and sorts the keys, all
within a memory limit. Sorted keys are then summed and cut into parts (:mod:`~pltf.io.prepare.cells`).
"""

from pltf.io.prepare.run import Prepared, prepare

__all__ = ["Prepared", "prepare"]
