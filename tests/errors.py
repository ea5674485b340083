"""Errors of calls."""

import pytest


def refused(error, words, call, /, *arguments, **options):
    """Check that a call raises an error that says some words."""
    with pytest.raises(error, match=words):
        call(*arguments, **options)
