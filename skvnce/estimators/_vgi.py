"""An imputer that draws missing cells from any density of rows."""

import warnings
from functools import partial

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce._warnings import warn_user
from skvnce.algorithms.vae import sampling
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._densities import DENSITIES
from skvnce.estimators._density import (
    STRAY,
    SUMMED,
    IncompleteDensity,
)
from skvnce.estimators._lair import LAIRImputer, draw_by, mean_by
from skvnce.estimators._members import (
    OF_MEMBERS,
    DrawnByMembers,
    is_constant,
    of_rows,
)
from skvnce.estimators._vae import VariationalAutoencoder
from skvnce.estimators._validation import (
    column_name,
    incomplete_array,
    keeps_state_on_failure,
    share_columns,
)

_ROUGH = {"n_chains": 32, "n_sweeps": 4, "n_kept": 1}  # for held-out predictions


class VGIImputer(CallbackSupportMixin, DrawnByMembers):
    """Impute by draws from any density, fitted by variational Gibbs inference.

    Variational Gibbs inference (VGI) fits a model with a tractable ``log p(x)`` to rows
    with missing cells (NaN).  It only needs a univariate conditional q of each column:
    Gibbs sampling with these conditionals completes the rows, and the parameters of
    model and conditionals maximise a bound at the completed rows.  Missing cells are
    drawn from the model and not from q: q proposes, and a Metropolis-Hastings step
    accepts or rejects.  `transform` fills missing cells by the mean of draws, and
    `sample` returns draws.

    Parameters
    ----------
    model : {"vae", "flow", "factor-analysis"}, IncompleteDensity, \
            VariationalAutoencoder, callable or None, default=None
        An `IncompleteDensity` is a density with the settings of its training.
        ``"flow"`` (an autoregressive neural spline flow), ``"factor-analysis"`` and a
        callable, which makes your own density, stand for ``IncompleteDensity(model)``.
        In a `VariationalAutoencoder` the latents are drawn as a block given each row;
        the missing cells are independent given the latents and are integrated out, so
        no chains are needed; see its ``algorithm="vbgi-vae"``, too.  None and ``"vae"``
        stand for ``VariationalAutoencoder(n_importance_samples=64)``, the most accurate
        on small and medium tables.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` summarises the draws of a cell.
    n_steps : int, default=20
        Number of sweeps over the missing cells before the first draw of a chain; for
        autoencoders, number of iterations of LAIR.
    n_draws : int, default=200
        Number of draws that `transform` summarises.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Bounds of imputed cells: a number for all columns, one bound for each column, or
        a dict by column name.  Missing cells are drawn conditionally on lying within
        these bounds.  ``"observed"`` is the smallest or the largest observed value, and
        -inf and inf mean no bound.  With None, draws are clipped to the observed range.
        In columns without repeated values, this range is first widened by three times
        the mean excess of the outermost values, but not across zero.  Chains of
        densities stay within the observed values, whatever the bounds.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit`, filled by
        0 or by the value within the bounds that is nearest to 0, or drops them.
    add_indicator : bool, default=False
        Whether `transform` appends a binary column for each column with missing cells
        at `fit`, which is 1 where the cell is missing.  `sample` does not append them.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate the squared errors of a column, or if
        the model predicts held-out cells of a column significantly worse than the mean
        of the column does (`held_out_gain_`): it warns
        (`skvnce.exceptions.MisfitWarning`) or raises a ValueError.  ``"ignore"`` skips
        these checks.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        If 1, print a line for each round (loss in nats a row, and as "change" the gain
        in the log-density of held-out cells), and for each other step of `fit`,
        `transform` and `sample` that takes longer than a second.  If 2, print all
        steps.

    Attributes
    ----------
    estimators_ : list of VariationalAutoencoder or of IncompleteDensity
        The fitted autoencoders, or one fitted density; empty if all columns of X are
        constant.  Their `loss_curve_`, `validation_scores_` and `n_iter_` describe the
        training.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of X that the model uses: those with at least two
        different observed values.
    constants_ : dict of int to float
        Values of the constant columns, by column index.  They fill missing cells.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    held_out_gain_ : float
        One minus the ratio of the mean squared error of the model to that of the column
        means, on the cells of at most 1000 rows (250 for a density) that training held
        out to choose the number of rounds; all columns have the same weight.  Negative
        if the means predict better.  NaN if no cells were held out (a model with
        ``solver=Adam(validation_fraction=0)`` or ``algorithm="mcem"``, too few rows),
        and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means, and
        heavy-tailed columns that it does not predict better.  They are imputed from
        their observed values: `transform` fills in the mean (median, mode), and
        `sample` draws from them.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends; None if it is False.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    All models except your own start at a normal distribution that EM fits, and training
    continues as long as held-out cells are predicted better.  Columns with repeated
    values are treated as rounded: in a density, a cell of such a column can be anywhere
    between the neighbouring values.  Their draws are observed values, and draws of
    integer columns are integers.  Chains are restricted to the range of the observed
    values of each column; a `ConvergenceWarning` names columns in which many proposals
    were outside this range.

    References
    ----------
    Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
    estimation from incomplete data, eqs. (9)-(13), algorithms 1 to 6; Cannella, Soltani
    and Tarokh (2021), Projected latent Markov chain Monte Carlo.

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
            None,
            StrOptions({"vae", *DENSITIES}),
            VariationalAutoencoder,
            IncompleteDensity,
            callable,
        ],
        **OF_MEMBERS,
    }

    def __init__(
        self,
        model=None,
        *,
        strategy="mean",
        n_steps=20,
        n_draws=200,
        min_value=None,
        max_value=None,
        keep_empty_features=False,
        add_indicator=False,
        on_misfit="warn",
        random_state=None,
        verbose=0,
    ):
        self.model = model
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.min_value = min_value
        self.max_value = max_value
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.on_misfit = on_misfit
        self.random_state = random_state
        self.verbose = verbose

    @keeps_state_on_failure
    @reports_fit
    def fit(self, X, y=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        self : VGIImputer

        Raises
        ------
        ValueError
            If X contains infinite values or text, if no cell is observed, if observed
            cells are outside the bounds, if a parameter is out of range, or if
            `log_prob` of a density returns a wrong shape.
        DivergenceError
            If training diverges.
        TypeError
            If a parameter has a wrong type, or if the model has no `log_prob`.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        self._learn_possible(X)
        self._announce_tails(X, self._observed_columns(X))
        _, finish = report_rounds(self, None, X=X)
        with warnings.catch_warnings():  # the imputer has given this warning already
            warnings.filterwarnings("ignore", "Entirely missing|Constant where")
            blind = []
            on_chosen = None if self.on_misfit == "ignore" else blind.append
            members = [] if is_constant(X) else self._train(X, on_chosen)
        self._keep_members(members, X)
        self._judge(X, blind)
        self._fit_indicator(X)
        finish()
        return self

    def to_torch(self):
        """Return the fitted density, a `torch.nn.Module` with ``log_prob(x)``.

        Its input are scores of the columns in `feature_indices_`: ``(X - location_) /
        scale_`` of ``estimators_[0]``, mapped nonlinearly where its
        `nonlinear_columns_` is True.

        Returns
        -------
        torch.nn.Module
            A copy in double precision and without gradients: your own module if you
            passed one, the decoder of an autoencoder.
        """
        check_is_fitted(self)
        if not self.estimators_:
            raise ValueError("All columns were constant at fit: there is no density.")
        return self.estimators_[0].to_torch()

    def _train(self, X, on_chosen):
        """Train autoencoders or a density; return a list."""
        if self._is_autoencoder():
            members = LAIRImputer(self._autoencoder(), random_state=self._seed())
            share_columns(self, members)
            return members._train(X, on_chosen)
        member = self._density()._fit_member(self, X, self._seed(), on_chosen)
        self._tell_strays(member)
        return [member]

    def _check_parameters(self):
        super()._check_parameters()
        if isinstance(self.model, IncompleteDensity):
            self.model._check_conditions()

    def _tell_strays(self, member):
        """Warn about columns whose chains often leave the observed range."""
        if member.strays_:
            names = ", ".join(column_name(self, j) for j in member.strays_)
            rate = member._solver()["learning_rate_init"]
            warn_user(
                f"Chains ran away in {names}: more than {STRAY:.0%} of their draws "
                "fell outside the observed values and were rejected. Lower "
                f"learning_rate_init={rate!r} of the solver (pass IncompleteDensity"
                "(..., solver=Adam(...))), or use a model with lighter tails.",
                ConvergenceWarning,
            )

    def _is_autoencoder(self):
        if self.model is None or isinstance(self.model, str):
            return self.model in (None, "vae")
        return isinstance(self.model, VariationalAutoencoder)

    def _autoencoder(self):
        """Make the autoencoder to fit."""
        if isinstance(self.model, VariationalAutoencoder):
            return clone(self.model)
        return VariationalAutoencoder(n_importance_samples=64, verbose=self.verbose)

    def _density(self):
        """Make the density to fit."""
        if isinstance(self.model, IncompleteDensity):
            return clone(self.model)
        return IncompleteDensity(self.model)

    def _seed(self):
        return seed_from(self.random_state)

    def _drawn(self, member, nodes, n_draws, numbers):
        if isinstance(member, IncompleteDensity):
            sizes = {"n_chains": n_draws, "n_sweeps": self.n_steps, "n_kept": 1}
            return member._drawn(nodes, numbers, **sizes)
        rule, bounds = sampling.by_lair(), self._bounds_of_nodes()
        return draw_by(rule, int(self.n_steps), member, nodes, n_draws, numbers, bounds)

    def _rough_mean(self, member, nodes):
        if not isinstance(member, IncompleteDensity):
            return mean_by(member, nodes, self._bounds_of_nodes())
        return member._drawn(nodes, partial(of_rows, 0), **_ROUGH).mean(0)

    def _summed(self, member, nodes, n_draws, numbers):
        if not isinstance(member, IncompleteDensity):
            return self._drawn(member, nodes, n_draws, numbers)
        n_chains = min(n_draws, SUMMED)
        sizes = {"n_chains": n_chains, "n_sweeps": self.n_steps}
        drawn = member._drawn(nodes, numbers, **sizes, n_kept=-(-n_draws // n_chains))
        return drawn[:n_draws]
