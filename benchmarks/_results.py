"""Files of results of benchmarks: one JSON object a line, and the commit."""

import json
import subprocess
from pathlib import Path


class Results:
    """Records in a file of JSON lines, or in memory."""

    def __init__(self, path=None):
        self.path = Path(path) if path else None
        lines = []
        if self.path and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
        self.records = [json.loads(line) for line in lines]

    def find(self, **key):
        """Return the record with these entries, or None."""
        for record in self.records:
            if all(record.get(name) == value for name, value in key.items()):
                return record
        return None

    def add(self, record):
        """Keep a record, and append it to the file."""
        self.records.append(record)
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def commit():
    """Return the commit of this checkout; None where git does not know."""
    ask = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
