"""The same kinds of event of the same reports, translated by nsys2prv and by this program, in turns on one machine.

python benchmarks/against_nsys2prv.py NSYS2PRV REPORT.sqlite... [--counts 1,2,4] [--rounds 5] [--ours='OPTIONS']

NSYS2PRV is the program of an environment of its own (`pip install nsys2prv==0.6.0rc1`); no nsys is needed, since the
exports are there. Of more reports than are given a job is made (make_job.py). Prints tables, and writes the figures to
benchmarks/measured/against_nsys2prv.json for chart.py.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from make_job import make_job
from measure import KINDS, OURS, Cost, cost_of, lines_of, machine, measurement, save

MEASURED = Path(__file__).parent / "measured/against_nsys2prv.json"
PEER_KINDS = "kernels,nvtx,cuda_api_trace,nccl,gpu_metrics,osrt,memory_usage"
OUR_SOURCES = "kernels,memory_operations,launch_lines,nvtx,cuda_api,nccl,gpu_metrics,os_runtime,cuda_memory"
SAME_KINDS = ("--sources", OUR_SOURCES, "--no-derived", "--osrt-min", "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nsys2prv", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--counts", default="1,2,4", help="numbers of reports to translate")
    parser.add_argument("--rounds", type=int, default=5, help="runs of this program, of which the median is taken")
    parser.add_argument("--peer-rounds", type=int, default=1, help="runs of nsys2prv")
    parser.add_argument("--ours", default="", help="more options for this program")
    arguments = parser.parse_args()
    options = f" --ours='{arguments.ours}'" if arguments.ours else ""
    told = f"against_nsys2prv.py --counts {arguments.counts} --rounds {arguments.rounds}{options}"
    rows = []
    for count in map(int, arguments.counts.split(",")):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            rows += compared(arguments, count, Path(folder))
        print(table(rows[-2:]), flush=True)
        save(MEASURED, told, rows)
    print(machine())
    print(table(rows))


def compared(arguments: argparse.Namespace, count: int, folder: Path) -> list[dict[str, Any]]:
    """Measurements of nsys2prv and of this program with `count` reports. The runs of the two take turns."""
    given = sorted(arguments.reports)
    exports = made(given, count, folder)
    ours, theirs = folder / "ours.prv", folder / "peer.prv"
    command = [*OURS, "translate", *SAME_KINDS, *shlex.split(arguments.ours), "--quiet", "--force", *exports, ours]
    # It takes the export of a report from its working directory, and does not look at the report itself.
    peer = [arguments.nsys2prv.absolute(), "-t", PEER_KINDS, *(["-m"] if count > 1 else [])]
    peer += [export.with_suffix(".nsys-rep").name for export in exports] + [theirs.stem]
    cost_of(command)  # compiles, and brings the exports into the page cache
    our_costs: list[Cost] = []
    peer_costs: list[Cost] = []
    for number in range(max(arguments.rounds, arguments.peer_rounds)):
        if number < arguments.peer_rounds:
            peer_costs.append(cost_of(peer, folder))
        if number < arguments.rounds:
            our_costs.append(cost_of(command))
    return [
        measurement(who, count, lines_of(prv), prv.stat().st_size, costs)
        for who, prv, costs in (("nsys2prv", theirs, peer_costs), ("nsys2prv-ng", ours, our_costs))
    ]


def made(given: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Copies of so many reports, with the environment variable that nsys2prv needs to end without an error."""
    if count <= len(given):
        exports = [Path(shutil.copyfile(path, folder / f"rank{i:03}.sqlite")) for i, path in enumerate(given[:count])]
    else:
        exports = make_job(given, count, folder)
    for export in exports:
        with closing(sqlite3.connect(export)) as database, database:
            row = ("PROCESS_0:ENVIRONMENT_VARIABLE", 'PWD="/home/user"')
            database.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", row)
    return exports


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown. Rows are in pairs: nsys2prv, then this program."""
    lines = [
        "| reports | program | wall s | CPU s | peak PSS GB | max RSS GB | trace MB"
        f" | {' | '.join(KINDS)} | CPU us a record |",
        "|---|---|" + "---|" * 9,
    ]
    for row in rows:
        walls = f"{row['wall']:.1f}" + (f" ({row['wall_least']:.1f}-{row['wall_most']:.1f})" if row["runs"] > 1 else "")
        kinds = " | ".join(f"{row[kind]:,}" for kind in KINDS)
        lines.append(
            f"| {row['reports']} | {row['who']} | {walls} | {row['cpu']:.1f} | {row['pss'] / 1e9:.2f}"
            f" | {row['max_rss'] / 1e9:.2f} | {row['bytes'] / 1e6:.0f} | {kinds}"
            f" | {row['cpu'] / row['records'] * 1e6:.2f} |"
        )
    for peer, ours in zip(rows[::2], rows[1::2], strict=True):
        ratios = [f"{peer[name] / ours[name]:.1f} in {name}" for name in ("wall", "cpu", "pss")]
        noun = "report" if peer["reports"] == 1 else "reports"
        lines.append(f"\n{peer['reports']} {noun}, nsys2prv over nsys2prv-ng: {', '.join(ratios)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
