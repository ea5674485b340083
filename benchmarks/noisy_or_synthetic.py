"""Noisy-OR on simulated tables: figures 3 and 4 and table 4 of the paper.

python benchmarks/noisy_or_synthetic.py [--quick] [--results FILE]
    [--output doc/benchmarks/noisy_or_synthetic.md]
"""

from copy import deepcopy
from itertools import product
from time import perf_counter

import numpy as np
import torch
from _report import Texts, by, grid, lines, specs, table
from _runner import main_of
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

TEXTS, SPECS = Texts("noisy_or_synthetic", globals()), specs("noisy_or_synthetic")

SEEDS = range(5)
HELD_OUT = 1000  # rows for validation, and as many for the scores
AMORTISED, FREE = ("avi", "acp"), ("svi", "lb-cdi", "ub-cdi")
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
    return float(loss), 100 * float(f1), 100 * float((drawn == z).all(1).mean())


def inferred(way, n_train, seed, n_rounds, n_steps=150):
    """Infer under the true model; networks take the round best in validation."""
    torch.manual_seed(seed)
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
    return table(("steps of UB-CDI", "upper bound", "ELBO of its posterior"), rows)


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
    return int((cosine > 0.9).sum()), float(cosine.mean()), float(loss)


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
    return float(-learner.score(valid)), float(-learner.score(test)), seconds


def loss_of_rates(x, test):
    """Return -log p of held-out rows by the rates of the columns."""
    rate = (x.sum(0) + 0.5) / (len(x) + 1)
    return -(test * np.log(rate) + (1 - test) * np.log1p(-rate)).sum(1).mean()


WAYS = "avi", "svi", "lb-cdi", "acp"


def sizes_of(options):
    """Return seeds, efforts, rounds and test rows."""
    if options.quick:
        return SEEDS[:1], {way: {100: ((1,), (1,))} for way in WAYS}, 2, 100
    return SEEDS, EFFORTS, 12, 2000


def cells(options):
    """List the fits of all parts."""
    seeds, efforts, *_ = sizes_of(options)
    sizes = (1000, 100, 20) if options.quick else (20000, 1000, 100, 20)
    settings = [*product(sizes, AMORTISED), *product([0], FREE)]
    for (n, way), seed in product(settings, seeds):
        yield {"part": "inference", "way": way, "n": n, "seed": seed}
    inits = *product(("nmf", "random"), (*AMORTISED, "svi")), ("-", "NMF")
    for n, (init, way), seed in product((1000, 200, 50), inits, seeds):
        if not options.quick:
            key = {"part": "recovery", "way": way, "init": init, "n": n}
            yield key | {"seed": seed}
    for way in WAYS:
        for n, choices in efforts[way].items():
            for passes, alpha in product(*choices):
                key = {"part": "table 4", "way": way, "n": n, "passes": passes}
                yield key | {"alpha": alpha}


def measured(key, options):
    """Fit, and score."""
    _, _, n_rounds, n_test = sizes_of(options)
    part, way, *rest = key.values()
    if part == "inference":
        return {"scores": inferred(way, *rest, n_rounds)}
    if part == "recovery":
        return {"scores": recovered(way, *rest)}
    return {"scores": generative(way, *rest, n_test)}


def scores_of(some):
    """Stack the scores of records."""
    return np.array([r["scores"] for r in some])


def inference_table(results):
    """Set figure 3a in a table."""
    rows = []
    for (n, way), some in by(results.of(part="inference"), "n", "way").items():
        each = scores_of(some)
        mean, error = each.mean(0), each.std(0) / np.sqrt(len(each))
        paper = SPECS["figure_3a"].get(f"{way} {n}", ("-",) * 3)
        rows.append(
            (n or "-", way, f"{mean[0]:.2f} ({error[0]:.2f})", f"{paper[0]}")
            + tuple(f"{mean[i]:.1f} / {paper[i]}" for i in (1, 2))
        )
    header = ("rows", "inference", "-ELBO (s.e.)", "paper", "F1 / paper", "EM / paper")
    return table(header, rows)


def recovery(results):
    """Write figure 4."""
    if not (records := results.of(part="recovery")):
        return []
    columns = {
        "patterns found": lambda some: ", ".join(f"{r['scores'][0]}" for r in some),
        "match": lambda some: f"{scores_of(some)[:, 1].mean():.3f}",
        "held-out -ELBO": lambda some: f"{scores_of(some)[:, 2].mean():.2f}",
    }
    groups = by(records, "n", "init", "way").items()
    shown = lines(groups, columns, "rows", "start", "method").replace("nan", "-")
    return [
        "## Patterns recovered (figure 4)",
        shown,
        TEXTS("Patterns found, of 8, at"),
    ]


def table_4(results, options):
    """Set table 4 in a table."""
    n_test = sizes_of(options)[3]

    def cell(n, way):
        if way == "independent columns":
            x, _, test = random_tables(n, n_test)
            return f"{loss_of_rates(x, test):.1f}"
        if not (some := results.of(part="table 4", n=n, way=way)):
            return "-"
        best = min(some, key=lambda r: r["scores"])
        _, loss, seconds = best["scores"]
        paper = dict(zip(WAYS, SPECS["table_4"].get(str(n), ("-",) * 4), strict=True))[
            way
        ]
        effort = f"{best['passes']}, {best['alpha']}, {seconds:.0f} s"
        return f"{loss:.1f} / {paper} ({effort})"

    sizes = [n for (n,) in by(results.of(part="table 4"), "n")]
    return grid("rows", sorted(sizes), ["independent columns", *WAYS], cell)


def values(results, options):
    """Return what the page names besides."""
    seeds, efforts, n_rounds, n_test = sizes_of(options)
    return {
        "floor": np.mean([exact(seed) for seed in seeds]),
        "seeds": len(seeds),
        "efforts": efforts,
        "n_rounds": n_rounds,
        "n_test": n_test,
        "zeros": 100 * (1 - random_tables(1, n_test)[1].mean()),
    }


main = main_of(globals(), {})
