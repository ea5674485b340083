"""The training of variational autoencoders, and their use on rows of a table."""

from copy import copy, deepcopy

import numpy as np
import torch

from skvnce._incomplete import Incomplete
from skvnce._modules import state_of
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

    _states = "model_state_", "posterior_state_"
    _consequence = "no latents can be learned."

    def _scored(self, X):
        """Estimate the log-densities of rows and their standard errors."""
        nodes = X[:, self.feature_indices_].astype(np.float64)
        with one_thread():
            model = self._encoder_model()
            return model.log_density(nodes, int(self.n_importance_samples))

    def _fit_member(self, schema, X, seed, weights, on_chosen, first):
        self.random_state = seed
        self._check_parameters()
        return super()._fit_member(schema, X, seed, weights, on_chosen, first)

    def _remedy(self):
        fields = self._solver()
        return (
            f"Lower learning_rate_init={fields['learning_rate_init']!r} of the "
            f"solver, or raise its weight_decay={fields['weight_decay']!r}: pass "
            "solver=Adam(...)."
        )

    @reports_fit
    def _fit_encoder(self, X):
        """Train the encoder on validated rows, with the model held fixed."""
        nodes = self._observed_nodes(X)
        if not len(nodes):
            raise ValueError(
                "X has no row with an observed value in the columns of the model. Pass "
                "rows with observed values."
            )
        self._check_algorithm()
        n_cooling = min(COOLING, self.max_iter)
        on_round, finish = report_rounds(self, self.max_iter + n_cooling, X=X)
        fitted = self._autoencoder()
        data = self._scores_of(nodes)
        with self._trains(self.random_state):
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
        self._cache = {}
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

    def _fit_nodes(self, nodes, weights, on_round, on_chosen, first):
        """Fit the initial model, choose the number of rounds, and train."""
        check_rank(self.n_components, count_outputs(self._schema))
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
        self._fitted_algorithm = self.algorithm
        self._set_modules(auto)

    def _without(self, hidden, auto, data, weights, normal, linear):
        """Copy the estimator, with modules that have not used some cells."""
        rank = self.n_components_
        other = self._normal_without(data, hidden, weights, normal)
        starts = []
        for one in (linear, turned_like(linear_start(other, rank), linear)):
            with seeded(0):  # the same initial networks
                starts.append(self._built(one))
        return self._with_modules(autoencoder.Autoencoder(*map(moved, auto, *starts)))

    def _train(self, auto, data, nodes, weights, on_round, on_chosen):
        """Train in rounds."""
        rounds = self._rounds(auto, data, weights)

        def while_better(report):
            share = self._solver()["validation_fraction"]
            _, hidden = hold_out(nodes, weights, share)
            n_rounds = self._while_better(rounds, hidden, report)
            on_chosen(hidden)
            return n_rounds

        self._train_in_rounds(self.max_iter, while_better, rounds.on_all, on_round)
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

    def _autoencoder(self):
        return self._modules()

    def _rebuilt(self):
        return self._restored().evaluated()

    def _restored(self):
        """Make model and encoder in double precision, with their parameters."""
        d, k = len(self.scale_), self.n_components_
        d += sum(family.n_more for family in self._families().levels)
        ones = torch.ones(d, dtype=torch.float64)
        blank = FactorModel(0 * ones, ones[:, None].repeat(1, k), ones)
        # the state replaces what is drawn here; the seed keeps the caller's stream
        with seeded(0):
            sizes = autoencoder.Architecture(*self._sizes)
            auto = autoencoder.build(blank, self._families(), sizes)
        return self._loaded(autoencoder.Autoencoder(*(part.double() for part in auto)))

    def _in_training(self):
        """Make model and encoder in single precision, as the training left them."""
        return autoencoder.Autoencoder(*(part.float() for part in self._restored()))

    def _continued(self, sample, seed, n_rounds):  # TrainedAutoencoder
        """Copy the fitted autoencoder, and train the copy on more rows.

        `sample` (Sample).  `n_rounds`: number of rounds on all cells.  None chooses it
        by the held-out cells, and keeps the best averages of the parameters: rounds on
        all cells would add the noise of a few steps, and these cells are among the kept
        rows later.
        """
        self._check_algorithm()
        nodes = sample.rows[:, self.feature_indices_].astype(np.float64)
        seen = ~np.isnan(nodes).all(1)
        if not seen.any():
            return copy(self)
        losses, gains = [], []

        def report(n_round, loss, gain):
            losses.append(loss)
            gains.append(gain)
            return False

        with self._trains(seed):
            data, weights = self._scores_of(nodes[seen]), sample.weights[seen]
            rounds = self._rounds(self._in_training(), data, torch.from_numpy(weights))
            if n_rounds is None:
                hidden = sample.hidden[torch.from_numpy(seen)]
                n_rounds = self._while_better(rounds, hidden, report)
            else:
                n_cooling = min(COOLING, n_rounds)
                losses = rounds.on_all(n_rounds, n_cooling, lambda n, loss: False)
        found = self._trained_further(rounds.auto, losses)
        found.best_iter_, found.validation_scores_ = n_rounds, gains
        return found

    def _while_better(self, rounds, hidden, report):
        """Train without held-out cells; return the number of rounds that is best."""
        patience, hidden = self._solver()["n_iter_no_change"], hidden.to(self._device())
        limits = {"max_rounds": self.max_iter, "patience": patience}
        return rounds.while_better(hidden, **limits, on_round=report)

    def _rounds(self, auto, data, weights):
        """Make the training of modules on rows of scores, on its device."""
        device = self._device()
        return Rounds(
            auto.on(device),
            Incomplete(data.x.float(), data.observed).on(device),
            weights,
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
