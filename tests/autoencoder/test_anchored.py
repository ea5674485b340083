"""The anchored encoder: the posterior of factor analysis, until its network moves."""

import pytest
import torch
from oracles import all_patterns, shaken
from torch.distributions import MultivariateNormal
from vaes import NORMAL, random_factors

from skvnce._core.models import draw_latents
from skvnce._core.random import stream
from skvnce._core.training.adam import named_leaves
from skvnce.autoencoder.factor_analysis import FactorModel, infer, log_prob_observed
from skvnce.autoencoder.losses import BOUNDS
from skvnce.autoencoder.networks import AnchoredEncoder, ResidualPerceptron
from skvnce.autoencoder.vae import Architecture, LinearPosterior, build

D, K = 4, 2


@pytest.fixture
def linear(seed):
    return random_factors(D, K, seed, least=0.1)


@pytest.fixture
def rows(torch_seeded):
    return torch.randn(2**D, D).double(), all_patterns(D)


def encoder(linear, n_components=1, shake=0.0):
    n_outputs = n_components * 2 * K + n_components - 1
    network = ResidualPerceptron(2 * D + K, (6,), n_outputs, 0.0)
    shaken(network, shake)
    result = AnchoredEncoder(LinearPosterior(linear), network, n_components, K)
    return result.double()


def test_the_anchor_is_the_exact_posterior(linear, rows):
    x, observed = rows
    anchor, exact = LinearPosterior(linear)(x, observed), infer(linear, x, observed)
    torch.testing.assert_close(anchor.mean, exact.mean)
    torch.testing.assert_close(anchor.root @ anchor.root.mT, exact.covariance())
    assert torch.equal(anchor.root, anchor.root.triu())
    assert torch.equal(anchor.filled[observed], x[observed])
    S = linear.covariance()
    for row, seen, filled in zip(x, observed, anchor.filled, strict=True):
        gain = torch.linalg.solve(S[seen][:, seen], S[seen][:, ~seen]).T
        expected = linear.mean[~seen] + gain @ (row - linear.mean)[seen]
        torch.testing.assert_close(filled[~seen], expected)


def test_completed_rows_share_one_root(linear, rows):
    """They are not factorised one by one, and have the anchors of single rows."""
    x, every = rows[0].expand(3, -1, -1), torch.ones(3, 2**D, D).bool()
    anchor, exact = LinearPosterior(linear)(x, every), infer(linear, x[0], every[0])
    assert anchor.root.stride()[:2] == (0, 0)
    torch.testing.assert_close(anchor.mean, exact.mean.expand(3, -1, -1))
    torch.testing.assert_close(anchor.root[0] @ anchor.root[0].mT, exact.covariance())
    assert torch.equal(anchor.filled, x)
    some = every.clone()
    some[0, 0, 0] = False
    assert LinearPosterior(linear)(x, some).root.stride()[0] != 0


def test_it_starts_at_the_exact_posterior(linear, rows):
    q, exact = encoder(linear)(*rows), infer(linear, *rows)
    known = MultivariateNormal(exact.mean, exact.covariance())
    z = torch.randn(7, 2**D, K).double()
    torch.testing.assert_close(q.log_prob(z), known.log_prob(z))
    moved = encoder(linear, shake=0.3)(*rows)
    assert (moved.log_prob(z) - known.log_prob(z)).abs().min() > 1e-6  # control


@pytest.mark.parametrize("n_draws", [1, 4])
@pytest.mark.parametrize("bound", ["mvae", "miwae"])
def test_every_draw_has_the_exact_log_weight_there(bound, n_draws, linear, rows, seed):
    torch.manual_seed(seed)
    exact, _ = log_prob_observed(linear, *rows)

    def found(shake):
        auto = build(linear, NORMAL, Architecture((6,), 0.0, 1))
        with torch.no_grad():
            for name, leaf in named_leaves(auto._asdict()):
                if "network.last" in name:
                    leaf += shake * torch.randn_like(leaf)
            model, posterior = (part.double() for part in auto)
            return BOUNDS[bound](model, posterior, *rows, stream(seed), n_draws)

    torch.testing.assert_close(found(0.0), exact, rtol=0, atol=1e-10)
    assert (found(0.1) - exact).abs()[1:].min() > 1e-6  # control


def test_shapes_of_rows_are_free(linear, rows):
    """As completed tables have: one mask for all, of a shape that broadcasts."""
    q = encoder(linear, shake=0.3)
    x = torch.randn(3, 5, 2**D, D).double()
    result = q(x, rows[1])
    assert (result.batch_shape, result.event_shape) == ((3, 5, 2**D), (K,))
    z = torch.randn(3, 5, 2**D, K).double()
    expected = q(x[1, 2], rows[1]).log_prob(z[1, 2])
    torch.testing.assert_close(result.log_prob(z)[1, 2], expected)
    one = q(x[0, 0, 3], rows[1][3])
    torch.testing.assert_close(one.log_prob(z[0, 0, 3]), result.log_prob(z)[0, 0, 3])
    none = q(x[0, 0, :0], rows[1][:0])
    assert (none.batch_shape, none.event_shape) == ((0,), (K,))


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, 1e6])
def test_values_under_the_mask_are_never_read(junk, n_components, linear, rows, seed):
    torch.manual_seed(seed)
    q = encoder(linear, n_components, shake=0.3)
    x, observed = rows
    leaves, results = list(q.parameters()), []
    for value in (0.0, junk):
        result = q(x.masked_fill(~observed, value), observed)
        z = draw_latents(result, stream(seed), 3, x)
        gradients = torch.autograd.grad(z.square().sum(), leaves)
        results.append((z, result.log_prob(z), *gradients))
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine, theirs)
    for gradient in results[0][2:]:
        assert gradient.abs().sum() > 0
    shifted = q(x + observed, observed).mean
    assert (shifted != q(*rows).mean).any(1)[observed.any(1)].all()  # control


def test_components_start_about_the_posterior(linear, rows, torch_seeded):
    several = encoder(linear, 3)
    q, exact = several(*rows), infer(linear, *rows)
    assert torch.equal(encoder(linear).start, torch.zeros(1, K).double())
    assert several.start.sum(0).abs().max() < 1e-6
    assert (several.start != 0).all()
    torch.testing.assert_close(q.mean, exact.mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(q.log_weights.exp(), torch.full((16, 3), 1 / 3).double())
    parts = q.components()
    root = torch.linalg.inv(exact.factor).mT
    expected = exact.mean[:, None] + several.start @ root.mT
    torch.testing.assert_close(parts.mean, expected)
    z = torch.randn(16, 3, K).double()
    known = MultivariateNormal(expected, exact.covariance()[:, None])
    torch.testing.assert_close(parts.log_prob(z), known.log_prob(z))


def test_outputs_of_the_network_shift_and_widen(linear, rows, torch_seeded):
    """Of each component in turn, after the logits of all but one."""
    several = encoder(linear, 2)
    with torch.no_grad():
        several.network.last.bias.copy_(torch.tensor([0.7, 1, 2, 3, -4, 5, 6, 9, 0]))
    q, exact = several(*rows), infer(linear, *rows)
    logit = torch.tensor(0.7).double()
    torch.testing.assert_close(q.log_weights[0].exp()[0], logit.sigmoid())
    shift = torch.tensor([[1, 2], [5, 6]]).double() + several.start
    std = (2 * torch.tanh(torch.tensor([[3, -4], [9, 0]]).double() / 2)).exp()
    root = torch.linalg.inv(exact.factor).mT
    known = MultivariateNormal(
        exact.mean[:, None] + shift @ root.mT,
        root[:, None] @ torch.diag_embed(std.square()) @ root.mT[:, None],
    )
    z = torch.randn(16, 2, K).double()
    torch.testing.assert_close(q.components().log_prob(z), known.log_prob(z))


def test_single_precision_keeps_the_digits_of_the_anchor(linear, rows):
    """Inside, it is computed in double precision: noise may be small."""
    quiet = linear._replace(noise_variance=linear.noise_variance * 1e-6)
    x, observed = rows
    single = LinearPosterior(quiet).float()(x.float(), observed)
    rounded = FactorModel(*(part.float().double() for part in quiet))
    exact = LinearPosterior(rounded)(x.float().double(), observed)
    for mine, true in zip(single, exact, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), true, rtol=1e-6, atol=1e-7)
