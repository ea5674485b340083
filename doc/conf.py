"""Sphinx configuration; build with ``sphinx-build doc doc/_build`` (extra ``doc``)."""

from skvnce import __version__

project = "skvnce"
release = version = __version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
numpydoc_show_class_members = False
exclude_patterns = ["_build", "benchmarks/*.md"]
sphinx_gallery_conf = {"examples_dirs": "../examples", "gallery_dirs": "auto_examples"}
html_theme = "alabaster"
