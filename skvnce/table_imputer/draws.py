"""Draws of missing cells: data augmentation, then sweeps of the models of columns.

1. Parameters of the normal distribution are drawn from their posterior by data
   augmentation (Tanner and Wong 1987), spaced by the rate of EM, at which the chain
   mixes.  A draw contains a product with the probability that it is real.
2. Each missing cell is drawn from that distribution, and then anew from the model of
   its column given the draws of all others, in sweeps over the columns.
3. Draws of the factors of a product know its targets.  A factor of levels is drawn by
   Bayes' rule.  A number is one of some proposals of two models, with and without
   the targets, chosen by the densities of these.  A factor that a forest predicts much
   better than the normal distribution does is drawn from the forest.
"""

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from skvnce.table_imputer.columns import ColumnModel, Rows, fit_column
from skvnce.table_imputer.expansion import GRADE
from skvnce.table_imputer.levels import levels_at
from skvnce.table_imputer.normal import (
    Conditional,
    LogOdds,
    Normal,
    Normals,
    Prior,
    completed,
    joined,
    operations,
    patterns_together,
    posterior_draw,
)

COMPLETIONS = 5  # of the training rows, on which the models of columns are fitted
_SWEEPS = 3
_PROPOSALS = 6  # of each law
_REMAINS = 0.1  # of the correlation of parameters between two draws
_SPACING = 3, 45
# EM ends before a rate near 1 shows, and its rate is that at the mode, while the
# posterior is far from normal where most cells are missing: chains are slower there
_SLOW, _TIMES_OF_SLOW = 0.92, 4
_WORK_OF_SLOW = 2e8  # operations of such a chain, which take about half a second
_MOST_WORK = (
    1e10  # operations of a chain, which take about 10 s: wide tables space less
)
_FEWEST_ROUNDS = 6  # see `_compatible_round`
_WORK_OF_ROUNDS = 1e8  # operations, which take about 3 s
_DRAWS_OF_SLOPES = 8  # in each of at least 12 rounds: t of a slope errs by a twentieth
_PROPER = 6.0  # rows of the prior, beyond the number of columns, in short tables
# of a level, in the density of a target: by linear and by logistic regression
_LEAST_CHANCE, _LEAST_OF_LOGIT = 0.02, 1e-4


class Targets(NamedTuple):
    """What the draws of a factor of products know of their targets."""

    parts: list  # of Part
    laws: tuple  # of Conditional, given all other columns but those before it
    logits: tuple  # of Logit or None, see `normal.LogOdds`


class Posterior(NamedTuple):
    """Draws of the parameters, and completions of the training rows."""

    normals: Normals  # K draws
    states: np.ndarray  # (C, n, d)
    columns: dict  # of lists of Proposer, which are fitted when first needed


class Proposer(NamedTuple):
    """What proposes the cells of a column, by one of its laws."""

    model: ColumnModel
    centre: Conditional  # the law by the mean of all draws of the parameters


class Chain(NamedTuple):
    """What stays the same in a chain."""

    X: np.ndarray  # (n, d), NaN where missing
    weights: np.ndarray  # (n,)
    prior: Prior
    n_draws: int
    rng: np.random.Generator

    @classmethod
    def of(cls, X, weights, share, correlation, n_draws, rng):
        """Begin a chain, whose prior has a share of a row for each column."""
        d = X.shape[1]
        strength = max(share * d, d + _PROPER - weights.sum())
        return cls(X, weights, Prior(strength, correlation), n_draws, rng)


def run_chain(expansion, fit, chain, total=0.0):
    """Draw parameters and completions by data augmentation.

    `fit`, normal.Fit: of all rows, of which those of the chain may be a sample;
    `total`, float: weight of all rows, if they are.  Returns Posterior.
    """
    n_draws, states, draws = chain.n_draws, [], []
    spacing = _spacing(fit.rate, chain)
    for F, parameters in _steps(fit, chain, spacing):
        draws.append(parameters)
        if len(states) < COMPLETIONS:
            states.append(F)
    active = np.ones((n_draws, chain.X.shape[1]), dtype=bool)
    products = expansion.products
    for places in expansion.interactions(products):
        is_real = chain.rng.random(n_draws) < products[places[0]].probability
        active[:, [products[place].at for place in places]] = is_real[:, None]
    are_drawn = active[:, [product.at for product in products]].any()
    logits = {
        q: part.logit.draws(n_draws, chain.rng)
        for q, part in enumerate(expansion.parts)
        if part.logit
    }

    def of_all(draws):
        share = chain.weights.sum() / max(total, chain.weights.sum())
        return _of_all_rows(draws, fit, np.sqrt(share)) if share < 1 else draws

    log_odds, linear = None, Normals.of(of_all(draws), active)
    if logits:
        log_odds = LogOdds(logits, linear, Normals.of_fit(fit))
    if are_drawn:
        states = _started(expansion, chain.X, linear, chain.rng)
    for _ in range(_n_rounds(fit.rate, chain) if are_drawn else 0):
        draws = _compatible_round(expansion, chain, states, draws, active, log_odds)
    normals = Normals.of(of_all(draws), active, log_odds)
    return Posterior(normals, np.stack(states[:COMPLETIONS]), {})


def slopes_on_products(expansion, fit, chain):
    """Draw the slopes of targets on their products (R, n_draws, n_products).

    They are those of R rounds, as t of the draws of one round has an error of a half.
    Returns them and the last completions (n_draws, n, d).
    """
    chain = chain._replace(n_draws=min(chain.n_draws, _DRAWS_OF_SLOPES))
    draws = [drawn for _, drawn in _steps(fit, chain, spacing=1)]
    active = np.ones((chain.n_draws, len(fit.mean)), bool)
    states = _started(expansion, chain.X, Normals.of(draws, active), chain.rng)
    first, slopes = _n_rounds(fit.rate, chain), []
    for turn in range(3 * first):
        draws = _compatible_round(expansion, chain, states, draws, active)
        if turn >= first:
            normals = Normals.of(draws, active)
            slopes.append([])
            for product in expansion.products:
                target = expansion.parts[expansion.owners[product.target]]
                block = _block_of_target(expansion, product)
                law = normals.conditional(block, len(target.responses))
                slopes[-1].append(law.slopes[:, product.at, target.place])
    return np.array(slopes).transpose(0, 2, 1), states


def _block_of_target(expansion, product):
    """List the columns of the target of a product, and of what depends on it."""
    columns = product.tells or (product.target,)
    blocks = [expansion.parts[expansion.owners[j]].block for j in columns]
    return joined(blocks[0], np.concatenate(blocks))


def _steps(fit, chain, spacing):
    """Yield completions, and a draw of the parameters given each."""
    gone = np.isnan(chain.X)
    size = len(gone), max(1, int(gone.sum(1).max()))
    order = patterns_together(gone)
    mean, S = fit.mean, fit.covariance
    for step in range(1 - 2 * spacing, chain.n_draws * spacing + 1):  # with burn-in
        noise = chain.rng.normal(size=size)
        F = completed(chain.X, gone, Normal.of(mean, S), noise, order=order)
        mean, S = posterior_draw(F, chain.weights, chain.prior, chain.rng)
        if step > 0 and step % spacing == 0:
            yield F, (mean, S)


def _n_rounds(rate, chain):
    """Count rounds until slopes that products had as columns are forgotten."""
    work = chain.n_draws * np.isnan(chain.X).sum() * chain.X.shape[1]
    most = max(_FEWEST_ROUNDS, _WORK_OF_ROUNDS / max(work, 1))
    return int(np.clip(_forgetting(rate), _FEWEST_ROUNDS, most))


def _spacing(rate, chain):
    """Count the steps between draws."""
    least, most = _SPACING
    work, (n, d) = operations(np.isnan(chain.X)), chain.X.shape
    most = min(most, _MOST_WORK / max(work * chain.n_draws, 1.0))
    spacing = max(least, min(_forgetting(rate), most))
    if rate > _SLOW:
        longer = _WORK_OF_SLOW / ((work + n * d**2 + d**3) * chain.n_draws)
        spacing = max(spacing, min(_TIMES_OF_SLOW * spacing, longer))
    return int(spacing)


def _forgetting(rate):
    """Count the steps after which little of the correlation of parameters remains."""
    return np.ceil(np.log(_REMAINS) / np.log(max(rate, 0.05)))


def _of_all_rows(draws, fit, scale):
    """Move draws to the fit of all rows; their deviations are those of more rows."""
    centres = [np.mean(values, 0) for values in zip(*draws, strict=True)]
    moved = []
    for mean, S in draws:
        new = fit.covariance + scale * (S - centres[1])
        if np.linalg.eigvalsh(new)[0] <= 0:  # a mixture of two covariances is one
            new = (1 - scale) * fit.covariance + scale * S
        moved.append((fit.mean + scale * (mean - centres[0]), new))
    return moved


def completions(S, normals, rng):
    """Draw the cells of tables (M, n, d) that are NaN, each by one distribution."""
    gone = np.isnan(S)
    noise = (S.shape[1], max(1, int(gone.sum(2).max())))
    laws = zip(S, gone, normals.each(), strict=True)
    return np.stack([completed(*law, rng.normal(size=noise)) for law in laws])


def _started(expansion, X, normals, rng, summed=()):
    """Draw the missing cells of rows (n, d), of levels first, as shares of the rows.

    By the chain rule, each given observed cells and those drawn before, in which its
    probability is linear.  A number that decides a level by a cut point stays on the
    side of it where sweeps start: normal numbers would be there in other shares.
    Likewise columns of the table that a formula relates, `summed`, keep their sums, and
    begin in their shape, by scores.  Returns (M, n, d).
    """
    S = np.repeat(X[None], len(normals.mean), 0)
    for part in expansion.parts:
        if part.is_binary:
            rows = np.flatnonzero(np.isnan(X[:, part.base[0]]))
            states = S[:, rows]
            laws = zip(states, np.isnan(states), normals.each(), strict=True)
            L = np.stack([completed(*law) for law in laws])[..., part.base]
            p = part.probabilities(L)
            put_cells(expansion, S, part, levels_at(p, rng.random(p.shape[:2])), rows)
    S = completions(S, normals, rng)
    for q in summed:
        part = expansion.parts[q]
        if part.is_number and part.score:
            rows = np.flatnonzero(np.isnan(X[:, part.base[0]]))
            cells = part.score.numbers(S[:, rows, part.block[1]])
            put_cells(expansion, S, part, cells, rows)
    return S


def _compatible_round(expansion, chain, S, draws, active, log_odds=None):
    """Continue chains by a step with products that are those of their factors.

    Until here a product is a column like others, "just another variable" (von Hippel
    2009), whose missing cells are drawn by themselves.

    `S` (K, n, d): a completion for each of the draws; it is written to; `draws`, list
    of K pairs: mean and covariance; `active`, bool (K, d): products that a draw is
    without are not; `log_odds`, LogOdds or None.  Returns list of K pairs.
    """
    rng, gone = chain.rng, np.isnan(chain.X)
    normals = Normals.of(draws, active, log_odds)
    told = {j for product in expansion.products for j in product.tells}
    for q, part in enumerate(expansion.parts):
        if not len(part.base) or not gone[:, part.base[0]].any():
            continue
        rows = np.flatnonzero(gone[:, part.base[0]])
        states, laws = S[:, rows], laws_of(expansion, normals, q)
        targets = targets_of(expansion, normals, q)
        is_told = part.n_levels == 2 and part.base[0] in told
        if targets is None and is_told:
            bent = [states[..., j] for j in part.bent]
            means, logit = laws[0].means(states)[..., 0], normals.logits.get(q)
            p = _chances(part, logit, means, bent)
            codes = levels_at(p, rng.random(p.shape[:-1]))
            put_cells(expansion, S, part, codes, rows)
        elif targets is None:
            S[:, rows[:, None], part.base] = _cells(part, laws[0].draw(states, rng)[0])
            expansion.put_scores(S, part, rows)
        elif part.is_number:
            proposals = [states[..., part.base[0]].copy()]
            for law in laws:
                drawn = law.draw(states, rng, _PROPOSALS)
                proposals += [*_cells(part, drawn)[..., 0]]
            cells = _chosen(expansion, part, laws, targets, proposals, states, rng)
            put_cells(expansion, S, part, cells, rows)
        else:
            codes = _levels(expansion, part, laws, targets, states, rng)
            put_cells(expansion, S, part, codes, rows)
    return [posterior_draw(s, chain.weights, chain.prior, rng) for s in S]


def parts_told(expansion, part):
    """List the parts that draws of a factor know: targets first, then dependents."""
    base, products = set(part.base.tolist()), expansion.products
    tells = [p.tells for p in products if {p.first, p.second} & base] + [part.tells]
    columns = [j for turn in zip_longest(*tells) for j in turn if j is not None]
    places = dict.fromkeys(expansion.owners[j] for j in columns)
    parts = [expansion.parts[i] for i in places]
    return [other for other in parts if other.base[0] != part.base[0]]


def laws_of(expansion, normals, q):
    """Regress a column of the table on all others.

    A factor that is chosen by its targets has a second law, without these.  The first
    is without their normal scores, as densities of the targets are not of these.  Such
    a factor of more than two levels has a third law, that of the column alone.

    Returns list of one to three Conditional.
    """
    part = expansion.parts[q]
    block = joined(part.block, _idle(expansion, part))
    parts, without = parts_told(expansion, part), block
    for other in parts:
        scores = other.functions[len(other.base) :]
        block, without = joined(block, scores), joined(without, other.block)
    n_base = len(part.responses)
    laws = [_regressed(expansion, block, normals, q)]
    if parts:
        laws.append(normals.conditional(without, n_base))
    if parts and part.kind == GRADE and part.n_levels > 2:
        every = np.arange(normals.mean.shape[1])
        laws.append(normals.conditional(joined(part.base, every), n_base))
    return laws


def _idle(expansion, part):
    """List numbers as they are in which nothing is linear beside their powers.

    A law of powers is without these: it has a slope on each, of noise, by which powers
    in rows of large numbers would be far away.
    """
    if part.link is None:
        return part.block[:0]
    others = [other for other in expansion.parts if other.link and not other.tells]
    idle = [j for p in others if not _is_factor(expansion, p) for j in p.base]
    return np.setdiff1d(np.array(idle, int), part.base)


def laws_of_forest(expansion, normals, q):
    """Regress a column that a forest draws on all others; a list of one Conditional.

    A factor is regressed without products: nothing chooses among its draws, and by
    squares of each other two such factors would run away.
    """
    part = expansion.parts[q]
    block = joined(part.block, _idle(expansion, part))
    if parts_told(expansion, part):
        block = joined(block, [product.at for product in expansion.products])
    return [_regressed(expansion, block, normals, q)]


def targets_of(expansion, normals, q):
    """Describe what draws of a factor of products know; None if it is in no product.

    By the chain rule each law is without the columns before it: p(y | z, rest) times
    p(z | rest).
    """
    parts, block, laws = parts_told(expansion, expansion.parts[q]), [], []
    for part in parts:
        block = joined(part.block, block)
        place = expansion.owners[part.base[0]]
        law = _regressed(expansion, block, normals, place)
        laws.append((law, normals.logits.get(place)))
    return Targets(parts, *zip(*laws, strict=True)) if parts else None


def _regressed(expansion, block, normals, q):
    """Regress a column of the table on all that are not in a block.

    If it has two values and asks for products, slopes of the products and their factors
    are drawn with its log-odds, and those of other columns here.
    """
    part = expansion.parts[q]
    if q in normals.logits:
        bent = list(part.bent)
        return normals.log_odds.conditional(block, len(part.responses), bent)
    return normals.conditional(block, len(part.responses))


def proposers_of(posterior, expansion, q, cells, weights, n_trees, most_rows, seed):
    """Fit a column to completions of the training rows, once; a model for each law.

    The second, which does not read the targets, is fitted to all cells of the
    completions: those that are observed may be selected by the targets.  With forests
    there is none, and a factor of levels is drawn without it.
    """
    if q in posterior.columns:
        return posterior.columns[q]
    part, states = expansion.parts[q], posterior.states
    regressed = laws_of if n_trees == 0 else laws_of_forest
    laws = regressed(expansion, posterior.normals.of_turns(np.arange(len(states))), q)
    centres = [law.average() for law in regressed(expansion, posterior.normals, q)]

    def read(k, rows):
        X = states[:, rows]
        return Rows(X, laws[k].means(X), centres[k].means(X))

    def fitted(k, rows, column):
        of_rows = read(k, rows), weights[rows], n_trees, seed
        return Proposer(fit_column(expansion, part, column, *of_rows), centres[k])

    rows = observed_rows(cells[:, q], most_rows, seed)
    proposers = [fitted(0, rows, cells[rows, q])]
    if n_trees == 0 and part.is_number and len(laws) > 1:
        rows = some_rows(np.arange(len(cells)), most_rows, seed)
        x = states[:, rows, part.base[0]]
        if part.link and not _is_factor(expansion, part):
            # a normal distribution has neither their zeros nor their tail
            model, of_rows = proposers[0].model, read(0, rows)
            mean, rng = model.predict(of_rows), np.random.default_rng(seed)
            drawn = model.draw(mean, rng, centre=model.centre_of(of_rows, mean))
            x = np.where(np.isnan(cells[rows, q]), drawn, x)
        column = x * part.scale[0] + part.centre[0]
        # completions are normal: those of positive columns are to be positive
        column = abs(column) if part.is_positive else column
        proposers.append(fitted(1, rows, column))
    posterior.columns[q] = proposers
    return proposers


def _is_factor(expansion, part):
    """Say whether a column is a factor of a product."""
    pairs = [(product.first, product.second) for product in expansion.products]
    return np.isin(part.base, pairs).any()


def some_rows(rows, most, seed):
    """Select at most so many of some rows, in their order, by a seed or generator."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return rows[np.sort(chosen)]


def observed_rows(column, most, seed):
    """Select at most so many rows that observe a column (n,), by a seed."""
    return some_rows(np.flatnonzero(~np.isnan(column)), most, seed)


def draw_cells(normals, expansion, X, proposers, rng, summed=()):
    """Draw the missing cells of rows.

    `normals`: m draws of the parameters, one for each table; `X` (n, d): NaN marks
    missing cells; `proposers`, dict of int to list of Proposer: by column of the table,
    in the order of the sweeps; only columns with missing cells; `rng`,
    numpy.random.Generator; `summed`: see `_started`.  Returns dict of int to ndarray of
    shape (M, n_missing): by column of the table: standardised numbers, or codes of
    levels.  Raises LinAlgError where cells run away, as those of products may.
    """
    gone, drawn = np.isnan(X), {}
    S = _started(expansion, X, normals, rng, summed)
    plans = {}
    for q, of_laws in proposers.items():
        model = of_laws[0].model
        rows = np.flatnonzero(gone[:, model.part.base[0]])
        if model.trees is None:
            laws = laws_of(expansion, normals, q)
            targets = targets_of(expansion, normals, q)
        else:  # a forest has learned what the targets tell
            laws, targets = laws_of_forest(expansion, normals, q), None
        plans[q] = rows, laws, targets, ends_of(expansion, model)
    for _ in range(_SWEEPS):
        for q, of_laws in proposers.items():
            rows, laws, targets, ends = plans[q]
            part, states = expansion.parts[q], S[:, rows]
            if targets is not None and not part.is_number:
                drawn[q] = _levels(expansion, part, laws, targets, states, rng)
                put_cells(expansion, S, part, drawn[q], rows)
                continue
            read = [
                Rows(states, law.means(states), centre.means(states))
                for (_, centre), law in zip(of_laws, laws, strict=False)
            ]
            models = [model for model, _ in of_laws]
            if q in normals.logits:
                models[0] = models[0]._replace(logit=normals.logits[q])
            predicted = [
                model.predict(of_law, rng)
                for model, of_law in zip(models, read, strict=True)
            ]
            centres = [
                model.centre_of(of_law, mean)
                for model, of_law, mean in zip(models, read, predicted, strict=True)
            ]
            if targets is None:
                spread, clipped = models[0].spread_of(read[0]), predicted[0].clip(*ends)
                drawn[q] = models[0].draw(clipped, rng, spread, centres[0])
            else:
                # with the last draw the choice leaves its target invariant (Andrieu,
                # Lee and Vihola 2018, iterated sampling importance resampling)
                proposals = [drawn[q]] if q in drawn else []
                for model, mean, centre in zip(models, predicted, centres, strict=True):
                    for _ in range(_PROPOSALS):
                        proposals.append(model.draw(mean, rng, centre=centre))
                drawn[q] = _chosen(
                    expansion, part, laws, targets, proposals, states, rng
                )
            put_cells(expansion, S, part, drawn[q], rows)
        if not np.isfinite(S).all():
            raise np.linalg.LinAlgError("Draws of cells are not finite.")
    return drawn


def ends_of(expansion, model):
    """Return the ends of predictions: of a factor of products, those of observed cells.

    Nothing chooses among draws of a forest: its target may be far away by a square of
    this column, and so on in each sweep.
    """
    if not model.part.is_number or not parts_told(expansion, model.part):
        return -np.inf, np.inf
    return model.residuals.prediction[[0, -1]]


def put_cells(expansion, S, part, cells, rows):
    """Write numbers or levels (M, n_rows), and their functions, into tables."""
    if part.is_number:
        S[:, rows, part.base[0]] = cells
    else:
        S[:, rows[:, None], part.base] = part.coded[cells]
    expansion.put_scores(S, part, rows)
    expansion.multiply(S, rows, set(part.base.tolist()))


def _levels(expansion, part, laws, targets, S, rng):
    """Draw a factor of levels (M, n) by Bayes' rule, given its targets.

    Given all columns but the targets the probability of a level without order is
    linear; those of more than two ordered ones are densities at their values, times the
    ratio of their share to the density of the column alone there, by the same draw: by
    another one, ratios at rare values far from the mean would be arbitrary.
    """
    x = part.coded[:, None, None]
    if part.kind == GRADE and part.n_levels > 2:
        with_others, alone = (
            _normal_log_density(law, law.means(S)[..., 0], x[..., 0])
            for law in laws[1:]
        )
        shares = np.log(part.shares.clip(1e-12))
        scores = with_others - alone + shares[:, None, None]
    else:
        logs = _logarithms(part.probabilities(laws[1].means(S)))
        scores = np.moveaxis(logs, -1, 0)
    scores = scores + _density_of_targets(expansion, part, targets, x, S)
    return _likeliest(scores, rng)


def _chosen(expansion, part, laws, targets, proposals, S, rng):
    """Choose one of some proposals (M, n), of equally many from each law.

    Their weights are those of a mixture of the laws as proposal (Owen and Zhou 2000,
    the balance heuristic); the target is the second law times the densities of the
    targets.
    """
    x = np.stack(proposals)  # which the laws do not read
    place, scores = part.place, part.on_scale(x)
    with_others, prior = (
        _normal_log_density(law, law.means(S)[..., place], scores, place)
        for law in laws
    )
    ratio = with_others - prior
    scores = _density_of_targets(expansion, part, targets, x[..., None], S)
    scores -= np.maximum(ratio, 0.0) + np.log(1 + np.exp(-abs(ratio)))
    return np.take_along_axis(x, _likeliest(scores, rng)[None], 0)[0]


def _likeliest(scores, rng):
    """Draw places along the first axis, by logarithms of probabilities."""
    # faster than `rng.gumbel`, of the same numbers
    return (scores - np.log(-np.log(1 - rng.random(scores.shape)))).argmax(0)


def _density_of_targets(expansion, part, targets, x, S):
    """Compute the log-density of targets, if the cells of a column are others.

    `x` (P, M, n, n_base), or of a shape that is broadcast: P standardised cells instead
    of each of those in `S` (M, n, d), of which only their functions change: means move
    by these.
    """
    changed, scores = dict(expansion.functions(part, x, S)), 0.0
    moves = [(column, cells - S[..., column]) for column, cells in changed.items()]
    for target, law, logit in zip(*targets, strict=True):
        place = target.place
        means = law.means(S)[..., place]
        for column, move in moves:
            means = means + law.slopes[:, column, place, None] * move
        cells = S[..., target.responses[place]]
        if target.n_levels == 2:
            bent = [changed.get(j, S[..., j]) for j in target.bent]
            logs = _logarithms(_chances(target, logit, means, bent), logit)
            is_upper = cells > target.coded.min()
            scores = scores + np.where(is_upper, logs[..., 1], logs[..., 0])
        else:
            scores = scores + _normal_log_density(law, means, cells, place)
    return scores


def _chances(part, logit, means, bent):
    """Compute the probabilities of two levels, linear or logistic.

    `logit`, Logit or None; `means`: linear predictions; `bent`, list of ndarray: the
    columns by which log-odds bend.
    """
    linear = part.probabilities(means[..., None])
    if logit is None:
        return linear
    return logit.of(np.stack(np.broadcast_arrays(means, *bent), -1), linear)


def _logarithms(p, logit=None):
    """Take logarithms of linear or logistic probabilities."""
    least = _LEAST_CHANCE if logit is None else _LEAST_OF_LOGIT
    return np.log(p.clip(least, 1 - least))


def _cells(part, responses):
    """Return the cells of a column (..., n_base), drawn with its powers."""
    return part.off_scale(responses[..., part.place :])


def _normal_log_density(law, mean, x, place=0):
    variance = law.covariance[:, place, place, None]
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
