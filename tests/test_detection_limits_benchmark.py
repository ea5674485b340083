"""The study of values below detection limits."""

import detection_limits as study
import numpy as np
import pytest


@pytest.mark.parametrize("shape", study.SCALES)
@pytest.mark.parametrize("limits", study.OFFSETS)
def test_the_stated_share_is_below_the_limits(shape, limits, monkeypatch, seed):
    monkeypatch.setattr(study, "N", 20_000)
    rng = np.random.default_rng([seed, 9])
    X, limit = study.simulate(rng, shape, 0.3, limits)
    assert abs((X[:, 0] < limit).mean() - 0.3) < 0.03
    assert len(np.unique(limit)) == len(study.OFFSETS[limits])
    estimate, variance = study.analysed(X, shape)
    truth = np.append(study.SCALES[shape][2], study.BETA)
    assert (abs(estimate - truth) < 5 * np.sqrt(variance)).all()


@pytest.mark.filterwarnings("ignore:The observed cells of 'x0' do not tell")  # right
def test_draws_replace_cells_below_their_limits_only(seed):
    rng = np.random.default_rng([seed, 10])
    X, limit = study.simulate(rng, "lognormal", 0.5, "several")
    hidden = X[:, 0] < limit
    part = X.copy()
    part[hidden, 0] = np.nan
    for draw in study.draws_within(part, limit, seed)[:3]:
        assert (draw[hidden, 0] < limit[hidden]).all()
        np.testing.assert_array_equal(draw[~hidden], X[~hidden])


def test_coverage_of_complete_data_and_bias_of_substitution(seed):
    """In 60 repetitions coverage is at least 80 % (P < 1e-4 at 95 %)."""
    rng = np.random.default_rng([seed, 11])
    found = []
    for _ in range(60):
        full, limit = study.simulate(rng, "normal", 0.5, "one")
        half = full.copy()
        half[:, 0] = np.where(full[:, 0] < limit, limit / 2, full[:, 0])
        found.append(
            {
                "complete data": study.intervals([full] * 2, "normal"),
                "half the limit": study.intervals([half] * 2, "normal"),
            }
        )
    rows = {row[0]: row[1:] for row in study.rows_of(found, "normal")}
    shares = [float(cell.split(" / ")[1].rstrip("%")) for cell in rows["complete data"]]
    assert min(shares) >= 80
    assert float(rows["half the limit"][0].split(" / ")[0]) < -5
