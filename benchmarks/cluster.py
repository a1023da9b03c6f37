"""One large job in processes of this machine and on a Dask cluster of it: time, memory of each process, same bytes.

python benchmarks/cluster.py REPORT.sqlite... [--count 1024] [--workers 2] [--keep FOLDER] [--ours='OPTIONS']

The job is made of copies of the reports (make_job.py); with --keep it stays in FOLDER, and the next run uses it. The
cluster is dask.distributed's LocalCluster: a scheduler, and workers of one thread each. Prints a table; raises
SystemExit if the traces differ or the checker finds fault with them.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from measure import OURS, Cost, describe_machine, measure_cost
from scale import find_or_make_job

SUFFIXES = (".prv", ".pcf", ".row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=1024, help="reports of the job, a multiple of those given")
    parser.add_argument("--workers", type=int, default=2, help="workers of the cluster, and cores without it")
    parser.add_argument("--ours", default="", help="options of the translator")
    parser.add_argument("--keep", type=Path, help="folder for the job, which stays there")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        job = find_or_make_job(sorted(arguments.reports), arguments.count, folder / f"job{arguments.count}")
        prv = folder / "out.prv"
        command = [*OURS, "translate", *shlex.split(arguments.ours), "--quiet", "--force", *job, prv]
        rows, digests = [], []
        cost = measure_cost([*command, "-j", str(arguments.workers)])
        rows.append(("processes", cost, cost.max_rss, 0.0))
        digests.append(digest_trace(prv))
        measure_cost([*OURS, "check", prv])
        size = prv.stat().st_size
        prv.unlink()  # the disk holds one of them
        with start_cluster(arguments.workers) as (address, watch):
            cost = measure_cost([*command, "--dask", address])
            rows.append(("cluster", cost, *watch()))
        digests.append(digest_trace(prv))
    print(describe_machine())
    print(f"{arguments.count} reports, trace of {size / 1e9:.1f} GB\n")
    print(format_table(rows))
    if digests[0] != digests[1]:
        raise SystemExit("the traces differ")
    print("\nThe traces have the same bytes.")


@contextmanager
def start_cluster(workers: int) -> Iterator[tuple[str, object]]:
    """Start a cluster; yield its address, and a function that returns a worker's peak memory and all CPU seconds."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def watch() -> tuple[int, float]:
            used = client.run(_read_usage).values()
            return max(memory for memory, _ in used), sum(cpu for _, cpu in used)

        yield cluster.scheduler_address, watch


def _read_usage() -> tuple[int, float]:
    """Return peak memory (bytes) and CPU seconds of a worker; runs there."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def digest_trace(prv: Path) -> list[str]:
    """Return the SHA-256 of the files of a trace."""
    digests = []
    for suffix in SUFFIXES:
        with prv.with_suffix(suffix).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def format_table(rows: Sequence[tuple[str, Cost, int, float]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| where | wall s | CPU s | peak GB of a worker | peak GB of the process that plans |",
        "|---|---|---|---|---|",
    ]
    for where, cost, memory, cpu in rows:
        lines.append(
            f"| {where} | {cost.wall:.0f} | {cost.cpu + cpu:.0f} | {memory / 1e9:.2f} | {cost.max_rss / 1e9:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
