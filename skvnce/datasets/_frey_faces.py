"""Frames of a video of one face."""

import numpy as np

from skvnce.datasets._tables import bunch, find

_SHAPE = (28, 20)
_DESCRIPTION = """\
Frey faces
==========

1,965 successive frames of a video of one face, 28 x 20 grey values from 0 to 255; no
cell is missing.  Neighbouring frames are nearly the same, so a random split leaks
information: split them in blocks.

Collected by B. Frey and S. Roweis; public research data without a licence.
"""
_HOW = (
    "the Frey Face data set of S. Roweis (the GitHub repository "
    "vsimkus/variational-gibbs-inference carries it); save the frames, in their order, "
    "as an array x of shape (1965, 560) by numpy.savez."
)


def load_frey_faces(*, data_home=None, as_frame=False):
    """Load 1,965 frames of a video of one face.

    The table is read from a folder, see ``data_home``.

    Parameters
    ----------
    data_home : path or None, default=None
        Folder that holds ``frey_faces/frey_faces.npz``.  None takes the folder that the
        environment variable ``SKVNCE_DATA`` names.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (1965, 560), grey values from 0 to 255; ``images``, the same
        of shape (1965, 28, 20); ``feature_names``, ``pixel_<row>_<column>``; ``frame``,
        the same as ``data`` or None; ``DESCR`` with sources and terms.

    Raises
    ------
    FileNotFoundError
        If the table is not in the folder; the message says how to get it.
    """
    with np.load(find("frey_faces", (".npz",), _HOW, data_home)) as arrays:
        data = arrays["x"].astype(float)
    names = [f"pixel_{row}_{column}" for row, column in np.ndindex(_SHAPE)]
    images = data.reshape(-1, *_SHAPE)
    return bunch(data, names, _DESCRIPTION, as_frame=as_frame, images=images)
