"""An imputer that draws missing cells from variational autoencoders."""

import inspect
import warnings
from math import ceil

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skvnce._incomplete import Incomplete
from skvnce._progress import steps
from skvnce._random import row_lattice, seed_from
from skvnce.algorithms.vae import autoencoder, sampling
from skvnce.estimators._base import Imputer
from skvnce.estimators._blind import Blind
from skvnce.estimators._callbacks import (
    CallbackSupportMixin,
    report_rounds,
    reports_fit,
)
from skvnce.estimators._members import STRATEGIES, DrawnByMembers, is_constant
from skvnce.estimators._misfit import HELD_OUT
from skvnce.estimators._tables import hold_out
from skvnce.estimators._vae import VariationalAutoencoder
from skvnce.estimators._validation import (
    check_auto_or_number,
    check_bool,
    check_choice,
    check_number,
    incomplete_array,
    keeps_state_on_failure,
)
from skvnce.models.bounded import BoundedModel
from skvnce.samplers.base import Sampler

_SEVERAL, _ENOUGH = 4, 40  # members at most; rows a column for which one is enough
_ROUGH = 32  # draws of a rough mean, a power of two
_SHAPE = 8.0  # of the weights of rows: an eighth of the variance of the bootstrap's


class LAIRImputer(CallbackSupportMixin, DrawnByMembers, Imputer):
    """Impute by draws from variational autoencoders given the observed cells.

    Autoencoders are trained on the incomplete rows, and missing cells (NaN) are drawn
    from ``p(x_mis | x_obs)`` of the model by latent-adaptive importance resampling
    (LAIR): proposals of the encoder at current imputations and at the incomplete row,
    weighed by what the observed cells say.  `transform` fills by the mean of draws,
    `sample` gives them.

    Parameters
    ----------
    estimator : VariationalAutoencoder, FrozenEstimator of one, or None, default=None
        What is trained, by default ``VariationalAutoencoder()``.  A fitted one in a
        `sklearn.frozen.FrozenEstimator` is not trained, only sampled.
    sampler : str or callable, default="lair"
        ``"lair"``; ``"ac-mwg"``, adaptive collapsed-Metropolis-within-Gibbs;
        ``"mwg"``, Metropolis-within-Gibbs; ``"pseudo-gibbs"``; or a function (model,
        posterior) to a `skvnce.samplers.base.Sampler`, of which each draw is the last
        state of a chain.
    n_members : "auto" or int, default="auto"
        Autoencoders that are trained.  If there are several, each has random weights of
        the rows, of an eighth of the variance of the Bayesian bootstrap (Rubin 1981),
        and the rounds that held-out cells chose for the first.  Draws are from each
        in turn, so that they differ by parameters, too.  ``"auto"``: 40 columns / rows,
        rounded up, at most 4: one from 40 rows a column on.  A frozen estimator is one.
    strategy : {"mean", "median", "mode"}, default="mean"
        How `transform` sums the draws of a cell up.
    n_steps : int, default=20
        Iterations of LAIR, or moves of each chain of the other samplers.
    n_particles : int, default=4
        Imputations whose encodings an iteration of LAIR proposes from.
    n_replenish : int, default=20
        Further proposals of an iteration of LAIR, from the encoding of the incomplete
        row (the paper takes the prior).
    n_draws : int, default=200
        Draws that `transform` sums up; below the number of members, of some only.
    min_value, max_value : float, array-like of shape (n_features,), dict, \
            "observed" or None, default=None
        Least and largest values of imputed cells, of all columns, of each, or by column
        name.  ``"observed"``: what was observed.  None: what was observed, widened by
        three mean excesses of the outermost values, though never across zero, in
        columns whose values do not repeat.  -inf and inf: no bound.  Missing
        cells are drawn given that they lie within your bounds; draws that leave the
        range of None are moved to its ends.
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
        Seed of the training, in place of that of `estimator`.
    verbose : int, default=0
        1 prints a line for each round of each member, and for each other step of `fit`,
        `transform` and `sample` that takes a second.  2 prints all steps.

    Attributes
    ----------
    estimators_ : list of VariationalAutoencoder
        The members; none where all columns of X are constant.
    node_indices_ : ndarray of shape (n_nodes,)
        Places in X of the columns of the model: those observed with two values or more.
    constants_ : dict of int to float
        Places and values of columns with one observed value, which fills their cells.
    feature_ranges_ : ndarray of shape (2, n_features_in_)
        Least and largest values that imputed cells of each column can have.
    held_out_gain_ : float
        One minus the ratio of the mean squared errors of the model and of column means,
        on the cells that the first member held out to choose the number of rounds, of
        at most 1000 rows; columns count alike.  Negative where means predict better.
        NaN where it held out none (``validation_fraction=0``, too few rows), and with
        ``on_misfit="ignore"``.  For a frozen estimator, on a tenth of the cells of X:
        too large if it was trained on them.
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
    In columns whose values repeat, draws are values that were observed, and in columns
    of integers they are integers; means need not be.  Bounds act on draws, not on the
    training and `score_samples`.  Random numbers of `transform` are functions of the
    row, so that it fills a row alike in any table; with a callable `sampler` that takes
    no ``uniforms``, only alike in the same table.

    References
    ----------
    Simkus and Gutmann (2023), Conditional sampling of variational autoencoders via
    iterated approximate ancestral sampling, eqs. (2)-(6), algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skvnce import LAIRImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) * [1.0, 2.0] + 0.1 * rng.normal(size=(100, 2))
    >>> X[0, 1] = np.nan
    >>> imputer = LAIRImputer(random_state=0).fit(X)
    >>> bool(abs(imputer.transform(X)[0, 1] - 2 * X[0, 0]) < 0.5)
    True
    >>> [table.shape for table in imputer.sample(X, n_draws=2, random_state=0)]
    [(100, 2), (100, 2)]
    """

    def __init__(
        self,
        estimator=None,
        *,
        sampler="lair",
        n_members="auto",
        strategy="mean",
        n_steps=20,
        n_particles=4,
        n_replenish=20,
        n_draws=200,
        min_value=None,
        max_value=None,
        keep_empty_features=False,
        add_indicator=False,
        on_misfit="warn",
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.sampler = sampler
        self.n_members = n_members
        self.strategy = strategy
        self.n_steps = n_steps
        self.n_particles = n_particles
        self.n_replenish = n_replenish
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
        """Train the autoencoders, unless they are frozen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.
        y : None
            Ignored.

        Returns
        -------
        self : LAIRImputer

        Raises
        ------
        ValueError
            For infinite or textual cells, a table without an observed cell, observed
            cells outside the bounds, a frozen estimator of another width, parameters
            outside their range, and a training that diverges.
        TypeError
            For parameters of a wrong type.
        """
        self._check_parameters()
        X = incomplete_array(self, X, reset=True)
        _, finish = report_rounds(self, None, X=X)
        blind = []
        if isinstance(self.estimator, FrozenEstimator):
            members = [self._thawed()]
            self._learn_possible(X, frozen=members[0])
            blind.extend(self._in_view_of(members[0], X))
        else:
            self._learn_possible(X)
            self._announce_tails(X, self._observed_columns(X))
            on_chosen = None if self.on_misfit == "ignore" else blind.append
            members = [] if is_constant(X) else self._train(X, on_chosen)
        self._keep_members(members, X)
        self._judge(X, blind)
        self._fit_indicator(X)
        finish()
        return self

    def _check_parameters(self):
        if not callable(self.sampler):
            known = list(sampling.SAMPLERS)
            if not isinstance(self.sampler, str) or self.sampler not in known:
                names = ", ".join(map(repr, known))
                raise ValueError(
                    f"sampler must be one of {names} or a function (model, posterior) "
                    f"to a Sampler, got {self.sampler!r}."
                )
        check_choice(self.strategy, "strategy", list(STRATEGIES))
        check_auto_or_number(self.n_members, "n_members", low=1, integer=True)
        for name in ("n_steps", "n_particles", "n_draws"):
            check_number(getattr(self, name), name, low=1, integer=True)
        check_number(self.n_replenish, "n_replenish", low=0, integer=True)
        check_bool(self.keep_empty_features, "keep_empty_features")
        check_bool(self.add_indicator, "add_indicator")
        self._check_on_misfit()

    def _thawed(self):
        """Check a frozen estimator against the table."""
        inside = self.estimator.estimator
        _check_kind(inside)
        try:
            check_is_fitted(inside)
        except NotFittedError as error:
            raise ValueError(
                "estimator is frozen but not fitted. Fit the VariationalAutoencoder "
                "first, or pass it without FrozenEstimator."
            ) from error
        if inside.n_features_in_ != self.n_features_in_:
            raise ValueError(
                f"estimator was fitted on {inside.n_features_in_} columns, and X has "
                f"{self.n_features_in_}. Pass the columns that it was fitted on."
            )
        names = getattr(inside, "feature_names_in_", None)
        mine = getattr(self, "feature_names_in_", None)
        if names is not None and mine is not None and list(names) != list(mine):
            wrong = next(
                j for j, (a, b) in enumerate(zip(names, mine, strict=True)) if a != b
            )
            raise ValueError(
                f"estimator was fitted on column {names[wrong]!r} where X has "
                f"{mine[wrong]!r}. Pass the columns that it was fitted on, in order."
            )
        return inside

    def _in_view_of(self, member, X):
        """Hide cells from a frozen estimator; a list without or with one `Blind`."""
        nodes = X[:, member.node_indices_].astype(np.float64)
        seen = [column[~np.isnan(column)] for column in nodes.T]
        if any(len(np.unique(cells)) < 2 for cells in seen):
            return []
        _, hidden = hold_out(nodes, torch.ones(len(nodes)).double(), HELD_OUT)
        return [Blind(member, nodes, hidden.numpy())]

    def _train(self, X, on_chosen):
        """Train a first member, and the others for as many rounds; a list of them."""
        given = self.estimator
        base = VariationalAutoencoder() if given is None else given
        _check_kind(base)
        base = clone(base)
        count = self.n_members
        if isinstance(count, str):
            count = min(_SEVERAL, ceil(_ENOUGH * X.shape[1] / len(X)))
        rng = np.random.default_rng(seed_from(self.random_state))
        found = []
        with warnings.catch_warnings():  # said already, with what transform does
            warnings.filterwarnings("ignore", "Entirely missing")
            for _ in steps("member", range(count), count, has_parts=True):
                member = clone(base).set_params(random_state=int(rng.integers(2**31)))
                weights = rng.gamma(_SHAPE, size=len(X)) if count > 1 else None
                found.append(member._fit(X, weights, on_chosen))
                base.set_params(max_iter=found[0].n_rounds_, validation_fraction=0)
        return found

    def _drawn(self, member, nodes, n_draws, numbers):
        sizes = self.n_steps, self.n_particles, self.n_replenish
        effort = sampling.Effort(*map(int, sizes))
        bounds = self._bounds_of_nodes()
        return draw_by(self._rule(), effort, member, nodes, n_draws, numbers, bounds)

    def _rough_mean(self, member, nodes):
        return mean_by(member, nodes, self._bounds_of_nodes())

    def _rule(self):
        """Resolve `sampler` to a rule of `vae.sampling`."""
        if isinstance(self.sampler, str):
            return sampling.SAMPLERS[self.sampler]
        keyed = "uniforms" in inspect.signature(self.sampler).parameters

        def make(model, posterior, uniforms):
            options = {"uniforms": uniforms} if keyed else {}
            found = self.sampler(model, posterior, **options)
            if not isinstance(found, Sampler):
                raise ValueError(
                    "sampler must give a skvnce.samplers.base.Sampler of (model, "
                    f"posterior), got {found!r}."
                )
            return found

        return sampling.by_chains(make)


def _check_kind(estimator):
    if not isinstance(estimator, VariationalAutoencoder):
        raise ValueError(
            "estimator must be a VariationalAutoencoder, a FrozenEstimator of one, or "
            f"None, got {estimator!r}."
        )


def draw_by(rule, effort, member, nodes, n_draws, numbers, bounds):
    """Draw cells of nodes from an autoencoder, in the units of X.

    Parameters
    ----------
    rule : callable
        Of `vae.sampling.SAMPLERS`.
    effort : Effort
    member : VariationalAutoencoder
    nodes : ndarray of shape (n, n_nodes)
    n_draws : int
    numbers : callable
        Maps rows and a purpose to uniform numbers.
    bounds : ndarray of shape (2, n_nodes)
        In the units of X, given which cells are drawn; infinite where there are none.

    Returns
    -------
    ndarray of shape (n_draws, n, n_nodes)
    """
    auto, scores = member._autoencoder(), member._cell_scores()
    target = _bounded(member, bounds)
    drawn = np.empty((n_draws, *nodes.shape))
    with torch.no_grad():
        for rows in sampling.chunks(auto, len(nodes), n_draws, effort):
            data, _ = scores.scores(Incomplete.from_array(nodes[rows]))
            found = rule(target, data, int(n_draws), effort, numbers(nodes[rows]))
            drawn[:, rows] = scores.cells(found).numpy()
    return drawn


def mean_by(member, nodes, bounds):
    """Estimate means of cells of nodes by an autoencoder, quickly and roughly.

    Parameters
    ----------
    member : VariationalAutoencoder
    nodes : ndarray of shape (n, n_nodes)
    bounds : ndarray of shape (2, n_nodes)
        As in `draw_by`.

    Returns
    -------
    ndarray of shape (n, n_nodes)
        Functions of each row alone.
    """
    target, scores = _bounded(member, bounds), member._cell_scores()
    order = torch.from_numpy(np.random.default_rng(0).permutation(_ROUGH))
    found = [np.empty((0, nodes.shape[1]))]
    for rows in autoencoder.chunks(member._autoencoder(), len(nodes), _ROUGH):
        data, _ = scores.scores(Incomplete.from_array(nodes[rows]))

        def streams(purpose, part=nodes[rows]):
            evenly = row_lattice(part, purpose)  # the same points for each purpose,
            return (lambda *a: evenly(*a)[order]) if purpose else evenly  # out of step

        mean = sampling.rough_mean(target, data, scores.cells, streams, _ROUGH)
        found.append(mean.numpy())
    return np.concatenate(found)


def _bounded(member, bounds):
    """Truncate the columns of a model that the user bounded."""
    auto = member._autoencoder()
    places, low, high = member._score_bounds(bounds)
    if not len(places):
        return auto
    return auto._replace(model=BoundedModel(auto.model, places, low, high))
