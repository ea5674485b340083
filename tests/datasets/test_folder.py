"""Loaders of tables in the user's folder, on small tables of the documented form."""

import gzip
from functools import partial

import numpy as np
import pandas as pd
import pytest
from errors import refused

from skvnce import datasets

MOLECULES = ["raf", "mek", "plc", "pip2", "pip3", "erk", "akt", "pka", "pkc"]
MOLECULES += ["p38", "jnk"]
SACHS = pd.DataFrame(
    np.arange(22).reshape(2, 11) + 0.5, columns=MOLECULES, dtype=float
).assign(condition=["cd3cd28", "u0126"], perturbation=["none", "mek"])
BOYS = pd.DataFrame(
    {
        "age": [0.035, 9.0, 15.5],
        "hgt": [50.1, None, 170.0],
        "wgt": [3.65, 30.0, 60.25],
        "bmi": [14.54, None, 20.8],
        "hc": [33.7, 53.0, None],
        "gen": [None, "G1", "G4"],
        "phb": [None, "P1", "P5"],
        "tv": [None, 3.0, 20.0],
        "reg": ["south", None, "city"],
    }
)
GENES = pd.DataFrame({"sample": ["A1", "B2"], "ABI1": [16, 0], "TP53": [10**7, 3]})
TITLES = pd.DataFrame(
    {"year": [1987, 2019], "title": ["Entropy, and more", 'The "null" Network']}
)
FACES = np.arange(2 * 560).reshape(2, 560).astype(np.uint8)
LOADERS = {
    "sachs": datasets.load_sachs,
    "boys": datasets.load_boys,
    "tcga_brca_rnaseq": datasets.load_tcga_brca,
    "neurips_titles": datasets.load_neurips_titles,
    "frey_faces": datasets.load_frey_faces,
}
TABLES = {
    "sachs": SACHS,
    "boys": BOYS,
    "tcga_brca_rnaseq": GENES,
    "neurips_titles": TITLES,
}
NUMBERS = ("sachs", "boys", "tcga_brca_rnaseq", "frey_faces")


def write(folder, name, table, ending=".csv"):
    (folder / name).mkdir(exist_ok=True)
    table.to_csv(folder / name / f"{name}{ending}", index=False)


@pytest.fixture
def home(tmp_path):
    for name, table in TABLES.items():
        write(tmp_path, name, table)
    (tmp_path / "frey_faces").mkdir()
    np.savez(tmp_path / "frey_faces" / "frey_faces.npz", x=FACES)
    return tmp_path


@pytest.mark.parametrize("name", NUMBERS)
def test_arrays_and_frames_have_the_same_cells(home, name):
    bunch = LOADERS[name](data_home=home)
    framed = LOADERS[name](data_home=home, as_frame=True)
    assert bunch.frame is None
    assert bunch.data.dtype == float
    assert list(framed.data.columns) == bunch.feature_names
    np.testing.assert_array_equal(framed.data.to_numpy(), bunch.data)
    assert list(framed.frame.columns)[: bunch.data.shape[1]] == bunch.feature_names


def test_sachs_has_intensities_conditions_and_the_network(home):
    bunch = datasets.load_sachs(data_home=home, as_frame=True)
    assert bunch.feature_names == MOLECULES
    np.testing.assert_array_equal(bunch.data, SACHS[MOLECULES])
    assert list(bunch.target) == list(bunch.frame["condition"]) == ["cd3cd28", "u0126"]
    assert list(bunch.perturbation) == ["none", "mek"]
    X, y = datasets.load_sachs(data_home=home, return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    assert list(y) == list(bunch.target)


def test_the_published_network_has_its_arcs(home):
    edges = datasets.load_sachs(data_home=home).edges
    sizes = {version: len(arcs) for version, arcs in edges.items()}
    assert sizes == {"literature20": 20, "validated17": 17, "cdt18": 18}
    expected = {*MOLECULES}
    assert {name for arcs in edges.values() for arc in arcs for name in arc} == expected
    assert ("raf", "mek") in edges["literature20"]
    assert all(len({frozenset(arc) for arc in a}) == len(a) for a in edges.values())


def test_boys_are_measurements_with_nan(home):
    bunch = datasets.load_boys(data_home=home)
    expected = BOYS[["age", "hgt", "wgt", "bmi", "hc", "tv"]]
    assert bunch.feature_names == list(expected.columns)
    np.testing.assert_array_equal(bunch.data, expected)


def test_tcga_has_genes_and_barcodes(home):
    bunch = datasets.load_tcga_brca(data_home=home)
    assert bunch.feature_names == ["ABI1", "TP53"]
    assert list(bunch.sample_names) == ["A1", "B2"]
    np.testing.assert_array_equal(bunch.data, [[16, 10**7], [0, 3]])


def test_faces_are_rows_and_images(home):
    bunch = datasets.load_frey_faces(data_home=home)
    np.testing.assert_array_equal(bunch.data, FACES)
    assert bunch.images.shape == (2, 28, 20)
    place = bunch.feature_names.index("pixel_3_7")
    assert bunch.images[1, 3, 7] == bunch.data[1, place]


def test_titles_are_text_with_years(home):
    titles, years = datasets.load_neurips_titles(data_home=home, return_X_y=True)
    assert list(titles) == list(TITLES["title"])
    assert list(years) == [1987, 2019]
    framed = datasets.load_neurips_titles(data_home=home, as_frame=True)
    pd.testing.assert_frame_equal(framed.frame[["year", "title"]], TITLES, rtol=0)
    assert framed.data.equals(framed.frame["title"])


def test_the_variable_names_the_folder(home, monkeypatch):
    monkeypatch.setenv("SKVNCE_DATA", str(home))
    assert datasets.load_boys().data.shape == (3, 6)


def test_compressed_tables_are_read(tmp_path):
    write(tmp_path, "boys", BOYS, ".csv.gz")
    with gzip.open(tmp_path / "boys" / "boys.csv.gz") as file:
        assert file.readline().startswith(b"age,hgt")
    assert datasets.load_boys(data_home=tmp_path).data.shape == (3, 6)


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_table_is_an_error_with_its_source(name, tmp_path, monkeypatch):
    load = LOADERS[name]
    monkeypatch.delenv("SKVNCE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="SKVNCE_DATA is not set") as caught:
        load()
    for part in (f"'{name}'", f"{name}/{name}.", "`data_home`", "How to get it: the"):
        assert part in str(caught.value)
    refused(FileNotFoundError, "has no such file", load, data_home=tmp_path)
    monkeypatch.setenv("SKVNCE_DATA", str(tmp_path))
    refused(FileNotFoundError, "has no such file", load)


def test_a_table_without_a_column_is_refused(tmp_path):
    write(tmp_path, "boys", BOYS.drop(columns=["hc", "tv"]))
    with pytest.raises(ValueError, match=r"boys\.csv lacks the columns hc, tv\. How"):
        datasets.load_boys(data_home=tmp_path)


def test_a_row_of_another_length_is_refused(home):
    with (home / "boys" / "boys.csv").open("a") as file:
        file.write("1.5,80\n")
    with pytest.raises(ValueError, match="Row 3 .* has 2 cells instead of 9"):
        datasets.load_boys(data_home=home)


def test_every_call_returns_a_table_of_its_own(home):
    for load in (partial(load, data_home=home) for load in LOADERS.values()):
        first = load()
        first.data[0] = 0
        assert not np.array_equal(load().data, first.data)
