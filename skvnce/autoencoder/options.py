"""Samplers of `LAIRImputer` as options."""

from numbers import Real

from sklearn.utils._param_validation import StrOptions

from skvnce._imputer.options import Option
from skvnce._imputer.validation import Number, integer_from
from skvnce.autoencoder import sampling


class LAIR(Option):
    """Latent-adaptive importance resampling, for the `sampler` of `LAIRImputer`.

    Parameters
    ----------
    n_particles : int, default=4
        K, the number of imputations from whose encodings an iteration proposes.
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
        "n_particles": [integer_from(1)],
        "n_replenish": [integer_from(0)],
        "replenish": [StrOptions(set(sampling.REPLENISH))],
    }

    def __init__(self, n_particles=4, n_replenish=20, replenish="encoder"):
        self.n_particles = n_particles
        self.n_replenish = n_replenish
        self.replenish = replenish

    def _rule(self):
        sizes = int(self.n_particles), int(self.n_replenish)
        return sampling.by_lair(*sizes, self.replenish)


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

    def __init__(self, epsilon=0.05, n_warm_up=0):
        self.epsilon = epsilon
        self.n_warm_up = n_warm_up

    def _rule(self):
        return sampling.SAMPLERS["ac-mwg"](float(self.epsilon), int(self.n_warm_up))


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

    def __init__(self, n_warm_up=0):
        self.n_warm_up = n_warm_up

    def _rule(self):
        return sampling.SAMPLERS["mwg"](int(self.n_warm_up))
