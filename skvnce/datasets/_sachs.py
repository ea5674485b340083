"""Amounts of signalling molecules in single cells, and their published network."""

import numpy as np

from skvnce.datasets._tables import bunch, bundled, from_folder, numbers

_NAMES = "raf mek plc pip2 pip3 erk akt pka pkc p38 jnk".split()
_LABELS = ("condition", "perturbation")
_DESCRIPTION = """\
Signalling molecules in single cells
====================================

Amounts of eleven phosphorylated proteins and phospholipids in 7,466 human T cells, by
flow cytometry: positive, very skewed, 1 is the lower limit of the instrument.  The
cells were treated in nine ways: ``target`` is the condition, ``perturbation`` is the
molecule that was perturbed.  The 853 cells of the condition "cd3cd28" are the set that
is mostly used alone.

``edges`` contains three published versions of the network, as pairs of names (source,
target): "literature20", the arcs from the literature (figures 2 and 3 of the paper);
"validated17", the arcs that the paper reports; "cdt18", the arcs that the Causal
Discovery Toolbox contains.  The network is a consensus of the literature, not the
truth.

Sachs, Perez, Pe'er, Lauffenburger and Nolan (2005), Causal protein-signaling networks
derived from multiparameter single-cell data, Science 308:523-529.  The table is a
supplement of the paper, without a licence; the arcs are facts, and bundled.
"""
_HOW = (
    "the supplement of Sachs et al. (2005), Science 308:523, has nine tables; stack "
    "those of the main analysis (the GitHub repository "
    "FenTechSolutions/CausalDiscoveryToolbox carries their values), with columns "
    f"{', '.join([*_NAMES, *_LABELS])}; the conditions have 853 (cd3cd28), 902, 911, "
    "723, 810, 799, 848, 913 and 707 rows."
)


def load_sachs(*, data_home=None, return_X_y=False, as_frame=False):
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

    Raises
    ------
    FileNotFoundError
        If the table is not in the folder; the message says how to get it.

    References
    ----------
    Sachs, Perez, Pe'er, Lauffenburger and Nolan (2005), Causal protein-signaling
    networks derived from multiparameter single-cell data, Science 308:523-529.
    """
    columns = from_folder("sachs", (*_NAMES, *_LABELS), _HOW, data_home)
    found = bunch(
        numbers(columns, _NAMES),
        _NAMES,
        _DESCRIPTION,
        ("condition", np.array(columns["condition"], dtype=object)),
        as_frame=as_frame,
        perturbation=np.array(columns["perturbation"], dtype=object),
        edges=_edges(),
    )
    return (found.data, found.target) if return_X_y else found


def _edges():
    columns = bundled("sachs_edges.csv")
    versions = [name for name in columns if not name.startswith("node_")]
    return {
        version: [tuple(arc.split("->")) for arc in columns[version] if arc]
        for version in versions
    }
