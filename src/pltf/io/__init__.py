"""Files: fits that were saved, and data that people have."""

from pltf.io.saved import load
from pltf.io.spreadsheets import spreadsheet_safe

__all__ = ["load", "spreadsheet_safe"]
