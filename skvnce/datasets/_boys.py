"""Measurements of growing boys."""

from skvnce.datasets._tables import bunch, from_folder, numbers

_NAMES = ["age", "hgt", "wgt", "bmi", "hc", "tv"]
_DESCRIPTION = """\
Growth of Dutch boys
====================

748 Dutch boys of the Fourth Dutch Growth Study: age in years, height (hgt) in cm,
weight (wgt) in kg, body mass index (bmi) in kg/m2, head circumference (hc) in cm and
testicular volume (tv) in ml.  14 % of the cells are missing, of tv 70 %.  Stages of
puberty and the region, which the source also has, are left out.

Fredriks, van Buuren and others (2000), Continuing positive secular growth change in the
Netherlands 1955-1997, Pediatric Research 47:316-323.  From the R package mice, whose
licence is GPL-2 or later.
"""
_HOW = (
    "the data set boys of the R package mice; in R: "
    'write.csv(mice::boys, "boys/boys.csv", row.names = FALSE, na = "").'
)


def load_boys(*, data_home=None, as_frame=False):
    """Load six measurements of 748 Dutch boys, with missing values.

    The table is read from a folder, see ``data_home``.

    Parameters
    ----------
    data_home : path or None, default=None
        Folder that holds ``boys/boys.csv`` or ``boys/boys.csv.gz``.  None uses the
        folder that the environment variable ``SKVNCE_DATA`` names.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (748, 6), NaN where missing; ``feature_names``; ``frame``, the
        same as ``data`` or None; ``DESCR`` with sources, terms and units.

    Raises
    ------
    FileNotFoundError
        If the table is not in the folder; the message says how to get it.

    References
    ----------
    Fredriks, van Buuren and others (2000), Continuing positive secular growth change in
    the Netherlands 1955-1997, Pediatric Research 47:316-323.
    """
    columns = from_folder("boys", _NAMES, _HOW, data_home)
    return bunch(numbers(columns, _NAMES), _NAMES, _DESCRIPTION, as_frame=as_frame)
