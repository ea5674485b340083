"""The page of all public names, and the pages of its sections."""

import re
import sys

from site_pages import ROOT

sys.path.insert(0, str(ROOT / "doc" / "_ext"))
import api_groups  # noqa: E402

TEXT = (ROOT / "doc" / "api.rst").read_text()
NAME = re.compile(r"^   ((?:\w+\.)?\w+)$", re.M)


def test_each_name_is_on_one_page():
    bodies = api_groups.sections(TEXT)
    on_pages = [
        name
        for title, body in bodies.items()
        for name in NAME.findall(api_groups.page(title, body))
    ]
    assert sorted(on_pages) == sorted(NAME.findall(TEXT))
    assert {"Estimators", "Plots", "Errors and warnings"} <= set(bodies)


def test_pages_have_the_names_below_them():
    for title, body in api_groups.sections(TEXT).items():
        source = api_groups.page(title, body)
        assert source.startswith(f"{title}\n{'=' * len(title)}\n")
        assert source.count("   :toctree: ../generated\n") == 1
    overview = api_groups.overview(TEXT)
    assert ":toctree:" not in overview and "   api/estimators\n" in overview
    assert NAME.findall(overview) == NAME.findall(TEXT)
