"""Parts of the rows, exact posteriors, the scale parameter and stochastic gradients."""

import numpy as np
import pytest
import torch
from _energies import UnnormalisedScaleMixture, exact_posterior
from oracles import shaken
from torch import nn
from torch.distributions import Normal as UnivariateNormal
from torch.testing import assert_close

from skvnce._core.distributions.normal import Normal
from skvnce._core.models import log_joint_of_states, repeated, with_states
from skvnce._core.training.lbfgs import flat, minimise_parameters
from skvnce.contrast.models import FreeGaussian, Scaled
from skvnce.contrast.noise import GaussianNoise
from skvnce.contrast.objective import (
    Contrast,
    Problem,
    Rows,
    by_noise,
    evaluate,
    fit_model,
    fit_posterior,
    importance_weighted,
    joint_ascent,
    nce,
    variational_em,
    variational_values,
)
from skvnce.contrast.posteriors import NormalCells, SequentialPosterior, draw_nothing

N, NU, D = 150, 3, 3
REAL = torch.zeros(D).bool()
CRITERIA = pytest.mark.parametrize(
    "criterion", [by_noise, importance_weighted(by_noise)]
)


@pytest.fixture
def widths(rng):
    """Draw a contrast of a mixture of two widths with noise of the larger one."""
    scale = np.where(rng.random(N) < 0.2, 1.0, 4.0)[:, None]
    x = torch.tensor(rng.normal(size=(N, 1)) * scale)
    y = torch.tensor(rng.normal(size=(NU, N, 1)) * 4.0)
    noise = UnivariateNormal(0.0, 4.0)
    complete = torch.ones_like(x).bool()
    return Contrast(*(Rows(u, complete, noise.log_prob(u).squeeze(-1)) for u in (x, y)))


@pytest.fixture
def holes(torch_seeded):
    """Draw a contrast of incomplete normal rows, and a Gaussian energy."""
    root = torch.randn(D, D).double()
    normal = Normal(torch.randn(D).double(), root @ root.T + 0.5 * torch.eye(D))
    noise = GaussianNoise(normal._replace(covariance=1.5 * normal.covariance))
    x, y = GaussianNoise(normal).sample(N), noise.sample(NU * N).view(NU, N, D)
    observed = torch.rand(N, D) < 0.7
    contrast = Contrast(
        *(Rows(u, observed, noise.log_prob(u, observed)) for u in (x, y))
    )
    initial = normal._replace(covariance=normal.covariance.diagonal().diag())
    return Scaled(FreeGaussian(initial)), contrast


def mixture(width=2.5):
    return UnnormalisedScaleMixture(torch.tensor(width).double())


class Logistic(nn.Module):
    """A posterior of the states with parameters of its own; one is exact."""

    def __init__(self, states):
        super().__init__()
        self.states = states
        self.w = nn.Parameter(torch.zeros(2).double())

    def forward(self, x, observed, uniforms):
        curve = (self.w[0] + self.w[1] * x.square() / 2).squeeze(-1)
        log_q = nn.functional.logsigmoid(torch.stack([-curve, curve]))
        return with_states(repeated(x), self.states, log_q[:, None])


def gradient_by_parts(problem, parameters):
    """Add up the gradients of the parts."""
    total = 0.0
    for part, uniforms in problem.parts():
        values = variational_values(
            problem.log_density, problem.posterior, part, uniforms, problem.criterion
        )
        slopes = torch.autograd.grad(values.sum(), parameters, materialize_grads=True)
        total = total + flat(slopes)
    return total


SIZES = pytest.mark.parametrize("size", [1, 37, N - 1])


@SIZES
@CRITERIA
def test_parts_have_the_values_and_gradients_of_the_whole(size, criterion, widths):
    model = mixture()
    q = Logistic(model.states)
    with torch.no_grad():
        q.w += 0.3
    whole = Problem(model.log_density, q, widths, criterion)
    split = whole._replace(size=size)
    assert [len(p.data.x) for p, _ in split.parts()][:-1] == [size] * ((N - 1) // size)
    for result, expected in zip(evaluate(split), evaluate(whole), strict=True):
        assert_close(result, expected, rtol=1e-13, atol=1e-13)
    parameters = [*model.parameters(), q.w]
    exact = gradient_by_parts(whole, parameters)
    assert_close(gradient_by_parts(split, parameters), exact)


def test_parts_draw_from_the_posterior_as_it_stood(widths):
    """The model moves in the M-step, its exact posterior does not."""
    records = []
    for size in (2**20, 37):
        model = mixture()
        problem = Problem(model.log_density, exact_posterior(model), widths, size=size)
        loss = fit_model(problem, model.parameters(), tol=1e-9).objective
        records.append([loss, *flat(model.parameters()).tolist()])
    np.testing.assert_allclose(records[0], records[1], rtol=1e-7)
    # control: with a posterior that moves along, one step is all of NCE
    summed = mixture()
    problem = Problem(
        lambda x, m: log_joint_of_states(summed, x).logsumexp(0), draw_nothing, widths
    )
    loss = fit_model(problem, summed.parameters(), tol=1e-9).objective
    assert loss < records[0][0] - 1e-5


def test_parts_and_their_noise_have_numbers_of_their_own(widths):
    problem = Problem(None, None, widths, size=40)
    template = torch.empty(5).double()
    streams = [
        numbers(0, template).tolist()
        for seed in (0, 1)
        for _, pair in problem._replace(seed=seed).parts()
        for numbers in pair
    ]
    assert len({tuple(numbers) for numbers in streams}) == len(streams) == 16


@CRITERIA
def test_integrating_is_drawing_from_the_exact_posterior(criterion, holes):
    model, contrast = holes
    shaken(model, 0.3)
    exact = Problem(model.log_marginal, draw_nothing, contrast, criterion)
    expected = evaluate(exact)
    cells = NormalCells(model.model.free.normal(), REAL)
    drawn = Problem(
        model.log_density, SequentialPosterior([cells], 4), contrast, criterion
    )
    for place, (result, same) in enumerate(zip(evaluate(drawn), expected, strict=True)):
        assert_close(result, same, rtol=0, atol=1e-10, msg=str(place))
    # control: another normal
    with torch.no_grad():
        cells.free.shift += 0.3
    for result, same in zip(evaluate(drawn), expected, strict=True):
        assert (result - same).abs().max() > 1e-2


@pytest.mark.parametrize("size", [2**20, 64])
def test_the_e_step_finds_the_exact_posterior(size, widths):
    model = mixture()
    before = flat(model.parameters())
    q = Logistic(model.states)
    problem = Problem(model.log_density, q, widths, size=size)
    exact = evaluate(problem._replace(posterior=exact_posterior(model)))
    gap = exact.values - evaluate(problem).values
    assert gap.min() > -1e-12  # row by row
    assert gap.mean() > 1e-3
    fit_posterior(problem, [q.w], tol=1e-10)
    expected = torch.tensor([0.0, 2.5**-2 - 1]).double()  # eq. (4.54), sign mended
    assert_close(q.w.detach(), expected, atol=1e-4, rtol=0)
    assert_close(evaluate(problem).values, exact.values)
    assert (flat(model.parameters()) == before).all()


def test_the_penalty_is_added_to_the_loss(holes):
    model, contrast = holes
    free = model.model.free
    problem = Problem(model.log_marginal, draw_nothing, contrast)

    def penalty():
        return 0.5 * sum(p.square().sum() for p in free.parameters())

    minimum = fit_model(problem, model.parameters(), penalty=penalty, tol=1e-8)
    values = evaluate(problem).values
    expected = float(-values.mean() + penalty().detach())
    assert minimum.objective == pytest.approx(expected)
    slopes = gradient_by_parts(problem, list(free.parameters())) / N
    assert_close(slopes, flat(free.parameters()), atol=1e-6, rtol=0)


def test_values_are_those_of_nce(widths):
    model = mixture()
    evaluation = evaluate(Problem(model.log_density, exact_posterior(model), widths))
    ratios = [
        log_joint_of_states(model, r.x).logsumexp(0) - r.log_noise for r in widths
    ]
    assert_close(evaluation.data, ratios[0])
    assert_close(evaluation.noise, ratios[1])
    loss = nce(*ratios, NU)
    assert_close(-evaluation.values.mean(), loss)


def nce_maximum(contrast):
    model = mixture()

    def loss():
        ratios = [
            log_joint_of_states(model, r.x).logsumexp(0) - r.log_noise for r in contrast
        ]
        yield nce(*ratios, NU)

    objective = minimise_parameters(loss, model.parameters(), tol=1e-9).objective
    return model, objective


def ascend(problem, named, **settings):
    return joint_ascent(
        problem,
        named,
        **{"batch_size": 50, "learning_rate": 0.1, "max_iter": 120, **settings},
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "learnt"])
def test_joint_ascent_reaches_the_maximum_of_nce(exact, widths, torch_seeded):
    """To 1e-3 of the objective and 1e-2 of the parameters: it is stochastic."""
    model = mixture()
    q = exact_posterior(model) if exact else Logistic(model.states)
    named = [*model.named_parameters(), *q.named_parameters()]
    problem = Problem(model.log_density, q, widths)
    losses = ascend(problem, named, learning_rate=0.2, max_iter=300)
    best, objective = nce_maximum(widths)
    reached = -float(evaluate(problem).values.mean())
    assert objective - 1e-9 < reached < objective + 1e-3
    assert losses[0] > reached + 1e-2
    assert_close(flat(model.parameters()), flat(best.parameters()), atol=1e-2, rtol=0)


def test_joint_ascent_moves_nothing_that_it_is_not_given(widths, torch_seeded):
    model = mixture()
    q = Logistic(model.states)
    problem = Problem(model.log_density, q, widths)
    ascend(problem, model.named_parameters())
    assert (q.w == 0).all()
    best, objective = nce_maximum(widths)
    assert -float(evaluate(problem).values.mean()) > objective + 1e-2


def test_joint_ascent_adds_the_penalty(widths, torch_seeded):
    model = mixture()
    problem = Problem(model.log_density, exact_posterior(model), widths)
    strong = lambda: 1e3 * (model.log_width - 1).square()  # noqa: E731
    ascend(problem, model.named_parameters(), penalty=strong)
    assert float(model.log_width.detach()) == pytest.approx(1, abs=1e-2)


def test_rounds_stop_by_the_tolerance_or_by_the_callback(widths):
    model, seen = mixture(), []
    problem = Problem(model.log_density, exact_posterior(model), widths)

    def third(n_round, loss, change):
        seen.append((loss, change))
        return n_round == 3

    trace = variational_em(problem, model.parameters(), tol=0.0, on_round=third)
    assert trace.loss == [loss for loss, _ in seen]
    assert len(seen) == 3
    assert not trace.converged
    assert seen[0][1] == np.inf
    assert seen[2][1] == abs(seen[2][0] - seen[1][0])
    assert not variational_em(
        problem, model.parameters(), tol=0.0, max_iter=2
    ).converged
    assert variational_em(problem, model.parameters(), tol=1.0).converged
