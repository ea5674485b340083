"""Noisy-OR on simulated tables: figures 3 and 4 and table 4 of the paper.

python benchmarks/noisy_or_synthetic.py --output doc/benchmarks/noisy_or_synthetic.md
python benchmarks/noisy_or_synthetic.py --quick
"""

from copy import deepcopy
from itertools import product
from operator import itemgetter
from time import perf_counter

import numpy as np
import torch
from _report import Texts, grid, made_by, publish, table
from _runner import options_of
from joblib import Parallel, delayed
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from sklearn.decomposition import NMF
from sklearn.metrics import f1_score

from skvnce import NoisyOr
from skvnce._core.training.adam import train
from skvnce.datasets import make_binary_patterns
from skvnce.noisy_or import em
from skvnce.noisy_or.estimator import torch_rows
from skvnce.noisy_or.model import (
    NoisyOrModel,
    conjugate_shift,
    enumerate_joint,
    gather,
    tighter_line,
    upper_bound,
)

TEXTS = Texts("noisy_or_synthetic", globals())

SEEDS = range(5)
HELD_OUT = 1000  # rows for validation, and as many for the scores
AMORTISED, FREE = ("avi", "acp"), ("svi", "lb-cdi", "ub-cdi")
PAPER = {  # figure 3a: -ELBO, F1, exact matches
    ("avi", 1000): (14.0, 94.5, 91.0),
    ("acp", 1000): (14.4, 94.3, 90.4),
    ("avi", 100): (18.4, 86.6, 76.8),
    ("acp", 100): (17.4, 87.1, 81.1),
    ("avi", 20): (37.2, 49.2, 47.6),
    ("acp", 20): (22.2, 76.1, 64.0),
    ("svi", 0): (22.6, 62.5, 43.0),
    ("lb-cdi", 0): (22.4, 63.6, 45.4),
    ("ub-cdi", 0): (96.6, 24.6, 39.0),
}
TABLE_4 = {  # -ELBO of avi, svi, lb-cdi, acp
    1000: (159.2, 158.0, 158.8, 157.2),
    5000: (157.6, 157.4, None, 151.2),
    20000: (151.0, 156.5, None, 149.8),
}
NETWORKS = {
    1000: ((15, 50), (1, 30, 100)),
    5000: ((10, 30), (1, 30)),
    20000: ((8,), (1,)),
}
EFFORTS = {  # passes and alphas, of which the validation rows choose
    "acp": NETWORKS,
    "avi": NETWORKS,
    "svi": {**NETWORKS, 5000: ((8,), (1, 30)), 20000: ((2,), (1,))},
    "lb-cdi": {1000: ((20, 50), (100,))},
}
QUICK = {way: {100: ((1,), (1,))} for way in EFFORTS}


def sparse_rows(array):
    """Hand a table of zeros and ones to torch."""
    return torch_rows(csr_array(array))


def all_cells(array, dtype=torch.float64):
    """List the cells of all rows."""
    return sparse_rows(array).cells(torch.arange(len(array)), dtype)


def truth_of(pictures):
    """Make the model that pictures were drawn from; no cell is certain to be off."""
    weight = torch.tensor(-np.log1p(-pictures.components)).T.clamp(min=1e-6)
    leak = torch.tensor(-np.log1p(-pictures.leak)).clamp(min=1e-6)
    return NoisyOrModel(weight.float(), leak.float(), torch.full((8,), 1 / 8))


@torch.no_grad()
def evaluated(model, inference, x, z, seed):
    """Return -ELBO by 100 hard draws, macro F1 and exact matches of one draw."""
    cells = all_cells(x, torch.float32)
    evidence = gather(model.causes(), cells)
    logit = inference.posterior(evidence, cells)
    uniform = torch.rand(
        100, *logit.shape, generator=torch.Generator().manual_seed(seed)
    )
    loss = -em.hard_elbo(evidence, logit, uniform).mean()
    drawn = (uniform[0] < logit.sigmoid()).numpy()
    f1 = f1_score(z, drawn, average="macro", zero_division=0)
    return float(loss), 100 * f1, 100 * (drawn == z).all(1).mean()


def inferred(way, n_train, seed, n_rounds, n_steps=150):
    """Infer under the true model; networks take the round best in validation."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    x = make_binary_patterns(max(n_train, 1), seed).data
    valid, test = (make_binary_patterns(HELD_OUT, 1000 * k + seed) for k in (1, 2))
    model = truth_of(valid)
    sizes = em.Sizes(64, 8, (64,), 7.0)
    inference = em.INFERENCES[way](sizes, em.Relaxation(10))
    learner = em.Learner(model, inference)
    network = learner.network_parameters()
    best = (evaluated(model, inference, valid.data, valid.causes, 0)[0], None)
    for _ in range(n_rounds if network else 0):
        batch = min(128, len(x))
        passes = max(1, n_steps * batch // len(x))
        train(
            em.loss(learner, sparse_rows(x)),
            network,
            len(x),
            batch_size=batch,
            learning_rate=0.01,
            max_iter=passes,
            on_epoch=lambda epoch, loss: False,
        )
        score = evaluated(model, inference, valid.data, valid.causes, 0)[0]
        if score < best[0]:
            best = score, deepcopy(inference.network.state_dict())
    if best[1] is not None:
        inference.network.load_state_dict(best[1])
    return evaluated(model, inference, test.data, test.causes, seed)


def exact(seed):
    """Return -log p(x) of the held-out rows under the true model."""
    test = make_binary_patterns(HELD_OUT, 2000 + seed)
    with torch.no_grad():
        evidence = gather(truth_of(test).double().causes(), all_cells(test.data))
        return -float(enumerate_joint(evidence).logsumexp(0).mean())


def inference_part(sizes, seeds, n_rounds, parallel):
    """Report figure 3a."""
    settings = [(way, n) for n in sizes for way in AMORTISED]
    settings += [(way, 0) for way in FREE]
    found = parallel(
        delayed(inferred)(*s, seed, n_rounds) for s in settings for seed in seeds
    )
    found = np.reshape(found, (len(settings), len(seeds), 3))
    rows = []
    for (way, n), each in zip(settings, found, strict=True):
        mean, error = each.mean(0), each.std(0) / np.sqrt(len(seeds))
        paper = PAPER.get((way, n), ("-",) * 3)
        rows.append(
            (n or "-", way, f"{mean[0]:.2f} ({error[0]:.2f})", f"{paper[0]}")
            + tuple(f"{mean[i]:.1f} / {paper[i]}" for i in (1, 2))
        )
    header = ("rows", "inference", "-ELBO (s.e.)", "paper", "F1 / paper", "EM / paper")
    floor = np.mean([exact(seed) for seed in seeds])
    return [
        "## Inference under the true model (figure 3a)",
        table(header, rows),
        TEXTS("-log p(x) of the same", locals(), seeds=len(seeds)),
    ]


def tightening():
    """Report figure 3b: the upper bound and the ELBO along its fixed point."""
    pictures = make_binary_patterns(500, 0)
    model, cells = truth_of(pictures).double(), all_cells(pictures.data)
    rows = []
    with torch.no_grad():
        evidence = gather(model.causes(), cells)
        psi = torch.ones_like(evidence.leak)
        uniform = torch.rand(100, 500, 8, generator=torch.Generator().manual_seed(0))
        for step in range(31):
            if step in (0, 1, 2, 3, 5, 10, 20, 30):
                logit = evidence.prior_logit + conjugate_shift(evidence, psi)
                bound = float(upper_bound(evidence, psi).mean())
                elbo = float(em.hard_elbo(evidence, logit, uniform).mean())
                rows.append((step, f"{bound:.3f}", f"{elbo:.1f}"))
            psi = tighter_line(evidence, psi)
    return [
        "## A tighter bound is not a better posterior (figure 3b)",
        table(("steps of UB-CDI", "upper bound", "ELBO of its posterior"), rows),
    ]


def match(components, true):
    """Return the cosines of the true patterns and the components assigned to them."""
    norms = np.linalg.norm(true, axis=1)[:, None] * np.linalg.norm(components, axis=1)
    cosine = true @ components.T / np.maximum(norms, 1e-12)
    return cosine[linear_sum_assignment(-cosine)]


def recovered(way, init, n, seed):
    """Learn patterns; returns how many were found, mean match, held-out -ELBO."""
    pictures = make_binary_patterns(n, seed)
    test = make_binary_patterns(HELD_OUT, 2000 + seed).data
    if way == "NMF":
        components = NMF(8, max_iter=1000).fit(pictures.data).components_
        loss = np.nan
    else:
        model = NoisyOr(8, algorithm=way, init=init, random_state=seed)
        model.fit(pictures.data)
        components, loss = model.components_, -model.score(test)
    cosine = match(components, pictures.components)
    return (cosine > 0.9).sum(), cosine.mean(), loss


def recovery_part(seeds, parallel):
    """Report figure 4."""
    settings = [
        (way, init, n)
        for n in (1000, 200, 50)
        for init in ("nmf", "random")
        for way in (*AMORTISED, "svi")
    ]
    settings += [("NMF", "-", n) for n in (1000, 200, 50)]
    found = parallel(delayed(recovered)(*s, seed) for s in settings for seed in seeds)
    found = np.reshape(found, (len(settings), len(seeds), 3))
    rows = []
    for (way, init, n), each in zip(settings, found, strict=True):
        counts = ", ".join(f"{int(one)}" for one in each[:, 0])
        loss = f"{each[:, 2].mean():.2f}" if way != "NMF" else "-"
        rows.append((n, init, way, counts, f"{each[:, 1].mean():.3f}", loss))
    header = ("rows", "start", "method", "patterns found", "match", "held-out -ELBO")
    return [
        "## Patterns recovered (figure 4)",
        table(header, rows),
        TEXTS("Patterns found, of 8, at"),
    ]


def random_model(rng, d=500, k=100, kept=0.05):
    """Draw the weights of SYN-RANDOM: Beta draws as weights, 95 % of them removed."""
    weight = rng.beta(1, 5, (d, k)) * (rng.random((d, k)) < kept)
    leak = rng.beta(1, 5, d) * (rng.random(d) < kept)
    for i in np.flatnonzero(weight.sum(1) == 0):
        weight[i, rng.integers(k)] = rng.beta(1, 5)
    return weight, leak, rng.beta(1, 5, k)


def random_rows(rng, model, n):
    """Draw rows of a model."""
    weight, leak, prior = model
    causes = rng.random((n, len(prior))) < prior
    chance = -np.expm1(-leak - causes @ weight.T)
    return (rng.random(chance.shape) < chance).astype(float)


def random_tables(n, n_test):
    """Draw a model, and rows to learn from, to validate and test; always the same."""
    rng = np.random.default_rng(0)
    model = random_model(rng)
    valid, test = (random_rows(rng, model, n_test) for _ in range(2))
    return random_rows(rng, model, n), valid, test


def generative(way, n, passes, alpha, n_test):
    """Learn SYN-RANDOM; returns -ELBO in validation and test, and seconds."""
    x, valid, test = random_tables(n, n_test)
    options = {"max_iter": passes, "alpha": alpha, "random_state": 0}
    start = perf_counter()
    learner = NoisyOr(100, algorithm=way, **options).fit(x)
    seconds = perf_counter() - start
    return -learner.score(valid), -learner.score(test), seconds


def loss_of_rates(x, test):
    """Return -log p of held-out rows by the rates of the columns."""
    rate = (x.sum(0) + 0.5) / (len(x) + 1)
    return -(test * np.log(rate) + (1 - test) * np.log1p(-rate)).sum(1).mean()


def table_4(efforts, n_test, parallel):
    """Report table 4."""
    ways = "avi", "svi", "lb-cdi", "acp"
    settings = [
        (way, n, passes, alpha)
        for way in ways
        for n, choices in efforts[way].items()
        for passes, alpha in product(*choices)
    ]
    found = parallel(delayed(generative)(*s, n_test) for s in settings)
    best = {}
    ranked = sorted(zip(settings, found, strict=True), key=itemgetter(1))
    for (way, n, *effort), scores in ranked:
        best.setdefault((n, way), (*effort, *scores))

    def cell(n, way):
        if way == "independent columns":
            x, _, test = random_tables(n, n_test)
            return f"{loss_of_rates(x, test):.1f}"
        if (n, way) not in best:
            return "-"
        passes, alpha, _, loss, seconds = best[n, way]
        paper = dict(zip(ways, TABLE_4.get(n, ("-",) * 4), strict=True))[way]
        return f"{loss:.1f} / {paper} ({passes}, {alpha}, {seconds:.0f} s)"

    zeros = 100 * (1 - random_tables(1, n_test)[1].mean())
    return [
        "## Generative modelling (table 4: D = 500, K = 100)",
        grid("rows", efforts["acp"].keys(), ["independent columns", *ways], cell),
        TEXTS("Held-out -ELBO of rows", locals()),
    ]


def main():
    """Run the parts and report."""
    options = options_of(__doc__, {})
    seeds = SEEDS[:1] if options.quick else SEEDS
    sizes = (1000, 100, 20) if options.quick else (20000, 1000, 100, 20)
    efforts, n_test = (QUICK, 100) if options.quick else (EFFORTS, 2000)
    parallel = Parallel(n_jobs=2)
    parts = [
        "# Noisy-OR on simulated tables",
        made_by("noisy_or_synthetic.py", "One thread a fit, two fits at a time."),
        *inference_part(sizes, seeds, 2 if options.quick else 12, parallel),
        *tightening(),
    ]
    if not options.quick:
        parts += recovery_part(seeds, parallel)
    parts += table_4(efforts, n_test, parallel)
    if not options.quick:
        parts += ["## What was found", TEXTS("found")]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
