"""Titles of a conference."""

import numpy as np
from sklearn.utils import Bunch

from skvnce.datasets._tables import from_folder

_DESCRIPTION = """\
Titles of NeurIPS
=================

9,675 titles of the proceedings of NeurIPS, 1987 to 2019; ``target`` is the year.
Bibliographic facts, from the site of the proceedings.
"""
_HOW = (
    "the titles of the proceedings at papers.nips.cc (the GitHub repository "
    "akshaypithadiya/neurips-papers carries them), as columns year and title."
)


def load_neurips_titles(*, data_home=None, return_X_y=False, as_frame=False):
    """Load the titles of NeurIPS, 1987 to 2019.

    The titles are read from a folder, see ``data_home``.

    Parameters
    ----------
    data_home : path or None, default=None
        Folder that holds ``neurips_titles/neurips_titles.csv`` or ``.csv.gz``.  None
        takes the folder that the environment variable ``SKVNCE_DATA`` names.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Whether ``data`` and ``target`` are pandas Series.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        ``data`` of shape (9675,), text; ``target``, the years; ``frame``, both or None;
        ``DESCR`` with sources and terms.

    Raises
    ------
    FileNotFoundError
        If the titles are not in the folder; the message says how to get them.
    """
    columns = from_folder("neurips_titles", ("year", "title"), _HOW, data_home)
    data = np.array(columns["title"], dtype=object)
    target = np.array(columns["year"], dtype=int)
    frame = None
    if as_frame:
        import pandas as pd

        frame = pd.DataFrame({"title": data, "year": target})
        data, target = frame["title"], frame["year"]
    if return_X_y:
        return data, target
    return Bunch(data=data, target=target, frame=frame, DESCR=_DESCRIPTION)
