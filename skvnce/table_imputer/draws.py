"""Draws of missing cells: data augmentation, then sweeps of the models of columns.

1. Parameters of the normal distribution are drawn from their posterior by data
   augmentation (Tanner and Wong 1987), spaced by the rate of EM, at which the chain
   mixes.  A draw contains a product with the probability that it is real.
2. Each missing cell is drawn from that distribution, and then anew from the model of
   its column given the draws of all others, in sweeps over the columns.
3. Draws of the factors of a product know its targets.  A factor of two levels is drawn
   by Bayes' rule.  A number is one of some proposals of its own model, chosen by how
   much the product improves the densities of its targets: as a ratio of two densities,
   with and without the product, a product that is not real does no harm.
"""

from typing import NamedTuple

import numpy as np

from skvnce.table_imputer.columns import Rows, fit_column
from skvnce.table_imputer.normal import (
    Conditional,
    Normal,
    Normals,
    completed,
    posterior_draw,
)

COMPLETIONS = 5  # of the training rows, on which the models of columns are fitted
_SWEEPS = 3
_PROPOSALS = 10
_REMAINS = 0.1  # of the correlation of parameters between two draws
_SPACING = 3, 45
_COMPATIBLE = 6  # rounds, see `_compatible`
_PROPER = 6.0  # rows of the prior, beyond the number of columns, in short tables
_LEAST_CHANCE = 0.02  # of a level, in the density of a target


class Targets(NamedTuple):
    """What the draws of a factor of products know of their targets."""

    kept: np.ndarray  # the columns of the matrix without these products
    parts: list  # of Part
    full: list  # of Conditional, with the products
    less: list  # of Conditional on the columns `kept`, without them
    prior: Conditional  # of the factor without its targets


class Posterior(NamedTuple):
    """Draws of the parameters, and completions of the training rows."""

    normals: Normals  # K draws
    states: np.ndarray  # (C, n, d)
    columns: dict  # of ColumnModel, which are fitted when they are first needed


class Chain(NamedTuple):
    """What stays the same in a chain."""

    X: np.ndarray  # (n, d), NaN where missing
    weights: np.ndarray  # (n,)
    strength: float  # of the prior, in rows
    rng: np.random.Generator


def run_chain(expansion, fit, X, weights, share, n_draws, rng, total=0.0):
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
    total : float, default=0
        Weight of all rows, if X is a sample of them.

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
    has_products = len(expansion.products) > 0
    mean, S = fit.mean, fit.covariance
    states, draws, step = [], [], -2 * spacing  # burn-in
    while len(draws) < n_draws:
        F = completed(X, gone, Normal.of(mean, S), rng.normal(size=(n, wide)))
        mean, S = posterior_draw(F, weights, strength, rng)
        step += 1
        if step > 0 and step % spacing == 0:
            draws.append((mean, S))
            if has_products or len(states) < COMPLETIONS:
                states.append(F)
    states = np.stack(states)
    active = np.ones((n_draws, d), dtype=bool)
    for one in expansion.products:
        active[:, one.at] = rng.random(n_draws) < one.probability
    if has_products:
        chain = Chain(X, weights, strength, rng)
        draws = _compatible(expansion, chain, states, draws, active)
    if total > weights.sum():
        draws = _of_all_rows(draws, fit, np.sqrt(weights.sum() / total))
    return Posterior(Normals.of(draws, active), states[:COMPLETIONS], {})


def _of_all_rows(draws, fit, scale):
    """Move draws to the fit of all rows; their deviations are those of more rows."""
    centres = [np.mean(one, 0) for one in zip(*draws, strict=True)]
    moved = []
    for mean, S in draws:
        new = fit.covariance + scale * (S - centres[1])
        if np.linalg.eigvalsh(new)[0] <= 0:  # a mixture of two covariances is one
            new = (1 - scale) * fit.covariance + scale * S
        moved.append((fit.mean + scale * (mean - centres[0]), new))
    return moved


def completions(X, normals, rng):
    """Draw the missing cells of rows (n, d) by each distribution; (M, n, d)."""
    gone = np.isnan(X)
    noise = (len(X), max(1, int(gone.sum(1).max())))
    each = normals.each()
    return np.stack([completed(X, gone, one, rng.normal(size=noise)) for one in each])


def _compatible(expansion, chain, S, draws, active):
    """Continue chains with products that are those of their factors.

    Until here a product is a column like others, "just another variable" (von Hippel
    2009), whose missing cells are drawn by themselves.

    Parameters
    ----------
    expansion : Expansion
    chain : Chain
    S : ndarray of shape (K, n, d)
        A completion for each of the draws; it is written to.
    draws : list of K pairs
        Mean and covariance.
    active : ndarray of bool, of shape (K, d)
        Products that a draw is without are not.

    Returns
    -------
    list of K pairs
    """
    rng, gone = chain.rng, np.isnan(chain.X)
    missing = {
        q: np.flatnonzero(gone[:, part.base[0]])
        for q, part in enumerate(expansion.parts)
        if len(part.base) and gone[:, part.base[0]].any()
    }
    for _ in range(_COMPATIBLE):
        normals = Normals.of(draws, active)
        for q, rows in missing.items():
            part, some = expansion.parts[q], S[:, rows]
            law = law_of(expansion, normals, q)
            targets = targets_of(expansion, normals, q)
            if targets is None:
                cells = law.draw(some, rng)
                S[:, rows[:, None], part.base] = cells
                expansion.put_scores(S, part, rows)
            elif part.is_number:
                proposals = [some[..., part.base[0]].copy()]
                proposals += [law.draw(some, rng)[..., 0] for _ in range(_PROPOSALS)]
                cells = _chosen(expansion, part, targets, proposals, some, rng)
                put_cells(expansion, S, part, cells, rows)
            else:
                codes = _two_levels(expansion, part, targets, some, rng)
                put_cells(expansion, S, part, codes, rows)
        draws = [posterior_draw(s, chain.weights, chain.strength, rng) for s in S]
    return draws


def products_of(expansion, part):
    """List the products of which a column is a factor."""
    base = set(part.base.tolist())
    return [one for one in expansion.products if {one.first, one.second} & base]


def law_of(expansion, normals, q):
    """Regress a column of the table on all others.

    A factor of products is regressed on their targets, but not on their normal scores,
    as densities of the targets are not of these.
    """
    part = expansion.parts[q]
    own = part.own
    for one in products_of(expansion, part):
        target = expansion.parts[expansion.owner(one.target)]
        if target.score and target.own[1] not in own:
            own = np.append(own, target.own[1])
    return normals.conditional(own, len(part.base))


def targets_of(expansion, normals, q):
    """Describe the targets of the products of a column; None if it is no factor."""
    part = expansion.parts[q]
    mine = products_of(expansion, part)
    if not mine or not (part.is_number or part.n_levels == 2):
        return None
    kept = np.setdiff1d(np.arange(normals.mean.shape[1]), [one.at for one in mine])
    places = {int(j): at for at, j in enumerate(kept)}
    small, full, less = normals.marginal(kept), [], []
    owners = {expansion.owner(one.target) for one in mine}
    parts = [expansion.parts[i] for i in sorted(owners)]
    for one in parts:
        full.append(normals.conditional(one.own, 1))
        own = np.array([places[j] for j in one.own.tolist() if j in places])
        less.append(small.conditional(own, 1))
    others = np.concatenate([one.own for one in parts])
    own = np.append(part.own, np.setdiff1d(others, part.own))
    return Targets(kept, parts, full, less, normals.conditional(own, 1))


def model_of(posterior, expansion, q, cells, weights, n_trees, most_rows, seed):
    """Fit the model of a column to completions of the training rows, once."""
    if q not in posterior.columns:
        part = expansion.parts[q]
        seen = some_rows(np.flatnonzero(~np.isnan(cells[:, q])), most_rows, seed)
        X = posterior.states[:, seen]
        law = law_of(expansion, posterior.normals.of_turns(np.arange(len(X))), q)
        rows = Rows(X, law.means(X))
        if products_of(expansion, part):
            n_trees = 0  # a forest would know the product, which its targets tell
        given = cells[seen, q], rows, weights[seen], n_trees, seed
        posterior.columns[q] = fit_column(expansion, part, *given)
    return posterior.columns[q]


def some_rows(rows, most, seed):
    """Select at most so many of some rows, in their order."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return rows[np.sort(chosen)]


def draw_cells(normals, expansion, X, models, rng):
    """Draw the missing cells of rows.

    Parameters
    ----------
    normals : Normals
        M draws of the parameters, one for each table.
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
    S = completions(X, normals, rng)
    plans = {
        q: (
            np.flatnonzero(gone[:, model.part.base[0]]),
            law_of(expansion, normals, q),
            targets_of(expansion, normals, q),
        )
        for q, model in models.items()
    }
    for _ in range(_SWEEPS):
        for q, model in models.items():
            rows, law, targets = plans[q]
            part, some = model.part, S[:, rows]
            if targets is not None and not part.is_number:
                drawn[q] = _two_levels(expansion, part, targets, some, rng)
                put_cells(expansion, S, part, drawn[q], rows)
                continue
            predicted = model.predict(Rows(some, law.means(some)), rng)
            if targets is None:
                drawn[q] = model.draw(predicted, rng)
            else:
                # with the last draw the choice leaves its target invariant (Andrieu,
                # Lee and Vihola 2018, iterated sampling importance resampling)
                proposals = [drawn[q]] if q in drawn else []
                proposals += [model.draw(predicted, rng) for _ in range(_PROPOSALS)]
                drawn[q] = _chosen(expansion, part, targets, proposals, some, rng)
            put_cells(expansion, S, part, drawn[q], rows)
    return drawn


def put_cells(expansion, S, part, cells, rows):
    """Write numbers or levels (M, n_rows), and their functions, into tables."""
    if part.is_number:
        S[:, rows, part.base[0]] = cells
    else:
        S[:, rows[:, None], part.base] = part.coded[cells]
    expansion.put_scores(S, part, rows)
    expansion.multiply(S, rows, set(part.base.tolist()))


def _two_levels(expansion, part, targets, S, rng):
    """Draw a factor of two levels (M, n) by Bayes' rule, given its targets.

    Its probability given all columns but the targets is linear.
    """
    rows, scores = np.arange(S.shape[1]), []
    prior = log_density(targets.prior, part, S, both=True)
    for code in (0, 1):
        put_cells(expansion, S, part, np.full(S.shape[:2], code), rows)
        laws = zip(targets.full, targets.parts, strict=True)
        scores.append(prior[code] + sum(log_density(*one, S) for one in laws))
    return (np.stack(scores) + rng.gumbel(size=(2, *S.shape[:2]))).argmax(0)


def _chosen(expansion, part, targets, proposals, S, rng):
    """Choose one of some proposals (M, n) by importance weights."""
    rows, score = np.arange(S.shape[1]), np.zeros((len(proposals), *S.shape[:2]))
    for o, cells in enumerate(proposals):
        put_cells(expansion, S, part, cells, rows)
        kept = S[..., targets.kept]
        for one, full, less in zip(
            targets.parts, targets.full, targets.less, strict=True
        ):
            x = S[..., one.base[0]]
            score[o] += log_density(full, one, S, x) - log_density(less, one, kept, x)
    chosen = (score + rng.gumbel(size=score.shape)).argmax(0)
    return np.take_along_axis(np.stack(proposals), chosen[None], 0)[0]


def log_density(law, part, X, x=None, both=False):
    """Compute the log-density of a column in tables (M, n, d); (M, n).

    Of two levels it is that of a linear probability, and `both` returns those of both
    levels.  x (M, n) are the cells of the column, if X has other columns than the
    matrix.
    """
    mean = law.means(X)[..., 0]
    x = X[..., part.base[0]] if x is None else x
    if not part.is_number and part.n_levels == 2:
        low, high = part.coded[:, 0]
        p = ((mean - low) / (high - low)).clip(_LEAST_CHANCE, 1 - _LEAST_CHANCE)
        if both:
            return np.log(1 - p), np.log(p)
        return np.where(x > (low + high) / 2, np.log(p), np.log(1 - p))
    variance = law.covariance[:, :1, 0]
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
