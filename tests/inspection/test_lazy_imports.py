import subprocess
import sys

CODE = """
import sys

from skvnce.inspection import *
print({"matplotlib", "networkx", "torch", "sklearn"} & set(sys.modules))
from skvnce.pooling import *
print({"torch", "zuko", "numba"} & set(sys.modules))
from skvnce.evaluation import *
print({"torch", "zuko", "numba"} & set(sys.modules))
import skvnce.gaussian.estimator
print({"torch"} & set(sys.modules))
"""


def test_modules_load_libraries_at_first_use():
    """Unlike a module of models, which is the negative control."""
    run = [sys.executable, "-c", CODE]
    process = subprocess.run(run, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == ["set()"] * 3 + ["{'torch'}"]
