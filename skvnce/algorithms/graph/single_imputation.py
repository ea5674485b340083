"""Impute missing cells once, then learn the graph as if the table were complete.

These are the baselines that the papers compare VNCE with: methods for complete tables,
applied to imputed tables.

References
----------
Rhodes (2018), section 5.3.1; Rhodes and Gutmann (2019), section 5.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skvnce._incomplete import Incomplete
from skvnce.algorithms.graph.em import marginals, units_of


def _zeros(data: Incomplete) -> Tensor:
    return torch.zeros_like(data.x)


def _means(data: Incomplete) -> Tensor:
    units = units_of(data, fit_linear=True)
    return (units.centre * units.scale).expand_as(data.x)


def _marginal_draws(data: Incomplete) -> Tensor:
    return marginals(data).sample((len(data.x),))


def _uniform(data: Incomplete) -> Tensor:
    units = units_of(data, fit_linear=True)
    return torch.rand_like(data.x) * (units.centre + 2) * units.scale


FILLERS: dict[str, Callable[[Incomplete], Tensor]] = {
    "mean": _means,
    "noise": _marginal_draws,
    "uniform": _uniform,
    "zeros": _zeros,
}


def imputed(data: Incomplete, strategy: str) -> Incomplete:
    """Fill the missing cells and mark them as observed.

    `strategy`: "mean", means of the observed cells of the column; "noise", draws of the
    truncated normal with their mean and variance; "uniform", draws of U(0, mean + 2
    standard deviations), which is about the U(0, 3) of the thesis for its conditionals
    of mean and variance one; "zeros" (Lin, Drton and Shojaie 2016).  Raises ValueError
    if there is no such strategy.
    """
    if strategy not in FILLERS:
        raise ValueError(
            f"strategy is {strategy!r}, and should be one of {sorted(FILLERS)}."
        )
    filled = data.with_values(FILLERS[strategy](data))
    return Incomplete(filled, torch.ones_like(data.observed))
