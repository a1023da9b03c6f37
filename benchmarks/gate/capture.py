"""Captures programs often, unchanged and with planted slowdowns: capture.py OUT; needs nsys and the package.

Ten captures of each state; OUT gets a saved summary of each, `KIND-WHERE-PERCENT.N.json`, and `steps.csv`, the mean
step (ns) by the program's own clock. Programs start side by side, and record in turns on each GPU.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OUT = Path(sys.argv[1])
PROGRAM = Path(__file__).parent / "program.py"
TIMES = int(os.environ.get("TIMES", "10"))
PERCENTS = [int(word) for word in os.environ.get("PERCENTS", "3 5 10 20").split()]
AT_ONCE = int(os.environ.get("AT_ONCE", "12"))
STOP = time.monotonic() + float(os.environ.get("LIMIT", "3600"))
"""When no more batches start."""
GPUS = int(os.environ.get("GPUS", "1"))
STATES = (("host", "host"), ("gpu", "kernel"), ("mixed", "host"))
Run = tuple[str, str, int, int, int]
"""Kind, where, percent, planted time (ns) and number of a capture."""


def capture(runs: list[Run], gpu: int, folder: Path) -> dict[Run, int]:
    """Return the step (ns) of each run. All start at once and record in turns, on one GPU."""
    gate = Path(tempfile.mkdtemp(dir=folder))
    started = []
    for run in runs:
        kind, where, percent, planted, number = run
        ranks = 2 if kind == "ddp" else 1
        port = 29500 + hash((gate.name, number)) % 20000
        for rank in range(ranks):
            name = f"{kind}-{where}-{percent}.{number}" + (f".rank{rank}" if ranks > 1 else "")
            environment = os.environ | {
                "GATE": str(gate),
                "NAME": name,
                "GPU": str(gpu),
                "RANK": str(rank),
                "MASTER_PORT": str(port),
            }
            words = [
                "nsys",
                "profile",
                "--sample=none",
                "--cpuctxsw=none",
                "--trace=cuda,nvtx",
                f"--session-new=s{name.replace('.', '-')}",
                "--capture-range=cudaProfilerApi",
                "--capture-range-end=stop",
                "--force-overwrite=true",
                "-o",
                str(folder / name),
                sys.executable,
                str(PROGRAM),
                kind,
                where,
                str(planted),
            ]
            process = subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            started.append((run, name, process))
    names = {run: [name for own, name, _ in started if own == run] for run in runs}
    wait(gate, {f"{name}.ready": process for _, name, process in started})
    for run in runs:
        for name in names[run]:
            (gate / f"{name}.go").touch()
        wait(gate, {f"{name}.done": process for own, name, process in started if own == run})
    for _, name, _ in started:
        (gate / f"{name}.end").touch()
    found = {}
    for run, _, process in started:
        try:
            text = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            continue
        steps = [int(line.split()[1]) for line in text.splitlines() if line.startswith("STEP")]
        if steps:
            found[run] = steps[0]
        else:
            print(run, text[-600:], file=sys.stderr)
    return found


def wait(gate: Path, processes: dict[str, subprocess.Popen[str]], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while (
        not all((gate / name).exists() or own.poll() is not None for name, own in processes.items())
        and time.monotonic() < until
    ):
        time.sleep(0.02)


def capture_all(runs: Iterable[Run], folder: Path, gpus: int, at_once: int = AT_ONCE) -> dict[Run, int]:
    """Capture the runs in an order that mixes their states, so that no state has all of a slow time."""
    ordered = sorted(runs, key=lambda run: (run[4], run))
    batches = [ordered[first : first + at_once] for first in range(0, len(ordered), at_once)]
    with ThreadPoolExecutor(gpus) as pool:
        lanes = [
            pool.submit(
                lambda own, gpu: [capture(batch, gpu, folder) for batch in own if time.monotonic() < STOP],
                batches[gpu::gpus],
                gpu,
            )
            for gpu in range(gpus)
        ]
        return {run: ns for lane in lanes for found in lane.result() for run, ns in found.items()}


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    OUT.mkdir(exist_ok=True, parents=True)
    kinds = os.environ.get("KINDS", "host gpu mixed").split()
    begin = time.monotonic()
    gpus = 1 if "ddp" in kinds else GPUS
    pilot = capture_all([(kind, "pilot", 0, 0, n) for kind in kinds for n in range(3)], folder, gpus)
    typical = {kind: sorted(ns for run, ns in pilot.items() if run[0] == kind)[1] for kind in kinds}
    print(typical, flush=True)
    states = [(kind, "none", 0) for kind in kinds]
    states += [(kind, where, percent) for kind, where in STATES if kind in kinds for percent in PERCENTS]
    runs = [(*state, typical[state[0]] * state[2] // 100, n) for state in states for n in range(TIMES)]
    steps = capture_all(runs, folder, gpus)
    print(f"captured: {time.monotonic() - begin:.0f} s", flush=True)
    with (OUT / "steps.csv").open("a") as table:
        table.writelines(
            f"{kind},{where},{percent},{planted},{n},{ns}\n" for (kind, where, percent, planted, n), ns in steps.items()
        )

    def summarize(name: str) -> None:
        reports = sorted(map(str, folder.glob(f"{name}.*nsys-rep")))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "nsys2prv_ng",
                "summary",
                *reports,
                "-j",
                "1",
                "--quiet",
                "--save",
                str(OUT / f"{name}.json"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            print(name, done.stderr[-500:], file=sys.stderr)

    with ThreadPoolExecutor(max(os.cpu_count() // 2, 1)) as pool:
        list(pool.map(summarize, sorted({f"{run[0]}-{run[1]}-{run[2]}.{run[4]}" for run in steps})))
    print(f"summarized: {time.monotonic() - begin:.0f} s", flush=True)


main()
