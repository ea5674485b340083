"""Tables in parts: the same answers as in memory, however the rows are divided."""

import numpy as np
import pandas as pd
import pytest
from cases import quick_gaussian
from errors import refused
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skvnce import GaussianImputer, IncompleteFactorAnalysis
from skvnce._imputer.parts import summary
from skvnce.options import Chunks

pytestmark = pytest.mark.usefixtures("short_training")
OTHER_WIDTH = "Part 1 of X .*4 features, but the first part has 5"
FEWER = "sample_weight has 1 chunks, and X has 4"
FITTED = ("mean_", "covariance_", "feature_ranges_", "location_", "scale_")
FITTED += ("held_out_gain_", "loss_curve_", "nonlinear_columns_", "n_iter_")
FITTED += ("calibrated_columns_", "shrinkage_")
LAST = [0, 70, 70, 900, 1500]  # ends of parts, of which one is empty


def table(n=1500, seed=0):
    """Make skewed, rounded and normal columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 5)) + rng.normal(size=(n, 5))
    X[:, 0], X[:, 1] = np.exp(X[:, 0] / 3), np.round(X[:, 1])
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:3] = np.nan
    return X


@pytest.fixture
def X():
    return table()


def parts(X, ends=LAST):
    return Chunks([X[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)])


def close(one, other, X):
    """Compare two fits, what they fill and what they draw."""
    for name in FITTED:
        pair = (np.asarray(getattr(est, name), float) for est in (one, other))
        assert_allclose(*pair, rtol=1e-10, atol=1e-12, err_msg=name)
    assert_allclose(one.transform(X), other.transform(X), rtol=1e-9, atol=1e-12)
    pair = (est.sample(X, 2, random_state=0, as_array=True) for est in (one, other))
    assert_allclose(*pair, rtol=1e-6, atol=1e-10)


@pytest.fixture(params=[100_000, 400], ids=["all", "sampled"])
def most_rows(request, monkeypatch):
    """Limit the rows in memory, so that a table has more, or not."""
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", request.param)
    return request.param


# normal marginals of a column of positive numbers
@pytest.mark.filterwarnings("ignore:.*would be negative")
@pytest.mark.quick(1)
@pytest.mark.parametrize("marginals", ["normal", "auto"])
def test_fit_is_that_in_memory(marginals, most_rows, X):
    imputer = GaussianImputer(marginals=marginals, n_parameter_draws=2, random_state=0)
    expected = imputer.fit(X)
    found = GaussianImputer(**imputer.get_params()).fit(parts(X))
    close(found, expected, X)
    assert expected.nonlinear_columns_.any() == (marginals == "auto")
    other = GaussianImputer(**imputer.get_params()).fit(parts(X[:1200], [0, 1200]))
    assert abs(other.mean_ - expected.mean_).max() > 1e-4  # negative control


@pytest.mark.quick(1)
def test_weights_in_parts(most_rows):
    """Also if all of those of a part are zero."""
    X, rng = table(), np.random.default_rng(1)
    weights = rng.integers(0, 3, len(X)).astype(float)
    weights[70:900] = 0
    one, other = (GaussianImputer(n_parameter_draws=1, random_state=0) for _ in "ab")
    one.fit(X, sample_weight=weights)
    other.fit(parts(X), sample_weight=parts(weights))
    close(one, other, X)
    plain = GaussianImputer(n_parameter_draws=1, random_state=0).fit(X)
    assert abs(plain.mean_ - one.mean_).max() > 1e-4  # negative control
    with pytest.raises(ValueError, match="positive weight: nothing to learn"):
        other.fit(parts(X), sample_weight=parts(0 * weights))
    with pytest.raises(ValueError, match="Part 0 of X .*1D"):
        other.fit(parts(X), sample_weight=parts(0 * weights[:, None]))


@pytest.mark.quick(1)
def test_dask_fits_and_fills_as_in_memory(most_rows):
    dd = pytest.importorskip("dask.dataframe")
    X = pd.DataFrame(table(), columns=list("abcde"))
    lazy = dd.from_pandas(X, npartitions=4)
    eager, other = (
        GaussianImputer(
            n_parameter_draws=2, categorical_features=None, random_state=0
        ).fit(source)
        for source in (X, lazy)
    )
    close(eager, other, X)
    filled = other.transform(lazy)
    assert hasattr(filled, "dask") and type(filled) is type(lazy)
    exact = {"rtol": 1e-10, "atol": 1e-12}
    assert_allclose(filled.compute(), eager.transform(X), **exact)
    scores = other.score_samples(lazy).compute()
    assert_allclose(scores, eager.score_samples(X), rtol=1e-9, atol=1e-9)
    assert other.score(lazy) == pytest.approx(eager.score(X))
    assert list(filled.columns) == list(X.columns)
    assert filled.compute().index.equals(X.index)
    assert list(other.feature_names_in_) == list(X.columns)


def test_draws_of_parts_have_the_parameters_of_their_table(monkeypatch, X):
    imputer = GaussianImputer(n_parameter_draws=3, random_state=0).fit(X)
    first, second = imputer.sample(parts(X), 2, random_state=1)
    again = imputer.sample(parts(X), 2, random_state=1)[0]
    for one, same, other in zip(first, again, second, strict=True):
        assert_array_equal(one, same)
        assert not len(one) or (one != other).any()
    whole = np.concatenate(list(first))
    observed = ~np.isnan(X)
    assert whole.shape == X.shape and (whole[observed] == X[observed]).all()
    assert not np.isnan(whole).any()
    used = []
    plain = GaussianImputer.sample.__wrapped__

    def watched(self, X, *args, **kwargs):
        used.append(self._fitted.model.draws[0][0])
        return plain(self, X, *args, **kwargs)

    monkeypatch.setattr(GaussianImputer, "sample", watched)
    list(first), list(second)
    means = np.array(used).reshape(2, len(LAST) - 1, -1)
    assert len(used) == 8  # the empty part draws a missing row
    assert (means == means[:, :1]).all() and (means[0] != means[1]).any()


def test_parts_and_tables_have_draws_of_their_own(X):
    imputer = GaussianImputer(n_parameter_draws=1, random_state=0).fit(X)
    chunks, missing = Chunks([X[:500], X[:500]]), np.isnan(X[:500])
    one, two = imputer.sample(chunks, 2, random_state=0)
    cells = [part[missing] for part in (*one, *two)]
    for k, first in enumerate(cells):
        for other in cells[k + 1 :]:
            assert np.mean(np.isclose(first, other)) < 0.5
    assert_array_equal(one[0], imputer.sample(chunks, 1, 0)[0][0])
    with pytest.raises(ValueError, match="as_array is not available"):
        imputer.sample(chunks, as_array=True)
    imputer = GaussianImputer(n_parameter_draws=3, random_state=0).fit(X)
    turns = [next(imputer._in_turns(1, seed)) for seed in range(8)]
    used = [one._fitted.model.draws[0][0] for one in turns]
    assert len(np.unique(np.array(used), axis=0)) > 1


def test_ranges_are_those_of_all_rows(monkeypatch, X):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 100)
    far = np.flatnonzero(summary.numbered(np.arange(len(X))) > 0.5)[0]
    X[far, 2], X[far, 1] = -50.0, 0.5  # of a row that is not in the sample
    imputer = quick_gaussian(min_value={0: "observed"}).fit(parts(X))
    assert imputer.feature_ranges_[0, 2] < -50
    assert imputer.feature_ranges_[0, 0] == np.nanmin(X[:, 0])
    assert not imputer._schema.values.integers[1]
    with pytest.raises(ValueError, match="X has -50.0 in column 2, (below|outside)"):
        GaussianImputer(min_value={2: -40.0}).fit(parts(X))


def test_tails_of_rows_outside_of_the_sample_are_found(monkeypatch, X):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 100)
    GaussianImputer(on_misfit="raise", random_state=0).fit(parts(X))
    far = np.flatnonzero(summary.numbered(np.arange(len(X))) > 0.5)[0]
    X[far, 2] = 1e6  # of a row that is not in the sample
    with pytest.raises(ValueError, match="A few cells of column 2 are so far"):
        GaussianImputer(on_misfit="raise", random_state=0).fit(parts(X))


def test_parts_are_read_with_errors_that_name_them():
    X, imputer, why = table(), GaussianImputer(), "rows and columns|its parts once"
    wrong, ones = X.copy(), np.ones(len(X))
    wrong[1000, 3] = np.inf
    lists = [[part, X] for part in (np.zeros(3), None, (x for x in "ab"))]
    for source, options, error, words in [
        (parts(wrong), {}, ValueError, r"Part 3 of X .*row 100"),
        (Chunks([X[:100], X[100:, :4]]), {}, ValueError, OTHER_WIDTH),
        (Chunks([X[:2], X[:3]]), {}, ValueError, "nothing to learn"),
        (Chunks([X[10:11]]), {}, ValueError, "minimum of 2"),
        (
            parts(X),
            {"lower": {0: 1.0}},
            ValueError,
            "not available for a table in parts",
        ),
        (parts(X), {"sample_weight": ones}, TypeError, "sample_weight must be Chunks"),
        (parts(X), {"sample_weight": Chunks([ones])}, ValueError, FEWER),
        *((Chunks(one), {}, (TypeError, ValueError), why) for one in lists),
        *(
            (Chunks(one[::-1]), {}, (TypeError, ValueError), "Part 1 of X")
            for one in lists
        ),
    ]:
        refused(error, words, imputer.fit, source, **options)
        assert not hasattr(imputer, "n_features_in_")
    with pytest.raises(NotFittedError):
        imputer.transform(parts(X))
    imputer.fit(parts(X))
    with pytest.raises(ValueError, match="where is not available"):
        imputer.transform(parts(X), where=np.ones(X.shape, dtype=bool))
    refused(TypeError, "table in parts", imputer.interval, parts(X))


def test_chunks_are_a_sequence(X):
    refused(TypeError, "must be a sequence", Chunks, iter([X]))
    refused(ValueError, "chunks is empty", Chunks, [])
    chunks = Chunks.from_array(X, 400)
    assert [len(chunk) for chunk in chunks] == [400, 400, 400, 300]
    assert_array_equal(np.concatenate(list(chunks)), X)


@pytest.mark.slow
def test_row_groups_of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    X = pd.DataFrame(table(), columns=list("abcde"))
    X.to_parquet(tmp_path / "one.parquet", row_group_size=400)
    X.to_parquet(tmp_path / "two.parquet", row_group_size=1000)
    chunks = Chunks.from_parquet(tmp_path / "one.parquet")
    assert [len(chunk) for chunk in chunks] == [400, 400, 400, 300]
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), X)
    both = Chunks.from_parquet([tmp_path / "one.parquet", tmp_path / "two.parquet"])
    assert len(chunks[1:3]) == 2
    assert len(both) == 6
    fitted = quick_gaussian().fit(both)
    twice = pd.concat([X, X]).to_numpy()
    expected = quick_gaussian().fit(twice)
    assert_allclose(fitted.mean_, expected.mean_, rtol=1e-10)
    of_folder = Chunks.from_parquet(tmp_path)
    for one, other in zip(of_folder, both, strict=True):
        pd.testing.assert_frame_equal(one, other)
    (tmp_path / "many" / "no.parquet").mkdir(parents=True)
    for number in (10, 9, 2):
        X[:number].to_parquet(tmp_path / "many" / f"part.{number}.parquet")
    assert [len(one) for one in Chunks.from_parquet(tmp_path / "many")] == [2, 9, 10]
    (tmp_path / "scripts").mkdir()
    for number, name in [(3, "1²3"), (2, "1²2"), (12, "٢"), (5, "١"), (20, "١٠")]:
        X[:number].to_parquet(tmp_path / "scripts" / f"{name}.parquet")
    found = [len(one) for one in Chunks.from_parquet(tmp_path / "scripts")]
    assert found == [5, 2, 3, 12, 20]
    (tmp_path / "survey.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    written = (tmp_path / "one.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(written[:-20])
    for path, error, words in [
        ("", ValueError, "path is empty"),
        (None, TypeError, "path must be the name.*got None"),
        (tmp_path / "survey.csv", ValueError, "survey.csv' cannot be.*by to_parquet"),
        (
            tmp_path / "gone.parquet",
            FileNotFoundError,
            "gone.parquet', but there is no",
        ),
        (tmp_path / "empty", ValueError, "empty has no file"),
        (
            tmp_path / "cut.parquet",
            ValueError,
            "cut.parquet' cannot be read as a parquet",
        ),
    ]:
        refused(error, words, Chunks.from_parquet, path)
    (tmp_path / "late.parquet").write_bytes(written)
    late = Chunks.from_parquet(tmp_path / "late.parquet")
    (tmp_path / "late.parquet").write_bytes(b"PAR1" + bytes(100))
    refused(ValueError, "late.parquet' cannot be read", GaussianImputer().fit, late)


def test_single_precision_is_kept():
    X = table().astype(np.float32)
    one, other = (GaussianImputer(n_parameter_draws=1, random_state=0) for _ in "ab")
    assert one.fit(parts(X)).transform(X).dtype == np.float32
    close(one, other.fit(X), X)


def test_empty_and_constant_columns_and_indicators(most_rows):
    X = np.column_stack([table(), np.full(1500, np.nan), np.full(1500, 3.0)])
    X[::7, 6] = np.nan
    options = {"add_indicator": True, "keep_empty_features": True}
    options |= {"n_parameter_draws": 0, "random_state": 0}
    with pytest.warns(UserWarning) as caught:
        one = GaussianImputer(**options).fit(X)
    with pytest.warns(UserWarning) as heard:
        other = GaussianImputer(**options).fit(parts(X))
    assert [str(w.message) for w in caught] == [str(w.message) for w in heard]
    assert one.constants_ == other.constants_ == {6: 3.0}
    assert_allclose(one.transform(X), other.transform(X), rtol=1e-9, atol=1e-12)
    with pytest.warns(UserWarning, match="No column is left"):
        alone = GaussianImputer().fit(parts(X[:, 6:]))
    assert (alone.transform(X[:, 6:]) == 3.0).all()


def test_a_rare_column_is_named(monkeypatch, X):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 100)
    X[:, 4] = np.nan
    X[np.flatnonzero(summary.numbered(np.arange(len(X))) > 0.5)[:2], 4] = 1.0, 2.0
    with pytest.raises(ValueError, match="Column 'x4' has no observed cell in a sampl"):
        GaussianImputer().fit(parts(X))


@pytest.mark.quick(1)
@pytest.mark.parametrize("rank", [2, "auto"])
def test_factor_analysis_is_that_in_memory(rank, X):
    one, other = (IncompleteFactorAnalysis(rank, tol=1e-4) for _ in "ab")
    one.fit(X), other.fit(parts(X))
    for name in ("components_", "mean_", "noise_variance_", "loss_curve_"):
        pair = (getattr(est, name) for est in (one, other))
        assert_allclose(*pair, rtol=1e-8, atol=1e-10, err_msg=name)
    latents = np.concatenate(list(other.transform(parts(X))))
    assert_allclose(latents, one.transform(X), rtol=1e-6, atol=1e-8)
    assert other.score(parts(X)) == pytest.approx(one.score(X))
    half = IncompleteFactorAnalysis(rank, tol=1e-4).fit(parts(X[:700], [0, 700]))
    assert abs(half.mean_ - one.mean_).max() > 1e-4  # negative control


@pytest.mark.slow
def test_factor_analysis_of_a_sampled_table(monkeypatch, X):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 400)
    one = IncompleteFactorAnalysis(2, tol=1e-4).fit(X)
    other = IncompleteFactorAnalysis(2, tol=1e-4).fit(parts(X))
    assert_allclose(one.components_, other.components_, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_cluster_of_dask_that_loses_a_worker(tmp_path):
    """The answer is the same, bit for bit, and that of any number of partitions."""
    distributed = pytest.importorskip("distributed")
    dd = pytest.importorskip("dask.dataframe")
    X = pd.DataFrame(table(), columns=list("abcde"))
    for number in range(6):
        part = X[250 * number : 250 * (number + 1)]
        part.to_parquet(tmp_path / f"{number}.parquet")
    options = {"n_parameter_draws": 1, "random_state": 0}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = Killer(client)
        lazy = dd.read_parquet(tmp_path).map_partitions(killer.mark, meta=X)
        plain = GaussianImputer(**options).fit(lazy)
        killer.arm(tmp_path / "armed")
        found = GaussianImputer(**options).fit(lazy)
        assert not (tmp_path / "armed").exists()  # a worker was killed
        filled = found.transform(lazy).compute()
        coarse = GaussianImputer(**options).fit(dd.from_pandas(X, npartitions=2))
    for name in FITTED:
        assert_array_equal(getattr(found, name), getattr(plain, name))
    expected = GaussianImputer(categorical_features=None, **options).fit(X)
    close(found, expected, X)
    close(coarse, expected, X)
    assert_allclose(filled, expected.transform(X), rtol=1e-10, atol=1e-12)


class Killer:
    """Kills the worker that reads the fourth partition while a file exists."""

    def __init__(self, client):
        self.client, self.path = client, None

    def arm(self, path):
        path.touch()
        self.client.run(_arm, str(path))

    mark = staticmethod(lambda part: _die_if_armed(part))


def _arm(path):
    import os

    os.environ["SKVNCE_TEST_KILL"] = path


def _die_if_armed(part):
    import os

    path = os.environ.get("SKVNCE_TEST_KILL")
    if path and part.index[0] >= 750 and os.path.exists(path):
        os.remove(path)
        os._exit(1)
    return part
