"""The recipe for Spark in doc/user_guide/large.rst; needs pyspark and Java."""

import shutil

import numpy as np
import pandas as pd
import pytest

from skvnce import GaussianImputer
from skvnce.options import Chunks

pytestmark = pytest.mark.slow


def test_spark_fills_by_map_in_pandas(tmp_path, rng_0):
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    X = rng_0.normal(size=(400, 1)) + rng_0.normal(size=(400, 3))
    X[rng_0.random(X.shape) < 0.2] = np.nan
    frame = pd.DataFrame(X, columns=list("abc"))
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    builder = sql.SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        rows = [[None if np.isnan(x) else float(x) for x in row] for row in X]
        df = session.createDataFrame(rows, "a double, b double, c double")
        df = df.repartition(3)
        df.write.parquet(str(tmp_path / "table"))
        chunks = Chunks.from_parquet(tmp_path / "table")
        imputer = GaussianImputer(random_state=0).fit(chunks)

        def fill(parts):
            for part in parts:
                yield pd.DataFrame(imputer.transform(part), columns=part.columns)

        filled = df.mapInPandas(fill, schema=df.schema).toPandas()
        given = df.toPandas()
    finally:
        session.stop()
    assert filled.shape == frame.shape and not filled.isna().any(axis=None)
    expected = pd.DataFrame(imputer.transform(given), columns=given.columns)
    order = ["a", "b", "c"]
    exact = expected.sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(filled.sort_values(order, ignore_index=True), exact)
    in_memory = GaussianImputer(random_state=0).fit(frame)
    np.testing.assert_allclose(imputer.mean_, in_memory.mean_, atol=0.05)
