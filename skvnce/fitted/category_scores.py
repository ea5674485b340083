"""Columns of categories of models of scores: their families and their latent start."""

import numpy as np
import torch
from scipy.special import ndtri

from skvnce._incomplete import Incomplete
from skvnce.algorithms.gaussian.marginals import PiecewiseLinear, linear
from skvnce.algorithms.mixed.columns import NOMINAL, ORDINAL, Marginal
from skvnce.distributions.levels import Nominal, Ordinal

SWEEPS = 100  # of the Gibbs sampler that estimates the latent normal model
SWEEPS_OF_CHECK = 30  # the same without held-out cells
FAR = 1e3  # edge that stands for an infinite one
SHARE = 0.5  # weight of the prior of independent latent variables, in rows for each


def count_outputs(schema):
    """Count the columns of the model, nominal ones by their levels if there are 3."""
    columns, count = schema.columns, len(schema.model_columns)
    for place in schema.model_columns[schema.is_categorical]:
        n_levels = len(columns[place].levels)
        if columns[place].kind == NOMINAL and n_levels > 2:
            # the column itself is one of its outputs
            count += n_levels - 1
    return count


def check_models_levels(algorithm, schema):
    """Raise an error if the algorithm of an autoencoder does not model categories."""
    places = schema.model_columns[schema.is_categorical]
    if len(places) and algorithm == "vbgi-vae":
        raise ValueError(
            "algorithm='vbgi-vae' draws missing cells from normal distributions, and "
            f"{schema.label(places[0])} has categories. Use "
            "algorithm='vbgi-vae-m'."
        )


def level_families(schema, asked):  # dict of int to str
    """Name the families of columns of categories, by column of the model.

    Columns of two levels are ordinal, which makes no difference and is cheaper.

    `schema` (Schema).  `asked` (str (n_nodes,)): requested families of the columns.
    """
    found, columns = {}, schema.columns
    for node in np.flatnonzero(schema.is_categorical):
        place = schema.model_columns[node]
        if asked[node] != "auto":
            raise ValueError(
                f"likelihood={asked[node]!r} is for numbers, and "
                f"{schema.label(place)} has categories. Use 'auto' there."
            )
        two = len(columns[place].levels) == 2
        found[int(node)] = ORDINAL if two else columns[place].kind
    return found


def levels_of(schema, families):
    """List the codes of the levels of the columns of categories."""
    counts = schema.n_categories
    return {node: np.arange(float(counts[node])) for node in families}


def thresholds_of(schema, raw, weights, families):
    """Choose thresholds of ordinal levels by their frequencies, by column."""
    counts, found = schema.n_categories.tolist(), {}
    for node, family in families.items():
        seen = raw.observed[:, node]
        if family == ORDINAL:
            cells = raw.x[seen, node], weights[seen]
            found[node] = Marginal.of_levels(*cells, counts[node]).low[1:].numpy()
    return found


def frequency_scores(raw, weights, families, values):
    """Give normal scores to repeated values of numbers, by their frequencies.

    A value of cumulative share between a and b is the interval from the normal quantile
    of a to that of b.

    `raw` (Incomplete), `weights` (n,), `families` (str (n_nodes,)).  `values` (dict of
    int to ndarray): increasing values of columns.  Returns dict of int to tuple of
    ndarray: for each column in the family ``"rounded"``, the scores of the values and
    the edges around them.
    """
    found = {}
    for node in np.flatnonzero(families == "rounded").tolist():
        seen = raw.observed[:, node].numpy()
        place = np.searchsorted(values[node], raw.x[seen, node].numpy())
        mass = np.bincount(place, weights[seen].numpy(), len(values[node]))
        # an interval without probability has no mean, and rows may have weight 0
        share = np.maximum(mass, 0.5)
        share = share / share.sum()
        inner = ndtri(share.cumsum()[:-1])
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        # below, scores are means of a standard normal variable in each interval
        heights = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
        scores = -np.diff(heights) / share
        found[node] = scores, np.concatenate([[-FAR], inner, [FAR]])
    return found


def score_tables(values, places, tables, units):
    """Pad scores and edges of the values of columns, as `CellScores.tables`.

    Columns without scores by frequencies have standardised values.
    """
    widest, pairs = max(map(len, values.values())), []
    for j in places:
        if j in tables:
            scores, edges = tables[j]
        else:
            scores = (values[j] - units.location[j]) / units.scale[j]
            inner = (scores[1:] + scores[:-1]) / 2
            edges = np.concatenate([[-FAR], inner, [FAR]])
        more = widest - len(scores)
        pairs.append([np.pad(part, (0, more), mode="edge") for part in (scores, edges)])
    return tuple(torch.tensor(np.array(part)) for part in zip(*pairs, strict=True))


def families_of_levels(thresholds, families, schema):
    """Make the families of the columns of categories, as `Families.levels`.

    `thresholds` are those of ordinal columns, a dict by column of the model.
    """
    found = []
    if thresholds:
        tables = [torch.tensor(part) for part in thresholds.values()]
        found.append(Ordinal.of(list(thresholds), tables))
    nodes = [j for j, name in enumerate(families) if name == NOMINAL]
    if nodes:
        sizes = schema.n_categories[nodes].tolist()
        found.append(Nominal.of(nodes, sizes, len(families)))
    return tuple(found)


def marginals_of_all(pieces, numbers):
    """Insert linear marginals of columns of categories among those of numbers.

    `pieces` (PiecewiseLinear or None), `numbers` (bool (n_nodes,)).
    """
    if pieces is None:
        return None
    places = torch.from_numpy(np.flatnonzero(numbers))
    pairs = zip(linear(len(numbers)), pieces, strict=True)
    return PiecewiseLinear(*(wide.index_copy(0, places, own) for wide, own in pairs))


def numbers_with_rows(nodes, weights, numbers):
    """Select columns of numbers, and the rows that have any; also their weights."""
    table = nodes[:, numbers]
    seen = ~np.isnan(table).all(1)
    return table[seen], weights[torch.from_numpy(seen)]


def without(data, hidden):
    """Remove held-out cells from rows of scores."""
    kept = data.observed & ~hidden
    return Incomplete(data.x.where(kept, 0.0), kept)
