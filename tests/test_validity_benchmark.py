"""The designs and the report of the validity study, and the protocol of U-VAE."""

import numpy as np
import pandas as pd
import pytest
import uvae
import validity as study
from _report import Results
from _validity_analyses import Failure, answer_of, least_squares, logistic, matrix
from _validity_designs import DESIGNS, chances, incomplete_table
from _validity_methods import METHODS, applies, by_imputer
from statistical import FAILURE, p_mean
from validity import page, summaries

REPETITIONS = 30


def tables(name, repetitions=REPETITIONS, rate=None, first=0):
    design = DESIGNS[name]
    rate = design.rates[0] if rate is None else rate
    seeds = range(first, first + repetitions)
    return [incomplete_table(name, design, design.sizes[0], rate, k) for k in seeds]


@pytest.mark.parametrize("name", DESIGNS)
def test_complete_data_recover_the_truth(name, seed):
    """Unlike a truth that is wrong by a standard error."""
    design = DESIGNS[name]
    full = [pair[0] for pair in tables(name, first=1000 * (seed + 1))]
    answers = [design.analyse(table) for table in full]
    estimates = np.array([answer[0] for answer in answers])
    errors = np.sqrt([answer[1] for answer in answers])
    truth = np.array(list(design.truth.values()))
    assert p_mean(estimates, truth) > FAILURE
    assert p_mean(estimates, truth + 2 * errors.mean(0)) < FAILURE
    assert design.interest in design.truth
    if design.rule is not None:
        assert all(design.rule(table).all() for table in full)


@pytest.mark.parametrize("name", DESIGNS)
def test_missing_cells_are_as_many_as_stated(name):
    design = DESIGNS[name]
    for rate in design.rates:
        pairs = tables(name, 10, rate)
        for full, part in pairs:
            incomplete = part.columns[part.isna().any()]
            assert set(incomplete) == set(design.incomplete)
            pd.testing.assert_frame_equal(part, full.mask(part.isna()))
        shares = pd.concat([part for _, part in pairs])[list(design.incomplete)].isna()
        error = np.sqrt(rate * (1 - rate) / len(shares))
        assert (abs(shares.mean() - rate) < 5.5 * error).all()


def test_missing_cells_depend_on_the_driver_alone():
    """On z, and given z not on x; unlike in the designs "selected", where y decides."""

    def slopes(name, terms):
        pairs = tables(name, 40)
        full = pd.concat([pair[0] for pair in pairs])
        gone = pd.concat([pair[1] for pair in pairs])["x"].isna().astype(float)
        frame = full.assign(gone=gone.to_numpy())
        beta, variances, _ = logistic(frame, "gone", terms)
        return beta / np.sqrt(variances)

    on_z, on_x, on_y = slopes("square", ["z", "x", "y"])
    assert on_z > 8
    assert abs(on_x) < 5
    assert abs(on_y) < 5
    assert slopes("square, selected", ["z", "x", "y"])[2] > 8


def test_chances_have_the_rate_as_their_mean(seed):
    driver = np.random.default_rng(seed).gamma(1, size=500)
    for rate, slope in ((0.3, 1.0), (0.7, -2.0)):
        share = chances(driver, rate, slope)
        assert share.mean() == pytest.approx(rate)
        assert (np.corrcoef(share, driver)[0, 1] > 0) == (slope > 0)


def test_analyses_agree_with_statsmodels(seed):
    import statsmodels.api as sm

    full, _ = tables("logistic", 1, first=seed)[0]
    terms = ["x1", "x2", "z"]
    X = sm.add_constant(full[terms])
    for analyse, family in (
        (least_squares, sm.families.Gaussian()),
        (logistic, sm.families.Binomial()),
    ):
        beta, variances, dof = analyse(full, "y", terms)
        other = sm.GLM(full["y"], X, family=family).fit()
        np.testing.assert_allclose(beta, other.params.iloc[1:], rtol=1e-5)
        np.testing.assert_allclose(np.sqrt(variances), other.bse.iloc[1:], rtol=1e-3)
        assert (dof == len(full) - 4).all()


def test_terms_and_failures():
    frame = pd.DataFrame(
        {"x": [1.0, 2, 4, 3, 5], "b": [0.0, 1, 0, 1, 1], "g": [*"abaab"]}
    )
    terms = ["x*b", "x^2", "g=b"]
    expected = [[1, 0, 1, 0], [1, 2, 4, 1], [1, 0, 16, 0], [1, 3, 9, 0], [1, 5, 25, 1]]
    with pytest.raises(Failure, match="too few rows"):
        matrix(frame, terms)
    twice = pd.concat([frame, frame])
    np.testing.assert_allclose(matrix(twice, terms), expected * 2)
    np.testing.assert_allclose(matrix(twice, ["log x"])[:, 1], np.log(twice["x"]))
    with pytest.raises(Failure, match="collinear"):
        matrix(twice, ["x", "x"])
    with pytest.raises(Failure, match="not above 0"):
        matrix(twice, ["log b"])
    with pytest.raises(Failure, match="missing"):
        matrix(twice.mask(twice["x"] == 1), ["x"])


def test_completed_tables_keep_observed_cells():
    for name in ("nominal", "clustered"):
        design = DESIGNS[name]
        full, part = tables(name, 1)[0]
        for method in ("gaussian", "gaussian_groups", "iterative"):
            if not applies(method, design):
                continue
            [(draws, _)] = METHODS[method]([part], design, [0], 2)
            assert len(draws) == 2
            for draw in draws:
                assert draw.notna().all(axis=None)
                pd.testing.assert_frame_equal(
                    draw[list(full)].mask(part.isna()), part, check_dtype=False
                )


def test_an_error_of_an_imputer_is_a_failure():
    class Broken:
        def __init__(self, random_state):
            raise ValueError("broken")

    _, part = tables("truncated", 1)[0]
    [(answer, _)] = by_imputer(Broken, [part], DESIGNS["truncated"], [0], 2)
    assert isinstance(answer, ValueError)


def test_results_are_resumed_and_reported(tmp_path, capsys, monkeypatch):
    """Complete cases are biased where the outcome selects; complete data are not."""
    file = tmp_path / "results.jsonl"
    arguments = ["validity.py", "--designs", "square, selected", "--repetitions", "20"]
    arguments += ["--methods", "complete", "cases", "--results", str(file)]
    monkeypatch.setattr("sys.argv", arguments)
    study.main()
    assert len(file.read_text().splitlines()) == 4
    study.main()
    results = Results(file)
    assert len(results.records) == 4
    [(key, figures)] = summaries(results).items()
    assert key == ("square, selected", 300, 0.3)
    assert figures["complete"].repetitions == 20
    assert figures["complete"].worst > -5 > figures["cases"].worst
    assert "square, selected" in "\n".join(page(results))


def test_a_complete_table_pools_to_its_interval():
    design = DESIGNS["normal"]
    full, _ = tables("normal", 1)[0]
    single = answer_of([full], design.analyse)
    several = answer_of([full] * 3, design.analyse)
    np.testing.assert_allclose(single[0], several[0])
    np.testing.assert_allclose(single[1], several[1])


@pytest.mark.parametrize("mechanism", uvae.MECHANISMS)
def test_masks_of_the_protocol(mechanism):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 9)) @ rng.normal(size=(9, 9))
    frame = pd.DataFrame(x).assign(c="a")
    frame.loc[:900, "c"] = "b"
    hidden = uvae.hidden_cells(frame, mechanism, 0.5, 1)
    shares = hidden.mean(0)
    incomplete = shares > 0
    assert incomplete.sum() == (10 if mechanism == "MCAR" else 7)
    np.testing.assert_allclose(shares[incomplete], 0.5, atol=0.06)


def test_scores_of_the_protocol():
    rng = np.random.default_rng(1)
    full = pd.DataFrame(rng.normal(size=(500, 3)), columns=list("abc"))
    scores = uvae.scores_of([full], full, list("abc"))
    assert scores["coverage"] == 1
    assert scores["bias"] == 0
    assert scores["width"] == pytest.approx(2 * 1.96 * 0.5 / 500**0.5, rel=0.01)
    skewed = full.assign(a=np.exp(3 * full["a"]))
    assert uvae.scores_of([skewed, skewed], full, list("abc"))["coverage"] < 1
