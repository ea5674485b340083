"""Topics of titles by noisy-OR, against LDA and NMF: table 5 and supplement figure 3.

python benchmarks/noisy_or_titles.py --output noisy_or_titles.md
python benchmarks/noisy_or_titles.py --quick
"""

import re
from time import perf_counter

import numpy as np
import torch
from _data import folder, load, peak_mib
from _report import Texts, made_by, publish, table
from _runner import options_of
from joblib import Parallel, delayed
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from sklearn.linear_model import LogisticRegression

from skvnce import NoisyOr
from skvnce.datasets import load_neurips_titles

TEXTS = Texts("noisy_or_titles", globals())

_WORD = re.compile(r"[a-z][a-z]+")
_FEWEST = 5  # titles that a word must be in
_MOST_COMMON = 5  # words that are left out, as in the paper
_LARGEST = ("earn", "acq", "money-fx")  # topics of reuters_titles


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
        min_df=_FEWEST,
        dtype=np.float64,
    )
    table = vectorizer.fit_transform(split)
    common = np.argsort(-table.sum(0).A1, kind="stable")[:most_common]
    kept = np.setdiff1d(np.arange(table.shape[1]), common)
    table = table[:, kept].tocsr()
    full = np.flatnonzero(np.diff(table.indptr))
    return table[full], vectorizer.get_feature_names_out()[kept], full


def neurips(until=2016):
    """Return (table, words) of the titles of NeurIPS up to a year."""
    titles, years = load_neurips_titles(data_home=folder(), return_X_y=True)
    table, words, _ = binary(words_of(titles[years <= until]), _MOST_COMMON)
    return table, words


def reuters():
    """Return (table, words, topics, is_test) of titles of one of the largest topics."""
    frame = load("reuters_titles").dropna(subset=["topics", "title"])
    topics = frame.topics.str.split(";")
    of_one = topics.map(lambda t: len(set(t) & set(_LARGEST)) == 1)
    frame, topics = frame[of_one & frame.lewissplit.isin(["TRAIN", "TEST"])], topics
    label = np.array([next(t for t in topics[i] if t in _LARGEST) for i in frame.index])
    table, words, full = binary(words_of(frame.title))
    return table, words, label[full], (frame.lewissplit == "TEST").to_numpy()[full]


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


SEEDS = range(3)
N_TOPICS, N_TERMS, N_CAUSES = 20, 10, 50
TEST = 1000  # titles held out, as in the paper
SIZES = (250, 1000, 5000)


def learners(n_topics, seed, **effort):
    """Make the methods, by name."""
    return {
        "NoisyOr, acp": NoisyOr(n_topics, random_state=seed, **effort),
        "NoisyOr, avi": NoisyOr(n_topics, algorithm="avi", random_state=seed, **effort),
        "LDA": LatentDirichletAllocation(n_topics, random_state=seed, max_iter=50),
        "NMF": NMF(n_topics, max_iter=1000, init="nndsvdar", random_state=seed),
    }


def topics_of(components, words):
    """List the words of the largest components."""
    order = np.argsort(-components, 1, kind="stable")[:, :N_TERMS]
    return [[words[j] for j in row] for row in order]


def topical(name, seed, n_train, effort):
    """Fit one method to the titles of NeurIPS."""
    torch.set_num_threads(1)
    rows, words = neurips()
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    train, test = rows[order[TEST:][:n_train]], rows[order[:TEST]]
    model = learners(N_TOPICS, seed, **effort)[name]
    start = perf_counter()
    model.fit(train)
    seconds = perf_counter() - start
    topics = topics_of(model.components_, words)
    held_out = -model.score(test) if isinstance(model, NoisyOr) else np.nan
    return npmi(topics, rows, words), topics, held_out, seconds


def topics_part(seeds, parallel, effort):
    """Report topics of NeurIPS titles."""
    rows, words = neurips()
    sizes = (rows.shape[0] - TEST, 2000)
    names = list(learners(2, 0))
    settings = [(name, n) for n in sizes for name in names]
    found = parallel(
        delayed(topical)(name, seed, n, effort)
        for name, n in settings
        for seed in seeds
    )
    lines, best = [], []
    for place, (name, n) in enumerate(settings):
        each = found[place * len(seeds) : (place + 1) * len(seeds)]
        coherence = np.array([one[0] for one in each])
        top4 = np.sort(coherence, 1)[:, -4:].mean(1)
        distinct = [len({w for topic in one[1] for w in topic}) for one in each]
        held_out, seconds = (np.mean([one[i] for one in each]) for i in (2, 3))
        cells = (
            f"{coherence.mean():.3f} ({coherence.mean(1).std():.3f})",
            f"{top4.mean():.3f}",
        )
        costs = f"{held_out:.2f}", f"{seconds:.0f}"
        lines.append((n, name, *cells, f"{np.mean(distinct):.0f}", *costs))
        if n == sizes[0]:
            order = np.argsort(-each[0][0])
            best += [f"### {name}\n"] + [
                f"- {', '.join(each[0][1][k])} ({each[0][0][k]:.2f})" for k in order
            ]
    header = ("titles", "method", "NPMI (sd over seeds)", "best 4", "distinct words")
    return [
        f"## Topics of NeurIPS titles, 1987-2016 ({rows.shape[0]} titles of "
        f"{rows.shape[1]} words, K = {N_TOPICS})",
        table((*header, "held-out -ELBO", "seconds"), lines),
        TEXTS("NPMI: mean over pairs of"),
        "## The topics, most coherent first (NPMI)",
        "\n".join(best),
    ]


def classified(name, n_train, seed, effort):
    """Classify Reuters titles by features learned from some of them."""
    torch.set_num_threads(1)
    rows, _, topics, is_test = reuters()
    train = np.random.default_rng(seed).permutation(np.flatnonzero(~is_test))[:n_train]
    x, x_test = rows[train], rows[is_test]
    if name != "words themselves":
        model = learners(N_CAUSES, seed, **effort)[name].fit(x)
        x, x_test = model.transform(x), model.transform(x_test)
    classifier = LogisticRegression(max_iter=2000).fit(x, topics[train])
    return classifier.score(x_test, topics[is_test])


def reuters_part(seeds, parallel, effort):
    """Report classification of Reuters titles."""
    rows, _, topics, is_test = reuters()
    sizes = [min(n, (~is_test).sum()) for n in SIZES]
    names = [*learners(2, 0), "words themselves"]
    settings = [(name, n) for name in names for n in sizes]
    found = parallel(
        delayed(classified)(*s, seed, effort) for s in settings for seed in seeds
    )
    found = np.reshape(found, (len(names), len(sizes), len(seeds)))
    lines = [
        (name, *(f"{100 * e.mean():.1f} ({100 * e.std():.1f})" for e in each))
        for name, each in zip(names, found, strict=True)
    ]
    counts = ", ".join(f"{(topics == t).sum()} {t}" for t in np.unique(topics))
    return [
        f"## Reuters titles of three topics ({counts}; {rows.shape[1]} words)",
        table(("features", *(f"{n} rows" for n in sizes)), lines),
        TEXTS("Accuracy in % (sd over", seeds=len(seeds), is_test=is_test.sum()),
    ]


def time_part(effort):
    """Report a fit of the default to all titles."""
    rows, _ = neurips()
    start = perf_counter()
    NoisyOr(N_TOPICS, random_state=0, **effort).fit(rows)
    return [
        f"The default fit of all {rows.shape[0]} titles takes "
        f"{perf_counter() - start:.0f} s, peak {peak_mib():.0f} MiB."
    ]


def main():
    """Run the parts and report."""
    options = options_of(__doc__, {})
    seeds, effort = (SEEDS[:1], {"max_iter": 2}) if options.quick else (SEEDS, {})
    parallel = Parallel(n_jobs=2)
    parts = [
        "# Noisy-OR on titles",
        made_by("noisy_or_titles.py", "One thread a fit, two fits at a time."),
        *time_part(effort),
        *topics_part(seeds, parallel, effort),
        *reuters_part(seeds, parallel, effort),
        *([] if options.quick else ["## What was found", TEXTS("found")]),
    ]
    publish(parts, options.output)


if __name__ == "__main__":
    main()
