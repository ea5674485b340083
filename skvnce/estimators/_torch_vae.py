"""A user's own autoencoder as a member of LAIRImputer."""

from copy import deepcopy

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import nn

from skvnce._device import DEVICES, device_in_use, resolve_device
from skvnce._modules import filled_once
from skvnce.algorithms.gaussian.normal_scores import CellScores
from skvnce.algorithms.vae import autoencoder
from skvnce.estimators._options import Option
from skvnce.estimators._validation import integer_from
from skvnce.fitted.autoencoder import EncoderModel
from skvnce.models.own_vae import moved_to, own_autoencoder


class TorchVAE(Option):
    """Your own trained autoencoder, for the parameter `model` of `LAIRImputer`.

    `LAIRImputer` copies it and does not train it.  Columns are not standardised.

    Parameters
    ----------
    model : torch.nn.Module
        ``prior()`` returns p(z), a distribution of event shape (latents,), and
        ``likelihood(z)`` maps latents of shape (..., latents) to p(x_j | z), of batch
        shape (..., features): Bernoulli, or with quantiles (``icdf``).
    posterior : torch.nn.Module
        ``posterior(x, observed)`` returns q(z | x) of event shape (latents,), such as
        ``Independent(Normal(...), 1)``.  LAIR calls it with completed rows, of which
        all cells are observed, and, with ``replenish="encoder"`` and to start, with
        rows that contain 0 where `observed` is False.
    n_importance_samples : int, default=256
        Number of draws in `score_samples`.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the modules are evaluated; ``"auto"`` is CUDA where there is a device,
        else the CPU.  All their tensors must be parameters or buffers, or be made on
        the device of the input.  A fitted imputer whose device is ``"cuda"`` uses the
        CPU on machines without one.

    Examples
    --------
    >>> import torch
    >>> from torch.distributions import Independent, Normal
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import LAIR, TorchVAE
    >>> class Decoder(torch.nn.Module):
    ...     def prior(self):
    ...         return Independent(Normal(torch.zeros(1), torch.ones(1)), 1)
    ...     def likelihood(self, z):
    ...         return Normal(z * torch.tensor([1.0, 2.0]), 0.1)
    >>> class Encoder(torch.nn.Module):
    ...     def forward(self, x, observed):
    ...         return Independent(Normal(x[..., :1], 0.3), 1)
    >>> X = [[1.0, float("nan")], [-1.0, -2.0], [0.5, 1.1]]
    >>> own = TorchVAE(Decoder(), Encoder())
    >>> imputer = LAIRImputer(own, sampler=LAIR(replenish="prior"), max_value=9).fit(X)
    >>> bool(abs(imputer.transform(X)[0, 1] - 2.0) < 0.3)
    True
    """

    _parameter_constraints = {
        "model": [nn.Module],
        "posterior": [nn.Module],
        "n_importance_samples": [integer_from(2)],
        "device": [StrOptions(set(DEVICES))],
    }

    def __init__(self, model, posterior, n_importance_samples=256, device="cpu"):
        self.model = model
        self.posterior = posterior
        self.n_importance_samples = n_importance_samples
        self.device = device


class TorchMember:
    """A copy of a `TorchVAE` that draws the cells of tables of some width.

    Parameters
    ----------
    option : TorchVAE
    n_features : int
    """

    def __init__(self, option, n_features):
        self.n_features_in_ = n_features
        self.feature_indices_, self.constants_ = np.arange(n_features), {}
        self.n_importance_samples = int(option.n_importance_samples)
        modules = own_autoencoder(option.model, option.posterior, n_features)
        self._modules = autoencoder.Autoencoder(*modules)
        self._device, self._moved = option.device, []
        # raises an error at fit; later, a device that is missing is the CPU
        resolve_device(option.device, "model.device")
        self._autoencoder()

    def __getstate__(self):
        """Leave copies on other devices out of pickles."""
        return {**vars(self), "_moved": []}

    def to_torch(self):
        """Return a copy of the model, on the CPU."""
        return deepcopy(self._modules.model)

    @filled_once
    def _autoencoder(self):
        device = device_in_use(self._device)
        if device.type == "cpu":
            return self._modules
        if not self._moved:
            self._moved.append(
                autoencoder.Autoencoder(*moved_to(*self._modules, device))
            )
        return self._moved[0]

    def _encoder_model(self):
        """Return the modules and scores, which leave cells as they are, as a value.

        Cells have no bounds: the distributions of a user need not have any.
        """
        zero = torch.zeros(self.n_features_in_, dtype=torch.float64)
        none = torch.zeros(0, dtype=torch.long)
        scores = CellScores(zero, zero + 1, None, none, torch.zeros(0, 2).double())
        is_bounded = np.zeros(self.n_features_in_, dtype=bool)
        return EncoderModel(self._autoencoder(), scores, is_bounded)

    def _n_scored(self):
        """Return the number of draws from which log-densities are estimated."""
        return self.n_importance_samples
