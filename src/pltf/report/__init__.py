"""A fit or a search as one self-contained HTML file, which opens in any browser."""

from pltf.report.page import write

__all__ = ["write"]
