"""Readers of tables: of the package, and of the user's folder of data sets."""

import csv
import gzip
import os
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

VARIABLE = "SKVNCE_DATA"


def bundled(file):
    """Read a table of the package; return a dict of columns, tuples of text."""
    return _columns(files("skvnce.datasets") / "data" / file)


def description(name):
    """Read the description of a data set, with sources, terms and units."""
    return (files("skvnce.datasets") / "descr" / f"{name}.rst").read_text("utf-8")


def how_to_get(name):
    """Read where a data set is, and the expected form."""
    return " ".join(description(name).partition("-\n\n")[2].split())


def from_folder(name, required, data_home=None):
    """Read the columns of ``<name>/<name>.csv`` or ``.csv.gz`` of the user's folder.

    `required`: columns that the table must have; `data_home`: the folder; None uses the
    one that the environment variable names.
    """
    path = find(name, (".csv.gz", ".csv"), data_home)
    columns = _columns(path)
    lacking = [column for column in required if column not in columns]
    if lacking:
        raise ValueError(
            f"The table {path} lacks the columns {', '.join(lacking)}. "
            f"How to get it: {how_to_get(name)}"
        )
    return columns


def in_folder(folder, name, endings):
    """Return the path of the first file ``<name>/<name><ending>``; None without one."""
    paths = (Path(folder).expanduser() / name / f"{name}{ending}" for ending in endings)
    return next((path for path in paths if path.is_file()), None)


def find(name, endings, data_home=None):
    """Return the path of the file ``<name>/<name><ending>``, or raise with a remedy."""
    folder = data_home or os.environ.get(VARIABLE)
    if folder and (path := in_folder(folder, name, endings)):
        return path
    expected = " or ".join(f"{name}/{name}{ending}" for ending in endings)
    place = f"{folder} has no such file" if folder else f"{VARIABLE} is not set"
    raise FileNotFoundError(
        f"The data set {name!r} does not come with skvnce. Expected {expected} in the "
        f"folder that `data_home` or the environment variable {VARIABLE} names; "
        f"{place}. How to get it: {how_to_get(name)}"
    )


def numbers(columns, names):
    """Make a float array (n, names) of columns; empty cells and ``NA`` are NaN."""
    missing = {"": "nan", "NA": "nan"}
    # copied, because the transpose is not in the order of rows in memory
    return np.array(
        [[float(missing.get(c, c)) for c in columns[name]] for name in names]
    ).T.copy()


def bunch(data, names, text, target=None, *, as_frame=False, **more):
    """Pack a table as scikit-learn does, as a frame if `as_frame`."""
    frame = None
    entries = {} if target is None else {"target": target[1]}
    if as_frame:
        import pandas as pd

        frame = data = pd.DataFrame(data, columns=names)
        if target is not None:
            entries["target"] = pd.Series(target[1], name=target[0])
            frame = data.assign(**{target[0]: target[1]})
    named = {"feature_names": list(names), "DESCR": text}
    return Bunch(data=data, frame=frame, **entries, **named, **more)


def _columns(path):
    raw = path.read_bytes()
    # the first bytes of gzip, whatever the name of the file
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    # csv needs the line ends of quoted cells
    names, *rows = csv.reader(text.splitlines(keepends=True))
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(
                f"Row {i} of the table {path} has {len(row)} cells instead of "
                f"{len(names)}; write the file again, as CSV with commas and a header."
            )
    return dict(zip(names, zip(*rows, strict=True), strict=True))


# ----------------------------------------
# Measurements of growing boys.

_BOYS_NAMES = ["age", "hgt", "wgt", "bmi", "hc", "tv"]


def load_boys(
    *, data_home: str | PathLike[str] | None = None, as_frame: bool = False
) -> Any:
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

    References
    ----------
    Fredriks, van Buuren and others (2000), Continuing positive secular growth change in
    the Netherlands 1955-1997, Pediatric Research 47:316-323.
    """
    columns = from_folder("boys", _BOYS_NAMES, data_home)
    return bunch(
        numbers(columns, _BOYS_NAMES),
        _BOYS_NAMES,
        description("boys"),
        as_frame=as_frame,
    )


# ----------------------------------------
# Frames of a video of one face.

_SHAPE = (28, 20)


def load_frey_faces(
    *, data_home: str | PathLike[str] | None = None, as_frame: bool = False
) -> Any:
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
    """
    with np.load(find("frey_faces", (".npz",), data_home)) as arrays:
        data = arrays["x"].astype(float)
    names = [f"pixel_{row}_{column}" for row, column in np.ndindex(_SHAPE)]
    images = data.reshape(-1, *_SHAPE)
    return bunch(
        data, names, description("frey_faces"), as_frame=as_frame, images=images
    )


# ----------------------------------------
# Measurements of US adults, with the missing values of the survey.

_EDUCATION = [
    "8th Grade",
    "9 - 11th Grade",
    "High School",
    "Some College",
    "College Grad",
]
_NOMINAL = ["SurveyYr", "Gender", "Race1", "Diabetes", "SmokeNow"]


def load_nhanes(*, as_frame: bool = False, categories: bool = False) -> Any:
    """Load 19 measurements of 4,835 US adults, with missing values.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame.
    categories : bool, default=False
        Whether six columns of categories follow, of the dtype ``category``; only with
        `as_frame`.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (4835, 19), or (4835, 25) with categories, NaN where missing;
        ``feature_names``; ``frame``, the same as ``data`` or None; ``DESCR`` with
        sources, terms and units.

    Examples
    --------
    >>> from skvnce.datasets import load_nhanes
    >>> load_nhanes().data.shape
    (4835, 19)
    """
    columns = bundled("nhanes_adults.csv.gz")
    names = [name for name in columns if name not in (*_NOMINAL, "Education")]
    dataset = bunch(
        numbers(columns, names), names, description("nhanes"), as_frame=as_frame
    )
    if categories:
        if not as_frame:
            raise ValueError("categories=True needs as_frame=True.")
        dataset.data = dataset.frame = _with_categories(dataset.data, columns)
        dataset.feature_names = list(dataset.data)
    return dataset


def _with_categories(frame, columns):
    """Append the columns of categories to a data frame."""
    import pandas as pd

    def category(name, levels=None):
        cells = [cell or None for cell in columns[name]]
        return pd.Categorical(cells, levels, ordered=levels is not None)

    nominal = {name: category(name) for name in _NOMINAL}
    return frame.assign(**nominal, Education=category("Education", _EDUCATION))


# ----------------------------------------
# Amounts of signalling molecules in single cells, and their published network.

_SACHS_NAMES = "raf mek plc pip2 pip3 erk akt pka pkc p38 jnk".split()
_LABELS = ("condition", "perturbation")


def load_sachs(
    *,
    data_home: str | PathLike[str] | None = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load eleven signalling molecules of 7,466 cells, and their published network.

    The table is read from a folder, see ``data_home``; the network is bundled.

    Parameters
    ----------
    data_home : path or None, default=None
        Folder that holds ``sachs/sachs.csv`` or ``sachs/sachs.csv.gz``.  None takes the
        folder that the environment variable ``SKVNCE_DATA`` names.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame and ``target`` a Series.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        ``data`` of shape (7466, 11), positive intensities; ``target``, the condition of
        each cell; ``perturbation``, its perturbed molecule; ``edges``, a dict
        of lists of pairs of names; ``feature_names``; ``frame``, data and target or
        None; ``DESCR`` with sources and terms.

    References
    ----------
    Sachs, Perez, Pe'er, Lauffenburger and Nolan (2005), Causal protein-signaling
    networks derived from multiparameter single-cell data, Science 308:523-529.
    """
    columns = from_folder("sachs", (*_SACHS_NAMES, *_LABELS), data_home)
    dataset = bunch(
        numbers(columns, _SACHS_NAMES),
        _SACHS_NAMES,
        description("sachs"),
        ("condition", np.array(columns["condition"], dtype=object)),
        as_frame=as_frame,
        perturbation=np.array(columns["perturbation"], dtype=object),
        edges=_edges(),
    )
    return (dataset.data, dataset.target) if return_X_y else dataset


def _edges():
    columns = bundled("sachs_edges.csv")
    versions = [name for name in columns if not name.startswith("node_")]
    return {
        version: [tuple(arc.split("->")) for arc in columns[version] if arc]
        for version in versions
    }


# ----------------------------------------
# Gene activity in breast tumours.


def load_tcga_brca(
    *, data_home: str | PathLike[str] | None = None, as_frame: bool = False
) -> Any:
    """Load the activity of 353 genes in 445 breast tumours.

    The table is read from a folder, see ``data_home``.

    Parameters
    ----------
    data_home : path or None, default=None
        Folder that holds ``tcga_brca_rnaseq/tcga_brca_rnaseq.csv`` or ``.csv.gz``.
        None takes the folder that the environment variable ``SKVNCE_DATA`` names.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` of shape (445, 353), counts; ``sample_names``, the barcodes of the
        tumours; ``feature_names``, the genes; ``frame``, the same as ``data`` or None;
        ``DESCR`` with sources and terms.

    References
    ----------
    Wan, Allen, Baker, Yang, Ravikumar, Anderson and Liu (2016), XMRF: an R package to
    fit Markov networks to high-throughput genetics data, BMC Systems Biology 10:69.
    """
    columns = from_folder("tcga_brca_rnaseq", ("sample",), data_home)
    samples = np.array(columns.pop("sample"), dtype=object)
    names = list(columns)
    return bunch(
        numbers(columns, names),
        names,
        description("tcga_brca_rnaseq"),
        as_frame=as_frame,
        sample_names=samples,
    )


# ----------------------------------------
# Titles of a conference.


def load_neurips_titles(
    *,
    data_home: str | PathLike[str] | None = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
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
    """
    columns = from_folder("neurips_titles", ("year", "title"), data_home)
    data = np.array(columns["title"], dtype=object)
    target = np.array(columns["year"], dtype=int)
    frame = None
    if as_frame:
        import pandas as pd

        frame = pd.DataFrame({"title": data, "year": target})
        data, target = frame["title"], frame["year"]
    if return_X_y:
        return data, target
    return Bunch(
        data=data, target=target, frame=frame, DESCR=description("neurips_titles")
    )
