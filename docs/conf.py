"""Sphinx configuration. Pages are .md (MyST) or .rst; their examples run as doctests.

sphinx-gallery runs the scripts in `docs/examples` and writes `docs/auto_examples`. The notebooks
are copied to `docs/notebooks` and shown with their stored outputs. `benchmarks/` writes the tables
and pictures of measurements into `docs/performance`.
"""

import base64
import importlib.util
import json
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx_gallery.sorting import ExplicitOrder

import skforest

sys.path.insert(0, str(Path(__file__).parents[1]))  # finds benchmarks

project = "skforest"
author = "the skforest developers"
copyright = "2026, the skforest developers"
version = release = skforest.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "numpydoc",
    "myst_nb",  # loads myst_parser
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "auto_examples/*.ipynb"]
# Without PyTorch, the page of skforest.torch is left out and its examples do not run.
has_torch = importlib.util.find_spec("torch") is not None
if not has_torch:
    exclude_patterns.append("api/torch.md")
    suppress_warnings = ["toc.excluded", "toc.not_readable", "myst.xref_missing"]
default_role = "code"

html_theme = "furo"
html_title = f"skforest {version}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]

# The reference pages call autoclass and autofunction themselves.
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the numpydoc sections contain the types
numpydoc_show_class_members = False  # autodoc lists them
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "off"  # "make notebooks" runs them

# Examples in the order of the gallery: what most people need first. Others follow.
GALLERY = [
    f"plot_{name}.py"
    for name in (
        "mixed_table blend report explanation effects quantiles calibration imbalanced groups "
        "time grid_search own_loss survival deployment streaming readable_tree images signal "
        "volume mesh torch_layer"
    ).split()
]
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "/plot_" if has_torch else "/plot_(?!torch)",  # the others are not run
    "within_subsection_order": ExplicitOrder([*GALLERY, "*"]),
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),  # not the last artist of a figure
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "reference_url": {"skforest": None},
}

# Pages use the directives doctest and testcode. A `>>>` block without one is that of a docstring,
# which the tests run.
doctest_test_doctest_blocks = ""
doctest_global_setup = f"has_torch = {has_torch}"


def skip_foreign_members(app, what, name, obj, skip, options):
    """Skip members inherited from other packages: their docstrings link to their own pages."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if module.partition(".")[0] in ("sklearn", "torch") else None


def escape_types(app, what, name, obj, options, lines):
    """Escape the types of `name : type` lines, which docstrings write as plain text.

    A line without a description inside a list of such lines gets an empty description.
    """
    for i in reversed(range(len(lines))):
        found = re.fullmatch(r"( *)([\w, ]+) : (.+)", lines[i])
        if not found:
            continue
        indent, names, kind = found.groups()
        lines[i] = f"{indent}{names} : " + re.sub(r"\*|_(?!\w)", r"\\\g<0>", kind)
        if indent and i + 1 < len(lines) and re.match(rf"{indent}\S", lines[i + 1]):
            lines.insert(i + 1, f"{indent}    \u200b")


def show_groups(app, what, name, obj, options, lines):
    """Show the groups of parameters as headings.

    A docstring has them as entries without a type, such as ``**Running**``; numpydoc makes bold
    names of them, with empty descriptions.
    """
    for i in reversed(range(len(lines) - 1)):
        if found := re.fullmatch(r"( +)\*\*\\\*\\\*(.+)\*{4}", lines[i]):
            indent, group = found.groups()
            lines[i : i + 2] = [f"{indent}.. rubric:: {group}"]


def list_methods(app, what, name, obj, options, lines):
    """List the methods of a class below its first sentence, with links."""
    if what != "class":
        return
    found = []
    for key in dir(obj):
        method = getattr(obj, key, None)
        ours = (getattr(method, "__module__", None) or "").partition(".")[0] == "skforest"
        if callable(method) and ours and not key.startswith("_"):
            found.append(f":meth:`~{name}.{key}`")
    if found:
        start = next(i for i, line in enumerate(lines) if line)
        end = lines.index("", start)
        lines[end:end] = ["", "**Methods:** " + ", ".join(found)]


def shorten_citations(app, doctree, docname):
    """Show citations as [1], without the prefix by which numpydoc makes their labels unique."""
    for text in list(doctree.findall(nodes.Text)):
        short = re.sub(r"\[R[0-9a-f]{12}-(\w+)\]", r"[\1]", text)
        if short != text:
            text.parent.replace(text, nodes.Text(short))


def check_reference(app, env):
    """Warn about public names that are missing from the reference."""
    described = set(env.domaindata["py"]["objects"])
    for name in sorted(skforest.__all__):
        if f"skforest.{name}" not in described:
            logging.getLogger(__name__).warning("docs/api does not describe skforest.%s", name)


def copy_notebooks(app):
    """Copy the notebooks into the source folder, with a thumbnail: the first picture of each.

    Links to pages of the documentation are changed to their place relative to the copy. Files
    that did not change are not written, so that they are not read again.
    """
    folder = Path(app.srcdir, "notebooks")
    folder.mkdir(exist_ok=True)
    for path in Path(app.srcdir).parent.glob("notebooks/*.ipynb"):
        text = path.read_text(encoding="utf-8").replace("](../docs/", "](../")
        outputs = (o for cell in json.loads(text)["cells"] for o in cell.get("outputs", []))
        pictures = (o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {}))
        copies = {path.name: text.encode(), f"{path.stem}.png": base64.b64decode(next(pictures))}
        for name, content in copies.items():
            copy = folder / name
            if not copy.exists() or copy.read_bytes() != content:
                copy.write_bytes(content)


def write_measurements(app):
    """Write tables and pictures from the stored results, if any of these has changed."""
    from benchmarks import report

    report.write(Path(app.srcdir, "performance"))


def setup(app):
    app.connect("builder-inited", copy_notebooks)
    app.connect("builder-inited", write_measurements)
    app.connect("autodoc-process-docstring", escape_types, priority=400)  # before numpydoc
    app.connect("autodoc-process-docstring", show_groups, priority=600)  # after numpydoc
    app.connect("autodoc-process-docstring", list_methods, priority=700)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("doctree-resolved", shorten_citations)
    app.connect("env-check-consistency", check_reference)
