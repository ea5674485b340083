import mixed_methods as methods
import mixed_scores as scores
import mixed_tables as tables
import numpy as np
import pytest
from mixed_scores import Answer
from statistical import within_standard_errors

from skvnce import metrics

KINDS, LEVELS = ["numeric", "nominal", "ordinal"], [None, list("abc"), list("xy")]


def table(seed, n=200):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return np.column_stack([z, np.digitize(z, [-0.5, 0.5]), z > 0.2]).astype(float)


def case(seed=0):
    x, rng = table(seed), np.random.default_rng(seed)
    masked = np.where(tables.hidden_cells(x, "MCAR", rng), np.nan, x)
    return tables.Case(
        KINDS, LEVELS, list("pqr"), (x[:140], x[140:]), (masked[:140], masked[140:])
    )


@pytest.mark.parametrize("mechanism", tables.MECHANISMS)
def test_three_of_ten_cells_are_hidden(mechanism, seed):
    x = np.repeat(table(seed, 3000), 2, 1)
    hidden = tables.hidden_cells(x, mechanism, np.random.default_rng(seed))
    shares = hidden.mean(0)
    open_columns = shares > 0
    assert open_columns.sum() == (6 if mechanism == "MCAR" else 4)
    error = np.sqrt(0.3 * 0.7 / 3000)
    assert within_standard_errors(shares[open_columns], 0.3, error)


def test_methods_do_not_see_hidden_cells():
    """A method that is given other true values in the hidden cells answers equally."""
    one = case()
    full = tuple(
        np.where(np.isnan(m), 1 - (x > 0), x)
        for m, x in zip(one.masked, one.full, strict=True)
    )
    other = one._replace(full=full)
    for method in (methods.marginal, methods.iterative):
        first, second = method(one, 0), method(other, 0)
        assert np.array_equal(first.points, second.points)
        assert np.array_equal(first.draws, second.draws)
    leaky = np.nan_to_num(one.full[1]), np.nan_to_num(other.full[1])
    assert not np.array_equal(*leaky)


def test_scores_of_the_truth_and_of_its_opposite():
    one = case()
    truth = one.full[1]
    sure = {j: np.eye(len(LEVELS[j]))[truth[:, j].astype(int)] for j in (1, 2)}
    right = scores.score(one, Answer(truth, sure, np.repeat(truth[None], 20, 0)))
    assert right["pfc"] == right["rmse"] == 0 and abs(right["crps"]) < 1e-12
    assert right["brier"] < 1e-3  # of the floor of probabilities
    assert right["coverage"] == 1 and right["auc"] <= 0.5
    wrong = truth.copy()
    wrong[:, 1], wrong[:, 2] = (truth[:, 1] + 1) % 3, 1 - truth[:, 2]
    wrong[:, 0] += 3
    mistaken = {j: np.roll(p, 1, 1) for j, p in sure.items()}
    found = scores.score(one, Answer(wrong, mistaken, np.repeat(wrong[None], 20, 0)))
    assert found["pfc"] == 1 and found["brier"] > 1.8 and found["coverage"] == 0
    assert found["ece"] > 0.9 and found["auc"] > 0.6


def test_crps_is_that_of_the_package():
    rng = np.random.default_rng(0)
    x, draws = rng.normal(size=30), rng.normal(size=(20, 30))
    hidden = np.ones((30, 1), dtype=bool)
    own = metrics.crps(x[:, None], draws[..., None], hidden)
    assert scores.crps(x, draws) == pytest.approx(own, rel=1e-9)


def test_our_method_answers_in_codes():
    one = case()
    answer = methods.gaussian(one, 0)
    hidden = one.hidden
    assert np.isin(answer.draws[:, hidden[:, 1], 1], [0, 1, 2]).all()
    assert np.allclose(answer.probabilities[1].sum(1), 1)
    found, base = (scores.score(one, a) for a in (answer, methods.marginal(one, 0)))
    assert found["log_loss"] < base["log_loss"] and found["crps"] < base["crps"]
