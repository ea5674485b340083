"""Draws of missing cells from autoencoders, and options of samplers."""

import numpy as np
import pytest
import torch
from oracles import GATE, first_and_second, z_mean
from scipy.stats import multivariate_normal
from toy import LINEAR, ROWS, exact_moments, repeat
from vaes import NORMAL, families

from skvnce import LAIRImputer
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import global_stream, row_keyed, seeded, shifted_lattice
from skvnce.autoencoder import samplers
from skvnce.autoencoder.model import bounded_model
from skvnce.autoencoder.vae import Architecture, Autoencoder, build
from skvnce.options import ACMWG, LAIR, MWG

# Draws of missing cells from autoencoders whose conditionals are known


N, DRAWS = 600, 4


def of_stream(purpose):
    return global_stream


def of_rows(rows):
    return lambda purpose: row_keyed(rows, purpose)


def made(rule, n_particles=4, n_replenish=3):
    """Make a rule; LAIR with a few proposals."""
    return samplers.SAMPLERS[rule](*(n_particles, n_replenish) * (rule == "lair"))


def autoencoder(shift=0.0, std=0.0, n_components=1, families=NORMAL):
    """Make factor analysis with its exact encoder, or one that is off."""
    with seeded(0):
        sizes = Architecture((5,), 0.0, n_components)
        auto = build(LINEAR.factor_model(), families, sizes)
    with torch.no_grad():
        bias = auto.posterior.network.last.bias
        bias.copy_(torch.tensor([shift] * 2 + [std] * 2))
    return Autoencoder(*(part.double() for part in auto)).evaluated()


def test_an_iteration_of_lair_decodes_once(monkeypatch):
    auto, data = autoencoder(), Incomplete.from_array(ROWS)
    decode, shapes = type(auto.model).likelihood, []
    monkeypatch.setattr(
        type(auto.model),
        "likelihood",
        lambda model, z: shapes.append(len(z)) or decode(model, z),
    )
    sampler = samplers.lair(*auto, n_particles=2, n_replenish=3)
    with seeded(0):
        state = sampler.init(data, data.x.expand(2, *ROWS.shape))
        for _ in range(3):
            state, _ = sampler.step(state, data)
    assert shapes == [5] * 3


def errors(rule, auto, seed, n_steps, moments=exact_moments, options=None):
    """Compare means and second moments with exact ones, in standard errors."""
    data = repeat(ROWS, N)
    with seeded(seed):
        ways = samplers.SAMPLERS[rule](*options) if options else made(rule, 6, 3)
        x = ways.draws(auto, data, DRAWS, n_steps, of_stream).tables
    assert x.shape == (DRAWS, 3 * N, 4)
    assert torch.equal(x[:, data.observed], data.x[data.observed].expand(DRAWS, -1))
    records = []
    for row, drawn in zip(ROWS, np.split(x.numpy(), len(ROWS), 1), strict=True):
        sample = first_and_second(drawn[..., np.isnan(row)]).mean(0)
        records.append(abs(z_mean(sample, moments(row))).max())
    return max(records)


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", list(samplers.SAMPLERS))
def test_with_the_exact_encoder_all_rules_are_exact(rule, seed):
    def wrong(row):  # control
        return 1.2 * exact_moments(row)

    n_steps = 25 if rule == "ac-mwg" else 3  # its latents start from the prior
    assert errors(rule, autoencoder(), seed, n_steps) < GATE
    assert errors(rule, autoencoder(), seed, n_steps, wrong) > GATE


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("rule", "n_steps"), [("lair", 40), ("mwg", 15), ("ac-mwg", 25)]
)
def test_an_encoder_that_is_off_is_put_right(rule, n_steps, seed):
    off = autoencoder(shift=0.3, std=0.3)
    assert errors(rule, off, seed, n_steps) < GATE


PAIR = np.array([1.0, np.nan, 0.8, np.nan])  # a row whose missing cells depend
BOUND = 0.0  # of the first of them, of mean -0.75 without it


def bounded_moments(row, low):
    """Integrate moments of two missing cells, the first of which is above a bound."""
    plain = exact_moments(row)
    mean, square = plain[:2], plain[[2, 3, 4]]
    cov = np.array([square[:2], square[1:]]) - np.outer(mean, mean)
    line = (np.arange(1400) + 0.5) / 50 - 14  # the bound lies between two points
    points = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
    inside = multivariate_normal(mean, cov).pdf(points) * (points[..., 0] > low)
    inside /= inside.sum()
    one, two = (points[..., j] for j in (0, 1))
    terms = one, two, one * one, one * two, two * two
    return np.array([(inside * term).sum() for term in terms])


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", list(samplers.SAMPLERS))
def test_draws_follow_the_distribution_within_bounds(rule, seed):
    """The cell without bounds, too, as the latents know of them."""
    auto, data = autoencoder(), repeat(PAIR[None], 3 * N)
    place, low = torch.tensor([1]), torch.tensor([BOUND]).double()
    bounded = bounded_model(auto.model, place, low, torch.full_like(low, torch.inf))
    auto = auto._replace(model=bounded)
    n_steps = 25 if rule == "ac-mwg" else 6
    with seeded(seed):
        x = made(rule, 6, 3).draws(auto, data, DRAWS, n_steps, of_stream).tables
    assert (x[..., 1] >= BOUND).all()
    sample = first_and_second(x.numpy()[..., np.isnan(PAIR)]).mean(0)
    exact = bounded_moments(PAIR, BOUND)
    if rule != "pseudo-gibbs":  # its encoder does not know of bounds
        assert abs(z_mean(sample, exact)).max() < GATE
    free = bounded_moments(PAIR, -np.inf)
    np.testing.assert_allclose(free, exact_moments(PAIR), atol=1e-4)
    wrong = np.where(np.arange(5) % 3 == 1, free, exact)  # control: column 3 as if free
    assert abs(z_mean(sample, wrong)).max() > GATE


def test_but_by_pseudo_gibbs_it_is_believed(seed):
    """The control of the test above."""
    off = autoencoder(shift=0.3, std=0.3)
    assert errors("pseudo-gibbs", off, seed, 15) > 2 * GATE


OPTIONS = {
    "proposals of the prior": ("lair", (6, 30, "prior"), 40),
    "mwg after lair": ("mwg", (10,), 10),
    "prior alone": ("ac-mwg", (1.0, 0), 60),
    "ac-mwg after lair": ("ac-mwg", (0.3, 10), 25),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rule", "options", "n_steps"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_samplers_are_exact_too(rule, options, n_steps, seed):
    off = autoencoder(shift=0.3, std=0.3)
    assert errors(rule, off, seed, n_steps, options=options) < GATE


def test_lair_warms_chains_up(seed):
    """Pseudo-Gibbs without moves returns the start; particles of LAIR are nearer."""
    off, result = autoencoder(shift=1.5), []
    for n_warm_up in (0, 10):
        options = {"options": (n_warm_up,)}
        result.append(errors("pseudo-gibbs", off, seed, 0, **options))
    assert result[1] < 0.75 * result[0]  # a half, in simulations with several seeds


def test_chains_start_from_the_posterior(seed):
    """By importance resampling, nearly right where the encoder is off."""
    data = repeat(ROWS[[0]], 3 * N)
    for auto, gate in ((autoencoder(), GATE), (autoencoder(shift=0.3), 2 * GATE)):
        with seeded(seed), torch.no_grad():
            x = samplers.start(auto, data, DRAWS, of_stream).numpy()
        sample = first_and_second(x[..., np.isnan(ROWS[0])]).mean(0)
        assert abs(z_mean(sample, exact_moments(ROWS[0]))).max() < gate


def even(streams):
    return lambda purpose: shifted_lattice(streams(purpose))


def row_means(draws, auto, seed, n_draws, streams):
    """Average the draws of each row; (copies, missing cells) of each pattern."""
    data = repeat(ROWS, 100)
    with seeded(seed):
        x = draws(auto, data, n_draws, 40, streams).tables
    assert torch.equal(x[:, data.observed], data.x[data.observed].expand(n_draws, -1))
    return [
        part.mean(0)[:, np.isnan(row)]
        for row, part in zip(ROWS, np.split(x.numpy(), len(ROWS), 1), strict=True)
    ]


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_draws_that_are_spread_evenly_have_exact_means(shift, seed):
    """With smaller errors than those of independent draws, and unbiased."""
    auto, rule = autoencoder(shift=shift, std=shift), samplers.by_lair(6, 3)
    exact = [exact_moments(row)[: np.isnan(row).sum()] for row in ROWS]
    squares = []
    for draws, streams in ((rule.stratified, even(of_stream)), (rule.draws, of_stream)):
        result = row_means(draws, auto, seed, 120, streams)
        for drawn, mean in zip(result, exact, strict=True):
            assert abs(z_mean(drawn, mean)).max() < GATE
            assert abs(z_mean(drawn, mean + 0.1)).max() > GATE  # control
        errors = [a - b for a, b in zip(result, exact, strict=True)]
        squares.append(np.mean([np.square(error).mean() for error in errors]))
    assert squares[0] < 0.6 * squares[1]  # 0.3 to 0.5, in simulations with six seeds


@pytest.fixture
def rows(rng):
    """Make rows of many patterns; one is complete and one shows nothing."""
    result = rng.normal(size=(12, 4))
    result[rng.uniform(size=result.shape) < 0.5] = np.nan
    result[0], result[1] = rng.normal(size=4), np.nan
    return result


@pytest.mark.parametrize("rule", [*samplers.SAMPLERS, "evenly"])
def test_numbers_of_the_row_give_its_draws_anywhere(rule, rows, seed):
    """In any order, and however the table is cut."""
    auto, as_they_are = autoencoder(0.3), rule != "evenly"
    draws = made(rule).draws if as_they_are else made("lair").stratified

    def drawn(part):
        data, streams = Incomplete.from_array(part), of_rows(part)
        streams = streams if as_they_are else even(streams)
        return draws(auto, data, 3, 4, streams).tables

    whole = drawn(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    torch.testing.assert_close(drawn(rows[order]), whole[:, order])
    cut = torch.cat([drawn(part) for part in np.split(rows, [1, 5, 6])], 1)
    torch.testing.assert_close(cut, whole)
    other = draws(
        auto,
        Incomplete.from_array(rows),
        3,
        4,
        lambda purpose: row_keyed(rows, purpose + 16),
    ).tables
    missing = np.isnan(rows)
    assert (other != whole)[:, missing].any(0).all()  # control


def test_any_sampler_makes_a_rule(rows):
    """And each draw is a chain of its own, after as many moves as are asked for."""
    data, moves = Incomplete.from_array(rows), []

    def make(model, posterior, uniforms):
        inner = samplers.pseudo_gibbs(model, posterior, uniforms=uniforms)

        def step(state, data):
            moves.append(state.x.shape)
            return inner.step(state, data)

        return inner._replace(step=step)

    x = samplers.by_chains(make).draws(autoencoder(), data, 5, 7, of_rows(rows)).tables
    assert moves == [(5, 12, 4)] * 7
    rule = samplers.SAMPLERS["pseudo-gibbs"]()
    same = rule.draws(autoencoder(), data, 5, 7, of_rows(rows)).tables
    assert torch.equal(x, same)


@pytest.mark.parametrize("rule", list(samplers.SAMPLERS))
def test_cells_are_drawn_from_their_families(rule, rows, seed):
    values = torch.tensor([[-1.0, 0.0, 1.0, 2.5]]).double()
    edges = torch.tensor([[-1.5, -0.5, 0.5, 1.75, 3.25]]).double()
    pairs = torch.tensor([[-0.5, 2.0]]).double()
    auto = autoencoder(families=families([1], [2], [3], pairs, values, edges))
    rows[:, 2] = np.where(np.isnan(rows[:, 2]), np.nan, -0.5)
    rows[:, 3] = np.where(np.isnan(rows[:, 3]), np.nan, 2.5)
    data = Incomplete.from_array(rows)
    with seeded(seed):
        x = made(rule).draws(auto, data, 9, 3, of_stream).tables
    assert set(x[..., 2].unique().tolist()) == {-0.5, 2.0}
    assert {1.0, 2.5} <= set(x[..., 3].unique().tolist()) <= set(values[0].tolist())
    assert x.isfinite().all()


EFFORT = samplers.by_lair(20, 1)


@pytest.mark.parametrize(("n", "n_draws"), [(0, 1), (1, 10), (1000, 1), (1000, 200)])
def test_chunks_split_the_rows(n, n_draws, monkeypatch):
    monkeypatch.setattr("skvnce.autoencoder.samplers._AT_ONCE", 2**16)
    values = [
        np.arange(n)[rows]
        for rows in samplers.chunks(autoencoder(), n, n_draws, EFFORT)
    ]
    assert np.concatenate([[], *values]).tolist() == list(range(n))
    proposals = max(21, 4 * 20)  # of an iteration, and where the 20 particles start
    for part in values:  # densities of all proposals, and cells of all draws
        assert len(part) * proposals * max(4, 20 * 2) <= 2**16
        assert len(part) * n_draws * 4 <= 2**16
    if n_draws == 200:
        assert len(values) > 1


def test_one_row_that_is_large_is_a_chunk(monkeypatch):
    monkeypatch.setattr("skvnce.autoencoder.samplers._AT_ONCE", 1)
    assert len(list(samplers.chunks(autoencoder(), 5, 9, EFFORT))) == 5


# Options for `sampler` of LAIRImputer: each field reaches the sampler


RULES = [
    (LAIR(), samplers.by_lair(4, 20)),
    (LAIR(n_particles=3), samplers.by_lair(3, 20)),
    (LAIR(n_replenish=7), samplers.by_lair(4, 7)),
    (LAIR(replenish="prior"), samplers.by_lair(4, 20, "prior")),
    (ACMWG(), samplers.SAMPLERS["ac-mwg"](0.05, 0)),
    (ACMWG(epsilon=0.9), samplers.SAMPLERS["ac-mwg"](0.9, 0)),
    (ACMWG(n_warm_up=5), samplers.SAMPLERS["ac-mwg"](0.05, 5)),
    (MWG(), samplers.SAMPLERS["mwg"](0)),
    (MWG(n_warm_up=5), samplers.SAMPLERS["mwg"](5)),
]


def test_fields_of_options_reach_the_sampler(rows):
    def drawn(rule):
        data = Incomplete.from_array(rows)
        return rule.draws(autoencoder(0.3), data, 3, 4, of_rows(rows)).tables

    tables = [drawn(LAIRImputer(sampler=part)._rule()) for part, _ in RULES]
    for found, (_, rule) in zip(tables, RULES, strict=True):
        assert torch.equal(found, drawn(rule))
    assert len({found.numpy().tobytes() for found in tables}) == len(RULES)
