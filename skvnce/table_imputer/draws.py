"""Draws of missing cells: data augmentation, then sweeps of the models of columns.

1. Parameters of the normal distribution are drawn from their posterior by data
   augmentation (Tanner and Wong 1987), spaced by the rate of EM, at which the chain
   mixes.  A draw contains a product with the probability that it is real.
2. Each missing cell is drawn from that distribution, and then anew from the model of
   its column given the draws of all others, in sweeps over the columns.
3. A factor of a product is one of some proposals of its own model, chosen by how much
   the product improves the density of its target.  As a ratio of two densities, with
   and without the product, a product that is not real does no harm.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from skvnce.table_imputer.columns import Rows, fit_column
from skvnce.table_imputer.expansion import follow
from skvnce.table_imputer.normal import (
    Normal,
    completed,
    conditional_variance,
    posterior_draw,
    regression,
    without_columns,
)

COMPLETIONS = 5  # of the training rows, on which the models of columns are fitted
_SWEEPS = int(__import__('os').environ.get('SWE',3))
_COMPATIBLE = int(__import__('os').environ.get('COM',10))  # rounds
_PROPOSALS = int(__import__('os').environ.get('PRO',10))
_REMAINS = 0.1  # of the correlation of parameters between two draws
_SPACING = 3, 45
_PROPER = 6.0  # rows of the prior, beyond the number of columns, in short tables
_LEAST_CHANCE = 0.02  # of a level, in the density of a target


class Smaller(NamedTuple):
    """For a factor of products: the distributions without these."""

    kept: np.ndarray  # columns of the matrix
    normals: list
    targets: list  # of (part, part with places among `kept`)


class Posterior(NamedTuple):
    """Draws of the parameters, and completions of the training rows."""

    normals: list  # K draws
    states: np.ndarray  # (C, n, d)
    smaller: dict  # of Smaller, by column of the table
    columns: dict  # of ColumnModel, which are fitted when they are first needed


def run_chain(expansion, fit, X, weights, share, n_draws, rng):
    """Draw parameters and completions by data augmentation.

    Parameters
    ----------
    expansion : Expansion
    fit : normal.Fit
        Of all rows, of which those of X may be a sample.
    X : ndarray of shape (n, d)
    weights : ndarray of shape (n,)
    share : float
        Of the prior, in rows for each column.
    n_draws : int
    rng : numpy.random.Generator

    Returns
    -------
    Posterior
    """
    n, d = X.shape
    strength = max(share * d, d + _PROPER - weights.sum())
    gone, wide = np.isnan(X), max(1, int(np.isnan(X).sum(1).max()))
    least, most = _SPACING
    spacing = np.log(_REMAINS) / np.log(max(fit.rate, 0.05))
    spacing = int(np.clip(np.ceil(spacing), least, most))
    probabilities = np.ones(d)
    probabilities[[one.at for one in expansion.products]] = [
        one.probability for one in expansion.products
    ]
    mean, S = fit.mean, fit.covariance
    states, draws, step = [], [], -2 * spacing  # burn-in
    while len(draws) < n_draws:
        F = completed(X, gone, Normal.of(mean, S), rng.normal(size=(n, wide)))
        mean, S = posterior_draw(F, weights, strength, rng)
        step += 1
        if step > 0 and step % spacing == 0:
            active = rng.random(d) < probabilities
            draws.append((mean, S, active))
            if len(states) < COMPLETIONS or expansion.products:
                states.append(F)
    states = np.stack(states)
    if expansion.products:
        given = gone, weights, strength, rng
        draws = _compatible(expansion, states, draws, *given)
    normals = [_with_products(*one) for one in draws]
    return Posterior(normals, states[:COMPLETIONS], _all_smaller(expansion, normals), {})


def _compatible(expansion, S, draws, gone, weights, strength, rng):
    """Continue the chains with products that are those of their factors.

    Until here a product is a column like others, "just another variable" (von Hippel
    2009), whose missing cells are drawn by themselves.  Its slope is then more certain
    than it should be.

    Parameters
    ----------
    expansion : Expansion
    S : ndarray of shape (K, n, d)
        A completion of each of the draws; they are written to.
    draws : list of K tuples
        Mean, covariance, and which columns are active.

    Returns
    -------
    list of K tuples
        New draws.
    """
    parts = [one for one in enumerate(expansion.parts) if len(one[1].base)]
    missing = {q: np.flatnonzero(gone[:, one.base[0]]) for q, one in parts}
    for _ in range(_COMPATIBLE):
        normals = [_with_products(*one) for one in draws]
        smaller = _all_smaller(expansion, normals)
        for q, part in parts:
            rows = missing[q]
            if not len(rows):
                continue
            own = smaller.get(q)
            L = _rows_of(part, normals, S[:, rows]).L
            propose = partial(_relaxed, part, L, normals, own is not None, rng)
            if own is None:
                S[:, rows[:, None], part.base] = propose()
                if part.score:
                    S[:, rows, part.own[1]] = follow(S[:, rows, part.base[0]], *part.score)
                continue
            if not part.is_number:
                codes = _two_levels(expansion, part, own, S[:, rows], normals, rng)
                _put_numbers(expansion, S, part, part.coded[codes, 0], rows)
                continue
            proposals = [S[:, rows, part.base[0]]]
            proposals += [propose()[..., 0] for _ in range(_PROPOSALS)]
            given = S[:, rows], normals, own.normals
            cells = _chosen(expansion, part, own, proposals, *given, rng, _put_numbers)
            _put_numbers(expansion, S, part, cells, rows)
        draws = [
            (*posterior_draw(s, weights, strength, rng), one[2])
            for s, one in zip(S, draws, strict=True)
        ]
    return draws


def _relaxed(part, L, normals, is_factor, rng):
    """Draw columns of the matrix (M, n, len(base)) given their means L."""
    if is_factor and not part.is_number and part.n_levels == 2:
        low, high = part.coded[:, 0]
        return np.where(rng.random(L.shape) < (L - low) / (high - low), high, low)
    size, noise = len(part.base), rng.normal(size=L.shape)
    for m, one in enumerate(normals):
        own = np.linalg.inv(one.precision[np.ix_(part.own, part.own)])[:size, :size]
        noise[m] = noise[m] @ np.linalg.cholesky(own + 1e-12 * np.eye(size)).T
    return L + noise


def _all_smaller(expansion, normals):
    """Make the distributions without the products of each factor; by column."""
    found = {q: _smaller(expansion, q, normals) for q in range(len(expansion.parts))}
    return {q: one for q, one in found.items() if one is not None}


def _with_products(mean, covariance, active):
    """Leave out products: they are then independent of all other columns."""
    precision, kept = np.eye(len(mean)), np.ix_(active, active)
    precision[kept] = np.linalg.inv(covariance[kept])
    return Normal(mean, precision)


def _smaller(expansion, q, normals):
    """Make the distributions without the products of a factor; None if it is none."""
    part = expansion.parts[q]
    if not (part.is_number or part.n_levels == 2):
        return None
    mine = [
        one
        for one in expansion.products
        if {one.first, one.second} & set(part.base.tolist())
    ]
    if not mine:
        return None
    d = len(normals[0].mean)
    kept = np.setdiff1d(np.arange(d), [one.at for one in mine])
    places = {int(j): at for at, j in enumerate(kept)}
    targets = []
    for target in {expansion.owner(i) for one in mine for i in one.targets}:
        one = expansion.parts[target]
        base = np.array([places[j] for j in one.base.tolist()])
        own = np.array([places[j] for j in one.own.tolist() if j in places])
        targets.append((one, one._replace(base=base, own=own)))
    return Smaller(kept, [without_columns(one, kept) for one in normals], targets)


def model_of(posterior, expansion, q, cells, weights, n_trees, most_rows, seed):
    """Fit the model of a column to completions of the training rows, once."""
    if q not in posterior.columns:
        part = expansion.parts[q]
        seen = some_rows(np.flatnonzero(~np.isnan(cells[:, q])), most_rows, seed)
        X = posterior.states[:, seen]
        rows = _rows_of(part, posterior.normals, X)
        given = cells[seen, q], rows, weights[seen], n_trees, seed
        posterior.columns[q] = fit_column(expansion, part, *given)
    return posterior.columns[q]


def some_rows(rows, most, seed):
    """Select at most so many of some rows, in their order."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return rows[np.sort(chosen)]


def _rows_of(part, normals, X):
    """Predict a column of completions (C, n, d) by a distribution each."""
    given = part.own, len(part.base)
    L = [regression(one, *given, x) for one, x in zip(normals, X, strict=False)]
    return Rows(X, np.stack(L))


def draw_cells(posterior, turns, expansion, X, models, rng):
    """Draw the missing cells of rows.

    Parameters
    ----------
    posterior : Posterior
    turns : ndarray of int, of shape (M,)
        The draw of the parameters of each table.
    expansion : Expansion
    X : ndarray of shape (n, d)
        NaN marks missing cells.
    models : dict of int to ColumnModel
        By column of the table, in the order of the sweeps; only columns with missing
        cells.
    rng : numpy.random.Generator

    Returns
    -------
    dict of int to ndarray of shape (M, n_missing)
        By column of the table: standardised numbers, or codes of levels.
    """
    gone, drawn = np.isnan(X), {}
    wide = max(1, int(gone.sum(1).max()))
    normals = [posterior.normals[turn] for turn in turns]
    S = np.stack(
        [completed(X, gone, one, rng.normal(size=(len(X), wide))) for one in normals]
    )
    missing = {q: np.flatnonzero(gone[:, one.part.base[0]]) for q, one in models.items()}
    for _ in range(_SWEEPS):
        for q, model in models.items():
            rows = missing[q]
            part, smaller = expansion.parts[q], posterior.smaller.get(q)
            at = Rows(*_rows_of(part, normals, S[:, rows]))
            predicted = model.predict(at, rng)
            if smaller is None:
                drawn[q] = model.draw(predicted, rng)
            elif not part.is_number:
                at = S[:, rows], normals
                drawn[q] = _two_levels(expansion, part, smaller, *at, rng)
            else:
                small = [smaller.normals[turn] for turn in turns]
                # with the last draw the choice leaves its target invariant (Andrieu,
                # Lee and Vihola 2018, iterated sampling importance resampling)
                proposals = [drawn[q]] if q in drawn else []
                proposals += [model.draw(predicted, rng) for _ in range(_PROPOSALS)]
                given = S[:, rows], normals, small
                drawn[q] = _chosen(expansion, part, smaller, proposals, *given, rng)
            _put(expansion, S, part, drawn[q], rows)
    return drawn


def _put(expansion, S, part, cells, rows):
    """Write drawn cells (M, n_rows) of a column, and their functions, into tables."""
    if part.is_number:
        expansion.put(S, part, cells, rows)
    else:
        expansion.put_levels(S, part, cells, rows)
    expansion.multiply(S, rows, set(part.base.tolist()))


def _two_levels(expansion, part, smaller, S, normals, rng):
    """Draw a factor of two levels (M, n) by Bayes' rule, given its targets.

    The probability given all columns but the targets is linear.
    """
    n_base, everywhere = len(part.base), np.arange(S.shape[1])
    others = np.concatenate([one.own for one, _ in smaller.targets])
    own = np.append(part.own, np.setdiff1d(others, part.own))
    low, high = part.coded[:, 0]
    scores = []
    for code, level in enumerate((low, high)):
        mean = np.stack([regression(one, own, n_base, s)[:, 0] for one, s in zip(normals, S, strict=True)])
        p = ((mean - low) / (high - low)).clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE)
        score = np.log(p if code else 1 - p)
        _put_numbers(expansion, S, part, np.full(S.shape[:2], level), everywhere)
        for target, _ in smaller.targets:
            score += np.stack([log_density(one, target, s) for one, s in zip(normals, S, strict=True)])
        scores.append(score)
    return (np.stack(scores) + rng.gumbel(size=(2, *S.shape[:2]))).argmax(0)


def _put_numbers(expansion, S, part, cells, rows):
    """Write cells (M, n_rows) of the matrix, and their functions, into tables."""
    expansion.put(S, part, cells, rows)
    expansion.multiply(S, rows, set(part.base.tolist()))


def _chosen(expansion, part, smaller, proposals, S, normals, small, rng, put=None):
    """Choose one of some proposals (M, n) by importance weights."""
    put = _put if put is None else put
    everywhere = np.arange(S.shape[1])
    score = np.zeros((len(proposals), *S.shape[:2]))
    for o, cells in enumerate(proposals):
        put(expansion, S, part, cells, everywhere)
        for target, among in smaller.targets:
            score[o] += np.stack(
                [
                    log_density(one, target, s)
                    - log_density(less, among, s[:, smaller.kept])
                    for one, less, s in zip(normals, small, S, strict=True)
                ]
            )
    chosen = (score + rng.gumbel(size=score.shape)).argmax(0)
    return np.take_along_axis(np.stack(proposals), chosen[None], 0)[0]


def log_density(normal, part, X):
    """Compute the log-density of a column in rows (n, d) given all others; (n,).

    Of two levels it is that of a linear probability.
    """
    mean = regression(normal, part.own, len(part.base), X)[:, 0]
    x = X[:, part.base[0]]
    if not part.is_number and part.n_levels == 2:
        low, high = part.coded[:, 0]
        p = ((mean - low) / (high - low)).clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE)
        return np.where(x > (low + high) / 2, np.log(p), np.log(1 - p))
    variance = conditional_variance(normal, part.own)
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
