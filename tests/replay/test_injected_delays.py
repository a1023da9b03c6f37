"""Delays that were put into copies of real reports: a replay without their cause saves just them, to 1 %."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.what_if import Experiment
from tests.analysis.waits.test_planted_waits import DELAY, copy_to_one_node, delay, read_kernels
from tests.replay.jobs import opened_model
from tests.tiers import cases

RANKS = range(4)
Interval = tuple[int, int]


def measure(reports: Sequence[Path], folder: Path, change: str = "") -> tuple[int, int]:
    """Return how long (ns) all steps are that count, and how much shorter they get by a change."""
    with opened_model(reports, folder) as model:
        experiment = Experiment(model)
        lengths = experiment.observed.lengths
        saved = experiment.run(parse_changes(change)).saving_ns * lengths.size if change else 0
        return int(lengths.sum()), saved


def check_saving(before: Sequence[Path], after: Sequence[Path], folder: Path, change: str) -> None:
    """Compare what a change saves with the delay, by which the steps have become longer."""
    planted, saved = measure(after, folder, change)
    assert planted - measure(before, folder)[0] == pytest.approx(DELAY, rel=0.01)
    assert saved == pytest.approx(DELAY, rel=0.01)


# ---- hosts -----------------------------------------------------------------------------------------------------------


def read_collectives(report: Path) -> list[Interval]:
    """Return the all-reduces of all ranks: those of the communicator of the barriers, one in each step."""
    query = """SELECT e.start, e."end" FROM MPI_COLLECTIVES_EVENTS e JOIN StringIds s ON s.id = e.textId
        WHERE s.value = 'MPI_Allreduce' AND e.commHandle = (SELECT b.commHandle FROM MPI_COLLECTIVES_EVENTS b
        JOIN StringIds n ON n.id = b.textId WHERE n.value = 'MPI_Barrier') ORDER BY e.start"""
    with closing(sqlite3.connect(report)) as database:
        return database.execute(query).fetchall()


def add_range(report: Path, name: str, begin: int, end: int) -> None:
    """Add a range to the thread that calls MPI."""
    query = """INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId)
        SELECT ?, ?, 59, ?, (SELECT globalTid FROM MPI_COLLECTIVES_EVENTS), 0"""
    with closing(sqlite3.connect(report)) as database, database:
        database.execute(query, (begin, end, name))


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "step"), cases([(0, 3), (2, 5)], push=1))
def test_a_host_that_is_late(samples: Path, tmp_path: Path, rank: int, step: int) -> None:
    """One rank computes longer before an all-reduce, in which the others wait for it."""
    before = [samples / f"mpi-4.rank{r}.sqlite" for r in RANKS]
    after = copy_to_one_node(before, tmp_path)
    for other, report in enumerate(after):
        begin, end = read_collectives(report)[step]
        delay(report, begin if other == rank else end)
        if other == rank:
            add_range(report, "planted", begin, begin + DELAY)
    check_saving(before, after, tmp_path, "range 'planted' = 0")


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def is_quiet(report: Path, time: int) -> bool:
    """Return whether a host waits for its GPU at a time, and no operation runs across it."""
    with closing(sqlite3.connect(report)) as database:

        def is_found(query: str) -> bool:
            return database.execute(f'{query} e.start < {time} AND e."end" > {time}').fetchone() is not None

        tables = ("KERNEL", "MEMCPY", "MEMSET")
        busy = any(is_found(f"SELECT 1 FROM CUPTI_ACTIVITY_KIND_{table} e WHERE") for table in tables)
        waiting = "SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME e JOIN StringIds s ON s.id = e.nameId"
        return not busy and is_found(f"{waiting} WHERE s.value LIKE '%Synchronize%' AND")


def find_last_kernel(report: Path, number: int) -> Interval:
    """Return the kernel of a step that was the only one to run as it ended, with the host waiting."""
    query = """SELECT start, "end" FROM NVTX_EVENTS WHERE text = 'step ' || :number OR textId = (SELECT id FROM
        StringIds WHERE value = 'step ' || :number)"""
    with closing(sqlite3.connect(report)) as database:
        begin, end = database.execute(query, {"number": number}).fetchone()
    kernels = [kernel[:2] for kernel in read_kernels(report, "%") if begin < kernel[0] and kernel[1] < end]
    return next(kernel for kernel in reversed(kernels) if is_quiet(report, kernel[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "step"), [(0, 3), (3, 5)])
def test_a_kernel_that_takes_longer(samples: Path, tmp_path: Path, rank: int, step: int) -> None:
    """The host waits for the kernel. A change that makes it as short as it was saves what was added."""
    before = [samples / f"ddp-2x2.rank{rank}.sqlite"]
    after = copy_to_one_node(before, tmp_path)
    begin, end = find_last_kernel(after[0], step)
    delay(after[0], end)
    with closing(sqlite3.connect(after[0])) as database, database:
        database.execute("INSERT INTO StringIds (id, value) SELECT max(id) + 1, 'planted' FROM StringIds")
        database.execute(
            """UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET (shortName, demangledName) = (SELECT max(id), max(id) FROM
            StringIds) WHERE start = ?""",
            (begin,),
        )
    check_saving(before, after, tmp_path, f"kernel 'planted' * {(end - begin) / (end - begin + DELAY):.12f}")
