"""A density of rows with missing values, fitted by VGI or Monte Carlo EM.

`VGIImputer` trains it.
"""

from copy import deepcopy

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import StrOptions

from skvnce._progress import step
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce.algorithms.mixture.model import Mixture
from skvnce.algorithms.vgi import density, initial, training
from skvnce.distributions.normal import Normal
from skvnce.estimators._base import IncompleteTransformer
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
)
from skvnce.estimators._column_scores import NodeScores
from skvnce.estimators._density_options import (
    DENSITIES,
    MCEM,
    VGI,
    at_some_rows,
    chains_of,
    check_rebuilt,
    conditionals_of,
    defaults_of,
    made_by_user,
    number_of,
    placed,
    settings_of,
)
from skvnce.estimators._options import Adam, Option, fields_of
from skvnce.estimators._validation import (
    AUTO,
    integer_from,
)
from skvnce.fits import mixture_start
from skvnce.fits.density_training import (
    maximised,
    some_rows,
    trained_further,
    warm_up_conditionals,
    warm_up_model,
)
from skvnce.fits.training_rounds import failures_named
from skvnce.fits.vgi_rounds import Limits, VGIRounds
from skvnce.fitted.density import ChainModel
from skvnce.fitted.held_out_cells import hold_out
from skvnce.fitted.without_cells import WithoutCells, moved
from skvnce.samplers.variational_gibbs import Hypercube
from skvnce.tables.model_columns import FILLED_BY_CONSTANT, Handling
from skvnce.tables.schema import Schema

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
        model="vae",
        *,
        algorithm="vgi",
        n_training_draws="auto",
        solver="auto",
        max_iter="auto",
        n_importance_samples=64,
    ):
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

    def to_torch(self):
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
        start = initial.Start(data, normal, self._families(), weights)
        self._model_seed = int(torch.randint(2**31 - 1, ()))  # the same at each rebuild
        self._ends = tuple(end.numpy() for end in initial.range_of(start))
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
        found = mixture_start.fit_mixture(start, hidden)
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
        return self._with_modules(density.Fitted(found, normal, self._families(), cube))

    def _train(self, pair, start, hidden, on_round, on_chosen, n_warm_up):
        """Train in rounds, on the device of the modules; return the final chains."""
        settings, device = self._settings(), self._device()
        if not isinstance(self.model, str):
            with step("fitting the density to completed rows"):
                ways = initial.ChainSettings(self._n_chains())
                chains = initial.make_chains(start.without(hidden), ways).on(device)
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
        return density.Fitted(pair, normal, self._families(), cube)

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
        return initial.Start(self._scores_of(nodes), normal, self._families(), weights)

    def _trained_pair(self, normal):
        """Make model and conditionals in single precision, as training left them."""
        # the states replace what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            return self._loaded(self._pair(normal))
