"""A fit of a graph to a table: its method, scaled columns and ridges."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from skvnce._core.incomplete import Incomplete
from skvnce.graphs import em, empirical_bayes
from skvnce.graphs.maximum_likelihood import evidence, extended_bic, maximum_likelihood
from skvnce.graphs.score_matching import score_matching
from skvnce.graphs.vnce import vnce_lognormal
from skvnce.graphs.vnce_cdi import vnce, vnce_cdi

_OF_DATA = {
    "score-matching": score_matching,
    "maximum-likelihood": maximum_likelihood,
}
_BY_CONTRAST = {
    "vnce": vnce,
    "vnce-cdi": vnce_cdi,
    "vnce-lognormal": vnce_lognormal,
}
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
        ridge = empirical_bayes.ridge_of_links(scaled)
    if ridge_linear is None and fit_linear:
        pilot = empirical_bayes.pilot(scaled, start, centre, ridge)
        start, ridge_linear = pilot.theta, pilot.ridge_linear
        state = pilot.state if options.by_gibbs else None
    ridges = ridge, ridge_linear or 0.0
    return Problem(options, method, start, units, scaled, *ridges, state)
