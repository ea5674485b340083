"""What one evaluation of the VNCE objective and its gradient costs, in time and memory.

Time: against the bare log-densities that it needs, forwards and backwards, at the same
rows and draws; medians of pairs in one process.  Memory: peak of a fit in a process of
its own, for tables that grow, with and without the limit on the rows of a part.

    python benchmarks/vnce_speed.py --output doc/benchmarks/vnce_speed.md
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch
from _report import made_by, publish, table
from torch import nn

from skvnce.distributions.normal import Normal
from skvnce.models.free_gaussian import FreeGaussian
from skvnce.models.restricted_boltzmann import RestrictedBoltzmann
from skvnce.objectives.vnce import Contrast, Rows, drawn_values
from skvnce.variational.base import stream
from skvnce.variational.sequential import (
    SequentialPosterior,
    exact_posterior,
    integrated,
)

N, NU, D = 2000, 10, 12


class Network(nn.Module):
    """An energy by a network of two hidden layers."""

    def __init__(self, d):
        super().__init__()
        layers = nn.Linear(d, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
        self.layers = nn.Sequential(*layers, nn.Linear(64, 1))

    def log_density(self, x):
        return self.layers(x).squeeze(-1) - x.square().sum(-1) / 2


def contrast(binary, missing):
    """Make rows, noise and a mask; the noise is standard normal or fair coins."""
    x, y = torch.randn(N, D).double(), torch.randn(NU, N, D).double()
    if binary:
        x, y = (x > 0).double(), (y > 0).double()
    observed = torch.rand(N, D) >= missing
    rows = [
        Rows(u, observed, -u.square().where(observed, 0.0).sum(-1) / 2) for u in (x, y)
    ]
    return Contrast(*rows)


def cases():
    """Yield name, log-density, posterior, contrast and parameters."""
    initial = Normal(torch.zeros(D).double(), torch.eye(D).double())
    gaussian, network = FreeGaussian(initial), Network(D).double()
    machine = RestrictedBoltzmann(D, 4).double()
    states = exact_posterior(machine)
    yield "Gaussian, complete rows", gaussian, gaussian.log_marginal, integrated, 0, 0.0
    yield "Gaussian, 30 % missing", gaussian, gaussian.log_marginal, integrated, 0, 0.3
    yield "Boltzmann, 16 states", machine, machine.log_density, states, 1, 0.0
    none = SequentialPosterior([], 1)
    yield "network", network, network.log_density, none, 0, 0.0


def seconds(function, parameters):
    """Time one evaluation with its gradient."""
    start = time.perf_counter()
    torch.autograd.grad(function(), parameters, allow_unused=True)
    return time.perf_counter() - start


def ratio(log_density, posterior, rows, parameters, repetitions):
    """Compare the objective with its bare log-densities, at the same draws."""
    with torch.no_grad():
        draws = tuple(
            posterior(part.x, part.observed, stream(place))
            for place, part in enumerate(rows)
        )

    def objective():
        return drawn_values(log_density, draws, rows).mean()

    def bare():
        return sum(log_density(*part.values).mean() for part in draws)

    pairs = [
        (seconds(objective, parameters), seconds(bare, parameters))
        for _ in range(repetitions + 2)
    ][2:]
    whole, alone = (statistics.median(times) for times in zip(*pairs, strict=True))
    return whole, alone, statistics.median(a / b for a, b in pairs)


MEMORY = """
import resource, sys
import torch
from skvnce.algorithms.vnce.em import Problem, fit_model
from skvnce.models.restricted_boltzmann import RestrictedBoltzmann
from skvnce.objectives.vnce import Contrast, Rows
from skvnce.variational.sequential import exact_posterior
n, nu, size = map(int, sys.argv[1:])
machine = RestrictedBoltzmann(12, 6).double()
x, y = (torch.rand(n, 12) < 0.5).double(), (torch.rand(nu, n, 12) < 0.5).double()
observed = torch.ones(n, 12).bool()
flat = [Rows(u, observed, torch.full(u.shape[:-1], -8.3).double()) for u in (x, y)]
pages = int(open("/proc/self/statm").read().split()[1])
before = pages * resource.getpagesize() // 1024
posterior, contrast = exact_posterior(machine), Contrast(*flat)
problem = Problem(machine.log_density, posterior, contrast, size=size)
fit_model(problem, machine.parameters(), max_iter=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory(n, size):
    """Measure by how many MiB a fit of n rows raises the peak."""
    command = [sys.executable, "-c", MEMORY, *map(str, (n, NU, size))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def main():
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--output")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for name, model, log_density, posterior, binary, missing in cases():
        parameters = list(model.parameters())
        found = ratio(
            log_density,
            posterior,
            contrast(binary, missing),
            parameters,
            asked.repetitions,
        )
        rows.append([name, *(f"{1e3 * t:.1f}" for t in found[:2]), f"{found[2]:.2f}"])
    peaks = []
    for n in (500, 2000, 8000):
        peaks.append([n, *(f"{memory(n, size):.0f}" for size in (250, 10**9))])
    notes = (
        f"{N} rows of {D} columns, {NU} rows of noise for each; one thread; medians of "
        f"{asked.repetitions} pairs. Memory: 64 states of 6 hidden units, {NU} rows of "
        "noise; two iterations of L-BFGS."
    )
    publish(
        [
            "# Cost of the VNCE objective",
            made_by("vnce_speed.py", notes),
            table(["model", "objective, ms", "log-densities, ms", "ratio"], rows),
            table(
                ["rows", "peak in parts of 250 rows, MiB", "in one part, MiB"], peaks
            ),
            "The ratio holds at given draws, as in the M-step. The estimator chooses "
            "the rows of a part such that its draws hold about two million numbers; "
            "with several parts they are drawn anew in each evaluation. What still "
            "grows with the table is the noise itself, rows x noise_ratio x columns, "
            "drawn once.",
        ],
        asked.output,
    )


if __name__ == "__main__":
    main()
