"""Commands on jobs of copies with more and more cores: time, cores in use, memory, and whether outputs are the same.

python benchmarks/cores.py REPORT.sqlite... [--counts 4,64] [--cores 1,2,4,8,16] [--commands translate,summary]
    [--keep FOLDER]

Prints a table and writes benchmarks/measured/cores.json, from which chart.py draws the speed-up. A first run of each
command is not counted: it compiles. 64 reports of 72 MB need 8 GB of disk; with --keep the jobs stay in FOLDER.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measure import OURS, describe_machine, measure_cost, save
from scale import find_or_make_job

MEASURED = Path(__file__).parent / "measured/cores.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--counts", default="4,64", help="numbers of reports, multiples of those given")
    parser.add_argument("--cores", default="1,2,4,8,16", help="values of --jobs")
    parser.add_argument("--commands", default="translate,summary", help="translate, summary, what-if")
    parser.add_argument("--keep", type=Path, help="folder for the jobs, which stay there")
    arguments = parser.parse_args()
    cores = sorted(map(int, arguments.cores.split(",")))
    print(describe_machine())
    print("| command | reports | cores | wall s | speed-up | cores in use | peak GB |\n|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        warm = find_or_make_job(arguments.reports, len(arguments.reports), folder / "warm")
        for count in map(int, arguments.counts.split(",")):
            job = find_or_make_job(arguments.reports, count, folder / f"job{count}")
            for command in arguments.commands.split(","):
                run(command, warm, folder, cores[-1])
                rows += measure(command, job, folder, cores)
    save(MEASURED, "cores.py", rows)


def measure(command: str, job: Sequence[Path], folder: Path, cores: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each number of cores, and print it. Raises SystemExit if outputs differ."""
    rows: list[dict[str, Any]] = []
    for number in cores:
        row = {"who": command, "reports": len(job), "cores": number, **run(command, job, folder, number)}
        if row["sha256"] != rows[0]["sha256"] if rows else False:
            raise SystemExit(f"{command} of {len(job)} reports: the output with {number} cores differs")
        rows.append(row)
        speed_up, in_use = rows[0]["wall"] / row["wall"], row["cpu"] / row["wall"]
        print(
            f"| {command} | {len(job)} | {number} | {row['wall']:.1f} | {speed_up:.1f} | {in_use:.1f} |"
            f" {row['pss'] / 1e9:.1f} |",
            flush=True,
        )
    return rows


def run(command: str, job: Sequence[Path], folder: Path, cores: int) -> dict[str, Any]:
    """Run a command, and return its cost and the hash of its output."""
    output = folder / "out.prv"
    options = [output, "--force"] if command == "translate" else ["--json"]
    printed = folder / "out.json"
    cost = measure_cost([*OURS, command, *job, *options, "--jobs", str(cores)], output=printed)
    with (output if command == "translate" else printed).open("rb") as file:
        return {**asdict(cost), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


if __name__ == "__main__":
    main()
