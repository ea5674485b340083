"""Fields of VGI and MCEM: each reaches the training."""

import numpy as np
import pytest
import torch
from torch import nn

from skvnce import VGIImputer
from skvnce._core.training import rounds
from skvnce.missingness import hide, mcar
from skvnce.options import MCEM, VGI, Adam, IncompleteDensity
from skvnce.vgi import fit as fits
from skvnce.vgi import mcem, training
from skvnce.vgi.conditionals import (
    ExtendedConditionals,
    MixtureHead,
    NormalHead,
    SplineHead,
    StandardConditionals,
)

# a few draws of a small table may be outside of the observed range
pytestmark = pytest.mark.filterwarnings("ignore:Chains ran away")

D = 3
ONE_ROUND = {"max_iter": 1, "solver": Adam(validation_fraction=0)}
OPTIONS = {"n_estimators": 1, "on_misfit": "ignore", "random_state": 0}


@pytest.fixture
def X(seed, rng):
    full = 0.8 * rng.normal(size=(40, 1)) + 0.6 * rng.normal(size=(40, D))
    return hide(full, mcar(full, 0.3, random_state=seed))


@pytest.fixture
def trained(X, monkeypatch):
    """Fit a density with an algorithm, and record what its training uses."""
    monkeypatch.setattr(rounds, "STEPS", 2)

    def fit(algorithm):
        used = {"updates": set(), "selected": set(), "regressions": 0}
        move, redraw = training.Chains.move, training.redraw
        on_all, regression = fits.train_on_all, training.regression

        def moving(chains, conditionals, rows, n_updates):
            used["updates"].add(n_updates)
            return move(chains, conditionals, rows, n_updates)

        def redrawing(conditionals, x, columns):
            used["selected"].add(len(columns))
            return redraw(conditionals, x, columns)

        def regressing(*args):
            used["regressions"] += 1
            return regression(*args)

        def training_on_all(pair, start, chains, *args, **options):
            used.update(pair=pair, chains=chains, first=chains.x.clone())
            return on_all(pair, start, chains, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(training.Chains, "move", moving)
            patch.setattr(training, "redraw", redrawing)
            patch.setattr(training, "regression", regressing)
            patch.setattr(fits, "train_on_all", training_on_all)
            model = IncompleteDensity(
                "factor-analysis", algorithm=algorithm, **ONE_ROUND
            )
            VGIImputer(model, **OPTIONS).fit(X)
        return used

    return fit


DEFAULT = IncompleteDensity().algorithm


@pytest.mark.parametrize(
    ("algorithm", "n_updates", "n_selected"),
    [
        (DEFAULT, 6, 1),
        (VGI(), 6, 1),
        (VGI(n_updates=3), 3, 1),
        (VGI(n_selected=2), 6, 2),
    ],
    ids=str,
)
def test_visits_draw_and_select_cells(trained, algorithm, n_updates, n_selected):
    """By default twice as many as there are columns."""
    used = trained(algorithm)
    assert used["updates"] == {n_updates}
    assert used["selected"] == {n_selected}


def are_observed(used):
    """Tell which initial imputations are observed cells of the same column."""
    data = used["chains"].data
    return torch.cat(
        [
            torch.isin(cells[:, ~seen], column[seen]).flatten()
            for cells, column, seen in zip(
                used["first"].unbind(-1), data.x.T, data.observed.T, strict=True
            )
        ]
    )


def test_chains_start_at_the_normal_or_at_the_marginals(trained):
    assert not are_observed(trained(VGI())).any()
    assert are_observed(trained(VGI(start="marginals"))).all()


def test_chains_have_the_range_of_observed_cells_and_of_the_start(trained):
    for start in ("marginals", "normal"):
        used = trained(VGI(start=start))
        chains, first = used["chains"], used["first"].flatten(0, 1)
        low, high = chains.hypercube
        columns = zip(chains.data.x.T, chains.data.observed.T, strict=True)
        seen = [column[observed] for column, observed in columns]
        reached = seen if start == "marginals" else first.T
        assert low.tolist() == [float(column.min()) for column in reached]
        assert high.tolist() == [float(column.max()) for column in reached]
        ends = zip(low, high, seen, strict=True)
        assert all(a <= x.min() and b >= x.max() for a, b, x in ends)


def test_draws_reach_beyond_the_observed_cells(seed):
    """A line of slope 3, missing where it is low; a range that ends there has 2.3."""
    slopes = []
    for i in range(4):
        rng = np.random.default_rng([seed, i])
        x = rng.normal(20, 5, 300)
        X = np.column_stack([x, 50 + 3 * x + 3 * rng.normal(size=300)])
        X[x < np.quantile(x, 0.3), 1] = np.nan
        imputer = VGIImputer("factor-analysis", random_state=0).fit(X)
        drawn = imputer.sample(X, 3, random_state=0, as_array=True)
        slopes += [np.polyfit(*table.T, 1)[0] for table in drawn]
    assert abs(np.mean(slopes) - 3) < 0.2  # its standard error is about .04


@pytest.mark.parametrize(
    ("network", "kind", "shares"),
    [
        ("shared", StandardConditionals, True),
        ("extended", ExtendedConditionals, True),
        ("independent", StandardConditionals, False),
    ],
)
def test_conditionals_have_the_network(trained, network, kind, shares):
    trained_ones = trained(VGI(network=network))["pair"].conditionals
    assert type(trained_ones) is kind
    assert isinstance(trained_ones.body, nn.Identity) is not shares


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("family", "head"),
    [("normal", NormalHead), ("mixture", MixtureHead), ("spline", SplineHead)],
)
def test_conditionals_have_the_family(trained, family, head):
    assert type(trained(VGI(family))["pair"].conditionals.head) is head


@pytest.mark.parametrize("n_warm_up", [0, 3])
def test_conditionals_are_warmed_up_for_so_many_passes(trained, n_warm_up):
    """All rows are in one batch, so that each pass is a regression."""
    assert trained(VGI(n_warm_up=n_warm_up))["regressions"] == n_warm_up


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("algorithm", "wanted"),
    [
        (MCEM(), {1: 100, 6: 100}),
        (MCEM(n_steps=12), {1: 4, 6: 4}),
        (MCEM(every=3), {1: 100, 4: 100, 7: 100, 10: 300}),
        (MCEM(n_steps=12, every=3), {1: 4, 4: 4, 7: 4, 10: 12}),
    ],
    ids=str,
)
def test_chains_of_monte_carlo_em_have_their_steps(X, monkeypatch, algorithm, wanted):
    """A third of `n_steps` before round 10, in each `every`-th round."""
    lengths, n_round = {}, 1

    def run_chain(sampler, state, data, n_steps):
        lengths[n_round] = n_steps
        return state

    losses = mcem.completed_loss

    def counting(*args):
        loss = losses(*args)

        def counted(rows):
            nonlocal n_round
            n_round += 1
            return loss(rows)

        return counted

    monkeypatch.setattr(rounds, "STEPS", 1)  # a step is a round
    monkeypatch.setattr(mcem, "run_chain", run_chain)
    monkeypatch.setattr(mcem, "completed_loss", counting)
    model = IncompleteDensity("coupling-flow", algorithm=algorithm, max_iter=10)
    VGIImputer(model, **OPTIONS).fit(X)
    assert n_round == 11
    assert lengths == wanted
