"""The contract suite itself: a sound toy passes every check, a broken one fails it."""

import os
import sys
from importlib import import_module
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import base
from sklearn.exceptions import SkipTestWarning
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.utils._set_output import _get_container_adapter
from sklearn.utils.validation import check_non_negative, validate_data

from skvnce.testing import _contract, check_nan_contract, nan_checks


class Toy(base.OneToOneFeatureMixin, base.TransformerMixin, base.BaseEstimator):
    """Gaussian with pairwise moments; fills with its exact conditional means."""

    _link = _unlink = staticmethod(np.array)

    def __init__(self, keep_empty_features=False, random_state=None):
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validated(self, X, reset=False, finite="allow-nan"):
        dtypes = [np.float64, np.float32]
        return validate_data(
            self, X, reset=reset, dtype=dtypes, ensure_all_finite=finite
        )

    def fit(self, X, y=None):
        x = self._link(self._validated(X, reset=True).astype(float))
        seen = ~np.isnan(x)
        count = np.maximum(seen.sum(axis=0), 1)
        self.kept_ = seen.any(axis=0) | self.keep_empty_features
        self.mean_ = np.nansum(x, axis=0) / count
        self.scale_ = np.sqrt(np.nansum((x - self.mean_) ** 2, axis=0) / count)
        self.scale_[self.scale_ == 0] = 1.0
        z = np.where(seen, (x - self.mean_) / self.scale_, 0.0)
        pairs = np.maximum(seen.T.astype(float) @ seen, 1)
        values, vectors = np.linalg.eigh(z.T @ z / pairs)
        self.correlation_ = (vectors * np.maximum(values, 1e-3)) @ vectors.T
        return self

    def _standardised(self, x):
        return (self._link(x.astype(float)) - self.mean_) / self.scale_

    def _filled(self, x, fill):
        """Give x with ``fill(mean, covariance)`` of each row in its missing cells."""
        z = self._standardised(x)
        for row in z:
            m = np.isnan(row)
            c = self.correlation_
            gain = np.linalg.solve(c[~m][:, ~m], c[~m][:, m]).T
            row[m] = fill(gain @ row[~m], c[m][:, m] - gain @ c[~m][:, m])
        values = self._unlink(z * self.scale_ + self.mean_)
        return np.where(np.isnan(x), values.astype(x.dtype), x)[:, self.kept_]

    def transform(self, X):
        return self._filled(self._validated(X), lambda mean, covariance: mean)

    def sample(self, X, n_draws=1, random_state=None):
        x = self._validated(X)
        rng = np.random.default_rng(random_state)

        def draw(mean, covariance):
            noise = rng.standard_normal(len(mean))
            return mean + np.linalg.cholesky(covariance) @ noise

        tables = [self._filled(x, draw) for _ in range(n_draws)]
        adapter = _get_container_adapter("transform", self)
        if adapter is None:
            return tables
        names = base.OneToOneFeatureMixin.get_feature_names_out(self)[self.kept_]
        return [adapter.create_container(table, X, names) for table in tables]

    def score_samples(self, X):
        z = self._standardised(self._validated(X))
        return np.array([self._log_density(row, ~np.isnan(row)) for row in z])

    def _log_density(self, z, seen):
        c = self.correlation_[seen][:, seen]
        quadratic = z[seen] @ np.linalg.solve(c, z[seen])
        normaliser = np.linalg.slogdet(2 * np.pi * c)[1]
        return -0.5 * (quadratic + normaliser) - np.log(self.scale_[seen]).sum()

    def score(self, X, y=None):
        return self.score_samples(X).mean()

    def get_feature_names_out(self, input_features=None):
        return super().get_feature_names_out(input_features)[self.kept_]


class PositiveToy(Toy):
    """The toy on the scale of square roots: every fill is a square."""

    _link, _unlink = staticmethod(np.sqrt), staticmethod(np.square)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _validated(self, X, reset=False, finite="allow-nan"):
        x = super()._validated(X, reset, finite)
        if (x < 0).any():
            raise ValueError("Negative values in data passed to PositiveToy")
        return x


class ToyLatents(base.ClassNamePrefixFeaturesOutMixin, Toy):
    """Has one column of its own."""

    _n_features_out = 1

    def get_feature_names_out(self, input_features=None):
        return base.ClassNamePrefixFeaturesOutMixin.get_feature_names_out(self)

    def transform(self, X):
        filled = self._filled(self._validated(X), lambda mean, covariance: mean)
        return -filled[:, :1]


class LatentsWithHoles(ToyLatents):
    def transform(self, X):
        return self._validated(X)[:, :1]


class LatentsOfRowsInPart(ToyLatents):
    def transform(self, X):
        return super().transform(X)[1:]


class ImputesNothing(Toy):
    def transform(self, X):
        return self._validated(X)


class TakesZeroForMissing(Toy):
    def transform(self, X):
        x = self._validated(X)
        return super().transform(np.where(x == 0, np.nan, x))


class WritesToItsInput(Toy):
    def transform(self, X):
        X[:] = super().transform(X)
        return X


class RenamesColumns(Toy):
    def get_feature_names_out(self, input_features=None):
        return [f"x{j}" for j in range(self.n_features_in_)]


class HasNoSetOutput(Toy, auto_wrap_output_keys=None):
    pass


class LosesIndex(HasNoSetOutput):
    def set_output(self, *, transform=None):
        return self

    def transform(self, X):
        return pd.DataFrame(super().transform(X), columns=X.columns)


class FillsByPosition(Toy):
    def transform(self, X):
        place = np.arange(len(X))[:, None]
        return super().transform(X) + np.isnan(X) * place


class FillsFreshNoise(Toy):
    def transform(self, X):
        noise = np.random.default_rng().standard_normal(np.shape(X))
        return super().transform(X) + np.isnan(X) * noise


class ScoresByBatch(Toy):
    def score_samples(self, X):
        scores = super().score_samples(X)
        return scores - scores.mean()


class LeavesEmptyRows(Toy):
    def transform(self, X):
        filled = super().transform(X)
        filled[np.isnan(X).all(axis=1)] = np.nan
        return filled


class DropsByTransform(Toy):
    def transform(self, X):
        return super().transform(X)[:, ~np.isnan(X).all(axis=0)]


class IgnoresSwitch(Toy):
    def fit(self, X, y=None):
        super().fit(X)
        self.kept_ = ~np.isnan(X).all(axis=0)
        return self


class WidthByTransform(Toy):
    def __init__(self, random_state=None):
        super().__init__(random_state=random_state)

    def transform(self, X):
        self.kept_ = ~np.isnan(X).all(axis=0)
        return super().transform(X)


class RefusesCompleteData(Toy):
    def fit(self, X, y=None):
        if not np.isnan(X).any():
            raise ValueError("nothing to impute")
        return super().fit(X)


class AcceptsInfinity(Toy):
    def _validated(self, X, reset=False):
        x = super()._validated(X, reset, finite=False)
        return np.where(np.isinf(x), np.nan, x)


class FillsSmallValues(Toy):
    _unlink = staticmethod(lambda values: np.clip(values, -100, 100))


class HidesConstantColumn(Toy):
    def fit(self, X, y=None):
        super().fit(X)
        if (self.correlation_.diagonal() < 0.5).any():
            raise ValueError("a column is constant")
        return self


class RefusesEqualColumns(Toy):
    def fit(self, X, y=None):
        super().fit(X)
        if np.linalg.eigvalsh(self.correlation_)[0] < 0.01:
            raise np.linalg.LinAlgError("singular matrix")
        return self


class RefusesOneColumn(Toy):
    def fit(self, X, y=None):
        self._validated(np.asarray(X)[:, 1:])
        return super().fit(X)


class RefusesFewRows(Toy):
    def fit(self, X, y=None):
        if len(X) < np.shape(X)[1]:
            raise ValueError("too few rows")
        return super().fit(X)


class ReturnsFloat64(Toy):
    def transform(self, X):
        return super().transform(X).astype(float)


class FillsFramesWithZero(Toy):
    def _validated(self, X, reset=False):
        for method in ("fillna", "fill_null"):
            X = getattr(X, method)(0.0) if hasattr(X, method) else X
        return super()._validated(X, reset)


class FillsOnTheLine(PositiveToy):
    _link = _unlink = staticmethod(np.array)


class LooksPastNaN(PositiveToy):
    def _validated(self, X, reset=False):
        x = Toy._validated(self, X, reset)
        check_non_negative(x, "LooksPastNaN")
        return np.maximum(x, 0)


class ScoresCompleteRows(Toy):
    def score_samples(self, X):
        return super().score_samples(X) + 0 * np.sum(X, axis=1)


class ScoresMarginals(Toy):
    def score_samples(self, X):
        self.correlation_ = np.eye(self.n_features_in_)
        return super().score_samples(X)


class IgnoresSeed(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return super().sample(X, n_draws)


class HasOneSeed(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return super().sample(X, n_draws, 0)


class RepeatsOneDraw(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return super().sample(X, 1, random_state) * n_draws


class FitsAtRandom(Toy):
    def fit(self, X, y=None):
        super().fit(X)
        self.mean_ = self.mean_ + np.random.default_rng().standard_normal()
        return self


class SeedsNumpy(Toy):
    def fit(self, X, y=None):
        np.random.seed(0)
        return super().fit(X)


class DrawsFromNumpy(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        np.random.rand()
        return super().sample(X, n_draws, random_state)


class DrawsFromTorch(Toy):
    def transform(self, X):
        import_module("torch").rand(1)
        return super().transform(X)


class KeepsLambda(Toy):
    def fit(self, X, y=None):
        self.loss_ = lambda x: x
        return super().fit(X)


class ForgetsInPickle(Toy):
    def __getstate__(self):
        return super().__getstate__() | {"mean_": np.zeros(self.n_features_in_)}


class KeepsDistribution(Toy):
    def fit(self, X, y=None):
        self.prior_ = stats.norm()
        return super().fit(X)


class KeepsTensor(Toy):
    def fit(self, X, y=None):
        self.weights_ = {"layer": [import_module("torch").ones(2)]}
        return super().fit(X)


class DrawsAnArray(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return np.array(super().sample(X, n_draws, random_state))


class DrawsArrays(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return list(np.array(super().sample(X, n_draws, random_state)))


class DrawsLast(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return list(np.moveaxis(super().sample(X, n_draws, random_state), 0, -1))


class DrawsObserved(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return [one + 0.01 for one in super().sample(X, n_draws, random_state)]


class DrawsMeans(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        return [self.transform(X)] * n_draws


class DrawsMarginals(Toy):
    def sample(self, X, n_draws=1, random_state=None):
        self.correlation_ = np.eye(self.n_features_in_)
        return super().sample(X, n_draws, random_state)


class FillsProcessNumber(Toy):
    def transform(self, X):
        return super().transform(X) + np.isnan(X) * os.getpid()


BROKEN = [
    ("output_array", ImputesNothing(), "not finite"),
    ("output_array", LatentsWithHoles(), "not finite"),
    ("output_array", LatentsOfRowsInPart(), "has shape"),
    ("output_array", TakesZeroForMissing(), "changed observed cells"),
    ("output_array", WritesToItsInput(), "transform modified its input"),
    ("output_frame", RenamesColumns(), "changed the names"),
    ("output_frame", HasNoSetOutput(), "set_output"),
    ("output_frame", LosesIndex(), "changed the index"),
    ("output_frame", DrawsArrays(), "sample gave ndarray, not a frame"),
    ("rows_alone", FillsByPosition(), "transform: row order matters"),
    ("rows_alone", FillsFreshNoise(), "transform differs when repeated"),
    ("rows_alone", ScoresByBatch(), "score_samples: the batch"),
    ("empty_rows", LeavesEmptyRows(), "not finite"),
    ("empty_column_at_fit", IgnoresSwitch(), "width 3 of 4"),
    ("empty_column_at_fit", WidthByTransform(), "depends on its input"),
    ("columns_at_transform", DropsByTransform(), "has shape"),
    ("columns_at_transform", RefusesCompleteData(), "nothing to impute"),
    ("table_infinite", AcceptsInfinity(), "fit on an infinite cell raised no"),
    ("table_huge_scale", FillsSmallValues(), "column 1"),
    ("table_constant_column", HidesConstantColumn(), "no name of a constant column"),
    ("table_duplicated_columns", RefusesEqualColumns(), "singular matrix"),
    ("table_small", RefusesFewRows(), "too few rows"),
    ("table_small", RefusesOneColumn(), "0 feature"),
    ("table_float32", ReturnsFloat64(), "float64 of float32"),
    ("table_nullable", FillsFramesWithZero(), "filled differently"),
    ("table_polars", FillsFramesWithZero(), "filled differently"),
    ("support_imputed", FillsOnTheLine(), "transform filled in negative values"),
    ("support_negative", LooksPastNaN(), "fit on a negative cell raised no"),
    ("score_finite", ScoresCompleteRows(), "score is not finite"),
    ("score_ranks", ScoresMarginals(), "after shuffling"),
    ("random_seed", IgnoresSeed(), "sample differs"),
    ("random_seed", HasOneSeed(), "same for other seeds"),
    ("random_seed", RepeatsOneDraw(), "same draw twice"),
    ("random_seed", FitsAtRandom(), "transform differs between two fits"),
    ("random_numpy_state", SeedsNumpy(), "fit changed a global state"),
    ("random_numpy_state", DrawsFromNumpy(), "sample changed a global state"),
    ("random_torch_state", DrawsFromTorch(), "transform changed a global state"),
    ("state_pickle", KeepsLambda(), "pickle"),
    ("state_pickle", ForgetsInPickle(), "transform differs after"),
    ("state_skops", KeepsDistribution(), "skops must trust"),
    ("state_without_torch", KeepsTensor(), "weights_ holds a torch object"),
    ("sample_shape", DrawsAnArray(), "sample returned ndarray, not a list"),
    ("sample_shape", DrawsLast(), "sample has shape"),
    ("sample_shape", DrawsObserved(), "sample changed observed cells"),
    ("sample_spread", DrawsMeans(), "sd of all residuals"),
    ("sample_spread", DrawsMarginals(), "sd of all residuals"),
    ("sample_spread", RepeatsOneDraw(), "sd of the draws of a row"),
    ("accuracy", SimpleImputer(), "column means"),
]


def sound_cases():
    """Give every check of the sound estimators; worker processes start once only."""
    for estimator in (Toy(), PositiveToy(), ToyLatents(), KNNImputer()):
        for name, check in nan_checks(estimator):
            # scikit-learn's imputers keep a numpy.dtype, which skops does not trust.
            known = isinstance(estimator, KNNImputer) and name == "state_skops"
            if not known and (type(estimator) is Toy or "parallel" not in name):
                yield pytest.param(check, id=f"{type(estimator).__name__}-{name}")


@pytest.mark.quick(17)
@pytest.mark.parametrize("check", list(sound_cases()))
def test_sound_estimator_passes(check):
    check()


@pytest.mark.parametrize(("name", "estimator", "message"), BROKEN)
def test_broken_estimator_fails(name, estimator, message):
    with pytest.raises(AssertionError, match=message) as failure:
        dict(nan_checks(estimator))[name]()
    assert f"{type(estimator).__name__}, check {name}" in str(failure.value)


@pytest.mark.slow  # processes start slowly
def test_processes_that_differ_are_found():
    message = "loky and one process differ"
    test_broken_estimator_fails("parallel_loky", FillsProcessNumber(), message)


def test_every_check_has_a_broken_estimator():
    # The two parallel checks share their comparison: a second cluster shows no more.
    names = {name for name, _ in nan_checks(PositiveToy())}
    known = {name for name, _, _ in BROKEN} | {"parallel_loky"}
    assert names - known == {"parallel_dask"}


def test_checks_of_absent_methods_do_not_run():
    names = {name.split("_")[0] for name, _ in nan_checks(SimpleImputer())}
    assert names.isdisjoint({"support", "score", "sample"})
    assert "accuracy" not in dict(nan_checks(ToyLatents()))


def few_checks(monkeypatch, estimator, *names):
    kept = [(name, check) for name, check in nan_checks(estimator) if name in names]
    monkeypatch.setattr(_contract, "nan_checks", lambda estimator: kept)


def test_contract_collects_all_failures(monkeypatch):
    few_checks(monkeypatch, ImputesNothing(), "output_array", "table_small", "accuracy")
    message = r"(?s)output_array.*table_small.*accuracy"
    with pytest.raises(AssertionError, match=message):
        check_nan_contract(ImputesNothing())


def test_contract_passes_quietly(monkeypatch):
    few_checks(monkeypatch, Toy(), "output_array", "table_small")
    check_nan_contract(Toy())


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("pandas", "table_nullable"),
        ("polars", "table_polars"),
        ("torch", "random_torch_state"),
        ("skops.io", "state_skops"),
        ("distributed", "parallel_dask"),
    ],
)
def test_missing_package_skips(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SkipTest, match=package):
        dict(nan_checks(Toy()))[name]()
    few_checks(monkeypatch, Toy(), name)
    with pytest.warns(SkipTestWarning, match=package):
        check_nan_contract(Toy())
