"""The NaN contract: checks of estimators for tables with missing values.

scikit-learn's ``check_estimator`` hardly ever puts NaN into a table: an imputer that
imputes nothing passes it. Run the checks below in addition to it. They apply to every
estimator with ``fit`` and ``transform`` on tables with NaN; the checks of ``score``,
``score_samples(X)`` and ``sample(X, n_draws=, random_state=)`` run if the estimator has
these methods. ``sample`` returns a list of tables in the container of ``transform``.
Data are non-negative if the estimator's tag ``input_tags.positive_only`` is set. For
transformers with their own output columns (those with scikit-learn's
``ClassNamePrefixFeaturesOutMixin``) the checks require finite values, for imputers
filled cells.
"""

import inspect
import pickle
import random
import warnings
from functools import partial
from importlib import import_module
from unittest import SkipTest

import joblib
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, clone
from sklearn.exceptions import SkipTestWarning
from sklearn.utils import get_tags

from skvnce._warnings import warn_user

__all__ = ["check_nan_contract", "nan_checks"]


def nan_checks(estimator):
    """List the checks of the NaN contract that apply to an estimator.

    Parameters
    ----------
    estimator : estimator instance
        Unfitted, with ``fit`` and ``transform``. Each check works on clones of it.

    Yields
    ------
    name : str
        Name of the check.
    check : callable
        Runs the check when called without arguments. It raises ``AssertionError``
        if the estimator fails, ``unittest.SkipTest`` if a package is missing.

    Notes
    -----
    The checks named ``parallel_*`` start worker processes: a script that runs them
    needs the guard ``if __name__ == "__main__":``. Warnings of category
    ``UserWarning``, such as those of convergence, are ignored inside the checks.
    """
    applies = {
        "support": _is_positive(estimator),
        "score": hasattr(estimator, "score") or hasattr(estimator, "score_samples"),
        "sample": _draws_cells(estimator),
        "accuracy": _imputes(estimator),
    }
    for function, check in list(globals().items()):
        name = function.removeprefix("_check_")
        if name != function and applies.get(name.split("_")[0], True):
            yield name, partial(_run, name, check, estimator)


def check_nan_contract(estimator):
    """Run every check of the NaN contract on an estimator.

    Parameters
    ----------
    estimator : estimator instance
        Unfitted, with ``fit`` and ``transform``.

    Raises
    ------
    AssertionError
        If any check fails; the message has one paragraph for each failure.

    Warns
    -----
    SkipTestWarning
        For each check that needs a package which is not installed.
    """
    failures = []
    for name, check in nan_checks(estimator):
        try:
            check()
        except SkipTest as skipped:
            warn_user(f"{name}: {skipped}", SkipTestWarning)
        except AssertionError as error:
            failures.append(str(error))
    _require(not failures, "\n\n".join(failures))


def _run(name, check, estimator):
    """Run one check on a clone; errors name the estimator and the check."""
    unfitted = clone(estimator)
    if "random_state" in unfitted.get_params():
        unfitted.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            check(unfitted)
        except SkipTest:
            raise
        except Exception as error:
            failed = isinstance(error, AssertionError)
            reason = str(error) if failed else f"raised {error!r}"
            message = f"{type(estimator).__name__}, check {name}: {reason}"
            raise AssertionError(message) from error


def _optional(package):
    try:
        return import_module(package)
    except ImportError as error:
        raise SkipTest(f"this check needs the package {package}") from error


def _is_positive(estimator):
    return get_tags(estimator).input_tags.positive_only


def _imputes(estimator):
    """Return whether the columns of ``transform`` are those of its input."""
    return not isinstance(estimator, ClassNamePrefixFeaturesOutMixin)


def _complete_table(estimator, n_rows=80, n_features=4):
    """Draw one common factor with loadings of both signs, its exp if non-negative."""
    rng = np.random.default_rng(0)
    x = np.resize([0.9, 0.9, -0.9], n_features) * rng.standard_normal((n_rows, 1))
    x += np.sqrt(1 - 0.9**2) * rng.standard_normal((n_rows, n_features))
    return np.exp(0.5 * x) if _is_positive(estimator) else x + 2


def _mcar(x):
    hidden = np.random.default_rng(1).random(x.shape) < 0.25
    hidden[0] = False
    return np.where(hidden, np.nan, x)


def _mar(x):
    """Hide cells of other columns more often if the first, never hidden, is large."""
    chance = 0.7 / (1 + np.exp(-2 * (x[:, :1] - x[:, 0].mean()) / x[:, 0].std()))
    hidden = np.random.default_rng(1).random(x.shape) < chance
    hidden[:, 0] = False
    return np.where(hidden, np.nan, x)


def _table(estimator, n_rows=80, n_features=4):
    return _mcar(_complete_table(estimator, n_rows, n_features))


def _fit(estimator, x, **params):
    return clone(estimator).set_params(**params).fit(x)


def _calls(fitted, x):
    """Return the calls whose results must be reproducible, by method."""
    calls = {}
    for name in ("transform", "score", "score_samples"):
        if hasattr(fitted, name):
            calls[name] = partial(getattr(fitted, name), x)
    if _draws_cells(fitted):
        calls["sample"] = partial(fitted.sample, x, n_draws=2, random_state=0)
    return calls


def _require(condition, message):
    if not condition:
        raise AssertionError(message)


def _require_close(actual, expected, message):
    assert_allclose(actual, expected, rtol=1e-6, atol=1e-8, err_msg=message)


def _require_same_answers(first, second, x, when):
    calls = _calls(second, x)
    for name, call in _calls(first, x).items():
        assert_array_equal(calls[name](), call(), err_msg=f"{name} differs {when}")


def _require_filled(filled, x, method="transform"):
    """Require finite cells, and exact values of x wherever x is observed."""
    filled = np.asarray(filled)
    _require(filled.shape[-2:] == x.shape, f"{method} has shape {filled.shape}")
    x = np.broadcast_to(x, filled.shape)
    seen = ~np.isnan(x)
    _require(np.isfinite(filled).all(), f"{method} left cells that are not finite")
    message = f"{method} changed observed cells"
    assert_array_equal(filled[seen], x[seen], err_msg=message)


def _require_sound(estimator, cells, x):
    """Require filled cells of an imputer, finite rows of another transformer."""
    if _imputes(estimator):
        _require_filled(cells, x)
    else:
        cells = np.asarray(cells)
        _require(cells.shape[:-1] == x.shape[:1], f"transform has shape {cells.shape}")
        _require(np.isfinite(cells).all(), "transform gave cells that are not finite")


def _require_value_error(call, x, culprit, text=""):
    try:
        call(x)
    except ValueError as error:
        _require(text in str(error), f"{culprit}: {text!r} is not in {error!r}")
    else:
        raise AssertionError(f"{culprit} raised no ValueError")


def _check_output_array(estimator):
    """Leave no NaN, keep observed cells (zeros too), do not write to the input."""
    x = _table(estimator)
    x[0] = 0.0
    kept = x.copy()
    fitted = _fit(estimator, x)
    assert_array_equal(x, kept, err_msg="fit modified its input")
    filled = fitted.transform(x)
    assert_array_equal(x, kept, err_msg="transform modified its input")
    _require_sound(estimator, filled, kept)


def _check_output_frame(estimator):
    """Keep the cells, the names and the index of a pandas frame."""
    x = _table(estimator)
    rows = [f"row {i}" for i in range(len(x))][::-1]
    frame = _optional("pandas").DataFrame(x, rows, ["b", "a", "d", "c"])
    kept = frame.copy()
    fitted = _fit(estimator, frame).set_output(transform="pandas")
    filled = fitted.transform(frame)
    _require(frame.equals(kept), "fit or transform modified its input frame")
    _require_sound(estimator, filled, x)
    names = frame.columns if _imputes(estimator) else fitted.get_feature_names_out()
    _require(list(filled.columns) == list(names), "transform changed the names")
    _require(list(filled.index) == rows, "transform changed the index")
    for drawn in _drawn(fitted, frame):
        kind = type(drawn).__name__
        _require(isinstance(drawn, type(filled)), f"sample gave {kind}, not a frame")
        _require(list(drawn.columns) == list(frame), "sample changed the names")
        _require(list(drawn.index) == rows, "sample changed the index")


def _check_rows_alone(estimator):
    """Give a row the same result in any table, at any position."""
    x = _table(estimator)
    x[5] = np.nan
    fitted = _fit(estimator, x)
    order = np.random.default_rng(0).permutation(len(x))
    for name, call in _calls(fitted, x).items():
        if name in ("transform", "score_samples"):
            method, whole = getattr(fitted, name), call()
            assert_array_equal(call(), whole, err_msg=f"{name} differs when repeated")
            _require_close(method(x[order]), whole[order], f"{name}: row order matters")
            batches = np.split(x, [1, 2, 3, 4, 5, 6, 30])
            pieces = np.concatenate([method(batch) for batch in batches])
            _require_close(pieces, whole, f"{name}: the batch of a row matters")


def _check_empty_rows(estimator):
    """Accept rows without any observed cell, at fit and at transform."""
    x = _table(estimator)
    x[[2, 40]] = np.nan
    _require_sound(estimator, _fit(estimator, x).transform(x), x)


def _check_empty_column_at_fit(estimator):
    """Let a column that is empty at fit determine the width, for any later input."""
    x = _table(estimator)
    x[:, 1] = np.nan
    switch = "keep_empty_features"
    known = switch in estimator.get_params()
    for params in [{switch: False}, {switch: True}] if known else [{}]:
        fitted = _fit(estimator, x, **params)
        filled = fitted.transform(x)
        width = filled.shape[1]
        if _imputes(estimator):
            allowed = {3 + params[switch]} if known else {3, 4}
            message = f"transform has width {width} of 4 with {params}"
            _require(width in allowed, message)
        _require_sound(estimator, filled, x if width == 4 else x[:, [0, 2, 3]])
        later = fitted.transform(_complete_table(estimator)).shape[1]
        _require(later == width, "the width of transform depends on its input")


def _check_columns_at_transform(estimator):
    """Accept a column that is empty or complete, whatever it was at fit."""
    x, complete = _table(estimator), _complete_table(estimator)
    empty, full = x.copy(), x.copy()
    empty[:, 1], full[:, 1] = np.nan, complete[:, 1]
    for fitted in (_fit(estimator, x), _fit(estimator, complete)):
        for table in (x, complete, empty, full):
            _require_sound(estimator, fitted.transform(table), table)


def _check_table_infinite(estimator):
    """Reject infinite cells, at fit and at transform."""
    x = _table(estimator)
    fitted = _fit(estimator, x)
    x[0, 0] = np.inf
    _require_value_error(clone(estimator).fit, x, "fit on an infinite cell")
    _require_value_error(fitted.transform, x, "transform of an infinite cell")


def _check_table_huge_scale(estimator):
    """Fill columns in large units with values of their own size."""
    units = np.array([1.0, 1e6, 1e8, 1.0])
    complete, x = _complete_table(estimator) * units, _table(estimator) * units
    filled = _fit(estimator, x).transform(x)
    _require_sound(estimator, filled, x)
    for column in range(4 if _imputes(estimator) else 0):
        cells = np.s_[:, [column]]
        error = _relative_error(filled[cells], complete[cells], x[cells])
        _require(error < 1.2, f"column {column}: {error:.2g} x the RMSE of its mean")


def _check_table_constant_column(estimator):
    """Accept a constant column, or raise an error that names it."""
    x = _table(estimator)
    x[:, 1] = np.where(np.isnan(x[:, 1]), np.nan, 3.0)
    frame = _optional("pandas").DataFrame(x, columns=["a", "flat", "c", "d"])
    try:
        fitted = _fit(estimator, frame)
    except ValueError as error:
        _require("flat" in str(error), f"no name of a constant column in {error!r}")
    else:
        _require_sound(estimator, fitted.transform(frame), x)


def _check_table_duplicated_columns(estimator):
    """Accept two equal columns, hidden in different cells."""
    x = _mcar(_complete_table(estimator)[:, [0, 0, 1, 2]])
    _require_sound(estimator, _fit(estimator, x).transform(x), x)


def _check_table_small(estimator):
    """Accept fewer rows than columns, and a single column."""
    for n_rows, n_features in ((5, 6), (80, 1)):
        x = _table(estimator, n_rows, n_features)
        _require_sound(estimator, _fit(estimator, x).transform(x), x)


def _check_table_float32(estimator):
    """Return float32 for float32."""
    x = _table(estimator).astype(np.float32)
    filled = _fit(estimator, x).transform(x)
    _require(filled.dtype == np.float32, f"transform made {filled.dtype} of float32")
    _require_sound(estimator, filled, x)


def _check_table_nullable(estimator):
    """Read a pandas frame with ``pd.NA`` like the array with NaN."""
    x = _table(estimator)
    frame = _optional("pandas").DataFrame(x, columns=list("abcd")).astype("Float64")
    _require_same_as_array(estimator, frame, x)


def _check_table_polars(estimator):
    """Read a polars frame with nulls like the array with NaN."""
    x = _table(estimator)
    frame = _optional("polars").DataFrame(x, schema=list("abcd")).fill_nan(None)
    _require_same_as_array(estimator, frame, x)


def _require_same_as_array(estimator, frame, x):
    expected = _fit(estimator, x).transform(x)
    filled = _fit(estimator, frame).transform(frame)
    _require_close(filled, expected, "a frame and its array are filled differently")


def _check_support_imputed(estimator):
    """Fill no negative values, on data with much mass near zero."""
    x = _mcar(_complete_table(estimator) ** 3)
    for name, call in _calls(_fit(estimator, x), x).items():
        if name in ("transform", "sample"):
            _require(np.min(call()) >= 0, f"{name} filled in negative values")


def _check_support_negative(estimator):
    """Reject a negative cell, also in the presence of NaN."""
    x = _table(estimator)
    fitted = _fit(estimator, x)
    x[0, 0] = -1.0
    text = "Negative values in data"
    _require_value_error(clone(estimator).fit, x, "fit on a negative cell", text)
    _require_value_error(fitted.transform, x, "transform of a negative cell", text)


def _check_score_finite(estimator):
    """Return finite scores for rows with missing values and for empty rows."""
    x = _table(estimator)
    x[3] = np.nan
    shapes = {"score": (), "score_samples": (len(x),)}
    for name, call in _calls(_fit(estimator, x), x).items():
        if name in shapes:
            scores = np.asarray(call())
            shape = f"{name} has shape {scores.shape}, not {shapes[name]}"
            _require(scores.shape == shapes[name], shape)
            _require(np.isfinite(scores).all(), f"{name} is not finite")


def _check_score_ranks(estimator):
    """Score a fit to the table above a fit to its columns shuffled one by one."""
    x = _table(estimator, n_rows=240)
    train, held_out = x[:160], x[160:]
    shuffled = np.random.default_rng(0).permuted(train, axis=0)
    method = "score" if hasattr(estimator, "score") else "score_samples"
    sane, broken = (
        np.mean(getattr(_fit(estimator, table), method)(held_out))
        for table in (train, shuffled)
    )
    message = f"held-out {method} {sane:.4g}, {broken:.4g} after shuffling columns"
    _require(sane - broken > 1e-6 * abs(sane), message)


def _check_random_seed(estimator):
    """Return equal results for equal seeds, other draws for other seeds."""
    x = _table(estimator)
    first, second = _fit(estimator, x), _fit(estimator, x)
    _require_same_answers(first, second, x, "between two fits with one seed")
    if _draws_cells(first):
        a, b, c = (first.sample(x, n_draws=2, random_state=seed) for seed in (0, 1, 0))
        assert_array_equal(a, c, err_msg="sample differs with one seed")
        _require(not np.array_equal(a, b), "sample gives the same for other seeds")
        _require(not np.array_equal(*a), "sample gives the same draw twice")


def _check_random_numpy_state(estimator):
    """Do not change the random streams of numpy and Python."""
    _require_untouched(estimator, np.random.get_state, random.getstate)


def _check_random_torch_state(estimator):
    """Do not change torch's random stream, default dtype and number of threads."""
    torch = _optional("torch")
    _require_untouched(
        estimator,
        lambda: torch.get_rng_state().tolist(),
        torch.get_default_dtype,
        torch.get_num_threads,
    )


def _require_untouched(estimator, *readers):
    def state():
        return [pickle.dumps(read()) for read in readers]

    x = _table(estimator)
    before = state()
    fitted = _fit(estimator, x)
    _require(state() == before, "fit changed a global state")
    for name, call in _calls(fitted, x).items():
        call()
        _require(state() == before, f"{name} changed a global state")


def _check_state_pickle(estimator):
    """Return the same results after a round trip by pickle."""
    x = _table(estimator)
    fitted = _fit(estimator, x)
    copy = pickle.loads(pickle.dumps(fitted))
    _require_same_answers(fitted, copy, x, "after a round trip by pickle")


def _check_state_skops(estimator):
    """Require trust from skops only for the classes of the estimators inside."""
    skops_io = _optional("skops.io")
    x = _table(estimator)
    fitted = _fit(estimator, x)
    stored = skops_io.dumps(fitted)
    own = _names_of_estimators(fitted)
    untrusted = skops_io.get_untrusted_types(data=stored)
    _require(set(untrusted) <= own, f"skops must trust {untrusted}, not just {own}")
    copy = skops_io.loads(stored, trusted=untrusted)
    _require_same_answers(fitted, copy, x, "after a round trip by skops")


def _names_of_estimators(value):
    """Name the classes of an estimator and of those in its attributes."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(_names_of_estimators, value))
    if not isinstance(value, BaseEstimator):
        return set()
    own = f"{type(value).__module__}.{type(value).__qualname__}"
    return {own, *_names_of_estimators(list(vars(value).values()))}


def _check_state_without_torch(estimator):
    """Store no torch objects in public fitted attributes."""
    for name, value in vars(_fit(estimator, _table(estimator))).items():
        public = name.endswith("_") and not name.startswith("_")
        message = f"the fitted attribute {name} holds a torch object"
        _require(not (public and _holds_torch(value)), message)


def _holds_torch(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_torch(part) for part in value)
    return any(c.__module__.split(".")[0] == "torch" for c in type(value).__mro__)


def _draws_cells(estimator):
    """Return whether `sample` draws the missing cells of given rows, not new rows."""
    method = getattr(estimator, "sample", None)
    return method is not None and "n_draws" in inspect.signature(method).parameters


def _drawn(fitted, table):
    """Draw two tables, if the estimator draws cells."""
    if not _draws_cells(fitted):
        return []
    return fitted.sample(table, n_draws=2, random_state=0)


def _check_sample_shape(estimator):
    """Draw a list of complete tables, with observed cells kept."""
    x = _table(estimator)
    x[3] = np.nan
    draws = _fit(estimator, x).sample(x, n_draws=3, random_state=0)
    kind = type(draws).__name__
    _require(isinstance(draws, list), f"sample returned {kind}, not a list of tables")
    shape, expected = np.shape(draws), (3, *x.shape)
    _require(shape == expected, f"sample has shape {shape}, not {expected}")
    _require_filled(draws, x, "sample")


def _check_sample_spread(estimator):
    """Draw with mean and standard deviation of a known Gaussian conditional.

    The two columns have mean 10, sd 1 and correlation 0.8. Tolerance: four standard
    errors, of the fit and of the draws, and 0.05 for the model.
    """
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 2))
    x = 10 + np.column_stack([z[:, 0], 0.8 * z[:, 0] + 0.6 * z[:, 1]])
    hidden = rng.random(300) < 0.3
    x[hidden, 1] = np.nan
    fitted = _fit(estimator, x)
    draws = np.asarray(fitted.sample(x[hidden], n_draws=40, random_state=0))[..., 1]
    residual = draws - (10 + 0.8 * (x[hidden, 0] - 10))
    error = 0.6 * np.sqrt(1 / np.sum(~hidden) + 1 / residual.size)
    of_one_row = np.sqrt(residual.var(axis=0, ddof=1).mean())
    for what, value, exact, allowed in (
        ("mean residual", residual.mean(), 0.0, 4 * error),
        ("sd of all residuals", residual.std(), 0.6, 4 * error / np.sqrt(2)),
        ("sd of the draws of a row", of_one_row, 0.6, 4 * error / np.sqrt(2)),
    ):
        message = f"sample: {what} {value:.3f}, exact {exact} +- {allowed + 0.05:.3f}"
        _require(abs(value - exact) < allowed + 0.05, message)


def _check_accuracy(estimator):
    """Fill hidden cells better than column means do, under MCAR and MAR."""
    complete = _complete_table(estimator, n_rows=200)
    for hide in (_mcar, _mar):
        x = hide(complete)
        error = _relative_error(_fit(estimator, x).transform(x), complete, x)
        message = f"{error:.2g} x the RMSE of column means under {hide.__name__}"
        _require(error < 0.9, message)


def _relative_error(filled, complete, x):
    """Divide the RMSE over the hidden cells of x by that of column means."""
    means = np.broadcast_to(np.nanmean(x, axis=0), x.shape)
    errors, of_means = ((table - complete)[np.isnan(x)] for table in (filled, means))
    return np.sqrt(np.sum(errors**2) / np.sum(of_means**2))


def _check_parallel_loky(estimator):
    """Return the same in two processes of loky as in one process."""
    _require_parallel(estimator, "loky")


def _check_parallel_dask(estimator):
    """Return the same on two workers of a dask cluster as in one process."""
    distributed = _optional("distributed")
    with (
        distributed.LocalCluster(
            processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        _require_parallel(estimator, "dask")


def _require_parallel(estimator, backend):
    x = _table(estimator)
    expected = _fill_alone(estimator, x)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        tasks = [joblib.delayed(_fill_alone)(estimator, x)] * 2
        for filled in joblib.Parallel()(tasks):
            _require_close(filled, expected, f"{backend} and one process differ")


def _fill_alone(estimator, x):
    """Fit and transform on one thread, because rounding depends on their number."""
    from threadpoolctl import threadpool_limits  # scikit-learn depends on it

    with threadpool_limits(1):
        return _fit(estimator, x).transform(x)
