"""An imputer that draws missing cells from any density of rows."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions

from skvnce._core.random import seeded
from skvnce._core.runtime import one_thread
from skvnce._core.warnings import warn_user
from skvnce._imputer.validation import AUTO, integer_from
from skvnce._types import ByColumn, Seed, TableLike
from skvnce.autoencoder import samplers
from skvnce.autoencoder.lair import OF_MEMBERS, DrawnByMembers, reject_categories
from skvnce.autoencoder.model import EncoderMember, bounds_of_nodes
from skvnce.vgi.model import ChainMember, ChainModel
from skvnce.vgi.options import DENSITIES, HEADS, MOST_OUTSIDE, VGI, IncompleteDensity


def _is_density(model):
    return isinstance(model, IncompleteDensity)


class VGIImputer(DrawnByMembers):
    """Impute by draws from a density of your choice, fitted to incomplete rows.

    Variational Gibbs inference (VGI) fits a model with a tractable ``log p(x)``, or
    bound of it.  Univariate conditionals q complete the rows by Gibbs sampling, and the
    parameters of model and q maximise a bound at the completed rows.  Missing cells
    (NaN) are drawn from the model.  `transform` fills in means of draws, `sample`
    returns draws, and `category_probabilities` probabilities of levels.

    The default is for tables that an autoencoder suits.  With less than 100 columns,
    all of numbers, it is a mixture of normals, an autoencoder of the rows that this
    completes, and one round of VGI: there `MixtureImputer` fills most tables better.

    Parameters
    ----------
    model : {"vae", "flow", "coupling-flow", "factor-analysis"}, IncompleteDensity or \
            callable, default="vae"
        A `skvnce.options.IncompleteDensity` is a density with the settings of its
        training, and the others stand for ``IncompleteDensity(model)``.  ``"vae"``: an
        autoencoder, drawn from by latent-adaptive importance resampling as in
        `LAIRImputer`.  ``"flow"``: an autoregressive neural spline flow.
        ``"coupling-flow"``: one of coupling layers.  ``"factor-analysis"``: at most 20
        factors.  A callable makes your own density.  From these q proposes draws, and a
        Metropolis-Hastings step accepts or rejects them.
    conditionals : {"auto", "normal", "mixture", "spline"}, default="auto"
        Family of the conditionals q, see `skvnce.options.VGI`.  Where a missing value
        may have several modes, choose ``"mixture"``.  ``"auto"`` here and in `n_chains`
        is the value of `model`.
    n_chains : "auto" or int, default="auto"
        K, the number of completions of each row that training keeps and updates.
        G is ``n_updates`` of `VGI`, also by ``set_params(model__algorithm__n_updates=
        5)``; the number of rounds is ``model__max_iter``.
    n_estimators : "auto" or int, default="auto"
        Number of densities to fit, see `LAIRImputer`.  ``"auto"`` is 40 columns / rows,
        rounded up, and at most 4.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` summarises the draws of a number.
    n_steps : int, default=20
        Number of sweeps before the first draw of a chain, or of iterations of LAIR.
    n_draws : int, default=128
        Number of draws that `transform` summarises.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Bounds of imputed cells, see `GaussianImputer`.  With None, draws follow the
        model, but keep the sign of columns of one sign, and codes stay codes.  Draws of
        densities other than ``"vae"`` stay within the observed values.
    relations : None, "auto" or list, default=None
        The exact relations between columns that filled tables obey; see `TableImputer`.
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        What marks missing cells of X, see `GaussianImputer`.
    keep_empty_features : bool, default=False
        Whether to keep columns that were entirely missing at `fit`, see
        `GaussianImputer`.
    add_indicator : bool, default=False
        Whether `transform` appends columns that mark missing cells.
    on_misfit : {"warn", "raise", "ignore"}, default="warn"
        What `fit` does if a few cells dominate a column's squared errors, or if
        held-out cells are predicted significantly worse than by its mean
        (`held_out_gain_`).
    categorical_features : "from_dtype", array-like, dict or None, default="from_dtype"
        Which columns are categories, see `GaussianImputer`.  Only ``"vae"`` takes them.
    handle_unknown : {"error", "missing"}, default="error"
        What a level that `fit` has not observed is: an error, or a missing value.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the training.
    verbose : int, default=0
        If 1, print a line for each round and each step of more than a second; 2, all.

    Attributes
    ----------
    estimators_ : list of IncompleteDensity
        The fitted densities; empty if all columns of X are constant.
    relations_ : list of `skvnce.relations.search.Relation`
        The relations that are used.
    feature_indices_ : ndarray of shape (n_nodes,)
        Indices of the columns of the model: those with at least two different values.
    categories_ : dict of str to ndarray
        The levels of columns of categories, see `GaussianImputer`.
    constants_ : dict of int to float or level
        Values of the constant columns, by column index.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Smallest and largest imputed value of each column of X.
    held_out_gain_ : float
        As that of `LAIRImputer`, on held-out cells of at most 250 rows.
    marginal_columns_ : ndarray of bool, of shape (n_nodes,)
        Columns that the model predicts significantly worse than their means.
    indicator_ : MissingIndicator or None
        The indicator that `add_indicator` appends; None if it is False.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if X has feature names that are strings.

    Notes
    -----
    Draws are for filling, and `sample` warns: they ignore much of the uncertainty of
    the parameters, and coverage is too low; see the page of validity.  There is no
    `n_jobs`: members are trained one after the other.

    Chains of the training stay in the range of the observed cells and of the tables
    at which they start, by ``start="marginals"`` observed cells, too; a
    `ConvergenceWarning` names columns in which many proposals were outside.

    References
    ----------
    Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
    estimation from incomplete data, eqs. (9)-(13), algorithms 1 to 6, section 5.1 for
    autoencoders; Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019),
    Rao-Blackwellized stochastic gradients for discrete distributions; Simkus and
    Gutmann (2023), Conditional sampling of variational autoencoders; Cannella, Soltani
    and Tarokh (2021), PL-MCMC.

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
        "model": [StrOptions(set(DENSITIES)), IncompleteDensity, callable],
        "conditionals": [AUTO, StrOptions(set(HEADS))],
        "n_chains": [AUTO, integer_from(1)],
        "n_estimators": [AUTO, integer_from(1)],
        **OF_MEMBERS,
    }

    _network = "density"
    _parts = {"model": IncompleteDensity}

    def __init__(
        self,
        model: IncompleteDensity
        | Callable[..., Any]
        | Literal["vae", "flow", "coupling-flow", "factor-analysis"] = "vae",
        *,
        conditionals: Literal["auto", "normal", "mixture", "spline"] = "auto",
        n_chains: int | Literal["auto"] = "auto",
        n_estimators: int | Literal["auto"] = "auto",
        strategy: Literal["mean", "median", "mode"] = "mean",
        n_steps: int = 20,
        n_draws: int = 128,
        min_value: ByColumn | None = None,
        max_value: ByColumn | None = None,
        relations: Sequence[Any] | Literal["auto"] | None = None,
        missing_values: Any = np.nan,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        on_misfit: Literal["warn", "raise", "ignore"] = "warn",
        categorical_features: ByColumn | None = "from_dtype",
        handle_unknown: Literal["error", "missing"] = "error",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.conditionals = conditionals
        self.n_chains = n_chains
        self.n_estimators = n_estimators
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_draws = n_draws
        self.min_value = min_value
        self.max_value = max_value
        self.relations = relations
        self.missing_values = missing_values
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.on_misfit = on_misfit
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def fit_posterior(self, X: TableLike, y: object = None) -> Self:
        """Train the conditionals q on other rows, with the densities held fixed.

        This is algorithm 6.  Proposals of draws and `objective` of such rows become
        better, and the densities do not change; draws of ``model="vae"`` do not depend
        on q.  Training takes 20 rounds and at most six with decreasing rates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.

        Returns
        -------
        self : VGIImputer

        Raises
        ------
        ValueError
            If no row of X has an observed value.
        DivergenceError
            If training diverges.
        """
        X, members = self._schema.at_levels(self._checked(X)), []
        for member in self.estimators_:
            state = {"conditionals_state_": member._tune(X, self.random_state)}
            members.append(clone(member)._publish(member._with_report(state)))
        report = self._fitted.report | {"estimators_": members}
        return self._publish(self._fitted._replace(report=report))

    def objective(self, X: TableLike, y: object = None) -> float:
        """Estimate the objective of VGI, J of eq. (9), at rows of X; larger is better.

        It averages rows and densities, in nats.  Missing cells follow chains of q, of
        which one at a time is drawn anew: ``log p(x) - log q(x_j | x)``.  At the exact
        q it is the mean of ``log p(x_obs)`` in rows that miss one cell, and less by
        the entropy of the other missing cells in rows that miss several, where chains
        of too narrow a q have a larger J.  So compare densities, not q, by the same
        rows, after `fit_posterior` at them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None, default=None
            Ignored.

        Returns
        -------
        float
            0 if all columns were constant at `fit`; NaN if all rows are missing.
        """
        X = self._schema.at_levels(self._checked(X))
        if self.estimators_ and np.isnan(X[:, self.feature_indices_]).all():
            return np.nan
        with one_thread(), seeded(0):
            values = [member._objective(X).mean() for member in self.estimators_]
        return float(np.mean(values)) if values else 0.0

    def __sklearn_tags__(self):
        """Declare whether the density takes categories."""
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = self._base()._has_encoder()
        return tags

    def _read_for_fit(self, X, sample_weight):
        density, (X, schema) = self._base(), super()._read_for_fit(X, sample_weight)
        if not density._has_encoder():
            reject_categories(
                schema,
                f"model={density.model!r} is a density of numbers. Use model='vae' or "
                "GaussianImputer, or encode them as numbers.",
            )
        return X, schema

    def _check_parameters(self):
        super()._check_parameters()
        self._base()._check_conditions()

    def _warn_of_divergence(self, schema, member):
        if member.diverging_:
            names = schema.labels(member.diverging_)
            rate = member._solver()["learning_rate_init"]
            warn_user(
                f"Chains ran away in {names}: more than {MOST_OUTSIDE:.0%} of their "
                "draws fell outside the range of chains and were rejected. Lower "
                f"learning_rate_init={rate!r} of the solver (pass IncompleteDensity"
                "(..., solver=Adam(...))), or use a model with lighter tails.",
                ConvergenceWarning,
            )

    def _base(self):
        """Make the density, with the settings that are parameters of the imputer."""
        model = self.model
        base = clone(model) if _is_density(model) else IncompleteDensity(model)
        if self.conditionals != "auto":
            method = base._method()
            if not isinstance(method, VGI):
                raise ValueError(
                    f"conditionals={self.conditionals!r} are those of VGI, and model "
                    f"has algorithm={base.algorithm!r}. Leave them at 'auto'."
                )
            chosen = clone(method).set_params(conditionals=self.conditionals)
            base.set_params(algorithm=chosen)
        if self.n_chains != "auto":
            base.set_params(n_training_draws=self.n_chains)
        return base

    def _member_model(self, model, schema):
        n_steps = int(self.n_steps)
        if isinstance(model, ChainModel):
            return ChainMember(model, n_steps)
        return EncoderMember(
            model, samplers.by_lair(), n_steps, bounds_of_nodes(schema)
        )
