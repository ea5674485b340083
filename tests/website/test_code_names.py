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
