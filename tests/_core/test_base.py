"""Draws of what rows hide: log q by its parts, weights, and the mask."""

import pytest
import torch
from oracles import GATE, z_mean
from torch import distributions

from skvnce._core.models import (
    draw_latents,
    repeated,
    with_latents,
    with_missing,
    with_states,
)
from skvnce._core.random import at_quantiles, draw, global_stream, inside, stream

N_DRAWS, N, FEATURES = 3, 5, 4


@pytest.fixture
def x(torch_seeded):
    return torch.randn(N, FEATURES).double()


@pytest.fixture
def observed(x):
    return torch.rand(N, FEATURES) < 0.6


def cells(n=N):
    """Give each cell its own normal."""
    place = torch.arange(float(n * FEATURES)).double().view(n, FEATURES)
    return distributions.Normal(place.sin(), 1 + place.cos().square())


def posterior(x):
    return distributions.Normal(x[..., :2], 0.5)


def drawn_both(x, observed):
    draws = missing(x, observed, cells())
    return with_latents(draws, posterior(draws.values[0]), for_latents())


def for_latents():
    return stream(0)(1, torch.empty(N_DRAWS, N, 2).double())


def missing(x, observed, q):
    draws = repeated(x, N_DRAWS)
    return with_missing(draws, observed, q, stream(0)(0, draws.values[0]))


def test_rows_that_hide_nothing(x):
    draws = repeated(x, N_DRAWS)
    assert (draws.values[0] == x).all()
    assert (draws.log_prob == 0).all()
    torch.testing.assert_close(draws.log_weight.logsumexp(0), torch.zeros(N).double())


def test_log_prob_is_the_sum_of_its_parts(x, observed):
    draws = drawn_both(x.where(observed, torch.nan), observed)
    filled, z = draws.values
    assert (filled == x)[:, observed].all()
    assert (filled != x)[:, ~observed].all()
    by_hand = torch.zeros(N_DRAWS, N).double()
    for s, i, j in torch.cartesian_prod(*map(torch.arange, filled.shape)):
        if not observed[i, j]:
            mean, scale = cells().mean[i, j], cells().stddev[i, j]
            by_hand[s, i] += distributions.Normal(mean, scale).log_prob(filled[s, i, j])
    by_hand += posterior(filled).log_prob(z).sum(-1)
    torch.testing.assert_close(draws.log_prob, by_hand)
    assert (draws.values[1][0] != draws.values[1][1]).all()


def test_complete_rows_are_encoded_once(x):
    draws = with_latents(repeated(x, N_DRAWS), posterior(x), for_latents())
    z = draws.values[1]
    assert z.shape == (N_DRAWS, N, 2)
    assert (z[0] != z[1]).all()
    torch.testing.assert_close(draws.log_prob, posterior(x).log_prob(z).sum(-1))


def test_states_are_weighted_by_their_probability(x, observed):
    draws = missing(x, observed, cells())
    states = torch.tensor([[0.0], [1.0]]).double()
    q = distributions.Bernoulli(logits=draws.values[0].sum(-1))
    log_q = torch.stack([q.log_prob(s.expand(N_DRAWS, N)) for s in states[:, 0]])
    every = with_states(draws, states, log_q)
    filled, z = every.values
    assert filled.shape == (2 * N_DRAWS, N, FEATURES)
    assert z.shape == (2 * N_DRAWS, N, 1)
    torch.testing.assert_close(every.log_weight.exp().sum(0), torch.ones(N).double())
    # E z by enumeration is the mean of the probabilities of z = 1
    mean = (every.log_weight.exp() * z.squeeze(-1)).sum(0)
    torch.testing.assert_close(mean, q.probs.mean(0))
    both = q.log_prob(z.squeeze(-1).view(2, N_DRAWS, N)) + draws.log_prob
    torch.testing.assert_close(every.log_prob, both.flatten(0, 1))
    assert every.log_score is None


def test_draws_are_differentiable(x, observed):
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    q = distributions.Normal(cells().mean + shift, cells().stddev)
    filled = missing(x, observed, q).values[0]
    (gradient,) = torch.autograd.grad(filled.sum(), shift)
    assert gradient == N_DRAWS * (~observed).sum()


def test_the_discrete_parts_make_the_score(x, observed):
    assert drawn_both(x, observed).log_score is None
    q = distributions.Bernoulli(logits=cells().mean)
    draws = missing(x, observed, q)
    (filled,) = draws.values
    assert (filled[:, ~observed] * (1 - filled[:, ~observed]) == 0).all()
    by_hand = q.log_prob(filled.where(~observed, 0.0)).where(~observed, 0.0).sum(-1)
    torch.testing.assert_close(draws.log_prob, by_hand)
    assert (draws.log_score == draws.log_prob).all()
    # a continuous part adds nothing, a discrete one its own
    normal = with_latents(draws, posterior(filled), for_latents())
    assert (normal.log_score == draws.log_score).all()
    assert (normal.log_prob != draws.log_prob).all()
    binary = with_latents(
        draws, distributions.Bernoulli(logits=filled[..., :2]), for_latents()
    )
    torch.testing.assert_close(binary.log_score, binary.log_prob)
    assert (binary.log_score != draws.log_score).all()
    states = torch.tensor([[0.0], [1.0]]).double()
    every = with_states(draws, states, torch.zeros(2, N_DRAWS, N).double())
    assert (every.log_score == draws.log_score).all()  # one for each draw, not state


def test_rows_of_noise_have_the_mask_of_their_row(x, observed):
    y = torch.stack([x, x + 1])
    draws = repeated(y, N_DRAWS)
    uniform = stream(3)(0, draws.values[0])
    result = with_missing(draws, observed, cells(), uniform)
    q = posterior(result.values[0])
    numbers = stream(3)(1, torch.empty(N_DRAWS, 2, N, 2).double())
    whole = with_latents(result, q, numbers)
    for i in range(2):
        alone = with_missing(repeated(y[i], N_DRAWS), observed, cells(), uniform[:, i])
        torch.testing.assert_close(result.values[0][:, i], alone.values[0])
        q = posterior(alone.values[0])
        alone = with_latents(alone, q, numbers[:, i])
        torch.testing.assert_close(whole.values[1][:, i], alone.values[1])
        torch.testing.assert_close(whole.log_prob[:, i], alone.log_prob)
        torch.testing.assert_close(whole.log_weight[:, i], alone.log_weight)


QUANTILES = {
    "normal": distributions.Normal(-1.0, 2.0),
    "laplace": distributions.Laplace(-1.0, 2.0),
    "lognormal": distributions.LogNormal(-1.0, 0.5),
    "uniform": distributions.Uniform(-1.0, 2.0),
    "exponential": distributions.Exponential(2.0),
}


@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles_invert_the_distribution_function(name):
    q, uniform = QUANTILES[name], torch.linspace(0.01, 0.99, 50)
    torch.testing.assert_close(q.cdf(at_quantiles(q, uniform)), uniform)
    ends = at_quantiles(q, torch.tensor([0.0, 1.0]).double())
    assert ends.isfinite().all()


def test_quantiles_of_zeros_and_ones():
    q = distributions.Bernoulli(torch.tensor([0.0, 0.25, 1.0]))
    uniform = (torch.arange(100)[:, None] / 100 + 0.005).double()
    drawn = at_quantiles(q, uniform)
    assert drawn.dtype == torch.float64
    assert drawn.sum(0).tolist() == [0, 25, 100]
    assert at_quantiles(distributions.Bernoulli(torch.tensor(0.0)), torch.zeros(1)) == 0


def test_a_distribution_without_quantiles_is_refused():
    with pytest.raises(TypeError, match="Gamma, which has no quantiles.*Use Normal"):
        at_quantiles(distributions.Gamma(1.0, 1.0), torch.rand(3))


def test_a_stream_repeats_and_leaves_that_of_torch_alone():
    template = torch.empty(3, 4).double()
    state = torch.get_rng_state()
    first, second = stream(3)(0, template), stream(3)(0, template)
    assert (torch.get_rng_state() == state).all()
    assert (first == second).all()
    assert first.dtype == torch.float64
    assert (stream(4)(0, template) != first).all()  # another seed
    assert (stream(3)(1, template) != first).all()  # another step
    assert (inside(torch.tensor([0.0, 1.0]).double()).logit().isfinite()).all()


def test_ambient_numbers_come_from_the_stream_of_torch(seed):
    template = torch.empty(3, 4).double()
    torch.manual_seed(seed)
    first, second = global_stream(0, template), global_stream(0, template)
    torch.manual_seed(seed)
    assert (global_stream(1, template) == first).all()
    assert (first != second).all()


@pytest.mark.parametrize(
    "make", [stream, lambda seed: global_stream], ids=["own", "torch"]
)
def test_numbers_are_uniform(make, seed, torch_seeded):
    u = make(seed)(0, torch.empty(4000).double())
    for power in (1, 2, 3):
        assert abs(z_mean(u**power, 1 / (power + 1))) < GATE
        assert abs(z_mean(u**2, 1 / (power + 1))) > GATE or power == 2  # control
    assert ((u >= 0) & (u < 1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_number_has_an_infinite_quantile(dtype):
    ends = torch.tensor([0.0, 1.0], dtype=dtype)
    assert inside(ends).dtype == dtype
    result = at_quantiles(distributions.Normal(ends, 1.0), ends)
    assert result.isfinite().all()
    assert result[0] < -5 < 5 < result[1]


class Chosen:
    """A mixture that says which numbers it was given."""

    batch_shape, event_shape = (N,), (2,)

    def at_uniform(self, uniform):
        return uniform


def test_latents_are_drawn_by_the_numbers_of_step_0(x):
    numbers = stream(5)(0, x.new_empty(N_DRAWS, N, 3))
    assert (draw_latents(Chosen(), stream(5), N_DRAWS, x) == numbers).all()
    q = distributions.Independent(posterior(x), 1)
    z = draw_latents(q, stream(5), N_DRAWS, x)
    assert (z == at_quantiles(posterior(x), numbers[..., :-1])).all()
    assert (z == draw(q, numbers)).all()
