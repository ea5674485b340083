"""Which sampler completes handwritten characters best, given an autoencoder?

    python benchmarks/vae_omniglot.py --results FILE [--only-report] [--quick]
        [--seeds 5] [--output FILE]

Figure 6 of Simkus and Gutmann (2023), Conditional sampling of variational autoencoders
via iterated approximate ancestral sampling, on a part of Omniglot: an autoencoder is
trained on complete binary images; one to three quadrants of test images are hidden, and
each sampler draws them with an equal number of network evaluations.  Each result is a
line of FILE.  Those that are there are not computed again, and the report is written
from FILE alone.  `--quick` runs simulated images and needs no FILE.
"""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from _autoencoders import trained
from _conditional_samplers import FRACTIONS, METHODS, Problem, imputed
from _conditional_scores import f1, rounded, row_f1, ssim
from _data import load_array
from _paper import along, of_curve
from _report import specs
from _runner import main_of

from skvnce._core.incomplete import Incomplete

QUADRANTS = 1, 2, 3  # hidden
EPS = 0.05  # of AC-MWG, as in the paper
HISTORY = 10
INK = 64  # grey values above are 1
DRAW_SEED = 100  # of masks and training; samplers have seeds 0, 1, ...


class Study(NamedTuple):
    """Sizes: of the images, of the autoencoder, of its training, and of the chains."""

    side: int
    n_latents: int
    width: int
    dropout: float
    training: dict
    n_images: int
    n_steps: int


STUDIES = {name: Study(**one) for name, one in specs("vae_omniglot").items()}


# Images


def bars(n, side, rng):
    """Simulate images of one horizontal and one vertical bar; (n, side * side)."""
    x = np.zeros((n, side, side))
    across, down = rng.integers(side, size=(2, n))
    x[np.arange(n), across] = 1
    x[np.arange(n), :, down] = 1
    return x.reshape(n, -1)


@cache
def images_of(name):
    """Return binary training and test images."""
    if name == "bars":
        rng = np.random.default_rng(0)
        parts = [bars(n, STUDIES[name].side, rng) for n in (1000, 100)]
    else:
        parts = [load_array("omniglot28", part) > INK for part in ("x", "x_val")]
    return tuple(torch.tensor(part).float() for part in parts)


def quadrants(n, n_hidden, side, rng):
    """Choose quadrants of images; a mask (n, side * side), True where hidden."""
    half = side // 2
    chosen = rng.permuted(np.tile(np.arange(4) < n_hidden, (n, 1)), axis=1)
    blocks = chosen.reshape(n, 2, 2).repeat(half, 1).repeat(side - half, 2)
    return torch.tensor(blocks.reshape(n, -1))


@cache
def incomplete(name):
    """Hide quadrants of test images; the truth, the table, and the numbers hidden."""
    study, (_, test_images) = STUDIES[name], images_of(name)
    rng = np.random.default_rng(DRAW_SEED)
    truth = test_images[rng.permutation(len(test_images))][: 3 * study.n_images]
    counts = np.resize(QUADRANTS, len(truth))
    hidden = torch.zeros_like(truth, dtype=torch.bool)
    for k in QUADRANTS:
        n = int((counts == k).sum())
        hidden[torch.tensor(counts == k)] = quadrants(n, k, study.side, rng)
    return truth, Incomplete(truth * ~hidden, ~hidden), counts


@cache
def fitted(name):
    """Train the autoencoder; with the bounds of training and test images."""
    study, (images, test_images) = STUDIES[name], images_of(name)
    parts = images[:1000], test_images
    return trained(study, images, parts, DRAW_SEED, binary=True)


# Measurements


def scores(name, x):
    """Score imputations, {number of hidden quadrants: [F1, SSIM, F1 and SSIM rows]}."""
    truth, data, counts = incomplete(name)
    found = {}
    for k in QUADRANTS:
        some = torch.tensor(counts == k)
        parts = x[:, some], truth[some], ~data.observed[some]
        similar = ssim(*parts[:2], STUDIES[name].side).mean(0)
        found[k] = [f1(*parts), float(similar.mean()), row_f1(*parts), similar]
    return found


def measured(key, options):
    """Run one sampler; a record for each number of hidden quadrants."""
    name = key["images"]
    if key["method"] == "fit":
        _, bounds, seconds = fitted(name)
        yield {"bounds": rounded(bounds), "seconds": round(seconds, 1)}
        return
    everywhere = -torch.inf, torch.inf
    sizes = STUDIES[name].n_steps, everywhere, EPS, HISTORY
    problem = Problem(fitted(name)[0], incomplete(name)[1], *sizes)
    found, seconds = imputed(key["method"], problem, key["seed"])
    evaluated = {fraction: scores(name, x) for fraction, x in found.items()}
    for k in QUADRANTS:
        f1_rows, ssim_rows = evaluated[1][k][2:]
        yield {
            "quadrants": k,
            "curve": [[at, *rounded(v[k][:2])] for at, v in evaluated.items()],
            "f1": rounded(f1_rows.tolist()),
            "ssim": rounded(ssim_rows.tolist()),
            "seconds": seconds,
        }


def cells(options):
    """List the fit, and then the samplers; the last record of each is looked for."""
    images = {"images": "bars" if options.quick else "omniglot"}
    yield images | {"method": "fit"}
    for seed, method in product(range(options.seeds), METHODS):
        yield images | {"method": method, "seed": seed, "quadrants": QUADRANTS[-1]}


def values(results, options):
    """Make medians of scores along the budget."""
    records = [record for record in results.records if "curve" in record]
    given = records, ("quadrants", "method"), FRACTIONS
    return {"f1": along(*given, of_curve(0)), "ssim": along(*given, of_curve(1))}


main = main_of(globals(), {"seeds": 2}, seeds=5)
