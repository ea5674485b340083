"""Models and posteriors from names and functions, and what is refused."""

import pytest
import torch
from energies import Bell, Factor
from torch import distributions, nn

from skvnce._core.incomplete import Incomplete
from skvnce.contrast.models import (
    FreeGaussian,
    NotAModel,
    NotAPosterior,
    RestrictedBoltzmann,
    Scaled,
    UnknownLatents,
    UnsuitableModel,
    UnsuitablePosterior,
    build_model,
    build_posterior,
    check_log_density,
    count_latents,
    rebuild,
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
    SequentialPosterior,
)

D = 3
MIXED = ColumnSummary.standard(D)._replace(kind=torch.tensor([BINARY, POSITIVE, REAL]))
REALS = ColumnSummary.standard(D)
DATA = Incomplete(torch.ones(4, D).double(), torch.rand(4, D) < 0.5)


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


@pytest.mark.parametrize(
    ("make", "text"),
    [(lambda d: None, "made NoneType"), (lambda d: nn.Linear(d, 1), "made Linear")],
)
def test_what_is_no_model_is_refused(make, text):
    with pytest.raises(NotAModel, match=text):
        build_model(make, None, D)


class Three(nn.Module):
    def log_density(self, x, y, z):
        return x


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
    with pytest.raises(NotAModel, match="takes 3 arguments"):
        count_latents(Three(), None)
    with pytest.raises(UnknownLatents, match="Unknown.log_density takes latents"):
        count_latents(Unknown(), None)
    for states, asked in ((8, None), ((8, 3), 2)):
        with pytest.raises(UnsuitableModel, match="states must be a tensor"):
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


class Answer(nn.Module):
    """An encoder that answers with one object."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x, observed):
        return self.answer


@pytest.mark.parametrize(
    ("encoder", "kind", "text"),
    [
        (3, NotAPosterior, "made int"),
        (Answer(torch.zeros(3, 1)), NotAPosterior, "returned Tensor"),
        (
            Answer(distributions.Normal(torch.zeros(3), 1.0)),
            UnsuitablePosterior,
            r"batch_shape \(3, 1\) .* got \(3,\)",
        ),
    ],
)
def test_encoders_that_do_not_fit_are_refused(encoder, kind, text):
    with pytest.raises(kind, match=text):
        posterior(lambda d, k: encoder, Factor(D), 1)


class Wide(Bell):
    def log_density(self, x):
        return -x.square()


class Nan(Bell):
    def log_density(self, x):
        return (x.sum(1) * 0 - 1).log()


class Mismatched(Bell):
    def log_density(self, x):
        return x @ torch.ones(7).double()


class Unfilled(Bell):
    def conditional_mean(self, x, observed):
        return x[:1]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Wide, "one number a row"),
        (Nan, "NaN at row 0"),
        (Mismatched, "failed on"),
        (Unfilled, "filled rows"),
    ],
)
def test_models_that_do_not_return_log_densities_are_refused(kind, text):
    model = Scaled(kind(D).double())
    drawn = SequentialPosterior(posterior(None, model.model, 0), 2)
    with pytest.raises(UnsuitableModel, match=f"{kind.__name__}.*{text}"):
        check_log_density(model, drawn, DATA)
    check_log_density(Scaled(Bell(D).double()), drawn, DATA)


@pytest.mark.parametrize(
    ("make", "choice", "n_latents"),
    [
        (None, None, 0),
        (lambda d: FreeGaussian(standard_normal(d)), None, 0),
        (Factor, "normal", 1),
        (RestrictedBoltzmann, None, 8),
    ],
)
def test_modules_made_again_have_the_shapes_of_the_first(make, choice, n_latents):
    model, steps = rebuild(make, choice, n_latents, REALS)
    again, others = rebuild(make, choice, n_latents, REALS)
    again.load_state_dict(model.state_dict())
    others.load_state_dict(steps.state_dict())
    if n_latents == 0:  # exact cells, as after the fit
        assert not isinstance(steps[0], DefensiveCells)
