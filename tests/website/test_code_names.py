"""Names of classes, parameters and attributes in the pages exist in the package."""

import pytest
from code_names import unknown
from site_pages import built_site, read_all

pytestmark = pytest.mark.site


def test_names_in_pages_exist():
    found = {}
    checked = 0
    for path, page in read_all(built_site()).items():
        for code, line in page.codes:
            checked += 1
            for fault in unknown(code):
                found.setdefault(fault, f"{path}:{line}: {code}: {fault}")
    assert checked > 1000
    assert not found, "\n".join(found.values())


RIGHT = [
    "GaussianImputer",
    "GaussianImputer(max_value=100).sample",
    "GaussianImputer.fit(X, lower=, upper=)",
    "VGIImputer.estimators_",
    "IterativeImputer(sample_posterior=True)",
    "skvnce.pooling.pool_models",
    "skvnce._core.models.Sampler",
    "components_",
    "n_draws",
    "random_state=0",
    "p(x_mis | x_obs)",
    "skvnce/pooling/__init__.py",
    "--only-report",
    "{}",
]
WRONG = [
    "GausianImputer",
    "LAIRImputr()",
    "GaussianImputer(max_valu=100)",
    "GaussianImputer().sampel",
    "GaussianImputer.meen_",
    "IterativeImputer(sample_posteriors=True)",
    "skvnce.poling",
    "skvnce.pooling.pool_modles",
    "pool_models(resluts=a)",
    "componets_",
    "n_drwas",
    "radnom_state=0",
    "skvnce/pooling.py",
    "python benchmarks/imputatoin.py --quick",
]


@pytest.mark.parametrize("code", RIGHT)
def test_right_names(code):
    assert not unknown(code)


@pytest.mark.parametrize("code", WRONG)
def test_misspelt_names_are_found(code):
    assert unknown(code)


def test_misspelt_names_are_found_in_a_page(tmp_path):
    text = "<p>Use <code>GaussianImputer</code>,\n<code>GausianImputer</code>.</p>"
    (tmp_path / "page.html").write_text(text)
    [page] = read_all(tmp_path).values()
    assert [line for code, line in page.codes if unknown(code)] == [2]
