"""Measure the memory and the time that Paraver needs to load traces, and fit them to their records.

    python benchmarks/paraver_load.py PARAMEDIR TRACE.prv...

Each trace is loaded as it is, and once for each kind of record with the lines of that kind alone. A program that only
loads is paramedir with a preset that shows nothing. Memory is the peak of the process; time is that of the CPU. The
costs of a record are the least squares of relative errors over all loads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.paraver.load_cost import LoadCost

PRESET = """\
#ParaverCFG
ConfigFile.Version: 3.4
ConfigFile.NumWindows: 1
window_name rows
window_type single
window_id 1
window_level thread
window_begin_time_relative 0.0
window_end_time_relative 0.0000001
window_selected_functions { 2, { {thread, Thread ID}, {evt_type, All} } }
"""
KINDS = {b"1": "states", b"2": "events", b"3": "communications"}
LEAST_CPU = 0.1
"""Seconds: shorter loads are not fitted, since starting the program is most of them."""


class Load(NamedTuple):
    """A load: what was loaded, its states, pairs and communications, bytes of memory and seconds of CPU time."""

    name: str
    counts: tuple[int, int, int]
    memory: int
    seconds: float


def main(paramedir: str, traces: list[str]) -> None:
    """Print a table of all loads, and the fitted costs."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        (folder / "rows.cfg").write_text(PRESET)
        loads = [load for trace in traces for load in measure(Path(paramedir).resolve(), Path(trace), folder)]
    print(
        "| trace | states | pairs | communications | GB | estimate | s | estimate |\n|---|---|---|---|---|---|---|---|"
    )
    for load in loads:
        states, pairs, communications = load.counts
        cost = LoadCost(states=states, pairs=pairs, communications=communications)
        counts = " | ".join(f"{count:,}" for count in load.counts)
        print(
            f"| {load.name} | {counts} | {load.memory / 1e9:.3f} | {cost.memory / 1e9:.3f}"
            f" | {load.seconds:.2f} | {cost.seconds:.2f} |"
        )
    for what, values in (("bytes", [load.memory for load in loads]), ("us", [load.seconds * 1e6 for load in loads])):
        used = [i for i, load in enumerate(loads) if load.seconds >= LEAST_CPU]
        measured = np.array(values, np.float64)[used]
        counts = np.array([(1, *loads[i].counts) for i in used], np.float64)
        fit = np.linalg.lstsq(counts / measured[:, None], np.ones(len(used)), rcond=None)[0]
        errors = counts @ fit / measured
        print(
            f"{what}: {fit[0]:,.0f} + {fit[1]:.2f} a state + {fit[2]:.2f} a pair + {fit[3]:.2f} a communication;"
            f" fitted / measured {errors.min():.3f} to {errors.max():.3f}"
        )


def measure(paramedir: Path, trace: Path, folder: Path) -> list[Load]:
    """Load a trace, and what is left of it with the lines of each kind alone."""
    parts = {"": folder / f"all-{trace.name}"} | {kind: folder / f"{kind}-{trace.name}" for kind in KINDS.values()}
    counts = dict.fromkeys(parts, (0, 0, 0))
    files = {kind: part.open("wb") for kind, part in parts.items()}
    states = pairs = communications = 0
    with trace.open("rb") as lines:
        for line in lines:
            kind = KINDS.get(line[:1], "")
            files[""].write(line)
            for other, file in files.items():
                if other and (not kind or kind == other):
                    file.write(line)
            states += kind == "states"
            communications += kind == "communications"
            pairs += (line.count(b":") - 5) // 2 if kind == "events" else 0
    for file in files.values():
        file.close()
    counts = {
        "": (states, pairs, communications),
        "states": (states, 0, 0),
        "events": (0, pairs, 0),
        "communications": (0, 0, communications),
    }
    loads = [
        Load(f"{trace.stem} {kind}".strip(), counts[kind], *load(paramedir, part))
        for kind, part in parts.items()
        if any(counts[kind])
    ]
    for part in parts.values():
        part.unlink()
    return loads


def load(paramedir: Path, trace: Path) -> tuple[int, float]:
    """Return the peak of memory (bytes) and the CPU time (s) of paramedir for a trace."""
    rows, cost = trace.with_name("rows.csv"), trace.with_name("cost.txt")
    # GNU time, since a child of a large process starts with the peak of that.
    command = ["/usr/bin/time", "-o", cost.name, "-f", "%M %U %S", str(paramedir), trace.name, "rows.cfg", rows.name]
    environment = os.environ | {"HOME": str(trace.parent.resolve())}
    subprocess.run(command, cwd=trace.parent, env=environment, stdout=subprocess.DEVNULL, check=True)
    if not rows.exists():  # the exit code of paramedir is 0 whatever happens
        sys.exit(f"{trace}: paramedir did not load it")
    rows.unlink()
    kilobytes, user, system = map(float, cost.read_text().split())
    return round(kilobytes * 1024), user + system


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
