"""Sphinx configuration of the site. `make docs` builds the site into build/site, offline, and fails on any warning."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "site"))

project = "nnrt"
project_copyright = "the authors of nnrt"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "diagrams",
    "pages",
    "public_names",
]
exclude_patterns = ["site"]
nitpicky = True

html_theme = "furo"
html_title = "nnrt"
html_static_path = ["assets"]
html_css_files = ["diagrams.css"]
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4

autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

copybutton_prompt_text = "$ "
