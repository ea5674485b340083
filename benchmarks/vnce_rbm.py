"""VNCE of restricted Boltzmann machines beside maximum likelihood and PCD.

    python benchmarks/vnce_rbm.py [--quick] [--results FILE]
        [--output doc/benchmarks/vnce_rbm.md]

The normalising constant of these machines is a sum over 256 states, so that every
log-likelihood here is exact.  VNCE does not use it.  The tables are simulated machines
of 12 visible and 8 hidden units, and the letter table (UCI), its 16 columns cut at
their medians.  The machines are seeds 0 to 4; PCD was tuned on other ones.  A file of
results lets a run that was stopped go on.
"""

import time
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from _data import load
from _energies import RestrictedBoltzmann
from _report import Results, Texts, made_by, publish, table
from _runner import options_of
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LinearLR

from skvnce import VNCEEstimator
from skvnce._core.training.lbfgs import minimise_parameters

TEXTS = Texts("vnce_rbm", globals())


def simulate(seed, n, n_features=12, n_components=8, scale=1.0):
    """Draw a machine and n exact rows from it; returns (truth, x).

    Weights are N(0, scale^2).  Biases are N(0, 1/4) where units are coded -1/2 and 1/2,
    so that marginals are neither all near 0 nor all near 1.
    """
    generator = stream(seed, "truth")
    truth = start(n_features, n_components, generator, scale)
    with torch.no_grad():
        W = truth.weight
        for bias, centre in (
            (truth.visible_bias, -W.sum(1) / 2),
            (truth.hidden_bias, -W.sum(0) / 2),
        ):
            bias.copy_(centre).add_(normal(bias.shape, generator, 0.5))
    return truth, draw(truth, n, generator)


@torch.no_grad()
def draw(model, n, generator):
    """Draw exact rows, by enumeration of all 2**features of them."""
    x = every_row(model)
    prob = model.log_marginal(x, torch.ones_like(x).bool()).softmax(0)
    return x[torch.multinomial(prob, n, replacement=True, generator=generator)]


def every_row(model):
    """List all 2**features values of a row."""
    n_features, _ = model.weight.shape
    x = torch.arange(2**n_features)[:, None] >> torch.arange(n_features) & 1
    return x.to(model.weight)


def stream(seed, purpose):
    """Make a generator; with one stream for both, a fit would start at the truth."""
    key = np.random.SeedSequence([seed, *purpose.encode()])
    return torch.Generator().manual_seed(int(key.generate_state(1)[0]))


def start(n_features, n_components, generator, scale):
    """Make a machine with weights N(0, scale^2) and biases zero."""
    with torch.random.fork_rng(devices=[]):  # what it draws itself is overwritten
        model = RestrictedBoltzmann(n_features, n_components).double()
    with torch.no_grad():
        model.weight.copy_(normal(model.weight.shape, generator, scale))
    return model


def normal(shape, generator, scale):
    """Draw from N(0, scale^2)."""
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def start_at_marginals(x, n_components, generator, scale):
    """Make a machine with small weights and the marginals of x (Hinton 2012)."""
    model = start(x.shape[1], n_components, generator, scale)
    with torch.no_grad():
        model.visible_bias.copy_(((x.sum(0) + 0.5) / (len(x) + 1)).logit())
    return model


def log_likelihood(model, x):
    """Compute the exact mean log-likelihood of complete rows, in nats a row."""
    observed = torch.ones_like(x).bool()
    return model.log_marginal(x, observed).mean() - model.log_normaliser()


@torch.no_grad()
def test_log_likelihood(model, x):
    """Return `log_likelihood` as a number."""
    return float(log_likelihood(model, x))


test_log_likelihood.__test__ = False  # pytest would take it for a test


def maximum_likelihood(x, n_components=8, seed=0, scale=0.1, tol=1e-5, max_iter=5000):
    """Maximise the exact likelihood by L-BFGS, from one random start."""
    generator = stream(seed, "fit")
    model = start_at_marginals(x, n_components, generator, scale)
    minimise_parameters(
        lambda: [-log_likelihood(model, x)],
        model.parameters(),
        tol=tol,
        max_iter=max_iter,
    )
    return model


def persistent_contrastive_divergence(
    x,
    n_components=8,
    seed=0,
    *,
    scale=0.1,
    n_epochs=200,
    batch_size=100,
    n_chains=500,
    n_sweeps=5,
    rate=0.1,
    momentum=0.9,
):
    """Ascend the likelihood with the negative phase from persistent Gibbs chains.

    Steps decay linearly to zero.  Hidden units are summed out in both phases: the
    gradient is that of the mean log phi(x) over a minibatch less that over the chains.
    The defaults were chosen by held-out likelihood on machines of other seeds (10, 11)
    than a report should use.
    """
    generator = stream(seed, "fit")
    model = start_at_marginals(x, n_components, generator, scale)
    chains = x[torch.randint(len(x), (n_chains,), generator=generator)]
    optimiser = SGD(model.parameters(), rate, momentum, maximize=True)
    n_steps = n_epochs * -(-len(x) // batch_size)
    schedule = LinearLR(optimiser, 1.0, 1 / n_steps, n_steps)
    for _ in range(n_epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(batch_size):
            chains = sweep(model, chains, n_sweeps, generator)
            optimiser.zero_grad()
            (mean_log_phi(model, x[rows]) - mean_log_phi(model, chains)).backward()
            optimiser.step()
            schedule.step()
    return model


def mean_log_phi(model, x):
    """Average log phi over complete rows."""
    return model.log_marginal(x, torch.ones_like(x).bool()).mean()


@torch.no_grad()
def sweep(model, x, n_sweeps, generator):
    """Redraw all hidden and all visible units, in turn."""
    for _ in range(n_sweeps):
        z = torch.bernoulli(model.latent_probability(x), generator=generator)
        field = model.visible_bias + z @ model.weight.T
        x = torch.bernoulli(field.sigmoid(), generator=generator)
    return x


N_LATENTS, N_FEW = 8, 4
N_STARTS = 3
N_TEST = 10_000
RIDGE = 1.0  # of the penalty ridge |theta|^2 / (2 n): a standard normal prior
ML = "maximum likelihood"
AMORTISED = {"posterior": "bernoulli", "max_iter": 200}
FOUND = TEXTS("found")


class Size(NamedTuple):
    """How much is run: {training rows: machines} for each of three comparisons."""

    machines: dict
    penalised: dict
    by_em: dict
    n_rounds: tuple
    n_splits: int


FULL = Size({500: 5, 2000: 5, 10_000: 2}, {500: 5, 2000: 5}, {500: 5}, (100, 1000), 3)
QUICK = Size({100: 1}, {100: 1}, {100: 1}, (20,), 0)


class Joint(nn.Module):
    """A machine that hides its closed forms: its states have to be enumerated."""

    def __init__(self, n_features, n_components):
        super().__init__()
        self.machine = RestrictedBoltzmann(n_features, n_components)

    @property
    def states(self):
        """All values of z."""
        return self.machine.states

    def log_density(self, x, z):
        """Return log phi(x, z)."""
        return self.machine.log_density(x, z)


def best_likelihood(n_starts, x, n_components, seed):
    """Maximise the likelihood from several starts, and keep the best on these rows."""
    starts = range(1000 * seed, 1000 * seed + n_starts)
    fits = [maximum_likelihood(x, n_components, start) for start in starts]
    return max(fits, key=lambda model: test_log_likelihood(model, x)), {}


def penalised_likelihood(x, n_components, seed):
    """Maximise the likelihood less the penalty that `VNCEEstimator` has."""
    model = start_at_marginals(x, n_components, stream(1000 * seed, "fit"), 0.1)

    def losses():
        square = sum(p.square().sum() for p in model.parameters())
        yield RIDGE / (2 * len(x)) * square - log_likelihood(model, x)

    minimise_parameters(losses, model.parameters(), tol=1e-5, max_iter=5000)
    return model, {}


def contrastive_divergence(x, n_components, seed):
    """Run PCD with its defaults."""
    return persistent_contrastive_divergence(x, n_components, seed), {}


def by_noise(options, x, n_components, seed, factory=RestrictedBoltzmann):
    """Fit by VNCE; says how far the scale parameter is from the constant."""
    model = partial(factory, n_components=n_components)
    estimator = VNCEEstimator(model, random_state=seed, noise_ratio=10, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(x.numpy())
    fitted = estimator.to_torch().model
    fitted = getattr(fitted, "machine", fitted)
    with torch.no_grad():
        error = estimator.log_scale_ - float(fitted.log_normaliser())
    return fitted, {
        "error": error,
        "objective": estimator.objective_,
        "accuracy": estimator.accuracy_,
        "warned": len(caught),
    }


METHODS = {
    f"{ML}, one start": partial(best_likelihood, 1),
    f"{ML}, best of {N_STARTS} starts": partial(best_likelihood, N_STARTS),
    "PCD": contrastive_divergence,
    "VNCE, exact posterior": partial(by_noise, {}),
    "VNCE, amortised posterior": partial(by_noise, AMORTISED),
}
PENALISED = {
    f"{ML}, one start": penalised_likelihood,
    "VNCE, exact posterior": partial(by_noise, {"ridge": RIDGE}),
    "VNCE, amortised posterior": partial(by_noise, {"ridge": RIDGE, **AMORTISED}),
}


def by_em(n_rounds):
    """List ways to use the exact posterior: integrated out, and by EM."""
    ways = {
        f"VNCE by EM, {most} rounds": partial(
            by_noise, {"max_iter": most}, factory=Joint
        )
        for most in n_rounds
    }
    return {"VNCE, integrated out": METHODS["VNCE, exact posterior"], **ways}


def compare(results, block, methods, train, test, seed, n_components=N_LATENTS):
    """Fit all methods to a table; one record a method."""
    for name, fit in methods.items():
        key = {"block": block, "method": name, "n": len(train), "seed": seed}
        if not results.has(**key):
            results.add(key | scores(fit, train, test, seed, n_components))
        yield results.find(**key)


def scores(fit, train, test, seed, n_components):
    """Fit one method, and time it."""
    begin = time.process_time()
    model, found = fit(train, n_components, seed)
    return {
        "seconds": time.process_time() - begin,
        "train": test_log_likelihood(model, train),
        "test": test_log_likelihood(model, test),
        **found,
    }


def baseline(name, n, seed, train, test):
    """Make the record of what is not fitted."""
    return {"method": name, "n": n, "seed": seed, "train": train, "test": test}


def on_machines(results, block, methods, counts, n_components=N_LATENTS):
    """Compare on simulated machines, for each number of training rows."""
    most = max(counts)
    for n, count in counts.items():
        for seed in range(count):
            truth, x = simulate(seed, most + N_TEST, n_components=n_components)
            train, test = x[:n], x[most:]
            exact = [test_log_likelihood(truth, rows) for rows in (train, test)]
            yield baseline("the machine itself", n, seed, *exact)
            yield from compare(results, block, methods, train, test, seed, n_components)


def on_letters(results, methods, n_splits):
    """Compare on random splits of the letter table, three quarters for training."""
    columns = load("letter5k").drop_duplicates().select_dtypes("number").to_numpy()
    x = torch.from_numpy((columns > np.median(columns, 0)).astype(float))
    n = 3 * len(x) // 4
    for seed in range(n_splits):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
        train, test = x[order[:n]], x[order[n:]]
        chance = torch.distributions.Bernoulli(train.mean(0))
        exact = [float(chance.log_prob(rows).sum(1).mean()) for rows in (train, test)]
        yield baseline("independent columns", n, seed, *exact)
        yield from compare(results, "letters", methods, train, test, seed)


def summarise(records, reference):
    """Write a table: a line for each number of rows and method."""
    found = pd.DataFrame(list(records))
    found = found.reindex(columns=[*dict.fromkeys([*found, "error", "warned"])])
    header = ["n", "method", "test", f"test less that of {reference}", "better in"]
    header += ["train", "seconds", "log_scale_ less log Z", "objective_"]
    header += ["accuracy_", "warned"]
    lines = []
    for (n, name), group in found.groupby(["n", "method"], sort=False):
        at = found[(found.n == n) & (found.method == reference)].set_index("seed").test
        less = group.set_index("seed").test - at
        pair = [std(less), f"{(less > 0).sum()} of {len(less)}"]
        pair = ["", ""] if name == reference else pair
        fit = [""] * 5
        if group.seconds.notna().all():
            fit[0] = f"{group.seconds.median():.1f}"
        if group.error.notna().all():
            fit[1] = std(group.error)
            fit[2] = f"{group.objective.median():.4f}"
            fit[3] = f"{group.accuracy.median():.3f}"
            fit[4] = f"{group.warned.sum():.0f}"
        middle = [f"{group[score].median():.4f}" for score in ("test", "train")]
        lines.append([n, name, middle[0], *pair, middle[1], *fit])
    return table(header, lines)


def std(values):
    """Write the median, the least and the most."""
    low, middle, high = values.quantile([0, 0.5, 1])
    return f"{middle:+.4f} ({low:+.4f} to {high:+.4f})"


def report(size, results):
    """Run everything and write the tables."""
    first = f"{ML}, one start"
    legend = TEXTS("Log-likelihoods are")
    counts = ", ".join(f"{k} with n = {n}" for n, k in size.machines.items())
    parts = [
        "## Simulated machines",
        f"Weights N(0, 1), 116 parameters; {counts}; {N_TEST} test rows each.",
        summarise(on_machines(results, "machines", METHODS, size.machines), first),
        f"## The same with a penalty, ridge = {RIDGE:g}",
        "Of |theta|^2 / (2 n), the same for all; PCD is without.",
        summarise(on_machines(results, "penalty", PENALISED, size.penalised), first),
        "## Integrated out, or EM with enumerated states",
        TEXTS("Machines with hidden"),
        summarise(
            on_machines(results, "EM", by_em(size.n_rounds), size.by_em, N_FEW),
            "VNCE, integrated out",
        ),
    ]
    if size.n_splits:
        parts += [
            "## Letters",
            f"{size.n_splits} random splits; 152 parameters. Of rows that are equal "
            "before the cut one is kept.",
            summarise(on_letters(results, METHODS, size.n_splits), first),
        ]
    return [legend, *parts] if size is QUICK else [legend, FOUND, *parts]


def main():
    """Read the command line and report."""
    options = options_of(__doc__, {}, results=None)
    torch.set_num_threads(1)
    head = [
        "# Restricted Boltzmann machines",
        made_by("vnce_rbm.py", f"Seeds from 0; noise_ratio 10; {N_STARTS} starts."),
    ]
    size = QUICK if options.quick else FULL
    publish([*head, *report(size, Results(options.results))], options.output)


if __name__ == "__main__":
    main()
