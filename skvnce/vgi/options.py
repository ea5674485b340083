"""Densities of `VGIImputer` and the algorithms that fit them, as options."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import StrOptions

from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.progress import step
from skvnce._core.random import seeded
from skvnce._core.runtime import state_of
from skvnce._imputer import callbacks
from skvnce._imputer.base import IncompleteTransformer
from skvnce._imputer.fitted import Fitted
from skvnce._imputer.held_out import hold_out
from skvnce._imputer.validation import AUTO, Adam, Option, fields_of, integer_from
from skvnce._tables.model_columns import FILLED_BY_CONSTANT, Handling
from skvnce.autoencoder.column_scores import (
    ColumnScores,
    NodeScores,
    NormalFit,
    auto_rank,
    fit_normal,
    linear_start,
)
from skvnce.autoencoder.factor_analysis import FactorModel
from skvnce.autoencoder.model import WithoutCells, moved, turned_like
from skvnce.mixture.density import Mixture
from skvnce.vgi.conditionals import (
    NETWORKS,
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
    user_density,
)
from skvnce.vgi.fit import (
    AVERAGED,
    WARM_UP,
    Start,
    VGIRounds,
    by_mixture,
    by_normal,
    few_rows,
    fit_mixture,
    held_out_objective,
    make_chains,
    train_by_em,
    tune_conditionals,
    warm_up_model,
)
from skvnce.vgi.model import ChainModel, FittedPair
from skvnce.vgi.training import (
    Hypercube,
    Pair,
    TrainingSettings,
    from_marginals,
    warm_up_conditionals,
)

# ----------------------------------------
# Algorithms of `IncompleteDensity`, as options, and the densities that it names.


HEADS = {"normal": NormalHead, "mixture": MixtureHead, "spline": SplineHead}
_STARTS = {
    "auto": by_normal,
    "normal": by_normal,
    "marginals": lambda start, n_chains: from_marginals(start.data, n_chains),
}
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


class Plan(NamedTuple):
    """The numbers and choices that the parameters of `IncompleteDensity` mean."""

    solver: dict  # fields of `Adam`
    n_chains: int  # K, the number of completions of each row
    n_updates: int
    n_rounds: int  # maximum number of rounds
    from_mixture: bool

    def settings(self, method):
        """Return the settings of a training by `VGI` or `MCEM`."""
        rate, is_vgi = self.solver["learning_rate_init"], isinstance(method, VGI)
        n_updates = method.n_updates if is_vgi else "auto"
        return TrainingSettings(
            n_updates=_number(n_updates, self.n_updates),
            n_selected=int(method.n_selected) if is_vgi else 1,
            batch_size=int(self.solver["batch_size"]),
            learning_rate=rate,
            q_learning_rate=3 * rate,
            # else it has learned rows with missing values in the warm-up
            trains_encoder=not self.from_mixture,
            averaged=AVERAGED if self.from_mixture else None,
        )


def _number(value, default):
    """Return the number of a parameter, whose "auto" is the default."""
    return int(default if isinstance(value, str) else value)


@dataclass(repr=False, eq=False)
class VGI(Option):
    """Variational Gibbs inference, for the `algorithm` of `IncompleteDensity`.

    Parameters
    ----------
    conditionals : {"normal", "mixture", "spline"}, default="normal"
        Family of the univariate conditionals q(x_j | x): normals, mixtures of three
        normals, or normals transformed by monotone splines.
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
        "conditionals": [StrOptions(set(HEADS))],
        "network": [StrOptions(set(NETWORKS))],
        "n_updates": [AUTO, integer_from(1)],
        "n_selected": [integer_from(1)],
        "start": [StrOptions(set(_STARTS))],
        "n_warm_up": [integer_from(0)],
    }

    conditionals: Literal["normal", "mixture", "spline"] = "normal"
    _: KW_ONLY
    network: Literal["shared", "extended", "independent"] = "shared"
    n_updates: int | Literal["auto"] = "auto"
    n_selected: int = 1
    start: Literal["auto", "normal", "marginals"] = "auto"
    n_warm_up: int = 0


@dataclass(repr=False, eq=False)
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

    n_steps: int = 300
    every: int = 5


def _flow(n_passes, normal, factors, families):
    root = torch.linalg.cholesky(normal.covariance)
    return SplineFlow(normal.mean, root, n_passes=n_passes)


class NamedDensity(NamedTuple):
    """A density that has a name, and where its training starts."""

    make: Callable  # (normal, factors, families) -> module
    has_factors: bool  # of the normal distribution; else it starts at that itself


DENSITIES = {
    "vae": NamedDensity(
        lambda normal, factors, families: AutoencoderDensity(factors, families), True
    ),
    "flow": NamedDensity(partial(_flow, None), False),
    # coupling layers are cheap to invert, as Monte Carlo EM requires
    "coupling-flow": NamedDensity(partial(_flow, 2), False),
    "factor-analysis": NamedDensity(
        lambda normal, factors, families: FactorDensity.of(factors), True
    ),
}


def make_user_density(make, n_features):
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
    return user_density(module, n_features)


def place(pair, device, n_features):
    """Move model and conditionals to a device, in place.

    Raises ValueError if the model has tensors that torch cannot move.
    """
    pair = pair.on(device)
    if device.type == "cpu":
        return pair
    try:
        with torch.no_grad(), seeded(0):
            pair.model.log_prob(_probe_rows(n_features).float().to(device))
    except RuntimeError as error:
        raise ValueError(
            f"model cannot run on the device {device}: {error} Register all tensors as "
            "parameters or buffers, and make others on the device of the input; or "
            "pass device='cpu'."
        ) from error
    return pair


def _probe_rows(n_features):
    """Make a few rows near the centre."""
    n_rows = 3
    rows = torch.linspace(-1, 1, n_rows * n_features, dtype=torch.float64)
    return rows.view(n_rows, n_features)


def probe(model, n_features):
    """Evaluate a density at a few rows near the centre; moves it to the CPU."""
    # without dropout, whose values are random; the mode is restored below
    was_training = model.training
    with torch.no_grad():
        model = model.cpu().double().eval()
        values = model.log_prob(_probe_rows(n_features)).numpy()
    model.train(was_training)
    return values


def check_rebuilt(rebuilt, trained):
    """Check that a rebuilt model equals the trained one, at some rows."""
    if not np.allclose(rebuilt, trained, rtol=1e-3, atol=1e-3):
        raise ValueError(
            "model returns a module that differs from the fitted one in more than "
            "its parameters and buffers. Store random numbers, and whatever else "
            "changes, in buffers (register_buffer)."
        )


# ----------------------------------------
# A density of rows with missing values, fitted by VGI or Monte Carlo EM.


_CHAINS_OF_J = 5  # number of chains of a held-out row
MOST_OUTSIDE = 0.25  # share of draws out of range above which a column is reported


class DensityFit(NamedTuple):
    """What `IncompleteDensity` needs to rebuild its networks and to go on."""

    columns: ColumnScores
    normal: Normal  # of scores, at which the training has started
    model_seed: int  # of the modules, the same at each rebuild
    # weights, means and covariances of the mixture at which the training has started
    mixture: tuple | None
    cache: dict
    hypercube: Hypercube | None = None  # the range of chains
    trained: np.ndarray | None = None  # `probe` of the trained model


class Setup(NamedTuple):
    """The start of a fit of a density: scores, held-out cells, and modules."""

    normal_fit: NormalFit
    start: Start
    hidden: torch.Tensor  # bool (n, features): held-out cells
    fit: DensityFit  # before the training
    factors: FactorModel | None  # at which the density starts
    plan: Plan
    # of the warm-up; None if held-out cells choose the number
    n_warm_up: int | None
    pair: Pair  # on the device of the training
    device: torch.device


def _diverging(chains, columns):
    """Find columns of the model whose draws are often out of range; bool."""
    outside = chains.n_outside / chains.n_drawn.clamp(min=1)
    rounded = np.array(columns.families) == "rounded"
    return (outside > MOST_OUTSIDE).cpu().numpy() & ~rounded


@dataclass(repr=False, eq=False)
class IncompleteDensity(callbacks.CallbackSupportMixin, NodeScores, Option):
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

    model: (
        Callable[..., Any] | Literal["vae", "flow", "coupling-flow", "factor-analysis"]
    ) = "vae"
    _: KW_ONLY
    algorithm: VGI | MCEM | Literal["vgi", "mcem"] = "vgi"
    n_training_draws: int | Literal["auto"] = "auto"
    solver: Adam | Literal["auto"] = "auto"
    max_iter: int | Literal["auto"] = "auto"
    n_importance_samples: int = 64

    _parts = {
        "solver": lambda _: Adam(),
        "algorithm": lambda name: MCEM() if name == "mcem" else VGI(),
    }
    _states = "model_state_", "conditionals_state_"
    _consequence = "there is nothing to impute."
    _slot = "model.solver"
    _publish = IncompleteTransformer._publish

    @property
    def _schema(self):
        """What the fit has learned about the columns; see `Schema`."""
        return self._fitted.schema

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

    def _plan(self, n_columns, *, from_mixture=False):
        """Return the plan of the parameters; see `Plan`."""
        if from_mixture:  # chains start where they would be after many updates
            solver, n_chains, n_updates, n_rounds = _SOLVER | _FROM_MIXTURE, 1, 2, 1
        else:
            has_encoder = self._has_encoder()
            faster = _FASTER if has_encoder and n_columns <= _FEW else {}
            solver, n_chains = _SOLVER | faster, 2 if has_encoder else 5
            n_updates, n_rounds = min(8, 2 * n_columns), 40
        return Plan(
            fields_of(self.solver, self._slot, solver),
            _number(self.n_training_draws, n_chains),
            n_updates,
            _number(self.max_iter, n_rounds),
            from_mixture,
        )

    def _plan_of_fit(self):
        """Return the plan of the fit, or of the parameters before a fit."""
        if not hasattr(self, "_fitted"):
            return self._plan(0)
        fit = self._fitted.model
        return self._plan(len(fit.columns.scale), from_mixture=fit.mixture is not None)

    def _solver(self):
        """Return the fields of the solver, of the fit if there was one."""
        return self._plan_of_fit().solver

    def _remedy(self, n_columns):
        rate = self._plan(n_columns).solver["learning_rate_init"]
        return (
            f"Lower learning_rate_init={rate!r} of the solver: pass "
            "IncompleteDensity(..., solver=Adam(...))."
        )

    def _fit_nodes(self, schema, cells, on_round, on_chosen, first):
        setup = self._set_up(schema, cells, first)
        if isinstance(self._method(), VGI):
            training, chains, of_vgi = self._train_by_vgi(
                schema, cells.nodes, setup, on_round, on_chosen
            )
        else:
            training, chains, of_vgi = self._train_by_em(setup, on_round)
        report = self._report_of(
            training.losses,
            setup.pair,
            validation_scores_=training.gains,
            best_iter_=training.best_iter,
            **of_vgi,
        )
        fit = setup.fit._replace(
            hypercube=Hypercube(*(end.cpu() for end in chains.hypercube)),
            trained=probe(setup.pair.model, len(setup.fit.columns.scale)),
        )
        return Fitted(schema, fit, report | setup.normal_fit.report())

    def _set_up(self, schema, cells, first):
        """Fit the scores and their normal distribution; start modules there."""
        n_warm_up = None if first is None else first.n_warm_up_iter_
        requested = np.full(len(schema.model_columns), "auto", dtype=object)
        # a user's density gets linear scores
        nonlinear = isinstance(self.model, str)
        normal_fit = fit_normal(schema, cells, requested, nonlinear=nonlinear)
        columns, data, weights, normal, *_ = normal_fit
        start = Start(data, normal, columns.distributions(), weights)
        seed = int(torch.randint(2**31 - 1, ()))
        device = self._device(schema)
        _, hidden = hold_out(
            cells.nodes, weights, self._solver()["validation_fraction"]
        )
        mixture = self._fit_mixture(start, hidden, n_warm_up)
        fit = DensityFit(columns, normal, seed, mixture, {})
        width = len(columns.scale)
        plan = self._plan(width, from_mixture=mixture is not None)
        factors = self._factors_of(normal)
        pair = place(self._pair(fit, normal, factors), device, width)
        return Setup(
            normal_fit, start, hidden, fit, factors, plan, n_warm_up, pair, device
        )

    def _train_by_vgi(self, schema, nodes, setup, on_round, on_chosen):
        """Train in rounds of VGI; return them, their chains, and reports of VGI."""
        plan, columns = setup.plan, setup.fit.columns
        rounds = self._rounds(setup)

        def while_better(report):
            n_rounds = rounds.while_better(
                max_rounds=plan.n_rounds,
                patience=plan.solver["n_iter_no_change"],
                on_round=report,
            )
            if on_chosen is not None and setup.hidden.any():
                unseen = self._without(setup, rounds.chains.hypercube)
                unseen = unseen.on(self._device_in_use(schema))
                model = self._row_model_of(unseen, columns)
                checked = few_rows(setup.hidden).numpy()
                on_chosen(WithoutCells(model, nodes, checked))
            return n_rounds

        training = callbacks.train_in_rounds(
            plan.n_rounds,
            plan.solver["validation_fraction"],
            while_better,
            rounds.on_all,
            on_round,
            # from a mixture, few rounds are meant to be few
            warns=not plan.from_mixture,
        )
        diverging = schema.model_columns[_diverging(rounds.chains, columns)].tolist()
        of_vgi = {"n_warm_up_iter_": rounds.n_warm_up, "diverging_": diverging}
        return training, rounds.chains, of_vgi

    def _train_by_em(self, setup, on_round):
        """Train by Monte Carlo EM; return as `_train_by_vgi`."""
        plan, method = setup.plan, self._method()
        sizes = plan.n_chains, plan.settings(method), method, plan.n_rounds
        chains, losses = train_by_em(
            setup.pair, setup.start, *sizes, setup.device, on_round
        )
        training = callbacks.Training(losses, [], plan.n_rounds)
        return training, chains, {"n_warm_up_iter_": 0, "diverging_": []}

    def _fit_mixture(self, start, hidden, n_warm_up):
        """Fit the mixture at which training starts, as arrays; None if at a normal."""
        method, rounds = self._method(), self.max_iter or n_warm_up
        starts = self._has_encoder() and isinstance(method, VGI) and rounds
        if not starts or method.start != "auto":
            return None
        mixture = fit_mixture(start, hidden)
        return mixture and mixture[:3]

    def _factors_of(self, normal):
        """Return the factors at which the density starts; None if at none."""
        if not isinstance(self.model, str) or not DENSITIES[self.model].has_factors:
            return None
        return linear_start(normal, auto_rank(len(normal.mean)))

    def _pair(self, fit, normal, factors):
        """Make model and conditionals in single precision, as at the start of training.

        `factors` (FactorModel or None): as of `_factors_of`.
        """
        families = fit.columns.distributions()
        if not isinstance(self.model, str):
            with seeded(fit.model_seed):
                model = make_user_density(self.model, len(normal.mean))
        else:
            model = DENSITIES[self.model].make(normal, factors, families)
        method = self._method()
        option = method if isinstance(method, VGI) else VGI()
        head, network = HEADS[option.conditionals](), option.network
        if families.levels:
            conditionals = mixed_conditionals(normal, families, head, network)
        else:
            mixture = fit.mixture and tuple(map(torch.tensor, fit.mixture))
            conditionals = anchored_conditionals(normal, head, network, mixture)
        return Pair(model.float(), conditionals.float())

    def _without(self, setup, hypercube):
        """Make the density as if its fit had not used the held-out cells."""
        normal_fit, factors = setup.normal_fit, setup.factors
        normal = normal_fit.without(setup.hidden)
        others = factors and turned_like(self._factors_of(normal), factors)
        starts = []
        for initial in ((normal_fit.normal, factors), (normal, others)):
            with seeded(0):  # the same initial networks
                starts.append(self._pair(setup.fit, *initial))
        before, after = starts
        if not isinstance(self.model, str):  # it does not start at the normal
            after = after._replace(model=before.model)
        # a copy, because training goes on
        device = normal_fit.data.x.device
        shifted = Pair(*map(moved, deepcopy(setup.pair).on(device), before, after))
        cube = Hypercube(*(end.double() for end in hypercube)).on(device)
        return FittedPair(shifted, normal, setup.start.families, cube)

    def _rounds(self, setup):
        """Make the training by VGI, after the warm-ups of its modules."""
        method, plan, start = self._method(), setup.plan, setup.start
        settings = plan.settings(method)
        if not isinstance(self.model, str):
            with step("fitting the density to completed rows"):
                chains = make_chains(start.without(setup.hidden), plan.n_chains)
                chains = chains.on(setup.device)
                warm_up_model(setup.pair.model, chains, len(start.weights), settings)
        complete, mixture = _STARTS[method.start], setup.fit.mixture
        if mixture is not None:
            mixture = Mixture(*mixture)
            complete = partial(by_mixture, mixture)
        rounds = VGIRounds(
            setup.pair,
            start,
            setup.hidden,
            plan.n_chains,
            complete,
            settings,
            mixture,
            WARM_UP if setup.n_warm_up is None else setup.n_warm_up,
            setup.device,
        )
        if n_epochs := int(method.n_warm_up):
            with step("fitting the conditionals to observed cells"):
                warm_up_conditionals(
                    setup.pair.conditionals,
                    rounds.chains,
                    n_epochs=n_epochs,
                    batch_size=settings.batch_size,
                    learning_rate=settings.q_learning_rate,
                )
        return rounds

    def _start_of(self, nodes):
        """Return the start of chains of rows, and the summand of J besides log p."""
        fit = self._fitted.model
        families, maps = fit.columns.distributions(), fit.columns.maps()
        data, constant = maps.scores(Incomplete.from_array(nodes))
        if not families.levels:
            constant = constant + families.log_width(*data)
        weights = torch.ones(len(nodes), dtype=torch.float64)
        return Start(data, fit.normal, families, weights), constant

    @callbacks.reports_fit
    def _tune(self, X, seed):
        """Train the conditionals on validated rows; return their parameters."""
        nodes = self._nodes_of_training(X)
        plan, method = self._plan_of_fit(), self._method()
        on_round, finish = callbacks.report_rounds(self, None, X=X)
        fitted, (start, _) = self._modules(), self._start_of(nodes)
        with self._trains(seed, nodes.shape[1]):
            pair = Pair(*(deepcopy(part).float() for part in fitted.pair))
            # on the CPU, as J
            pair = pair.on(torch.device("cpu"))
            tune_conditionals(
                pair,
                start,
                self._fitted.model.hypercube,
                plan.settings(method)._replace(n_updates=min(8, 2 * nodes.shape[1])),
                max(plan.n_chains, _CHAINS_OF_J),
                lambda n, loss: on_round(n, loss, np.nan),
            )
        finish()
        return state_of(pair.conditionals)

    def _objective(self, X):
        """Compute J of validated rows that have an observed cell, in nats; (n,)."""
        nodes = self._observed_nodes(X)
        fitted = self._modules()
        start, constant = self._start_of(nodes)
        pair = Pair(*map(deepcopy, fitted.pair)).on(torch.device("cpu"))
        cube = fitted.hypercube.on(torch.device("cpu"))
        values = held_out_objective(pair, start, cube, _CHAINS_OF_J)
        return (values + constant).numpy()

    def _rebuild(self):
        fit = self._fitted.model
        d = len(fit.normal.mean)
        blank = FactorModel.blank(d, auto_rank(d))
        # the states replace what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            pair = self._loaded(self._pair(fit, fit.normal, blank))
        for part in pair:
            part.double().eval().requires_grad_(False)
        cube = Hypercube(*(end.double() for end in fit.hypercube))
        check_rebuilt(probe(pair.model, len(self.scale_)), fit.trained)
        return FittedPair(pair, fit.normal, fit.columns.distributions(), cube)

    def _has_encoder(self):
        return self.model == "vae"

    def _row_model(self):
        """Return the fitted density and its scores as a value."""
        return self._row_model_of(self._modules(), self._fitted.model.columns)

    def _row_model_of(self, modules, columns):
        number = int(self.n_importance_samples)
        if not self._has_encoder():
            return ChainModel(modules, columns.maps(), number)
        # with its rounded columns
        auto = modules.pair.model.autoencoder(modules.families)
        return columns.encoder_model(auto, number)
