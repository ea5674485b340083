"""Tables in parts with categories: the levels of all parts, and the same fits."""

import numpy as np
import pandas as pd
import pytest
from _imputer.parts.test_large import parts
from errors import refused

from skvnce import CopulaGraphLearner, GaussianImputer
from skvnce._imputer.parts.tables import columns_of_parts
from skvnce._imputer.validation import in_parts
from skvnce._tables.cells import UNITS
from skvnce.graphs import copula
from skvnce.graphs import copula as copula_m_step
from skvnce.options import Chunks

GAUSSIAN = GaussianImputer(max_iter=20, n_parameter_draws=2, random_state=0)
GRAPH = CopulaGraphLearner(max_iter=16, random_state=0)
ENDS = [[0, 900], [0, 1, 300, 300, 900]]
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skvnce.exceptions.MisfitWarning"),
]


def frame(n=900):
    """Make columns of all kinds; the level "z" is in the last rows only."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=n)
    text = pd.Series(rng.choice(list("pqr"), n), dtype=object)
    text.iloc[-30:] = "z"
    grades = np.array(["low", "mid", "top"])[np.digitize(z, [-0.5, 0.5])]
    found = pd.DataFrame(
        {
            "number": np.exp(z + rng.normal(size=n)),
            "text": text,
            "grade": pd.Categorical(grades, ["top", "mid", "low"], ordered=True),
            "day": pd.Timestamp("2020")
            + pd.to_timedelta(rng.integers(900, size=n), "D"),
        }
    )
    found = found.mask(rng.random(found.shape) < 0.2)
    return found.assign(flag=z > rng.normal(size=n))


@pytest.mark.quick
@pytest.mark.parametrize("estimator", [GAUSSIAN, GRAPH], ids=["normal", "graph"])
@pytest.mark.parametrize("kind", ["Chunks", "dask"])
def test_the_fit_is_that_in_memory(estimator, kind):
    table = frame()
    table["text"] = table["text"].astype("string")
    if kind == "dask":
        dd = pytest.importorskip("dask.dataframe")
        given = dd.from_pandas(table, npartitions=4)
    else:
        given = parts(table, ENDS[1])
    options = estimator.get_params()
    one, other = (type(estimator)(**options).fit(X) for X in (table, given))
    for name in ("mean_", "covariance_", "feature_ranges_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    # standard deviations are sums over parts, in another order
    np.testing.assert_allclose(one.held_out_gain_, other.held_out_gain_, rtol=1e-10)
    assert one._schema.columns == other._schema.columns
    wanted = {"text": list("pqrz"), "grade": ["top", "mid", "low"]}
    found = {key: list(levels) for key, levels in one.categories_.items()}
    assert found == wanted | {"flag": [False, True]}
    for fitted in (one, other):
        fitted.set_output(transform="pandas")
    filled, expected = other.transform(given), one.transform(table)
    if kind == "dask":
        filled = filled.compute()
    else:
        filled = pd.concat([part for part in filled if len(part)])
    pd.testing.assert_frame_equal(filled, expected, check_dtype=False, rtol=1e-9)
    fewer = type(estimator)(**options).fit(parts(table[:800], [0, 800]))
    assert "z" not in fewer.categories_["text"]  # negative control


@pytest.mark.quick(1)
@pytest.mark.parametrize("estimator", [GAUSSIAN, GRAPH], ids=["normal", "graph"])
def test_division_into_parts_does_not_matter(estimator, monkeypatch):
    monkeypatch.setattr("skvnce._imputer.parts.chunks.MOST_ROWS", 400)
    for module in (copula, copula_m_step):
        monkeypatch.setattr(module, "TOL", (1e-13, 1e-13))
    options = estimator.get_params()
    one, other, seed = (
        type(estimator)(**{**options, "random_state": seed}).fit(parts(frame(), ends))
        for ends, seed in zip([*ENDS, ENDS[0]], [0, 0, 1], strict=True)
    )
    for name in ("mean_", "covariance_"):
        pair = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(*pair, rtol=1e-7, atol=1e-7)
    assert abs(one.covariance_ - seed.covariance_).max() > 1e-4  # negative control
    assert one.transform(frame()[:50]).shape == (50, 5)


def test_levels_are_those_of_all_parts_in_their_order():
    table = frame()

    def levels(given, ends, asked="from_dtype"):
        source = in_parts(parts(given, ends))
        columns = columns_of_parts(source, source._head(), asked)
        return columns and [(one.kind, one.levels) for one in columns]

    for ends in ENDS:
        kinds, found = zip(*levels(table, ends), strict=True)
        assert kinds == ("numeric", "nominal", "ordinal", "numeric", "ordinal")
        assert found[:3] == (None, tuple("pqrz"), ("top", "mid", "low"))
        assert found[3:] == (None, (False, True))
        asked = {"text": ["z", "p", "r", "q"], "flag": "numeric"}
        found = levels(table, ends, asked)
        assert found[1] == ("ordinal", ("z", "p", "r", "q"))
        assert found[4] == ("numeric", None)
        with pytest.raises(ValueError, match="not among the levels"):
            levels(table, ends, {"text": ["p", "q", "r"]})
    late = table.assign(text=table["text"].where(table.index > 500))
    assert levels(late, [0, 300, 900])[1] == ("nominal", tuple("pqrz"))
    counts = pd.DataFrame({"a": [0, 1] * 450, "b": np.ones(900)})
    assert levels(counts, ENDS[1]) is None
    assert levels(counts, ENDS[1], {"a": "nominal"})[0] == ("nominal", (0, 1))
    assert levels(counts.to_numpy(), ENDS[1], [0])[0] == ("nominal", (0.0, 1.0))


def test_dates_are_whole_in_the_unit_of_all_parts():
    days = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-02-01", None])})
    unknown = days.assign(day=pd.Series([pd.NaT] * 3, dtype=days["day"].dtype))
    hours = days + pd.Timedelta(hours=1)
    minutes = days + pd.Timedelta(minutes=1)
    cases = [([days, unknown], UNITS[0]), ([unknown, days], UNITS[0])]
    cases += [([days, hours], UNITS[1]), ([minutes, days, hours], UNITS[2])]
    for chunks, unit in cases:
        source = in_parts(Chunks(chunks))
        [column] = columns_of_parts(source, source._head(), "from_dtype")
        assert (column.dtype, column.unit) == ("datetime", unit)


def ordered(values, levels):
    return pd.DataFrame({"k": pd.Categorical(values, levels, ordered=True)})


def test_ordered_levels_that_only_some_parts_know():
    known = ["low", "high"], ["low", "mid", "high"], ["mid", "top"]
    one, two, three = (ordered(levels * 50, levels) for levels in known)
    for chunks in ([one, two, three], [two, one, three], [three, two, one]):
        source = in_parts(Chunks(chunks))
        [column] = columns_of_parts(source, source._head(), "from_dtype")
        assert column.kind == "ordinal"
        assert set(column.levels) == {"low", "mid", "high", "top"}
        places = [column.levels.index(level) for level in ("low", "mid", "high")]
        assert places == sorted(places)
        assert column.levels.index("mid") < column.levels.index("top")
    text = pd.DataFrame({"k": ["mid", "low"] * 50})
    source = in_parts(Chunks([text, one]))
    [column] = columns_of_parts(source, source._head(), "from_dtype")
    assert column[:2] == ("nominal", ("high", "low", "mid"))
    other = ordered(["high", "low"] * 50, ["high", "low"])
    refused(ValueError, "order", GAUSSIAN.fit, Chunks([one, other]))


@pytest.mark.parametrize("asked", [["z", "p", "r", "q"], ["p", "q"]])
def test_levels_of_dask_that_are_listed(asked):
    dd = pytest.importorskip("dask.dataframe")
    table = frame()[["number", "text"]]
    lazy = dd.from_pandas(table, npartitions=3)
    given = {"categorical_features": {"text": asked}}
    imputer = GaussianImputer(max_iter=4, n_parameter_draws=1, **given)
    if len(asked) == 4:
        assert list(imputer.fit(lazy).categories_["text"]) == asked
    else:  # negative control
        refused(ValueError, "not among the levels", imputer.fit, lazy)


def test_a_table_of_dask_does_not_change_the_output_of_others():
    dd = pytest.importorskip("dask.dataframe")
    table = frame()[["number", "text"]]
    imputer = GaussianImputer(max_iter=4, n_parameter_draws=1)
    imputer.set_output(transform="default").fit(table)
    filled = imputer.transform(dd.from_pandas(table, npartitions=2)).compute()
    assert not filled.isna().any(axis=None)
    assert isinstance(imputer.transform(table), np.ndarray)


def test_text_among_numbers_names_part_and_column():
    table = frame()[["number", "flag"]].astype(object)
    table.loc[850, "number"] = "many"
    with pytest.raises(ValueError, match=r"Part [34] of X .*'number'"):
        GAUSSIAN.fit(parts(table, ENDS[1]))
    numbers = frame()[["number"]].assign(late=1.0)
    late = numbers.assign(late="many")
    refused(ValueError, r"Part 1 of X .*'late'", GAUSSIAN.fit, Chunks([numbers, late]))


def test_scores_take_bounded_memory(monkeypatch):
    """The draws of a batch of rows, not those of all."""
    from skvnce.gaussian.latent import fill

    table = frame()[["number", "flag"]]
    imputer = GaussianImputer(max_iter=4, n_parameter_draws=1, random_state=0)
    imputer.fit(table)
    expected, sizes, plain = imputer.score_samples(table), [], fill.log_prob

    def counted(latents, normal, data, *args):
        sizes.append(len(data.x))
        return plain(latents, normal, data, *args)

    monkeypatch.setattr(fill, "log_prob", counted)
    monkeypatch.setattr("skvnce.gaussian.model.at_once", lambda latents: 100)
    np.testing.assert_array_equal(imputer.score_samples(table), expected)
    assert max(sizes) == 100
