"""Steps to observed values: predictions and frequencies, against independent ways."""

import numpy as np
import pytest
import torch
from oracles import GATE
from scipy.stats import norm

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import seeded
from skvnce.gaussian import copula, em, marginals
from skvnce.gaussian.copula import Copula

COVARIANCE = np.array([[1.0, 0.7, 0.5], [0.7, 1.0, 0.6], [0.5, 0.6, 1.0]])
NORMAL = Normal(torch.tensor([0.3, -0.2, 0.0]).double(), torch.tensor(COVARIANCE))


def incomplete(seed, n=40):
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(NORMAL.mean.numpy(), COVARIANCE, size=n)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    return Incomplete.from_array(X)


def test_cells_are_predicted_by_the_others_of_their_row(seed):
    data = incomplete(seed)
    columns = torch.tensor([0, 2])
    mean, std = marginals.left_out_moments(NORMAL, data, columns)
    for k, j in enumerate(columns.tolist()):
        rest = Incomplete(data.x.clone(), data.observed.clone())
        rest.observed[:, j] = False
        rest.x[:, j] = 0.0
        exact = em.conditional_moments(NORMAL, rest)
        seen = data.observed[:, j]
        torch.testing.assert_close(mean[seen, k], exact[0][seen, j])
        torch.testing.assert_close(std[seen, k], exact[1][seen, j])


def binary_table(seed, n, share):
    """Make scores and a two-valued column of them with a share of ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    ones = 0.8 * x + 0.6 * rng.normal(size=n) > norm.ppf(1 - share)
    return np.column_stack([x, ones.astype(float)])


@pytest.mark.parametrize("share", [0.03, 0.2, 0.5])
def test_draws_have_the_observed_frequencies(share, seed):
    n, d = 4000, 2
    X = binary_table(seed, n, share)
    data = Incomplete.from_array(X)
    ones = torch.ones(n).double()
    start = Normal(torch.zeros(d).double(), torch.eye(d).double())
    effort = {"max_iter": 50, "tol": 1e-6}
    normal = em.fit_normal(data, ones, 0.1, start, **effort).normal
    values = {1: torch.tensor([0.0, 1.0]).double()}
    found = marginals.fit_steps(normal, data, data.x, ones, values)
    hidden = data.observed.clone()
    hidden[:, 1] = False
    rows = Incomplete(data.x.where(hidden, 0.0), hidden)
    with seeded(seed):
        drawn = copula.draw(Copula(normal, steps=found), rows, 50)[..., 1].numpy()
        plain = copula.draw(Copula(normal), rows, 50)[..., 1].numpy()
    assert set(np.unique(drawn)) == {0.0, 1.0}
    error = np.sqrt(share * (1 - share) / n)  # of the observed share
    assert abs(drawn.mean() - X[:, 1].mean()) < GATE * error + 0.01 * share
    if share == 0.03:  # negative control: the nearest value is too seldom a one
        assert abs((plain > 0.5).mean() - X[:, 1].mean()) > GATE * error
    # ones are drawn where they are likely
    above = X[:, 0] > 0
    assert drawn[:, above].mean() > 1.5 * drawn[:, ~above].mean()


def test_steps_solve_the_equation_of_frequencies(seed):
    """Eq. (1), its left side by exact normal probabilities; rare values, too.

    Twelve levels stand for each prediction: they miss less than a fifth of the share
    of a value that one row in 70 has, over 2000 predictions that differ.
    """
    n, correlation = 2000, 0.6
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(2, n))
    std = np.sqrt(1 - correlation**2)
    cuts = norm.ppf([1 / 70, 0.1, 0.5, 0.9, 69 / 70])
    places = np.searchsorted(cuts, correlation * x + std * noise)
    values = torch.tensor([-3.0, 0.0, 1.0, 1.5, 9.0, 10.0]).double()
    data = Incomplete.from_array(np.column_stack([x, values.numpy()[places]]))
    weights = torch.from_numpy(rng.integers(1, 4, size=n)).double()
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]]).double()
    normal = Normal(torch.zeros(2).double(), covariance)
    found = marginals.fit_steps(normal, data, data.x, weights, {1: values})

    edges, share = found.edges[0].numpy(), weights.numpy() / weights.sum().item()
    predicted = share @ norm.cdf((edges - correlation * x[:, None]) / std)
    observed = share @ (places[:, None] <= np.arange(5))
    rarer = np.minimum(observed, 1 - observed)
    assert (abs(predicted - observed) < rarer / 5).all()


def test_edges_are_the_least_scores_of_their_shares(seed):
    """Of equal predictions twelve levels are all scores: 14 cuts, two of them ties."""
    rng = np.random.default_rng(seed)
    mean, deviation = torch.zeros(3).double(), torch.ones(3).double()
    counts = torch.tensor(rng.integers(1, 9, size=7)).double()
    counts = torch.cat([counts, counts.flip(0)])  # half of them are below the middle
    edges = marginals._edges(mean, deviation, torch.ones(3).double(), counts)

    t = (np.arange(12) + 0.5) / 12
    scores, below = norm.ppf(t**2 * (3 - 2 * t)), np.cumsum(t * (1 - t))
    below /= below[-1]
    shares = np.cumsum(counts.numpy())[:-1] / counts.sum().item()
    expected = [scores[below > share - 1e-6][0] for share in shares]
    np.testing.assert_allclose(edges, expected, atol=1e-9)
    assert edges[6] == pytest.approx(scores[5])  # half of the weight, and no more


def test_weights_count_rows(seed):
    data = incomplete(seed, 60)
    data = Incomplete(data.x.round(), data.observed)
    values = {1: data.x[data.observed[:, 1], 1].unique()}
    count = torch.arange(60) % 3
    twice = data.take(torch.arange(60).repeat_interleave(count))
    one = marginals.fit_steps(NORMAL, data, data.x, count.double(), values)
    ones = torch.ones(len(twice.x)).double()
    other = marginals.fit_steps(NORMAL, twice, twice.x, ones, values)
    torch.testing.assert_close(one.edges, other.edges)


def test_columns_of_other_numbers_of_values(seed):
    """The table of values is as wide as the longest; no column takes another's."""
    data = incomplete(seed, 200)
    x = data.x.clone()
    x[:, 0] = (x[:, 0] > 0).double()
    x[:, 2] = x[:, 2].round()
    x = x.where(data.observed, 0.0)
    data = Incomplete(x, data.observed)
    values = {j: x[data.observed[:, j], j].unique() for j in (0, 2)}
    found = marginals.fit_steps(NORMAL, data, x, torch.ones(200).double(), values)
    scores = torch.linspace(-9, 9, 999).double()[:, None].expand(-1, 3)
    cells = found.put(scores, scores.clone())
    assert torch.equal(cells[:, 1], scores[:, 1])
    for j, known in values.items():
        assert torch.equal(cells[:, j].unique(), known)
        assert (cells[:, j].diff() >= 0).all()
