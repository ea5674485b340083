"""Analyses of the validity study, and the pooling of their results.

A term is the name of a column, or "x*b" (a product), "x^2" (a square), "log x", or
"g=b" (1 in rows of level b).
"""

from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from skvnce.pooling import pool

_STEPS = 50  # of Newton's method, at most


class Failure(RuntimeError):
    """An analysis that has no answer."""


def term_of(frame, term):
    """Return the values of a term."""
    if "*" in term:
        first, second = term.split("*")
        return term_of(frame, first) * term_of(frame, second)
    if term.endswith("^2"):
        return term_of(frame, term[:-2]) ** 2
    if term.startswith("log "):
        values = term_of(frame, term[4:])
        if values.min() <= 0:
            raise Failure("logarithm of a value not above 0")
        return np.log(values)
    if "=" in term:
        name, level = term.split("=")
        return (frame[name].astype(str) == level).to_numpy(float)
    return frame[term].to_numpy(float)


def matrix(frame, terms):
    """Return a column of ones and the terms; a singular matrix is a failure."""
    columns = [term_of(frame, term) for term in terms]
    X = np.column_stack([np.ones(len(frame)), *columns])
    if not np.isfinite(X).all():
        raise Failure("missing or infinite values")
    if len(X) <= X.shape[1] + 1:
        raise Failure("too few rows")
    if np.linalg.matrix_rank(X) < X.shape[1]:
        raise Failure("collinear terms")
    return X


def random_intercept(y, X, groups):
    """Fit a linear model with random intercepts by REML.

    Returns coefficients, their covariance, and the variances of groups and of rows.
    """
    n, p = X.shape
    all_of = np.column_stack([X, y])
    counts = np.bincount(groups)
    sums = np.column_stack([np.bincount(groups, weights=one) for one in all_of.T])
    products = all_of.T @ all_of

    def solved(icc):
        ratio = icc / (1 - icc)
        weights = ratio / (1 + counts * ratio)
        cross = products - (sums * weights[:, None]).T @ sums
        beta = np.linalg.solve(cross[:p, :p], cross[:p, p])
        return ratio, cross[:p, :p], beta, cross[p, p] - cross[:p, p] @ beta

    def deviance(icc):
        ratio, information, _, rest = solved(icc)
        terms = np.log1p(counts * ratio).sum() + np.linalg.slogdet(information)[1]
        return (n - p) * np.log(rest) + terms

    found = minimize_scalar(
        deviance, bounds=(0, 0.9999), method="bounded", options={"xatol": 1e-7}
    )
    icc = found.x if found.fun < deviance(0) else 0.0
    ratio, information, beta, rest = solved(icc)
    row = rest / (n - p)
    return beta, row * np.linalg.inv(information), ratio * row, row


def least_squares(frame, outcome, terms):
    """Fit a linear regression: slopes, their variances, degrees of freedom."""
    X, y = matrix(frame, terms), term_of(frame, outcome)
    inverse = np.linalg.inv(X.T @ X)
    beta = inverse @ (X.T @ y)
    residual, dof = y - X @ beta, len(X) - X.shape[1]
    variances = np.diag(inverse) * (residual @ residual) / dof
    return beta[1:], variances[1:], np.full(len(terms), float(dof))


def logistic(frame, outcome, terms):
    """Fit a logistic regression by Newton's method."""
    X, y = matrix(frame, terms), frame[outcome].to_numpy(float)
    if not np.isin(y, (0, 1)).all():
        raise Failure("outcome not 0 or 1")
    beta = np.zeros(X.shape[1])
    for _ in range(_STEPS):
        p = expit(X @ beta)
        information = (X * (p * (1 - p))[:, None]).T @ X
        step = np.linalg.solve(information, X.T @ (y - p))
        beta = beta + step
        if np.abs(beta).max() > 30:
            raise Failure("separation")
        if np.abs(step).max() < 1e-8:
            break
    else:
        raise Failure("no convergence")
    dof = np.full(len(terms), float(len(X) - X.shape[1]))
    return beta[1:], np.diag(np.linalg.inv(information))[1:], dof


def mixed_model(frame, outcome, terms, group, between):
    """Fit random intercepts by REML; terms in `between` are constant within groups."""
    X, y = matrix(frame, terms), frame[outcome].to_numpy(float)
    codes = np.unique(frame[group].to_numpy(), return_inverse=True)[1]
    beta, covariance, _, _ = random_intercept(y, X, codes)
    groups = codes.max() + 1
    limits = groups - 1 - len(between), len(y) - groups - len(terms) + len(between)
    dof = [float(limits[0] if term in between else limits[1]) for term in terms]
    return beta[1:], np.diag(covariance)[1:], np.array(dof)


def answer_of(tables, analyse):
    """Analyse tables and pool: estimates, standard errors, dof, FMI of the slopes."""
    results = [analyse(frame) for frame in tables]
    estimates, variances = (np.array([one[k] for one in results]) for k in (0, 1))
    dof = results[0][2]
    if len(tables) == 1:
        return estimates[0], np.sqrt(variances[0]), dof, np.zeros(len(dof))
    if not (variances > 0).all():
        raise Failure("variance of 0")
    pooled = [pool(estimates[:, k], variances[:, k], dof[k]) for k in range(len(dof))]
    names = "estimate", "standard_error", "dof", "missing_information"
    return [np.array([getattr(one, name) for one in pooled]) for name in names]


def linear(outcome, *terms):
    """Make a linear regression."""
    return partial(least_squares, outcome=outcome, terms=terms)


def binary(outcome, *terms):
    """Make a logistic regression."""
    return partial(logistic, outcome=outcome, terms=terms)


def clustered(outcome, *terms, group, between):
    """Make a linear regression with random intercepts."""
    return partial(
        mixed_model, outcome=outcome, terms=terms, group=group, between=between
    )
