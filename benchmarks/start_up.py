"""Start of a command, one step after the other: Python, the libraries, numba's first function, the modules, the report.

usage: python benchmarks/start_up.py REPORT [ROUNDS]

Each step is a process of its own that does all of the steps before as well. The table shows the least wall and CPU time
of the rounds, in which the steps take turns. What numba compiles, and Python's own caches, are kept by a first run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

LIBRARIES = "import numpy, numba, pyarrow.compute"
READY = "import nsys2prv_ng.runtime.machine_code as kept; kept.load_numba()"
MODULES = (
    "import nsys2prv_ng.cli.summary, nsys2prv_ng.clock.alignment, nsys2prv_ng.analysis.waits.waits;"
    "import nsys2prv_ng.summary.summarize, nsys2prv_ng.summary.text"
)
STEPS = {
    "Python": "pass",
    "numpy": "import numpy",
    "numba": "import numpy, numba",
    "pyarrow": LIBRARIES,
    "numba's runtime": f"{LIBRARIES}; {READY}",
    "typer, modules of this program": f"{LIBRARIES}; {READY}; {MODULES}",
}


def measure(command: list[str]) -> tuple[float, float]:
    """Return the wall and CPU time (s) of a command."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(report: str, rounds: int = 5) -> None:
    """Print the table."""
    commands = {name: [sys.executable, "-c", code] for name, code in STEPS.items()}
    commands[f"summary {report}"] = [sys.executable, "-m", "nsys2prv_ng", "summary", report]
    for command in commands.values():
        measure(command)
    times = [{name: measure(command) for name, command in commands.items()} for _ in range(rounds)]
    print("| up to | wall s | CPU s |\n|---|---|---|")
    for name in commands:
        wall, cpu = (min(values) for values in zip(*(each[name] for each in times), strict=True))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
