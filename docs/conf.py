"""Sphinx configuration. Pages are .md (MyST) or .rst; every `>>>` block runs as a doctest."""

import skforest

project = "skforest"
author = "the skforest developers"
copyright = "2026, the skforest developers"
version = release = skforest.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build"]
default_role = "code"

html_theme = "furo"
html_title = f"skforest {version}"

# The reference pages call autoclass and autofunction themselves; one page, one topic.
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the numpydoc sections say it
numpydoc_show_class_members = False  # autodoc lists them
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

doctest_global_setup = "import numpy as np"


def skip_scikit_learn(app, what, name, obj, skip, options):
    """Leave out what is inherited from scikit-learn: its texts link to its own pages."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if module.partition(".")[0] == "sklearn" else None


def setup(app):
    app.connect("autodoc-skip-member", skip_scikit_learn)
