"""Gene activity in breast tumours."""

import numpy as np

from skvnce.datasets._tables import bunch, from_folder, numbers

_DESCRIPTION = """\
Gene activity in breast tumours
===============================

Read counts of 353 genes with somatic mutations in COSMIC, in 445 breast invasive
carcinomas of The Cancer Genome Atlas (level 3, UNC IlluminaHiSeq RNASeqV2), without
normalisation of library sizes; no cell is missing.  ``sample_names`` holds the barcodes
of the patients.  Counts differ by orders of magnitude: take log(1 + count).

The Cancer Genome Atlas Network, open-access tier.  The selection is the data set
brcadat of the R package XMRF (Wan and others 2016), whose licence is GPL-2.
"""
_HOW = (
    "the data set brcadat of the R package XMRF, as a table of tumours with a column "
    "sample (the barcode) and one column per gene."
)


def load_tcga_brca(*, data_home=None, as_frame=False):
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

    Raises
    ------
    FileNotFoundError
        If the table is not in the folder; the message says how to get it.

    References
    ----------
    Wan, Allen, Baker, Yang, Ravikumar, Anderson and Liu (2016), XMRF: an R package to
    fit Markov networks to high-throughput genetics data, BMC Systems Biology 10:69.
    """
    columns = from_folder("tcga_brca_rnaseq", ("sample",), _HOW, data_home)
    samples = np.array(columns.pop("sample"), dtype=object)
    names = list(columns)
    return bunch(
        numbers(columns, names),
        names,
        _DESCRIPTION,
        as_frame=as_frame,
        sample_names=samples,
    )
