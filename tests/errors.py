"""Tables of wrong calls: the error that each raises, and words of its message."""

import pytest


def raising(errors):
    """Make a test of each call of ``{error: {words: call}}``."""
    rows = [
        pytest.param(call, error, words, id=words[:60])
        for error, calls in errors.items()
        for words, call in calls.items()
    ]

    @pytest.mark.parametrize(("call", "error", "words"), rows)
    def test_errors(call, error, words):
        with pytest.raises(error, match=words):
            call()

    return test_errors
