"""What estimators announce of tables that are beyond their model."""

import numpy as np
import pandas as pd
import pytest
from graph_simulation import simulate
from tables import misfits

from skvnce import TruncatedGaussianGraphLearner, TruncatedGaussianGraphLearnerCV
from skvnce._core.incomplete import Incomplete
from skvnce._imputer import held_out as misfit
from skvnce._imputer.held_out import compare_errors, some_rows
from skvnce._tables.findings import heavy_tailed
from skvnce.graphs.estimator import wide_columns


def fits_well(seed, n=300):
    """Positive columns that share a factor, far from zero."""
    rng = np.random.default_rng(seed)
    X = 6 + rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 4))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    return pd.DataFrame(X, columns=list("abcd"))


def fits_badly(seed, n=300):
    """A skewed column of large values that rise with another one."""
    frame = fits_well(seed, n)
    rng = np.random.default_rng(seed + 1)
    frame["skewed"] = np.exp(0.5 * (frame["a"].fillna(6) - 6)) * rng.gamma(1.0, size=n)
    frame.loc[rng.uniform(size=n) < 0.1, "skewed"] = np.nan
    return frame


def test_judge_by_hand():
    nodes = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0], [7.0, 9.0]])
    hidden = np.array([[1, 1], [0, 0], [1, 1], [0, 0]], dtype=bool)
    filled = np.array([[2.0, 99.0], [3.0, 5.0], [5.0, 5.0], [7.0, 9.0]])
    mean, scale = np.array([5.0, 9.0]), np.array([1.0, 2.0])
    # squared errors of the model 1 + 0 and (97^2 + 1) / 4, of the means 16 and 58 / 4
    gain, marginal = compare_errors(nodes, hidden, filled, mean, scale)
    # two cells: a ratio of 162 is above 1 + 10 / sqrt(2)
    assert gain == pytest.approx(1 - (1 + 9410 / 4) / (16 + 58 / 4))
    assert marginal.tolist() == [False, True]
    lost = np.where(hidden, np.nan, 0.0)
    assert compare_errors(nodes, hidden, lost, mean, scale)[0] == -np.inf
    gain, marginal = misfit.held_out_result(nodes, print, np.ones(4), hidden & False)
    assert np.isnan(gain) and not marginal.any()


@pytest.mark.parametrize("worst", [3.0, np.inf])
def test_columns_are_judged_together(worst, rng_0):
    """A column that is 20 % worse, which alone may be chance, beside a bad one."""
    nodes = rng_0.normal(size=(100, 6))
    errors = rng_0.permuted(nodes, axis=0)

    def marginal(*ratios):  # of squared errors, over those of the means
        filled = nodes + errors * np.sqrt(ratios)
        hidden = np.ones_like(nodes, dtype=bool)
        found = compare_errors(nodes, hidden, filled, np.zeros(6), np.ones(6))
        return found.marginal.tolist()

    assert marginal(worst, 1.2, 0.5, 0.9, 0.9, 0.9) == [True, True] + [False] * 4
    assert marginal(worst, 1.2, 0.1, 0.1, 0.1, 0.1) == [True] + [False] * 5
    assert marginal(0.9, 1.2, 0.5, 0.9, 0.9, 0.9) == [False] * 6


def test_chance_is_not_announced(rng_0):
    """A model that adds noise to the means: 3 standard errors of 400 tables."""
    alarms = 0
    for _ in range(400):
        nodes, hidden = rng_0.normal(size=(200, 1)), rng_0.uniform(size=(200, 1)) < 0.1
        noise = 0.1 * rng_0.normal(size=(200, 1))
        found = compare_errors(nodes, hidden, noise, np.zeros(1), np.ones(1))
        alarms += found.marginal[0]
    assert alarms <= 8  # 2 %, of which 1 % is the price of the noise
    wrong = compare_errors(nodes, hidden, nodes + 5.0, np.zeros(1), np.ones(1))
    assert wrong.marginal[0] and wrong.gain < -10


def evaluated(errors, means):
    """Evaluate one column by distances of a model and of the means from the truth."""
    errors, means = np.transpose([errors]), np.transpose([means])
    hidden = np.ones_like(means, dtype=bool)
    return compare_errors(means, hidden, means + errors, np.zeros(1), np.ones(1))


@pytest.mark.parametrize(
    ("k", "d", "errors"), [(16, 2, 2.9), (18, 2, 3.2), (19, 50, 3.4), (21, 50, 3.7)]
)
def test_how_many_standard_errors_are_beyond_chance(k, d, errors):
    """Squared errors of k of 100 cells are 3 times, of the others 1 time the means'.

    The excess is 3 - 1.1 = 1.9, and -0.1.  Three standard errors are beyond chance, and
    3.54 of 50 columns (1 % / 50).  The other columns are predicted exactly.
    """
    square = np.where(np.arange(100) < k, 3.0, 1.0)
    excess = square - 1.1
    found = excess.sum() / np.sqrt(np.square(excess).sum())
    assert found == pytest.approx(errors, abs=0.07)
    nodes = np.ones((100, d))
    filled = nodes + np.sqrt(square)[:, None] * (np.arange(d) == 0)
    hidden = np.ones_like(nodes, dtype=bool)
    marginal = compare_errors(nodes, hidden, filled, np.zeros(d), np.ones(d)).marginal
    assert marginal[0] == (errors in (3.2, 3.7)) and not marginal[1:].any()


def test_large_errors_do_not_hide_that_the_others_are_worse():
    """Sixty errors of 2 instead of 1; one of 80 instead of 78, and one of 70 or 90."""
    means = np.concatenate([np.ones(60), [78.0, 78.0]])
    wrong = np.concatenate([np.full(60, 2.0), [80.0, 79.0]])
    assert evaluated(wrong, means).marginal.all()
    wrong[-1] = 70.0  # better, by squared errors
    assert not evaluated(wrong, means).marginal.any()
    wrong[-1] = 77.0  # slightly worse: 240 + 6400 + 5929 to 60 + 2 * 6084
    assert evaluated(wrong, means).marginal.all()
    even = np.concatenate([np.ones(60), [80.0, 79.0]])
    assert not evaluated(even, means).marginal.any()  # worse, but not beyond chance


def test_heavy_tails_are_judged_by_normal_scores(rng):
    """By logarithms a model is good, or useless; squared errors show one cell alone."""
    logs, other = rng.normal(size=(2, 400))
    nodes = np.column_stack([np.exp(2.5 * logs), other])
    hidden = rng.uniform(size=nodes.shape) < 0.25
    largest = np.where(hidden[:, 0], logs, -np.inf).argmax()
    unit = nodes[largest, 0]

    def is_marginal(logs, error):
        filled = np.column_stack([np.exp(2.5 * logs), other])
        filled[largest, 0] = unit * (1 + error)
        given = lambda _, rows: (filled[rows], {}), np.ones(400), hidden
        return bool(misfit.held_out_result(nodes, *given).marginal[0])

    assert heavy_tailed(nodes, [0, 1]).tolist() == [0]
    near, useless = logs + 0.2 * rng.normal(size=400), rng.permutation(logs)
    assert not is_marginal(near, error=1.1)  # squares are above those of the mean
    useless = np.minimum(useless, np.quantile(logs, 0.9))
    assert is_marginal(useless, error=0.0)  # and are below them


def test_heavy_tails_are_looked_for(rng):
    """Fills that are a little worse than the means: only a heavy tail shows them."""
    nodes = rng.normal(size=(400, 2))
    nodes[:8, 1] *= 1e6
    hidden = rng.uniform(size=nodes.shape) < 0.2
    hidden[:8] = False

    def worse(kept, rows):
        return nodes[rows] + 1.001 * (np.nanmean(kept, 0) - nodes[rows]), {}

    _, marginal = misfit.held_out_result(nodes, worse, np.ones(400), hidden)
    assert marginal.tolist() == [False, True]


def test_losses_of_levels_by_hand():
    """Half a row is added to each level, so that none has an infinite loss."""
    codes, kept = np.array([0.0, 2.0, 1.0]), np.array([0.0, 1.0, np.nan, 0.0])
    probabilities = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0]])
    weights = np.array([3.0, 2.0, 9.0, 1.0])
    own, shares = misfit._level_losses(codes, probabilities, kept, weights)
    np.testing.assert_allclose(own, -np.log([0.5, 0.8, 1.0]))
    np.testing.assert_allclose(shares, -np.log(np.array([4.5, 0.5, 2.5]) / 7.5))


def test_a_level_that_only_held_out_cells_have_hides_no_misfit(rng):
    """A model that is surely wrong, where one held-out cell is alone in its level."""
    nodes = rng.integers(0, 2, size=(200, 1)).astype(float)
    hidden = np.arange(200)[:, None] < 60
    nodes[0] = 2.0

    def wrong(kept, rows):
        codes = nodes[rows, 0].astype(int)
        return kept[rows], {0: np.eye(3)[(codes + 1) % 3]}

    _, marginal = misfit.held_out_result(nodes, wrong, np.ones(200), hidden)
    assert marginal.tolist() == [True]


def test_errors_are_clipped_by_weights_as_by_rows(rng):
    own, means = rng.exponential(size=(2, 40, 3)) * [[[100.0]], [[1.0]]]
    hidden, weights = rng.uniform(size=(40, 3)) < 0.5, rng.integers(1, 5, size=40)
    hidden[:, 0] = True
    weights[means[:, 0] > np.median(means[:, 0])] += 10  # the median is one of these
    rows = np.repeat(np.arange(40), weights)
    parts = own, means, hidden
    repeated = [part[rows] for part in parts]
    found = misfit._clipped(*parts, weights)
    expected = misfit._clipped(*repeated, np.ones(len(rows)))
    np.testing.assert_array_equal(found[0][rows], expected[0])
    np.testing.assert_array_equal(found[1][rows], expected[1])
    plain = misfit._clipped(*parts, np.ones(40))  # control: weights do count
    assert (plain[0] != found[0]).any()


def test_columns_count_alike(rng_0):
    """In units of their standard deviations, whatever their largest cell is."""
    nodes = rng_0.normal(size=(400, 2)) + [0.0, 50.0]  # unequal after the division

    def predict(kept, rows):
        filled = np.broadcast_to(np.nanmean(kept, 0), (len(rows), 2)).copy()
        filled[:, 0] = nodes[rows, 0]  # exactly
        return filled, {}

    hidden = rng_0.uniform(size=nodes.shape) < 0.2
    gain, _ = misfit.held_out_result(nodes, predict, np.ones(400), hidden)
    # of two sums of about 80 squares of normals: a standard error of 0.056
    assert abs(gain - 0.5) < 5 * 0.056


def test_about_a_thousand_rows_are_judged(seed):
    nodes = np.random.default_rng(seed).normal(size=(3000, 2))
    places = np.arange(0, 3000, 2)
    chosen = some_rows(nodes, places)
    assert len(chosen) == 1000 and np.isin(chosen, places).all()
    assert some_rows(nodes, places[:1000]).tolist() == places[:1000].tolist()
    backwards = some_rows(nodes[::-1], 2999 - places[::-1])
    assert set(2999 - backwards) == set(chosen)  # of their content, not their order
    nodes[1::2] = nodes[::2]  # each twice: both, or none
    assert len(some_rows(nodes, np.arange(3000))) == 2000


def test_a_table_that_fits_is_not_announced(seed):
    learner = TruncatedGaussianGraphLearner(random_state=seed)
    assert misfits(learner, fits_well(seed)) == []
    # exact for a normal: 1 - R^2 of a column given three others is 0.296
    assert 0.45 < learner.held_out_gain_ < 0.9 and not learner.marginal_columns_.any()


def test_columns_beyond_the_model_are_named(seed):
    learner = TruncatedGaussianGraphLearner(random_state=seed)
    first, *_ = misfits(learner, fits_badly(seed))
    assert "The standard deviation of column 'skewed' exceeds 0.9" in first
    assert "of this column" in first and "or use CopulaGraphLearner" in first
    learner.set_params(on_misfit="raise")
    before = dict(vars(learner))
    with pytest.raises(ValueError, match="deviation of column 'skewed' exceeds 0.9"):
        learner.fit(fits_badly(seed))
    assert vars(learner) == before
    learner.set_params(on_misfit="ignore")
    assert misfits(learner, fits_badly(seed)) == []
    assert np.isnan(learner.held_out_gain_) and not learner.marginal_columns_.any()


def test_a_table_of_the_papers_is_not_beyond_the_model():
    """Half-normal columns have 0.76, and these up to 0.85; the limit was 0.82."""
    X = simulate("ring", 0).X
    assert (X.std(0) / X.mean(0)).max() > 0.84
    assert not len(wide_columns(Incomplete.from_array(X)))
    X[:, 4] = np.random.default_rng(0).exponential(size=len(X))
    assert wide_columns(Incomplete.from_array(X)).tolist() == [4]


def test_the_path_announces_too(seed):
    learner = TruncatedGaussianGraphLearnerCV(alphas=3, random_state=seed)
    X = fits_badly(seed)
    X["other"] = X["skewed"].sample(frac=1, random_state=seed).to_numpy()
    (text, *_) = misfits(learner, X)
    assert "of column 'skewed', column 'other' exceeds" in text
    assert "of these columns" in text and "or use CopulaGraphLearner" in text


def test_columns_without_a_gain_have_their_values(seed, monkeypatch):
    """A model that predicts nonsense is not used, whatever it is."""
    from skvnce.graphs.problem import Problem

    X = fits_well(seed)

    def nonsense(problem, data, theta, alpha, n_rounds):
        return theta._replace(linear=theta.linear + 50 * (theta.linear < 1e9)), None

    monkeypatch.setattr(Problem, "continue_fit", nonsense)
    learner = TruncatedGaussianGraphLearner(random_state=seed)
    (text,) = misfits(learner, X)
    assert "predicted worse than by their means" in text and learner.held_out_gain_ < 0
    assert learner.marginal_columns_.all()
    filled = learner.transform(X)[X.isna().to_numpy()]
    expected = np.broadcast_to(X.mean(), X.shape)[X.isna().to_numpy()]
    np.testing.assert_allclose(filled, expected)
    draws = learner.sample(X, 5, random_state=seed, as_array=True)
    for j, name in enumerate(X):
        assert np.isin(draws[..., j], X[name].dropna()).all()
