"""Posteriors of missing cells against dense Gaussian algebra and enumeration."""

import copy
from itertools import product

import pytest
import torch
from oracles import GATE, all_patterns, shaken, z_mean
from torch import nn
from torch.distributions import Bernoulli, MultivariateNormal

from skvnce._core.distributions.normal import Normal
from skvnce._core.models import repeated
from skvnce._core.random import global_stream, stream
from skvnce.contrast import objective, posteriors

D = 4
REAL = torch.zeros(D).bool()
MIXED = torch.tensor([False, True, False, True])
KINDS = pytest.mark.parametrize("positive", [REAL, MIXED], ids=["real", "mixed"])


@pytest.fixture
def make(torch_seeded):
    root = torch.randn(D, D).double()
    initial = Normal(torch.randn(D).double(), root @ root.T / 4 + 0.3 * torch.eye(D))
    return lambda *columns: shaken(posteriors.NormalCells(initial, *columns))


@pytest.fixture
def observed():
    return all_patterns(D)


def table(observed, positive, *shape):
    x = torch.randn(*shape, *observed.shape).double()
    return torch.where(positive, x.exp(), x)


def dense(normal, w, o):
    """Condition one row by the textbook formula."""
    mean, S = normal
    m = ~o
    gain = torch.linalg.solve(S[o][:, o], S[o][:, m]).T
    return mean[m] + gain @ (w[o] - mean[o]), S[m][:, m] - gain @ S[o][:, m]


def bases(step, template):
    """Give uniform numbers of standard normal ones: zeros, and unit vectors."""
    eps = torch.cat([torch.zeros(1, D), torch.eye(D)]).to(template)
    return torch.special.ndtr(eps)[:, None].expand_as(template)


@KINDS
def test_draws_have_the_conditional_mean_and_covariance(make, observed, positive):
    """Exactly: the map from standard normal numbers to the logarithms is affine."""
    cells, x = make(positive), table(observed, positive)
    with torch.no_grad():
        (drawn,) = cells(repeated(x, D + 1), observed, bases).values
    w = posteriors.normal_scale(drawn, positive)
    for i, o in enumerate(observed):
        assert (drawn[:, i, o] == x[i, o]).all()
        mean, covariance = dense(cells.free.normal(), w[0, i], o)
        torch.testing.assert_close(w[0, i, ~o], mean)
        roots = (w[1:] - w[0])[:, i, ~o]
        torch.testing.assert_close(roots.T @ roots, covariance)


@KINDS
def test_log_prob_is_that_of_the_conditional(make, observed, positive):
    cells, x = make(positive), table(observed, positive)
    with torch.no_grad():
        draws = cells(repeated(x, 3), observed, stream(0))
    (drawn,) = draws.values
    assert draws.log_score is None
    assert (drawn[..., positive] > 0).all()
    for i, o in enumerate(observed):
        w, m = posteriors.normal_scale(drawn[:, i], positive), ~o
        expected = -w[:, m & positive].sum(-1)  # d log x / d x
        if m.any():
            q = MultivariateNormal(*dense(cells.free.normal(), w[0], o))
            expected = expected + q.log_prob(w[:, m])
        torch.testing.assert_close(draws.log_prob[:, i], expected)


def network(n_outputs, width=D):
    zeros, ones = torch.zeros(width).double(), torch.ones(width).double()
    return shaken(posteriors.Perceptron(zeros, ones, [5], n_outputs).double(), 0.6)


def test_a_perceptron_sees_standardised_rows_and_their_masks(observed, torch_seeded):
    x = table(observed, REAL, 2)
    mean, scale = torch.randn(2, D).double()
    net = shaken(posteriors.Perceptron(mean, scale.exp(), [], 3).double())
    (layer,) = net.layers
    seen = torch.where(observed, (x - mean) / scale.exp(), 0.0)
    both = torch.cat([seen, observed.double().expand(2, -1, -1)], -1)
    result = net(x.masked_fill(~observed, torch.nan), observed)
    torch.testing.assert_close(result, both @ layer.weight.T + layer.bias)


def test_binary_cells_draw_their_columns_alone(observed, torch_seeded):
    x, binary = (torch.rand(2**D, D) < 0.5).double(), torch.tensor([1, 1, 1, 0]).bool()
    cells = posteriors.BinaryCells(network(D), binary)
    draws = cells(repeated(x, 3), observed, stream(0))
    (drawn,) = draws.values
    own = ~observed & binary
    assert ((drawn == 0) | (drawn == 1))[:, own].all()
    assert (drawn == x)[:, ~own].all()
    q = Bernoulli(logits=cells.network(x, observed))
    by_hand = q.log_prob(drawn).where(own, 0.0).sum(-1)
    torch.testing.assert_close(draws.log_prob, by_hand)
    assert (draws.log_score == draws.log_prob).all()
    rows = ~own.any(1)
    same = repeated(x[rows], 3)
    assert cells(same, observed[rows], stream(0)) is same


def test_normal_cells_are_drawn_given_binary_ones(make, observed):
    binary = torch.tensor([True, False, True, False])
    normal, x = make(MIXED, binary), table(observed, MIXED)
    x[:, binary] = (x[:, binary] > 0).double()
    first = posteriors.BinaryCells(network(D), binary)(
        repeated(x, 3), observed, stream(0)
    )
    draws = normal(first, observed, stream(0))
    (drawn,) = draws.values
    assert (drawn == first.values[0])[..., binary].all()
    assert (drawn == x)[:, observed].all()
    assert (draws.log_score == first.log_score).all()
    result = (draws.log_prob - first.log_prob).detach()
    for s, i in product(range(3), range(2**D)):
        m = ~(observed[i] | binary)
        if m.any():
            w = posteriors.normal_scale(drawn[s, i].detach(), MIXED)
            q = MultivariateNormal(*dense(normal.free.normal(), w, ~m))
            expected = q.log_prob(w[m]) - w[m & MIXED].sum()
            torch.testing.assert_close(result[s, i], expected)
        else:
            assert result[s, i] == 0


WIDTH, LATENTS, N, NU = 3, 2, 5, 2
BITS = torch.tensor(list(product([0.0, 1.0], repeat=WIDTH))).double()
STATES = torch.tensor(list(product([0.0, 1.0], repeat=LATENTS))).double()


class Energy(nn.Module):
    """A smooth energy of rows and latents of zeros and ones."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(2 * torch.randn(WIDTH, LATENTS).double())
        self.register_buffer("states", STATES)

    def log_density(self, x, z):
        return (x @ self.weight * z).sum(-1) + x.sum(-1) / 2


class Discrete:
    """A problem with discrete posteriors, and its answers by enumeration."""

    def __init__(self, kind):
        self.model, self.kind = Energy(), kind
        self.x = (torch.rand(N, WIDTH) < 0.5).double()
        self.observed = torch.rand(N, WIDTH) < 0.4
        self.observed[0], self.observed[1] = True, False
        self.log_noise = -2 + torch.randn(N).double()
        self.marginal = torch.randn(NU, N).double()
        self.binary = network(WIDTH, WIDTH)
        steps = [posteriors.BinaryCells(self.binary, torch.ones(WIDTH).bool())]
        if kind == "drawn":
            self.encoder = posteriors.BernoulliEncoder(network(LATENTS, WIDTH))
            steps.append(posteriors.Latents(self.encoder, LATENTS))
        else:
            steps.append(posteriors.ExactStates(self.model))
        self.posterior = posteriors.SequentialPosterior(steps, 3)
        self.leaves = list(self.posterior.parameters())

    def gradient(self, value):
        gradients = torch.autograd.grad(value, self.leaves, retain_graph=True)
        return torch.cat([slope.flatten() for slope in gradients])

    def exact(self):
        """Compute the mean over q, as a sum over all states."""
        filled = self.x.where(self.observed, BITS[:, None])  # (2**WIDTH, n, WIDTH)
        q = Bernoulli(logits=self.binary(self.x, self.observed))
        first = q.log_prob(filled).where(~self.observed, 0.0).sum(-1)
        weight = first - self.observed.sum(1) * torch.tensor(2.0).log()  # repeats
        z = STATES[:, None, None].expand(-1, *filled.shape[:-1], -1)
        rows = filled.expand(len(STATES), -1, -1, -1)
        log_phi = self.model.log_density(rows, z)
        if self.kind == "drawn":
            mask = self.observed.expand(filled.shape)
            logits = self.encoder.network(filled.flatten(0, 1), mask.flatten(0, 1))
            logits = logits.view(*filled.shape[:-1], LATENTS)
            second = Bernoulli(logits=logits).log_prob(z).sum(-1)
        else:
            second = log_phi.log_softmax(0).detach()
        ratio = log_phi - first - second - self.log_noise
        weight = (weight + second).flatten(0, 1)
        torch.testing.assert_close(weight.logsumexp(0).exp(), torch.ones(N).double())
        return objective.by_noise(ratio.flatten(0, 1), self.marginal, weight, None)

    def drawn(self, change=lambda score: score):
        draws = self.posterior(self.x, self.observed, global_stream)
        ratio = objective.log_ratio(self.model.log_density, draws, self.log_noise)
        score = change(draws.log_score)
        return objective.by_noise(ratio, self.marginal, draws.log_weight, score)

    def gradients(self, n_seeds=1000, **change):
        """Draw unbiased estimates, if they are; (n_seeds, parameters)."""
        values = [self.drawn(**change).mean() for _ in range(n_seeds)]
        return torch.stack([self.gradient(value) for value in values])


POSTERIORS = pytest.mark.parametrize("kind", ["drawn", "enumerated"])


@pytest.mark.quick(1)
@POSTERIORS
def test_the_score_function_gives_unbiased_gradients(kind, torch_seeded):
    problem = Discrete(kind)
    exact = problem.gradient(problem.exact().mean())
    moving = exact.abs() > 1e-12  # not what only masks of complete rows would move
    gradients = problem.gradients()
    z = z_mean(gradients[:, moving], exact[moving])
    assert abs(z).max() < GATE
    # control: no derivative through draws of zeros and ones
    without = problem.gradients(change=lambda score: None)
    assert abs(z_mean(without[:, moving], exact[moving])).max() > 3 * GATE


@POSTERIORS
def test_values_of_discrete_draws_are_unbiased(kind, torch_seeded):
    problem = Discrete(kind)
    with torch.no_grad():
        exact = problem.exact()
        values = torch.stack([problem.drawn() for _ in range(300)])
    random = values.std(0) > 1e-9  # the posterior of a complete row may be exact
    torch.testing.assert_close(values[0][~random], exact[~random])
    assert random[1]  # a row of missing cells
    assert abs(z_mean(values[:, random], exact[random])).max() < GATE


def test_the_surrogate_of_the_gradient_leaves_the_value_alone(torch_seeded):
    values, score = torch.randn(2, 4, 6).double()
    log_weight = torch.rand(4, 6).double().log_softmax(0)
    means = objective.mean_over_draws(values, log_weight, score.requires_grad_())
    plain = (log_weight.exp() * values).sum(0)
    assert (means == plain).all()
    assert (objective.mean_over_draws(values, log_weight) == plain).all()
    # by hand, the first draw: its surplus over the mean of the other draws
    (slope,) = torch.autograd.grad(means.sum(), score)
    weight, others = log_weight.exp(), values[1:]
    baseline = (weight[1:] * others).sum(0) / weight[1:].sum(0)
    torch.testing.assert_close(slope[0], weight[0] * (values[0] - baseline))


# mixtures of a learnt normal and its initial one


@KINDS
def test_densities_of_given_cells_are_those_of_drawn_ones(make, observed, positive):
    cells, x = make(positive), table(observed, positive, 3)
    with torch.no_grad():
        draws = cells(repeated(x, 2), observed, global_stream)
        log_prob = cells.log_prob(draws.values[0], observed)
    torch.testing.assert_close(log_prob, draws.log_prob, rtol=1e-9, atol=1e-9)


def defensive(make, positive):
    cells = posteriors.DefensiveCells(make(positive))
    shaken(cells.learnt)
    return cells


@KINDS
@pytest.mark.parametrize("n_draws", [2, 5])
def test_half_of_the_draws_are_of_each_normal(make, observed, positive, n_draws):
    cells, x = defensive(make, positive), table(observed, positive)
    with torch.no_grad():
        draws = cells(repeated(x, n_draws), observed, stream(3))
        filled = draws.values[0]
        both = [part.log_prob(filled, observed) for part in (cells.learnt, cells.fixed)]
        n_first = (n_draws + 1) // 2
        alone = cells.learnt(repeated(x, n_first), observed, stream(3))
    assert (filled[:n_first] == alone.values[0]).all()
    hidden = ~observed.all(1)
    mixture = torch.logaddexp(*both) - torch.tensor(2.0).log()
    torch.testing.assert_close(draws.log_prob[:, hidden], mixture[:, hidden])
    weight = draws.log_weight.exp()
    torch.testing.assert_close(weight.sum(0), torch.ones(len(x)).double())
    torch.testing.assert_close(weight[:n_first].sum(0), weight[n_first:].sum(0))
    assert (filled == x)[:, observed].all()


def test_importance_weights_of_the_mixture_are_unbiased(make, observed, seed):
    """E p / q = 1 for a normal p near the initial one; the learnt q may be far."""
    cells = defensive(make, REAL)
    target = shaken(copy.deepcopy(cells.fixed), 0.2)
    cells.learnt.free.shift.data += 2.0
    x, patterns = table(observed, REAL), (~observed).sum(1) == 2
    x, observed = x[patterns], observed[patterns]
    torch.manual_seed(seed)
    with torch.no_grad():
        estimates = []
        for _ in range(500):
            draws = cells(repeated(x, 4), observed, global_stream)
            log_p = target.log_prob(draws.values[0], observed)
            inside = (log_p - draws.log_prob + draws.log_weight).exp()
            estimates.append(inside.sum(0))
    assert abs(z_mean(torch.stack(estimates), 1.0)).max() < GATE


def test_one_draw_is_of_the_learnt_normal(make, observed):
    cells, x = defensive(make, REAL), table(observed, REAL)
    with torch.no_grad():
        alone = cells(repeated(x), observed, stream(1))
        expected = cells.learnt(repeated(x), observed, stream(1))
    assert (alone.values[0] == expected.values[0]).all()
    assert (alone.log_prob == expected.log_prob).all()


def test_the_initial_normal_stays_where_it_is(make, observed):
    cells, x = defensive(make, REAL), table(observed, REAL)
    before = copy.deepcopy(cells.fixed.state_dict())
    draws = cells(repeated(x, 4), observed, stream(0))
    (draws.log_prob.sum() + draws.values[0].sum()).backward()
    assert all(p.grad is None for p in cells.fixed.parameters())
    assert all(p.grad.isfinite().all() for p in cells.learnt.parameters())
    assert all((before[k] == v).all() for k, v in cells.fixed.state_dict().items())
