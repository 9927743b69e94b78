"""A fit or a search as one HTML file: no server, no network, nothing to install for whoever reads it."""

from pltf.report.page import write

__all__ = ["write"]
