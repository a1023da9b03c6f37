"""The summary of a job of many reports, with its page: time, and memory of all processes together.

python benchmarks/summarize.py REPORT.sqlite... [--counts 64,256,1024] [--share 0.4] [--every 12] [--keep FOLDER]

The job is made of copies (make_job.py) of the first part of the reports, so that many fit on the disk. With --keep the
jobs stay in FOLDER, and the next run uses them. benchmarks/page.py measures how long Chromium takes to show a page.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path

from make_job import write_first_part
from measure import OURS, describe_machine, measure_cost
from scale import find_or_make_job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--counts", default="64,256,1024", help="numbers of reports, multiples of those given")
    parser.add_argument("--share", type=float, default=0.4, help="part of the time to keep")
    parser.add_argument("--every", type=int, default=12, help="keep each so many-th sample of GPU metrics")
    parser.add_argument("--ours", default="", help="options of the summary")
    parser.add_argument("--keep", type=Path, help="folder for the jobs, which stay there")
    arguments = parser.parse_args()
    print(describe_machine())
    print("| reports | wall s | CPU s | peak GB | page MB |\n|---|---|---|---|---|")
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        parts = folder / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        given = write_first_part(sorted(arguments.reports), parts, arguments.share, arguments.every)
        for count in map(int, arguments.counts.split(",")):
            job, page = find_or_make_job(given, count, folder / f"job{count}"), folder / "page.html"
            cost = measure_cost([*OURS, "summary", *shlex.split(arguments.ours), "--html", page, *job])
            size = page.stat().st_size
            print(
                f"| {count} | {cost.wall:.1f} | {cost.cpu:.1f} | {cost.pss / 1e9:.2f} | {size / 1e6:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
