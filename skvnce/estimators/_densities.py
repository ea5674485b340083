"""The densities and the families of conditionals that `IncompleteDensity` names."""

from functools import partial

import torch

from skvnce.estimators._blind import turned_like
from skvnce.estimators._scores import auto_rank, linear_start
from skvnce.models.factor_density import FactorDensity
from skvnce.models.spline_flow import SplineFlow
from skvnce.variational.heads import MixtureHead, NormalHead, SplineHead

ALGORITHMS = {  # the family of the conditionals
    "vgi": NormalHead,
    "vgi-mixture": MixtureHead,
    "vgi-spline": SplineHead,
    "mcem": NormalHead,
}


def _factor_density(normal, like=None):
    rank = auto_rank(len(normal.mean))
    linear = linear_start(normal, rank)
    if like is not None:
        linear = turned_like(linear, linear_start(like, rank))
    return FactorDensity.of(linear)


def _flow(normal, like=None, **options):
    return SplineFlow(normal.mean, torch.linalg.cholesky(normal.covariance), **options)


# factories of densities that start at a normal distribution
STARTS = {"flow": partial(_flow, n_passes=None), "factor-analysis": _factor_density}
COUPLED = partial(_flow, n_passes=2)  # cheap to invert, as Monte Carlo EM requires
