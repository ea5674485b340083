"""How fast do estimates of an unnormalised mixture of two bells come to the truth?

    python benchmarks/vnce_population.py [--results FILE] [--quick] [--output FILE]

The population analysis of Rhodes and Gutmann (2019), figure 4 (Rhodes 2018, section
4.5.3): phi(u, z) = exp(-c) times a bell of width theta (z = 0) or 1 (z = 1), theta
drawn from U(2, 6), noise N(0, theta^2).  Squared errors of log theta and of c, by
maximum likelihood, by NCE with z summed out, by VNCE with the posterior of eq. (4.55)
and by VNCE with the exact posterior.
"""

from itertools import product
from math import log, pi
from typing import NamedTuple

import numpy as np
import torch
from _energies import UnnormalisedScaleMixture, exact_posterior
from _paper import medians, slopes
from _runner import main_of
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from skvnce._core.models import log_joint_of_states, with_states
from skvnce._core.training.lbfgs import minimise_parameters
from skvnce.contrast.objective import Contrast, Problem, Rows, fit_model, variational_em
from skvnce.contrast.posteriors import SequentialPosterior, draw_nothing

KNOWN = 1.0
RATIOS = (10, 1)  # the first is the main setting, fixed before the study
STARTS = (0.5, 3.0, 9.0)  # of theta, on both sides of the known width
ALL_STARTS = 300  # rows up to which every start is run to its end
N_STEPS = 5  # iterations of L-BFGS in each step of EM
N_ROUNDS = 15  # of EM; a good start needs about 5
NO_W = (np.nan,) * 3


class Fit(NamedTuple):
    """Where a method started or ended."""

    loss: float
    log_width: float
    log_scale: float = 0.0
    w: tuple = NO_W


def log_normaliser(log_width):
    """Compute the c at which the mixture integrates to one."""
    return log(2 * pi) / 2 + np.log(np.exp(log_width) + KNOWN)


def simulate(rng, width, n):
    """Draw data (n, 1) of the mixture and noise (nu, n, 1) for the largest nu."""
    narrow = rng.uniform(size=n) < KNOWN / (width + KNOWN)
    x = rng.normal(size=n) * np.where(narrow, KNOWN, width)
    y = rng.normal(size=(max(RATIOS), n)) * width
    return torch.tensor(x)[:, None], torch.tensor(y)[..., None]


def contrast(data, noise, width, n, nu):
    """Take the first n rows, each with the first nu rows of its noise."""
    p_y = Normal(torch.tensor(0.0).double(), width)
    observed = torch.ones(n, 1, dtype=torch.bool)
    values = data[:n], noise[:nu, :n]
    return Contrast(*[Rows(u, observed, p_y.log_prob(u).squeeze(-1)) for u in values])


class LogisticStates(nn.Module):
    """q(z = 0 | u) = 1 / (1 + exp(w0 + w1 u + w2 u^2)), eq. (4.55), as a step."""

    def __init__(self, w, states):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w).double())
        self.states = states

    def forward(self, draws, observed, uniforms):
        """Enumerate the states."""
        u = draws.values[0].squeeze(-1)
        curve = self.w[0] + u * (self.w[1] + u * self.w[2])
        log_q = torch.stack([-softplus(curve), -softplus(-curve)])
        return with_states(draws, self.states, log_q)


def mixture(start):
    """Make the model of a start."""
    width, c = torch.tensor([np.exp(start.log_width), start.log_scale]).double()
    return UnnormalisedScaleMixture(width, KNOWN, c)


def ended(loss, model, w=NO_W):
    """Read the parameters."""
    at = [float(value.detach()) for value in (model.log_width, model.log_scale)]
    return Fit(loss, *at, tuple(w))


def mle(rows, start):
    """Maximise the likelihood of the normalised mixture, c = log_normaliser(theta)."""
    model = mixture(start._replace(log_scale=0.0))

    def losses():
        c = log(2 * pi) / 2 + (model.log_width.exp() + KNOWN).log()
        yield (c - log_joint_of_states(model, rows.data.x).logsumexp(0)).mean()

    found = ended(minimise_parameters(losses, [model.log_width]).objective, model)
    return found._replace(log_scale=log_normaliser(found.log_width))


def nce(rows, start):
    """Maximise the NCE objective, states summed."""
    model = mixture(start)

    def log_density(x, observed):
        return log_joint_of_states(model, x).logsumexp(0)

    problem = Problem(log_density, draw_nothing, rows)
    return ended(fit_model(problem, model.parameters()).objective, model)


def em(problem, model, step=None):
    """Run variational EM until a round changes the loss by far less than chance."""
    trace = variational_em(
        problem,
        model.parameters(),
        step.parameters() if step else (),
        n_steps=N_STEPS,
        tol=1e-4 / len(problem.contrast.data.observed),  # chance: about 1 / n
        max_iter=N_ROUNDS,
    )
    return ended(trace.loss[-1], model, step.w.tolist() if step else NO_W)


def vnce(rows, start):
    """Maximise the VNCE objective with the posterior of eq. (4.55)."""
    model = mixture(start)
    w = (0.0,) * 3 if np.isnan(start.w).any() else start.w
    step = LogisticStates(w, model.states)
    return em(
        Problem(model.log_density, SequentialPosterior([step], 1), rows), model, step
    )


def vnce_exact(rows, start):
    """Maximise the VNCE objective with the exact posterior."""
    model = mixture(start)
    return em(Problem(model.log_density, exact_posterior(model), rows), model)


SOLVERS = {"MLE": mle, "NCE": nce, "VNCE": vnce, "VNCE, exact q": vnce_exact}


def estimates(solve, width, data, noise, nu, sizes):
    """Estimate at all sizes; (sizes, 5): log theta, c, w.

    Up to `ALL_STARTS` rows the best of all starts by the objective is kept; at more
    rows, the search goes on from the estimate before, of the same method.
    """
    found = []
    for n in sizes:
        rows = contrast(data, noise, width, n, nu)
        starts = [Fit(np.nan, log(theta)) for theta in STARTS]
        ends = [solve(rows, s) for s in (starts if n <= ALL_STARTS else found[-1:])]
        found.append(min(ends, key=lambda end: end.loss))
    return np.array([[fit.log_width, fit.log_scale, *fit.w] for fit in found])


def measured(key, options):
    """Estimate for a truth by all methods: squared errors, and the way to NCE."""
    sizes = options.sizes
    rng = np.random.default_rng([2019, key["truth"]])
    width = rng.uniform(2, 6)
    data, noise = simulate(rng, width, max(sizes))
    truth = np.log(width), log_normaliser(np.log(width))
    for nu in RATIOS:
        found = {
            method: estimates(solve, width, data, noise, nu, sizes)
            for method, solve in SOLVERS.items()
        }
        for method, n in product(SOLVERS, sizes):
            at, by_nce = (found[m][sizes.index(n)][:2] for m in (method, "NCE"))
            errors = dict(zip(ERRORS, ((at - truth) ** 2).tolist(), strict=True))
            apart = float(abs(at - by_nce).max())
            more = {"apart": apart, "lost": bool(at[0] < 0)}  # theta below 1
            yield {"nu": nu, "n": n, "method": method, **errors, **more}


ERRORS = {"log_theta": "squared error of log theta", "c": "of c"}


def values(results, options):
    """Make medians of squared errors, and slopes over the number of rows."""
    scores = {**ERRORS, "apart": "apart from NCE"}
    return {
        "errors": medians(results.records, ("nu", "method", "n"), scores),
        "slopes_of_errors": slopes(results.records, ("nu", "method"), "n", ERRORS),
        "lost": sum(r["lost"] for r in results.records),
    }


CASES = {"truth": range(100)}
QUICK = {"truth": range(4), "sizes": [100, 300, 1000]}
main = main_of(globals(), QUICK, sizes=[100, 300, 1000, 3000, 10000, 20000])
