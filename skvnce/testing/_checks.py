"""The checks of the NaN contract, each a function of an unfitted estimator."""

import pickle
import random

import joblib
import numpy as np
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone

from skvnce.testing._requirements import (
    complete_table,
    draws_cells,
    fit,
    imputes,
    incomplete_table,
    mar,
    mcar,
    optional,
    reproducible_calls,
    require,
    require_close,
    require_filled,
    require_same_answers,
    require_sound,
    require_value_error,
)


def check_output_array(estimator):
    """Leave no NaN, keep observed cells (zeros too), do not write to the input."""
    x = incomplete_table(estimator)
    x[0] = 0.0
    before = x.copy()
    fitted = fit(estimator, x)
    assert_array_equal(x, before, err_msg="fit modified its input")
    filled = fitted.transform(x)
    assert_array_equal(x, before, err_msg="transform modified its input")
    require_sound(estimator, filled, before)


def check_output_frame(estimator):
    """Keep the cells, the names and the index of a pandas frame."""
    x = incomplete_table(estimator)
    rows = [f"row {i}" for i in range(len(x))][::-1]
    # names that are not sorted, so that sorting them is noticed
    frame = optional("pandas").DataFrame(x, rows, ["b", "a", "d", "c"])
    before = frame.copy()
    fitted = fit(estimator, frame).set_output(transform="pandas")
    filled = fitted.transform(frame)
    require(frame.equals(before), "fit or transform modified its input frame")
    require_sound(estimator, filled, x)
    names = frame.columns if imputes(estimator) else fitted.get_feature_names_out()
    require(list(filled.columns) == list(names), "transform changed the names")
    require(list(filled.index) == rows, "transform changed the index")
    for drawn in _draw_tables(fitted, frame):
        kind = type(drawn).__name__
        require(isinstance(drawn, type(filled)), f"sample gave {kind}, not a frame")
        require(list(drawn.columns) == list(frame), "sample changed the names")
        require(list(drawn.index) == rows, "sample changed the index")


def check_rows_alone(estimator):
    """Give a row the same result in any table, at any position."""
    x = incomplete_table(estimator)
    x[5] = np.nan
    fitted = fit(estimator, x)
    order = np.random.default_rng(0).permutation(len(x))
    for name, call in reproducible_calls(fitted, x).items():
        if name in ("transform", "score_samples"):
            method, whole = getattr(fitted, name), call()
            assert_array_equal(call(), whole, err_msg=f"{name} differs when repeated")
            require_close(method(x[order]), whole[order], f"{name}: row order matters")
            # single rows, one of them empty, and batches of two sizes
            batches = np.split(x, [1, 2, 3, 4, 5, 6, 30])
            pieces = np.concatenate([method(batch) for batch in batches])
            require_close(pieces, whole, f"{name}: the batch of a row matters")


def check_empty_rows(estimator):
    """Accept rows without any observed cell, at fit and at transform."""
    x = incomplete_table(estimator)
    x[[2, 40]] = np.nan
    require_sound(estimator, fit(estimator, x).transform(x), x)


def check_empty_column_at_fit(estimator):
    """Let a column that is empty at fit determine the width, for any later input."""
    x = incomplete_table(estimator)
    x[:, 1] = np.nan
    switch = "keep_empty_features"
    has_switch = switch in estimator.get_params()
    for params in [{switch: False}, {switch: True}] if has_switch else [{}]:
        fitted = fit(estimator, x, **params)
        filled = fitted.transform(x)
        width = filled.shape[1]
        if imputes(estimator):
            allowed = {3 + params[switch]} if has_switch else {3, 4}
            message = f"transform has width {width} of 4 with {params}"
            require(width in allowed, message)
        require_sound(estimator, filled, x if width == 4 else x[:, [0, 2, 3]])
        later = fitted.transform(complete_table(estimator)).shape[1]
        require(later == width, "the width of transform depends on its input")


def check_columns_at_transform(estimator):
    """Accept a column that is empty or complete, whatever it was at fit."""
    x, complete = incomplete_table(estimator), complete_table(estimator)
    empty, full = x.copy(), x.copy()
    empty[:, 1], full[:, 1] = np.nan, complete[:, 1]
    for fitted in (fit(estimator, x), fit(estimator, complete)):
        for table in (x, complete, empty, full):
            require_sound(estimator, fitted.transform(table), table)


def check_table_infinite(estimator):
    """Reject infinite cells, at fit and at transform."""
    x = incomplete_table(estimator)
    fitted = fit(estimator, x)
    x[0, 0] = np.inf
    require_value_error(clone(estimator).fit, x, "fit on an infinite cell")
    require_value_error(fitted.transform, x, "transform of an infinite cell")


def check_table_huge_scale(estimator):
    """Fill columns in large units with values of their own size."""
    units = np.array([1.0, 1e6, 1e8, 1.0])
    complete, x = (
        complete_table(estimator) * units,
        incomplete_table(estimator) * units,
    )
    filled = fit(estimator, x).transform(x)
    require_sound(estimator, filled, x)
    for column in range(4 if imputes(estimator) else 0):
        cells = np.s_[:, [column]]
        error = _relative_error(filled[cells], complete[cells], x[cells])
        require(error < 1.2, f"column {column}: {error:.2g} x the RMSE of its mean")


def check_table_constant_column(estimator):
    """Accept a constant column, or raise an error that names it."""
    x = incomplete_table(estimator)
    x[:, 1] = np.where(np.isnan(x[:, 1]), np.nan, 3.0)
    frame = optional("pandas").DataFrame(x, columns=["a", "flat", "c", "d"])
    try:
        fitted = fit(estimator, frame)
    except ValueError as error:
        require("flat" in str(error), f"no name of a constant column in {error!r}")
    else:
        require_sound(estimator, fitted.transform(frame), x)


def check_table_duplicated_columns(estimator):
    """Accept two equal columns, hidden in different cells."""
    x = mcar(complete_table(estimator)[:, [0, 0, 1, 2]])
    require_sound(estimator, fit(estimator, x).transform(x), x)


def check_table_small(estimator):
    """Accept fewer rows than columns, and a single column."""
    for n_rows, n_features in ((5, 6), (80, 1)):
        x = incomplete_table(estimator, n_rows, n_features)
        require_sound(estimator, fit(estimator, x).transform(x), x)


def check_table_float32(estimator):
    """Return float32 for float32."""
    x = incomplete_table(estimator).astype(np.float32)
    filled = fit(estimator, x).transform(x)
    require(filled.dtype == np.float32, f"transform made {filled.dtype} of float32")
    require_sound(estimator, filled, x)


def check_table_nullable(estimator):
    """Read a pandas frame with ``pd.NA`` like the array with NaN."""
    x = incomplete_table(estimator)
    frame = optional("pandas").DataFrame(x, columns=list("abcd")).astype("Float64")
    _require_same_as_array(estimator, frame, x)


def check_table_polars(estimator):
    """Read a polars frame with nulls like the array with NaN."""
    x = incomplete_table(estimator)
    frame = optional("polars").DataFrame(x, schema=list("abcd")).fill_nan(None)
    _require_same_as_array(estimator, frame, x)


def _require_same_as_array(estimator, frame, x):
    expected = fit(estimator, x).transform(x)
    filled = fit(estimator, frame).transform(frame)
    require_close(filled, expected, "a frame and its array are filled differently")


def check_support_imputed(estimator):
    """Fill no negative values, on data with much mass near zero."""
    x = mcar(complete_table(estimator) ** 3)
    for name, call in reproducible_calls(fit(estimator, x), x).items():
        if name in ("transform", "sample"):
            require(np.min(call()) >= 0, f"{name} filled in negative values")


def check_support_negative(estimator):
    """Reject a negative cell, also in the presence of NaN."""
    x = incomplete_table(estimator)
    fitted = fit(estimator, x)
    x[0, 0] = -1.0
    text = "Negative values in data"
    require_value_error(clone(estimator).fit, x, "fit on a negative cell", text)
    require_value_error(fitted.transform, x, "transform of a negative cell", text)


def check_score_finite(estimator):
    """Return finite scores for rows with missing values and for empty rows."""
    x = incomplete_table(estimator)
    x[3] = np.nan
    shapes = {"score": (), "score_samples": (len(x),)}
    for name, call in reproducible_calls(fit(estimator, x), x).items():
        if name in shapes:
            scores = np.asarray(call())
            shape = f"{name} has shape {scores.shape}, not {shapes[name]}"
            require(scores.shape == shapes[name], shape)
            require(np.isfinite(scores).all(), f"{name} is not finite")


def check_score_ranks(estimator):
    """Score a fit to the table above a fit to its columns shuffled one by one."""
    x = incomplete_table(estimator, n_rows=240)
    train, held_out = x[:160], x[160:]
    shuffled = np.random.default_rng(0).permuted(train, axis=0)
    method = "score" if hasattr(estimator, "score") else "score_samples"
    sane, broken = (
        np.mean(getattr(fit(estimator, table), method)(held_out))
        for table in (train, shuffled)
    )
    message = f"held-out {method} {sane:.4g}, {broken:.4g} after shuffling columns"
    require(sane - broken > 1e-6 * abs(sane), message)


def check_random_seed(estimator):
    """Return equal results for equal seeds, other draws for other seeds."""
    x = incomplete_table(estimator)
    first, second = fit(estimator, x), fit(estimator, x)
    require_same_answers(first, second, x, "between two fits with one seed")
    if draws_cells(first):
        a, b, c = (first.sample(x, n_draws=2, random_state=seed) for seed in (0, 1, 0))
        assert_array_equal(a, c, err_msg="sample differs with one seed")
        require(not np.array_equal(a, b), "sample gives the same for other seeds")
        require(not np.array_equal(*a), "sample gives the same draw twice")


def check_random_numpy_state(estimator):
    """Do not change the random streams of numpy and Python."""
    _require_untouched(estimator, np.random.get_state, random.getstate)


def check_random_torch_state(estimator):
    """Do not change torch's random stream, default dtype and number of threads."""
    torch = optional("torch")
    _require_untouched(
        estimator,
        lambda: torch.get_rng_state().tolist(),
        torch.get_default_dtype,
        torch.get_num_threads,
    )


def _require_untouched(estimator, *readers):
    def state():
        return [pickle.dumps(read()) for read in readers]

    x = incomplete_table(estimator)
    before = state()
    fitted = fit(estimator, x)
    require(state() == before, "fit changed a global state")
    for name, call in reproducible_calls(fitted, x).items():
        call()
        require(state() == before, f"{name} changed a global state")


def check_state_pickle(estimator):
    """Return the same results after a round trip by pickle."""
    x = incomplete_table(estimator)
    fitted = fit(estimator, x)
    copy = pickle.loads(pickle.dumps(fitted))
    require_same_answers(fitted, copy, x, "after a round trip by pickle")


def check_state_skops(estimator):
    """Require trust from skops only for the classes of the estimators inside."""
    skops_io = optional("skops.io")
    x = incomplete_table(estimator)
    fitted = fit(estimator, x)
    stored = skops_io.dumps(fitted)
    allowed = _names_of_estimators(fitted)
    untrusted = skops_io.get_untrusted_types(data=stored)
    require(
        set(untrusted) <= allowed, f"skops must trust {untrusted}, not just {allowed}"
    )
    copy = skops_io.loads(stored, trusted=untrusted)
    require_same_answers(fitted, copy, x, "after a round trip by skops")


def _names_of_estimators(value):
    """Name the classes of an estimator, and of those and of trees in its attributes."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(_names_of_estimators, value))
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if name == "sklearn.tree._tree.Tree":  # skops asks about it for any forest
        return {name}
    if not isinstance(value, BaseEstimator):
        return set()
    return {name, *_names_of_estimators(list(vars(value).values()))}


def check_state_without_torch(estimator):
    """Store no torch objects in public fitted attributes."""
    for name, value in vars(fit(estimator, incomplete_table(estimator))).items():
        public = name.endswith("_") and not name.startswith("_")
        message = f"the fitted attribute {name} holds a torch object"
        require(not (public and _holds_torch(value)), message)


def _holds_torch(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_torch(part) for part in value)
    return any(c.__module__.split(".")[0] == "torch" for c in type(value).__mro__)


def _draw_tables(fitted, table):
    """Draw two tables, if the estimator draws cells."""
    if not draws_cells(fitted):
        return []
    return fitted.sample(table, n_draws=2, random_state=0)


def check_sample_shape(estimator):
    """Draw a list of complete tables, with observed cells kept."""
    x = incomplete_table(estimator)
    x[3] = np.nan
    draws = fit(estimator, x).sample(x, n_draws=3, random_state=0)
    kind = type(draws).__name__
    require(isinstance(draws, list), f"sample returned {kind}, not a list of tables")
    shape, expected = np.shape(draws), (3, *x.shape)
    require(shape == expected, f"sample has shape {shape}, not {expected}")
    require_filled(draws, x, "sample")


def check_sample_spread(estimator):
    """Draw with mean and standard deviation of a known Gaussian conditional.

    The two columns have mean 10, sd 1 and correlation 0.8. Tolerance: four standard
    errors, of the fit and of the draws, and 0.05 for the model.
    """
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 2))
    x = 10 + np.column_stack([z[:, 0], 0.8 * z[:, 0] + 0.6 * z[:, 1]])
    hidden = rng.random(300) < 0.3
    x[hidden, 1] = np.nan
    fitted = fit(estimator, x)
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
        require(abs(value - exact) < allowed + 0.05, message)


def check_accuracy(estimator):
    """Fill hidden cells better than column means do, under MCAR and MAR."""
    complete = complete_table(estimator, n_rows=200)
    for hide in (mcar, mar):
        x = hide(complete)
        error = _relative_error(fit(estimator, x).transform(x), complete, x)
        message = f"{error:.2g} x the RMSE of column means under {hide.__name__}"
        require(error < 0.9, message)


def _relative_error(filled, complete, x):
    """Divide the RMSE over the hidden cells of x by that of column means."""
    means = np.broadcast_to(np.nanmean(x, axis=0), x.shape)
    errors, of_means = ((table - complete)[np.isnan(x)] for table in (filled, means))
    return np.sqrt(np.sum(errors**2) / np.sum(of_means**2))


def check_parallel_loky(estimator):
    """Return the same in two processes of loky as in one process."""
    _require_parallel(estimator, "loky")


def check_parallel_dask(estimator):
    """Return the same on two workers of a dask cluster as in one process."""
    distributed = optional("distributed")
    # processes do not share torch's stream; no port is opened for a dashboard
    with (
        distributed.LocalCluster(
            processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        _require_parallel(estimator, "dask")


def _require_parallel(estimator, backend):
    x = incomplete_table(estimator)
    expected = _fill_alone(estimator, x)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        tasks = [joblib.delayed(_fill_alone)(estimator, x)] * 2
        for filled in joblib.Parallel()(tasks):
            require_close(filled, expected, f"{backend} and one process differ")


def _fill_alone(estimator, x):
    """Fit and transform on one thread, because rounding depends on their number."""
    from threadpoolctl import threadpool_limits  # scikit-learn depends on it

    with threadpool_limits(1):
        return fit(estimator, x).transform(x)
