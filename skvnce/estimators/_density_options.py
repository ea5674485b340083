"""Algorithms of `IncompleteDensity`, as options, and the densities that it names."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions

from skvnce._random import seeded
from skvnce.algorithms.vgi import initial
from skvnce.algorithms.vgi.autoencoder import AutoencoderDensity
from skvnce.algorithms.vgi.training import TrainingSettings
from skvnce.estimators._column_scores import auto_rank, linear_start
from skvnce.estimators._options import Option
from skvnce.estimators._validation import AUTO, integer_from
from skvnce.fits.vgi_rounds import AVERAGED
from skvnce.fitted.without_cells import turned_like
from skvnce.models.factor_density import FactorDensity
from skvnce.models.rowwise import own_density
from skvnce.models.spline_flow import SplineFlow
from skvnce.samplers.variational_gibbs import observed_hypercube
from skvnce.variational.heads import BoundedHead, MixtureHead, NormalHead, SplineHead

_HEADS = {
    "normal": lambda low, high: NormalHead(),
    "mixture": lambda low, high: MixtureHead(),
    "spline": lambda low, high: SplineHead(),
    "bounded": BoundedHead,
}
_STARTS = {
    "auto": initial.by_normal,
    "normal": initial.by_normal,
    "marginals": initial.by_marginals,
}
_RANGES = {"observed": observed_hypercube, "unbounded": initial.unlimited}

_SOLVER = {  # the values of the fields that are "auto"
    "batch_size": 128,
    "learning_rate_init": 1e-3,
    "n_iter_no_change": 6,
    "validation_fraction": 0.1,
    "device": "cpu",
}
_FASTER = {"learning_rate_init": 3e-3}  # of an autoencoder of few columns
_FEW = 20  # which are at most so many; more columns need more steps
_FROM_MIXTURE = {"n_iter_no_change": 3}  # also of the warm-up


class Defaults(NamedTuple):
    """What parameters of `IncompleteDensity` that are "auto" stand for.

    Attributes
    ----------
    solver : dict
    n_chains, n_updates, n_rounds : int
    """

    solver: dict
    n_chains: int
    n_updates: int
    n_rounds: int


def defaults_of(has_encoder, n_columns, from_mixture):
    """Return what "auto" stands for."""
    if from_mixture:  # chains start where they would be after many updates
        return Defaults(_SOLVER | _FROM_MIXTURE, 1, 2, 1)
    faster = _FASTER if has_encoder and n_columns <= _FEW else {}
    n_updates = min(8, 2 * n_columns)
    return Defaults(_SOLVER | faster, 2 if has_encoder else 5, n_updates, 40)


def number_of(asked, default):
    """Return a number that a parameter asks for."""
    return int(default if isinstance(asked, str) else asked)


class VGI(Option):
    """Variational Gibbs inference, for the `algorithm` of `IncompleteDensity`.

    Parameters
    ----------
    conditionals : {"normal", "mixture", "spline", "bounded"}, default="normal"
        Family of the univariate conditionals q(x_j | x): normals, mixtures of three
        normals, normals transformed by monotone splines, or normals truncated to the
        observed range of their column.
    network : {"shared", "extended", "independent"}, default="shared"
        The networks of the conditionals: a body that all columns share, with a small
        network for each column; the same, but with the previous value of x_j as an
        input (extended conditionals, which are cheaper); or a network for each column.
    n_updates : "auto" or int, default="auto"
        G, the number of missing cells that a visit of a row draws in each chain.
        ``"auto"`` is 2 with the draws of a mixture, else twice the number of columns,
        at most 8.
    n_selected : int, default=1
        M, the number of missing cells of a row in the objective.
    start : {"auto", "normal", "marginals"}, default="auto"
        Initial completions of rows (f0): draws of the normal distribution that EM fits,
        given the observed cells, or observed cells of the same columns.  ``"auto"`` are
        draws of a mixture of normals if ``model="vae"``, there are no categories, and
        the table has at least 20 rows and less than 100 columns; else those of the
        normal distribution.  The means of the mixture are then the offset of the
        conditionals, and the autoencoder first learns the completed rows.
    chain_range : {"observed", "unbounded"}, default="observed"
        Whether draws outside of the observed range of their column are rejected during
        training.
    n_warm_up : int, default=0
        Number of passes through the rows that train the conditionals as regressions of
        observed cells before the main training (algorithm 2).

    References
    ----------
    Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
    estimation from incomplete data, algorithms 1 to 3, sections 3.1 to 3.3.

    Examples
    --------
    >>> from skvnce.options import VGI, IncompleteDensity
    >>> IncompleteDensity(algorithm=VGI("mixture", n_updates=5))
    IncompleteDensity(algorithm=VGI(conditionals='mixture', n_updates=5))
    """

    _parameter_constraints = {
        "conditionals": [StrOptions(set(_HEADS))],
        "network": [StrOptions(set(initial.NETWORKS))],
        "n_updates": [AUTO, integer_from(1)],
        "n_selected": [integer_from(1)],
        "start": [StrOptions(set(_STARTS))],
        "chain_range": [StrOptions(set(_RANGES))],
        "n_warm_up": [integer_from(0)],
    }

    def __init__(
        self,
        conditionals="normal",
        *,
        network="shared",
        n_updates="auto",
        n_selected=1,
        start="auto",
        chain_range="observed",
        n_warm_up=0,
    ):
        self.conditionals = conditionals
        self.network = network
        self.n_updates = n_updates
        self.n_selected = n_selected
        self.start = start
        self.chain_range = chain_range
        self.n_warm_up = n_warm_up


class MCEM(Option):
    """Monte Carlo EM, for the `algorithm` of `IncompleteDensity`.

    Projected latent chains (PL-MCMC), which start anew, draw the missing cells in the
    first round and then in each `every`-th round.

    Parameters
    ----------
    n_steps : int, default=300
        Number of steps of each chain; a third of it in the first nine rounds.
    every : int, default=5
        Number of rounds between draws.

    References
    ----------
    Cannella, Soltani and Tarokh (2021), Projected latent Markov chain Monte Carlo.

    Examples
    --------
    >>> from skvnce.options import MCEM, IncompleteDensity
    >>> IncompleteDensity("coupling-flow", algorithm=MCEM(n_steps=1000))
    IncompleteDensity(algorithm=MCEM(n_steps=1000), model='coupling-flow')
    """

    _parameter_constraints = {"n_steps": [integer_from(1)], "every": [integer_from(1)]}

    def __init__(self, n_steps=300, every=5):
        self.n_steps = n_steps
        self.every = every


def conditionals_of(option, normal, ends, families, mixture=None):
    """Make the conditionals of a `VGI`; `ends` are the ranges of the scores.

    With the arrays of a mixture they start at this instead of the normal distribution.
    """
    head = _HEADS[option.conditionals](*map(torch.tensor, ends))
    if families.levels:
        return initial.mixed_conditionals(normal, families, head, option.network)
    mixture = mixture and tuple(map(torch.tensor, mixture))
    return initial.anchored_conditionals(normal, head, option.network, mixture)


def chains_of(option, n_chains):
    """Return the settings of the chains of a `VGI`."""
    return initial.ChainSettings(
        int(n_chains), _STARTS[option.start], _RANGES[option.chain_range]
    )


def settings_of(method, fields, n_updates, *, from_mixture):
    """Return the settings of a training by an algorithm and fields of its solver."""
    rate, is_vgi = fields["learning_rate_init"], isinstance(method, VGI)
    return TrainingSettings(
        n_updates=number_of(method.n_updates if is_vgi else "auto", n_updates),
        n_selected=int(method.n_selected) if is_vgi else 1,
        batch_size=int(fields["batch_size"]),
        learning_rate=rate,
        q_learning_rate=3 * rate,
        # else it has learned rows with missing values in the warm-up
        trains_encoder=not from_mixture,
        averaged=AVERAGED if from_mixture else None,
    )


def _linear(normal, like=None):
    rank = auto_rank(len(normal.mean))
    linear = linear_start(normal, rank)
    if like is not None and like is not normal:
        linear = turned_like(linear, linear_start(like, rank))
    return linear


def _factor_density(normal, families, like=None):
    return FactorDensity.of(_linear(normal, like))


def _autoencoder(normal, families, like=None):
    return AutoencoderDensity(_linear(normal, like), families)


def _flow(normal, families, like=None, **options):
    return SplineFlow(normal.mean, torch.linalg.cholesky(normal.covariance), **options)


# factories of densities that start at a normal distribution
DENSITIES = {
    "vae": _autoencoder,
    "flow": partial(_flow, n_passes=None),
    # coupling layers are cheap to invert, as Monte Carlo EM requires
    "coupling-flow": partial(_flow, n_passes=2),
    "factor-analysis": _factor_density,
}


def made_by_user(make, n_features):
    """Make a user's density, and check it."""
    if isinstance(make, torch.nn.Module):
        raise TypeError(
            f"model must be a function of the number of columns that returns a "
            f"torch.nn.Module, got the module {type(make).__name__}(...). Pass its "
            f"class, or lambda n_features: {type(make).__name__}(...)."
        )
    module = make(n_features)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"model must return a torch.nn.Module, got {type(module).__name__}."
        )
    return own_density(module, n_features)


def placed(pair, device, n_features):
    """Move model and conditionals to a device, in place.

    Raises ValueError if the model has tensors that torch cannot move.
    """
    found = pair.on(device)
    if device.type == "cpu":
        return found
    try:
        with torch.no_grad(), seeded(0):
            found.model.log_prob(_some_rows(n_features).float().to(device))
    except RuntimeError as error:
        raise ValueError(
            f"model cannot run on the device {device}: {error} Register all tensors as "
            "parameters or buffers, and make others on the device of the input; or "
            "pass device='cpu'."
        ) from error
    return found


def _some_rows(n_features):
    """Make a few rows near the centre."""
    n_rows = 3
    rows = torch.linspace(-1, 1, n_rows * n_features, dtype=torch.float64)
    return rows.view(n_rows, n_features)


def at_some_rows(model, n_features):
    """Evaluate a density at a few rows near the centre; moves it to the CPU."""
    # without dropout, whose values are random; the mode is restored below
    was_training = model.training
    with torch.no_grad():
        model = model.cpu().double().eval()
        found = model.log_prob(_some_rows(n_features)).numpy()
    model.train(was_training)
    return found


def check_rebuilt(found, trained):
    """Check that a rebuilt model equals the trained one, at some rows."""
    if not np.allclose(found, trained, rtol=1e-3, atol=1e-3):
        raise ValueError(
            "model returns a module that differs from the fitted one in more than "
            "its parameters and buffers. Store random numbers, and whatever else "
            "changes, in buffers (register_buffer)."
        )
