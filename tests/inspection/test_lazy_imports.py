import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "libraries"),
    [
        ("inspection", {"matplotlib", "networkx", "torch", "sklearn"}),
        ("pooling", {"torch", "zuko", "numba"}),
        ("evaluation", {"torch", "zuko", "numba"}),
    ],
)
def test_modules_load_libraries_at_first_use(module, libraries):
    found = f"{libraries} & set(sys.modules)"
    code = f"import sys; from skvnce.{module} import *; print({found})"
    run = [sys.executable, "-c", code]
    process = subprocess.run(run, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"
