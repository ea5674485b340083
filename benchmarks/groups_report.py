"""The page of clustered tables, from the results of a simulation and of real tables.

    python benchmarks/groups_simulation.py
    python benchmarks/groups_real.py
    python benchmarks/groups_report.py [--simulation FILE] [--real FILE]
        [--output doc/benchmarks/groups.md]

Methods that lack a repetition or a table are shown with the number of those they have.
"""

import groups_real
import groups_simulation
from _report import Results, Texts, commits, made_by, publish
from _runner import options_of


def main():
    """Report."""
    options = options_of(
        __doc__,
        simulation=str(groups_simulation.RESULTS),
        real=str(groups_real.RESULTS),
    )
    simulated, real = Results(options.simulation), Results(options.real)
    records = simulated.records + real.records
    versions = sorted({one["version"] for one in records if "version" in one})
    notes = "Measured by `groups_simulation.py` and `groups_real.py`."
    head = [
        "# Clustered tables: random intercepts",
        made_by("groups_report.py", notes),
        f"Commits: {commits(records)}. R: {', '.join(versions)}.",
        Texts("groups")("rivals"),
    ]
    parts = groups_simulation.page(simulated) + groups_real.page(real)
    publish(head + parts, options.output)


if __name__ == "__main__":
    main()
