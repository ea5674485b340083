"""Noisy-OR on simulated tables and on titles: figures and tables of the paper.

    python benchmarks/noisy_or_figures.py [--parts inference] [--results FILE]
        [--only-report] [--quick] [--output FILE]

Figures 3 to 5 and tables 4 and 5 of Yan, Ailem and Sha (2019), and figure 3 of its
supplement: inference under the true model, the upper bound, patterns that are
recovered, SYN-RANDOM, three sparsities, topics of titles, and classes of titles by
features that are learned.  Losses are held-out -ELBOs.  The parts "topics" and
"classes" read the folder of the tables.  Each result is a line of FILE; those that are
there are not computed again.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from itertools import product
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from _data import folder, load
from _enumerated_causes import enumerate_joint
from _paper import medians
from _report import specs
from _runner import Some, combinations, main_of
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.metrics import f1_score
from sklearn.neighbors import NearestNeighbors

from skvnce import NoisyOr
from skvnce._core.training.adam import train
from skvnce.datasets import load_neurips_titles, make_binary_patterns
from skvnce.noisy_or import em
from skvnce.noisy_or.estimator import torch_rows
from skvnce.noisy_or.model import (
    NoisyOrModel,
    conjugate_shift,
    gather,
    tighter_line,
    upper_bound,
)

HELD_OUT = 1000  # rows for validation, and as many for the scores
AMORTISED, FREE = ("avi", "acp"), ("svi", "lb-cdi", "ub-cdi")
BOUND = 0, 1, 2, 3, 5, 10, 20, 30  # steps of UB-CDI
EFFORTS = specs("noisy_or_figures")["efforts"]


def all_cells(array, dtype=torch.float64):
    """List the cells of all rows of a table of zeros and ones."""
    return torch_rows(csr_array(array)).cells(torch.arange(len(array)), dtype)


def truth_of(pictures):
    """Make the model that pictures were drawn from; no cell is certain to be off."""
    weight = torch.tensor(-np.log1p(-pictures.components)).T.clamp(min=1e-6)
    leak = torch.tensor(-np.log1p(-pictures.leak)).clamp(min=1e-6)
    return NoisyOrModel(weight.float(), leak.float(), torch.full((8,), 1 / 8))


# Figures 3 and 4: pictures of eight patterns


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
    f1 = 100 * float(f1_score(z, drawn, average="macro", zero_division=0))
    return {
        "loss": float(loss),
        "F1": f1,
        "EM": 100 * float((drawn == z).all(1).mean()),
    }


def inferred(way, n, seed, n_rounds, n_steps=150):
    """Infer under the true model; networks take the round best in validation."""
    torch.manual_seed(seed)
    x = make_binary_patterns(max(n, 1), seed).data
    valid, test = (make_binary_patterns(HELD_OUT, 1000 * k + seed) for k in (1, 2))
    model = truth_of(valid)
    if way == "enumeration":
        evidence = gather(truth_of(test).double().causes(), all_cells(test.data))
        return {"loss": -float(enumerate_joint(evidence).logsumexp(0).mean().detach())}
    sizes = em.Sizes(64, 8, (64,), 7.0)
    inference = em.INFERENCES[way](sizes, em.Relaxation(10))
    learner = em.Learner(model, inference)
    network = learner.network_parameters()
    best = (evaluated(model, inference, valid.data, valid.causes, 0)["loss"], None)
    for _ in range(n_rounds if network else 0):
        batch = min(128, len(x))
        train(
            em.loss(learner, torch_rows(csr_array(x))),
            network,
            len(x),
            batch_size=batch,
            learning_rate=0.01,
            max_iter=max(1, n_steps * batch // len(x)),
            on_epoch=lambda epoch, loss: False,
        )
        score = evaluated(model, inference, valid.data, valid.causes, 0)["loss"]
        if score < best[0]:
            best = score, deepcopy(inference.network.state_dict())
    if best[1] is not None:
        inference.network.load_state_dict(best[1])
    return evaluated(model, inference, test.data, test.causes, seed)


def tightened(steps):
    """Compute the upper bound, and the ELBO, after steps of its fixed point."""
    pictures = make_binary_patterns(500, 0)
    model, cells = truth_of(pictures).double(), all_cells(pictures.data)
    with torch.no_grad():
        evidence = gather(model.causes(), cells)
        psi = torch.ones_like(evidence.leak)
        uniform = torch.rand(100, 500, 8, generator=torch.Generator().manual_seed(0))
        for _ in range(steps):
            psi = tighter_line(evidence, psi)
        logit = evidence.prior_logit + conjugate_shift(evidence, psi)
        bound = float(upper_bound(evidence, psi).mean())
        loss = -float(em.hard_elbo(evidence, logit, uniform).mean())
    return {"loss": loss, "upper bound": bound}


def match(components, true):
    """Return the cosines of the true patterns and the components assigned to them."""
    norms = np.linalg.norm(true, axis=1)[:, None] * np.linalg.norm(components, axis=1)
    cosine = true @ components.T / np.maximum(norms, 1e-12)
    return cosine[linear_sum_assignment(-cosine)]


def recovered(way, init, n, seed):
    """Learn patterns; count those that were found."""
    pictures = make_binary_patterns(n, seed)
    test = make_binary_patterns(HELD_OUT, 2000 + seed).data
    model = NoisyOr(8, algorithm=way, init=init, random_state=seed)
    loss = -float(model.fit(pictures.data).score(test))
    cosine = match(model.components_, pictures.components)
    found = int((cosine > 0.9).sum())
    return {"loss": loss, "patterns": found, "match": float(cosine.mean())}


# Table 4 and figure 5: SYN-RANDOM

# of weights and priors, Beta(a, b) each, and which uniform numbers keep a link
DRAWS = {
    "94 %": ((1, 5), (1, 10), lambda uniform: uniform > 0.95),
    "72 %": ((2, 5), (2, 5), lambda uniform: uniform > 0.95),
    "51 %": ((2, 5), (2, 5), lambda uniform: uniform > 0.9),
}
WIDE = (1, 5), (1, 5), lambda uniform: uniform < 0.05  # of 500 columns


def random_model(rng, d, k, of_weight, of_prior, kept, *, each=False):
    """Draw weights, leaks and priors; each column has a cause, and maybe each cause."""
    weight = rng.beta(*of_weight, (d, k)) * kept(rng.random((d, k)))
    leak = rng.beta(*of_weight, d) * kept(rng.random(d))
    for i in np.flatnonzero(weight.sum(1) == 0):
        weight[i, rng.integers(k)] = rng.beta(*of_weight)
    for j in np.flatnonzero(weight.sum(0) == 0) if each else ():
        weight[rng.integers(d), j] = rng.beta(*of_weight)
    return weight, leak, rng.beta(*of_prior, k)


def random_rows(rng, model, n):
    """Draw rows of a model."""
    weight, leak, prior = model
    causes = rng.random((n, len(prior))) < prior
    chance = -np.expm1(-leak - causes @ weight.T)
    return (rng.random(chance.shape) < chance).astype(float)


def loss_of_rates(x, test):
    """Return -log p of held-out rows by the rates of the columns."""
    rate = (x.sum(0) + 0.5) / (len(x) + 1)
    return -(test * np.log(rate) + (1 - test) * np.log1p(-rate)).sum(1).mean()


def learned(tables, way, **settings):
    """Learn from the first of three tables: -ELBO of the others, and by rates alone."""
    x, valid, test = tables
    start = perf_counter()
    learner = NoisyOr(100, algorithm=way, **settings).fit(x)
    return {
        "seconds": perf_counter() - start,
        "validation": -float(learner.score(valid)),
        "loss": -float(learner.score(test)),
        "independent": float(loss_of_rates(x, test)),
    }


def generative(way, n, passes, alpha, n_test):
    """Learn SYN-RANDOM of 500 columns; the rows are always of one model."""
    rng = np.random.default_rng(0)
    model = random_model(rng, 500, 100, *WIDE)
    valid, test = (random_rows(rng, model, n_test) for _ in range(2))
    tables = random_rows(rng, model, n), valid, test
    return learned(tables, way, max_iter=passes, alpha=alpha, random_state=0)


def sparse(way, sparsity, n, alpha, seed, effort):
    """Learn SYN-RANDOM of 50 columns and a share of zeros."""
    rng = np.random.default_rng([seed, *map(ord, sparsity)])
    model = random_model(rng, 50, 100, *DRAWS[sparsity], each=True)
    tables = [random_rows(rng, model, m) for m in (n, max(n, 200), 1000)]
    return learned(tables, way, alpha=alpha, random_state=seed, **effort)


# Table 5 and figure 3 of the supplement: titles

_WORD = re.compile(r"[a-z][a-z]+")
_LARGEST = ("earn", "acq", "money-fx")  # topics of reuters_titles
FUSED = "acq", "money-fx"  # of features learned by AVI from few titles, in the paper
WORDS = "words themselves"
N_SUBSETS = {250: 12, 1000: 3, 5000: 6}  # of so many titles
PLANES, N_PLANES = (250, 50), 5  # titles and causes, and subsets, of planes
TEST = 1000  # titles held out, as in the paper


def words_of(titles):
    """Split titles into words; a plural counts as its singular where that occurs."""
    split = [_WORD.findall(re.sub(r"<[^>]*>", " ", str(t)).lower()) for t in titles]
    known = {word for words in split for word in words}
    return [[_singular(word, known) for word in words] for words in split]


def _singular(word, known):
    for ending, put in (("ies", "y"), ("ses", "s"), ("s", "")):
        stem = word.removesuffix(ending) + put
        if word.endswith(ending) and not word.endswith("ss") and stem in known:
            return stem
    return word


def binary(split, most_common=0):
    """Make a CSR table of titles by words, and the words.

    Words in fewer than five titles, stop words and the most common words are left out,
    then titles without a word.
    """
    vectorizer = CountVectorizer(
        analyzer=lambda words: [w for w in words if w not in ENGLISH_STOP_WORDS],
        binary=True,
        min_df=5,
        dtype=np.float64,
    )
    table = vectorizer.fit_transform(split)
    common = np.argsort(-table.sum(0).A1, kind="stable")[:most_common]
    kept = np.setdiff1d(np.arange(table.shape[1]), common)
    table = table[:, kept].tocsr()
    full = np.flatnonzero(np.diff(table.indptr))
    return table[full], vectorizer.get_feature_names_out()[kept], full


def neurips(until=2016):
    """Return the titles of NeurIPS up to a year as a table, and the words."""
    titles, years = load_neurips_titles(data_home=folder(), return_X_y=True)
    return binary(words_of(titles[years <= until]), 5)[:2]  # as in the paper


def reuters():
    """Return (table, topics, is_test) of titles of one of the largest topics."""
    frame = load("reuters_titles").dropna(subset=["topics", "title"])
    topics = frame.topics.str.split(";")
    of_one = topics.map(lambda t: len(set(t) & set(_LARGEST)) == 1)
    frame = frame[of_one & frame.lewissplit.isin(["TRAIN", "TEST"])]
    label = np.array([next(t for t in topics[i] if t in _LARGEST) for i in frame.index])
    table, _, full = binary(words_of(frame.title))
    return table, label[full], (frame.lewissplit == "TEST").to_numpy()[full]


def npmi(topics, table, words):
    """Average normalised pointwise mutual information over pairs of words of topics.

    Co-occurrence is within a title; -1 for pairs that never meet.

    Returns
    -------
    ndarray of shape (n_topics,)
    """
    place = {word: j for j, word in enumerate(words)}
    n = table.shape[0]
    found = []
    for topic in topics:
        part = table[:, [place[word] for word in topic]]
        joint = (part.T @ part).toarray() / n
        single = np.diag(joint)
        with np.errstate(divide="ignore", invalid="ignore"):
            mutual = np.log(joint / np.outer(single, single)) / -np.log(joint)
        pairs = mutual[np.triu_indices(len(topic), 1)]
        found.append(np.where(joint[np.triu_indices(len(topic), 1)] > 0, pairs, -1))
    return np.array([pairs.mean() for pairs in found])


def topical(way, n, seed, effort):
    """Fit one method of 20 topics to the titles of NeurIPS; ten words of each."""
    rows, words = neurips()
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    train, test = rows[order[TEST:][:n]], rows[order[:TEST]]
    start = perf_counter()
    model = NoisyOr(20, algorithm=way, random_state=seed, **effort).fit(train)
    seconds = perf_counter() - start
    largest = np.argsort(-model.components_, 1, kind="stable")[:, :10]
    topics = [[words[j] for j in row] for row in largest]
    return {
        "loss": -float(model.score(test)),
        "NPMI": float(npmi(topics, rows, words).mean()),
        "topics": topics,
        "seconds": seconds,
    }


def neighbours_of(features, topics):
    """Say which share of a title's neighbours in the plane of t-SNE has its topic.

    In %, of ten neighbours, averaged over the titles of each of the two topics that the
    paper sees fuse, and over both.
    """
    plane = TSNE(random_state=0).fit_transform(features)
    near = NearestNeighbors(n_neighbors=10).fit(plane).kneighbors()[1]
    same = (topics[near] == topics[:, None]).mean(1)
    return 100 * np.mean([same[topics == topic].mean() for topic in FUSED])


def classified(way, causes, n, seed, effort):
    """Classify Reuters titles by features learned from some of them, or by words."""
    rows, topics, is_test = reuters()
    train = np.random.default_rng(seed).permutation(np.flatnonzero(~is_test))[:n]
    x, x_test = rows[train], rows[is_test]
    if way != WORDS:
        model = NoisyOr(causes, algorithm=way, random_state=seed, **effort).fit(x)
        x, x_test = model.transform(x), model.transform(x_test)
    classifier = LogisticRegression(max_iter=2000).fit(x, topics[train])
    found = {"accuracy": 100 * float(classifier.score(x_test, topics[is_test]))}
    if way != WORDS and (n, causes) == PLANES and seed < N_PLANES:
        found["neighbours"] = neighbours_of(x_test, topics[is_test])
    return found


# The study


class Part(NamedTuple):
    """A part of the study: a function, and its arguments."""

    function: Callable
    axes: dict  # as of `combinations`
    fixed: dict = {}


def parts_of(options):
    """Name the parts; a quick run has small ones."""
    quick = options.quick
    seeds, few = ({"seed": range(1 if quick else n)} for n in (5, 3))
    effort = {"effort": {"max_iter": 1} if quick else {}}
    rows = (1000, 100, 20) if quick else (20000, 1000, 100, 20)
    ways = [*product(rows, AMORTISED), *product([0], (*FREE, "enumeration"))]
    inits = [*product(("nmf", "random"), (*AMORTISED, "svi"))]
    efforts = dict.fromkeys(EFFORTS, {"100": [[1], [1]]}) if quick else EFFORTS
    tried = [
        (way, int(n), *choice)
        for way, sizes in efforts.items()
        for n, choices in sizes.items()
        for choice in product(*choices)
    ]
    subsets = [(n, seed) for n, some in N_SUBSETS.items() for seed in range(some)]
    simulated = {
        "sparsity": DRAWS,
        "n": [100] if quick else [100, 1000],
        "way": ("acp", "avi", "svi"),
        "alpha": [1] if quick else [1, 30],
    }
    learners = [*product(AMORTISED, (50, 100, 150)), (WORDS, None)]
    titles = {("n", "seed"): [(250, 0)] if quick else subsets}
    patterns = {"n": [50] if quick else [1000, 200, 50], ("init", "way"): inits}
    return {
        "inference": Part(
            inferred, {("n", "way"): ways} | seeds, {"n_rounds": 2 if quick else 12}
        ),
        "bound": Part(tightened, {"steps": BOUND}),
        "recovery": Part(recovered, patterns | seeds),
        "syn-random": Part(
            generative,
            {("way", "n", "passes", "alpha"): tried},
            {"n_test": 100 if quick else 2000},
        ),
        "sparsity": Part(sparse, few | simulated, effort),
        "topics": Part(topical, {"n": [5519, 2000], "way": AMORTISED} | few, effort),
        "classes": Part(classified, titles | {("way", "causes"): learners}, effort),
    }


def cells(options):
    """List the fits of the parts."""
    parts = parts_of(options)
    for name in options.parts:
        for key in combinations(parts[name].axes):
            yield {"part": name} | key


def measured(key, options):
    """Fit, and score."""
    part = parts_of(options)[key["part"]]
    arguments = {name: value for name, value in key.items() if name != "part"}
    return part.function(**arguments, **part.fixed)


def sections(results, options):
    """Write medians of all numbers."""
    for name, part in parts_of(options).items():
        if some := results.of(part=name):
            keys = [k for k in next(combinations(part.axes)) if k != "seed"]
            kept = {*keys, "part", "seed", "topics", "commit"}
            scores = {
                k: k for k in dict.fromkeys(k for r in some for k in r) if k not in kept
            }
            yield from (f"## {name}", medians(some, keys, scores))


PARTS = "inference", "bound", "recovery", "syn-random", "sparsity", "topics", "classes"
main = main_of(globals(), {}, parts=Some(PARTS, PARTS))
