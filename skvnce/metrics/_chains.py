"""Convergence of Markov chains."""

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from skvnce._core.warnings import warn_user
from skvnce._tables.frames import reject_parts
from skvnce.metrics._numbers import finite

_FEWEST = 4  # steps: two in each half
_CONVERGED = 1.05  # largest R-hat of a chain that is long enough


def split_r_hat(chains: ArrayLike) -> Any:
    r"""Split R-hat: whether halves of Markov chains have the same distribution.

    Each chain is split into two halves of n steps. With W the mean of their variances
    and B / n the variance of their means,

    .. math:: \hat R = \sqrt{\frac{(n - 1) W / n + B / n}{W}} \qquad (3)

    (Gelman et al. 2013, section 11.4). It is near 1 if the chains have converged, and
    larger if they drift or lie apart. Values above 1.05 call for longer chains; halves
    of less than about 100 steps exceed it by chance.

    Parameters
    ----------
    chains : array-like of shape (n_chains, n_steps, ...)
        One or several chains of at least 4 steps, without the burn-in; of an odd number
        of steps the first is left out. Further axes are other quantities.

    Returns
    -------
    r_hat : float or ndarray of the shape of the further axes
        NaN where a quantity is constant.

    Examples
    --------
    >>> from skvnce.metrics import split_r_hat
    >>> round(split_r_hat([[1, 2, 1, 2, 1, 2, 1, 2]]), 3)
    0.866
    >>> round(split_r_hat([[1, 2, 1, 2, 5, 6, 5, 6]]), 3)
    4.975
    """
    reject_parts(chains, "chains")
    steps = finite(np.asarray(chains, dtype=np.float64), "chains")
    if steps.ndim < 2 or steps.shape[1] < _FEWEST or not len(steps):
        raise ValueError(
            f"chains must have the shape (n_chains, n_steps, ...) with {_FEWEST} steps "
            f"or more, got {steps.shape}; one chain is chain[None]"
        )
    half = steps.shape[1] // 2
    recent = steps[:, -2 * half :]
    halves = recent.reshape(2 * len(steps), half, *steps.shape[2:])
    within = halves.var(1, ddof=1).mean(0)
    between = halves.mean(1).var(0, ddof=1)
    ratio = np.full(within.shape, np.nan)
    spread = (half - 1) / half * within + between
    np.divide(spread, within, out=ratio, where=within > 0)
    r_hat = np.sqrt(ratio)
    return r_hat if r_hat.ndim else float(r_hat)


def enough_steps(r_hat, n_steps):
    r"""Estimate after how many steps the largest R-hat falls to 1.05.

    The variance of the means of halves is that of the steps times their
    autocorrelation time over n, so that :math:`\hat R^2 - 1` of eq. (3) falls like
    1 / n.
    """
    worst = np.nanmax(r_hat, initial=0.0)
    return ceil(n_steps * (worst**2 - 1) / (_CONVERGED**2 - 1))


def slow_chain(r_hat, names, n_iter, n_burn_in, of_sweep=2, above=_CONVERGED):
    """Describe a chain that is too short, and how many sweeps would do; or None.

    `of_sweep`: what a sweep counts in `max_iter`; `above`: the R-hat from which a
    chain is described.
    """
    if np.nanmax(r_hat, initial=0.0) <= above:
        return None
    n_kept = n_iter - n_burn_in
    sweeps = ceil(enough_steps(r_hat, n_kept) * n_iter / n_kept)
    place = np.unravel_index(np.nanargmax(r_hat), r_hat.shape)
    return (
        f"The Markov chain of the fit is short: after {n_iter} sweeps R-hat is "
        f"{r_hat[place]:.2f} for {names[place[-1]]!r}, above {_CONVERGED}. About "
        f"{sweeps:,} sweeps would do: fit with max_iter={ceil(of_sweep * sweeps)}."
    )


def warn_of_slow_chain(*chain, **options):
    """Warn if a Markov chain is short; parameters are those of `slow_chain`."""
    message = slow_chain(*chain, **options)
    if message is not None:
        warn_user(message, ConvergenceWarning)
