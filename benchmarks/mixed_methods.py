"""Methods that `mixed.py` compares: each fits the masked rows and fills the others.

A method takes a `Case` and a seed, and returns an `Answer`; all get codes of levels.
"""

import numpy as np
from mixed_rivals import RIVALS
from mixed_scores import Answer, frame_of
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from skvnce import (
    GaussianImputer,
    LAIRImputer,
    MixtureImputer,
    TableImputer,
    VGIImputer,
)

DRAWS = 50
ROUNDS = 5  # of chained forests


def marginal(case, seed):
    """Fill means and modes; draw observed cells of the column."""
    rng, (train, test) = np.random.default_rng(seed), case.masked
    points, draws, probabilities = np.zeros_like(test), [], {}
    for j, kind in enumerate(case.kinds):
        seen = train[~np.isnan(train[:, j]), j]
        draws.append(rng.choice(seen, (DRAWS, len(test))))
        points[:, j] = seen.mean()
        if kind != "numeric":
            shares = np.bincount(seen.astype(int), minlength=len(case.levels[j]))
            probabilities[j] = np.tile(shares / len(seen), (len(test), 1))
            points[:, j] = shares.argmax()
    return Answer(points, probabilities, np.stack(draws, -1))


def rounded(case, cells):
    """Round the codes of a filled table (..., n, d) to levels."""
    cells = np.array(cells, dtype=float)
    for j, levels in enumerate(case.levels):
        if levels is not None:
            cells[..., j] = np.clip(cells[..., j].round(), 0, len(levels) - 1)
    return cells


def iterative(case, seed):
    """Chained ridge regressions on codes, rounded: one table, without draws."""
    train, test = case.masked
    model = IterativeImputer(random_state=seed, keep_empty_features=True).fit(train)
    points = rounded(case, model.transform(test))
    return Answer(points, None, np.repeat(points[None], DRAWS, 0))


def forests(case, seed):
    """Chained random forests with their class probabilities, as missForest chains."""
    train, test = (x.copy() for x in case.masked)
    holes = np.isnan(train), np.isnan(test)
    start = marginal(case, seed).points[0]
    for x, hole in zip((train, test), holes, strict=True):
        x[hole] = np.broadcast_to(start, x.shape)[hole]
    probabilities = {}
    for _ in range(ROUNDS):
        for j in holes[0].sum(0).argsort():
            if not (holes[0][:, j].any() or holes[1][:, j].any()):
                continue
            others, seen = np.delete(train, j, 1), ~holes[0][:, j]
            kind = case.kinds[j] == "numeric"
            forest = (RandomForestRegressor if kind else RandomForestClassifier)(
                100, min_samples_leaf=1 if kind else 3, random_state=seed, n_jobs=1
            ).fit(others[seen], train[seen, j])
            if holes[0][:, j].any():
                train[~seen, j] = forest.predict(others[~seen])
            rows = np.delete(test, j, 1)
            test[holes[1][:, j], j] = forest.predict(rows)[holes[1][:, j]]
            if not kind:
                found = np.zeros((len(test), len(case.levels[j])))
                found[:, forest.classes_.astype(int)] = forest.predict_proba(rows)
                probabilities[j] = found
    return Answer(test, probabilities, np.repeat(test[None], DRAWS, 0))


def of_estimator(estimator, case, seed):
    """Fill and draw by one of our imputers that takes data frames."""
    estimator.set_output(transform="pandas").fit(frame_of(case, case.masked[0]))
    return answer_of(estimator, case, seed)


def answer_of(estimator, case, seed):
    """Fill and draw by a fitted imputer that returns data frames of pandas."""
    test = frame_of(case, case.masked[1])
    points = estimator.transform(test).astype(float).to_numpy()
    drawn = estimator.sample(test, DRAWS, random_state=seed)
    draws = np.stack([table.astype(float).to_numpy() for table in drawn])
    probabilities = {}
    for name, found in estimator.category_probabilities(test).items():
        j = case.names.index(name)
        if case.levels[j] is None:  # few whole numbers, which the imputer takes as such
            continue
        probabilities[j] = np.zeros((len(test), len(case.levels[j])))
        probabilities[j][:, list(found)] = found.to_numpy()
    return Answer(points, probabilities, draws)


def default(case, seed):
    """Fit the default imputer."""
    model = TableImputer(handle_unknown="missing", random_state=seed)
    return of_estimator(model, case, seed)


def gaussian(case, seed):
    """Fit the latent normal model."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = GaussianImputer(random_state=seed, **options)
    return of_estimator(model, case, seed)


def mixture(case, seed):
    """Fit mixtures of normals and of latent classes."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = MixtureImputer(random_state=seed, **options)
    return of_estimator(model, case, seed)


def lair(case, seed):
    """Fit autoencoders that start at the latent normal model."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = LAIRImputer(n_draws=DRAWS, random_state=seed, **options)
    return of_estimator(model, case, seed)


def vgi(case, seed):
    """Fit autoencoders by variational Gibbs inference."""
    options = {"on_misfit": "ignore", "handle_unknown": "missing"}
    model = VGIImputer(n_draws=DRAWS, random_state=seed, **options)
    return of_estimator(model, case, seed)


BASE = "draws of the marginal"
CLOCK = "IterativeImputer, codes and rounding"
BASELINES = {
    BASE: marginal,
    CLOCK: iterative,
    "chained random forests": forests,
}
REMOVED = "ForestImputer", "ForestImputer, LAIR"  # only their results are left
OURS = {
    "TableImputer": default,
    "GaussianImputer": gaussian,
    "MixtureImputer": mixture,
    "LAIRImputer": lair,
    "VGIImputer": vgi,
    **dict.fromkeys(REMOVED),
}
METHODS = BASELINES | OURS | RIVALS
