#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks in environments of their own: `nox -l` lists them, `nox -s lowest` runs one."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests with the newest versions."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", "-n", "auto", "--dist", "loadgroup", *session.posargs)


@nox.session(default=False)
def lowest(session: nox.Session) -> None:
    """Run the imputers' contract with the lowest versions."""
    pinned = ("-r", "constraints-lowest.txt", "torch==2.6.0")
    session.install(*pinned, "-e", ".[test]")
    session.run("pytest", "-n", "auto", "tests/test_imputer_contract.py")


@nox.session(default=False)
def nightly(session: nox.Session) -> None:
    """Run the tests with pre-releases of all dependencies."""
    session.install("--pre", "--upgrade", "-e", ".[test]")
    session.run("pytest", "-n", "auto", "--dist", "loadgroup", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.install("-c", "constraints.txt", "-e", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("pytest", "-m", "site", "tests/test_types.py")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site without running the gallery."""
    session.install("-c", "constraints.txt", "-e", ".[doc]")
    session.run("sphinx-build", "-W", "-D", "plot_gallery=0", "doc", "doc/_build")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel, and check them."""
    session.install("-e", ".[release]")
    session.run("python", "-m", "build")
    session.run("tools/release", "--dry-run", "--dist", "dist", external=True)


if __name__ == "__main__":
    nox.main()
