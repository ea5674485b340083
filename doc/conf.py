"""Sphinx configuration; build with ``sphinx-build -W doc doc/_build`` (extra ``doc``).

The build runs the examples; ``-D plot_gallery=0`` leaves them out.
"""

import re
import sys
from pathlib import Path

# The gallery looks at what the examples import, also where it does not run them.
from sklearn.experimental import enable_iterative_imputer  # noqa: F401

import skvnce.options

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "skvnce"
release = version = skvnce.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_parser",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "fold_sections",
    "api_groups",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
default_role = "literal"
autosummary_generate = True
autosummary_context = {
    # Classes whose pages begin with a file: what they are, and when to use them.
    "class_pages": [
        f"skvnce.{path.stem}"
        for path in sorted(Path(__file__).parent.glob("class_pages/*.rst"))
    ],
    # Parameters of classes that declare them as fields: no attributes of these pages.
    "parameters": {
        f"{module.__name__}.{name}": list(
            getattr(getattr(module, name), "__dataclass_fields__", ())
        )
        for module in (skvnce, skvnce.options)
        for name in module.__all__
    },
    # Methods that pages of classes list without their documentation.
    "of_scikit_learn": (
        *("get_metadata_routing", "get_params", "set_params", "set_output"),
        *("set_callbacks", "get_feature_names_out"),
    ),
}
numpydoc_show_class_members = False
autodoc_typehints = "none"  # types of parameters are in the docstrings, in words
exclude_patterns = ["_build", "class_pages"]  # which pages include
# Read from a file, so that the build needs no network: from Debian's package
# python-sklearn-doc 1.2, of which the links below use names that have not changed.
intersphinx_mapping = {
    "sklearn": ("https://scikit-learn.org/stable", "_inventories/scikit-learn.inv")
}
templates_path = ["_templates"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "subsection_order": [
        f"../examples/{name}"
        for name in ("impute", "analyse", "graphs", "densities", "topics")
    ],
    "gallery_dirs": "auto_examples",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skvnce",),
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", "seaborn", "gallery_times.record"),
    "reset_modules_order": "both",
    "parallel": 2,
    # What a call for a legend or a title returns is not shown.
    "capture_repr": ("_repr_html_",),
    # Its page would load scripts from other machines.
    "write_computation_times": False,
}
html_theme = "pydata_sphinx_theme"
html_title = "skvnce"
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["skvnce.css"]
html_js_files = ["breaks.js"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
}
# The first two have no pages beside them; the table of the third needs the room.
html_sidebars = {page: [] for page in ("index", "start/install", "comparison")}
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80
# Prompts and output of doctests are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_ATTRIBUTE_IN_A_TYPE = re.compile(r"(?<=[(, ])(\w+)_(?=[,) ])")
_TYPE = re.compile(r"[\w ]+ of (\w+, of )?shape \(.*\)")


def _escape_attributes(app, what, name, obj, options, lines):
    """Keep reST from reading ``n_features_in_`` in a shape as a link."""
    for i, line in enumerate(lines):
        names, colon, kind = line.partition(" : ")
        if _TYPE.fullmatch(line):
            names, colon, kind = "", "", line
        if kind:
            lines[i] = names + colon + _ATTRIBUTE_IN_A_TYPE.sub(r"\1\_", kind)


def setup(app):
    """Connect what this file adds."""
    app.connect("autodoc-process-docstring", _escape_attributes, priority=100)
