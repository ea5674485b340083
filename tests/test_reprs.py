"""Settings and tables in parts describe themselves in a line, without data."""

import numpy as np
import pandas as pd
import pytest

from skvnce import options
from skvnce.options import Chunks

X = np.arange(1800.0).reshape(600, 3)


def never():
    raise AssertionError("a repr has read a chunk")


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        (Chunks([X[:200], X[200:]]), "Chunks(2 parts)"),
        (Chunks([never, never]), "Chunks(2 parts)"),
        (Chunks([X.tolist()]), "Chunks(1 part)"),
        (Chunks.from_array(X, 250), "Chunks(3 parts)"),
    ],
)
def test_chunks_say_their_number(chunks, wanted):
    assert repr(chunks) == str(chunks) == wanted


def test_parts_of_row_groups_are_not_read(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    pd.DataFrame(X, columns=list("abc")).to_parquet(path)
    chunks = Chunks.from_parquet(path)
    path.unlink()
    assert repr(chunks) == "Chunks(1 part)"


@pytest.mark.parametrize("name", sorted(set(options.__all__) - {"Chunks", "TorchVAE"}))
def test_settings_show_what_is_set(name):
    option = getattr(options, name)
    assert repr(option()) == f"{name}()"
