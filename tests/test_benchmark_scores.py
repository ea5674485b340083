"""Scores of benchmarks that decide something, against values by hand."""

import sys

import _cases
import _data
import _peers
import _python_peers
import mixed
import numpy as np
import protocol_tables
import pytest
import torch
from _conditional_scores import laplacian
from _validity_analyses import random_intercept
from numpy.testing import assert_allclose
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from vgi_factor_analysis import chained

from skvnce._core.incomplete import Incomplete

KINDS, LEVELS = ["numeric", "nominal", "ordinal"], [0, 3, 2]


def test_errors_of_hand_made_tables():
    """Ranges are 2 and 10; the last column has three levels."""
    full = np.array([[0.0, 0.0, 0.0], [2.0, 10.0, 1.0], [1.0, 5.0, 2.0]])
    hidden = np.array([[True, False, True], [True, True, False], [False] * 3])
    one, two = full.copy(), full.copy()
    one[0] = 1.0, 0.0, 2.0  # half of the range, and a wrong level
    one[1] = 2.0, 5.0, 1.0
    two[0] = 0.5, 0.0, 0.0
    two[1] = 0.0, 0.0, 1.0
    both = np.stack([one, two])
    errors = protocol_tables.row_errors(both, full, (2,))
    assert errors == pytest.approx(np.array([[1.5, 0.5, 0], [0.25, 2, 0]]))
    assert protocol_tables.min_mae(both, full, hidden, (2,)) == pytest.approx(0.75 / 4)
    expected = 4.25 / 2 / 4
    assert protocol_tables.avg_mae(both, full, hidden, (2,)) == pytest.approx(expected)
    assert protocol_tables.avg_mae(both[:1], full, hidden, (2,)) == pytest.approx(2 / 4)
    found = protocol_tables.wasserstein([[0.0], [3.0]], [[3.0], [1.0]])
    assert found == pytest.approx(0.5)


def mixed_table(seed, n=200):
    z = np.random.default_rng(seed).normal(size=n)
    return np.column_stack([z, np.digitize(z, [-0.5, 0.5]), z > 0.2]).astype(float)


def mixed_case(seed=0):
    x, rng = mixed_table(seed), np.random.default_rng(seed)
    masked = np.where(mixed.hidden_cells(x, "MCAR", rng), np.nan, x)
    return mixed.Case(
        KINDS, LEVELS, list("pqr"), (x[:140], x[140:]), (masked[:140], masked[140:])
    )


def test_methods_do_not_see_hidden_cells():
    """A method that is given other true values in the hidden cells answers equally."""
    one = mixed_case()
    full = tuple(
        np.where(np.isnan(m), 1 - (x > 0), x)
        for m, x in zip(one.masked, one.full, strict=True)
    )
    other = one._replace(full=full)
    for method in (mixed.marginal, mixed.iterative):
        first, second = method(one, 0), method(other, 0)
        assert np.array_equal(first.points, second.points)
        assert np.array_equal(first.draws, second.draws)
    leaky = np.nan_to_num(one.full[1]), np.nan_to_num(other.full[1])
    assert not np.array_equal(*leaky)


def means_and_leaks(learn, parts, kinds, n_draws, seed):
    """Fill means, and leave the last gap of the first column missing."""
    assert kinds == ["numeric", "ordinal"]
    assert set(np.unique(learn[~np.isnan(learn[:, 1]), 1])) == {0, 1}
    draws = [np.where(np.isnan(x), np.nanmean(learn, 0), x) for x in parts]
    draws[-1][np.flatnonzero(np.isnan(parts[-1][:, 0]))[-1], 0] = np.nan
    return [np.stack([one] * n_draws) for one in draws], ["a remark"]


@pytest.mark.parametrize("start", [0, 5])
def test_a_peer_gets_levels_that_it_has_seen_and_fills_rows(start, monkeypatch):
    """Level 1 of 3 is in new rows only; the last column is constant."""

    def in_this_process(command, limit):
        monkeypatch.setattr(sys, "argv", [str(word) for word in command[1:]])
        _python_peers.main()

    package = "numpy"  # that there is, and has a version
    monkeypatch.setattr(_peers, "execute", in_this_process)
    monkeypatch.setitem(_python_peers.PACKAGES, package, means_and_leaks)
    full = np.column_stack([np.arange(8.0), [0, 2, 0, 2, 2, 1, 0, 2], np.full(8, 5.0)])
    masked = full.copy()
    masked[[1, 4, 5, 6, 7], [0, 1, 1, 0, 2]] = np.nan
    sides = (full[:5], full[5:]), (masked[:5], masked[5:])
    kinds, levels = ["numeric", "ordinal", "nominal"], [0, 3, 6]
    case = _cases.Case(kinds, levels, list("abc"), *sides)
    answer = _cases.by_peer(_peers.Peer(package), case, 2, 0, start=start)
    draws, rows = answer.draws, masked[start:]
    assert draws.shape == (2, 8 - start, 3) and not np.isnan(draws).any()
    assert np.array_equal(draws[0][~np.isnan(rows)], rows[~np.isnan(rows)])
    assert draws[0, 5 - start, 1] in (0, 2)  # a rounded mean of codes 0 and 1
    assert draws[0, 7 - start, 2] == 5
    assert draws[0, 6 - start, 0] in masked[:5, 0]  # left missing: an observed cell
    if start == 0:
        assert draws[0, 1, 0] == np.nanmean(masked[:5, 0])
    assert answer.notes["remarks"] == ["a remark", "cells left missing: 1"]


def test_random_intercepts_maximise_the_restricted_likelihood(seed):
    """Against the density of a multivariate normal, with the coefficients profiled."""
    rng, g = np.random.default_rng([seed, 2]), np.repeat(np.arange(15), 6)
    X = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    y = X.sum(1) + rng.normal(size=15)[g] + rng.normal(size=90)

    def restricted(group, row):
        inverse = np.linalg.inv(group * (g[:, None] == g) + row * np.eye(len(y)))
        information = X.T @ inverse @ X
        beta = np.linalg.solve(information, X.T @ inverse @ y)
        rest = y - X @ beta
        logs = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(information)[1]
        return (logs - rest @ inverse @ rest) / 2, beta, np.linalg.inv(information)

    beta, covariance, group, row = random_intercept(y, X, g)
    best, expected, spread = restricted(group, row)
    assert_allclose(beta, expected, rtol=1e-6)
    assert_allclose(covariance, spread, rtol=1e-6)
    for more in (0.97, 1.03):
        assert restricted(group * more, row)[0] <= best + 1e-9
        assert restricted(group, row * more)[0] < best


def test_chained_regressions_draw_what_scikit_learn_draws(rng_0):
    """Means and spreads of the missing cells after 4 sweeps, of 40 tables each."""
    assert chained.__defaults__ == (IterativeImputer().max_iter,)
    x = rng_0.normal(size=(150, 4)) @ rng_0.normal(size=(4, 4)) + 5
    hidden = rng_0.random(x.shape) < 0.3
    hidden[hidden.all(1)] = False
    data = Incomplete(torch.tensor(np.where(hidden, 0, x)), torch.tensor(~hidden))
    ours = np.stack(
        [chained(data, np.random.default_rng(k), 4).numpy() for k in range(40)]
    )
    theirs = [
        IterativeImputer(max_iter=4, sample_posterior=True, random_state=k, tol=0)
        for k in range(40)
    ]
    theirs = [imputer.fit_transform(np.where(hidden, np.nan, x)) for imputer in theirs]
    ours, theirs = np.stack(ours)[:, hidden], np.stack(theirs)[:, hidden]
    spread = theirs.std(0)
    apart = (ours.mean(0) - theirs.mean(0)) / spread
    assert abs(apart.mean()) < 0.05
    assert apart.std() < 0.32  # sqrt(2 / 40) of equal distributions
    assert np.log(ours.std(0) / spread).mean() == pytest.approx(0, abs=0.05)


def test_the_laplacian_discrepancy_by_hand():
    """Two pairs of points on a line, at the distance 2 that is the unit."""
    x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[2.0], [4.0]])
    e = np.exp(-1)
    within, across = (1 + e) / 2, (2 * e + e**2 + 1) / 4
    assert laplacian(x, y) == pytest.approx(2 * within - 2 * across)
    assert laplacian(y, y) == pytest.approx(0)


def test_tables_are_read_from_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SKVNCE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="some.csv.gz: set SKVNCE_DATA"):
        _data.load("some")
    (tmp_path / "some").mkdir()
    (tmp_path / "some/some.csv").write_text("a,b\n1,2\n")
    np.savez(tmp_path / "some/some.npz", x=[3.0])
    assert _data.load("some").to_numpy().tolist() == [[1, 2]]
    assert _data.load_array("some", "x").tolist() == [3.0]
