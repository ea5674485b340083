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
    code = (
        f"import sys; from skvnce.{module} import *; "
        f"print({libraries} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
