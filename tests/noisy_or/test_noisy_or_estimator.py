"""NoisyOr: what it finds, its doors, and what it refuses."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from _enumerated_causes import enumerate_joint
from errors import refused
from oracles import GATE
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from tables import cells_of

from skvnce import NoisyOr
from skvnce.datasets import make_binary_patterns
from skvnce.exceptions import DivergenceError
from skvnce.noisy_or import estimator
from skvnce.noisy_or.estimator import factorise
from skvnce.noisy_or.model import NoisyOrModel, gather
from skvnce.options import Adam

pytestmark = [
    pytest.mark.xdist_group("noisy_or"),  # which share a fit
    pytest.mark.filterwarnings("ignore:hidden_layer_sizes=.* has no effect"),
]

WAYS = ["acp", "avi", "svi", "lb-cdi", "ub-cdi"]
QUICK = {"max_iter": 5, "hidden_layer_sizes": (8,), "random_state": 0}


@pytest.fixture(scope="module")
def pictures():
    return make_binary_patterns(300, random_state=0)


@pytest.fixture(scope="module")
def fitted(pictures):
    return NoisyOr(8, max_iter=60, random_state=0).fit(pictures.data)


@pytest.fixture
def X():
    x = make_binary_patterns(60, random_state=1).data[:, :20]
    x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    return x


def assigned(found, true):
    norms = np.linalg.norm(true, axis=1)[:, None] * np.linalg.norm(found, axis=1)
    cosine = true @ found.T / norms
    rows, columns = linear_sum_assignment(-cosine)
    return cosine[rows, columns], columns


def evidence_of(model, X):
    """Compute log p(x_obs) by enumeration from the public attributes."""
    weight = torch.tensor(-np.log1p(-model.components_)).T
    leak = torch.tensor(-np.log1p(-model.leak_))
    parts = NoisyOrModel(weight, leak, torch.tensor(model.prior_))
    with torch.no_grad():
        evidence = gather(parts.causes(), cells_of(X))
        return enumerate_joint(evidence).logsumexp(0).numpy()


@pytest.mark.slow
def test_patterns_are_recovered(fitted, pictures, rng_0):
    cosine, order = assigned(fitted.components_, pictures.components)
    assert cosine.min() > 0.9
    on = pictures.components > 0
    result = fitted.components_[order]
    assert result[on].mean() == pytest.approx(0.8, abs=0.1)
    assert result[~on].mean() < 0.05
    np.testing.assert_allclose(fitted.prior_, 1 / 8, atol=0.06)
    posterior = fitted.transform(pictures.data)[:, order] > 0.5
    assert (posterior == pictures.causes).mean() > 0.97
    # columns shuffled one by one have no such causes
    broken = clone(fitted).fit(rng_0.permuted(pictures.data, axis=0))
    assert assigned(broken.components_, pictures.components)[0].mean() < 0.7


@pytest.mark.slow
def test_scores_lie_below_the_log_probability(fitted):
    held_out = make_binary_patterns(200, random_state=5).data
    exact = evidence_of(fitted, held_out)
    scores = fitted.score_samples(held_out)
    assert (exact - scores).mean() > 0
    assert (exact - scores).mean() < 2
    assert (scores < exact + 1.0).all()
    assert fitted.score(held_out) == pytest.approx(scores.mean())


@pytest.mark.slow
def test_scores_of_words_never_seen_lie_below_too():
    """Where only the floor of the leak explains a cell that is on."""
    x = make_binary_patterns(300, random_state=0).data
    x[:, 10:14] = 0.0
    model = NoisyOr(8, max_iter=40, random_state=0).fit(x)
    row = (np.arange(64) == 10).astype(float)[None]
    exact = evidence_of(model, row)
    assert exact < -8  # rare, not impossible
    assert model.score_samples(row)[0] < exact + 0.2
    assert (model.leak_ >= 1e-6 * (1 - 1e-6)).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns_from_missing_cells(way, X):
    model = NoisyOr(3, algorithm=way, **QUICK).fit(X)
    assert model.components_.shape == (3, 20)
    for name in ("components_", "leak_", "prior_"):
        value = getattr(model, name)
        assert ((value >= 0) & (value <= 1)).all(), name
    posterior = model.transform(X)
    assert posterior.shape == (60, 3)
    assert ((posterior >= 0) & (posterior <= 1)).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert len(model.loss_curve_) == model.n_iter_ == 5


@pytest.mark.slow
def test_missing_cells_are_not_zeros(pictures):
    """Half of the cells hidden: rates and patterns come back; zeros halve them."""
    x = pictures.data.copy()
    x[np.random.default_rng(1).random(x.shape) < 0.5] = np.nan
    options = {"max_iter": 25, "random_state": 0}
    right = NoisyOr(8, **options).fit(x)
    wrong = NoisyOr(8, **options).fit(np.nan_to_num(x))
    on = pictures.components > 0
    strength = [
        model.components_[assigned(model.components_, pictures.components)[1]][
            on
        ].mean()
        for model in (right, wrong)
    ]
    assert strength[0] > 0.65 > 0.5 > strength[1]


@pytest.mark.slow
def test_a_prior_keeps_noise_out_of_the_components(seed):
    """Columns without causes, and few rows: new rows pay for what was learned."""
    noise = (np.random.default_rng(seed).random((400, 30)) < 0.2) * 1.0
    free, held = (
        NoisyOr(5, alpha=alpha, max_iter=100, random_state=seed).fit(noise[:60])
        for alpha in (0.0, 30.0)
    )
    assert held.components_.sum() < 0.5 * free.components_.sum()
    gain = held.score_samples(noise[60:]) - free.score_samples(noise[60:])
    assert gain.mean() > GATE * gain.std() / np.sqrt(len(gain))


def test_sparse_and_dense_are_the_same(X):
    stored = sparse.csr_array(X)
    dense, thin = (NoisyOr(3, **QUICK).fit(table) for table in (X, stored))
    np.testing.assert_array_equal(dense.components_, thin.components_)
    for other in (stored, sparse.csc_matrix(X), sparse.coo_array(X), X[:, :]):
        np.testing.assert_array_equal(dense.transform(X), thin.transform(other))
        np.testing.assert_array_equal(dense.score_samples(X), thin.score_samples(other))


def test_stored_zeros_are_zeros_and_the_table_is_left_alone(X):
    table = sparse.csr_array(np.nan_to_num(X))
    model = NoisyOr(3, **QUICK).fit(table)
    table.data[:5] = 0.0
    dense, before = table.toarray(), table.copy()
    np.testing.assert_array_equal(model.transform(table), model.transform(dense))
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(table, name), getattr(before, name))


def test_other_values_are_refused_by_name(X):
    frame = pd.DataFrame(X, columns=[f"w{j}" for j in range(20)])
    model = NoisyOr(3, binarize=None, **QUICK).fit(frame)
    for value, shown in ((2.0, "2.0"), (-1.0, "-1.0"), (0.5, "0.5")):
        wrong = frame.copy()
        wrong.iloc[7, 4] = value
        match = rf"got {shown} in column 'w4', row 7\. Set binarize=0\.0"
        for call in (model.fit, model.transform, model.score):
            refused(ValueError, match, call, wrong)
    counts = sparse.csr_array(np.nan_to_num(X) * 3)
    with pytest.raises(ValueError, match="got 3.0 in column"):
        NoisyOr(3, binarize=None, **QUICK).fit(counts)
    wrong = frame.copy()
    wrong.iloc[2, 3] = np.inf
    refused(ValueError, "infinity.*column 'w3', row 2", model.fit, wrong)
    for binarize in (None, 0):
        with pytest.raises(ValueError, match="inf in column 3, row 2"):
            NoisyOr(3, binarize=binarize, **QUICK).fit(sparse.csr_array(wrong))
    wrong.iloc[2, 3] = 1 + 1e-9
    refused(ValueError, "got 1.000000001 in column 'w3'", model.fit, wrong)


def test_binarize(X):
    values = np.where(X == 1, 7.0, X - 3.0)
    expected = NoisyOr(3, binarize=None, **QUICK).fit(X).transform(X)
    model = NoisyOr(3, **QUICK).fit(values)
    np.testing.assert_array_equal(model.transform(values), expected)
    counts = sparse.csr_array(np.where(X == 1, 7.0, X))
    np.testing.assert_array_equal(model.transform(counts), expected)
    with pytest.raises(ValueError, match="binarize=-1 is negative, but X is sparse"):
        NoisyOr(3, binarize=-1, **QUICK).fit(counts)
    negative = NoisyOr(3, binarize=-1, **QUICK).fit(np.where(X == 1, -0.5, X - 3.0))
    np.testing.assert_array_equal(negative.transform(X - 1.5), expected)


def test_counts_of_words_need_no_preparation():
    texts = ["red red rose", "blue sea", "red sea sea", "rose rose rose"]
    counts, binary = (
        make_pipeline(CountVectorizer(binary=binary), NoisyOr(2, **QUICK))
        for binary in (False, True)
    )
    filled = counts.fit_transform(texts)
    np.testing.assert_array_equal(filled, binary.fit_transform(texts))


def alike(seed, n):
    """Draw four columns that are on together, with missing cells."""
    rng = np.random.default_rng(seed)
    common, own = rng.gamma(4.0, size=(n, 1)), rng.gamma(4.0, size=(n, 4))
    X = (common + own > 8.0).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rate", [30.0, 1e30])
def test_fits_that_get_worse_are_errors(way, rate):
    # losses mostly stay finite, but probabilities are 0 or 1
    X, model = alike(0, 60), NoisyOr(2, algorithm=way, max_iter=3, random_state=0)
    clone(model).fit(X)  # the control
    for seed in range(4):
        solver = Adam(learning_rate_init=rate)
        wrong = clone(model).set_params(solver=solver, random_state=seed)
        refused(DivergenceError, "Lower learning_rate_init", wrong.fit, X)
        assert not hasattr(wrong, "components_")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_steps_that_jump_to_the_ends_are_announced(way):
    """At 60 seeds, with a learning rate of 10; the default is the negative control.

    Losses of loose bounds decrease all the same, and models lose 0.5 to 17 nats a row.
    """
    for seed in range(60):
        X = alike(seed, 30)
        model = NoisyOr(2, algorithm=way, max_iter=2, random_state=seed).fit(X)
        wrong = model.set_params(solver=Adam(learning_rate_init=10.0))
        refused(DivergenceError, "Lower learning_rate_init", wrong.fit, X)


def planted(seed, n=200):
    """Draw rows of three causes, or of independent columns."""
    rng = np.random.default_rng(seed)
    causes = rng.random((n, 3)) < 0.25
    on = np.where(rng.random((3, 12)) < 0.4, 0.8, 0.0)
    off = 0.97 * (1 - causes[:, :, None] * on).prod(1)
    return (rng.random(off.shape) > off).astype(float)


@pytest.mark.parametrize("way", ["svi", "avi", "acp"])
def test_fits_that_lose_the_causes_warn(way):
    """Steps of size 2 give all rows to the leak, at a finite loss."""
    solver = Adam(learning_rate_init={"svi": 2.0, "avi": 0.5, "acp": 1.5}[way])
    model = NoisyOr(3, algorithm=way, solver=solver, random_state=0, max_iter=40)
    with pytest.warns(ConvergenceWarning, match="lower learning_rate_init"):
        model.fit(planted(0))


def test_larger_steps_that_find_the_causes_are_silent():
    solver = Adam(learning_rate_init=0.1)
    for seed in range(3):
        model = NoisyOr(3, algorithm="svi", solver=solver, random_state=seed)
        result, X = model.set_params(max_iter=20).fit(planted(seed)), planted(seed)
        table, _ = estimator.binary_table(NoisyOr(2), X, reset=True)
        assert result.score(X) > 0.95 * estimator.independent(table, table)


def test_independent_columns_have_their_likelihood():
    X = planted(1, 30)
    X[:4, 2] = np.nan
    table, _ = estimator.binary_table(NoisyOr(2), X, reset=True)
    rate = np.nanmean(X, 0)
    expected = np.where(X == 1, np.log(rate), np.log1p(-rate))
    expected = np.nansum(np.where(np.isnan(X), 0.0, expected)) / len(X)
    assert estimator.independent(table, table) == pytest.approx(expected)


def test_nothing_to_learn():
    with pytest.raises(ValueError, match="no observed cell"):
        NoisyOr(2, **QUICK).fit(np.full((4, 3), np.nan))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_tables_of_one_value(way, value):
    model = NoisyOr(2, algorithm=way, **QUICK).fit(np.full((8, 3), value))
    assert np.isfinite(model.score_samples(np.full((2, 3), value))).all()
    rates = model.inverse_transform(model.transform(np.full((1, 3), value)))
    assert np.isfinite(rates).all()


@pytest.mark.quick(3)
@pytest.mark.parametrize("off", [[2], [1, 3], [0, 1, 3, 4]])
@pytest.mark.parametrize("n_components", [3, 5, 6])
def test_columns_that_are_always_off(off, n_components):
    """Some tables of a rank below `n_components` have no start by singular vectors."""
    options = QUICK | {"max_iter": 1}
    for number in range(20):
        x = (np.random.default_rng(number).random((40, 5)) < 0.4).astype(float)
        x[:, off] = 0
        guess = factorise(sparse.csr_array(x), n_components, np.random.RandomState(1))
        assert np.isfinite(guess).all()
        if number < 2:
            model = NoisyOr(n_components, **options).fit(x)
            assert np.isfinite(model.components_).all()
            # P(x = 1) of a column seen off 40 times
            rates = model.inverse_transform(model.transform(x))[:, off]
            assert (rates < 0.5).all()


def test_a_column_never_observed_says_nothing(X):
    X[:, 2] = np.nan
    with pytest.warns(UserWarning, match="Entirely missing: column 2"):
        model = NoisyOr(3, **QUICK).fit(X)
    assert (model.components_[:, 2] == 0).all() and np.isnan(model.leak_[2])
    expected = model.transform(X), model.score_samples(X)
    for value in (0.0, 1.0):
        X[:, 2] = value
        np.testing.assert_allclose(model.transform(X), expected[0], rtol=1e-9)
        np.testing.assert_allclose(model.score_samples(X), expected[1], rtol=1e-9)
    drawn = model.sample_rows(5, random_state=0)
    assert (np.isnan(drawn) == (np.arange(20) == 2)).all()
    assert np.isnan(model.inverse_transform(model.transform(X))[:, 2]).all()


def test_rows_of_any_length_come_back_in_their_order(rng_0):
    x = (rng_0.random((400, 50)) < rng_0.random((400, 1)) ** 4).astype(float)
    model = NoisyOr(3, **QUICK).fit(x)
    alone = [model.transform(row[None])[0] for row in x[:40]]
    np.testing.assert_allclose(model.transform(x)[:40], alone, rtol=1e-9)


def test_empty_rows_say_nothing(X):
    more = np.vstack([X, np.full((7, 20), np.nan)])
    first, second = (NoisyOr(3, **QUICK).fit(table) for table in (X, more))
    np.testing.assert_array_equal(first.components_, second.components_)
    empty = second.transform(more[-1:])
    np.testing.assert_allclose(empty[0], second.prior_, rtol=1e-6)
    assert second.score_samples(more[-1:])[0] == pytest.approx(0, abs=1e-9)


@pytest.fixture(scope="module")
def brief(pictures):
    return NoisyOr(8, **QUICK).fit(pictures.data)


def test_inverse_transform_by_hand(brief, rng_0):
    Z = rng_0.random((4, 8))
    expected = [
        [
            1 - (1 - leak) * np.prod(1 - z * brief.components_[:, i])
            for i, leak in enumerate(brief.leak_)
        ]
        for z in Z
    ]
    np.testing.assert_allclose(brief.inverse_transform(Z), expected, rtol=1e-9)
    Z[2, 3] = 1.5
    with pytest.raises(ValueError, match="from 0 to 1, got 1.5 in column 3, row 2"):
        brief.inverse_transform(Z)
    refused(ValueError, "n_components_=8", brief.inverse_transform, Z[:, :3])


def test_samples_have_the_rates_of_the_model(brief):
    drawn = brief.sample_rows(20000, random_state=0)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    off = (1 - brief.leak_) * np.prod(
        1 - brief.prior_[:, None] * brief.components_, axis=0
    )
    error = np.sqrt(off * (1 - off) / len(drawn))
    assert np.abs((drawn.mean(0) - (1 - off)) / error).max() < 4.5
    np.testing.assert_array_equal(drawn, brief.sample_rows(20000, random_state=0))
    assert (drawn != brief.sample_rows(20000, random_state=1)).any()


def test_names(pictures):
    frame = pd.DataFrame(pictures.data, columns=[f"w{j}" for j in range(64)])
    model = NoisyOr(8, **QUICK).fit(frame)
    assert list(model.get_feature_names_out()) == [f"noisyor{k}" for k in range(8)]
    terms = model.top_terms(3)
    best = model.components_.argmax(1)
    assert [term[0] for term in terms] == [f"w{j}" for j in best]
    assert all(len(term) == 3 for term in terms)
    named = model.top_terms(2, [f"v{j}" for j in range(64)])
    assert named[0][0] == terms[0][0].replace("w", "v")
    assert len(model.top_terms(100)[0]) == 64
    refused(ValueError, "feature_names must be 64 names", model.top_terms, 2, ["a"])
    refused(ValueError, "n_terms", model.top_terms, 0)
    assert NoisyOr(2, **QUICK).fit(pictures.data).top_terms(1)[0][0].startswith("x")


def test_parameters_set_after_the_fit_do_not_change_the_answer(X):
    model = NoisyOr(3, **QUICK).fit(X)
    expected = model.transform(X)
    model.set_params(algorithm="avi", hidden_layer_sizes=(3, 3), n_components=7)
    model = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.transform(X), expected)
