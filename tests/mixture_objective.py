"""The objective of EM for mixtures, and scores that are the cells."""

import numpy as np

from skvnce.mixture.margins import Points


def penalised(mixture, prior, log_likelihood):
    """Compute eq. (1) of `skvnce.mixture.em`."""
    far = mixture.means - prior.centre
    matrix = prior.strength * prior.within + far[:, :, None] * far[:, None]
    _, log_det = np.linalg.slogdet(mixture.covariances)
    trace = np.linalg.solve(mixture.covariances, matrix).trace(axis1=1, axis2=2)
    found = log_likelihood + np.log(mixture.weights).sum()
    found -= (prior.strength * log_det + trace).sum() / 2
    for shares, more in zip(mixture.classes, prior.classes, strict=True):
        found += (np.log(shares) @ more).sum()
    return float(found)


def identity(d):
    """Make functions of d columns whose values are the scores."""
    return Points.of([(np.array([0.0, 1.0]), np.array([0.0, 1.0]))] * d)
