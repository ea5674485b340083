"""Topics of titles by noisy-OR, against LDA and NMF: table 5 and supplement figure 3.

python benchmarks/noisy_or_titles.py [--quick] [--results FILE]
    [--output doc/benchmarks/noisy_or_titles.md]
"""

import re
from itertools import product
from time import perf_counter

import numpy as np
from _data import folder, load, peak_mib
from _report import Texts, average, by, grid, lines
from _runner import main_of
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
WORDS = "words themselves"
N_TOPICS, N_TERMS, N_CAUSES = 20, 10, 50
TEST = 1000  # titles held out, as in the paper


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
    rows, words = neurips()
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    train, test = rows[order[TEST:][:n_train]], rows[order[:TEST]]
    model = learners(N_TOPICS, seed, **effort)[name]
    start = perf_counter()
    model.fit(train)
    seconds = perf_counter() - start
    topics = topics_of(model.components_, words)
    found = {"npmi": npmi(topics, rows, words).tolist(), "topics": topics}
    if isinstance(model, NoisyOr):
        found["held_out"] = -model.score(test)
    return found | {"seconds": seconds}


def classified(name, seed, n_train, effort):
    """Classify Reuters titles by features learned from some of them."""
    rows, _, topics, is_test = reuters()
    train = np.random.default_rng(seed).permutation(np.flatnonzero(~is_test))[:n_train]
    x, x_test = rows[train], rows[is_test]
    if name != WORDS:
        model = learners(N_CAUSES, seed, **effort)[name].fit(x)
        x, x_test = model.transform(x), model.transform(x_test)
    classifier = LogisticRegression(max_iter=2000).fit(x, topics[train])
    return {"accuracy": classifier.score(x_test, topics[is_test])}


def timed(effort):
    """Time a fit of the default to all titles."""
    rows, words = neurips()
    start = perf_counter()
    NoisyOr(N_TOPICS, random_state=0, **effort).fit(rows)
    shape = {"n_titles": rows.shape[0], "n_words": len(words)}
    return shape | {"seconds": perf_counter() - start, "peak": peak_mib()}


def cells(options):
    """List the fits."""
    rows, _, _, is_test = reuters()
    seeds, methods = SEEDS[: 1 if options.quick else None], [*learners(2, 0)]
    yield {"part": "time"}
    sizes = neurips()[0].shape[0] - TEST, 2000
    for n, method, seed in product(sizes, methods, seeds):
        yield {"part": "topics", "n": n, "method": method, "seed": seed}
    sizes = [min(n, int((~is_test).sum())) for n in (250, 1000, 5000)]
    for method, n, seed in product([*methods, WORDS], sizes, seeds):
        yield {"part": "reuters", "n": n, "method": method, "seed": seed}


def measured(key, options):
    """Fit, and score."""
    effort = {"max_iter": 2} if options.quick else {}
    if key["part"] == "time":
        return timed(effort)
    function = {"topics": topical, "reuters": classified}[key["part"]]
    return function(key["method"], key["seed"], key["n"], effort)


def topics_table(results):
    """Set the coherence of topics in a table."""

    def coherence(some):
        found = np.array([r["npmi"] for r in some])
        return f"{found.mean():.3f} ({found.mean(1).std():.3f})"

    def best(some):
        return f"{np.mean([np.sort(r['npmi'])[-4:] for r in some], (0, 1)):.3f}"

    def distinct(some):
        return f"{np.mean([len(set(sum(r['topics'], []))) for r in some]):.0f}"

    columns = {
        "NPMI (sd over seeds)": coherence,
        "best 4": best,
        "distinct words": distinct,
        "held-out -ELBO": lambda some: average(some, "held_out", 2, "nan"),
        "seconds": lambda some: average(some, "seconds", 0),
    }
    groups = by(results.of(part="topics"), "n", "method").items()
    return lines(groups, columns, "titles", "method")


def best_topics(results):
    """List the topics of the first seed of each method, with all titles."""
    records, parts = results.of(part="topics", seed=0), []
    for record in records:
        if record["n"] == records[0]["n"]:
            parts.append(f"### {record['method']}\n")
            for k in np.argsort(-np.array(record["npmi"])):
                words, score = ", ".join(record["topics"][k]), record["npmi"][k]
                parts.append(f"- {words} ({score:.2f})")
    return "\n".join(parts)


def reuters_table(results):
    """Set the accuracies in a table."""

    def cell(method, n):
        some = results.of(part="reuters", method=method, n=n)
        found = 100 * np.array([r["accuracy"] for r in some])
        return f"{found.mean():.1f} ({found.std():.1f})"

    records = results.of(part="reuters")
    sizes = {f"{n} rows": n for (n,) in by(records, "n")}
    return grid("features", [m for (m,) in by(records, "method")], sizes, cell)


def values(results, options):
    """Return what the page names besides."""
    rows, _, topics, is_test = reuters()
    counts = [f"{(topics == t).sum()} {t}" for t in np.unique(topics)]
    return results.find(part="time") | {
        "counts": ", ".join(counts),
        "n_terms": rows.shape[1],
        "is_test": is_test.sum(),
        "seeds": len(SEEDS[: 1 if options.quick else None]),
    }


main = main_of(globals(), {})
