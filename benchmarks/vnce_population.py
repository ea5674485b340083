"""How fast do estimates of an unnormalised mixture of two bells come to the truth?

    python benchmarks/vnce_population.py [--truths 100] [--again 300]
        [--results FILE] [--quick] [--output doc/benchmarks/vnce_population.md]

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
from _report import Texts, table
from _runner import main_of
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from skvnce._core.models import log_joint_of_states, with_states
from skvnce._core.training.lbfgs import minimise_parameters
from skvnce.contrast.objective import Contrast, Problem, Rows, fit_model, variational_em
from skvnce.contrast.posteriors import (
    SequentialPosterior,
    integrated,
)

TEXTS = Texts("vnce_population", globals())

KNOWN = 1.0
SIZES, QUICK_SIZES = (100, 300, 1000, 3000, 10000, 20000), (100, 300, 1000)
RATIOS = (10, 1)  # the first is the main setting, fixed before the study
STARTS = (0.5, 3.0, 9.0)  # of theta, on both sides of the known width
ALL_STARTS = 300  # rows up to which every start is run to its end
N_STEPS = 5  # iterations of L-BFGS in each step of EM
N_ROUNDS = 15  # of EM; a good start needs about 5
METHODS = ("MLE", "NCE", "VNCE", "VNCE, exact q")
GOAL_RATIO, GOAL_SIZE = 1.5, 1000
BOOTSTRAPS = 2000
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

    problem = Problem(log_density, integrated, rows)
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


SOLVERS = dict(zip(METHODS, (mle, nce, vnce, vnce_exact), strict=True))


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


def squared_errors(widths, found):
    """Compute {(nu, method): (2, truths, sizes)}, of log theta and of c."""
    log_width = np.log(widths)
    truth = np.stack([log_width, log_normaliser(log_width)])[..., None]
    return {
        key: (np.moveaxis(value[..., :2], -1, 0) - truth) ** 2
        for key, value in found.items()
    }


def resamples(n_truths):
    """Draw truths with replacement, the same for all figures."""
    return np.random.default_rng(0).integers(n_truths, size=(BOOTSTRAPS, n_truths))


def with_interval(statistic, *errors):
    """Compute a statistic of (truths, ...) arrays and its 95 % bootstrap interval."""
    chosen = resamples(len(errors[0]))
    again = [statistic(*[e[rows] for e in errors]) for rows in chosen]
    return np.array([statistic(*errors), *np.quantile(again, [0.025, 0.975], axis=0)])


def ratio(ours, theirs):
    """Divide medians over the truths."""
    return np.median(ours, 0) / np.median(theirs, 0)


def ratio_of_means(ours, theirs):
    """Divide means over the truths: less at the mercy of chance than medians."""
    return ours.mean(0) / theirs.mean(0)


def slope_at(sizes):
    """Return the statistic: slope of log median error against log n."""
    return lambda errors: np.polyfit(np.log(sizes), np.log(np.median(errors, 0)), 1)[0]


def asymptotic_ratio(width, nu):
    """Compute the variance of NCE over that of MLE as n grows; (2,).

    Gutmann and Hyvarinen (2012), theorem 3, by quadrature.
    """
    u = np.linspace(-60, 60, 20001)
    bells = np.exp(-(u**2) / 2 / np.array([[width], [KNOWN]]) ** 2)
    p = bells.sum(0) * (u[1] - u[0]) / np.exp(log_normaliser(np.log(width)))
    p_y = np.exp(-(u**2) / 2 / width**2) * (u[1] - u[0]) / width / (2 * pi) ** 0.5
    g = np.stack([bells[0] / bells.sum(0) * u**2 / width**2, -np.ones_like(u)])
    kept = p * nu * p_y / (p + nu * p_y)
    inverse, mean = np.linalg.inv(g * kept @ g.T), g @ kept
    by_nce = inverse - (1 + 1 / nu) * inverse @ np.outer(mean, mean) @ inverse
    by_mle = 1 / (p @ g[0] ** 2 - (p @ g[0]) ** 2)
    slope_of_c = width / (width + KNOWN)
    return np.diag(by_nce) / (by_mle * np.array([1, slope_of_c**2]))


def cell(values, digits=2):
    """Write a statistic with its interval."""
    at, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{at} ({low} to {high})"


def error_table(nu, which, sizes, errors):
    """Set medians and ratios of one parameter at one nu in a table."""
    e = {m: errors[nu, m][which] for m in METHODS if (nu, m) in errors}
    ratios = {
        "VNCE / MLE": with_interval(ratio, e["VNCE"], e["MLE"]),
        "of means": with_interval(ratio_of_means, e["VNCE"], e["MLE"]),
    }
    if "NCE" in e:
        ratios["VNCE / NCE"] = with_interval(ratio, e["VNCE"], e["NCE"])
    rows = [
        [n, *[f"{np.median(e[m][:, k]):.3g}" for m in e]]
        + [cell(values[:, k]) for values in ratios.values()]
        for k, n in enumerate(sizes)
    ]
    slopes = [cell(with_interval(slope_at(sizes), e[m])) for m in e]
    rows.append(["slope", *slopes, *[""] * len(ratios)])
    return table(["n", *e, *ratios], rows)


def posterior_table(nu, sizes, widths, found):
    """Compare w with its optimum at the truth, and at the estimated theta."""
    w = found[nu, "VNCE"][..., 2:]
    own = -(KNOWN**-2 - np.exp(-2 * found[nu, "VNCE"][..., 0])) / 2
    true = -(KNOWN**-2 - widths[:, None] ** -2) / 2
    wrong = -(KNOWN**-2 + widths[:, None] ** -2) / 2
    rows = [
        [n, *[f"{np.median(v[:, k]):.3f}" for v in (w[..., 2], true + 0 * own)]]
        + [f"{np.median(abs(w[..., 2] - at)[:, k]):.1e}" for at in (true, wrong, own)]
        + [f"{np.median(abs(w[:, k, j])):.1e}" for j in (0, 1)]
        for k, n in enumerate(sizes)
    ]
    header = ["n", "w2", "optimum", "off the optimum", "off eq. (4.54) as printed"]
    return table([*header, "off the optimum at its own theta", "w0", "w1"], rows)


def verdict(nu, sizes, errors):
    """Say whether the goals are met, from the sizes that they name."""
    large = [k for k, n in enumerate(sizes) if n >= GOAL_SIZE]
    lines = [f"Goals at nu = {nu}, n >= {GOAL_SIZE}, of medians:"]
    for other, most in (("MLE", GOAL_RATIO), ("NCE", 1.01)):
        if (nu, other) not in errors:
            continue
        pair = zip(errors[nu, "VNCE"], errors[nu, other], strict=True)
        worst = [ratio(ours, theirs)[large].max() for ours, theirs in pair]
        met = ["met" if value <= most else "**missed**" for value in worst]
        lines.append(TEXTS("VNCE / at most ", locals()))
    return " ".join(lines)


def agreement(sizes, found):
    """Say how far the two VNCEs and NCE are apart, and where the kept optima lie."""
    lines = []
    for nu in RATIOS:
        at = {method: found[nu, method][..., :2] for method in METHODS}
        apart = [abs(at[m] - at["NCE"]).max() for m in METHODS[2:]]
        below = [int((at[m][..., 0] < 0).any(1).sum()) for m in METHODS]
        lines.append([nu, *[f"{a:.1e}" for a in apart], ", ".join(map(str, below))])
    header = ["nu", "VNCE - NCE, most", "VNCE with exact q - NCE, most"]
    return table([*header, "truths with an estimate of theta below 1 (of each)"], lines)


def ratios_in_theory(nu, widths):
    """Say what the ratios should be with very many rows and truths."""
    expected = np.median([asymptotic_ratio(width, nu) for width in widths], 0)
    values = "{:.2f} for log theta, {:.2f} for c".format(*expected)
    return f"Variance of NCE over that of MLE in theory, as n grows: {values}."


def tables(nu, sizes, widths, errors):
    """Write all about the errors at one nu."""
    parts = []
    for which, name in enumerate(("log theta", "c")):
        parts += [f"nu = {nu}, {name}:", error_table(nu, which, sizes, errors)]
    return [*parts, ratios_in_theory(nu, widths), verdict(nu, sizes, errors)]


def cells(options):
    """List the truths, and others that are added."""
    first = 4 if options.quick else options.truths
    for truth in range(first + options.again):
        yield {"part": "first" if truth < first else "again", "truth": truth}


def sizes_of(options):
    """Return the numbers of rows."""
    return QUICK_SIZES if options.quick else SIZES


def measured(key, options):
    """Estimate for a truth by all methods, or by two for those that are added."""
    sizes, rng = sizes_of(options), np.random.default_rng([2019, key["truth"]])
    width = rng.uniform(2, 6)
    data, noise = simulate(rng, width, max(sizes))
    ways = product(RATIOS, METHODS)
    if key["part"] == "again":
        ways = product(RATIOS[:1], ("MLE", "VNCE"))
    found = [
        [nu, method, estimates(SOLVERS[method], width, data, noise, nu, sizes).tolist()]
        for nu, method in ways
    ]
    return {"width": width, "found": found}


def of_part(results, part):
    """Return theta (truths,) and {(nu, method): (truths, sizes, 5)}."""
    records, found = results.of(part=part), {}
    for record in records:
        for nu, method, at in record["found"]:
            found.setdefault((nu, method), []).append(at)
    widths = np.array([record["width"] for record in records])
    return widths, {key: np.array(value) for key, value in found.items()}


def values(results, options):
    """Return the tables of the page, and what it names besides."""
    sizes, (widths, found) = sizes_of(options), of_part(results, "first")
    errors, parts = squared_errors(widths, found), []
    for nu in RATIOS:
        parts += [f"## nu = {nu}", *tables(nu, sizes, widths, errors)]
    return {
        "n_truths": len(widths),
        "starts": ", ".join(map(str, STARTS)),
        "by_ratio": "\n\n".join(parts),
        "posterior": posterior_table(RATIOS[0], sizes, widths, found),
        "agreement": agreement(sizes, found),
    }


def other_truths(results, options):
    """Write the part on fresh truths."""
    if not results.has(part="again"):
        return []
    widths, found = of_part(results, "again")
    text = TEXTS("truths more, MLE and VNCE", widths=len(widths))
    shown = tables(RATIOS[0], sizes_of(options), widths, squared_errors(widths, found))
    return ["## On other truths", text, *shown]


main = main_of(globals(), {}, truths=100, again=0)
