"""Samplers and modules of the user's own for `LAIRImputer`, as options."""

from copy import deepcopy
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import nn

from skvnce._core.runtime import DEVICES, device_in_use, filled_once, resolve_device
from skvnce._imputer.validation import Number, Option, integer_from
from skvnce.autoencoder import samplers, vae
from skvnce.autoencoder.model import EncoderModel
from skvnce.autoencoder.networks import moved_to, user_autoencoder
from skvnce.gaussian.marginals import CellScores


@dataclass(repr=False, eq=False)
class LAIR(Option):
    """Latent-adaptive importance resampling, for the `sampler` of `LAIRImputer`.

    Parameters
    ----------
    n_particles : int, default=4
        K, the number of imputations from whose encodings an iteration proposes.  With
        0, draws are those of importance resampling by the R proposals, as for MIWAE.
    n_replenish : int, default=20
        R, the number of additional proposals in an iteration.
    replenish : {"encoder", "prior"}, default="encoder"
        Distribution of the additional proposals: the encoding of the row with missing
        values, or the prior, as in the paper.  The encoder is better if there are many
        latents.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, algorithm 2, eqs. (5) and (6).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import LAIR
    >>> LAIRImputer(sampler=LAIR(n_particles=8))
    LAIRImputer(sampler=LAIR(n_particles=8))
    """

    _parameter_constraints = {
        "n_particles": [integer_from(0)],
        "n_replenish": [integer_from(0)],
        "replenish": [StrOptions({"encoder", "prior"})],
    }

    n_particles: int = 4
    n_replenish: int = 20
    replenish: Literal["encoder", "prior"] = "encoder"

    def _rule(self):
        sizes = int(self.n_particles), int(self.n_replenish)
        if not sum(sizes):
            raise ValueError(
                "sampler=LAIR(n_particles=0, n_replenish=0) proposes nothing. Raise "
                "one of them."
            )
        return samplers.by_lair(*sizes, self.replenish)


@dataclass(repr=False, eq=False)
class ACMWG(Option):
    """Adaptive collapsed-Metropolis-within-Gibbs, for `sampler` of `LAIRImputer`.

    Parameters
    ----------
    epsilon : float, default=0.05
        Share of proposals from the prior, from 0 to 1.
    n_warm_up : int, default=0
        Number of iterations of LAIR before each chain starts; the paper uses 100.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, algorithm 1, eqs. (3) and (4).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import ACMWG
    >>> LAIRImputer(sampler=ACMWG(epsilon=0.3, n_warm_up=100))
    LAIRImputer(sampler=ACMWG(epsilon=0.3, n_warm_up=100))
    """

    _parameter_constraints = {
        "epsilon": [Number(Real, 0, 1, closed="both")],
        "n_warm_up": [integer_from(0)],
    }

    epsilon: float = 0.05
    n_warm_up: int = 0

    def _rule(self):
        return samplers.SAMPLERS["ac-mwg"](float(self.epsilon), int(self.n_warm_up))


@dataclass(repr=False, eq=False)
class MWG(Option):
    """Metropolis-within-Gibbs, for the parameter `sampler` of `LAIRImputer`.

    Parameters
    ----------
    n_warm_up : int, default=0
        Number of iterations of LAIR before each chain starts; the paper uses 100.

    References
    ----------
    Mattei and Frellsen (2018), Leveraging the exact likelihood of deep latent variable
    models; Simkus and Gutmann (2023), eq. (2).

    Examples
    --------
    >>> from skvnce import LAIRImputer
    >>> from skvnce.options import MWG
    >>> LAIRImputer(sampler=MWG(n_warm_up=100))
    LAIRImputer(sampler=MWG(n_warm_up=100))
    """

    _parameter_constraints = {"n_warm_up": [integer_from(0)]}

    n_warm_up: int = 0

    def _rule(self):
        return samplers.SAMPLERS["mwg"](int(self.n_warm_up))


def sampler_of(value):
    """Make the option that the name of a sampler stands for, to set its fields."""
    options = {"lair": LAIR, "ac-mwg": ACMWG, "mwg": MWG}
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"sampler={value!r} has no settings. Pass an option instead.")
    return options[value]()


@dataclass(repr=False, eq=False)
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
    >>> sampler = LAIR(replenish="prior")
    >>> imputer = LAIRImputer(own, sampler=sampler, max_value=9, random_state=0).fit(X)
    >>> bool(abs(imputer.transform(X)[0, 1] - 2.0) < 0.3)
    True
    """

    _parameter_constraints = {
        "model": [nn.Module],
        "posterior": [nn.Module],
        "n_importance_samples": [integer_from(2)],
        "device": [StrOptions(set(DEVICES))],
    }

    model: Any
    posterior: Any
    n_importance_samples: int = 256
    device: Literal["cpu", "cuda", "auto"] = "cpu"


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
        modules = user_autoencoder(option.model, option.posterior, n_features)
        self._modules = vae.Autoencoder(*modules)
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
            self._moved.append(vae.Autoencoder(*moved_to(*self._modules, device)))
        return self._moved[0]

    def _row_model(self):
        """Return the modules and scores, which leave cells as they are, as a value.

        Cells have no bounds: the distributions of a user need not have any.
        """
        zero = torch.zeros(self.n_features_in_, dtype=torch.float64)
        none = torch.zeros(0, dtype=torch.long)
        scores = CellScores(zero, zero + 1, None, none, torch.zeros(0, 2).double())
        is_bounded = np.zeros(self.n_features_in_, dtype=bool)
        number = self.n_importance_samples
        return EncoderModel(self._autoencoder(), scores, is_bounded, number)
