"""The parts of the benchmark of flows that are not the package's."""

import numpy as np
import pytest
import torch
import vgi_flows as study
from torch.distributions import MultivariateNormal

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.algorithms.gaussian.em import Normal


class Still:
    """A clock that stands where it is put."""

    def __init__(self, at=0.0):
        self.at = at

    def now(self):
        return self.at


def test_values_on_a_lattice_are_spread():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 5, 200) * 0.25, rng.integers(0, 3, 200)], 1)
    std = study.dequantised(x, rng)
    assert (np.floor(std / [0.25, 1]) == x / [0.25, 1]).all()
    assert len(np.unique(std)) == std.size


def test_columns_that_say_the_same_are_dropped():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    twice = np.stack([x[:, 0], np.ones(500), x[:, 1], -2 * x[:, 0], x[:, 2]], 1)
    assert (study.without_duplicates(twice) == twice[:, [2, 3, 4]]).all()
    assert (study.without_duplicates(x) == x).all()


def test_cells_are_hidden(seed):
    x = torch.ones(2000, 4)
    data = study.hidden(x, 5 / 6, seed)
    assert data.observed.any(1).all()
    assert (data.x == data.observed).all()
    share = 1 - (5 / 6) ** 4  # of rows that keep a cell
    assert len(data.x) / 2000 == pytest.approx(share, abs=0.06)


def test_the_clock_counts_what_it_should(monkeypatch):
    times = iter([0.0, 2.0, 3.0, 7.0, 8.0, 8.5, 10.0])
    monkeypatch.setattr(study.time, "process_time", lambda: next(times))
    clock = study.Clock(20.0)
    assert clock.now() == 2 / 20
    with clock.stop():
        pass  # 4 seconds
    with clock.impute():
        pass  # half a second
    assert clock.now() == (10 - 4) / 20
    assert clock.imputing == 0.5


def test_the_rate_falls_along_a_cosine():
    class Shown(study.Clock):
        now = Still.now

    clock = Shown(1.0)
    for clock.at, expected in [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (1.3, 0.0)]:
        assert clock.factor(0) == pytest.approx(expected)


def test_chains_of_mcem_have_their_share_of_time():
    clock = Still()
    plan, drawn = study.Redraws(clock, cost=0.002), []
    for clock.at in np.linspace(0, 1, 200):
        if steps := plan(0):
            drawn.append((clock.at, steps))
    assert len(drawn) == study.REDRAWS
    assert sum(steps for _, steps in drawn) * 0.002 == pytest.approx(study.DRAWING)
    assert np.diff([at for at, _ in drawn]) == pytest.approx(2 / 11, abs=0.01)


def test_a_flow_can_start_at_a_normal():
    covariance = torch.tensor([[1.0, 0.6], [0.6, 2.0]]).double()
    normal = Normal(torch.tensor([0.5, -1.0]).double(), covariance)
    model, x = study.flow_of("bent", 2), torch.randn(20, 2)
    study.start_at(model, normal)
    exact = MultivariateNormal(*normal).log_prob(x.double())
    torch.testing.assert_close(model.log_prob(x).double(), exact, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("method", [*study.METHODS, "complete", "normal"])
def test_a_short_fit(method, monkeypatch):
    monkeypatch.setattr(study, "N_TRAIN", 60)
    monkeypatch.setattr(study, "N_TEST", 30)
    monkeypatch.setattr(study, "ROUNDS", 1)
    study.rows_of.cache_clear()
    record = study.fit("bent", 0.5, method, seconds=0.2)
    study.rows_of.cache_clear()
    assert np.isfinite(record["curve"]).all()
    assert record["curve"][-1][1] == pytest.approx(np.mean(record["rows"]), abs=1e-3)
    assert (record["imputing"] > 0) == (method in {*study.METHODS} - {"means"})


def test_the_report_tells_which_goals_are_met(tmp_path):
    results = study.Results(tmp_path / "fits.jsonl")
    rows = np.linspace(0, 1, 50)
    for method, gain in [("VGI", 0.0), ("MCEM", -0.1), ("means", 0.1)]:
        results.add(
            {
                "table": "bent",
                "fraction": 0.5,
                "method": method,
                "rows": list(rows + gain * (1 + rows)),
            }
        )
    again = study.Results(tmp_path / "fits.jsonl")
    assert again.records == results.records
    line = study.goal_table(again, ["MCEM", "means"]).splitlines()[-1]
    assert line == ("| bent | 50.0 % | +0.15 (0.00), met | -0.15 (0.00), **missed** |")


def test_the_costs_of_an_epoch(monkeypatch):
    monkeypatch.setattr(study, "N_TRAIN", 60)
    study.rows_of.cache_clear()
    found = study.costs("bent", 20)
    study.rows_of.cache_clear()
    assert found.keys() == {"coupling", "autoregressive"}
    assert (np.array([*found.values()]) > 0).all()
    header, *_ = study.cost_table(found).splitlines()
    assert "VGI" in header


def test_chains_of_a_clock_are_chains(seed):
    """What is timed is what vgi.Chains does."""
    with seeded(seed):
        data = study.hidden(torch.randn(40, 3), 0.5, seed)
        x = torch.randn(2, *data.x.shape)
        conditionals = study.conditionals_of(3)
    ends = []
    for kind in (study.training.Chains, study.TimedChains):
        chains = kind(Incomplete(*data), x)
        chains.clock = study.Clock(1.0)
        with seeded(seed):
            ends.append(chains.move(conditionals, torch.arange(len(data.x)), 4))
    assert (ends[0] == ends[1]).all()
