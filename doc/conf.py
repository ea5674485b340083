"""Sphinx configuration; build with ``sphinx-build -W doc doc/_build`` (extra ``doc``).

The build runs the examples; ``-D plot_gallery=0`` leaves them out.
"""

import re

# The gallery looks at what the examples import, also where it does not run them.
from sklearn.experimental import enable_iterative_imputer  # noqa: F401

from skvnce import __version__

project = "skvnce"
release = version = __version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "myst_parser",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
numpydoc_show_class_members = False
exclude_patterns = ["_build"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "abort_on_example_error": True,
}
html_theme = "alabaster"

_ATTRIBUTE_IN_A_TYPE = re.compile(r"(?<=[(, ])(\w+)_(?=[,) ])")


def _escape_attributes(app, what, name, obj, options, lines):
    """Keep reST from reading ``n_features_in_`` in a shape as a link."""
    for i, line in enumerate(lines):
        names, colon, kind = line.partition(" : ")
        if colon:
            lines[i] = names + colon + _ATTRIBUTE_IN_A_TYPE.sub(r"\1\_", kind)


def setup(app):
    """Connect what this file adds."""
    app.connect("autodoc-process-docstring", _escape_attributes, priority=100)
