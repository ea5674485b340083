"""A fit of a graph to a table: its method, scaled columns and ridges."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce._core.models import State
from skvnce._core.progress import step
from skvnce.graphs import em
from skvnce.graphs.maximum_likelihood import evidence, extended_bic, maximum_likelihood
from skvnce.graphs.score_matching import score_matching
from skvnce.graphs.vnce import vnce_lognormal
from skvnce.graphs.vnce_cdi import vnce, vnce_cdi

# ----------------------------------------
# Empirical Bayes for the quadratic penalties: prior variances of K_ij and b_j.
#
# A ridge of strength 1 / (n tau^2) is a normal prior of variance tau^2, for losses that
# are negative mean log-likelihoods.  The variance for b needs an estimate without a
# prior of b, which score matching computes in a few rounds.


_ROUNDS = 6  # rounds of the pilot fit
_FEW = 10  # minimum number of rows that observe both columns of a pair
_CAUTION = 3.0  # factor of the posterior variance; see `ridge_of_linear`
_ALLOWANCE = 0.1  # maximum correction, for columns of unit standard deviation


def ridge_of_links(data: Incomplete) -> float:
    """Choose the ridge 1 / (n tau**2), tau**2 the prior variance of a scaled K_ij.

    Near independence K_ij is minus the correlation of the columns over the product
    of their standard deviations. So tau**2 is estimated by the mean over pairs of
    its square: the squared correlation over the rows that observe both columns,
    minus 1 / n_ij, its expectation without dependence. Pairs that few rows observe
    are left out.
    """
    n, d = data.x.shape
    if d < 2:
        return 0.0
    centre, scale = em.units_of(data, fit_linear=True)
    x = (data.x - centre * scale).where(data.observed, 0.0)
    observed = data.observed.to(x)
    count = (observed.T @ observed).clamp(min=1)
    mean = x.T @ observed / count  # [i, j]: of column i where j is observed too
    variance = x.square().T @ observed / count - mean.square()
    covariance = x.T @ x / count - mean * mean.T
    squared = covariance.square() / (variance * variance.T).clamp(min=1e-12)
    excess = (squared.clamp(max=1) - 1 / count) / (scale * scale[:, None]).square()
    # if all pairs are observed by few rows, those with most are used
    usable = em.off_diagonal(d) * (count >= min(_FEW, float(count.max())))
    tau2 = float((excess * usable).sum() / usable.sum().clamp(min=1))
    # the ridge is at most 10, also if no pair is correlated
    return 1 / (n * max(tau2, 0.1 / n))


class Pilot(NamedTuple):
    """An initial estimate, and the ridge of b that it implies."""

    theta: em.Theta
    # of the E-step by Gibbs sampling, where other fits may start; None without gaps
    state: State | None
    ridge_linear: float


def pilot(data: Incomplete, start: em.Theta, centre: Tensor, ridge: float) -> Pilot:
    """Fit a few rounds without a ridge of b."""
    method = em.coarse(score_matching(data, centre, fit_linear=True))
    with step("fitting a pilot that chooses the ridge of b"):
        fit = em.learn_graph(
            method,
            start,
            em.Penalty(torch.zeros(len(centre), len(centre)).to(centre), ridge),
            max_iter=_ROUNDS,
            tol=0.0,
            warm_up=_ROUNDS,
        )
    covariance = torch.atleast_2d(fit.completed.T.cov())
    theta = em.uncentre(fit.theta, centre)
    ridge_linear = ridge_of_linear(data, theta, covariance, ridge)
    state = None if method.e_step.once else fit.state
    return Pilot(fit.theta, state, ridge_linear)


def ridge_of_linear(
    data: Incomplete, theta: em.Theta, covariance: Tensor, ridge: float
) -> float:
    """Choose the ridge of b from an estimate without one.

    The mean of b_j^2 exceeds that of the true values by the posterior variance and
    by the square of a bias: shrinkage of K changes b, always in one direction if
    most edges have the same sign. The function subtracts three times the variance
    for both, at most 0.1, because with many missing values the variance is
    unreliable. If the mean square is above 0.2, b is not small, and it gets no
    penalty, because shrinkage of b towards 0 would change K.

    With the information of a normal (`maximum_likelihood`), K and the linear term
    around the mean are independent given the data: ``b = u + K m``, where m is the
    mean, u has the covariance S^-1 / n, and the entries of K have, in the basis of
    the eigenvectors of S, the variances ``1 / (n (l_a l_b + 2 ridge))``.
    """
    square = float(theta.linear.square().mean())
    if square > 2 * _ALLOWANCE:
        return 0.0
    observed = data.observed.to(data.x)
    n_pairs = float((observed.T @ observed).mean())
    mean = em.observed_mean(data.x, data.observed)
    values, vectors = torch.linalg.eigh(covariance)
    # eigenvalues are divisors, and zero for collinear columns
    values = values.clamp(min=1e-9 * float(values[-1]))
    of_links = 1 / (n_pairs * (torch.outer(values, values) + 2 * ridge))
    # off-diagonal entries occur twice in the likelihood, and vary less
    of_links.diagonal().mul_(2)
    variance = (of_links @ (vectors.T @ mean).square()).mean()
    variance = variance + (1 / values).mean() / n_pairs
    allowance = min(_CAUTION * float(variance), _ALLOWANCE)
    tau2 = max(square - allowance, 0.1 * float(variance))
    return 1 / (len(data.x) * tau2)


# ----------------------------------------

_OF_DATA = {"score-matching": score_matching, "maximum-likelihood": maximum_likelihood}
_BY_CONTRAST = {"vnce": vnce, "vnce-cdi": vnce_cdi, "vnce-lognormal": vnce_lognormal}
ALGORITHMS = sorted({*_OF_DATA, *_BY_CONTRAST})
# Least number of averaged rounds after a pilot fit.  The noise of the draws is then
# about a tenth of the standard error of an edge strength (measured on the ring).
_AVERAGED = 5
_FAR = 0.2  # share of the distance between the pilot and the fit that rounds may leave


class Options(NamedTuple):
    """How a method is built."""

    algorithm: str  # one of `ALGORITHMS`
    fit_linear: bool
    # rows of noise for each row of data, of the algorithms that contrast with noise
    noise_ratio: int

    @property
    def contrasts(self) -> bool:
        """Whether data are contrasted with noise, which gives the scale, too."""
        return self.algorithm in _BY_CONTRAST

    @property
    def by_gibbs(self) -> bool:
        """Whether the E-step is that of a pilot fit."""
        return self.algorithm == "score-matching"

    def method(self, data: Incomplete, centre: Tensor) -> em.Method:
        """Build the method for a scaled table."""
        options = {"fit_linear": self.fit_linear}
        if not self.contrasts:
            return _OF_DATA[self.algorithm](data, centre, **options)
        build, options["noise_ratio"] = _BY_CONTRAST[self.algorithm], self.noise_ratio
        return build(data, em.marginals(data), centre, **options)


class Problem(NamedTuple):
    """The parts of a fit that do not depend on alpha, for scaled columns."""

    options: Options
    method: em.Method
    start: em.Theta
    units: em.Units
    data: Incomplete
    ridge: float
    ridge_linear: float
    # of the E-step of a pilot fit, at which the rounds start; None without one
    state: object = None

    def penalty(self, alpha: float) -> em.Penalty:
        """Make a penalty of the same strength for all edges."""
        links = em.off_diagonal(len(self.units.centre))
        return em.Penalty(alpha * links, self.ridge, self.ridge_linear)

    def learn(self, alpha: float, **stopping: object) -> em.Fit:
        """Learn the graph with an L1 penalty, near its goal after a pilot fit."""
        if self.state is not None:
            settle = em.rounds_to_settle(self.data.observed, _FAR)
            stopping = {"warm_up": settle, "averaged": _AVERAGED, **stopping}
        penalty = self.penalty(alpha)
        return em.learn_graph(
            self.method, self.start, penalty, state=self.state, **stopping
        )

    def fit(self, alpha: float, **stopping: object) -> tuple[em.Fit, em.Fit]:
        """Learn the graph; the fit also scores the edges, see `copula.Problem`."""
        fit = self.learn(alpha, **stopping)
        return fit, fit

    def first(self, **stopping: object) -> em.Fit:
        """Estimate the statistics that a path of penalties uses."""
        return self.learn(0.0, **stopping)

    def choose(self, first: em.Fit, theta: em.Theta, alpha: float) -> em.Fit:
        """Solve precisely with a penalty, starting at the solution on a path."""
        fit = first._replace(theta=theta)
        return em.conclude(self.method, fit, self.penalty(alpha))

    def estimate(self, first: em.Fit, theta: em.Theta) -> em.Theta:
        """Return the parameters that predict: the penalised ones themselves."""
        return theta

    def criterion(self, fit: em.Fit) -> Callable[[em.Theta, float], float]:
        """Return the extended BIC of (theta, gamma); see `maximum_likelihood`."""
        at_fit = evidence(
            self.method.m_step,
            fit,
            self.penalty(0.0),
            self.units.centre,
            self.data,
            fit_linear=self.options.fit_linear,
        )
        return partial(extended_bic, at_fit)

    def continue_fit(
        self, data: Incomplete, theta: em.Theta, alpha: float, n_rounds: int
    ) -> tuple[em.Theta, Tensor | None]:
        """Go on for some rounds with another scaled table of the same columns.

        Algorithms that contrast with noise keep their parameters, as their
        rounds are slow. Returns theta, and a draw of the missing cells if there
        are chains of rows.
        """
        if self.options.contrasts:
            return theta, None
        method = em.coarse(self.options.method(data, self.units.centre))
        by_gibbs = self.options.by_gibbs
        if by_gibbs:
            method = method._replace(e_step=em.completed_by_gibbs(data, n_chains=1))
        fit = em.learn_graph(
            method,
            theta,
            self.penalty(alpha),
            max_iter=n_rounds,
            tol=0.0,
            warm_up=n_rounds,
        )
        return fit.theta, fit.state.x[0] if by_gibbs else None


def make_problem(
    data: Incomplete,  # without rows or columns that are entirely missing
    units: em.Units,  # of `data`; all scales are positive
    options: Options,
    ridge: float | None,
    ridge_linear: float | None,
) -> Problem:
    """Scale the columns, build the method, and choose ridges that are None.

    A pilot fit that chooses the ridge of b also gives a better start.
    """
    centre, fit_linear = units.centre, options.fit_linear
    scaled = Incomplete(data.x / units.scale, data.observed)
    method = options.method(scaled, centre)
    start, state = em.independence(scaled, centre, fit_linear), None
    if ridge is None:
        ridge = ridge_of_links(scaled)
    if ridge_linear is None and fit_linear:
        first = pilot(scaled, start, centre, ridge)
        start, ridge_linear = first.theta, first.ridge_linear
        state = first.state if options.by_gibbs else None
    ridges = ridge, ridge_linear or 0.0
    return Problem(options, method, start, units, scaled, *ridges, state)
