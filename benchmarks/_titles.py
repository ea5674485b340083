"""Titles as binary tables of words, and the coherence of topics."""

import re

import numpy as np
from _data import folder, load
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from skvnce.datasets import load_neurips_titles

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
