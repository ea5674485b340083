"""The parts of the benchmark of FA-Frey that are not those of the toy."""

import numpy as np
import pytest
import torch
import vgi_frey as study
from torch import nn
from vgi_factor_analysis import conditional_kl, hide, normal, standardised

SMALL = study.STUDIES["simulated"]


@pytest.fixture(scope="module")
def data():
    return hide(study.simulate("simulated", 400, 0), 0.5, 0)


def test_logits_of_grey_values():
    pixels = np.array([0.0, 127.5, 255.0])
    share = 1 / (1 + np.exp(-study.logits(pixels)))
    assert share == pytest.approx([0.15, 0.5, 0.85])


def test_complete_rows_recover_the_truth():
    truth = study.truth_of("simulated")
    x = study.simulate("simulated", 20_000, 5)
    fitted = study.fit_complete(x, 2)
    # about (number of parameters) / (2 n) = 0.0012
    assert float(normal(truth, fitted)) < 0.005
    assert float(normal(truth, study.fit_complete(x.flip(1), 2))) > 0.5  # control


def test_conditionals_start_as_those_of_the_model(data):
    truth = study.truth_of("simulated")
    q, x = study.LinearConditionals(truth), data.x
    assert conditional_kl(q_in_double(q), truth, x).max() < 1e-9
    other = truth._replace(loadings=truth.loadings.flip(0))
    assert conditional_kl(q_in_double(q), other, x).median() > 0.01  # control


def q_in_double(q):
    zero, one = torch.zeros(12).double(), torch.ones(12).double()
    return study.Scaled(q, zero, one)


def test_conditionals_of_one_column_are_those_of_all(data, seed):
    torch.manual_seed(seed)
    q, x = study.LinearConditionals(study.truth_of("simulated")), data.x.float()
    with torch.no_grad():
        for leaf in q.parameters():
            leaf += 0.3 * torch.randn_like(leaf)
    columns = torch.randint(12, (3, 2, len(x)))
    found, everything = q.at(x.expand(2, -1, -1), columns), q.all(x)
    index = columns.unsqueeze(-1)
    for name in ("loc", "scale"):
        whole = getattr(everything, name).expand(3, 2, -1, -1)
        assert whole.shape == (3, 2, len(x), 12)
        expected = whole.gather(-1, index).squeeze(-1)
        torch.testing.assert_close(getattr(found, name), expected)
    moved = q.at(x.expand(2, -1, -1) + 1.0, columns).loc  # control
    assert not torch.allclose(moved, found.loc)


def test_units_of_columns_are_undone_both_ways(data):
    truth = study.truth_of("simulated")
    _, mean, std = standardised(data)
    scaled = study.scaled_back(truth, mean, std)
    again = study.in_units(scaled, mean, std)
    for part, expected in zip(again, truth, strict=True):
        torch.testing.assert_close(part, expected)
    assert not torch.allclose(scaled.mean, truth.mean)  # control


def test_averages_are_over_second_halves():
    module = nn.Linear(1, 1, bias=False)
    halves = study.Halves([module], 32)
    for epoch in range(1, 33):
        nn.init.constant_(module.weight, float(epoch**2))
        halves(epoch)
    assert list(halves.found) == [4, 8, 16, 32]
    for epoch, (last, averaged) in halves.found.items():
        half = np.arange(epoch // 2 + 1, epoch + 1) ** 2
        assert last[0].weight.item() == epoch**2
        assert averaged[0].weight.item() == pytest.approx(half.mean())


def test_hidden_values_have_no_part_in_any_fit(data):
    """Other values in hidden cells leave the fits as they are; in seen ones not."""
    study_of = SMALL._replace(settings=SMALL.settings._replace(batch_size=400))

    def fitted(table):
        torch.manual_seed(1)
        start = study.fit_marginals(table, 2)
        models = [start, study.fit_means(table, 2), study.fit_em(table, 2, 3)]
        by_vgi = study.by_vgi(table, start, 16, study_of, 1)
        return [*models, by_vgi[16][0][0], by_vgi[16][1][0]]

    x = study.simulate("simulated", 400, 0)
    other = torch.where(data.observed, x, x + 7.0)
    seen = torch.where(data.observed, x + torch.eye(400, 12) * 7.0, x)
    first = fitted(data)
    for changed, same in ((other, True), (seen, False)):
        table = hide(changed, 0.5, 0)
        assert torch.equal(table.observed, data.observed)
        for model, expected in zip(fitted(table), first, strict=True):
            assert torch.equal(model.loadings, expected.loadings) is same


def test_vgi_moves_from_the_marginals_towards_the_truth(data):
    truth = study.truth_of("simulated")
    torch.manual_seed(0)
    start = study.fit_marginals(data, 2)
    settings = study.TrainingSettings(5, 2, 200, 0.1, 0.1)
    found = study.by_vgi(data, start, 64, SMALL._replace(settings=settings), 0)
    first, last = (float(normal(truth, m)) for m in (start, found[64][1][0]))
    assert last < 0.6 * first
    record = study.evaluate(found, truth, study.simulate("simulated", 50, 1))
    assert record["kl"] == round(last, 3)
