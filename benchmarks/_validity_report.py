"""The page of the validity study, from its results."""

from pathlib import Path

RESULTS = Path(__file__).with_name("results") / "validity.jsonl"


def page(results):
    return []
