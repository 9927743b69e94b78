"""The documentation site: `make docs` builds it, offline, and warnings are errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext")]

import pltf  # noqa: E402

project, author, release = "pltf", "The pltf developers", pltf.__version__
copyright = author
language = "en"
smartquotes = False  # --resume is an option, not a dash

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "commands",
    "mathml",
    "reference",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "gallery/*.ipynb", "gallery/*.py"]

# -- pages ----------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 4

# -- reference ------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"Array": "numpy.ndarray", "pd.DataFrame": "pandas.DataFrame"}
autosummary_generate = False  # the pages of the reference are written by hand, the tables on them are not
napoleon_google_docstring = False
python_maximum_signature_line_length = 88

# -- gallery: scripts are run, and an error is the end of the build ---------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "capture_repr": ("_repr_html_", "__repr__"),
    "abort_on_example_error": True,
    "write_computation_times": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 1e9,  # seconds say little: they are those of the machine that built the page
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
}

# -- html -------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"pltf {release}"
html_static_path = ["_static"]
html_css_files = ["pltf.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
