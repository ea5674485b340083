"""CPU seconds of the examples of the gallery, which ``tests/website`` compares.

Wall time depends on what else the machine does, and is what the pages show.
"""

import resource
from pathlib import Path

_started = {}


def used():
    """Return the CPU seconds of this process and its finished children."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, both))


def record(gallery_conf, name, when):
    """Write what an example took; called before and after it."""
    if when == "before":
        _started[name] = used()
        return
    folder = Path(gallery_conf["src_dir"]) / "generated" / "cpu_seconds"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = used() - _started.pop(name)
    (folder / f"{Path(name).stem}.txt").write_text(f"{seconds:.1f}\n")
