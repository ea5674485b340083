"""The rules of the benchmark of flows."""

from pathlib import Path
from types import SimpleNamespace

import _flows
import _flows_report as reported
import numpy as np
import pytest
import torch
import vgi_flows as study
from _results import Results

from skvnce._incomplete import Incomplete
from skvnce._random import seeded
from skvnce.distributions.normal import Normal
from skvnce.estimators._density_options import DENSITIES

SMALL = {"N_TRAIN": 60, "N_VALIDATION": 20, "N_TEST": 30}


@pytest.fixture
def small(monkeypatch):
    """Make tables small."""
    for name, value in SMALL.items():
        monkeypatch.setattr(_flows, name, value)
    cached = _flows.table_of
    cached.cache_clear()
    yield
    cached.cache_clear()


class Recorded(_flows.Watch):
    """A watch that ends after a few epochs."""

    def __call__(self, epoch, loss):
        self.look(epoch, float(epoch))
        self.ended = "limit" if epoch == 4 else None
        return self.ended is not None


def test_values_on_a_lattice_get_noise():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 5, 200) * 0.25, rng.integers(0, 3, 200)], 1)
    noisy = _flows.dequantised(x, rng)
    assert (np.floor(noisy / [0.25, 1]) == x / [0.25, 1]).all()
    assert len(np.unique(noisy)) == noisy.size


def test_nearly_equal_columns_are_dropped():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    twice = np.stack([x[:, 0], np.ones(500), x[:, 1], -2 * x[:, 0], x[:, 2]], 1)
    assert (_flows.without_duplicates(twice) == twice[:, [2, 3, 4]]).all()
    assert (_flows.without_duplicates(x) == x).all()


def test_cells_are_hidden(seed):
    x = torch.ones(2000, 4)
    data = _flows.hidden(x, 5 / 6, seed)
    assert data.observed.any(1).all()
    assert (data.x == data.observed).all()
    share = 1 - (5 / 6) ** 4  # of rows that keep a cell
    assert len(data.x) / 2000 == pytest.approx(share, abs=0.06)


def run_on(start, method, monkeypatch):
    """Fit for four epochs; return the trained flow's parameters and the record."""
    monkeypatch.setattr(study, "WARM_UP", (2, 1))
    monkeypatch.setattr(study, "LENGTHS", {2: 3})
    monkeypatch.setattr(study, "ROUNDS", 1)
    clock = _flows.Clock()
    watch = Recorded(_flows.table_of("simulated"), clock, np.inf)
    with seeded(0):
        found = study.FITS[method](start, clock, watch)
    return torch.nn.utils.parameters_to_vector(start.model.parameters()), found


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", study.METHODS)
def test_no_method_sees_hidden_cells(small, monkeypatch, method):
    """The truth of hidden cells does not change a fit; that of observed cells does."""
    table, fits = _flows.table_of("simulated"), []
    with seeded(0):
        observed = torch.rand(table.train.shape) >= 0.5  # as `hidden` does
    other_hidden, other_observed = torch.randn_like(table.train), table.train + 0.1
    for train in (
        table.train,
        table.train.where(observed, other_hidden),
        other_observed,
    ):
        monkeypatch.setattr(
            _flows, "table_of", lambda name, t=train: table._replace(train=t)
        )
        start = _flows.start_of("simulated", 0.5, 0)
        assert (start.data.x[~start.data.observed] == 0).all()
        fits.append(run_on(start, method, monkeypatch)[0])
    assert (fits[0] == fits[1]).all()
    assert (fits[0] != fits[2]).any()  # a control


def test_all_methods_get_the_same_flow_and_completions(small, monkeypatch):
    """One mask, one flow, one table of completions; another mask, other ones."""
    given = []
    for name in study.METHODS:
        monkeypatch.setitem(
            study.FITS, name, lambda start, clock, watch: given.append(start) or stop()
        )
    for method, mask in [("VGI", 0), ("MCEM", 0), ("IterativeImputer", 0), ("VGI", 1)]:
        with pytest.raises(StopIteration):
            study.fit("simulated", 0.5, method, mask, 1.0)
    first, *others = ([*s.model.state_dict().values(), s.x, *s.data] for s in given)
    equal = [
        [
            a.shape == b.shape and bool((a == b).all())
            for a, b in zip(first, other, strict=True)
        ]
        for other in others
    ]
    assert all(equal[0]) and all(equal[1])
    assert not all(equal[2])  # a control: the comparison can fail


def stop():
    raise StopIteration


def test_the_flow_is_the_coupling_flow_of_the_package(small):
    """It has the same layers, and two passes invert it."""
    normal = Normal(torch.zeros(4), torch.eye(4))

    def form(model):
        shapes = {name: leaf.shape for name, leaf in model.state_dict().items()}
        return shapes, [step.passes for step in model.splines]

    model = form(_flows.flow_of("simulated"))
    assert model == form(DENSITIES["coupling-flow"](normal, None))
    assert set(model[1]) == {2}
    assert model != form(DENSITIES["flow"](normal, None))  # a control


def test_chains_of_mcem_have_at_least_250_steps(small, monkeypatch):
    """Those that were planned are those that were made."""
    assert min(study.LENGTHS.values()) >= 250
    start, made = _flows.start_of("simulated", 0.5, 0), []
    sampler = study.projected_latent(start.model)
    counting = SimpleNamespace(init=sampler.init, step=None)
    counting.step = lambda state, data: made.append(1) or sampler.step(state, data)
    monkeypatch.setattr(
        study,
        "projected_latent",
        lambda model, n_chains: [counting.init, counting.step],
    )
    _, found = run_on(start, "MCEM", monkeypatch)
    assert found == {"steps": [3]}
    assert len(made) == 3


def test_the_rule_ends_a_fit(small):
    """After a third of the time without a rise, and not before `PATIENCE`."""
    table = _flows.table_of("simulated")

    def end(rises_until, limit=np.inf):
        clock = _flows.Clock()
        clock.now = lambda: clock.at
        watch = _flows.Watch(table, clock, limit)
        model = SimpleNamespace(at=0.0)
        model.log_prob = lambda x: torch.full(
            (len(x),), min(model.at, rises_until) * watch.RISE * 2
        )
        watch.averaged = SimpleNamespace(modules=[model])
        for epoch in range(10**4):
            clock.at = model.at = float(epoch)
            if watch(epoch, 0.0):
                return epoch, watch
        return None

    last, watch = end(300.0)
    assert last * (1 - watch.SHARE) == pytest.approx(300, rel=2 * watch.APART)
    assert (watch.ended, watch.best[2]) == ("rule", watch.curve[-1][2])
    last, watch = end(3.0)
    assert 3 + watch.PATIENCE <= last <= 4 + watch.PATIENCE + 2
    last, watch = end(300.0, limit=100.0)
    assert (last, watch.ended) == (100, "limit")


def test_time_for_scores_does_not_count(monkeypatch):
    times = iter([0.0, 2.0, 3.0, 7.0, 8.0, 8.5, 10.0])
    monkeypatch.setattr(_flows.time, "process_time", lambda: next(times))
    clock = _flows.Clock()
    assert clock.now() == 2
    with clock.pause():
        pass  # 4 seconds
    assert clock.imputes(lambda value: value)("drawn") == "drawn"  # half a second
    assert (clock.now(), clock.imputing) == (6, 0.5)


def test_timed_chains_are_chains(small, seed):
    """What is timed is what training.Chains does."""
    data, x, _ = _flows.start_of("simulated", 0.5, seed)
    conditionals, ends = _flows.conditionals_of(4), []
    for chains in (
        study.training.Chains(data, x.clone()),
        study.TimedChains(Incomplete(*data), x.clone(), _flows.Clock()),
    ):
        with seeded(seed):
            ends.append(chains.move(conditionals, torch.arange(len(data.x)), 4))
    assert (ends[0] == ends[1]).all()


def record(method, mask, score, curve):
    """Make a record of a fit."""
    key = {"table": "simulated", "fraction": 0.5, "method": method, "mask": mask}
    return key | {"score": score, "curve": curve, "ended": "rule", "imputing": 0.5}


def test_the_report_tells_who_is_ahead(tmp_path):
    results = Results(tmp_path / "fits.jsonl")
    curve = [[10.0, 5, -2.0, -2.1], [20.0, 10, -1.05, -1.2], [50.0, 25, -1.0, -1.1]]
    for mask, gain in enumerate([0.3, 0.5, 0.4]):
        results.add(record("VGI", mask, 1.0 + mask, curve))
        results.add(record("MCEM", mask, 1.0 + mask - gain, curve))
        results.add(record("normal", mask, 1.0 + mask + gain, curve))
    again = Results(tmp_path / "fits.jsonl").records
    line = reported.difference_table(again, ["MCEM", "normal"]).splitlines()[-1]
    assert "+0.40 (0.06), ahead; +0.30, +0.50, +0.40" in line
    assert "-0.40 (0.06), **behind**" in line
    assert "level" in reported.verdict([0.3, -0.3, 0.1])
    assert reported.arrival(again[0]) == (20.0, 10)
    assert reported.last_rise(again[0]) == pytest.approx(0.05)
    assert reported.along(again[0], 0, 20.0) == -1.2
    assert reported.along(again[0], 1, 9) == -2.1
    assert reported.along(again[0], 0, 80.0) == 1.0
    assert np.isnan(reported.along(again[0], 0, 5.0))


def test_chains_come_nearer_to_observed_cells(small):
    """A flow that is N(0, I): acceptance is a mean, and distances shrink."""
    model = _flows.flow_of("simulated")
    data = _flows.hidden(_flows.table_of("simulated").train, 0.5, 0)
    with seeded(0):
        first, last = study.chain_looks(model, data, [1, 100])
    assert (first[0], last[0]) == (1, 100)
    assert 0 < last[1] < 1
    assert last[2] < 0.8 * first[2]


def test_the_costs_of_an_epoch(small):
    found = study.costs("simulated", 20)
    assert found.keys() == {"coupling", "autoregressive"}
    assert (np.array([*found.values()]) > 0).all()
    header, *_ = reported.cost_table(found, 10).splitlines()
    assert "VGI" in header


RESULTS = Path(study.__file__).parent / "results" / "vgi_flows.jsonl"


def broken_rules(records):
    """List what the comparison of VGI with MCEM demands and the records do not have."""
    found = []
    for name, fraction in reported.cells(records):
        pair = [reported.of_cell(records, name, fraction, m) for m in ("VGI", "MCEM")]
        masks, limits = ([[r[k] for r in part] for part in pair] for k in KEYS)
        if masks[0] != masks[1] or len({*masks[0]}) < 3:
            found.append("masks")
        if len({*limits[0], *limits[1]}) > 1:
            found.append("limits")
        if any(min(r["steps"], default=0) < 250 for r in pair[1]):
            found.append("steps")
    if any(record["commit"] is None for record in records):
        found.append("commit")
    return found


KEYS = "mask", "limit"
BREACHES = {
    "masks": {"mask": 7},
    "limits": {"limit": 1.0},
    "steps": {"steps": [250, 249]},
    "commit": {"commit": None},
}


def test_the_results_keep_the_rules():
    """Same masks, at least 3; same limits; chains of at least 250 steps; a commit."""
    records = Results(RESULTS).records
    assert reported.cells(records)
    assert broken_rules(records) == []
    (first, *_) = [r for r in records if r.get("method") == "MCEM"]
    for rule, change in BREACHES.items():  # controls
        others = [r | change if r is first else r for r in records]
        assert broken_rules(others) == [rule]
