"""Dense tables of zeros, ones and NaN as the models of sparse ones see them."""

import torch
from scipy.sparse import csr_array

from skvnce.estimators._binary_tables import torch_rows


def cells_of(table):
    """List the cells of all rows, in double precision."""
    return torch_rows(csr_array(table)).cells(torch.arange(len(table)), torch.float64)
