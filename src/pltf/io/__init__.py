"""Read and write files: saved fits and user data."""

from pltf.io.saved import load
from pltf.io.spreadsheets import spreadsheet_safe

__all__ = ["load", "spreadsheet_safe"]
