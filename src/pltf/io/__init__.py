"""Files: fits that were saved, and data that people have."""

from pltf.io.saved import load

__all__ = ["load"]
