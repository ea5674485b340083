"""Fits to a table: starts, how often EM runs, the solver, and the scale."""

import numpy as np
import pytest
import torch
from energies import Bell, RestrictedBoltzmann

from skvnce._core.progress import tell_round
from skvnce.contrast import fit
from skvnce.contrast.fit import fit_table
from skvnce.contrast.models import initial_normal, normal_of_cells

SETTINGS = fit.Settings(
    *(None, None, None, "gaussian", 3, 2, 1, 0, None),
    **{"solver": "auto", "max_iter": 3, "n_steps": 2, "tol": 1e-5},
    **{"batch_size": 50, "learning_rate": 0.05},
)


def table(seed=0, n=60, missing=0.2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 3))
    X = np.where(rng.random(X.shape) < missing, np.nan, X)
    return X[~np.isnan(X).all(1)]


def held_out(data):
    hidden = data.observed & (torch.rand(data.x.shape) < 0.1)
    return initial_normal(data, (torch.ones(len(data.x)).bool(), hidden))


def fitted(X, on_round=tell_round, **changes):
    torch.manual_seed(0)
    settings = SETTINGS._replace(**changes)
    moments = np.nanmean(X, 0), np.nanstd(X, 0)
    return settings, fit_table(settings, X, *moments, held_out, on_round)


def test_the_normal_of_logarithms_is_that_of_the_logarithms():
    data = fitted(table())[1].data
    skewed = data._replace(x=data.x.exp().where(data.observed, 0.0))
    every, none = torch.ones(3).bool(), torch.zeros(3).bool()
    floor = torch.full((3,), 1e-9).double()
    result, expected = (
        normal_of_cells(skewed, every, floor),
        normal_of_cells(data, none, floor),
    )
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other)


class Lost(Bell):
    """Starts far from the data, except at the second time."""

    count = 0

    def __init__(self, n_features):
        super().__init__(n_features)
        Lost.count += 1
        self.centre.data.fill_(0.0 if Lost.count % 3 == 2 else 40.0)


def test_the_best_start_is_kept():
    X = table(missing=0.0)
    adam = {"solver": "adam", "max_iter": 1, "learning_rate": 1e-9}
    _, best = fitted(X, model=Lost, n_init=3, **adam)
    _, near = fitted(X, model=Bell, **adam)
    assert best.outcome.fitted.model.model.centre.abs().max() < 1
    found = float(best.outcome.evaluation.values.mean())
    assert found == pytest.approx(float(near.outcome.evaluation.values.mean()), abs=1.0)


def test_rounds_of_adam_are_told_without_a_change():
    X = (table(missing=0.0) > 0).astype(float)
    machine = {"model": RestrictedBoltzmann, "posterior": "bernoulli"}
    epochs = []
    fitted(
        X,
        lambda n, loss, change: epochs.append((n, change)),
        **machine,
        noise="marginal",
    )
    assert [n for n, _ in epochs] == [1, 2, 3]
    assert np.isnan([change for _, change in epochs]).all()


@pytest.mark.parametrize(
    ("model", "ridge", "expected"),
    [(None, None, 9.0), (None, 0.5, 0.5), (Bell, None, 0.0), (Bell, 2.0, 2.0)],
)
def test_the_strength_of_the_penalty(model, ridge, expected):
    _, result = fitted(table(missing=0.0), model=model, ridge=ridge)
    assert result.outcome.ridge == expected
