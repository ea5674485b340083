"""Files of results of benchmarks: one JSON object a line, with the commit."""

import json
from pathlib import Path

from _report import commit


class Results:
    """Records in a file of JSON lines, or in memory where no file is named."""

    def __init__(self, path=None):
        self.path = Path(path) if path else None
        lines = []
        if self.path and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
        self.records = [json.loads(line) for line in lines]

    def of(self, **key):
        """Return the records with these entries."""
        return [
            record
            for record in self.records
            if all(record.get(name) == value for name, value in key.items())
        ]

    def find(self, **key):
        """Return the first record with these entries, or None."""
        return next(iter(self.of(**key)), None)

    def has(self, **key):
        """Say whether there is a record with these entries."""
        return bool(self.of(**key))

    def add(self, record):
        """Keep a record, with the commit of the code, and append it to the file."""
        self.records.append(record | {"commit": commit()})
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.records[-1]) + "\n")

    def write(self):
        """Write all records anew, some of which have changed."""
        lines = [json.dumps(record) + "\n" for record in self.records]
        self.path.write_text("".join(lines), encoding="utf-8")

    def commits(self):
        """Name the commits of all records."""
        return ", ".join(sorted({str(record["commit"]) for record in self.records}))
