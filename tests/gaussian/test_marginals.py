"""Marginals of a Gaussian copula: exact as functions, right where the table is not."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import GATE
from scipy.stats import ks_2samp, norm
from statistical import FAILURE, p_share, standard_errors

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Parts, Rows, grouped
from skvnce._core.random import row_lattice, seeded
from skvnce.gaussian import copula, em, marginals
from skvnce.gaussian.calibration import Calibration
from skvnce.gaussian.copula import Copula, continue_marginals


def lognormal(seed, n, missing="mcar"):
    """Make a table whose second column is exp of a normal that the first predicts."""
    rng = np.random.default_rng(seed)
    scores = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=n)
    x = np.column_stack([scores[:, 0], np.exp(0.8 * scores[:, 1])])
    chance = {"mcar": np.full(n, 0.5), "mar": norm.cdf(2 * scores[:, 0])}[missing]
    X = x.copy()
    X[rng.uniform(size=n) < chance, 1] = np.nan
    return x, X


def standardised(X):
    return (X - np.nanmean(X, 0)) / np.nanstd(X, 0)


def ones(data):
    return torch.ones(len(data.x), dtype=torch.float64)


def independent(d):
    return Normal(torch.zeros(d).double(), torch.eye(d).double())


@pytest.fixture
def some(seed):
    data = Incomplete.from_array(standardised(lognormal(seed, 400)[1]))
    return marginals.start(data, ones(data))


def test_the_inverse_is_exact(some, seed):
    score = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(seed)) * 3
    score = score.double()
    x = some.inverse(score)
    back, log_slope = some.forward(x)
    torch.testing.assert_close(back, score)
    step = 1e-6
    slope = (some.forward(x + step)[0] - some.forward(x - step)[0]) / (2 * step)
    smooth = (slope - log_slope.exp()).abs() < 1e-4 * slope  # not next to a knot
    assert smooth.double().mean() > 0.99


def test_the_expectation_is_that_of_mapped_scores(some):
    mean = torch.linspace(-3, 3, 7).double()[:, None].expand(-1, 2)
    for std in (0.0, 0.3, 1.5):
        quantiles = torch.tensor(norm.ppf((np.arange(20_000) + 0.5) / 20_000))
        scores = mean + std * quantiles[:, None, None]
        found = some.expectation(mean, torch.full_like(mean, std))
        exact = some.inverse(scores).mean(0)
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)


def quantiles_of(margin, X, levels):
    location, scale = np.nanmean(X, 0), np.nanstd(X, 0)
    scores = torch.tensor(norm.ppf(levels))[:, None].expand(-1, 2)
    return (location + scale * margin.inverse(scores).numpy())[:, 1]


def test_cells_stay_in_their_range(some, seed):
    """The expectation is that of cells that end there, not one that is cut off."""
    low, high = (torch.tensor(ends).double() for ends in ([-3.0, -0.9], [3.5, 9.0]))
    kept = some.within(low, high)
    assert (kept.low <= some.knots[:, 1]).all()  # never inside of what was observed
    assert (kept.high >= some.knots[:, -2]).all()
    far = torch.tensor([[-50.0, -50.0], [50.0, 50.0]]).double()
    torch.testing.assert_close(kept.inverse(far), torch.stack([kept.low, kept.high]))
    quantiles = torch.tensor(norm.ppf((np.arange(20_000) + 0.5) / 20_000))
    for at in (-4.0, 0.0, 3.0, 30.0):
        mean = torch.full((1, 2), at).double()
        exact = kept.inverse(mean + 1.5 * quantiles[:, None, None]).mean(0)
        found = kept.expectation(mean, torch.full_like(mean, 1.5))
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)
        assert ((found >= kept.low) & (found <= kept.high)).all()
    assert (some.expectation(mean, mean / 20) > kept.high).all()  # negative control


@pytest.mark.parametrize("missing", ["mcar", "mar"])
def test_margins_are_those_of_all_rows(missing, seed):
    """Where large values are missing more often, observed quantiles are far off."""
    _, X = lognormal(seed, 20_000, missing)
    data = Incomplete.from_array(standardised(X))
    begin = marginals.start(data, ones(data))
    rows = Rows(data, ones(data))
    fitted, normal = marginals.fit_marginals(rows, 0.1, begin, independent(2), tol=5e-4)
    levels = np.array([0.1, 0.25, 0.5, 0.75])
    exact = np.exp(0.8 * norm.ppf(levels))
    ours = quantiles_of(fitted, X, levels)
    # at six seeds off by up to .04, a part of which is the interpolation
    np.testing.assert_allclose(ours, exact, rtol=0.1)
    if missing == "mar":  # negative control
        naive = np.nanquantile(X[:, 1], levels)
        assert (naive < 0.85 * exact).all()
    correlation = float(normal.covariance[0, 1] / normal.covariance[1, 1].sqrt())
    assert correlation == pytest.approx(0.7, abs=0.05)


def judge(data, rng, share, tol=1e-3):
    """Hide a share of the cells, and prepare the choice of marginals by them."""
    hidden = torch.tensor(rng.uniform(size=data.x.shape) < share) & data.observed
    kept = Incomplete(data.x.where(~hidden, 0.0), data.observed & ~hidden)
    effort = {"max_iter": 100, "tol": tol}
    start = independent(data.x.shape[1])
    normal = em.fit_normal(kept, ones(kept), 0.1, start, **effort).normal
    given = data, hidden, ones(data), 0.1, normal
    return partial(marginals.choose_marginals, *given, values={}, ranges=None, **effort)


def test_margins_are_taken_where_they_predict_better(seed):
    """Of skewed columns, and not of normal ones but by chance, one standard error."""
    rng, n_tables = np.random.default_rng(seed), 12

    def taken(transform):
        scores = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=1000)
        X = transform(0.7 * scores)
        X[rng.uniform(size=X.shape) < 0.3] = np.nan
        return judge(Incomplete.from_array(standardised(X)), rng, 0.2)() is not None

    kinds = np.exp, lambda x: x
    skewed, plain = (sum(taken(kind) for _ in range(n_tables)) for kind in kinds)
    assert p_share(plain, n_tables, norm.sf(1), "greater") > FAILURE
    assert p_share(skewed, n_tables, norm.sf(1), "greater") < FAILURE


def many_zeros(seed, n=4500):
    """Make columns of integers, half of them 0, and two that are their sums."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(1, 10, size=(2, n)) * (rng.uniform(size=(2, n)) < 0.5)
    c = np.round((a + b) / 2 + rng.gamma(1.0, 1.5, size=n))
    d = np.round(0.7 * a - 0.5 * b + 2 * rng.normal(size=n))
    full = np.column_stack([a, b, c, d]).astype(float)
    return np.where(rng.uniform(size=full.shape) < 0.3, np.nan, full), rng


def test_margins_are_judged_by_draws_of_repeated_values(seed):
    """Steps give straight marginals the right zeros, and draws better by 1 to 2 %."""
    X, rng = many_zeros(seed)
    data = Incomplete.from_array(standardised(X))
    values = {j: data.x[data.observed[:, j], j].unique() for j in range(4)}
    choice = judge(data, rng, 0.1, tol=5e-3)
    assert choice(values=values) is None
    assert choice(values={}) is not None


def test_margins_are_judged_where_cells_are_missing(rng, monkeypatch):
    """A line is right for the incomplete column; the complete one is skewed."""
    X = rng.exponential(size=(1000, 2))
    X[:, 1] = X[:, 0] + 0.2 * rng.normal(size=1000)
    X[X[:, 0] < np.quantile(X[:, 0], 0.3), 1] = np.nan
    choice = judge(Incomplete.from_array(standardised(X)), rng, 0.1)
    assert choice() is None
    monkeypatch.setattr(marginals, "_missing", lambda *_: torch.ones(2).double())
    assert choice() is not None


def test_columns_of_few_values_stay_straight(seed):
    x = np.random.default_rng(seed).integers(0, 2, size=(100, 2)).astype(float)
    data = Incomplete.from_array(standardised(x))
    found = marginals.start(data, ones(data))
    for part, straight in zip(found, marginals.linear(2), strict=True):
        torch.testing.assert_close(part, straight)


def test_weights_count_rows(seed):
    _, X = lognormal(seed, 60)
    data = Incomplete.from_array(standardised(X))
    count = torch.arange(60) % 3
    twice = data.take(torch.arange(60).repeat_interleave(count))

    def fitted(data, weights):
        begin = marginals.start(data, weights), independent(2)
        return marginals.fit_marginals(Rows(data, weights), 0.1, *begin, tol=5e-3)[0]

    pairs = zip(fitted(data, count.double()), fitted(twice, ones(twice)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b)


def test_the_density_of_a_copula_integrates_to_one(some):
    S = torch.tensor([[1.0, 0.5], [0.5, 2.0]]).double()
    normal = Normal(torch.tensor([0.3, -0.2]).double(), S)
    model = Copula(normal, some)
    grid = torch.linspace(-30, 60, 400_001, dtype=torch.float64)
    for column in range(2):
        x = torch.zeros(len(grid), 2).double()
        x[:, column] = grid
        observed = torch.zeros(len(grid), 2).bool()
        observed[:, column] = True
        density = copula.log_prob(model, Incomplete(x, observed)).exp()
        total = float(torch.trapezoid(density, grid))
        assert total == pytest.approx(1, abs=1e-3)


def test_draws_average_to_the_conditional_mean(some, seed):
    S = torch.tensor([[1, 0.5], [0.5, 1]]).double()
    normal = Normal(torch.zeros(2).double(), S)
    data = Incomplete.from_array(np.array([[0.7, np.nan]]))
    bounds = torch.tensor([-9.0, -0.9]).double(), torch.tensor([9.0, 1.5]).double()
    faults = []
    for model in (Copula(normal, some), Copula(normal, some, bounds)):
        torch.manual_seed(seed)
        drawn = copula.draw(model, data, 40_000)[:, 0, 1]
        std, exact = float(drawn.std()), float(drawn.mean())

        def lattice(part):
            return lambda step, x: torch.rand_like(x)

        mean = float(copula.conditional_mean(model, data, lattice)[0, 1])
        # one missing cell: the mean has no error but that of its 128 levels
        limit = GATE * std / 200 + 0.005 * std
        assert abs(mean - exact) < limit
        linear = em.conditional_mean(normal, model.scores(data)[0])
        naive = float(some.inverse(linear)[0, 1])
        faults.append(abs(naive - exact) / limit)
    assert max(faults) > 1  # negative control; marginals may be nearly linear there


def test_an_extreme_cell_counts_as_an_extreme_normal_score(some):
    """Fills follow it as far as four standard deviations, and densities further."""
    S = torch.tensor([[1, 0.9], [0.9, 1]]).double()
    normal = Normal(torch.zeros(2).double(), S)
    model = Copula(normal, some)
    far = some.inverse(torch.tensor([[0.0, 4.0], [0.0, 40.0]]).double())
    seen = torch.tensor([[False, True]]).expand(2, -1)
    data = Incomplete(far.where(seen, 0.0), seen)
    filled = copula.conditional_mean(model, data, None)[:, 0]
    torch.testing.assert_close(filled[1], filled[0])
    assert copula.log_prob(model, data)[1] < copula.log_prob(model, data)[0] - 100
    straight = Copula(normal, marginals.linear(2))
    free = copula.conditional_mean(straight, straight.scores(data)[0], None)[:, 0]
    assert free[1] > free[0] + 1  # negative control


# Predictions of single cells through marginals and bounds


CORRELATION = torch.tensor([[1, 0.6, 0.3], [0.6, 1, 0.2], [0.3, 0.2, 1]]).double()


def lattice(rows):
    return row_lattice(rows.to_array(), 0)


def skewed_marginals():
    lines = marginals.linear(3)
    knots = lines.knots[:, 1:-1].clone()
    knots[0] = torch.exp(knots[0] / 2)
    return marginals.with_tails(knots, lines.scores[:, 1:-1])


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("ends", [(0.3, 3.0), (0.2, np.inf), (-np.inf, 2.8), None])
def test_one_missing_cell_is_predicted_alike(bent, ends, seed):
    """With one missing cell in a row the mean of the row is exact, too."""
    x = np.random.default_rng(seed).normal(scale=1.5, size=(100, 3))
    x[:, 0] = np.nan
    data = Incomplete.from_array(x)
    others = -np.inf, np.inf
    bounds = ends and tuple(torch.tensor([ends[k], *[others[k]] * 2]) for k in (0, 1))
    lines = skewed_marginals() if bent else None
    if bent and ends:
        lines = lines.within(*bounds)
    model = Copula(Normal(torch.zeros(3).double(), CORRELATION), lines, bounds)
    found = copula.cell_means(model, data)[:, 0]
    expected = copula.conditional_mean(model, data, lattice)[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    free = copula.cell_means(model._replace(bounds=None, marginals=None), data)[:, 0]
    if bent or ends:
        assert float((free - expected).abs().max()) > 0.01  # control


@pytest.mark.parametrize("lines", [None, skewed_marginals()])
def test_bounds_truncate_calibrated_cells(lines, seed):
    """As those calibrated draws without bounds that lie within them."""
    z = torch.special.ndtri((torch.arange(17).double() + 0.5) / 17)
    centres = torch.linspace(-2, 2, 17).double()
    shifts = 0.3 * centres[:, None] ** 2 + 0.4 * z
    columns = torch.tensor([0, 1])
    learnt = Calibration(columns, centres.expand(2, -1), shifts.expand(2, -1, -1))
    low = torch.tensor([0.9, -0.2, -torch.inf]).double()
    high = torch.tensor([torch.inf, 1.0, torch.inf]).double()
    normal = Normal(torch.zeros(3).double(), CORRELATION)
    model = Copula(normal, lines, (low, high), calibration=learnt)
    data = Incomplete.from_array(np.array([[np.nan, np.nan, 1.1]]))
    torch.manual_seed(seed)
    inside = copula.draw(model, data, 4000)[:, 0, :2]
    free = copula.draw(model._replace(bounds=None), data, 40_000)[:, 0, :2]
    kept = free[((free >= low[:2]) & (free <= high[:2])).all(1)]
    assert 2000 < len(kept) < 30_000
    p = [ks_2samp(inside[:, j], kept[:, j]).pvalue for j in (0, 1)]
    assert 2 * min(p) > FAILURE
    plain = copula.draw(model._replace(calibration=None), data, 4000)[:, 0, :2]
    assert ks_2samp(plain[:, 0], kept[:, 0]).pvalue < FAILURE  # control
    mean = copula.conditional_mean(model, data, lattice)[0, :2]
    std = kept.std(0)
    chance = standard_errors(2) * std / len(kept) ** 0.5
    assert ((mean - kept.mean(0)).abs() < 0.05 * std + chance).all()
    plain = copula.conditional_mean(model._replace(calibration=None), data, lattice)
    assert ((plain[0, :2] - mean).abs() > 0.1 * std).any()  # control


# Steps to observed values: predictions and frequencies, against independent ways


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


def test_steps_solve_the_equation_of_frequencies(rng):
    """Eq. (1), its left side by exact normal probabilities; rare values, too.

    Twelve levels stand for each prediction: they miss less than a fifth of the share
    of a value that one row in 70 has, over 2000 predictions that differ.
    """
    n, correlation = 2000, 0.6
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


def test_edges_are_the_least_scores_of_their_shares(rng):
    """Of equal predictions twelve levels are all scores: 14 cuts, two of them ties."""
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


def test_steps_weights_count_rows(seed):
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


# Marginals that are continued with all rows against those fitted to all rows


N, D = 1500, 3


@pytest.fixture
def data(rng):
    """Make a table of which the first column is skewed, and the third rounded."""
    X = rng.normal(size=(N, 1)) + rng.normal(size=(N, D))
    X[:, 0], X[:, 2] = np.exp(X[:, 0] / 2), np.round(X[:, 2])
    X[rng.random(X.shape) < 0.3] = np.nan
    return Incomplete.from_array((X - np.nanmean(X, 0)) / np.nanstd(X, 0))


def rows_of(data, some=slice(None)):
    part = data.take(some)
    return Rows(part, torch.linspace(0.5, 1.5, N).double()[some])


def begin(data):
    """Fit to some of the rows."""
    few = rows_of(data, slice(300))
    lines = marginals.start(few.data, few.weights)
    normal = Normal(torch.zeros(D).double(), torch.eye(D).double())
    return marginals.fit_marginals(few, 0.3, lines, normal, tol=1e-2)


def in_parts(data):
    def reduce(of, merge):
        one, *others = (of(rows_of(data, s)) for s in (slice(400), slice(400, N)))
        return merge(one, *others)

    return Parts(reduce, rows_of(data).total)


def test_it_ends_where_a_fit_to_all_rows_ends(data):
    lines, normal = begin(data)
    whole = rows_of(data)
    wanted = marginals.fit_marginals(whole, 0.3, lines, normal, tol=1e-9)
    for table in (whole, in_parts(data)):
        found = continue_marginals(table, 0.3, lines, normal, tol=1e-9)
        torch.testing.assert_close(found[0].scores, wanted[0].scores, atol=1e-6, rtol=0)
        torch.testing.assert_close(found[1].mean, wanted[1].mean, atol=1e-4, rtol=0)
    assert (lines.scores - wanted[0].scores).abs().max() > 0.01  # negative control


def test_scores_by_ramps_are_those_by_pieces(data):
    lines, _ = begin(data)
    found = marginals.scores_of(lines, data).x
    torch.testing.assert_close(found, marginals.scored(lines, data)[0].x)
    assert (found - data.x).abs().max() > 0.1  # negative control


def test_shares_below_knots(data):
    """By definition, and the missing cells by the moments of each row."""
    lines, normal = begin(data)
    knots, inner = lines.knots[:, 1:-1].clone(), lines.scores[:, 1:-1]
    knots[2, 4] = data.x[data.observed[:, 2], 2][0]  # upon cells
    rows = rows_of(data)
    seen = (data.observed * rows.weights[:, None])[:, :, None]
    below = (data.x[:, :, None] < knots) + 0.5 * (data.x[:, :, None] == knots)
    found = marginals.observed_below(knots, rows)
    torch.testing.assert_close(found, (seen * below).sum(0))
    mean, deviation = em.conditional_moments(normal, data)
    lost = (~data.observed * rows.weights[:, None])[:, :, None]
    t = (inner - mean[:, :, None]) / deviation.clamp(min=em.LEAST_DEVIATION)[:, :, None]
    wanted = (lost * torch.special.ndtr(t)).sum(0)
    torch.testing.assert_close(marginals.expected_below(inner, normal, rows), wanted)
    assert {group.by_observed for group in grouped(*data)} == {True, False}
