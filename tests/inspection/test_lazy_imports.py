import subprocess
import sys


def test_pictures_load_their_libraries_at_first_use():
    code = (
        "import sys, skvnce.inspection; "
        "print({'matplotlib', 'networkx', 'torch', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
