"""Methods of graph learners that the package does not offer, for comparisons.

Of the papers: the controls of VNCE, and single imputation.  And an M-step by
pseudo-likelihood, all univariate conditionals at once: its loss is minus the mean over
rows of ``sum_j log p(x_j | x_-j)`` (Besag 1975), where each conditional is a normal
truncated at zero.  One product of the rows with K gives all of them, so that a value
and its gradient take n d^2 operations.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce.graphs import em
from skvnce.graphs.score_matching import score_matching
from skvnce.graphs.truncated_gaussian import conditionals
from skvnce.graphs.vnce import lognormal, vnce_lognormal
from skvnce.graphs.vnce_cdi import vnce, vnce_cdi

_TOL = (1e-3, 1e-5)  # see `em.MStep`


def negative_log_pseudo_likelihood(
    x: Tensor, precision: Tensor, linear: Tensor
) -> Tensor:
    """Average the negative sum of the logs of the conditionals; (n, features) -> ()."""
    return -conditionals(x, precision, linear).log_prob(x).sum(-1).mean()


def pseudo_likelihood(
    data: Incomplete, centre: Tensor, *, fit_linear: bool
) -> em.Method:
    """Build the method."""

    def solve(
        tables: tuple[Tensor, ...], start: em.Theta, penalty: em.Penalty, tol: float
    ) -> em.Solution:
        rows = torch.cat(tables)

        def loss(theta: em.Theta) -> Tensor:
            model = em.uncentre(theta, centre)
            return negative_log_pseudo_likelihood(rows, model.precision, model.linear)

        free = {"fit_linear": fit_linear, "fit_scale": False}
        return em.minimise_loss(loss, start, centre, penalty, **free, tol=tol)

    m_step = em.MStep(lambda x: (x,), em.all_tables, solve, _TOL)
    return em.Method(em.completed_by_gibbs(data), m_step, em.truncated_normals(centre))


# ----------------------------------------
# Impute missing cells once, then learn the graph as if the table were complete.
#
# These are the baselines that the papers compare VNCE with: methods for complete
# tables, applied to imputed tables.
#
# Rhodes (2018), section 5.3.1; Rhodes and Gutmann (2019), section 5.


def _means(data: Incomplete) -> Tensor:
    units = em.units_of(data, fit_linear=True)
    return (units.centre * units.scale).expand_as(data.x)


def _uniform(data: Incomplete) -> Tensor:
    units = em.units_of(data, fit_linear=True)
    return torch.rand_like(data.x) * (units.centre + 2) * units.scale


FILLERS: dict[str, Callable[[Incomplete], Tensor]] = {
    "mean": _means,
    "noise": lambda data: em.marginals(data).sample((len(data.x),)),
    "uniform": _uniform,
    "zeros": lambda data: torch.zeros_like(data.x),
}


def impute(data: Incomplete, strategy: str) -> Incomplete:
    """Fill the missing cells and mark them as observed.

    "mean": of the observed cells of the column; "noise": draws of the truncated
    normal with their mean and variance; "uniform": draws of U(0, mean + 2 standard
    deviations), about the U(0, 3) of the thesis; "zeros" (Lin, Drton and Shojaie
    2016).
    """
    if strategy not in FILLERS:
        raise ValueError(
            f"strategy is {strategy!r}, and should be one of {sorted(FILLERS)}."
        )
    filled = data.with_values(FILLERS[strategy](data))
    return Incomplete(filled, torch.ones_like(data.observed))


def mean_of_draws(cells: Tensor) -> Tensor:
    """Keep the mean of the draws, as the thesis does; see `vnce_cdi`."""
    return cells.mean(0)


OF_DATA = {
    "imputed-score-matching": score_matching,
    "pseudo-likelihood": pseudo_likelihood,
}
BY_CONTRAST = {
    "imputed-nce": vnce,
    "vnce-cdi-mean": partial(vnce_cdi, write=mean_of_draws),
    "vnce-lognormal-plain": partial(vnce_lognormal, family=lognormal),
}
CONTROLS = sorted({*OF_DATA, *BY_CONTRAST})


class Control(NamedTuple):
    """How a control is built; see `skvnce.graphs.problem.Options`."""

    algorithm: str
    fit_linear: bool
    noise_ratio: int
    imputation: str  # what the controls ``"imputed-..."`` fill in, of `FILLERS`

    @property
    def contrasts(self) -> bool:
        """Whether data are contrasted with noise."""
        return self.algorithm in BY_CONTRAST

    @property
    def by_gibbs(self) -> bool:
        """Whether the E-step is that of a pilot fit."""
        return self.algorithm == "pseudo-likelihood"

    def method(self, data: Incomplete, centre: Tensor) -> tuple[em.Method, Incomplete]:
        """Build the method for a scaled table; complete the table if it imputes."""
        of_data, given = data, {"fit_linear": self.fit_linear}
        if self.algorithm.startswith("imputed"):
            data = impute(data, self.imputation)
        if not self.contrasts:
            return OF_DATA[self.algorithm](data, centre, **given), data
        build, given["noise_ratio"] = BY_CONTRAST[self.algorithm], self.noise_ratio
        return build(data, em.marginals(of_data), centre, **given), data
