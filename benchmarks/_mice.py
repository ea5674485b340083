"""R, where it is installed: scripts of R, and the packages that it finds."""

import subprocess
from functools import cache
from shutil import which


@cache
def installed(package="mice"):
    """Say whether Rscript is there and finds a package."""
    code = f"quit(status = !requireNamespace('{package}', quietly = TRUE))"
    ask = ["Rscript", "-e", code]
    return (
        which("Rscript") is not None
        and not subprocess.run(ask, capture_output=True, check=False).returncode
    )


def run_r(*arguments):
    """Run a script in R; an error of R is raised with its words."""
    done = subprocess.run(
        ["Rscript", "--vanilla", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"R failed: {done.stderr.strip()[-2000:]}")
