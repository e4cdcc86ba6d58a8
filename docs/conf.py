"""Settings of the documentation site; build it with ``make docs``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import tomllib

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / "_ext")]

_about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "whycluster"
html_title = "whycluster"
author = copyright = "the authors of whycluster"  # noqa: A001  # the name that Sphinx reads
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "myst_nb",
    "docstrings",
    "mathml",
    "repository",
]
source_link = _about["urls"]["Source"]
exclude_patterns = ["_build", "_ext"]
nitpicky = False
default_role = "code"
templates_path: list[str] = []

# Pages
smartquotes_action = "qe"  # two dashes are part of an option
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True

# ipykernel warns that other users of this machine could read what the notebooks compute, which is public
_profile = tempfile.mkdtemp()
Path(_profile, "profile_default").mkdir()
Path(_profile, "profile_default", "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
os.environ["IPYTHONDIR"] = _profile

# Reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings give the types and shapes that readers need
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"  # full names are wider than the sidebar
viewcode_line_numbers = True

# Look
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # browsers do not let pages in files read other files
html_context = {"default_mode": "auto"}
html_math_renderer = "mathml"
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "whycluster"},
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": True,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    # The gallery has none, because its tables are wide.
    "secondary_sidebar_items": {"[!g]**": ["page-toc"], "guides/*": ["page-toc"]},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
