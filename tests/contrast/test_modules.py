"""Models and posteriors from names and functions, and what is refused."""

import pytest
import torch
from energies import Bell, Factor, RestrictedBoltzmann
from torch import nn

from skvnce.contrast.models import (
    FreeGaussian,
    Scaled,
    build_model,
    build_posterior,
    count_latents,
    standard_normal,
)
from skvnce.contrast.noise import BINARY, POSITIVE, REAL, ColumnSummary
from skvnce.contrast.posteriors import (
    BernoulliEncoder,
    BinaryCells,
    DefensiveCells,
    ExactStates,
    Latents,
    NormalEncoder,
)

D = 3
MIXED = ColumnSummary.standard(D)._replace(kind=torch.tensor([BINARY, POSITIVE, REAL]))
REALS = ColumnSummary.standard(D)


def normal(positive):
    return standard_normal(D)


def posterior(choice, model, n_latents, summary=REALS):
    return build_posterior(choice, Scaled(model.double()), n_latents, summary, normal)


def test_the_default_starts_at_the_normal():
    start = standard_normal(D)._replace(mean=torch.arange(D).double())
    model = build_model(None, lambda: start, D)
    assert isinstance(model.model, FreeGaussian) and model.log_scale.requires_grad
    torch.testing.assert_close(model.model.free.normal().mean, start.mean)


def test_a_module_of_the_caller_is_copied():
    kept = Bell(D)
    model = build_model(lambda width: kept, None, D)
    assert model.model is not kept and model.model.centre.dtype == torch.float64


class Unknown(nn.Module):
    def log_density(self, x, z):
        return x[:, 0]


class Optional(nn.Module):
    def log_density(self, x, power=2):
        return x[:, 0]


def with_states(shape):
    model = Unknown()
    model.states = torch.zeros(shape)
    return model


def test_latents_are_counted():
    assert count_latents(Bell(D), 5) == count_latents(Optional(), None) == 0
    assert count_latents(Factor(D), None) == 1
    assert count_latents(Unknown(), 4) == 4
    assert count_latents(with_states((8, 3)), None) == 3
    for states, asked in ((8, None), ((8, 3), 2)):
        with pytest.raises(ValueError, match="states must be a tensor"):
            count_latents(with_states(states), asked)


def test_cells_are_drawn_by_the_kind_of_their_column():
    binary, rest = posterior(None, Bell(D), 0, MIXED)
    assert isinstance(binary, BinaryCells) and isinstance(rest, DefensiveCells)
    assert rest.learnt.positive.tolist() == [False, True, False]
    assert rest.learnt.drawn.tolist() == [True, False, False]
    (only,) = posterior(None, FreeGaussian(standard_normal(D)), 0, MIXED)
    assert not only.learnt.positive.any() and not only.learnt.drawn.any()


@pytest.mark.parametrize(
    ("choice", "kind"),
    [(None, NormalEncoder), ("normal", NormalEncoder), ("bernoulli", BernoulliEncoder)],
)
def test_encoders_by_name(choice, kind):
    *_, last = posterior(choice, Factor(D), 1)
    assert isinstance(last, Latents) and isinstance(last.encoder, kind)


def test_states_are_enumerated_unless_asked_otherwise():
    machine = RestrictedBoltzmann(D, 2)
    assert isinstance(posterior(None, machine, 2)[-1], ExactStates)
    assert isinstance(posterior("bernoulli", machine, 2)[-1], Latents)
