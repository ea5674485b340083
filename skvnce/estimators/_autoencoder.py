"""The training of variational autoencoders, and their use on rows of a table."""

from contextlib import contextmanager
from copy import copy, deepcopy

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._modules import filled_once, load_state, state_of
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce.algorithms.vae import autoencoder
from skvnce.algorithms.vae.losses import ALGORITHMS, encoder_loss
from skvnce.algorithms.vae.rounds import Rounds
from skvnce.estimators._base import IncompleteTransformer
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._column_scores import (
    UNIT,
    NodeScores,
    asked_families,
    auto_rank,
    linear_start,
)
from skvnce.estimators._options import fields_of
from skvnce.estimators._validation import check_rank
from skvnce.fits.training_rounds import failures_named, train_in_rounds
from skvnce.fitted.category_scores import check_models_levels, count_outputs
from skvnce.fitted.held_out_cells import hold_out
from skvnce.fitted.without_cells import WithoutCells, moved, turned_like
from skvnce.models.factor_analysis import FactorModel
from skvnce.training.rounds import COOLING

SOLVER = {  # the values of the fields that are "auto"
    "batch_size": 128,
    "learning_rate_init": 4e-3,
    "weight_decay": 0.05,
    "n_iter_no_change": 5,
    "validation_fraction": 0.1,
    "device": "cpu",
}
_MIXED = 5  # number of posterior components for objectives with mixtures


class TrainedAutoencoder(CallbackSupportMixin, NodeScores, IncompleteTransformer):
    """Base class of `VariationalAutoencoder`, which documents parameters."""

    def _scored(self, X):
        """Estimate the log-densities of rows and their standard errors."""
        nodes = X[:, self.feature_indices_].astype(np.float64)
        with one_thread():
            model = self._encoder_model()
            return model.log_density(nodes, int(self.n_importance_samples))

    def _fit_member(self, schema, X, seed, weights, on_chosen, first):
        """Fit to the validated table of an imputer; see `DrawnByMembers._train`."""
        self.random_state = seed
        self._check_parameters()
        self._set_schema(schema.as_read)
        return self._fit_table(X, weights, on_chosen)

    @reports_fit
    def _fit_table(self, X, weights=None, on_chosen=None):
        """Fit to a validated table; `weights` (n_samples,) weight EM and training.

        Training draws rows at random, so that a weight of two is equivalent to two
        equal rows only on average.  `on_chosen` gets a `WithoutCells` of the
        estimator when held-out cells have chosen the number of rounds.
        """
        consequence = "no latents can be learned."
        nodes, weights = self._read_nodes(X, weights, consequence)
        check_rank(self.n_components, count_outputs(self._schema))
        on_round, finish = report_rounds(self, self.max_iter, X=X)
        with self._trains():
            self._fit_nodes(nodes, weights, on_round, on_chosen)
        self._fitted_algorithm = self.algorithm
        finish()
        return self

    @contextmanager
    def _trains(self, seed=None):
        """Set threads and random numbers of a training, and name remedies."""
        fields = self._solver()
        remedy = (
            f"Lower learning_rate_init={fields['learning_rate_init']!r} of the "
            f"solver, or raise its weight_decay={fields['weight_decay']!r}: pass "
            "solver=Adam(...)."
        )
        seed = self.random_state if seed is None else seed
        with one_thread(), seeded(seed), failures_named(remedy):
            yield

    @reports_fit
    def _fit_encoder(self, X):
        """Train the encoder on validated rows, with the model held fixed."""
        nodes = X[:, self.feature_indices_].astype(np.float64)
        nodes = nodes[~np.isnan(nodes).all(1)]
        if not len(nodes):
            raise ValueError(
                "X has no row with an observed value in the columns of the model. Pass "
                "rows with observed values."
            )
        self._check_algorithm()
        n_cooling = min(COOLING, self.max_iter)
        on_round, finish = report_rounds(self, self.max_iter + n_cooling, X=X)
        fitted = self._autoencoder()
        data, _ = self._cell_scores().scores(Incomplete.from_array(nodes))
        with self._trains():
            device = self._device()
            auto = autoencoder.Autoencoder(*(deepcopy(part).float() for part in fitted))
            auto = auto.on(device)
            auto.posterior.requires_grad_().train()
            data = Incomplete(data.x.float(), data.observed).on(device)
            training = self._training()
            autoencoder.train(
                auto,
                encoder_loss(self.algorithm, auto, data, training),
                torch.ones(len(nodes)),
                training,
                n_rounds=self.max_iter,
                n_cooling=n_cooling,
                on_round=lambda n, loss: (
                    n <= self.max_iter and on_round(n, loss, np.nan)
                ),
            )
        self.posterior_state_ = state_of(auto.posterior)
        self._cache = []
        finish()
        return self

    def _check_algorithm(self):
        """Raise an error if `algorithm` has changed since `fit`."""
        if self.algorithm != self._fitted_algorithm:
            raise ValueError(
                f"algorithm={self.algorithm!r} is not that of fit, "
                f"{self._fitted_algorithm!r}, to which the encoder belongs. Set it "
                "back, or call fit."
            )

    def _fit_nodes(self, nodes, weights, on_round, on_chosen):
        """Fit the initial model, choose the number of rounds, and train."""
        check_models_levels(self.algorithm, self._schema)
        asked = asked_families(self.likelihood, self.n_features_in_)
        asked = asked[self.feature_indices_]
        if isinstance(self.likelihood, str):  # for numbers
            asked[self._schema.is_categorical] = "auto"
        data, normal = self._fit_normal(
            nodes,
            weights,
            nonlinear=self.marginals == "auto" and UNIT not in asked,
            asked=asked,
        )
        rank = self.n_components
        rank = auto_rank(len(normal.mean)) if isinstance(rank, str) else rank
        self.n_components_ = rank
        linear = linear_start(normal, rank)
        auto = self._built(linear)

        def show(hidden):
            if on_chosen is not None and hidden.any():
                # a copy, because training goes on
                here = deepcopy(auto).on(data.x.device)
                found = self._without(hidden, here, data, weights, normal, linear)
                on_chosen(WithoutCells(found, nodes, hidden.numpy()))

        self._train(auto, data, nodes, weights, on_round, show)
        self._set_modules(auto)

    def _set_modules(self, auto):
        """Store the parameters of trained modules."""
        self.model_state_, self.posterior_state_ = map(state_of, auto)
        self._cache = []

    def _without(self, hidden, auto, data, weights, normal, linear):
        """Copy the estimator, with modules that have not used some cells."""
        rank = self.n_components_
        other = self._normal_without(data, hidden, weights, normal)
        starts = []
        for one in (linear, turned_like(linear_start(other, rank), linear)):
            with seeded(0):  # the same initial networks
                starts.append(self._built(one))
        unseen = copy(self)
        unseen._cache = [autoencoder.Autoencoder(*map(moved, auto, *starts))]
        return unseen

    def _train(self, auto, data, nodes, weights, on_round, on_chosen):
        """Train in rounds."""
        fields = self._solver()
        share, patience = fields["validation_fraction"], fields["n_iter_no_change"]
        device = self._device()
        auto = auto.on(device)
        single = Incomplete(data.x.float(), data.observed).on(device)
        algorithm, training = ALGORITHMS[self.algorithm], self._training()
        sizes = self._architecture()
        rounds = Rounds(auto, single, weights, algorithm, training, sizes)

        def while_better(report):
            _, hidden = hold_out(nodes, weights, share)
            limits = {"max_rounds": self.max_iter, "patience": patience}
            there = hidden.to(device)
            n_rounds = rounds.while_better(there, **limits, on_round=report)
            on_chosen(hidden)
            return n_rounds

        found = train_in_rounds(
            self.max_iter, share, while_better, rounds.on_all, on_round
        )
        self.loss_curve_, self.validation_scores_, self.best_iter_ = found
        self.n_iter_ = len(self.loss_curve_)

    def _solver(self):
        """Return the fields of the solver."""
        return fields_of(self.solver, self._slot, SOLVER)

    def _training(self):
        fields = self._solver()
        return autoencoder.Training(
            int(self.n_training_draws),
            int(fields["batch_size"]),
            fields["learning_rate_init"],
            fields["weight_decay"],
        )

    def _architecture(self):
        mixed = self.n_posterior_components
        if isinstance(mixed, str):
            mixed = _MIXED if ALGORITHMS[self.algorithm].mixture else 1
        hidden = tuple(map(int, self.hidden_layer_sizes))
        return autoencoder.Architecture(hidden, self.dropout, int(mixed))

    def _built(self, linear):
        """Make model and encoder in single precision; weights from torch's stream."""
        sizes = self._architecture()
        self._sizes = tuple(sizes)  # a plain tuple, which skops can store
        auto = autoencoder.build(linear, self._families(), sizes)
        return autoencoder.Autoencoder(*(part.float() for part in auto))

    @filled_once
    def _autoencoder(self):
        """Return model and encoder in double precision, rebuilt on first use."""
        if not self._cache:
            self._cache.append(self._rebuilt().evaluated())
        return self._cache[0].on(self._device_in_use())

    def _rebuilt(self):
        """Make model and encoder in double precision, with their parameters."""
        d, k = len(self.scale_), self.n_components_
        d += sum(family.n_more for family in self._families().levels)
        ones = torch.ones(d, dtype=torch.float64)
        blank = FactorModel(0 * ones, ones[:, None].repeat(1, k), ones)
        # the state replaces what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            sizes = autoencoder.Architecture(*self._sizes)
            auto = autoencoder.build(blank, self._families(), sizes)
        states = self.model_state_, self.posterior_state_
        for part, state in zip(auto, states, strict=True):
            load_state(part.double(), state)
        return auto

    def _in_training(self):
        """Make model and encoder in single precision, as the training left them."""
        return autoencoder.Autoencoder(*(part.float() for part in self._rebuilt()))

    def _continued(self, sample, seed, n_rounds):  # TrainedAutoencoder
        """Copy the fitted autoencoder, and train the copy on more rows.

        `sample` (Sample).  `n_rounds`: number of rounds on all cells.  None chooses it
        by the held-out cells, and keeps the best averages of the parameters: rounds on
        all cells would add the noise of a few steps, and these cells are among the kept
        rows later.
        """
        self._check_algorithm()
        found = copy(self)
        nodes = sample.rows[:, self.feature_indices_].astype(np.float64)
        seen = ~np.isnan(nodes).all(1)
        if not seen.any():
            return found
        losses, gains = [], []

        def report(n_round, loss, gain):
            losses.append(loss)
            gains.append(gain)
            return False

        with self._trains(seed):
            rounds = self._rounds(nodes[seen], sample.weights[seen])
            if n_rounds is None:
                hidden = sample.hidden[torch.from_numpy(seen)].to(rounds.data.x.device)
                patience = self._solver()["n_iter_no_change"]
                limits = {"max_rounds": self.max_iter, "patience": patience}
                n_rounds = rounds.while_better(hidden, **limits, on_round=report)
            else:
                n_cooling = min(COOLING, n_rounds)
                losses = rounds.on_all(n_rounds, n_cooling, lambda n, loss: False)
        found.best_iter_, found.validation_scores_ = n_rounds, gains
        found._set_modules(rounds.auto)
        found.loss_curve_ = [*self.loss_curve_, *losses]
        found.n_iter_ = len(found.loss_curve_)
        return found

    def _rounds(self, nodes, weights):
        """Make the training of the fitted modules on rows, on its device."""
        device = self._device()
        data, _ = self._cell_scores().scores(Incomplete.from_array(nodes))
        return Rounds(
            self._in_training().on(device),
            Incomplete(data.x.float(), data.observed).on(device),
            torch.from_numpy(weights),
            ALGORITHMS[self.algorithm],
            self._training(),
            self._architecture(),
        )


def check_draws(likelihood):
    """Raise an error if draws of missing cells would have no gradient."""
    for family in ("bernoulli", UNIT):
        if family in np.ravel(likelihood):
            raise ValueError(
                "algorithm='vbgi-vae' draws missing cells from normal "
                f"distributions, which likelihood={family!r} does not accept. Use "
                "'normal' or 'rounded' for these columns, or "
                "algorithm='vbgi-vae-m'."
            )
