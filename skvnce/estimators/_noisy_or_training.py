"""The training of noisy-OR, and the use of its modules on rows of a table."""

import numbers
from contextlib import contextmanager
from math import ceil

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvnce._device import device_in_use, resolve_device
from skvnce._modules import filled_once, load_state, state_of
from skvnce._progress import step, tell
from skvnce._random import seeded
from skvnce._threads import one_thread
from skvnce._warnings import warn_user
from skvnce.algorithms import noisy_or
from skvnce.estimators._base import IncompleteTransformer
from skvnce.estimators._binary_tables import (
    STARTS,
    binary_table,
    key_of_rows,
    observed_counts,
    observed_rows,
    parts_by_length,
    torch_rows,
    without_columns,
)
from skvnce.estimators._callbacks import CallbackSupportMixin
from skvnce.estimators._options import fields_of
from skvnce.estimators._unused_parameters import warn_of_unused
from skvnce.estimators._validation import attributes_of
from skvnce.fits.training_rounds import failures_named
from skvnce.models.noisy_or import NoisyOrModel, gather
from skvnce.tables.schema import Schema
from skvnce.training.flat_adam import FlatAdam
from skvnce.variational.binary_causes import RowNetwork

_SOLVER = {"batch_size": "auto", "learning_rate_init": 0.02, "device": "cpu"}
_BY_NETWORK = {"acp", "avi"}  # algorithms
_MOST_NAMES = 10  # maximum number of column names in a warning
# 8 MiB of float64
_CHUNK = 2**20  # maximum size of an array of a chunk of rows


class CauseLearner(CallbackSupportMixin, IncompleteTransformer):
    """Base class of `NoisyOr`, which documents parameters and attributes."""

    @property
    def _schema(self):
        """The columns, as scikit-learn has validated them."""
        known = vars(self).get
        return Schema(known("n_features_in_", 0), known("feature_names_in_"))

    def _attributes_of(self, schema):
        return attributes_of(schema)

    def __sklearn_tags__(self):
        """Declare that sparse tables are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self):
        """Leave the modules out of pickles; they are rebuilt on first use."""
        return {**super().__getstate__(), "_cache": []}

    @property
    def _n_features_out(self):
        return self.n_components_

    def _warn_of_unused(self):
        """Warn of parameters that the algorithm does not use."""
        if self.algorithm not in _BY_NETWORK:
            reason = f"{self.algorithm!r} has no network; 'acp' and 'avi' have one"
            names = ("hidden_layer_sizes", "n_training_draws")
            warn_of_unused(self, dict.fromkeys(names, f"algorithm={reason}"))

    def _checked(self, X):
        """Validate new rows; ignore cells of columns that were never observed."""
        check_is_fitted(self)
        self._check_parameters()
        table = binary_table(self, X, reset=False)
        return without_columns(table, np.flatnonzero(self.n_observed_ == 0))

    def _observed(self, table):
        """Drop empty rows, and count cells; warn about columns never observed."""
        table = observed_rows(table)
        if not table.shape[0]:
            raise ValueError("X has no observed cell: there is nothing to learn.")
        self.n_samples_seen_ += table.shape[0]
        key = key_of_rows(table)
        if key not in self._tables_seen:
            self._tables_seen = [*self._tables_seen, key]
            self._n_rows += table.shape[0]
        self.n_observed_ = self.n_observed_ + observed_counts(table)
        if not self.n_observed_.all():
            never = np.flatnonzero(self.n_observed_ == 0)
            names = self._schema.labels(never, _MOST_NAMES)
            warn_user(
                f"Entirely missing: {names}; no cause switches them on, and their "
                "probabilities are NaN.",
            )
        return table

    def _reset(self):
        """Start with a new model."""
        self.n_observed_ = np.zeros(self.n_features_in_, dtype=int)
        self.n_samples_seen_ = 0
        self._n_rows, self._tables_seen = 0, []  # rows of different tables
        self.n_updates_, self.optimizer_state_, self.loss_curve_ = 0, {}, []
        self._made_with = self._sizes()

    def _sizes(self):
        """Return the parameters that determine the sizes of model and network."""
        return {
            "n_components": int(self.n_components),
            "algorithm": self.algorithm,
            "hidden_layer_sizes": [int(size) for size in self.hidden_layer_sizes],
        }

    def _check_made_with(self):
        for name, value in self._sizes().items():
            if value != self._made_with[name]:
                raise ValueError(
                    f"{name}={value!r}, but partial_fit goes on with "
                    f"{self._made_with[name]!r}. Set it back, or start anew by fit."
                )

    def _solver(self):
        """Return the fields of the solver; `batch_size` may be "auto"."""
        return fields_of(self.solver, "solver", _SOLVER)

    def _placed(self, learner, table):
        """Move a learner to the device of training, in place, and the rows."""
        device = resolve_device(self._solver()["device"], "solver.device")
        learner.model.to(device)
        learner.inference.network.to(device)
        return torch_rows(table).on_device(device)

    def _rows_of_step(self, table):
        size = self._solver()["batch_size"]
        if not isinstance(size, str):
            return int(size)
        # about twenty steps in a pass over few rows
        return int(np.clip(table.shape[0] // 20, 16, 128))

    @contextmanager
    def _training(self):
        """Isolate the random numbers; they differ at each call of partial_fit."""
        seed = self.random_state
        if isinstance(seed, numbers.Integral):
            # or all calls of partial_fit would have the same random numbers
            seed = check_random_state(seed).randint(2**31 - 1) + self.n_updates_
        rate = self._solver()["learning_rate_init"]
        remedy = (
            f"Lower learning_rate_init={rate!r} of the solver (pass solver=Adam(...)), "
            f"or alpha={self.alpha!r}."
        )
        with one_thread(), seeded(seed), failures_named(remedy):
            yield

    def _started(self, table):
        """Initialise the model and its inference network."""
        self._warn_of_unused()
        # scikit-learn's NMF takes no generator of torch
        rng = np.random.RandomState(int(torch.randint(2**31 - 1, ())))
        with step("finding a start"):
            guess = STARTS[self.init](table, int(self.n_components), rng)
        model = noisy_or.start(torch_rows(table), torch.from_numpy(guess))
        return noisy_or.Learner(model, self._inference(table.nnz / table.shape[0]))

    def _inference(self, n_listed=1.0):
        made = self._made_with
        hidden = tuple(made["hidden_layer_sizes"])
        sizes = noisy_or.Sizes(
            self.n_features_in_, made["n_components"], hidden, n_listed
        )
        draws = noisy_or.Relaxation(int(self.n_training_draws), self.n_updates_)
        inference = noisy_or.INFERENCES[made["algorithm"]](sizes, draws)
        inference.network.float()  # independent of torch's default dtype
        return inference

    def _rebuilt(self):
        """Rebuild the learner from its state."""
        k = self._made_with["n_components"]
        blank = torch.ones(self.n_features_in_, k), torch.ones(self.n_features_in_)
        model = NoisyOrModel(*blank, torch.full((k,), 0.5)).float()
        with seeded(0):
            learner = noisy_or.Learner(model, self._inference())
        load_state(model, self.model_state_)
        load_state(learner.inference.network, self.posterior_state_)
        return learner

    def _optimizer(self, learner):
        """Rebuild Adam from its state."""
        leaves = [leaf for _, leaf in learner.named_parameters()]
        adam = FlatAdam(leaves, lr=self._solver()["learning_rate_init"])
        state = [{} for _ in leaves]
        for name, value in self.optimizer_state_.items():
            place, _, key = name.partition(".")
            state[int(place)][key] = torch.tensor(value)
        if self.optimizer_state_:
            adam.restore(state)
        return adam

    def _keep(self, learner, losses, table):
        """Set the fitted attributes."""
        self.loss_curve_ = [*self.loss_curve_, *losses]
        self.n_iter_ = len(self.loss_curve_)
        self.n_updates_ += len(losses) * ceil(
            table.shape[0] / self._rows_of_step(table)
        )
        self.model_state_ = state_of(learner.model)
        self.posterior_state_ = state_of(learner.inference.network)
        self._cache = []
        causes = learner.model.cpu().double().causes()
        weight, leak, prior_logit = (part.detach() for part in causes)
        never = self.n_observed_ == 0
        # expm1 is exact for small weights, too
        self.components_ = -np.expm1(-weight.T.numpy())
        self.components_[:, never] = 0.0
        self.leak_ = -np.expm1(-leak.numpy())
        self.leak_[never] = np.nan
        self.prior_ = prior_logit.sigmoid().numpy()
        self.n_components_ = len(self.prior_)

    def _rowwise(self, table, n_draws, function):
        """Apply a function of evidence, logits and rows to a table, in parts.

        The function uses `n_draws` draws of the causes of each row.
        """
        model, inference = self._evaluated()
        device = device_in_use(self._solver()["device"])
        model.to(device)
        inference.network.to(device)
        never = torch.from_numpy(self.n_observed_ == 0).to(device)
        k, hidden = self.n_components_, self._made_with["hidden_layer_sizes"]
        costs = max(n_draws, k, *hidden), n_draws * k
        joined, n_done = None, 0
        with one_thread(), torch.no_grad():
            causes = model.causes()
            causes.weight[never], causes.leak[never] = 0.0, 0.0
            for places in parts_by_length(table, *costs, _CHUNK):
                n_done += len(places)
                tell("rows", n_done, table.shape[0])
                part = table[places]
                rows = torch.arange(len(places))
                listed = torch_rows(part).on_device(device)
                cells = listed.cells(rows, torch.float64)
                evidence = gather(causes, cells)
                logit = inference.posterior(evidence, cells)
                found = function(evidence, logit, part).cpu().numpy()
                if joined is None:  # small arrays of each part would scatter the heap
                    joined = np.empty((table.shape[0], *found.shape[1:]), found.dtype)
                joined[places] = found
        return joined

    @filled_once
    def _evaluated(self):
        """Return the learner in double precision, rebuilt on first use."""
        if not self._cache:
            learner = self._rebuilt()
            learner.model.double()
            never = torch.from_numpy(np.flatnonzero(self.n_observed_ == 0))
            for part in learner.inference.network.double().modules():
                if isinstance(part, RowNetwork):
                    part.always_missing(never)
            self._cache.append(learner)
        return self._cache[0]


def arrays_of(optimizer):
    """Convert the state of an optimiser to arrays, named place.key."""
    return {
        f"{place}.{key}": value.cpu().numpy().copy()
        for place, entry in enumerate(optimizer.state())
        for key, value in entry.items()
    }
