"""Preprocessing of models of scores: choice of columns, and maps of cells to scores."""

from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri

from skvnce._core import runtime
from skvnce._core.distributions.cells import Families, Nominal, Ordinal
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete, Rows, Units
from skvnce._core.progress import rounds_of_tuning
from skvnce._core.random import seeded
from skvnce._imputer.callbacks import failures_named, report_rounds, reports_fit
from skvnce._imputer.fitted import Fitted, get_state, set_state
from skvnce._imputer.held_out import HELD_OUT, hold_out
from skvnce._imputer.validation import attributes_of, check_choice, read_cells
from skvnce._tables.values import valid_values
from skvnce.autoencoder import vae
from skvnce.autoencoder.factor_analysis import fit_covariance
from skvnce.autoencoder.model import EncoderModel, normal_without
from skvnce.gaussian import copula, em
from skvnce.gaussian.fit import SHARES
from skvnce.gaussian.latent.columns import NOMINAL, ORDINAL, Marginal
from skvnce.gaussian.marginals import (
    CellScores,
    PiecewiseLinear,
    left_out_moments,
    linear,
    nonlinear_columns,
    repeated_values,
)
from skvnce.gaussian.mixed_fit import some_rows
from skvnce.gaussian.tails import Ends, Tails, fit_tails

# ----------------------------------------
# Columns of categories of models of scores: their families and their latent start.


SWEEPS = 100  # of the Gibbs sampler that estimates the latent normal model
SWEEPS_OF_CHECK = 30  # the same without held-out cells
FAR = 1e3  # edge that stands for an infinite one
SHARE = 0.5  # weight of the prior of independent latent variables, in rows for each


def count_outputs(schema):
    """Count the columns of the model, nominal ones by their levels if there are 3."""
    columns, count = schema.columns, len(schema.model_columns)
    for place in schema.model_columns[schema.is_categorical]:
        n_levels = len(columns[place].levels)
        if columns[place].kind == NOMINAL and n_levels > 2:
            # the column itself is one of its outputs
            count += n_levels - 1
    return count


def check_models_levels(algorithm, schema):
    """Raise an error if the algorithm of an autoencoder does not model categories."""
    places = schema.model_columns[schema.is_categorical]
    if len(places) and algorithm == "vbgi-vae":
        raise ValueError(
            "algorithm='vbgi-vae' draws missing cells from normal distributions, and "
            f"{schema.label(places[0])} has categories. Use "
            "algorithm='vbgi-vae-m'."
        )


def level_families(schema, requested):  # dict of int to str
    """Name the families of columns of categories, by column of the model.

    Columns of two levels are ordinal, which makes no difference and is cheaper.

    `schema` (Schema).  `requested` (str (n_nodes,)): families of the columns.
    """
    families, columns = {}, schema.columns
    for node in np.flatnonzero(schema.is_categorical):
        place = schema.model_columns[node]
        if requested[node] != "auto":
            raise ValueError(
                f"likelihood={requested[node]!r} is for numbers, and "
                f"{schema.label(place)} has categories. Use 'auto' there."
            )
        two = len(columns[place].levels) == 2
        families[int(node)] = ORDINAL if two else columns[place].kind
    return families


def thresholds_of(schema, raw, weights, families):
    """Choose thresholds of ordinal levels by their frequencies, by column."""
    counts, thresholds = schema.n_categories.tolist(), {}
    for node, family in families.items():
        observed = raw.observed[:, node]
        if family == ORDINAL:
            cells = raw.x[observed, node], weights[observed]
            thresholds[node] = Marginal.of_levels(*cells, counts[node]).low[1:].numpy()
    return thresholds


def frequency_scores(raw, weights, families, values):
    """Give normal scores to repeated values of numbers, by their frequencies.

    A value of cumulative share between a and b is the interval from the normal quantile
    of a to that of b.

    `raw` (Incomplete), `weights` (n,), `families` (str (n_nodes,)).  `values` (dict of
    int to ndarray): increasing values of columns.  Returns dict of int to tuple of
    ndarray: for each column in the family ``"rounded"``, the scores of the values and
    the edges around them.
    """
    tables = {}
    for node in np.flatnonzero(families == "rounded").tolist():
        observed = raw.observed[:, node].numpy()
        place = np.searchsorted(values[node], raw.x[observed, node].numpy())
        mass = np.bincount(place, weights[observed].numpy(), len(values[node]))
        # an interval without probability has no mean, and rows may have weight 0
        share = np.maximum(mass, 0.5)
        share = share / share.sum()
        inner = ndtri(share.cumsum()[:-1])
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        # below, scores are means of a standard normal variable in each interval
        heights = np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)
        scores = -np.diff(heights) / share
        tables[node] = scores, np.concatenate([[-FAR], inner, [FAR]])
    return tables


def score_tables(values, places, tables, units):
    """Pad scores and edges of the values of columns, as `CellScores.tables`.

    Columns without scores by frequencies have standardised values.
    """
    widest, pairs = max(map(len, values.values())), []
    for j in places:
        if j in tables:
            scores, edges = tables[j]
        else:
            scores = (values[j] - units.location[j]) / units.scale[j]
            inner = (scores[1:] + scores[:-1]) / 2
            edges = np.concatenate([[-FAR], inner, [FAR]])
        more = widest - len(scores)
        pairs.append([np.pad(part, (0, more), mode="edge") for part in (scores, edges)])
    return tuple(torch.tensor(np.array(part)) for part in zip(*pairs, strict=True))


def families_of_levels(thresholds, families, n_categories):
    """Make the families of the columns of categories, as `Families.levels`.

    `thresholds` are those of ordinal columns, a dict by column of the model.
    """
    of_levels = []
    if thresholds:
        tables = [torch.tensor(part) for part in thresholds.values()]
        of_levels.append(Ordinal.of(list(thresholds), tables))
    nodes = [j for j, name in enumerate(families) if name == NOMINAL]
    if nodes:
        sizes = n_categories[nodes].tolist()
        of_levels.append(Nominal.of(nodes, sizes, len(families)))
    return tuple(of_levels)


def marginals_of_all(pieces, numbers):
    """Insert linear marginals of columns of categories among those of numbers.

    `pieces` (PiecewiseLinear or None), `numbers` (bool (n_nodes,)).
    """
    if pieces is None:
        return None
    places = torch.from_numpy(np.flatnonzero(numbers))
    pairs = zip(linear(len(numbers)), pieces, strict=True)
    return PiecewiseLinear(
        *(wide.index_copy(0, places, narrow) for wide, narrow in pairs)
    )


def numbers_with_rows(nodes, weights, numbers):
    """Select columns of numbers, and the rows that have any; also their weights."""
    table = nodes[:, numbers]
    has_numbers = ~np.isnan(table).all(1)
    return table[has_numbers], weights[torch.from_numpy(has_numbers)]


# ----------------------------------------
# Preprocessing of models of scores: choice of columns, and maps of cells to scores.


UNIT = "continuous-bernoulli"
FAMILIES = ["auto", "normal", "student", "bernoulli", "rounded", UNIT]
SMOOTH = ["normal", "student"]  # families of continuous cells without ends
_STRONGEST = 10.0  # maximum strength of the prior of the normal, in rows per column
_MOST_LATENTS = 20  # maximum number of latents with "auto"
_LEAST_NOISE = 2e-3  # minimum initial variance of a score given the latents
_STOPPING = {"max_iter": 200, "tol": 5e-3}  # of EM, which fits the normal


def auto_rank(d):
    """Choose the number of latents of d columns."""
    return max(1, min(d - 1, _MOST_LATENTS))


def linear_start(normal, rank):
    """Make the factor analysis at which training starts from a normal distribution."""
    return fit_covariance(*normal, rank, floor=_LEAST_NOISE)


def requested_families(likelihood, width):
    """List the families that a user asks for, one for each of the columns of X."""
    if not isinstance(likelihood, tuple | list | np.ndarray):
        likelihood = [likelihood] * width
    if len(likelihood) != width:
        raise ValueError(
            f"likelihood must be a string or {width} strings, one a column of X, got "
            f"{len(likelihood)}."
        )
    for family in likelihood:
        check_choice(family, "likelihood", FAMILIES)
    return np.array(likelihood, dtype=object)


class ColumnScores(NamedTuple):
    """How the columns of a model become scores, and the families of these.

    Scores are standardised columns, after a nonlinear map if that improves the
    prediction of held-out cells.  Columns with repeated values are rounded.
    """

    location: np.ndarray  # (n_nodes,); 0 and scale 1 for categories: codes stay whole
    scale: np.ndarray  # (n_nodes,)
    n_categories: np.ndarray  # (n_nodes,): 0 for numbers
    families: list  # of str, by column of the model
    values: dict  # increasing values of columns that are rounded or have levels
    thresholds: dict  # of ordinal columns
    tables: dict  # of `frequency_scores`
    marginals: tuple | None  # arrays of `PiecewiseLinear`
    cache: dict
    # arrays of `Tails`, by which draws of an autoencoder keep the signs of columns
    tails: tuple | None = None

    @runtime.filled_once
    def maps(self):
        """Return the maps from cells to scores and back, made on first use."""
        if "maps" not in self.cache:
            self.cache["maps"] = self._make_maps()
        return self.cache["maps"]

    def _make_maps(self):
        places = torch.tensor(sorted(self.values), dtype=torch.long)
        widest = max((len(v) for v in self.values.values()), default=2)
        padded = [
            # the last value again, so that padding adds none
            np.pad(self.values[j], (0, widest - len(self.values[j])), mode="edge")
            for j in places.tolist()
        ]
        values = np.array(padded).reshape(len(places), widest)
        tables = None
        if self.tables:
            units = Units(self.location, self.scale)
            tables = score_tables(self.values, places.tolist(), self.tables, units)
        return CellScores(
            torch.tensor(self.location),
            torch.tensor(self.scale),
            self.marginals and PiecewiseLinear(*map(torch.tensor, self.marginals)),
            places,
            torch.tensor(values, dtype=torch.float64),
            tables,
        )

    @runtime.filled_once
    def distributions(self):
        """Return the description of columns that are not normal, made on first use."""
        if "distributions" not in self.cache:
            self.cache["distributions"] = self._make_distributions()
        return self.cache["distributions"]

    def _make_distributions(self):
        maps = self.maps()
        values, edges = maps.values_and_edges()
        rounded, pairs = self._places("rounded"), self._places("bernoulli")
        among = [torch.isin(maps.rounded, places) for places in (rounded, pairs)]
        unit = self._places(UNIT)
        ends = torch.tensor([0.0, 1.0]).double() - maps.location[unit, None]
        return Families(
            self._places("student"),
            pairs,
            rounded,
            values[among[1]][:, :2],
            values[among[0]],
            edges[among[0]],
            unit,
            ends / maps.scale[unit, None],
            families_of_levels(self.thresholds, self.families, self.n_categories),
        )

    def _places(self, family):
        places = [j for j, name in enumerate(self.families) if name == family]
        return torch.tensor(places, dtype=torch.long)

    def scores_of(self, nodes):
        """Map cells of the model, an array with NaN, to scores."""
        return self.maps().scores(Incomplete.from_array(nodes))[0]

    def encoder_model(self, auto, n_scored):
        """Return an autoencoder of the scores, and these, as a value."""
        free = ~np.isin(np.arange(len(self.scale)), list(self.values))
        free &= np.array(self.families) != UNIT  # not observed values, nor in [0, 1]
        maps = self.maps()
        if self.tails is not None:
            maps = maps._replace(
                with_signs=Tails(*map(torch.from_numpy, self.tails)).put
            )
        return EncoderModel(auto, maps, free, n_scored)

    def with_tails(self, schema, data, weights, normal):
        """Fit the tails of columns of one sign whose cells are continuous.

        `data` (Incomplete): scores; `normal`: fitted to those of columns of numbers.
        """
        places, smooth = schema.model_columns, np.isin(self.families, SMOOTH)
        signs = schema.values.signs(schema.ends)[places] * smooth
        if not signs.any():
            return self
        least = schema.values.least_sizes()[places] / self.scale
        numbers = np.flatnonzero(self.n_categories == 0)
        ends = (signs, -self.location / self.scale, least)
        ends = Ends(*(torch.from_numpy(end[numbers]) for end in ends))
        numbers, marginals = torch.from_numpy(numbers), self.maps().marginals
        if marginals is not None:
            marginals = PiecewiseLinear(*(part[numbers] for part in marginals))
        lines = copula.Copula(normal, marginals)
        scores = Incomplete(data.x[:, numbers], data.observed[:, numbers])
        cells = scores.x if marginals is None else marginals.inverse(scores.x)
        moments = partial(left_out_moments, normal, scores)
        cells = Incomplete(cells, scores.observed)
        tails = fit_tails(ends, cells, weights, lines.predicted, moments)
        tails = tails._replace(columns=numbers[tails.columns])
        return self._replace(tails=tuple(part.numpy() for part in tails))

    def latent_normal(self, data, weights, n_sweeps):
        """Estimate the normal distribution of the latent variables of scores."""
        # Gibbs sampling of all rows of a long table would take too long
        rows, weights = some_rows(weights)
        part = data.take(rows), weights, self.distributions()
        return vae.fit_latents(*part, SHARE, n_sweeps)


class NormalFit(NamedTuple):
    """A normal distribution fitted to scores, at which a training starts.

    With categories it is that of the latent variables, see `skvnce.autoencoder.vae`.
    """

    columns: ColumnScores
    data: Incomplete  # scores
    weights: torch.Tensor  # (n,)
    normal: Normal
    shrinkage: float
    n_rounds: int  # of EM and of Gibbs sampling

    def report(self):
        """List the public attributes of estimators."""
        columns, nonlinear = self.columns, np.zeros(len(self.columns.scale), dtype=bool)
        if columns.marginals is not None:
            pieces = PiecewiseLinear(*map(torch.from_numpy, columns.marginals))
            nonlinear = nonlinear_columns(pieces).numpy()
        return {
            "location_": columns.location,
            "scale_": columns.scale,
            "nonlinear_columns_": nonlinear,
            "families_": columns.families,
            "shrinkage_": self.shrinkage,
            "n_tuning_iter_": self.n_rounds,
        }

    def without(self, hidden):
        """Fit the normal distribution without some cells."""
        data, weights = self.data, self.weights
        if self.columns.n_categories.any():
            observed = data.observed & ~hidden
            part = Incomplete(data.x.where(observed, 0.0), observed)
            return self.columns.latent_normal(part, weights, SWEEPS_OF_CHECK)
        strength = self.shrinkage * len(self.columns.scale)
        return normal_without(data, hidden, weights, strength, self.normal)


def fit_normal(schema, cells, requested, *, nonlinear):  # NormalFit
    """Choose marginals on held-out cells, and fit a normal distribution to scores.

    `cells` (ModelCells).  `requested` (str (n_nodes,)): families of the columns, or
    ``"auto"``.  `nonlinear`: whether marginals may be nonlinear.
    """
    nodes, weights = cells.nodes, torch.from_numpy(cells.weights)
    raw, numbers = Incomplete.from_array(nodes), ~schema.is_categorical
    location = np.where(numbers, cells.location, 0.0)
    scale, marginals = np.where(numbers, cells.scale, 1.0), None
    if numbers.all():
        chosen = _choose_copula(nodes, weights, Units(location, scale), nonlinear)
        marginals = chosen.marginals
    elif nonlinear and numbers.any():
        units = Units(location[numbers], scale[numbers])
        part = numbers_with_rows(nodes, weights, numbers)
        chosen = _choose_copula(*part, units, nonlinear)
        marginals = marginals_of_all(chosen.marginals, numbers)
    marginals = marginals and tuple(part.numpy() for part in marginals)
    families, values, thresholds, tables = _describe(schema, raw, weights, requested)
    columns = ColumnScores(
        location,
        scale,
        schema.n_categories,
        families,
        values,
        thresholds,
        tables,
        marginals,
        {},
    )
    data, _ = columns.maps().scores(raw)
    if numbers.all():
        fit = em.fit_normal(data, weights, chosen.strength, chosen.start, **_STOPPING)
        columns = columns.with_tails(schema, data, weights, fit.normal)
        shrinkage = chosen.strength / nodes.shape[1]
        rest = fit.normal, shrinkage, rounds_of_tuning()
    else:
        if nonlinear and numbers.any():
            places = torch.from_numpy(np.flatnonzero(numbers))
            of_numbers = Incomplete(data.x[:, places], data.observed[:, places])
            linear = em.fit_normal(
                of_numbers, weights, chosen.strength, chosen.start, **_STOPPING
            ).normal
            columns = columns.with_tails(schema, data, weights, linear)
        normal = columns.latent_normal(data, weights, SWEEPS)
        rest = normal, SHARE, rounds_of_tuning() + SWEEPS
    return NormalFit(columns, data, weights, *rest)


def _describe(schema, raw, weights, requested):
    """Choose the families of columns; also values, thresholds and tables of these."""
    repeated, _ = repeated_values(raw)
    automatic = np.full(len(requested), "normal", dtype=object)
    automatic[repeated.numpy()] = "rounded"
    families = np.where(requested == "auto", automatic, requested)
    of_levels = level_families(schema, requested)
    families[list(of_levels)] = list(of_levels.values())
    thresholds = thresholds_of(schema, raw, weights, of_levels)
    # the codes of levels
    values = {j: np.arange(float(schema.n_categories[j])) for j in of_levels}
    names = [schema.label(place) for place in schema.model_columns]
    signs = schema.values.signs(schema.ends)
    for j in np.flatnonzero((families == "rounded") | (families == "bernoulli")):
        unique = raw.x[raw.observed[:, j], j].unique()
        if families[j] == "bernoulli" and len(unique) != 2:
            raise ValueError(
                f"likelihood='bernoulli' needs columns of two values, and "
                f"{names[j]} has {len(unique)}. Use 'rounded' or 'normal' there."
            )
        values[int(j)] = unique.numpy()
        if families[j] == "rounded" and not of_levels:  # shares of levels end there
            place, unique_values = schema.model_columns[j], values[int(j)]
            unique_values = schema.values.with_beyond(place, unique_values)
            # draws of columns of one sign are not zero
            values[int(j)] = unique_values[(unique_values != 0) | (signs[place] == 0)]
    for j in np.flatnonzero(families == UNIT):
        cells = raw.x[raw.observed[:, j], j]
        if cells.min() < 0 or cells.max() > 1:
            raise ValueError(
                f"likelihood={UNIT!r} needs columns with values between 0 and 1, "
                f"and {names[j]} has {cells.min():g} to {cells.max():g}. "
                "Rescale it, or use 'normal' there."
            )
    tables = {}
    if of_levels:
        tables = frequency_scores(raw, weights, families, values)
    return families.tolist(), values, thresholds, tables


def _choose_copula(nodes, weights, units, nonlinear):
    """Choose the strength of the prior and the marginals of columns of numbers."""
    scaled = units.scaled(nodes)
    rows, hidden = hold_out(nodes, weights, HELD_OUT)
    return copula.choose_copula(
        [Rows(scaled, weights)],
        (scaled.take(rows), hidden[rows], weights[rows]),
        [share * nodes.shape[1] for share in (_STRONGEST, *SHARES)],
        copula.Limits(None, None, {}),
        nonlinear=nonlinear,
        **_STOPPING,
    )


# ----------------------------------------
# What estimators with networks of scores have in common.


class NodeScores:
    """Mixin of estimators with networks of scores of columns in `feature_indices_`.

    The model of `Fitted` has the fields `columns`, `ColumnScores`, and `cache`.
    Estimators have a `_solver`, whose field ``device`` is where networks are trained
    and used, and the methods `_fit_nodes`, `_rebuild`, `_row_model` and `_remedy`.
    """

    _slot = "solver"  # name of the parameter, in messages
    _states = ()  # names of the attributes with the parameters of the networks

    __getstate__, __setstate__ = get_state, set_state

    def _attributes_of(self, schema):
        """List the public attributes that describe the columns of a table."""
        chosen = {"feature_indices_": schema.model_columns}
        return attributes_of(schema) | chosen | {"constants_": schema.constants}

    @reports_fit
    def _fit_table(self, schema, X, seed, weights=None, on_chosen=None, first=None):
        """Fit to a validated table; `weights` (n_samples,) weight EM and training.

        Training draws rows at random, so that a weight of two is equivalent to two
        equal rows only on average.  `on_chosen` gets a `WithoutCells` of the estimator
        when held-out cells have chosen the number of rounds.  Returns `Fitted`.
        """
        reasons = self._handling(schema), X, weights, self._consequence
        cells, schema = read_cells(schema, *reasons)
        values = valid_values(schema, cells.table)
        if schema.values is not None:  # the bounds of the user are no law
            values = values._replace(by_user=schema.values.by_user)
        schema = schema._replace(values=values)
        most = None if isinstance(self.max_iter, str) else self.max_iter
        on_round, finish = report_rounds(self, most, X=X)
        with self._trains(seed, cells.nodes.shape[1]):
            fitted = self._fit_nodes(schema, cells, on_round, on_chosen, first)
        finish()
        return fitted

    @contextmanager
    def _trains(self, seed, n_columns):
        """Set threads and random numbers of a training, and name remedies."""
        remedy = self._remedy(n_columns)
        with runtime.one_thread(), seeded(seed), failures_named(remedy):
            yield

    def _report_of(self, losses, modules, **others):
        """List the public attributes of a training."""
        states = zip(self._states, map(runtime.state_of, modules), strict=True)
        return {"loss_curve_": losses, "n_iter_": len(losses), **dict(states), **others}

    def _loaded(self, modules):
        """Load the parameters of the trained networks, in place."""
        for name, part in zip(self._states, modules, strict=True):
            runtime.load_state(part, getattr(self, name))
        return modules

    @runtime.filled_once
    def _modules(self):
        """Return the networks in double precision, rebuilt on first use."""
        cache = self._fitted.model.cache
        if "modules" not in cache:
            cache["modules"] = self._rebuild()
        return cache["modules"].on(self._device_in_use(self._schema))

    def _with_report(self, report, **replaced):
        """Return the value of the fit after more training; `replaced`: of the model."""
        schema, model, before = self._fitted
        model = model._replace(cache={}, **replaced)
        return Fitted(schema, model, before | report)

    def _device(self, schema):
        """Return the device of training."""
        name, slot = self._solver()["device"], f"{self._slot}.device"
        device = runtime.resolve_device(name, slot)
        if device.type != "cpu" and schema.is_categorical.any():
            if name == "auto":
                return torch.device("cpu")
            raise ValueError(
                f"{slot}={name!r}, but columns of categories are trained on the CPU "
                "only. Pass 'cpu' or 'auto', or encode them."
            )
        return device

    def _device_in_use(self, schema):
        """Return the device of `transform`, `sample` and `score_samples`."""
        if schema.is_categorical.any():
            return torch.device("cpu")
        return runtime.device_in_use(self._solver()["device"])

    def _observed_nodes(self, X):
        """Select the cells of the model in rows that have any."""
        nodes = X[:, self.feature_indices_].astype(np.float64)
        return nodes[~np.isnan(nodes).all(1)]

    def _nodes_of_training(self, X):
        """Select the cells of the model in rows that have any; without rows, raise."""
        nodes = self._observed_nodes(X)
        if not len(nodes):
            raise ValueError(
                "X has no row with an observed value in the columns of the model. Pass "
                "rows with observed values."
            )
        return nodes
