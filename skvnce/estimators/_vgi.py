"""An imputer that draws missing cells from any density of rows."""

import warnings
from functools import partial

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skvnce._random import seed_from
from skvnce._warnings import warn_user
from skvnce.algorithms.vae import sampling
from skvnce.estimators._base import Imputer
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._density import (
    HEADS,
    STARTS,
    STRAY,
    SUMMED,
    IncompleteDensity,
)
from skvnce.estimators._lair import LAIRImputer, draw_by, mean_by
from skvnce.estimators._members import (
    STRATEGIES,
    DrawnByMembers,
    is_constant,
    of_rows,
)
from skvnce.estimators._vae import VariationalAutoencoder
from skvnce.estimators._validation import (
    check_bool,
    check_choice,
    check_number,
    check_share,
    column_name,
    incomplete_array,
    keeps_state_on_failure,
)

_MODELS = ["vae", *STARTS]
_PROPOSALS = {"n_particles": 4, "n_replenish": 20}  # of LAIR, as in LAIRImputer
_ROUGH = {"n_chains": 32, "n_sweeps": 4, "n_kept": 1}  # to judge a density by


class VGIImputer(CallbackSupportMixin, DrawnByMembers, Imputer):
    """Impute by draws from any density, fitted by variational Gibbs inference.

    Variational Gibbs inference (VGI) fits a model with a tractable ``log p(x)`` to rows
    with missing cells (NaN), with no more than a univariate conditional q of each
    column: rows are completed by Gibbs sampling with these conditionals, and model and
    conditionals climb a bound at the completed rows.  Missing cells are then drawn from
    the model, not from q: q proposes, and Metropolis and Hastings decide.  `transform`
    fills by the mean of draws, `sample` gives them.

    Parameters
    ----------
    model : {"vae", "flow", "factor-analysis"}, callable, VariationalAutoencoder or \
            None, default=None
        ``"flow"``: an autoregressive neural spline flow.  ``"factor-analysis"``: at
        most 20 factors.  A callable: your own density, number of columns to a
        `torch.nn.Module` with ``log_prob(x)``, which maps a table (n, columns) to (n,);
        columns reach it centred and scaled, so that it must be a density of all real
        numbers, in single and in double precision.  What it needs beside parameters are
        buffers; pickles need a class or function of a module.  ``"vae"``: an
        autoencoder, the block of whose latents is drawn given each row; its missing
        cells are independent given them and are summed out, and nothing needs chains.
        A `VariationalAutoencoder` is one with other parameters, such as
        ``objective="VBGI-VAE"``.  None is ``"vae"``, the most accurate on small and
        middling tables.
    algorithm : {"vgi", "mcem"}, default="vgi"
        ``"mcem"``: Monte Carlo EM with projected latent chains (PL-MCMC), which only
        ``model="flow"`` can do, with coupling steps.  It runs all of `max_iter`.
    conditionals : {"normal", "mixture", "spline"}, default="normal"
        Family of q.  Not of autoencoders.
    n_chains : int, default=5
        Completions of each row that are kept and moved; of autoencoders, draws of the
        latents of each row in a step.
    batch_size : int, default=128
        Rows of a step.
    learning_rate_init : float, default=1e-3
        Of AdamW for the model; conditionals have three times as much, with AMSGrad.
    max_iter : int, default=40
        Rounds of 50 steps at most; 0 keeps the normal distribution that all models but
        your own start from.
    n_iter_no_change : int, default=6
        Rounds without a better prediction of held-out cells after which it stops.
    validation_fraction : float, default=0.1
        Share of the observed cells that are held out to choose the number of rounds; 0:
        `max_iter` rounds on all cells.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` sums the draws of a cell up.
    n_steps : int, default=20
        Sweeps over the missing cells that a chain makes before its first draw;
        iterations of LAIR where the model is an autoencoder.
    n_draws : int, default=200
        Draws that `transform` sums up.
    n_importance_samples : int, default=64
        Draws in `score_samples`.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Least and largest values of imputed cells, of all columns, of each, or by column
        name.  ``"observed"``: what was observed.  None: what was observed, widened by
        three mean excesses of the outermost values, though never across zero, in
        columns whose values do not repeat.  -inf and inf: no bound.  Missing
        cells are drawn given that they lie within your bounds; draws that leave the
        range of None are moved to its ends.  Chains of densities do not leave the
        observed values, whichever the bounds.
    keep_empty_features : bool, default=False
        Whether `transform` keeps columns that were entirely missing at `fit` (missing
        cells filled by 0, or by the value within the bounds nearest to 0) or drops
        them.
    add_indicator : bool, default=False
        Whether `transform` appends a column of 0 and 1 for each column with missing
        cells at `fit`, 1 where a cell is missing.  Not in `sample`.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        Whether `fit` warns (`skvnce.exceptions.MisfitWarning`) or raises a ValueError
        where a few cells decide the squared errors of columns, and where held-out cells
        of a column are predicted worse than by their means.  ``"ignore"`` skips these
        checks.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        1 prints a line for each round (loss in nats a row, and as "change" the gain in
        the log-density of held-out cells), and for each other step of `fit`,
        `transform` and `sample` that takes a second.  2 prints all steps.

    Attributes
    ----------
    estimators_ : list
        What was fitted: autoencoders, or one density; nothing where all columns of X
        are constant.
    node_indices_ : ndarray of shape (n_nodes,)
        Places in X of the columns of the model: those observed with two values or more.
    constants_ : dict of int to float
        Places and values of columns with one observed value, which fills their cells.
    validation_scores_ : list of float
        Gains on held-out cells of each round that was judged by them, in nats.
    loss_curve_ : list of float
        Losses of all rounds, in nats; those with falling learning rates come last.
    n_iter_ : int
        Rounds that were run, of each autoencoder the first; 1 if there were none.
    n_tuning_iter_ : int
        Rounds of EM before them, which found the normal distribution.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Least and largest values that imputed cells of each column can have.
    held_out_gain_ : float
        One minus the ratio of the mean squared errors of the model and of column means,
        on the cells that training held out to choose the number of rounds, of at most
        1000 rows (250 of a density); columns count alike.  Negative where means predict
        better.  NaN where it held out none (``validation_fraction=0``,
        ``algorithm="mcem"``, too few rows), and with ``on_misfit="ignore"``.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts worse than their means do, beyond chance, and
        those with heavy tails that it does not predict better.  They are imputed
        from their observed values: `transform` fills in their mean (median, mode) and
        `sample` draws them.
    indicator_ : MissingIndicator or None
        What `add_indicator` appends.
    n_features_in_ : int
        Number of columns seen at `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    Notes
    -----
    All models start where EM fits a normal distribution, and training goes on while
    held-out cells are predicted better.  Columns whose values repeat are rounded: a
    density sees a cell of theirs as anywhere between the neighbouring values, and draws
    are values that were observed; in columns of integers they are integers.  Chains
    are kept within the least and the largest observed value of each column, and a
    `ConvergenceWarning` names columns where they often wanted to leave them.

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

    def __init__(
        self,
        model=None,
        *,
        algorithm="vgi",
        conditionals="normal",
        n_chains=5,
        batch_size=128,
        learning_rate_init=1e-3,
        max_iter=40,
        n_iter_no_change=6,
        validation_fraction=0.1,
        strategy="mean",
        n_steps=20,
        n_draws=200,
        n_importance_samples=64,
        min_value=None,
        max_value=None,
        keep_empty_features=False,
        add_indicator=False,
        on_misfit="warn",
        random_state=None,
        verbose=0,
    ):
        self.model = model
        self.algorithm = algorithm
        self.conditionals = conditionals
        self.n_chains = n_chains
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.n_importance_samples = n_importance_samples
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
            For infinite or textual cells, a table without an observed cell, observed
            cells outside the bounds, parameters outside their range, a density
            whose `log_prob` gives a wrong shape, and a training that diverges.
        TypeError
            For parameters of a wrong type, and a model without `log_prob`.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        self._learn_possible(X)
        self._announce_tails(X, self._observed_columns(X))
        _, finish = report_rounds(self, self.max_iter, X=X)
        with warnings.catch_warnings():  # said already, with what transform does
            warnings.filterwarnings("ignore", "Entirely missing")
            blind = []
            on_chosen = None if self.on_misfit == "ignore" else blind.append
            members = [] if is_constant(X) else self._train(X, on_chosen)
        self._keep_members(members, X)
        self._keep_curves(members)
        self._judge(X, blind)
        self._fit_indicator(X)
        finish()
        return self

    def score_samples(self, X, return_std=False):
        """Estimate the log-density of the observed cells of each row, in nats.

        By importance sampling, with the fitted conditionals (or the encoder) as
        proposal.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        return_std : bool, default=False
            Whether to return standard errors, too, from how much the weights differ.

        Returns
        -------
        log_prob : ndarray of shape (n_samples,)
            In the units of X; rounded columns count with log-probabilities of their
            values; 0 for a row that is entirely missing.
        std : ndarray of shape (n_samples,)
            Only if asked for.
        """
        log_prob, error = self._scored(self._checked(X))
        return (log_prob, error) if return_std else log_prob

    def to_torch(self):
        """Return the fitted density, a `torch.nn.Module` with ``log_prob(x)``.

        It sees scores of the columns in `node_indices_`: ``(X - location_) / scale_``
        of ``estimators_[0]``, bent where its `bent_` says so.

        Returns
        -------
        torch.nn.Module
            A copy, in double precision and without gradients: your own one, if you
            gave one; of autoencoders, the decoder.
        """
        check_is_fitted(self)
        if not self.estimators_:
            raise ValueError("All columns were constant at fit: there is no density.")
        return self.estimators_[0].to_torch()

    def _train(self, X, on_chosen):
        """Train autoencoders or a density; a list of them."""
        if self._is_autoencoder():
            members = LAIRImputer(self._autoencoder(), random_state=self._seed())
            return members._train(X, on_chosen)
        member = self._density()._fit(X, on_chosen)
        self._tell_strays(member.strays_)
        return [member]

    def _keep_curves(self, members):
        """Write into attributes how the first member was trained, if there is one."""
        self.validation_scores_, self.loss_curve_, self.n_tuning_iter_ = [], [], 0
        for first in members[:1]:
            self.validation_scores_ = list(first.validation_scores_)
            self.loss_curve_ = list(first.loss_curve_)
            self.n_tuning_iter_ = first.n_tuning_iter_
        self.n_iter_ = max(1, len(self.loss_curve_))

    def _check_parameters(self):
        given = self.model
        if isinstance(given, str):
            check_choice(given, "model", _MODELS)
        elif not (given is None or callable(given) or self._is_autoencoder()):
            raise TypeError(
                "model must be None, a string, a VariationalAutoencoder, or a function "
                f"of the number of columns that gives a torch.nn.Module, got {given!r}."
            )
        check_choice(self.algorithm, "algorithm", ["vgi", "mcem"])
        if self.algorithm == "mcem" and given != "flow":
            raise ValueError(
                "algorithm='mcem' takes model='flow', whose latents its chains move in,"
                f" got model={given!r}."
            )
        check_choice(self.conditionals, "conditionals", list(HEADS))
        check_choice(self.strategy, "strategy", list(STRATEGIES))
        for name in ("n_chains", "batch_size", "n_iter_no_change", "n_steps"):
            check_number(getattr(self, name), name, low=1, integer=True)
        check_number(self.n_draws, "n_draws", low=1, integer=True)
        check_number(
            self.n_importance_samples, "n_importance_samples", low=2, integer=True
        )
        check_number(self.max_iter, "max_iter", low=0, integer=True)
        check_number(self.learning_rate_init, "learning_rate_init", low=0, above=True)
        check_share(self.validation_fraction, "validation_fraction")
        check_bool(self.keep_empty_features, "keep_empty_features")
        check_bool(self.add_indicator, "add_indicator")
        self._check_on_misfit()

    def _tell_strays(self, columns):
        """Warn of columns whose chains wanted to leave what was observed."""
        if columns:
            names = ", ".join(column_name(self, j) for j in columns)
            warn_user(
                f"Chains ran away in {names}: more than {STRAY:.0%} of their draws "
                "fell outside the observed values, and were not taken. Lower "
                f"learning_rate_init={self.learning_rate_init!r}, or take a model that "
                "falls off faster.",
                ConvergenceWarning,
            )

    def _is_autoencoder(self):
        named = self.model is None or isinstance(self.model, str)
        return (
            self.model in (None, "vae")
            if named
            else isinstance(self.model, VariationalAutoencoder)
        )

    def _autoencoder(self):
        """Make the autoencoder that is to be fitted."""
        if isinstance(self.model, VariationalAutoencoder):
            return clone(self.model)
        return VariationalAutoencoder(n_samples=self.n_chains, **self._training())

    def _density(self):
        """Make the density that is to be fitted."""
        return IncompleteDensity(
            self.model,
            algorithm=self.algorithm,
            conditionals=self.conditionals,
            n_chains=self.n_chains,
            random_state=self._seed(),
            **self._training(),
        )

    def _training(self):
        names = "batch_size", "learning_rate_init", "max_iter", "n_iter_no_change"
        names += "validation_fraction", "n_importance_samples", "verbose"
        return {name: getattr(self, name) for name in names}

    def _seed(self):
        return seed_from(self.random_state)

    def _drawn(self, member, nodes, n_draws, numbers):
        if isinstance(member, IncompleteDensity):
            sizes = {"n_chains": n_draws, "n_sweeps": self.n_steps, "n_kept": 1}
            return member._drawn(nodes, numbers, **sizes)
        effort = sampling.Effort(int(self.n_steps), **_PROPOSALS)
        rule = sampling.SAMPLERS["lair"]
        bounds = self._bounds_of_nodes()
        return draw_by(rule, effort, member, nodes, n_draws, numbers, bounds)

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
