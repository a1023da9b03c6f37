"""Time and memory against the number of reports, for jobs of copies of a few reports (make_job.py).

python benchmarks/scale.py REPORT.sqlite... [--counts 4,8,16,32,64] [--rounds 3] [--ours='OPTIONS'] [--keep FOLDER]

A trace of n times the smallest number of reports must have exactly n times its nodes, tasks, rows, lines of each kind
and events of each source, read, written and dropped, and the checker must find nothing. Prints a table and whether the
bars are kept, and writes the figures to benchmarks/measured/scale.json for chart.py. 64 reports take 4.6 GB of
disk and their trace 3.4 GB; with --keep the jobs stay and the next run uses them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from make_job import make_job, write_shortened
from measure import KINDS, OURS, Cost, count_lines, describe_machine, make_measurement, measure_cost, save

MEASURED = Path(__file__).parent / "measured/scale.json"
MOST_GROWTH = 1.2
"""Bar: time per event of the largest job over that of the smallest."""
MOST_MEMORY = 2e9
"""Bar: peak memory of any job, bytes of PSS."""
MOST_SPREAD, FROM_RECORDS = 1.2, 10_000_000
"""Bar: largest over smallest time per record after start-up, of all traces with at least FROM_RECORDS records."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--counts", default="4,8,16,32,64", help="numbers of reports, multiples of those given")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the table shows their median")
    parser.add_argument("--ours", default="", help="options of the translator")
    parser.add_argument("--keep", type=Path, help="folder for the reports, which stay there")
    arguments = parser.parse_args()
    counts = sorted(map(int, arguments.counts.split(",")))
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        given, options = sorted(arguments.reports), shlex.split(arguments.ours)
        start_up, _ = translate([write_shortened(given[0], folder / "short.sqlite")], folder, options, arguments.rounds)
        print("start-up: {wall:.1f} s, CPU {cpu:.1f} s".format(**start_up), flush=True)
        start_up["who"] = "start-up"
        command = f"scale.py --counts {arguments.counts} --rounds {arguments.rounds} {arguments.ours}".strip()
        rows: list[dict[str, Any]] = []
        first = None
        for count in counts:
            job = find_or_make_job(given, count, folder / f"job{count}")
            row, stats = translate(job, folder, options, arguments.rounds)
            if not arguments.keep:
                shutil.rmtree(job[0].parent)
            first = first or (row, stats)
            wrong = list_differences(*first, row, stats)
            if wrong:
                raise SystemExit(f"{count} reports: " + "; ".join(wrong))
            rows.append(row)
            print(format_table(rows[-1:], start_up), flush=True)
            save(MEASURED, command, [start_up, *rows])
    print(describe_machine())
    print(format_table(rows, start_up))
    print("\n".join(check_bars(rows, start_up)))


def find_or_make_job(reports: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Return the reports of the job in a folder; make them unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(folder.glob("rank*.sqlite"))
    return there if len(there) == count else make_job(reports, count, folder)


def translate(
    reports: Sequence[Path], folder: Path, options: Sequence[str], rounds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate reports; return the measurement, and the numbers of `translate --stats`.

    A first run is not counted. The trace is checked after the last one.
    """
    prv, stats_file = folder / "out.prv", folder / "out.json"
    command = [*OURS, "translate", *options, "--quiet", "--force", "--stats", stats_file, *reports, prv]
    costs: list[Cost] = [measure_cost(command) for _ in range(rounds + 1)][1:]
    measure_cost([*OURS, "check", prv])
    stats = json.loads(stats_file.read_text())
    row = make_measurement("nsys2prv-ng", len(reports), count_lines(prv), prv.stat().st_size, costs)
    row["read"] = sum(source["read"] for source in stats["sources"])
    for path in (prv, prv.with_suffix(".pcf"), prv.with_suffix(".row"), stats_file):
        path.unlink()
    return row, stats


def list_differences(
    first: dict[str, Any], first_stats: dict[str, Any], row: dict[str, Any], stats: dict[str, Any]
) -> list[str]:
    """Return where the numbers of a larger job are not the multiple of those of the smallest job."""
    copies = row["reports"] // first["reports"]
    pairs = [(kind, first[kind], row[kind]) for kind in KINDS]
    pairs += [(name, first_stats[name], stats[name]) for name in ("nodes", "tasks", "rows", *KINDS)]
    for one, many in zip(first_stats["sources"], stats["sources"], strict=True):
        pairs += [(f"{one['name']} {what}", one[what], many[what]) for what in ("read", "written")]
        pairs.append((f"{one['name']} dropped", sum(one["dropped"].values()), sum(many["dropped"].values())))
    wrong = [f"{name} {many:,} is not {copies} x {one:,}" for name, one, many in pairs if many != copies * one]
    if len(stats["reports"]) != row["reports"]:
        wrong.append(f"{len(stats['reports'])} reports were read")
    return wrong


def compute_record_time(row: dict[str, Any], start_up: dict[str, Any], time: str) -> float:
    """Return microseconds per record, without the start-up; `time` is wall or cpu."""
    return float((row[time] - start_up[time]) / row["records"] * 1e6)


def format_table(rows: Sequence[dict[str, Any]], start_up: dict[str, Any]) -> str:
    """Return a Markdown table."""
    lines = [
        "| reports | events read | records | trace MB | wall s | CPU s | CPU us an event"
        " | CPU us a record after start-up | peak PSS GB | of it anonymous | max RSS GB |",
        "|---|" + "---|" * 10,
    ]
    for row in rows:
        walls = f"{row['wall']:.1f}" + (f" ({row['wall_least']:.1f}-{row['wall_most']:.1f})" if row["runs"] > 1 else "")
        per_record = compute_record_time(row, start_up, "cpu")
        lines.append(
            f"| {row['reports']} | {row['read']:,} | {row['records']:,} | {row['bytes'] / 1e6:,.0f} | {walls}"
            f" | {row['cpu']:.1f} | {row['cpu'] / row['read'] * 1e6:.2f} | {per_record:.2f}"
            f" | {row['pss'] / 1e9:.2f} | {row['anonymous'] / 1e9:.2f} | {row['max_rss'] / 1e9:.2f} |"
        )
    return "\n".join(lines)


def check_bars(rows: Sequence[dict[str, Any]], start_up: dict[str, Any]) -> list[str]:
    """Return a line for each bar, kept or not: by wall time, and by CPU time, which other load disturbs less."""
    small, large = rows[0], rows[-1]
    memory = max(row["pss"] for row in rows)
    lines = [f"{_judge(memory < MOST_MEMORY)}: peak memory {memory / 1e9:.2f} GB; less than {MOST_MEMORY / 1e9:.0f}"]
    for time in ("wall", "cpu"):
        growth = large[time] / large["read"] / (small[time] / small["read"])
        verdict = _judge(growth <= MOST_GROWTH)
        lines.append(
            f"{verdict}: {time} time per event of {large['reports']} reports is {growth:.2f} times"
            f" that of {small['reports']}; at most {MOST_GROWTH}"
        )
        long = [row for row in rows if row["records"] >= FROM_RECORDS]
        if len(long) > 1:
            times = [compute_record_time(row, start_up, time) for row in long]
            spread = max(times) / min(times)
            lines.append(
                f"{_judge(spread < MOST_SPREAD)}: {time} time per record after start-up varies by a factor of"
                f" {spread:.2f} from {long[0]['records'] / 1e6:.0f} to {long[-1]['records'] / 1e6:.0f} million records;"
                f" below {MOST_SPREAD}"
            )
    return lines


def _judge(kept: bool) -> str:
    return "kept" if kept else "NOT KEPT"


if __name__ == "__main__":
    main()
