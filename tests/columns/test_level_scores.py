"""Scores of numbers with repeated values in tables with categories."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from skvnce import VariationalAutoencoder
from skvnce._core.incomplete import Incomplete
from skvnce.autoencoder.column_scores import frequency_scores

VALUES = np.array([0.0, 1.0, 2.0, 5.0])


def table(seed, n=300):
    """Make a column of many zeros, a measurement, and a category."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    found = pd.DataFrame(
        {
            "cost": VALUES[np.digitize(z + rng.normal(size=n), [0.8, 1.2, 2.0])],
            "size": 100 + 10 * z,
            "kind": np.where(z + rng.normal(size=n) > 0.5, "u", "v"),
        }
    )
    return found.mask(rng.random(found.shape) < 0.2)


def started(X):
    asked = {"cost": "numeric"}  # whole numbers of few values
    options = {"on_misfit": "ignore", "random_state": 0, "categorical_features": asked}
    return VariationalAutoencoder(1, max_iter=0, **options).fit(X)


@pytest.fixture
def fitted(seed):
    X = table(seed)
    return started(X), X


def test_values_are_intervals_of_their_shares(seed):
    X = table(seed)
    raw = Incomplete.from_array(X[["cost", "size"]].to_numpy())
    weights = torch.linspace(0.5, 2, len(X)).double()
    mass = weights.numpy()
    families = np.array(["rounded", "normal"], dtype=object)
    [(scores, edges)] = frequency_scores(raw, weights, families, {0: VALUES}).values()
    cells, seen = X["cost"].to_numpy(), X["cost"].notna().to_numpy()
    for k, value in enumerate(VALUES):
        share = mass[cells == value].sum() / mass[seen].sum()
        found = norm.cdf(edges[k + 1]) - norm.cdf(edges[k])
        assert found == pytest.approx(float(share), abs=1e-12)
        middle = norm.expect(lb=edges[k], ub=edges[k + 1], conditional=True)
        assert scores[k] == pytest.approx(middle, abs=1e-6)


def test_cells_come_back_and_draws_have_the_shares(fitted):
    vae, X = fitted
    assert vae.families_ == ["rounded", "normal", "ordinal"]
    maps = vae._fitted.model.columns.maps()
    codes = X.assign(kind=X["kind"].map({"u": 0.0, "v": 1.0})).to_numpy(float)
    data = Incomplete.from_array(codes)
    back = maps.cells(maps.scores(data)[0].x)
    exact = data.observed.clone()
    exact[:, 1] = False
    assert torch.equal(back[exact], data.x[exact])
    torch.testing.assert_close(back[data.observed], data.x[data.observed])
    n = 2000
    scores = torch.from_numpy(norm.ppf((np.arange(n) + 0.5) / n))
    drawn = maps.cells(scores[:, None].repeat(1, 3))[:, 0].numpy()
    observed = X["cost"].dropna()
    for value in VALUES:
        share = (observed == value).mean()
        assert (drawn == value).mean() == pytest.approx(share, abs=2 / n)
    rounded = np.abs(np.nanmean(codes[:, 0]) + np.nanstd(codes[:, 0]) * scores.numpy())
    near = VALUES[np.abs(rounded[:, None] - VALUES).argmin(1)]
    assert abs((near == 0).mean() - (observed == 0).mean()) > 0.1  # control


def test_rows_of_the_model_have_as_many_zeros(fitted):
    vae, X = fitted
    rows = pd.DataFrame(vae.sample_rows(2000, random_state=0), columns=X.columns)
    share = (X["cost"].dropna() == 0).mean()
    assert abs((rows["cost"] == 0).mean() - share) < 0.1
    assert set(rows["cost"]) <= set(VALUES)


def test_tables_of_numbers_round_to_the_nearest_value(seed):
    vae = started(table(seed)[["cost", "size"]])
    assert vae._fitted.model.columns.maps().tables is None
