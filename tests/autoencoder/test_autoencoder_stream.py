"""`partial_fit` of autoencoders: repeated fits, and training that goes on."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skvnce import GaussianImputer, LAIRImputer, VariationalAutoencoder
from skvnce._imputer.parts import stream as _stream
from skvnce._imputer.parts.stream import Stream
from skvnce.options import Adam

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning"),
]
SMALL = {"hidden_layer_sizes": (8,), "n_importance_samples": 16, "max_iter": 2}


def curved(n, seed):
    """Make rows on a closed curve, which a normal distribution describes badly."""
    rng = np.random.default_rng(seed)
    t, z = rng.uniform(0, 2 * np.pi, n), rng.normal(size=n)
    columns = np.cos(t), np.sin(t), np.cos(2 * t), t / 3, np.sin(2 * t) * np.cos(t), z
    X = np.stack(columns, 1) + 0.15 * rng.normal(size=(n, 6))
    X[rng.random(X.shape) < 0.3] = np.nan
    return X[~np.isnan(X).all(1)]


def skewed(n, seed):
    """Make rows of two factors, with an exponential and a rounded column."""
    rng, loadings = np.random.default_rng(seed), np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ loadings.normal(size=(2, 6))
    X += 0.5 * rng.normal(size=(n, 6))
    X[:, 0], X[:, 1] = np.exp(X[:, 0] / 2), np.round(X[:, 1]) / 2
    X[rng.random(X.shape) < 0.3] = np.nan
    return X[~np.isnan(X).all(1)]


def small(**options):
    return VariationalAutoencoder(random_state=0, **{**SMALL, **options})


def imputer(**options):
    options = {"n_estimators": 1, "n_steps": 2, "n_draws": 8, **options}
    return LAIRImputer(small(), random_state=0, **options)


@pytest.fixture
def short(monkeypatch):
    """Make rounds of few steps, which few held-out cells score."""
    monkeypatch.setattr("skvnce._core.training.rounds.STEPS", 3)
    monkeypatch.setattr("skvnce._imputer.parts.stream._ENOUGH", 5)


def learned(model, *chunks):
    for chunk in chunks:
        model.partial_fit(chunk)
    return model


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("most", [20_000, 2000])
@pytest.mark.parametrize("table", [curved, skewed])
def test_ten_chunks_are_nearly_a_full_fit(table, most, seed, monkeypatch):
    """Within 2 % of what the full fit gains over independent columns.

    With 2000 rows kept, the last fit is that of 2000 rows.
    """
    monkeypatch.setattr("skvnce._imputer.parts.stream.MOST_KEPT", most)
    X, new = table(10_000, seed), table(3000, seed + 100)
    model, first = (VariationalAutoencoder(random_state=0) for _ in range(2))
    chunks = np.array_split(X, 10)
    alone = GaussianImputer(shrinkage=1e9, random_state=0).fit(X).score(new)
    best = VariationalAutoencoder(random_state=0).fit(X).score(new)
    gain = 0.02 * (best - alone)
    assert best - learned(model, *chunks).score(new) < gain
    few = learned(first, chunks[0][:500])
    assert best - few.score(new) > gain  # negative control


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [small, imputer])
def test_the_fit_is_repeated_when_the_rows_have_doubled(make, short, monkeypatch):
    X = skewed(260, 1)[:240]
    X[40] = np.nan  # an empty row counts, as it does in the chunks
    frame = pd.DataFrame(X, columns=list("abcdef"))

    def in_chunks(*ends):
        parts = map(slice, (0, *ends[:-1]), ends)
        return learned(make(), *(frame[part] for part in parts))

    def equal(found, n):
        whole = make().fit(frame[:n])
        assert found.feature_names_in_.tolist() == list("abcdef")
        return np.array_equal(found.transform(frame), whole.transform(frame))

    assert equal(in_chunks(60, 120), 120)
    assert equal(in_chunks(60, 90, 120, 240), 240)
    assert not equal(in_chunks(60, 119), 119)
    monkeypatch.setattr("skvnce._imputer.parts.stream.MOST_KEPT", 200)
    assert not equal(in_chunks(60, 120, 240), 240)


def test_training_goes_on_from_the_fit(short):
    X = curved(400, 0)
    model = learned(small(), X[:200])
    before, n_iter, location = model.model_state_, model.n_iter_, model.location_
    kept = {name: value.copy() for name, value in before.items()}
    model.partial_fit(X[200:300])
    assert all(np.array_equal(before[name], kept[name]) for name in kept)
    assert model.model_state_ is not before
    assert np.array_equal(model.location_, location)
    assert model.n_iter_ == len(model.loss_curve_) > n_iter
    assert model.best_iter_ <= len(model.validation_scores_) <= 2
    assert len(model._stream[0]) == 300


def test_held_out_cells_are_those_of_new_rows(short, monkeypatch):
    X = curved(300, 0)
    model = learned(small(), X[:200])
    seen = []
    kind = "skvnce.autoencoder.losses.Rounds.while_better"

    def spied(self, hidden, **_):
        seen.append(hidden)
        return 0

    monkeypatch.setattr(kind, spied)
    states = model.model_state_
    model.partial_fit(X[200:])
    (hidden,) = seen
    assert not hidden[:200].any() and hidden[200:].any()
    assert not (hidden.numpy() & np.isnan(X)).any()
    for name, value in states.items():  # no round is best: nothing changes
        np.testing.assert_array_equal(model.model_state_[name], value)


def test_few_new_rows_wait(short, monkeypatch):
    monkeypatch.setattr("skvnce._imputer.parts.stream._ENOUGH", 30)
    X = curved(400, 0)
    model = learned(small(), X[:300])
    n_iter = model.n_iter_
    model.partial_fit(X[300:310])
    assert model.n_iter_ == n_iter and model._stream[-1] == 10
    model.partial_fit(X[310:])
    assert model.n_iter_ > n_iter and model._stream[-1] == 0
    together = learned(small(), X[:300], X[300:])
    np.testing.assert_array_equal(model.transform(X), together.transform(X))


def test_kept_rows_are_a_sample_of_all_rows():
    """Each row is kept with the same probability, in whichever call it came."""
    most, n_chunks, n_repeats = 40, 6, 300
    counts = np.zeros(n_chunks)
    rng = np.random.default_rng(0)
    for _ in range(n_repeats):
        stream = Stream.of(np.zeros((30, 1)))
        for chunk in range(1, n_chunks):
            stream = stream.followed_by(Stream.of(np.full((30, 1), float(chunk))))
            stream = _learned(stream, most, rng)
        assert len(stream.rows) == most and stream.n_rows == 30 * n_chunks
        assert stream.weights.sum() == pytest.approx(30 * n_chunks)
        assert np.ptp(stream.weights) == 0
        counts += np.bincount(stream.rows[:, 0].astype(int), minlength=n_chunks)
    share = counts / n_repeats / most
    assert abs(share - 1 / n_chunks).max() < 0.02


def _learned(stream, most, rng):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skvnce._imputer.parts.stream.MOST_KEPT", most)
        return stream.learned(rng)


def test_of_a_large_first_table_a_sample_is_kept(short, monkeypatch):
    monkeypatch.setattr("skvnce._imputer.parts.stream.MOST_KEPT", 50)
    X = curved(200, 0)
    model = learned(small(), X[:150])
    rows, weights, n_rows, *_ = model._stream
    assert len(rows) == 50 and n_rows == 150 and (weights == 3).all()
    known = {row.tobytes() for row in X[:150]}
    assert len({row.tobytes() for row in rows} & known) == 50
    model.partial_fit(X[150:])
    assert len(model._stream[0]) == 50 and model._stream[1].sum() == 200


def test_several_members_learn(short):
    X = curved(300, 0)
    model = learned(imputer(n_estimators=3), X[:200])
    before = [one.model_state_ for one in model.estimators_]
    old = model.estimators_
    score = model.score(X)
    model.partial_fit(X[200:])
    assert len(model.estimators_) == 3
    assert len({one.best_iter_ for one in model.estimators_}) == 1
    assert [one.model_state_ for one in old] == before
    assert model.score(X) != score
    draws = [one.transform(X) for one in model.estimators_]
    assert not np.allclose(draws[0], draws[1])


def test_weights_of_rows_and_members(short, monkeypatch):
    X, used = curved(300, 0), []
    plain = VariationalAutoencoder._rounds

    def watched(member, auto, data, weights, device):
        used.append(weights)
        return plain(member, auto, data, weights, device)

    monkeypatch.setattr(VariationalAutoencoder, "_rounds", watched)
    model = learned(imputer(n_estimators=2), X[:200])
    rows, _, *rest = model._stream
    model._stream = rows, np.full(len(rows), 9.0), *rest
    model.partial_fit(X[200:])
    one, other = used[-2:]  # those of the new rows
    assert one.shape == other.shape
    assert (one != other).any()
    assert one[: len(rows)].mean() > 5 * one[len(rows) :].mean()


def test_the_share_of_new_rows_is_that_of_their_weights():
    weights = np.r_[np.full(90, 9.0), np.ones(10)]
    stream = Stream(curved(200, 0)[:100], weights, 820, None, 10)
    sample = _stream.Sample.of(stream, small().fit(curved(60, 1)))
    assert sample.share == pytest.approx(10 / 820)


def test_ranges_grow(short):
    X = curved(300, 0)
    model = learned(imputer(), X[:200])
    high = model.feature_ranges_[1].copy()
    new = X[200:].copy()
    new[0, 0] = np.nanmax(X[:, 0]) + 1
    model.partial_fit(new)
    assert (model.feature_ranges_[1] >= high).all()
    assert model.feature_ranges_[1, 0] >= high[0] + 1 - 1e-9
    bounded = learned(imputer(max_value={0: 4.0}), X[:200])
    before = pickle.dumps(bounded)
    new[0, 0] = 5.0
    with pytest.raises(ValueError, match="X has 5.0 in column 0, row 0, above"):
        bounded.partial_fit(new)
    assert pickle.dumps(bounded) == before


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [small, imputer])
def test_values_under_the_mask_and_empty_rows_do_not_matter(make, short):
    X = curved(300, 0)
    masked = np.ma.masked_invalid(X)
    masked.data[masked.mask] = 1e6
    plain, other = learned(make(), X[:200], X[200:]), make()
    learned(other, masked[:200], masked[200:])
    np.testing.assert_array_equal(plain.transform(X), other.transform(X))
    padded = np.concatenate([X[200:], np.full((3, 6), np.nan)])
    kept = [part.copy() for part in (X[:200], padded)]
    third = learned(make(), X[:200], padded)
    np.testing.assert_array_equal(kept[1], padded)
    assert len(third._stream[0]) == 300
    with pytest.raises(ValueError, match="No row of X has an observed cell"):
        third.partial_fit(np.full((2, 6), np.nan))


@pytest.mark.parametrize("make", [small, imputer])
def test_failed_calls_change_nothing(make, short):
    X = curved(300, 0)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = learned(make(), frame[:200])
    before = pickle.dumps(model)
    far = frame[200:].copy()
    far.iloc[0, 0] = 1e300
    for wrong, words in [
        (far, "row 0"),
        (frame[200:].rename(columns={"a": "z"}), "feature names"),
        (frame[200:].drop(columns="f"), "missing:\n- f"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.partial_fit(wrong)
    assert pickle.dumps(model) == before
    rate = {"solver": Adam(learning_rate_init=1e30, n_iter_no_change=1)}
    broken = learned(make(), X[:200])
    part = broken if make is small else broken.estimators_[0]
    part.set_params(**rate)
    before = pickle.dumps(broken)
    with pytest.raises(ValueError, match=r"Training diverged|not finite"):
        broken.partial_fit(X[200:])
    assert pickle.dumps(broken) == before


@pytest.mark.parametrize("make", [small, imputer])
def test_it_goes_on_after_storing(make, short):
    X = curved(300, 0)
    one = learned(make(), X[:200])
    other = pickle.loads(pickle.dumps(one))
    for model in (one, other):
        model.partial_fit(X[200:])
    np.testing.assert_array_equal(one.transform(X), other.transform(X))
    assert not hasattr(clone(one), "_stream")


def test_after_fit_the_choices_are_final(short):
    X = curved(600, 0)
    model = small().fit(X[:200])
    location = model.location_
    learned(model, X[200:400], X[400:])
    assert np.array_equal(model.location_, location)
    assert len(model._stream[0]) == 400  # the rows of `fit` are not kept
    assert model.fit(X)._stream is None


def test_categories_go_on(short):
    X = curved(400, 0)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    level = np.where(np.isnan(X[:, 0]), None, np.where(X[:, 0] > 0, "yes", "no"))
    frame["g"] = pd.Categorical(level, categories=["no", "yes"])
    model = learned(imputer(), frame[:150], frame[150:250], frame[250:])
    filled = model.set_output(transform="pandas").transform(frame)
    assert set(filled["g"]) == {"no", "yes"}
    strange = frame[:50].copy()
    strange["g"] = pd.Categorical(["perhaps"] * 50)
    with pytest.raises(ValueError, match="perhaps"):
        model.partial_fit(strange)


def test_without_validation_the_share_of_new_rows_counts(short):
    X = curved(300, 0)
    solver = Adam(validation_fraction=0)
    model = learned(small(solver=solver, max_iter=4), X[:200], X[200:])
    assert model.best_iter_ == 2  # a third of 4, rounded up
    assert model.validation_scores_ == []


def test_what_it_refuses(short):
    X = curved(100, 0)
    with pytest.raises(ValueError, match="does not keep its network"):
        small(algorithm="vbgi-vae").partial_fit(X)
    fitted = small().fit(X)
    with pytest.raises(ValueError, match="Call partial_fit of the Variational"):
        LAIRImputer(FrozenEstimator(fitted)).partial_fit(X)
    fitted.algorithm = "mvae"
    with pytest.raises(ValueError, match="is not that of fit, 'miwae'"):
        learned(fitted, X)
    state = torch.get_rng_state()
    learned(small(), X, X[:60])
    assert torch.equal(state, torch.get_rng_state())
