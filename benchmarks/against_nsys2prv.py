"""Time and memory of nsys2prv and of this program, for the same kinds of event of the same reports, on one machine.

python benchmarks/against_nsys2prv.py NSYS2PRV REPORT.sqlite... [--counts 1,2,4] [--rounds 5] [--ours='OPTIONS']

The two programs take turns. NSYS2PRV is the program of an environment of its own (`pip install nsys2prv==0.6.0rc1`); no
nsys is needed, since the exports are there. If a count is larger than the number of given reports, make_job.py makes a
job of copies. Prints tables, and writes the figures to benchmarks/measured/against_nsys2prv.json for chart.py.
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
from measure import KINDS, OURS, Cost, count_lines, describe_machine, make_measurement, measure_cost, save

MEASURED = Path(__file__).parent / "measured/against_nsys2prv.json"
PEER_KINDS = "kernels,nvtx,cuda_api_trace,nccl,gpu_metrics,osrt,memory_usage"
OUR_SOURCES = "kernels,memory_operations,launch_lines,nvtx,cuda_api,nccl,gpu_metrics,os_runtime,cuda_memory"
SAME_KINDS = ("--sources", OUR_SOURCES, "--no-derived", "--osrt-min", "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nsys2prv", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--counts", default="1,2,4", help="numbers of reports to translate")
    parser.add_argument("--rounds", type=int, default=5, help="runs of this program; the table shows their median")
    parser.add_argument("--peer-rounds", type=int, default=1, help="runs of nsys2prv")
    parser.add_argument("--ours", default="", help="more options for this program")
    arguments = parser.parse_args()
    options = f" --ours='{arguments.ours}'" if arguments.ours else ""
    command = f"against_nsys2prv.py --counts {arguments.counts} --rounds {arguments.rounds}{options}"
    rows = []
    for count in map(int, arguments.counts.split(",")):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            rows += compare(arguments, count, Path(folder))
        print(format_table(rows[-2:]), flush=True)
        save(MEASURED, command, rows)
    print(describe_machine())
    print(format_table(rows))


def compare(arguments: argparse.Namespace, count: int, folder: Path) -> list[dict[str, Any]]:
    """Measure nsys2prv and this program with `count` reports; return a row for each. Their runs take turns."""
    given = sorted(arguments.reports)
    exports = copy_reports(given, count, folder)
    ours, theirs = folder / "ours.prv", folder / "peer.prv"
    command = [*OURS, "translate", *SAME_KINDS, *shlex.split(arguments.ours), "--quiet", "--force", *exports, ours]
    # nsys2prv takes the export of a report from its working directory, and does not look at the report itself.
    peer = [arguments.nsys2prv.absolute(), "-t", PEER_KINDS, *(["-m"] if count > 1 else [])]
    peer += [export.with_suffix(".nsys-rep").name for export in exports] + [theirs.stem]
    measure_cost(command)  # compiles, and brings the exports into the page cache
    our_costs: list[Cost] = []
    peer_costs: list[Cost] = []
    for number in range(max(arguments.rounds, arguments.peer_rounds)):
        if number < arguments.peer_rounds:
            peer_costs.append(measure_cost(peer, folder))
        if number < arguments.rounds:
            our_costs.append(measure_cost(command))
    return [
        make_measurement(who, count, count_lines(prv), prv.stat().st_size, costs)
        for who, prv, costs in (("nsys2prv", theirs, peer_costs), ("nsys2prv-ng", ours, our_costs))
    ]


def copy_reports(given: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Copy `count` reports, and add the environment variable that nsys2prv needs to end without an error."""
    if count <= len(given):
        exports = [Path(shutil.copyfile(path, folder / f"rank{i:03}.sqlite")) for i, path in enumerate(given[:count])]
    else:
        exports = make_job(given, count, folder)
    for export in exports:
        with closing(sqlite3.connect(export)) as database, database:
            row = ("PROCESS_0:ENVIRONMENT_VARIABLE", 'PWD="/home/user"')
            database.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", row)
    return exports


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table. Rows are in pairs: nsys2prv, then this program."""
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
