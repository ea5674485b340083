"""CPU seconds of the examples of the gallery, which ``tests/website`` compares.

Wall time depends on what else the machine does, and is what the pages show.  CPU time
depends on the machine, and on what runs on the other half of a core: it is that of a
machine on which a fixed piece of work takes `PACE`, as measured around the example.
"""

import resource
from pathlib import Path

import numpy as np

PACE = 0.11  # CPU seconds, where the slowest example takes 16 s
_STEPS = 24_000  # of a loop over small matrices, as most examples have
_started = {}


def used():
    """Return the CPU seconds of this process and its finished children."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, both))


def pace():
    """Return the CPU seconds of the fixed piece of work."""
    begin, root = used(), np.random.default_rng(0).normal(size=(40, 40)) / 6
    state = root
    for _ in range(_STEPS):
        state = np.tanh(state @ root)
    return used() - begin


def record(gallery_conf, name, when):
    """Write what an example took; called before and after it."""
    if when == "before":
        _started[name] = pace(), used()
        return
    before, begin = _started.pop(name)
    seconds = used() - begin
    seconds *= PACE / ((before + pace()) / 2)
    folder = Path(gallery_conf["src_dir"]) / "generated" / "cpu_seconds"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{Path(name).stem}.txt").write_text(f"{seconds:.1f}\n")
