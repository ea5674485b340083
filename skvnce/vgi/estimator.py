"""An imputer that draws missing cells from any density of rows, and the densities."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils._param_validation import StrOptions

from skvnce._core.distributions.normal import Normal
from skvnce._core.progress import step
from skvnce._core.random import seed_from, seeded
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import warn_user
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.callbacks import (
    CallbackSupportMixin,
    failures_named,
    shows_progress,
)
from skvnce._imputer.held_out import hold_out
from skvnce._imputer.options import Adam, Option, fields_of
from skvnce._imputer.validation import AUTO, OF_CATEGORIES, integer_from, names_table
from skvnce._tables.model_columns import FILLED_BY_CONSTANT, Handling
from skvnce._tables.schema import Schema
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.autoencoder import samplers
from skvnce.autoencoder.column_scores import NodeScores, auto_rank, linear_start
from skvnce.autoencoder.lair import OF_MEMBERS, DrawnByMembers, reject_categories
from skvnce.autoencoder.model import (
    EncoderMember,
    WithoutCells,
    bounds_of_nodes,
    moved,
    turned_like,
)
from skvnce.mixture.density import Mixture
from skvnce.vgi import fit, training
from skvnce.vgi.conditionals import (
    NETWORKS,
    BoundedHead,
    MixtureHead,
    NormalHead,
    SplineHead,
    anchored_conditionals,
    mixed_conditionals,
)
from skvnce.vgi.densities import (
    AutoencoderDensity,
    FactorDensity,
    SplineFlow,
    own_density,
)
from skvnce.vgi.fit import (
    AVERAGED,
    ChainSettings,
    Limits,
    Start,
    VGIRounds,
    by_marginals,
    by_normal,
    check_unchanged,
    make_chains,
    maximised,
    range_of,
    some_rows,
    trained_further,
    unlimited,
    warm_up_conditionals,
    warm_up_model,
)
from skvnce.vgi.model import ChainMember, ChainModel, Fitted
from skvnce.vgi.training import Hypercube, TrainingSettings, observed_hypercube

# ----------------------------------------
# Algorithms of `IncompleteDensity`, as options, and the densities that it names.


_HEADS = {
    "normal": lambda low, high: NormalHead(),
    "mixture": lambda low, high: MixtureHead(),
    "spline": lambda low, high: SplineHead(),
    "bounded": BoundedHead,
}
_STARTS = {
    "auto": by_normal,
    "normal": by_normal,
    "marginals": by_marginals,
}
_RANGES = {"observed": observed_hypercube, "unbounded": unlimited}
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
        "network": [StrOptions(set(NETWORKS))],
        "n_updates": [AUTO, integer_from(1)],
        "n_selected": [integer_from(1)],
        "start": [StrOptions(set(_STARTS))],
        "chain_range": [StrOptions(set(_RANGES))],
        "n_warm_up": [integer_from(0)],
    }

    def __init__(
        self,
        conditionals: Literal["normal", "mixture", "spline", "bounded"] = "normal",
        *,
        network: Literal["shared", "extended", "independent"] = "shared",
        n_updates: int | Literal["auto"] = "auto",
        n_selected: int = 1,
        start: Literal["auto", "normal", "marginals"] = "auto",
        chain_range: Literal["observed", "unbounded"] = "observed",
        n_warm_up: int = 0,
    ) -> None:
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

    def __init__(self, n_steps: int = 300, every: int = 5) -> None:
        self.n_steps = n_steps
        self.every = every


def conditionals_of(option, normal, ends, families, mixture=None):
    """Make the conditionals of a `VGI`; `ends` are the ranges of the scores.

    With the arrays of a mixture they start at this instead of the normal distribution.
    """
    head = _HEADS[option.conditionals](*map(torch.tensor, ends))
    if families.levels:
        return mixed_conditionals(normal, families, head, option.network)
    mixture = mixture and tuple(map(torch.tensor, mixture))
    return anchored_conditionals(normal, head, option.network, mixture)


def chains_of(option, n_chains):
    """Return the settings of the chains of a `VGI`."""
    return ChainSettings(
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


# ----------------------------------------
# A density of rows with missing values, fitted by VGI or Monte Carlo EM.


MOST_OUTSIDE = 0.25  # share of draws out of range above which a column is reported


class IncompleteDensity(CallbackSupportMixin, NodeScores, Option):
    """A density of rows and its training, for the parameter `model` of `VGIImputer`.

    The density describes standardised columns, possibly nonlinear functions of them
    unless it is your own.

    Parameters
    ----------
    model : {"vae", "flow", "coupling-flow", "factor-analysis"} or callable, \
            default="vae"
        ``"vae"``: an autoencoder with at most 20 latents.  The log-density of a
        completed row is replaced by a bound from 8 draws of the latents; the encoder
        is trained for incomplete rows, too.  Only it takes categories.  ``"flow"``:
        an autoregressive neural spline flow.  ``"coupling-flow"``: one of coupling
        layers, which is cheap to invert.  ``"factor-analysis"``: at most 20 factors.  A
        callable: your own density.  It maps the number of columns to a
        `torch.nn.Module` with ``log_prob(x)``, which maps a table (n, columns) to (n,).
        The columns are standardised, so it must be a density on all real numbers, in
        single and in double precision.  State other than parameters must be in buffers;
        for pickling, the callable must be a class or function of a module.
    algorithm : {"vgi", "mcem"}, VGI or MCEM, default="vgi"
        Variational Gibbs inference, with other settings by a `VGI`.  If a missing value
        has several modes given the others, as on a ring, ``VGI("mixture")`` is needed:
        with normal conditionals the fit itself is wrong, too wide on the ring, although
        the loss is flat.  Compare held-out scores of both fits.  Or ``"mcem"``:
        Monte Carlo EM with projected latent chains (PL-MCMC), with other settings by an
        `MCEM`.  It requires ``model="coupling-flow"`` and always runs `max_iter`
        rounds.
    n_training_draws : "auto" or int, default="auto"
        Number of completions of each row that training keeps and updates.  ``"auto"``:
        2 for ``"vae"``, or 1 if it starts at a mixture (see `VGI`), else 5.
    solver : "auto" or Adam, default="auto"
        AdamW for the model, with averages of the parameters over about the last 200
        steps, from a mixture over the last quarter of them; the conditionals use
        AMSGrad with three times its learning rate. The fields of `Adam` that are
        ``"auto"`` have these values: ``batch_size=128``; ``learning_rate_init=1e-3``,
        or 3e-3 for ``"vae"`` with at most 20 columns that does not start at a mixture,
        whose linear part has 0.3 times that; ``n_iter_no_change=6``, or 3 from a
        mixture: training stops after this number of rounds without a better prediction
        of held-out cells; ``validation_fraction=0.1``: the share of the observed cells
        that are held out to choose the number of rounds. With 0, training runs
        `max_iter` rounds on all cells. ``device="cuda"`` trains and is used on a GPU,
        unless there are categories.
    max_iter : "auto" or int, default="auto"
        Maximum number of rounds of 50 steps of the optimiser.  With 0 the result is the
        normal distribution at which all models except your own start.  ``"auto"`` is 1
        for an autoencoder that starts at a mixture (see `VGI`), after a warm-up of at
        most 6 rounds in which it learns the completed rows, else 40.
    n_importance_samples : int, default=64
        Number of draws in `score_samples`.

    Attributes
    ----------
    loss_curve_ : list of float
        Losses of all rounds, in nats; rounds with decreasing learning rates are last.
    validation_scores_ : list of float
        Gain on held-out cells in each round for which it was computed, in nats.
    best_iter_ : int
        Number of rounds that held-out cells chose.
    n_iter_ : int
        Number of rounds.
    n_warm_up_iter_ : int
        Number of rounds in which an autoencoder has learned rows that a mixture
        completes, which are no steps of VGI.  Held-out cells choose it, 0 included, for
        the first member; without them it is 6.
    n_tuning_iter_ : int
        Number of rounds of EM to fit the initial normal distribution.
    location_, scale_ : ndarray of shape (n_nodes,)
        Mean and standard deviation of the observed cells.
    nonlinear_columns_ : bool
        Whether any column is a nonlinear function of its normal scores.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses.

    Notes
    -----
    It has no `fit`: fitted copies, with the attributes above, are in
    `estimators_` of `VGIImputer`.

    Examples
    --------
    >>> from skvnce import VGIImputer
    >>> from skvnce.options import Adam, IncompleteDensity
    >>> density = IncompleteDensity("factor-analysis", solver=Adam(batch_size=64))
    >>> VGIImputer(density).get_params()["model__solver__batch_size"]
    64
    """

    _parameter_constraints = {
        "model": [StrOptions(set(DENSITIES)), callable],
        "algorithm": [StrOptions({"vgi", "mcem"}), VGI, MCEM],
        "n_training_draws": [AUTO, integer_from(1)],
        "solver": [AUTO, Adam],
        "max_iter": [AUTO, integer_from(0)],
        "n_importance_samples": [integer_from(2)],
    }

    def __init__(
        self,
        model: Callable[..., Any]
        | Literal["vae", "flow", "coupling-flow", "factor-analysis"] = "vae",
        *,
        algorithm: VGI | MCEM | Literal["vgi", "mcem"] = "vgi",
        n_training_draws: int | Literal["auto"] = "auto",
        solver: Adam | Literal["auto"] = "auto",
        max_iter: int | Literal["auto"] = "auto",
        n_importance_samples: int = 64,
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.n_training_draws = n_training_draws
        self.solver = solver
        self.max_iter = max_iter
        self.n_importance_samples = n_importance_samples

    _states = "model_state_", "conditionals_state_"
    _consequence = "there is nothing to impute."
    _mixture = None  # weights, means and covariances of the one at which it starts
    _slot = "model.solver"
    _set_schema = IncompleteTransformer._set_schema

    @property
    def _schema(self):
        """What the fit has learned about the columns; see `Schema`."""
        return self._fitted.schema if hasattr(self, "_fitted") else Schema(0)

    def _handling(self, schema):
        return Handling("not filled", FILLED_BY_CONSTANT)

    def to_torch(self) -> Any:
        """Return a copy of the fitted density.

        Returns
        -------
        torch.nn.Module
            On the CPU, in double precision, without gradients.
        """
        if not hasattr(self, "model_state_"):
            raise NotFittedError("It is not fitted: VGIImputer fits a copy of it.")
        model = self._modules().pair.model
        return deepcopy(getattr(model, "module", model)).cpu()

    def _check_conditions(self):
        """Check conditions on several parameters."""
        if isinstance(self._method(), MCEM) and self.model != "coupling-flow":
            raise ValueError(
                f"algorithm={self.algorithm!r} requires model='coupling-flow', whose "
                f"latents its chains use, got model={self.model!r}."
            )
        self._solver()

    def _method(self):
        """Return the algorithm as an option."""
        if isinstance(self.algorithm, str):
            return {"vgi": VGI, "mcem": MCEM}[self.algorithm]()
        return self.algorithm

    def _defaults(self):
        """Return what parameters that are "auto" stand for."""
        n_columns = len(getattr(self, "scale_", ()))
        return defaults_of(self._has_encoder(), n_columns, self._mixture is not None)

    def _solver(self):
        """Return the fields of the solver."""
        return fields_of(self.solver, self._slot, self._defaults().solver)

    def _n_chains(self):
        """Return K, the number of completions of each row."""
        return number_of(self.n_training_draws, self._defaults().n_chains)

    def _most_rounds(self):
        """Return the maximum number of rounds."""
        return number_of(self.max_iter, self._defaults().n_rounds)

    def _remedy(self):
        rate = self._solver()["learning_rate_init"]
        return (
            f"Lower learning_rate_init={rate!r} of the solver: pass "
            "IncompleteDensity(..., solver=Adam(...))."
        )

    def _fit_nodes(self, nodes, weights, on_round, on_chosen, first):
        # without it, held-out cells choose the number of rounds of the warm-up
        n_warm_up = None if first is None else first.n_warm_up_iter_
        asked = np.full(nodes.shape[1], "auto", dtype=object)
        nonlinear = isinstance(self.model, str)  # a user's density gets linear scores
        data, normal = self._fit_normal(
            nodes, weights, nonlinear=nonlinear, asked=asked
        )
        self._normal = tuple(part.numpy() for part in normal)
        start = Start(data, normal, self._families(), weights)
        self._model_seed = int(torch.randint(2**31 - 1, ()))  # the same at each rebuild
        self._ends = tuple(end.numpy() for end in range_of(start))
        device = self._device()
        _, hidden = hold_out(nodes, weights, self._solver()["validation_fraction"])
        self._mixture = self._fit_mixture(start, hidden, n_warm_up)
        pair = placed(self._pair(normal), device, len(self.scale_))
        if isinstance(self._method(), VGI):

            def show(chains):
                if on_chosen is not None and hidden.any():
                    found = self._without(hidden, pair, start, chains.hypercube)
                    on_chosen(WithoutCells(found, nodes, some_rows(hidden).numpy()))

            chains = self._train(pair, start, hidden, on_round, show, n_warm_up)
            share = chains.n_outside / chains.n_drawn.clamp(min=1)
            rounded = np.array(self.families_) == "rounded"
            diverging = (share > MOST_OUTSIDE).cpu().numpy() & ~rounded
            self.diverging_ = self.feature_indices_[diverging].tolist()
        else:
            n_rounds, method = self._most_rounds(), self._method()
            sizes = self._n_chains(), self._settings(), method, n_rounds, device
            chains, self.loss_curve_ = maximised(pair, start, *sizes, on_round)
            self.validation_scores_, self.best_iter_ = [], n_rounds
            self.n_warm_up_iter_ = 0
            self.diverging_ = []
        self.n_iter_ = len(self.loss_curve_)
        self._hypercube = tuple(part.cpu().numpy() for part in chains.hypercube)
        self._set_modules(pair)

    def _fit_mixture(self, start, hidden, n_warm_up):
        """Fit the mixture at which training starts, as arrays; None if at a normal."""
        method, rounds = self._method(), self.max_iter or n_warm_up
        starts = self._has_encoder() and isinstance(method, VGI) and rounds
        if not starts or method.start != "auto":
            return None
        found = fit.fit_mixture(start, hidden)
        return found and found[:3]  # a plain tuple, which skops can store

    def _set_modules(self, pair):
        super()._set_modules(pair)
        self._trained = at_some_rows(pair.model, len(self.scale_))

    def _pair(self, normal, like=None):
        """Make model and conditionals in single precision, as at the start of training.

        Factors are rotated to match those of another normal distribution.
        """
        if not isinstance(self.model, str):
            with seeded(self._model_seed):
                model = made_by_user(self.model, len(normal.mean))
        else:
            model = DENSITIES[self.model](normal, self._families(), like)
        method = self._method()
        option = method if isinstance(method, VGI) else VGI()
        given = option, normal, self._ends, self._families()
        conditionals = conditionals_of(*given, self._mixture)
        return training.Pair(model.float(), conditionals.float())

    def _settings(self):
        given = self._method(), self._solver(), self._defaults().n_updates
        return settings_of(*given, from_mixture=self._mixture is not None)

    def _without(self, hidden, pair, start, hypercube):
        """Copy the estimator, with modules that have not seen some cells."""
        normal = self._normal_without(start.data, hidden, start.weights, start.normal)
        starts = []
        for one in (start.normal, normal):
            with seeded(0):  # the same initial networks
                starts.append(self._pair(one, like=start.normal))
        before, after = starts
        if not isinstance(self.model, str):  # it does not start at the normal
            after = after._replace(model=before.model)
        # a copy, because training goes on
        here = deepcopy(pair).on(start.data.x.device)
        found = training.Pair(*map(moved, here, before, after))
        cube = Hypercube(*(end.double() for end in hypercube)).on(start.data.x.device)
        return self._with_modules(Fitted(found, normal, self._families(), cube))

    def _train(self, pair, start, hidden, on_round, on_chosen, n_warm_up):
        """Train in rounds, on the device of the modules; return the final chains."""
        settings, device = self._settings(), self._device()
        if not isinstance(self.model, str):
            with step("fitting the density to completed rows"):
                ways = ChainSettings(self._n_chains())
                chains = make_chains(start.without(hidden), ways).on(device)
                warm_up_model(pair.model, chains, len(start.weights), settings)
        method, most = self._method(), self._most_rounds()
        ways, mixture = chains_of(method, self._n_chains()), self._mixture
        rounds = VGIRounds(
            pair,
            start,
            hidden,
            ways,
            settings,
            Limits(most, self._solver()["n_iter_no_change"], n_warm_up),
            mixture and Mixture(*mixture),
            device,
        )
        warm_up_conditionals(pair.conditionals, rounds.chains, settings, method)

        def while_better(report):
            n_rounds = rounds.while_better(report)
            on_chosen(rounds.chains)
            return n_rounds

        # from a mixture, few rounds are meant to be few
        given = most, while_better, rounds.on_all, on_round
        self._train_in_rounds(*given, warns=mixture is None)
        self.n_warm_up_iter_ = rounds.n_warm_up
        return rounds.chains

    def _rebuilt(self):
        normal = Normal(*map(torch.tensor, self._normal))
        pair = self._trained_pair(normal)
        for part in pair:
            part.double().eval().requires_grad_(False)
        cube = Hypercube(*(torch.tensor(end).double() for end in self._hypercube))
        check_rebuilt(at_some_rows(pair.model, len(self.scale_)), self._trained)
        return Fitted(pair, normal, self._families(), cube)

    def _has_encoder(self):
        return self.model == "vae"

    def _autoencoder(self):
        """Return model and encoder of ``"vae"``, with its rounded columns."""
        fitted = self._modules()
        return fitted.pair.model.autoencoder(fitted.families)

    def _chain_model(self):
        """Return the fitted density and its scores as a value."""
        return ChainModel(self._modules(), self._cell_scores())

    def _continued(self, X, seed):  # IncompleteDensity
        """Copy the fitted density, and train the copy on other rows.

        Training makes as many rounds as held-out cells chose in the fit, at least one,
        with the scores of columns of the fit.

        `X` (n_samples, n_features): validated rows.
        """
        start = self._start(X)
        if not isinstance(self._method(), VGI):
            raise ValueError(
                f"partial_fit requires algorithm='vgi', got {self.algorithm!r}."
            )
        if not len(start.weights):
            raise ValueError("No row of X has an observed cell of the model.")
        ways = chains_of(self._method(), self._n_chains())
        n_rounds = max(1, self.best_iter_)
        with one_thread(), seeded(seed), failures_named("Fit the imputer to all rows."):
            device = self._device()
            pair = self._trained_pair(start.normal).on(device)
            settings = self._settings(), n_rounds, device
            (low, high), losses = trained_further(pair, start, ways, *settings)
        found, before = self._trained_further(pair, losses), self._hypercube
        found._hypercube = np.fmin(low, before[0]), np.fmax(high, before[1])
        return found

    def _start(self, X):
        """Map rows with observed cells to the scores of the fit."""
        nodes, normal = (
            self._observed_nodes(X),
            Normal(*map(torch.tensor, self._normal)),
        )
        weights = torch.ones(len(nodes), dtype=torch.float64)
        return Start(self._scores_of(nodes), normal, self._families(), weights)

    def _trained_pair(self, normal):
        """Make model and conditionals in single precision, as training left them."""
        # the states replace what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            return self._loaded(self._pair(normal))


# ----------------------------------------
# An imputer that draws missing cells from any density of rows.


class VGIImputer(DrawnByMembers):
    """Impute by draws from any density, fitted by variational Gibbs inference.

    Variational Gibbs inference (VGI) fits a model with a tractable ``log p(x)``, or a
    tractable bound of it, to rows with missing cells (NaN).  It only needs a univariate
    conditional q of each column: Gibbs sampling by these completes the rows, and the
    parameters of model and conditionals maximise a bound at the completed rows.
    Missing cells are drawn from the fitted model and not from q.  `transform` fills in
    means of draws, and `sample` returns draws.

    Data frames may have categories if the model is an autoencoder;
    `category_probabilities` returns the probabilities of their levels.

    Parameters
    ----------
    model : {"vae", "flow", "coupling-flow", "factor-analysis"}, IncompleteDensity or \
            callable, default="vae"
        A `skvnce.options.IncompleteDensity` is a density with the settings of its
        training, and the others stand for ``IncompleteDensity(model)``.  ``"vae"``: an
        autoencoder, drawn from by latent-adaptive importance resampling as in
        `LAIRImputer`.  ``"flow"``: an autoregressive neural spline flow.
        ``"coupling-flow"``: one of coupling layers.  ``"factor-analysis"``: at most 20
        factors.  A callable makes your own density.  From these q proposes draws, and a
        Metropolis-Hastings step accepts or rejects them.
    n_estimators : "auto" or int, default="auto"
        Number of densities to fit.  Several get random weights of the rows, whose
        variance is an eighth of that of the Bayesian bootstrap (Rubin 1981), and as
        many rounds as held-out cells choose for the first one.  Draws come from each in
        turn, and so include the uncertainty of the parameters.  ``"auto"`` is 40
        columns / rows, rounded up, and at most 4.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` summarises the draws of a number.
    n_steps : int, default=20
        Number of sweeps before the first draw of a chain, or of iterations of LAIR.
    n_draws : int, default=128
        Number of draws that `transform` summarises.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Bounds of imputed cells, see `GaussianImputer`: missing cells are drawn
        conditionally on lying within them.  With None, draws follow the model, but keep
        the sign of columns of one sign, and codes stay codes.  Draws of densities other
        than ``"vae"`` stay within the observed values.
    relations : None, "auto" or list, default=None
        The exact relations between columns that filled tables obey; see `TableImputer`.
        The model has all columns.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, see `GaussianImputer`.
    keep_empty_features : bool, default=False
        Whether to keep columns that were entirely missing at `fit`, see
        `GaussianImputer`.
    add_indicator : bool, default=False
        Whether `transform` appends columns that mark missing cells.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate a column's squared errors, or if
        held-out cells are predicted significantly worse than by its mean
        (`held_out_gain_`).
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.  Only ``"vae"`` takes them.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or a missing value.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    estimators_ : list of IncompleteDensity
        The fitted densities; empty if all columns of X are constant.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of the model: those with at least two different values.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.  They fill missing cells.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means (of log-losses for categories), on held-out cells of at most 250 rows.
        NaN if no cells were held out, and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means.  They are
        imputed from their observed values.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends; None if it is False.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Draws are for filling, and `sample` warns: the parameters count as known, so that
    intervals of estimates that are pooled over draws are too narrow.  There is no
    `n_jobs`: members are trained one after the other.

    All models except your own start at a normal distribution that EM fits, or at the
    latent normal model of `GaussianImputer`; an autoencoder of numbers goes on from a
    mixture of normals, by few steps of VGI (`MixtureImputer` is often ahead).  Chains
    of the training stay in the range of the observed values; a `ConvergenceWarning`
    names columns in which many proposals were outside.

    References
    ----------
    Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
    estimation from incomplete data, eqs. (9)-(13), algorithms 1 to 6, section 5.1 for
    autoencoders; Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019),
    Rao-Blackwellized stochastic gradients for discrete distributions; Simkus and
    Gutmann (2023), Conditional sampling of variational autoencoders; Cannella, Soltani
    and Tarokh (2021), PL-MCMC.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import VGIImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) * [1.0, 2.0] + 0.1 * rng.normal(size=(100, 2))
    >>> X[0, 1] = np.nan
    >>> imputer = VGIImputer(model="factor-analysis", random_state=0).fit(X)
    >>> bool(abs(imputer.transform(X)[0, 1] - 2 * X[0, 0]) < 0.5)
    True
    >>> [table.shape for table in imputer.sample(X, n_draws=2, random_state=0)]
    [(100, 2), (100, 2)]
    """

    _parameter_constraints = {
        "model": [
            StrOptions(set(DENSITIES)),
            IncompleteDensity,
            callable,
        ],
        "n_estimators": [AUTO, integer_from(1)],
        **OF_MEMBERS,
        **OF_CATEGORIES,
    }

    _network = "density"

    def __init__(
        self,
        model: IncompleteDensity
        | Callable[..., Any]
        | Literal["vae", "flow", "coupling-flow", "factor-analysis"] = "vae",
        *,
        n_estimators: int | Literal["auto"] = "auto",
        strategy: Literal["mean", "median", "mode"] = "mean",
        n_steps: int = 20,
        n_draws: int = 128,
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        relations: Sequence[Any] | Literal["auto"] | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.n_estimators = n_estimators
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.min_value = min_value
        self.max_value = max_value
        self.relations = relations
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.on_misfit = on_misfit
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        """Declare whether the density takes categories."""
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = self._base()._has_encoder()
        return tags

    @names_table
    def partial_fit(self, X: TableLike, y: object = None) -> Self:
        """Go on learning from more rows.

        The first call is `fit`.  Every other call trains each model on its rows alone,
        for as many rounds as held-out cells chose in `fit`, at least one, so that no
        row is kept, and the earlier ones are slowly forgotten (fine-tuning).  Columns,
        valid values and standardisation remain those of `fit`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : VGIImputer

        Raises
        ------
        ValueError, TypeError, DivergenceError
            As in `fit`; ValueError also if the number of columns or `model` changed, if
            all columns were constant at `fit`, or if `algorithm` is Monte Carlo EM.
        """
        return self._set(self._copy()._partial_fit(X))

    @shows_progress
    def _partial_fit(self, X):
        """Do what `partial_fit` does, on a copy that has no other user."""
        if not hasattr(self, "estimators_"):
            return self.fit(X)
        X = self._checked(X)
        if not self.estimators_:
            raise ValueError(
                "All columns were constant at fit: there is no model to train. Call "
                "fit with these rows."
            )
        fitted = self.estimators_[0].get_params()
        check_unchanged(self._base().get_params(), fitted)
        rng = np.random.default_rng(seed_from(self.random_state))
        found = [
            member._continued(X, int(rng.integers(2**31)))
            for member in self.estimators_
        ]
        for member in found:
            self._warn_of_divergence(self._schema, member)
        self.estimators_ = found
        return self

    def _members(self, schema, X, weights):
        density = self._base()
        if not density._has_encoder():
            reject_categories(
                schema,
                f"model={density.model!r} is a density of numbers. Use model='vae' or "
                "GaussianImputer, or encode them as numbers.",
            )
        return super()._members(schema, X, weights)

    def _check_parameters(self):
        super()._check_parameters()
        if isinstance(self.model, IncompleteDensity):
            self.model._check_conditions()

    def _warn_of_divergence(self, schema, member):
        if member.diverging_:
            names = schema.labels(member.diverging_)
            rate = member._solver()["learning_rate_init"]
            warn_user(
                f"Chains ran away in {names}: more than {MOST_OUTSIDE:.0%} of their "
                "draws fell outside the observed values and were rejected. Lower "
                f"learning_rate_init={rate!r} of the solver (pass IncompleteDensity"
                "(..., solver=Adam(...))), or use a model with lighter tails.",
                ConvergenceWarning,
            )

    def _base(self):
        if isinstance(self.model, IncompleteDensity):
            return clone(self.model)
        return IncompleteDensity(self.model)

    def _member_model(self, member, schema):
        n_steps, n_scored = int(self.n_steps), member._n_scored()
        if not member._has_encoder():
            return ChainMember(member._chain_model(), n_steps, n_scored)
        how = samplers.by_lair(), n_steps, bounds_of_nodes(schema)
        return EncoderMember(member._encoder_model(), *how, n_scored)
